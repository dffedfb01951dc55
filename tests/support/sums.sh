# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# To compare what verbena-perf prints under different launchers.

# sums FILE: the lines of an allreduce without the times.
sums() {
	sed -nE 's/^(\[0\] )? +([0-9]+ +[0-9]+ +float +sum) .* ([0-9]+)$/\2 \3/p' "$1"
}
