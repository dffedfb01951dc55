#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The start of a job of 1,000 ranks (start_ranks.c) takes under 10 s.
#
# usage: tests/multi/start.sh [--build DIR] [RANKS]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
if [ "${1:-}" = --build ]; then
	build=$2
	shift 2
fi
ranks=${1:-1000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

if [ "$(ulimit -Hn)" != unlimited ] && [ "$(ulimit -Hn)" -lt $((2 * ranks)) ]
then
	skip "$ranks ranks" "at most $(ulimit -Hn) open files"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
timeout 60 "$build/bin/start_ranks" "$ranks" >"$work/out" 2>&1
status=$?
cat "$work/out"
ok "$ranks ranks do it all" [ $status = 0 ]
took=$(sed -n 's/^fenced *\([0-9]*\) ms.*/\1/p' "$work/out")
ok "in under 10 s (${took:-no} ms)" [ "${took:-99999}" -lt 10000 ]
checks_end
