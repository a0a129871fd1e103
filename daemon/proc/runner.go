package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// RunnerOptions are what the daemon's side of the socket needs.
type RunnerOptions struct {
	// Spawn starts a keeper and returns its process.
	Spawn func() (*exec.Cmd, error)
	// Dial connects to the keeper's socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// Holder says whether a keeper holds the lock, and its pid by its own word.
	Holder func() (pid int, held bool, err error)
	// Tell files an event with the loop.
	Tell func(daemon.Event)
	Log  *slog.Logger
}

// Runner is the daemon.Runner port. Requests are handed to a goroutine that
// writes them; it never waits for an answer.
type Runner struct {
	opts RunnerOptions

	mu      sync.Mutex
	out     chan request // of the open session; nil without one
	hailing bool
	next    *daemon.Hello // asked for while a hello was under way
	conn    net.Conn
	kid     *kid
}

// kid is the keeper as our child process.
type kid struct {
	*exec.Cmd
	gone chan struct{} // closed when it has been waited for
	err  error
}

// wait waits at most d for the keeper to go by itself.
func (k *kid) wait(d time.Duration) bool {
	select {
	case <-k.gone:
		return true
	case <-time.After(d):
		return false
	}
}

var _ daemon.Runner = (*Runner)(nil)

// NewRunner returns a Runner without a keeper: Hello finds or starts one.
func NewRunner(o RunnerOptions) *Runner { return &Runner{opts: o} }

// errNoKeeper says that a request was not sent.
var errNoKeeper = errors.New("no keeper is connected")

func (r *Runner) send(q request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		return errNoKeeper
	}
	select {
	case r.out <- q:
		return nil
	default:
		return errors.New("the keeper does not read: too many requests wait")
	}
}

// Start implements daemon.Runner.
func (r *Runner) Start(_ context.Context, s daemon.Start) error { return r.send(request{Start: &s}) }

// Signal implements daemon.Runner.
func (r *Runner) Signal(_ context.Context, s daemon.Signal) error {
	return r.send(request{Signal: &s})
}

// Extend implements daemon.Runner.
func (r *Runner) Extend(_ context.Context, x daemon.Extend) error {
	return r.send(request{Extend: &x})
}

// List implements daemon.Runner.
func (r *Runner) List(context.Context) error { return r.send(request{List: true}) }

// Forget implements daemon.Runner.
func (r *Runner) Forget(_ context.Context, attempts []string) error {
	return r.send(request{Forget: attempts})
}

// KillAll implements daemon.Runner.
func (r *Runner) KillAll(context.Context) error { return r.send(request{KillAll: true}) }

// Hello implements daemon.Runner.
func (r *Runner) Hello(_ context.Context, h daemon.Hello) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		select {
		case r.out <- request{Hello: &h}:
			return nil
		default:
			return errors.New("the keeper does not read: too many requests wait")
		}
	}
	r.next = &h
	if !r.hailing {
		r.hailing = true
		go r.hail()
	}
	return nil
}

// hailWithin bounds the search for a keeper.
const hailWithin = 30 * time.Second

// hail finds a keeper and opens a session.
func (r *Runner) hail() {
	ctx, cancel := context.WithTimeout(context.Background(), hailWithin)
	defer cancel()
	conn, err := r.reach(ctx)
	r.mu.Lock()
	r.hailing = false
	if err != nil {
		r.mu.Unlock()
		r.opts.Tell(daemon.KeeperLost{Why: err.Error()})
		return
	}
	hello, out := r.next, make(chan request, 4096)
	out <- request{Hello: hello}
	r.out, r.next = out, nil
	r.mu.Unlock()
	go r.write(conn, out)
	r.read(conn, out)
}

// settled waits until the funeral of the last keeper is over: it kills every
// child of this process, and must not meet the next one.
func (r *Runner) settled(ctx context.Context) error {
	for {
		r.mu.Lock()
		busy := r.conn != nil
		r.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the last keeper's processes do not die")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// reach gets rid of an older keeper, starts ours and connects to it.
func (r *Runner) reach(ctx context.Context) (net.Conn, error) {
	if err := r.settled(ctx); err != nil {
		return nil, err
	}
	if err := r.outlive(ctx); err != nil {
		return nil, err
	}
	cmd, err := r.opts.Spawn()
	if err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	k := &kid{Cmd: cmd, gone: make(chan struct{})}
	go func() { k.err = cmd.Wait(); close(k.gone) }()
	for {
		conn, err := r.opts.Dial(ctx)
		if err == nil {
			r.mu.Lock()
			r.kid, r.conn = k, conn
			r.mu.Unlock()
			return conn, nil
		}
		select {
		case <-k.gone:
			return nil, fmt.Errorf("the keeper ended as it started: %v", k.err)
		case <-ctx.Done():
			k.Process.Kill()
			return nil, fmt.Errorf("the keeper does not answer: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// outlive waits for the keeper of a daemon that is gone to kill its jobs and
// go, and kills it when it does not: its lock must be free before anything of
// its host is judged.
func (r *Runner) outlive(ctx context.Context) error {
	patience := time.Now().Add(5 * time.Second)
	for {
		pid, held, err := r.opts.Holder()
		if err != nil {
			return fmt.Errorf("look for an older keeper: %w", err)
		}
		if !held {
			return nil
		}
		if time.Now().After(patience) && isKeeper(pid) {
			r.opts.Log.Warn("an older keeper does not go: killing it", "pid", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone this moment
			patience = time.Now().Add(5 * time.Second)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("an older keeper (pid %d) holds its lock and does not go", pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// isKeeper makes sure that pid, which a file named, is a keeper.
func isKeeper(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && slices.Contains(strings.Split(string(text), "\x00"), "keeper")
}

func (r *Runner) write(conn net.Conn, out <-chan request) {
	for q := range out {
		if err := writeFrame(conn, q); err != nil {
			conn.Close()
			for range out { // until read has closed it
			}
			return
		}
	}
}

// read turns reports into events until the session ends, and then makes sure
// that nothing of that keeper lives before it says so.
func (r *Runner) read(conn net.Conn, out chan request) {
	in := json.NewDecoder(bufio.NewReader(conn))
	instance := ""
	var err error
	for {
		var m report
		if err = in.Decode(&m); err != nil {
			break
		}
		if m.Listed != nil {
			instance = m.Listed.Instance
		}
		if m.Trouble != "" {
			r.opts.Log.Warn("keeper: " + m.Trouble)
		}
		if ev := m.event(); ev != nil {
			r.opts.Tell(ev)
		}
	}
	r.mu.Lock()
	r.out = nil
	k := r.kid
	r.mu.Unlock()
	close(out)
	conn.Close()
	if !k.wait(5 * time.Second) { // it kills its jobs, writes down their ends and goes
		k.Process.Kill()
		k.wait(5 * time.Second)
	}
	killOrphans()
	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	r.opts.Tell(daemon.KeeperLost{Instance: instance, Why: fmt.Sprintf("its socket ended: %v", err)})
}

// killOrphans kills what a dead keeper left. The daemon is the next subreaper
// up, so all of it has become the daemon's, and the daemon has no other
// children. It returns when none is left.
func killOrphans() {
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(2 * time.Millisecond) {
		kids := children()
		if len(kids) == 0 {
			return
		}
		for _, pid := range kids {
			_ = unix.Kill(pid, unix.SIGKILL)
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil) // the keeper itself has its own waiter
		}
	}
}

// Close ends the session, so that the keeper kills what it runs and goes, and
// waits until it is gone. One that has not gone after d is killed.
func (r *Runner) Close(d time.Duration) {
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if conn == nil {
		return
	}
	conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := r.settled(ctx); err != nil {
		r.opts.Log.Warn("the keeper does not go by itself: killing it", "err", err)
		r.mu.Lock()
		r.kid.Process.Kill()
		r.mu.Unlock()
	}
}

// inherited are the variables that a keeper, and so every job, gets from the
// daemon's environment, and every LC_*. Nothing else of it reaches a job.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"}

// SpawnEnv cuts the daemon's environment down to what a keeper is started with.
func SpawnEnv(environ []string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, pair) // of two values of one name the last counts
		}
	}
	return env
}
