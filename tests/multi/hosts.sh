#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-run --hosts over two hosts: network namespaces joined by a veth pair,
# each with a host name of its own, and a remote shell that runs the command
# there, as sshd does: by a shell, in another directory. Needs root; skips
# otherwise.
#
# usage: tests/multi/hosts.sh [--build DIR]
# shellcheck disable=SC2016 # the ranks' shells expand
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
agent=$build/bin/verbena-run
perf=$build/bin/verbena-perf
work=$(mktemp -d)
run=("$agent" --remote-shell "$work/rsh") limit=40
tag=8$$
a=vbnha$$ b=vbnhb$$ # namespaces
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/launch.sh
. "$root/tests/support/launch.sh"

cleanup() {
	ip netns del "$a" 2>/dev/null
	ip netns del "$b" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

if ! ip netns add "$a" 2>"$work/err" || ! ip netns add "$b" 2>>"$work/err" ||
	! ip link add vhha netns "$a" type veth peer name vhhb netns "$b" \
		2>>"$work/err"; then
	echo "skipped: no network namespaces here: $(head -1 "$work/err")"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
set_up() { # NAMESPACE INTERFACE ADDRESS
	ip -n "$1" link set lo up
	ip -n "$1" addr add "$3/24" dev "$2"
	ip -n "$1" link set "$2" up
	# containers' bridges have the same address everywhere
	ip -n "$1" link add docker0 type dummy
	ip -n "$1" addr add 172.17.0.1/16 dev docker0
	ip -n "$1" link set docker0 up
}
set_up "$a" vhha 10.98.0.1
set_up "$b" vhhb 10.98.0.2
for ((i = 0; i < 60; i++)); do
	[[ $(ip -n "$a" -br link show vhha) == *\ UP\ * &&
		$(ip -n "$b" -br link show vhhb) == *\ UP\ * ]] && break
	sleep 0.05
done

# The remote shell: HOST COMMAND. What it is given is kept for the checks.
cat >"$work/rsh" <<EOF
#!/bin/bash
printf '%s\n' "\$@" >>"$work/rsh.arguments"
env >>"$work/rsh.environment"
case \$1 in
a) ns=$a ;;
b) ns=$b ;;
slow) exec sleep 60 ;;
noisy) ns=$b; echo "Welcome to noisy"; echo "Last login: never" ;;
split) # a shell that does not end with what it runs
	ip netns exec $b "$agent" --agent <&0 &
	echo \$\$ >"$work/rsh.split"
	wait
	exit ;;
chatter) exec head -c 200000 /dev/zero ;;
*) echo "connect to \$1: Connection refused" >&2; exit 255 ;;
esac
host=\$1
shift
cd /
echo \$\$ >"$work/rsh.\$host"
exec env -i HOME=/ PATH=/usr/bin:/bin ip netns exec \$ns unshare -u sh -c \
	'hostname "\$0" && eval "\$1"' "\$host" "\$*"
EOF
chmod +x "$work/rsh"

no_agent_left() {
	! pgrep -f "$agent --agent" >/dev/null
}

# ---- arguments ----

for bad in '--hosts a:0' '--hosts a:x' '--hosts a,,b' '--hosts a:1,a:2' \
	'--hosts -oProxyCommand=x:1' '--hosts a[1-' '--hosts a:1 -n 2' \
	"--hostfile $work/none" '--env =x' '--agent '; do
	# shellcheck disable=SC2086
	launch $bad true
	ok "$bad: status 2" [ "$status" = 2 ]
done
rm -f "$work"/rsh.arguments "$work"/rsh.environment

# ---- what a rank is given ----

mkdir "$work/dir with space"
cd "$work/dir with space" || exit 1
export UCX_TLS=tcp,self VBN_PROVIDER=ucx OWN_VARIABLE=1 ODD='a b'
launch --hosts a:2,b:2 --env ODD --env 'EQ=x=y "z"' sh -c '
	echo "$VBN_RANK/$VBN_SIZE of $VBN_LOCAL_SIZE at $VBN_ADDRESS" \
		"${VBN_LISTEN_FD:+listens}" "on $(hostname) in $PWD"
	echo "env $UCX_TLS [$OWN_VARIABLE] [$ODD] [$EQ] $VBN_PROVIDER"
	echo "arguments [$1] [$2] [$3]"
	echo "secret $VBN_SECRET"; echo to-err >&2' \
	x 'two  blanks' "it's \"q\" \$HOME \\ *" ''
ok 'ends well' [ "$status" = 0 ]
ok 'rank 0' has out "^\[0\] 0/4 of 2 at 10\.98\.0\.1:[0-9]+ listens on a in $PWD\$"
ok 'rank 3' has out "^\[3\] 3/4 of 2 at 10\.98\.0\.1:[0-9]+  on b in $PWD\$"
ok 'variables are passed on' [ "$(grep -Fc 'env tcp,self [] [a b] [x=y "z"] ucx' \
	"$work/out")" = 4 ]
ok 'arguments are kept' [ "$(grep -Fc \
	"arguments [two  blanks] [it's \"q\" \$HOME \\ *] []" "$work/out")" = 4 ]
ok 'one secret for all' [ "$(sed -n 's/^\[.\] secret //p' "$work/out" |
	sort -u | grep -c '^[0-9a-f]\{64\}$')" = 1 ]
ok 'stderr comes, too' [ "$(grep -c '\] to-err' "$work/err")" = 4 ]
secret=$(sed -n 's/^\[0\] secret //p' "$work/out")
ok 'the secret is on no command line' \
	[ "$(grep -c "$secret" "$work/rsh.arguments")" = 0 ]
ok 'nor in the environment of the remote shell' \
	[ "$(grep -c "$secret" "$work/rsh.environment")" = 0 ]
ok 'the command line is verbena-run alone' [ "$(sort -u "$work/rsh.arguments" |
	tr '\n' ,)" = "a,b,exec '$agent' --agent," ]
cd "$work" || exit 1
printf '# two hosts\na slots=1 max_slots=4\n\nb:3\n' >"$work/hostfile"
launch --hostfile "$work/hostfile" -n 3 sh -c 'echo $(hostname) $VBN_SIZE'
ok 'a file of hosts' [ "$(sort "$work/out" | tr '\n' ,)" = \
	'[0] a 3,[1] b 3,[2] b 3,' ]
launch --hosts b sh -c 'echo $VBN_ADDRESS $(hostname)'
ok 'one host: over loopback' has out '^\[0\] 127\.0\.0\.1:[0-9]+ b$'
launch --hosts noisy:1 echo fine
ok 'a login shell that talks' has out '^\[0\] fine$'
launch --hosts a:2,b:2 sh -c 'seq 20000'
ok '80,000 lines, all whole' [ "$(sort -u "$work/out" |
	grep -Ec '^\[[0-3]\] [0-9]+$')" = 80000 ]
ok 'in order' [ "$(sed -n 's/^\[3\] //p' "$work/out" | md5sum)" = \
	"$(seq 20000 | md5sum)" ]
"${run[@]}" --hosts a:1,b:1 sh -c 'seq 100000' \
	2>"$work/err" | (sleep 1; wc -l) >"$work/out"
ok 'a slow reader loses nothing' has out '^200000$'
launch --hosts a,b cat
ok 'standard input is empty' [ "$status" = 0 ]

# ---- a job ----

launch --hosts a:2,b:2 "$perf" allreduce -s 64K -n 5
ok 'allreduce over two hosts' [ "$status" = 0 ]
ok 'the sums are right' has out '^\[0\] +65536 .* 0$'
VBN_SOCKET_IFNAME=vhha launch --hosts a:1 sh -c 'echo $VBN_ADDRESS'
ok 'one host needs no interface' has out '127\.0\.0\.1'
VBN_SOCKET_IFNAME=eth9 launch --hosts a,b true
ok 'no such interface: refused' has err \
	'host a: .*VBN_SOCKET_IFNAME eth9.*may reach: vhha 10\.98\.0\.1'

# ---- failure ----

launch --hosts a:2,b:2 sh -c '[ $VBN_RANK != 3 ] || exit 7; exec sleep 0.3'
ok 'exit status of a rank elsewhere' [ "$status" = 7 ]
ok 'it is named' has err 'rank 3 \(pid [0-9]+ on host b\) exited with status 7; s'
launch --hosts a:2,b:2 sh -c '[ $VBN_RANK != 0 ] || kill -9 $$; sleep 0.05; exit 3'
ok 'killed: 128 + signal' [ "$status" = 137 ]
ok 'others that fail are not the cause' [ "$(grep -c '^verbena-run: rank' \
	"$work/err")" = 1 ]
launch --hosts a,b "$perf" put-bw --duration 0.1 --no-such-option
ok 'both fail: one is named' [ "$(grep -c '^verbena-run: rank' "$work/err")" = 1 ]
launch --hosts a,b /no/such/command
ok 'no such command: status 127' [ "$status" = 127 ]
ok 'no such command: named' has err 'host [ab]: cannot run /no/such/command: No such'
launch --hosts a,b --agent /no/verbena-run true
ok 'no verbena-run there: status 125' [ "$status" = 125 ]
ok 'no verbena-run there: said' has err \
	'host [ab]: /no/verbena-run there cannot be run \(status 127\); --agent says'
launch --hosts a,gone true
ok 'unreachable: status 125' [ "$status" = 125 ]
ok 'unreachable: soon' [ "$took" -lt 3000 ]
ok 'unreachable: said' has err \
	'^verbena-run: host gone cannot be reached: the remote shell ended with status 255'
ok 'unreachable: its own words' has err '^gone: connect to gone: Connection refused'
launch --hosts a,slow --timeout 1 true
ok 'no answer: status 124' [ "$status" = 124 ]
ok 'no answer: named' has err 'no answer within 1 s from host slow$'
launch --hosts chatter,a true
ok 'something else answers' has err 'host chatter is lost: something else'
launch --hosts a,b --timeout 0.5 sleep $tag
ok 'timeout: status 124' [ "$status" = 124 ]
ok 'timeout: nothing left' none_left
launch --hosts a,b --timeout 0.5 sh -c "trap '' TERM; sleep $tag & wait; sleep $tag"
ok 'SIGTERM ignored: killed' [ "$status" = 124 ]
ok 'SIGTERM ignored: nothing left' none_left

# ---- signals, and ends of the launcher and of what is between ----

launch_in_background --hosts a:1,b:1 bash -c "trap 'echo got; exit 4' INT
	echo ready; while :; do sleep 0.05; done"
until_true 5 has_lines out 2
kill -INT $pid
finish
ok 'SIGINT is passed on' [ "$(grep -c got "$work/out")" = 2 ]
ok 'SIGINT: their status' [ "$status" = 4 ]
launch_in_background --hosts a:1,slow:1 sleep $tag
sleep 0.5
kill -INT $pid
finish
ok 'SIGINT before all have answered: 130' [ "$status" = 130 ]
ok 'SIGINT before all have answered: soon' [ "$took" -lt 2000 ]
launch_in_background --hosts a:1,b:1 bash -c "echo ready; exec sleep $tag"
until_true 5 has_lines out 2
kill -KILL $pid
finish 2>/dev/null
ok 'SIGKILL of the launcher leaves nothing' until_true 3 none_left
ok 'nor an agent' until_true 3 no_agent_left
launch_in_background --hosts a:1,b:2 bash -c "trap 'exit 0' INT
	echo ready; while :; do sleep 0.1; done; sleep $tag"
until_true 5 has_lines out 3
kill -KILL "$(cat "$work/rsh.b")" # it has become the agent
until_true 5 has err 'is lost' # then the others have 6 s: asked, they end now
kill -INT $pid
finish
ok 'SIGKILL of an agent: status 125' [ "$status" = 125 ]
ok 'SIGKILL of an agent: the host is named' has err \
	'host b is lost: the remote shell was killed by signal 9; ranks 1 to 2 with'
ok 'SIGKILL of an agent: nothing left' until_true 3 no_agent_left
launch_in_background --hosts a:1,split:1 sh -c "trap 'exit 0' INT
	echo ready; while :; do sleep 0.1; done; sleep $tag"
until_true 5 has_lines out 2
kill -KILL "$(cat "$work/rsh.split")"
until_true 5 has err 'is lost'
kill -INT $pid
finish
ok 'the connection goes, the agent does not: the host is lost' has err \
	'host split is lost: the remote shell was killed by signal 9; rank 1 with it'
ok 'its agent and ranks end' until_true 3 no_agent_left
launch_in_background --hosts a:2,b:2 "$perf" allreduce -n 100000000
until_true 5 pgrep -f "^$perf allreduce" >/dev/null
sleep 1
kill -KILL "$(pgrep -n -f "^$perf allreduce")"
finish
ok 'a rank dies in a job: status 137' [ "$status" = 137 ]
ok 'a rank dies in a job: the others notice' [ "$took" -lt 5000 ]

checks_end
