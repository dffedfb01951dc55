#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What docs/containers.md promises, in a container without an engine
# (tests/support/container.sh): jobs run under the limits and capabilities that
# engines give by default, and under less, and verbena-info says what limits
# them; and two of them over a network. There is no RDMA device; tests/rxe has.
#
# usage: tests/multi/container.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$root/tests/support/check.sh"
. "$root/tests/support/container.sh"
. "$root/tests/support/two_hosts.sh"

why=$(container_why)
if [ -n "$why" ]; then
	skip container "$why"
	checks_end
	exit 0
fi
container_make || { broken "the package" "it is not made"; checks_end; exit 1; }

ok "the steps of the Containerfile" container_install

allreduce=(verbena-run -n 2 --timeout 30 verbena-perf allreduce -s 64K -n 20)
while read -r what shm mode who; do
	limited 64 "$shm" "$mode" "${!who}" "${allreduce[@]}"
	ok "$what: a job runs" [ "$status" = 0 ]
	ok "$what: its sums are right" has ' 65536 .* 0$'
	ok "$what: without a warning" bash -c \
		"! grep -iE 'warn|error' '$work/out'"
	limited 64 "$shm" "$mode" "${!who}" env UCX_TLS=tcp,self VBN_PROVIDER=ucx \
		"${allreduce[@]}"
	ok "$what: over ucx by TCP" [ "$status" = 0 ]
	limited 64 "$shm" "$mode" "${!who}" verbena-info --json
	ok "$what: verbena-info runs" json '.usable and .container'
	ok "$what: memlock is named" json '.limits.memlock.limit == 65536 and
		any(.problems[]; .id == "memlock-low")'
	ok "$what: no device is named" json \
		'any(.problems[]; .id == "no-rdma-device")'
	[ "$shm" != 64k ] || ok "$what: /dev/shm is named" json \
		'any(.problems[]; .id == "ucx-unusable" and
		(.fix | test("/dev/shm has room for 64 KiB")))'
done <<'EOF'
docker-root 64m rw as_root
docker-user 64m rw as_user
small-shm 64k rw as_user
no-shm none rw as_user
read-only none ro as_user
EOF

# Two containers with a network between them, as docs/containers.md starts them.
trap 'hosts_down; rm -rf "$work"' EXIT
if hosts_up >"$work/out"; then
	head -c 32 /dev/urandom | base64 >"$work/secret"
	install -m 400 -o 1000 "$work/secret" "$layers/upper/secret"
	mkdir -p "$work/second/work" "$work/second/root"
	cp -a "$layers/upper" "$work/second/"
	start() { # RANK NETWORK OUT ENVIRONMENT...
		local net=$2 out=$3
		# shellcheck disable=SC2034 # container's
		[ "$1" = 0 ] || layers=$work/second
		# shellcheck disable=SC2086 # words
		container 64m rw $as_user env VBN_RANK="$1" VBN_SIZE=2 \
			VBN_ADDRESS=10.99.0.1:4700 VBN_SECRET_FILE=/secret \
			"${@:4}" verbena-perf allreduce -s 64K -n 20
		return $status
	}
	for variable in VBN_LOG=warn UCX_TLS=tcp,self; do
		start 0 "$a" "$work/out0" $variable &
		first=$!
		(start 1 "$b" "$work/out" $variable)
		second=$?
		wait $first
		ok "two containers, $variable: a job runs" [ "$?$second" = 00 ]
		cp "$work/out0" "$work/out"
		ok "two containers, $variable: its sums are right" \
			has ' 65536 .* 0$'
	done
else
	skip 'two containers' "$(head -1 "$work/out")"
fi

checks_end
