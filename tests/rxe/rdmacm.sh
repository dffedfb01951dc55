#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In the guest: connections by librdmacm (VBN_CONNECT=rdmacm). The conformance
# suite's cases of connecting, closing and death, several lanes, what is
# left in the kernel, and what is said when it cannot be. --all: the whole suite.
#
# usage: tests/rxe/rdmacm.sh [--all] [BUILD_DIRECTORY]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
cases='order/put-notify endpoint context close death/put leave'
[ "${1-}" != --all ] || { cases='*' && shift; }
build=$root/${1:-build}
[[ ${1-} != /* ]] || build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
run=(timeout 60 "$build/bin/verbena-run" -n 2 --provider verbs)
perf=$build/bin/verbena-perf

set -f
export VBN_CONNECT=rdmacm
for name in $cases; do
	"$root/tests/conformance/run.sh" verbs --build "$build" \
		--filter "$name" --max-size 8388609 >"$work/out" 2>&1
	read -r p f s <<<"$(sed -n 's/^conformance-verbs: //p' "$work/out" |
		sed -E 's/[a-z, ]+/ /g')"
	passed=$((passed + ${p:-0})) skipped=$((skipped + ${s:-0}))
	if [ "${f:-1}" = 0 ]; then
		echo "ok conformance $name: $p"
	else
		broken "conformance $name" "${f:-?} failed"
		cat "$work/out"
	fi
done
unset VBN_CONNECT
set +f

check "lanes" 0 '4 queue pair.* are connected by rdma_cm' \
	env VBN_LOG=debug VBN_IB_QPS=4 "${run[@]}" --connect rdmacm \
	"$perf" put-bw -s 64K -n 100 --validate
check "options" 0 '^\[0\] +64 ' "${run[@]}" "$perf" put-lat --connect rdmacm -s 64 \
	-n 50 -T 32 -m 1024 --validate
# the GID's index
gid() { grep -l "$1" /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null |
	head -1 | xargs -r basename; }
ip addr add fd77::1/64 dev veth0 nodad
for _ in 1 2 3 4 5 6 7 8 9 10; do
	v6=$(gid '^fd77:.*:0001$')
	[ -z "$v6" ] || break
	sleep 0.2
done
ok "an IPv6 GID" test -n "$v6"
check "IPv6" 0 '^\[0\] +64 ' env VBN_IB_GID_INDEX="$v6" "${run[@]}" \
	--connect rdmacm "$perf" put-lat -s 64 -n 50
check "link-local alone" 1 'no IP address' \
	env VBN_IB_GID_INDEX="$(gid '^fe80:')" "${run[@]}" --connect rdmacm \
	"$perf" put-lat -s 64 -n 50
# shellcheck disable=SC2016 # the ranks' shells expand it
check "settings that differ" 1 'VBN_CONNECT alike' "${run[@]}" sh -c \
	'[ $VBN_RANK = 0 ] || export VBN_CONNECT=rdmacm; exec "$0" put-lat -n 9' \
	"$perf"
check "a wrong word" 2 'control or rdmacm' "${run[@]}" --connect tcp true
# nothing is left of ended jobs
ids_left() { [ "$(rdma resource show cm_id 2>/dev/null | grep -c .)" = 0 ]; }
if rdma resource show cm_id >/dev/null 2>&1; then
	ok "no identifier is left" ids_left
else
	skip "no identifier is left" "no rdma tool"
fi
if rmmod rdma_ucm 2>/dev/null || modprobe -r rdma_ucm 2>/dev/null; then
	check "no rdma_ucm" 1 'modprobe rdma_ucm' "${run[@]}" --connect rdmacm "$perf" \
		put-lat -n 9
	check "not asked for" 0 '^\[0\] +2 ' "${run[@]}" "$perf" put-lat -n 9
else
	skip "no rdma_ucm" "it cannot be unloaded"
fi
checks_end
