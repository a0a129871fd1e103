package daemon

import (
	"context"
)

// The commands on schedules, each with what it answers: ScheduleAnswer.
type (
	// PutSchedule adds a schedule, or edits the one that is there.
	PutSchedule struct {
		Request ScheduleRequest
		Actor   string
		Edit    bool
	}
	// DropSchedule removes one. Its ledger stays.
	DropSchedule struct{ Name, Actor string }
	// EnableSchedule lets one fire, or not.
	EnableSchedule struct {
		Name, Actor string
		On          bool
	}
)

func (PutSchedule) command()    {}
func (DropSchedule) command()   {}
func (EnableSchedule) command() {}

// ScheduleAnswer is the schedule after the request, and when that is in force.
type ScheduleAnswer struct {
	Schedule   Schedule `json:"schedule"`
	Generation int64    `json:"effective_generation" doc:"in force when the daemon has read its schedules that often: at the next reload"`
	Effective  string   `json:"effective"`
}

func (t *turn) answer(s Schedule, effective string) ScheduleAnswer {
	return ScheduleAnswer{Schedule: s, Generation: t.registry.generation + 1, Effective: effective}
}

const atReload = "at the next reload: systemctl reload exocomp, or send the daemon SIGHUP"

func (t *turn) putSchedule(ctx context.Context, tx Tx, c PutSchedule) (any, error) {
	r, err := c.Request.normal()
	if err != nil {
		return nil, err
	}
	old, there, err := Schedules.Get(ctx, tx, r.Name)
	if err != nil {
		return nil, err
	}
	n, err := Schedules.Count(ctx, tx, Query{Limit: maxSchedules})
	if err != nil {
		return nil, err
	}
	row, changed, err := decidePut(t.now, c, r, old, there, n)
	if err != nil || !changed {
		return t.answer(row, atReload), err
	}
	if there {
		if err := t.settle(ctx, tx, old); err != nil {
			return nil, err
		}
	}
	return t.answer(row, atReload), Schedules.Put(ctx, tx, row)
}

// decidePut returns the row that answers c, and whether it has to be written: a
// repeated command meets its own row.
func decidePut(now Instant, c PutSchedule, r ScheduleRequest, old Schedule, there bool, n int) (Schedule, bool, error) {
	row := r.schedule()
	row.By, row.ChangedMs, row.DecidedMs = c.Actor, now.Ms(), now.Ms()
	row.Version, row.CreatedMs = 1, now.Ms()
	switch {
	case there && old.sameAs(row):
		return old, false, nil
	case there && !c.Edit:
		return row, false, Errorf(Conflict, "schedule %s is there already, and it is another", r.Name).
			Hint("exocomp schedules edit %s changes it; or take another name", r.Name)
	case !there && c.Edit:
		return row, false, noSuchSchedule(r.Name)
	case !there && n >= maxSchedules:
		return row, false, Errorf(Conflict, "%d schedules are there already: no more are taken", n).
			Hint("remove one, or let one job do more")
	case there && r.Version != 0 && r.Version != old.Version:
		return row, false, Errorf(Conflict, "schedule %s has version %d by now, edited by %s: the edit was made from version %d",
			r.Name, old.Version, old.By, r.Version).Hint("look at it, and edit it again")
	}
	if there {
		row.Version, row.CreatedMs = old.Version+1, old.CreatedMs
	}
	return row, true, nil
}

// sameAs says whether b asks for what a does already.
func (s Schedule) sameAs(b Schedule) bool {
	x, y := s.Request(), b.Request()
	x.Version, y.Version = 0, 0
	return hashOf(x) == hashOf(y)
}

func noSuchSchedule(name string) *Error {
	return Errorf(NotFound, "no schedule %.60q in this store", name).Hint("exocomp schedules list shows all")
}

func (t *turn) dropSchedule(ctx context.Context, tx Tx, c DropSchedule, repeat bool) (any, error) {
	row, found, err := Schedules.Get(ctx, tx, c.Name)
	if err != nil {
		return nil, err
	}
	if !found && repeat {
		return t.answer(Schedule{Name: c.Name}, string(AtOnce)), nil
	}
	if !found {
		return nil, noSuchSchedule(c.Name)
	}
	if err := t.settle(ctx, tx, row); err != nil {
		return nil, err
	}
	if err := Schedules.Delete(ctx, tx, c.Name); err != nil {
		return nil, err
	}
	return t.answer(row, string(AtOnce)), t.record(ctx, tx, "schedule.removed", c.Name, "by "+c.Actor)
}

func (t *turn) enableSchedule(ctx context.Context, tx Tx, c EnableSchedule) (any, error) {
	row, found, err := Schedules.Get(ctx, tx, c.Name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, noSuchSchedule(c.Name)
	}
	effective := string(AtOnce)
	if c.On {
		effective = atReload
	}
	if row.Enabled == c.On {
		return t.answer(row, effective), nil
	}
	if err := t.settle(ctx, tx, row); err != nil {
		return nil, err
	}
	row.Enabled, row.Version, row.By = c.On, row.Version+1, c.Actor
	row.ChangedMs, row.DecidedMs = t.now.Ms(), t.now.Ms()
	return t.answer(row, effective), Schedules.Put(ctx, tx, row)
}
