// Package cron says when a schedule is due: cron expressions, with the rules of
// Debian's cron(8) for zones that change their clocks. It reads no clock, waits
// for nothing and keeps nothing: the same question has the same answer.
//
// An expression has five fields: minute (0-59), hour (0-23), day of month
// (1-31), month (1-12, jan-dec) and day of week (0-7, sun-sat; 0 and 7 are
// Sunday). A field is a list of numbers, names, ranges (1-5) and steps through
// a range (*/5, 10-50/20). A step without a range (5/10) is refused, as
// Debian's cron refuses it: others read it as 5 or as 5-59/10.
//
// When neither day field begins with "*" a day that matches one of them is
// enough; otherwise it must match both.
//
// Where the clocks change, the first characters of minute and hour decide:
//
//   - If neither is "*", the times are fixed. A fixed time is due at the first
//     instant at which the zone's clock shows it or has passed it: times inside a
//     gap become due together at the end of the gap, and a time that is shown twice
//     is due once, the first time. DST changes either.
//   - Otherwise the schedule follows real time: it is due whenever the clock shows a
//     time that matches, twice in a fold, and nothing is made up for a gap.
//
// The size of a change does not matter: half an hour or a whole day.
package cron

import (
	"hash/fnv"
	"time"
)

// Expr is a parsed expression. Two that print alike are equal (==). The zero
// Expr is never due.
type Expr struct {
	text  string
	every time.Duration // of @every, in whole seconds; 0 for all others

	minute, hour, dom, month, dow uint64 // bit n: the field names n; Sunday is 0

	either bool // a day that matches dom or dow is enough
	fixed  bool // neither minute nor hour begins with "*"
}

// String returns e as Parse takes it: lower case, one space between fields.
func (e Expr) String() string { return e.text }

// Note says what a change of the clocks did to a due instant; "" is nothing.
type Note string

// The notes.
const (
	// Gap is an instant at which fixed times are due (or skipped) only because
	// the clock jumped over them.
	Gap Note = "gap"
	// Fold is a further occurrence of a fixed time, under DST.RunBoth.
	Fold Note = "fold"
)

// Due is an instant at which a schedule is due.
type Due struct {
	At      time.Time // in the zone of the schedule; whole seconds, but for @every
	Note    Note
	Skipped bool // not to be run: listed so that somebody can record it
}

// DST changes what happens to fixed times where the clocks change. The zero DST
// is what cron(8) does.
type DST struct {
	SkipMissing bool // times inside a gap do not run: one Due per gap, Skipped
	RunBoth     bool // times that are shown twice are due twice
}

// Jitter returns how long after its due instants the schedule of that name
// starts: whole seconds from 0 to max inclusive, always the same for a name, so
// that many schedules of 03:00 do not start as one.
func Jitter(name string, max time.Duration) time.Duration {
	if max < time.Second {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return time.Duration(h.Sum64()%uint64(max/time.Second+1)) * time.Second
}
