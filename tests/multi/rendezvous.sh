#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Where ranks meet, on two hosts: network namespaces joined by a veth pair,
# each with a host name and /etc/hosts of its own, where the own name is
# 127.0.1.1, as Debian's installer writes it. Needs root; skips otherwise.
#
# usage: tests/multi/rendezvous.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
build=$(cd "$build" && pwd)
perf=$build/bin/verbena-perf
work=$(mktemp -d)
a=vbna$$ b=vbnb$$ # namespaces
port=4600
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

cleanup() {
	ip netns del "$a" 2>/dev/null
	ip netns del "$b" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT

if ! ip netns add "$a" 2>"$work/err" || ! ip netns add "$b" 2>>"$work/err" ||
	! ip link add vha netns "$a" type veth peer name vhb netns "$b" \
		2>>"$work/err"; then
	echo "skipped: no network namespaces here: $(head -1 "$work/err")"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
set_up() { # NAMESPACE INTERFACE ADDRESS
	ip -n "$1" link set lo up
	ip -n "$1" addr add "$3/24" dev "$2"
	ip -n "$1" link set "$2" up
}
set_up "$a" vha 10.99.0.1
set_up "$b" vhb 10.99.0.2
# UCX leaves out an interface that the kernel does not call running yet.
for ((i = 0; i < 60; i++)); do
	[[ $(ip -n "$a" -br link show vha) == *\ UP\ * &&
		$(ip -n "$b" -br link show vhb) == *\ UP\ * ]] && break
	sleep 0.05
done
printf '127.0.0.1 localhost\n127.0.1.1 nodea\n10.99.0.2 nodeb\n' \
	>"$work/hosts.nodea"
printf '127.0.0.1 localhost\n127.0.1.1 nodeb\n10.99.0.1 nodea\n' \
	>"$work/hosts.nodeb"

# on NODE COMMAND...: there, 20 s at most.
on() {
	local node=$1 ns=$a
	shift
	[ "$node" = nodea ] || ns=$b
	# shellcheck disable=SC2016 # the inner shell expands
	ip netns exec "$ns" unshare -u -m sh -c '
		hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 &&
		exec "$@"' sh "$node" "$work/hosts.$node" \
		timeout -k 2 20 "$@"
}

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
