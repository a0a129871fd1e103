package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// Who holds the write lock of a store. The kernel tells, in /proc/locks, by the
// inode: to ask with F_GETLK one must open the file, and closing that descriptor
// would drop SQLite's own locks on it (L20).
//
// It knows the locks of this host's processes only. One that a network file
// system holds for another host is in no table here.

// Owner is a process that holds a lock.
type Owner struct {
	PID     int
	Command string // as it was started, shortened; "" when it cannot be read
	Self    bool   // it is this very process
}

// String names the owner to an operator.
func (o Owner) String() string {
	switch {
	case o.Self:
		return fmt.Sprintf("this process itself, pid %d", o.PID)
	case o.Command == "":
		return fmt.Sprintf("pid %d", o.PID)
	}
	return fmt.Sprintf("pid %d (%s)", o.PID, o.Command)
}

// walWriteLock is the byte of the -shm file that a writer locks in WAL mode; see
// UNIX_SHM_BASE in os_unix.c. Recovery locks it with its neighbours.
const walWriteLock = 120

// LockOwner says which process of this host holds SQLite's write lock on db. It
// opens neither db nor what lies beside it.
func LockOwner(db string) (Owner, bool, error) {
	text, err := os.Open("/proc/locks")
	if err != nil {
		return Owner{}, false, fmt.Errorf("find the owner of a lock: %w", err)
	}
	defer text.Close()
	locks, err := parseLocks(text)
	if err != nil {
		return Owner{}, false, fmt.Errorf("find the owner of a lock: %w", err)
	}
	mounts, _ := ReadMounts(MountTable) // without it, stat alone tells the device
	for _, place := range []struct {
		path        string
		first, last int64
	}{{db + "-shm", walWriteLock, walWriteLock}, {db, pendingByte, sharedFirst + sharedSize - 1}} {
		id, err := identify(place.path, mounts)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no -shm: the store is not in WAL mode, or nobody has it open
		}
		if err != nil {
			return Owner{}, false, fmt.Errorf("find the owner of a lock: %w", err)
		}
		if pid, ok := writer(locks, id, place.first, place.last); ok {
			return ownerOf(pid), true, nil
		}
	}
	return Owner{}, false, nil
}

// fileID is a file as /proc/locks names it.
type fileID struct {
	dev   [2]uint64 // of stat, and of the mount: btrfs has one for each subvolume, and tells the other
	inode uint64
}

func identify(path string, mounts Mounts) (fileID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileID{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("stat %s: no inode", path)
	}
	id := fileID{dev: [2]uint64{st.Dev, st.Dev}, inode: st.Ino}
	if m, ok := mounts.Of(path); ok {
		id.dev[1] = m.Dev
	}
	return id, nil
}

// fileLock is a line of /proc/locks: a lock that is held.
type fileLock struct {
	write       bool
	pid         int
	dev, inode  uint64
	first, last int64
}

// writer returns the process that holds a write lock on any of those bytes.
func writer(locks []fileLock, id fileID, first, last int64) (pid int, ok bool) {
	for _, l := range locks {
		known := l.inode == id.inode && (l.dev == id.dev[0] || l.dev == id.dev[1])
		if known && l.write && l.first <= last && first <= l.last {
			return l.pid, true
		}
	}
	return 0, false
}

// parseLocks reads /proc/locks; see proc_locks(5). It leaves out who waits, and
// other kinds than the locks of a process. A line that it cannot read is none of
// ours.
func parseLocks(r io.Reader) ([]fileLock, error) {
	var out []fileLock
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// 1: POSIX  ADVISORY  WRITE 4711 fe:00:123456 1073741825 1073741825
		f := strings.Fields(lines.Text())
		if len(f) != 8 || f[1] != "POSIX" {
			continue
		}
		if l, err := parseLock(f); err == nil {
			out = append(out, l)
		}
	}
	return out, lines.Err()
}

func parseLock(f []string) (l fileLock, err error) {
	number := func(text string, base int) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(text, base, 63)
		}
		return n
	}
	place := strings.Split(f[5], ":")
	if len(place) != 3 {
		return l, fmt.Errorf("%q is no file", f[5])
	}
	l.write = f[3] == "WRITE"
	l.pid = int(number(f[4], 10))
	l.dev = unix.Mkdev(uint32(number(place[0], 16)), uint32(number(place[1], 16)))
	if err == nil {
		l.inode, err = strconv.ParseUint(place[2], 10, 64)
	}
	l.first, l.last = int64(number(f[6], 10)), math.MaxInt64
	if f[7] != "EOF" {
		l.last = int64(number(f[7], 10))
	}
	if err == nil && l.pid == 0 {
		err = errors.New("a process of another pid namespace")
	}
	return l, err
}

// maxCommand is how much of a command line is worth reading.
const maxCommand = 80

func ownerOf(pid int) Owner {
	o := Owner{PID: pid, Self: pid == os.Getpid()}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		o.Command = printable(string(text))
	}
	return o
}

// printable makes one short line of a command line, whose arguments end with
// NUL and may hold anything: a terminal must not obey it.
func printable(cmdline string) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, cmdline)
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > maxCommand {
		return string(runes[:maxCommand-3]) + "..."
	}
	return string(runes)
}
