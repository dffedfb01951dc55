#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Collectives over a provider: all cases with 1 to 5 ranks, with forced
# algorithms, 64 MiB once, with a progress thread, a death in mid call; the
# reproducible mode's bits are the same wherever the ranks are. Exits with 0
# only if all have passed.
#
# usage: tests/multi/coll.sh PROVIDER [--build DIR] [--ranks "N ..."]
#        [--cases "NAME ..."]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '9,10s/^# //p' "$0" >&2; exit 2; }
provider=$1
shift
build=$root/build ranks='1 2 3 4 5' cases=
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || { sed -n '9,10s/^# //p' "$0" >&2; exit 2; }
	case $1 in
	--build) build=$2 ;;
	--ranks) ranks=$2 ;;
	--cases) cases=$2 ;;
	*) sed -n '9,10s/^# //p' "$0" >&2; exit 2 ;;
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

# hashes PLACEMENT N: the reproducible mode's. mixed: the first two ranks share
# memory, the others are reached by ucx.
hashes() {
	local placement=$1 n=$2 program=("$build/bin/coll" reproducible)
	case $placement in
	mixed)
		# shellcheck disable=SC2016
		VBN_PROVIDER='' "$run" -n "$n" --timeout 100 bash -c \
			'[ "$VBN_RANK" -lt 2 ] || export VBN_PROVIDER=ucx
			exec "$@"' - "${program[@]}"
		;;
	*) "$run" -n "$n" --provider "$placement" --timeout 100 \
		"${program[@]}" ;;
	esac >"$log" 2>&1 || return
	sed -n 's/^\[0\] # hash of //p' "$log"
}

same_bits() {
	local n=$1 first placement got
	shift
	first=$(hashes "$1" "$n")
	for placement; do
		got=$(hashes "$placement" "$n")
		if [ "$(wc -l <<<"$got")" = 8 ] && [ "$got" = "$first" ]; then
			passed=$((passed + 1))
			continue
		fi
		failed=$((failed + 1))
		echo "not ok same bits: $n ranks, $placement and $1"
		diff <(echo "$first") <(echo "$got") | sed 's/^/    /'
	done
}

for n in $ranks; do
	# shellcheck disable=SC2086
	launch all "$n" $cases
done
if [ -z "$cases" ]; then
	algorithms='ring tree linear'
	[ "$provider" != shm ] || algorithms+=' biring double-tree halving
		hierarchical central sharded decentralized oneshot bruck mapped'
	for algo in $algorithms; do
		VBN_COLL_ALGO=$algo VBN_COLL_CHUNK=1000 launch \
			"$algo, small chunks" 3 blocking mixed-in-flight
	done
	for n in 2 4; do
		COLL_THREAD=1 launch "with a progress thread" "$n" large \
			blocking user interleaved in-flight mixed-in-flight \
			many-comms returned-early freed-in-flight \
			context-closed abort
	done
	launch "six ranks" 6 groups
	launch huge 3 huge
	[ "$provider" = ucx ] && same_bits 4 shm ucx mixed
	for n in 2 4; do
		: >"$log"
		death "$n" 2>/dev/null # the shell tells of what was killed
	done
	: >"$log"
	COLL_THREAD=1 death 3 2>/dev/null
fi
# In the guest that has a device: its processor has other kernels, too.
if [ "$provider" = verbs ] && [[ "${cases:-all reproducible}" == *reproducible* ]]; then
	same_bits 3 shm verbs
fi
echo "coll: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
