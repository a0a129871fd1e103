package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/logfile"
	"github.com/exocomp/exocomp/daemon/proc"
)

// keeperCmd is the process that serve starts. Nobody types it.
func (a *app) keeperCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "keeper",
		Short:  "keep the job processes of a daemon (started by serve)",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			g := &a.global
			lock, err := linux.TakeLock(g.state(keeperLock), linux.Holder{Host: g.host, PID: os.Getpid()})
			if err != nil {
				return daemon.Errorf(daemon.Held, "start a keeper: %w", err).Hint("exocomp serve starts its own keeper")
			}
			defer lock.Release()
			heedNoSignals()
			if err := linux.BecomeSubreaper(); err != nil {
				return err
			}
			listener, err := linux.ListenUnix(g.state(keeperSocket))
			if err != nil {
				return err
			}
			logs := logfile.Dir{Root: g.data(logsDir)}
			return proc.Keep(c.Context(), proc.KeeperOptions{
				Listener: listener, StateDir: g.stateDir, Marker: g.state(apiSocket),
				Logs:  func(job string) (proc.LogWriter, error) { return logs.Create(job, 0) },
				Clock: linux.NewClock(), Chance: linux.Chance{}, Log: newLogger(a.stderr),
				NoCgroup: os.Getenv("EXOCOMP_NO_CGROUP") != "",
			})
		},
	}
}

// heedNoSignals drops the signals of a terminal or a supervisor: the keeper ends
// with its daemon's socket, and then kills every job first. They are caught
// rather than ignored, since an ignored signal stays ignored in every job.
func heedNoSignals() {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range ch {
		}
	}()
}

// spawnKeeper starts the keeper of this daemon, from the very file that this
// process runs.
func (a *app) spawnKeeper() (*exec.Cmd, error) {
	g := &a.global
	cmd := &exec.Cmd{
		Path:        ownPath(),
		Args:        []string{"exocomp", "keeper", "--data-dir", g.dataDir, "--state-dir", g.stateDir, "--host", g.host},
		Env:         proc.SpawnEnv(os.Environ()),
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Getenv("EXOCOMP_NO_CGROUP") != "" {
		cmd.Env = append(cmd.Env, "EXOCOMP_NO_CGROUP=1")
	}
	return cmd, cmd.Start()
}

// endLeftovers ends what a dead keeper of this state dir left running: a daemon
// that stands by may never start a keeper, which would do it. One that lives ends
// its jobs by itself.
func (a *app) endLeftovers() error {
	g := &a.global
	lock, err := linux.TakeLock(g.state(keeperLock), linux.Holder{Host: g.host, PID: os.Getpid()})
	if _, held := errors.AsType[*linux.HeldError](err); held {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	return proc.EndLeftovers(g.stateDir, g.state(apiSocket))
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// keeperHolder says whether a keeper of this state dir lives, and which process
// it really is.
func (a *app) keeperHolder() (pid int, held bool, err error) {
	return linux.LockPID(a.global.state(keeperLock))
}
