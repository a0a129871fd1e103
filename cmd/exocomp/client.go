package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/logfile"
	"github.com/exocomp/exocomp/daemon/proc"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// connect returns the Client that the flags ask for, and how to let go of it:
//
//	--remote=URL    HTTP, with a token from EXOCOMP_TOKEN, EXOCOMP_TOKEN_FILE or admin.token
//	--context NAME  HTTP, with the token of that context and no other
//	--remote        this host's socket, and nothing else
//	in a job        the socket of the daemon that runs it, with the job's own token
//	otherwise       this host's socket when a daemon answers there; the store when
//	                none does: reading it, and writing requests to its inbox
func (a *app) connect(ctx context.Context, write bool) (daemon.Client, func(), error) {
	g := &a.global
	socket := g.state(apiSocket)
	inJob := os.Getenv(proc.MarkerName)
	switch {
	case g.elsewhere():
		c, err := a.overHTTP()
		return c, func() {}, err
	case inJob != "" && os.Getenv("EXOCOMP_TOKEN_FILE") != "" && g.remote == "":
		token, err := a.token()
		if err != nil {
			return nil, nil, err
		}
		return a.overSocket(inJob, token)
	case g.remote == "self" || answers(ctx, socket):
		return a.overSocket(socket, os.Getenv("EXOCOMP_TOKEN"))
	}
	return a.offline(ctx, write)
}

func (a *app) overSocket(path, token string) (daemon.Client, func(), error) {
	c, err := api.NewClient(api.ClientOptions{
		BaseURL: "http://exocomp", Token: token, Name: path,
		Dial:             func(ctx context.Context) (net.Conn, error) { return linux.DialUnix(ctx, path) },
		MaintenanceToken: func() (string, error) { return readToken(a.global.data(adminTokenFile)) },
	})
	return c, func() {}, err
}

func answers(ctx context.Context, socket string) bool {
	conn, err := linux.DialUnix(ctx, socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// followPause is how long a follower of events waits before it looks again.
const followPause = 250 * time.Millisecond

// offline works on the store of a host without a daemon.
func (a *app) offline(ctx context.Context, write bool) (daemon.Client, func(), error) {
	g := &a.global
	s, err := sqlite.Open(ctx, sqlite.Options{Path: g.data(storeFile), ReadOnly: !write, Follow: true})
	if err != nil {
		return nil, nil, err
	}
	about := daemon.About{Version: version, DataDir: g.dataDir, StateDir: g.stateDir, Host: g.host}
	c := daemon.NewOffline(s, logfile.Dir{Root: g.data(logsDir)}, linux.NewClock(), linux.Chance{}, about, "local:"+userName())
	return c.Pausing(linux.PauseFor(followPause)), func() { s.Close() }, nil
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

// token finds the bearer token for a remote. It never stands in argv.
func (a *app) token() (string, error) {
	if t := os.Getenv("EXOCOMP_TOKEN"); t != "" {
		return t, nil
	}
	if path := os.Getenv("EXOCOMP_TOKEN_FILE"); path != "" {
		return readToken(path)
	}
	return readToken(a.global.data(adminTokenFile))
}

// readToken reads a token file that nobody else may read.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", daemon.Errorf(daemon.NoToken, "no token: %s is not there", path).
			Hint("set EXOCOMP_TOKEN_FILE to a file that holds one, or EXOCOMP_TOKEN")
	}
	if err != nil {
		return "", daemon.Errorf(daemon.NoToken, "no token: %w", err).
			Hint("run as the user who may read it, or set EXOCOMP_TOKEN_FILE")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", daemon.Errorf(daemon.BadConfig, "token file %s can be read by others (mode %04o)", path, info.Mode().Perm()).
			Hint("chmod 600 %s", path)
	}
	if info.Size() > 4096 {
		return "", daemon.Errorf(daemon.BadConfig, "token file %s holds %d bytes: that is no token", path, info.Size()).
			Hint("name the file that exocomp init wrote")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", daemon.Errorf(daemon.NoToken, "no token: %w", err).
			Hint("run as the user who may read it, or set EXOCOMP_TOKEN_FILE")
	}
	return strings.TrimSpace(string(text)), nil
}
