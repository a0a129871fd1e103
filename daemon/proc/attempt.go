package proc

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// attempt is one try at running a job. Its fields are the keeper's, under mu,
// but for those that only its own goroutine uses.
type attempt struct {
	start  daemon.Start
	pid    int // of the leader; 0 before the fork
	began  daemon.Millis
	over   bool // dead, and its end on disk; or never started
	failed *daemon.StartFailed

	cause    daemon.Cause // who ends it; "" is nobody
	killAt   daemon.Boottime
	timeout  daemon.Boottime // 0: none
	termSent bool

	group   *cgroup
	log     LogWriter
	readers sync.WaitGroup
	pipes   []*os.File
}

// start starts an attempt unless it is known already (K3) or comes too late
// (K2).
func (k *Keeper) start(m daemon.Start) {
	k.mu.Lock()
	known := k.attempts[m.Attempt]
	fresh := &attempt{start: m}
	if known == nil {
		k.attempts[m.Attempt] = fresh
	}
	k.mu.Unlock()
	if known != nil {
		k.again(known)
		return
	}
	go k.launch(fresh)
}

// again says what became of an attempt that was asked for before.
func (k *Keeper) again(a *attempt) {
	k.mu.Lock()
	failed, alive, at := a.failed, !a.over && a.pid != 0, a.began
	k.mu.Unlock()
	switch {
	case failed != nil:
		k.report(report{StartFailed: failed})
	case alive:
		k.report(report{Started: &daemon.Started{Instance: k.instance, Attempt: a.start.Attempt, AtMs: at}})
	case k.records.has(a.start.Attempt):
		k.report(k.list(0))
	}
}

// tooLate says why an attempt may not be forked now, or "". The caller holds mu.
func (k *Keeper) tooLate(m daemon.Start) string {
	boot := k.opts.Clock.Boot()
	switch {
	case m.Epoch != k.epoch:
		return fmt.Sprintf("its epoch %d is over: the keeper obeys epoch %d", m.Epoch, k.epoch)
	case boot >= k.leash.TermAt, boot >= m.NotAfter:
		return "the daemon's trust in its lease was about to end"
	case k.session == nil:
		return "its daemon is gone"
	case k.barred:
		return "everything was told to end"
	}
	return ""
}

// launch makes everything ready, forks, and reports.
func (k *Keeper) launch(a *attempt) {
	argv0, attr, err := k.prepare(a)
	if err == nil {
		err = k.fork(a, argv0, attr)
	}
	for _, fd := range attr.Files[min(1, len(attr.Files)):] {
		unix.Close(int(fd)) // the child has its own
	}
	if attr.Sys != nil && attr.Sys.UseCgroupFD {
		unix.Close(attr.Sys.CgroupFD)
	}
	if err != nil {
		k.startFailed(a, err)
		return
	}
	k.report(report{Started: &daemon.Started{Instance: k.instance, Attempt: a.start.Attempt, AtMs: a.began}})
}

// startError is a failure of the command itself, with the code that a shell
// would give.
type startError struct {
	code int64
	msg  string
}

func (e *startError) Error() string { return e.msg }

// refusal is a start that came too late.
type refusal struct{ why string }

func (e *refusal) Error() string { return e.why }

// prepare makes the run directory, the log and the pipes, and finds the program.
func (k *Keeper) prepare(a *attempt) (argv0 string, attr syscall.ProcAttr, err error) {
	m := a.start
	dir := k.runDir(m.Attempt)
	work := filepath.Join(dir, "work")
	for _, d := range []string{dir, work} { // never the state dir itself, should it have been removed
		if err := os.Mkdir(d, 0o700); err != nil {
			return "", attr, fmt.Errorf("make the run directory: %w", err)
		}
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(m.Token+"\n"), 0o600); err != nil {
		return "", attr, fmt.Errorf("write the job's token: %w", err)
	}
	attr.Dir = work
	if m.Cwd != "" {
		attr.Dir = m.Cwd
	}
	env := baseEnv()
	maps.Copy(env, m.Env)
	env["EXOCOMP_TOKEN_FILE"], env[MarkerName], env["PWD"] = token, k.opts.Marker, attr.Dir
	for _, name := range slices.Sorted(maps.Keys(env)) {
		attr.Env = append(attr.Env, name+"="+env[name])
	}
	if info, err := os.Stat(attr.Dir); err != nil || !info.IsDir() {
		return "", attr, &startError{codeNotExecutable, fmt.Sprintf("cwd %s is not a directory that can be entered", attr.Dir)}
	}
	if argv0, err = lookPath(m.Argv[0], attr.Dir, env["PATH"]); err != nil {
		return "", attr, err
	}
	log, err := k.opts.Logs(m.Job)
	if err != nil {
		return "", attr, err
	}
	a.log = log // only now: with an error it may be a nil that does not look like one
	attr.Sys = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := k.enclose(a, attr.Sys); err != nil {
		return "", attr, err
	}
	attr.Files = []uintptr{k.null.Fd()}
	for range 2 {
		r, w, err := pipe()
		if err != nil {
			return "", attr, err
		}
		a.pipes = append(a.pipes, r)
		attr.Files = append(attr.Files, uintptr(w))
	}
	return argv0, attr, nil
}

// enclose has an attempt forked into a group of its own, where there are groups.
// It never runs outside of them then: the daemon was told that nothing does.
func (k *Keeper) enclose(a *attempt, sys *syscall.SysProcAttr) error {
	if k.groups.base == "" {
		return nil
	}
	g, err := k.groups.make(a.start.Attempt)
	if err != nil {
		return fmt.Errorf("make the cgroup: %w", err)
	}
	a.group = g
	fd, err := g.open()
	if err != nil {
		return fmt.Errorf("open the cgroup: %w", err)
	}
	sys.UseCgroupFD, sys.CgroupFD = true, fd
	return nil
}

// pipe returns the reading end of a pipe as a file, and the writing end bare.
func pipe() (*os.File, int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, 0, fmt.Errorf("make a pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), p[1], nil
}

// fork forks and registers the leader. The leash is looked at last of all.
func (k *Keeper) fork(a *attempt, argv0 string, attr syscall.ProcAttr) error {
	result := make(chan error, 1)
	k.forks <- func() {
		k.mu.Lock()
		why := k.tooLate(a.start)
		if why == "" && a.cause != "" {
			why = "it was cancelled before it started"
		}
		if why != "" {
			k.mu.Unlock()
			result <- &refusal{why}
			return
		}
		k.forking++
		k.children.Signal()
		k.mu.Unlock()
		pid, err := syscall.ForkExec(argv0, a.start.Argv, &attr)
		k.forked(a, pid, err)
		result <- explainFork(a.start.Argv[0], err)
	}
	return <-result
}

func (k *Keeper) forked(a *attempt, pid int, err error) {
	k.mu.Lock()
	k.forking--
	status, ended := k.early[pid]
	if k.forking == 0 {
		k.early = map[int]syscall.WaitStatus{}
	} else {
		delete(k.early, pid)
	}
	if err == nil {
		a.pid, a.began = pid, k.now()
		if a.start.Timeout > 0 {
			a.timeout = k.opts.Clock.Boot().Add(a.start.Timeout)
		}
		if !ended {
			k.live[pid] = a
		}
		for i, r := range a.pipes {
			a.readers.Add(1)
			go k.read(a, r, []daemon.Stream{daemon.Stdout, daemon.Stderr}[i])
		}
	}
	k.mu.Unlock()
	if err == nil && ended {
		go k.bury(a, status)
	}
	k.poke()
}

// read copies one pipe into the log, a read at a time: there is no line, so
// there is no line too long.
func (k *Keeper) read(a *attempt, r *os.File, stream daemon.Stream) {
	defer a.readers.Done()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			a.log.Write(stream, k.now(), buf[:n])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				k.trouble("read the output of %s: %v", a.start.Job, err)
			}
			return
		}
	}
}

// bury ends an attempt whose leader is dead: its tree dies, its pipes run dry,
// its end goes to disk, and only then anybody hears of it.
func (k *Keeper) bury(a *attempt, status syscall.WaitStatus) {
	k.mu.Lock()
	cause := a.cause
	k.mu.Unlock()
	if cause == "" {
		cause = daemon.CauseExit
	}
	at := k.now()
	k.endTree(a)
	a.dry(2 * time.Second)
	totals, err := a.log.Close()
	if err != nil {
		k.trouble("the log of %s has a hole: %v", a.start.Job, err)
	}
	x := daemon.Exit{Attempt: a.start.Attempt, Cause: cause, AtMs: at,
		LogBytes: totals.Bytes, LogCutAt: totals.CutAt, LogCutBytes: totals.CutBytes}
	if status.Signaled() {
		x.Signal = unix.SignalName(status.Signal())
	} else {
		x.Code = int64(status.ExitStatus())
	}
	x = k.records.add(x)
	if !x.Durable {
		k.trouble("the end of %s could not be written to disk", a.start.Job)
	}
	k.over(a)
	k.report(report{Exited: &daemon.Exited{Instance: k.instance, Exit: x}})
}

// dry waits until the pipes have no writer left, at most d: a descriptor may
// have been passed to a process that is none of ours.
func (a *attempt) dry(d time.Duration) {
	for _, r := range a.pipes {
		if err := r.SetReadDeadline(time.Now().Add(d)); err != nil {
			r.Close()
		}
	}
	a.readers.Wait()
	for _, r := range a.pipes {
		r.Close()
	}
}

// startFailed ends an attempt that never had a process.
func (k *Keeper) startFailed(a *attempt, err error) {
	f := &daemon.StartFailed{Instance: k.instance, Attempt: a.start.Attempt, Why: err.Error(), Code: codeNotExecutable}
	if e, ok := errors.AsType[*startError](err); ok {
		f.Code = e.code
	}
	_, f.Refused = errors.AsType[*refusal](err)
	for _, r := range a.pipes {
		r.Close()
	}
	if a.log != nil {
		_, _ = a.log.Close() // nothing was written
	}
	k.mu.Lock()
	a.failed = f
	k.mu.Unlock()
	k.over(a)
	k.report(report{StartFailed: f})
}

// over forgets all of an attempt but that it was.
func (k *Keeper) over(a *attempt) {
	if a.group != nil {
		a.group.remove()
	}
	if err := os.RemoveAll(k.runDir(a.start.Attempt)); err != nil {
		k.trouble("remove the run directory of %s: %v", a.start.Job, err)
	}
	k.mu.Lock()
	a.over = true
	a.start.Env, a.start.Argv, a.start.Token = nil, nil, ""
	a.pipes, a.log, a.group = nil, nil, nil
	k.mu.Unlock()
	k.tellKillers()
	k.alone(0)
}

func (k *Keeper) runDir(attempt string) string { return filepath.Join(k.path("runs"), attempt) }

// The exit codes of a command that cannot be started, as shells have them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// lookPath finds a program as a shell does, in the job's own PATH.
func lookPath(name, dir, path string) (string, error) {
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, executable(file, name)
	}
	for _, p := range filepath.SplitList(path) {
		if p == "" {
			p = dir
		}
		if file := filepath.Join(p, name); executable(file, name) == nil {
			return file, nil
		}
	}
	return "", &startError{codeNotFound, fmt.Sprintf(
		"command not found: no executable %q in PATH=%s (name the whole path, or set PATH with --env)", name, path)}
}

func executable(file, name string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &startError{codeNotFound, fmt.Sprintf("command not found: %s is not there (check the path on the daemon's host)", name)}
	case err != nil:
		return &startError{codeNotExecutable, fmt.Sprintf("command cannot be run: %v", err)}
	case info.IsDir():
		return &startError{codeNotExecutable, fmt.Sprintf("command cannot be run: %s is a directory", name)}
	case unix.Access(file, unix.X_OK) != nil:
		return &startError{codeNotExecutable, fmt.Sprintf("command cannot be run: %s is not executable (chmod +x it, or name its interpreter)", name)}
	}
	return nil
}

func explainFork(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOEXEC):
		return &startError{codeNotExecutable, fmt.Sprintf("command cannot be run: %s is no program for this machine (a script needs a #! line)", name)}
	case errors.Is(err, syscall.ENOENT):
		return &startError{codeNotFound, fmt.Sprintf("command not found: %s, or the interpreter in its first line", name)}
	}
	return &startError{codeNotExecutable, fmt.Sprintf("command cannot be run: %s: %v", name, err)}
}
