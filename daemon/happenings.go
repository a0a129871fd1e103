package daemon

import (
	"context"
	"math"
	"strconv"
	"strings"
)

// EventVerbs are the verbs for the store's own history: grants of the lease,
// cordons, tokens, settings, refusals. Its lines are numbered without a gap.
type EventVerbs interface {
	Events(ctx context.Context, q EventQuery) (EventPage, error)
	// FollowEvents calls yield with every event behind number after, in order, as
	// they come. It returns when ctx ends, or yield fails.
	FollowEvents(ctx context.Context, after int64, yield func(Happening) error) error
}

// EventQuery asks for events, the newest first.
type EventQuery struct {
	Cursor string // EventPage.Next of the page before
	Limit  int    // 1 to 1000; 0 is 50
}

// EventPage is one page.
type EventPage struct {
	Events []Happening `json:"events"`
	Next   string      `json:"next,omitempty" doc:"cursor of the next page"`
}

// Pause waits for as long as a follower should before it looks again. It returns
// early, with the cause, when ctx ends.
type Pause func(ctx context.Context) error

// Events implements Client.
func (s reads) Events(ctx context.Context, q EventQuery) (page EventPage, err error) {
	before, err := q.check()
	if err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	err = s.store.View(ctx, func(r Reader) error {
		page.Events, err = Happenings.Scan(ctx, r, Query{After: []any{before}, Desc: true, Limit: q.Limit})
		return err
	})
	switch n := len(page.Events); {
	case n == 0:
		page.Events = []Happening{}
	case n == q.Limit && page.Events[n-1].Seq > 1:
		page.Next = "before-" + formatInt(page.Events[n-1].Seq)
	}
	return page, err
}

func (q EventQuery) check() (before int64, err error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return 0, Errorf(Invalid, "limit %d: it must be between 1 and %d", q.Limit, maxPage).Hint("follow the cursor for more")
	}
	if q.Cursor == "" {
		return math.MaxInt64, nil
	}
	before, err = strconv.ParseInt(strings.TrimPrefix(q.Cursor, "before-"), 10, 64)
	if err != nil || before < 1 || !strings.HasPrefix(q.Cursor, "before-") {
		return 0, badCursor()
	}
	return before, nil
}

// followChunk is how many events a follower reads at a time.
const followChunk = 200

// FollowEvents implements Client. A table is not told of its readers: a follower
// looks, and pauses when there was nothing.
func (s reads) FollowEvents(ctx context.Context, after int64, yield func(Happening) error) error {
	if after < 0 {
		return Errorf(Invalid, "event number %d is negative", after).Hint("0 is before the first")
	}
	if s.pause == nil {
		return Errorf(Unavailable, "events cannot be followed here").Hint("read them page by page")
	}
	for {
		var rows []Happening
		err := s.store.View(ctx, func(r Reader) (err error) {
			rows, err = Happenings.Scan(ctx, r, Query{After: []any{after}, Limit: followChunk})
			return err
		})
		if err != nil {
			return err
		}
		for _, h := range rows {
			if err := yield(h); err != nil {
				return err
			}
			after = h.Seq
		}
		if len(rows) < followChunk {
			if err := s.pause(ctx); err != nil {
				return err
			}
		}
	}
}

// Pausing returns o with what a follower needs.
func (o Offline) Pausing(p Pause) Offline {
	o.pause = p
	return o
}
