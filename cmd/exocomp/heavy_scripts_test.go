//go:build heavy

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestHeavyScripts runs testdata/heavy/*.txtar: what takes long, or needs file
// systems of its own.
func TestHeavyScripts(t *testing.T) {
	p := scripts("testdata/heavy")
	p.Cmds["tmpfs"] = tmpfs
	p.Cmds["fill"] = fill
	p.Cmds["hold"] = hold
	testscript.Run(t, p)
}

// tmpfs DIR SIZE mounts an empty file system of that size.
func tmpfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tmpfs dir size")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]+",mode=0700"); err != nil {
		ts.Fatalf("NOT RUN: a small file system cannot be mounted: %v (run as root, or under unshare -rm)", err)
	}
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fill FILE makes FILE as large as its file system lets it be.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fill file")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		ts.Fatalf("filling %s ended with %v", args[0], err)
	}
}

// hold NAME DB takes the write lock of a database in another process, started as
// NAME, and keeps it. It is the real sqlite3, where there is one.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hold name db")
	}
	held := ts.MkAbs(args[0] + ".held")
	command := []string{"sqlite3", ts.MkAbs(args[1]), ".timeout 10000", "BEGIN IMMEDIATE", ".system touch " + held, ".system sleep 1000"}
	if _, err := exec.LookPath("sqlite3"); err != nil {
		self, err := os.Executable()
		ts.Check(err)
		command = []string{"env", holdVar + "=" + ts.MkAbs(args[1]), holdVar + "_HELD=" + held, self}
		ts.Logf("NO sqlite3 HERE: this test binary holds the lock")
	}
	start(ts, false, append([]string{args[0]}, command...))
	wait(ts, "the lock is held", func() bool {
		_, err := os.Stat(held)
		return err == nil
	})
}

// holdVar makes this binary a process that holds a write lock.
const holdVar = "EXOCOMP_HEAVY_HOLD"

func init() {
	path := os.Getenv(holdVar)
	if path == "" {
		return
	}
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_pragma=busy_timeout(10000)")
	if err == nil {
		var conn *sql.Conn
		if conn, err = db.Conn(context.Background()); err == nil {
			_, err = conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		}
	}
	if err == nil {
		err = os.WriteFile(os.Getenv(holdVar+"_HELD"), nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}
