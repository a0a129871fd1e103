package proc_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/exocomp/exocomp/daemon/logfile"
	"github.com/exocomp/exocomp/daemon/proc"
)

// The test binary is also the keeper that it tests, and a daemon with one.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_KEEPER_DIR"); dir != "" {
		os.Unsetenv("TEST_KEEPER_DIR")
		if err := keep(dir); err != nil {
			fmt.Fprintln(os.Stderr, "keeper:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("TEST_DAEMON_DIR"); dir != "" {
		fmt.Fprintln(os.Stderr, "daemon:", serveTree(dir, os.Getenv("TEST_TREE_DIR"), os.Getenv("TEST_NO_CGROUP") != ""))
		os.Exit(1)
	}
	if err := linux.BecomeSubreaper(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func keep(dir string) error {
	lock, err := linux.TakeLock(filepath.Join(dir, "keeper.lock"), linux.Holder{PID: os.Getpid()})
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := linux.BecomeSubreaper(); err != nil {
		return err
	}
	l, err := linux.ListenUnix(filepath.Join(dir, "keeper.sock"))
	if err != nil {
		return err
	}
	logs := logfile.Dir{Root: filepath.Join(dir, "logs")}
	return proc.Keep(context.Background(), proc.KeeperOptions{Listener: l, StateDir: dir, Marker: dir,
		Logs:  func(job string) (proc.LogWriter, error) { return logs.Create(job, 0) },
		Clock: linux.NewClock(), Chance: linux.Chance{}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		NoCgroup: os.Getenv("TEST_NO_CGROUP") != ""})
}

// rig is a daemon's side with a real keeper.
type rig struct {
	t        *testing.T
	dir      string
	r        *proc.Runner
	clock    linux.Clock
	events   chan daemon.Event
	seen     []daemon.Event
	listed   daemon.Listed // the answer to the first hello
	instance string
	noCgroup bool
	patience time.Duration // with an older keeper
	keeper   *exec.Cmd
}

// withAndWithoutCgroups runs a test on both kinds of containment, and says so
// when this machine has only one.
func withAndWithoutCgroups(t *testing.T, test func(t *testing.T, x *rig)) {
	t.Run("cgroup", func(t *testing.T) { test(t, newRig(t, false)) })
	t.Run("no cgroup", func(t *testing.T) { test(t, newRig(t, true)) })
}

func newRig(t *testing.T, noCgroup bool) *rig {
	t.Helper()
	x := unconnected(t, noCgroup)
	x.connect()
	return x
}

// unconnected is a rig without a keeper.
func unconnected(t *testing.T, noCgroup bool) *rig {
	return &rig{t: t, dir: t.TempDir(), clock: linux.NewClock(), events: make(chan daemon.Event, 10_000), noCgroup: noCgroup}
}

// connect is a daemon that starts.
func (x *rig) connect() {
	x.t.Helper()
	x.r = x.runner()
	x.hello(time.Hour)
	x.listed = want(x, func(l daemon.Listed) bool { return l.Instance != "" })
	x.instance = x.listed.Instance
}

// runner is the daemon's side before its first hello.
func (x *rig) runner() *proc.Runner {
	o := runnerOptions(x.dir, func(ev daemon.Event) { x.events <- ev })
	o.Patience = x.patience
	o.Spawn = func() (cmd *exec.Cmd, err error) {
		cmd, err = spawnKeeper(x.dir, x.noCgroup)
		x.keeper = cmd
		return cmd, err
	}
	r := proc.NewRunner(o)
	x.t.Cleanup(func() { r.Close(5 * time.Second) })
	return r
}

func runnerOptions(dir string, tell func(daemon.Event)) proc.RunnerOptions {
	return proc.RunnerOptions{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Tell: tell,
		Dial: dialer(dir), Holder: holder(dir), StateDir: dir, Marker: dir}
}

func dialer(dir string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return linux.DialUnix(ctx, filepath.Join(dir, "keeper.sock"))
	}
}

func holder(dir string) func() (int, bool, error) {
	return func() (int, bool, error) { return linux.LockPID(filepath.Join(dir, "keeper.lock")) }
}

func spawnKeeper(dir string, noCgroup bool) (*exec.Cmd, error) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"exocomp", "keeper"}, Stderr: os.Stderr,
		Env:         append(proc.SpawnEnv(os.Environ()), "TEST_KEEPER_DIR="+dir, "GORACE=atexit_sleep_ms=0"),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if noCgroup {
		cmd.Env = append(cmd.Env, "TEST_NO_CGROUP=1")
	}
	return cmd, cmd.Start()
}

// leash returns a leash that ends in d, with TERM and KILL a bit before.
func (x *rig) leash(d time.Duration) daemon.Leash {
	end := x.clock.Boot().Add(d)
	return daemon.Leash{TermAt: end.Add(-d / 2), KillAt: end.Add(-d / 4), DeadBy: end}
}

func (x *rig) hello(d time.Duration) {
	x.t.Helper()
	if err := x.r.Hello(context.Background(), daemon.Hello{Epoch: 1, Incarnation: "inc", Seq: 1, Leash: x.leash(d)}); err != nil {
		x.t.Fatal(err)
	}
}

// want waits for an event of that type for which ok holds.
func want[E daemon.Event](x *rig, ok func(E) bool) E {
	x.t.Helper()
	for i, ev := range x.seen {
		if e, is := ev.(E); is && ok(e) {
			x.seen = append(x.seen[:i:i], x.seen[i+1:]...)
			return e
		}
	}
	deadline := time.After(20 * time.Second)
	for {
		select {
		case ev := <-x.events:
			if e, is := ev.(E); is && ok(e) {
				return e
			}
			x.seen = append(x.seen, ev)
		case <-deadline:
			var none E
			x.t.Fatalf("no %T came; what came: %+v", none, x.seen)
			return none
		}
	}
}

var attempts int

// start asks for a job and returns its attempt.
func (x *rig) start(change func(*daemon.Start), argv ...string) string {
	x.t.Helper()
	attempts++
	s := daemon.Start{Attempt: fmt.Sprintf("att_%05d", attempts), Job: fmt.Sprintf("job_%05d", attempts), Epoch: 1, Argv: argv,
		Grace: 10 * time.Second, Token: "exoj_secret", NotAfter: x.clock.Boot().Add(time.Hour),
		Env: map[string]string{"EXOCOMP_ATTEMPT": fmt.Sprintf("att_%05d", attempts)}}
	if change != nil {
		change(&s)
	}
	if err := x.r.Start(context.Background(), s); err != nil {
		x.t.Fatal(err)
	}
	return s.Attempt
}

func (x *rig) exit(attempt string) daemon.Exit {
	x.t.Helper()
	return want(x, func(e daemon.Exited) bool { return e.Attempt == attempt }).Exit
}

func (x *rig) started(attempt string) {
	x.t.Helper()
	want(x, func(e daemon.Started) bool { return e.Attempt == attempt })
}

// output returns what the job of an attempt wrote.
func (x *rig) output(attempt string) string {
	x.t.Helper()
	text, err := logfile.Dir{Root: filepath.Join(x.dir, "logs")}.Text(context.Background(), strings.Replace(attempt, "att_", "job_", 1))
	if err != nil {
		x.t.Fatal(err)
	}
	return text
}

// eventually waits for cond.
func (x *rig) eventually(what string, cond func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("never: %s", what)
		}
	}
}

// pid returns the number that a job wrote into a file.
func (x *rig) pid(file string) int {
	x.t.Helper()
	pid := 0
	x.eventually(file, func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		n, _ := fmt.Sscanf(string(text), "%d\n", &pid)
		return n == 1 && strings.HasSuffix(string(text), "\n")
	})
	return pid
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z")
}
