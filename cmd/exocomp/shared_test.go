package main

import (
	"context"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exocomp/exocomp/daemon/sqlite"
)

// journal DATA_DIR delete|wal says which journal a store has.
func journal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: journal data-dir delete|wal")
	}
	shared, err := sqlite.JournalOf(context.Background(), filepath.Join(ts.MkAbs(args[0]), storeFile))
	ts.Check(err)
	if shared != (args[1] == "delete") {
		ts.Fatalf("the store is shared: %v", shared)
	}
}
