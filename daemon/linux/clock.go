// Package linux is the host as the daemon sees it: its clocks, its locks, its
// sockets, the supervisor that started it. It is the only adapter that knows
// which machine this is.
package linux

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/benbjohnson/clock"
	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// Clock is the real daemon.Clock.
type Clock struct{ clock.Clock }

var _ daemon.Clock = Clock{}

// NewClock returns the clocks of this host.
func NewClock() Clock { return Clock{wall()} }

// Boot implements daemon.Clock: CLOCK_BOOTTIME, which goes on in a suspend.
func (Clock) Boot() daemon.Boottime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME cannot be read: " + err.Error()) // Linux has it since 2.6.39
	}
	return daemon.Boottime(ts.Nano())
}

// BootID names this boot of the machine.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Chance is the real daemon.Chance: the kernel's.
type Chance struct{}

var _ daemon.Chance = Chance{}

// Uint64 implements daemon.Chance.
func (Chance) Uint64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.NativeEndian.Uint64(b[:])
}
