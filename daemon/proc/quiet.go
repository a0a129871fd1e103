package proc

import (
	"context"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// QuietOptions are what it takes to make a host quiet. No daemon need run.
type QuietOptions struct {
	StateDir string
	Marker   string // as in KeeperOptions
	// Holder says whether the keeper's lock is held, and which process really
	// holds it; 0 is one that cannot be seen.
	Holder func() (pid int, held bool, err error)
	// Dial connects to the keeper's socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// Daemon is the process that really holds the daemon's lock, 0 for none. It
	// dies first, or it would start another keeper.
	Daemon int
}

// Quieted is what was found alive, and how much of it still is.
type Quieted struct {
	Daemon    bool
	Keepers   int
	Jobs      int // attempts
	Processes int // of jobs
	Left      int // processes of all these that live on
}

// gentle is how long a keeper may take to kill its jobs and write down how they
// ended, before it is killed itself.
const gentle = 2 * time.Second

// Quiet kills the daemon, the keeper and every job of a state directory, and
// returns when nothing of them lives, or with an error when ctx ends before. A
// daemon that is not named to it goes on, and starts another keeper.
//
// One thing it cannot find: a process that left its job's session and wiped its
// environment, whose keeper is dead, and that no cgroup holds.
func Quiet(ctx context.Context, o QuietOptions) (Quieted, error) {
	s := premises{stateDir: o.StateDir, marker: o.Marker, holder: o.Holder, dial: o.Dial}
	seen := newTally()
	boss, hasBoss := livingProcess(o.Daemon)
	s.note(seen) // it dies with the daemon, and counts
	if hasBoss && !end(ctx, boss) {
		return s.quieted(seen, boss), daemon.Errorf(daemon.TimedOut, "the daemon (pid %d) does not die", boss.pid).
			Hint("look at what it waits for in /proc/%d/stack, and try again", boss.pid)
	}
	s.askKindly(ctx)
	if err := s.clear(ctx, seen); err != nil {
		return s.quieted(seen, boss), daemon.Errorf(daemon.TimedOut, "%s is not quiet: %w", o.StateDir, err).
			Hint("try again; what does not die to SIGKILL waits for a disk or a network file system")
	}
	_ = removeCgroups(s.group()) // empty; or the next keeper removes it
	return s.quieted(seen, boss), nil
}

// livingProcess returns the process pid, if it is one other than this.
func livingProcess(pid int) (process, bool) {
	if pid <= 1 || pid == os.Getpid() {
		return process{}, false
	}
	if p, ok := readProcess(pid); ok && p.alive() {
		return p, true
	}
	return process{}, false
}

// end kills p and says whether it is dead.
func end(ctx context.Context, p process) bool {
	for p.lives() {
		p.kill(unix.SIGKILL)
		if !pause(ctx, time.Millisecond) {
			return false
		}
	}
	return true
}

// note counts what is there now.
func (s premises) note(seen *tally) {
	k, _, err := s.keeper()
	if err != nil {
		return // clear will say so
	}
	if jobs, err := s.jobs(k); err == nil {
		seen.add(k, jobs)
	}
}

// askKindly lets a keeper that can do so kill its jobs itself: it writes down how
// they ended. A stopped one cannot.
func (s premises) askKindly(ctx context.Context) {
	k, _, err := s.keeper()
	if err != nil || k.pid == 0 || k.stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, gentle)
	defer cancel()
	_ = s.ask(ctx) // or it is killed with them
}

// quieted sums up.
func (s premises) quieted(seen *tally, boss process) Quieted {
	q := Quieted{Keepers: len(seen.keepers), Jobs: len(seen.attempts), Processes: len(seen.processes)}
	if boss.pid != 0 {
		if q.Daemon = !boss.lives(); !q.Daemon {
			q.Left++
		}
	}
	s.note(seen) // also what came since
	for _, all := range []map[process]bool{seen.keepers, seen.processes} {
		for p := range all {
			if p.lives() {
				q.Left++
			}
		}
	}
	return q
}
