package linux

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// Process is the daemon.Process port: this process, and the supervisor that
// started it, if NOTIFY_SOCKET names one.
type Process struct {
	StateDir string
	Log      *slog.Logger
	OnReady  func() // told once the daemon is the active one

	mu       sync.Mutex
	code     int
	why      string
	watchdog time.Duration
	fed      time.Time
}

var _ daemon.Process = (*Process)(nil)

// StandDownFile is where a daemon that lost its lease says so: beside the
// store, which is no longer its own to write.
const StandDownFile = "standdown.jsonl"

// Ready implements daemon.Process.
func (p *Process) Ready() error {
	if p.OnReady != nil {
		p.OnReady()
	}
	return p.notify(systemd.SdNotifyReady + "\nSTATUS=active")
}

// Standby tells the supervisor that the start is over, though this daemon is
// not the active one.
func (p *Process) Standby() error { return p.notify(systemd.SdNotifyReady + "\nSTATUS=standby") }

// Waiting asks the supervisor for more time: the lease is being watched.
func (p *Process) Waiting(why string) error {
	return p.notify("EXTEND_TIMEOUT_USEC=10000000\nSTATUS=" + why)
}

// Stopping implements daemon.Process.
func (p *Process) Stopping(why string) error {
	return p.notify(systemd.SdNotifyStopping + "\nSTATUS=" + why)
}

// Feed feeds the supervisor's watchdog. Only the loop calls it: a daemon whose
// loop is stuck must be killed.
func (p *Process) Feed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchdog == 0 {
		interval, err := systemd.SdWatchdogEnabled(false)
		if err != nil || interval == 0 {
			interval = -1
		}
		p.watchdog = interval
	}
	if now := time.Now(); p.watchdog > 0 && now.Sub(p.fed) >= p.watchdog/4 {
		p.fed = now
		if err := p.notify(systemd.SdNotifyWatchdog); err != nil {
			p.Log.Warn("the supervisor's watchdog could not be fed", "err", err)
		}
	}
}

func (p *Process) notify(state string) error {
	if _, err := systemd.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}

// StandDown implements daemon.Process.
func (p *Process) StandDown(n daemon.StandDown) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := filepath.Join(p.StateDir, StandDownFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note the stand-down: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Exit implements daemon.Process: whoever runs the loop sees its code and ends
// the process in order.
func (p *Process) Exit(code int, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.why = code, why
}

// LastWords returns what Exit was told.
func (p *Process) LastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// Watchdog ends the process hard, with 77, when the loop is still there a second
// after its trust in the lease is over, or after it was fenced: it must be stuck,
// and whatever it would do next it has no right to. A process that slept past that point gets its
// second from the moment it wakes, so that the loop can go in order. Watchdog
// returns when done is closed.
func Watchdog(c Clock, snap func() *daemon.Snapshot, done <-chan struct{}, exit func(int)) {
	watchdog(c, c.Boot, snap, done, exit)
}

func watchdog(c clock.Clock, boot func() daemon.Boottime, snap func() *daemon.Snapshot, done <-chan struct{},
	exit func(int)) {
	const tick = 250 * time.Millisecond
	timer := c.Ticker(tick)
	defer timer.Stop()
	late := 0
	for {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		s := snap()
		if s.Role == daemon.Fenced || s.Holds() && boot() >= s.TrustUntil {
			if late++; late > int(time.Second/tick) {
				exit(daemon.ExitWatchdog)
				return
			}
			continue
		}
		late = 0
	}
}

// BecomeSubreaper makes orphans among this process's descendants its children,
// instead of init's: they can be found, and killed.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// SignalNumber returns the number of a signal's name, or 0.
func SignalNumber(name string) int { return int(unix.SignalNum(name)) }
