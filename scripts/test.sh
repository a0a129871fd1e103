#!/bin/sh
# All tests, with the race detector where there is a C compiler. Package sim runs
# without it: it has one goroutine, and would take twenty times as long.
set -eu
race=""
if command -v gcc >/dev/null 2>&1; then
	race="-race"
fi
sim=$(go list ./sim/...)
rest=$(go list ./... | grep -v '/sim')
go test -timeout 10m $sim
# One package at a time: several start daemons, and two cores are few.
[ -z "$race" ] || export CGO_ENABLED=1
go test $race -p 1 -timeout 10m $rest
# What did not run is said last, where it is seen.
[ -n "$race" ] || echo "test: NOT RUN: the race detector (no C compiler)" >&2
if [ "$(id -u)" != 0 ]; then
	echo "test: NOT RUN without root: refusal as another user (standby.txtar), a store" >&2
	echo "test: on a full file system (store.txtar). Run it once as root, or look at CI." >&2
fi
