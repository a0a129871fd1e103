package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// premises are a state directory as it looks from outside its keeper: who holds
// the keeper's lock, and which processes are jobs. It is how a keeper that does
// not answer, or is dead, is cleared away with all that it ran.
//
// Nothing is killed on the word of a file. The keeper is the process that really
// holds the lock and runs as a keeper; a job carries the marker and an attempt in
// its environment, descends from the keeper or such a job, or is in the group
// that the keeper made. A number that another process has by now is not shot at.
type premises struct {
	stateDir string
	marker   string
	holder   func() (pid int, held bool, err error)
	dial     func(ctx context.Context) (net.Conn, error)
}

// keeper returns the process that holds the lock, if it is a keeper and may be
// looked at. A lock that is held without one belongs to somebody else.
func (s premises) keeper() (k process, held bool, err error) {
	pid, held, err := s.holder()
	if err != nil || !held {
		return process{}, false, err
	}
	k, ok := readProcess(pid)
	again, _, err := s.holder() // or k is the next process of that number
	if err != nil || !ok || again != pid || !isKeeper(pid) {
		return process{}, true, err
	}
	return k, true, nil
}

// isKeeper says whether pid runs as a keeper. Another program may lock the file.
func isKeeper(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(text), "\x00")
	return err == nil && len(args) > 1 && args[1] == "keeper"
}

// jobs returns the living processes of all jobs. This process is not one of
// them, even if it was started in a job.
func (s premises) jobs(keeper process) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	group := groupPids(s.group())
	found := descendants(all, func(p process) bool {
		return p.alive() && (keeper.pid != 0 && p.ppid == keeper.pid || slices.Contains(group, p.pid) ||
			p.pid != os.Getpid() && isJob(p.pid, s.marker))
	})
	return slices.DeleteFunc(found, func(p process) bool { return !p.alive() || p.pid == os.Getpid() }), nil
}

// cgroupFile names, in the state dir, the cgroup of the newest keeper.
const cgroupFile = "keeper.cgroup"

// group returns the cgroup that the last keeper made, or "".
func (s premises) group() string {
	text, err := os.ReadFile(filepath.Join(s.stateDir, cgroupFile))
	if base := string(text); err == nil && strings.HasPrefix(filepath.Base(base), groupPrefix) {
		return base
	}
	return ""
}

// ask has the keeper kill its jobs, and returns when it has done so: nothing
// runs, and every end is on disk.
func (s premises) ask(ctx context.Context) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := writeFrame(conn, request{KillAll: true}); err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(conn))
	for {
		var m report
		if err := in.Decode(&m); err != nil {
			return s.free(ctx) // it may have gone, having nothing left to do
		}
		if m.Killed {
			return nil
		}
	}
}

// free waits until the keeper's lock is free.
func (s premises) free(ctx context.Context) error {
	for {
		_, held, err := s.holder()
		if err != nil || !held {
			return err
		}
		if !pause(ctx, 5*time.Millisecond) {
			return errors.New("the keeper does not go")
		}
	}
}

// clear kills the keeper and all jobs, and returns when nothing of them is left
// and the lock is free. The keeper is stopped before its jobs die: it must
// neither fork anew nor write down ends whose cause it cannot know. It dies last,
// since what left its session and wiped its environment is known as its child.
func (s premises) clear(ctx context.Context, seen *tally) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		k, held, err := s.keeper()
		if err != nil {
			return fmt.Errorf("look for the keeper: %w", err)
		}
		k.kill(unix.SIGSTOP)
		jobs, err := s.jobs(k)
		if err != nil {
			return err
		}
		seen.add(k, jobs)
		s.kill(jobs)
		if len(jobs) == 0 {
			k.kill(unix.SIGKILL)
			if k = seen.keeper(); !held && k.pid == 0 { // the lock is free a moment before its holder is dead
				return nil
			}
		}
		if !pause(ctx, wait) {
			k.kill(unix.SIGKILL)
			return s.remains(k, jobs)
		}
	}
}

// kill kills jobs: by their group what is in one, and everything by its pid.
func (s premises) kill(jobs []process) {
	if base := s.group(); base != "" {
		(&cgroup{dir: base}).kill()
	}
	for _, p := range jobs {
		p.kill(unix.SIGKILL)
	}
}

// remains says what could not be killed, and why.
func (s premises) remains(k process, jobs []process) error {
	switch {
	case len(jobs) > 0:
		return fmt.Errorf("%d processes of jobs do not die, the first is %d: is a file system hanging?", len(jobs), jobs[0].pid)
	case k.pid != 0:
		return fmt.Errorf("the keeper (pid %d) does not die", k.pid)
	}
	pid, _, _ := s.holder() // for the message
	return fmt.Errorf("the keeper's lock in %s is held by a process that is no keeper, or another user's (pid %d, 0 is unknown)",
		s.stateDir, pid)
}

// tally counts what was there to be killed.
type tally struct {
	keepers, processes map[process]bool // without their state
	attempts           map[string]bool
}

func newTally() *tally {
	return &tally{keepers: map[process]bool{}, processes: map[process]bool{}, attempts: map[string]bool{}}
}

func (t *tally) add(keeper process, jobs []process) {
	if keeper.pid != 0 {
		t.keepers[keeper.name()] = true
	}
	for _, p := range jobs {
		t.processes[p.name()] = true
		if attempt := environment(p.pid, attemptName); attempt != "" {
			t.attempts[attempt] = true
		}
	}
}

// keeper returns a keeper that was seen and still lives, or the zero process.
func (t *tally) keeper() process {
	for p := range t.keepers {
		if p.lives() {
			return p
		}
	}
	return process{}
}

// groupPids returns the processes in a group and those below it.
func groupPids(base string) []int {
	var pids []int
	if base == "" {
		return nil
	}
	_ = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error { // what vanishes is empty
		if err == nil && d.IsDir() {
			pids = append(pids, (&cgroup{dir: path}).pids()...)
		}
		return nil
	})
	return pids
}

// pause waits for d, and says whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
