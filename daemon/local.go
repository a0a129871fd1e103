package daemon

import (
	"context"
	"time"
)

// Local is the Client inside the daemon's own process: a write is an event with
// a reply, a read is a View.
type Local struct {
	reads
	who    Principal
	ask    func(ctx context.Context, c Command) (any, error)
	snap   func() *Snapshot
	chance Chance
}

var _ Client = Local{}

// Desk is what a Local needs of its daemon.
type Desk struct {
	Store    Store
	Logs     Logs
	Clock    Clock
	Chance   Chance
	About    About
	Ask      func(ctx context.Context, c Command) (any, error)
	Snapshot func() *Snapshot
	Pause    Pause // of who follows events; nil: nobody can
}

// For returns the Client of one principal.
func (k Desk) For(who Principal) Local {
	return Local{reads: reads{store: k.Store, logs: k.Logs, clock: k.Clock, about: k.About, pause: k.Pause},
		who: who, ask: k.Ask, snap: k.Snapshot, chance: k.Chance}
}

func tell[T any](ctx context.Context, l Local, c Command) (T, error) {
	result, err := l.ask(ctx, c)
	if err != nil {
		var none T
		return none, err
	}
	return result.(T), nil
}

// Enqueue implements Client. What can be refused without the store is refused
// here, before an id is drawn.
func (l Local) Enqueue(ctx context.Context, key string, r EnqueueRequest) (Enqueued, error) {
	c, err := newEnqueue(l.clock.Now(), l.chance, l.who.Actor, key, r)
	if err != nil {
		return Enqueued{}, err
	}
	if l.who.Job != nil {
		c.Parent = l.who.Job.ID
	}
	return tell[Enqueued](ctx, l, c)
}

func newEnqueue(now time.Time, chance Chance, actor, key string, r EnqueueRequest) (Enqueue, error) {
	asked := r.GraceMs
	r, err := r.normal()
	if err == nil {
		err = checkKey(key)
	}
	if err != nil {
		return Enqueue{}, err
	}
	r.GraceMs = asked // the Step knows which default holds
	return Enqueue{ID: NewID("job", now, chance), Attempt: NewID("att", now, chance), Actor: actor,
		IdemKey: key, Request: r}, nil
}

// Cancel implements Client.
func (l Local) Cancel(ctx context.Context, ref string) (CancelAnswer, error) {
	j, err := l.Job(ctx, ref)
	if err != nil {
		return CancelAnswer{}, err
	}
	j, err = tell[Job](ctx, l, Cancel{Job: j.ID, Actor: l.who.Actor})
	return CancelAnswer{Job: j}, err
}

// Cordon implements Client.
func (l Local) Cordon(ctx context.Context, reason, why string) (CordonAnswer, error) {
	all, err := tell[[]Cordon](ctx, l, SetCordon{Reason: reason, Actor: l.who.Actor, Why: why})
	return CordonAnswer{Cordons: all}, err
}

// Uncordon implements Client.
func (l Local) Uncordon(ctx context.Context, reason string) (CordonAnswer, error) {
	all, err := tell[[]Cordon](ctx, l, LiftCordon{Reason: reason, Actor: l.who.Actor})
	if all == nil {
		all = []Cordon{}
	}
	return CordonAnswer{Cordons: all}, err
}

// AddSchedule implements Client.
func (l Local) AddSchedule(ctx context.Context, r ScheduleRequest) (ScheduleAnswer, error) {
	return tell[ScheduleAnswer](ctx, l, PutSchedule{Request: r, Actor: l.who.Actor})
}

// EditSchedule implements Client.
func (l Local) EditSchedule(ctx context.Context, r ScheduleRequest) (ScheduleAnswer, error) {
	return tell[ScheduleAnswer](ctx, l, PutSchedule{Request: r, Actor: l.who.Actor, Edit: true})
}

// RemoveSchedule implements Client.
func (l Local) RemoveSchedule(ctx context.Context, name string) (ScheduleAnswer, error) {
	return tell[ScheduleAnswer](ctx, l, DropSchedule{Name: name, Actor: l.who.Actor})
}

// EnableSchedule implements Client.
func (l Local) EnableSchedule(ctx context.Context, name string, on bool) (ScheduleAnswer, error) {
	return tell[ScheduleAnswer](ctx, l, EnableSchedule{Name: name, Actor: l.who.Actor, On: on})
}

// Schedules implements Client. The daemon knows which edits are not yet in force.
func (l Local) Schedules(ctx context.Context) (ScheduleList, error) {
	list, err := l.reads.Schedules(ctx)
	s := l.snap()
	if err != nil || !s.Holds() {
		return list, err
	}
	list.Generation = s.Generation
	for i, v := range list.Schedules {
		list.Schedules[i].Pending = v.Enabled && s.InForce[v.Name] != v.Version
	}
	return list, nil
}

// Schedule implements Client.
func (l Local) Schedule(ctx context.Context, name string) (ScheduleView, error) {
	v, err := l.reads.Schedule(ctx, name)
	if s := l.snap(); err == nil && s.Holds() {
		v.Pending = v.Enabled && s.InForce[v.Name] != v.Version
	}
	return v, err
}

// Status implements Client.
func (l Local) Status(ctx context.Context) (Status, error) {
	st, err := l.status(ctx)
	if err != nil {
		return st, err
	}
	s, boot := l.snap(), l.clock.Boot()
	st.Daemon = s.status(boot)
	st.Lease = s.report(st.Lease, boot)
	return st, nil
}

// Lease implements Client.
func (l Local) Lease(ctx context.Context) (LeaseReport, error) {
	st, err := l.Status(ctx)
	return st.Lease, err
}

func (s *Snapshot) status(boot Boottime) *DaemonStatus {
	return &DaemonStatus{
		Host: s.Identity.Host, PID: s.Identity.PID, Incarnation: s.Identity.Incarnation, Role: s.Role,
		Ready: s.Ready(boot), Doubt: s.Doubt, Trouble: s.Trouble, LeashPartial: s.Partial, Stopping: s.StopWhy, Keeper: s.Keeper, Unacked: s.Unacked,
		Running: s.Running, Limit: s.Limit, Waiting: s.Waiting, NextWake: s.Wake.Why,
		NextWakeMs: max(0, s.Wake.At.Sub(boot).Milliseconds()), Counters: s.Counters,
	}
}

// forever is the trust left on a store of a single host: a century.
const forever = 100 * 365 * 24 * time.Hour

// Ready says whether the daemon is the active one, as far as its trust goes.
func (s *Snapshot) Ready(boot Boottime) bool { return s.Role == Active && boot < s.TrustUntil }

func (s *Snapshot) report(r LeaseReport, boot Boottime) LeaseReport {
	r.HeldHere = s.Holds() && r.Holder == s.Identity.Holder && r.Epoch == s.Epoch
	r.Trouble = s.Trouble
	r.Missed, r.ClockSteps, r.FencedWrites = s.Missed, s.Counters.ClockSteps, s.Counters.FencedWrites
	if s.Holds() {
		r.TrustLeftMs = max(0, min(s.TrustUntil.Sub(boot), forever).Milliseconds())
	}
	if s.Holds() && s.LeashUntil > boot {
		r.LeashWaitMs = s.LeashUntil.Sub(boot).Milliseconds()
	}
	if s.Role == Watching && r.State == LeaseHeld && s.TakeableAt > boot {
		r.TakeableInMs = s.TakeableAt.Sub(boot).Milliseconds()
	}
	return r
}
