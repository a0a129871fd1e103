// Package sim runs daemons of package daemon in a world that can be repeated:
// hosts with clocks of their own, keepers and job processes that are modelled,
// one store that is real, and faults at the seams. Everything happens in one
// goroutine, on the kernel in sim/kernel.
//
// A World is driven from a test that reads as prose: hosts serve, crash, freeze
// and wake; time passes; oracles, which know the truth that no host can see,
// judge every commit and every process.
package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim/kernel"
)

// Opener opens one more handle on the store of a World. Each daemon process
// gets its own, as in production.
type Opener func() (Handle, error)

// Handle is a store that ends with its process.
type Handle interface {
	daemon.Store
	io.Closer
}

// World is one simulated deployment.
type World struct {
	K     *kernel.Kernel
	Ghost *Ghost
	hosts []*Host
	open  Opener
	log   *slog.Logger

	attested []string // hosts that an operator said were off
}

// Epoch is the wall time at which every World begins.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns a World without hosts whose choices come from seed.
func New(seed uint64, open Opener, trace io.Writer) *World {
	w := &World{K: kernel.New(seed, trace), open: open}
	w.Ghost = newGhost(w)
	w.log = slog.New(slog.DiscardHandler)
	return w
}

// Host adds a host to the World, with clocks that are right.
func (w *World) Host(name string) *Host {
	n := len(w.hosts) + 1
	h := &Host{w: w, Name: name, clock: kernel.NewHostClock(w.K, Epoch, time.Duration(n)*time.Hour),
		boots: 1, lockIno: uint64(1000 + n), terms: daemon.DefaultTerms(), limit: 4, grace: 30 * time.Second}
	w.hosts = append(w.hosts, h)
	return h
}

// Run lets d of true time pass.
func (w *World) Run(d time.Duration) error { return w.K.RunUntil(w.K.Now().Add(d)) }

// Until lets time pass until cond holds, at most limit. It says how long that
// took.
func (w *World) Until(limit time.Duration, cond func() bool) (time.Duration, error) {
	begin := w.K.Now()
	ok, err := w.K.RunWhile(func() bool { return !cond() }, begin.Add(limit))
	if err == nil && !ok && !cond() {
		err = fmt.Errorf("waited %s in vain", limit)
	}
	return w.K.Now().Sub(begin), err
}

// Active returns the hosts whose daemon is READY and trusts its lease.
func (w *World) Active() []*Host {
	var active []*Host
	for _, h := range w.hosts {
		if h.proc != nil && h.proc.runs() && h.proc.d.Snapshot().Ready(h.Boot()) {
			active = append(active, h)
		}
	}
	return active
}

// View reads the store through a handle of its own.
func (w *World) View(fn func(daemon.Reader) error) error {
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.View(context.Background(), fn)
}

// Job returns the row of a job.
func (w *World) Job(id string) (j daemon.Job, err error) {
	err = w.View(func(r daemon.Reader) error {
		var found bool
		if j, found, err = daemon.Jobs.Get(context.Background(), r, id); err == nil && !found {
			err = fmt.Errorf("no job %s", id)
		}
		return err
	})
	return j, err
}

// Lease returns the lease row.
func (w *World) Lease() (row daemon.Lease, err error) {
	err = w.View(func(r daemon.Reader) error {
		row, _, err = daemon.Leases.Get(context.Background(), r, 1)
		return err
	})
	return row, err
}

// Forge changes the lease row behind everybody's back, as a clone of a machine
// or a hand with sqlite3 would.
func (w *World) Forge(change func(daemon.Lease) daemon.Lease) error {
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	return s.Update(ctx, daemon.Guard{}, func(tx daemon.Tx) error {
		row, _, err := daemon.Leases.Get(ctx, tx, 1)
		if err != nil {
			return err
		}
		return daemon.Leases.Put(ctx, tx, change(row))
	})
}

// Check judges what can only be judged at the end, or in a pause.
func (w *World) Check() error {
	w.Ghost.checkAcknowledged()
	return w.K.Failed()
}

// latency is how long a message between two processes of a host takes.
func (w *World) latency() time.Duration {
	return w.K.Choices.Between(100*time.Microsecond, 2*time.Millisecond)
}
