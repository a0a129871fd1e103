package linux

import (
	"context"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// PauseFor returns a daemon.Pause of d.
func PauseFor(d time.Duration) daemon.Pause {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	}
}
