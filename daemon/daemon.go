// Package daemon is the exocomp control plane without its I/O.
//
// A Daemon holds no goroutine, opens no file and waits for nothing. It is told
// what happened (Events), decides inside one transaction of its Store, and
// answers with what must now be done in the world (Effects). Loop drives it in
// production; package sim drives the same code in a simulated world.
//
// Read ports.go, event.go, lease.go, job.go, then this file, turn.go and
// owed.go.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
)

// Config is what an operator decides about one daemon, and what its host says
// of itself.
type Config struct {
	Identity   Identity
	Terms      Terms
	Standby    bool              // watch for ever rather than refuse
	SingleHost bool              // no other host may take this store: lapsed trust is only doubt (L22)
	Force      Force             // take the lease from whom the operator names
	Limit      int               // jobs at once
	DrainGrace time.Duration     // from a Stop to the end of what runs
	Poll       time.Duration     // P: how often a waiting daemon looks at the store
	Env        map[string]string // EXOCOMP_* that every job gets
	// ReloadEvery is how often the schedules are read again unasked; 0 is never.
	ReloadEvery time.Duration
}

// Check refuses a Config that cannot work.
func (c Config) Check() error {
	if c.Limit < 1 || c.Limit > 10_000 {
		return Errorf(Usage, "%d jobs at once: it must be between 1 and 10000", c.Limit).
			Hint("leave --jobs out for the number of cores")
	}
	if c.DrainGrace < 0 || c.DrainGrace > 24*time.Hour {
		return Errorf(Usage, "drain grace %s: it must be between 0 and 24h", c.DrainGrace).
			Hint("leave --drain-grace out for 30s")
	}
	if c.ReloadEvery != 0 && c.ReloadEvery < time.Second {
		return Errorf(Usage, "reload interval %s: it must be 0 (never), or at least 1s", c.ReloadEvery).
			Hint("leave --reload-interval out: then SIGHUP reloads")
	}
	if err := c.Force.Check(); err != nil {
		return err
	}
	return c.Terms.Check()
}

// Role is what a daemon is to the lease.
type Role string

// The roles. Doubt is not one of them: it is Active with a renewal missed.
const (
	Watching  Role = "watching"  // without the lease
	Booting   Role = "booting"   // lease held, not ready: no claim, no fire
	Active    Role = "active"    // READY
	Releasing Role = "releasing" // asked to stop: drains, then releases
	Fenced    Role = "fenced"    // trust is over: no write, no effect but the end
	Gone      Role = "gone"      // the exit is on its way
)

// Daemon decides. It is not safe for concurrent use.
//
// What it remembers of the store (live, tenure, swept) changes only after a
// commit that is known to have happened; after any error it is dropped and read
// again.
type Daemon struct {
	cfg    Config
	clock  Clock
	store  Store
	site   Site
	chance Chance
	log    *slog.Logger

	role   Role
	sight  sighting
	grants []grab // tries at taking the lease whose answer was lost
	rival  string // the holder because of which this host's jobs were last killed
	prior  Lease  // the row that the last grant took over
	tenure tenure
	epoch  epochMemory
	notes  []Happening // for the store's history, written by the next turn

	leashUntil Boottime // taken by force: the old holder's leash is over then
	live       []Job    // rows that may have a process, as last committed
	loaded     bool     // live is known
	queue      queue
	registry   registry // the schedules in force
	reload     string   // why the schedules are to be read again; "" nobody asked
	keeper     keeperView
	stop       stopping
	version    uint64 // of the store, when it was last looked at
	looked     bool   // the inbox was empty at that version
	clocks     clockWatch
	trouble    string // why the store was last not written, until it is again
	count      Counters
	next       Wakeup
	retry      Boottime // after a failed Step: not before
}

// epochMemory is what the holder did in this epoch.
type epochMemory struct {
	opened bool   // the first guarded transaction of the epoch is committed
	doomed int64  // see metaDoomed
	after  int64  // sweep: number of the last queued row looked at
	cut    int64  // jobs of earlier epochs that were cut off
	jobKey []byte // see MetaJobKey
}

// stopping is how far a Stop has gone.
type stopping struct {
	level    int // 0 none, 1 drain, 2 TERM with grace, 3 KILL
	why      string
	deadline Boottime // of level 1
	giveUp   Boottime // exit without a release
	failed   bool     // nobody asked: this daemon cannot go on
}

// Counters count what an operator asks about after a bad night.
type Counters struct {
	Steps        int64 `json:"steps"`
	FailedSteps  int64 `json:"failed_steps"`
	Missed       int64 `json:"missed_renewals"`
	ClockSteps   int64 `json:"clock_steps"`
	Gaps         int64 `json:"loop_gaps"`
	FencedWrites int64 `json:"fenced_writes"`
	Takeovers    int64 `json:"takeovers"`
	SetAside     int64 `json:"events_set_aside"`
	Started      int64 `json:"jobs_started"`
	Ended        int64 `json:"jobs_ended"`
	Fired        int64 `json:"schedules_fired"`
	Unfired      int64 `json:"schedules_not_fired" doc:"instants that were decided and started no job: missed, overlap, cordoned, gap, refused"`
}

// Wakeup is when a daemon next wants a Step, and why.
type Wakeup struct {
	At  Boottime
	Why string
}

// Needs are the ports that a Daemon reads from while it decides.
type Needs struct {
	Clock  Clock
	Store  Store
	Site   Site
	Chance Chance
	Log    *slog.Logger
}

// New returns a Daemon that wants its first Step at once.
func New(cfg Config, n Needs) *Daemon {
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	d := &Daemon{cfg: cfg, clock: n.Clock, store: n.Store, site: n.Site, chance: n.Chance, log: n.Log, role: Watching}
	d.next = Wakeup{At: n.Clock.Boot(), Why: "start"}
	return d
}

// Next reports when the Daemon wants a Wake if nothing else happens before.
func (d *Daemon) Next() Wakeup { return d.next }

// Role reports what the daemon is to the lease.
func (d *Daemon) Role() Role { return d.role }

// AttemptLimit is A: how long a Step may take before it counts as failed.
func (d *Daemon) AttemptLimit() time.Duration { return d.cfg.Terms.Attempt() }

// Step takes what happened, commits the decision it leads to, and returns what
// must now be done. The effects are owed by what was committed: a caller that
// dies before it performed them leaves them to the next Step.
//
// After an error nothing is known to be committed. The events are kept, and the
// next Step tries them again.
func (d *Daemon) Step(ctx context.Context, events ...Event) ([]Effect, error) {
	now := ReadClock(d.clock) // the one reading that decides
	d.count.Steps++
	d.observe(now)
	for _, ev := range events {
		d.take(now, ev)
	}
	effects, err := d.act(ctx, now)
	if err != nil {
		d.count.FailedSteps++
		d.retry = now.Boot.Add(min(d.cfg.Poll, d.cfg.Terms.Renew/4))
		err = fmt.Errorf("step of %s: %w", d.role, err)
	}
	d.next = d.plan(now)
	return effects, err
}

func (d *Daemon) act(ctx context.Context, now Instant) ([]Effect, error) {
	switch d.role {
	case Watching:
		return d.stepWatch(ctx, now)
	case Booting, Active, Releasing:
		return d.stepHold(ctx, now)
	}
	return d.answerAll(d.gone()), nil
}

// take files one event: what only this incarnation needs to know goes to
// memory, the rest waits for a transaction.
func (d *Daemon) take(now Instant, ev Event) {
	switch ev := ev.(type) {
	case Wake:
	case Poke:
		d.looked = false
	case Reload:
		d.reload = ev.Why
		d.log.Info("asked to reload the schedules", "why", ev.Why)
	case Stop:
		d.takeStop(now, ev)
	case Listed:
		d.takeListed(now, ev)
	case Extended:
		if ev.Instance == d.keeper.instance {
			d.keeper.acked = max(d.keeper.acked, ev.Seq)
		}
	case KeeperLost:
		d.takeKeeperLost(now, ev)
	case Started, StartFailed, Exited, Asked:
		d.queue.push(ev)
	default:
		panic(fmt.Sprintf("unknown event %T", ev))
	}
}

func (d *Daemon) takeStop(now Instant, ev Stop) {
	d.stop.level++
	d.stop.why = ev.Why
	if d.stop.level > 1 {
		d.log.Info("asked to stop again: in a hurry now", "why", ev.Why, "level", d.stop.level)
		d.stop.deadline = min(d.stop.deadline, now.Boot)
	} else {
		d.stop.deadline = now.Boot.Add(d.cfg.DrainGrace)
		if d.role == Active || d.role == Booting {
			d.role = Releasing
			d.log.Info("stopping: no new jobs; what runs may end within the drain grace, then it is cut off",
				"why", ev.Why, "running", len(d.live), "drain_grace", d.cfg.DrainGrace)
		}
	}
	d.stop.giveUp = d.stop.deadline.Add(stopBound)
}

// stopBound is how long after the drain grace a daemon tries to see its jobs
// dead and its lease released before it leaves without.
const stopBound = 30 * time.Second

// stopGrace is the most that a job gets between TERM and KILL when the daemon
// stops: a supervisor waits no longer.
const stopGrace = 5 * time.Second

// stepHold is a Step with the lease.
func (d *Daemon) stepHold(ctx context.Context, now Instant) ([]Effect, error) {
	if d.lapsed(now.Boot) {
		if d.role == Booting {
			return d.startOver(now)
		}
		return d.fence(now, d.lapse(), nil), nil
	}
	if left := d.leashWait(now.Boot); d.stop.level > 0 && left > 0 {
		// A release would let the next one in without that wait.
		return d.leave(0, fmt.Sprintf("stopped in the leash wait, %s before its end: the lease stays held", left.Round(time.Second))), nil
	}
	if d.stop.level > 0 && now.Boot >= d.stop.giveUp {
		return d.leave(1, "stopped without releasing the lease: job processes or the store did not end in time"), nil
	}
	if d.stop.level == 1 && now.Boot >= d.stop.deadline {
		d.stop.level = 2
		d.log.Info("drain grace is over: ending what still runs", "running", len(d.live))
	}
	t := d.newTurn(ctx, now)
	if !t.worthwhile() {
		return d.owed(now), nil
	}
	var err error
	if t.renewal != nil {
		err = d.ground(ctx)
	}
	if err == nil {
		err = d.update(ctx, t)
	}
	switch {
	case CodeOf(err) == StoodDown:
		return d.fence(now, err.Error(), nil), nil
	case errors.Is(err, ErrFenced), errors.Is(err, errMoved):
		row := d.peek(ctx)
		if d.role == Releasing && row != nil && row.State == LeaseReleased && row.Epoch == d.tenure.known.epoch {
			return append(d.answerAll(d.gone()), d.released()...), nil // our own, its answer lost
		}
		d.count.FencedWrites++
		return d.fence(now, err.Error(), row), nil
	case errors.Is(err, errLapsed):
		d.count.FencedWrites++
		return d.fence(now, err.Error(), nil), nil
	case err != nil:
		err = d.diagnose(err)
		return d.failed(t, err), err
	}
	return d.committed(t), nil
}

func (d *Daemon) update(ctx context.Context, t *turn) error {
	guard := Guard{Holder: d.cfg.Identity.Holder, Epoch: d.tenure.known.epoch}
	if !d.epoch.opened && !t.alone {
		err := d.store.Migrate(ctx, guard, func(tx Tx) error { return t.beat(ctx, tx) })
		for _, a := range t.beats {
			d.tenure = d.tenure.failed(a)
		}
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		if len(t.beats) > 0 {
			d.tenure, t.renewal = d.tenure.succeeded(t.beats[len(t.beats)-1], d.cfg.Terms), nil
		}
	}
	return d.store.Update(ctx, guard, func(tx Tx) error { return t.run(ctx, tx) })
}

// failed keeps everything as it was before the turn, but for what the failure
// itself tells.
func (d *Daemon) failed(t *turn, err error) []Effect {
	d.loaded = false
	if t.renewal != nil {
		d.tenure = d.tenure.failed(*t.renewal)
		d.count.Missed++
		d.log.Warn("lease renewal failed: in doubt, no job starts", "err", err,
			"missed", d.tenure.missed, "trust_left", d.tenure.until.Sub(t.now.Boot).Round(time.Millisecond))
	}
	for _, p := range d.queue.failed(t.batch) {
		d.count.SetAside++
		d.remember("event.set_aside", fmt.Sprintf("%T", p.ev), err.Error())
		d.log.Error("event set aside: it failed three times alone", "event", fmt.Sprintf("%T", p.ev), "err", err)
		if a, ok := p.ev.(Asked); ok && a.Reply != nil {
			return []Effect{Reply{To: a.Reply, Err: Errorf(TimedOut,
				"the store failed three times at this request, which was set aside; whether it was done is not known: %w", err).
				Hint("ask again with the same idempotency key; see the daemon's log for the store")}}
		}
	}
	return nil
}

// lapse says why trust ran out.
func (d *Daemon) lapse() string {
	why := fmt.Sprintf("trust in the lease ran out: no renewal succeeded within %s", d.cfg.Terms.Trust())
	if d.trouble != "" {
		why += "; the last one failed: " + d.trouble
	}
	return why
}

// diagnose adds to a failure of the store what this host knows of its cause, and
// keeps it for whoever asks (L20).
func (d *Daemon) diagnose(err error) error {
	if errors.Is(err, ErrBusy) {
		who := d.site.Blocker()
		if who == "" {
			who = "no process that can be seen from here: look on the other host, or in another container"
		}
		err = fmt.Errorf("%w; the lock is held by %s. No force helps against it: end that process", err, who)
	}
	d.trouble = err.Error()
	return err
}

// committed takes over what the turn decided.
func (d *Daemon) committed(t *turn) []Effect {
	d.trouble = ""
	if t.renewal != nil {
		if d.tenure.doubt {
			d.log.Info("lease renewed: out of doubt", "epoch", t.renewal.epoch, "missed", d.tenure.missed)
			d.remember("lease.doubt", d.cfg.Identity.Host, fmt.Sprintf("%d renewals failed in a row", d.tenure.missed))
		}
		d.tenure = d.tenure.succeeded(*t.renewal, d.cfg.Terms)
	}
	d.queue.succeeded(t.batch)
	d.live, d.loaded = t.live, true
	d.epoch, d.keeper.fresh = t.epoch, d.keeper.fresh && !t.derived
	d.looked = d.looked || t.emptied
	d.notes = d.notes[t.noted:]
	d.registry = t.registry
	if t.reloaded {
		t.tellReload()
	}
	d.count.Started += t.started
	d.count.Fired += t.fired
	d.count.Unfired += t.unfired
	d.count.Ended += t.ended
	d.keeper.forget = append(d.keeper.forget, t.forget...)
	effects := t.replies
	if t.released {
		return append(append(effects, d.answerAll(d.gone())...), d.released()...)
	}
	effects = append(effects, d.owed(t.now)...)
	if t.ready {
		d.role = Active
		d.log.Info("ready", "epoch", d.tenure.known.epoch, "host", d.cfg.Identity.Host, "found", t.found)
		effects = append(effects, Ready{})
	}
	return effects
}

// fence ends this daemon's term without a store write (L11).
func (d *Daemon) fence(now Instant, why string, rival *Lease) []Effect {
	id := d.cfg.Identity
	n := StandDown{At: now.Ms(), Host: id.Host, Holder: id.Holder, Incarnation: id.Incarnation,
		Epoch: d.tenure.known.epoch, Why: why, Jobs: len(d.live)}
	if rival != nil && rival.Holder != id.Holder {
		n.By = fmt.Sprintf("%s on %s, epoch %d", rival.Holder, rival.Host, rival.Epoch)
	}
	d.role = Fenced
	d.log.Error("FENCED: standing down", "why", why, "epoch", n.Epoch, "held_by", n.By, "jobs", n.Jobs)
	effects := append([]Effect{KillAll{}}, d.answerAll(d.gone())...) // the dead first; all else has time
	effects = append(effects, Note{n})
	return append(effects, d.leave(76, "stood down: "+why)...)
}

// startOver is for a daemon whose trust ran out before it was READY: it acted
// on nothing, so it watches and acquires anew like any other (R17).
func (d *Daemon) startOver(now Instant) ([]Effect, error) {
	d.log.Warn("trust ran out while booting: watching again", "epoch", d.tenure.known.epoch)
	d.role, d.sight, d.tenure, d.epoch = Watching, sighting{}, tenure{}, epochMemory{}
	d.live, d.loaded, d.keeper = nil, false, keeperView{}
	d.retry = now.Boot
	return []Effect{KillAll{}}, nil
}

// released is the end of a clean stop.
func (d *Daemon) released() []Effect {
	d.log.Info("lease released", "epoch", d.tenure.known.epoch)
	if d.stop.failed {
		return d.leave(1, d.stop.why)
	}
	return d.leave(0, "stopped cleanly: lease released")
}

func (d *Daemon) leave(code int, why string) []Effect {
	if d.role != Fenced {
		d.role = Gone
	}
	return []Effect{Stopping{Why: why}, Leave{Code: code, Why: why}}
}

// peek reads the lease row for a message; nil if it cannot be read.
func (d *Daemon) peek(ctx context.Context) *Lease {
	var row Lease
	err := d.store.View(ctx, func(r Reader) (err error) {
		row, _, err = Leases.Get(ctx, r, 1)
		return err
	})
	if err != nil {
		return nil
	}
	return &row
}

// gone is the answer to whoever asks a daemon that no longer holds the lease.
func (d *Daemon) gone() error {
	return Errorf(Unavailable, "the daemon on %s is ending and takes no more requests", d.cfg.Identity.Host).
		Hint("ask again when a daemon is active: exocomp lease says who holds the store")
}

// answerAll refuses every command that still waits.
func (d *Daemon) answerAll(err error) []Effect {
	var effects []Effect
	for _, p := range d.queue.drop() {
		if a, ok := p.ev.(Asked); ok && a.Reply != nil {
			effects = append(effects, Reply{To: a.Reply, Err: err})
		}
	}
	return effects
}

// lapsed says whether trust in the lease is over. On a store of a single host it
// never is: nobody else may take it, and the lock of this host is ours (L22).
func (d *Daemon) lapsed(boot Boottime) bool { return boot >= d.trustUntil() }

func (d *Daemon) trustUntil() Boottime {
	if d.cfg.SingleHost {
		return math.MaxInt64
	}
	return d.tenure.until
}

// leash returns the leash that goes with an attempt that began at start.
func (d *Daemon) leash(start Boottime) Leash {
	if d.cfg.SingleHost {
		return Leash{TermAt: math.MaxInt64, KillAt: math.MaxInt64, DeadBy: math.MaxInt64}
	}
	return d.cfg.Terms.Leash(start)
}

// ground makes sure that the store and the lock are still the files that were
// opened. One that was removed, moved or replaced is somebody else's by now.
func (d *Daemon) ground(ctx context.Context) error {
	if err := d.store.Usable(ctx); err != nil {
		return err
	}
	return d.site.Holds()
}

// remember puts a line into the store's history, with the next turn.
func (d *Daemon) remember(kind, subject, detail string) {
	if len(d.notes) < maxNotes {
		d.notes = append(d.notes, Happening{Kind: kind, Subject: subject, Detail: detail, AtMs: d.clocks.last.Ms()})
	}
}

// maxNotes bounds what waits for a store that cannot be written.
const maxNotes = 100

// foreign says whether somebody else has committed since the inbox was found
// empty. An unreadable version counts as yes: the transaction will tell.
func (d *Daemon) foreign(ctx context.Context) bool {
	v, err := d.store.Version(ctx)
	if err == nil && d.looked && v == d.version {
		return false
	}
	d.version, d.looked = v, false
	return true
}

// busy says whether a job that this incarnation started may have a process.
func (d *Daemon) busy() bool {
	return slices.ContainsFunc(d.live, func(j Job) bool { return j.Owner == d.cfg.Identity.Incarnation })
}
