package proc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// LogWriter takes the output of one job. It does not wait for anybody.
type LogWriter interface {
	Write(stream daemon.Stream, at daemon.Millis, data []byte)
	Close() (daemon.LogTotals, error)
}

// KeeperOptions are what a keeper needs. The caller holds the keeper's lock, is
// a subreaper, and listens.
type KeeperOptions struct {
	Listener net.Listener
	StateDir string
	Marker   string // value of EXOCOMP_SOCKET in the environment of this state dir's jobs
	Logs     func(job string) (LogWriter, error)
	Clock    daemon.Clock
	Chance   daemon.Chance
	Log      *slog.Logger
	NoCgroup bool // for tests of the way without
}

// MarkerName is in the environment of every job: the socket of its daemon, by
// which a command line inside the job finds it, and a later keeper the job.
const MarkerName = "EXOCOMP_SOCKET"

// attemptName is beside it, and names the attempt.
const attemptName = "EXOCOMP_ATTEMPT"

// Keeper is the parent of all job processes of one daemon.
type Keeper struct {
	opts     KeeperOptions
	instance string
	records  *records
	groups   cgroups
	null     *os.File
	forks    chan func()
	wakeup   chan struct{} // the clockwork looks at once
	quit     chan struct{} // closed when the keeper has nothing left to do
	quitOnce sync.Once

	mu       sync.Mutex
	session  *session
	epoch    int64
	leash    daemon.Leash
	attempts map[string]*attempt // every one that this keeper was told of
	live     map[int]*attempt    // leaders, by pid
	forking  int
	early    map[int]syscall.WaitStatus // ends of children that are not in live yet
	barred   bool                       // everything was told to end: nothing starts before the next hello
	killers  []*session                 // who waits to hear that nothing runs
	children *sync.Cond                 // on mu: there may be a child to wait for
}

// Limits of waiting.
const (
	helloWithin = 15 * time.Second // a keeper that nobody greets ends
	maxDoze     = time.Second      // between looks at the boot clock
)

// Keep runs a keeper until its daemon is gone and all that it ran is dead.
func Keep(ctx context.Context, o KeeperOptions) error {
	records, err := openRecords(filepath.Join(o.StateDir, "exits.jsonl"))
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	k := &Keeper{opts: o, instance: daemon.NewID("keeper", o.Clock.Now(), o.Chance), records: records, null: null,
		forks: make(chan func()), wakeup: make(chan struct{}, 1), quit: make(chan struct{}),
		attempts: map[string]*attempt{}, live: map[int]*attempt{}, early: map[int]syscall.WaitStatus{}}
	k.children = sync.NewCond(&k.mu)
	if err := k.clean(); err != nil {
		return err
	}
	if !o.NoCgroup {
		k.groups = openCgroups(groupPrefix + k.instance)
	}
	if err := os.WriteFile(k.path(cgroupFile), []byte(k.groups.base), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(k.groups.base) }()
	for range max(2, runtime.NumCPU()) {
		go k.forker()
	}
	go k.reaper()
	go k.clockwork()
	go k.accept()
	k.alone(helloWithin)
	select {
	case <-k.quit:
	case <-ctx.Done():
	}
	return o.Listener.Close()
}

func (k *Keeper) path(name string) string { return filepath.Join(k.opts.StateDir, name) }

// forker forks. Its thread lives as long as the keeper: the kernel sends a
// child the signal of its parent's death when the thread that forked it ends.
func (k *Keeper) forker() {
	runtime.LockOSThread()
	for fn := range k.forks {
		fn()
	}
}

// accept takes connections for ever. Which one counts is decided by hello.
func (k *Keeper) accept() {
	for {
		conn, err := k.opts.Listener.Accept()
		if err != nil {
			return
		}
		go k.serve(&session{conn: conn, out: make(chan report, 4096)})
	}
}

// alone ends the keeper if it has neither a session nor a job after d.
func (k *Keeper) alone(d time.Duration) {
	time.AfterFunc(d, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.session == nil && k.idle() {
			k.quitOnce.Do(func() { close(k.quit) })
		}
	})
}

// idle says whether no attempt is under way. The caller holds mu.
func (k *Keeper) idle() bool {
	for _, a := range k.attempts {
		if !a.over {
			return false
		}
	}
	return true
}

// reaper waits for every child: leaders of jobs, and orphans that came to the
// keeper as their subreaper.
func (k *Keeper) reaper() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child at all
			time.Sleep(time.Millisecond)
			k.awaitChild()
		default:
			k.reaped(pid, status)
		}
	}
}

// awaitChild sleeps until a fork is under way or a job lives.
func (k *Keeper) awaitChild() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.forking == 0 && len(k.live) == 0 {
		k.children.Wait()
	}
}

func (k *Keeper) reaped(pid int, status syscall.WaitStatus) {
	k.mu.Lock()
	a := k.live[pid]
	if a == nil {
		if k.forking > 0 {
			k.early[pid] = status
		}
		k.mu.Unlock()
		return
	}
	delete(k.live, pid)
	k.mu.Unlock()
	go k.bury(a, status)
}

// clean kills what an earlier keeper of this state dir left and removes its run
// directories. Nothing of this keeper runs yet.
func (k *Keeper) clean() error {
	if err := EndLeftovers(k.opts.StateDir, k.opts.Marker); err != nil {
		return err
	}
	if err := os.RemoveAll(k.path("runs")); err != nil {
		return fmt.Errorf("remove old run directories: %w", err)
	}
	return os.Mkdir(k.path("runs"), 0o700)
}

// baseEnv is what every job's environment begins with: the keeper's own, which
// the daemon cut down to a short list when it started the keeper.
func baseEnv() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

// now is the wall time of an event.
func (k *Keeper) now() daemon.Millis { return daemon.Millis(k.opts.Clock.Now().UnixMilli()) }
