#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Pools on 2 MiB pages between two ranks of this machine: reserves some for
# the time of the test, which takes root. Skipped, saying why, when they are
# not to be had.
#
# usage: tests/multi/huge.sh PROVIDER [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '8s/^# //p' "$0" >&2; exit 2; }
pages=/proc/sys/vm/nr_hugepages
before=$(cat $pages 2>/dev/null || echo 0)
# The pools of whatever else runs take some, too.
if (echo $((before + 64)) >$pages) 2>/dev/null; then
	trap 'echo "$before" >$pages' EXIT
fi
"$root/tests/conformance/run.sh" "$@" --filter memory/huge-pages
