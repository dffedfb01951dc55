#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Collectives over a provider: all cases with 1 to 5 ranks, with forced
# algorithms, and a death in mid call. Exits with 0 only if all have passed.
#
# usage: tests/multi/coll.sh PROVIDER [--build DIR] [--ranks "N ..."]
#        [--cases "NAME ..."]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '7,8s/^# //p' "$0" >&2; exit 2; }
provider=$1
shift
build=$root/build ranks='1 2 3 4 5' cases=
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || { sed -n '7,8s/^# //p' "$0" >&2; exit 2; }
	case $1 in
	--build) build=$2 ;;
	--ranks) ranks=$2 ;;
	--cases) cases=$2 ;;
	*) sed -n '7,8s/^# //p' "$0" >&2; exit 2 ;;
	esac
	shift 2
done
run=$build/bin/verbena-run
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

# launch NAME N CASE...: counts the cases; a failure shows what was printed.
launch() {
	local name=$1 n=$2 status ok bad
	shift 2
	"$run" -n "$n" --provider "$provider" --timeout 300 \
		"$build/bin/coll" "$@" >"$log" 2>&1
	status=$?
	ok=$(grep -c '^\[0\] ok ' "$log")
	bad=$(sed -n 's/^\[[0-9]*\] not ok \([^:]*\).*/\1/p' "$log" |
		sort -u | wc -l)
	[ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
	[ "$status" != 0 ] || [ "$ok" -gt 0 ] || bad=1
	passed=$((passed + ok)) failed=$((failed + bad))
	[ "$bad" = 0 ] && return
	echo "not ok $name: $n ranks, status $status"
	sed 's/^/    /' "$log"
}

# The last rank is killed: the others, started by hand, must end well.
death() {
	local n=$1 pids=() r bad=0 secret port
	secret=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	port=$((20000 + RANDOM % 12000))
	for ((r = 0; r < n; r++)); do
		VBN_RANK=$r VBN_SIZE=$n VBN_ADDRESS=127.0.0.1:$port \
			VBN_SECRET=$secret VBN_PROVIDER=$provider \
			timeout 60 "$build/bin/coll" death >>"$log" 2>&1 &
		pids+=($!)
	done
	for ((r = 0; r < n - 1; r++)); do
		wait "${pids[$r]}" || bad=1
	done
	wait "${pids[$((n - 1))]}" 2>/dev/null
	if [ "$bad" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not ok death: $n ranks"
		sed 's/^/    /' "$log"
	fi
}

for n in $ranks; do
	# shellcheck disable=SC2086
	launch all "$n" $cases
done
if [ -z "$cases" ]; then
	for algo in ring tree; do
		VBN_COLL_ALGO=$algo VBN_COLL_CHUNK=1000 \
			launch "$algo, small chunks" 3 allreduce groups bits
	done
	for n in 2 4; do
		: >"$log"
		death "$n" 2>/dev/null # the shell tells of what was killed
	done
fi
echo "coll: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
