package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// EndLeftovers kills what a keeper of stateDir left running, and returns when it
// is gone. Whoever calls it holds the keeper's lock, so that keeper is dead.
func EndLeftovers(stateDir, marker string) error {
	s := premises{stateDir: stateDir, marker: marker}
	if err := removeCgroups(s.group()); err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left, err := s.jobs(process{})
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of an earlier keeper do not die, the first is %d", len(left), left[0].pid)
		}
		for _, p := range left {
			p.kill(unix.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
