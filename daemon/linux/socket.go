package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A Unix socket's path may be 107 bytes long, and a directory of an operator's
// choice is longer some day. So both sides go through an open descriptor of the
// directory: /proc/self/fd/N/name is short.

// ListenUnix listens on a socket at path, for this user only. A socket that a
// dead process left there is removed; the caller holds the lock that says that
// it is dead.
func ListenUnix(path string) (net.Listener, error) {
	dir, short, err := shortPath(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer dir.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", short)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// The short name is gone when dir is closed, so Close must not unlink it.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &socket{Listener: l, path: path, file: file}, nil
}

// socket is a listener that removes its file when it is closed.
type socket struct {
	net.Listener
	path string
	file os.FileInfo
}

// Close implements net.Listener. The file may be that of another by now: who lost
// the lock must not take the door away from who has it.
func (s *socket) Close() error {
	now, err := os.Lstat(s.path)
	ours := err == nil && os.SameFile(s.file, now) // looked at while it is open: no other file has its inode yet
	err = s.Listener.Close()
	if ours {
		if rerr := os.Remove(s.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// Addr implements net.Listener with the name that people know.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// DialUnix connects to the socket at path.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	dir, short, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, "unix", short)
}

func shortPath(path string) (*os.File, string, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, "", err
	}
	return dir, fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), nil
}
