package kernel

import (
	"math/bits"
	"time"
)

// HostClock is the pair of clocks of one simulated host: a wall clock, which may
// be wrong and may step, and a boot clock, which only counts. Both run at the
// rate of the same crystal, and both stand still while a virtual machine is
// paused. A suspended host's clocks go on; that its processes do not is the
// world's affair.
type HostClock struct {
	k      *Kernel
	mark   Time // true time at which wall and boot were as below
	wall   time.Time
	boot   int64
	rate   int64 // local nanoseconds per million true ones
	paused bool
}

const million = 1_000_000

// never is further ahead than any simulation runs: a deadline of "no deadline".
const never = int64(200 * 365 * 24 * time.Hour)

// NewHostClock returns clocks that are right, and a boot clock that has run for
// uptime.
func NewHostClock(k *Kernel, start time.Time, uptime time.Duration) *HostClock {
	return &HostClock{k: k, mark: k.now, wall: start.Add(time.Duration(k.now)), boot: int64(uptime), rate: million}
}

// Read returns both clocks.
func (c *HostClock) Read() (wall time.Time, boot int64) {
	if c.paused {
		return c.wall, c.boot
	}
	passed := mulDiv(int64(c.k.now-c.mark), c.rate, million)
	return c.wall.Add(time.Duration(passed)), c.boot + passed
}

func (c *HostClock) settle() { c.wall, c.boot = c.Read(); c.mark = c.k.now }

// StepWall moves the wall clock by d.
func (c *HostClock) StepWall(d time.Duration) {
	c.settle()
	c.wall = c.wall.Add(d)
}

// SetRate makes both clocks run at ppm local nanoseconds per million true ones:
// 1_000_000 is right, 1_100_000 is ten percent fast.
func (c *HostClock) SetRate(ppm int64) {
	c.settle()
	c.rate = ppm
}

// Pause stops both clocks, as a hypervisor does.
func (c *HostClock) Pause() { c.settle(); c.paused = true }

// Resume lets both clocks go on from where they stood.
func (c *HostClock) Resume() {
	if c.paused {
		c.mark, c.paused = c.k.now, false
	}
}

// Reboot sets the boot clock to 0.
func (c *HostClock) Reboot() { c.settle(); c.boot = 0 }

// When returns the true time at which the boot clock will show boot, if nothing
// changes until then. A paused clock never gets there, and no clock gets to what
// is further away than never: ok is false.
func (c *HostClock) When(boot int64) (t Time, ok bool) {
	_, now := c.Read()
	switch {
	case boot <= now:
		return c.k.now, true
	case c.paused, boot-c.boot > never:
		return 0, false
	}
	left := mulDiv(boot-c.boot, million, c.rate)
	t = c.mark.Add(time.Duration(left))
	for mulDiv(int64(t-c.mark), c.rate, million) < boot-c.boot {
		t++
	}
	return t, true
}

// mulDiv returns a*b/c without overflow, for a >= 0 and b, c > 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quo, _ := bits.Div64(hi, lo, uint64(c))
	return int64(quo)
}
