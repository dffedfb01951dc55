# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts on this machine, for shell tests: network namespaces joined by a
# veth pair, each with a host name and /etc/hosts of its own, where the own name
# is 127.0.1.1, as Debian's installer writes it. Needs root; the directory $work
# is the script's, which calls hosts_down when it ends.
a=vbna$$ b=vbnb$$ # namespaces of nodea, 10.99.0.1, and nodeb, 10.99.0.2

hosts_down() {
	ip netns del "$a" 2>/dev/null
	ip netns del "$b" 2>/dev/null
}

host_up() { # NAMESPACE INTERFACE ADDRESS
	ip -n "$1" link set lo up
	ip -n "$1" addr add "$3/24" dev "$2"
	ip -n "$1" link set "$2" up
}

# False where there are no namespaces: says so, as a script that skips.
hosts_up() {
	if ! ip netns add "$a" 2>"$work/err" ||
		! ip netns add "$b" 2>>"$work/err" ||
		! ip link add vha netns "$a" type veth peer name vhb \
			netns "$b" 2>>"$work/err"; then
		echo "skipped: no network namespaces here:" \
			"$(head -1 "$work/err")"
		echo "0 passed, 0 failed, 1 skipped"
		return 1
	fi
	host_up "$a" vha 10.99.0.1
	host_up "$b" vhb 10.99.0.2
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
}

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
