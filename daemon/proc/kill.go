package proc

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// Ends come from four sides: an operator or the stop of the daemon (signal), the
// job's own timeout, the leash, the end of the session. The first one names the
// cause; each sends TERM once, and KILL when its time is up.

// signal begins the end of an attempt, or hurries it.
func (k *Keeper) signal(m daemon.Signal) {
	k.mu.Lock()
	a := k.attempts[m.Attempt]
	if a == nil { // its start never arrived, and must not from now on
		a = &attempt{start: daemon.Start{Attempt: m.Attempt}, over: true,
			failed: &daemon.StartFailed{Instance: k.instance, Attempt: m.Attempt, Why: "it was never started", Refused: true}}
		k.attempts[m.Attempt] = a
	}
	failed := a.failed
	a.end(m.Cause, k.opts.Clock.Boot().Add(m.Grace))
	k.mu.Unlock()
	if failed != nil {
		k.report(report{StartFailed: failed})
		return
	}
	k.poke()
}

// end marks an attempt for its end: KILL at killAt, or earlier if that is
// already due earlier. The caller holds mu.
func (a *attempt) end(why daemon.Cause, killAt daemon.Boottime) {
	if a.cause == "" {
		a.cause, a.killAt = why, killAt
		return
	}
	a.killAt = min(a.killAt, killAt)
}

// killAll ends everything now.
func (k *Keeper) killAll(why daemon.Cause) {
	k.mu.Lock()
	now := k.opts.Clock.Boot()
	for _, a := range k.attempts {
		if !a.over {
			a.end(why, now)
		}
	}
	k.mu.Unlock()
	k.poke()
}

// poke makes the clockwork look at once.
func (k *Keeper) poke() {
	select {
	case k.wakeup <- struct{}{}:
	default:
	}
}

// clockwork is the goroutine that kills. It reads the boot clock at least once
// a second, since Go's timers stand still in a suspend, and touches nothing but
// that clock and processes.
func (k *Keeper) clockwork() {
	timer := time.NewTimer(maxDoze)
	defer timer.Stop()
	for {
		next := k.due()
		timer.Reset(min(maxDoze, max(next, time.Millisecond)))
		select {
		case <-k.wakeup:
		case <-timer.C:
		}
	}
}

// due sends what is due and returns how long until the next.
func (k *Keeper) due() time.Duration {
	var term, kill []*attempt
	k.mu.Lock()
	now := k.opts.Clock.Boot()
	next := now.Add(time.Hour)
	sooner := func(at daemon.Boottime) {
		if at > now {
			next = min(next, at)
		}
	}
	leash := k.leash
	for _, a := range k.attempts {
		if a.over || a.pid == 0 {
			continue
		}
		k.judge(a, now, leash)
		switch {
		case a.cause == "":
			sooner(leash.TermAt)
			if a.timeout != 0 {
				sooner(a.timeout)
			}
		case now >= a.killAt:
			kill = append(kill, a)
			next = min(next, now.Add(20*time.Millisecond)) // again, until it is buried
		default:
			if !a.termSent {
				a.termSent = true
				term = append(term, a)
			}
			sooner(a.killAt)
			sooner(leash.KillAt)
		}
	}
	k.mu.Unlock()
	for _, a := range term {
		k.each(a, func(p process) { p.kill(unix.SIGTERM) })
	}
	for _, a := range kill {
		k.killTree(a)
	}
	return next.Sub(now)
}

// judge lets the leash and the timeout begin an end. The caller holds mu.
func (k *Keeper) judge(a *attempt, now daemon.Boottime, leash daemon.Leash) {
	if leash != (daemon.Leash{}) && now >= leash.TermAt {
		a.end(daemon.CauseLeash, leash.KillAt)
	}
	if a.timeout != 0 && now >= a.timeout {
		a.end(daemon.CauseTimeout, a.timeout.Add(a.start.Grace))
	}
}

// killTree sends KILL to every process of an attempt.
func (k *Keeper) killTree(a *attempt) {
	if g := k.groupOf(a); g != nil {
		g.kill()
		return
	}
	k.each(a, func(p process) { p.kill(unix.SIGKILL) })
}

// each calls fn with every living process of an attempt.
func (k *Keeper) each(a *attempt, fn func(process)) {
	if g := k.groupOf(a); g != nil {
		for _, pid := range g.pids() {
			if p, ok := readProcess(pid); ok {
				fn(p)
			}
		}
		return
	}
	for _, p := range k.tree(a) {
		fn(p)
	}
}

func (k *Keeper) groupOf(a *attempt) *cgroup {
	k.mu.Lock()
	defer k.mu.Unlock()
	return a.group
}

// endTree kills what the leader left behind and returns when nothing is left.
// Processes that fork meanwhile are met by the next look.
func (k *Keeper) endTree(a *attempt) {
	pause := time.Millisecond
	for begin := time.Now(); k.leftovers(a); {
		k.killTree(a)
		time.Sleep(pause)
		if pause *= 2; pause > 50*time.Millisecond {
			pause = 50 * time.Millisecond
			if time.Since(begin) > 10*time.Second {
				begin = time.Now()
				k.trouble("processes of %s do not die: is a file system hanging?", a.start.Job)
			}
		}
	}
}

// leftovers says whether a process of a dead leader lives. Without a cgroup all
// of them have become children of the keeper, or descend from such: one look
// at the keeper's children is enough to see that there are none.
func (k *Keeper) leftovers(a *attempt) bool {
	if g := k.groupOf(a); g != nil {
		return len(g.pids()) > 0
	}
	k.mu.Lock()
	orphans := slices.DeleteFunc(children(), func(pid int) bool { return k.live[pid] != nil })
	starting := k.forking > 0
	k.mu.Unlock()
	if len(orphans) == 0 && !starting {
		return false
	}
	return len(k.tree(a)) > 0
}

// tree returns the living processes of an attempt that has no cgroup: its
// session and group, orphans that carry its token, and all that descends from
// these. An orphan that cannot be told belongs to the last job that runs.
func (k *Keeper) tree(a *attempt) []process {
	all, err := processes()
	if err != nil {
		k.trouble("%v", err)
		return nil
	}
	k.mu.Lock()
	leaders := map[int]bool{}
	for pid := range k.live {
		leaders[pid] = true
	}
	reused := k.live[a.pid] != nil && k.live[a.pid] != a // its session is empty, then
	others := k.forking > 0
	for _, b := range k.attempts {
		others = others || b != a && !b.over && b.pid != 0
	}
	k.mu.Unlock()
	self := os.Getpid()
	mine := descendants(all, func(p process) bool {
		if !reused && (p.pid == a.pid || p.session == a.pid || p.pgrp == a.pid) {
			return true
		}
		orphan := p.ppid == self && !leaders[p.pid]
		return orphan && (!others || environment(p.pid, attemptName) == a.start.Attempt)
	})
	return slices.DeleteFunc(mine, func(p process) bool { return !p.alive() })
}
