package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LockPID says whether path is locked, and which process really holds it: the
// one that the kernel names, never the one that the text in the file names,
// which may be long dead and its number another's. It is 0 for a holder that
// this user may not look at. One that forked the descriptor on has many
// holders, of which the first found is named.
func LockPID(path string) (pid int, held bool, err error) {
	for {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, fmt.Errorf("look at the lock: %w", err)
		}
		says, held, err := LockHolder(path)
		if err != nil || !held {
			return 0, held, err
		}
		if locks(says.PID, info) {
			return says.PID, true, nil
		}
		if pid, err := findLocker(info); err != nil || pid != 0 {
			return pid, true, err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(now, info) {
			_, held, err := LockHolder(path) // it may have let go meanwhile
			return 0, held, err
		}
	}
}

func findLocker(info os.FileInfo) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("look for the holder of %s: %w", info.Name(), err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && locks(pid, info) {
			return pid, nil
		}
	}
	return 0, nil
}

// locks says whether pid has a descriptor by which the file is locked. Only
// descriptors of that name are looked at closer: a stat of a file on a dead
// network mount does not return.
func locks(pid int, file os.FileInfo) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false // gone, or another user's
	}
	for _, fd := range fds {
		link := filepath.Join(dir, fd.Name())
		name, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(filepath.Base(name), file.Name()) {
			continue
		}
		if info, err := os.Stat(link); err == nil && os.SameFile(info, file) && locksWith(pid, fd.Name()) {
			return true
		}
	}
	return false
}

// locksWith says whether an exclusive flock hangs on a descriptor. The shared
// one of a look does not count.
func locksWith(pid int, fd string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "lock:" && f[2] == "FLOCK" && f[4] == "WRITE" {
			return true
		}
	}
	return false
}
