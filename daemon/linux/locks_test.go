package linux

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/sqlite"
	"github.com/exocomp/exocomp/daemon/storetest"
)

const someLocks = `1: FLOCK  ADVISORY  WRITE 411 08:02:1001 0 EOF
2: POSIX  ADVISORY  READ  412 08:02:1002 1073741826 1073742335
3: POSIX  ADVISORY  WRITE 413 08:02:1002 1073741825 1073741825
3: -> POSIX  ADVISORY  WRITE 414 08:02:1002 1073741825 1073741825
4: OFDLCK ADVISORY  WRITE -1 08:02:1003 120 120
5: POSIX  ADVISORY  WRITE 415 103:12:18446744073709551615 120 127
6: POSIX  ADVISORY  READ  416 08:02:1004 0 EOF
7: POSIX  ADVISORY  WRITE 0 08:02:1005 0 EOF
8: POSIX  ADVISORY  WRITE many 08:02:1005 0 EOF
9: LEASE  ACTIVE    WRITE 417 08:02:1006 0 EOF
short
`

func TestLocksAreReadAsTheKernelWritesThem(t *testing.T) {
	got, err := parseLocks(strings.NewReader(someLocks))
	if err != nil {
		t.Fatal(err)
	}
	disk := unix.Mkdev(8, 2)
	want := []fileLock{
		{write: false, pid: 412, dev: disk, inode: 1002, first: 1073741826, last: 1073742335},
		{write: true, pid: 413, dev: disk, inode: 1002, first: 1073741825, last: 1073741825},
		{write: true, pid: 415, dev: unix.Mkdev(0x103, 0x12), inode: math.MaxUint64, first: 120, last: 127},
		{write: false, pid: 416, dev: disk, inode: 1004, first: 0, last: math.MaxInt64},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTheWriterIsWhoHoldsTheWriteLock(t *testing.T) {
	locks, err := parseLocks(strings.NewReader(someLocks))
	if err != nil {
		t.Fatal(err)
	}
	disk, nvme := unix.Mkdev(8, 2), unix.Mkdev(0x103, 0x12)
	tests := []struct {
		name        string
		id          fileID
		first, last int64
		want        int
	}{
		{"RESERVED, beside a reader", fileID{[2]uint64{disk, disk}, 1002}, pendingByte, sharedFirst + sharedSize - 1, 413},
		{"a reader is no writer", fileID{[2]uint64{disk, disk}, 1002}, sharedFirst, sharedFirst + sharedSize - 1, 0},
		{"another file system's inode", fileID{[2]uint64{nvme, nvme}, 1002}, pendingByte, sharedFirst, 0},
		{"the device of the mount", fileID{[2]uint64{nvme, disk}, 1002}, pendingByte, sharedFirst, 413},
		{"recovery", fileID{[2]uint64{nvme, nvme}, math.MaxUint64}, walWriteLock, walWriteLock, 415},
		{"somebody in another pid namespace", fileID{[2]uint64{disk, disk}, 1005}, 0, 1, 0},
	}
	for _, tt := range tests {
		if pid, _ := writer(locks, tt.id, tt.first, tt.last); pid != tt.want {
			t.Errorf("%s: pid %d, want %d", tt.name, pid, tt.want)
		}
	}
}

func newStore(t *testing.T, shared bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exocomp.db")
	anchor, err := sqlite.Create(t.Context(), sqlite.Options{Path: path, Shared: shared}, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := anchor.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheOwnerOfAStoresLockIsNamed(t *testing.T) {
	for _, shared := range []bool{false, true} {
		path := newStore(t, shared)
		nobody(t, path)
		cmd := inRole("writer", path)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if word, err := bufio.NewReader(out).ReadString('\n'); word != "locked\n" {
			t.Errorf("the writer said %q, %v", word, err)
		}
		o, held, err := LockOwner(path)
		if err != nil || !held || o.PID != cmd.Process.Pid || o.Self || !strings.Contains(o.Command, filepath.Base(os.Args[0])) {
			t.Errorf("shared %v: %+v, held %v, %v; want pid %d", shared, o, held, err, cmd.Process.Pid)
		}
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		nobody(t, path)
	}
}

func nobody(t *testing.T, path string) {
	t.Helper()
	if o, held, err := LockOwner(path); held || err != nil {
		t.Errorf("%s: %+v, held %v, %v; want nobody", path, o, held, err)
	}
}

func TestThisProcessIsNamedAsItself(t *testing.T) {
	for _, shared := range []bool{false, true} {
		path := newStore(t, shared)
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Shared: shared})
		if err != nil {
			t.Fatal(err)
		}
		nobody(t, path)
		err = s.Update(t.Context(), daemon.Guard{}, func(daemon.Tx) error {
			o, held, err := LockOwner(path)
			if !held || !o.Self || !strings.HasPrefix(o.String(), "this process itself, pid ") {
				t.Errorf("shared %v: %s, held %v", shared, o, held)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

func TestAnOwnerIsShownOnOneSafeLine(t *testing.T) {
	tests := []struct {
		o    Owner
		want string
	}{
		{Owner{PID: 7}, "pid 7"},
		{Owner{PID: 7, Command: printable("sqlite3\x00x.db\x00")}, "pid 7 (sqlite3 x.db)"},
		{Owner{PID: 7, Command: printable("a\x1b[31m\nb\x00\u202ec\xff\x00")}, "pid 7 (a [31m b c\ufffd)"},
		{Owner{PID: 7, Command: "x", Self: true}, "this process itself, pid 7"},
		{Owner{PID: 7, Command: printable(strings.Repeat("é", 100))}, fmt.Sprintf("pid 7 (%s...)", strings.Repeat("é", 77))},
	}
	for _, tt := range tests {
		if got := tt.o.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if o := ownerOf(1 << 30); o.Command != "" || o.PID != 1<<30 {
		t.Errorf("a process that is gone: %+v", o)
	}
}
