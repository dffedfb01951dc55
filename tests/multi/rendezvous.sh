#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Where ranks meet, on two hosts (network namespaces). Needs root; skips
# otherwise.
#
# usage: tests/multi/rendezvous.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
perf=$build/bin/verbena-perf
work=$(mktemp -d)
port=4600
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/two_hosts.sh
. "$root/tests/support/two_hosts.sh"

cleanup() {
	hosts_down
	rm -rf "$work"
}
trap cleanup EXIT

hosts_up || exit 0
ip -n "$a" addr add fd00:99::1/64 dev vha nodad
ip -n "$b" addr add fd00:99::2/64 dev vhb nodad
for node in nodea nodeb; do
	printf 'fd00:99::1 both\n10.99.0.1 both\n' >>"$work/hosts.$node"
	printf '172.17.0.1 bridged\n10.99.0.1 bridged\n' >>"$work/hosts.$node"
done

# rank NODE RANK VARIABLE=VALUE...: a rank of $size, its output in rank.RANK.
rank() {
	local node=$1 rank=$2
	shift 2
	on "$node" env VBN_SECRET=secret VBN_PROVIDER=ucx UCX_TLS=tcp,self \
		VBN_TIMEOUT_MS=8000 RANK="$rank" WORLD_SIZE=$size "$@" \
		"$perf" allreduce -s 64 -n 5 >"$work/rank.$rank" 2>&1
}

# job NAME VARIABLE=VALUE...: $size ranks, the first half on nodea, all end
# well. @ is the port; $on_a and $on_b are variables for that host's ranks.
job() {
	local name=$1 pids=() r node extra begin ok=1
	shift
	port=$((port + 1))
	begin=$(date +%s%3N)
	for ((r = 0; r < size; r++)); do
		node=nodea extra=${on_a:-_=}
		[ $r -lt $((size / 2)) ] || node=nodeb extra=${on_b:-_=}
		rank $node $r "$extra" "${@//@/$port}" &
		pids+=($!)
	done
	for r in "${!pids[@]}"; do
		wait "${pids[$r]}" || ok=0
	done
	took=$(($(date +%s%3N) - begin))
	verdict "$name" $ok
}

# refused NAME WORDS NODE RANK VARIABLE=VALUE...: one rank, at once, with words.
refused() {
	local name=$1 words=$2 begin status ok=1
	shift 2
	port=$((port + 1))
	begin=$(date +%s%3N)
	rank "${@//@/$port}"
	status=$?
	took=$(($(date +%s%3N) - begin))
	[ $status = 1 ] && [ $took -lt 3000 ] &&
		grep -qF -- "$words" "$work/rank.$2" || ok=0
	verdict "$name" $ok
}

# listens NAME ADDRESSES VARIABLE=VALUE...: rank 0 does so, in hexadecimal, and
# at no other address
listens() {
	local name=$1 at=$2 got='' pid
	shift 2
	port=$((port + 1))
	on nodea env VBN_SECRET=secret VBN_TIMEOUT_MS=8000 RANK=0 WORLD_SIZE=2 \
		VBN_PROVIDER=ucx "${@//@/$port}" "$perf" allreduce -s 64 \
		>"$work/rank.0" 2>&1 &
	pid=$!
	for ((i = 0; i < 100 && ${#got} == 0; i++)); do
		sleep 0.02
		got=$(ip netns exec "$a" cat /proc/net/tcp /proc/net/tcp6 |
			awk -v p="$(printf :%04X $port)" '$4 == "0A" &&
				index($2, p) { sub(":.*", "", $2); print $2 }')
	done
	kill $pid
	wait $pid 2>/dev/null
	took=0
	[ "$got" = "$at" ] && verdict "$name" 1 && return
	echo "listens at: $got"
	verdict "$name" 0
}

verdict() {
	if [ "$2" = 1 ]; then
		held "$1 ($took ms)"
	else
		broken "$1" "$took ms"
		tail -n 3 "$work"/rank.* | sed 's/^/    /'
	fi
	rm -f "$work"/rank.*
}

size=2
job "own name is 127.0.1.1, nobody says how many hosts" VBN_ADDRESS=nodea:@
job "own name is 127.0.1.1, two hosts" VBN_ADDRESS=nodea:@ VBN_LOCAL_SIZE=1
size=4
job "two ranks on each host, as torchrun" MASTER_ADDR=nodea MASTER_PORT=@ \
	LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2
on_a=VBN_SOCKET_IFNAME=vha on_b=VBN_SOCKET_IFNAME=vhb
job "interfaces named, two ranks on each host" VBN_ADDRESS=nodea:@ \
	VBN_LOCAL_SIZE=2
job "interfaces named, by address" VBN_ADDRESS=10.99.0.1:@
unset on_a on_b
size=2
job "IPv6" VBN_ADDRESS='[fd00:99::1]:@' VBN_LOCAL_SIZE=1
job "a name of both families" VBN_ADDRESS=both:@ VBN_LOCAL_SIZE=1
listens "at the job's address alone" 0100630A VBN_ADDRESS=10.99.0.1:@
listens "at the interface's address alone" 0100630A VBN_ADDRESS=nodea:@ \
	VBN_SOCKET_IFNAME=vha
# Both hosts have what looks like a bridge, by which a name goes as well.
for ns in "$a" "$b"; do
	ip -n "$ns" link add docker0 type veth peer name dockerp
	ip -n "$ns" addr add 172.17.0.1/16 dev docker0
	ip -n "$ns" link set docker0 up
	ip -n "$ns" link set dockerp up
done
# UCX may take the bridge for its data.
on_a=UCX_NET_DEVICES=vha on_b=UCX_NET_DEVICES=vhb
job "a bridge's address comes last" VBN_ADDRESS=bridged:@ VBN_LOCAL_SIZE=1
unset on_a on_b

refused "the address of a bridge that every host has" "own (docker0)" nodeb 1 \
	VBN_ADDRESS=172.17.0.1:@ VBN_LOCAL_SIZE=1
refused "each host names itself" "rank 0 is on another" nodeb 1 \
	MASTER_ADDR=nodeb MASTER_PORT=@ LOCAL_WORLD_SIZE=1
refused "each host names itself, says Slurm" "Slurm: the job has 2 hosts" \
	nodeb 1 MASTER_ADDR=nodeb MASTER_PORT=@ SLURM_STEP_NUM_TASKS=2 \
	SLURM_STEP_NUM_NODES=2 SLURM_NODEID=1
refused "localhost, rank 0" "interfaces here: vha 10.99.0.1" nodea 0 \
	VBN_ADDRESS=localhost:@ VBN_LOCAL_SIZE=1
refused "127.0.0.1, rank 1" "an address of rank 0's host" nodeb 1 \
	VBN_ADDRESS=127.0.0.1:@ VBN_LOCAL_SIZE=1
refused "no such interface" "no such interface; interfaces that other hosts" \
	nodea 0 VBN_ADDRESS=nodea:@ VBN_SOCKET_IFNAME=eth9
refused "another interface than the address" "the other ranks go to" \
	nodea 0 VBN_ADDRESS=10.99.0.1:@ VBN_SOCKET_IFNAME=lo
refused "a bad VBN_LOCAL_SIZE" "from 1 to 2" nodea 0 \
	VBN_ADDRESS=nodea:@ VBN_LOCAL_SIZE=3
ip -n "$a" link set docker0 down
ip -n "$a" link set vha down
refused "no interface up, several hosts" "no interface that they reach is up" \
	nodea 0 VBN_ADDRESS=nodea:@ VBN_LOCAL_SIZE=1
refused "no interface up, to another host" "no network interface but" \
	nodea 1 VBN_ADDRESS=10.99.0.2:@
ip -n "$a" link set lo down
refused "no loopback, rank 1" "ip link set lo up" nodea 1 \
	VBN_ADDRESS=127.0.0.1:@

begin=$(date +%s%3N) ok=1
timeout 20 unshare -n "$build/bin/verbena-run" -n 2 "$perf" put-lat -s 8 -n 5 \
	>"$work/rank.0" 2>&1 && ok=0
took=$(($(date +%s%3N) - begin))
grep -q 'loopback interface, which is down' "$work/rank.0" || ok=0
[ $took -lt 5000 ] || ok=0
verdict "verbena-run where no interface is up" $ok

checks_end
