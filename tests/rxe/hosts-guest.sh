#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In each of two guests with two rails: the first one runs tests over both, the
# other waits for work by ssh. The suites are those of one host, started by a
# verbena-run that spreads the ranks (hosts-run).
#
# usage: hosts-guest.sh BUILD [PART...]
set -u

build=$1
shift
two=/run/verbena/two # a build directory whose verbena-run is another
work=/run/verbena/work
text=/run/verbena/text
mkdir -p $two/bin $work
ln -s "$build"/bin/* $two/bin
ln -sf "$PWD/tests/rxe/hosts-run" $two/bin/verbena-run
export VERBENA_RUN=$build/bin/verbena-run
seq 1 20000 >$text
if [ "$VBN_GUEST_HOST" != 0 ]; then
	until [ -e /run/verbena/over ]; do
		sleep 0.2
	done
	exit 0
fi
# shellcheck source=tests/support/check.sh
. tests/support/check.sh

# both COMMAND: on this host and the other
both() {
	sh -c "$1" && ssh vbn-guest-1 "$1"
}

# suite NAME COMMAND...: adds what its last line counts
suite() {
	local name=$1 status line p=0 f=0 s=0 began=$SECONDS
	shift
	"$@" >$work/out 2>&1
	status=$?
	line=$(grep -E '^([a-z-]+: )?[0-9]+ passed, [0-9]+ failed' $work/out |
		tail -1 | sed 's/^[a-z-]*: //')
	[ -z "$line" ] ||
		read -r p f s <<<"$(sed -E 's/[a-z, ]+/ /g' <<<"$line")"
	[ $status = 0 ] || [ "$f" -gt 0 ] || f=1
	[ "$p" -gt 0 ] || f=1
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	echo "== $name: $p passed, $f failed (exit $status), $((SECONDS - began)) s"
	[ "$f" = 0 ] || cat $work/out
}

# allreduce N VARIABLE=VALUE...: a ring of N ranks, its data checked
allreduce() {
	local n=$1
	shift
	env "$@" VBN_COLL_ALGO=ring $two/bin/verbena-run -n "$n" --timeout 60 \
		"$build/bin/verbena-perf" allreduce -s 262144 -n 3 --warmup 1 \
		>$work/out 2>$work/err &&
		grep -qE ' 262144 .* 0$' $work/out
}

# Every rank's host name is 127.0.1.1 to itself, as Debian's installer has it.
own_name_is_loopback() {
	# shellcheck disable=SC2016 # both expand it
	both 'cp /etc/hosts /run/verbena/hosts &&
		sed -i "/ $(hostname)\$/s/^[^ ]*/127.0.1.1/" /etc/hosts'
	ok "own name is 127.0.1.1 (A19)" allreduce 4
	both 'cp /run/verbena/hosts /etc/hosts'
}

small_dev_shm() {
	both 'mount -o remount,size=64k /dev/shm'
	ok "/dev/shm of 64 KiB (A20)" allreduce 4
	both 'mount -o remount,size=75% /dev/shm'
}

# Of two devices one is down, on the other host only.
one_device_down() {
	ssh vbn-guest-1 ip link set eth1 down
	ok "one of two ports is down there (A18)" allreduce 2 VBN_PROVIDER=verbs
	ssh vbn-guest-1 ip link set eth1 up
}

for part in "$@"; do
	case $part in
	conformance)
		suite $part tests/conformance/run.sh verbs --build $two
		;;
	conformance-quick) # all sizes of a put that is told, and a death
		suite $part tests/conformance/run.sh verbs --build $two \
			--filter put-notify
		;;
	death) # A12, A13: the dead rank is on either host
		suite $part tests/conformance/run.sh verbs --build $two \
			--filter 'death'
		;;
	collectives) # B5, B6, B7
		suite $part tests/multi/coll.sh verbs --build $two --ranks 4 \
			--cases "allreduce parts count-differs
			operation-differs others-differ missing late
			in-flight reproducible"
		;;
	collectives-quick)
		suite $part tests/multi/coll.sh verbs --build $two --ranks 4 \
			--cases "allreduce count-differs operation-differs
			missing"
		;;
	ring) ok "ring allreduce of 4" allreduce 4 VBN_PROVIDER= ;;
	train) suite $part tests/rxe/train.sh --build $two --text $text ;;
	setting)
		own_name_is_loopback
		small_dev_shm
		one_device_down
		;;
	*) broken "$part" "no such part" ;;
	esac
done
ssh vbn-guest-1 touch /run/verbena/over
checks_end
