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

func TestAJobRunsAndEndsAsItsCommandDoes(t *testing.T) {
	w := newWorld(t, 30)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	good, bad := w.enqueue(alpha, "sleep", "10s"), w.enqueue(alpha, "exit", "3")
	w.wait(time.Minute, "good", w.inState(good, daemon.Succeeded))
	w.wantState(bad, daemon.JobFailed)
	if j := w.job(bad); j.ExitCode == nil || *j.ExitCode != 3 || j.Reason != "exit status 3" {
		t.Errorf("exit code %v, reason %q", j.ExitCode, j.Reason)
	}
	if j := w.job(good); j.EndedMs-j.StartedMs < 10_000 || j.Host != "alpha" || j.Epoch != 1 {
		t.Errorf("ran %d ms on %s in epoch %d", j.EndedMs-j.StartedMs, j.Host, j.Epoch)
	}
}

func TestAClaimWhoseAnswerWasLostStartsItsJobOnce(t *testing.T) {
	w := newWorld(t, 31)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(3 * time.Second)
	alpha.Fault(sim.LostAnswer) // of the Step that accepts and claims
	id := w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "the job", w.inState(id, daemon.Succeeded))
}

func TestNoAnswerOfAJobsLifeMayBeLostForGood(t *testing.T) {
	for seed := range uint64(40) {
		w := newWorld(t, 3100+seed)
		alpha := w.Host("alpha")
		alpha.Serve()
		w.pass(3 * time.Second)
		for range 10 {
			switch w.K.Choices.N(4) {
			case 0:
				alpha.Fault(sim.LostAnswer)
			case 1:
				alpha.Fault(sim.LostCommit)
			case 2:
				alpha.Fault(sim.Sick)
			default:
				alpha.Fault(sim.None)
			}
		}
		var e daemon.Enqueued
		for {
			var err error
			e, err = alpha.Client().Enqueue(context.Background(), "key", daemon.EnqueueRequest{
				Spec: daemon.Spec{Argv: []string{"sleep", "1s"}}})
			if err == nil {
				break
			}
			if daemon.CodeOf(err) != daemon.TimedOut { // set aside, its outcome unknown: the key makes it safe to repeat
				t.Fatal(err)
			}
		}
		w.wait(time.Minute, "the job", w.inState(e.Job.ID, daemon.Succeeded))
	}
}

// Between the commit of a claim and the start of its process the daemon dies.
// Nobody may start that attempt later: another keeper cannot know that it is
// the first.
func TestADaemonThatDiesBetweenCommitAndEffectCutsItsJobOff(t *testing.T) {
	for n := 1; n <= 3; n++ {
		w := newWorld(t, 32)
		alpha := w.Host("alpha")
		alpha.Serve()
		w.pass(3 * time.Second)
		alpha.CrashBeforeEffect(n)
		alpha.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"sleep", "1h"}}})
		if alpha.Daemon() != nil {
			alpha.Crash()
		}
		alpha.Serve()
		w.wait(time.Minute, "return", w.isActive(alpha))
		w.pass(time.Second)
		if running := alpha.Running(); len(running) != 0 {
			t.Errorf("crash before effect %d: %v run", n, running)
		}
	}
}

func TestACrashedDaemonsJobIsInterruptedAndItsQueueToo(t *testing.T) {
	w := newWorld(t, 33)
	alpha := w.Host("alpha")
	alpha.Limit(1)
	alpha.Serve()
	w.pass(time.Second)
	running, queued := w.enqueue(alpha, "hang"), w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "runs", w.inState(running, daemon.Running))
	alpha.Crash()
	alpha.Serve()
	w.wait(time.Minute, "return", w.isActive(alpha))
	w.wantState(running, daemon.Interrupted)
	w.wantState(queued, daemon.Interrupted)
	if j := w.job(queued); !strings.Contains(j.Reason, "never started") {
		t.Errorf("reason %q", j.Reason)
	}
	if j := w.job(running); !strings.Contains(j.Reason, "epoch 1") {
		t.Errorf("reason %q", j.Reason)
	}
}

// The end of a job was on disk when the daemon died, but not in the store: the
// next one hears of it before it judges anything.
func TestAnEndThatNobodyCommittedIsCommittedByTheNextDaemon(t *testing.T) {
	w := newWorld(t, 50)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	id := w.enqueue(alpha, "sleep", "2s")
	w.wait(time.Minute, "runs", w.inState(id, daemon.Running))
	alpha.Freeze()
	w.pass(5 * time.Second) // it ends, and nobody takes notice
	alpha.Crash()
	alpha.Serve()
	w.wait(time.Minute, "return", w.isActive(alpha))
	w.wantState(id, daemon.Succeeded)
	w.pass(time.Minute)
	if n := alpha.Records(); n != 0 {
		t.Errorf("%d records are kept though their ends are committed", n)
	}
}

func TestACleanStopKeepsTheQueue(t *testing.T) {
	w := newWorld(t, 34)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Limit(1)
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	running, queued := w.enqueue(alpha, "sleep", "10s"), w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "runs", w.inState(running, daemon.Running))
	alpha.Signal()
	w.wait(time.Minute, "stops", func() bool { return alpha.Daemon() == nil })
	w.wantLeft(first, 0)
	w.wantState(running, daemon.Succeeded) // it had the drain grace
	w.wantState(queued, daemon.Queued)
	beta.Serve()
	w.wait(time.Minute, "the queued job runs elsewhere", w.inState(queued, daemon.Succeeded))
}

// The grant's answer is lost: the new holder must still know that its
// predecessor stopped cleanly.
func TestACleanStopKeepsTheQueueAlsoWhenTheNextGrantIsUnsure(t *testing.T) {
	w := newWorld(t, 35)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Limit(1)
	alpha.Serve()
	w.pass(time.Second)
	w.enqueue(alpha, "sleep", "1s")
	queued := w.enqueue(alpha, "sleep", "1s")
	alpha.Signal()
	w.wait(time.Minute, "stops", func() bool { return alpha.Daemon() == nil })
	beta.Serve()
	beta.Fault(sim.LostAnswer)
	w.wait(time.Minute, "the queued job runs", w.inState(queued, daemon.Succeeded))
}

// A sweep that was cut in the middle, and then a clean stop of the daemon that
// made it, must not bring the dead daemon's queue back to life.
func TestAnUnfinishedSweepIsFinishedByTheNext(t *testing.T) {
	w := newWorld(t, 36)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Limit(1)
	alpha.Serve()
	w.pass(time.Second)
	w.enqueue(alpha, "hang")
	doomed := w.enqueue(alpha, "sleep", "1s")
	alpha.Crash()
	beta.NoKeeper("exec: no such file")
	beta.Serve(sim.Standby)
	w.wait(2*ttl, "beta gives up", func() bool { return beta.Daemon() == nil })
	if row, _ := w.Lease(); row.State != daemon.LeaseReleased {
		t.Fatalf("the lease is %s", row.State)
	}
	alpha.Serve()
	w.wait(time.Minute, "alpha", w.isActive(alpha))
	w.wantState(doomed, daemon.Interrupted)
}

func TestADrainThatTakesTooLongCutsOff(t *testing.T) {
	w := newWorld(t, 37)
	alpha := w.Host("alpha")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	soft, hard := w.enqueue(alpha, "hang"), w.enqueue(alpha, "stubborn", "1h")
	w.wait(time.Minute, "both run", func() bool { return len(alpha.Running()) == 2 })
	alpha.Signal()
	took := w.wait(5*time.Minute, "stops", func() bool { return alpha.Daemon() == nil })
	if took < 30*time.Second || took > 40*time.Second {
		t.Errorf("stopped after %s: the drain grace is 30s", took)
	}
	w.wantLeft(first, 0)
	w.wantState(soft, daemon.Interrupted)
	w.wantState(hard, daemon.Interrupted)
	if row, _ := w.Lease(); row.State != daemon.LeaseReleased {
		t.Errorf("the lease is %s", row.State)
	}
}

func TestASecondSignalHurriesAndAThirdKills(t *testing.T) {
	w := newWorld(t, 38)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	w.enqueue(alpha, "stubborn", "1h")
	w.wait(time.Minute, "runs", func() bool { return len(alpha.Running()) == 1 })
	alpha.Signal()
	w.pass(2 * time.Second)
	alpha.Signal()
	w.pass(time.Second)
	if len(alpha.Running()) != 1 {
		t.Error("the second signal killed: it should ask with TERM first")
	}
	alpha.Signal()
	if took := w.wait(time.Minute, "stops", func() bool { return alpha.Daemon() == nil }); took > time.Second {
		t.Errorf("stopped after %s", took)
	}
}

func TestCancel(t *testing.T) {
	w := newWorld(t, 39)
	alpha := w.Host("alpha")
	alpha.Limit(3)
	alpha.Serve()
	w.pass(time.Second)
	soft, hard, done := w.enqueue(alpha, "hang"), w.enqueue(alpha, "stubborn", "1h"), w.enqueue(alpha, "sleep", "1s")
	queued := w.enqueue(alpha, "sleep", "1s")
	c, ctx := alpha.Client(), context.Background()
	for _, id := range []string{queued, soft, hard} {
		if _, err := c.Cancel(ctx, id); err != nil {
			t.Error(err)
		}
		if _, err := c.Cancel(ctx, id); err != nil {
			t.Errorf("a second cancel: %v", err)
		}
	}
	w.wantState(queued, daemon.Cancelled)
	w.pass(5 * time.Second)
	w.wantState(soft, daemon.Cancelled)
	w.wantState(hard, daemon.Cancelling) // its grace is 10 s
	w.pass(10 * time.Second)
	w.wantState(hard, daemon.Cancelled)
	if j := w.job(hard); j.Signal != "SIGKILL" || j.Reason != "cancelled by operator" {
		t.Errorf("signal %q, reason %q", j.Signal, j.Reason)
	}
	w.wantState(done, daemon.Succeeded)
	if _, err := c.Cancel(ctx, done); daemon.CodeOf(err) != daemon.Conflict {
		t.Errorf("cancel of an ended job: %v", err)
	}
	if _, err := c.Cancel(ctx, "job_nosuch"); daemon.CodeOf(err) != daemon.NotFound {
		t.Errorf("cancel of an unknown job: %v", err)
	}
}

// The cancel meets the job between its claim and the news of its start.
func TestACancelThatOvertakesTheStartStillEndsTheJob(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(t, 3900+seed)
		alpha := w.Host("alpha")
		alpha.Serve()
		w.pass(3 * time.Second)
		if w.K.Choices.OneIn(2) {
			alpha.Fault(sim.LostAnswer)
		}
		id := w.enqueue(alpha, "hang")
		if _, err := alpha.Client().Cancel(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute, "cancelled", w.inState(id, daemon.Cancelled))
	}
}

func TestATimeoutEndsTheJobAsFailed(t *testing.T) {
	w := newWorld(t, 40)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	e, err := alpha.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{
		Spec: daemon.Spec{Argv: []string{"hang"}}, TimeoutMs: 5000})
	if err != nil {
		t.Fatal(err)
	}
	w.pass(7 * time.Second)
	w.wantState(e.Job.ID, daemon.JobFailed)
	if j := w.job(e.Job.ID); j.Reason != "timed out after 5s" {
		t.Errorf("reason %q", j.Reason)
	}
}

func TestOneLockOneJob(t *testing.T) {
	w := newWorld(t, 41)
	alpha := w.Host("alpha")
	alpha.Limit(10)
	alpha.Serve()
	w.pass(time.Second)
	var ids []string
	for i := range 8 {
		e, err := alpha.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{
			Spec: daemon.Spec{Argv: []string{"sleep", "1s"}}, Lock: fmt.Sprintf("lock-%d", i%2)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.Job.ID)
	}
	w.wait(time.Minute, "all", func() bool {
		if n := len(alpha.Running()); n > 2 {
			t.Fatalf("%d jobs run under two locks", n)
		}
		return w.inState(ids[7], daemon.Succeeded)()
	})
}

func TestKeysNameOneJob(t *testing.T) {
	w := newWorld(t, 42)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	c, ctx := alpha.Client(), context.Background()
	req := func(arg, dedup string) daemon.EnqueueRequest {
		return daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"sleep", arg}}, Dedup: dedup}
	}
	one, _ := c.Enqueue(ctx, "k1", req("1s", ""))
	two, err := c.Enqueue(ctx, "k1", req("1s", ""))
	if err != nil || two.Job.ID != one.Job.ID || two.Existing != "idempotency" {
		t.Errorf("same key, same request: %+v, %v", two, err)
	}
	if _, err := c.Enqueue(ctx, "k1", req("2s", "")); daemon.CodeOf(err) != daemon.Reused {
		t.Errorf("same key, other request: %v", err)
	}
	three, _ := c.Enqueue(ctx, "", req("5s", "nightly"))
	four, err := c.Enqueue(ctx, "", req("5s", "nightly"))
	if err != nil || four.Job.ID != three.Job.ID || four.Existing != "dedup" {
		t.Errorf("same dedup key, job lives: %+v, %v", four, err)
	}
	w.wait(time.Minute, "ends", w.inState(three.Job.ID, daemon.Succeeded))
	five, err := c.Enqueue(ctx, "", req("5s", "nightly"))
	if err != nil || five.Job.ID == three.Job.ID {
		t.Errorf("same dedup key, job ended: %+v, %v", five, err)
	}
	six, err := c.Enqueue(ctx, "k1", req("1s", ""))
	if err != nil || six.Job.ID != one.Job.ID {
		t.Errorf("an idempotency key holds for ever: %+v, %v", six, err)
	}
}

func TestACordonHoldsTheQueueAndOnlyItsReasonLiftsIt(t *testing.T) {
	w := newWorld(t, 43)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	c, ctx := alpha.Client(), context.Background()
	for _, reason := range []string{"operator", "maintenance of the rack"} {
		if _, err := c.Cordon(ctx, reason, ""); err != nil {
			t.Fatal(err)
		}
	}
	id := w.enqueue(alpha, "sleep", "1s")
	w.pass(time.Minute)
	w.wantState(id, daemon.Queued)
	if a, err := c.Uncordon(ctx, "operator"); err != nil || len(a.Cordons) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Uncordon(ctx, "operator"); daemon.CodeOf(err) != daemon.NotFound {
		t.Errorf("lifting what does not stand: %v", err)
	}
	w.pass(time.Minute)
	w.wantState(id, daemon.Queued)

	// It stands in the store: a takeover does not lift it.
	alpha.Signal()
	w.wait(time.Minute, "stops", func() bool { return alpha.Daemon() == nil })
	beta.Serve()
	w.pass(time.Minute)
	w.wantActive(beta)
	w.wantState(id, daemon.Queued)
	if _, err := beta.Client().Uncordon(ctx, "maintenance of the rack"); err != nil {
		t.Fatal(err)
	}
	w.wait(time.Minute, "runs", w.inState(id, daemon.Succeeded))
}

func TestALostKeeperCutsItsJobsOffAndAnotherGoesOn(t *testing.T) {
	w := newWorld(t, 44)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	id := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "runs", w.inState(id, daemon.Running))
	alpha.CrashKeeper()
	w.wait(time.Minute, "interrupted", w.inState(id, daemon.Interrupted))
	next := w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "the next job", w.inState(next, daemon.Succeeded))
	w.wantActive(alpha)
}

func TestAKeeperThatDoesNotAnswerGetsNoNewJobs(t *testing.T) {
	w := newWorld(t, 45)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	alpha.FreezeKeeper()
	w.pass(15 * time.Second) // two renewals without an acknowledgement
	id := w.enqueue(alpha, "sleep", "1s")
	w.pass(30 * time.Second)
	w.wantState(id, daemon.Queued)
	alpha.ThawKeeper()
	w.wait(time.Minute, "the job", w.inState(id, daemon.Succeeded))
}

// An event that cannot be applied must not stop the renewal, nor the events
// behind it.
func TestAPoisonEventIsSetAside(t *testing.T) {
	w := newWorld(t, 46)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	alpha.Poison("poison")
	_, err := alpha.Client().Enqueue(context.Background(), "", daemon.EnqueueRequest{
		Spec: daemon.Spec{Argv: []string{"sleep", "1s"}}, Labels: map[string]string{"x": "poison"}})
	if err == nil || !strings.Contains(err.Error(), "set aside") {
		t.Errorf("the poison event was answered with %v", err)
	}
	id := w.enqueue(alpha, "sleep", "1s")
	w.wait(time.Minute, "the next job", w.inState(id, daemon.Succeeded))
	w.pass(2 * ttl)
	w.wantActive(alpha)
	if n := alpha.Daemon().Counters.SetAside; n != 1 {
		t.Errorf("set aside %d events", n)
	}
}

// Whoever may write the file but owns no epoch writes to the inbox only.
func TestTheInboxIsTakenByWhoeverHoldsTheLease(t *testing.T) {
	w := newWorld(t, 47)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	e, err := w.Submit("sleep", "1s")
	if err != nil || !e.Submitted {
		t.Fatalf("%+v, %v", e, err)
	}
	if took := w.wait(time.Minute, "the submitted job", w.inState(e.Job.ID, daemon.Succeeded)); took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := w.Unfinished(); n != 0 {
		t.Errorf("%d requests are still in the inbox", n)
	}
}

func TestAJobAcceptedWhileNobodyWasActiveIsNotSwept(t *testing.T) {
	w := newWorld(t, 48)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	alpha.Crash()
	e, err := w.Submit("sleep", "1s")
	if err != nil {
		t.Fatal(err)
	}
	alpha.Serve()
	w.wait(time.Minute, "the submitted job", w.inState(e.Job.ID, daemon.Succeeded))
}

func TestAFullBatchSharesOneCommit(t *testing.T) {
	w := newWorld(t, 49)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(3 * time.Second)
	alpha.Freeze()
	for range 100 {
		alpha.Offer("sleep", "1s")
	}
	before := alpha.Daemon().Counters.Steps
	alpha.Thaw()
	if n := alpha.Daemon().Counters.Steps - before; n > 2 {
		t.Errorf("100 requests took %d Steps", n)
	}
	page, err := alpha.Client().Jobs(context.Background(), daemon.JobQuery{Limit: 1000})
	if err != nil || len(page.Jobs) != 100 {
		t.Errorf("%d jobs, %v", len(page.Jobs), err)
	}
}
