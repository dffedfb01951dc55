#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs a build tree into a scratch prefix, compiles docs/allreduce.c
# against it as users would, with pkg-config alone and with find_package(), and
# runs it under the installed launcher. The prefix is moved after the
# installation: nothing may point back to where it was, nor to the build tree.
#
# usage: tests/multi/install.sh [BUILD_DIR]
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || {
	cat "$work/log" >&2
	fail "cmake --install failed"
}
mv "$work/first" "$work/prefix"

# Exactly the headers of the public interface.
find "$work/prefix/include" -type f | sed "s|$work/prefix/||" | sort \
	>"$work/headers"
for header in job transport collectives; do
	grep -qx "include/verbena/$header.h" "$work/headers" ||
		fail "verbena/$header.h is not installed"
done
if grep -vE '^include/verbena/(job|transport|collectives|ps)\.h$' \
	"$work/headers"; then
	fail "an internal header is installed"
fi

pc=$(find "$work/prefix" -name verbena.pc)
[ -n "$pc" ] || fail "no verbena.pc"
export PKG_CONFIG_PATH=${pc%/*}
flags=$(pkg-config --cflags --libs verbena)
libdir=$(pkg-config --variable=libdir verbena)
case $flags in
*"$build"* | *"$root"* | *"$work/first"*) fail "verbena.pc leaks: $flags" ;;
esac

# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror "$root/docs/allreduce.c" $flags \
	-Wl,-rpath,"$libdir" -o "$work/allreduce"
ldd "$work/allreduce" | grep libverbena | grep -q "$work/prefix" ||
	fail "the program does not use the installed library"

cat >"$work/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(verbena 0.1 REQUIRED)
add_executable(by-cmake $root/docs/allreduce.c)
target_link_libraries(by-cmake PRIVATE verbena::verbena)
EOF
{ cmake -S "$work" -B "$work/user" -DCMAKE_PREFIX_PATH="$work/prefix" &&
	cmake --build "$work/user"; } >"$work/log" 2>&1 || {
	cat "$work/log" >&2
	fail "find_package(verbena) does not do"
}
ldd "$work/user/by-cmake" | grep libverbena | grep -q "$work/prefix" ||
	fail "find_package(verbena) finds another library"
if grep -rlF -e "$build" -e "$root" -e "$work/first" "$work/prefix" \
	--include='*.cmake' --include='*.pc'; then
	fail "an installed file leaks where it was made"
fi

for program in "$work/allreduce" "$work/user/by-cmake"; do
	status=0
	timeout 60 "$work/prefix/bin/verbena-run" -n 2 "$program" \
		>"$work/out" 2>&1 || status=$?
	cat "$work/out"
	[ $status -eq 0 ] || fail "the program ended with status $status"
	# 7 + 8: the sum over both ranks.
	for rank in 0 1; do
		grep -q "rank $rank of 2: data\[7\] = 15\$" "$work/out" ||
			fail "rank $rank gave no result or a wrong one"
	done
done
for page in 1/verbena-run 3/vbn_put 3/vbn_allreduce; do
	[ -f "$work/prefix/share/man/man$page.${page%%/*}" ] ||
		fail "the manual page $page is not installed"
done
[ -f "$work/prefix/share/doc/verbena/copyright" ] ||
	fail "the licences are not installed"
"$work/prefix/bin/verbena-info" --json |
	jq -e 'all(.providers[] | select(.name != "verbs"); .usable)' >/dev/null ||
	fail "the installed verbena-info finds shm or ucx unusable"
for program in verbena-perf verbena-sim verbena-train; do
	"$work/prefix/bin/$program" --help >/dev/null ||
		fail "the installed $program does not run"
done
echo "install: ok"
