package daemon

import (
	"cmp"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon/cron"
)

// A schedule makes a job for each instant at which its cron expression is due in
// its zone. What became of every due instant is one row of the table fires.
//
// A daemon reads all schedules once, when it becomes the holder, and again at a
// reload. An edit is in the store at once and in force at the next reload. Until
// then neither version acts: the firing transaction looks at the row, and leaves
// what is due to the reload, which decides it by the new version.

// Schedule is one row of the table schedules, and the document that the API
// shows.
type Schedule struct {
	Name         string         `db:"name" json:"name"`
	Version      int64          `db:"version" json:"version" doc:"rises with each edit"`
	Cron         string         `db:"cron" json:"cron"`
	Zone         string         `db:"zone" json:"zone"`
	Job          EnqueueRequest `db:"job" json:"job"`
	Enabled      bool           `db:"enabled" json:"enabled"`
	Missed       string         `db:"missed" json:"missed"`
	DeadlineMs   int64          `db:"deadline_ms" json:"deadline_ms"`
	Overlap      string         `db:"overlap" json:"overlap"`
	JitterMs     int64          `db:"jitter_ms" json:"jitter_ms"`
	DSTMissing   string         `db:"dst_missing" json:"dst_missing"`
	DSTDuplicate string         `db:"dst_duplicate" json:"dst_duplicate"`
	By           string         `db:"by_actor" json:"by"`
	CreatedMs    Millis         `db:"created_ms" json:"created_at" doc:"@every counts from here"`
	ChangedMs    Millis         `db:"changed_ms" json:"changed_at"`
	DecidedMs    Millis         `db:"decided_ms" json:"decided_at" doc:"every instant up to here is in the ledger"`
}

// ScheduleRequest asks for a schedule.
type ScheduleRequest struct {
	Name         string         `json:"name" doc:"letters, digits, dot, dash and underscore, at most 60"`
	Cron         string         `json:"cron" doc:"five fields, @daily and its kin, or @every 90s"`
	Zone         string         `json:"zone,omitempty" doc:"IANA name; UTC, which is the default"`
	Job          EnqueueRequest `json:"job"`
	Disabled     bool           `json:"disabled,omitempty"`
	Missed       string         `json:"missed,omitempty" doc:"skip, which is the default, or latest: start the newest missed one late, up to the deadline"`
	DeadlineMs   int64          `json:"deadline_ms,omitempty" doc:"with missed latest: how late it may start; 0 is 1 h"`
	Overlap      string         `json:"overlap,omitempty" doc:"skip, which is the default, queue or allow: when the job before has not ended"`
	JitterMs     int64          `json:"jitter_ms,omitempty" doc:"start up to this much later, always the same for a name"`
	DSTMissing   string         `json:"dst_missing,omitempty" doc:"run, which is the default, or skip: a fixed time that the clocks leap over"`
	DSTDuplicate string         `json:"dst_duplicate,omitempty" doc:"once, which is the default, or both: a fixed time that comes twice"`
	Version      int64          `json:"version,omitempty" doc:"of an edit: refused if the schedule has another by now"`
}

// Policies of a schedule.
const (
	MissedSkip   = "skip"
	MissedLatest = "latest"

	OverlapSkip  = "skip"
	OverlapQueue = "queue"
	OverlapAllow = "allow"
)

// Limits of one schedule, and of all.
const (
	maxSchedules    = 1000
	maxScheduleName = 60
	maxDeadline     = 7 * 24 * time.Hour
	maxJitter       = 24 * time.Hour
	defDeadline     = time.Hour
)

const scheduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// normal returns r with its defaults, or says what is wrong with it.
func (r ScheduleRequest) normal() (ScheduleRequest, error) {
	r.Zone = cmp.Or(r.Zone, "UTC")
	r.Missed = cmp.Or(r.Missed, MissedSkip)
	r.Overlap = cmp.Or(r.Overlap, OverlapSkip)
	r.DSTMissing = cmp.Or(r.DSTMissing, "run")
	r.DSTDuplicate = cmp.Or(r.DSTDuplicate, "once")
	if r.DeadlineMs == 0 && r.Missed == MissedLatest {
		r.DeadlineMs = defDeadline.Milliseconds()
	}
	job, err := r.Job.normal()
	job.GraceMs = r.Job.GraceMs // what is not named is the setting's, at each fire
	if r.Job = job; err != nil {
		return r, err
	}
	for _, check := range []func(ScheduleRequest) error{checkScheduleName, checkPolicies, checkSpans} {
		if err := check(r); err != nil {
			return r, err
		}
	}
	_, err = compile(r.schedule())
	return r, err
}

func checkScheduleName(r ScheduleRequest) error {
	if r.Name == "" || len(r.Name) > maxScheduleName || strings.Trim(r.Name, scheduleLetters) != "" || r.Name[0] == '-' {
		return Errorf(Invalid, "schedule name %.40q: it has 1 to %d letters, digits, dots, dashes and underscores, and does not begin with a dash",
			r.Name, maxScheduleName).Hint("nightly-backup is a name")
	}
	return nil
}

func checkPolicies(r ScheduleRequest) error {
	for _, p := range []struct{ what, value, a, b, c string }{
		{"missed", r.Missed, MissedSkip, MissedLatest, ""},
		{"overlap", r.Overlap, OverlapSkip, OverlapQueue, OverlapAllow},
		{"dst_missing", r.DSTMissing, "run", "skip", ""},
		{"dst_duplicate", r.DSTDuplicate, "once", "both", ""},
	} {
		if p.value != p.a && p.value != p.b && (p.c == "" || p.value != p.c) {
			list := strings.TrimSuffix(strings.Join([]string{p.a, p.b, p.c}, ", "), ", ")
			return Errorf(Invalid, "%s %.40q is not known: it is one of %s", p.what, p.value, list).
				Hint("leave it out for %s", p.a)
		}
	}
	return nil
}

func checkSpans(r ScheduleRequest) error {
	switch {
	case r.DeadlineMs < 0 || r.DeadlineMs > maxDeadline.Milliseconds():
		return Errorf(Invalid, "deadline of %d ms: it must be at most %s", r.DeadlineMs, maxDeadline).
			Hint("give a duration such as 2h: how late a missed job may still start")
	case r.DeadlineMs > 0 && r.Missed == MissedSkip:
		return Errorf(Invalid, "a deadline goes with missed latest: with skip nothing starts late").
			Hint("add --missed latest, or leave the deadline out")
	case r.JitterMs < 0 || r.JitterMs > maxJitter.Milliseconds():
		return Errorf(Invalid, "jitter of %d ms: it must be at most %s", r.JitterMs, maxJitter).
			Hint("give a duration such as 5m")
	}
	return nil
}

// schedule returns the row of a request, without what only the store knows.
func (r ScheduleRequest) schedule() Schedule {
	return Schedule{Name: r.Name, Cron: r.Cron, Zone: r.Zone, Job: r.Job, Enabled: !r.Disabled, Missed: r.Missed,
		DeadlineMs: r.DeadlineMs, Overlap: r.Overlap, JitterMs: r.JitterMs, DSTMissing: r.DSTMissing,
		DSTDuplicate: r.DSTDuplicate}
}

// Request returns what would make s anew: the beginning of an edit.
func (s Schedule) Request() ScheduleRequest {
	return ScheduleRequest{Name: s.Name, Cron: s.Cron, Zone: s.Zone, Job: s.Job, Disabled: !s.Enabled, Missed: s.Missed,
		DeadlineMs: s.DeadlineMs, Overlap: s.Overlap, JitterMs: s.JitterMs, DSTMissing: s.DSTMissing,
		DSTDuplicate: s.DSTDuplicate, Version: s.Version}
}

// timetable is a schedule whose expression and zone were understood.
type timetable struct {
	row    Schedule
	expr   cron.Expr
	loc    *time.Location
	dst    cron.DST
	jitter time.Duration
}

// compile makes a timetable of a row.
func compile(row Schedule) (timetable, error) {
	t := timetable{row: row}
	var err error
	if t.expr, err = cron.Parse(row.Cron); err != nil {
		return t, Errorf(Invalid, "cron expression of schedule %s: %w", row.Name, err).
			Hint("minute hour day-of-month month day-of-week, such as '30 3 * * mon-fri'; @daily; @every 90s")
	}
	if t.loc, err = cron.Zone(row.Zone); err != nil {
		return t, Errorf(Invalid, "time zone of schedule %s: %w", row.Name, err).
			Hint("give an IANA name such as Europe/Berlin, or UTC")
	}
	t.dst = cron.DST{SkipMissing: row.DSTMissing == "skip", RunBoth: row.DSTDuplicate == "both"}
	t.jitter = cron.Jitter(row.Name, time.Duration(row.JitterMs)*time.Millisecond)
	return t, nil
}

// next returns the first instant behind after at which the schedule is due. It
// is the one place that knows: firing, previews and the ledger ask here.
func (t timetable) next(after Millis) (cron.Due, bool) {
	return t.expr.Next(after.Time(), t.loc, t.dst, t.row.CreatedMs.Time().Truncate(time.Second))
}

// at returns when a job that is due then starts.
func (t timetable) at(due time.Time) time.Time { return due.Add(t.jitter) }
