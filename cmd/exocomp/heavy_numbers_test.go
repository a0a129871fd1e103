//go:build heavy

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// TestTakeoverNumbers measures how long a store is without an active daemon, and
// prints it. It asserts nothing about time: the machine may be busy.
func TestTakeoverNumbers(t *testing.T) {
	bin := heavyBin(t)
	var rows []string
	for _, m := range []struct {
		ttl     time.Duration
		samples int
	}{{5 * time.Second, 10}, {10 * time.Second, 5}, {30 * time.Second, 2}} {
		two := newTrial(t, bin, m.ttl, "alpha", "beta")
		rows = append(rows, row("takeover by another host after kill -9", m.ttl, measure(m.samples, two.killed)))
		two.close()
	}
	two := newTrial(t, bin, 30*time.Second, "alpha", "beta")
	rows = append(rows, row("planned failover, SIGTERM", 30*time.Second, measure(20, two.terminated)))
	two.close()
	one := newTrial(t, bin, 30*time.Second, "alpha")
	rows = append(rows, row("return of the same host after kill -9", 30*time.Second, measure(20, one.killed)))
	one.close()
	t.Logf("NUMBERS, from the signal to READY of whoever serves next, one job running\n%-40s %5s %7s %9s %9s %9s\n%s",
		"what", "T", "samples", "min", "median", "max", strings.Join(rows, "\n"))
}

func measure(n int, sample func() time.Duration) []time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, sample())
	}
	slices.Sort(all)
	return all
}

func row(what string, ttl time.Duration, sorted []time.Duration) string {
	short := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return fmt.Sprintf("%-40s %5s %7d %9s %9s %9s", what, ttl, len(sorted), short(sorted[0]),
		short(sorted[len(sorted)/2]), short(sorted[len(sorted)-1]))
}

// trial is one or two supervised hosts over one store.
type trial struct {
	t     *testing.T
	data  string
	hosts []*host
}

func newTrial(t *testing.T, bin string, ttl time.Duration, names ...string) *trial {
	dir := heavyDir(t, "numbers")
	x := &trial{t: t, data: filepath.Join(dir, "data")}
	exocomp(t, bin, "init", "--data-dir", x.data)
	for _, name := range names {
		h := newHost(t, dir, name, bin, []string{"--lease-ttl", ttl.String(), "--standby", "--drain-grace", "0s"}, nil)
		h.pause = 0
		x.hosts = append(x.hosts, h)
		go h.supervise()
	}
	return x
}

func (x *trial) close() {
	for _, h := range x.hosts {
		h.close()
	}
}

// settled waits until one host serves, with a job, and all others stand by.
func (x *trial) settled() (active, next *host) {
	quiet := func() bool {
		active, next = nil, nil
		for _, h := range x.hosts {
			switch code, _ := h.get("/readyz"); code {
			case 200:
				active = h
			case 503:
				next = h
			}
		}
		return active != nil && (next != nil || len(x.hosts) == 1)
	}
	if !until(within, quiet) {
		x.t.Fatal("the hosts do not settle")
	}
	if next == nil {
		next = active
	}
	id, _, err := active.submit("--data-dir", x.data, "--", "sleep", "1000")
	running := func() bool {
		j, err := active.client().Job(x.t.Context(), id)
		return err == nil && j.State == daemon.Running
	}
	if err != nil || !until(within, running) {
		x.t.Fatalf("no job runs: %v", err)
	}
	return active, next
}

// killed is one sample of kill -9.
func (x *trial) killed() time.Duration { return x.ended(syscall.SIGKILL) }

// terminated is one sample of an orderly stop.
func (x *trial) terminated() time.Duration { return x.ended(syscall.SIGTERM) }

// ended ends the active daemon. With two hosts its own stays away until the
// other serves: a supervisor that is quick would give it the lease back.
func (x *trial) ended(sig syscall.Signal) time.Duration {
	active, next := x.settled()
	if active != next {
		active.startAfter(time.Now().Add(time.Hour))
		defer active.startAfter(time.Time{})
	}
	if err := active.present().Signal(sig); err != nil {
		x.t.Fatal(err)
	}
	return x.untilReady(next)
}

// untilReady returns how long it takes until h serves.
func (x *trial) untilReady(h *host) time.Duration {
	begin := time.Now()
	for !h.active() {
		if time.Since(begin) > 2*time.Minute {
			x.t.Fatalf("%s does not serve", h.name)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(begin)
}
