#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/rxe --native without rdma_rxe: rdma(8), modprobe and /sys are made up,
# the rest is real: interfaces, namespaces, and that all is undone, whatever
# ends it. Needs root; skips otherwise.
#
# usage: tests/rxe/native.sh
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
rxe=$root/scripts/rxe
export VBN_RXE_SYS=$work/sys log=$work/log
mkdir -p "$work/bin" "$VBN_RXE_SYS"

# rdma link add DEVICE ... and delete DEVICE, as seen in /sys
cat >"$work/bin/rdma" <<'EOT'
#!/bin/sh
echo "rdma $*" >>"$log"
dir=$VBN_RXE_SYS/class/infiniband/$3
case $2 in
add)
	[ "$3" != "${refuse-}" ] || exit 1
	mkdir -p "$dir/ports/1/gids"
	echo "4: ACTIVE" >"$dir/ports/1/state"
	echo 0000:0000:0000:0000:0000:ffff:0a4d:0001 >"$dir/ports/1/gids/1"
	;;
delete) rm -r "$dir" ;;
esac
EOT
cat >"$work/bin/modprobe" <<'EOT'
#!/bin/sh
echo "modprobe $*" >>"$log"
[ -z "${no_module-}" ]
EOT
# Whether packets arrive is not for this machine to show.
cat >"$work/bin/ibv_rc_pingpong" <<'EOT'
#!/bin/sh
[ -z "${no_pong-}" ]
EOT
chmod +x "$work/bin"/*

if [ "$(id -u)" != 0 ] || ! ip netns add vbntest$$ 2>/dev/null; then
	check "it asks for root" 125 "it needs root" \
		"$rxe" --native -- true
	skip "all else" "no network namespaces here"
	checks_end
	exit
fi
ip netns delete vbntest$$

interfaces() {
	{
		ip -br link | grep -oE '^vbn[0-9]+r[^ ]*'
		ip netns list | grep -oE '^vbn[0-9]+-[01]'
		find "$VBN_RXE_SYS/class/infiniband" -mindepth 1 -maxdepth 1
	} 2>/dev/null | sort
}
before=$(interfaces)
nothing_left() {
	local i
	for ((i = 0; i < 50; i++)); do
		[ "$(interfaces)" != "$before" ] || return 0
		sleep 0.1
	done
	diff <(echo "$before") <(interfaces)
}

native() {
	: >"$log"
	PATH=$work/bin:$PATH "$rxe" --native "$@"
}

check "no module" 125 "has no module rdma_rxe.*without --native, a guest" \
	env no_module=1 PATH="$work/bin:$PATH" "$rxe" --native -- true
check "no root" 125 "it needs root" \
	setpriv --reuid 65534 --clear-groups "$rxe" --native -- true
check "--pids is for guests" 2 "no guest" "$rxe" --native --hosts 2 \
	--pids x -- true

# shellcheck disable=SC2016 # the inner shell expands
check "one host, two rails" 3 "^native 0 1 rxe0,rxe1 10.77.1.1/24" \
	native --rails 2 -- sh -c 'echo $VBN_GUEST $VBN_GUEST_HOST \
		$VBN_GUEST_HOSTS $VBN_IB_HCA $(ip -br -4 address | grep -o \
		"10.77.1.1/24"); exit 3'
ok "the module is unloaded last" grep -q "modprobe -r" <(tail -1 "$log")
ok "one host leaves nothing" nothing_left
# shellcheck disable=SC2016
check "two hosts" 0 "^\[host 1\] vbn-guest-1 1 rxe1 10.78.0.2/24 10.78.0.1" \
	native --hosts 2 -- sh -c 'echo $(hostname) $VBN_GUEST_HOST \
		$VBN_IB_HCA $(ip -br -4 address show up | grep -o \
		"10.78[^ ]*") $(grep -o ".*vbn-guest-0" /etc/hosts)'
ok "two hosts leave nothing" nothing_left
# shellcheck disable=SC2016
check "ranks" 0 "^\[2\] 2 3 1 vbn-guest-0:4600 vbn-guest-1" \
	native --hosts 2 --ranks 3 -- sh -c 'echo $VBN_RANK $VBN_SIZE \
		$VBN_LOCAL_SIZE $VBN_ADDRESS $(hostname); [ $VBN_SECRET ]'
check "a rank that fails" 7 "host vbn-guest-1" \
	native --hosts 2 --ranks 2 -- sh -c \
	'[ $VBN_RANK = 0 ] || { echo host $(hostname); exit 7; }'
check "namespaces without rdma_rxe" 125 "does not work in network namespaces" \
	env no_pong=1 PATH="$work/bin:$PATH" "$rxe" --native --hosts 2 -- true
ok "that leaves nothing" nothing_left
check "a device that cannot be made" 125 "no Soft-RoCE device" \
	env refuse=rxe1 PATH="$work/bin:$PATH" "$rxe" --native --rails 2 -- true
ok "half a network is undone" nothing_left
check "the deadline" 124 "deadline of 1 s" native --timeout 1 -- sleep 9
ok "it leaves nothing" nothing_left

for signal in TERM INT KILL; do
	native --hosts 2 -- sleep 4321 >"$work/out" 2>&1 &
	for ((i = 0; i < 100; i++)); do
		pid=$(pgrep -f "rxe/native 2 .*sleep 4321" | head -1)
		if pgrep -x -f "sleep 4321" >/dev/null; then break; fi
		sleep 0.1
	done
	kill -$signal "$pid"
	wait 2>/dev/null
	ok "SIG$signal leaves no interface" nothing_left
	ok "SIG$signal leaves no process" sh -c \
		'sleep 0.5; ! pgrep -x -f "sleep 4321"'
done
checks_end
