package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim"
)

const ttl = 30 * time.Second // of the default terms

func TestTwoDaemonsStartAndExactlyOneBecomesActive(t *testing.T) {
	w := newWorld(t, 1)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	beta.Serve()
	second := beta.Process()
	w.pass(10 * time.Second)
	w.wantActive(alpha)
	w.wantLeft(second, 75)
	if _, why, _ := second.Left(); !strings.Contains(why, "alpha") || !strings.Contains(why, "epoch 1") {
		t.Errorf("the refusal does not name the holder and its epoch: %s", why)
	}
}

func TestASecondDaemonOnOneHostIsRefusedByTheLock(t *testing.T) {
	w := newWorld(t, 1)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	alpha.Serve()
	w.pass(time.Second)
	w.wantActive(alpha)
}

func TestTheStandbyTakesOverAfterTheTTLAndNoSooner(t *testing.T) {
	w := newWorld(t, 2)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	w.pass(10 * time.Second)
	w.wantActive(alpha)

	alpha.Crash()
	took := w.wait(2*ttl, "takeover", w.isActive(beta))
	if earliest := ttl - daemon.DefaultTerms().Renew - 2*time.Second; took < earliest {
		t.Errorf("took over after %s: the last renewal was at most a renewal interval old, so not before %s", took, earliest)
	}
	if latest := ttl + 3*time.Second; took > latest {
		t.Errorf("took over after %s, want at most %s", took, latest)
	}
}

func TestAReleasedLeaseIsTakenAtOnce(t *testing.T) {
	w := newWorld(t, 3)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	w.pass(3 * time.Second)
	alpha.Signal()
	took := w.wait(ttl, "planned failover", w.isActive(beta))
	if took > 1500*time.Millisecond {
		t.Errorf("a planned failover took %s", took)
	}
	w.wantLeft(first, 0)
}

func TestTheHolderFreezesWakesAndCanChangeNothing(t *testing.T) {
	w := newWorld(t, 4)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	id := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(id, daemon.Running))

	alpha.Freeze()
	w.pass(daemon.DefaultTerms().Trust() + time.Millisecond) // D after the last renewal at the latest
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("jobs live on behind the leash: %v", running)
	}
	w.wait(2*ttl, "takeover", w.isActive(beta))
	w.wantState(id, daemon.Interrupted)

	alpha.Thaw() // the oracles see to it that it commits nothing
	w.pass(time.Second)
	w.wantLeft(first, 76)
	w.wantActive(beta)
}

// The wake comes in the middle of a Step: the clock was read before the sleep,
// the write lock is had after it.
func TestAHolderFrozenInMidStepCommitsNothing(t *testing.T) {
	w := newWorld(t, 5)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	w.pass(5 * time.Second)
	alpha.Stall(2 * ttl)
	w.pass(3 * ttl)
	w.wantActive(beta)
	w.wantLeft(first, 76)
}

// The same, with a Step that renews nothing: it only takes a request. Shorter
// than the TTL nobody else is there yet, and still it is past its trust.
func TestARequestThatWasFrozenInMidStepIsNotCommitted(t *testing.T) {
	for _, sleep := range []time.Duration{24 * time.Second, 2 * ttl} {
		w := newWorld(t, 23)
		alpha, beta := w.Host("alpha"), w.Host("beta")
		alpha.Serve()
		first := alpha.Process()
		w.pass(time.Second)
		beta.Serve(sim.Standby)
		w.pass(5*time.Second + 100*time.Millisecond) // a renewal has just been made
		alpha.Stall(sleep)
		alpha.Offer("sleep", "1s")
		w.pass(3 * ttl)
		w.wantActive(beta)
		w.wantLeft(first, 76)
		if n := w.Unfinished(); n != 0 {
			t.Errorf("asleep for %s: the request was committed", sleep)
		}
	}
}

func TestAClaimThatWasFrozenBeforeItsEffectStartsNothing(t *testing.T) {
	for _, sleep := range []time.Duration{24 * time.Second, 2 * ttl} {
		w := newWorld(t, 24)
		alpha, beta := w.Host("alpha"), w.Host("beta")
		alpha.Serve()
		first := alpha.Process()
		w.pass(time.Second)
		beta.Serve(sim.Standby)
		w.pass(5*time.Second + 100*time.Millisecond)
		alpha.Dawdle(sleep)
		alpha.Offer("sleep", "1h")
		w.pass(3 * ttl)
		w.wantActive(beta)
		w.wantLeft(first, 76)
		if running := append(alpha.Running(), beta.Running()...); len(running) != 0 {
			t.Errorf("asleep for %s: %v runs", sleep, running)
		}
	}
}

func TestACrashLoopingBootDoesNotHoldTheLease(t *testing.T) {
	w := newWorld(t, 6)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.NoKeeper("exec: no such file") // every boot dies before READY
	beta.Serve(sim.Standby)
	w.pass(time.Second)
	beta.Crash()
	alpha.Serve(sim.Standby)
	w.wait(time.Minute, "alpha boots", func() bool { return alpha.Daemon().Role == daemon.Booting })

	beta.Serve(sim.Standby)
	// alpha crashes in each boot and is started again by its supervisor. A
	// shortcut for the same host would let it take the lease each time.
	crashes := 0
	took := w.wait(3*ttl, "beta", func() bool {
		if d := alpha.Daemon(); d == nil {
			alpha.Serve(sim.Standby)
		} else if d.Role == daemon.Booting && crashes < 1000 {
			crashes++
			alpha.Crash()
		}
		return w.isActive(beta)()
	})
	if took > ttl+5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestABootWithoutAKeeperGivesTheLeaseBack(t *testing.T) {
	w := newWorld(t, 7)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.NoKeeper("exec: no such file")
	alpha.Serve()
	first := alpha.Process()
	beta.Serve(sim.Standby)
	took := w.wait(ttl, "beta takes the lease that the failed boot gave back", w.isActive(beta))
	if took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	w.wantLeft(first, 1)
	if _, why, _ := first.Left(); !strings.Contains(why, "exec: no such file") {
		t.Errorf("last words: %s", why)
	}
}

func TestSkewedClocksChangeNothing(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour, 10 * 365 * 24 * time.Hour, -9 * 365 * 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			w := newWorld(t, 8)
			alpha, beta := w.Host("alpha"), w.Host("beta")
			beta.StepWall(skew)
			alpha.Serve()
			w.pass(time.Second)
			beta.Serve(sim.Standby)
			w.pass(10 * ttl) // a holder that lives is never deposed
			w.wantActive(alpha)
			alpha.Crash()
			took := w.wait(2*ttl, "takeover", w.isActive(beta))
			if took < ttl*2/3 || took > ttl+3*time.Second {
				t.Errorf("took over after %s", took)
			}
		})
	}
}

func TestAClockFromBefore2020IsRefused(t *testing.T) {
	w := newWorld(t, 22)
	alpha := w.Host("alpha")
	alpha.StepWall(-11 * 365 * 24 * time.Hour)
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	w.wantLeft(first, 78)
	if row, _ := w.Lease(); row.Epoch != 0 {
		t.Errorf("epoch %d: something was written", row.Epoch)
	}
}

func TestClocksThatStepChangeNothing(t *testing.T) {
	w := newWorld(t, 9)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	for range 20 {
		alpha.StepWall(time.Duration(w.K.Choices.Between(-2*time.Hour, 2*time.Hour)))
		beta.StepWall(time.Duration(w.K.Choices.Between(-2*time.Hour, 2*time.Hour)))
		w.pass(w.K.Choices.Between(0, ttl))
		w.wantActive(alpha)
	}
	if alpha.Daemon().Counters.ClockSteps < 10 {
		t.Errorf("the holder noticed only %d clock steps", alpha.Daemon().Counters.ClockSteps)
	}
}

func TestFastAndSlowClocksStayWithinTheMargin(t *testing.T) {
	for _, rates := range [][2]int64{{900_000, 1_100_000}, {1_100_000, 900_000}} {
		w := newWorld(t, 10)
		alpha, beta := w.Host("alpha"), w.Host("beta")
		alpha.Rate(rates[0])
		beta.Rate(rates[1])
		alpha.Serve()
		w.pass(time.Second)
		beta.Serve(sim.Standby)
		id := w.enqueue(alpha, "hang")
		w.wait(time.Minute, "job runs", w.inState(id, daemon.Running))
		w.pass(10 * ttl)
		w.wantActive(alpha)
		alpha.Freeze()
		w.wait(3*ttl, "takeover", w.isActive(beta)) // the oracle: no job of the old term lives by then
		alpha.Thaw()
		w.pass(time.Second)
		w.wantActive(beta)
	}
}

func TestTheDeadHolderReturnsOnItsOwnHostAndDoesNotWait(t *testing.T) {
	w := newWorld(t, 11)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(10 * time.Second)
	beta.Serve(sim.Standby)
	w.pass(time.Second)
	alpha.Crash()
	w.pass(100 * time.Millisecond)
	alpha.Serve()
	if took := w.wait(ttl, "return", w.isActive(alpha)); took > time.Second {
		t.Errorf("it waited %s", took)
	}
	if row, _ := w.Lease(); row.Epoch != 2 {
		t.Errorf("epoch %d, want 2", row.Epoch)
	}
}

func TestARebootedHostWaitsLikeAnyOther(t *testing.T) {
	w := newWorld(t, 12)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(10 * time.Second)
	alpha.Reboot()
	alpha.Serve()
	if took := w.wait(2*ttl, "return", w.isActive(alpha)); took < ttl {
		t.Errorf("it took the lease after %s: another boot proves nothing about the old processes", took)
	}
}

func TestASuspendedHolderIsDeposedAndItsJobsDieOnWaking(t *testing.T) {
	w := newWorld(t, 13)
	w.Ghost.Slack = time.Second // L16: jobs of a suspended host overlap by the latency of its waking
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	id := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(id, daemon.Running))
	alpha.Suspend()
	w.wait(2*ttl, "takeover", w.isActive(beta))
	w.pass(time.Hour)
	alpha.Resume()
	w.pass(100 * time.Millisecond)
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("jobs live on after the host woke: %v", running)
	}
	w.pass(time.Second)
	w.wantLeft(first, 76)
	w.wantActive(beta)
}

// Inside a paused virtual machine no clock tells what happened. The epoch in
// the transaction is what stands.
func TestAPausedVirtualMachineCommitsNothing(t *testing.T) {
	w := newWorld(t, 14)
	w.Ghost.Slack = 10 * time.Second // L16: R + A + kill
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	beta.Serve(sim.Standby)
	id := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(id, daemon.Running))
	alpha.Pause()
	w.wait(2*ttl, "takeover", w.isActive(beta))
	alpha.Resume()
	w.wait(w.Ghost.Slack, "the job dies", func() bool { return len(alpha.Running()) == 0 })
	w.pass(time.Second)
	w.wantLeft(first, 76)
	w.wantActive(beta)
}

func TestABusyStoreMakesDoubtAndAQuietOneEndsIt(t *testing.T) {
	w := newWorld(t, 15)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(10 * time.Second)
	alpha.Fault(sim.Busy, sim.Sick)
	w.wait(ttl, "doubt", func() bool { return alpha.Daemon().Doubt })
	w.wait(ttl, "no doubt", func() bool { return !alpha.Daemon().Doubt })
	w.wantActive(alpha)
	if got := alpha.Daemon().Counters.Missed; got < 1 {
		t.Errorf("missed renewals: %d", got)
	}
}

func TestAStoreThatStaysSickFencesTheHolder(t *testing.T) {
	w := newWorld(t, 16)
	alpha := w.Host("alpha")
	alpha.Serve()
	first := alpha.Process()
	id := ""
	w.pass(time.Second)
	id = w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(id, daemon.Running))
	for range 200 {
		alpha.Fault(sim.Sick)
	}
	w.pass(ttl)
	w.wantLeft(first, 76)
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("jobs live on: %v", running)
	}
}

func TestALostAnswerOnARenewalIsRecognised(t *testing.T) {
	w := newWorld(t, 17)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(10 * time.Second)
	for range 5 {
		alpha.Fault(sim.LostAnswer, sim.LostAnswer, sim.LostCommit)
		w.pass(ttl)
		w.wantActive(alpha)
	}
	if row, _ := w.Lease(); row.Epoch != 1 {
		t.Errorf("epoch %d: the holder did not know its own writing", row.Epoch)
	}
}

func TestALostAnswerOnTheGrantIsRecognised(t *testing.T) {
	w := newWorld(t, 18)
	alpha := w.Host("alpha")
	alpha.Serve()
	alpha.Fault(sim.LostAnswer)
	if took := w.wait(ttl, "active", w.isActive(alpha)); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if row, _ := w.Lease(); row.Epoch != 1 {
		t.Errorf("epoch %d", row.Epoch)
	}
}

func TestALostAnswerOnTheReleaseIsACleanEnd(t *testing.T) {
	w := newWorld(t, 19)
	alpha := w.Host("alpha")
	alpha.Serve()
	first := alpha.Process()
	w.pass(3 * time.Second)
	alpha.Fault(sim.LostAnswer)
	alpha.Signal()
	w.pass(5 * time.Second)
	w.wantLeft(first, 0)
	if row, _ := w.Lease(); row.State != daemon.LeaseReleased {
		t.Errorf("the lease is %s", row.State)
	}
}

// Two clones of one machine share boot id, lock and even holder. The stamp
// tells them apart.
func TestACloneThatRenewsTheSameRowIsNotMistakenForUs(t *testing.T) {
	w := newWorld(t, 20)
	alpha := w.Host("alpha")
	alpha.Serve()
	first := alpha.Process()
	w.pass(7 * time.Second)
	if err := w.Forge(func(row daemon.Lease) daemon.Lease {
		row.Seq++
		row.Stamp = "the clone's"
		return row
	}); err != nil {
		t.Fatal(err)
	}
	w.pass(ttl / 3)
	w.wantLeft(first, 76)
}

func TestSlowBootRenewsItsLease(t *testing.T) {
	w := newWorld(t, 21)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(3 * time.Second)
	beta.Serve(sim.Standby)
	alpha.Crash()
	w.pass(time.Second)
	alpha.KeeperDelay(2 * ttl) // the old keeper dies slowly
	alpha.Serve()
	w.pass(2 * ttl)
	w.wait(time.Minute, "alpha", w.isActive(alpha))
	if row, _ := w.Lease(); row.Epoch != 2 {
		t.Errorf("epoch %d: the lease was lost while booting", row.Epoch)
	}
}

// A boot whose trust ran out is begun anew in a later term. The keeper's answer
// to the first Hello comes while the daemon watches, or after it has acquired:
// it says nothing of the new term, and the keeper must be greeted again, or no
// job would ever start. Found by World 1002723 of the drawn ones.
func TestAKeeperThatAnswersAnEarlierTermIsGreetedAgain(t *testing.T) {
	for _, slow := range []time.Duration{ttl, 3 * ttl / 2, 2 * ttl, 3 * ttl} {
		t.Run(slow.String(), func(t *testing.T) {
			w := newWorld(t, 22)
			alpha := w.Host("alpha")
			alpha.KeeperDelay(slow)
			alpha.Serve(sim.Standby)
			w.pass(time.Second)
			alpha.Freeze() // no renewal: trust runs out before READY
			w.pass(ttl)
			alpha.Thaw()
			w.wait(time.Minute, "the second term", func() bool { return w.Ghost.Terms() == 2 })
			w.wait(time.Minute, "alpha", w.isActive(alpha))
			id, err := alpha.Enqueue("sleep", "1s")
			if err != nil {
				t.Fatal(err)
			}
			w.wait(time.Minute, "the job's end", func() bool { return w.Unfinished() == 0 })
			w.wantState(id, daemon.Succeeded)
		})
	}
}
