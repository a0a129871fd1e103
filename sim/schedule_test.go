package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim"
)

// schedule adds one and reloads. Change makes it another than one that fires
// every minute and does nothing for a second.
func (w *world) schedule(h *sim.Host, name string, change func(*daemon.ScheduleRequest)) {
	w.t.Helper()
	r := daemon.ScheduleRequest{Name: name, Cron: "* * * * *", Job: daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"sleep", "1s"}}}}
	if change != nil {
		change(&r)
	}
	if _, err := h.Client().AddSchedule(context.Background(), r); err != nil {
		w.t.Fatal(err)
	}
	w.reload(h)
}

func (w *world) reload(h *sim.Host) {
	h.Reload()
	w.pass(10 * time.Millisecond)
}

// outcomes returns the ledger of a schedule since some minute, as in "fired
// fired missed".
func (w *world) outcomes(name string) string {
	w.t.Helper()
	rows, err := w.Fires(name)
	if err != nil {
		w.t.Fatal(err)
	}
	words := make([]string, len(rows))
	for i, f := range rows {
		words[i] = string(f.Outcome)
	}
	return strings.Join(words, " ")
}

func (w *world) wantOutcomes(name, want string) {
	w.t.Helper()
	if got := w.outcomes(name); got != want {
		w.t.Errorf("ledger of %s: %s\nwant %s", name, got, want)
	}
}

func (w *world) wantDecided(h *sim.Host) {
	w.t.Helper()
	if name, late := h.Overdue(5 * time.Second); late {
		w.t.Errorf("%s lags behind on %s", name, h.Name)
	}
}

// serving returns a host with a daemon that is READY, 5 s into a minute.
func serving(w *world, name string) *sim.Host {
	h := w.Host(name)
	h.Serve()
	w.pass(5 * time.Second)
	return h
}

func TestAScheduleFiresAtEachDueInstantOnce(t *testing.T) {
	w := newWorld(t, 200)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	w.pass(3 * time.Minute)
	w.wantOutcomes("tick", "fired fired fired")
	rows, _ := w.Fires("tick")
	for _, f := range rows {
		j := w.job(f.Job)
		if j.State != daemon.Succeeded || j.Trigger != "schedule" || j.Schedule != "tick" || j.DueMs != f.InstantMs {
			t.Errorf("job %s: %s, trigger %s of %s, due %s", j.ID, j.State, j.Trigger, j.Schedule, j.DueMs.Time())
		}
		if late := j.StartedMs - f.InstantMs; late < 0 || late > 50 {
			t.Errorf("started %d ms after it was due", late)
		}
	}
}

// An answer lost at the fire, or a crash between its commit and its effect, must
// neither fire twice nor lose the instant.
func TestNoFaultFiresAnInstantTwice(t *testing.T) {
	for _, fault := range []sim.FaultKind{sim.LostAnswer, sim.LostCommit, sim.Sick, sim.Busy} {
		w := newWorld(t, 201)
		alpha := serving(w, "alpha")
		w.schedule(alpha, "tick", nil)
		w.pass(54 * time.Second) // the next Update but the renewals' is the fire's
		alpha.Fault(fault, fault)
		w.pass(time.Minute)
		w.wantDecided(alpha)
		if got := w.outcomes("tick"); !strings.HasPrefix(got, "fired") {
			t.Errorf("%s: %s", fault, got)
		}
	}
}

func TestAnInstantDuringATakeoverFiresLate(t *testing.T) {
	w := newWorld(t, 202)
	alpha, beta := serving(w, "alpha"), w.Host("beta")
	w.schedule(alpha, "tick", nil)
	beta.Serve(sim.Standby)
	w.pass(50 * time.Second) // 12:00:55
	alpha.Crash()
	w.wait(time.Minute, "takeover", w.isActive(beta))
	w.pass(time.Minute)
	w.wantOutcomes("tick", "fired fired")
	w.wantDecided(beta)
}

// A holder that freezes over two instants and wakes deposed fires neither.
func TestAHolderThatWakesTooLateFiresNothing(t *testing.T) {
	w := newWorld(t, 203)
	alpha, beta := serving(w, "alpha"), w.Host("beta")
	w.schedule(alpha, "tick", nil)
	beta.Serve(sim.Standby)
	w.pass(50 * time.Second)
	alpha.Freeze()
	w.pass(3 * time.Minute)
	w.wantActive(beta)
	before := w.outcomes("tick")
	alpha.Thaw()
	w.pass(3 * time.Second) // the next minute is not full yet
	if got := w.outcomes("tick"); got != before {
		t.Errorf("%s\nbecame %s", before, got)
	}
	if strings.Contains(before, "missed") {
		t.Errorf("a takeover of 30 s missed something: %s", before)
	}
}

func TestAfterALongAbsence(t *testing.T) {
	for _, c := range []struct {
		name, missed string
		deadline     time.Duration
		want         string
	}{
		{"skip", "skip", 0, "fired missed missed missed missed missed"},
		{"latest in time", "latest", time.Hour, "fired missed missed missed missed fired"},
		{"latest too late", "latest", 10 * time.Minute, "fired missed missed missed missed missed"},
	} {
		w := newWorld(t, 204)
		alpha := serving(w, "alpha")
		w.schedule(alpha, "hourly", func(r *daemon.ScheduleRequest) {
			r.Cron, r.Missed, r.DeadlineMs = "0 * * * *", c.missed, c.deadline.Milliseconds()
		})
		w.pass(time.Hour)
		alpha.Crash()
		w.pass(5*time.Hour + 20*time.Minute)
		alpha.Serve()
		w.pass(time.Minute)
		w.wantOutcomes("hourly", c.want)
		w.wantDecided(alpha)
	}
}

// Ten years of silence write a thousand lines and one for the rest.
func TestALongGapIsOneLine(t *testing.T) {
	w := newWorld(t, 205)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	w.pass(time.Minute)
	alpha.Crash()
	alpha.StepWall(10 * 366 * 24 * time.Hour)
	alpha.Serve()
	w.pass(2 * time.Minute)
	rows, err := w.Fires("tick")
	if err != nil {
		t.Fatal(err)
	}
	many := 0
	for _, f := range rows {
		if f.UntilMs != 0 {
			many++
		}
	}
	if many != 1 || len(rows) < 1001 || len(rows) > 1005 {
		t.Errorf("%d lines, %d of them for many", len(rows), many)
	}
	w.wantDecided(alpha)
}

// The clock goes forward over ten instants, which only the newest may follow, and
// back again: what fired stands, the rest is decided anew, nothing fires twice.
func TestTheClockGoesForwardAndBack(t *testing.T) {
	w := newWorld(t, 206)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	w.pass(time.Minute)
	alpha.StepWall(10 * time.Minute)
	w.pass(5 * time.Second)
	if got := w.outcomes("tick"); got != "fired "+strings.Repeat("missed ", 9)+"fired" {
		t.Errorf("after the step forward: %s", got)
	}
	alpha.StepWall(-10 * time.Minute)
	w.pass(5 * time.Second)
	if got := w.outcomes("tick"); got != "fired fired" {
		t.Errorf("after the step back: %s", got)
	}
	w.pass(12 * time.Minute)
	w.wantOutcomes("tick", strings.TrimSpace(strings.Repeat("fired ", 13)))
	w.wantDecided(alpha)
}

// An edit while the clock was a year ahead must not keep the schedule silent for
// that year.
func TestAnEditUnderAWrongClockIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 207)
	alpha := serving(w, "alpha")
	alpha.StepWall(365 * 24 * time.Hour)
	w.pass(time.Second)
	w.schedule(alpha, "tick", nil)
	alpha.StepWall(-365 * 24 * time.Hour)
	w.pass(2 * time.Minute)
	w.wantOutcomes("tick", "fired fired")
}

func TestASuspendOverInstants(t *testing.T) {
	w := newWorld(t, 208)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	w.pass(time.Minute)
	alpha.Suspend()
	w.pass(10 * time.Minute)
	alpha.Resume()
	w.wait(2*time.Minute, "the way back", func() bool {
		if alpha.Daemon() == nil {
			alpha.Serve()
		}
		return len(w.Active()) == 1
	})
	w.pass(time.Minute)
	w.wantDecided(alpha)
	if got := w.outcomes("tick"); strings.Count(got, "missed") < 8 {
		t.Errorf("%s", got)
	}
}

func TestACordonedInstantIsRecorded(t *testing.T) {
	w := newWorld(t, 209)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	if _, err := alpha.Client().Cordon(context.Background(), "operator", ""); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if _, err := alpha.Client().Uncordon(context.Background(), "operator"); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	w.wantOutcomes("tick", "cordoned fired")
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct{ overlap, want string }{
		{"skip", "fired overlap overlap fired overlap"},
		{"queue", "fired fired overlap fired overlap"}, // one runs, one waits
		{"allow", "fired fired fired fired fired"},
	} {
		w := newWorld(t, 210)
		alpha := serving(w, "alpha")
		w.schedule(alpha, "slow", func(r *daemon.ScheduleRequest) {
			r.Overlap, r.Job.Spec.Argv = c.overlap, []string{"sleep", "150s"}
		})
		w.pass(5 * time.Minute)
		w.wantOutcomes("slow", c.want)
	}
}

// One second before the fire the schedule is edited. Nobody reloads: neither
// version acts. After the reload the new one decides, also over what was due
// meanwhile.
func TestAnEditASecondBeforeTheFire(t *testing.T) {
	w := newWorld(t, 211)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", nil)
	w.pass(54 * time.Second)
	edit := daemon.ScheduleRequest{Name: "tick", Cron: "* * * * *", Job: daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"exit", "3"}}}}
	if _, err := alpha.Client().EditSchedule(context.Background(), edit); err != nil {
		t.Fatal(err)
	}
	w.pass(20 * time.Second)
	w.wantOutcomes("tick", "")
	w.reload(alpha)
	w.pass(time.Second)
	w.wantOutcomes("tick", "fired")
	rows, _ := w.Fires("tick")
	if j := w.job(rows[0].Job); rows[0].Version != 2 || j.Spec.Argv[0] != "exit" {
		t.Errorf("version %d ran %v", rows[0].Version, j.Spec.Argv)
	}
}

func TestAnEditWaitsForTheReloadIntervalWhereThereIsOne(t *testing.T) {
	w := newWorld(t, 212)
	alpha := w.Host("alpha")
	alpha.Serve(func(c *daemon.Config) { c.ReloadEvery = 20 * time.Second })
	w.pass(5 * time.Second)
	r := daemon.ScheduleRequest{Name: "tick", Cron: "* * * * *", Job: daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"sleep", "1s"}}}}
	if _, err := alpha.Client().AddSchedule(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	w.wantOutcomes("tick", "fired")
}

// A reload before READY is remembered, a disabled or removed schedule stops at
// once, and what was due before belongs to the version that was in force.
func TestDisableAndRemoveAreInForceAtOnce(t *testing.T) {
	ctx := context.Background()
	for _, remove := range []bool{false, true} {
		w := newWorld(t, 213)
		alpha := serving(w, "alpha")
		w.schedule(alpha, "tick", nil)
		w.pass(54*time.Second + 900*time.Millisecond)
		alpha.Freeze() // over the instant
		w.pass(2 * time.Second)
		alpha.Thaw()
		var err error
		if remove {
			_, err = alpha.Client().RemoveSchedule(ctx, "tick")
		} else {
			_, err = alpha.Client().EnableSchedule(ctx, "tick", false)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.pass(3 * time.Minute)
		w.wantOutcomes("tick", "fired")
		if remove {
			continue
		}
		if _, err := alpha.Client().EnableSchedule(ctx, "tick", true); err != nil {
			t.Fatal(err)
		}
		w.reload(alpha)
		w.pass(time.Minute)
		w.wantOutcomes("tick", "fired fired")
	}
}

func TestJitterIsTheSameEachTimeAndLosesNothingAtAnEdit(t *testing.T) {
	w := newWorld(t, 214)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "tick", func(r *daemon.ScheduleRequest) { r.JitterMs = 40_000 })
	w.pass(5 * time.Minute)
	rows, err := w.Fires("tick")
	if err != nil || len(rows) < 4 {
		t.Fatalf("%d lines, %v", len(rows), err)
	}
	first := rows[0].AtMs - rows[0].InstantMs
	for _, f := range rows {
		if late := f.AtMs - f.InstantMs; late/1000 != first/1000 || late < 1000 {
			t.Errorf("%d ms late, the first was %d", late, first)
		}
	}
	next, err := alpha.Client().Upcoming(context.Background(), daemon.UpcomingQuery{Name: "tick", N: 1})
	if err != nil || (next.Upcoming[0].Starts-next.Upcoming[0].Instant)/1000 != first/1000 {
		t.Errorf("next says %+v, %v", next.Upcoming, err)
	}
	// Between the instant and its start somebody edits: the ghost sees that the
	// instant has a line.
	w.wait(time.Minute, "a full minute", func() bool { return alpha.Wall().Second() == 0 })
	if rows, err = w.Fires("tick"); err != nil {
		t.Fatal(err)
	}
	edit := daemon.ScheduleRequest{Name: "tick", Cron: "0 0 1 1 *", Job: daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"exit", "3"}}}}
	if _, err := alpha.Client().EditSchedule(context.Background(), edit); err != nil {
		t.Fatal(err)
	}
	after, _ := w.Fires("tick")
	if len(after) != len(rows)+1 {
		t.Errorf("%d lines before the edit, %d after it", len(rows), len(after))
	}
}

// A schedule that this version does not understand stops no other.
func TestABadScheduleNeverStopsTheOthers(t *testing.T) {
	w := newWorld(t, 215)
	alpha := serving(w, "alpha")
	w.schedule(alpha, "good", nil)
	w.schedule(alpha, "bad", nil)
	w.schedule(alpha, "zoned", nil)
	w.schedule(alpha, "refused", nil)
	err := w.ForgeSchedules(func(s daemon.Schedule) daemon.Schedule {
		s.Version++
		switch s.Name {
		case "bad":
			s.Cron = "every full moon"
		case "zoned":
			s.Zone = "Mars/Olympus"
		case "refused":
			s.Job.Kind = "levitate"
		}
		return s
	})
	if err != nil {
		t.Fatal(err)
	}
	w.reload(alpha)
	w.pass(time.Minute)
	w.wantOutcomes("good", "fired")
	w.wantOutcomes("bad", "")
	w.wantOutcomes("zoned", "")
	w.wantOutcomes("refused", "refused")
	list, err := alpha.Client().Schedules(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list.Schedules {
		if broken := v.Name == "bad" || v.Name == "zoned"; (v.Broken != "") != broken {
			t.Errorf("%s: broken %q", v.Name, v.Broken)
		}
	}
}

// R14: a job of a schedule that was swept before it started is a missed one.
func TestAJobThatWasSweptBeforeItStartedIsMissed(t *testing.T) {
	w := newWorld(t, 216)
	alpha := w.Host("alpha")
	alpha.Limit(1)
	alpha.Serve()
	w.pass(5 * time.Second)
	w.schedule(alpha, "tick", func(r *daemon.ScheduleRequest) { r.Cron = "0 * * * *" })
	w.pass(59 * time.Minute)
	w.enqueue(alpha, "hang") // takes the only place
	w.pass(time.Minute)
	w.wantOutcomes("tick", "fired")
	alpha.Crash()
	w.pass(time.Second)
	alpha.Serve()
	w.pass(time.Minute)
	w.wantOutcomes("tick", "missed")
	rows, _ := w.Fires("tick")
	if !strings.Contains(rows[0].Reason, "cut off before it started") {
		t.Errorf("reason %q", rows[0].Reason)
	}
}

// A year of virtual time in five zones, by a daemon that is looked at once an
// hour: each instant that an independent walk over the minutes of that year finds
// is in the ledger, once.
func TestAYearInFiveZones(t *testing.T) {
	schedules := map[string]struct {
		cron  string
		fixed bool
		match func(time.Time) bool
	}{
		"night":   {"30 2 * * *", true, func(l time.Time) bool { return l.Hour() == 2 && l.Minute() == 30 }},
		"halves":  {"*/30 0-3 * * sun", false, func(l time.Time) bool { return l.Weekday() == 0 && l.Hour() < 4 && l.Minute()%30 == 0 }},
		"monthly": {"0 0 1 * *", true, func(l time.Time) bool { return l.Day() == 1 && l.Hour() == 0 && l.Minute() == 0 }},
	}
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata"} {
		t.Run(strings.ReplaceAll(zone, "/", "-"), func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, 217)
			alpha := w.Host("alpha")
			alpha.Terms(200*time.Hour, 50*time.Hour)
			alpha.Serve(func(c *daemon.Config) { c.Poll = time.Hour })
			w.pass(5 * time.Second)
			for name, s := range schedules { // each on its own: the order does not matter
				w.schedule(alpha, name, func(r *daemon.ScheduleRequest) { r.Cron, r.Zone = s.cron, zone })
			}
			from := alpha.Wall()
			w.pass(365 * 24 * time.Hour)
			until := alpha.Wall()
			for name, s := range schedules {
				want := walk(from, until, loc, s.fixed, s.match)
				rows, err := w.Fires(name)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, f := range rows {
					got = append(got, f.InstantMs.Time().Format(time.RFC3339))
					if f.Outcome != daemon.Fired {
						t.Errorf("%s: %s %s %s", name, f.InstantMs.Time(), f.Outcome, f.Reason)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %d lines, want %d:\n%v\n%v", name, len(got), len(want), got, want)
				}
			}
		})
	}
}

// walk looks at every minute of real time. A fixed time that the clock never
// shows that day is due right behind the gap, one that it shows twice the first
// time.
func walk(from, until time.Time, loc *time.Location, fixed bool, match func(time.Time) bool) (due []string) {
	shown := map[string]bool{}
	last := from.Truncate(time.Minute).In(loc)
	for at := last.Add(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		local, hit := at.In(loc), false
		wall := local.Format("2006-01-02T15:04")
		for l := naive(last).Add(time.Minute); fixed && l.Before(naive(local)); l = l.Add(time.Minute) {
			hit = hit || match(l) // the clock leapt over l
		}
		hit = hit || match(local) && !(fixed && shown[wall])
		if shown[wall], last = true, local; hit {
			due = append(due, at.UTC().Format(time.RFC3339))
		}
	}
	return due
}

// naive is what a clock shows, counted as if it were UTC.
func naive(l time.Time) time.Time {
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
}
