//go:build testclock

package linux

import (
	"os"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
)

// This file is in no release. With the build tag testclock the wall clock of a
// real daemon is off by what the file named in EXOCOMP_TEST_CLOCK says, such as
// -1h: a static binary cannot be lied to by LD_PRELOAD, and a time namespace
// does not shift the wall clock.

func wall() clock.Clock { return skewed{clock.New()} }

// skewed is a clock whose Now is off. Its timers run at the right pace.
type skewed struct{ clock.Clock }

// Now implements clock.Clock.
func (s skewed) Now() time.Time { return s.Clock.Now().Add(offset()) }

// Since implements clock.Clock.
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Until implements clock.Clock.
func (s skewed) Until(t time.Time) time.Duration { return t.Sub(s.Now()) }

func offset() time.Duration {
	text, err := os.ReadFile(os.Getenv("EXOCOMP_TEST_CLOCK"))
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic("EXOCOMP_TEST_CLOCK: " + err.Error())
	}
	return d
}
