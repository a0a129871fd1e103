package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

func (a *app) initCmd() *cobra.Command {
	var shared bool
	c := &cobra.Command{
		Use:   "init",
		Short: "prepare a data directory",
		Long: "init makes the data directory, a store that nobody holds, and an admin token,\n" +
			"which it writes to admin.token there (0600). It changes nothing that exists.\n\n" +
			"With --shared-store the store is one that several hosts may open over a network\n" +
			"file system. A store that exists is converted, while no daemon runs; and back,\n" +
			"with --shared-store=false.",
		RunE: func(c *cobra.Command, _ []string) error {
			g := &a.global
			if _, err := os.Stat(g.data(storeFile)); err == nil && c.Flags().Changed("shared-store") {
				return a.convert(c.Context(), shared)
			}
			if err := a.initDataDir(c.Context(), shared); err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"data_dir": g.dataDir, "admin_token": g.data(adminTokenFile), "shared_store": shared})
			}
			_, err := fmt.Fprintf(a.stdout, "prepared %s\nadmin token in %s (keep it; it is shown nowhere else)\nnext: %s\n",
				g.dataDir, g.data(adminTokenFile), g.serveLine(shared))
			return err
		},
	}
	c.Flags().BoolVar(&shared, "shared-store", false, "a store that several hosts open; =false converts one back")
	return c
}

// serveLine is the command that serves the store.
func (g *globals) serveLine(shared bool) string {
	if shared {
		return "exocomp serve --shared-store --data-dir " + g.dataDir
	}
	return "exocomp serve --data-dir " + g.dataDir
}

// convert gives a store that exists the journal for many hosts, or for one.
func (a *app) convert(ctx context.Context, shared bool) error {
	g := &a.global
	lock, err := a.lockOut()
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := a.checkPlace(ctx, shared); err != nil {
		return err
	}
	changed, err := sqlite.Convert(ctx, g.data(storeFile), shared)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(map[string]any{"data_dir": g.dataDir, "shared_store": shared, "converted": changed})
	}
	kind := "a store for one host, with a write-ahead log"
	if shared {
		kind = "a shared store, with a rollback journal"
	}
	said := "is " + kind + " already: nothing was changed"
	if changed {
		said = "was converted: it is now " + kind
	}
	_, err = fmt.Fprintf(a.stdout, "%s %s\nnext: %s\n", g.data(storeFile), said, g.serveLine(shared))
	return err
}

// lockOut takes the lock of this host's daemon, so that none starts meanwhile.
func (a *app) lockOut() (*linux.Lock, error) {
	g := &a.global
	if err := a.checkState(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(g.stateDir, 0o700); err != nil {
		return nil, dirError(g.stateDir, err)
	}
	lock, err := linux.TakeLock(g.state(serveLock), linux.Holder{Host: g.host, PID: os.Getpid(), Incarnation: "init"})
	if held, ok := errors.AsType[*linux.HeldError](err); ok {
		return nil, held.Refusal()
	}
	if err != nil {
		return nil, dirError(g.stateDir, err)
	}
	return lock, nil
}

// initDataDir makes everything under other names and gives the store its own
// last: a directory without exocomp.db is not a data directory, whatever an
// init that was killed left in it.
func (a *app) initDataDir(ctx context.Context, shared bool) error {
	g, clk := &a.global, linux.NewClock()
	if err := daemon.CheckWall(clk.Now()); err != nil {
		return err
	}
	if _, err := os.Stat(g.data(storeFile)); err == nil {
		return daemon.Errorf(daemon.Conflict, "%s is a data directory already: init changes nothing that exists", g.dataDir).
			Hint("start it: exocomp serve --data-dir %s", g.dataDir)
	}
	if err := os.MkdirAll(g.dataDir, 0o700); err != nil {
		return dirError(g.dataDir, err)
	}
	if err := a.checkPlace(ctx, shared); err != nil {
		return err
	}
	work, err := os.MkdirTemp(g.dataDir, ".init-")
	if err != nil {
		return dirError(g.dataDir, err)
	}
	defer os.RemoveAll(work)
	return fillDataDir(ctx, g, clk, sqlite.Options{Path: filepath.Join(work, storeFile), Shared: shared})
}

// fillDataDir makes the store where o says, in a directory of its own, and moves
// what it made into place.
func fillDataDir(ctx context.Context, g *globals, clk daemon.Clock, o sqlite.Options) error {
	var token string
	db, err := sqlite.Create(ctx, o, func(tx daemon.Tx) (err error) {
		token, err = daemon.Seed(ctx, tx, daemon.ReadClock(clk), linux.Chance{})
		return err
	})
	if err != nil {
		return dirError(g.dataDir, err)
	}
	if err := db.Close(); err != nil {
		return dirError(g.dataDir, err)
	}
	tokenFile := filepath.Join(filepath.Dir(o.Path), adminTokenFile)
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return dirError(g.dataDir, err)
	}
	if err := os.MkdirAll(g.data(logsDir), 0o700); err != nil {
		return dirError(g.dataDir, err)
	}
	if err := os.Rename(tokenFile, g.data(adminTokenFile)); err != nil {
		return dirError(g.dataDir, err)
	}
	// Link refuses where Rename would replace: of two inits one wins.
	if err := os.Link(o.Path, g.data(storeFile)); err != nil {
		return dirError(g.dataDir, err)
	}
	return syncDir(g.dataDir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return dirError(dir, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return dirError(dir, err)
	}
	return nil
}

// dirError says why a directory cannot be used.
func dirError(dir string, err error) error {
	var told *daemon.Error
	if errors.As(err, &told) {
		return err
	}
	e := daemon.Errorf(daemon.BadConfig, "directory %s cannot be used: %w", dir, err)
	switch {
	case errors.Is(err, os.ErrPermission):
		return e.Hint("give this user write access to it, or name another with --data-dir")
	case errors.Is(err, os.ErrNotExist):
		return e.Hint("make it: exocomp init --data-dir %s", dir)
	}
	return e.Hint("check the path, the owner, free space and whether the file system is read-only")
}
