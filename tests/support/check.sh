# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# How shell tests check and count. The directory $work is the script's. A script
# ends by checks_end.
passed=0 failed=0 skipped=0

# held NAME, broken NAME WORDS: counts one, and says so
held() {
	passed=$((passed + 1))
	echo "ok $1"
}

broken() {
	failed=$((failed + 1))
	echo "not ok $1: $2"
}

# skip NAME WHY
skip() {
	skipped=$((skipped + 1))
	echo "ok $1 # skip: $2"
}

# ok NAME COMMAND...: it succeeds; else what the script's last run left in
# $work/out and $work/err is printed
ok() {
	local name=$1 stream
	shift
	if "$@"; then
		held "$name"
	else
		broken "$name" "$*"
		for stream in out err; do
			[ ! -f "$work/$stream" ] ||
				sed "s/^/    $stream: /" "$work/$stream"
		done
	fi
}

# check NAME STATUS PATTERN COMMAND...: it ends so, and prints so
check() {
	local name=$1 status=$2 pattern=$3 got
	shift 3
	"$@" >"$work/out" 2>&1
	got=$?
	if [ "$got" = "$status" ] && grep -qE -e "$pattern" "$work/out"; then
		held "$name"
	else
		broken "$name" "status $got, and:"
		cat "$work/out"
	fi
}

# checks_end: the counts; true if none failed and one passed
checks_end() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
