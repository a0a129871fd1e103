package daemon

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ScheduleView is a schedule with what the daemon that answers makes of it.
type ScheduleView struct {
	Schedule
	Next    Millis `json:"next_at,omitempty" doc:"when it is due next, by this version"`
	Broken  string `json:"broken,omitempty" doc:"why it never fires: its expression or its zone is not understood"`
	Pending bool   `json:"pending,omitempty" doc:"edited since the daemon read its schedules: in force at the next reload"`
}

// ScheduleList is all schedules, by name.
type ScheduleList struct {
	Schedules  []ScheduleView `json:"schedules"`
	Generation int64          `json:"generation,omitempty" doc:"how often the active daemon has read them"`
}

// UpcomingQuery asks when schedules are due.
type UpcomingQuery struct {
	Name string // "" is all that are enabled
	From Millis // 0 is now
	N    int    // of each, 1 to 1000; 0 is 10
}

// Upcoming is one instant at which a schedule will be due.
type Upcoming struct {
	Schedule string `json:"schedule"`
	Instant  Millis `json:"instant"`
	Starts   Millis `json:"starts" doc:"with its jitter"`
	Local    string `json:"local" doc:"in the zone of the schedule"`
	Note     string `json:"note,omitempty" doc:"what daylight saving does to it"`
}

// UpcomingList is the answer, in the order of time.
type UpcomingList struct {
	Upcoming []Upcoming `json:"upcoming"`
}

// FireQuery asks for rows of the ledger, the newest first.
type FireQuery struct {
	Schedule string // "" is all
	Outcomes []Outcome
	Since    Millis
	Cursor   string
	Limit    int // 1 to 1000; 0 is 50
}

// FirePage is one page. As with jobs it may be short, with Next still set.
type FirePage struct {
	Fires []Fire `json:"fires"`
	Next  string `json:"next,omitempty" doc:"cursor of the next page"`
}

// Schedules implements Client.
func (s reads) Schedules(ctx context.Context) (list ScheduleList, err error) {
	now := ReadClock(s.clock).Ms()
	list.Schedules = []ScheduleView{}
	err = s.store.View(ctx, func(r Reader) error {
		rows, err := Schedules.Scan(ctx, r, Query{Limit: maxSchedules})
		for _, row := range rows {
			list.Schedules = append(list.Schedules, viewOf(row, now))
		}
		return err
	})
	return list, err
}

func viewOf(row Schedule, now Millis) ScheduleView {
	v := ScheduleView{Schedule: row}
	reg := register(row)
	v.Broken = reg.broken
	if reg.broken == "" && row.Enabled {
		if d, ok := reg.timetable.next(max(now-Millis(reg.jitter.Milliseconds()), row.DecidedMs)); ok {
			v.Next = Millis(reg.at(d.At).UnixMilli())
		}
	}
	return v
}

// Schedule implements Client.
func (s reads) Schedule(ctx context.Context, name string) (ScheduleView, error) {
	var v ScheduleView
	err := s.store.View(ctx, func(r Reader) error {
		row, found, err := Schedules.Get(ctx, r, name)
		if err == nil && !found {
			err = noSuchSchedule(name)
		}
		v = viewOf(row, ReadClock(s.clock).Ms())
		return err
	})
	return v, err
}

// Upcoming implements Client.
func (s reads) Upcoming(ctx context.Context, q UpcomingQuery) (UpcomingList, error) {
	list := UpcomingList{Upcoming: []Upcoming{}}
	q.N = cmp.Or(q.N, 10)
	if q.N < 1 || q.N > 1000 {
		return list, Errorf(Invalid, "%d instants: it must be between 1 and 1000", q.N).Hint("leave it out for 10")
	}
	q.From = cmp.Or(q.From, ReadClock(s.clock).Ms())
	var rows []Schedule
	if q.Name != "" {
		v, err := s.Schedule(ctx, q.Name)
		if err != nil {
			return list, err
		}
		rows = []Schedule{v.Schedule}
	} else {
		all, err := s.Schedules(ctx)
		if err != nil {
			return list, err
		}
		for _, v := range all.Schedules {
			if v.Enabled {
				rows = append(rows, v.Schedule)
			}
		}
	}
	for _, row := range rows {
		t, err := compile(row)
		if err != nil && q.Name == "" {
			continue // list says that it is broken
		}
		if err != nil {
			return list, err
		}
		list.Upcoming = append(list.Upcoming, t.upcoming(q.From, q.N)...)
	}
	slices.SortStableFunc(list.Upcoming, func(a, b Upcoming) int { return cmp.Compare(a.Instant, b.Instant) })
	list.Upcoming = list.Upcoming[:min(len(list.Upcoming), q.N)]
	return list, nil
}

func (t timetable) upcoming(from Millis, n int) []Upcoming {
	var all []Upcoming
	for range n {
		d, ok := t.next(from)
		if !ok {
			break
		}
		from = Millis(d.At.UnixMilli())
		u := Upcoming{Schedule: t.row.Name, Instant: from, Starts: Millis(t.at(d.At).UnixMilli()),
			Local: d.At.In(t.loc).Format(time.RFC3339), Note: string(d.Note)}
		if d.Skipped {
			u.Note = "skipped: the clocks leap over it"
		}
		all = append(all, u)
	}
	return all
}

// Fires implements Client.
func (s reads) Fires(ctx context.Context, q FireQuery) (FirePage, error) {
	page := FirePage{Fires: []Fire{}}
	q.Limit = cmp.Or(q.Limit, defaultPage)
	after, err := q.check()
	if err != nil {
		return page, err
	}
	err = s.store.View(ctx, func(r Reader) error {
		if q.Schedule != "" {
			_, there, err := Schedules.Get(ctx, r, q.Schedule)
			_, used, err2 := Fires.First(ctx, r, Query{Equal: []any{q.Schedule}})
			if err := cmp.Or(err, err2); err != nil {
				return err
			}
			if !there && !used {
				return noSuchSchedule(q.Schedule)
			}
		}
		page, err = q.page(ctx, r, after)
		return err
	})
	return page, err
}

func (q FireQuery) check() (after []any, err error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, Errorf(Invalid, "limit %d: it must be between 1 and %d", q.Limit, maxPage).Hint("follow the cursor for more")
	}
	for _, o := range q.Outcomes {
		if !slices.Contains(Outcomes, o) {
			return nil, Errorf(Invalid, "outcome %.40q is not one of %v", o, Outcomes).Hint("leave it out for all")
		}
	}
	if q.Cursor == "" {
		if q.Schedule != "" {
			return []any{int64(math.MaxInt64)}, nil
		}
		return []any{int64(math.MaxInt64), ""}, nil
	}
	ms, name, ok := strings.Cut(q.Cursor, "~")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || !ok || q.Schedule != "" && name != q.Schedule {
		return nil, Errorf(Invalid, "cursor %.40q was not made by this API for this question", q.Cursor).
			Hint("use the cursor of the page before as it is, or none for the first page")
	}
	if q.Schedule != "" {
		return []any{at}, nil
	}
	return []any{at, name}, nil
}

// page collects matching rows behind after, the newest first.
func (q FireQuery) page(ctx context.Context, r Reader, after []any) (FirePage, error) {
	page := FirePage{Fires: []Fire{}}
	ask := Query{By: "fires_at", After: after, Desc: true, Limit: maxPage}
	if q.Schedule != "" {
		ask.By, ask.Equal = "", []any{q.Schedule}
	}
	rows, err := Fires.Scan(ctx, r, ask)
	if err != nil {
		return page, err
	}
	for i, f := range rows {
		if f.InstantMs < q.Since && f.UntilMs <= q.Since {
			if q.Schedule != "" || f.UntilMs == 0 {
				return page, nil
			}
			continue
		}
		if len(q.Outcomes) > 0 && !slices.Contains(q.Outcomes, f.Outcome) {
			continue
		}
		if page.Fires = append(page.Fires, f); len(page.Fires) == q.Limit && i < len(rows)-1 {
			page.Next = f.cursor()
			return page, nil
		}
	}
	if len(rows) == maxPage {
		page.Next = rows[len(rows)-1].cursor()
	}
	return page, nil
}

func (f Fire) cursor() string { return formatInt(int64(f.InstantMs)) + "~" + f.Schedule }
