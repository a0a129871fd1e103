package daemon

import (
	"strconv"
	"time"
)

// clockWatch notices when the two clocks disagree about how much time passed,
// and when the loop was away for longer than a renewal.
type clockWatch struct {
	last       Instant
	seen       bool
	suspicious bool // a renewal must succeed before anything else is done (L7)
}

// stepTolerance is how far wall and boot clock may drift apart between two
// Steps before it counts as a step of the wall clock.
const stepTolerance = time.Second

func (d *Daemon) observe(now Instant) {
	w := &d.clocks
	w.suspicious = false
	if w.seen {
		boot := now.Boot.Sub(w.last.Boot)
		wall := now.Wall.Sub(w.last.Wall)
		if diff := wall - boot; diff > stepTolerance || diff < -stepTolerance {
			w.suspicious = true
			d.count.ClockSteps++
			d.log.Warn("the wall clock stepped", "by", diff.Round(time.Millisecond))
			d.remember("clock.step", d.cfg.Identity.Host, diff.Round(time.Millisecond).String())
		}
		if boot > d.cfg.Terms.Renew && d.role != Watching {
			w.suspicious = true
			d.count.Gaps++
			d.log.Warn("the loop was away", "for", boot.Round(time.Millisecond))
		}
	}
	w.last, w.seen = now, true
}

// plan says when the next Step is wanted, and why: the earliest of all reasons.
func (d *Daemon) plan(now Instant) Wakeup {
	next := Wakeup{At: now.Boot.Add(d.cfg.Poll), Why: "poll"}
	sooner := func(at Boottime, why string) {
		if at < d.retry {
			at, why = d.retry, "retry"
		}
		if at < next.At {
			next = Wakeup{At: at, Why: why}
		}
	}
	switch d.role {
	case Watching:
		if d.sight.until != 0 {
			sooner(d.sight.until, "takeover")
		}
	case Booting, Active, Releasing:
		if d.queue.len() > 0 || !d.loaded || d.keeper.fresh {
			sooner(now.Boot, "events wait")
		}
		sooner(d.tenure.tried.Add(d.cfg.Terms.Renew), "renew")
		if d.stop.level == 1 {
			sooner(d.stop.deadline, "drain grace")
		}
		if at, name := d.registry.soonest(); at != 0 && d.mayFire() {
			sooner(max(now.Boot, now.bootAt(at)), "schedule "+name)
		}
		if d.registry.loaded && d.cfg.ReloadEvery > 0 {
			sooner(d.registry.at.Add(d.cfg.ReloadEvery), "reload")
		}
		if d.leashUntil > now.Boot {
			sooner(d.leashUntil, "end of the leash wait")
		}
		next = d.hurry(next)
	}
	return next
}

// hurry makes sure that the end of trust is not slept through, whatever else
// waits.
func (d *Daemon) hurry(next Wakeup) Wakeup {
	if d.tenure.until < next.At && !d.cfg.SingleHost {
		return Wakeup{At: d.tenure.until, Why: "end of trust"}
	}
	settled := d.keeper.instance != "" && d.loaded && d.queue.len() == 0 && d.leashWait(d.clocks.last.Boot) == 0
	if d.role == Booting && settled && d.retry <= d.clocks.last.Boot {
		return Wakeup{At: d.clocks.last.Boot, Why: "sweep"}
	}
	return next
}

// leashWait is how long a forced holder must still leave every job alone (L14).
func (d *Daemon) leashWait(boot Boottime) time.Duration { return max(0, d.leashUntil.Sub(boot)) }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
