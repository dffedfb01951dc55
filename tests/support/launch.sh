# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# How shell tests of verbena-run start it, and what they ask of it. The directory
# $work and the command "${run[@]}" are the script's, and so is $tag, a number
# that no other process has on its command line.

# launch ARGUMENT...: status, output and milliseconds of verbena-run, which has
# $limit s if that is set.
launch() {
	local begin
	begin=$(date +%s%3N)
	${limit:+timeout -k 2 "$limit"} "${run[@]}" "$@" \
		>"$work/out" 2>"$work/err" </dev/null
	status=$?
	took=$(($(date +%s%3N) - begin))
}

# launch_in_background ARGUMENT...: $pid. A script's background jobs ignore
# some signals, and so would the ranks.
launch_in_background() {
	: >"$work/out" # nobody is to take the last one's lines for this one's
	env --default-signal=INT,QUIT "${run[@]}" "$@" \
		>"$work/out" 2>"$work/err" </dev/null &
	pid=$!
}

# finish: status and milliseconds of what runs in the background.
finish() {
	local begin
	begin=$(date +%s%3N)
	wait "$pid"
	status=$?
	took=$(($(date +%s%3N) - begin))
}

# until_true SECONDS COMMAND...: poll.
until_true() {
	local n=$(($1 * 20))
	shift
	while [ $n -gt 0 ]; do
		"$@" && return 0
		sleep 0.05
		n=$((n - 1))
	done
	return 1
}

has() { # FILE REGULAR-EXPRESSION
	grep -Eq -- "$2" "$work/$1"
}

lines() { # FILE
	wc -l <"$work/$1"
}

has_lines() { # FILE NUMBER
	[ "$(lines "$1")" -ge "$2" ]
}

# What sleeps $tag seconds is a test's.
none_left() {
	! pgrep -f "sleep $tag" >/dev/null
}
