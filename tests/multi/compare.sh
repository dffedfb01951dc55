#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# How the scripts perf/compare-* judge: figures made up, each side of a bound; one
# that is missing or no number; a run that ended early; wrong usage. Real runs
# are steps of their own.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

# judge BOUND FIGURES AGAINST [OPTION...]: a figure a round, in words
judge() {
	local bound=$1 figures=$2 against=$3
	shift 3
	# shellcheck disable=SC2016 # the inner shell expands
	bash -c '. "$1/perf/compare-common"
		bound=$2 figures=$3 against=$4
		shift 4
		compare_arguments --rounds "${ROUNDS:-3}" "$@"
		first_device() { echo made-up; }
		compare_begin
		for v in $figures; do record a "$v"; done
		for v in $against; do record b "$v"; done
		bounds=("test,8,us,a,ours,b,theirs,$bound")
		compare_end' sh "$root" "$bound" "$figures" "$against" "$@"
}

check below 0 '1\.099 +<= 1\.10 +ok$' judge '<=,1.10' '10.99 1 99' '10 1 1'
check at 0 'ok$' judge '<=,1.10' '11 11 11' '10 10 10'
check above 1 '1\.110 +<= 1\.10 +MISSED$' judge '<=,1.10' '11.1 11.1 1' \
	'10 10 10'
check missed-count 1 '^1 of 1 bounds missed$' judge '>=,0.95' '9 9 9' \
	'10 10 10'
check more-is-better 0 'ok$' judge '>=,0.95' '9.6 9.6 1' '10 10 10'
# Medians of 30 and 20 would pass for 1.5; the rounds say 3.
check by-round 1 '30\.000.* 20\.000 us +3\.000 ' judge '<=,2' '30 60 3' \
	'10 20 30'
check not-judged 0 'not judged$' judge '<=,1' '5 5 5' '1 1 1' --quick
check round-missing 1 'at least 3 are needed' judge '<=,1' '1 1 1' '1 1'
check key-missing 1 'rounds are missing of b' judge '<=,1' '1 1 1' ''
export ROUNDS=5
check early-end 0 '^3 of 5 rounds were done' judge '<=,1' '1 1 1 9' '1 1 1'
check early-end-judged 0 '^3 round.*' judge '<=,1' '1 1 1 9' '1 1 1'
check early-end-missed 1 'MISSED$' judge '<=,1' '2 2 2' '1 1 1 9'
unset ROUNDS
# A round takes 10 s of 45: the fifth is not begun.
rounds_that_fit() {
	# shellcheck disable=SC2016 # the inner shell expands
	bash -c '. "$1/perf/compare-common"
		compare_arguments --rounds 9
		most=45 SECONDS=0
		while another_round; do SECONDS=$((SECONDS + 10)); done
		echo "$round"' sh "$root"
}
check rounds-that-fit 0 '^4$' rounds_that_fit
check no-number 1 "no figure for b, but 'none'" judge '<=,1' '1 1 1' \
	'none 1 1'
check missing-even-if-quick 1 'at least 3 are needed' judge '<=,1' '1' \
	'1 1 1' --quick
check json 0 'ok$' judge '<=,1' '1 1 1' '1 1 1' --json "$work/json"
check json-row 0 '^made-up 3 1 <= 1 ok$' jq -r '"\(.device) \(.rounds) \(
	.rows[0].ratio) \(.rows[0].bound) \(.rows[0].verdict)"' "$work/json"

# shellcheck source=tests/support/compare_fakes.sh
. "$root/tests/support/compare_fakes.sh"
fakes_make

# collectives STATUS PATTERN NAME [FIGURES=...] -- [OPTION...]
collectives() {
	local status=$1 pattern=$2 name=$3 figures=()
	shift 3
	while [ "$1" != -- ]; do
		figures+=("$1")
		shift
	done
	shift
	check "collectives-$name" "$status" "$pattern" with_fakes \
		"${figures[@]}" "$root/perf/compare-collectives" --build \
		"$work/fake-build" --ops allreduce --sizes 1M --ranks 2 \
		--rounds 3 "$@"
}
collectives 0 'ompi +0\.700 <= 0\.7 +ok$' large VERBENA=70 --
collectives 1 '0\.710 <= 0\.7 +MISSED$' large-missed VERBENA=71 --
collectives 1 '^1 of 1 bounds missed$' missed-count VERBENA=71 --
collectives 0 '1\.050 <= 1\.05 +ok$' small VERBENA=105 -- --sizes 8
collectives 1 '1\.060 <= 1\.05 +MISSED$' small-missed VERBENA=106 -- --sizes 8
collectives 0 '1\.050 <= 1\.05 +ok$' just-below VERBENA=105 -- --sizes 1023K
collectives 0 'gather +2 +1048576 .* - +ompi +1\.050 <= 1\.05 +ok$' \
	others VERBENA=105 -- --ops allgather
collectives 1 'ompi-ucx +2\.000 ' best UCX=50 --
collectives 1 'mpich +4\.000 ' best-mpich MPICH=25 --
collectives 1 'gloo +5\.000 ' best-gloo GLOO=20 --
# Against medians the ratio would be 1; the rounds say 3.
collectives 1 ' 3\.000 <=' by-round VERBENA='30 60 90' OMPI='90 20 90' \
	UCX='90 90 30' MPICH='10 90 90' --
collectives 0 '^allreduce .* 500\.00 .*ok$' malloc MALLOC=500 VERBENA=10 --
collectives 0 'not judged$' quick VERBENA=500 -- --quick
collectives 1 'rounds are missing of|at least 3 are needed' none \
	MPICH='100 none' --
collectives 1 'ompi-ucx failed: allreduce, 2 ranks' fails UCX='100 fail' --
collectives 1 "no figure for .*verbena, but 'null'" no-number VERBENA=null --
collectives 0 'ok$' json VERBENA=50 -- --json "$work/json"
check collectives-json-row 0 '^allreduce 2 1048576 50 100 0.5 <= 0.7 ok$' \
	jq -r '.rows[0] | "\(.op) \(.ranks) \(.bytes) \(.us.verbena) \(
	.us.gloo) \(.ratio) \(.bound) \(.verdict)"' "$work/json"
said() {
	grep -c -e "$1" "$work/turns/said"
}
check collectives-roomy 1 '^0$' said --oversubscribe
collectives 0 'ok$' crowded VERBENA=50 -- --ranks 3
# Open MPI in both ways, three rounds.
check collectives-crowded-said 0 '^6$' said \
	'--oversubscribe --mca mpi_yield_when_idle 1 .*-n 3 '
for bad in '--ops nonsense' '--ops ,allreduce' '--ops gather,gather' \
	'--ranks 0' '--ranks 2,x' '--sizes 1Q' '--sizes 3' '--sizes 8,1.5'; do
	# shellcheck disable=SC2086 # words are wanted
	collectives 2 "^compare-collectives: ${bad%% *}[: ]" "wrong $bad" -- $bad
done
collectives 2 'usage: perf/compare-collectives' usage -- --sizes

# A copy of the script, with a guest that is this machine and has a device.
rooted=$work/root
mkdir -p "$rooted/perf" "$rooted/scripts"
cp "$root"/perf/compare-co* "$rooted/perf"
cp "$root/scripts/deps" "$rooted/scripts"
cat >>"$rooted/perf/compare-common" <<'END'
first_device() { [ "${VBN_GUEST-}" != rxe ] || echo made-up; }
END
cat >"$rooted/scripts/rxe" <<'END'
#!/bin/bash
while [ "$1" != -- ]; do shift; done
echo guest >>"$FAKES/said"
VBN_GUEST=rxe "${@:2}"
END
chmod +x "$rooted/scripts/rxe"

# rxe STATUS PATTERN NAME [FIGURES=...] -- [OPTION...]: the ring of n ranks
# has 1 MiB in RING us, STREAMS / (2 (n - 1)) is what there is
rxe() {
	local status=$1 pattern=$2 name=$3 figures=()
	shift 3
	while [ "$1" != -- ]; do
		figures+=("$1")
		shift
	done
	shift
	check "rxe-$name" "$status" "$pattern" with_fakes "${figures[@]}" \
		"$rooted/perf/compare-collectives-rxe" --build \
		"$work/fake-build" --rounds 1 "$@"
}
fast=(STREAMS=20000 RING=100)
rxe 0 '^1 round.s. on rxe0' passes "${fast[@]}" --
check rxe-in-guest 0 '^1$' said guest
rxe 0 'n=2 .*10000\.000 .*R / 2 .*10000\.000 MB/s +1\.000  >= 0\.9 +ok$' two \
	"${fast[@]}" --
rxe 0 'n=4 .*10000\.000 .*R / 6 .* 3333\.333 MB/s +3\.000  >= 0\.9 +ok$' four \
	"${fast[@]}" --
rxe 0 'n=2 .* 0\.901 .*ok$' ring-at STREAMS=20000 RING=111 --
rxe 1 'n=2 .* 0\.893 .*MISSED$' ring-below STREAMS=20000 RING=112 --
rxe 1 'n=4 .* 0\.750 .*MISSED$' ring-four STREAMS=80000 RING=100 --
rxe 0 ' 8 .* 1\.050  <= 1\.05 +ok$' slower "${fast[@]}" VERBENA=105 --
rxe 1 '^4 of 6 bounds missed$' missed "${fast[@]}" VERBENA=106 --
rxe 1 'Open MPI failed' ompi-fails "${fast[@]}" UCX=fail --
rxe 1 'rounds are missing of 8\.ompi|at least 3 are needed' ompi-none \
	"${fast[@]}" UCX=none --
rxe 1 "no figure for streams.2, but 'null'" no-stream RING=100 STREAMS=null --
rxe 0 'not judged$' quick STREAMS=20000 VERBENA=500 -- --quick
check rxe-quick-turns 0 '^8$' said '-n [25] --json'

for script in compare-verbs compare-steady compare-shm compare-collectives \
	compare-collectives-rxe; do
	check "$script-usage" 2 "usage: perf/$script" "$root/perf/$script" \
		--nonsense
	check "$script-rounds" 2 "^$script: --rounds" "$root/perf/$script" \
		--rounds 0
	check "$script-json" 2 "^$script: --json: /none/such cannot" \
		"$root/perf/$script" --json /none/such
	check "$script-values" 2 "^$script: --values: /proc/none cannot" \
		"$root/perf/$script" --values /proc/none
	check "$script-value" 2 usage: "$root/perf/$script" --json
done

checks_end
