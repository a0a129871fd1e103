package sim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim"
)

// frozenHolder is a World in which alpha holds the lease, runs a job and is
// frozen, and beta has not started.
func frozenHolder(t *testing.T, seed uint64) (w *world, alpha, beta *sim.Host, job string) {
	t.Helper()
	w = newWorld(t, seed)
	alpha, beta = w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	job = w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	alpha.Freeze()
	return w, alpha, beta, job
}

func TestAForcedHolderWaitsForTheOldLeashBeforeItTouchesAJob(t *testing.T) {
	w, alpha, beta, job := frozenHolder(t, 60)
	first := alpha.Process()
	beta.Serve(sim.Force(1))
	took := w.wait(ttl, "the lease", func() bool { return beta.Daemon().Role == daemon.Booting })
	if took < 5*time.Second || took > 10*time.Second {
		t.Errorf("forced after %s: it must look out for one renewal, and no longer", took)
	}
	// It serves the API, accepts a job, and starts, sweeps and retires nothing.
	next := w.enqueue(beta, "sleep", "1s")
	for beta.Daemon().Role == daemon.Booting {
		w.wantState(job, daemon.Running)
		w.wantState(next, daemon.Queued)
		st, err := beta.Client().Status(context.Background())
		if err != nil || st.Daemon.Ready || st.Daemon.Role == daemon.Booting && st.Lease.LeashWaitMs <= 0 {
			t.Fatalf("status in the leash wait: %+v, %v", st.Lease, err)
		}
		w.pass(time.Second)
	}
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("ready while %v run on alpha", running)
	}
	w.wait(10*time.Second, "the accepted job", w.inState(next, daemon.Succeeded))
	w.wantState(job, daemon.Interrupted)
	alpha.Thaw()
	w.pass(time.Second)
	w.wantLeft(first, 76)
	w.wantActive(beta)
	if row, _ := w.Lease(); row.ForcedBy != "operator" || !strings.Contains(row.ForceReason, "epoch 1 deposed") {
		t.Errorf("the row says forced by %q, %q", row.ForcedBy, row.ForceReason)
	}
}

func TestAnAttestationSavesTheLeashWaitAndIsRecorded(t *testing.T) {
	w, alpha, beta, job := frozenHolder(t, 61)
	alpha.Reboot() // it is off, as the operator says
	beta.Serve(sim.Force(1), sim.OldHostIsOff("alpha"))
	if took := w.wait(ttl, "beta", w.isActive(beta)); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	w.wantState(job, daemon.Interrupted)
	if row, _ := w.Lease(); !strings.Contains(row.ForceReason, "attested: host alpha is off") {
		t.Errorf("the row says %q", row.ForceReason)
	}
	if got := w.history("lease.forced"); !strings.Contains(got, "attested: host alpha is off (by operator)") {
		t.Errorf("the history says %q", got)
	}
}

func TestAnAttestationForAnotherHostIsRefused(t *testing.T) {
	w, _, beta, _ := frozenHolder(t, 62)
	beta.Serve(sim.Force(1), sim.OldHostIsOff("gamma"))
	second := beta.Process()
	w.pass(time.Second)
	w.wantLeft(second, 5)
	if row, _ := w.Lease(); row.Epoch != 1 {
		t.Error("the lease was taken")
	}
}

func TestALivingHolderIsNotDeposedByForceAlone(t *testing.T) {
	w := newWorld(t, 63)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	beta.Serve(sim.Force(1))
	second := beta.Process()
	w.pass(ttl)
	w.wantLeft(second, 75)
	w.wantActive(alpha)
	if _, why, _ := second.Left(); !strings.Contains(why, "--depose-live") {
		t.Errorf("the refusal does not name the flag: %s", why)
	}
}

func TestALivingHolderIsDeposedOnAWordOfItsOwn(t *testing.T) {
	w := newWorld(t, 64)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	job := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	beta.Serve(sim.Force(1), sim.DeposeLive)
	w.wait(ttl, "alpha stands down", func() bool { return alpha.Daemon() == nil })
	w.wantLeft(first, 76)
	w.wantState(job, daemon.Running) // beta must not touch it yet
	w.wait(2*ttl, "beta", w.isActive(beta))
	w.wantState(job, daemon.Interrupted)
}

// A unit keeps its arguments. Forced again they must do nothing.
func TestAnEpochIsSpent(t *testing.T) {
	w, _, beta, _ := frozenHolder(t, 65)
	gamma := w.Host("gamma")
	beta.Serve(sim.Force(1))
	w.wait(2*ttl, "beta", w.isActive(beta))
	gamma.Serve(sim.Force(1)) // the same line on another host
	third := gamma.Process()
	w.pass(ttl)
	w.wantLeft(third, 75)
	beta.Crash()
	w.pass(time.Second)
	beta.Serve(sim.Force(1))
	if took := w.wait(ttl, "beta again", w.isActive(beta)); took > 2*time.Second {
		t.Errorf("it took %s: on its own host it need not wait", took)
	}
	if row, _ := w.Lease(); row.Epoch != 3 || row.ForcedBy != "" {
		t.Errorf("epoch %d, forced by %q", row.Epoch, row.ForcedBy)
	}
}

func TestOfTwoWhoForceOneEpochOneWins(t *testing.T) {
	w, _, beta, _ := frozenHolder(t, 66)
	gamma := w.Host("gamma")
	beta.Serve(sim.Force(1))
	gamma.Serve(sim.Force(1))
	losers := []*sim.Process{beta.Process(), gamma.Process()}
	w.pass(3 * ttl)
	if n := len(w.Active()); n != 1 || w.Ghost.Terms() != 2 {
		t.Errorf("%d active after %d terms", n, w.Ghost.Terms())
	}
	refused := 0
	for _, p := range losers {
		if code, _, left := p.Left(); left && code == 75 {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d were refused", refused)
	}
}

// A forced holder that stops in its leash wait must not give the lease to
// somebody who would not wait.
func TestAStopInTheLeashWaitDoesNotShortenIt(t *testing.T) {
	w, _, beta, job := frozenHolder(t, 67)
	beta.Serve(sim.Force(1))
	w.wait(ttl, "the lease", func() bool { return beta.Daemon().Role == daemon.Booting })
	second := beta.Process()
	beta.Signal()
	w.wait(time.Minute, "beta leaves", func() bool { return beta.Daemon() == nil })
	w.wantLeft(second, 0)
	if row, _ := w.Lease(); row.State != daemon.LeaseHeld {
		t.Fatalf("the lease is %s", row.State)
	}
	beta.Serve()
	begin := w.K.Now()
	w.wait(2*ttl, "beta", w.isActive(beta))
	if d := w.K.Now().Sub(begin); d < ttl {
		t.Errorf("it waited only %s", d)
	}
	w.wantState(job, daemon.Interrupted)
}

// The forced holder dies in its leash wait; what it deposed is still not safe.
func TestACrashInTheLeashWaitDoesNotShortenIt(t *testing.T) {
	w, _, beta, _ := frozenHolder(t, 68)
	beta.Serve(sim.Force(1))
	w.wait(ttl, "the lease", func() bool { return beta.Daemon().Role == daemon.Booting })
	beta.Crash()
	w.pass(time.Second)
	beta.Serve()
	begin := w.K.Now()
	w.wait(2*ttl, "beta", w.isActive(beta))
	if d := w.K.Now().Sub(begin); d < ttl {
		t.Errorf("it waited only %s: the shortcut of its own host is for one that was ready", d)
	}
}

func TestASingleHostNeverLosesItsOwnStore(t *testing.T) {
	w := newWorld(t, 70)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve(sim.SingleHost)
	w.pass(time.Second)
	job := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	for range 300 { // the disk is full for minutes
		alpha.Fault(sim.Sick)
	}
	w.pass(3 * time.Minute)
	if d := alpha.Daemon(); d == nil || !d.Doubt {
		t.Fatalf("after three minutes without a disk: %+v", d)
	}
	beta.Serve(sim.Standby)
	second := beta.Process()
	w.pass(time.Second)
	w.wantLeft(second, 75)
	if _, why, _ := second.Left(); !strings.Contains(why, "belongs to host alpha") {
		t.Errorf("beta said %s", why)
	}
	alpha.Heal()
	w.wait(time.Minute, "out of doubt", func() bool { return !alpha.Daemon().Doubt })
	w.wantState(job, daemon.Running)
	if running := alpha.Running(); len(running) != 1 {
		t.Errorf("running: %v", running)
	}
	next := w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "the next job", w.inState(next, daemon.Succeeded))
}

func TestASuspendedSingleHostGoesOn(t *testing.T) {
	w := newWorld(t, 71)
	alpha := w.Host("alpha")
	alpha.Serve(sim.SingleHost)
	w.pass(time.Second)
	job := w.enqueue(alpha, "sleep", "20s")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	alpha.Suspend()
	w.pass(8 * time.Hour)
	alpha.Resume()
	w.wait(time.Minute, "the job", w.inState(job, daemon.Succeeded))
	w.wantActive(alpha)
	if row, _ := w.Lease(); row.Epoch != 1 {
		t.Errorf("epoch %d", row.Epoch)
	}
}

// A single host that is gone for good is deposed by force, and knows it when it
// comes back.
func TestASingleHostIsDeposedByForceAlone(t *testing.T) {
	w := newWorld(t, 72)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve(sim.SingleHost)
	first := alpha.Process()
	w.pass(time.Second)
	alpha.Freeze()
	w.pass(10 * ttl)
	beta.Serve()
	w.pass(2 * ttl)
	if row, _ := w.Lease(); row.Epoch != 1 {
		t.Fatal("taken without force")
	}
	beta.Serve(sim.Force(1))
	w.wait(2*ttl, "beta", w.isActive(beta))
	alpha.Thaw()
	w.pass(ttl)
	w.wantLeft(first, 76)
	w.wantActive(beta)
	if row, _ := w.Lease(); row.SingleHost {
		t.Error("the store is still alpha's own")
	}
}

func TestARemovedLockAndAReplacedStoreAreNoticedAtTheNextRenewal(t *testing.T) {
	for name, harm := range map[string]func(*sim.Host){
		"lock": (*sim.Host).RemoveLock, "store": (*sim.Host).ReplaceStore} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 73)
			alpha := w.Host("alpha")
			alpha.Serve()
			first := alpha.Process()
			w.pass(time.Second)
			job := w.enqueue(alpha, "hang")
			w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
			harm(alpha)
			w.pass(daemon.DefaultTerms().Renew + time.Second)
			w.wantLeft(first, 76)
			if running := alpha.Running(); len(running) != 0 {
				t.Errorf("running: %v", running)
			}
		})
	}
}

func TestTheLongerTTLCounts(t *testing.T) {
	for _, holders := range []time.Duration{10 * time.Second, 2 * time.Minute} {
		w := newWorld(t, 74)
		alpha, beta := w.Host("alpha"), w.Host("beta")
		alpha.Terms(holders, holders/5)
		alpha.Serve()
		w.pass(time.Second)
		beta.Serve(sim.Standby) // with 30 s
		w.pass(5 * time.Second)
		alpha.Crash()
		took := w.wait(3*time.Minute, "takeover", w.isActive(beta))
		if longest := max(holders, ttl); took < longest-holders/5-2*time.Second || took > longest+3*time.Second {
			t.Errorf("TTL %s: took over after %s", holders, took)
		}
	}
}

// A restart with a shorter TTL must not let anybody in before what obeys the
// longer leash is gone.
func TestAShorterTTLIsWrittenOnlyOnceTheKeeperKnows(t *testing.T) {
	w := newWorld(t, 75)
	alpha := w.Host("alpha")
	alpha.Terms(time.Minute, 12*time.Second)
	alpha.Serve()
	w.pass(time.Second)
	alpha.Crash()
	alpha.Terms(6*time.Second, time.Second)
	alpha.KeeperDelay(10 * time.Second)
	alpha.Serve()
	w.pass(9 * time.Second)
	if row, _ := w.Lease(); row.Epoch != 2 || row.TTL() != time.Minute {
		t.Errorf("before the keeper answers: epoch %d, TTL %s", row.Epoch, row.TTL())
	}
	w.wait(time.Minute, "ready", w.isActive(alpha))
	w.pass(3 * time.Second)
	if row, _ := w.Lease(); row.TTL() != 6*time.Second {
		t.Errorf("after: TTL %s", row.TTL())
	}
}

// A watcher whose own host or process stood still has watched nothing.
func TestAStandbyThatStoodStillTakesNothingFromALivingHolder(t *testing.T) {
	for name, still := range map[string][2]func(*sim.Host){
		"frozen":    {(*sim.Host).Freeze, (*sim.Host).Thaw},
		"suspended": {(*sim.Host).Suspend, (*sim.Host).Resume},
		"paused":    {(*sim.Host).Pause, (*sim.Host).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 76)
			alpha, beta := w.Host("alpha"), w.Host("beta")
			alpha.Serve()
			w.pass(time.Second)
			beta.Serve(sim.Standby)
			w.pass(10 * time.Second)
			for range 5 {
				still[0](beta)
				w.pass(time.Hour)
				still[1](beta)
				w.pass(time.Minute)
				w.wantActive(alpha)
			}
		})
	}
}

func TestAFrozenKeeperOfADeadDaemonIsKilledBeforeTheSweep(t *testing.T) {
	w := newWorld(t, 77)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	job := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	alpha.FreezeKeeper()
	alpha.Crash()
	alpha.Serve()
	w.pass(3 * time.Second)
	w.wantState(job, daemon.Running) // nobody may say yet what became of it
	w.wait(time.Minute, "return", w.isActive(alpha))
	w.wantState(job, daemon.Interrupted)
}

// The keeper alone knows how long a job may run.
func TestATimeoutHoldsWhileTheDaemonStandsStill(t *testing.T) {
	w := newWorld(t, 78)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	e, err := alpha.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{
		Spec: daemon.Spec{Argv: []string{"hang"}}, TimeoutMs: 5000})
	if err != nil {
		t.Fatal(err)
	}
	w.wait(time.Minute, "job runs", w.inState(e.Job.ID, daemon.Running))
	alpha.Freeze()
	w.pass(6 * time.Second)
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("running: %v", running)
	}
	alpha.Thaw()
	w.pass(time.Second)
	w.wantState(e.Job.ID, daemon.JobFailed)
}
