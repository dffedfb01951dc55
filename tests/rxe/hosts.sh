#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts: boots two guests and runs the suites over both (hosts-guest.sh),
# then has one of two killed and stopped (hosts-fault.sh). --quick takes two
# minutes.
#
# usage: tests/rxe/hosts.sh [--quick] [--build DIR] [PART...]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
build=build
suites='conformance collectives ring train setting'
faults='put idle-1 idle-0 stop-20'
while [[ ${1-} == -* ]]; do
	case $1 in
	--quick)
		suites='conformance-quick collectives-quick ring train setting'
		faults='put stop-8'
		;;
	--build)
		build=$2
		shift
		;;
	*)
		sed -n '8s/^# //p' "$0" >&2
		exit 2
		;;
	esac
	shift
done
build=$(realpath "$build")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# part NAME COMMAND...: adds what its last line counts
part() {
	local name=$1 status line p=0 f=0 s=0 began=$SECONDS
	shift
	"$@" 2>&1 | tee "$work/out"
	status=${PIPESTATUS[0]}
	line=$(sed -nE 's/^(\[host 0\] )?([0-9]+) passed, ([0-9]+) failed, ([0-9]+) .*/\2 \3 \4/p' \
		"$work/out" | tail -1)
	read -r p f s <<<"${line:-0 0 0}"
	[ "$status" = 0 ] || [ "$f" -gt 0 ] || f=1
	[ "$p" -gt 0 ] || f=1
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	echo "== $name: $p passed, $f failed (exit $status)," \
		"$((SECONDS - began)) s"
}

if [ $# -gt 0 ]; then
	suites='' faults=''
	for name; do
		case $name in
		put | idle-* | stop-*) faults+=" $name" ;;
		*) suites+=" $name" ;;
		esac
	done
fi
# shellcheck disable=SC2086 # lists of words
[ -z "$suites" ] || part suites scripts/rxe --hosts 2 --rails 2 \
	--timeout 1500 --grace 5 -- tests/rxe/hosts-guest.sh "$build" $suites
# shellcheck disable=SC2086
[ -z "$faults" ] || part faults tests/rxe/hosts-fault.sh --build "$build" \
	$faults
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
