package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A supervisor, as systemd is one, hears from the real daemon: READY when it is
// active, WATCHDOG from its loop, STOPPING when it ends.
func TestTheSupervisorHearsFromTheDaemon(t *testing.T) {
	dir := t.TempDir()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data := filepath.Join(dir, "data")
	t.Setenv("EXOCOMP_DATA_DIR", data)
	if code := run(context.Background(), []string{"init"}, nil, os.Stderr, os.Stderr); code != 0 {
		t.Fatalf("init: %d", code)
	}
	path, err := exec.LookPath("exocomp")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "--listen", "none")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "n"), "WATCHDOG_USEC=2000000")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	hear := func(want string) {
		t.Helper()
		var heard []string
		for buf := make([]byte, 4096); ; {
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("no %s: %v; heard %q", want, err, heard)
			}
			heard = append(heard, string(buf[:n]))
			if strings.Contains(string(buf[:n]), want) {
				return
			}
		}
	}
	hear("READY=1\nSTATUS=active")
	hear("WATCHDOG=1")
	hear("WATCHDOG=1")
	cmd.Process.Signal(syscall.SIGTERM)
	hear("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
