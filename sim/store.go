package sim

import (
	"context"
	"errors"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// store stands between a daemon process and its handle on the real store. It
// injects faults, and it tells the ghost what was truly committed.
type store struct {
	p      *proc
	real   Handle
	faults []Fault

	poison     string        // a job with this label value cannot be written
	replaced   bool          // the path names another file
	blocked    bool          // another program holds the write lock
	crashAfter int           // kill the process before the nth effect
	dawdle     time.Duration // freeze the process between the next commit and its effects
}

// Fault is what happens to one Update.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // of Stall
}

// FaultKind names a fault.
type FaultKind string

// The faults of an Update.
const (
	Busy       FaultKind = "busy"        // somebody holds the write lock for longer than the attempt
	Sick       FaultKind = "sick"        // an I/O error; nothing is written
	LostCommit FaultKind = "lost commit" // all is done but the commit
	LostAnswer FaultKind = "lost answer" // committed, and the answer is an error
	Stall      FaultKind = "stall"       // the process is frozen before it gets the write lock
	None       FaultKind = "none"        // this one goes well
)

var errSim = errors.New("simulated store failure")

// Fault makes the next Updates of the host's daemon suffer, one fault each.
func (h *Host) Fault(faults ...FaultKind) {
	for _, f := range faults {
		h.proc.store.faults = append(h.proc.store.faults, Fault{Kind: f})
	}
}

// Stall freezes the daemon for d in the middle of its next Update: after it has
// read the clock, before it has the write lock.
func (h *Host) Stall(d time.Duration) {
	h.proc.store.faults = append(h.proc.store.faults, Fault{Kind: Stall, Delay: d})
}

// Poison makes every insert of a job with the label x=value fail.
func (h *Host) Poison(value string) { h.proc.store.poison = value }

// Dawdle freezes the daemon for d between its next commit with effects and the
// first of them.
func (h *Host) Dawdle(d time.Duration) { h.proc.store.dawdle = d }

func (s *store) take() Fault {
	if len(s.faults) == 0 {
		return Fault{Kind: map[bool]FaultKind{true: Busy, false: None}[s.blocked]}
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	if f.Kind != None {
		s.p.h.w.K.Log("%s: %s", s.p.life, f.Kind)
	}
	return f
}

// Update implements daemon.Store.
func (s *store) Update(ctx context.Context, g daemon.Guard, fn func(daemon.Tx) error) error {
	w := s.p.h.w
	rec := &recorder{poison: s.poison, start: s.p.h.Boot()}
	f := s.take()
	switch f.Kind {
	case Busy:
		s.hang(s.p.d.AttemptLimit())
		return daemon.ErrBusy
	case Sick:
		return errSim
	case Stall:
		s.hang(f.Delay)
	}
	if !s.p.up {
		return errors.New("the process is dead")
	}
	err := s.real.Update(ctx, g, func(tx daemon.Tx) error {
		rec.Tx = tx
		if err := fn(rec); err != nil {
			return err
		}
		if f.Kind == LostCommit {
			return errSim
		}
		return nil
	})
	if err == nil {
		w.Ghost.committed(s.p, g, rec)
	}
	w.Ghost.attempted(s.p, g, rec, err == nil && f.Kind != LostAnswer)
	if err == nil && f.Kind == LostAnswer {
		return errSim
	}
	return err
}

// hang lets the world go on while this process stands still.
func (s *store) hang(d time.Duration) {
	k := s.p.h.w.K
	if err := k.RunUntil(k.Now().Add(d)); err != nil {
		return
	}
}

// View implements daemon.Store.
func (s *store) View(ctx context.Context, fn func(daemon.Reader) error) error {
	return s.real.View(ctx, fn)
}

// Version implements daemon.Store.
func (s *store) Version(ctx context.Context) (uint64, error) { return s.real.Version(ctx) }

// Usable implements daemon.Store.
func (s *store) Usable(ctx context.Context) error {
	if s.replaced {
		return daemon.Errorf(daemon.StoodDown, "the store was replaced").Hint("find out by whom")
	}
	return s.real.Usable(ctx)
}

// Migrate implements daemon.Store.
func (s *store) Migrate(ctx context.Context, g daemon.Guard, beat func(daemon.Tx) error) error {
	return s.real.Migrate(ctx, g, beat)
}

func (s *store) close() { s.real.Close() }

// recorder notes what a transaction wrote, in order.
type recorder struct {
	daemon.Tx
	start  daemon.Boottime // when the attempt truly began
	poison string
	ops    []op
}

// op is one write: a row, or a key that was deleted.
type op struct {
	table *daemon.Table
	row   any // of a put or an insert
	key   []any
}

// Put implements daemon.Tx.
func (r *recorder) Put(ctx context.Context, t *daemon.Table, row any) error {
	r.ops = append(r.ops, op{table: t, row: row})
	return r.Tx.Put(ctx, t, row)
}

// Insert implements daemon.Tx.
func (r *recorder) Insert(ctx context.Context, t *daemon.Table, row any) (bool, error) {
	if j, isJob := row.(*daemon.Job); isJob && r.poison != "" && j.Labels["x"] == r.poison {
		return false, errSim
	}
	ok, err := r.Tx.Insert(ctx, t, row)
	if ok {
		r.ops = append(r.ops, op{table: t, row: row})
	}
	return ok, err
}

// Delete implements daemon.Tx.
func (r *recorder) Delete(ctx context.Context, t *daemon.Table, key []any) error {
	r.ops = append(r.ops, op{table: t, key: key})
	return r.Tx.Delete(ctx, t, key)
}

// renews says whether the transaction wrote the lease.
func (r *recorder) renews() bool {
	for _, o := range r.ops {
		if _, ok := o.row.(*daemon.Lease); ok {
			return true
		}
	}
	return false
}

// Heal forgets the faults that the host's daemon was still to suffer.
func (h *Host) Heal() {
	h.proc.store.faults, h.proc.store.blocked, h.blocker = nil, false, ""
}
