#!/bin/sh
# Everything that can be said about the code without running it.
set -eu
bad=$(gofmt -l cmd daemon docs sim)
if [ -n "$bad" ]; then
	echo "lint: not formatted (make fmt mends it):" $bad >&2
	exit 1
fi
go vet ./...
go tool -modfile=scripts/tools/go.mod staticcheck ./...

# modernc.org/sqlite works with exactly the libc that its own go.mod names.
want=$(go mod edit -json "$(go list -m -f '{{.GoMod}}' modernc.org/sqlite)" |
	awk -F '"' '/"modernc.org\/libc"/ { getline; print $4 }')
have=$(go list -m -f '{{.Version}}' modernc.org/libc)
if [ "$want" != "$have" ]; then
	echo "lint: modernc.org/libc is $have, and modernc.org/sqlite wants $want: go get modernc.org/libc@$want" >&2
	exit 1
fi
echo "lint: clean"
