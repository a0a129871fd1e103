package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"exocomp": func() {
			if path := os.Getenv("EXOCOMP_TEST_MOUNTS"); path != "" {
				mountTable = path
			}
			os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs testdata/script/*.txtar: the real binary, real processes.
func TestScripts(t *testing.T) { testscript.Run(t, scripts("testdata/script")) }

func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":      start,
			"ready":      ready,
			"signal":     sendSignal,
			"exits":      exits,
			"code":       code,
			"eventually": eventually,
			"alive":      alive,
			"setenvfile": setEnvFile,
			"elapsed":    elapsed,
			"as-nobody":  asNobody,
			"dump":       dump,
			"newschema":  newSchema,
			"skewed":     skewed,
			"http":       rawHTTP,
			"journal":    journal,
			"tlsfront":   tlsFront,
			"shape":      shape,
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("unknown condition %s", cond)
			}
			return os.Getuid() == 0, nil
		},
	}
}

// background are the daemons that a script started, by name.
type background struct {
	mu   sync.Mutex
	cmds map[string]*daemonCmd
}

type daemonCmd struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

type backgroundKey struct{}

func setup(e *testscript.Env) error {
	e.Vars = append(e.Vars, "NO_COLOR=1", "TZ=UTC", "LANG=C.UTF-8", "HOME="+e.WorkDir, "XDG_STATE_HOME=", "GORACE=atexit_sleep_ms=0", "EXOCOMP_HOST=alpha",
		"EXOCOMP_DATA_DIR="+filepath.Join(e.WorkDir, "data"))
	b := &background{cmds: map[string]*daemonCmd{}}
	e.Values[backgroundKey{}] = b
	e.Defer(b.killAll)
	return nil
}

func (b *background) killAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.cmds {
		_ = d.cmd.Process.Signal(syscall.SIGCONT)
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

func daemonNamed(ts *testscript.TestScript, name string) *daemonCmd {
	b := ts.Value(backgroundKey{}).(*background)
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.cmds[name]
	if d == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return d
}

// start NAME exocomp ARGS... runs a command beside the script. What it prints
// goes to NAME.out and NAME.err.
func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start name command [args...]")
	}
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	if p := filepath.Join(firstOf(ts.Getenv("PATH")), args[1]); err != nil || args[1] == "exocomp" {
		path = p
	}
	d := &daemonCmd{cmd: exec.Command(path, args[2:]...), done: make(chan struct{})}
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = ts.MkAbs("."), out, errs
	d.cmd.Env = scriptEnv(ts)
	ts.Check(d.cmd.Start())
	go func() {
		d.err = d.cmd.Wait()
		out.Close()
		errs.Close()
		close(d.done)
	}()
	b := ts.Value(backgroundKey{}).(*background)
	b.mu.Lock()
	b.cmds[args[0]] = d
	b.mu.Unlock()
}

func firstOf(path string) string { return strings.SplitN(path, string(filepath.ListSeparator), 2)[0] }

// scriptEnv is the script's environment for a process that testscript does not
// start itself.
func scriptEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TZ", "LANG", "NO_COLOR", "TMPDIR", "WORK", "EXOCOMP_HOST", "EXOCOMP_DATA_DIR",
		"EXOCOMP_STATE_DIR", "EXOCOMP_NO_CGROUP", "EXOCOMP_CONFIG", "EXOCOMP_LEASE_TTL", "EXOCOMP_LEASE_RENEW", "EXOCOMP_FORCE_LEASE", "EXOCOMP_TEST_MOUNTS", "NOTIFY_SOCKET", "GORACE", "EXOCOMP_TEST_CLOCK", "GOCOVERDIR", "SECRET_OF_THE_DAEMON"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// within is how long anything may take before a script gives up.
const within = 60 * time.Second

func wait(ts *testscript.TestScript, what string, cond func() bool) {
	for deadline := time.Now().Add(within); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("waited %s in vain: %s", within, what)
		}
	}
}

// ready STATE_DIR waits until the daemon of that state dir is the active one.
// With ! it waits until a daemon answers there and is not active.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] ready state-dir")
	}
	path := filepath.Join(ts.MkAbs(args[0]), apiSocket)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return linux.DialUnix(ctx, path) }}}
	want := http.StatusOK
	if neg {
		want = http.StatusServiceUnavailable
	}
	wait(ts, fmt.Sprintf("readyz of %s answers %d", args[0], want), func() bool {
		resp, err := client.Get("http://exocomp/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == want
	})
}

// signal SIGNAL NAME sends a signal to what was started as NAME, and signal
// SIGNAL keeper:STATE_DIR to the keeper of that state dir.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal SIGNAL name|keeper:state-dir")
	}
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("no signal %s", args[0])
	}
	pid := 0
	if dir, ok := strings.CutPrefix(args[1], "keeper:"); ok {
		h, held, err := linux.LockHolder(filepath.Join(ts.MkAbs(dir), keeperLock))
		if err != nil || !held {
			ts.Fatalf("no keeper in %s: %v", dir, err)
		}
		pid = h.PID
	} else {
		pid = daemonNamed(ts, args[1]).cmd.Process.Pid
	}
	ts.Check(syscall.Kill(pid, sig))
}

// exits NAME CODE waits until what was started as NAME has ended with CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: exits name code")
	}
	d := daemonNamed(ts, args[0])
	select {
	case <-d.done:
	case <-time.After(within):
		ts.Fatalf("%s did not end within %s", args[0], within)
	}
	text, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
	if got := strconv.Itoa(d.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s ended with %s, want %s (%v); it said:\n%s", args[0], got, args[1], d.err, text)
	}
}

// code CODE exocomp ARGS... runs a command that must end with CODE.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("run %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("ended with %d, want %d", got, want)
	}
}

// eventually PATTERN exocomp ARGS... runs a command until its stdout matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually pattern command [args...]")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	wait(ts, "the output of "+strings.Join(args[1:], " ")+" matches "+args[0], func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && re.MatchString(ts.ReadFile("stdout"))
	})
}

// alive FILE says whether the process whose pid FILE holds lives. With ! it
// waits until it does not.
func alive(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] alive pid-file")
	}
	pid := strings.TrimSpace(ts.ReadFile(args[0]))
	lives := func() bool {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		return !strings.HasPrefix(rest, "Z")
	}
	if !neg {
		if !lives() {
			ts.Fatalf("process %s does not live", pid)
		}
		return
	}
	wait(ts, "the end of process "+pid, func() bool { return !lives() })
}

// setenvfile NAME FILE sets a variable to what a file holds, without the
// newline at its end.
func setEnvFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenvfile name file")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// elapsed marks a moment; elapsed MIN MAX checks how long ago the last mark was.
func elapsed(ts *testscript.TestScript, neg bool, args []string) {
	file := ts.MkAbs(".elapsed")
	if len(args) == 0 {
		ts.Check(os.WriteFile(file, []byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0o600))
		return
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: elapsed [min max]")
	}
	then, err := strconv.ParseInt(ts.ReadFile(file), 10, 64)
	ts.Check(err)
	lo, err := time.ParseDuration(args[0])
	ts.Check(err)
	hi, err := time.ParseDuration(args[1])
	ts.Check(err)
	if d := time.Since(time.Unix(0, then)); d < lo || d > hi {
		ts.Fatalf("%s have passed, want %s to %s", d, lo, hi)
	}
}

// as-nobody CODE exocomp ARGS... runs a command without root's right to read
// and write everything, and wants CODE.
func asNobody(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: as-nobody code command [args...]")
	}
	if os.Getuid() == 0 {
		drop := []string{args[0], "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"}
		args = append(drop, args[1:]...)
	}
	code(ts, false, args)
}

// dump DATA_DIR EPOCH prints every row that was written under an epoch, and the
// lease, to stdout.
func dump(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: dump data-dir epoch")
	}
	epoch, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(ts.MkAbs(args[0]), storeFile), ReadOnly: true})
	ts.Check(err)
	defer s.Close()
	ts.Check(s.View(ctx, func(r daemon.Reader) error {
		row, _, err := daemon.Leases.Get(ctx, r, 1)
		if err != nil {
			return err
		}
		fmt.Fprintf(ts.Stdout(), "holder %s, epoch %d\n", row.Host, row.Epoch)
		jobs, err := daemon.Jobs.Scan(ctx, r, daemon.Query{Limit: 1000})
		for _, j := range jobs {
			if j.Epoch == epoch {
				fmt.Fprintf(ts.Stdout(), "%+v\n", j)
			}
		}
		if err != nil {
			return err
		}
		events, err := daemon.Happenings.Scan(ctx, r, daemon.Query{Limit: 1000})
		for _, e := range events {
			if e.Epoch == epoch {
				fmt.Fprintf(ts.Stdout(), "%+v\n", e)
			}
		}
		return err
	}))
}

// newschema DATA_DIR VERSION makes a store say that it has another schema.
func newSchema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: newschema data-dir version")
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(ts.MkAbs(args[0]), storeFile))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec("UPDATE meta SET value = $1 WHERE name = 'schema_version'", args[1])
	ts.Check(err)
}

// skewed OFFSET builds an exocomp whose wall clock is off by what the file
// $WORK/clock says, puts it first in PATH, and writes OFFSET there.
func skewed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: skewed offset")
	}
	clock := ts.MkAbs("clock")
	ts.Check(os.WriteFile(clock, []byte(args[0]), 0o600))
	bin := ts.MkAbs("skewed-bin")
	if _, err := os.Stat(bin); err == nil {
		return
	}
	build := exec.Command("go", "build", "-tags", "testclock", "-o", filepath.Join(bin, "exocomp"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		ts.Fatalf("build: %v\n%s", err, out)
	}
	ts.Setenv("PATH", bin+string(filepath.ListSeparator)+ts.Getenv("PATH"))
	ts.Setenv("EXOCOMP_TEST_CLOCK", clock)
}

// http STATE_DIR METHOD PATH BODY_FILE prints status and answer of a request
// over the daemon's socket. BODY_FILE may be huge:N for N bytes of JSON.
func rawHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: http state-dir method path body-file")
	}
	body := ""
	if n, ok := strings.CutPrefix(args[3], "huge:"); ok {
		size, err := strconv.Atoi(n)
		ts.Check(err)
		body = `{"spec":{"argv":["` + strings.Repeat("x", size) + `"]}}`
	} else {
		body = ts.ReadFile(args[3])
	}
	path := filepath.Join(ts.MkAbs(args[0]), apiSocket)
	client := &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return linux.DialUnix(ctx, path) }}}
	req, err := http.NewRequest(args[1], "http://exocomp"+args[2], strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d\n%s\n", resp.StatusCode, text)
}
