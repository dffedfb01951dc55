#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The same training in every layout: on real text, with one seed and one
# global batch, the gradients of step 1, the parameters after 20 steps of SGD
# and the losses of 20 steps of AdamW agree between one rank and any number of
# stages and replicas, schedule, way of summing and provider.
#
# usage: tests/multi/train-equal.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

"$root/scripts/bible" "$root/build/bible.txt" || exit 1

# report NAME STATUS TEXT
report() {
	if [ "$2" = 0 ]; then
		held "$1 # $3"
	else
		broken "$1" "$3"
	fi
}

# train NAME RANKS PROGRAM OPTION... : SGD with dumps, then AdamW with metrics.
train() {
	local name=$1 ranks=$2 program=$3
	shift 3
	local common=(--data "$root/build/bible.txt" --batch 10 --context 24
		--layers 5 --dim 32 --heads 4 --seed 7 --steps 20
		--eval-sequences 0 "$@")
	"$build/bin/verbena-run" -n "$ranks" --timeout 120 \
		"$build/bin/$program" "${common[@]}" --optimizer sgd --lr 0.1 \
		--dump-gradients "$work/$name.g" \
		--dump-parameters "$work/$name.p" >"$work/$name.log" 2>&1 &&
		"$build/bin/verbena-run" -n "$ranks" --timeout 120 \
			"$build/bin/$program" "${common[@]}" --optimizer adamw \
			--lr 0.003 --metrics "$work/$name.json" \
			>>"$work/$name.log" 2>&1
}

# compare NAME REFERENCE TOLERANCE
compare() {
	local name=$1 reference=$2 tolerance=$3 text kind
	for kind in g p; do
		text=$("$build/bin/compare_tensors" "$tolerance" \
			"$work/$reference.$kind".* -- "$work/$name.$kind".*)
		report "$name/$kind" $? "$text"
	done
	text=$(paste -d' ' <(jq -r .loss "$work/$reference.json") \
		<(jq -r .loss "$work/$name.json") |
		awk -v t="$tolerance" '
			{ d = $1 - $2; if (d < 0) d = -d
			  if (d / $1 > worst) worst = d / $1; n++ }
			END { printf "%d losses, worst relative error %.2g", n,
				worst; exit !(n == 20 && worst <= t) }')
	report "$name/losses" $? "$text"
}

# layout NAME RANKS OPTION...
layout() {
	local name=$1 ranks=$2
	shift 2
	train "$name" "$ranks" "$program" "$@" || {
		tail -3 "$work/$name.log"
		report "$name" 1 "the run failed"
		return
	}
	compare "$name" "$reference" "$tolerance"
}

all() {
	reference=$1-one
	train "$reference" 1 "$program" --micro-batches 1 || {
		tail -3 "$work/$reference.log"
		report "$reference" 1 "the run failed"
		return
	}
	export VBN_PROVIDER=shm
	layout "$1-one-micro" 1 --micro-batches 3
	layout "$1-2stages-gpipe" 2 --stages 2 --micro-batches 4 --schedule gpipe
	layout "$1-2stages-1f1b" 2 --stages 2 --micro-batches 4 --schedule 1f1b
	layout "$1-4stages" 4 --stages 4 --micro-batches 3
	layout "$1-4stages-m1" 4 --stages 4 --micro-batches 1
	layout "$1-2replicas-ring" 2 --replicas 2 --micro-batches 2 --sync ring
	layout "$1-3replicas-tree" 3 --replicas 3 --micro-batches 1 --sync tree
	layout "$1-2x2-ring" 4 --stages 2 --replicas 2 --micro-batches 3
	layout "$1-2x2-tree-gpipe" 4 --stages 2 --replicas 2 --micro-batches 2 \
		--sync tree --schedule gpipe
	export VBN_PROVIDER=ucx UCX_TLS=tcp,self
	layout "$1-2x2-ucx" 4 --stages 2 --replicas 2 --micro-batches 3
	unset VBN_PROVIDER UCX_TLS
}

program=verbena-train tolerance=1e-4
all float
program=verbena-train-double tolerance=1e-9
all double
checks_end
