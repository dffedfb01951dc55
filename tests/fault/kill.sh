#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# kill -9 of any rank of a running job: all others end within 10 s, by
# themselves, with an error that names the dead rank. The ranks run without a
# launcher, which would stop them.
#
# usage: tests/fault/kill.sh [PROVIDER [BUILD_DIR [RANKS]]]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
provider=${1:-shm}
build=${2:-$root/build}
ranks=${3:-4}
bound=10
program=$build/bin/verbena-perf
work=$(mktemp -d)
pids=()

clean() {
	local pid

	for pid in "${pids[@]}"; do
		kill -9 "$pid" 2>/dev/null
	done
	rm -rf "$work"
}
trap clean EXIT

# A port that nobody listens on; taken a moment later, so it may be tried anew.
free_port() {
	local port

	while :; do
		port=$((20000 + RANDOM % 12000))
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo "$port"
}

start() {
	local port secret rank

	port=$(free_port)
	secret=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	pids=()
	for ((rank = 0; rank < ranks; rank++)); do
		VBN_RANK=$rank VBN_SIZE=$ranks VBN_SECRET=$secret \
			VBN_ADDRESS=127.0.0.1:$port VBN_PROVIDER=$provider \
			"$program" allreduce "$@" >"$work/out.$rank" \
			2>"$work/err.$rank" &
		pids+=($!)
	done
}

# await_output SECONDS: rank 0 has printed its heading.
await_output() {
	local end=$((SECONDS + $1))

	until grep -q '#wrong' "$work/out.0"; do
		[ $SECONDS -lt $end ] || return 1
		kill -0 "${pids[0]}" 2>/dev/null || return 1
		sleep 0.1
	done
}

now_ms() {
	date +%s%3N
}

# try VICTIM NAME ARGUMENT...: one job, one death.
try() {
	local victim=$1 name=$2 rank began took status wrong=0
	shift 2
	start "$@"
	if ! await_output 60; then
		echo "not ok $name # the job did not start"
		cat "$work"/err.* >&3
		clean_ranks
		return 1
	fi
	sleep 0.5
	began=$(now_ms)
	kill -9 "${pids[$victim]}"
	for ((rank = 0; rank < ranks; rank++)); do
		while kill -0 "${pids[$rank]}" 2>/dev/null &&
			[ $(($(now_ms) - began)) -lt $(((bound + 5) * 1000)) ]; do
			sleep 0.05
		done
		kill -0 "${pids[$rank]}" 2>/dev/null && {
			echo "rank $rank still runs"
			wrong=1
			kill -9 "${pids[$rank]}"
		}
	done
	took=$(($(now_ms) - began))
	for ((rank = 0; rank < ranks; rank++)); do
		wait "${pids[$rank]}"
		status=$?
		[ "$rank" -eq "$victim" ] && continue
		if [ $status -eq 0 ] || [ $status -gt 128 ]; then
			echo "rank $rank ended with status $status"
			wrong=1
		fi
		if ! grep -q "rank $victim" "$work/err.$rank"; then
			echo "rank $rank does not name rank $victim:"
			cat "$work/err.$rank"
			wrong=1
		fi
	done
	pids=()
	[ $took -lt $((bound * 1000)) ] || wrong=1
	if [ $wrong -ne 0 ]; then
		echo "not ok $name # after $took ms"
		return 1
	fi
	echo "ok $name # all others ended after $took ms"
}

clean_ranks() {
	local pid

	for pid in "${pids[@]}"; do
		kill -9 "$pid"
		wait "$pid"
	done
	pids=()
}

[ -x "$program" ] || {
	echo "kill.sh: no $program; build first" >&2
	exit 2
}
# The shell says of each killed job that it was killed; nobody needs that.
exec 3>&2 2>"$work/notices"
failed=0
passed=0
for ((v = 0; v < ranks; v++)); do
	# Large: in the middle of data; small: between calls, many a second.
	for size in 1048576 64; do
		if try "$v" "kill/$v/$size" -s $size -n 1000000000 --warmup 0; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
		fi
	done
done
echo "kill-$provider: $passed passed, $failed failed"
[ $failed -eq 0 ]
