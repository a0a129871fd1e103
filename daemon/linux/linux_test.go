package linux

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/exocomp/exocomp/daemon"
)

func TestTheBootClockRunsAndCountsWhatTheWallCounts(t *testing.T) {
	c := NewClock()
	boot, wall := c.Boot(), c.Now()
	for c.Boot() == boot { // it must move
	}
	if d := c.Boot().Sub(boot) - c.Since(wall); d > time.Second || d < -time.Second {
		t.Errorf("the clocks differ by %s over a moment", d)
	}
	if id, err := BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
}

func TestALockIsHeldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serve.lock")
	if _, held, err := LockHolder(path); held || err != nil {
		t.Errorf("no file: held %v, %v", held, err)
	}
	l, err := TakeLock(path, Holder{Host: "alpha", PID: 42, Incarnation: "inc_1"})
	if err != nil || l.Ino == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	_, err = TakeLock(path, Holder{PID: 43})
	held, ok := errors.AsType[*HeldError](err)
	if !ok || held.Holder.PID != 42 {
		t.Fatalf("second lock: %v", err)
	}
	if r := held.Refusal(); daemon.CodeOf(r) != daemon.Held || !strings.Contains(r.Error(), "pid 42") || daemon.RemedyOf(r) == "" {
		t.Errorf("refusal %v", r)
	}
	if h, held, err := LockHolder(path); !held || h.Host != "alpha" || err != nil {
		t.Errorf("holder %+v, %v, %v", h, held, err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, held, _ := LockHolder(path); held {
		t.Error("held after its release")
	}
	again, err := TakeLock(path, Holder{PID: 44})
	if err != nil || again.Ino != l.Ino {
		t.Errorf("taken again: %+v, %v", again, err)
	}
	again.Release()
}

func TestALookNeverRefusesWhoStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serve.lock")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			LockHolder(path)
		}
	}()
	for range 200 {
		l, err := TakeLock(path, Holder{PID: 1})
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
	<-done
}

func TestASocketMayHaveALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api.sock")
	for range 2 { // a dead socket is replaced
		l, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				io.WriteString(c, "hello")
				c.Close()
			}
		}()
		c, err := DialUnix(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(c); string(text) != "hello" {
			t.Errorf("read %q", text)
		}
		l.(*socket).Listener.Close() // without removing the file, as a crash does
	}
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	if _, err := DialUnix(context.Background(), path); err == nil {
		t.Error("dialled a socket that is not there")
	}
}

func TestAClosedSocketLeavesItsSuccessorAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	first, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := DialUnix(context.Background(), path)
	if err != nil {
		t.Fatalf("the door of the second is gone: %v", err)
	}
	conn.Close()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// supervisor is what systemd is to a service: a socket that takes datagrams.
func supervisor(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestTheSupervisorIsTold(t *testing.T) {
	next := supervisor(t)
	ready := false
	p := &Process{StateDir: t.TempDir(), OnReady: func() { ready = true }}
	tests := []struct {
		tell func() error
		want string
	}{
		{p.Ready, "READY=1\nSTATUS=active"},
		{p.Standby, "READY=1\nSTATUS=standby"},
		{func() error { return p.Waiting("watching") }, "EXTEND_TIMEOUT_USEC=10000000\nSTATUS=watching"},
		{func() error { return p.Stopping("bye") }, "STOPPING=1\nSTATUS=bye"},
	}
	for _, tt := range tests {
		if err := tt.tell(); err != nil {
			t.Error(err)
		}
		if got := next(); got != tt.want {
			t.Errorf("told %q, want %q", got, tt.want)
		}
	}
	if !ready {
		t.Error("OnReady was not called")
	}
	t.Setenv("WATCHDOG_USEC", "1000000")
	p.Feed()
	if got := next(); got != "WATCHDOG=1" {
		t.Errorf("told %q", got)
	}
}

func TestWithoutASupervisorNobodyIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	p := &Process{StateDir: t.TempDir()}
	if err := p.Ready(); err != nil {
		t.Error(err)
	}
	p.Feed()
}

func TestAStandDownIsALineInTheStateDir(t *testing.T) {
	p := &Process{StateDir: t.TempDir()}
	for _, why := range []string{"one", "two"} {
		if err := p.StandDown(daemon.StandDown{Host: "alpha", Epoch: 7, Why: why}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(p.StateDir, StandDownFile))
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || len(lines) != 2 ||
		!strings.Contains(lines[1], `"why":"two"`) || !strings.Contains(lines[1], `"epoch":7`) {
		t.Errorf("%s, %v", text, err)
	}
}

// watch runs the watchdog in a synctest bubble whose time is the boot clock.
func watch(t *testing.T, snap func() *daemon.Snapshot, past time.Duration) (code int, after time.Duration) {
	t.Helper()
	begin := time.Now()
	codes := make(chan int, 1)
	done := make(chan struct{})
	go watchdog(clock.New(), func() daemon.Boottime { return daemon.Boottime(time.Since(begin)) }, snap, done,
		func(code int) { codes <- code })
	select {
	case code = <-codes:
	case <-time.After(past):
		code = -1
	}
	after = time.Since(begin)
	close(done)
	synctest.Wait()
	return code, after
}

func TestTheWatchdogEndsALoopThatIsStuckPastItsTrust(t *testing.T) {
	tests := []struct {
		name string
		snap daemon.Snapshot
		want int
	}{
		{"active, and trusted", daemon.Snapshot{Role: daemon.Active, TrustUntil: 1 << 60}, -1},
		{"active, past its trust", daemon.Snapshot{Role: daemon.Active, TrustUntil: daemon.Boottime(10 * time.Second)}, 77},
		{"booting, past its trust", daemon.Snapshot{Role: daemon.Booting, TrustUntil: daemon.Boottime(10 * time.Second)}, 77},
		{"fenced", daemon.Snapshot{Role: daemon.Fenced, TrustUntil: 1 << 60}, 77},
		{"watching", daemon.Snapshot{Role: daemon.Watching}, -1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			code, after := watch(t, func() *daemon.Snapshot { return &tt.snap }, time.Minute)
			if code != tt.want {
				t.Errorf("%s: exit %d, want %d", tt.name, code, tt.want)
			}
			if tt.snap.TrustUntil == daemon.Boottime(10*time.Second) && (after < 11*time.Second || after > 12*time.Second) {
				t.Errorf("%s: after %s, want a second past the end of trust", tt.name, after)
			}
		})
	}
}
