#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In the guest: every test of verbena-perf over verbs beside raw ibverbs, data
# checked, between two ranks and alone, the options that only verbs follows,
# and a rank that dies. Says what the ratios were.
#
# usage: tests/rxe/perf.sh [BUILD_DIRECTORY]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$root/${1:-build}/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

# perf NAME STATUS ARGUMENT...
perf() {
	local name=$1 want=$2
	shift 2
	timeout 60 "$bin/verbena-run" --provider verbs "$@" >"$work/out" 2>&1
	if [ $? = "$want" ]; then
		held "$name"
		sed -n "s|^\[0\] ratio of|perf $name:|p" "$work/out"
	else
		broken "$name" "status is not $want"
		cat "$work/out"
	fi
}

for n in 1 2; do
	for t in put-lat notify-lat send-lat get-lat atomic-lat put-bw get-bw \
		send-bw; do
		perf "$t, $n" 0 -n $n "$bin/verbena-perf" $t -n 60 --raw \
			--validate
	done
done
perf "sizes" 0 -n 2 "$bin/verbena-perf" put-lat -a -s 64K -n 10 --raw \
	--validate
perf "parallel" 0 -n 2 "$bin/verbena-perf" put-bw -q 3 -t 16 -l 4 -s 4K \
	-n 200 --raw --validate
perf "small stream" 0 -n 2 "$bin/verbena-perf" put-bw -s 64 -n 1000 --raw \
	--validate
perf "both ways" 0 -n 2 "$bin/verbena-perf" send-bw -b -s 4K -n 200 --raw \
	--validate
perf "asleep" 0 -n 2 "$bin/verbena-perf" send-lat -e -n 60 --raw --validate
perf "asleep, stream" 0 -n 2 "$bin/verbena-perf" get-bw -e -s 4K -n 60 --raw
perf "device and path" 0 -n 2 "$bin/verbena-perf" put-lat -d rxe0 -i 1 -x 1 \
	-m 1024 -S 1 -T 32 -I 0 -n 60 --raw --validate
perf "rdma_cm" 0 -n 2 "$bin/verbena-perf" send-bw -q 2 -s 4K -n 60 --raw -R \
	--validate
perf "rdma_cm, atomics" 0 -n 2 "$bin/verbena-perf" atomic-lat -n 60 --raw -R \
	-T 32 -S 1 -m 1024 --validate
perf "no such device" 1 -n 2 "$bin/verbena-perf" put-lat -d rxe7 -n 5 --raw
perf "no such GID" 1 -n 2 "$bin/verbena-perf" put-lat -x 77 -n 5 --raw

# shellcheck disable=SC2034 # death uses them
program=$bin/verbena-perf provider=verbs
# shellcheck source=tests/support/perf_death.sh
. "$root/tests/support/perf_death.sh"
for t in "put-lat --raw" "send-lat --raw" "send-lat --raw -e"; do
	# shellcheck disable=SC2086 # words are wanted
	ok "death in $t" death $t
done

checks_end
