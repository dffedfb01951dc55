#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A real Slurm of one node: munged, slurmctld and slurmd, configured in a
# scratch directory, started here and stopped by their process numbers. Needs
# root; skips otherwise, or where Debian's packages are not.
#
# usage: tests/multi/slurm.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
perf=$build/bin/verbena-perf
job=$build/bin/job_again
work=$(mktemp -d)
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/sums.sh
. "$root/tests/support/sums.sh"

skip_all() {
	echo "skipped: $1"
	echo "0 passed, 0 failed, 1 skipped"
	rm -rf "$work"
	exit 0
}
for program in munged slurmctld slurmd srun; do
	[ -n "$(PATH=$PATH:/usr/sbin command -v $program)" ] ||
		skip_all "no $program (Debian: munge, slurmctld, slurmd)"
done
[ "$(id -u)" = 0 ] || skip_all "not root"
export PATH=$PATH:/usr/sbin

daemons=()
# A daemon's last lines, if it is the reason of a failure.
cleanup() {
	local pid
	for pid in "${daemons[@]}"; do
		kill "$pid" 2>/dev/null
	done
	for pid in "${daemons[@]}"; do
		for ((i = 0; i < 60; i++)); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.05
		done
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

# Of the machine's own name, which need not be a host's.
node=$(hostname -s)
ctl_port=$((20000 + $$ % 10000))
mkdir "$work/run" "$work/state" "$work/spool"
chmod 755 "$work" "$work/run"
head -c 128 /dev/urandom >"$work/munge.key"
chmod 600 "$work/munge.key"
cat >"$work/slurm.conf" <<EOF
ClusterName=verbena
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$ctl_port
SlurmdPort=$((ctl_port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/run/munge.sock
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
MpiParams=ports=$((ctl_port + 100))-$((ctl_port + 120))
MailProg=/bin/true
NodeName=$node NodeAddr=127.0.0.1 CPUs=8 RealMemory=500 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
EOF
: >"$work/cgroup.conf"
export SLURM_CONF=$work/slurm.conf

munged --foreground --force --num-threads=2 --key-file="$work/munge.key" \
	--socket="$work/run/munge.sock" --pid-file="$work/run/munged.pid" \
	--seed-file="$work/run/seed" --log-file="$work/munged.log" \
	>"$work/munged.out" 2>&1 &
daemons+=($!)
for ((i = 0; i < 100; i++)); do
	[ ! -S "$work/run/munge.sock" ] || break
	sleep 0.05
done
slurmctld -D >"$work/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D >"$work/slurmd.log" 2>&1 &
daemons+=($!)
ready() {
	sinfo -h -o %T 2>/dev/null | grep -qx idle
}
for ((i = 0; i < 200; i++)); do
	! ready || break
	sleep 0.1
done
ready || {
	tail -n 5 "$work"/*.log
	broken 'Slurm starts' 'no idle node within 20 s'
	checks_end
	exit 1
}
held 'Slurm starts'

unset VBN_RANK VBN_SIZE VBN_ADDRESS VBN_SECRET VBN_SECRET_FILE RANK WORLD_SIZE
export VBN_TIMEOUT_MS=20000
on_node() { # RANKS [OPTION...] COMMAND...
	local n=$1
	shift
	timeout -k 2 40 srun -Q -n "$n" "$@"
}

"$build/bin/verbena-run" -n 4 "$perf" allreduce -a -s 64K -n 3 >"$work/run.out" 2>&1
on_node 4 --mpi=pmix "$perf" allreduce -a -s 64K -n 3 >"$work/out" 2>"$work/err"
ok 'srun --mpi=pmix -n 4 verbena-perf allreduce' [ $? = 0 ]
ok 'the same results as verbena-run' [ "$(sums "$work/out")" = "$(sums "$work/run.out")" ]
(umask 077 && echo "the job's secret" >"$work/secret")
VBN_SECRET_FILE=$work/secret on_node 4 "$perf" allreduce -a -s 64K -n 3 \
	>"$work/out" 2>"$work/err"
ok 'srun -n 4 verbena-perf allreduce, secret from a file' [ $? = 0 ]
ok 'the same results as verbena-run' [ "$(sums "$work/out")" = "$(sums "$work/run.out")" ]
ok 'and there are some' [ "$(sums "$work/out" | grep -c ' 0$')" -ge 14 ]
check 'three jobs with PMIx' 0 'job 2: rank 2 of 3 got 200' \
	on_node 3 --mpi=pmix "$job" 3
check 'pmi2 sets other variables: Slurm'\''s are used' 0 'rank 2 of 3 got 0' \
	env VBN_SECRET=x timeout 40 srun -Q --mpi=pmi2 -n 3 "$job" 1
check 'no secret: refused' 1 'no secret: .*srun --mpi=pmix' on_node 2 "$job" 1
check 'VBN_INSECURE=1' 0 'rank 1 of 2 got 0' env VBN_INSECURE=1 \
	timeout 40 srun -Q -n 2 "$job" 1
check 'a reserved port' 0 'rank 1 of 2 got 0' env VBN_SECRET=x \
	timeout 40 srun -Q --resv-ports=1 -n 2 "$job" 1
check 'VBN_PORT' 1 "127.0.0.1.* in use|port $ctl_port of 127.0.0.1" \
	env VBN_SECRET=x VBN_PORT="$ctl_port" VBN_TIMEOUT_MS=1500 \
	timeout 40 srun -Q -n 2 "$job" 1
sbatch -Q -W -n 2 -o /dev/null --wrap "$job 1 >$work/batch 2>&1"
ok 'a batch script is no rank' grep -q 'rank 0 of 1 got 0' "$work/batch"

# A rank that dies: the others end by themselves, and srun tells.
begin=$(date +%s%3N)
# shellcheck disable=SC2016 # the ranks' shells expand
on_node 3 --mpi=pmix sh -c 'if [ "$SLURM_PROCID" = 1 ]; then
		"$0" allreduce -n 100000000 & sleep 1; kill -KILL $!; wait; exit 9
	fi; exec "$0" allreduce -n 100000000' "$perf" >"$work/out" 2>"$work/err"
status=$?
took=$(($(date +%s%3N) - begin))
ok 'a rank is killed: srun fails' [ $status != 0 ]
ok 'a rank is killed: soon' [ $took -lt 10000 ]
ok 'a rank is killed: named' grep -q 'rank 1 has died\|rank 1' "$work/err"
checks_end
