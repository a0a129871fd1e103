#!/bin/sh
# What takes too long for make test: random rounds of signals with real
# processes, full disks, held locks, stepped clocks, numbers, and a long campaign
# of simulated worlds. It runs all of it, whatever fails, and says at the end what
# did; what could not run counts as a failure.
#
#   HEAVY_ROUNDS, HEAVY_PAIRS, HEAVY_SEED   see cmd/exocomp/heavy_rounds_test.go
#   HEAVY_WORLDS (20000), HEAVY_FIRST_WORLD (1000000)
#   HEAVY_LOGS   a directory for the logs (default a new one)
set -u
cd "$(dirname "$0")/.."
logs=${HEAVY_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
worlds=${HEAVY_WORLDS:-20000}
first=${HEAVY_FIRST_WORLD:-1000000}
failed=0
summary=""

note() { summary="$summary$1
"; }

judge() { # judge NAME CODE: what its log says
	if [ "$2" = 0 ]; then
		note "ok      $1"
	else
		note "FAILED  $1: exit $2, see $logs/$1.log"
		failed=1
	fi
	note "$(sed -n 's/^.*\(SUMMARY .*\|SEED [0-9]*: .*\|[0-9]* worlds: .*\)$/        \1/p' "$logs/$1.log" | cut -c1-1000)"
	note "$(sed -n '/NUMBERS/,/^[^ ]*return /{s/^ */        /p}' "$logs/$1.log")"
	note "$(grep -E 'VIOLATION seed|NOT RUN|NO CGROUPS|NO sqlite3' "$logs/$1.log" | cut -c1-600)"
	if grep -qE 'SKIP:|NOT RUN' "$logs/$1.log"; then
		note "NOT RUN $1: $(grep -E '^ *--- SKIP:' "$logs/$1.log" | tr -s '\n ' ' ')"
		failed=1
	fi
}

heavy() { # heavy NAME TEST...: runs and judges
	name=$1
	shift
	echo "heavy: $name"
	code=0
	nice go test -count=1 -v "$@" >"$logs/$name.log" 2>&1 || code=$?
	judge "$name" "$code"
}

# Small file systems need the right to mount. Without root, a user namespace.
mounts=""
if [ "$(id -u)" != 0 ]; then
	mounts="unshare -rm"
	$mounts true 2>/dev/null || mounts=""
fi

half=$((worlds / 2))
world() { # world NAME FIRST: half a campaign on one core, beside all else
	SEEDS=$half FIRST=$2 GOMAXPROCS=1 nice -n 19 go test -count=1 ./sim -run TestDrawnWorldsKeepEveryPromise \
		-timeout 2h -v >"$logs/$1.log" 2>&1
}
echo "heavy: logs in $logs"
heavy numbers -tags heavy ./cmd/exocomp -run 'TestTakeoverNumbers' -timeout 30m
heavy rounds -tags heavy ./cmd/exocomp -run 'TestHeavyRounds' -timeout 3h
name=scripts
echo "heavy: $name"
code=0
nice $mounts go test -count=1 -v -tags heavy ./cmd/exocomp -run TestHeavyScripts -timeout 30m >"$logs/$name.log" 2>&1 || code=$?
judge "$name" "$code"
echo "heavy: $worlds worlds, in two halves"
world worlds-1 "$first" &
one=$!
world worlds-2 "$((first + half))"
two=$?
wait "$one"
judge worlds-1 $?
judge worlds-2 "$two"

echo
echo "heavy: summary (logs in $logs)"
printf '%s' "$summary" | grep -v '^ *$'
[ "$failed" = 0 ] && echo "heavy: all of it is well" || echo "heavy: NOT WELL"
exit "$failed"
