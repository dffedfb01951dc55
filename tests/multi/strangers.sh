#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Attacks a real job while it starts, and prints a table: how long the job took
# from the start of its other ranks to its end, how much longer that is than
# with nobody at the door, and the memory of rank 0's process, which serves the
# store, before and under the attack. No stranger may join, delay the job by
# over 1 s, or cost 8 MB.
#
# usage: tests/multi/strangers.sh [--build DIR] [--runs N]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build runs=1
while [ $# -gt 1 ]; do
	case $1 in
	--build) build=$2 ;;
	--runs) runs=$2 ;;
	esac
	shift 2
done
work=$(mktemp -d)
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
ranks=4
port=$((20000 + $$ % 10000))
attacker='' pids=()

cleanup() {
	[ -z "$attacker" ] || kill "$attacker" 2>/dev/null
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

rank() { # RANK: in the background; its process is the last of pids
	env VBN_RANK="$1" VBN_SIZE=$ranks VBN_ADDRESS=127.0.0.1:$port \
		VBN_SECRET="$secret" VBN_PROVIDER=shm VBN_TIMEOUT_MS=20000 \
		"$build/bin/verbena-perf" allreduce -s 64 -n 5 \
		>"$work/rank.$1" 2>&1 &
	pids+=($!)
}

memory() { # of rank 0, KB
	awk '/^VmRSS/ { print $2 }' "/proc/${pids[0]}/status" 2>/dev/null
}

# job ATTACK: took, before and under are set. False if a rank or stranger did
# not do as it should.
job() {
	local attack=$1 begin pid r good=0
	port=$((port + 1)) pids=()
	secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	rank 0
	for ((r = 0; r < 100; r++)); do # rank 0 listens
		grep -q ":$(printf %04X $port) 00000000:0000 0A" \
			/proc/net/tcp && break
		sleep 0.05
	done
	before=$(memory)
	if [ "$attack" != none ]; then
		coproc "$build/bin/stranger" "$port" "$attack" 20
		attacker=$COPROC_PID
		read -r -t 10 <&"${COPROC[0]}" || good=1
		sleep 1
	fi
	under=$(memory)
	begin=$(date +%s%3N)
	for ((r = 1; r < ranks; r++)); do
		rank $r
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || good=1
	done
	took=$(($(date +%s%3N) - begin))
	if [ "$attack" != none ]; then
		kill -0 "$attacker" 2>/dev/null || good=1 # it was let in
		kill "$attacker" 2>/dev/null
		wait "$attacker" 2>/dev/null
		attacker=''
	fi
	return $good
}

printf '%-8s %8s %8s %12s %12s\n' attack 'job ms' 'delay' 'before KB' 'under KB'
alone=0
for attack in none secret noise drip half replay huge flood churn; do
	most=0 good=1 grown=0
	for ((run = 0; run < runs; run++)); do
		job "$attack" || good=0
		[ "$took" -le "$most" ] || most=$took
		[ $((under - before)) -le "$grown" ] ||
			grown=$((under - before))
	done
	[ "$attack" != none ] || alone=$most
	printf '%-8s %8d %8d %12d %12d\n' "$attack" "$most" \
		$((most - alone)) "$before" $((before + grown))
	[ $((most - alone)) -le 1000 ] && [ "$grown" -lt 8192 ] || good=0
	if [ $good = 1 ]; then
		held "$attack"
	else
		broken "$attack" "the job's last words:"
		tail -n 3 "$work"/rank.* | sed 's/^/    /'
	fi
done
checks_end
