#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-perf on this machine: every test runs over its whole range of sizes,
# the columns and the JSON are there, no element is wrong, bad input is
# refused. Nothing here is about speed.
#
# usage: tests/multi/perf.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# check NAME CONDITION... : the command is true
check() {
	local name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		echo "ok $name"
	else
		failed=$((failed + 1))
		echo "not ok $name"
		head -20 "$work/out"
	fi
}

# perf RANKS ARGUMENT...
perf() {
	local ranks=$1
	shift
	timeout 200 "$build/bin/verbena-run" -n "$ranks" --provider shm \
		"$build/bin/verbena-perf" "$@" >"$work/out" 2>&1
}

rows() { # how many lines begin with a size
	grep -cE '^\[0\] +[0-9]+ ' "$work/out"
}

# 8 B to 64 MiB by doubling are 24 sizes; "wrong" is the last column.
all_right() {
	[ "$(rows)" = 24 ] &&
		awk '/^\[0\] +[0-9]/ && $NF != 0 { bad = 1 } END { exit bad }' \
			"$work/out"
}

check allreduce-runs perf 4 allreduce -a -n 3
check allreduce-right all_right
check allreduce-odd perf 3 allreduce -s 1000004 -n 3 --algo tree \
	--json "$work/json"
check allreduce-json jq -e '.results[0].wrong == 0 and
	.results[0].bytes == 1000004 and .results[0].busbw_gb_s > 0' "$work/json"
check put-lat-runs perf 2 put-lat -a -n 200
check put-lat-columns grep -q '#bytes.*#iterations.*t_typical\[usec\]' \
	"$work/out"
check put-lat-rows [ "$(rows)" -ge 20 ]
check put-bw-runs perf 2 put-bw -s 65536 -n 1000 --json "$work/json"
check put-bw-columns grep -q 'BW average\[MB/sec\]' "$work/out"
check put-bw-json jq -e '.results[0].verbena | length > 2' "$work/json"

refused() {
	! perf "$@"
}
check three-ranks refused 3 put-lat -s 8
check three-ranks-said grep -q 'needs 2 ranks' "$work/out"
check unknown-flag refused 1 put-lat --fast
check unknown-test refused 1 put-sideways
check bad-size refused 2 put-lat -s 8x

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
