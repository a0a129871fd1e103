package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// Where a directory lies decides what may be kept there. Rules:
//   - The mount table is read first. statfs(2) on a dead network mount waits for
//     ever, and so may every look at a name below it, so these come last and are
//     bounded.
//   - The table is walked from mount to mount by their parents: a mount may be
//     hidden beneath a later one whose path is shorter.
//   - What cannot be found out refuses nobody.

// MountTable is where the kernel tells this process its mounts.
const MountTable = "/proc/self/mountinfo"

// Mount is a mounted file system.
type Mount struct {
	ID, Parent int
	Dev        uint64 // device number of its files, as /proc/locks has it
	Point      string
	Type       string // as in mount -t: nfs4, ext4, fuse.sshfs
	Source     string
	Options    string // of the file system, such as rw,vers=4.2
}

// Mounts is a mount table. The zero one knows nothing, and leaves the answer to
// statfs.
type Mounts []Mount

// ReadMounts reads a table in the format of proc(5) mountinfo.
func ReadMounts(path string) (Mounts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read the mounts in %s: %w", path, err)
	}
	var ms Mounts
	for _, m := range infos {
		ms = append(ms, Mount{ID: m.ID, Parent: m.Parent, Dev: unix.Mkdev(uint32(m.Major), uint32(m.Minor)),
			Point: m.Mountpoint, Type: m.FSType, Source: m.Source, Options: m.VFSOptions})
	}
	return ms, nil
}

// Of returns the mount that path, an absolute one, lies on, or would lie on once it
// is made.
func (ms Mounts) Of(path string) (Mount, bool) {
	m, _, ok := ms.locate(path, os.Readlink)
	return m, ok
}

// lookLimit is how long a name on a network file system may take to be read.
const lookLimit = 5 * time.Second

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// locate follows path name by name. It returns the mount at its end, and the
// path without links: a server that does not answer ends the walk on its mount.
func (ms Mounts) locate(path string, readlink func(string) (string, error)) (Mount, string, bool) {
	real, rest, links := "/", names(path), 0
	for len(rest) > 0 {
		next := filepath.Join(real, rest[0])
		rest = rest[1:]
		m, _ := ms.at(next)
		target, err := look(m, next, readlink)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return m, next, true
		case errors.Is(err, fs.ErrNotExist):
			rest, real = nil, filepath.Join(append([]string{next}, rest...)...)
		case err != nil || links == maxLinks:
			real = next // no link, as nearly always
		default:
			links++
			if filepath.IsAbs(target) {
				real = "/"
			}
			rest = append(names(target), rest...)
		}
	}
	m, ok := ms.at(real)
	return m, real, ok
}

// names returns the parts of a path. Those of a link keep their "..".
func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// look reads a link. On a network file system it waits so long and no longer.
func look(m Mount, path string, readlink func(string) (string, error)) (string, error) {
	if !m.Network() {
		return readlink(path)
	}
	type answer struct {
		target string
		err    error
	}
	ch := make(chan answer, 1)
	go func() {
		target, err := readlink(path)
		ch <- answer{target, err}
	}()
	select {
	case a := <-ch:
		return a.target, a.err
	case <-time.After(lookLimit):
		return "", os.ErrDeadlineExceeded
	}
}

// at returns the mount that a path without links lies on.
func (ms Mounts) at(path string) (m Mount, found bool) {
	prefix := "/"
	for _, name := range append([]string{""}, names(path)...) {
		prefix = filepath.Join(prefix, name)
		for range ms { // mounts may be stacked on one point
			next, ok := ms.on(m.ID, prefix)
			if !ok {
				break
			}
			m, found = next, true
		}
	}
	return m, found
}

// on returns the mount at point whose parent is that one. The root's parent is
// not in the table, nor is that of any other where a chroot hides it.
func (ms Mounts) on(parent int, point string) (Mount, bool) {
	for _, m := range slices.Backward(ms) {
		if m.Point == point && m.ID != parent && (m.Parent == parent || parent == 0 && ms.orphan(m)) {
			return m, true
		}
	}
	return Mount{}, false
}

func (ms Mounts) orphan(m Mount) bool {
	return m.Parent == m.ID || !slices.ContainsFunc(ms, func(o Mount) bool { return o.ID == m.Parent })
}

// under is Of with statfs as the last resort: where there is no table, and where
// an automounter stands that mounts the real thing only when it is touched.
func (ms Mounts) under(path string) (Mount, bool) {
	m, real, ok := ms.locate(path, os.Readlink)
	if ok && m.Type != "autofs" {
		return m, true
	}
	var st unix.Statfs_t
	err := unix.Statfs(real, &st)
	for errors.Is(err, unix.ENOENT) && real != "/" {
		real = filepath.Dir(real)
		err = unix.Statfs(real, &st)
	}
	if err != nil {
		return Mount{}, false
	}
	name, ok := networkMagics[uint32(st.Type)] // the field is signed, and narrower on some machines
	return Mount{Point: real, Type: name, Source: "unknown source"}, ok
}

// RefuseNetworkState refuses a state directory on a network file system: a
// flock, a socket or a record there would be shared with other hosts, or lost
// with them.
func RefuseNetworkState(ms Mounts, dir string) error {
	m, ok := ms.under(dir)
	if !ok || !m.Network() {
		return nil
	}
	return daemon.Errorf(daemon.BadConfig, "the state directory %s lies on a network file system (%s): "+
		"its locks, sockets and records belong to one host", dir, m).
		Hint("name a directory on a disk of this host: --state-dir=/var/lib/exocomp-state")
}

// RefuseNetworkStore refuses a store on a network file system, unless it is a
// shared one and the mount passes locks on to the server.
func RefuseNetworkStore(ms Mounts, dir string, shared bool) error {
	m, ok := ms.under(dir)
	switch {
	case !ok || !m.Network():
		return nil
	case !shared:
		return daemon.Errorf(daemon.BadConfig, "the data directory %s lies on a network file system (%s): "+
			"a store with a write-ahead log needs memory that all its processes share, and hosts share none", dir, m).
			Hint("put it on a local disk; or, for a store that several hosts open, make it one: " +
				"exocomp init --shared-store, then exocomp serve --shared-store")
	}
	if option := m.localLocks(); option != "" {
		return daemon.Errorf(daemon.BadConfig, "the data directory %s lies on a mount whose locks no other host sees (%s, option %s)",
			dir, m, option).Hint("mount it without %s; NFS 4 does best: mount -o vers=4.2,hard", option)
	}
	return nil
}

// String names the mount to an operator.
func (m Mount) String() string { return fmt.Sprintf("%s from %s at %s", m.Type, m.Source, m.Point) }
