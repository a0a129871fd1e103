package linux

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon"
)

func probe(t *testing.T, role string, env ...string) error {
	t.Helper()
	dir := t.TempDir()
	err := ProbeLocks(t.Context(), dir, func(args ...string) *exec.Cmd {
		cmd := inRole(role, args...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	})
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%s: left behind: %v", role, left)
	}
	return err
}

func TestLocksOfAnHonestFileSystemPassTheProbe(t *testing.T) {
	if err := probe(t, "answer"); err != nil {
		t.Error(err)
	}
}

// A second process that lies about one answer is what a file system looks like
// on which that does not work.
func TestTheProbeNamesWhatIsBroken(t *testing.T) {
	tests := []struct{ lie, want string }{
		{"try 1=got", "a second process got a lock that this one holds"},
		{"try 2=refused", "a lock that was released is still refused to a second process"},
		{"try 2=got", "this process got a lock that a second one holds"},
		{"share 1=refused", "two processes cannot hold a shared lock together"},
		{"share 1=got", "this process got a lock to write while a second one reads"},
		{"read 1=read something else", "a second process does not read what this one wrote and synced"},
		{"write 1=written", "this process does not read what a second one wrote and synced"},
	}
	for _, tt := range tests {
		refused(t, tt.lie, probe(t, "liar", "LIE="+tt.lie), "do not work between processes: "+tt.want)
	}
}

func refused(t *testing.T, name string, err error, want string) {
	t.Helper()
	if err == nil || daemon.CodeOf(err) != daemon.BadConfig || !strings.Contains(err.Error(), want) || daemon.RemedyOf(err) == "" {
		t.Errorf("%s: got %v, remedy %q; want %q", name, err, daemon.RemedyOf(err), want)
	}
}

func TestALockThatOutlivesItsHolderIsBroken(t *testing.T) {
	until, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer until.Close()
	defer end.Close()
	dir := t.TempDir()
	err = ProbeLocks(t.Context(), dir, func(args ...string) *exec.Cmd {
		cmd := inRole("keepsake", args...)
		cmd.ExtraFiles = []*os.File{until}
		return cmd
	})
	refused(t, "keepsake", err, "a lock outlives the process that held it")
}

func TestAProbeThatCannotBeMadeSaysSo(t *testing.T) {
	refused(t, "gone", probe(t, "gone"), "cannot be probed")
	refused(t, "error", probe(t, "liar", "LIE=try 1=error: no space left"), "cannot be probed: the second process: error: no space left")
	self := func(args ...string) *exec.Cmd { return exec.Command(filepath.Join(t.TempDir(), "none")) }
	refused(t, "no binary", ProbeLocks(t.Context(), t.TempDir(), self), "start a second process")
	refused(t, "no directory", ProbeLocks(t.Context(), filepath.Join(t.TempDir(), "none"), self), "no such file")
}

func TestAProbeThatHangsIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := ProbeLocks(ctx, t.TempDir(), func(args ...string) *exec.Cmd {
		cancel() // as its time limit would, while the answer is awaited
		return inRole("mute", args...)
	})
	refused(t, "mute", err, "no answer in time")
}
