#!/bin/sh
# The whole tour, unattended, in a directory of its own: prepare, serve, run a
# job and follow it, kill the daemon in the middle of another, start it again,
# see what was cut off, stop cleanly. It ends with 0 only if all of it is so.
set -eu
exocomp=$(realpath "$1")
dir=$(mktemp -d)
export EXOCOMP_DATA_DIR="$dir/data" EXOCOMP_HOST=demo
daemon=""
cleanup() {
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ exocomp %s\n' "$*"; "$exocomp" "$@"; }
fail() { echo "demo: FAILED: $*" >&2; [ ! -f "$dir/log" ] || cat "$dir/log" >&2; exit 1; }

until_true() { # until_true WHAT COMMAND...: for ten seconds
	what=$1
	shift
	n=0
	while ! "$@" >/dev/null 2>&1; do
		n=$((n + 1))
		[ $n -lt 200 ] || fail "$what"
		sleep 0.05
	done
}
serve() {
	printf '$ exocomp serve &\n'
	"$exocomp" serve --listen none >/dev/null 2>>"$dir/log" &
	daemon=$!
	until_true "the daemon is active" sh -c "'$exocomp' status | grep -q '^daemon *active'"
}

step "1. Prepare a data directory."
show init

step "2. Serve it, run a job, and follow its log. Its exit code comes back."
serve
show run -- sh -c 'for i in 1 2 3; do echo "line $i"; done'
code=0
show run -- sh -c 'echo "this one fails" >&2; exit 3' || code=$?
[ "$code" = 3 ] || fail "the job ended with 3, and run with $code"

step "3. Kill the daemon with -9 in the middle of a job."
show run -d -- sleep 1000
until_true "the job runs" sh -c "'$exocomp' jobs show 3 | grep -q '^state *running'"
printf '$ kill -9 %s\n' "$daemon"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null || true
daemon=""

step "4. Start it again. The cut-off job is interrupted, not running, and says why."
serve
show jobs list
"$exocomp" jobs show 3 | grep -q '^state *interrupted' || fail "job 3 is not interrupted"
show jobs show 3
show status

step "5. Stop it cleanly. The lease is released: the next daemon need not wait."
printf '$ kill -TERM %s\n' "$daemon"
kill -TERM "$daemon"
code=0
wait "$daemon" || code=$?
daemon=""
[ "$code" = 0 ] || fail "the daemon ended with $code"
show lease
"$exocomp" lease | grep -q '^lease *released' || fail "the lease is not released"

step "That was all of it."
