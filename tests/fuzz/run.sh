#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fuzzes what a rank and the store read from each other, by libFuzzer, under
# the address and undefined behaviour sanitizers. --coverage then prints how
# much of the parsers the corpus reaches (needs llvm-14).
#
# usage: tests/fuzz/run.sh [--seconds N] [--corpus DIR] [--coverage]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=30 corpus='' coverage=''
while [ $# -gt 0 ]; do
	case $1 in
	--seconds) seconds=$2 && shift ;;
	--corpus) corpus=$2 && shift ;;
	--coverage) coverage=1 ;;
	*)
		sed -n '8s/^# //p' "$0" >&2
		exit 2
		;;
	esac
	shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "$corpus" ] || corpus=$work/corpus
mkdir -p "$corpus" "$work/seeds"
# shellcheck source=tests/support/check.sh
. "$root/tests/support/check.sh"

cd "$root/transport" || exit 2
sources=(control.c control_crypt.c control_live.c control_net.c
	control_request.c control_wire.c error.c env.c env_table.c netif.c
	rendezvous.c store_kv.c store_live.c store_ranks.c store_requests.c
	store_shake.c thread.c ../tests/fuzz/fuzz{,_store,_join,_thread}.c)

# build PROGRAM FLAGS...
build() {
	local program=$1
	shift
	rm -rf "$work/o" && mkdir "$work/o"
	# shellcheck disable=SC2016 # the inner shell expands
	printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I {} sh -c '
		file=$1 dir=$2 && shift 2
		exec clang "$@" -c "$file" -o "$dir/$(basename "$file" .c).o"
		' sh {} "$work/o" -g -O1 -std=gnu11 -D_GNU_SOURCE \
		-Wall -Wextra -Werror -I. \
		-Iinclude -I../tests/fuzz "$@" &&
		clang "$@" -fsanitize=fuzzer "$work"/o/*.o -lsodium -lpthread \
			-o "$work/$program"
}

# seed NAME FORMAT: by printf; the first byte is the part (fuzz.c).
seed() {
	# shellcheck disable=SC2059 # it is a format
	printf "$2" >"$work/seeds/$1"
}
hello='\x93VBNCTL\n\x02\0\0\0\0\0\0\0'
text16=0123456789abcdef
seed stranger "\0\0${hello}$text16$text16$text16$text16"
seed other-version "\0\0\x93VBNCTL\n\x01\0\0\0\0\0\0\0"
seed http '\0\0GET / HTTP/1.1\r\n\r\n'
seed proof "\0\1$text16$text16"
seed proved "\0\2\x21\0\0\0$text16$text16"
wait='\xff\xff\xff\xff\xff\xff\xff\xff'
join1="\1\x14\1\0\0\0\3\0\0\0${wait}host"
join2="\x81\x14\2\0\0\0\3\0\0\0${wait}host"
seed join "\1$join1$join2"
seed join-twice "\1$join1\x81\x14\1\0\0\0\3\0\0\0${wait}host"
seed join-shape "\1\1\x10\1\0\0\0\4\0\0\0$wait"
id='\1\0\0\0\0\0\0\0'
seed set "\2\2\x0f${id}\3keyval\x81\x0c${id}\1\3key\x83\x0c${id}\1\3key"
seed wait "\2\x83\x0d${id}\1\3key\2\x10${id}\3keyval\4\x0c${id}\3key"
seed fence "\2\5\x09${id}\1\x85\x09${id}\1\6\x09${id}\0"
seed fence-cancel "\2\5\x09${id}\1\6\x09${id}\0"
seed cancel-key "\2\3\x0d${id}\1\3key\6\x0c${id}\3key"
seed send "\2\7\x0c\2\0\0\0\1\0\0\0text\x87\x08\0\0\0\0\2\0\0\0"
seed goodbye '\2\x08\0\x88\0'
seed cards "\2\x0a\x11${id}\1\1\0\0\0\2\0\0\0\x09\x09123456789\x89\x09123456789"
seed cards-vain "\2\x0a\x11${id}\1\1\0\0\0\2\0\0\0\x88\0"
seed cards-cancel "\2\x0a\x11${id}\1\1\0\0\0\2\0\0\0\6\x09${id}\0"
seed beat '\2\x20\0\x7f\0\x20\0'
seed giveup '\2\x0b\4late\x7f\0'
seed unsealed "\3\x21\0\0\0$text16$text16"
seed server "\4${hello}$text16$text16$text16$text16\1\0\0\0$text16$text16"
seed server-old '\4\x93VBNCTL\n\x01\0\0\0\0\0\0\0'
seed started '\5\x20\0\x40\4\x88\x13\0\0'
seed refused '\5\x41\6\4later'
seed refused-shape '\5\x41\6\1wrong'
seed replies "\6\x42\x0c${id}\0val\x42\x09\2\0\0\0\0\0\0\0\1\x42\x0e\4\0\0\0\0\0\0\0\2\2\0\0\0\1"
seed message '\6\x43\x0c\2\0\0\0\1\0\0\0text'
seed gone '\6\x44\x0a\2\0\0\0\1host:\x44\6\1\0\0\0\1x'
seed left '\6\x45\x08\2\0\0\0\0\0\0\0\x45\3\1\0\0'
seed unsealed-job "\7\x21\0\0\0$text16$text16"

ok "it builds" build fuzz -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all
[ "$failed" = 0 ] || { checks_end; exit 1; }
began=$SECONDS
ASAN_OPTIONS=detect_leaks=1 "$work/fuzz" -max_total_time="$seconds" \
	-max_len=4096 -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
	-artifact_prefix="$work/" "$corpus" "$work/seeds" >"$work/log" 2>&1
status=$?
runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$work/log")
if [ $status = 0 ] && [ "${runs:-0}" -gt 1000 ]; then
	held "$runs inputs in $((SECONDS - began)) s, no crash"
else
	broken "fuzzing" "exit $status after ${runs:-no} inputs:"
	tail -60 "$work/log"
	for file in "$work"/crash-* "$work"/leak-* "$work"/timeout-*; do
		[ ! -f "$file" ] || { echo "$file:" && od -Ax -c "$file" | head -50; }
	done
fi

if [ -n "$coverage" ]; then
	build cover -fprofile-instr-generate -fcoverage-mapping \
		-fsanitize=fuzzer-no-link
	LLVM_PROFILE_FILE=$work/raw "$work/cover" -runs=0 "$corpus" \
		"$work/seeds" >"$work/log" 2>&1
	llvm-profdata-14 merge -sparse "$work/raw" -o "$work/data"
	llvm-cov-14 report "$work/cover" -instr-profile="$work/data" \
		control_crypt.c control_join.c control_thread.c control_wire.c \
		store.c store_kv.c store_live.c store_ranks.c store_requests.c \
		store_shake.c
fi
checks_end
