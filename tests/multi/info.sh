#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# verbena-info as its users run it: exit statuses, that text and JSON list the
# same problems, what it says under tight limits and of wrong settings, and
# that the documentation has what it prints.
#
# usage: tests/multi/info.sh [--build DIR]
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
[ "${1:-}" != --build ] || build=$2
info=$build/bin/verbena-info
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!VBN_@}"
. "$root/tests/support/check.sh"

run() { # COMMAND...
	timeout 30 "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

says() { # WORDS, across line ends
	tr -s '\n ' ' ' <"$work/out" | grep -qF -- "$1"
}

json() { # JQ-FILTER that must be true
	jq -e "$1" "$work/out" >/dev/null
}

quiet() {
	[ ! -s "$work/err" ]
}

run "$info"
ok "a provider can be used" [ $status = 0 ]
ok "nothing on standard error" quiet
for part in Providers 'RDMA devices' Interfaces Limits Versions Environment \
	Doctor; do
	ok "part $part" grep -q "^$part" "$work/out"
done
sed -n '/^Doctor/,$p' "$work/out" | grep -o '\[[a-z0-9-]*\]$' | tr -d '[]' \
	>"$work/text"
run "$info" --json
ok "JSON" json '.usable and (.problems | type == "array")'
ok "shm is usable" json 'any(.providers[]; .name == "shm" and .usable)'
jq -r '.problems[].id' "$work/out" >"$work/json"
ok "text and JSON list the same problems" cmp "$work/text" "$work/json"
ok "loopback is marked" json \
	'any(.rendezvous.interfaces[]; .name == "lo" and .loopback)'

# Keys and problems are documented.
jq -r '[paths | map(select(type == "string"))] | flatten | unique | .[]' \
	"$work/out" >"$work/keys"
missing=$(grep -vxFf <(grep -oE '`[a-z_0-9.]+(\[\])?' "$root/docs/info.md" |
	tr -d '`[]' | sed 's/.*\.//') "$work/keys")
ok "all keys are documented" [ -z "$missing" ]
missing=$(grep -ohE '"[a-z0-9]+(-[a-z0-9]+)+"' \
	"$root"/transport/info/doctor*.c | tr -d '"' | sort -u |
	grep -vxFf <(grep -oE '`[a-z0-9-]+`' "$root/docs/info.md" | tr -d '`'))
ok "all problems are documented" [ -z "$missing" ]

run env VBN_IB_SL=99 VBN_TIMOUT_MS=1 VBN_SECRET=hush "$info"
ok "no provider can be used" [ $status = 1 ]
ok "bad variable" says 'VBN_IB_SL is "99"'
ok "unknown variable" says 'is it to be VBN_TIMEOUT_MS'
ok "the secret is not shown" bash -c "! grep -q hush '$work/out'"
run env VBN_SOCKET_IFNAME=none9 "$info" --json
ok "no such interface" json 'any(.problems[]; .id == "socket-ifname")'
run env UCX_RC_RETRY_COUNT=7 VBN_PROVIDER=verbs "$info" --json
ok "retries without end" json 'any(.problems[]; .id == "retry-without-end")'

run env VBN_SECRET_FILE=$'/x\xff' "$info" --json
ok "JSON is UTF-8" iconv -f UTF-8 -t UTF-8 -o /dev/null "$work/out"
ok "JSON: what is not" json '.environment[0].value == "/x?"'

run bash -c "ulimit -n 64 && exec '$info' --json"
ok "few files: it runs" [ $status = 0 ]
ok "few files: said" json \
	'any(.problems[]; .id == "open-files-low" and .severity == "error")'
if [ "$(id -u)" = 0 ]; then
	run bash -c "ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock \
		--inh-caps=-ipc_lock '$info' --json"
	ok "little locked memory: it runs" [ $status = 0 ]
	ok "little locked memory: said" json '.limits.memlock.limit == 65536
		and any(.problems[]; .id == "memlock-low")'
	# UCX finds nothing to open a context with; no job would show it.
	# shellcheck disable=SC2016 # the namespace's shell expands
	run env UCX_TLS=posix unshare -m sh -ec '
		mount -t tmpfs -o size=64k none /dev/shm
		exec "$1" --json' sh "$info"
	ok "/dev/shm of 64 KiB: it runs" [ $status = 0 ]
	ok "/dev/shm of 64 KiB: UCX is unusable" json 'any(.providers[];
		.name == "ucx" and (.usable | not) and
		(.why | test("^ucx: no worker")))'
	ok "/dev/shm of 64 KiB: a problem" json \
		'any(.problems[]; .id == "ucx-unusable")'
	run unshare -n "$info" --json
	ok "no network: it runs" [ $status = 0 ]
	ok "no network: said" json '[.problems[].id] | contains(
		["loopback-down", "no-interface"])'
fi

run "$info" --env
ok "all variables" [ "$(grep -c '^  VBN_' "$work/out")" -ge 20 ]
run "$info" --help
ok "help" [ $status = 0 ]
for arguments in --nonsense word "--json --env"; do
	# shellcheck disable=SC2086 # words are wanted
	run "$info" $arguments
	ok "bad arguments: $arguments" [ $status = 2 ]
done
run bash -c "'$info' >/dev/full"
ok "a full disk is noticed" [ $status = 1 ]
ok "a full disk: the reason" grep -q 'standard output: No space left' "$work/err"

page=$root/docs/man/verbena-info.1
if command -v groff >/dev/null; then
	groff -man -ww -z "$page" >"$work/out" 2>"$work/err"
	ok "groff takes the manual page" quiet
fi
for option in --json --env --help; do
	ok "manual page: $option" grep -qF -- "${option//-/\\-}" "$page"
done

checks_end
