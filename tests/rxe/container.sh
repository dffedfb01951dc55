#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A container with an RDMA device, as docs/containers.md gives it one: in the
# guest, whose soft-RoCE is the host's. With the device file, the host's network
# and locked memory a job of a user's runs over verbs; what is not given is
# named.
#
# usage: tests/rxe/container.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$(cd "$2" && pwd)
. "$root/tests/support/check.sh"
. "$root/tests/support/container.sh"

if [ "${VBN_GUEST:-}" != rxe ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	why=$(container_why)
	if [ -n "$why" ]; then
		skip container "$why"
		checks_end
		exit 0
	fi
	if ! container_make || ! container_install; then
		broken "the package" "it cannot be installed"
		checks_end
		exit
	fi
	"$root/scripts/rxe" --timeout 150 -- env \
		CONTAINER_UPPER="$layers/upper" "$0" --build "$build"
	exit
fi

work=$(mktemp -d)
mount -t tmpfs none "$work"
layers=$work/layers
mkdir -p "$layers/upper" "$layers/work" "$layers/root"
# shellcheck disable=SC2034 # container's
lower=$CONTAINER_UPPER:$build/debian-root net=host device=1
job=(verbena-run -n 2 --timeout 60 verbena-perf put-bw -s 64K -n 20)

limited unlimited none ro "$as_user" "${job[@]}" --validate
ok "all given: a job runs" [ "$status" = 0 ]
limited unlimited none ro "$as_user" env VBN_PROVIDER=verbs "${job[@]}"
ok "all given: over verbs" [ "$status" = 0 ]
limited unlimited none ro "$as_user" verbena-info --json
ok "all given: verbena-info finds verbs usable" json \
	'any(.providers[]; .name == "verbs" and .usable)'

limited 64 none ro "$as_root" env VBN_PROVIDER=verbs "${job[@]}"
ok "64 KiB of locked memory: it fails" [ "$status" != 0 ]
ok "64 KiB of locked memory: named" has 'ulimit -l|memlock'
limited 64 none ro "$as_root" env VBN_PROVIDER=shm "${job[@]}"
ok "64 KiB of locked memory: shm does not mind" [ "$status" = 0 ]
limited 64 none ro "$as_root" verbena-info --json
ok "64 KiB of locked memory: verbena-info ends" [ "$status" = 0 ]
ok "64 KiB of locked memory: an error" json 'any(.problems[];
	.id == "memlock-low" and .severity == "error")'
limited 64 none ro "${as_root/,+setfcap/,+setfcap,+ipc_lock}" \
	env VBN_PROVIDER=verbs "${job[@]}"
ok "64 KiB of locked memory, IPC_LOCK: it runs" [ "$status" = 0 ]

# shellcheck disable=SC2034 # container's
device=
limited unlimited none ro "$as_user" verbena-info --json
ok "no device file: named" json \
	'any(.problems[]; .id == "rdma-device-hidden")'
ok "no device file: docker's option" has 'docker --device=/dev/infiniband'

checks_end
