#!/bin/sh
# All tests, with the race detector where there is a C compiler.
set -eu
race=""
if command -v gcc >/dev/null 2>&1; then
	race="-race"
	export CGO_ENABLED=1
else
	echo "test: NO C COMPILER: running without the race detector" >&2
fi
# One package at a time: several start daemons, and two cores are few.
exec go test $race -p 1 -timeout 10m ./...
