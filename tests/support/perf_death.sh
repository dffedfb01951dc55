# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# For scripts that test verbena-perf: a rank dies in the middle. The ranks run
# without a launcher, which would stop them. $program, $provider and the
# directory $work are the script's.

# death TEST ARGUMENT... : rank 1 is killed; rank 0 fails, soon, and names it
death() {
	local port secret rank pids=() code began

	port=$((20000 + RANDOM % 12000))
	secret=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	for rank in 0 1; do
		VBN_RANK=$rank VBN_SIZE=2 VBN_SECRET=$secret \
			VBN_ADDRESS=127.0.0.1:$port VBN_PROVIDER=$provider \
			"$program" "$@" -D 50 --warmup 0 \
			>"$work/out.$rank" 2>&1 &
		pids+=($!)
	done
	sleep 2
	began=$SECONDS
	kill -KILL "${pids[1]}"
	while kill -0 "${pids[0]}" && [ $((SECONDS - began)) -le 15 ]; do
		sleep 0.1
	done 2>/dev/null
	kill -KILL "${pids[0]}" 2>/dev/null
	# The shell says of each killed job that it was killed.
	{
		wait "${pids[1]}"
		wait "${pids[0]}"
		code=$?
	} 2>/dev/null
	cat "$work/out.0" >"$work/out"
	[ $code = 1 ] && grep -q 'rank 1' "$work/out"
}
