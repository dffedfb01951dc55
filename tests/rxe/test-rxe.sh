#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests scripts/rxe: what it hands to the guest, what it hands back, and that
# nothing is left when it ends. Takes less than a minute under emulation.

set -u
rxe=$(realpath "$(dirname "$0")/../../scripts/rxe")
tree=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 failed=0

# check NAME COMMAND [ARG...]
check() {
	local name=$1

	shift
	number=$((number + 1))
	if "$@"; then
		echo "ok $number - $name"
	else
		echo "not ok $number - $name"
		failed=$((failed + 1))
	fi
}

# run NAME COMMAND [ARG...]: keeps its streams, status and time under NAME.
run() {
	local name=$work/$1 begin=$SECONDS

	shift
	"$@" >"$name.out" 2>"$name.err"
	echo $? >"$name.status"
	echo $((SECONDS - begin)) >"$name.seconds"
}

status_is() {
	local status

	status=$(<"$work/$1.status")
	[[ $status == "$2" ]] || {
		echo "# status is $status instead of $2; standard error:"
		tail -n 30 "$work/$1.err" | sed 's/^/# /'
		return 1
	}
}

stream_is() {
	cmp "$work/$1" "$2"
}

says() {
	grep -q -e "$2" "$work/$1.err" || {
		echo "# \"$2\" is missing from:"
		sed 's/^/# /' "$work/$1.err"
		return 1
	}
}

# Succeeds if no emulator runs whose command line has the word.
no_qemu() {
	local tries=20

	while grep -l -z -s -F -x -e "$1" /proc/[0-9]*/cmdline |
		xargs -r grep -l -z -s -F -x -e qemu-system-x86_64 | grep -q .; do
		tries=$((tries - 1))
		((tries > 0)) || return 1
		sleep 0.1
	done
}

usage_errors() {
	local arguments

	for arguments in "" "--" "--cpus -- true" "--cpus 0 -- true" \
		"--memory x -- true" "--timeout" "--nonsense -- true" \
		"--kvm --steady -- true" "true" "--hosts 3 -- true" \
		"--rails 9 -- true" "--hosts 2 --ranks 1 -- true" \
		"--hosts 2 --steady -- true" "--pids x -- true"; do
		# shellcheck disable=SC2086 # words are wanted
		run usage "$rxe" $arguments
		status_is usage 2 && says usage '^rxe: ' || return
	done
}

check "usage errors end with status 2" usage_errors
run help "$rxe" --help
check "--help succeeds" status_is help 0

# Prepares the cache, which the first run may have to fill for all.
run first "$rxe" -- true
check "a command that succeeds" status_is first 0

# Two at once: arguments and environment; 8 MiB on each stream.
arguments=("" " " "a b" "'" '"' "\\" "\$HOME" "*" $'\n' $'tab\t' $'\x81\x88\xff'
	"-n" "--" ";" "it's \"so\"")
printf '%s\0' "${arguments[@]}" "$tree" $'x y\n\'z\'' rxe "" vbn-guest \
	"4: ACTIVE" >"$work/arguments"
# shellcheck disable=SC2016 # the guest expands it
(
	cd /
	export VBN_TEST=$'x y\n\'z\'' NOT_PASSED=x
	run arguments "$rxe" --out "$work/kept" -- bash -c '
		[ -w /tmp ] && echo lost >"$0/../lost"
		echo kept >"$0/file"
		printf "%s\0" "$@" "$PWD" "$VBN_TEST" "$VBN_GUEST" \
			"${NOT_PASSED-}" "$(hostname)" \
			"$(cat /sys/class/infiniband/rxe0/ports/1/state)"
		exit 3' "$work/kept" "${arguments[@]}"
) &
arguments_run=$!
head -c $((8 << 20)) /dev/urandom >"$work/big"
# shellcheck disable=SC2016 # the guest expands it
run streams "$rxe" -- sh -c 'cat "$0" & tac -s x "$0" >&2; wait' "$work/big"
wait $arguments_run
check "exit status 3" status_is arguments 3
check "arguments, environment, directory, host name, port state" \
	stream_is arguments.out "$work/arguments"
check "a directory given by --out keeps what was written" \
	grep -q kept "$work/kept/file"
check "what was written elsewhere is lost" test ! -e "$work/lost"
check "a command with much output" status_is streams 0
check "standard output is exact" stream_is streams.out "$work/big"
tac -s x "$work/big" >"$work/gib"
check "standard error is exact and apart" stream_is streams.err "$work/gib"

# One guest with two rails, the second one taken down; then two guests: names,
# both exit statuses, ssh, and a host that outlives the other's failure.
printf '%s\n' rxe0 rxe1 "4: ACTIVE" "1: DOWN" >"$work/rails"
run rails "$rxe" --rails 2 -- sh -c '
	cd /sys/class/infiniband && ls && ip link set veth2 down &&
	cat rxe*/ports/1/state'
check "two rails" status_is rails 0
check "a rail that is down" stream_is rails.out "$work/rails"
# shellcheck disable=SC2016 # the guests expand it
run hosts "$rxe" --hosts 2 --rails 2 --grace 2 -- sh -c '
	other=$((1 - VBN_GUEST_HOST))
	echo $(hostname) of $VBN_GUEST_HOSTS sees \
		$(ssh vbn-guest-$other hostname) and $(ls \
		/sys/class/infiniband)
	printf "no end"
	[ $VBN_GUEST_HOST = 1 ] || { sleep 1000; exit 0; }
	sleep 2; exit 5'
printf '%s\n' "[host 0] no end" \
	"[host 0] vbn-guest-0 of 2 sees vbn-guest-1 and rxe0 rxe1" \
	"[host 1] no end" \
	"[host 1] vbn-guest-1 of 2 sees vbn-guest-0 and rxe0 rxe1" >"$work/both"
sort "$work/hosts.out" >"$work/sorted"
check "two hosts: the status of the first that failed" status_is hosts 5
check "two hosts: names, ssh, rails, whole lines" cmp "$work/sorted" "$work/both"
check "the other is killed after the grace" says hosts \
	"guest 0 still ran 2 s after guest 1"

# Two at once: death by a signal with a process left behind; a kernel panic.
# shellcheck disable=SC2016 # the guest expands it
run signal "$rxe" -- sh -c 'sleep 1000 & kill -SEGV $$' &
signal_run=$!
run panic "$rxe" -- sh -c 'echo before; echo c >/proc/sysrq-trigger; sleep 99'
wait $signal_run
check "death by signal 11" status_is signal 139
check "a kernel panic ends the run" status_is panic 125
check "a kernel panic is shown" says panic "Kernel panic"
rm -f "$(sed -n 's/^rxe: \(.*\) ends with:$/\1/p' "$work/panic.err")"

# Two at once: the deadline; a kill of the script.
run timeout "$rxe" --memory 1111 --timeout 15 -- sleep 1000 &
timeout_run=$!
"$rxe" --memory 1112 -- sh -c 'echo begun; sleep 1000' >"$work/killed.out" \
	2>&1 &
killed_run=$!
for ((tries = 200; tries > 0; tries--)); do
	grep -q begun "$work/killed.out" && break
	sleep 0.1
done
kill -KILL $killed_run
wait $killed_run 2>/dev/null
rm -f "${VBN_RXE_CACHE:-$tree/build/rxe}/console-$killed_run.log"
check "the command had begun" grep -q begun "$work/killed.out"
check "a killed script leaves no emulator" no_qemu 1112
wait $timeout_run
check "the deadline ends with status 124" status_is timeout 124
check "the deadline is told" says timeout "deadline of 15 s"
check "the deadline is kept" test "$(<"$work/timeout.seconds")" -le 17
check "the deadline leaves no emulator" no_qemu 1111

echo "1..$number"
((failed == 0))
