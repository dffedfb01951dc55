#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-sim as its users run it: every operation with its results checked,
# 16,384 ranks, table, JSON, CSV and diagrams, what is refused, and that the
# documentation has what it prints.
#
# usage: tests/multi/sim.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
sim=$build/bin/verbena-sim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!VBN_@}"
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

run() { # ARGUMENT...
	timeout 120 "$sim" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

json() { # JQ-FILTER that must be true
	jq -e "$1" "$work/out" >/dev/null
}

quiet() {
	[ ! -s "$work/err" ]
}

run
ok "no arguments: it runs" [ $status = 0 ]
ok "no arguments: nothing on standard error" quiet
ok "no arguments: one is the best" [ "$(grep -c '^\* ' "$work/out")" = 1 ]
ok "no arguments: it is the first" \
	grep -q '^\* ' <(sed -n '/^  algorithm/{n;p}' "$work/out")
for algorithm in central sharded decentralized ring tree double-tree halving \
	doubling; do
	ok "no arguments: $algorithm" grep -q "^[ *] $algorithm .* simulation" \
		"$work/out"
done

# Every algorithm of every operation, with data.
for operation in allreduce reduce broadcast reduce-scatter allgather gather \
	scatter alltoall barrier; do
	size='-s 3000'
	[ $operation != barrier ] || size=
	# shellcheck disable=SC2086 # words are wanted
	run $operation -n 8 $size --ranks-per-host 8 --check --json -
	ok "$operation: it runs" [ $status = 0 ]
	ok "$operation: all are right" json \
		'all(.results[].rows[]; .right == true)'
	run --list $operation
	count=$(grep -c "^$operation " "$work/out")
	# shellcheck disable=SC2086 # words are wanted
	run $operation -n 8 $size --ranks-per-host 8 --json -
	ok "$operation: all $count that are listed" json \
		"(.results[0].rows | length) == $count"
done
for type in int8 uint64 half bfloat16 double; do
	run -n 6 -s 3000 --type $type --op max --ranks-per-host 3 --check \
		--json -
	ok "$type: all are right" json 'all(.results[].rows[];
		.right == true or .algorithm == "mapped")'
done

# What the literature says of n ranks and m bytes.
run -n 8 -s 64K -a ring,central,decentralized --json -
ok "ring: 2 m (n - 1) / n" json 'any(.results[0].rows[];
	.algorithm == "ring" and .sent_bytes == 114688 and .peers == 2 and
	.fan_in == 1)'
ok "central: m (n - 1) at one rank" json 'any(.results[0].rows[];
	.algorithm == "central" and .received_bytes == 458752 and
	.fan_in == 7)'
run -n 2 -s 1M -a doubling --latency 7 --bandwidth 1e6 --reduce-speed 1e6 \
	--json -
ok "two ranks: one latency" json '.results[0].rows[0].time_us
	| . > 7 and . < 9.5'

# The network.
time_of() { # ARGUMENT...: microseconds of the first row
	run "$@" --json -
	jq '.results[0].rows[0].time_us' "$work/out"
}
more() { # A B: A is more than 1.5 B
	jq -ne "$1 > 1.5 * $2" >/dev/null
}
flat=$(time_of -n 32 -s 4M -a doubling)
tree=$(time_of -n 32 -s 4M -a doubling --topology tree --hosts-per-leaf 8 \
	--oversubscription 8)
slow=$(time_of -n 32 -s 4M -a doubling --stragglers 1)
ok "oversubscription costs time" more "$tree" "$flat"
ok "a straggler costs time" more "$slow" "$flat"
hosts="-n 32 -s 1M --ranks-per-host 8 --shared-nic"
# shellcheck disable=SC2086 # words are wanted
ok "with one interface a host, hierarchical beats halving" more \
	"$(time_of $hosts -a halving)" "$(time_of $hosts -a hierarchical)"

# More than can be simulated.
run -n 16384 -s 1M -a ring,tree,mapped --budget 300K
ok "16384 ranks: it runs" [ $status = 0 ]
ok "16384 ranks: formula" [ "$(grep -c ' formula$' "$work/out")" = 2 ]
ok "16384 ranks: why not" grep -q 'mapped .*--ranks-per-host 16384' "$work/out"
run barrier -n 16384
ok "16384 ranks: simulation" grep -q ' simulation$' "$work/out"

# Outputs.
run -n 4,8 -s 64 --csv
ok "CSV: a line each" [ "$(wc -l <"$work/out")" = 25 ]
ok "CSV: as many fields" [ "$(sed 's/"[^"]*"//' "$work/out" |
	awk -F, '{print NF}' | sort -u)" = 15 ]
run -n 4 -s 64 --csv="$work/a.csv" --json "$work/a.json" --predict
ok "files and the table" grep -q '^the library chooses ' "$work/out"
ok "the CSV file" grep -q '^allreduce,4,64,ring,simulation,' "$work/a.csv"
ok "the JSON file" jq -e '.results[0].ranks == 4' "$work/a.json"
if command -v gnuplot >/dev/null; then
	run -n 8 -s 8..64K --plot "$work/a.svg"
	ok "diagram over sizes" grep -q '<svg' "$work/a.svg"
	ok "diagram: a line each" grep -q 'double-tree' "$work/a.svg"
	run -n 2..16 -s 8 --plot "$work/b.svg"
	ok "diagram over ranks" grep -q '>ranks<' "$work/b.svg"
	run --plot "$work/none/a.svg" -n 4,8
	ok "diagram: no such directory" [ $status = 1 ]
fi
timeout 20 env PATH=/nowhere "$sim" -n 4,8 -s 8 --plot "$work/c.svg" \
	>"$work/out" 2>"$work/err"
status=$?
ok "no gnuplot: refused" [ $status = 1 ]
ok "no gnuplot: said" grep -q 'gnuplot-nox' "$work/err"

# What is refused: status 2, and the option is named.
while read -r option arguments; do
	# shellcheck disable=SC2086 # words are wanted
	run $arguments
	ok "refused: $arguments" [ $status = 2 ]
	ok "refused: $arguments: said" grep -qF -- "$option" "$work/err"
	ok "refused: $arguments: one line" [ "$(wc -l <"$work/err")" = 1 ]
done <<'END'
-n -n 1
-n -n 16385
-s -s 2
-a -a nonsense
-a -a bruck
--type --type word
--op --op and
--latency --latency 1us
--topology --topology ring
--window --window 0
--nonsense --nonsense
word word
END
run -n 4 -s 64 --json /dev/full
ok "a full disk is noticed" [ $status = 1 ]
timeout 20 bash -c "'$sim' >/dev/full" 2>"$work/err"
ok "a full disk: status" [ $? = 1 ]
ok "a full disk: the reason" grep -q 'cannot write standard output' \
	"$work/err"

# Documentation.
run -n 4 -s 64 --check --topology tree --json -
jq -r '[paths | map(select(type == "string"))] | flatten | unique | .[]' \
	"$work/out" >"$work/keys"
missing=$(grep -vxFf <(grep -oE '`[a-z_0-9.]+(\[\])?' "$root/docs/sim.md" |
	tr -d '`[]' | sed 's/.*\.//') "$work/keys")
ok "all keys are documented" [ -z "$missing" ]
page=$root/docs/man/verbena-sim.1
if command -v groff >/dev/null; then
	groff -man -ww -z "$page" >"$work/out" 2>"$work/err"
	ok "groff takes the manual page" quiet
fi
run --help
ok "help" [ $status = 0 ]
ok "help: lines fit" [ -z "$(grep -E '^.{81}' "$work/out")" ]
while read -r option; do
	ok "manual page: $option" grep -qF -- "${option//-/\\-}" "$page"
done < <(grep -oE -- '--[a-z][a-z-]+' "$work/out" | sort -u)

checks_end
