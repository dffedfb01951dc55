#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts, one of which is killed or stopped: boots two guests for each case,
# has four ranks at work, and kills the QEMU of one (no FIN, no RST), or stops it
# for a while. Looks at when the ranks of the other say what.
#
# usage: tests/rxe/hosts-fault.sh [--build DIR] [CASE...]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
build=build
if [ "${1:-}" = --build ]; then
	build=$2
	shift 2
fi
build=$(realpath "$build")
work=$(mktemp -d)
run=
# shellcheck source=tests/support/check.sh disable=SC2154
. "$root/tests/support/check.sh"

clean() {
	[ -z "$run" ] || kill "$run" 2>/dev/null
	rm -rf "$work"
}
trap clean EXIT

# The time is ours: what the guests' clocks say does not matter.
stamp() {
	local line
	while IFS= read -r line; do
		printf '%s %s\n' "$(now_ms)" "$line"
	done
}

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# start MODE VICTIM [SECONDS]: the job; waits until both survivors are at it.
start() {
	local i
	rm -f "$work/pids"
	: >"$work/log"
	scripts/rxe --hosts 2 --ranks 4 --grace 60 --timeout 240 \
		--pids "$work/pids" -- env VBN_LOG=info \
		"$build/bin/hosts_fault" "$@" \
		> >(stamp >"$work/log") 2>&1 &
	run=$!
	for ((i = 0; i < 1500; i++)); do
		[ "$(grep -c '\] ready' "$work/log")" -lt 2 ] || return 0
		kill -0 $run 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

qemu_of() {
	sed -n "s/^$1 //p" "$work/pids"
}

# said RANK PATTERN MS: the rank said so, at most that long after the fault
said() {
	local when
	when=$(sed -nE "s/^([0-9]+) \[$1\] $2.*/\1/p" "$work/log" | head -1)
	if [ -z "$when" ]; then
		broken "$name/$1: $2" "it does not say so"
	elif [ $((when - fault)) -gt "$3" ]; then
		broken "$name/$1: $2" "after $((when - fault)) ms"
	else
		held "$name/$1: $2 # after $((when - fault)) ms"
	fi
}

# ended STATUS: the job, so; no check of a survivor's failed
ended() {
	local status
	wait "$run"
	status=$?
	run=
	if [ $status = "$1" ] && ! grep -q '\] wrong:' "$work/log"; then
		held "$name/end"
	else
		broken "$name/end" "status $status"
	fi
	[ "$failed" = "$failures" ] || sed 's/^/    /' "$work/log"
}

# begin NAME MODE VICTIM [SECONDS]
begin() {
	name=$1 failures=$failed
	start "${@:2}" && return
	broken "$name" "the job did not start"
	cat "$work/log"
	kill $run 2>/dev/null
	wait $run
	run=
	return 1
}

# Rank 0 and 1 stream puts to the ranks of the host that is killed. rxe gives up
# after 0.4 s (timeout 14, retry count 6); heartbeats tell of the host.
killed_in_put() {
	local rank
	begin kill-in-put puts 1 || return
	sleep 0.5
	kill -KILL "$(qemu_of 1)"
	fault=$(now_ms)
	ended 125
	for rank in 0 1; do
		said $rank 'failed: Connection reset' 1000
		said $rank 'named: rank [23]' 5500
		said $rank left 20000
	done
}

killed_when_idle() { # VICTIM
	local rank
	begin "kill-when-idle-$1" idle "$1" || return
	sleep 0.5
	kill -KILL "$(qemu_of "$1")"
	fault=$(now_ms)
	ended 125
	for rank in 0 1 2 3; do
		[ $((rank / 2)) = "$1" ] ||
			said $rank "named: rank [$((2 * $1))$((2 * $1 + 1))]" 5500
	done
}

stopped() { # SECONDS
	local continued rank
	begin "stop-$1-s" stop 1 $(($1 + 6)) || return
	sleep 0.5
	kill -STOP "$(qemu_of 1)"
	fault=$(now_ms)
	sleep "$1"
	kill -CONT "$(qemu_of 1)"
	continued=$(now_ms)
	ended 0
	for rank in 0 1; do
		said $rank 'named: rank [23]' 5500
		said $rank 'late: 0 bytes, 0 notifies' 60000
		said $rank left 70000
	done
	fault=$continued
	for rank in 2 3; do
		said $rank 'stopped: Connection reset' 10000
		said $rank 'told: rank [23] is dead' 10000
	done
}

[ $# -gt 0 ] || set -- put idle-1 idle-0 stop-20
for case; do
	case $case in
	put) killed_in_put ;;
	idle-*) killed_when_idle "${case#idle-}" ;;
	stop-*) stopped "${case#stop-}" ;;
	*)
		echo "hosts-fault.sh: cases are put, idle-HOST, stop-SECONDS" >&2
		exit 2
		;;
	esac
done
checks_end
