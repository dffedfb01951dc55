#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The shm provider where it is not at home: without /dev/shm, with a tiny one,
# between users (refused; another provider is taken if that is allowed), with
# more ranks than processors; and the form of compare-shm's table. What needs
# root, or a namespace, is skipped without.
#
# usage: tests/multi/shm.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
run=$build/bin/verbena-run
perf=$build/bin/verbena-perf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset VBN_PROVIDER
export UCX_TLS=tcp,self
. "$root/tests/support/check.sh"

has() { # PATTERN: in the output
	grep -Eq -- "$1" "$work/out"
}

json_has() { # FILTER
	jq -e "$1" "$work/json" >/dev/null
}

# job ARGUMENT...: output and status of verbena-run.
job() {
	"$run" --timeout 60 "$@" >"$work/out" 2>&1 </dev/null
	status=$?
}

# ---- /dev/shm ----

can_unshare() {
	unshare -m true 2>/dev/null
}

# in_namespace SCRIPT: it changes mounts, then runs "$@"; $1 is a directory.
in_namespace() {
	local script=$1
	shift
	# shellcheck disable=SC2016 # the namespace's shell expands
	unshare -m sh -ec "$script"'
		shift
		"$@"' sh "$work" "$run" --timeout 60 -n 2 --provider shm \
		"$perf" "$@" >"$work/out" 2>&1 </dev/null
	status=$?
}

# shellcheck disable=SC2016,SC2034 # the namespace's shell expands
tiny='mount -t tmpfs -o size=64k none /dev/shm
	[ "$(df -k --output=size /dev/shm | tail -1)" -eq 64 ]'
# A /dev of its own, which has the devices, but no shm.
# shellcheck disable=SC2016,SC2034 # the namespace's shell expands
absent='mkdir "$1/dev" && mount -t tmpfs none "$1/dev"
	for node in null zero random urandom; do
		: >"$1/dev/$node" && mount --bind "/dev/$node" "$1/dev/$node"
	done
	mount --rbind "$1/dev" /dev && [ ! -e /dev/shm ]'
for what in tiny absent; do
	if ! can_unshare; then
		skip "/dev/shm $what" "no mount namespace"
		continue
	fi
	for test in 'put-bw -s 1M -n 20' 'notify-lat -s 8 -n 200'; do
		# shellcheck disable=SC2086 # several words
		in_namespace "${!what}" $test --validate
		ok "/dev/shm $what: ${test%% *}" [ "$status" = 0 ]
		ok "/dev/shm $what: ${test%% *} over shm" has 'provider shm'
	done
done

# UCX, left to itself, needs /dev/shm for a context; shm does not.
if can_unshare; then
	# shellcheck disable=SC2016 # the namespace's shell expands
	env -u UCX_TLS unshare -m sh -ec "$tiny"'
		exec "$@"' sh "$run" --timeout 60 -n 2 "$perf" put-lat -n 10 \
		>"$work/out" 2>&1 </dev/null
	status=$?
	ok '/dev/shm tiny: no provider forced' [ "$status" = 0 ]
	ok '/dev/shm tiny: no provider forced: over shm' has 'provider shm'
fi

# ---- users ----

# As another user, where the program can be reached by one.
nobody() {
	setpriv --reuid=65534 --clear-groups "$@" 2>/dev/null
}

# shellcheck disable=SC2016 # the ranks' shells expand
as_nobody='[ "$VBN_RANK" = 0 ] || set -- setpriv --reuid=65534 \
	--clear-groups "$@"
	exec "$@"'
if nobody test -x "$perf"; then
	job -n 2 --provider shm sh -c "$as_nobody" sh "$perf" put-lat -n 10
	ok 'another user: refused' [ "$status" != 0 ]
	ok 'another user: in time' [ "$status" != 124 ]
	ok 'another user: said so' has 'shm needs one host, user'
	job -n 2 sh -c "$as_nobody" sh "$perf" put-lat -n 10
	ok 'another user: over another provider' [ "$status" = 0 ]
	ok 'another user: not over shm' has 'provider (ucx|verbs)'
else
	skip 'another user' 'needs root, and a build others may read'
fi

# ---- more ranks than processors ----

# Whole slices of the scheduler (4 ms and more) for each of its steps would
# make it a hundred times slower.
job -n 8 --provider shm taskset -c "$(taskset -cp $$ | sed 's/.*: //
	s/[-,].*//')" "$perf" allreduce -s 64 -n 50
ok '8 ranks on one processor' [ "$status" = 0 ]
# shellcheck disable=SC2016 # awk's
ok '8 ranks on one processor: no slices are spun away' awk '
	/^\[0\] +64 / { seen = 1; slow = $6 > 20000 }
	END { exit !seen || slow }' "$work/out"

# ---- the comparison with UCX ----

if command -v ucx_perftest >/dev/null; then
	"$root/perf/compare-shm" --quick --build "$build" \
		--json "$work/json" >"$work/out" 2>&1
	status=$?
	ok 'compare-shm --quick' [ "$status" = 0 ]
	for row in 'put-lat +8 .* put_lat ' 'notify-lat +8 .* am_lat ' \
		'put-bw +1048576 .* put_bw '; do
		ok "compare-shm: ${row%% *}" has "^$row"
	done
	ok 'compare-shm: JSON' json_has '.rounds == 1 and (.rows | length) == 3 and
		all(.rows[]; .median > 0 and .against_median > 0 and .ratio > 0)
		'
else
	skip 'compare-shm' 'no ucx_perftest'
fi

checks_end
