#!/bin/sh
# Installs what a verb of the Makefile needs beyond Go, and says so. On a machine
# where it may not install, it says what will not run.
set -eu

need() { # need PROGRAM PACKAGE WHY
	command -v "$1" >/dev/null 2>&1 && return 0
	echo "setup: $1 is missing ($3); installing the package $2"
	if command -v apt-get >/dev/null 2>&1; then
		sudo=""
		[ "$(id -u)" = 0 ] || sudo="sudo -n"
		$sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $2 && return 0
	fi
	echo "setup: COULD NOT INSTALL $2: $3" >&2
	return 1
}

case "${1:-}" in
test)
	need gcc "gcc libc6-dev" "the race detector needs a C compiler" || true
	need setpriv util-linux "tests of permissions drop root with it" || true
	;;
heavy)
	need sqlite3 sqlite3 "the locks of a foreign program are taken with the real one" || true
	need flock util-linux "jobs of the random rounds take locks with it" || exit 1
	;;
*)
	echo "usage: setup.sh test|heavy" >&2
	exit 2
	;;
esac
