package daemon_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
	"github.com/exocomp/exocomp/daemon/storetest"
)

// bubble is the Clock of a synctest bubble. Its wall is thirty years ahead: a
// bubble begins in the year 2000, which a daemon takes for a clock that is lost.
type bubble struct {
	clock.Clock
	begin time.Time
}

func (b bubble) Now() time.Time        { return time.Now().AddDate(30, 0, 0) }
func (b bubble) Boot() daemon.Boottime { return daemon.Boottime(time.Since(b.begin)) }

// instant runs every job to a good end, at once.
type instant struct{ tell func(daemon.Event) }

func (r instant) Hello(_ context.Context, h daemon.Hello) error {
	r.tell(daemon.Listed{Instance: "keeper", Epoch: h.Epoch, Seq: h.Seq})
	return nil
}
func (r instant) Start(_ context.Context, s daemon.Start) error {
	r.tell(daemon.Started{Instance: "keeper", Attempt: s.Attempt, AtMs: 1})
	r.tell(daemon.Exited{Instance: "keeper", Exit: daemon.Exit{Attempt: s.Attempt, Cause: daemon.CauseExit}})
	return nil
}
func (r instant) Signal(context.Context, daemon.Signal) error { return nil }
func (r instant) Extend(_ context.Context, x daemon.Extend) error {
	r.tell(daemon.Extended{Instance: "keeper", Seq: x.Seq})
	return nil
}
func (r instant) List(context.Context) error             { return nil }
func (r instant) Forget(context.Context, []string) error { return nil }
func (r instant) KillAll(context.Context) error          { return nil }

// dice is a Chance for many.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Uint64()
}

type quiet struct{}

func (quiet) Blocker() string                  { return "" }
func (quiet) Holds() error                     { return nil }
func (quiet) Ready() error                     { return nil }
func (quiet) Stopping(string) error            { return nil }
func (quiet) StandDown(daemon.StandDown) error { return nil }
func (quiet) Exit(int, string)                 {}

// loop runs a daemon's Loop over a real store while fn runs beside it, in
// virtual time, and returns its exit code.
func loop(t *testing.T, fn func(l *daemon.Loop, c daemon.Client)) int {
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "x.db")}
	anchor, err := sqlite.Create(t.Context(), o, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	anchor.Close()
	code := -1
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var l *daemon.Loop
		clk, chance := bubble{clock.New(), time.Now()}, &dice{r: rand.New(rand.NewPCG(1, 2))}
		cfg := daemon.Config{Identity: daemon.Identity{Holder: "a", Host: "alpha", Incarnation: "a"},
			Terms: daemon.DefaultTerms(), Limit: 2, DrainGrace: time.Second}
		d := daemon.New(cfg, daemon.Needs{Clock: clk, Store: s, Site: quiet{}, Chance: chance, Log: slog.New(slog.DiscardHandler)})
		ports := daemon.Ports{Runner: instant{func(ev daemon.Event) { l.Tell(ev) }}, Process: quiet{}}
		l = daemon.NewLoop(d, ports, slog.New(slog.DiscardHandler), nil)
		desk := daemon.Desk{Store: s, Clock: clk, Chance: chance, Ask: l.Ask, Snapshot: l.Snapshot}
		go fn(l, desk.For(daemon.Principal{Actor: "me"}))
		code = l.Run(context.Background())
		synctest.Wait()
	})
	return code
}

func TestTheLoopRunsJobsRenewsAndStops(t *testing.T) {
	code := loop(t, func(l *daemon.Loop, c daemon.Client) {
		defer l.Tell(daemon.Stop{Why: "the test is over"})
		ctx := context.Background()
		e := ask(t, c)
		for j := e.Job; j.State != daemon.Succeeded; {
			time.Sleep(time.Second) // of the bubble
			var err error
			if j, err = c.Job(ctx, e.Job.ID); err != nil {
				t.Error(err)
				return
			}
		}
		time.Sleep(10 * time.Minute)
		st, err := c.Status(ctx)
		if err != nil || !st.Daemon.Ready || !st.Lease.HeldHere || st.Lease.Seq < 90 || st.Lease.TrustLeftMs < 15_000 {
			t.Errorf("after ten minutes: %+v, %v", st.Lease, err)
		}
	})
	if code != 0 {
		t.Errorf("exit %d", code)
	}
}

// ask enqueues as soon as the daemon is active.
func ask(t *testing.T, c daemon.Client) daemon.Enqueued {
	for {
		e, err := c.Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"true"}}})
		if daemon.CodeOf(err) == daemon.Unavailable {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return e
	}
}

func TestManyWhoAskAtOnceAreAllAnswered(t *testing.T) {
	loop(t, func(l *daemon.Loop, c daemon.Client) {
		defer l.Tell(daemon.Stop{Why: "the test is over"})
		ask(t, c)
		before := l.Snapshot().Counters.Steps
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { ask(t, c) })
		}
		all.Wait()
		time.Sleep(time.Second)
		page, err := c.Jobs(context.Background(), daemon.JobQuery{Limit: 1000})
		if err != nil || len(page.Jobs) != 201 {
			t.Errorf("%d jobs, %v", len(page.Jobs), err)
		}
		if steps := l.Snapshot().Counters.Steps - before; steps > 2000 {
			t.Errorf("%d steps for 200 jobs", steps)
		}
	})
}

func TestWhoAsksALoopThatHasEndedIsToldSo(t *testing.T) {
	loop(t, func(l *daemon.Loop, c daemon.Client) {
		ask(t, c)
		l.Tell(daemon.Stop{Why: "the test is over"})
		<-l.Done()
		_, err := c.Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"true"}}})
		if daemon.CodeOf(err) != daemon.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhoStopsWaitingIsNotKeptWaiting(t *testing.T) {
	loop(t, func(l *daemon.Loop, c daemon.Client) {
		defer l.Tell(daemon.Stop{Why: "the test is over"})
		ask(t, c)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := l.Ask(ctx, daemon.SetCordon{Reason: "x"}); err == nil {
			t.Error("an answer came after the asker had gone")
		}
	})
}
