#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Forks and helpers started in a running job, over a provider.
#
# usage: tests/multi/fork.sh PROVIDER [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
provider=$1
build=$root/build
[ "${2:-}" != --build ] || build=$3
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$build/bin/verbena-run" -n 2 --provider "$provider" --timeout 120 \
	"$build/bin/fork" >"$log" 2>&1
status=$?
passed=$(grep -c '^\[[01]\] ok ' "$log")
failed=$(grep -c '^\[[01]\] not ok ' "$log")
[ "$status" = 0 ] || [ "$failed" -gt 0 ] || failed=1
if [ "$status" != 0 ]; then
	echo "not ok fork over $provider: status $status"
	sed 's/^/    /' "$log"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" = 8 ]
