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
	return &cobra.Command{
		Use:   "init",
		Short: "prepare a data directory",
		Long: "init makes the data directory, a store that nobody holds, and an admin token,\n" +
			"which it writes to admin.token there (0600). It changes nothing that exists.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := initDataDir(c.Context(), &a.global); err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]string{"data_dir": a.global.dataDir, "admin_token": a.global.data(adminTokenFile)})
			}
			_, err := fmt.Fprintf(a.stdout, "prepared %s\nadmin token in %s (keep it; it is shown nowhere else)\nnext: exocomp serve --data-dir %s\n",
				a.global.dataDir, a.global.data(adminTokenFile), a.global.dataDir)
			return err
		},
	}
}

// initDataDir makes everything under other names and gives the store its own
// last: a directory without exocomp.db is not a data directory, whatever an
// init that was killed left in it.
func initDataDir(ctx context.Context, g *globals) error {
	clk := linux.NewClock()
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
	work, err := os.MkdirTemp(g.dataDir, ".init-")
	if err != nil {
		return dirError(g.dataDir, err)
	}
	defer os.RemoveAll(work)
	return fillDataDir(ctx, g, clk, work)
}

func fillDataDir(ctx context.Context, g *globals, clk daemon.Clock, work string) error {
	var token string
	made := filepath.Join(work, storeFile)
	db, err := sqlite.Create(ctx, sqlite.Options{Path: made}, func(tx daemon.Tx) (err error) {
		token, err = daemon.Seed(ctx, tx, daemon.ReadClock(clk), linux.Chance{})
		return err
	})
	if err != nil {
		return dirError(g.dataDir, err)
	}
	if err := db.Close(); err != nil {
		return dirError(g.dataDir, err)
	}
	tokenFile := filepath.Join(work, adminTokenFile)
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
	if err := os.Link(made, g.data(storeFile)); err != nil {
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
