#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Hosts and networks that are lost without a word, and ranks that are stopped:
# a real job on two hosts (network namespaces), whose link goes down, for good
# or for a moment; and one on this host, of which a process is stopped for
# longer than VBN_DEAD_MS, or all are. Needs root; skips otherwise.
#
# usage: tests/fault/vanish.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
perf=$build/bin/verbena-perf
work=$(mktemp -d)
port=$((4700 + $$ % 200))
ranks=3 pids=()
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/two_hosts.sh
. "$root/tests/support/two_hosts.sh"

cleanup() {
	[ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
	hosts_down
	rm -rf "$work"
}
trap cleanup EXIT
hosts_up || exit 0

# start NODE RANK SECONDS VARIABLE=VALUE...: puts to the next rank for so long
start() {
	local node=$1 rank=$2 seconds=$3
	shift 3
	set -- env VBN_RANK="$rank" VBN_SIZE=$ranks VBN_SECRET=secret \
		VBN_LOG=warn "$@" "$perf" put-bw -s 4K -t 8 -b -D "$seconds"
	if [ "$node" = here ]; then
		"$@" >"$work/rank.$rank" 2>&1 &
	else
		on "$node" "$@" >"$work/rank.$rank" 2>&1 &
	fi
	pids+=($!)
}

# Rank 0 on nodea, the others on nodeb; away until all run.
start_apart() { # SECONDS VBN_DEAD_MS
	local r node=nodea
	port=$((port + 1)) pids=()
	for ((r = 0; r < ranks; r++)); do
		start $node $r "$1" VBN_ADDRESS=10.99.0.1:$port \
			VBN_DEAD_MS="$2" VBN_PROVIDER=ucx UCX_TLS=tcp,self
		node=nodeb
	done
	sleep 2
}

start_here() { # SECONDS VBN_DEAD_MS
	local r
	port=$((port + 1)) pids=()
	for ((r = 0; r < ranks; r++)); do
		start here $r "$1" VBN_ADDRESS=127.0.0.1:$port \
			VBN_DEAD_MS="$2" VBN_PROVIDER=shm
	done
	sleep 1
}

# ends WELL: all end, each with success or not; took: ms
ends() {
	local begin pid status good=0
	begin=$(date +%s%3N)
	for pid in "${pids[@]}"; do
		wait "$pid"
		status=$?
		[ $((status == 0)) = "$1" ] || good=1
	done
	took=$(($(date +%s%3N) - begin))
	pids=()
	return $good
}

said() { # RANK WORDS
	grep -qE -e "$2" "$work/rank.$1"
}

# verdict NAME GOOD
verdict() {
	if [ "$2" = 0 ]; then
		held "$1 ($took ms)"
	else
		broken "$1" "$took ms"
		tail -n 6 "$work"/rank.* | cut -c1-300 | sed 's/^/    /'
	fi
	rm -f "$work"/rank.*
}

start_apart 60 2000
ip -n "$a" link set vha down
ends 0 && [ $took -lt 3500 ]
good=$?
# Whose word comes first depends on the side.
said 0 'rank [12] has died \(host nodeb: (no heartbeat for [0-9.]+ s|it holds)' &&
	said 1 'rank 0 has died \(at 10.99.0.1:[0-9]+: no heartbeat for' &&
	said 2 'rank 0 has died \(at 10.99.0.1:[0-9]+: no heartbeat for' || good=1
verdict "the link is lost" $good
ip -n "$a" link set vha up
sleep 0.5

start_apart 4 4000
ip -n "$a" link set vha down
sleep 1
ip -n "$a" link set vha up
ends 1
verdict "the link is away for 1 s" $?

start_here 60 1000
kill -STOP "${pids[2]}"
stopped=${pids[2]} pids=("${pids[@]:0:2}")
ends 0 && [ $took -lt 2500 ] &&
	said 0 'rank 2 has died \(host [^:]+: no heartbeat for' &&
	said 1 'rank 2 has died \(host [^:]+: no heartbeat for'
good=$?
pids=("$stopped")
sleep 1
kill -CONT "$stopped"
ends 0 && [ $took -lt 2500 ] || good=1
said 2 'rank 2: (the job has named this rank dead|rank 0 has died)' || good=1
verdict "a rank is stopped, and goes on" $good

start_here 3 1000
kill -STOP "${pids[@]}"
sleep 1.8
kill -CONT "${pids[@]}"
ends 1
verdict "all ranks are stopped, and go on" $?

start_here 3 0
kill -STOP "${pids[1]}"
sleep 1.8
kill -CONT "${pids[1]}"
ends 1
verdict "a rank is stopped, without heartbeats" $?
checks_end
