package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups makes a cgroup for each attempt below the keeper's own, where that is
// allowed (systemd: Delegate=yes). A process cannot leave it, so the kill is
// exact.
type cgroups struct{ base string } // "" where there are none

// groupPrefix begins the name of every group that a keeper makes. No other group
// is ever killed.
const groupPrefix = "exocomp-"

// openCgroups makes a group named name below this process's own, if a child can
// be forked into it.
func openCgroups(name string) cgroups {
	own, err := ownCgroup()
	if err != nil {
		return cgroups{}
	}
	base := filepath.Join(own, name)
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return cgroups{}
	}
	if _, err := os.Stat(filepath.Join(base, "cgroup.kill")); err != nil || !takesChild(base) { // Linux 5.14
		_ = os.Remove(base)
		return cgroups{}
	}
	return cgroups{base: base}
}

// takesChild forks a child into a group: a sandbox or a half delegation may
// forbid it. The child finds nothing to execute and ends.
func takesChild(dir string) bool {
	fd, err := (&cgroup{dir: dir}).open()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}}
	_, err = syscall.ForkExec(filepath.Join(dir, "nothing"), []string{"nothing"}, attr)
	return errors.Is(err, syscall.ENOENT)
}

// ownCgroup returns the directory of this process's cgroup of version 2.
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, ok := strings.Cut(line, " - ")
		if !ok || !strings.HasPrefix(right, "cgroup2 ") {
			continue
		}
		mount := strings.Fields(left)[4]
		for line := range strings.Lines(string(text)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				return filepath.Join(mount, path), nil
			}
		}
	}
	return "", errors.New("no cgroup of version 2")
}

// cgroup is the group of one attempt.
type cgroup struct{ dir string }

// make makes the group of an attempt.
func (c cgroups) make(attempt string) (*cgroup, error) {
	dir := filepath.Join(c.base, attempt)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return &cgroup{dir: dir}, nil
}

// open returns a descriptor to fork into the group with.
func (g *cgroup) open() (int, error) {
	return unix.Open(g.dir, unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_PATH, 0)
}

// kill kills every process in the group, also those that fork at this moment.
func (g *cgroup) kill() {
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
}

// pids returns the processes in the group.
func (g *cgroup) pids() []int {
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// remove removes the empty group.
func (g *cgroup) remove() { _ = os.Remove(g.dir) }

// removeCgroups kills and removes a whole tree of groups that an earlier keeper
// made. It waits until the last process is gone.
func removeCgroups(base string) error {
	if _, err := os.Stat(base); err != nil {
		return nil // a reboot took it along
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		(&cgroup{dir: base}).kill()
		entries, err := os.ReadDir(base)
		if err != nil {
			return nil
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = os.Remove(filepath.Join(base, e.Name()))
			}
		}
		if err := os.Remove(base); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes in %s do not die", base)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
