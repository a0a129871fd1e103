package daemon

import (
	"fmt"
	"time"

	"github.com/exocomp/exocomp/daemon/cron"
)

// Every due instant of a schedule is one row here, unique on (schedule,
// instant), written in the transaction that decides it. So a schedule cannot
// fire twice for one instant, whatever clocks and daemons do, and "did the 03:00
// backup run?" has one answer.
//
// Of several instants that are due at once, because nobody was active or the
// clock jumped, only the newest may still start: that is what an operator means
// by catching up. The others are missed. A row that says so for an instant that
// still lies ahead of the wall clock, since the clock was wrong when it was
// written, is void (S11); one that fired never is.

// Fire is one row of the ledger.
type Fire struct {
	Schedule  string  `db:"schedule" json:"schedule"`
	InstantMs Millis  `db:"instant_ms" json:"instant"`
	UntilMs   Millis  `db:"until_ms" json:"until,omitempty" doc:"a row for many: all instants from instant on, before this one"`
	Outcome   Outcome `db:"outcome" json:"outcome"`
	Job       string  `db:"job" json:"job,omitempty"`
	Reason    string  `db:"reason" json:"reason,omitempty"`
	Version   int64   `db:"version" json:"version" doc:"of the schedule"`
	Epoch     int64   `db:"epoch" json:"epoch"`
	AtMs      Millis  `db:"at_ms" json:"decided_at"`
}

// Outcome is what became of a due instant.
type Outcome string

// The outcomes.
const (
	Fired      Outcome = "fired"
	Missed     Outcome = "missed"   // nobody was there in time
	Overlapped Outcome = "overlap"  // the job before had not ended
	Cordoned   Outcome = "cordoned" // no new root jobs
	InGap      Outcome = "gap"      // the clocks leapt over it, and dst_missing is skip
	Refused    Outcome = "refused"  // its job could not be accepted
)

// Outcomes lists them all.
var Outcomes = []Outcome{Fired, Missed, Overlapped, Cordoned, InGap, Refused}

// Bounds of what one decision writes.
const (
	maxSingles = 1000        // missed instants of one schedule that get a row each; older ones share one
	onTime     = time.Minute // a start this late is not late: a takeover lies within it
)

// fireFacts is what decides over the newest due instant.
type fireFacts struct {
	now      Instant
	cordoned string // the reason, or ""
	waiting  *Job   // a job of this schedule that is queued
	live     *Job   // one that has not ended
	window   time.Duration
	absent   string // set: nothing may fire, and why
}

// due returns the instants behind after and up to now, jitter counted: the
// newest of them one by one, and the first of the older ones, if there are any.
func (t timetable) due(after, now Millis) (newest []cron.Due, older *cron.Due) {
	now -= Millis(t.jitter.Milliseconds())
	for span := Millis(time.Hour.Milliseconds()); ; span *= 2 {
		from := max(after, now-span)
		newest = t.walk(from, now)
		if len(newest) >= maxSingles || from == after {
			break
		}
	}
	if len(newest) == 0 {
		return nil, nil
	}
	if first, ok := t.next(after); ok && first.At.Before(newest[0].At) {
		older = &first
	}
	return newest, older
}

// walk returns the newest due instants in (from, to], at most maxSingles.
func (t timetable) walk(from, to Millis) []cron.Due {
	var all []cron.Due
	for d, ok := t.next(from); ok && Millis(d.At.UnixMilli()) <= to; d, ok = t.next(from) {
		from = Millis(d.At.UnixMilli())
		if all = append(all, d); len(all) == 2*maxSingles {
			all = append(all[:0], all[maxSingles:]...)
		}
	}
	return all[max(0, len(all)-maxSingles):]
}

// decideFires returns the ledger rows for what is due, the oldest first. Only
// the last can have the outcome Fired; its job is for the caller to make.
func (t timetable) decideFires(f fireFacts) []Fire {
	newest, older := t.due(t.row.DecidedMs, f.now.Ms())
	var rows []Fire
	if older != nil {
		rows = append(rows, t.fire(f, *older, Missed, "one of many in a row: nobody was active, or the clock jumped"))
		rows[0].UntilMs = Millis(newest[0].At.UnixMilli())
	}
	for i, d := range newest {
		outcome, reason := Missed, "a later instant was due as well by then: only the newest may start late"
		if i == len(newest)-1 {
			outcome, reason = t.outcome(f, d)
		}
		if d.Skipped {
			outcome, reason = InGap, "the clocks leapt over it, and dst_missing is skip"
		}
		rows = append(rows, t.fire(f, d, outcome, reason))
	}
	return rows
}

func (t timetable) fire(f fireFacts, d cron.Due, o Outcome, reason string) Fire {
	return Fire{Schedule: t.row.Name, InstantMs: Millis(d.At.UnixMilli()), Outcome: o, Reason: reason,
		Version: t.row.Version, AtMs: f.now.Ms()}
}

// outcome decides over the newest due instant.
func (t timetable) outcome(f fireFacts, d cron.Due) (Outcome, string) {
	late := f.now.Wall.Sub(t.at(d.At)).Round(time.Second)
	limit := f.window
	if t.row.Missed == MissedLatest {
		limit = max(limit, time.Duration(t.row.DeadlineMs)*time.Millisecond)
	}
	switch {
	case f.absent != "":
		return Missed, f.absent
	case late > limit:
		return Missed, fmt.Sprintf("%s late, and at most %s is allowed: nobody was active, or the clock jumped", late, limit)
	case f.cordoned != "":
		return Cordoned, f.cordoned
	case f.live != nil && t.row.Overlap == OverlapSkip:
		return Overlapped, "job " + f.live.ID + " of this schedule had not ended"
	case f.waiting != nil && t.row.Overlap == OverlapQueue:
		return Overlapped, "job " + f.waiting.ID + " of this schedule waits already"
	case late >= time.Second && late > f.window:
		return Fired, fmt.Sprintf("%s late: the newest of those missed", late)
	case d.Note == cron.Gap:
		return Fired, "the clocks leapt over its time: run right behind the gap"
	}
	return Fired, ""
}

// jobOf returns the job of a fire.
func (t timetable) jobOf(f Fire, id, attempt string, me Identity, now Millis, number int64) Job {
	r := t.row.Job
	j := Job{
		ID: id, Number: number, Kind: r.Kind, Spec: r.Spec, State: Queued, Trigger: "schedule",
		Actor: "schedule:" + t.row.Name, RootID: id, Schedule: t.row.Name, DueMs: f.InstantMs, DedupKey: r.Dedup,
		Owner: me.Incarnation, Epoch: f.Epoch, Attempt: attempt, CreatedMs: now,
		Labels: r.Labels, Priority: r.Priority, LockKey: r.Lock, Rerun: r.Rerun,
	}
	if t.row.Overlap == OverlapQueue && j.LockKey == "" {
		j.LockKey = "schedule:" + t.row.Name
	}
	return j
}
