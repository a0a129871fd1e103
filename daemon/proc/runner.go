package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// Holder says whether the keeper's lock is held, and which process really
	// holds it; 0 is one that cannot be seen.
	Holder func() (pid int, held bool, err error)
	// Tell files an event with the loop.
	Tell     func(daemon.Event)
	Log      *slog.Logger
	StateDir string
	Marker   string        // as in KeeperOptions
	Patience time.Duration // with an older keeper that does not go; 0 is 5 s
}

// Bounds of the ways out.
const (
	patience   = 5 * time.Second
	killWithin = 5 * time.Second        // a KillAll, whoever answers
	heedWithin = 500 * time.Millisecond // before a keeper is helped to kill
	noteWithin = 3 * time.Second        // until it has written down every end
)

// Runner is the daemon.Runner port. Requests are handed to a goroutine that
// writes them; it never waits for an answer.
type Runner struct {
	opts   RunnerOptions
	site   premises
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	out     chan request // of the open session; nil without one
	hailing bool
	next    *daemon.Hello // asked for while a hello was under way
	conn    net.Conn
	kid     *kid
	killed  chan struct{} // closed when the session's keeper has killed everything, or is gone
	killing chan struct{} // closed when the KillAll that is under way is over
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
func NewRunner(o RunnerOptions) *Runner {
	r := &Runner{opts: o, site: premises{stateDir: o.StateDir, marker: o.Marker, holder: o.Holder, dial: o.Dial}}
	if r.opts.Patience == 0 {
		r.opts.Patience = patience
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

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
	ctx, cancel := context.WithTimeout(r.ctx, hailWithin)
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
	return r.until(ctx, func() bool { return r.conn == nil })
}

// until waits for a state of r.
func (r *Runner) until(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		ok := done()
		r.mu.Unlock()
		if ok {
			return nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return errors.New("the last keeper's processes do not die")
		}
	}
}

// reach gets rid of an older keeper, starts ours and connects to it.
func (r *Runner) reach(ctx context.Context) (net.Conn, error) {
	// A KillAll from outside would take the next keeper for the one that it is after.
	if err := r.until(ctx, func() bool { return r.conn == nil && r.killing == nil }); err != nil {
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
			k.wait(time.Second)
			return nil, fmt.Errorf("the keeper does not answer: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// outlive waits for the keeper of a daemon that is gone to kill its jobs and
// go, and kills both when it does not (K4): its lock must be free before anything
// of its host is judged. Nobody writes down how those jobs ended.
func (r *Runner) outlive(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, r.opts.Patience)
	defer cancel()
	err := r.site.free(soon)
	switch {
	case err == nil:
		return nil
	case soon.Err() == nil:
		return fmt.Errorf("look for an older keeper: %w", err)
	}
	r.opts.Log.Warn("an older keeper does not go: killing it and its jobs", "state_dir", r.opts.StateDir)
	if err := r.site.clear(ctx, newTally()); err != nil {
		return fmt.Errorf("an older keeper does not go: %w", err)
	}
	return nil
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
		if m.Killed {
			r.confirmed()
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
	r.confirmed()
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
