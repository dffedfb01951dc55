#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the tree promises about its own shape: formatting, and who may include
# what.
set -u
cd "$(dirname "$0")/.." || exit 2
bad=0
complain() {
	echo "not ok: $1"
	bad=1
}

files=$(git ls-files '*.c' '*.h' 2>/dev/null || find . -name '*.[ch]' \
	-not -path './build*')
# shellcheck disable=SC2086
clang-format-14 --dry-run -Werror $files >/tmp/style.$$ 2>&1 ||
	{ head -20 /tmp/style.$$; complain "clang-format (run it over the files above)"; }
rm -f /tmp/style.$$

# shellcheck disable=SC2086
got=$(grep -lE '^#include <infiniband/' $files |
	grep -vE '^(transport/providers/verbs/|perf/raw[a-z_]*\.[ch]|tests/(support|rxe)/)')
[ -z "$got" ] || complain "infiniband/ outside the verbs provider: $got"
# shellcheck disable=SC2086
got=$(grep -lE '^#include <rdma/' $files |
	grep -vE '^(transport/providers/verbs/cm[a-z_]*\.[ch]|perf/raw[a-z_]*\.[ch]|tests/(support|unit)/)')
[ -z "$got" ] || complain "rdma/ outside the verbs provider's cm*: $got"
# shellcheck disable=SC2086
got=$(grep -lE '^#include <(ucp|uct|ucs)/' $files |
	grep -vE '^transport/providers/ucx/')
[ -z "$got" ] || complain "UCX outside its provider: $got"
# shellcheck disable=SC2086
got=$(grep -lE '^#include <pmix' $files | grep -vE '^transport/pmix/')
[ -z "$got" ] || complain "PMIx outside its module: $got"
got=$(grep -lE '#include ["<](provider|core|control)\.h' \
	$(git ls-files 'collectives/*.[ch]' 'trainer/*.[ch]' 'perf/*.[ch]'))
[ -z "$got" ] || complain "the transport's inside used from above: $got"
got=$(grep -lE '#include <verbena/(collectives|ps)' $(git ls-files 'transport/*.[ch]'))
[ -z "$got" ] || complain "the transport includes what is above it: $got"
got=$(grep -nE '\b(exit|_exit|abort)\(' $(git ls-files 'transport/*.c' \
	'collectives/*.c' | grep -v transport/run/) | grep -v '^[^:]*:[0-9]*: \*')
[ -z "$got" ] || complain "a library that ends the process: $got"
got=$(comm -23 <(git grep -ohE '"VBN_[A-Z_]+"' -- transport collectives \
	trainer perf ':!transport/env.c' | sort -u) \
	<(grep -oE '"VBN_[A-Z_]+"' transport/env_table.c | sort -u))
[ -z "$got" ] || complain "variables that env_table.c does not have: $got"
for f in $files; do
	head -1 "$f" | grep -q 'SPDX-License-Identifier: BSD-3-Clause' ||
		complain "$f has no SPDX line"
done
[ $bad = 0 ] && echo "ok"
exit $bad
