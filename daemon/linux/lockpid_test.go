package linux

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// holdLock starts a process that locks path and writes text into it.
func holdLock(t *testing.T, path, text string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("flock", "--no-fork", path, "sh", "-c", `printf '%s' "$1" > "$2"; echo; exec sleep 1000`, "sh", text, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs flock(1): %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// The holder is whom the kernel names. What the file says is a claim: of a dead
// process whose number is another's now, of nobody, or of somebody untrue.
func TestTheHolderOfALockIsWhomTheKernelNames(t *testing.T) {
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bystander.Process.Kill()
		bystander.Wait()
	})
	for name, text := range map[string]string{
		"another's number": fmt.Sprintf(`{"pid":%d}`, bystander.Process.Pid),
		"its own":          "",
		"torn":             `{"pid":`,
		"no such process":  `{"pid":2147483647}`,
		"a group":          `{"pid":-1}`,
	} {
		path := filepath.Join(t.TempDir(), "keeper.lock")
		if pid, held, err := LockPID(path); pid != 0 || held || err != nil {
			t.Errorf("%s: no file: %d, %v, %v", name, pid, held, err)
		}
		holder := holdLock(t, path, text)
		if name == "its own" {
			if err := os.WriteFile(path, fmt.Appendf(nil, `{"pid":%d}`, holder.Process.Pid), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if pid, held, err := LockPID(path); pid != holder.Process.Pid || !held || err != nil {
			t.Errorf("%s: %d, %v, %v, want %d", name, pid, held, err, holder.Process.Pid)
		}
		holder.Process.Kill()
		holder.Wait()
		if pid, held, err := LockPID(path); pid != 0 || held || err != nil {
			t.Errorf("%s: after its end: %d, %v, %v", name, pid, held, err)
		}
	}
}

// A process that has the file open, or looks whether it is locked, holds nothing.
func TestAnOpenFileIsNotALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keeper.lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if pid, held, err := LockPID(path); pid != 0 || held || err != nil {
		t.Errorf("open: %d, %v, %v", pid, held, err)
	}
	holder := holdLock(t, path, "")
	if pid, held, err := LockPID(path); pid != holder.Process.Pid || !held || err != nil {
		t.Errorf("open here, held there: %d, %v, %v", pid, held, err)
	}
}
