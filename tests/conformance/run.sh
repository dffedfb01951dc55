#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The conformance suite over one provider: all cases of two ranks in one job,
# each case with a death or a leave in a job of its own. Sums up, and exits
# with 0 only if every listed case has passed or been skipped.
#
# usage: tests/conformance/run.sh PROVIDER [--build DIR] [--max-size BYTES]
#        [--filter NAME] [--timeout SECONDS] [--ranks N]
#   --ranks N   only the cases of so many ranks, 2 or 3
set -u

usage() {
	sed -n '8,10s/^# //p' "$0" >&2
	exit 2
}

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || usage
provider=$1
shift
build=$root/build
timeout=900
only=
args=()
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case $1 in
	--build) build=$2 ;;
	--max-size | --filter) args+=("$1" "$2") ;;
	--timeout) timeout=$2 ;;
	--ranks) only=$2 ;;
	*) usage ;;
	esac
	shift 2
done

suite=$build/bin/conformance
launcher=$build/bin/verbena-run
for program in "$suite" "$launcher"; do
	if [ ! -x "$program" ]; then
		echo "run.sh: no $program; build first" >&2
		exit 2
	fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/all"

# run RANKS SECONDS ARGUMENT... : its result lines are added to $work/all.
run() {
	local ranks=$1 seconds=$2 status
	shift 2
	timeout -k 10 $((seconds + 20)) \
		"$launcher" -n "$ranks" --provider "$provider" \
		--timeout "$seconds" "$suite" "$@" >"$work/out" 2>&1
	status=$?
	# The launcher's prefix is the rank.
	sed -E 's/^\[?[0-9]+\]?[:|]? *//' "$work/out" >"$work/plain"
	grep -E '^(ok|not ok|skip) ' "$work/plain" >>"$work/all"
	grep -vE '^(ok|skip) |^conformance: [0-9]' "$work/plain"
	return $status
}

expect() {
	[ -z "$only" ] || [ "$only" = "$1" ] || return
	"$suite" --list "${args[@]}" | awk -v n="$1" '$1 == n { print $2 }'
}

pairs=$(expect 2)
deaths=$(expect 3)
trouble=0
if [ -n "$pairs" ]; then
	run 2 "$timeout" "${args[@]}"
	status=$?
	if [ $status -gt 1 ]; then
		echo "run.sh: the job of two ranks ended with status $status"
		trouble=1
	fi
fi
for name in $deaths; do
	run 3 120 --filter "$name"
	status=$?
	if [ $status -ne 0 ] && ! grep -q "^not ok $name" "$work/all"; then
		echo "not ok $name # the job ended with status $status" |
			tee -a "$work/all"
	fi
done

# What was to run and gave no line has failed, too.
for name in $pairs $deaths; do
	grep -qE "^(ok|not ok|skip) $name( |\$)" "$work/all" ||
		echo "not ok $name # no result" | tee -a "$work/all"
done

passed=$(grep -c '^ok ' "$work/all")
failed=$(grep '^not ok ' "$work/all" | awk '{ print $3 }' | sort -u | wc -l)
skipped=$(grep -c '^skip ' "$work/all")
grep '^skip ' "$work/all"
echo "conformance-$provider: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $trouble -eq 0 ] &&
	[ $((passed + skipped)) -gt 0 ]
