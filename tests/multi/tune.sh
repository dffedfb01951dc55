#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-perf tune: the file that it writes is read by VBN_COLL_TUNING, decides,
# and is found out when ranks have different ones. Nothing here is about speed.
#
# usage: tests/multi/tune.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

# perf RANKS FILE ARGUMENT... : under the file, if it is not "-"
perf() {
	local ranks=$1 tuning=$2
	shift 2
	[ "$tuning" != - ] || tuning=
	VBN_COLL_TUNING=$tuning VBN_COLL_TRACE=1 timeout 100 \
		"$build/bin/verbena-run" -n "$ranks" --provider shm \
		"$build/bin/verbena-perf" "$@" >"$work/out" 2>&1
}

fails() {
	! "$@"
}

said() {
	grep -q "$1" "$work/out"
}

ok 'tune runs between 3 ranks' \
	perf 3 - tune --seconds 1 --out "$work/file"
ok 'its first line is the version' \
	test "$(head -1 "$work/file")" = 'verbena-tuning 1'
for name in local_alpha_us local_gb_s sum_gb_s processors; do
	ok "it has $name" grep -q "^$name [0-9]" "$work/file"
done
for name in allreduce reduce broadcast reduce-scatter allgather gather \
	scatter alltoall; do
	ok "it has $name from 8 bytes to 16 MiB" test \
		"$(grep -c "^$name 3 " "$work/file")" -ge 9
done
left=("$work"/*)
ok 'nothing else is left beside it' test "${left[*]##*/}" = 'file out'
ok 'it is read' perf 3 "$work/file" allreduce -s 1K -n 2
ok 'its lines decide' said 'of the tuning file, for 512 bytes\|for 2048 bytes'

printf 'verbena-tuning 1\nallreduce 2 1024 %s\n' 'ring 32768' >"$work/one"
printf 'verbena-tuning 1\nallreduce 2 1024 %s\n' 'ring 65536' >"$work/two"
ok 'a file of one line' perf 2 "$work/one" allreduce -s 1K -n 2
ok 'decides, and says so' said ' ring.*line 2 of the tuning file'
ok 'what is asked for goes before it' \
	perf 2 "$work/one" allreduce -s 1K -n 2 --algorithm sharded
ok 'and says so, too' said ' sharded.*asked for'
differ() {
	# shellcheck disable=SC2016
	timeout 100 "$build/bin/verbena-run" -n 2 --provider shm bash -c \
		'[ "$VBN_RANK" = 0 ] && f=$2/one || f=$2/two
		VBN_COLL_TUNING=$f exec "$1" allreduce -s 1K -n 2' \
		x "$build/bin/verbena-perf" "$work" >"$work/out" 2>&1
}
ok 'ranks with different files fail' fails differ
ok 'and say what differs' said 'differ.*chunk 32768.*chunk 65536'
printf 'verbena-tuning 1\nallreduce 2 1K ring 0\n' >"$work/bad"
ok 'a wrong line is refused' fails perf 2 "$work/bad" allreduce -s 1K -n 2
ok 'with its number' said 'bad line 2: expected a number of bytes'
ok 'a file that cannot be made' \
	fails perf 2 - tune --seconds 1 --out "$work/none/file"
ok 'one rank is too few' fails perf 1 - tune
ok 'and told so' said 'needs 2 ranks'

checks_end
