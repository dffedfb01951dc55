#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In the guest: five steps over verbs have the losses of five steps over shared
# memory, to 1e-4.
#
# usage: tests/rxe/train.sh [--build DIR] [--text FILE]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$root/build text=$work/text
while [ $# -ge 2 ]; do
	case $1 in
	--build) build=$2 ;;
	--text) text=$2 ;; # on every host
	esac
	shift 2
done

[ -e "$text" ] || seq 1 20000 >"$text"
for provider in shm verbs; do
	"$build/bin/verbena-run" -n 4 --provider $provider --timeout 120 \
		"$build/bin/verbena-train" --data "$text" \
		--stages 2 --replicas 2 --steps 5 --layers 2 --dim 32 \
		--heads 2 --context 16 --batch 8 --micro-batches 2 \
		--eval-sequences 4 --metrics "$work/$provider" \
		>"$work/log" 2>&1 || {
		cat "$work/log"
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	}
	grep 'bubble' "$work/log"
done
grep -q 'on verbs' "$work/log" || exit 1
paste -d' ' <(sed -E 's/.*"loss":([0-9.e+-]+).*/\1/' "$work/shm") \
	<(sed -E 's/.*"loss":([0-9.e+-]+).*/\1/' "$work/verbs") |
	awk '{ d = $1 - $2; if (d < 0) d = -d; if (d / $1 > w) w = d / $1; n++ }
		END { ok = n == 5 && w <= 1e-4
		printf "%d losses, worst relative difference %.2g\n", n, w
		printf "%d passed, %d failed, 0 skipped\n", ok, !ok; exit !ok }'
