package kernel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestThingsHappenInOrderOfTimeThenOfCreation(t *testing.T) {
	k := New(1, nil)
	var got []string
	note := func(name string) func() { return func() { got = append(got, fmt.Sprint(name, "@", k.Now())) } }
	k.After(2*time.Second, note("late"))
	k.After(time.Second, note("one"))
	k.After(time.Second, note("two"))
	k.At(-5, note("now"))
	k.After(time.Second, func() { k.After(0, note("nested")) })
	if err := k.RunUntil(Time(time.Second)); err != nil {
		t.Fatal(err)
	}
	if want := "now@0.000 one@1.000 two@1.000 nested@1.000"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
	if k.Now() != Time(time.Second) {
		t.Errorf("it is %s", k.Now())
	}
}

// An event may let the world go on around it, as a process does that is frozen
// in the middle of a call.
func TestAnEventMayStandStillWhileTheWorldGoesOn(t *testing.T) {
	k := New(1, nil)
	var got []string
	k.After(time.Second, func() {
		got = append(got, "begins")
		k.RunUntil(k.Now().Add(5 * time.Second))
		got = append(got, "ends@"+k.Now().String())
	})
	k.After(3*time.Second, func() { got = append(got, "meanwhile@"+k.Now().String()) })
	k.After(10*time.Second, func() { got = append(got, "later@"+k.Now().String()) })
	k.RunUntil(Time(20 * time.Second))
	if want := "begins meanwhile@3.000 ends@6.000 later@10.000"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
}

func TestRunWhileStopsAtItsConditionOrItsEnd(t *testing.T) {
	k := New(1, nil)
	n := 0
	var tick func()
	tick = func() { n++; k.After(time.Second, tick) }
	k.After(time.Second, tick)
	if ok, err := k.RunWhile(func() bool { return n < 3 }, Time(time.Hour)); !ok || err != nil || k.Now() != Time(3*time.Second) {
		t.Errorf("%v, %v at %s", ok, err, k.Now())
	}
	if ok, err := k.RunWhile(func() bool { return true }, Time(10*time.Second)); ok || err != nil || k.Now() != Time(10*time.Second) {
		t.Errorf("%v, %v at %s", ok, err, k.Now())
	}
}

func TestAFailureEndsTheSimulation(t *testing.T) {
	var trace bytes.Buffer
	k := New(1, &trace)
	ran := false
	k.After(time.Second, func() { k.Fail("promise %d", 7); k.Fail("another") })
	k.After(2*time.Second, func() { ran = true })
	err := k.RunUntil(Time(time.Hour))
	if err == nil || err.Error() != "at 1.000: promise 7" || ran || k.Failed() != err {
		t.Errorf("%v, went on: %v", err, ran)
	}
	if !strings.Contains(trace.String(), "FAILED at 1.000: promise 7") {
		t.Errorf("the trace does not say so: %s", trace.String())
	}
}

func TestTheHashTellsTracesApart(t *testing.T) {
	run := func(seed uint64, last string) uint64 {
		k := New(seed, nil)
		for range 10 {
			k.Log("drew %d", k.Choices.N(1000))
		}
		k.Log("%s", last)
		return k.Hash()
	}
	one, again := run(1, "x"), run(1, "x")
	if one != again {
		t.Error("one seed, two hashes")
	}
	if one == run(2, "x") || one == run(1, "y") {
		t.Error("two traces, one hash")
	}
}

func TestChoicesStayInTheirBounds(t *testing.T) {
	c := NewChoices(1)
	seen := map[int]bool{}
	for range 1000 {
		seen[c.N(3)] = true
		if d := c.Between(time.Second, 2*time.Second); d < time.Second || d > 2*time.Second {
			t.Fatalf("drew %s", d)
		}
	}
	if len(seen) != 3 || seen[3] || c.Between(5, 5) != 5 || c.Drawn() != 2001 {
		t.Errorf("drew %v in %d draws", seen, c.Drawn())
	}
}

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestAHostsClocks(t *testing.T) {
	const sec = int64(time.Second)
	k := New(1, nil)
	c := NewHostClock(k, start, time.Hour)
	check := func(what string, wall time.Duration, boot int64) {
		t.Helper()
		w, b := c.Read()
		if w.Sub(start) != wall || b != 3600*sec+boot {
			t.Errorf("%s: wall %s, boot %s; want %s, %s", what, w.Sub(start), time.Duration(b-3600*sec), wall, time.Duration(boot))
		}
	}
	pass := func(d time.Duration) { k.RunUntil(k.Now().Add(d)) }
	check("new", 0, 0)
	pass(10 * time.Second)
	check("ten seconds", 10*time.Second, 10*sec)
	c.StepWall(-time.Hour)
	check("a step back", 10*time.Second-time.Hour, 10*sec)
	c.StepWall(time.Hour)
	c.SetRate(1_100_000)
	pass(10 * time.Second)
	check("ten percent fast", 21*time.Second, 21*sec)
	c.Pause()
	pass(time.Hour)
	check("paused", 21*time.Second, 21*sec)
	if _, ok := c.When(3600*sec + 22*sec); ok {
		t.Error("a paused clock gets somewhere")
	}
	c.Resume()
	c.SetRate(1_000_000)
	pass(time.Second)
	check("resumed", 22*time.Second, 22*sec)
	c.Resume() // not paused: nothing happens
	pass(time.Second)
	check("resumed twice", 23*time.Second, 23*sec)
	c.Reboot()
	if _, b := c.Read(); b != 0 {
		t.Errorf("boot clock %d after a reboot", b)
	}
}

// When must name the first instant at which the clock shows what was asked for.
func TestWhenIsTheFirstInstant(t *testing.T) {
	k := New(1, nil)
	for _, rate := range []int64{1_000_000, 900_000, 1_100_000, 999_983, 1_000_003} {
		c := NewHostClock(k, start, 0)
		c.SetRate(rate)
		_, now := c.Read()
		for range 200 {
			target := now + int64(k.Choices.Between(0, 100*time.Hour))
			at, ok := c.When(target)
			if !ok || at < k.Now() {
				t.Fatalf("rate %d: %v %v", rate, at, ok)
			}
			show := func(at Time) int64 { return c.boot + mulDiv(int64(at-c.mark), c.rate, million) }
			if show(at) < target || at > k.Now() && show(at-1) >= target {
				t.Errorf("rate %d, target %d: at %d it shows %d, one before %d", rate, target, at, show(at), show(at-1))
			}
		}
		k.RunUntil(k.Now().Add(k.Choices.Between(0, time.Hour)))
	}
}
