package daemon

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// reads are the verbs that only look. They need a store and no daemon.
type reads struct {
	store Store
	logs  Logs
	clock Clock
	about About
	pause Pause // of who follows; nil: nobody can
}

// About is what a process says of itself in its status.
type About struct {
	Version  string
	DataDir  string
	StateDir string
	Host     string
	Flags    map[string]FlagValue // of a daemon: those that are settings, by name
}

// findJob resolves an id or a number.
func findJob(ctx context.Context, r Reader, ref string) (Job, error) {
	var j Job
	var ok bool
	var err error
	if n, bad := strconv.ParseInt(ref, 10, 64); bad == nil {
		j, ok, err = Jobs.First(ctx, r, Query{By: "jobs_number", Equal: []any{n}})
	} else {
		j, ok, err = Jobs.Get(ctx, r, ref)
	}
	if err == nil && !ok {
		err = noSuchJob(ref)
	}
	return j, err
}

// Job implements Client.
func (s reads) Job(ctx context.Context, ref string) (j Job, err error) {
	err = s.store.View(ctx, func(r Reader) error {
		j, err = findJob(ctx, r, ref)
		return err
	})
	return j, err
}

// Bounds of one page of jobs.
const (
	defaultPage = 50
	maxPage     = 1000
	maxLooked   = 5000    // rows looked at for one page; then the page ends early
	maxBytes    = 4 << 20 // of commands in one page, likewise
)

// Jobs implements Client.
func (s reads) Jobs(ctx context.Context, q JobQuery) (page JobPage, err error) {
	before, err := q.check()
	if err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	page.Jobs = []Job{}
	err = s.store.View(ctx, func(r Reader) error {
		page, err = q.page(ctx, r, before)
		return err
	})
	return page, err
}

func (q JobQuery) check() (before int64, err error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return 0, Errorf(Invalid, "limit %d: it must be between 1 and %d", q.Limit, maxPage).
			Hint("follow the cursor for more")
	}
	for _, st := range q.States {
		if !slices.Contains(States, st) {
			return 0, Errorf(Invalid, "state %.40q is not one of %v", st, States).Hint("leave it out for all")
		}
	}
	if q.Cursor == "" {
		return math.MaxInt64, nil
	}
	before, err = strconv.ParseInt(strings.TrimPrefix(q.Cursor, "before-"), 10, 64)
	if err != nil || before < 1 || !strings.HasPrefix(q.Cursor, "before-") {
		return 0, Errorf(Invalid, "cursor %.40q was not made by this API", q.Cursor).
			Hint("use the cursor of the page before as it is, or none for the first page")
	}
	return before, nil
}

// page collects matching jobs numbered below before.
func (q JobQuery) page(ctx context.Context, r Reader, before int64) (JobPage, error) {
	page, bytes := JobPage{Jobs: []Job{}}, 0
	for looked := 0; looked < maxLooked; {
		rows, err := q.chunk(ctx, r, before)
		if err != nil {
			return page, err
		}
		for _, j := range rows {
			before = j.Number
			if !q.matches(j) {
				continue
			}
			bytes += j.Spec.size()
			if page.Jobs = append(page.Jobs, j); len(page.Jobs) == q.Limit || bytes > maxBytes {
				page.Next = "before-" + formatInt(before)
				return page, nil
			}
		}
		if len(rows) < q.Limit {
			return page, nil
		}
		looked += len(rows)
	}
	page.Next = "before-" + formatInt(before)
	return page, nil
}

// chunk returns the next rows in the wanted states, the newest first.
func (q JobQuery) chunk(ctx context.Context, r Reader, before int64) ([]Job, error) {
	if len(q.States) == 0 {
		return Jobs.Scan(ctx, r, Query{By: "jobs_number", After: []any{before}, Desc: true, Limit: q.Limit})
	}
	var all []Job
	for _, st := range q.States {
		rows, err := Jobs.Scan(ctx, r, Query{By: "jobs_state", Equal: []any{string(st)}, After: []any{before},
			Desc: true, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Compare(b.Number, a.Number) })
	all = slices.CompactFunc(all, func(a, b Job) bool { return a.Number == b.Number })
	return all[:min(len(all), q.Limit)], nil
}

func (q JobQuery) matches(j Job) bool {
	if q.Trigger != "" && j.Trigger != q.Trigger || j.CreatedMs < q.Since {
		return false
	}
	for k, v := range q.Labels { // all must hold: the order does not matter
		if got, ok := j.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Logs implements Client.
func (s reads) Logs(ctx context.Context, ref string, q LogQuery, yield func(LogChunk) error) (Job, error) {
	j, err := s.Job(ctx, ref)
	if err != nil {
		return j, err
	}
	if q.From < 0 {
		return j, Errorf(Invalid, "log offset %d is negative", q.From).Hint("0 is the beginning")
	}
	var ended func() (bool, error)
	if q.Follow {
		ended = func() (bool, error) {
			j, err = s.Job(ctx, j.ID)
			return j.State.Terminal(), err
		}
	}
	err = s.logs.Tail(ctx, j.ID, q.From, ended, yield)
	return j, err
}

// maxCounted bounds what status counts: an operator wants to know how many
// wait, and beyond ten thousand that it is too many.
const maxCounted = 10_001

// status reads what the store knows.
func (s reads) status(ctx context.Context) (Status, error) {
	now := ReadClock(s.clock)
	st := Status{At: now.Ms(), Version: s.about.Version, DataDir: s.about.DataDir, StateDir: s.about.StateDir,
		Jobs: map[string]int{}}
	err := s.store.View(ctx, func(r Reader) error {
		row, _, err := Leases.Get(ctx, r, 1)
		if err != nil {
			return err
		}
		st.StoreID, st.Lineage = row.StoreID, row.Lineage
		st.Lease = LeaseReport{Lease: row, AgeMs: int64(now.Ms() - row.RenewedMs), ReportingHost: s.about.Host}
		for _, state := range States[:4] {
			n, err := Jobs.Count(ctx, r, Query{By: "jobs_state", Equal: []any{string(state)}, Limit: maxCounted})
			if err != nil {
				return err
			}
			st.Jobs[string(state)] = n
		}
		st.Cordons, err = loadCordons(ctx, r)
		return err
	})
	if st.Cordons == nil {
		st.Cordons = []Cordon{}
	}
	return st, err
}
