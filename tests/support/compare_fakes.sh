# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# For tests of perf/compare-collectives and -rxe: programs that stand for verbena, the
# libraries it is compared with, their compilers and dpkg-query, and print
# figures made up, with two processors. The directory $work is the script's.

# figure_make PROGRAM: a fake's figure is the next word of the variable named
# after it, and the last one again when there are no more; "none": no figure,
# "fail": it fails. The turns are kept in the directory $FAKES.
figure_make() {
	cat >"$1" <<-'END'
		#!/bin/bash
		name=$1
		read -ra list <<<"${!name}"
		turn=$(cat "$FAKES/$name" 2>/dev/null || echo 0)
		echo $((turn + 1)) >"$FAKES/$name"
		[ "$turn" -lt ${#list[@]} ] || turn=$((${#list[@]} - 1))
		[ "${list[turn]}" != fail ] || exit 1
		[ "${list[turn]}" = none ] || echo "${list[turn]}"
	END
	chmod +x "$1"
}

fakes_make() {
	local bin=$work/fakes name

	mkdir -p "$bin" "$work/fake-build/bin"
	figure_make "$bin/figure"
	cat >"$bin/mpirun" <<-'END'
		#!/bin/bash
		name=OMPI
		[[ $0 == *openmpi ]] || name=MPICH
		[[ $* != *" ucx "* ]] || name=UCX
		echo "$*" >>"$FAKES/said"
		us=$(figure $name) || exit
		while [[ $1 != *allreduce && $1 != *gather ]]; do shift; done
		for bytes in "${@:2}"; do
			[ -z "$us" ] || echo "$bytes $us"
		done
	END
	cat >"$bin/compiler" <<-'END'
		#!/bin/bash
		while [ "$1" != -o ]; do shift; done
		cp "$(dirname "$0")/program" "$2"
	END
	cat >"$bin/program" <<-'END'
		#!/bin/bash
		us=$(figure GLOO) && echo "${*: -1} $us"
	END
	cat >"$work/fake-build/bin/verbena-run" <<-'END'
		#!/bin/bash
		name=VERBENA
		[[ $* != *--malloc* ]] || name=MALLOC
		[[ $* != *"--algorithm ring"* ]] || name=RING
		[[ $* != *put-bw* ]] || name=STREAMS
		echo "$*" >>"$FAKES/said"
		figure=$(figure $name) || exit
		while [ "$1" != --json ]; do shift; done
		echo "{\"results\": [{\"time_us\": $figure, \"bytes\": 1048576,
			\"verbena\": {\"avg_mb_s\": $figure}}]}" >"$2"
	END
	printf '#!/bin/sh\necho install ok installed\n' >"$bin/dpkg-query"
	printf '#!/bin/sh\necho 2\n' >"$bin/nproc"
	cp "$bin/dpkg-query" "$work/fake-build/bin/verbena-perf"
	for name in mpirun.openmpi mpirun.mpich; do
		cp "$bin/mpirun" "$bin/$name"
	done
	for name in mpicc.openmpi mpicc.mpich g++; do
		cp "$bin/compiler" "$bin/$name"
	done
	chmod +x "$bin"/* "$work/fake-build/bin"/*
}

# with_fakes [NAME=FIGURES...] COMMAND...: what is not said is 100
with_fakes() {
	rm -rf "$work/turns"
	mkdir "$work/turns"
	env PATH="$work/fakes:$PATH" FAKES="$work/turns" VERBENA=100 \
		MALLOC=100 OMPI=100 UCX=100 MPICH=100 GLOO=100 RING=100 \
		STREAMS=100 "$@"
}
