package daemon

import (
	"context"
	"fmt"
)

// Ports are the adapters that effects go to.
type Ports struct {
	Runner  Runner
	Process Process
}

// Perform hands one effect to its port, and returns the event that tells of a
// failure, or nil. Loop and the simulator share it, so that a test takes the
// path to an adapter that production takes.
//
// Before anything that acts on the world it reads the boot clock once more: a
// process that slept between commit and here must not act past its trust (S8).
func (d *Daemon) Perform(ctx context.Context, eff Effect, p Ports) Event {
	if !d.mayPerform(eff) {
		d.log.Warn("not done: trust ran out between the commit and the act", "effect", fmt.Sprintf("%T", eff))
		return nil
	}
	var err error
	switch eff := eff.(type) {
	case Hello:
		if err = p.Runner.Hello(ctx, eff); err != nil {
			return KeeperLost{Why: err.Error()}
		}
	case Start:
		if err = p.Runner.Start(ctx, eff); err != nil {
			return StartFailed{Instance: d.keeper.instance, Attempt: eff.Attempt, Why: err.Error(), Refused: true}
		}
	case Signal:
		err = p.Runner.Signal(ctx, eff)
	case Extend:
		err = p.Runner.Extend(ctx, eff)
	case List:
		err = p.Runner.List(ctx)
	case Forget:
		err = p.Runner.Forget(ctx, eff.Attempts)
	case KillAll:
		err = p.Runner.KillAll(ctx)
	case Ready:
		err = p.Process.Ready()
	case Stopping:
		err = p.Process.Stopping(eff.Why)
	case Note:
		err = p.Process.StandDown(eff.StandDown)
	case Reply:
		eff.To.Reply(eff.Result, eff.Err)
	case Leave:
		p.Process.Exit(eff.Code, eff.Why)
	default:
		panic(fmt.Sprintf("unknown effect %T", eff))
	}
	if err != nil { // owed again by the next Steps, or by nobody
		d.log.Warn("effect failed", "effect", fmt.Sprintf("%T", eff), "err", err)
	}
	return nil
}

// mayPerform lets the end of a daemon through at any time, and all else only
// within its trust.
func (d *Daemon) mayPerform(eff Effect) bool {
	switch eff.(type) {
	case Reply, KillAll, Note, Stopping, Leave:
		return true
	}
	return !d.lapsed(d.clock.Boot())
}
