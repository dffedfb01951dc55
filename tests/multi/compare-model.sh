#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# How perf/compare-model judges: figures made up, of two algorithms. A real run is
# a step of its own.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"
# shellcheck source=tests/support/compare_fakes.sh
. "$root/tests/support/compare_fakes.sh"

# Stand for the programs: measured is a figure of $RING or $ONESHOT; predicted
# what SIM_* and FORM_* say.
bin=$work/build/bin
mkdir -p "$bin"
cat >"$bin/verbena-run" <<'END'
#!/bin/bash
while [ $# -gt 0 ]; do
	case $1 in
	--algorithm) name=${2^^} ;;
	--json) file=$2 ;;
	esac
	shift
done
us=$("$(dirname "$0")/figure" "$name")
echo "{\"results\": [{\"time_us\": $us}]}" >"$file"
END
cat >"$bin/verbena-sim" <<'END'
#!/bin/bash
row() {
	echo "{\"algorithm\": \"$1\", \"time_us\": $2, \"model_us\": $3}"
}
echo "{\"results\": [{\"ranks\": 2, \"bytes\": 1024, \"rows\": [
	$(row ring "$SIM_RING" "$FORM_RING"),
	$(row oneshot "$SIM_ONESHOT" "$FORM_ONESHOT"),
	{\"algorithm\": \"mapped\", \"why\": \"is not there\"}]}]}"
END
printf '#!/bin/sh\n' >"$bin/verbena-perf"
figure_make "$bin/figure"
chmod +x "$bin"/*
printf 'verbena-tuning 1\nsum_gb_s 10\nallreduce 2 8 ring 0\n' >"$work/tuning"

# model NAME STATUS PATTERN [FIGURE=...] -- [OPTION...]: it ends so, says so
model() {
	local name=$1 status=$2 pattern=$3 figures=()
	shift 3
	while [ "$1" != -- ]; do
		figures+=("$1")
		shift
	done
	shift
	rm -rf "$work/turns"
	mkdir "$work/turns"
	check "$name" "$status" "$pattern" env FAKES="$work/turns" RING=10 \
		ONESHOT=20 SIM_RING=1 SIM_ONESHOT=2 FORM_RING=1 \
		FORM_ONESHOT=2 "${figures[@]}" "$root/perf/compare-model" \
		--build "$work/build" --ranks 2 --sizes 1K --rounds 3 \
		--tuning "$work/tuning" "$@"
}

model same-order 0 '^simulation: of 1 pairs that differ by 1.5: ok$' --
model formula-too 0 '^formula: of 1 pairs that differ by 1.5: ok$' --
model parameters-only 0 '^sum_gb_s 10$' --
model simulation-missed 1 '^simulation: of 1 pairs .*: 1 MISSED$' \
	SIM_RING=3 --
model simulation-listed 1 '^  simulation: ring is not before oneshot$' \
	SIM_RING=3 --
model formula-missed 1 '^formula: of 1 pairs .*: 1 MISSED$' FORM_RING=3 --
model formula-listed 1 '^  formula: ring is not before oneshot$' FORM_RING=3 --
model no-order 1 '^simulation: .* 1 MISSED$' SIM_RING=2 --
model other-order 0 '^2 ranks, 1024 bytes: 1 pairs$' RING=30 SIM_RING=9 \
	FORM_RING=9 --
model at-factor 1 ' 1 MISSED$' ONESHOT=15 SIM_RING=9 --
model below-factor 0 '^2 ranks, 1024 bytes: 0 pairs$' ONESHOT=14.9 SIM_RING=9 --
# By medians they would not differ.
model shortest 1 '^  ring +10\.00 ' RING='20 10 10 20 20' SIM_RING=9 -- \
	--rounds 5
model half-of-the-rounds 0 '^2 ranks, 1024 bytes: 0 pairs$' RING='20 10 20' \
	SIM_RING=9 --
model other-half 0 '^2 ranks, 1024 bytes: 0 pairs$' RING='10 20 20' \
	SIM_RING=9 --
model quick 0 '^simulation: .*: not judged$' SIM_RING=9 -- --quick
model no-figure 1 "no figure for 2\.1024\.ring, but 'null'" RING=null --
model no-prediction 1 'no predictions' SIM_RING=x --
model json 1 MISSED SIM_RING=9 -- --json "$work/json"
wrong=$(jq -c '[.pairs, .wrong[0].model, .wrong[0].faster, (.wrong | length),
	.figures[0].measured_us]' "$work/json")
[ "$wrong" = '[1,"simulation","ring",1,10]' ] && passed=$((passed + 1)) || {
	failed=$((failed + 1))
	echo "not ok json-figures: $wrong"
}
printf 'verbena-tuning 1\n' >"$work/empty"
model no-parameters 1 'no parameters' -- --tuning "$work/empty"
for bad in --nonsense --json --tuning --sizes; do
	model "usage $bad" 2 'usage: perf/compare-model' -- $bad
done

# wrong PATTERN OPTION...: one line, before anything is run
wrong() {
	local pattern=$1
	shift
	model "wrong $*" 2 "^compare-model: $pattern" -- "$@"
	[ "$(wc -l <"$work/out")" = 1 ] && [ ! -e "$work/turns/RING" ] ||
		broken "wrong $*, in one line" "$(cat "$work/out")"
}
number='is no number of'
wrong "--ranks: '1' $number ranks from 2 to" --ranks 1
wrong "--ranks: 'x' $number ranks" --ranks 2,x
wrong "--ranks: '999' $number ranks" --ranks 2,999
wrong "--ranks 2,: an item is empty" --ranks 2,
wrong "--ranks: 2 is there twice" --ranks 2,4,2
wrong "--sizes: '1Q' $number bytes, as 8" --sizes 1K,1Q,1M
wrong "--sizes: '8.5' $number bytes" --sizes 8.5
wrong "--sizes: '3' $number bytes, .* of at least 4" --sizes 3
wrong "--sizes: '99999999999999' $number bytes" --sizes 99999999999999
wrong "--sizes ,8: an item is empty" --sizes ,8
wrong "--sizes: 1024 is there twice" --sizes 1K,1024
wrong "--rounds: '0' is no number from 1 to" --rounds 0
wrong "--tuning: /none/such cannot be read" --tuning /none/such
wrong "--json: /none/such cannot be written" --json /none/such
wrong "--values: /proc/none cannot be made" --values /proc/none
echo kept >"$work/there"
model json-is-asked-first 2 'wrong usage|cannot' -- --json "$work/there" \
	--values /proc/none
ok json-is-kept grep -q kept "$work/there"

# A launcher, and a rank in a process group of its own, that do not end.
mkdir -p "$work/slow/bin"
cp "$bin"/* "$work/slow/bin"
cat >"$work/slow/bin/verbena-run" <<'END'
#!/bin/bash
set -m
sleep 30 &
printf '%d\n' $$ $! >"$RANKS"
wait
END

# stopped SIGNAL: in mid measurement; no process and no file is left
stopped() {
	local pid ended
	rm -rf "$work/ranks" "$work/tmp"
	mkdir "$work/tmp"
	# What a shell puts in the background has INT ignored.
	env --default-signal=INT TMPDIR="$work/tmp" RANKS="$work/ranks" \
		SIM_RING=1 SIM_ONESHOT=2 FORM_RING=1 FORM_ONESHOT=2 \
		"$root/perf/compare-model" --build "$work/slow" --ranks 2 \
		--sizes 1K --tuning "$work/tuning" >"$work/out" 2>&1 &
	pid=$!
	for _ in {1..100}; do
		[ ! -s "$work/ranks" ] || break
		sleep 0.1
	done
	kill "-$1" $pid
	wait $pid
	ended=$?
	ok "stopped-$1-status" [ $ended = $((128 + $(kill -l "$1"))) ]
	ok "stopped-$1-ran" [ "$(wc -l <"$work/ranks")" = 2 ]
	ok "stopped-$1-ranks" [ -z \
		"$(ps -o pid= -p "$(paste -sd , "$work/ranks")")" ]
	ok "stopped-$1-files" [ -z "$(ls "$work/tmp")" ]
}
stopped TERM
stopped INT
stopped HUP

checks_end
