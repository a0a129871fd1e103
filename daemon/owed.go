package daemon

import (
	"maps"
	"time"
)

// Effects are what the committed state owes, minus what this incarnation knows
// to be done (S1). They are never the difference that one transition made: a
// claim whose answer was lost is found in the state `starting` by the next
// Step, which owes its start like any other.

// keeperView is what this incarnation knows of its keeper.
type keeperView struct {
	instance string // "" until it has answered Hello
	asked    Boottime
	hailed   bool // Hello is on its way
	cgroup   bool // it kills by a cgroup of its own
	fresh    bool // it has just listed: rows of older keepers are to be retired
	failures int  // keepers that could not be had, in a row

	acked    int64 // lease seq of the last leash that it acknowledged
	extended int64 // lease seq of the last leash that was sent
	extendAt Boottime
	listed   Boottime

	sent      map[string]bool     // attempts whose start it was asked for
	signalled map[string]sentSign // attempts that it was asked to end
	forget    []string            // records that it may drop
}

type sentSign struct {
	at    Boottime
	level int
}

// Rhythms of talking to the keeper.
const (
	helloEvery = 10 * time.Second // an unanswered Hello
	againEvery = time.Second      // a signal, a leash: until it is answered
	listEvery  = 30 * time.Second
	maxForget  = 1000
)

// mayStart says whether the keeper has the leash well enough in hand: with two
// renewals unacknowledged nothing starts (K6).
func (k keeperView) mayStart(seq int64) bool {
	return k.instance != "" && seq-k.acked < 2
}

// takeListed hears a keeper that obeys this term. An answer to the Hello of an
// earlier one would bind us to a keeper that heeds no leash of ours (K2): another
// Hello is owed instead.
func (d *Daemon) takeListed(now Instant, ev Listed) {
	if ev.Epoch != d.tenure.known.epoch {
		return
	}
	if ev.Instance != d.keeper.instance {
		d.keeper = keeperView{instance: ev.Instance}
		d.log.Info("keeper answers", "instance", ev.Instance, "running", len(ev.Running), "ends", len(ev.Exits))
	}
	d.keeper.cgroup = ev.Cgroup
	d.keeper.fresh, d.keeper.failures, d.keeper.listed = true, 0, now.Boot
	d.keeper.acked = max(d.keeper.acked, ev.Seq)
	d.keeper.sent, d.keeper.signalled = map[string]bool{}, map[string]sentSign{}
	for _, attempt := range ev.Running {
		d.keeper.sent[attempt] = true
	}
	for _, x := range ev.Exits {
		d.keeper.sent[x.Attempt] = true
		d.queue.push(Exited{Instance: ev.Instance, Exit: x})
	}
}

func (d *Daemon) takeKeeperLost(now Instant, ev KeeperLost) {
	if ev.Instance != d.keeper.instance && ev.Instance != "" {
		return
	}
	d.log.Error("keeper lost: its jobs are cut off", "instance", ev.Instance, "why", ev.Why)
	d.remember("keeper.lost", ev.Instance, ev.Why)
	failures := d.keeper.failures + 1 // the first time another is had at once
	d.keeper = keeperView{failures: failures, asked: now.Boot, hailed: failures > 1}
	if d.role == Booting && d.keeper.failures >= 3 {
		d.role = Releasing // a boot that cannot be ready gives the lease back (L13)
		d.stop = stopping{level: 1, why: "no keeper could be started: " + ev.Why, failed: true,
			deadline: now.Boot, giveUp: now.Boot.Add(stopBound)}
	}
}

// owed returns the effects that the last committed state asks for and that are
// not known to be done.
func (d *Daemon) owed(now Instant) []Effect {
	if d.keeper.instance == "" {
		return d.owedHello(now)
	}
	var effects []Effect
	effects = append(effects, d.owedLeash(now)...)
	for _, j := range d.live {
		if j.Keeper == d.keeper.instance {
			effects = append(effects, d.owedJob(now, j)...)
		}
	}
	if n := len(d.keeper.forget); n > 0 {
		n = min(n, maxForget)
		effects = append(effects, Forget{Attempts: d.keeper.forget[:n:n]})
		d.keeper.forget = d.keeper.forget[n:]
	}
	if now.Boot >= d.keeper.listed.Add(listEvery) {
		d.keeper.listed = now.Boot
		effects = append(effects, List{})
	}
	return effects
}

func (d *Daemon) owedHello(now Instant) []Effect {
	wait := helloEvery
	if d.keeper.failures > 0 {
		wait = againEvery
	}
	if d.keeper.hailed && now.Boot < d.keeper.asked.Add(wait) {
		return nil
	}
	d.keeper.hailed, d.keeper.asked = true, now.Boot
	return []Effect{Hello{Epoch: d.tenure.known.epoch, Incarnation: d.cfg.Identity.Incarnation,
		Seq: d.tenure.known.seq, Leash: d.leash(d.tenure.known.start)}}
}

func (d *Daemon) owedLeash(now Instant) []Effect {
	seq, k := d.tenure.known.seq, &d.keeper
	if k.acked >= seq || k.extended == seq && now.Boot < k.extendAt.Add(againEvery) {
		return nil
	}
	k.extended, k.extendAt = seq, now.Boot
	return []Effect{Extend{Epoch: d.tenure.known.epoch, Seq: seq, Leash: d.leash(d.tenure.known.start)}}
}

func (d *Daemon) owedJob(now Instant, j Job) []Effect {
	switch {
	case j.State == Starting && !d.keeper.sent[j.Attempt]:
		d.keeper.sent[j.Attempt] = true
		return []Effect{d.startOf(j)}
	case j.State == Cancelling:
		return d.owedSignal(now, j, CauseCancel, j.Grace(), 1)
	case d.stop.level == 2:
		return d.owedSignal(now, j, CauseStop, min(j.Grace(), stopGrace), 2)
	case d.stop.level > 2:
		return d.owedSignal(now, j, CauseStop, 0, 3)
	}
	return nil
}

// owedSignal repeats a signal until the end is reported, and at once when the
// reason is a stronger one. The keeper counts the grace from the first.
func (d *Daemon) owedSignal(now Instant, j Job, why Cause, grace time.Duration, level int) []Effect {
	last, sent := d.keeper.signalled[j.Attempt]
	if sent && level <= last.level && now.Boot < last.at.Add(againEvery) {
		return nil
	}
	d.keeper.signalled[j.Attempt] = sentSign{at: now.Boot, level: max(level, last.level)}
	return []Effect{Signal{Attempt: j.Attempt, Cause: why, Grace: grace}}
}

// startOf returns the request for the process of j.
func (d *Daemon) startOf(j Job) Start {
	argv := j.Spec.Argv
	if j.Spec.Shell != "" {
		argv = []string{"/bin/sh", "-c", j.Spec.Shell}
	}
	env := map[string]string{}
	maps.Copy(env, j.Spec.Env)
	maps.Copy(env, d.cfg.Env)
	env["EXOCOMP_JOB"], env["EXOCOMP_ATTEMPT"] = j.ID, j.Attempt
	env["EXOCOMP_EPOCH"] = formatInt(j.Epoch)
	if j.Schedule != "" {
		env["EXOCOMP_SCHEDULE"], env["EXOCOMP_DUE"] = j.Schedule, j.DueMs.Time().Format(time.RFC3339)
	}
	return Start{Attempt: j.Attempt, Epoch: j.Epoch, Job: j.ID, Argv: argv, Env: env, Cwd: j.Spec.Cwd,
		Timeout: j.Timeout(), Grace: j.Grace(), Token: JobToken(d.epoch.jobKey, j.Attempt),
		NotAfter: d.leash(d.tenure.known.start).TermAt}
}
