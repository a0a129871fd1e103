package daemon_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
	"github.com/exocomp/exocomp/daemon/storetest"
)

// handClock is moved by hand.
type handClock struct {
	clock.Clock
	boot daemon.Boottime
}

func (c *handClock) Now() time.Time        { return time.Unix(1_800_000_000, int64(c.boot)) }
func (c *handClock) Boot() daemon.Boottime { return c.boot }

// BenchmarkRenewalStep is the Step that nothing but the renewal is due in, on a
// real file with synchronous FULL: what must fit into A, whatever else happens.
func BenchmarkRenewalStep(b *testing.B) {
	for name, o := range map[string]sqlite.Options{"wal": {}, "rollback": {Shared: true}} {
		b.Run(name, func(b *testing.B) {
			o.Path = filepath.Join(b.TempDir(), "exocomp.db")
			benchRenewals(b, o)
		})
	}
}

func benchRenewals(b *testing.B, o sqlite.Options) {
	ctx := context.Background()
	anchor, err := sqlite.Create(ctx, o, storetest.Seed)
	if err != nil {
		b.Fatal(err)
	}
	anchor.Close()
	s, err := sqlite.Open(ctx, o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	clk := &handClock{boot: daemon.Boottime(time.Hour)}
	terms := daemon.DefaultTerms()
	d := daemon.New(daemon.Config{Identity: daemon.Identity{Holder: "a", Host: "alpha", Incarnation: "a"}, Terms: terms, Limit: 2},
		daemon.Needs{Clock: clk, Store: s, Site: quiet{}, Chance: &dice{r: rand.New(rand.NewPCG(1, 2))}, Log: slog.New(slog.DiscardHandler)})
	step := func(events ...daemon.Event) time.Duration {
		begin := time.Now()
		if _, err := d.Step(ctx, events...); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	step()
	step(daemon.Listed{Instance: "k", Epoch: d.Snapshot().Epoch, Seq: d.Snapshot().Seq})
	if d.Role() != daemon.Active {
		b.Fatalf("role %s", d.Role())
	}
	took := make([]time.Duration, 0, b.N)
	seq := d.Snapshot().Seq
	for b.Loop() {
		clk.boot = clk.boot.Add(terms.Renew)
		took = append(took, step(daemon.Extended{Instance: "k", Seq: d.Snapshot().Seq}))
	}
	if got := d.Snapshot().Seq - seq; got != int64(len(took)) {
		b.Fatalf("%d Steps made %d renewals", len(took), got)
	}
	slices.Sort(took)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"max-µs", 1}} {
		b.ReportMetric(float64(took[int(q.at*float64(len(took)-1))].Microseconds()), q.name)
	}
}
