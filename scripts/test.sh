#!/bin/sh
# All tests, with the race detector where there is a C compiler. Package sim runs
# without it: it has one goroutine, and would take twenty times as long.
set -eu
race=""
if command -v gcc >/dev/null 2>&1; then
	race="-race"
else
	echo "test: NO C COMPILER: running without the race detector" >&2
fi
sim=$(go list ./sim/...)
rest=$(go list ./... | grep -v '/sim')
go test -timeout 10m $sim
# One package at a time: several start daemons, and two cores are few.
[ -z "$race" ] || export CGO_ENABLED=1
go test $race -p 1 -timeout 10m $rest
