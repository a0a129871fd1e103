package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A daemon without the lease watches the row. It reads no job, writes nothing
// but the one compare-and-set that takes the lease, and refuses every command.

// errOvertaken says that the row changed between the look and the grab.
var errOvertaken = errors.New("the lease row changed while it was being taken")

func (d *Daemon) stepWatch(ctx context.Context, now Instant) ([]Effect, error) {
	effects := d.answerAll(d.notActive())
	if d.stop.level > 0 {
		d.log.Info("stopping: the lease was not held", "why", d.stop.why)
		return append(effects, d.leave(0, "stopped while watching")...), nil
	}
	if err := CheckWall(now.Wall); err != nil {
		return append(effects, d.leave(MeaningOf(BadConfig).Exit, err.Error()+"\n  "+RemedyOf(err))...), nil
	}
	if now.Boot < d.retry {
		return effects, nil
	}
	if err := d.look(ctx); err != nil {
		return effects, err
	}
	if g, mine := d.ownGrab(); mine {
		if now.Boot < g.start.Add(d.cfg.Terms.Trust()) {
			return append(effects, d.granted(now, g, "its answer had been lost")...), nil
		}
		d.sight.moved = false // too old to be trusted, but nobody else's
	}
	g := decideGrant(now.Boot, d.cfg.Identity, d.cfg.Terms, d.cfg.Standby, d.sight)
	switch {
	case g.refuse:
		err := d.refusal(now)
		d.log.Error("refused: "+err.Msg, "remedy", err.Remedy)
		return append(effects, d.leave(MeaningOf(Held).Exit, err.Msg+"\n  "+err.Remedy)...), nil
	case g.take:
		got, err := d.acquire(ctx, now, g.why)
		return append(effects, got...), err
	}
	return effects, nil
}

// look brings the sighting up to date.
func (d *Daemon) look(ctx context.Context) error {
	v, err := d.store.Version(ctx)
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	if d.looked && v == d.version {
		return nil // nobody has written anything since
	}
	row, err := d.readLease(ctx)
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	first := !d.sight.seen
	d.sight = d.sight.look(row, d.clock.Boot()) // read after the row: too late only waits longer
	d.version, d.looked = v, true
	if first && row.State == LeaseHeld {
		d.log.Info("watching the lease", "holder", row.Holder, "host", row.Host, "epoch", row.Epoch,
			"takeable_in", d.sight.patience(d.cfg.Terms), "standby", d.cfg.Standby)
	}
	return nil
}

func (d *Daemon) readLease(ctx context.Context) (row Lease, err error) {
	err = d.store.View(ctx, func(r Reader) error {
		var found bool
		if row, found, err = Leases.Get(ctx, r, 1); err == nil && !found {
			err = Errorf(BadConfig, "the store has no lease row: it was not made by exocomp init").
				Hint("restore the store from a backup")
		}
		return err
	})
	return row, err
}

// grab is one try at taking the lease, and the row that it was to replace.
type grab struct {
	attempt
	prior Lease
}

// acquire takes the lease by compare-and-set on what was seen (L2).
func (d *Daemon) acquire(ctx context.Context, now Instant, why string) ([]Effect, error) {
	seen := d.sight.row
	g := grab{prior: seen, attempt: attempt{epoch: seen.Epoch + 1, seq: seen.Seq + 1,
		stamp: newStamp(d.chance), start: now.Boot}}
	err := d.store.Update(ctx, Guard{}, func(tx Tx) error {
		row, _, err := Leases.Get(ctx, tx, 1)
		if err != nil {
			return err
		}
		if row.Epoch != seen.Epoch || row.Seq != seen.Seq || row.Stamp != seen.Stamp || row.State != seen.State {
			return errOvertaken
		}
		return Leases.Put(ctx, tx, row.taken(now, d.cfg.Identity, d.cfg.Terms, g.stamp))
	})
	d.looked = false
	switch {
	case errors.Is(err, errOvertaken):
		return nil, nil
	case err != nil:
		d.grants = append(d.grants, g)
		if n := len(d.grants); n > 64 {
			d.grants = d.grants[n-64:]
		}
		return nil, fmt.Errorf("take the lease: %w", err)
	}
	return d.granted(now, g, why), nil
}

// ownGrab recognises in the row a try of our own whose answer was lost.
func (d *Daemon) ownGrab() (grab, bool) {
	row := d.sight.row
	for _, g := range d.grants {
		if row.Holder == d.cfg.Identity.Holder && row.State == LeaseHeld && row.Epoch == g.epoch && row.Stamp == g.stamp {
			return g, true
		}
	}
	return grab{}, false
}

// granted begins a term.
func (d *Daemon) granted(now Instant, g grab, why string) []Effect {
	d.prior = g.prior
	if d.prior.State == LeaseHeld {
		d.count.Takeovers++
	}
	d.role, d.grants = Booting, nil
	d.tenure = tenure{}.succeeded(g.attempt, d.cfg.Terms)
	d.epoch, d.live, d.loaded, d.looked = epochMemory{}, nil, false, false
	d.log.Info("active lease acquired", "holder", d.cfg.Identity.Holder, "host", d.cfg.Identity.Host,
		"epoch", g.epoch, "because", why)
	return d.owed(now)
}

// notActive is the answer of a daemon without the lease to a command.
func (d *Daemon) notActive() error {
	e := Errorf(Unavailable, "the daemon on %s is not the active one: it watches the lease", d.cfg.Identity.Host)
	if row := d.sight.row; d.sight.seen && row.State == LeaseHeld {
		return e.Hint("ask the daemon on %s, which holds the lease (epoch %d)", row.Host, row.Epoch)
	}
	return e.Hint("try again in a moment")
}

// refusal explains why this daemon does not start. Both clocks have their say:
// the row's wall clock, which may lie, and our own watch, which decided.
func (d *Daemon) refusal(now Instant) *Error {
	row := d.sight.row
	age := now.Wall.Sub(row.RenewedMs.Time()).Round(100 * time.Millisecond)
	said := fmt.Sprintf("%s ago", age)
	if age < 0 {
		said = fmt.Sprintf("%s in the future of this host's clock", -age)
	}
	return Errorf(Held, "the lease is held by %s on host %s (pid %d, epoch %d), which is alive: "+
		"it renewed while this daemon watched for %s; its last renewal was %s by its own clock",
		row.Holder, row.Host, row.PID, row.Epoch,
		now.Boot.Sub(d.sight.first).Round(100*time.Millisecond), said).
		Hint("one store has one active daemon. Stop that one first, or wait as a standby: exocomp serve --standby")
}
