package cron_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon/cron"
)

// The oracle walks every minute of UTC, looks at the zone's clock and decides by
// the words of the rules. It shares nothing with the package: no spans, no
// marks, no sets of bits.

// reading is what a zone's clock shows at one instant.
type reading struct {
	at     int64 // seconds since 1970
	wall   wall
	again  bool   // this wall was shown before
	jumped []wall // walls between the last reading and this one, never shown before
}

// wall is minute, hour, day, month, weekday.
type wall [5]uint8

func wallOf(t time.Time) wall {
	return wall{uint8(t.Minute()), uint8(t.Hour()), uint8(t.Day()), uint8(t.Month()), uint8(t.Weekday())}
}

// walk reads the clock of a zone each minute from from to to.
func walk(loc *time.Location, from, to time.Time) []reading {
	begin := from.Add(-96 * time.Hour).Unix()
	minute := func(t time.Time) int64 { // of the wall clock, counted from begin
		_, offset := t.In(loc).Zone()
		return (t.Unix() + int64(offset) - begin) / 60
	}
	shown := make([]bool, int(to.Sub(from)/time.Minute)+10000)
	for t := from.Add(-72 * time.Hour); t.Before(from); t = t.Add(time.Minute) {
		shown[minute(t)] = true
	}
	out := make([]reading, 0, int(to.Sub(from)/time.Minute))
	last := minute(from.Add(-time.Minute))
	for t := from; t.Before(to); t = t.Add(time.Minute) {
		m := minute(t)
		r := reading{at: t.Unix(), wall: wallOf(t.In(loc)), again: shown[m]}
		for j := last + 1; j < m; j++ {
			if !shown[j] {
				r.jumped = append(r.jumped, wallOf(time.Unix(j*60+begin, 0).UTC()))
				shown[j] = true
			}
		}
		shown[m] = true
		last = m
		out = append(out, r)
	}
	return out
}

// naive is an expression as it is spelled out.
type naive struct {
	in   [5][60]bool
	star [5]bool
}

func naively(s string) naive {
	names := strings.NewReplacer("jan", "1", "feb", "2", "mar", "3", "apr", "4", "may", "5", "jun", "6", "jul", "7",
		"aug", "8", "sep", "9", "oct", "10", "nov", "11", "dec", "12",
		"sun", "0", "mon", "1", "tue", "2", "wed", "3", "thu", "4", "fri", "5", "sat", "6")
	lowest, highest := [5]int{0, 0, 1, 1, 0}, [5]int{59, 23, 31, 12, 7}
	var n naive
	for i, f := range strings.Fields(names.Replace(strings.ToLower(s))) {
		n.star[i] = f[0] == '*'
		for _, item := range strings.Split(f, ",") {
			step := 1
			if span, text, ok := strings.Cut(item, "/"); ok {
				item, step = span, number(text)
			}
			lo, hi := lowest[i], highest[i]
			if from, to, ok := strings.Cut(item, "-"); ok {
				lo, hi = number(from), number(to)
			} else if item != "*" {
				lo, hi = number(item), number(item)
			}
			for v := lo; v <= hi; v += step {
				n.in[i][v] = true
				if i == 4 && v == 7 {
					n.in[i][0] = true
				}
			}
		}
	}
	return n
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func (n *naive) names(w wall) bool {
	dom, dow := n.in[2][w[2]], n.in[4][w[4]]
	day := dom && dow
	if !n.star[2] && !n.star[4] {
		day = dom || dow
	}
	return n.in[0][w[0]] && n.in[1][w[1]] && n.in[3][w[3]] && day
}

// due is what the rules say of all these readings.
func (n *naive) due(readings []reading, dst cron.DST) []cron.Due {
	fixed := !n.star[0] && !n.star[1]
	var out []cron.Due
	for i := range readings {
		r, missed := &readings[i], false
		for _, w := range r.jumped {
			missed = missed || fixed && n.names(w)
		}
		at := time.Unix(r.at, 0)
		switch shown := n.names(r.wall); {
		case shown && !(fixed && r.again):
			out = append(out, cron.Due{At: at})
		case shown && dst.RunBoth:
			out = append(out, cron.Due{At: at, Note: cron.Fold})
		case missed:
			out = append(out, cron.Due{At: at, Note: cron.Gap, Skipped: dst.SkipMissing})
		}
	}
	return out
}

// Stretches of time in which clocks change, and whole years.
var (
	changes = []struct{ zone, from, to string }{
		{"America/New_York", "2026-03-01", "2026-03-12"},
		{"America/New_York", "2026-10-28", "2026-11-06"},
		{"Europe/Berlin", "2026-03-25", "2026-04-02"},
		{"Europe/Berlin", "2026-10-20", "2026-10-30"},
		{"Europe/Berlin", "2096-10-20", "2096-11-02"}, // by rule, not by table
		{"Australia/Lord_Howe", "2026-03-30", "2026-04-08"},
		{"Australia/Lord_Howe", "2026-09-30", "2026-10-08"},
		{"America/Sao_Paulo", "2018-02-12", "2018-02-22"},
		{"America/Sao_Paulo", "2018-10-31", "2018-11-08"},
		{"Asia/Kolkata", "2026-03-25", "2026-04-02"},
		{"Pacific/Apia", "2011-12-25", "2012-01-04"},
		{"Pacific/Kwajalein", "1969-09-27", "1969-10-04"}, // lived one day twice
		{"Africa/Casablanca", "2026-02-10", "2026-02-20"},
		{"Africa/Casablanca", "2026-03-18", "2026-03-26"},
		{"America/New_York", "2095-12-28", "2096-01-03"},
		{"America/New_York", "2096-12-28", "2097-01-03"}, // a leap year, by rule
	}
	years = []struct{ zone, from, to string }{
		{"America/New_York", "2026-01-01", "2027-01-01"},
		{"Australia/Lord_Howe", "2028-01-01", "2029-01-01"},
		{"America/Sao_Paulo", "2017-01-01", "2019-01-01"},
		{"Pacific/Apia", "2011-01-01", "2012-02-01"},
	}
	everyDST = []cron.DST{{}, {SkipMissing: true}, {RunBoth: true}, {SkipMissing: true, RunBoth: true}}
)

var handPicked = strings.Split(`* * * * *
*/5 * * * *
*/30 * * * *
0 * * * *
0 */2 * * *
* 2 * * *
*/20 0-3 * * *
30 */1 * * *
0 0 * * *
30 0 * * *
0 1 * * *
30 1 * * *
59 1 * * *
0 2 * * *
15 2 * * *
30 2 * * *
45 1,2 * * *
0,30 1-3 * * *
0-59 2 * * *
0-59 0-23 * * *
10-50/20 0-23/1 * * *
0 3 * * *
1 3 * * *
30 23 * * *
0 12 * * sun
0 2 * * 7
30 1 1 * *
0 0 30 12 *
30 9 30 12 *
30 9 30,31 dec fri
0 0 13 * 5
0 0 */2 * 1-5
0 0 1-7 * */7
30 2 8-14 mar */7
0 2 5,*/2 * mon,5-7
0 4 29 2 *
0 5 1 1,jul *
5,*/20 2,*/3 * * *
*,5 1 * * *`, "\n")

func day(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateOnly, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := cron.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parse(t testing.TB, s string) cron.Expr {
	t.Helper()
	e, err := cron.Parse(s)
	if err != nil {
		t.Fatalf("Parse(%q): %v", s, err)
	}
	return e
}

// agree compares Next with the oracle from every due instant to the next one,
// and from points between.
func agree(t *testing.T, loc *time.Location, expr string, readings []reading, r *rand.Rand) {
	t.Helper()
	e, n := parse(t, expr), naively(expr)
	end := time.Unix(readings[len(readings)-1].at, 0)
	for _, dst := range everyDST {
		after := time.Unix(readings[0].at-1, 0)
		for i, want := range append(n.due(readings, dst), cron.Due{At: end.Add(time.Second)}) {
			for _, from := range []time.Time{after, after.Add(time.Duration(r.Int64N(int64(want.At.Sub(after)))))} {
				got, ok := e.Next(from, loc, dst, time.Time{})
				bad := !got.At.Equal(want.At) || got.Note != want.Note || got.Skipped != want.Skipped
				if want.At.After(end) {
					bad = ok && !got.At.After(end)
				}
				if bad {
					t.Fatalf("%s %q %+v after %s:\n got %+v\nwant %+v (no. %d)", loc, expr, dst, from.In(loc), got, want, i)
				}
			}
			after = want.At
		}
	}
}

func TestNextAgreesWithAWalkThroughEveryMinute(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range changes {
		loc := zone(t, c.zone)
		readings := walk(loc, day(t, c.from), day(t, c.to))
		for _, expr := range handPicked {
			agree(t, loc, expr, readings, r)
		}
		for range 15 {
			if expr := drawn(r); possible(expr) {
				agree(t, loc, expr, readings, r)
			}
		}
	}
}

func TestNextAgreesOverWholeYears(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range years {
		loc := zone(t, c.zone)
		readings := walk(loc, day(t, c.from), day(t, c.to))
		for _, expr := range []string{"30 2 * * *", "0 */6 * * *", "*/15 0-3 * * 0", "0 0 1 * *", "0 0 13 * 5", "30 1 31 */2 *"} {
			agree(t, loc, expr, readings, r)
		}
	}
}

func possible(expr string) bool {
	_, err := cron.Parse(expr)
	return err == nil
}

// drawn returns an expression that likes the night.
func drawn(r *rand.Rand) string {
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	item := func(lo, hi int) string {
		a, b := lo+r.IntN(hi-lo+1), lo+r.IntN(hi-lo+1)
		a, b = min(a, b), max(a, b)
		return pick(fmt.Sprint(a), fmt.Sprint(b), fmt.Sprintf("%d-%d", a, b), fmt.Sprintf("%d-%d/%d", a, b, 1+r.IntN(9)))
	}
	field := func(stars, lo, hi int) string {
		if r.IntN(10) < stars {
			return pick("*", "*", fmt.Sprintf("*/%d", 1+r.IntN(hi)), "*/1,"+item(lo, hi))
		}
		return pick(item(lo, hi), item(lo, hi)+","+item(lo, hi), item(lo, hi)+",*/7")
	}
	return strings.Join([]string{field(2, 0, 59), field(3, 0, pick2(r, 3, 23)), field(7, 1, 31), field(9, 1, 12),
		field(6, 0, 7)}, " ")
}

func pick2(r *rand.Rand, a, b int) int {
	if r.IntN(2) == 0 {
		return a
	}
	return b
}

// Since 1900 no zone has changed its clock twice within three days, so these are
// made up.
func TestNextAgreesInZonesThatChangeEveryFewHours(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	from := day(t, "2026-03-01")
	for range 12 {
		loc := restless(t, r, from)
		readings := walk(loc, from, from.AddDate(0, 0, 7))
		for _, expr := range []string{"* * * * *", "30 1 * * *", "0 12 * * *", "*/20 2-4 * * *", "7,37 0-23 * * *"} {
			agree(t, loc, expr, readings, r)
		}
		for range 10 {
			if expr := drawn(r); possible(expr) {
				agree(t, loc, expr, readings, r)
			}
		}
	}
}

// restless returns a zone that changes its clock ten times in the week after
// from, by up to a day.
func restless(t *testing.T, r *rand.Rand, from time.Time) *time.Location {
	t.Helper()
	const changes = 10
	header := make([]byte, 44)
	copy(header, "TZif")
	header[35], header[39], header[43] = changes, changes+1, 4 // transitions, offsets, bytes of names
	var whens, indexes, offsets []byte
	offset := func() {
		span := int64(pick2(r, 4, 48)) // quarters of an hour, each way
		offsets = binary.BigEndian.AppendUint32(offsets, uint32(900*(r.Int64N(2*span+1)-span)))
		offsets = append(offsets, 0, 0)
	}
	offset()
	at := from.Add(24 * time.Hour)
	for i := range changes {
		at = at.Add(time.Duration(30+r.IntN(1200)) * time.Minute)
		whens = binary.BigEndian.AppendUint32(whens, uint32(at.Unix()))
		indexes = append(indexes, byte(i+1))
		offset()
	}
	loc, err := time.LoadLocationFromTZData("restless", slices.Concat(header, whens, indexes, offsets, []byte("XXX\x00")))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}
