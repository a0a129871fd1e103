//go:build !testclock

package linux

import "github.com/benbjohnson/clock"

func wall() clock.Clock { return clock.New() }
