#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In the guest: the tests of the verbs provider's table, and its latency of
# 8 bytes (half the round trip: median and minimum, in us) beside perftest's
# when that is installed.
#
# usage: tests/rxe/provider.sh [BUILD_DIRECTORY]
set -u

bin=$(cd "$(dirname "$0")/../.." && pwd)/${1:-build}/bin
"$bin/verbs_loop"
status=$?

# A sanitizer's figures say nothing.
nm "$bin/verbs_lat" 2>/dev/null | grep -qE '__(asan|tsan)_init' && exit $status

timeout 60 "$bin/verbs_lat" 2000 | sed 's/^/perf verbs provider, us: /'
[ "${PIPESTATUS[0]}" = 0 ] || status=1
for tool in ib_write_lat ib_send_lat; do
	command -v $tool >/dev/null || continue
	timeout 30 $tool -d rxe0 -x 1 -s 8 -n 2000 -F >/dev/null 2>&1 &
	sleep 0.5
	timeout 30 $tool -d rxe0 -x 1 -s 8 -n 2000 -F 10.77.0.1 2>/dev/null |
		awk -v t=$tool '$1 == 8 { print "perf " t ", us:", $5, $3 }'
	wait
done
exit $status
