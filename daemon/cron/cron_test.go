package cron_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon/cron"
)

// rows reads a table that testdata/gen.sh wrote.
func rows(t *testing.T, name string) [][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.Split(strings.TrimSpace(line), "\t"))
	}
	if len(out) < 5 {
		t.Fatalf("%s has %d rows; run gen.sh", name, len(out))
	}
	return out
}

// unix reads seconds since 1970 and the letters behind them.
func unix(t *testing.T, s string) cron.Due {
	t.Helper()
	digits := strings.TrimRight(s, "gfx")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	notes := map[string]cron.Note{"": "", "g": cron.Gap, "gx": cron.Gap, "f": cron.Fold}
	return cron.Due{At: time.Unix(n, 0), Note: notes[s[len(digits):]], Skipped: strings.HasSuffix(s, "x")}
}

// wantDue checks the due instants that follow after.
func wantDue(t *testing.T, zoneName, expr string, dst cron.DST, after time.Time, want ...cron.Due) {
	t.Helper()
	e, loc := parse(t, expr), zone(t, zoneName)
	for _, w := range want {
		got, ok := e.Next(after, loc, dst, time.Time{})
		if !ok || !got.At.Equal(w.At) || got.Note != w.Note || got.Skipped != w.Skipped {
			t.Fatalf("%s %q %+v after %s: got %+v, %v; want %+v", zoneName, expr, dst, after.In(loc), got, ok, w)
		}
		if got.At.Location() != loc {
			t.Errorf("%s %q: due in %s", zoneName, expr, got.At.Location())
		}
		after = got.At
	}
}

func TestChangesOfTheClocksByGNUDate(t *testing.T) {
	for _, row := range rows(t, "dst.tsv") {
		dst := cron.DST{SkipMissing: row[2] == "s", RunBoth: row[2] == "b"}
		var want []cron.Due
		for _, s := range row[4:] {
			want = append(want, unix(t, s))
		}
		wantDue(t, row[0], row[1], dst, unix(t, row[3]).At, want...)
		if row[1][0] != '*' { // each such row has a day and a month: the rest of the year is quiet
			last := want[len(want)-1].At
			next, ok := parse(t, row[1]).Next(last, zone(t, row[0]), dst, time.Time{})
			if !ok || next.At.Sub(last) < 300*24*time.Hour {
				t.Errorf("%q: %s is followed by %+v", row, last, next)
			}
		}
	}
}

func TestLeapYearsByGNUDate(t *testing.T) {
	for _, row := range rows(t, "leap.tsv") {
		var want []cron.Due
		for _, s := range row[3:] {
			want = append(want, unix(t, s))
		}
		wantDue(t, row[0], row[1], cron.DST{}, unix(t, row[2]).At, want...)
	}
}

// at reads a time with its offset, and a note behind it.
func at(t *testing.T, s string) cron.Due {
	t.Helper()
	text, note, _ := strings.Cut(s, " ")
	when, err := time.Parse("2006-01-02T15:04:05Z07:00", text)
	if err != nil {
		t.Fatal(err)
	}
	n, skipped := strings.CutSuffix(note, ",skipped")
	return cron.Due{At: when, Note: cron.Note(n), Skipped: skipped}
}

func TestNext(t *testing.T) {
	skip, both := cron.DST{SkipMissing: true}, cron.DST{RunBoth: true}
	for name, c := range map[string]struct {
		zone, expr string
		dst        cron.DST
		after      string
		want       []string
	}{
		"seconds are dropped": {"UTC", "* * * * *", cron.DST{}, "2026-01-01T00:00:59.999Z",
			[]string{"2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"}},
		"a due instant is not after itself": {"UTC", "@hourly", cron.DST{}, "2026-01-01T00:00:00Z",
			[]string{"2026-01-01T01:00:00Z"}},
		"but it is after the nanosecond before": {"UTC", "@hourly", cron.DST{}, "2025-12-31T23:59:59.999999999Z",
			[]string{"2026-01-01T00:00:00Z"}},
		"yearly": {"Europe/Berlin", "@yearly", cron.DST{}, "2026-05-01T00:00:00Z",
			[]string{"2027-01-01T00:00:00+01:00", "2028-01-01T00:00:00+01:00"}},
		"weekly is Sunday": {"UTC", "@weekly", cron.DST{}, "2026-12-07T00:00:00Z",
			[]string{"2026-12-13T00:00:00Z"}},
		"Friday to Sunday by number": {"UTC", "0 0 * * 5-7", cron.DST{}, "2026-12-07T00:00:00Z",
			[]string{"2026-12-11T00:00:00Z", "2026-12-12T00:00:00Z", "2026-12-13T00:00:00Z", "2026-12-18T00:00:00Z"}},
		"the 13th or a Friday": {"UTC", "0 0 13 * 5", cron.DST{}, "2026-12-07T00:00:00Z",
			[]string{"2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z", "2026-12-18T00:00:00Z"}},
		"the 13th and a Friday": {"UTC", "0 0 13 * */5", cron.DST{}, "2026-11-14T00:00:00Z",
			[]string{"2026-12-13T00:00:00Z", "2027-06-13T00:00:00Z", "2027-08-13T00:00:00Z"}},
		"30 February or a Monday in February": {"UTC", "0 0 30 2 1", cron.DST{}, "2026-02-20T00:00:00Z",
			[]string{"2026-02-23T00:00:00Z", "2027-02-01T00:00:00Z"}},
		"a leap day on a Sunday is 40 years away": {"Europe/Berlin", "0 0 29 2 */7", cron.DST{}, "2060-03-01T00:00:00Z",
			[]string{"2088-02-29T00:00:00+01:00", "2128-02-29T00:00:00+01:00"}},
		"times in a gap meet one that is due there": {"America/New_York", "0,30 2,3 * * *", cron.DST{}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00", "2026-03-09T02:00:00-04:00"}},
		"and with that they run": {"America/New_York", "0,30 2,3 * * *", skip, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"}},
		"several times of a gap are one": {"America/New_York", "10,20,30 2 * * *", cron.DST{}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00 gap", "2026-03-09T02:10:00-04:00"}},
		"or one that is skipped": {"America/New_York", "10,20,30 2 * * *", skip, "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00 gap,skipped", "2026-03-09T02:10:00-04:00"}},
		"nothing is made up for an interval": {"America/New_York", "*/20 2 * * *", cron.DST{}, "2026-03-08T06:00:00Z",
			[]string{"2026-03-09T02:00:00-04:00"}},
		"a list of all hours is fixed": {"America/New_York", "0 0-23 * * *", cron.DST{}, "2026-11-01T04:59:00Z",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T02:00:00-05:00"}},
		"unless both are wanted": {"America/New_York", "0 0-23 * * *", both, "2026-11-01T04:59:00Z",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00 fold", "2026-11-01T02:00:00-05:00"}},
		"an interval goes on through a fold": {"America/New_York", "@hourly", cron.DST{}, "2026-11-01T04:59:00Z",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"}},
		"asked within the second pass": {"America/New_York", "45 1 * * *", cron.DST{}, "2026-11-01T01:10:00-05:00",
			[]string{"2026-11-02T01:45:00-05:00"}},
		"no midnight": {"America/Sao_Paulo", "@daily", cron.DST{}, "2018-11-03T12:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00 gap", "2018-11-05T00:00:00-02:00"}},
		"no midnight of that date": {"America/Sao_Paulo", "0 0 4 11 *", cron.DST{}, "2018-01-01T00:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00 gap"}},
		"a day that never was": {"Pacific/Apia", "30 5 * * *", cron.DST{}, "2011-12-29T12:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00 gap", "2011-12-31T05:30:00+14:00", "2012-01-01T05:30:00+14:00"}},
		"a day lived twice": {"Pacific/Kwajalein", "0 9 * * *", cron.DST{}, "1969-09-29T12:00:00+11:00",
			[]string{"1969-09-30T09:00:00+11:00", "1969-10-01T09:00:00-12:00"}},
		"44 minutes and a half": {"Africa/Monrovia", "0 0 * * *", cron.DST{}, "1972-01-06T12:00:00Z",
			[]string{"1972-01-07T00:44:30Z gap", "1972-01-08T00:00:00Z"}},
		"within those": {"Africa/Monrovia", "30 0 * * *", cron.DST{}, "1972-01-06T12:00:00Z",
			[]string{"1972-01-07T00:44:30Z gap"}},
		"31 December of a leap year, by rule": {"America/New_York", "0 12 * * *", cron.DST{}, "2096-12-30T17:00:00Z",
			[]string{"2096-12-31T12:00:00-05:00", "2097-01-01T12:00:00-05:00"}},
		"the year 1": {"UTC", "@yearly", cron.DST{}, "0001-01-01T00:00:00Z", []string{"0002-01-01T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []cron.Due
			for _, s := range c.want {
				want = append(want, at(t, s))
			}
			wantDue(t, c.zone, c.expr, c.dst, at(t, c.after).At, want...)
		})
	}
}

func TestNever(t *testing.T) {
	ny := zone(t, "America/New_York")
	never := func(e cron.Expr, after time.Time, loc *time.Location) {
		t.Helper()
		if due, ok := e.Next(after, loc, cron.DST{}, time.Time{}); ok {
			t.Errorf("%q after %s: %+v", e, after, due)
		}
	}
	now := day(t, "2026-01-01")
	never(cron.Expr{}, now, nil)
	// Each second Sunday of March, and each time within the gap.
	never(parse(t, "*/10 2 8-14 3 */7"), now, ny)
	never(parse(t, "* * * * *"), time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC), nil)
	never(parse(t, "@yearly"), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), nil)
	never(parse(t, "@every 1h"), time.Date(9999, 12, 31, 23, 30, 0, 0, time.UTC), nil)
	never(parse(t, "* * * * *"), time.Unix(1<<62, 0), ny)
}

func TestEvery(t *testing.T) {
	for name, c := range map[string]struct{ every, anchor, after, want string }{
		"first":              {"1h", "2026-01-01T00:10:00Z", "2026-01-01T00:10:00Z", "2026-01-01T01:10:00Z"},
		"second":             {"1h", "2026-01-01T00:10:00Z", "2026-01-01T01:10:00Z", "2026-01-01T02:10:00Z"},
		"just before":        {"1h", "2026-01-01T00:10:00Z", "2026-01-01T01:09:59.9Z", "2026-01-01T01:10:00Z"},
		"anchor ahead":       {"1h", "2026-06-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-06-01T01:00:00Z"},
		"between":            {"7s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:03Z"},
		"anchor in a second": {"1s", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:10.6Z", "2026-01-01T00:00:11.5Z"},
		"and before it":      {"1s", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:10.4Z", "2026-01-01T00:00:10.5Z"},
		"through a gap":      {"24h", "2026-03-07T02:30:00-05:00", "2026-03-08T00:00:00-05:00", "2026-03-08T03:30:00-04:00"},
		"from the year 1":    {"8784h", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-03-12T00:00:00Z"},
	} {
		e := parse(t, "@every "+c.every)
		got, ok := e.Next(at(t, c.after).At, zone(t, "America/New_York"), cron.DST{}, at(t, c.anchor).At)
		if !ok || !got.At.Equal(at(t, c.want).At) || got.Note != "" {
			t.Errorf("%s: %+v, %v; want %s", name, got, ok, c.want)
		}
	}
}

func TestJitter(t *testing.T) {
	if d := cron.Jitter("nightly", 0) + cron.Jitter("nightly", 999*time.Millisecond) + cron.Jitter("nightly", -time.Hour); d != 0 {
		t.Errorf("no room, and yet %s", d)
	}
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		name := "schedule-" + strconv.Itoa(i)
		d := cron.Jitter(name, 10*time.Second+500*time.Millisecond)
		if d < 0 || d > 10*time.Second || d%time.Second != 0 || d != cron.Jitter(name, 10500*time.Millisecond) {
			t.Fatalf("%s: %s", name, d)
		}
		seen[d] = true
	}
	if len(seen) != 11 {
		t.Errorf("%d of 11 delays were drawn", len(seen))
	}
	// By hand from the definition of FNV-1a; it must not change between releases.
	if d := cron.Jitter("a", time.Hour); d != time.Duration(0xaf63dc4c8601ec8c%uint64(3601))*time.Second {
		t.Errorf("a: %s", d)
	}
}

func TestZone(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT"} {
		if loc := zone(t, name); loc.String() != name {
			t.Errorf("%q is %s", name, loc)
		}
	}
	for _, name := range []string{"", "Local", "localtime", "posixrules", "../etc/passwd", "/etc/localtime", "Europe/../UTC",
		"Europe", "Europe/", "Europe/Berlim", "posix/UTC", "right/UTC", "zone.tab", "Mars/Olympus\x1b[31m", "Euröpe/Berlin",
		`Europe\Berlin`, strings.Repeat("A", 4000), "CET-1CEST,M3.5.0,M10.5.0/3", " UTC"} {
		loc, err := cron.Zone(name)
		if err == nil {
			t.Errorf("%q is %s", name, loc)
			continue
		}
		checkMessage(t, name, err, "time zone", "Europe/Berlin", "UTC")
	}
}

// checkMessage says whether an error is fit for a terminal and has some words.
func checkMessage(t *testing.T, input string, err error, words ...string) {
	t.Helper()
	text := err.Error()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q: %q lacks %q", input, text, w)
		}
	}
	if len(text) > 210 {
		t.Errorf("%q: %d bytes: %s", input, len(text), text)
	}
	for _, r := range text {
		if r < ' ' || r > '~' {
			t.Errorf("%q: %q is in the message", input, r)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	loc := zone(b, "America/New_York")
	after := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, expr := range []string{"* * * * *", "30 2 * * *", "@yearly", "0 0 29 2 *", "0 0 29 2 */7", "*/10 2 8-14 3 */7", "@every 1h"} {
		e := parse(b, expr)
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				e.Next(after, loc, cron.DST{}, after)
			}
		})
	}
}
