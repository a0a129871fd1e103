package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupFile names, in the state dir, the cgroup of the newest keeper.
const cgroupFile = "keeper.cgroup"

// EndLeftovers kills what a keeper of stateDir left running, and returns when it
// is gone. Whoever calls it holds the keeper's lock, so that keeper is dead.
func EndLeftovers(stateDir, marker string) error {
	if old, err := os.ReadFile(filepath.Join(stateDir, cgroupFile)); err == nil && len(old) > 0 {
		if err := removeCgroups(string(old)); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left, err := marked(marker)
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

// marked returns the processes whose environment says that they are jobs of the
// state dir with that marker, and all that descends from them.
func marked(marker string) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return descendants(all, func(p process) bool {
		return p.pid != self && p.state != 'Z' && environment(p.pid, MarkerName) == marker &&
			environment(p.pid, "EXOCOMP_ATTEMPT") != ""
	}), nil
}
