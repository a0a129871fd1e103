package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/sim"
)

// K5: whoever reads another holder in the row tells its own keeper to kill, also
// one that is refused. The operator who attested that alpha is off was wrong: its
// keeper hangs, with a job.
func TestWhoeverReadsAnotherHolderKillsWhatItsOwnKeeperStillRuns(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		w, again := hungKeeperAfterATakeover(t)
		w.wantLeft(again, 75)
	})
	t.Run("standing by", func(t *testing.T) {
		_, again := hungKeeperAfterATakeover(t, sim.Standby)
		if _, why, left := again.Left(); left {
			t.Errorf("the standby ended: %s", why)
		}
	})
}

// hungKeeperAfterATakeover starts a daemon with opts on a host whose keeper hangs
// with a job while another host holds the lease, and checks that the job dies.
func hungKeeperAfterATakeover(t *testing.T, opts ...sim.Option) (*world, *sim.Process) {
	w := newWorld(t, 80)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	w.pass(time.Second)
	job := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	alpha.FreezeKeeper()
	alpha.Crash()
	beta.Serve(sim.Force(1), sim.OldHostIsOff("alpha"))
	w.wait(time.Minute, "takeover", w.isActive(beta))
	if len(alpha.Running()) != 1 {
		t.Fatal("the job should run on: nobody on alpha could kill it")
	}
	alpha.Serve(opts...)
	again := alpha.Process()
	w.pass(15 * time.Second)
	if running := alpha.Running(); len(running) != 0 {
		t.Errorf("still running: %v", running)
	}
	return w, again
}

// L20: another program holds the write lock. The holder is in doubt, then stands
// down, and says who it was; nobody else can take the lease either, by force or
// not, until the lock is free.
func TestAHeldWriteLockIsNamedAndForceDoesNotHelp(t *testing.T) {
	const who = "pid 4711 (sqlite3 exocomp.db)"
	w := newWorld(t, 81)
	alpha, beta := w.Host("alpha"), w.Host("beta")
	alpha.Serve()
	first := alpha.Process()
	w.pass(time.Second)
	alpha.Blocked(who)
	w.wait(ttl, "doubt", func() bool { return alpha.Daemon().Doubt })
	if got := alpha.Daemon().Trouble; !strings.Contains(got, who) || !strings.Contains(got, "No force helps") {
		t.Errorf("in doubt: %q", got)
	}
	w.pass(ttl)
	w.wantLeft(first, 76)
	if _, got, _ := first.Left(); !strings.Contains(got, who) {
		t.Errorf("last words: %q", got)
	}
	beta.Serve(sim.Force(1))
	beta.Blocked(who)
	w.pass(2 * ttl)
	if active := w.Active(); len(active) != 0 {
		t.Errorf("active under a held write lock: %s", active[0].Name)
	}
	if got := beta.Daemon().Trouble; !strings.Contains(got, who) {
		t.Errorf("who forces: %q", got)
	}
	beta.Heal()
	w.wait(2*ttl, "the lock is free", w.isActive(beta))
}

// A disk that is full for a while costs doubt and no more; what ran goes on.
func TestADiskThatIsFullForAWhileCostsNothingButDoubt(t *testing.T) {
	w := newWorld(t, 82)
	alpha := w.Host("alpha")
	alpha.Serve()
	w.pass(time.Second)
	job := w.enqueue(alpha, "hang")
	w.wait(time.Minute, "job runs", w.inState(job, daemon.Running))
	w.pass(daemon.DefaultTerms().Renew - time.Second)
	for range 5 {
		alpha.Fault(sim.Sick)
	}
	w.wait(ttl, "doubt", func() bool { return alpha.Daemon().Doubt })
	alpha.Offer("echo")
	w.wait(ttl, "no doubt", func() bool { return !alpha.Daemon().Doubt })
	w.wantActive(alpha)
	w.wantState(job, daemon.Running)
	w.wait(time.Minute, "what came in doubt is done", func() bool { return w.Unfinished() == 1 })
	if got := alpha.Daemon().Trouble; got != "" {
		t.Errorf("trouble that is over: %q", got)
	}
}
