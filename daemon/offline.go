package daemon

import (
	"cmp"
	"context"
)

// Offline is the Client on a store that no daemon of this host serves. It
// reads, and it writes requests to the inbox, where the holder of the lease
// finds them: one on another host at once, one that is yet to start later.
type Offline struct {
	reads
	actor  string
	chance Chance
}

var _ Client = Offline{}

// NewOffline returns an Offline client for actor.
func NewOffline(s Store, logs Logs, c Clock, chance Chance, about About, actor string) Offline {
	return Offline{reads: reads{store: s, logs: logs, clock: c, about: about}, actor: actor, chance: chance}
}

// maxInbox bounds what waits for a daemon that may never come.
const maxInbox = 10_000

func (o Offline) submit(ctx context.Context, id string, c Command) error {
	row, err := newInboxRow(id, o.actor, ReadClock(o.clock).Ms(), c)
	if err != nil {
		return err
	}
	return o.store.Update(ctx, Guard{}, func(tx Tx) error {
		n, err := Inboxes.Count(ctx, tx, Query{Limit: maxInbox})
		if err != nil {
			return err
		}
		if n >= maxInbox {
			return Errorf(Conflict, "%d requests wait in the inbox already: no more are taken", n).
				Hint("start a daemon: exocomp serve")
		}
		_, err = Inboxes.Insert(ctx, tx, row)
		return err
	})
}

// Enqueue implements Client. The job that it answers with has no number yet.
func (o Offline) Enqueue(ctx context.Context, key string, r EnqueueRequest) (Enqueued, error) {
	now := ReadClock(o.clock)
	c, err := newEnqueue(now.Wall, o.chance, o.actor, key, r)
	if err != nil {
		return Enqueued{}, err
	}
	if err := o.submit(ctx, c.ID, c); err != nil {
		return Enqueued{}, err
	}
	j := Job{ID: c.ID, Attempt: c.Attempt, Kind: c.Request.Kind, Spec: c.Request.Spec, State: Queued, Actor: o.actor,
		Trigger: "manual", RootID: c.ID, Reason: "submitted: waits in the inbox for an active daemon",
		CreatedMs: now.Ms(), Labels: c.Request.Labels, Priority: c.Request.Priority, LockKey: c.Request.Lock,
		TimeoutMs: c.Request.TimeoutMs, GraceMs: cmp.Or(c.Request.GraceMs, defGrace.Milliseconds()), Rerun: c.Request.Rerun, DedupKey: c.Request.Dedup}
	return Enqueued{Job: j, Submitted: true}, nil
}

// Job implements Client: a job that waits in the inbox is one, too.
func (o Offline) Job(ctx context.Context, ref string) (Job, error) {
	j, err := o.reads.Job(ctx, ref)
	if CodeOf(err) != NotFound {
		return j, err
	}
	verr := o.store.View(ctx, func(r Reader) error {
		row, ok, err := Inboxes.Get(ctx, r, ref)
		if err != nil || !ok || row.Verb != verbEnqueue {
			return err
		}
		err = Errorf(Conflict, "job %s was submitted and waits in the inbox: no daemon has taken it yet", ref).
			Hint("start a daemon: exocomp serve")
		return err
	})
	if verr != nil {
		return Job{}, verr
	}
	return j, err
}

// Cancel implements Client.
func (o Offline) Cancel(ctx context.Context, ref string) (CancelAnswer, error) {
	j, err := o.Job(ctx, ref)
	if err != nil {
		return CancelAnswer{}, err
	}
	if _, err := decideCancel(ReadClock(o.clock), j, o.actor); err != nil {
		return CancelAnswer{}, err
	}
	c := Cancel{Job: j.ID, Actor: o.actor}
	err = o.submit(ctx, NewID("req", o.clock.Now(), o.chance), c)
	return CancelAnswer{Job: j, Submitted: true}, err
}

// Cordon implements Client.
func (o Offline) Cordon(ctx context.Context, reason, why string) (CordonAnswer, error) {
	if err := checkCordon(reason); err != nil {
		return CordonAnswer{}, err
	}
	return o.cordon(ctx, SetCordon{Reason: reason, Actor: o.actor, Why: why})
}

// Uncordon implements Client.
func (o Offline) Uncordon(ctx context.Context, reason string) (CordonAnswer, error) {
	return o.cordon(ctx, LiftCordon{Reason: reason, Actor: o.actor})
}

func (o Offline) cordon(ctx context.Context, c Command) (CordonAnswer, error) {
	if err := o.submit(ctx, NewID("req", o.clock.Now(), o.chance), c); err != nil {
		return CordonAnswer{}, err
	}
	st, err := o.status(ctx)
	return CordonAnswer{Cordons: st.Cordons, Submitted: true}, err
}

// needsDaemon is the answer to a change that only the holder of the lease can
// decide: an instant may be due that very second.
func needsDaemon(what string) error {
	return Errorf(Unavailable, "%s needs the active daemon, and none answers on this host", what).
		Hint("start one: exocomp serve; or ask the one that exocomp lease names")
}

// AddSchedule implements Client.
func (o Offline) AddSchedule(context.Context, ScheduleRequest) (ScheduleAnswer, error) {
	return ScheduleAnswer{}, needsDaemon("adding a schedule")
}

// EditSchedule implements Client.
func (o Offline) EditSchedule(context.Context, ScheduleRequest) (ScheduleAnswer, error) {
	return ScheduleAnswer{}, needsDaemon("editing a schedule")
}

// RemoveSchedule implements Client.
func (o Offline) RemoveSchedule(context.Context, string) (ScheduleAnswer, error) {
	return ScheduleAnswer{}, needsDaemon("removing a schedule")
}

// EnableSchedule implements Client.
func (o Offline) EnableSchedule(context.Context, string, bool) (ScheduleAnswer, error) {
	return ScheduleAnswer{}, needsDaemon("enabling or disabling a schedule")
}

// Status implements Client.
func (o Offline) Status(ctx context.Context) (Status, error) { return o.status(ctx) }

// Lease implements Client.
func (o Offline) Lease(ctx context.Context) (LeaseReport, error) {
	st, err := o.status(ctx)
	return st.Lease, err
}
