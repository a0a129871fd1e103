package daemon

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
)

// maxFireRows bounds what one Step writes into the ledger, so that a Step after
// a year of silence stays far below the attempt limit.
const maxFireRows = 2 * maxSingles

// fireAll decides what is due, schedule by schedule (L6: not in doubt, not while
// the leash of a deposed holder may last, not when asked to stop).
func (t *turn) fireAll(ctx context.Context, tx Tx) error {
	if !t.mayFire() {
		return nil
	}
	cordons, err := loadCordons(ctx, tx)
	if err != nil {
		return err
	}
	for _, reg := range t.registry.list {
		if !reg.ripe(t.now.Ms()) || t.ledger >= maxFireRows {
			continue
		}
		row, found, err := Schedules.Get(ctx, tx, reg.row.Name)
		if err != nil {
			return err
		}
		if !found || row.Version != reg.row.Version || !row.Enabled {
			t.keep(reg.orphaned()) // edited: the reload decides what is due from here
			continue
		}
		if err := t.fireOne(ctx, tx, reg, row, cordons, ""); err != nil {
			return err
		}
	}
	return nil
}

// orphaned returns r as it stands until the next reload: the store has another
// version of it, or none.
func (r registration) orphaned() registration {
	r.broken, r.next = "edited since it was read", 0
	return r
}

func (t *turn) mayFire() bool {
	d := t.d
	doubt := d.tenure.doubt && t.renewal == nil
	late := t.renewal == nil && t.now.Boot >= d.leash(d.tenure.known.start).TermAt
	return t.derived && (d.role == Active || t.ready) && d.stop.level == 0 && !doubt && !late &&
		d.leashWait(t.now.Boot) == 0 && CheckWall(t.now.Wall) == nil
}

// fireOne decides what is due of one schedule whose row is row. absent is why
// nothing of it may start.
func (t *turn) fireOne(ctx context.Context, tx Tx, reg registration, row Schedule, cordons []Cordon, absent string) error {
	reg = reg.decided(row.DecidedMs)
	if reg.ahead(t.now.Ms()) {
		if err := t.void(ctx, tx, reg); err != nil {
			return err
		}
		reg = reg.decided(t.now.Ms())
	}
	f, err := t.fireFacts(ctx, tx, row, cordons)
	if err != nil {
		return err
	}
	f.absent = absent
	at := reg.row.DecidedMs
	for _, fire := range reg.decideFires(f) {
		if err := t.enter(ctx, tx, reg, fire); err != nil {
			return err
		}
		at = max(at, fire.InstantMs)
	}
	row.DecidedMs = at
	t.keep(reg.decided(at))
	return Schedules.Put(ctx, tx, row)
}

func (t *turn) fireFacts(ctx context.Context, tx Tx, row Schedule, cordons []Cordon) (f fireFacts, err error) {
	f = fireFacts{now: t.now, window: t.d.window()}
	if len(cordons) > 0 {
		f.cordoned = "cordon " + cordons[0].Reason + " by " + cordons[0].By
	}
	mine, err := Jobs.Scan(ctx, tx, Query{By: "jobs_schedule", Equal: []any{row.Name}, Limit: maxLive})
	if err != nil {
		return f, err
	}
	for _, j := range mine {
		f.live = &j
		if j.State == Queued {
			f.waiting = &j
		}
	}
	return f, nil
}

// enter writes one row of the ledger, and the job that goes with it. A row that
// is there already was decided when the clock was ahead: one that fired stands,
// another is void.
func (t *turn) enter(ctx context.Context, tx Tx, reg registration, f Fire) error {
	f.Epoch = t.d.tenure.known.epoch
	old, there, err := Fires.Get(ctx, tx, f.Schedule, int64(f.InstantMs))
	if err != nil || there && old.Outcome == Fired {
		return err
	}
	var j Job
	if f.Outcome == Fired {
		last, _, err := Jobs.First(ctx, tx, Query{By: "jobs_number", Desc: true})
		if err != nil {
			return err
		}
		id, attempt := NewID("job", t.now.Wall, t.d.chance), NewID("att", t.now.Wall, t.d.chance)
		j = reg.jobOf(f, id, attempt, t.d.cfg.Identity, t.now.Ms(), last.Number+1)
		if f, j, err = t.admit(ctx, tx, f, j, reg.row.Job); err != nil {
			return err
		}
	}
	t.count(f)
	if err := Fires.Put(ctx, tx, f); err != nil || f.Outcome != Fired {
		return err
	}
	_, err = Jobs.Insert(ctx, tx, j)
	return err
}

func (t *turn) count(f Fire) {
	t.ledger++
	switch f.Outcome {
	case Fired:
		t.fired++
	case Missed:
		t.missed++
		t.unfired++
	default:
		t.unfired++
	}
}

// admit looks whether the job of f may join the queue, as a request of the same
// job would be looked at, and says in f why it may not.
func (t *turn) admit(ctx context.Context, tx Tx, f Fire, j Job, asked EnqueueRequest) (Fire, Job, error) {
	f.Job = j.ID
	if j.DedupKey != "" {
		other, err := found(Jobs.First(ctx, tx, Query{By: "jobs_dedup", Equal: []any{j.DedupKey}}))
		if err != nil {
			return f, j, err
		}
		if other != nil {
			f.Outcome, f.Job = Overlapped, ""
			f.Reason = "job " + other.ID + " with the same dedup key had not ended"
			return f, j, nil
		}
	}
	limits, err := loadJobLimits(ctx, tx, asked)
	if err != nil {
		return f, j, err
	}
	r, refusal := asked.normal() // an older or newer exocomp may have stored what this one refuses
	if refusal == nil {
		refusal = limits.check()
	}
	if e, ok := errors.AsType[*Error](refusal); ok {
		f.Outcome, f.Job, f.Reason = Refused, "", e.Msg
	}
	j.TimeoutMs, j.GraceMs = cmp.Or(asked.TimeoutMs, limits.timeoutMs), cmp.Or(limits.graceMs, r.GraceMs)
	return f, j, nil
}

// void takes back what was decided for instants that lie ahead of the clock
// (S11). What fired stays: nothing fires twice.
func (t *turn) void(ctx context.Context, tx Tx, reg registration) error {
	now := t.now.Ms()
	rows, err := Fires.Scan(ctx, tx, Query{Equal: []any{reg.row.Name}, After: []any{now}, Limit: 2 * maxSingles})
	if err != nil {
		return err
	}
	for _, f := range rows {
		if f.Outcome == Fired {
			continue
		}
		t.ledger++
		if err := Fires.Delete(ctx, tx, f.Schedule, int64(f.InstantMs)); err != nil {
			return err
		}
	}
	many, err := Fires.Scan(ctx, tx, Query{By: "fires_until", Equal: []any{reg.row.Name}, After: []any{now + 1, int64(math.MaxInt64)}, Limit: maxSingles})
	if err != nil {
		return err
	}
	for _, f := range many {
		f.UntilMs = now + 1
		if err := Fires.Put(ctx, tx, f); err != nil {
			return err
		}
	}
	return nil
}

// keep puts reg into the turn's copy of the registry.
func (t *turn) keep(reg registration) {
	i, ok := t.registry.find(reg.row.Name)
	if !ok {
		return
	}
	if !t.reloaded && !t.copied {
		t.registry.list, t.copied = slices.Clone(t.registry.list), true
	}
	t.registry.list[i] = reg
}

// settle decides everything of a schedule up to now, before it is edited or
// removed: an instant belongs to the version that was in force when it was due.
func (t *turn) settle(ctx context.Context, tx Tx, row Schedule) error {
	reg := register(row)
	if reg.broken != "" || !row.Enabled {
		return nil
	}
	reg.jitter = 0 // what waits for its jitter is decided now
	absent := "edited before it was decided, and this version was not read by a reload"
	if i, ok := t.registry.find(row.Name); ok && t.registry.list[i].row.Version == row.Version {
		absent = ""
		if !t.mayFire() {
			absent = "edited before it was decided"
		}
	}
	cordons, err := loadCordons(ctx, tx)
	if err != nil {
		return err
	}
	return t.fireOne(ctx, tx, reg, row, cordons, absent)
}

// unfire notes that the job of a fire was cut off before it started.
func (t *turn) unfire(ctx context.Context, tx Tx, j Job) error {
	if j.Schedule == "" || j.DueMs == 0 {
		return nil
	}
	f, found, err := Fires.Get(ctx, tx, j.Schedule, int64(j.DueMs))
	if err != nil || !found || f.Job != j.ID {
		return err
	}
	f.Outcome, f.Reason, f.AtMs = Missed, "its job was cut off before it started: "+j.Reason, t.now.Ms()
	return Fires.Put(ctx, tx, f)
}
