#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-perf on this machine: every test runs over shared memory and UCX,
# alone and between two ranks, with its data checked; columns, JSON, CSV and
# diagrams are what they should be; bad input is refused; a death or a full
# disk does not pass for success. Nothing here is about speed.
#
# usage: tests/multi/perf.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
program=$build/bin/verbena-perf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
provider=shm
latencies='put-lat notify-lat send-lat get-lat atomic-lat'
bandwidths='put-bw send-bw get-bw'
export UCX_TLS=${UCX_TLS:-tcp,self}

# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

# perf RANKS ARGUMENT...
perf() {
	local ranks=$1
	shift
	timeout 100 "$build/bin/verbena-run" -n "$ranks" \
		--provider "$provider" "$program" "$@" >"$work/out" 2>&1
}

# status STATUS COMMAND...
status() {
	local want=$1
	shift
	"$@"
	[ $? = "$want" ]
}

# alone STATUS ARGUMENT... : without a launcher, a job of one
alone() {
	local want=$1
	shift
	timeout 60 "$program" "$@" >"$work/out" 2>&1
	[ $? = "$want" ]
}

says() {
	grep -q -e "$1" "$work/out"
}

# One line of the program's, from each rank that complains.
says_once() {
	says "$1" && [ "$(grep -c 'verbena-perf:' "$work/out")" -le "$2" ]
}

rows() { # how many lines begin with a size
	grep -cE '^\[0\] +[0-9]+ ' "$work/out"
}

# ---- every test, every provider ----

every_test() {
	local t n

	for t in $latencies $bandwidths; do
		for n in 1 2; do
			ok "$provider/$t/$n" perf $n "$t" -n 20 --validate \
				--json "$work/json"
			ok "$provider/$t/$n/json" jq -e --arg p "$provider" \
				--arg t "$t" '.test == $t and .provider == $p
				and (.results | length) == 1 and
				.results[0].verbena.iterations == 20' \
				"$work/json"
		done
	done >"$work/every" 2>&1
	grep -E '^not ok|^\[' "$work/every"
	echo "ok $provider: $(grep -c '^ok' "$work/every") runs"
}

for provider in shm ucx; do
	every_test
	ok "$provider/both-ways" perf 2 put-bw -b -s 4K -n 300 --validate
	ok "$provider/ring" perf 3 put-bw -b -s 4K -n 300 -q 2 --validate
	ok "$provider/both-ways-sends" perf 2 send-bw -b -s 4K -n 300 -q 2 \
		--validate
	ok "$provider/parallel" perf 2 get-bw -q 3 -t 8 -l 4 -s 1K -n 100 \
		--validate --json "$work/json"
	ok "$provider/parallel-json" jq -e '.qps == 3 and .tx_depth == 8 and
		.post_list == 4 and .results[0].verbena.iterations == 100' \
		"$work/json"
	# Long enough for a waiter to have looked in vain.
	ok "$provider/events" perf 2 notify-lat -e -s 8M -n 20 --counters
	ok "$provider/events-slept" grep -qE '[0-9.]*[1-9][0-9.]* sleeps' \
		"$work/out"
	ok "$provider/events-stream" perf 2 send-bw -e -q 2 -s 1K -n 100
done
provider=shm

# ---- what is written ----

ok lat-sizes perf 2 get-lat -a -n 10 --validate --csv "$work/csv"
ok lat-columns says '#bytes.*#iterations.*t_typical\[usec\].*99.9% perc'
ok lat-rows [ "$(rows)" = 23 ]
ok lat-csv [ "$(grep -cE '^get-lat,shm,verbena,[0-9]+,10,' \
	"$work/csv")" = 23 ]
ok csv-columns awk -F, 'NF != 12 { bad = 1 } END { exit bad }' "$work/csv"
ok bw-sizes perf 2 put-bw -a -s 64K -n 20 --report_gbits
ok bw-columns says 'BW peak\[Gb/sec\].*BW average\[Gb/sec\].*MsgRate\[Mpps\]'
ok bw-rows [ "$(rows)" = 16 ]
ok counters perf 2 put-lat -n 20 --counters
ok counters-said says 'per operation: .* doorbells, .* bytes staged'
ok histogram perf 1 get-lat -n 500 --histogram --json "$work/json"
ok histogram-said says '########'
ok histogram-all jq -e \
	'[.results[0].verbena.histogram[].count] | add == 500' "$work/json"
ok rounds perf 2 send-lat -n 10 --rounds 3 --json "$work/json"
ok rounds-json jq -e '.results[0].verbena | (.rounds | length) == 3 and
	.iterations == 10 and .min_us <= .typical_us and
	.typical_us <= .p99_us and .p99_us <= .max_us' "$work/json"
ok json-stdout perf 2 atomic-lat -n 5 --json -
sed 's/^\[0\] //' "$work/out" >"$work/json"
ok json-stdout-alone jq -e '.results[0].bytes == 8' "$work/json"
ok csv-stdout perf 2 put-bw -n 5 --csv -
ok csv-stdout-alone [ "$(wc -l <"$work/out")" = 2 ]
began=$(date +%s%3N)
ok duration perf 1 put-lat -D 1 --json "$work/json"
ok duration-kept [ $(($(date +%s%3N) - began)) -ge 1000 ]
ok duration-many jq -e '.results[0].verbena.iterations > 1000' "$work/json"

is_svg() {
	grep -q '<svg' "$1" && grep -q '</svg>' "$1" &&
		[ "$(grep -c '<path' "$1")" -gt 3 ]
}
ok plot perf 2 put-lat -a -s 1K -n 10 --plot "$work/it's.svg"
ok plot-svg is_svg "$work/it's.svg"
ok plot-one perf 1 get-lat -n 100 --plot "$work/one.svg"
ok plot-one-svg is_svg "$work/one.svg"
ok no-gnuplot env PATH=/nonexistent "$(type -P timeout)" 60 \
	"$(type -P bash)" -c '"$0" get-lat -n 5 --plot "$1" >"$2" 2>&1
	[ $? = 1 ]' "$program" "$work/none.svg" "$work/out"
ok no-gnuplot-said says 'install gnuplot-nox'

# ---- what cannot be written ----

ok full-table bash -c '! timeout 60 "$0" get-lat -n 5 >/dev/full \
	2>/dev/null' "$program"
ok full-help bash -c '! "$0" --help >/dev/full 2>/dev/null' "$program"
for option in --json --csv --plot; do
	ok "full$option" alone 1 get-lat -n 5 $option /dev/full
	ok "full$option-said" says 'cannot write /dev/full'
	ok "nowhere$option" alone 1 get-lat -n 5 $option /nonexistent/x
	ok "nowhere$option-first" bash -c '! grep -q "#bytes" "$0"' \
		"$work/out"
done

# ---- what is refused ----

ok three-ranks status 2 perf 3 put-lat -s 8
ok three-ranks-said says_once 'needs 2 ranks' 1
ok both-ways-alone status 2 perf 1 put-bw -b
ok memory-polled status 2 perf 2 put-lat -e
ok memory-polled-said says 'use notify-lat'
for bad in --fast "-s 8x" "-q 2" "-n 5 -D 1" "-i 1" "-m 1000" "-I 8" \
	"--report_gbits" "--json - --csv -"; do
	# shellcheck disable=SC2086 # words are wanted
	ok "refused $bad" status 2 perf 2 put-lat $bad
	ok "refused $bad, once" says_once 'verbena-perf: ' 2
done
ok unknown-test status 2 perf 1 put-sideways
ok help alone 0 --help
ok help-options says 'report_gbits'
# There may be a device here or none; over shm neither -d nor -x is followed.
ok verbs-options status 1 perf 2 put-lat -d nothing0 -n 5
if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	ok raw-without-device status 1 perf 2 put-lat -n 5 --raw
	ok raw-without-device-said says 'needs an RDMA device'
fi

# ---- a rank that dies ----

# shellcheck source=tests/support/perf_death.sh
. "$root/tests/support/perf_death.sh"
for t in put-lat notify-lat get-lat "send-bw -s 4K"; do
	# shellcheck disable=SC2086 # words are wanted
	ok "death in $t" death $t
done
ok "death asleep" death notify-lat -e

# ---- collectives ----

# "wrong" is the last column.
all_right() { # ROWS
	[ "$(rows)" = "$1" ] &&
		awk '/^\[0\] +[0-9]/ && $NF != 0 { bad = 1 } END { exit bad }' \
			"$work/out"
}
# 8 B to 64 MiB by doubling are 24 sizes.
ok allreduce-runs perf 4 allreduce -a -n 3
ok allreduce-right all_right 24
ok allreduce-columns says \
	'size  *count  *type  *redop  *root  *time  *algbw  *busbw  *#wrong'
ok allreduce-odd perf 3 allreduce -s 1000004 -n 3 --algorithm tree \
	--json "$work/json"
ok allreduce-json jq -e '.results[0].wrong == 0 and
	.results[0].iterations == 3 and .results[0].redop == "sum" and
	.results[0].bytes == 1000004 and .results[0].busbw_gb_s > 0' "$work/json"
for op in reduce broadcast allgather reduce-scatter alltoall gather scatter; do
	for n in 1 3; do
		ok "$op/$n" perf $n $op -a -s 64K -n 3
		ok "$op/$n/right" all_right 14
	done
	ok "$op/malloc" perf 2 $op -s 100K -n 3 --malloc --type double
	ok "$op/malloc/right" all_right 1
done
# A part is a whole number of elements, at least one.
ok parts perf 3 allgather -s 8 -n 3 --json "$work/json"
ok parts-json jq -e '.results[0] | .bytes == 12 and .count == 1 and
	.root == -1' "$work/json"
ok barrier perf 3 barrier -n 3
ok barrier-said says ' 0  *0  *none  *none  *-1 .* N/A$'
for type in int8 uint64 half bfloat16 double; do
	for op in sum prod min max avg; do
		ok "allreduce/$type/$op" perf 3 allreduce -s 5000 -n 3 \
			--type $type --op $op --chunk 1K
		ok "allreduce/$type/$op/right" all_right 1
	done
done
ok allreduce-no-such status 1 perf 2 allreduce --op xor -n 3
ok by-time perf 2 reduce -s 1K --json "$work/json"
ok by-time-many jq -e '.results[0].iterations >= 2' "$work/json"
ok unchecked perf 2 allreduce -s 1K -n 3 --check 0
ok unchecked-said says ' N/A$'
ok coll-csv perf 3 reduce-scatter -a -s 1K -n 3 --csv "$work/csv"
ok coll-csv-rows [ "$(grep -cE \
	'^reduce-scatter,3,[0-9]+,[0-9]+,float,sum,-1,3,[0-9.,]+,0$' \
	"$work/csv")" = 8 ]
ok coll-algorithm status 2 perf 2 allreduce --algorithm star
ok coll-algorithm-said says_once 'one of auto ring tree' 2
ok coll-barrier-size status 2 perf 2 barrier -s 8

# ---- computing between start and wait ----

ok overlap perf 2 allreduce -s 64K -n 5 --overlap --json "$work/json"
ok overlap-right all_right 1
ok overlap-columns says 'time  *computing  *both  *hidden  *thread.s  *hidden'
# 5 rounds of 5 calls
ok overlap-json jq -e '.results[0] | .iterations == 25 and .wrong == 0 and
	([.without_thread, .with_thread] | all(.both_us > 0 and
	.time_us > 0 and .computing_us > 0 and .hidden >= 0 and .hidden <= 1))
	' "$work/json"
ok overlap-barrier perf 3 barrier -n 3 --overlap --csv "$work/csv"
ok overlap-csv awk -F, 'NF != 16 || $5 != (NR > 1 ? "none" : "type") {
	bad = 1 } END { exit bad || NR != 2 }' "$work/csv"
ok overlap-broadcast perf 3 broadcast -a -s 4K -n 2 --overlap --malloc
ok overlap-broadcast-right all_right 10
ok overlap-put status 2 perf 2 put-lat --overlap
ok overlap-put-said says_once 'with collectives' 2

checks_end
