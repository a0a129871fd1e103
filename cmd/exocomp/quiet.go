package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/proc"
)

// localDoc is what runs on this host from its state directory, whoever holds the
// lease: a unit that is dead may leave a keeper alive.
type localDoc struct {
	Host   string `json:"host"`
	Daemon int    `json:"daemon_pid,omitempty"`
	Keeper int    `json:"keeper_pid,omitempty"`
	Jobs   int    `json:"jobs"`
	Procs  int    `json:"job_processes"`
	Fenced bool   `json:"fenced"`
	Error  string `json:"error,omitempty"`
}

func (d localDoc) String() string {
	if d.Error != "" {
		return d.Host + ": could not be looked at: " + short(d.Error, 160)
	}
	var parts []string
	for _, p := range []struct {
		name string
		pid  int
	}{{"daemon", d.Daemon}, {"keeper", d.Keeper}} {
		if p.pid != 0 {
			parts = append(parts, fmt.Sprintf("%s pid %d", p.name, p.pid))
		} else {
			parts = append(parts, "no "+p.name)
		}
	}
	parts = append(parts, fmt.Sprintf("%s (%s)", count(d.Jobs, "job", "jobs"), count(d.Procs, "process", "processes")))
	if d.Fenced {
		parts = append(parts, "fenced: serve is disabled until exocomp unfence")
	}
	return d.Host + ": " + strings.Join(parts, ", ")
}

// look counts what runs here.
func (a *app) look() *localDoc {
	doc := &localDoc{Host: a.global.host, Fenced: daemon.CodeOf(a.global.checkFence()) == daemon.BadConfig}
	pid, _, err := linux.LockPID(a.global.state(serveLock))
	if err == nil {
		doc.Daemon = pid
		var c proc.Census
		c, err = proc.Count(a.quietOptions(0))
		doc.Keeper, doc.Jobs, doc.Procs = c.Keeper, c.Jobs, c.Processes
	}
	if err != nil {
		doc.Error = err.Error()
	}
	return doc
}

func (a *app) quietOptions(daemon int) proc.QuietOptions {
	g := &a.global
	return proc.QuietOptions{StateDir: g.stateDir, Marker: g.state(apiSocket), Holder: a.keeperHolder,
		Dial: dialer(g.state(keeperSocket)), Daemon: daemon}
}

// quietWithin is how long a fence tries. A process that does not die to SIGKILL by
// then hangs in the kernel.
const quietWithin = 30 * time.Second

// quieten kills until nothing is left. A daemon may have got the lock a moment
// before the fence stood: the next round finds it.
func (a *app) quieten(ctx context.Context) (proc.Quieted, error) {
	ctx, cancel := context.WithTimeout(ctx, quietWithin)
	defer cancel()
	var sum proc.Quieted
	for {
		pid, held, err := linux.LockPID(a.global.state(serveLock))
		if err != nil {
			return sum, dirError(a.global.stateDir, err)
		}
		if held && pid == 0 {
			return sum, daemon.Errorf(daemon.Forbidden, "a daemon runs here that this user may not see, and so not kill").
				Hint("run fence as the user of the daemon, or as root")
		}
		q, err := proc.Quiet(ctx, a.quietOptions(pid))
		sum = proc.Quieted{Daemon: sum.Daemon || q.Daemon, Keepers: sum.Keepers + q.Keepers, Jobs: sum.Jobs + q.Jobs,
			Processes: sum.Processes + q.Processes, Left: q.Left}
		if err != nil || !held {
			return sum, err
		}
	}
}
