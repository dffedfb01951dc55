#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The verbs provider on the kernel's soft-RoCE: boots the guest and runs the
# conformance suite, the provider's own tests, collectives, training and
# deaths there. Each part in a guest of its own.
#
# usage: tests/rxe/verbs.sh [PART...]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# part NAME SECONDS COMMAND... : counts its last "N passed, ..." line. In a guest
# of $rails rails.
rails=1
part() {
	local name=$1 seconds=$2 line status p=0 f=0 s=0
	shift 2
	[ -z "$parts" ] || [[ " $parts " == *" $name "* ]] || return 0
	scripts/rxe --rails "$rails" --timeout "$seconds" -- "$@" >"$work/out" 2>&1
	status=$?
	line=$(grep -E '^([a-z-]+: )?[0-9]+ passed, [0-9]+ failed' "$work/out" |
		tail -1 | sed 's/^[a-z-]*: //')
	if [ -n "$line" ]; then
		read -r p f s <<<"$(sed -E 's/[a-z, ]+/ /g' <<<"$line")"
	elif [ $status = 0 ]; then
		p=1
	fi
	[ $status = 0 ] || [ "$f" -gt 0 ] || f=1
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
	echo "== $name: $p passed, $f failed (exit $status)"
	if [ "$f" -gt 0 ]; then cat "$work/out"; else
		grep -E '^skip|^perf ' "$work/out"
	fi
}

parts=$*
part conformance 900 tests/conformance/run.sh verbs
part provider 300 tests/rxe/provider.sh build
part provider-asan 400 tests/rxe/provider.sh build-asan
part collectives 500 tests/multi/coll.sh verbs --ranks "2 3" --cases \
	"large broadcast barrier matrix parts reproducible in-flight missing"
part fork 200 tests/multi/fork.sh verbs
part huge-pages 200 tests/multi/huge.sh verbs
part train 300 tests/rxe/train.sh
part kill 300 tests/fault/train.sh verbs --ranks "0 3"
part rdmacm 150 tests/rxe/rdmacm.sh
rails=2
part rails 200 build/bin/verbs_rails 20
rails=1
part perf 300 tests/rxe/perf.sh build

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
