//go:build heavy

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/linux"
)

// A host of a heavy test is a state directory on this machine, and a supervisor
// that starts its daemon again whenever it ends, as a unit does.

// heavyBin builds the daemon: the real one, not this test binary.
func heavyBin(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "exocomp")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// heavyNumber is a number from the environment.
func heavyNumber(name string, fallback int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return fallback
	}
	return n
}

// until waits for cond and says whether it came true within d.
func until(d time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(d); !cond(); time.Sleep(25 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// host is one supervised daemon.
type host struct {
	name  string
	state string
	bin   string
	args  []string // of serve
	env   []string
	log   *os.File // stderr of every daemon and keeper of this host
	ended func(code int, killed bool)

	mu       sync.Mutex
	process  *os.Process // the present daemon, or nil
	hold     time.Time   // no daemon is started before
	pause    time.Duration
	closing  bool
	finished chan struct{}
	power    power
}

// power is what of a host can act. While neither daemon nor keeper can, nobody
// ends its jobs: that is the gap which no process can close.
type power struct {
	stopped, gone bool // the daemon
	keeperStopped bool
	keeperGone    bool      // killed, and no daemon has seen it
	killed        time.Time // the keeper, last
	since         time.Time // nothing can act since then
	longest       time.Duration
	bothGone      bool
}

// seenWithin is how soon a daemon that runs has replaced a keeper that was killed.
const seenWithin = 500 * time.Millisecond

// change notes what was done to a host and keeps the longest time without
// anybody who can act.
func (h *host) change(fn func(p *power)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, now := &h.power, time.Now()
	fn(p)
	daemonOff := p.stopped || p.gone
	p.keeperGone = daemonOff && (p.keeperGone || now.Sub(p.killed) < seenWithin)
	p.bothGone = p.bothGone || p.gone && p.keeperGone
	off := daemonOff && (p.keeperStopped || p.keeperGone)
	switch {
	case off && p.since.IsZero():
		p.since = now
	case !off && !p.since.IsZero():
		p.longest, p.since = max(p.longest, now.Sub(p.since)), time.Time{}
	}
}

// helpless returns for how long nothing of this host could act since it was
// asked last, and whether daemon and keeper were gone together.
func (h *host) helpless() (longest time.Duration, bothGone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.power
	longest, bothGone = p.longest, p.bothGone
	if !p.since.IsZero() {
		longest = max(longest, time.Since(p.since))
	}
	p.longest, p.bothGone = 0, false
	return longest, bothGone
}

// supervise starts the daemon again and again until close.
func (h *host) supervise() {
	defer close(h.finished)
	for {
		h.mu.Lock()
		closing, hold := h.closing, time.Until(h.hold)
		h.mu.Unlock()
		if closing {
			return
		}
		if hold > 0 {
			time.Sleep(min(hold, 50*time.Millisecond)) // of a supervisor: looks for close meanwhile
			continue
		}
		h.once()
	}
}

// once runs one daemon to its end.
func (h *host) once() {
	cmd := exec.Command(h.bin, append([]string{"serve", "--listen", "none"}, h.args...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), h.env...), h.log
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	h.change(func(p *power) { p.stopped, p.gone, p.killed = false, false, time.Time{} })
	h.mu.Lock()
	h.process = cmd.Process
	h.mu.Unlock()
	_ = cmd.Wait() // its code says more
	h.change(func(p *power) { p.stopped, p.gone = false, true })
	h.mu.Lock()
	h.process = nil
	h.hold = later(h.hold, time.Now().Add(h.pause))
	h.mu.Unlock()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if h.ended != nil {
		h.ended(cmd.ProcessState.ExitCode(), status.Signaled() && status.Signal() == syscall.SIGKILL)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keeper returns the process that holds the keeper's lock, or nil.
func (h *host) keeper() *os.Process {
	who, held, err := linux.LockHolder(filepath.Join(h.state, keeperLock))
	if err != nil || !held || who.PID <= 1 {
		return nil
	}
	p, err := os.FindProcess(who.PID) // a pidfd: never another process of that number
	if err != nil {
		return nil
	}
	return p
}

func (h *host) present() *os.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}

// stopDaemon freezes the daemon and returns what thaws it.
func (h *host) stopDaemon() func() {
	d := h.present()
	if d == nil || d.Signal(syscall.SIGSTOP) != nil {
		return func() {}
	}
	h.change(func(p *power) { p.stopped = true })
	return func() {
		_ = d.Signal(syscall.SIGCONT) // it may have been killed meanwhile
		h.change(func(p *power) { p.stopped = false })
	}
}

// stopKeeper freezes the keeper and returns what thaws it.
func (h *host) stopKeeper() func() {
	k := h.keeper()
	if k == nil || k.Signal(syscall.SIGSTOP) != nil {
		return func() {}
	}
	h.change(func(p *power) { p.keeperStopped = true })
	return func() {
		_ = k.Signal(syscall.SIGCONT)
		h.change(func(p *power) { p.keeperStopped = false })
	}
}

// killDaemon kills the daemon; it is not started again for d.
func (h *host) killDaemon(d time.Duration) {
	h.mu.Lock()
	h.hold = later(h.hold, time.Now().Add(d))
	proc := h.process
	h.mu.Unlock()
	if proc != nil && proc.Kill() == nil {
		h.change(func(p *power) { p.stopped, p.gone = false, true })
	}
}

// startAfter says when a daemon may be started again.
func (h *host) startAfter(at time.Time) {
	h.mu.Lock()
	h.hold = at
	h.mu.Unlock()
}

// killKeeper kills the keeper, if there is one.
func (h *host) killKeeper() {
	if k := h.keeper(); k != nil && k.Kill() == nil {
		h.change(func(p *power) { p.killed = time.Now() })
	}
}

// dial connects to the daemon's socket.
func (h *host) dial(ctx context.Context) (net.Conn, error) {
	return linux.DialUnix(ctx, filepath.Join(h.state, apiSocket))
}

// client speaks to the daemon as the command line does.
func (h *host) client() daemon.Client {
	c, err := api.NewClient(api.ClientOptions{BaseURL: "http://exocomp", Name: h.name, Dial: h.dial})
	if err != nil {
		panic(err)
	}
	return c
}

// get asks the daemon over its socket.
func (h *host) get(path string) (int, error) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.dial(ctx) }}}
	resp, err := client.Get("http://exocomp" + path)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// active says whether this daemon says that it is the active one.
func (h *host) active() bool {
	code, err := h.get("/readyz")
	return err == nil && code == http.StatusOK
}

// close ends the daemon, its keeper and its jobs.
func (h *host) close() {
	h.mu.Lock()
	h.closing = true
	d := h.process
	h.mu.Unlock()
	if d != nil {
		_ = d.Kill()
	}
	<-h.finished
	if k := h.keeper(); k != nil {
		_ = k.Kill()
	}
	for _, p := range h.jobProcesses() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	h.log.Close()
}

// jobProcess is a living process that carries the mark of this host's jobs.
type jobProcess struct {
	pid     int
	attempt string
}

// jobProcesses finds what runs as a job of this host, whoever its parent is.
func (h *host) jobProcesses() []jobProcess {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []jobProcess
	mark := "EXOCOMP_SOCKET=" + filepath.Join(h.state, apiSocket)
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		env := strings.Split(string(text), "\x00")
		if err != nil || !slices.Contains(env, mark) {
			continue
		}
		i := slices.IndexFunc(env, func(s string) bool { return strings.HasPrefix(s, "EXOCOMP_ATTEMPT=") })
		if i >= 0 {
			found = append(found, jobProcess{pid, strings.TrimPrefix(env[i], "EXOCOMP_ATTEMPT=")})
		}
	}
	return found
}

// newHost prepares a host; supervise starts it.
func newHost(t *testing.T, dir, name, bin string, args, env []string) *host {
	t.Helper()
	h := &host{name: name, state: filepath.Join(dir, name), bin: bin, finished: make(chan struct{}),
		pause: 100 * time.Millisecond}
	h.args = append([]string{"--host", name, "--data-dir", filepath.Join(dir, "data"), "--state-dir", h.state}, args...)
	h.env = append([]string{"TZ=UTC", "EXOCOMP_HOST=" + name}, env...)
	var err error
	if h.log, err = os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// heavyDir makes a directory that is kept when the test fails.
func heavyDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("HEAVY_DIR"), "exocomp-heavy-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept for a look: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Logf("remove %s: %v", dir, err)
		}
	})
	return dir
}

// exocomp runs one command line to its end.
func exocomp(t *testing.T, bin string, args ...string) string {
	t.Helper()
	out, err := exec.Command(bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("exocomp %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// between draws a duration.
func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Int64N(int64(hi-lo)))
}
