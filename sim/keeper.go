package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// keeper models the keeper process of a host and the job processes under it.
// Its rules are those of the real one (daemon/proc): it obeys the leash of the
// newest session, refuses what comes too late, starts no attempt twice, writes
// an exit record before it reports the end, and keeps it until it is told to
// forget. With leash zero the end of its session kills everything.
type keeper struct {
	h        *Host
	instance string
	up       bool
	frozen   bool
	session  *proc // the daemon that said hello last
	epoch    int64
	leash    daemon.Leash
	jobs     []*job
	plans    int
	unread   []func() // requests that wait in the socket while it is frozen
}

// job is one attempt: a process, or the memory of one.
type job struct {
	attempt, job string
	on           *Host
	epoch        int64
	alive        bool
	stubborn     bool // does not heed TERM
	cause        daemon.Cause
	killing      bool
}

// runner is the daemon.Runner port. Its requests go over the socket: they
// arrive a moment later and are void when the session is.
type runner struct{ p *proc }

var _ daemon.Runner = runner{}

// Hello implements daemon.Runner.
func (r runner) Hello(_ context.Context, m daemon.Hello) error {
	h := r.p.h
	if h.noStart != "" {
		return errors.New(h.noStart)
	}
	slow := h.slow
	h.slow = 0
	h.message(toKeeper, func() { h.run(slow, func() { h.hello(r.p, m) }) })
	return nil
}

// hello finds a keeper for p: an old one must be gone first, since it may still
// have processes.
func (h *Host) hello(p *proc, m daemon.Hello) {
	if !p.up || h.proc != p {
		return
	}
	if k := h.keeper; k != nil && k.session != p {
		if k.frozen { // it does not answer: after a while it is killed (K4)
			h.run(5*time.Second, func() {
				if h.keeper == k && k.frozen {
					k.vanish()
				}
				h.hello(p, m)
			})
			return
		}
		if k.killAll(daemon.CauseLost); k.busy() {
			h.run(10*time.Millisecond, func() { h.hello(p, m) })
			return
		}
		k.vanish()
	}
	if h.keeper == nil {
		h.keepers++
		h.keeper = &keeper{h: h, instance: fmt.Sprintf("%s-keeper-%d", h.Name, h.keepers), up: true}
		h.w.K.Log("%s starts", h.keeper.instance)
	}
	k := h.keeper
	k.session, k.epoch = p, m.Epoch
	k.obey(m.Leash)
	k.answer(k.list(m.Seq))
}

// send carries a request to the keeper that has a session with p.
func (r runner) send(fn func(*keeper)) error {
	k := r.p.h.keeper
	if k == nil || k.session != r.p {
		return errors.New("no keeper")
	}
	r.p.h.message(toKeeper, func() { k.receive(r.p, fn) })
	return nil
}

func (k *keeper) receive(from *proc, fn func(*keeper)) {
	switch {
	case !k.up || k.session != from:
	case k.frozen:
		k.unread = append(k.unread, func() { k.receive(from, fn) })
	default:
		fn(k)
	}
}

func (r runner) Start(_ context.Context, m daemon.Start) error {
	r.p.h.w.Ghost.acts(r.p, "Start")
	return r.send(func(k *keeper) { k.start(m) })
}

func (r runner) Signal(_ context.Context, m daemon.Signal) error {
	r.p.h.w.Ghost.acts(r.p, "Signal")
	return r.send(func(k *keeper) { k.signal(m) })
}

func (r runner) Extend(_ context.Context, m daemon.Extend) error {
	r.p.h.w.Ghost.acts(r.p, "Extend")
	return r.send(func(k *keeper) {
		if m.Epoch == k.epoch {
			k.obey(m.Leash)
			k.answer(daemon.Extended{Instance: k.instance, Seq: m.Seq})
		}
	})
}

func (r runner) List(context.Context) error {
	return r.send(func(k *keeper) { k.answer(k.list(0)) })
}

func (r runner) Forget(_ context.Context, attempts []string) error {
	return r.send(func(k *keeper) {
		k.h.records = slices.DeleteFunc(k.h.records, func(x daemon.Exit) bool {
			return slices.Contains(attempts, x.Attempt)
		})
	})
}

func (r runner) KillAll(context.Context) error {
	k := r.p.h.keeper // whose session it has does not matter (K5)
	if k == nil {
		return nil
	}
	if k.frozen { // the daemon kills by cgroup itself (K6); nobody writes a record
		k.each(func(j *job) { j.alive = false; k.h.w.Ghost.died(j) })
		return nil
	}
	r.p.h.message(toKeeper, func() {
		if k.up {
			k.killAll(daemon.CauseLeash)
		}
	})
	return nil
}

// answer tells the daemon of the session, if it is still there.
func (k *keeper) answer(ev daemon.Event) {
	p := k.session
	k.h.message(fromKeeper, func() {
		if k.session == p && p.up {
			p.tell(ev)
		}
	})
}

func (k *keeper) list(seq int64) daemon.Listed {
	l := daemon.Listed{Instance: k.instance, Epoch: k.epoch, Seq: seq, Cgroup: true, Exits: slices.Clone(k.h.records)}
	for _, j := range k.jobs {
		if j.alive {
			l.Running = append(l.Running, j.attempt)
		}
	}
	return l
}

func (k *keeper) find(attempt string) *job {
	i := slices.IndexFunc(k.jobs, func(j *job) bool { return j.attempt == attempt })
	if i < 0 {
		return nil
	}
	return k.jobs[i]
}

// start forks, unless it is too late or done already.
func (k *keeper) start(m daemon.Start) {
	boot := k.h.Boot()
	switch j := k.find(m.Attempt); {
	case j != nil && j.alive:
		k.answer(daemon.Started{Instance: k.instance, Attempt: m.Attempt, AtMs: k.wallMs()})
		return
	case j != nil:
		k.answer(k.list(0))
		return
	case m.Epoch != k.epoch || boot >= k.leash.TermAt || boot >= m.NotAfter:
		k.jobs = append(k.jobs, &job{attempt: m.Attempt})
		k.answer(daemon.StartFailed{Instance: k.instance, Attempt: m.Attempt, Why: "too late for its leash", Refused: true})
		return
	}
	j := &job{attempt: m.Attempt, job: m.Job, epoch: m.Epoch, alive: true, cause: daemon.CauseExit}
	k.jobs = append(k.jobs, j)
	k.h.w.K.Log("%s forks %s (epoch %d): %s", k.instance, m.Job, m.Epoch, strings.Join(m.Argv, " "))
	k.h.w.Ghost.forked(k, j)
	k.live(j, m)
	k.answer(daemon.Started{Instance: k.instance, Attempt: m.Attempt, AtMs: k.wallMs()})
}

// live lets a modelled command take its course: "sleep 10s", "exit 3", "hang"
// until it is killed, "stubborn 1h" which does not heed TERM.
func (k *keeper) live(j *job, m daemon.Start) {
	arg := "0"
	if len(m.Argv) > 1 {
		arg = m.Argv[1]
	}
	code := 0
	var last time.Duration
	switch m.Argv[0] {
	case "exit":
		code, _ = strconv.Atoi(arg)
	case "sleep":
		last, _ = time.ParseDuration(arg)
	case "stubborn":
		j.stubborn = true
		last, _ = time.ParseDuration(arg)
	case "hang":
		last = 1000 * time.Hour
	}
	k.h.run(last, func() { k.ended(j, int64(code), "", daemon.CauseExit) })
	if m.Timeout > 0 {
		k.h.run(m.Timeout, func() { k.end(j, daemon.CauseTimeout, m.Grace) })
	}
}

func (k *keeper) signal(m daemon.Signal) {
	j := k.find(m.Attempt)
	if j == nil {
		k.jobs = append(k.jobs, &job{attempt: m.Attempt})
		k.answer(daemon.StartFailed{Instance: k.instance, Attempt: m.Attempt, Why: "it was never started", Refused: true})
		return
	}
	k.end(j, m.Cause, m.Grace)
}

// end sends TERM now and KILL after the grace.
func (k *keeper) end(j *job, why daemon.Cause, grace time.Duration) {
	if !j.alive || !k.up {
		return
	}
	if !j.killing {
		j.killing = true
		j.cause = why
		k.term(j)
	}
	k.h.run(grace, func() { k.kill(j) })
}

func (k *keeper) term(j *job) {
	if !j.stubborn {
		k.h.run(2*time.Millisecond, func() { k.ended(j, 0, "SIGTERM", j.cause) })
	}
}

func (k *keeper) kill(j *job) {
	k.h.run(time.Millisecond, func() { k.ended(j, 0, "SIGKILL", j.cause) })
}

// ended is the end of a process, whoever caused it. The record is on disk
// before anybody is told.
func (k *keeper) ended(j *job, code int64, signal string, why daemon.Cause) {
	if !j.alive {
		return
	}
	j.alive = false
	k.h.w.Ghost.died(j)
	k.h.w.K.Log("%s: %s of %s ends: %d %s (%s)", k.h.Name, j.attempt, j.job, code, signal, why)
	if !k.up {
		return // nobody is there to write a record
	}
	x := daemon.Exit{Attempt: j.attempt, Code: code, Signal: signal, Cause: why, AtMs: k.wallMs(), Durable: true}
	k.h.records = append(k.h.records, x)
	if k.session != nil {
		k.answer(daemon.Exited{Instance: k.instance, Exit: x})
	}
}

// obey replaces the leash: never a maximum of old and new.
func (k *keeper) obey(l daemon.Leash) {
	k.leash = l
	k.plan()
}

// plan arranges the deadlines of the leash (K1).
func (k *keeper) plan() {
	k.plans++
	plan := k.plans
	at := func(when daemon.Boottime, fn func()) {
		k.h.atBoot(when, func() {
			if k.plans == plan && k.up && !k.frozen {
				fn()
			}
		})
	}
	at(k.leash.TermAt, func() { k.each(func(j *job) { j.cause = daemon.CauseLeash; k.term(j) }) })
	at(k.leash.KillAt, func() { k.each(func(j *job) { j.cause = daemon.CauseLeash; k.kill(j) }) })
}

func (k *keeper) each(fn func(*job)) {
	for _, j := range k.jobs {
		if j.alive {
			fn(j)
		}
	}
}

func (k *keeper) busy() bool {
	return slices.ContainsFunc(k.jobs, func(j *job) bool { return j.alive })
}

func (k *keeper) killAll(why daemon.Cause) {
	k.each(func(j *job) { j.cause = why; k.kill(j) })
}

// sessionEnded is the end of the daemon's socket: leash zero.
func (k *keeper) sessionEnded() {
	k.session = nil
	k.h.run(k.h.w.latency(), func() {
		if k.up && k.session == nil && !k.frozen {
			k.killAll(daemon.CauseLeash)
		}
	})
}

// vanish is the death of the keeper with all that it ran, without a record.
func (k *keeper) vanish() {
	k.up = false
	k.each(func(j *job) { k.ended(j, 0, "SIGKILL", daemon.CauseLost) })
	if k.h.keeper == k {
		k.h.keeper = nil
	}
}

// CrashKeeper kills the keeper. Its processes die with it, and the daemon
// notices.
func (h *Host) CrashKeeper() {
	k := h.keeper
	if k == nil {
		return
	}
	h.w.K.Log("%s crashes", k.instance)
	p := k.session
	k.vanish()
	if p != nil {
		h.run(h.w.latency(), func() { p.tell(daemon.KeeperLost{Instance: k.instance, Why: "killed"}) })
	}
}

// FreezeKeeper stops the keeper's process. Jobs run on.
func (h *Host) FreezeKeeper() {
	h.w.K.Log("%s freezes", h.keeper.instance)
	h.keeper.frozen = true
}

// ThawKeeper lets it go on: it looks at the clock first, and kills what is past
// its leash.
func (h *Host) ThawKeeper() {
	h.w.K.Log("%s thaws", h.keeper.instance)
	k := h.keeper
	k.frozen = false
	k.plan()
	if k.session == nil {
		k.killAll(daemon.CauseLeash)
	}
	unread := k.unread
	k.unread = nil
	for _, fn := range unread {
		fn()
	}
}

// KeeperDelay makes the next Hello take d, as an old keeper does that is slow to
// die.
func (h *Host) KeeperDelay(d time.Duration) { h.slow = d }

// NoKeeper makes every try to start a keeper fail, or with "" succeed again.
func (h *Host) NoKeeper(why string) { h.noStart = why }

func (k *keeper) wallMs() daemon.Millis { return daemon.Millis(k.h.Wall().UnixMilli()) }
