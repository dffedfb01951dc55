#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# kill -9 of any rank of a training run: all others end by themselves within
# 10 s, each with a line that names the dead rank, and the launcher exits as
# the dead one did. Run on its own it works as well in the soft-RoCE guest.
#
# usage: tests/fault/train.sh PROVIDER [--build DIR] [--ranks "R..."]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
provider=${1:?usage: tests/fault/train.sh PROVIDER}
ranks="0 1 2 3"
shift
while [ $# -ge 2 ]; do
	case $1 in
	--build) build=$2 ;;
	--ranks) ranks=$2 ;;
	esac
	shift 2
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

head -c 200000 "$root/docs/design.md" >"$work/text" 2>/dev/null
while [ "$(wc -c <"$work/text")" -lt 20000 ]; do
	cat "$0" >>"$work/text"
done

# The process of a rank: the launcher's children carry VBN_RANK.
pid_of() {
	local pid
	for pid in $(cat "/proc/$1/task/$1/children"); do
		if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null |
			grep -qx "VBN_RANK=$2"; then
			echo "$pid"
			return
		fi
	done
}

kill_rank() {
	local victim=$1 log=$work/log launcher pid i began status other
	"$build/bin/verbena-run" -n 4 --provider "$provider" --timeout 200 \
		"$build/bin/verbena-train" --data "$work/text" --stages 2 \
		--replicas 2 --micro-batches 2 --batch 4 --context 8 --dim 8 \
		--heads 1 --layers 2 --steps 100000000 --eval-sequences 0 \
		>"$log" 2>&1 &
	launcher=$!
	for ((i = 0; i < 600; i++)); do
		grep -q 'step 1/' "$log" && break
		sleep 0.1
	done
	pid=
	for ((i = 0; i < 20; i++)); do # the list of children may be short
		pid=$(pid_of $launcher "$victim")
		[ -z "$pid" ] || break
		sleep 0.1
	done
	if [ -z "$pid" ] || ! grep -q 'step 1/' "$log"; then
		broken "kill/$victim" "the run did not start"
		tail -5 "$log"
		kill $launcher 2>/dev/null
		wait $launcher
		return
	fi
	began=$(date +%s%N)
	kill -9 "$pid"
	wait $launcher
	status=$?
	i=$((($(date +%s%N) - began) / 1000000))
	if [ $status = 137 ] && [ $i -lt 10000 ]; then
		held "kill/$victim/ends # after $i ms"
	else
		broken "kill/$victim/ends" "after $i ms, status $status"
	fi
	for other in 0 1 2 3; do
		[ "$other" = "$victim" ] && continue
		if grep -qE "^\[$other\] verbena-train: rank $other: .*rank $victim\b" \
			"$log"; then
			held "kill/$victim/named-by-$other"
		else
			broken "kill/$victim/named-by-$other" "it does not"
			grep "^\[$other\]" "$log" | tail -3
		fi
	done
}

for victim in $ranks; do
	kill_rank "$victim"
done
checks_end
