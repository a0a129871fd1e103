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
		return append(effects, d.refuse(err)...), nil
	}
	if now.Boot < d.retry {
		return effects, nil
	}
	if err := d.look(ctx); err != nil {
		if code := CodeOf(err); code == BadConfig || code == StoodDown {
			return append(effects, d.refuse(err)...), nil
		}
		return effects, d.diagnose(err)
	}
	effects = append(effects, d.yield()...)
	if g, mine := d.ownGrab(); mine {
		if now.Boot < g.start.Add(d.cfg.Terms.Trust()) {
			g.why += "; its answer had been lost"
			return append(effects, d.granted(now, g)...), nil
		}
		d.sight.moved = false // too old to be trusted, but nobody else's
	}
	g := decideGrant(now, d.wish(), d.sight)
	d.sight.until = g.until
	switch {
	case g.refuse != nil:
		return append(effects, d.refuse(g.refuse)...), nil
	case g.take:
		got, err := d.acquire(ctx, now, g)
		return append(effects, got...), err
	}
	return effects, nil
}

// yield kills what this host's keeper still runs once another daemon holds the
// lease: a keeper that hangs, or was left behind, learns of it from nobody else
// (K5). The predecessor under our own lock is no other: what it left is told apart
// when its keeper has listed it.
func (d *Daemon) yield() []Effect {
	row := d.sight.row
	if row.State != LeaseHeld || row.Holder == d.cfg.Identity.Holder || row.Holder == d.rival || d.cfg.Identity.under(row) {
		return nil
	}
	d.rival = row.Holder
	return []Effect{KillAll{}}
}

func (d *Daemon) wish() wish {
	return wish{me: d.cfg.Identity, terms: d.cfg.Terms, standby: d.cfg.Standby, singleHost: d.cfg.SingleHost, force: d.cfg.Force}
}

// refuse ends a start. If a keeper of this host lives under a lease that is
// another's by now, its jobs end with it (K5).
func (d *Daemon) refuse(err error) []Effect {
	d.log.Error("refused: "+err.Error(), "remedy", RemedyOf(err))
	end := d.leave(MeaningOf(CodeOf(err)).Exit, err.Error()+"\n  "+RemedyOf(err))
	if d.sight.seen && d.sight.row.State == LeaseHeld {
		return append([]Effect{KillAll{}}, end...)
	}
	return end
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
	if err := d.store.Usable(ctx); err != nil {
		return err // it was migrated or replaced while we watched (L18)
	}
	row, err := d.readLease(ctx)
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	first := !d.sight.seen
	d.sight = d.sight.look(row, d.clock.Boot()) // read after the row: too late only waits longer
	d.version, d.looked = v, true
	if first {
		d.announceWatch(row)
	}
	return nil
}

// announceWatch says once what this daemon waits for.
func (d *Daemon) announceWatch(row Lease) {
	if d.cfg.Force.spent(row) {
		d.log.Warn("--force-lease names an epoch that is spent, or never was: forcing nothing",
			"named", d.cfg.Force.Epoch, "epoch", row.Epoch)
	}
	if row.State == LeaseHeld {
		d.log.Info("watching the lease", "holder", row.Holder, "host", row.Host, "epoch", row.Epoch,
			"takeable_in", d.sight.patience(d.cfg.Terms), "standby", d.cfg.Standby)
	}
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
	prior   Lease
	forced  bool
	waitFor Boottime
	why     string
}

// acquire takes the lease by compare-and-set on what was seen (L2).
func (d *Daemon) acquire(ctx context.Context, now Instant, by grant) ([]Effect, error) {
	if err := d.ground(ctx); err != nil {
		return d.refuse(err), nil
	}
	seen := d.sight.row
	g := grab{prior: seen, forced: by.forced, waitFor: by.waitFor, why: by.why, attempt: attempt{epoch: seen.Epoch + 1, seq: seen.Seq + 1,
		stamp: newStamp(d.chance), start: now.Boot}}
	err := d.store.Update(ctx, Guard{}, func(tx Tx) error {
		row, _, err := Leases.Get(ctx, tx, 1)
		if err != nil {
			return err
		}
		if row.Epoch != seen.Epoch || row.Seq != seen.Seq || row.Stamp != seen.Stamp || row.State != seen.State {
			return errOvertaken
		}
		return Leases.Put(ctx, tx, row.taken(now, d.wish(), g.forced, d.firstTTL(seen), g.stamp))
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
		return nil, fmt.Errorf("take the lease: %w", d.diagnose(err))
	}
	return d.granted(now, g), nil
}

// firstTTL is the TTL that is written until the keeper has acknowledged our
// leash: an old keeper of this host may still obey a longer one, and nobody may
// take the row before that is over (L21).
func (d *Daemon) firstTTL(prior Lease) time.Duration {
	if prior.State == LeaseReleased {
		return d.cfg.Terms.TTL
	}
	return max(d.cfg.Terms.TTL, prior.TTL())
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
func (d *Daemon) granted(now Instant, g grab) []Effect {
	d.prior = g.prior
	if d.prior.State == LeaseHeld {
		d.count.Takeovers++
	}
	d.role, d.grants, d.leashUntil, d.trouble = Booting, nil, g.waitFor, ""
	d.tenure = tenure{}.succeeded(g.attempt, d.cfg.Terms)
	d.epoch, d.live, d.loaded, d.looked = epochMemory{}, nil, false, false
	d.registry = registry{generation: d.registry.generation}
	d.log.Info("active lease acquired", "holder", d.cfg.Identity.Holder, "host", d.cfg.Identity.Host,
		"epoch", g.epoch, "because", g.why)
	d.remember("lease.acquired", d.cfg.Identity.Host, g.why)
	if g.forced {
		d.remember("lease.forced", d.prior.Host, d.cfg.Force.reason()+" (by "+d.cfg.Force.By+")")
	}
	if left := g.waitFor.Sub(now.Boot); g.waitFor > now.Boot {
		d.log.Warn("taken by force: the old holder's jobs may live on until its leash ends. Nothing is touched before",
			"leash_wait", left.Round(time.Second))
	}
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
