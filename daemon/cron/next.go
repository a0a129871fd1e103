package cron

import (
	"math/bits"
	"time"
)

// The search knows two scales, both in seconds. Instants count from 1970 in
// UTC. Walls are what a zone's clock shows, counted as if that clock were UTC:
// wall = instant + offset. A span is a stretch of time with one offset, so
// inside it each wall is one instant, and all that is hard happens between
// spans.
//
// The mark of a span is how far the clock had come before it: each wall below
// the mark was shown or passed. With it the rules are:
//
//	wall >= mark                  shown for the first time
//	wall <  mark                  was due already: a fold
//	mark <= wall < start + offset passed without being shown: a gap

const (
	day = 86400
	// horizon is how far Next looks. A leap day on a given weekday may be 40
	// years away (across 2100), and nothing else that Parse lets through is
	// rarer, unless a gap swallows it each year.
	horizon = 41 * 366 * day
	// settled is for how long after a change of the clocks a wall may be shown
	// that was shown before. No two offsets of any zone are further apart than 32
	// hours.
	settled = 2 * day

	firstInstant = -62135596800 // 0001-01-01T00:00:00Z
	lastInstant  = 253402300799 // 9999-12-31T23:59:59Z
	past         = -1 << 60     // before every instant and every wall
	future       = 1 << 60
)

// Next returns the first due instant of e strictly after after in the zone loc
// (nil is UTC), and false when there is none within 41 years, or before the
// year 10000. @every counts from anchor, and only @every reads it: it is due at
// anchor + k*d for k = 1, 2, ..., whatever the zone does.
//
// Each instant comes once: where times moved out of a gap meet one that is due
// there anyway, the Due is that of the latter.
func (e Expr) Next(after time.Time, loc *time.Location, dst DST, anchor time.Time) (Due, bool) {
	if loc == nil {
		loc = time.UTC
	}
	if e.every > 0 {
		return e.nextTick(after, loc, anchor)
	}
	if e.minute == 0 || after.Unix() >= lastInstant {
		return Due{}, false
	}
	from := max(after.Unix()+1, firstInstant)
	limit := min(from+horizon, lastInstant+1)
	s := spanAt(from, loc)
	mark := s.mark(from, loc)
	for {
		s.end = min(s.end, limit)
		if due, ok := e.within(s, from, mark, dst); ok {
			due.At = due.At.In(loc)
			return due, true
		}
		if s.end == limit {
			return Due{}, false
		}
		mark = max(mark, s.end+s.offset)
		from = s.end
		s = spanAt(from, loc)
	}
}

// within returns the first due instant from from to the end of s.
func (e Expr) within(s span, from, mark int64, dst DST) (Due, bool) {
	wall := from + s.offset
	if e.fixed && !dst.RunBoth {
		wall = max(wall, mark)
	}
	w, ok := e.match(wall, s.end+s.offset)
	if e.fixed && from == s.start && !(ok && w == wall) {
		if _, jumped := e.match(mark, s.start+s.offset); jumped {
			return Due{At: time.Unix(s.start, 0), Note: Gap, Skipped: dst.SkipMissing}, true
		}
	}
	due := Due{At: time.Unix(w-s.offset, 0)}
	if e.fixed && w < mark {
		due.Note = Fold
	}
	return due, ok
}

// match returns the first wall in [from, to) that e names.
func (e Expr) match(from, to int64) (int64, bool) {
	if from >= to {
		return 0, false
	}
	from += mod(-from, 60)
	year, month, dom := time.Unix(from, 0).UTC().Date()
	for m := int(month); ; m, dom = m+1, 1 {
		first := time.Date(year, time.Month(m), 1, 0, 0, 0, 0, time.UTC).Unix()
		if first >= to {
			return 0, false
		}
		if e.month>>((m-1)%12+1)&1 == 0 {
			continue
		}
		for days := daysIn(year, m); dom <= days; dom++ {
			midnight := first + int64(dom-1)*day
			if !e.on(dom, int(mod(midnight/day+4, 7))) { // 1970-01-01 was a Thursday
				continue
			}
			if clock, ok := e.clock(max(from-midnight, 0)); ok {
				w := midnight + clock
				return w, w < to
			}
		}
	}
}

// on says whether e names a day of the month (1-31) that is a day of the week
// (0-6).
func (e Expr) on(dom, dow int) bool {
	a, b := e.dom>>dom&1 != 0, e.dow>>dow&1 != 0
	if e.either {
		return a || b
	}
	return a && b
}

// clock returns the first time of day at or after from that e names, both in
// seconds since midnight and full minutes.
func (e Expr) clock(from int64) (int64, bool) {
	hour, minute := int(from/3600), int(from/60%60)
	if e.hour>>hour&1 != 0 {
		if m, ok := nextBit(e.minute, minute); ok {
			return int64(hour*3600 + m*60), true
		}
	}
	h, ok := nextBit(e.hour, hour+1)
	m, _ := nextBit(e.minute, 0)
	return int64(h*3600 + m*60), ok
}

// nextBit returns the first member of set at or after from.
func nextBit(set uint64, from int) (int, bool) {
	rest := set >> from
	return from + bits.TrailingZeros64(rest), rest != 0
}

// daysIn returns how many days a month has; 13 is January of the next year.
func daysIn(year, month int) int {
	return time.Date(year, time.Month(month+1), 0, 0, 0, 0, 0, time.UTC).Day()
}

// mod returns a modulo b, from 0 to b-1.
func mod(a, b int64) int64 { return ((a % b) + b) % b }

// nextTick is Next for @every.
func (e Expr) nextTick(after time.Time, loc *time.Location, anchor time.Time) (Due, bool) {
	from, zero := max(after.Unix(), firstInstant), anchor.Unix()
	if from > lastInstant || zero < firstInstant || zero > lastInstant {
		return Due{}, false
	}
	d := int64(e.every / time.Second)
	elapsed := from - zero // floor of the seconds between, once the rest is weighed
	if after.Nanosecond() < anchor.Nanosecond() {
		elapsed--
	}
	at := zero + d
	if elapsed > 0 {
		at = zero + (elapsed/d+1)*d
	}
	return Due{At: time.Unix(at, int64(anchor.Nanosecond())).In(loc)}, at <= lastInstant
}
