#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Random operations and collectives under injected faults, one short job a
# seed: late and reordered deliveries, refused posts, a slow rank; an operation
# that fails, a connection that breaks, a rank that dies, flipped bits with
# checksums. Each operation has to complete once, what arrives has to be right,
# and nothing may hang. The seed decides all; each line begins with it.
#
# usage: tests/fault/seeds.sh [--runs N] [--seed S] [--provider NAME]
#        [--build DIR] [--verbose]
#   --runs N   so many jobs, of the seeds S, S + 1, ...: 50
#   --seed S   the first one: 1
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
usage() {
	sed -n '/^# usage:/,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
runs=50 seed=1 provider=shm build=$root/build verbose=
while [ $# -gt 0 ]; do
	case $1 in
	--runs | --seed | --provider | --build)
		[ $# -ge 2 ] || usage
		declare "${1#--}=$2"
		shift
		;;
	--verbose) verbose=1 ;;
	*) usage ;;
	esac
	shift
done
[[ $runs =~ ^[0-9]{1,6}$ && $seed =~ ^[0-9]{1,9}$ ]] || usage
program=$build/bin/random_ops launcher=$build/bin/verbena-run
for file in "$program" "$launcher"; do
	[ -x "$file" ] || {
		echo "seeds.sh: $file is not there; build it" >&2
		exit 2
	}
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What happens in the job of a seed: $ranks, $fault, $checksum, $arguments.
plan() {
	local timing rank k
	RANDOM=$(($1 % 32768)) # the shell's, from here on the same each time
	ranks=$((2 + RANDOM % 3))
	rank=$((RANDOM % ranks))
	k=$((1 + RANDOM % 150))
	timing="seed=$1,delay=0.$((RANDOM % 3)),reorder=0.$((RANDOM % 3))"
	timing+=",late=0.$((RANDOM % 3)),again=0.$((RANDOM % 4))"
	timing+=",time=$((50 + RANDOM % 1000))"
	checksum=$((RANDOM % 2))
	arguments=() fault=$timing
	case $(($1 % 10)) in
	0) ;;
	1) arguments=(--coll --count 60) ;;
	2) arguments=(--faulty) fault+=,fail=$k@$rank ;;
	3) arguments=(--faulty --coll) fault+=,fail=$k@$rank ;;
	4) arguments=(--faulty) fault+=,kill=$k@$rank ;;
	5) arguments=(--faulty --coll) fault+=,kill=$k@$rank ;;
	6) arguments=(--faulty) fault+=,break=$k@$rank ;;
	7) arguments=(--faulty --checked) fault+=,corrupt=0.02 checksum=1 ;;
	8) arguments=(--faulty --coll) fault+=,corrupt=0.01 checksum=1 ;;
	9) fault+=,slow=$((50 + RANDOM % 300))@$rank ;;
	esac
	[[ " ${arguments[*]} " == *" --count "* ]] || arguments+=(--count 150)
	# reads the peers' memory, which no checksum covers
	algorithm=
	[[ $fault != *corrupt* ]] || algorithm=linear
}

passed=0 failed=0
for ((s = seed; s < seed + runs; s++)); do
	plan "$s"
	began=$(date +%s%N)
	VBN_FAULT=$fault VBN_CHECKSUM=$checksum VBN_STATS=1 \
		VBN_COLL_ALGO=$algorithm timeout -k 5 90 "$launcher" \
		-n "$ranks" --provider "$provider" "$program" --seed "$s" \
		"${arguments[@]}" >"$work/out" 2>&1
	status=$?
	took=$((($(date +%s%N) - began) / 1000000))
	grep -h ' fault_\| checksums_' "$work/out" >>"$work/counts"
	! grep -q 'VBN_FAULT kills it' "$work/out" ||
		echo fault_killed 1 >>"$work/counts"
	line="seed $s: $ranks ranks, ${arguments[*]}, VBN_FAULT=$fault"
	line+=" VBN_CHECKSUM=$checksum: $took ms"
	if [ $status = 0 ] && ! grep -q 'wrong:' "$work/out"; then
		passed=$((passed + 1))
		[ -z "$verbose" ] || echo "ok $line"
	else
		failed=$((failed + 1))
		echo "not ok $line, status $status"
		grep -v ' ctx [0-9]* [a-z_]* [0-9]*$' "$work/out" |
			sed 's/^/    /' | head -40
		echo "    again: tests/fault/seeds.sh --runs 1 --seed $s" \
			"--provider $provider --verbose"
	fi
done
echo "seeds $seed to $((seed + runs - 1)); in all ranks:" \
	"$(awk '{ n[$(NF - 1)] += $NF } END { for (k in n) print k, n[k] }' \
		"$work/counts" | sort | paste -sd, | sed 's/,/, /g')"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
