#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The Debian package, in a minimal Debian that has what the package depends on
# and nothing else: it is complete, installs, runs, and is removed to the last
# file.
#
# usage: tests/multi/deb.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!VBN_@}" "${!UCX_@}"
. "$root/tests/support/check.sh"
. "$root/tests/support/container.sh"

why=$(container_why)
if [ -n "$why" ]; then
	skip deb "$why"
	checks_end
	exit 0
fi
container_make || { broken "the package" "it is not made"; checks_end; exit 1; }

# inside COMMAND...
inside() {
	container 64m rw "$@"
}

dpkg-deb -c "$deb" >"$work/out"
for file in bin/verbena-run lib/libverbena.so.0 lib/libverbena.so \
	lib/verbena/libverbena-ucx.so include/verbena/transport.h \
	lib/pkgconfig/verbena.pc lib/cmake/verbena/verbena-config.cmake \
	share/man/man1/verbena-run.1 share/man/man3/vbn_put.3 \
	share/doc/verbena/copyright; do
	ok "it has $file" has " \./usr/$file( |\$)"
done
ok "all belong to root" bash -c "! grep -v ' root/root ' '$work/out'"
ok "none is for others to write" bash -c \
	"! grep -E '^[^l].{7}w' '$work/out'"

mkdir -p "$layers/upper/tmp"
chmod 1777 "$layers/upper/tmp"
cp "$deb" "$layers/upper/tmp/verbena.deb"
inside dpkg -i /tmp/verbena.deb
ok "it installs" [ "$status" = 0 ]
inside dpkg -V verbena
ok "its files are as packed" [ ! -s "$work/out" ]
# shellcheck disable=SC2016 # the shell inside expands
inside sh -c 'for file in /usr/bin/verbena-* /usr/lib/libverbena.so.0 \
	/usr/lib/verbena/*.so; do ldd "$file"; done'
ok "all libraries are there" bash -c "! grep 'not found' '$work/out'"
inside ldconfig -p
ok "the loader knows the library" has 'libverbena.so.0 .* /(usr/)?lib/'
for provider in shm ucx; do
	inside verbena-run -n 2 --provider $provider --timeout 30 \
		verbena-perf allreduce -s 64K -n 20
	ok "a job runs over $provider" [ "$status" = 0 ]
	ok "its sums are right over $provider" has ' 65536 .* 0$'
done
inside verbena-info --json
ok "verbena-info runs" [ "$status" = 0 ]
inside verbena-sim -n 16
ok "verbena-sim runs" [ "$status" = 0 ]
inside verbena-train --help
ok "verbena-train runs" [ "$status" = 0 ]

# What the overlay's layer has beside dpkg's own files and the loader's cache.
left() {
	(cd "$layers/upper" && find . ! -type d ! -path './var/lib/dpkg/*' \
		! -path './var/log/*' ! -path ./etc/ld.so.cache \
		! -path ./var/cache/ldconfig/aux-cache)
}
rm "$layers/upper/tmp/verbena.deb"
inside dpkg -r verbena
ok "it is removed" [ "$status" = 0 ]
ok "without a word" bash -c "! grep -i warning '$work/out'"
# CPack's script for the loader's cache is what a removal keeps.
ok "only dpkg's records are left" [ -z "$(left)" ]
inside dpkg -P verbena
ok "it is purged" [ "$status" = 0 ]
inside dpkg -s verbena
ok "dpkg knows it no longer" [ "$status" != 0 ]
left >"$work/out"
(cd "$layers/upper" && find . -iname '*verbena*') >>"$work/out"
ok "nothing is left" [ ! -s "$work/out" ]

checks_end
