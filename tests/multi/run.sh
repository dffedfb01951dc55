#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-run: exit statuses, lines, signals, timeouts, and that nothing is
# left running.
#
# usage: tests/multi/run.sh [--build DIR]
# shellcheck disable=SC2016 # the ranks' shells expand
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
run=("$build/bin/verbena-run")
tag=9$$
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/launch.sh
. "$root/tests/support/launch.sh"

# ---- arguments ----

launch
ok 'no command: status 2' [ "$status" = 2 ]
ok 'no command: one line' [ "$(lines err)" = 1 ]
for bad in --bogus -x '-n 0' '-n 2x' '-n 9999' -n '--provider tcp' \
	--provider '--timeout 0' '--timeout x' '--timeout -3' '--timeout nan'; do
	# shellcheck disable=SC2086
	launch $bad true
	case $bad in -n | --provider) ;; *)
		ok "$bad: status 2" [ "$status" = 2 ]
		ok "$bad: one line that names it" has err "${bad%% *}" ;;
	esac
done
launch --help
ok '--help: status 0' [ "$status" = 0 ]
ok '--help: on stdout' has out '^usage: verbena-run'
launch /no/such/command
ok 'no such command: status 127' [ "$status" = 127 ]
ok 'no such command: one line' [ "$(lines err)" = 1 ]
ok 'no such command: named' has err 'cannot run /no/such/command: No such'
launch /etc/passwd
ok 'no program: status 126' [ "$status" = 126 ]
launch -n 1 sh -c 'echo "$*"' x -n 3 --timeout 1
ok 'options after the command are its own' has out '^\[0\] -n 3 --timeout 1$'
launch true
ok 'default: a rank for each processor' [ "$status" = 0 ]

# ---- environment ----

launch -n 3 --provider shm sh -c 'echo $VBN_RANK/$VBN_SIZE $VBN_PROVIDER \
	${VBN_LISTEN_FD:+listens} $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS'
ok 'rank 0' has out '^\[0\] 0/3 shm listens 1 1$'
ok 'rank 2' has out '^\[2\] 2/3 shm 1 1$'
ok 'status 0' [ "$status" = 0 ]
OMP_NUM_THREADS=7 launch -n 1 sh -c 'echo $OMP_NUM_THREADS'
ok 'OMP_NUM_THREADS is kept' has out '^\[0\] 7$'
launch -n 2 sh -c 'echo $VBN_SECRET'
ok 'one secret for all' [ "$(sed 's/^....//' "$work/out" | sort -u |
	grep -c '^[0-9a-f]\{64\}$')" = 1 ]
first=$(sed -n 's/^\[0\] //p' "$work/out")
launch -n 1 sh -c 'echo $VBN_SECRET'
ok 'another one each time' [ "$first" != "$(sed -n 's/^\[0\] //p' "$work/out")" ]
launch -n 2 sh -c 'ls -l /proc/self/fd | grep -c socket: || true'
ok 'rank 0 inherits the socket' has out '^\[0\] 1$'
ok 'the others do not' has out '^\[1\] 0$'
launch -n 1 sh -c 'trap "exit 9" PIPE; kill -PIPE $$; exit 3'
ok 'signals are as at the start' [ "$status" = 9 ]
VBN_TIMEOUT_MS=-1 launch -n 2 --timeout 60 --provider shm \
	"$build/bin/verbena-perf" put-lat -n 10
ok 'VBN_TIMEOUT_MS=-1: no limit' [ "$status" = 0 ]
echo input | "${run[@]}" -n 2 sh -c 'cat' >"$work/out" 2>"$work/err"
ok 'rank 0 reads our input' has out '^\[0\] input$'
ok 'the others none' [ "$(lines out)" = 1 ]

# ---- lines ----

launch -n 2 sh -c 'echo out; echo err >&2; printf "no end"'
ok 'stdout to stdout' [ "$(sort "$work/out" | tr '\n' ,)" = \
	'[0] no end,[0] out,[1] no end,[1] out,' ]
ok 'stderr to stderr' [ "$(sort "$work/err" | tr '\n' ,)" = \
	'[0] err,[1] err,' ]
launch --no-prefix -n 2 sh -c 'echo $VBN_RANK; echo err >&2'
ok '--no-prefix: stdout' [ "$(sort "$work/out" | tr '\n' ,)" = 0,1, ]
ok '--no-prefix: stderr' [ "$(sort "$work/err" | tr '\n' ,)" = err,err, ]
"${run[@]}" -n 1 echo lost >/dev/full 2>"$work/err"
status=$?
ok 'output that cannot be written: status 125' [ "$status" = 125 ]
ok 'output that cannot be written: said' has err 'output is lost: No space left'
launch -n 4 sh -c 'seq 20000'
ok '80,000 lines, all whole' [ "$(sort -u "$work/out" |
	grep -Ec '^\[[0-3]\] [0-9]+$')" = 80000 ]
ok 'in order' [ "$(sed -n 's/^\[2\] //p' "$work/out" | md5sum)" = \
	"$(seq 20000 | md5sum)" ]
launch -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" x; echo'
ok 'a long line stays one' [ "$(awk '{print length($0)}' "$work/out" |
	tr '\n' ,)" = 300004,300004, ]
launch -n 1 sh -c 'head -c 5000000 /dev/zero | tr "\0" x'
ok 'an endless line is not lost' [ "$(tr -dc x <"$work/out" | wc -c)" = 5000000 ]
launch -n 1 sh -c 'printf "1/3\r2/3\r3/3"; sleep 0.1; printf "\r\ndone\n"'
ok 'progress lines are kept' [ "$(od -An -c "$work/out" | tr -d ' \n')" = \
	'[0]1/3\r[0]2/3\r[0]3/3\r\n[0]done\n' ]
launch -n 1 sh -c 'printf "\r1/2\r2/2"'
ok 'return first' [ "$(od -An -c "$work/out" | tr -d ' \n')" = \
	'[0]1/2\r[0]2/2\n' ]
launch -n 1 sh -c 'printf "\n\nx\n"'
ok 'empty lines' [ "$(od -An -c "$work/out" | tr -d ' \n')" = \
	'[0]\n[0]\n[0]x\n' ]
launch -n 2 sh -c 'printf "a\0b\n"'
ok 'zero bytes' [ "$(tr -dc '\0' <"$work/out" | wc -c)" = 2 ]
"${run[@]}" -n 2 yes 2>"$work/err" | head -1 >"$work/out"
status=${PIPESTATUS[0]}
ok 'a reader that leaves ends the job' [ "$status" = 141 ]
launch -n 1 sh -c '(sleep 0.3; echo late) & echo soon'
ok 'its background processes end with a rank' [ "$took" -lt 2000 ]
"${run[@]}" -n 2 sh -c 'seq 100000' 2>"$work/err" | (sleep 1; wc -l) >"$work/out"
ok 'a slow reader loses nothing' has out '^200000$'

# ---- failure ----

launch -n 4 sh -c '[ $VBN_RANK != 2 ] || exit 7; exec sleep 0.5'
ok 'exit status of the rank that failed' [ "$status" = 7 ]
ok 'it is named' has err \
	'^verbena-run: rank 2 \(pid [0-9]+\) exited with status 7; stopping'
launch -n 4 sh -c '[ $VBN_RANK != 1 ] || kill -9 $$; sleep 0.5; exit 3'
ok 'killed: 128 + signal' [ "$status" = 137 ]
ok 'killed: named' has err \
	'rank 1 \(pid [0-9]+\) was killed by signal 9 \(Killed\); stopping'
ok 'others that fail are not the cause' [ "$(grep -c rank "$work/err")" = 1 ]
launch -n 2 sh -c '[ $VBN_RANK = 0 ] || exit 5; exec sleep '$tag
ok 'grace, then SIGTERM' [ "$status" = 5 ]
ok 'grace is 6 s' [ "$took" -gt 5500 ]
ok 'grace is 6 s' [ "$took" -lt 8000 ]
ok 'said so' has err 'rank 0 has not ended within 6 s; sending SIGTERM'
ok 'nothing left' none_left

# ---- timeout ----

launch -n 2 --timeout 0.5 sleep $tag
ok 'timeout: status 124' [ "$status" = 124 ]
ok 'timeout: soon' [ "$took" -lt 2000 ]
ok 'timeout: said so' has err 'not ended within 0.5 s \(ranks 0, 1 have not\)'
ok 'timeout: nothing left' none_left
launch -n 2 --timeout 0.5 sh -c "trap '' TERM; sleep $tag & wait; sleep $tag"
ok 'SIGTERM ignored: status 124' [ "$status" = 124 ]
ok 'SIGTERM ignored: SIGKILL after 2 s' [ "$took" -lt 4000 ]
ok 'SIGTERM ignored: nothing left' none_left
launch -n 2 --timeout 0.5 sh -c "kill -STOP \$\$; sleep $tag"
ok 'stopped ranks end too' [ "$status" = 124 ]
launch -n 2 --timeout 20 true
ok 'in time: status 0' [ "$status" = 0 ]

# ---- signals ----

for sig in INT TERM HUP QUIT; do
	launch_in_background -n 2 bash -c "trap 'echo got; exit 4' $sig
		echo ready; while :; do sleep 0.05; done"
	until_true 5 has_lines out 2
	kill -$sig $pid
	finish
	ok "SIG$sig is passed on" [ "$(grep -c got "$work/out")" = 2 ]
	ok "SIG$sig: their status" [ "$status" = 4 ]
	ok "SIG$sig: soon" [ "$took" -lt 2000 ]
done
launch_in_background -n 2 bash -c 'trap "echo usr" USR1
	echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done'
until_true 5 has_lines out 2
kill -USR1 $pid
finish
ok 'SIGUSR1 is passed on' [ "$(grep -c usr "$work/out")" = 2 ]
ok 'SIGUSR1 ends nothing' [ "$status" = 0 ]
launch_in_background -n 2 bash -c "echo ready; exec sleep $tag"
until_true 5 has_lines out 2
kill -TERM $pid
finish
ok 'SIGTERM: 143' [ "$status" = 143 ]
ok 'SIGTERM: nothing left' none_left
launch_in_background -n 2 bash -c "trap '' TERM; echo ready
	while :; do sleep $tag; done"
until_true 5 has_lines out 2
kill -TERM $pid
sleep 0.3
kill -TERM $pid
finish
ok 'the second SIGTERM kills' [ "$took" -lt 2000 ]
ok 'the second SIGTERM: status' [ "$status" = 137 ]
ok 'the second SIGTERM: nothing left' none_left
launch_in_background -n 3 bash -c "echo ready; exec sleep $tag"
until_true 5 has_lines out 3
kill -KILL $pid
finish 2>/dev/null
ok 'SIGKILL of the launcher leaves nothing' until_true 2 none_left

# ---- other launchers' variables ----

perf=$build/bin/verbena-perf
# ranks COMMAND...: 4 processes of it, with $rank set; true if all end well.
ranks() {
	local pids=() rank all=0
	for rank in 0 1 2 3; do
		rank=$rank "$@" >"$work/rank.$rank" 2>&1 </dev/null &
		pids+=($!)
	done
	for rank in "${pids[@]}"; do
		wait "$rank" || all=1
	done
	cat "$work"/rank.? >"$work/out"
	return $all
}

port=$((61000 + $$ % 4000))
torchrun() { # VARIABLE=VALUE...
	env -u VBN_RANK RANK="$rank" LOCAL_RANK="$rank" WORLD_SIZE=4 \
		LOCAL_WORLD_SIZE=4 GROUP_WORLD_SIZE=1 GROUP_RANK=0 \
		MASTER_ADDR=localhost MASTER_PORT=$port VBN_TIMEOUT_MS=10000 \
		"$@" "$perf" allreduce -s 1K -n 5
}
ok 'torchrun: all join' ranks torchrun VBN_SECRET=x
ok 'torchrun: the sums are right' has out '^ +1024 .* 0$'
ok 'torchrun: no secret is refused' [ "$(! ranks torchrun &&
	grep -c 'has no secret' "$work/out")" = 4 ]
# Newer agents keep MASTER_PORT for themselves and say so.
perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Listen => 9,
	ReuseAddr => 1, LocalAddr => "127.0.0.1", LocalPort => $ARGV[0]) or die;
	print "ready\n"; close(STDOUT); sleep 30' $port >"$work/agent" &
agent=$!
until_true 5 has_lines agent 1
ok 'torchrun: its agent has the port: told' [ "$(! ranks torchrun VBN_SECRET=x \
	VBN_TIMEOUT_MS=1500 && grep -c "port $port .* in use" "$work/out")" = 1 ]
ok 'torchrun: its agent has the port, and says so' \
	ranks torchrun VBN_SECRET=x TORCHELASTIC_USE_AGENT_STORE=True
kill $agent
wait $agent 2>/dev/null

# What the manifest sets, with this host's name and file for the cluster's; a
# mounted Secret is a link to a file.
echo cluster-secret >"$work/secret.data"
chmod 400 "$work/secret.data"
ln -s secret.data "$work/secret"
mapfile -t variables < <(awk '
	$2 == "name:" { name = $3 }
	$1 == "value:" { gsub(/"/, "", $2); print name "=" $2 }' \
	"$root/docs/kubernetes/job.yaml" | sed \
	-e "s|^VBN_ADDRESS=.*:|VBN_ADDRESS=localhost:|" \
	-e "s|^VBN_SECRET_FILE=.*|VBN_SECRET_FILE=$work/secret|")
pod() {
	env JOB_COMPLETION_INDEX="$rank" "$@" "$perf" allreduce -s 1K -n 5
}
ok 'Kubernetes: the manifest has what a pod needs' [ ${#variables[@]} = 4 ]
ok 'Kubernetes: all join' ranks pod "${variables[@]}"
ok 'Kubernetes: the sums are right' has out '^ +1024 .* 0$'
ok 'Kubernetes: the number of ranks is the same in all places' [ "$(grep -oE \
	'(completions|parallelism): [0-9]+|VBN_SIZE' "$root/docs/kubernetes/job.yaml" |
	grep -c ': 4$')" = 2 ]

checks_end
