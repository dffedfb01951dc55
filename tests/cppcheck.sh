#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: tests/cppcheck.sh BUILD_DIRECTORY
set -eu
cd "$(dirname "$0")/.."
jq '[.[] | select(.file | test("\\.c$"))] | unique_by(.file)' \
	"$1/compile_commands.json" >"$1/cppcheck.json"
cppcheck --project="$1/cppcheck.json" -j 2 --quiet --error-exitcode=1 \
	--enable=warning,performance,portability --inline-suppr \
	--suppressions-list=tests/cppcheck.suppress --std=c11
