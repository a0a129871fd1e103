package proc_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/proc"
)

// serveTree is a daemon process of which only its keeper and one job matter. It
// goes on until it is killed.
func serveTree(dir, treeDir string, noCgroup bool) error {
	if err := linux.BecomeSubreaper(); err != nil {
		return err
	}
	lock, err := linux.TakeLock(filepath.Join(dir, "serve.lock"), linux.Holder{PID: os.Getpid()})
	if err != nil {
		return err
	}
	defer lock.Release()
	boot := linux.NewClock().Boot()
	end := boot.Add(time.Hour)
	o := runnerOptions(dir, nil)
	lost := make(chan error, 1)
	var r *proc.Runner
	o.Tell = func(ev daemon.Event) {
		switch ev := ev.(type) {
		case daemon.Listed:
			err := r.Start(context.Background(), daemon.Start{Attempt: "att_tree", Job: "job_00000", Epoch: 1, NotAfter: end,
				Argv: []string{"sh", "-c", tree, "tree", treeDir}, Env: map[string]string{"EXOCOMP_ATTEMPT": "att_tree"}})
			if err != nil {
				lost <- err
			}
		case daemon.KeeperLost:
			lost <- errors.New(ev.Why)
		}
	}
	o.Spawn = func() (*exec.Cmd, error) { return spawnKeeper(dir, noCgroup) }
	r = proc.NewRunner(o)
	if err := r.Hello(context.Background(), daemon.Hello{Epoch: 1, Incarnation: "old", Seq: 1,
		Leash: daemon.Leash{TermAt: end, KillAt: end, DeadBy: end}}); err != nil {
		return err
	}
	return <-lost
}

// elsewhere is another daemon process with its keeper and the tree as its job.
type elsewhere struct {
	x      *rig
	cmd    *exec.Cmd
	daemon int
	keeper int
	pids   map[string]int
}

func (x *rig) elsewhere() *elsewhere {
	x.t.Helper()
	dir := x.t.TempDir()
	e := &elsewhere{x: x, cmd: &exec.Cmd{Path: "/proc/self/exe", Args: []string{"daemon"}, Stderr: os.Stderr,
		Env: append(proc.SpawnEnv(os.Environ()), "TEST_DAEMON_DIR="+x.dir, "TEST_TREE_DIR="+dir)}}
	if x.noCgroup {
		e.cmd.Env = append(e.cmd.Env, "TEST_NO_CGROUP=1")
	}
	if err := e.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	e.daemon = e.cmd.Process.Pid
	x.t.Cleanup(func() { e.killDaemon() })
	e.pids = x.treePids(dir)
	x.t.Cleanup(func() {
		for _, pid := range e.pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	e.keeper, _, _ = holder(x.dir)()
	if e.keeper == 0 {
		x.t.Fatal("no keeper holds the lock")
	}
	x.t.Cleanup(func() { syscall.Kill(e.keeper, syscall.SIGKILL) })
	return e
}

func (e *elsewhere) killDaemon() {
	e.cmd.Process.Kill()
	_ = e.cmd.Wait() // again, or reaped by the rig
	e.x.eventually("the daemon is dead", func() bool { return !alive(e.daemon) })
}

// stop freezes a process, and returns when it is frozen.
func (x *rig) stop(pid int) {
	x.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		x.t.Fatal(err)
	}
	x.eventually("the process is stopped", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

func wantAlive(t *testing.T, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		if !alive(pid) {
			t.Errorf("%s (pid %d) is dead", name, pid)
		}
	}
}

// bystander is a process that looks like a keeper and is none of ours.
func bystander(t *testing.T) int {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keeper"), []byte("read forever\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: sh, Args: []string{"exocomp", "keeper"}, Dir: dir}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

func onBoth(t *testing.T, test func(t *testing.T, x *rig)) {
	t.Run("cgroup", func(t *testing.T) { test(t, unconnected(t, false)) })
	t.Run("no cgroup", func(t *testing.T) { test(t, unconnected(t, true)) })
}

// K4: the next daemon of the host clears away a keeper that is stuck, with jobs
// and all, and nobody makes up how they ended.
func TestAStuckKeeperOfADeadDaemonIsClearedAway(t *testing.T) {
	onBoth(t, func(t *testing.T, x *rig) {
		old := x.elsewhere()
		x.stop(old.keeper)
		old.killDaemon()
		wantAlive(t, old.pids)
		x.patience = 50 * time.Millisecond
		x.connect()
		wantDead(t, old.pids)
		wantDead(t, map[string]int{"the old keeper": old.keeper})
		if len(x.listed.Exits) != 0 || len(x.listed.Running) != 0 {
			t.Errorf("the new keeper lists %+v", x.listed)
		}
		x.exit(x.start(nil, "true"))
	})
}

// A lock file may name a process that is long dead, and whose number is now that
// of somebody else, who even looks like a keeper.
func TestTheNumberInALockFileKillsNobody(t *testing.T) {
	x := unconnected(t, true)
	innocent := map[string]int{"the innocent": bystander(t)}
	old := x.elsewhere()
	x.stop(old.keeper)
	old.killDaemon()
	claim := fmt.Appendf(nil, `{"pid":%d}`, innocent["the innocent"])
	if err := os.WriteFile(filepath.Join(x.dir, "keeper.lock"), claim, 0o600); err != nil {
		t.Fatal(err)
	}
	x.patience = 50 * time.Millisecond
	x.connect()
	wantAlive(t, innocent)
	wantDead(t, map[string]int{"the old keeper": old.keeper})

	free := unconnected(t, true) // and a lock that nobody holds
	if err := os.WriteFile(filepath.Join(free.dir, "keeper.lock"), claim, 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := free.quiet(0); err != nil || q != (proc.Quieted{}) {
		t.Errorf("quiet found %+v, %v", q, err)
	}
	free.connect()
	wantAlive(t, innocent)
}

// A lock that another program holds is a reason to fail, not to kill it.
func TestAProgramThatIsNoKeeperMayHoldTheLock(t *testing.T) {
	x := unconnected(t, true)
	cmd := exec.Command("flock", "--no-fork", filepath.Join(x.dir, "keeper.lock"), "sh", "-c", "echo; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs flock(1): %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = proc.Quiet(ctx, x.quietOptions(0))
	if daemon.CodeOf(err) != daemon.TimedOut || !strings.Contains(err.Error(), fmt.Sprintf("no keeper, or another user's (pid %d", cmd.Process.Pid)) {
		t.Errorf("quiet: %v", err)
	}
	wantAlive(t, map[string]int{"the holder": cmd.Process.Pid})
}

// K5: who read another holder in the row has all jobs of this host killed, also
// those of a session that is not its own, and knows when it is done. Nothing
// starts then before somebody says hello.
func TestAnyoneMayHaveEverythingKilled(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		other := x.runner()
		if err := other.KillAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		other.Close(0)
		wantDead(t, pids)
		if end := x.exit(a); end.Cause != daemon.CauseLeash || !end.Durable {
			t.Errorf("end %+v", end)
		}
		b := x.start(nil, "true")
		if f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == b }); !f.Refused {
			t.Errorf("a start behind it: %+v", f)
		}
		x.hello(time.Hour)
		x.exit(x.start(nil, "true"))
	})
}

// The same from its own session: when the daemon ends all is dead and written down.
func TestAFencedDaemonLeavesNothingAlive(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		if err := x.r.KillAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		x.r.Close(5 * time.Second)
		wantDead(t, pids)
		x.connect()
		if l := x.listed; len(l.Exits) != 1 || l.Exits[0].Attempt != a || l.Exits[0].Cause != daemon.CauseLeash {
			t.Errorf("listed %+v", l)
		}
	})
}

// K6: a keeper that does not answer is no excuse.
func TestAStuckKeeperDoesNotShieldItsJobs(t *testing.T) {
	ends := map[string]func(x *rig){
		"killed": func(x *rig) {
			if err := x.r.KillAll(context.Background()); err != nil {
				x.t.Fatal(err)
			}
			x.r.Close(0)
		},
		"closed": func(x *rig) { x.r.Close(0) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
				_, pids := startTree(x)
				keeper := x.keeper.Process.Pid
				x.stop(keeper)
				end(x)
				wantDead(t, pids)
				wantDead(t, map[string]int{"the keeper": keeper})
				x.connect()
				if len(x.listed.Exits) != 0 {
					t.Errorf("ends were made up: %+v", x.listed)
				}
			})
		})
	}
}

// A daemon that is refused has no session. It kills what a keeper runs that
// cannot answer, and what one left that is dead.
func TestARefusedDaemonKillsWhatItsHostRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, x *rig) {
		old := x.elsewhere()
		x.stop(old.keeper)
		old.killDaemon()
		r := x.runner()
		if err := r.KillAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.Close(0)
		wantDead(t, old.pids)
		if pid, held, err := holder(x.dir)(); held || err != nil {
			t.Errorf("the lock is held by %d, %v", pid, err)
		}
	})
	onBoth(t, func(t *testing.T, x *rig) {
		old := x.orphaned()
		r := x.runner()
		if err := r.KillAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.Close(0)
		if x.noCgroup {
			delete(old.pids, "bare") // the gap that is left: see the package comment
		}
		wantDead(t, old.pids)
	})
}

// orphaned are jobs whose keeper and daemon were killed in the same instant.
func (x *rig) orphaned() *elsewhere {
	x.t.Helper()
	old := x.elsewhere()
	x.t.Cleanup(func(bare int) func() { return func() { syscall.Kill(bare, syscall.SIGKILL) } }(old.pids["bare"]))
	x.stop(old.daemon)
	syscall.Kill(old.keeper, syscall.SIGKILL)
	x.eventually("the keeper is dead", func() bool { return !alive(old.keeper) })
	old.killDaemon()
	x.eventually("the leader died with the keeper", func() bool { return !alive(old.pids["leader"]) })
	delete(old.pids, "leader")
	wantAlive(x.t, old.pids)
	return old
}

// A keeper that nobody lets live must not be waited for.
func TestCloseEndsAKeeperThatWasJustStarted(t *testing.T) {
	x := unconnected(t, true)
	spawned := make(chan *exec.Cmd, 1)
	o := runnerOptions(x.dir, func(daemon.Event) {})
	o.Spawn = func() (*exec.Cmd, error) {
		cmd := exec.Command("sleep", "1000")
		defer func() { spawned <- cmd }()
		return cmd, cmd.Start()
	}
	r := proc.NewRunner(o)
	if err := r.Hello(context.Background(), daemon.Hello{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	cmd := <-spawned
	r.Close(0)
	wantDead(t, map[string]int{"the keeper": cmd.Process.Pid})
}

// dial is a connection that has not said hello.
func (x *rig) dial() (say func(string), hear func() string) {
	x.t.Helper()
	conn, err := dialer(x.dir)(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { conn.Close() })
	in := bufio.NewReader(conn)
	say = func(line string) {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			x.t.Fatal(err)
		}
	}
	hear = func() string {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, net.ErrClosed) {
			x.t.Fatal(err)
		}
		return line
	}
	return say, hear
}

// L21, K2: a leash is obeyed from the newest session and epoch only.
func TestALeashOfAnotherEpochOrSessionIsNotObeyed(t *testing.T) {
	x := newRig(t, true)
	a := x.start(nil, "sleep", "1000")
	x.started(a)
	past := x.clock.Boot()
	over := daemon.Leash{TermAt: past, KillAt: past, DeadBy: past}
	if err := x.r.Extend(context.Background(), daemon.Extend{Epoch: 0, Seq: 2, Leash: over}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]daemon.Extend{"extend": {Epoch: 1, Seq: 3, Leash: over}})
	if err != nil {
		t.Fatal(err)
	}
	say, hear := x.dial()
	say(string(text))
	say(`{"list":true}`)
	if got := hear(); !strings.Contains(got, `"listed"`) || !strings.Contains(got, a) {
		t.Errorf("a stranger heard %s", got)
	}
	if err := x.r.Extend(context.Background(), daemon.Extend{Epoch: 1, Seq: 4, Leash: x.leash(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if e := want(x, func(daemon.Extended) bool { return true }); e.Seq != 4 {
		t.Errorf("acknowledged %+v", e)
	}
	if l := x.list(); len(l.Running) != 1 {
		t.Errorf("listed %+v", l)
	}
}

// The list tells the truth about what holds the jobs.
func TestTheListSaysWhetherACgroupHoldsTheJobs(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		base, err := os.ReadFile(filepath.Join(x.dir, "keeper.cgroup"))
		if err != nil {
			t.Fatal(err)
		}
		if got := x.list().Cgroup; got != (len(base) > 0) || x.noCgroup && got {
			t.Errorf("cgroup %v, its group is %q", got, base)
		}
	})
}

// A state dir that is removed under its keeper frees nobody: not at the deadline,
// and not at the end of the socket. It is not made anew.
func TestAKeeperObeysWithoutItsStateDir(t *testing.T) {
	remove := func(x *rig) {
		if err := os.RemoveAll(x.dir); err != nil {
			x.t.Fatal(err)
		}
	}
	gone := func(t *testing.T, x *rig) {
		x.r.Close(10 * time.Second)
		if !x.keeper.ProcessState.Success() {
			t.Errorf("the keeper ended with %s", x.keeper.ProcessState)
		}
		if _, err := os.Stat(x.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state dir is back: %v", err)
		}
	}
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		remove(x)
		if err := x.r.Extend(context.Background(), daemon.Extend{Epoch: 1, Seq: 2, Leash: x.leash(200 * time.Millisecond)}); err != nil {
			t.Fatal(err)
		}
		if end := x.exit(a); end.Cause != daemon.CauseLeash || end.Durable {
			t.Errorf("end %+v", end)
		}
		wantDead(t, pids)
		x.hello(time.Hour)
		b := x.start(nil, "true")
		if f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == b }); f.Refused {
			t.Errorf("%+v", f)
		}
		gone(t, x)
	})
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		_, pids := startTree(x)
		remove(x)
		gone(t, x)
		wantDead(t, pids)
	})
}

func (x *rig) quietOptions(pid int) proc.QuietOptions {
	return proc.QuietOptions{StateDir: x.dir, Marker: x.dir, Holder: holder(x.dir), Dial: dialer(x.dir), Daemon: pid}
}

func (x *rig) quiet(pid int) (proc.Quieted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return proc.Quiet(ctx, x.quietOptions(pid))
}

// O1: whatever state daemon and keeper are in, afterwards there is silence.
func TestQuietLeavesNoProcess(t *testing.T) {
	states := map[string]func(x *rig, e *elsewhere) (daemon, keepers int){
		"both run":           func(*rig, *elsewhere) (int, int) { return 1, 1 },
		"the daemon stopped": func(x *rig, e *elsewhere) (int, int) { x.stop(e.daemon); return 1, 1 },
		"the keeper stopped": func(x *rig, e *elsewhere) (int, int) { x.stop(e.keeper); return 1, 1 },
		"both stopped": func(x *rig, e *elsewhere) (int, int) {
			x.stop(e.keeper)
			x.stop(e.daemon)
			return 1, 1
		},
		"the daemon dead, the keeper stopped": func(x *rig, e *elsewhere) (int, int) {
			x.stop(e.keeper)
			e.killDaemon()
			return 0, 1
		},
	}
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, x *rig) {
				neighbour := unconnected(t, x.noCgroup).elsewhere()
				e := x.elsewhere()
				wantDaemon, wantKeepers := state(x, e)
				pid, _, err := linux.LockPID(filepath.Join(x.dir, "serve.lock"))
				if err != nil || (pid != 0) != (wantDaemon == 1) {
					t.Fatalf("the daemon is %d, %v", pid, err)
				}
				q, err := x.quiet(pid)
				if err != nil || q.Daemon != (wantDaemon == 1) || q.Keepers != wantKeepers || q.Jobs != 1 || q.Processes < len(e.pids) || q.Left != 0 {
					t.Errorf("quieted %+v, %v", q, err)
				}
				wantDead(t, e.pids)
				wantDead(t, map[string]int{"daemon": e.daemon, "keeper": e.keeper})
				if q, err := x.quiet(0); err != nil || q != (proc.Quieted{}) {
					t.Errorf("again: %+v, %v", q, err)
				}
				wantAlive(t, neighbour.pids)
				wantAlive(t, map[string]int{"its daemon": neighbour.daemon, "its keeper": neighbour.keeper})
			})
		})
	}
}

// Grandchildren that left their session are found by what they carry.
func TestQuietFindsWhatADeadKeeperLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, x *rig) {
		old := x.orphaned()
		if x.noCgroup {
			delete(old.pids, "bare")
		}
		q, err := x.quiet(0)
		if err != nil || q.Daemon || q.Keepers != 0 || q.Jobs != 1 || q.Processes < len(old.pids) || q.Left != 0 {
			t.Errorf("quieted %+v, %v", q, err)
		}
		wantDead(t, old.pids)
	})
}
