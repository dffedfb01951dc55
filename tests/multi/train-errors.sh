#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What verbena-train says to bad input: one line that names what is wrong, a
# non-zero exit, at once.
#
# usage: tests/multi/train-errors.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
train=$build/bin/verbena-train
run=$build/bin/verbena-run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

# refuses NAME PATTERN COMMAND... : non-zero, a line with PATTERN, within 30 s
refuses() {
	local name=$1 pattern=$2 status
	shift 2
	timeout 30 "$@" >"$work/out" 2>&1
	status=$?
	if [ $status != 0 ] && [ $status != 124 ] && [ $status -lt 128 ] &&
		grep -qE "$pattern" "$work/out"; then
		held "$name # $(grep -E -m1 "$pattern" "$work/out")"
	else
		broken "$name" "status $status"
		head -5 "$work/out"
	fi
}

seq 1 20000 >"$work/text"
text=(--data "$work/text")
echo short >"$work/short"

refuses no-data 'name the text' "$train"
refuses missing-file 'No such file' "$train" --data "$work/none"
refuses directory 'not a regular file' "$train" --data "$work"
refuses small-file 'too small' "$train" --data "$work/short"
refuses unknown-flag 'unrecognized option' "$train" "${text[@]}" --fast
refuses argument "'extra' is not an option" "$train" "${text[@]}" extra
refuses heads '3 heads do not divide' "$train" "${text[@]}" --heads 3
refuses stages '4 layers cannot be cut into 5 stages' "$train" "${text[@]}" \
	--stages 5
refuses no-stages '\-\-stages is a whole number' "$train" "${text[@]}" \
	--stages 0
refuses steps '\-\-steps is a whole number' "$train" "${text[@]}" --steps 1x
refuses rate '\-\-lr is a number above 0' "$train" "${text[@]}" --lr -1
refuses batch 'raise --batch to 8' "$train" "${text[@]}" --batch 7 \
	--replicas 2
refuses schedule 'gpipe or 1f1b' "$train" "${text[@]}" --schedule zb
refuses sync 'ring or tree' "$train" "${text[@]}" --sync star
refuses optimizer 'adamw or sgd' "$train" "${text[@]}" --optimizer lion
refuses ranks 'verbena-run -n 2' "$run" -n 3 "$train" "${text[@]}" --stages 2
refuses metrics '\-\-metrics .*No such' "$train" "${text[@]}" \
	--metrics "$work/none/m"
refuses no-secret 'secret' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
	MASTER_PORT=29511 "$train" "${text[@]}" --stages 2
refuses rank-missing 'rank 1 of 2 has not joined' env RANK=0 WORLD_SIZE=2 \
	MASTER_ADDR=127.0.0.1 MASTER_PORT=29512 VBN_SECRET=a \
	VBN_TIMEOUT_MS=2000 "$train" "${text[@]}" --stages 2
refuses store-missing '127.0.0.1.* 29513' env RANK=1 WORLD_SIZE=2 \
	MASTER_ADDR=127.0.0.1 MASTER_PORT=29513 VBN_SECRET=a \
	VBN_TIMEOUT_MS=2000 "$train" "${text[@]}" --stages 2
refuses bad-rank 'RANK' env RANK=two WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
	MASTER_PORT=29514 VBN_SECRET=a "$train" "${text[@]}" --stages 2
if [ ! -e /sys/class/infiniband ] || [ -z "$(ls /sys/class/infiniband)" ]; then
	refuses no-device 'no RDMA device' "$run" -n 2 --provider verbs \
		"$train" "${text[@]}" --stages 2
fi

# A port in use, and a secret that differs.
env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29515 \
	VBN_SECRET=right VBN_TIMEOUT_MS=8000 "$train" "${text[@]}" \
	--stages 2 >/dev/null 2>&1 &
other=$!
sleep 1
refuses port-in-use 'in use' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
	MASTER_PORT=29515 VBN_SECRET=right VBN_TIMEOUT_MS=2000 \
	"$train" "${text[@]}" --stages 2
refuses wrong-secret 'secret' env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
	MASTER_PORT=29515 VBN_SECRET=wrong VBN_TIMEOUT_MS=2000 \
	"$train" "${text[@]}" --stages 2
kill $other
wait $other 2>/dev/null

checks_end
