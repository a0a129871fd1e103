package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
)

func TestAJobRunsAndItsEndIsTold(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a := x.start(nil, "sh", "-c", "echo out; echo err >&2; exit 3")
		x.started(a)
		end := x.exit(a)
		if end.Code != 3 || end.Signal != "" || end.Cause != daemon.CauseExit || !end.Durable || end.LogBytes != 8 {
			t.Errorf("end %+v", end)
		}
		if got := x.output(a); !strings.Contains(got, "out\n") || !strings.Contains(got, "err\n") {
			t.Errorf("output %q", got)
		}
		b := x.start(nil, "sh", "-c", "kill -SEGV $$")
		if end := x.exit(b); end.Signal != "SIGSEGV" || end.Cause != daemon.CauseExit {
			t.Errorf("end %+v", end)
		}
	})
}

func TestTheEnvironmentIsTheShortListAndWhatTheJobNames(t *testing.T) {
	t.Setenv("DAEMON_SECRET", "hunter2")
	x := newRig(t, false)
	a := x.start(func(s *daemon.Start) { s.Env["MINE"] = "a b\nc" },
		"sh", "-c", "env | sort; echo mine:\"$MINE\":; cat \"$EXOCOMP_TOKEN_FILE\"; stat -c %a \"$EXOCOMP_TOKEN_FILE\"; ls -A | wc -l")
	x.exit(a)
	got := x.output(a)
	for _, part := range []string{"MINE=a b\n", "mine:a b\nc:\n", "EXOCOMP_ATTEMPT=" + a, "EXOCOMP_SOCKET=" + x.dir, "PATH=", "exoj_secret\n600\n0\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
	if strings.Contains(got, "hunter2") || strings.Contains(got, "TEST_KEEPER") {
		t.Errorf("the daemon's own environment reached the job:\n%s", got)
	}
	x.eventually("the run directory is removed", func() bool {
		left, _ := filepath.Glob(filepath.Join(x.dir, "runs", "*"))
		return len(left) == 0
	})
}

func TestACommandThatCannotBeRunSaysWhy(t *testing.T) {
	x := newRig(t, false)
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		name string
		argv string
		cwd  string
		code int64
		why  string
	}{
		{"no such name", "no-such-command-anywhere", "", 127, "no executable \"no-such-command-anywhere\" in PATH="},
		{"no such path", "/no/such/command", "", 127, "/no/such/command is not there"},
		{"not executable", file("plain", "x", 0o600), "", 126, "is not executable"},
		{"a directory", dir, "", 126, "is a directory"},
		{"no program", file("garbage", "\x00\x01\x02", 0o700), "", 126, "no program for this machine"},
		{"no interpreter", file("script", "#!/no/such/interpreter\n", 0o700), "", 127, "interpreter"},
		{"no such cwd", "true", "/no/such/dir", 126, "cwd /no/such/dir"},
		{"cwd is a file", "true", file("afile", "", 0o600), 126, "is not a directory"},
	}
	for _, tt := range tests {
		a := x.start(func(s *daemon.Start) { s.Cwd = tt.cwd }, tt.argv)
		f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == a })
		if f.Refused || f.Code != tt.code || !strings.Contains(f.Why, tt.why) {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
	a := x.start(func(s *daemon.Start) { s.Cwd = dir }, "sh", "-c", "pwd")
	x.exit(a)
	if got := x.output(a); got != dir+"\n" {
		t.Errorf("ran in %q", got)
	}
}

func TestAJobWithoutALogDoesNotStart(t *testing.T) {
	x := newRig(t, false)
	a := x.start(func(s *daemon.Start) { s.Job = "no/such/job" }, "true")
	if f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == a }); f.Refused || f.Why == "" {
		t.Errorf("%+v", f)
	}
	x.exit(x.start(nil, "true"))
}

func TestAnAttemptIsStartedOnce(t *testing.T) {
	x := newRig(t, false)
	file := filepath.Join(t.TempDir(), "count")
	var first daemon.Start
	a := x.start(func(s *daemon.Start) { first = *s }, "sh", "-c", "echo x >> "+file+"; sleep 0.2")
	for range 5 {
		if err := x.r.Start(context.Background(), first); err != nil {
			t.Fatal(err)
		}
	}
	x.exit(a)
	if err := x.r.Start(context.Background(), first); err != nil { // after its end, too
		t.Fatal(err)
	}
	want(x, func(l daemon.Listed) bool {
		return len(l.Exits) == 1 && l.Exits[0].Attempt == a && len(l.Running) == 0
	})
	if text, _ := os.ReadFile(file); string(text) != "x\n" {
		t.Errorf("it ran %d times", len(text)/2)
	}
}

// tree is a job that makes trouble: children in other groups and sessions, some
// deaf to TERM, some orphaned.
const tree = `
	dir=$1
	sh -c 'trap "" TERM; echo $$ > '$dir'/deaf; sleep 1000' &
	setsid sh -c 'echo $$ > '$dir'/session; sleep 1000' &
	(setsid sh -c 'trap "" TERM; echo $$ > '$dir'/orphan; sleep 1000' &) &
	(setsid env -i sh -c 'echo $$ > '$dir'/bare; /bin/sleep 1000' &) &
	echo $$ > $dir/leader
	wait
`

func startTree(x *rig) (attempt string, pids map[string]int) {
	x.t.Helper()
	dir := x.t.TempDir()
	a := x.start(func(s *daemon.Start) { s.Grace = 300 * time.Millisecond }, "sh", "-c", tree, "tree", dir)
	return a, x.treePids(dir)
}

func (x *rig) treePids(dir string) map[string]int {
	x.t.Helper()
	pids := map[string]int{}
	for _, name := range []string{"leader", "deaf", "session", "orphan", "bare"} {
		pids[name] = x.pid(filepath.Join(dir, name))
	}
	return pids
}

func wantDead(t *testing.T, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("%s (pid %d) lives on", name, pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestACancelEndsTheWholeTree(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		if err := x.r.Signal(context.Background(), daemon.Signal{Attempt: a, Cause: daemon.CauseCancel, Grace: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		if end := x.exit(a); end.Cause != daemon.CauseCancel {
			t.Errorf("end %+v", end)
		}
		wantDead(t, pids)
	})
}

func TestNothingOutlivesTheLeader(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		dir := t.TempDir()
		a := x.start(nil, "sh", "-c", tree[:strings.LastIndex(tree, "wait")]+
			"until [ -s $dir/deaf -a -s $dir/session -a -s $dir/orphan -a -s $dir/bare ]; do sleep 0.01; done", "tree", dir)
		if end := x.exit(a); end.Code != 0 || end.Cause != daemon.CauseExit {
			t.Errorf("end %+v", end)
		}
		pids := map[string]int{}
		for _, name := range []string{"deaf", "session", "orphan", "bare"} {
			pids[name] = x.pid(filepath.Join(dir, name))
		}
		wantDead(t, pids)
	})
}

// A job must not be able to take another one's processes along.
func TestAnEndSparesTheOtherJobs(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, mine := startTree(x)
		_, others := startTree(x)
		delete(others, "bare") // without a cgroup nobody can tell whose it is; it must only end some day
		if err := x.r.Signal(context.Background(), daemon.Signal{Attempt: a, Cause: daemon.CauseCancel}); err != nil {
			t.Fatal(err)
		}
		x.exit(a)
		if x.noCgroup {
			delete(mine, "bare")
		}
		wantDead(t, mine)
		for name, pid := range others {
			if !alive(pid) {
				t.Errorf("%s of the other job is dead", name)
			}
		}
	})
}

func TestATimeoutEndsTheJob(t *testing.T) {
	x := newRig(t, false)
	a := x.start(func(s *daemon.Start) { s.Timeout, s.Grace = 50*time.Millisecond, 50*time.Millisecond },
		"sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
	if end := x.exit(a); end.Cause != daemon.CauseTimeout || end.Signal != "SIGKILL" {
		t.Errorf("end %+v", end)
	}
}

func TestTheLeashEndsEverythingByItsEnd(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		leash := x.leash(2 * time.Second)
		if err := x.r.Extend(context.Background(), daemon.Extend{Epoch: 1, Seq: 2, Leash: leash}); err != nil {
			t.Fatal(err)
		}
		want(x, func(e daemon.Extended) bool { return e.Seq == 2 })
		if end := x.exit(a); end.Cause != daemon.CauseLeash {
			t.Errorf("end %+v", end)
		}
		if left := leash.DeadBy.Sub(x.clock.Boot()); left < 0 {
			t.Errorf("it was over %s after the leash", -left)
		}
		wantDead(t, pids)
		b := x.start(nil, "true")
		if f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == b }); !f.Refused {
			t.Errorf("a start behind the leash: %+v", f)
		}
		x.hello(time.Hour) // a new leash lets starts through again
		c := x.start(nil, "true")
		x.exit(c)
	})
}

func TestAStartThatComesTooLateIsRefused(t *testing.T) {
	x := newRig(t, false)
	late := x.start(func(s *daemon.Start) { s.NotAfter = x.clock.Boot() }, "true")
	old := x.start(func(s *daemon.Start) { s.Epoch = 0 }, "true")
	for _, a := range []string{late, old} {
		if f := want(x, func(f daemon.StartFailed) bool { return f.Attempt == a }); !f.Refused {
			t.Errorf("%+v", f)
		}
	}
}

// A second daemon's hello makes the first one's connection void: what it still
// writes there is not read, or not heeded (K2).
func TestTheNewestHelloIsTheSession(t *testing.T) {
	x := newRig(t, false)
	a := x.start(nil, "sleep", "1000")
	x.started(a)
	conn, err := linux.DialUnix(context.Background(), filepath.Join(x.dir, "keeper.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := x.leash(time.Hour)
	fmt.Fprintf(conn, `{"hello":{"epoch":2,"incarnation":"other","seq":9,"leash":{"term_at":%d,"kill_at":%d,"dead_by":%d}}}`+"\n",
		l.TermAt, l.KillAt, l.DeadBy)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(answer, a) || !strings.Contains(answer, `"Seq":9`) {
		t.Fatalf("the new session heard %q, %v", answer, err)
	}
	// The old session is closed, and says so to its daemon only when the keeper
	// is gone: this one lives, so its end is what kills it.
	want(x, func(l daemon.KeeperLost) bool { return l.Instance == x.instance })
}

func TestASignalForAnUnknownAttemptMakesItsStartVoid(t *testing.T) {
	x := newRig(t, false)
	attempts++
	a := fmt.Sprintf("att_%05d", attempts)
	if err := x.r.Signal(context.Background(), daemon.Signal{Attempt: a, Cause: daemon.CauseCancel}); err != nil {
		t.Fatal(err)
	}
	want(x, func(f daemon.StartFailed) bool { return f.Attempt == a && f.Refused })
	attempts--
	x.start(nil, "true") // the same attempt
	want(x, func(f daemon.StartFailed) bool { return f.Attempt == a && f.Refused })
}

func TestTheEndOfTheSocketEndsEverything(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		a, pids := startTree(x)
		x.r.Close(10 * time.Second)
		want(x, func(l daemon.KeeperLost) bool { return l.Instance == x.instance })
		wantDead(t, pids)
		x.connect() // the next daemon hears how it ended
		l := x.list()
		if len(l.Exits) != 1 || l.Exits[0].Attempt != a || l.Exits[0].Cause != daemon.CauseLeash {
			t.Errorf("listed %+v", l)
		}
	})
}

func (x *rig) list() daemon.Listed {
	x.t.Helper()
	if err := x.r.List(context.Background()); err != nil {
		x.t.Fatal(err)
	}
	return want(x, func(l daemon.Listed) bool { return l.Seq == 0 })
}

func TestAKilledKeeperTakesItsJobsAlong(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		_, pids := startTree(x)
		if err := x.keeper.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		want(x, func(l daemon.KeeperLost) bool { return l.Instance == x.instance })
		if !x.noCgroup {
			x.connect() // the groups of the dead keeper are emptied by the next one
		}
		wantDead(t, pids)
	})
}

func TestEndsAreKeptUntilTheyAreForgotten(t *testing.T) {
	x := newRig(t, false)
	a, b := x.start(nil, "true"), x.start(nil, "false")
	x.exit(a)
	x.exit(b)
	if err := x.r.Forget(context.Background(), []string{a}); err != nil {
		t.Fatal(err)
	}
	if l := x.list(); len(l.Exits) != 1 || l.Exits[0].Attempt != b {
		t.Errorf("listed %+v", l)
	}
	x.r.Close(10 * time.Second)
	want(x, func(daemon.KeeperLost) bool { return true })
	x.connect()
	if l := x.list(); len(l.Exits) != 1 || l.Exits[0].Attempt != b || l.Exits[0].Code != 1 {
		t.Errorf("after a restart: listed %+v", l)
	}
}

func TestManyShortJobsLeaveNothingBehind(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, x *rig) {
		count := func() (fds, kids int) {
			dir, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", x.keeper.Process.Pid))
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", x.keeper.Process.Pid))
			return len(dir), len(strings.Fields(string(text)))
		}
		x.exit(x.start(nil, "true"))
		before, _ := count()
		const n = 150
		var all []string
		for range n {
			all = append(all, x.start(nil, "sh", "-c", "echo $EXOCOMP_ATTEMPT; (sleep 100 &)"))
		}
		for _, a := range all {
			x.exit(a)
			if got := x.output(a); got != a+"\n" {
				t.Errorf("%s wrote %q", a, got)
			}
		}
		x.eventually("no child is left", func() bool { _, kids := count(); return kids == 0 })
		x.eventually("descriptors are as before", func() bool { after, _ := count(); return after <= before })
		if err := x.r.Forget(context.Background(), all); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAHugeOutputDoesNotGrowTheKeeper(t *testing.T) {
	x := newRig(t, false)
	rss := func() int {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.keeper.Process.Pid))
		_, rest, _ := strings.Cut(string(text), "VmRSS:")
		kb := 0
		fmt.Sscan(rest, &kb)
		return kb
	}
	x.exit(x.start(nil, "true"))
	before := rss()
	a := x.start(nil, "sh", "-c", "head -c 100000000 /dev/zero")
	if end := x.exit(a); end.LogBytes != 100_000_000 || end.LogCutBytes == 0 {
		t.Errorf("end %+v", end)
	}
	if grown := rss() - before; grown > 20_000 {
		t.Errorf("the keeper grew by %d kB", grown)
	}
}
