package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/cron"
)

// ledger is what the ghost knows of schedules: every row that was truly
// committed, and which job belongs to which instant. It judges I10: each due
// instant of a schedule is one line of the ledger, and starts at most one job.
type ledger struct {
	g         *Ghost
	schedules map[string]daemon.Schedule
	fires     map[string]map[daemon.Millis]daemon.Fire
	jobs      map[string]map[daemon.Millis]string // the job that was made for an instant
	open      map[string]map[string]bool          // by schedule: its jobs that have not ended
	outcomes  map[daemon.Outcome]int
}

func newLedger(g *Ghost) *ledger {
	return &ledger{g: g, schedules: map[string]daemon.Schedule{}, fires: map[string]map[daemon.Millis]daemon.Fire{},
		jobs: map[string]map[daemon.Millis]string{}, open: map[string]map[string]bool{}, outcomes: map[daemon.Outcome]int{}}
}

func (l *ledger) fail(format string, args ...any) { l.g.w.K.Fail("I10: "+format, args...) }

// committed is told of every commit, after its jobs were noted.
func (l *ledger) committed(p *proc, rec *recorder) {
	for _, o := range rec.ops {
		if j, ok := o.row.(*daemon.Job); ok && j.Schedule != "" {
			l.jobWritten(p, *j)
		}
	}
	for _, o := range rec.ops {
		if f, ok := o.row.(*daemon.Fire); ok {
			l.fireWritten(p, *f, rec.renews())
		}
		if o.row == nil && o.table == daemon.Fires.Table {
			l.fireDeleted(o.key[0].(string), daemon.Millis(o.key[1].(int64)))
		}
	}
	for _, o := range rec.ops {
		if s, ok := o.row.(*daemon.Schedule); ok {
			l.scheduleWritten(p, *s)
		}
		if o.row == nil && o.table == daemon.Schedules.Table {
			delete(l.schedules, o.key[0].(string))
		}
	}
}

func (l *ledger) jobWritten(p *proc, j daemon.Job) {
	if l.jobs[j.Schedule] == nil {
		l.jobs[j.Schedule], l.open[j.Schedule] = map[daemon.Millis]string{}, map[string]bool{}
	}
	if id := l.jobs[j.Schedule][j.DueMs]; id != "" && id != j.ID {
		l.fail("%s makes job %s for %s of %s, which made job %s already", p.life, j.ID, when(j.DueMs), j.Schedule, id)
	}
	l.jobs[j.Schedule][j.DueMs] = j.ID
	if l.open[j.Schedule][j.ID] = true; j.State.Terminal() {
		delete(l.open[j.Schedule], j.ID)
	}
}

func when(m daemon.Millis) string { return m.Time().Format(time.RFC3339) }

func (l *ledger) fireWritten(p *proc, f daemon.Fire, renewed bool) {
	s, known := l.schedules[f.Schedule]
	old, there := l.fires[f.Schedule][f.InstantMs]
	switch {
	case there && old.Outcome == daemon.Fired && f.Outcome == daemon.Fired:
		l.fail("%s fires %s of %s a second time", p.life, when(f.InstantMs), f.Schedule)
	case there && old.Outcome == daemon.Fired && l.g.ends[old.Job] != daemon.Interrupted:
		l.fail("%s says that %s of %s did not fire, and its job %s is %q", p.life, when(f.InstantMs), f.Schedule, old.Job, l.g.ends[old.Job])
	case !there && !known:
		l.fail("%s writes a fire of %s, which is no schedule", p.life, f.Schedule)
	case f.Outcome != daemon.Fired && f.Reason == "":
		l.fail("%s writes %s for %s of %s without a reason", p.life, f.Outcome, when(f.InstantMs), f.Schedule)
	}
	if !there && known && !dueAt(s, f.InstantMs) {
		l.fail("%s writes a fire of %s for %s, at which %q in %s is not due", p.life, f.Schedule, when(f.InstantMs), s.Cron, s.Zone)
	}
	if f.Outcome == daemon.Fired {
		l.fired(p, s, f, renewed)
	}
	if l.fires[f.Schedule] == nil {
		l.fires[f.Schedule] = map[daemon.Millis]daemon.Fire{}
	}
	l.fires[f.Schedule][f.InstantMs] = f
	l.outcomes[f.Outcome]++
}

// fired judges a line that says that a job was made.
func (l *ledger) fired(p *proc, s daemon.Schedule, f daemon.Fire, renewed bool) {
	limit := max(time.Minute, 2*p.h.terms.TTL, time.Duration(s.DeadlineMs)*time.Millisecond) + time.Duration(s.JitterMs)*time.Millisecond
	late := f.AtMs.Time().Sub(f.InstantMs.Time())
	switch {
	case l.jobs[f.Schedule][f.InstantMs] != f.Job:
		l.fail("%s of %s fired without its job %s", when(f.InstantMs), f.Schedule, f.Job)
	case late < 0 || late > limit:
		l.fail("%s fires %s of %s %s late; %s is allowed", p.life, when(f.InstantMs), f.Schedule, late, limit)
	case s.Overlap == daemon.OverlapSkip && len(l.open[f.Schedule]) > 1:
		l.fail("%s fires %s while a job of it has not ended", p.life, f.Schedule)
	case s.Overlap == daemon.OverlapQueue && len(l.open[f.Schedule]) > 1+p.h.limit:
		l.fail("%s lets %d jobs of %s wait", p.life, len(l.open[f.Schedule]), f.Schedule)
	case len(l.g.cordons) > 0:
		l.g.w.K.Fail("I6: %s fires %s under the cordon %v", p.life, f.Schedule, l.g.cordons)
	case l.g.doubt[p.life] && !renewed:
		l.g.w.K.Fail("I6: %s fires %s in doubt", p.life, f.Schedule)
	case !s.Enabled:
		l.fail("%s fires %s, which is disabled", p.life, f.Schedule)
	}
}

func (l *ledger) fireDeleted(name string, at daemon.Millis) {
	if l.fires[name][at].Outcome == daemon.Fired {
		l.fail("the line of %s of %s is deleted, and it fired", when(at), name)
	}
	delete(l.fires[name], at)
}

// scheduleWritten judges that the watermark passes no instant without a line.
func (l *ledger) scheduleWritten(p *proc, s daemon.Schedule) {
	old, there := l.schedules[s.Name]
	l.schedules[s.Name] = s
	if !there || !old.Enabled {
		return
	}
	if s.DecidedMs < old.DecidedMs && daemon.Millis(p.h.Wall().UnixMilli()) > old.DecidedMs {
		l.fail("%s moves the watermark of %s back from %s to %s, and its clock is past both", p.life, s.Name, when(old.DecidedMs), when(s.DecidedMs))
	}
	if at, ok := l.undecided(old, s.DecidedMs); ok {
		l.fail("%s passes %s of %s (%q in %s) without a line", p.life, when(at), s.Name, old.Cron, old.Zone)
	}
}

// farthest bounds how many instants one look checks.
const farthest = 10_000

// undecided returns the first instant of s behind its watermark and up to limit
// that has no line.
func (l *ledger) undecided(s daemon.Schedule, limit daemon.Millis) (daemon.Millis, bool) {
	at, many := s.DecidedMs, daemon.Millis(0)
	for _, f := range l.fires[s.Name] { // a maximum: the order does not matter
		many = max(many, f.UntilMs)
	}
	if many > at && many <= limit { // a line for many: what lies in it was checked by its end
		at = many - 1
	}
	for range farthest {
		next, ok := nextDue(s, at)
		if !ok || next > limit {
			return 0, false
		}
		if _, decided := l.fires[s.Name][next]; !decided {
			return next, true
		}
		at = next
	}
	return 0, false
}

// overdue returns a schedule with an instant that its holder should have
// decided by now.
func (l *ledger) overdue(h *Host, slack time.Duration) (string, bool) {
	now := daemon.Millis(h.Wall().UnixMilli())
	for _, name := range slices.Sorted(maps.Keys(l.schedules)) {
		s := l.schedules[name]
		grace := daemon.Millis(slack.Milliseconds() + s.JitterMs)
		if s.Enabled && understood(s) && s.DecidedMs > now {
			return name, true
		}
		if next, ok := nextDue(s, s.DecidedMs); s.Enabled && ok && next+grace < now {
			return name, true
		}
	}
	return "", false
}

func understood(s daemon.Schedule) bool {
	_, err := cron.Parse(s.Cron)
	return err == nil
}

// nextDue asks package cron, which has an oracle of its own.
func nextDue(s daemon.Schedule, after daemon.Millis) (daemon.Millis, bool) {
	expr, err := cron.Parse(s.Cron)
	if err != nil {
		return 0, false
	}
	loc, err := cron.Zone(s.Zone)
	if err != nil {
		return 0, false
	}
	dst := cron.DST{SkipMissing: s.DSTMissing == "skip", RunBoth: s.DSTDuplicate == "both"}
	d, ok := expr.Next(after.Time(), loc, dst, s.CreatedMs.Time().Truncate(time.Second))
	return daemon.Millis(d.At.UnixMilli()), ok
}

func dueAt(s daemon.Schedule, at daemon.Millis) bool {
	next, ok := nextDue(s, at-1)
	return ok && next == at
}

// Outcomes returns how often each outcome was written.
func (g *Ghost) Outcomes() map[daemon.Outcome]int { return g.ledger.outcomes }

// Overdue says whether the schedules of the active host lag by more than slack.
func (h *Host) Overdue(slack time.Duration) (string, bool) { return h.w.Ghost.ledger.overdue(h, slack) }

// Reload sends SIGHUP to the daemon.
func (h *Host) Reload() { h.proc.tell(daemon.Reload{Why: "SIGHUP"}) }

// Fires returns the ledger of one schedule, the oldest first.
func (w *World) Fires(name string) (rows []daemon.Fire, err error) {
	err = w.View(func(r daemon.Reader) error {
		rows, err = daemon.Fires.Scan(context.Background(), r, daemon.Query{Equal: []any{name}, Limit: 100_000})
		return err
	})
	return rows, err
}

// ForgeSchedules changes every schedule behind the daemons' backs, as another
// version of exocomp would.
func (w *World) ForgeSchedules(change func(daemon.Schedule) daemon.Schedule) error {
	s, err := w.open()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	row, err := w.Lease()
	if err != nil {
		return err
	}
	return s.Update(ctx, daemon.Guard{Holder: row.Holder, Epoch: row.Epoch}, func(tx daemon.Tx) error {
		all, err := daemon.Schedules.Scan(ctx, tx, daemon.Query{Limit: 1000})
		for _, s := range all {
			s = change(s)
			w.Ghost.ledger.schedules[s.Name] = s
			if err := daemon.Schedules.Put(ctx, tx, s); err != nil {
				return err
			}
		}
		return err
	})
}
