#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The verbs provider on the kernel's soft-RoCE: boots guests and runs the
# conformance suite, the provider's own tests, collectives, training and deaths
# there. What changes the guest itself has one of its own.
#
# usage: tests/rxe/verbs.sh [PART...]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
parts=$*

wanted() { # PART
	[ -z "$parts" ] || [[ " $parts " == *" $1 "* ]]
}

# part NAME SECONDS COMMAND...: in the guest; counts its last "N passed, ..."
# line. Processes that it leaves are killed.
part() {
	local name=$1 line status p=0 f=0 s=0
	shift
	wanted "$name" || return 0
	# bash takes in the orphans
	# shellcheck disable=SC2016
	unshare --pid --fork --kill-child --mount-proc bash -c \
		'timeout -k 10 "$@"; exit $?' - "$@" >"$work/out" 2>&1
	status=$?
	line=$(grep -E '^([a-z-]+: )?[0-9]+ passed, [0-9]+ failed' "$work/out" |
		tail -1 | sed 's/^[a-z-]*: //')
	if [ -n "$line" ]; then
		read -r p f s <<<"$(sed -E 's/[a-z, ]+/ /g' <<<"$line")"
	elif [ $status = 0 ]; then
		p=1
	fi
	[ $status = 0 ] || [ "$f" -gt 0 ] || f=1
	failed=$((failed + f))
	if [ "$f" -gt 0 ]; then cat "$work/out"; else
		grep -E '^skip|^perf ' "$work/out"
	fi
	echo "== $name: $p passed, $f failed, ${s:-0} skipped (exit $status)"
}

# guest RAILS SECONDS PART...: those that are wanted, in one guest. One that
# gives no result has failed.
guest() {
	local rails=$1 seconds=$2 name names=() status p f s bad=0
	shift 2
	for name; do
		! wanted "$name" || names+=("$name")
	done
	[ ${#names[@]} -gt 0 ] || return 0
	scripts/rxe --rails "$rails" --timeout "$seconds" -- \
		tests/rxe/verbs.sh "${names[@]}" 2>&1 | tee "$work/guest"
	status=${PIPESTATUS[0]}
	for name in "${names[@]}"; do
		read -r p f s <<<"$(sed -nE "s/^== $name: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped .*/\1 \2 \3/p" \
			"$work/guest" | tail -1)"
		[ -n "$p" ] || echo "not ok $name: no result (exit $status)"
		bad=$((bad + ${f:-1}))
		passed=$((passed + ${p:-0})) skipped=$((skipped + ${s:-0}))
	done
	[ "$status" = 0 ] || [ $bad -gt 0 ] || bad=1
	failed=$((failed + bad))
}

if [ "${VBN_GUEST:-}" = rxe ]; then
	part huge-pages 180 tests/multi/huge.sh verbs # while memory is whole
	part conformance 880 tests/conformance/run.sh verbs
	part provider 280 tests/rxe/provider.sh build
	part provider-asan 380 tests/rxe/provider.sh build-asan
	part collectives 480 tests/multi/coll.sh verbs --ranks "2 3" --cases \
		"large broadcast barrier matrix parts reproducible in-flight missing"
	part fork 180 tests/multi/fork.sh verbs
	part train 280 tests/rxe/train.sh
	part perf 280 tests/rxe/perf.sh build
	part kill 280 tests/fault/train.sh verbs --ranks "0 3"
	part rdmacm 130 tests/rxe/rdmacm.sh
	part rails 180 build/bin/verbs_rails 20
	[ "$failed" = 0 ]
	exit
fi

guest 1 1400 huge-pages conformance provider provider-asan collectives fork \
	train perf kill
guest 1 150 rdmacm # unloads a module
guest 2 200 rails
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
