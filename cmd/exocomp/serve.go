package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/logfile"
	"github.com/exocomp/exocomp/daemon/proc"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	listen string
	terms  daemon.Terms
	stand  bool
	single bool
	shared bool
	force  forceFlags
	grace  time.Duration
	jobs   int
	reload time.Duration
	values map[string]daemon.FlagValue // of the flags that are settings
}

func (a *app) serveCmd() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "run the daemon",
		Long: "serve runs the daemon until it is told to stop (SIGTERM or Ctrl-C).\n\n" +
			"Only one daemon is active on a store. A second one on this host is refused by the\n" +
			"lock, one on another host by the lease: both exit with 75 and say who holds it.\n" +
			"With --standby it waits, and takes over when the holder is gone.",
		RunE: func(c *cobra.Command, _ []string) error {
			if f.terms.Renew == 0 {
				f.terms.Renew = f.terms.TTL / 5
			}
			f.values = a.flagValues(c.Flags())
			return a.serve(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:7373", "TCP address of the API; none for the socket only")
	fl.DurationVar(&f.terms.TTL, "lease-ttl", 30*time.Second, "how long a silent holder keeps the lease, at least 5s")
	fl.DurationVar(&f.terms.Renew, "lease-renew", 0, "how often the lease is renewed, at most a third of the TTL (default a fifth)")
	fl.BoolVar(&f.stand, "standby", false, "wait for the lease rather than refuse to start")
	fl.BoolVar(&f.single, "single-host", false, "no other host may serve this store: a store that cannot be written is then waited for, not fled from")
	fl.BoolVar(&f.shared, "shared-store", false, "the store is one that several hosts open over a network file system (see exocomp init --shared-store)")
	f.force.register(fl)
	fl.DurationVar(&f.grace, "drain-grace", 30*time.Second, "on SIGTERM: how long running jobs may go on before they are cut off")
	fl.DurationVar(&f.reload, "reload-interval", 0, "read the schedules again this often (default never: SIGHUP does it)")
	fl.IntVar(&f.jobs, "jobs", runtime.NumCPU(), "how many jobs run at once")
	fl.Lookup("jobs").DefValue = "the number of cores"
	return c
}

// service is one daemon process with all that it is wired to.
type service struct {
	a      *app
	f      serveFlags
	log    *slog.Logger
	clock  linux.Clock
	lock   *linux.Lock
	store  *sqlite.Store
	loop   *daemon.Loop
	runner *proc.Runner
	self   *linux.Process
	front  *front
}

// serve keeps the order of L1: lock, store, lease, migration, sweep, READY. What
// can be refused is refused before anything is changed.
func (a *app) serve(ctx context.Context, f serveFlags) error {
	s := &service{a: a, f: f, log: newLogger(a.stderr), clock: linux.NewClock()}
	if err := daemon.CheckWall(s.clock.Now()); err != nil {
		return err
	}
	cfg, err := s.config(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.open(ctx, &cfg); err != nil {
		return err
	}
	code := s.run(ctx)
	if words := s.self.LastWords(); code != 0 && words != "" {
		fmt.Fprintf(a.stderr, "exocomp: %s\n", words)
	}
	if code != 0 {
		return exitError(code)
	}
	return nil
}

func (s *service) config(ctx context.Context) (daemon.Config, error) {
	bootID, err := linux.BootID()
	if err != nil {
		return daemon.Config{}, err
	}
	force, err := s.f.force.force(ctx, s.a)
	if err != nil {
		return daemon.Config{}, err
	}
	g := &s.a.global
	incarnation := daemon.NewID("inc", s.clock.Now(), linux.Chance{})
	cfg := daemon.Config{
		Identity: daemon.Identity{Holder: g.host + "/" + incarnation, Host: g.host, Incarnation: incarnation,
			BootID: bootID, PID: int64(os.Getpid())},
		Terms: s.f.terms, Standby: s.f.stand, SingleHost: s.f.single, Force: force, Limit: s.f.jobs, DrainGrace: s.f.grace,
		ReloadEvery: s.f.reload,
	}
	return cfg, s.a.blame(cfg.Check(), "lease-ttl", "lease-renew", "jobs", "drain-grace", "reload-interval")
}

// open takes the lock, opens the store and binds the sockets.
func (s *service) open(ctx context.Context, cfg *daemon.Config) (err error) {
	g := &s.a.global
	if err := g.checkOwner(); err != nil {
		return err
	}
	if err := s.a.checkState(); err != nil {
		return err
	}
	if err := s.a.checkPlace(ctx, s.f.shared); err != nil {
		return err
	}
	if err := os.MkdirAll(g.stateDir, 0o700); err != nil {
		return dirError(g.stateDir, err)
	}
	s.lock, err = linux.TakeLock(g.state(serveLock), linux.Holder{Host: g.host, BootID: cfg.Identity.BootID,
		PID: os.Getpid(), Incarnation: cfg.Identity.Incarnation})
	if held, ok := errors.AsType[*linux.HeldError](err); ok {
		return held.Refusal()
	}
	if err != nil {
		return dirError(g.stateDir, err)
	}
	if err := g.checkFence(); err != nil { // with the lock held: fence kills whoever holds it
		return err
	}
	cfg.Identity.LockDev, cfg.Identity.LockIno = s.lock.Dev, s.lock.Ino
	if err := s.a.endLeftovers(); err != nil {
		s.log.Error("what an earlier keeper left running does not end", "err", err)
	}
	s.store, err = sqlite.Open(ctx, sqlite.Options{Path: g.data(storeFile), Busy: cfg.Terms.Attempt(), Shared: s.f.shared})
	if err != nil {
		return err
	}
	if err := linux.BecomeSubreaper(); err != nil {
		return err
	}
	s.wire(*cfg)
	s.front, err = s.listen()
	return err
}

// checkOwner refuses another user than the one whose data directory it is: files
// of two owners in it lock the one or the other out (O9).
func (g *globals) checkOwner() error {
	info, err := os.Stat(g.dataDir)
	if err != nil {
		return dirError(g.dataDir, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	owner := fmt.Sprint(st.Uid)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return daemon.Errorf(daemon.BadConfig, "%s belongs to user %s, and this is user %s: a daemon would leave files there that %[2]s cannot use",
		g.dataDir, owner, userName()).Hint("run it as that user: sudo -u %s exocomp serve", owner)
}

// wire builds the daemon and its ports.
func (s *service) wire(cfg daemon.Config) {
	s.runner = proc.NewRunner(proc.RunnerOptions{
		Spawn: s.a.spawnKeeper, Holder: s.a.keeperHolder, Log: s.log,
		StateDir: s.a.global.stateDir, Marker: s.a.global.state(apiSocket),
		Dial: dialer(s.a.global.state(keeperSocket)),
		Tell: func(ev daemon.Event) { s.loop.Tell(ev) },
	})
	s.self = &linux.Process{StateDir: s.a.global.stateDir, Log: s.log, OnReady: s.greet}
	d := daemon.New(cfg, daemon.Needs{Clock: s.clock, Store: s.store, Site: linux.Site{Lock: s.lock, Database: s.a.global.data(storeFile)}, Chance: linux.Chance{}, Log: s.log})
	s.loop = daemon.NewLoop(d, daemon.Ports{Runner: s.runner, Process: s.self}, s.log, s.fed)
}

func (s *service) desk() daemon.Desk {
	g := &s.a.global
	return daemon.Desk{Store: s.store, Logs: logfile.Dir{Root: g.data(logsDir)}, Clock: s.clock, Chance: linux.Chance{},
		About: daemon.About{Version: version, DataDir: g.dataDir, StateDir: g.stateDir, Host: g.host, Flags: s.f.values},
		Ask:   s.loop.Ask, Snapshot: s.loop.Snapshot, Pause: linux.PauseFor(followPause)}
}

// run runs the loop to its end and returns its exit code.
func (s *service) run(ctx context.Context) int {
	stop := make(chan os.Signal, 8)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(stop)
	go s.heed(stop)
	go linux.Watchdog(s.clock, s.loop.Snapshot, s.loop.Done(), func(code int) {
		s.log.Error("the loop is stuck past the end of its trust: ending hard", "code", code)
		os.Exit(code)
	})
	s.log.Info("starting", "version", version, "host", s.a.global.host, "data_dir", s.a.global.dataDir,
		"address", s.front.address(), "standby", s.f.stand)
	if s.f.stand {
		if err := s.self.Standby(); err != nil {
			s.log.Warn("the supervisor could not be told", "err", err)
		}
	}
	return s.loop.Run(ctx)
}

// heed turns signals into events.
func (s *service) heed(ch <-chan os.Signal) {
	for sig := range ch {
		if sig == syscall.SIGHUP {
			s.loop.Tell(daemon.Reload{Why: "SIGHUP"})
			continue
		}
		s.loop.Tell(daemon.Stop{Why: sig.String()})
	}
}

// fed is told after each Step.
func (s *service) fed() {
	s.self.Feed()
	if snap := s.loop.Snapshot(); snap.Role == daemon.Watching && !s.f.stand {
		if err := s.self.Waiting("watching the lease"); err != nil {
			s.log.Warn("the supervisor could not be told", "err", err)
		}
	}
}

// greet tells a person at a terminal what to do now.
func (s *service) greet() {
	flags := ""
	if s.a.global.dataDir != defaultDataDir() {
		flags = " --data-dir " + s.a.global.dataDir
	}
	fmt.Fprintf(s.a.stdout, "exocomp serves at %s\n\ntry in another terminal:\n"+
		"  exocomp%[2]s run -- uname -a\n  exocomp%[2]s jobs list\n  exocomp%[2]s status\n", s.front.address(), flags)
}

// close lets go of everything in the reverse order. The lock is last.
func (s *service) close() {
	if s.front != nil {
		s.front.close()
	}
	if s.runner != nil {
		s.runner.Close(time.Second) // the lease is released: the process must end soon (S5)
	}
	if s.store != nil {
		if err := s.store.Close(); err != nil {
			s.log.Warn("close the store", "err", err)
		}
	}
	if s.lock != nil {
		s.lock.Release()
	}
}
