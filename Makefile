# The table of contents of this repository: `make help` prints it.

BIN := bin/exocomp
TOOL := go tool -modfile=scripts/tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export CGO_ENABLED ?= 0

.PHONY: help build serve test test-heavy lint demo bench docs fmt clean

help: ## list every verb
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/exocomp, one static file
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/exocomp

serve: build ## serve a store in ./.exocomp (made on the first start) on 127.0.0.1
	@test -e .exocomp/exocomp.db || $(BIN) init --data-dir .exocomp
	$(BIN) serve --data-dir .exocomp

test: ## install what the tests need, and run all of them
	scripts/setup.sh test
	scripts/test.sh

test-heavy: ## an hour and more: random signals, full disks, held locks, stepped clocks, 20000 worlds
	scripts/setup.sh heavy
	scripts/test-heavy.sh

lint: ## gofmt, go vet, staticcheck, and the pins of go.mod
	scripts/lint.sh

demo: build ## the whole tour, unattended: a job, a crash, a recovery, a clean stop
	scripts/demo.sh $(BIN)

bench: ## measure the renewal and the fence, with their spread (docs/performance.md)
	scripts/bench.sh

docs: build ## write docs/cli.md, and the manual pages into bin/man
	$(BIN) docs markdown --dir docs
	$(BIN) docs man --dir bin/man

fmt: ## format every Go file
	gofmt -w cmd daemon docs sim

clean: ## remove what make built, and nothing else
	rm -rf bin
