package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Events change rows here. A refusal (an *Error) is an answer, not a failure of
// the turn; refusals come before the first write of their command.

func (t *turn) applyEvents(ctx context.Context, tx Tx) error {
	for _, p := range t.d.queue.items[:t.batch] {
		if err := t.apply(ctx, tx, p); err != nil {
			return fmt.Errorf("apply %T: %w", p.ev, err)
		}
	}
	return nil
}

func (t *turn) apply(ctx context.Context, tx Tx, p pending) error {
	switch ev := p.ev.(type) {
	case Started:
		j, ok := t.liveAttempt(ev.Attempt)
		if !ok || ev.Instance != j.Keeper {
			return nil
		}
		if j, ok = decideStarted(j, ev.Attempt, ev.AtMs); !ok {
			return nil
		}
		return t.save(ctx, tx, j)
	case StartFailed:
		t.forget = append(t.forget, ev.Attempt)
		j, ok := t.liveAttempt(ev.Attempt)
		if !ok {
			return nil
		}
		if j, ok = decideStartFailed(t.now, j, ev); !ok {
			return nil
		}
		return t.save(ctx, tx, j)
	case Exited:
		t.forget = append(t.forget, ev.Attempt)
		j, ok := t.liveAttempt(ev.Attempt)
		if !ok {
			return nil
		}
		j, _ = decideExited(j, ev.Exit)
		return t.save(ctx, tx, j)
	case Asked:
		result, err := t.command(ctx, tx, ev.Command, p.repeat)
		if _, refused := errors.AsType[*Error](err); err != nil && !refused {
			return err
		}
		if ev.Reply != nil {
			t.replies = append(t.replies, Reply{To: ev.Reply, Result: result, Err: err})
		}
		return nil
	}
	panic(fmt.Sprintf("event %T does not belong in the queue", p.ev))
}

// command carries out c. A repeated one may be committed already: what it asks
// for is then the case, and that is a success.
func (t *turn) command(ctx context.Context, tx Tx, c Command, repeat bool) (any, error) {
	switch c := c.(type) {
	case Enqueue:
		return t.enqueue(ctx, tx, c)
	case Cancel:
		return t.cancel(ctx, tx, c)
	case SetCordon:
		return t.setCordon(ctx, tx, c)
	case PutSchedule:
		return t.putSchedule(ctx, tx, c)
	case DropSchedule:
		return t.dropSchedule(ctx, tx, c, repeat)
	case EnableSchedule:
		return t.enableSchedule(ctx, tx, c)
	case LiftCordon:
		all, err := t.liftCordon(ctx, tx, c)
		if repeat && err != nil && CodeOf(err) == NotFound {
			return loadCordons(ctx, tx)
		}
		return all, err
	case CreateToken:
		return t.createToken(ctx, tx, c)
	case RevokeToken:
		return t.revokeToken(ctx, tx, c)
	case TouchToken:
		return nil, t.touchToken(ctx, tx, c)
	case SetSetting:
		return t.setSetting(ctx, tx, c)
	}
	panic(fmt.Sprintf("unknown command %T", c))
}

func (t *turn) enqueue(ctx context.Context, tx Tx, c Enqueue) (Enqueued, error) {
	asked := c.Request
	r, err := c.Request.normal()
	if err == nil {
		err = checkKey(c.IdemKey)
	}
	if err != nil {
		return Enqueued{}, err
	}
	c.Request = r
	f, err := t.enqueueFacts(ctx, tx, c)
	if err == nil {
		f.limits, err = loadJobLimits(ctx, tx, asked)
	}
	if err != nil {
		return Enqueued{}, err
	}
	out, fresh, err := decideEnqueue(t.now, t.d.cfg.Identity, t.d.tenure.known.epoch, c, f)
	if err != nil || !fresh {
		return out, err
	}
	if _, err := Jobs.Insert(ctx, tx, out.Job); err != nil {
		return Enqueued{}, err
	}
	return out, nil
}

func (t *turn) enqueueFacts(ctx context.Context, tx Tx, c Enqueue) (f enqueueFacts, err error) {
	if f.own, err = found(Jobs.Get(ctx, tx, c.ID)); err != nil || f.own != nil {
		return f, err
	}
	if c.IdemKey != "" {
		f.idem, err = found(Jobs.First(ctx, tx, Query{By: "jobs_idem", Equal: []any{c.Actor, c.IdemKey}}))
		if err != nil {
			return f, err
		}
	}
	if c.Request.Dedup != "" {
		f.dedup, err = found(Jobs.First(ctx, tx, Query{By: "jobs_dedup", Equal: []any{c.Request.Dedup}}))
		if err != nil {
			return f, err
		}
	}
	if c.Parent != "" {
		if f.parent, err = found(Jobs.Get(ctx, tx, c.Parent)); err != nil {
			return f, err
		}
	}
	last, _, err := Jobs.First(ctx, tx, Query{By: "jobs_number", Desc: true})
	f.last = last.Number
	return f, err
}

func found(j Job, ok bool, err error) (*Job, error) {
	if !ok || err != nil {
		return nil, err
	}
	return &j, nil
}

func (t *turn) cancel(ctx context.Context, tx Tx, c Cancel) (Job, error) {
	j, ok, err := Jobs.Get(ctx, tx, c.Job)
	if err != nil {
		return Job{}, err
	}
	if !ok {
		return Job{}, noSuchJob(c.Job)
	}
	next, err := decideCancel(t.now, j, c.Actor)
	if err != nil || next.State == j.State {
		return next, err
	}
	return next, t.save(ctx, tx, next)
}

func noSuchJob(ref string) *Error {
	return Errorf(NotFound, "no job %.60q in this store", ref).Hint("exocomp jobs list shows the newest")
}

// inboxChunk is how many rows of the inbox one Step moves.
const inboxChunk = 100

// applyInbox moves requests of foreign writers out (S10). One that cannot be
// carried out is noted in the history and dropped: nobody waits for its answer.
func (t *turn) applyInbox(ctx context.Context, tx Tx) error {
	if !t.derived || !t.foreign || t.d.role != Active {
		return nil
	}
	rows, err := Inboxes.Scan(ctx, tx, Query{By: "inbox_at", Limit: inboxChunk})
	if err != nil {
		return err
	}
	t.emptied = len(rows) < inboxChunk
	for _, row := range rows {
		if err := t.applyInboxRow(ctx, tx, row); err != nil {
			return fmt.Errorf("apply inbox row %s: %w", row.ID, err)
		}
	}
	return nil
}

func (t *turn) applyInboxRow(ctx context.Context, tx Tx, row InboxRow) error {
	c, err := row.command()
	if err == nil {
		_, err = t.command(ctx, tx, c, false)
	}
	refusal, refused := errors.AsType[*Error](err)
	if err != nil && !refused {
		return err
	}
	if refused {
		detail := fmt.Sprintf("%s by %s: %s", row.Verb, row.Actor, refusal.Msg)
		if err := t.record(ctx, tx, "inbox.refused", row.ID, detail); err != nil {
			return err
		}
	}
	return Inboxes.Delete(ctx, tx, row.ID)
}

// Verbs of inbox rows.
const (
	verbEnqueue  = "enqueue"
	verbCancel   = "cancel"
	verbCordon   = "cordon"
	verbUncordon = "uncordon"
)

// newInboxRow returns the row that asks for c.
func newInboxRow(id, actor string, at Millis, c Command) (InboxRow, error) {
	row := InboxRow{ID: id, Actor: actor, AtMs: at}
	switch c.(type) {
	case Enqueue:
		row.Verb = verbEnqueue
	case Cancel:
		row.Verb = verbCancel
	case SetCordon:
		row.Verb = verbCordon
	case LiftCordon:
		row.Verb = verbUncordon
	default:
		return row, fmt.Errorf("no inbox verb for %T", c)
	}
	var err error
	row.Payload, err = json.Marshal(c)
	return row, err
}

// command reads the row back. The actor is the row's: who could write the file
// is known, what he wrote there is only his word.
func (row InboxRow) command() (Command, error) {
	var c Command
	var err error
	switch row.Verb {
	case verbEnqueue:
		v := Enqueue{}
		err = json.Unmarshal(row.Payload, &v)
		v.ID, v.Actor = row.ID, row.Actor
		if c = v; err == nil && v.Attempt == "" {
			err = errors.New("no attempt token")
		}
	case verbCancel:
		v := Cancel{}
		err = json.Unmarshal(row.Payload, &v)
		v.Actor = row.Actor
		c = v
	case verbCordon:
		v := SetCordon{}
		err = json.Unmarshal(row.Payload, &v)
		v.Actor = row.Actor
		c = v
	case verbUncordon:
		v := LiftCordon{}
		err = json.Unmarshal(row.Payload, &v)
		v.Actor = row.Actor
		c = v
	default:
		err = errors.New("unknown verb")
	}
	if err != nil {
		return nil, Errorf(Invalid, "inbox row %s with verb %.40q cannot be read: %w", row.ID, row.Verb, err)
	}
	return c, nil
}
