package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
	"github.com/exocomp/exocomp/daemon/storetest"
	"github.com/exocomp/exocomp/sim"
)

// world is a World under test: every call that can fail fails the test, and a
// failed test prints the end of the trace.
type world struct {
	*sim.World
	t     *testing.T
	trace *bytes.Buffer
}

var worlds atomic.Int64

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	o := sqlite.Options{Memory: fmt.Sprintf("world-%d", worlds.Add(1))}
	anchor, err := sqlite.Create(t.Context(), o, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { anchor.Close() })
	open := func() (sim.Handle, error) { return sqlite.Open(context.Background(), o) }
	w := &world{t: t, trace: &bytes.Buffer{}}
	w.World = sim.New(seed, open, w.trace)
	t.Cleanup(func() {
		if err := w.Check(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			w.tell()
		}
	})
	return w
}

// tell prints the trace, or its last hundred lines.
func (w *world) tell() {
	lines := strings.Split(strings.TrimSpace(w.trace.String()), "\n")
	if n := len(lines); n > 100 && os.Getenv("TRACE") == "" {
		lines = append([]string{fmt.Sprintf("... %d lines before (TRACE=1 shows all)", n-100)}, lines[n-100:]...)
	}
	w.t.Logf("the trace:\n%s", strings.Join(lines, "\n"))
}

func (w *world) pass(d time.Duration) {
	w.t.Helper()
	if err := w.Run(d); err != nil {
		w.t.Fatal(err)
	}
}

// wait lets time pass until cond holds and returns how long it took.
func (w *world) wait(limit time.Duration, what string, cond func() bool) time.Duration {
	w.t.Helper()
	took, err := w.Until(limit, cond)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	return took
}

func (w *world) wantActive(hosts ...*sim.Host) {
	w.t.Helper()
	var got, want []string
	for _, h := range w.Active() {
		got = append(got, h.Name)
	}
	for _, h := range hosts {
		want = append(want, h.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Fatalf("active: %v, want %v", got, want)
	}
}

func (w *world) isActive(h *sim.Host) func() bool {
	return func() bool {
		for _, a := range w.Active() {
			if a == h {
				return true
			}
		}
		return false
	}
}

func (w *world) enqueue(h *sim.Host, argv ...string) string {
	w.t.Helper()
	id, err := h.Enqueue(argv...)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) job(id string) daemon.Job {
	w.t.Helper()
	j, err := w.Job(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *world) inState(id string, states ...daemon.State) func() bool {
	return func() bool {
		j, err := w.Job(id)
		for _, s := range states {
			if err == nil && j.State == s {
				return true
			}
		}
		return false
	}
}

func (w *world) wantState(id string, want daemon.State) {
	w.t.Helper()
	if j := w.job(id); j.State != want {
		w.t.Errorf("job %s is %s (%s), want %s", id, j.State, j.Reason, want)
	}
}

func (w *world) wantLeft(p *sim.Process, want int) {
	w.t.Helper()
	if code, why, left := p.Left(); !left || code != want {
		w.t.Errorf("left %v with %d (%s), want exit %d", left, code, why, want)
	}
}

// seeds returns n, or what SEEDS says: a longer campaign by hand.
func seeds(n uint64) uint64 { return number("SEEDS", n) }

func number(name string, fallback uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return fallback
}

// history returns the store's lines of one kind.
func (w *world) history(kind string) string {
	w.t.Helper()
	var lines []string
	err := w.View(func(r daemon.Reader) error {
		rows, err := daemon.Happenings.Scan(context.Background(), r, daemon.Query{Limit: 10_000})
		for _, h := range rows {
			if h.Kind == kind {
				lines = append(lines, h.Subject+" "+h.Detail)
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
