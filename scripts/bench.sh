#!/bin/sh
# Measures what docs/performance.md tells, on the path that users take. Read it as
# ratios within one run: another machine has other numbers. COUNT repeats each
# benchmark; benchstat gives the spread.
set -eu
out=${OUT:-$(mktemp)}
: >"$out"
go test -run '^$' -bench RenewalStep -benchtime 5000x -count "${COUNT:-6}" ./daemon | tee -a "$out"
go test -run '^$' -bench Fence -benchtime 5000x -count "${COUNT:-6}" ./daemon/sqlite | tee -a "$out"
go tool -modfile=scripts/tools/go.mod benchstat "$out"
