package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim/kernel"
)

// A drawn World: hosts, clocks, terms, a workload and misfortunes, all from one
// seed. First everything may go wrong. Then the faults stop, and the World must
// come to rest: one daemon is ready, every job has ended.

// Tally counts what happened in a drawn World, so that a campaign can show that
// it went where it claims to go.
type Tally map[string]int

// Add adds other to t.
func (t Tally) Add(other Tally) {
	for k, n := range other { // a sum: the order does not matter
		t[k] += n
	}
}

// drawn is a World while it is being drawn.
type drawn struct {
	*World
	c      *kernel.Choices
	single bool // the store is the first host's own
	tally  Tally
	tended kernel.Time
}

// Draw runs the World of a seed and says what happened in it, and the first
// promise that it broke.
func Draw(seed uint64, open Opener, trace io.Writer) (Tally, error) {
	w := New(seed, open, trace)
	d := &drawn{World: w, c: w.K.Choices, tally: Tally{}}
	d.populate()
	for range 40 + d.c.N(60) {
		d.misfortune(w.hosts[d.c.N(len(w.hosts))])
		if err := w.Run(d.c.Between(0, 10*time.Second)); err != nil {
			return d.tally, err
		}
	}
	if err := d.heal(); err != nil {
		return d.tally, err
	}
	d.count()
	return d.tally, w.Check()
}

// populate draws the hosts, their clocks and their terms.
func (d *drawn) populate() {
	ttls := []time.Duration{5 * time.Second, 6 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
	same := d.c.OneIn(2)
	ttl := ttls[d.c.N(len(ttls))]
	d.single = d.c.OneIn(8)
	skewed, drifting := d.c.OneIn(2), d.c.OneIn(2)
	for i := range 2 + d.c.N(2) {
		h := d.Host([]string{"alpha", "beta", "gamma"}[i])
		if !same {
			ttl = ttls[d.c.N(len(ttls))]
		}
		h.Terms(ttl, ttl/time.Duration(3+d.c.N(5)))
		h.Limit(1 + d.c.N(4))
		h.grace = d.c.Between(0, 20*time.Second)
		if skewed {
			h.StepWall(d.c.Between(-9*365*24*time.Hour, 20*365*24*time.Hour))
		}
		if drifting {
			h.Rate(900_000 + int64(d.c.N(200_001)))
		}
		d.Ghost.Slack = max(d.Ghost.Slack, h.terms.Renew+h.terms.Attempt()+time.Second)
		d.serve(h)
	}
}

// serve starts a daemon as its unit would.
func (d *drawn) serve(h *Host) {
	if h.stopped {
		return
	}
	opts := []Option{Standby}
	if d.single && h == d.hosts[0] {
		opts = append(opts, SingleHost)
	}
	h.Serve(opts...)
}

// misfortune is one thing that goes wrong, or one act of an operator at a bad
// moment.
func (d *drawn) misfortune(h *Host) {
	acts := []func(*Host){
		d.crash, d.start, d.start, d.freeze, d.wake, d.wake, d.wake, d.stepWall, d.suspend, d.pause, d.killKeeper, d.sicken,
		d.reboot, d.stall, d.dawdle, d.drift, d.enqueue, d.enqueue, d.enqueue, d.enqueue, d.cancel, d.cordon, d.uncordon,
		d.stop, d.force, d.crashMidway, d.freezeKeeper, d.submit}
	acts[d.c.N(len(acts))](h)
}

func (d *drawn) note(what string) { d.tally[what]++ }

func (d *drawn) crash(h *Host) {
	if h.proc != nil {
		d.note("crash")
		h.Crash()
	}
}

func (d *drawn) crashMidway(h *Host) {
	if h.proc != nil {
		d.note("crash between commit and effect")
		h.CrashBeforeEffect(1 + d.c.N(3))
	}
}

func (d *drawn) start(h *Host) {
	if h.proc == nil {
		d.serve(h)
	}
}

func (d *drawn) freeze(h *Host) {
	if h.CanFreeze() {
		d.note("freeze")
		h.Freeze()
	}
}

func (d *drawn) freezeKeeper(h *Host) {
	if h.keeper != nil && !h.stopped {
		d.note("keeper frozen")
		h.FreezeKeeper()
	}
}

func (d *drawn) killKeeper(h *Host) {
	if h.keeper != nil && !h.stopped {
		d.note("keeper killed")
		h.CrashKeeper()
	}
}

func (d *drawn) wake(h *Host) { h.Wake() }

func (d *drawn) suspend(h *Host) {
	if !h.stopped {
		d.note("suspend")
		h.Suspend()
	}
}

func (d *drawn) pause(h *Host) {
	if !h.stopped {
		d.note("vm pause")
		h.Pause()
	}
}

func (d *drawn) reboot(h *Host) {
	d.note("reboot")
	h.Wake()
	h.Reboot()
}

func (d *drawn) stepWall(h *Host) {
	d.note("clock step")
	h.StepWall(d.c.Between(-2*time.Hour, 2*time.Hour))
}

func (d *drawn) drift(h *Host) {
	if d.c.OneIn(2) {
		h.Rate(900_000 + int64(d.c.N(200_001)))
	}
}

func (d *drawn) sicken(h *Host) {
	if h.proc == nil {
		return
	}
	kinds := []FaultKind{Busy, Sick, LostCommit, LostAnswer}
	for range 1 + d.c.N(6) {
		kind := kinds[d.c.N(len(kinds))]
		d.note("store: " + string(kind))
		h.Fault(kind)
	}
}

func (d *drawn) stall(h *Host) {
	if h.CanFreeze() {
		d.note("frozen in mid-step")
		h.Stall(d.c.Between(0, time.Minute))
	}
}

func (d *drawn) dawdle(h *Host) {
	if h.CanFreeze() {
		d.note("frozen between commit and effect")
		h.Dawdle(d.c.Between(0, time.Minute))
	}
}

func (d *drawn) enqueue(h *Host) {
	if h.proc == nil {
		return
	}
	argv := [][]string{{"sleep", d.c.Between(0, 5*time.Second).String()}, {"exit", "3"}, {"stubborn", "3s"}, {"hang"}}[d.c.N(4)]
	lock := ""
	if d.c.OneIn(3) {
		lock = "a"
	}
	h.offer(daemon.EnqueueRequest{Spec: daemon.Spec{Argv: argv}, Lock: lock, TimeoutMs: 20_000})
}

func (d *drawn) submit(*Host) {
	d.note("inbox")
	if _, err := d.Submit("sleep", "1s"); err != nil {
		d.K.Fail("submit: %v", err)
	}
}

func (d *drawn) cancel(h *Host) {
	if n := len(d.Ghost.promise); n > 0 && h.proc != nil {
		h.proc.tell(daemon.Asked{Command: daemon.Cancel{Job: d.Ghost.promise[d.c.N(n)], Actor: "operator"}})
	}
}

var reasons = []string{daemon.OperatorCordon, "network"}

func (d *drawn) cordon(h *Host) {
	if h.proc != nil {
		d.note("cordon")
		h.proc.tell(daemon.Asked{Command: daemon.SetCordon{Reason: reasons[d.c.N(2)], Actor: "operator"}})
	}
}

func (d *drawn) uncordon(h *Host) {
	if h.proc != nil {
		h.lift(reasons[d.c.N(2)])
	}
}

func (h *Host) lift(reason string) {
	h.w.Ghost.lifting = append(h.w.Ghost.lifting, reason)
	h.proc.tell(daemon.Asked{Command: daemon.LiftCordon{Reason: reason, Actor: "operator"}})
}

func (d *drawn) stop(h *Host) {
	if h.proc != nil {
		d.note("stop")
		h.Signal()
	}
}

// force is an operator who reads the lease and takes it, sometimes with an
// attestation, which is then true.
func (d *drawn) force(h *Host) {
	if h.proc != nil || h.stopped {
		return
	}
	row, err := d.Lease()
	if err != nil || row.Epoch == 0 {
		return
	}
	d.note("force")
	opts := []Option{Force(row.Epoch - int64(d.c.N(2)))}
	if d.c.OneIn(3) {
		opts = append(opts, DeposeLive)
	}
	i := slices.IndexFunc(d.hosts, func(o *Host) bool { return o.Name == row.Host })
	if i >= 0 && d.hosts[i].proc == nil && d.hosts[i].keeper == nil && d.c.OneIn(2) {
		opts = append(opts, OldHostIsOff(row.Host))
	}
	h.Serve(opts...)
}

// heal stops all faults and waits for the World to come to rest, within bounds
// that follow from its terms.
func (d *drawn) heal() error {
	longest := time.Duration(0)
	for _, h := range d.hosts {
		h.Wake()
		if h.proc != nil {
			h.Heal()
			h.proc.store.crashAfter = 0
		}
		longest = max(longest, h.terms.TTL)
	}
	done := false
	defer func() { done = true }()
	d.K.After(time.Second, func() { d.watch(&done) })
	// Each host's unit starts its daemon again as often as it ends, as systemd
	// does. A takeover waits for the longest TTL by a clock that may be slow; a
	// holder that drains, or waits for a leash, may have to end first, and one that
	// never was ready is waited for like any other: three times in a row at most.
	ready := 3 * (longest*3/2 + time.Minute)
	if _, err := d.Until(ready, func() bool { return d.tend() && len(d.Active()) == 1 }); err != nil {
		return fmt.Errorf("no daemon is ready after the faults stopped: %w", err)
	}
	// Jobs last 20 s at most, by their timeout and grace, and run one at a time at
	// worst. A daemon that was ready may still turn out to be fenced.
	backlog := time.Duration(1+d.Unfinished()) * 40 * time.Second
	if _, err := d.Until(ready+backlog, func() bool { return d.tend() && d.Unfinished() == 0 }); err != nil {
		return fmt.Errorf("%d jobs do not end after the faults stopped: %w", d.Unfinished(), err)
	}
	return nil
}

// watch looks again each second, also when nothing else happens.
func (d *drawn) watch(done *bool) {
	if !*done {
		d.K.After(time.Second, func() { d.watch(done) })
	}
}

// tend does what units and operators do in a World at rest: it starts what has
// ended, and lifts cordons. It returns true.
func (d *drawn) tend() bool {
	if d.K.Now().Sub(d.tended) < time.Second {
		return true
	}
	d.tended = d.K.Now()
	for _, h := range d.hosts {
		if h.proc == nil {
			d.serve(h)
		}
	}
	if active := d.Active(); len(active) == 1 && len(d.Ghost.cordons) > 0 {
		active[0].lift(d.Ghost.cordons[0])
	}
	return true
}

// count sums up how jobs ended and how often the lease changed hands.
func (d *drawn) count() {
	d.tally["terms"] = d.Ghost.Terms()
	d.tally["stood down"] = len(d.Ghost.fenced)
	err := d.View(func(r daemon.Reader) error {
		for _, s := range daemon.TerminalStates {
			n, err := daemon.Jobs.Count(context.Background(), r, daemon.Query{By: "jobs_state", Equal: []any{string(s)}, Limit: 10_000})
			if err != nil {
				return err
			}
			d.tally["jobs "+string(s)] = n
		}
		forced, err := daemon.Happenings.Scan(context.Background(), r, daemon.Query{Limit: 10_000})
		for _, h := range forced {
			if h.Kind == "lease.forced" {
				d.tally["forced takeovers"]++
			}
		}
		return err
	})
	if err != nil {
		d.K.Fail("count: %v", err)
	}
}
