#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# That the manual is whole: a page for each program, with all options that its
# --help has and none that it has not; for each call that the library shows or
# a public header declares; and groff takes every page as it is.
#
# usage: tests/multi/man.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$root/tests/support/check.sh"

# nothing NAME TEXT: the text, which lists what is wrong, is empty
nothing() {
	if [ -z "$2" ]; then
		held "$1"
	else
		broken "$1" "$(tr '\n' ' ' <<<"$2")"
	fi
}

cmake --install "$build" --prefix "$work/prefix" >"$work/out" 2>&1 ||
	{ cat "$work/out"; exit 1; }
man=$work/prefix/share/man

# What begins with a hyphen where an option may.
options() {
	grep -oE '(^|[][ ,|("])--?[A-Za-z][A-Za-z_-]*' |
		grep -oE -- '-[-A-Za-z_]+$' | sort -u
}

shown() { # PAGE
	(cd "$man" && groff -man -Tascii -P-cbou -rLL=78n "$1")
}

for program in "$work"/prefix/bin/*; do
	name=${program##*/}
	page=$man/man1/$name.1
	ok "$name has a page" [ -f "$page" ]
	"$program" --help >"$work/help" 2>&1
	ok "$name --help" [ $? = 0 ]
	options <"$work/help" >"$work/told"
	ok "$name --help has options" [ -s "$work/told" ]
	shown "$page" >"$work/text"
	options <"$work/text" >"$work/paged"
	nothing "$name: options are on the page" \
		"$(comm -23 "$work/told" "$work/paged")"
	# Those that a paragraph begins with.
	sed -n '/^OPTIONS/,/^[A-PR-Z][A-Z ]*$/p' "$work/text" |
		grep -oE '^ {3,9}-.*' | options >"$work/listed"
	while read -r option; do
		grep -qxF -- "$option" "$work/told" ||
			"$program" "$option" --help >/dev/null 2>&1 ||
			"$program" "$option" 1 --help >/dev/null 2>&1 ||
			echo "$option"
	done <"$work/listed" >"$work/unknown"
	nothing "$name: the page's options are known" "$(cat "$work/unknown")"
done

nm -D --defined-only "$build/lib/libverbena.so" |
	sed -nE 's/.* (vbn_[a-z0-9_]+)@@VERBENA_0$/\1/p' | sort -u \
	>"$work/shown"
grep -ohE '\bvbn_[a-z0-9_]+\(' "$work"/prefix/include/verbena/*.h |
	tr -d '(' | sort -u >"$work/declared"
ok "the library shows calls" [ "$(wc -l <"$work/shown")" -gt 50 ]
for list in shown declared; do
	while read -r call; do
		[ -f "$man/man3/$call.3" ] || echo "$call"
	done <"$work/$list" >"$work/missing"
	nothing "every call $list has a page" "$(cat "$work/missing")"
done

cd "$man" || exit 1
for page in man?/*; do
	groff -man -ww -z "$page" 2>&1 || echo "$page: failed"
done >"$work/complaints"
nothing "groff takes every page" "$(cat "$work/complaints")"
for page in man3/*; do
	grep -qE '^\.so man3/' "$page" || grep -q '^\.SH NAME' "$page" ||
		echo "$page"
done >"$work/complaints"
nothing "every page has a name" "$(cat "$work/complaints")"
# An alias leads to the page of its group.
shown man3/vbn_get.3 >"$work/out" 2>"$work/err"
ok "vbn_get's page is vbn_put's" grep -q 'vbn_put, vbn_get - one-sided' \
	"$work/out"

# A call without a comment has no page: that is an error at once.
printf '/* SPDX */\n/*\n * A header.\n */\nint vbn_x(void);\n' >"$work/bare.h"
check "a call without a comment is refused" 1 'vbn_x.* has no comment' \
	python3 "$root/docs/man/headers.py" "$work/bare" 0 "$work/bare.h"

checks_end
