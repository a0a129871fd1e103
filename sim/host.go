package sim

import (
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim/kernel"
)

// Host is one machine: two clocks, a lock file, a disk for exit records, at
// most one daemon and one keeper.
type Host struct {
	Name string

	w       *World
	clock   *kernel.HostClock
	boots   int    // counts boots: the boot id
	lockIno uint64 // inode of serve.lock
	terms   daemon.Terms
	limit   int
	grace   time.Duration

	proc    *proc   // the daemon process that holds the lock, if any
	keeper  *keeper // the one that holds keeper.lock, if any
	records []daemon.Exit
	lives   int           // daemon processes that were started
	keepers int           // keepers that were started
	slow    time.Duration // how long the next keeper takes to start
	noStart string        // why no keeper can be started, or ""

	sent     [2]kernel.Time // arrival of the last message to the keeper, and from it
	woke     kernel.Time    // when it last resumed from a suspend or a pause
	daze     time.Duration  // how long after that it cannot know how long it stood still
	lockGone bool           // serve.lock is not the file that is locked
	blocker  string         // who holds the write lock, as this host can see
	stopped  bool           // suspended or paused: no process runs
	waiting  []func()       // what falls due while it is stopped
}

// hostClock is a host's daemon.Clock. It tells the time and no more: the nil
// clock.Clock inside makes a request for a timer a crash, since code under
// simulation must not wait.
type hostClock struct {
	clock.Clock
	h *kernel.HostClock
}

func (c hostClock) Now() time.Time                  { t, _ := c.h.Read(); return t }
func (c hostClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c hostClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
func (c hostClock) Boot() daemon.Boottime           { _, b := c.h.Read(); return daemon.Boottime(b) }

// Boot returns what the host's boot clock shows.
func (h *Host) Boot() daemon.Boottime { _, b := h.clock.Read(); return daemon.Boottime(b) }

// Wall returns what the host's wall clock shows.
func (h *Host) Wall() time.Time { t, _ := h.clock.Read(); return t }

// Terms sets the lease terms that the host's daemons are started with.
func (h *Host) Terms(ttl, renew time.Duration) { h.terms = daemon.Terms{TTL: ttl, Renew: renew} }

// Limit sets how many jobs the host's daemons run at once.
func (h *Host) Limit(n int) { h.limit = n }

// StepWall moves the wall clock.
func (h *Host) StepWall(d time.Duration) {
	h.w.K.Log("%s: wall clock steps by %s", h.Name, d)
	h.clock.StepWall(d)
}

// Rate makes both clocks run at ppm: 1_000_000 is right.
func (h *Host) Rate(ppm int64) {
	h.w.K.Log("%s: clocks run at %d ppm", h.Name, ppm)
	h.clock.SetRate(ppm)
	h.replan()
}

// Suspend stops every process; the clocks go on.
func (h *Host) Suspend() {
	h.daze = min(h.w.Ghost.Slack, wakeLatency)
	h.stop("suspends")
}

// Pause stops every process and both clocks, as a hypervisor does with a
// virtual machine.
func (h *Host) Pause() {
	h.daze = h.w.Ghost.Slack
	h.clock.Pause()
	h.stop("is paused")
}

// Resume ends a suspend or a pause.
func (h *Host) Resume() {
	h.w.K.Log("%s resumes", h.Name)
	h.clock.Resume()
	h.stopped, h.woke = false, h.w.K.Now()
	due := h.waiting
	h.waiting = nil
	h.replan()
	for _, fn := range due {
		fn()
	}
}

func (h *Host) stop(how string) {
	h.w.K.Log("%s %s", h.Name, how)
	h.clock.StepWall(0) // settle
	h.stopped = true
}

// Reboot ends every process without a word and comes back with a new boot id.
func (h *Host) Reboot() {
	h.w.K.Log("%s reboots", h.Name)
	if h.proc != nil {
		h.proc.end("reboot")
	}
	if h.keeper != nil {
		h.keeper.vanish()
	}
	h.boots++
	h.clock.Reboot()
	h.stopped, h.waiting = false, nil
}

// run makes fn happen after d, or when the host runs again, if it does not then.
func (h *Host) run(d time.Duration, fn func()) {
	h.w.K.After(d, func() {
		if h.stopped {
			h.waiting = append(h.waiting, fn)
			return
		}
		fn()
	})
}

// Directions of the socket between daemon and keeper.
const (
	toKeeper = iota
	fromKeeper
)

// message makes fn happen after the latency of a message, never before what
// was sent earlier in the same direction.
func (h *Host) message(direction int, fn func()) {
	at := max(h.w.K.Now().Add(h.w.latency()), h.sent[direction]+1)
	h.sent[direction] = at
	h.run(at.Sub(h.w.K.Now()), fn)
}

// atBoot makes fn happen when the boot clock shows at. A later replan makes it
// void: whoever waits plans again.
func (h *Host) atBoot(at daemon.Boottime, fn func()) {
	if t, ok := h.clock.When(int64(at)); ok {
		h.w.K.At(t, func() {
			if !h.stopped {
				fn()
			}
		})
	}
}

// replan renews what waits for an instant of the boot clock, after that clock
// was touched.
func (h *Host) replan() {
	if h.proc != nil {
		h.proc.plan()
	}
	if h.keeper != nil {
		h.keeper.plan()
	}
}

func (h *Host) bootID() string { return fmt.Sprintf("%s-boot-%d", h.Name, h.boots) }

// Running returns the jobs with a live process on this host.
func (h *Host) Running() []string {
	var ids []string
	if h.keeper != nil {
		for _, j := range h.keeper.jobs {
			if j.alive {
				ids = append(ids, j.job)
			}
		}
	}
	return ids
}

// Records returns how many ends the host's keeper has not been told to forget.
func (h *Host) Records() int { return len(h.records) }

// CanFreeze says whether there is a daemon that runs and may be stopped.
func (h *Host) CanFreeze() bool { return h.proc != nil && h.proc.runs() }

// awake says whether there is a daemon that gets anything done at this instant:
// one that is held up within a Step does not.
func (h *Host) awake() bool { return h.CanFreeze() && !h.proc.stepping }

// Wake ends whatever keeps the host or its daemon from running.
func (h *Host) Wake() {
	if h.stopped {
		h.Resume()
	}
	if h.proc != nil && h.proc.frozen {
		h.Thaw()
	}
	if h.keeper != nil && h.keeper.frozen {
		h.ThawKeeper()
	}
}
