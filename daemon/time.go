package daemon

import (
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
)

// A host has two clocks, and they are good for different things.
//
// The wall clock names instants to people and to cron. It may step, drift and
// be years off, so nothing that grants, refuses or kills compares wall times.
//
// The boot clock (CLOCK_BOOTTIME) only measures how long something took on
// this host since it booted. It never steps and it counts suspends, which Go's
// own monotonic clock does not: a lease kept by time.Since survives the night
// in a closed laptop.

// Boottime is an instant on one host's boot clock, in nanoseconds. It means
// nothing on another host, nor after a reboot.
type Boottime int64

// Add returns the instant d after b.
func (b Boottime) Add(d time.Duration) Boottime { return b + Boottime(d) }

// Sub returns how long after a the instant b comes.
func (b Boottime) Sub(a Boottime) time.Duration { return time.Duration(b - a) }

// Clock tells both clocks of a host. Production hands in a real one. The
// simulator's knows the time and no more: asking it for a timer is a bug.
type Clock interface {
	clock.Clock
	// Boot reads CLOCK_BOOTTIME.
	Boot() Boottime
}

// Instant is one reading of both clocks.
type Instant struct {
	Wall time.Time
	Boot Boottime
}

// ReadClock reads both clocks of c.
func ReadClock(c Clock) Instant { return Instant{Wall: c.Now().UTC(), Boot: c.Boot()} }

// Millis is a wall instant as the store keeps it: integer milliseconds since
// 1970, UTC; 0 is "not yet". In JSON it is an RFC 3339 string, or "".
type Millis int64

// Ms returns the wall time of i in the form that the store keeps.
func (i Instant) Ms() Millis { return Millis(i.Wall.UnixMilli()) }

// Time returns m as a UTC time.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// millisLayout is RFC 3339 with milliseconds: what the store can keep.
const millisLayout = "2006-01-02T15:04:05.000Z07:00"

// MarshalText implements encoding.TextMarshaler.
func (m Millis) MarshalText() ([]byte, error) {
	if m == 0 {
		return nil, nil
	}
	return []byte(m.Time().Format(millisLayout)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Millis) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = 0
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("time %q: want RFC 3339, such as 2030-01-31T03:00:00Z", text)
	}
	*m = Millis(t.UnixMilli())
	return nil
}

// earliest is the oldest wall time that can be true: a host whose clock says
// less has lost it, and every timestamp it wrote would be a lie.
var earliest = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// CheckWall refuses a wall clock that cannot be right.
func CheckWall(now time.Time) error {
	if now.Before(earliest) {
		return Errorf(BadConfig, "the clock of this host says %s, which is before 2020",
			now.UTC().Format(time.RFC3339)).
			Hint("set the clock (timedatectl, or start the NTP client) and start again")
	}
	return nil
}
