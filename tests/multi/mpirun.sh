#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# MPI's launchers: Open MPI's mpirun starts programs unchanged, through PMIx;
# MPICH's gives rank and size only; and what is said where that is not enough.
#
# usage: tests/multi/mpirun.sh [--build DIR]
# shellcheck disable=SC2016 # the ranks' shells expand
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
perf=$build/bin/verbena-perf
job=$build/bin/job_again
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/sums.sh
. "$root/tests/support/sums.sh"

command -v mpirun.openmpi >/dev/null || {
	echo "skipped: no mpirun.openmpi (Debian: openmpi-bin)"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}
unset VBN_RANK VBN_SIZE VBN_ADDRESS VBN_SECRET VBN_SECRET_FILE RANK WORLD_SIZE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export VBN_TIMEOUT_MS=20000
# a launcher of its own in the test's directory, and no ssh to look for
export TMPDIR=$work OMPI_MCA_plm=isolated

mpi() { # RANKS COMMAND...
	local n=$1
	shift
	timeout -k 2 40 mpirun.openmpi --oversubscribe -n "$n" "$@"
}

"$build/bin/verbena-run" -n 4 "$perf" allreduce -a -s 64K -n 3 >"$work/run" 2>&1
mpi 4 "$perf" allreduce -a -s 64K -n 3 >"$work/out" 2>"$work/err"
ok 'mpirun -n 4 verbena-perf allreduce' [ $? = 0 ]
ok 'the same results as verbena-run' [ "$(sums "$work/out")" = "$(sums "$work/run")" ]
ok 'and there are some' [ "$(sums "$work/out" | grep -c ' 0$')" -ge 14 ]
mpi 3 "$job" 3 >"$work/out" 2>"$work/err"
ok 'three jobs, one after another' [ "$(grep -c 'of 3 got' "$work/out")" = 9 ]
ok 'no signal handlers are installed by PMIx' [ "$(grep -c 'signal' "$work/out")" = 0 ]
mpi 1 "$job" 2 >"$work/out" 2>"$work/err"
ok 'one rank' [ "$(grep -c 'rank 0 of 1 got' "$work/out")" = 2 ]

# The secret: on no command line, in no environment.
mpi 2 sh -c '"$0" 1 & sleep 0.2; env; cat /proc/*/cmdline 2>/dev/null | tr "\0" " "
	wait' "$job" >"$work/out" 2>"$work/err"
ok 'it is in nobody'\''s environment or arguments' \
	[ "$(grep -aEc 'VBN_SECRET|[0-9a-f]{64}' "$work/out")" = 0 ]

check 'a rank that opens no job' 1 'launcher has not answered within 1500 ms: do all' \
	env VBN_TIMEOUT_MS=1500 OMPI_MCA_orte_abort_print_stack=0 \
	timeout -k 2 30 mpirun.openmpi --oversubscribe -n 3 "$job" 1 1
check 'VBN_ADDRESS on rank 1 only' 1 'rank 0 did not take rank 1 in.*127.0.0.1 port 1|rank 1 of 2 has not joined' \
	env VBN_TIMEOUT_MS=1500 timeout -k 2 30 mpirun.openmpi --oversubscribe \
	-n 1 "$job" 1 : -n 1 -x VBN_ADDRESS=127.0.0.1:1 "$job" 1
check 'VBN_SECRET on rank 0 only' 1 'rank 0 has a secret of its own: set VBN_SECRET' \
	env VBN_TIMEOUT_MS=3000 timeout -k 2 30 mpirun.openmpi --oversubscribe \
	-n 1 -x VBN_SECRET=x "$job" 1 : -n 1 "$job" 1
check 'VBN_SECRET and VBN_ADDRESS on all' 0 'rank 1 of 2 got' \
	env VBN_SECRET=x VBN_ADDRESS=127.0.0.1:$((61000 + $$ % 4000)) \
	timeout -k 2 30 mpirun.openmpi --oversubscribe -n 2 "$job" 1
check 'several hosts: by an address that others reach, or refused' 0 \
	'rank 1 of 4 got|rank 0.s host has no address that other hosts reach' \
	env VBN_LOCAL_SIZE=2 sh -c '"$@" || true' sh timeout -k 2 30 \
	mpirun.openmpi --oversubscribe -n 4 "$job" 1
check 'rank 0 fails: the others are told' 1 \
	'rank 0 opens no job: .*no address that other hosts reach on VBN_SOCKET_IFNAME' \
	env VBN_LOCAL_SIZE=1 VBN_SOCKET_IFNAME=none VBN_TIMEOUT_MS=5000 \
	timeout -k 2 30 mpirun.openmpi --oversubscribe -n 2 sh -c \
	'"$0" 1 || sleep 1; exit 1' "$job"
check 'our own variables come first' 0 'rank 0 of 1 got' \
	timeout -k 2 30 mpirun.openmpi --oversubscribe -n 2 \
	env VBN_RANK=0 VBN_SIZE=1 "$job" 1
check 'no PMIx server' 1 'PMIx_Init.*without PMIx, set VBN_RANK, VBN_SIZE' \
	env PMIX_RANK=0 PMIX_NAMESPACE=nobody "$job" 1
check 'mpirun without PMIx' 1 'set VBN_ADDRESS|has no secret' \
	timeout -k 2 30 mpirun.openmpi --oversubscribe -n 2 \
	env -u PMIX_RANK -u PMIX_NAMESPACE "$job" 1

# Deaths: seen by the others and by mpirun.
begin=$(date +%s%3N)
mpi 3 sh -c 'if [ "$PMIX_RANK" = 1 ]; then "$0" allreduce -n 100000000 & sleep 1
	kill -KILL $!; kill -KILL $$; else exec "$0" allreduce -n 100000000; fi' \
	"$perf" >"$work/out" 2>"$work/err"
status=$?
took=$(($(date +%s%3N) - begin))
ok 'a rank is killed: mpirun fails' [ $status != 0 ]
ok 'a rank is killed: soon' [ $took -lt 10000 ]

# ---- MPICH ----

if command -v mpirun.mpich >/dev/null; then
	check 'MPICH: no secret' 1 'has no secret' \
		timeout -k 2 30 mpirun.mpich -n 2 "$job" 1
	check 'MPICH: no address' 1 'set VBN_ADDRESS=host:port' \
		env VBN_SECRET=x timeout -k 2 30 mpirun.mpich -n 2 "$job" 1
	check 'MPICH: with both' 0 'rank 1 of 2 got' env VBN_SECRET=x \
		VBN_ADDRESS=127.0.0.1:$((61001 + $$ % 4000)) \
		timeout -k 2 30 mpirun.mpich -n 2 "$job" 1
else
	skip MPICH 'no mpirun.mpich here (Debian: mpich)'
fi
checks_end
