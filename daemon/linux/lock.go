package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// Lock is a flock(2) on a file. The flock is the truth: it ends with the last
// process that holds its descriptor. What is written in the file is
// information for people, and may be about a process long dead.
type Lock struct {
	f        *os.File
	Dev, Ino uint64
}

// Holder is what a lock file says about who holds it.
type Holder struct {
	Host        string `json:"host"`
	BootID      string `json:"boot_id"`
	PID         int    `json:"pid"`
	Incarnation string `json:"incarnation"`
}

// HeldError says that another process holds the lock.
type HeldError struct {
	Path   string
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is locked by another process (pid %d by its own word)", e.Path, e.Holder.PID)
}

// TakeLock locks path, which it makes if it is not there, and writes h into it.
// It does not wait, but for the moment that a look of LockHolder lasts: a lock
// that is held is a *HeldError.
func TakeLock(path string, h Holder) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range 5 {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{Path: path, Holder: readHolder(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{f: f}
	if err := l.describe(h); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return l, nil
}

func (l *Lock) describe(h Holder) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.f.Fd()), &st); err != nil {
		return err
	}
	l.Dev, l.Ino = st.Dev, st.Ino
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err = l.f.WriteAt(append(text, '\n'), 0)
	return err
}

// Holds says whether the path still names the file
// that is locked. One that was removed lets a second daemon lock a new file of
// the same name.
func (l *Lock) Holds() error {
	info, err := os.Stat(l.f.Name())
	if errors.Is(err, os.ErrNotExist) {
		return daemon.Errorf(daemon.StoodDown, "the lock %s was removed while it was held", l.f.Name()).
			Hint("start again, and leave the state directory alone while a daemon runs")
	}
	if err != nil {
		return fmt.Errorf("look at the lock: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Dev != l.Dev || st.Ino != l.Ino {
		return daemon.Errorf(daemon.StoodDown, "the lock %s was replaced by another file while it was held", l.f.Name()).
			Hint("start again, and leave the state directory alone while a daemon runs")
	}
	return nil
}

// Release gives the lock up. The file stays: removing it would let a second
// process lock a new file of the same name while a third waits for the old.
func (l *Lock) Release() error { return l.f.Close() }

// LockHolder says whether path is locked, and by whom by its own word. The
// shared lock that it tries lasts a moment, which TakeLock allows for: a look
// must not refuse a daemon that starts now.
func LockHolder(path string) (h Holder, held bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("open the lock: %w", err)
	}
	defer f.Close()
	h = readHolder(f)
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return h, true, nil
	}
	return h, false, err
}

func readHolder(f *os.File) (h Holder) {
	text, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, 4096), 4096))
	if err == nil {
		_ = json.Unmarshal(text, &h) // a torn text names nobody
	}
	return h
}

// Refusal turns a HeldError of serve.lock into what an operator is told.
func (e *HeldError) Refusal() error {
	return daemon.Errorf(daemon.Held, "another daemon runs on this host: it holds %s (pid %d, %s)",
		e.Path, e.Holder.PID, e.Holder.Incarnation).
		Hint("one host runs one daemon per state directory. See exocomp status; stop it with: kill %d", e.Holder.PID)
}
