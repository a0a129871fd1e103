//go:build heavy

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Random rounds: two hosts over one store, jobs all the time, and in each round
// some of SIGSTOP, SIGCONT and SIGKILL for daemons and keepers. What must hold
// is in heavy_judge_test.go.
//
//	HEAVY_ROUNDS  how many rounds in each mode (200)
//	HEAVY_PAIRS   how many pairs of hosts at once (2)
//	HEAVY_SEED    of the draws (from the clock; printed)
//	HEAVY_FIRST   the first round (0)
//
// Time decides as well, so a seed repeats the faults of a round, not its course.

// heavyMode is one way of keeping the store.
type heavyMode struct {
	name  string
	init  []string
	serve []string
}

var heavyModes = []heavyMode{
	{name: "wal"},
	{name: "shared", init: []string{"--shared-store"}, serve: []string{"--shared-store"}},
}

const heavyTTL = 5 * time.Second

func TestHeavyRounds(t *testing.T) {
	for _, mode := range heavyModes {
		t.Run(mode.name, func(t *testing.T) { campaign(t, mode) })
	}
}

func campaign(t *testing.T, mode heavyMode) {
	bin := heavyBin(t)
	if help := exocomp(t, bin, "serve", "--help"); len(mode.serve) > 0 && !strings.Contains(help, mode.serve[0]) {
		t.Fatalf("NOT RUN: this exocomp serves no store with %s", mode.serve[0])
	}
	rounds, pairs := heavyNumber("HEAVY_ROUNDS", 200), heavyNumber("HEAVY_PAIRS", 2)
	seed, first := uint64(heavyNumber("HEAVY_SEED", int(time.Now().Unix()))), heavyNumber("HEAVY_FIRST", 0)
	t.Logf("SEED %d: HEAVY_SEED=%[1]d HEAVY_ROUNDS=%d HEAVY_FIRST=%d go test -tags heavy ./cmd/exocomp -run TestHeavyRounds/%s -v",
		seed, rounds, first, mode.name)
	var all tally
	t.Run("pairs", func(t *testing.T) {
		for k := range pairs {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, bin, mode, seed, k)
				for n := first + k; n < first+rounds; n += pairs {
					p.round(n)
				}
				p.finish(first + rounds)
				all.add(p.tally)
			})
		}
	})
	t.Logf("SUMMARY rounds/%s, seed %d: %s", mode.name, seed, all.String())
}

// pair is two hosts over one store.
type pair struct {
	t      *testing.T
	seed   uint64
	dir    string
	bin    string
	cgroup bool // job processes are held by cgroups
	hosts  []*host
	stream *stream
	judge  *judge
	tally  *tally
	now    atomic.Pointer[string] // what goes on, for messages
}

// newPair starts both daemons. Odd pairs do without cgroups; their alpha is a
// plain serve, which refuses and is started again, where the others stand by.
func newPair(t *testing.T, bin string, mode heavyMode, seed uint64, k int) *pair {
	dir := heavyDir(t, fmt.Sprintf("%s-%d", mode.name, k))
	p := &pair{t: t, seed: seed, dir: dir, bin: bin, cgroup: k%2 == 0, tally: &tally{}}
	p.says("as it begins")
	data := filepath.Join(dir, "data")
	exocomp(t, bin, slices.Concat([]string{"init", "--data-dir", data}, mode.init)...)
	var env []string
	if !p.cgroup {
		env = append(env, "EXOCOMP_NO_CGROUP=1")
	}
	args := slices.Concat([]string{"--lease-ttl", heavyTTL.String(), "--jobs", "6", "--drain-grace", "1s"}, mode.serve)
	standby := slices.Concat(args, []string{"--standby"})
	for i, name := range []string{"alpha", "beta"} {
		if i == 1 || p.cgroup {
			args = standby
		}
		h := newHost(t, dir, name, bin, args, env)
		h.ended = func(code int, killed bool) { p.ended(h, code, killed) }
		p.hosts = append(p.hosts, h)
		go h.supervise()
		t.Cleanup(h.close)
	}
	p.judge = newJudge(p, data)
	p.settle()
	active, _ := p.roles()
	if base, err := os.ReadFile(filepath.Join(active.state, "keeper.cgroup")); p.cgroup && (err != nil || len(base) == 0) {
		t.Logf("NO CGROUPS HERE: pair %d runs without them", k)
		p.cgroup = false
	}
	p.stream = newStream(p, rand.New(rand.NewPCG(seed, uint64(k)<<32)))
	go p.stream.run()
	t.Cleanup(p.stream.stop)
	return p
}

// ended judges how a daemon ended.
func (p *pair) ended(h *host, code int, killed bool) {
	switch {
	case killed, code == 0:
	case code == 75:
		p.tally.count(&p.tally.refused)
	case code == 76:
		p.tally.count(&p.tally.stoodDown)
	case code == 77:
		p.tally.count(&p.tally.watchdogs)
	default:
		p.violate("the daemon on %s ended with %d; see %s", h.name, code, h.log.Name())
	}
}

func (p *pair) says(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.now.Store(&text)
}

// violate is the one line of a broken promise.
func (p *pair) violate(format string, args ...any) {
	p.tally.count(&p.tally.violations)
	p.t.Errorf("VIOLATION seed %d, %s, in %s: %s", p.seed, *p.now.Load(), p.dir, fmt.Sprintf(format, args...))
}

// round lets a few misfortunes happen, waits until one daemon is active again,
// and judges.
func (p *pair) round(n int) {
	r := rand.New(rand.NewPCG(p.seed, uint64(n)))
	faults := drawFaults(r)
	p.says("round %d %v", n, faults)
	begin := time.Now()
	watched := p.judge.watch()
	active, other := p.roles()
	var wg sync.WaitGroup
	for _, f := range faults {
		wg.Go(func() { f.happen(map[bool]*host{false: active, true: other}[f.other]) })
	}
	wg.Wait()
	p.settle()
	watched()
	excepted := p.excepted()
	p.judge.round(excepted)
	p.tally.count(&p.tally.rounds)
	if excepted != "" {
		p.tally.count(&p.tally.excepted)
	}
	p.t.Logf("%s: %.1fs, epoch %d %s", *p.now.Load(), time.Since(begin).Seconds(), p.judge.lease.Epoch, excepted)
}

// excepted says why the processes of a round are not judged, only its commits:
// for a while nothing of a host could act, so nothing could end its jobs. The
// limit is what is left of D after a renewal that was R ago.
func (p *pair) excepted() string {
	const limit = heavyTTL*3/4 - heavyTTL/5
	why := ""
	for _, h := range p.hosts {
		longest, bothGone := h.helpless()
		switch {
		case longest > limit:
			why = fmt.Sprintf("[%s: daemon and keeper off for %.1fs]", h.name, longest.Seconds())
		case bothGone && !p.cgroup:
			why = fmt.Sprintf("[%s: daemon and keeper killed without a cgroup]", h.name)
		}
	}
	return why
}

// settleWithin bounds how long it may take until one daemon is active again: a
// takeover after T, a frozen keeper that is waited for, and a busy machine.
const settleWithin = 60 * time.Second

func (p *pair) settle() {
	one := func() bool { return p.hosts[0].active() != p.hosts[1].active() }
	if until(settleWithin, one) {
		return
	}
	p.violate("after %s there is not one active daemon (alpha %v, beta %v)", settleWithin, p.hosts[0].active(), p.hosts[1].active())
	p.t.FailNow()
}

// roles returns the host that serves, and the other.
func (p *pair) roles() (active, other *host) {
	if p.hosts[1].active() {
		return p.hosts[1], p.hosts[0]
	}
	return p.hosts[0], p.hosts[1]
}

// finish lets every job end, and stops both daemons in order.
func (p *pair) finish(rounds int) {
	p.says("at the end of %d rounds", rounds)
	p.stream.stop()
	p.judge.end()
	for _, h := range p.hosts {
		h.mu.Lock()
		h.closing = true
		h.mu.Unlock()
		if d := h.present(); d != nil {
			_ = d.Signal(syscall.SIGTERM) // a plain serve may just have been refused
		}
		select {
		case <-h.finished:
		case <-time.After(settleWithin):
			p.violate("the daemon on %s does not stop", h.name)
		}
	}
	p.judge.stopped()
}

// fault is one misfortune of a round.
type fault struct {
	other bool // it meets the host that did not serve when the round began
	what  string
	at    time.Duration
	last  time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s %s at %s for %s", map[bool]string{false: "active:", true: "other:"}[f.other], f.what,
		f.at.Round(time.Millisecond), f.last.Round(time.Millisecond))
}

// faultWeights are how often what is drawn.
var faultWeights = []string{
	"stop daemon", "stop daemon", "stop daemon", "stop keeper", "stop keeper", "stop both", "stop both",
	"kill daemon", "kill daemon", "kill daemon", "kill keeper", "kill keeper", "kill both", "kill both", "terminate",
}

// drawFaults draws one to four misfortunes. Most last less than a TTL, so that
// the host comes back to its lease; the others cost it.
func drawFaults(r *rand.Rand) []fault {
	var all []fault
	for range 1 + r.IntN(4) {
		f := fault{other: r.IntN(4) == 0, what: faultWeights[r.IntN(len(faultWeights))], at: between(r, 0, 2500*time.Millisecond),
			last: between(r, 200*time.Millisecond, 3*time.Second)}
		if r.IntN(5) < 2 {
			f.last = between(r, 3*time.Second, 8*time.Second)
		}
		all = append(all, f)
	}
	return all
}

// happen does it, and undoes what can be undone. The pauses are the fault.
func (f fault) happen(h *host) {
	time.Sleep(f.at)
	switch f.what {
	case "stop daemon":
		thaw := h.stopDaemon()
		time.Sleep(f.last)
		thaw()
	case "stop keeper":
		thaw := h.stopKeeper()
		time.Sleep(f.last)
		thaw()
	case "stop both":
		one, two := h.stopDaemon(), h.stopKeeper()
		time.Sleep(f.last)
		two()
		one()
	case "kill daemon":
		h.killDaemon(f.last)
	case "kill keeper":
		h.killKeeper()
	case "kill both":
		h.killKeeper()
		h.killDaemon(f.last / 4)
	case "terminate":
		if d := h.present(); d != nil {
			_ = d.Signal(syscall.SIGTERM) // it may have ended this moment
		}
	}
}

// tally is what a campaign counts.
type tally struct {
	mu                                                 sync.Mutex
	rounds, excepted, grants, takeovers                int
	refused, stoodDown, watchdogs, violations          int
	accepted, unsure, offline                          int
	succeeded, failed, cancelled, interrupted, started int
}

func (y *tally) count(n *int) {
	y.mu.Lock()
	*n++
	y.mu.Unlock()
}

func (y *tally) add(o *tally) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, s := range [][2]*int{{&y.rounds, &o.rounds}, {&y.excepted, &o.excepted}, {&y.grants, &o.grants},
		{&y.takeovers, &o.takeovers}, {&y.refused, &o.refused}, {&y.stoodDown, &o.stoodDown}, {&y.watchdogs, &o.watchdogs},
		{&y.violations, &o.violations}, {&y.accepted, &o.accepted}, {&y.unsure, &o.unsure}, {&y.offline, &o.offline},
		{&y.succeeded, &o.succeeded}, {&y.failed, &o.failed}, {&y.cancelled, &o.cancelled},
		{&y.interrupted, &o.interrupted}, {&y.started, &o.started}} {
		*s[0] += *s[1]
	}
}

func (y *tally) String() string {
	return fmt.Sprintf("%d rounds (%d judged on commits only), %d grants, %d takeovers by the other host, "+
		"%d stand-downs, %d refusals, %d watchdog ends; %d jobs accepted (%d offline, %d answers lost), %d started: "+
		"%d succeeded, %d failed, %d cancelled, %d interrupted; VIOLATIONS %d",
		y.rounds, y.excepted, y.grants, y.takeovers, y.stoodDown, y.refused, y.watchdogs, y.accepted, y.offline, y.unsure,
		y.started, y.succeeded, y.failed, y.cancelled, y.interrupted, y.violations)
}

// submit runs the command line as an operator does, and returns the job's id.
func (h *host) submit(args ...string) (id string, offline bool, err error) {
	cmd := exec.Command(h.bin, append([]string{"run", "-d", "--host", h.name, "--state-dir", h.state}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), strings.Contains(errs.String(), "submitted"), err
}
