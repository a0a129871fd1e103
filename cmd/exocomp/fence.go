package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/proc"
)

// fence makes this host quiet: first nothing may start here any more, then what
// runs is killed, then it says what is left. It needs no store and no daemon: it
// is for the night on which neither answers. A file in the state directory keeps
// serve from starting until unfence removes it.

const fenceFile = "fenced.json"

// fenced is what the file says.
type fenced struct {
	By  string        `json:"by"`
	At  daemon.Millis `json:"at"`
	Why string        `json:"why,omitempty"`
}

func (a *app) fenceCmd() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:   "fence",
		Short: "kill daemon, keeper and jobs of this host, and keep serve from starting",
		Long: "fence ends everything that exocomp runs on this host from this state directory, at\n" +
			"once and without a drain, and disables exocomp serve here until exocomp unfence. It\n" +
			"is the first step of a failover by hand: what is quiet cannot write or act any more.\n" +
			"It needs neither a daemon nor a store that answers.",
		RunE: func(c *cobra.Command, _ []string) error { return a.fence(c.Context(), why) },
	}
	c.Flags().StringVar(&why, "why", "", "a sentence for whoever finds it")
	return c
}

func (a *app) unfenceCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "unfence",
		Short: "let serve start on this host again",
		RunE: func(*cobra.Command, []string) error {
			if err := a.localOnly("unfence"); err != nil {
				return err
			}
			err := os.Remove(a.global.state(fenceFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return dirError(a.global.stateDir, err)
			}
			was := err == nil
			if a.json() {
				return a.printJSON(map[string]any{"host": a.global.host, "fenced": false, "was_fenced": was})
			}
			word := "was not fenced"
			if was {
				word = "may serve again: exocomp serve"
			}
			_, err = fmt.Fprintf(a.stdout, "host %s %s\n", a.global.host, word)
			return err
		},
	}
}

// localOnly refuses a verb that only acts on this host when another is named.
func (a *app) localOnly(verb string) error {
	if !a.global.elsewhere() {
		return nil
	}
	return daemon.Errorf(daemon.Usage, "%s acts on this host alone, and commands go to %s", verb, a.talksTo()).
		Hint("run it there; for this host: exocomp --context local %s", verb)
}

func (a *app) fence(ctx context.Context, why string) error {
	if err := a.localOnly("fence"); err != nil {
		return err
	}
	if _, err := os.Stat(a.global.stateDir); err != nil {
		return dirError(a.global.stateDir, err)
	}
	a.sayStore(ctx)
	note := fenced{By: userName(), At: daemon.Millis(time.Now().UnixMilli()), Why: why}
	if err := a.writeFence(note); err != nil {
		return err
	}
	q, err := a.quieten(ctx)
	if err != nil {
		return err
	}
	return a.printQuiet(ctx, q)
}

func (a *app) printQuiet(ctx context.Context, q proc.Quieted) error {
	if a.json() {
		return a.printJSON(map[string]any{"host": a.global.host, "fenced": true, "killed_daemon": q.Daemon,
			"killed_keepers": q.Keepers, "killed_jobs": q.Jobs, "killed_processes": q.Processes, "processes_left": q.Left})
	}
	a.say("killed: %s, %s, %s (%s)", map[bool]string{true: "the daemon", false: "no daemon"}[q.Daemon],
		count(q.Keepers, "keeper", "keepers"), count(q.Jobs, "job", "jobs"), count(q.Processes, "process", "processes"))
	a.say("serve is disabled here until: exocomp unfence")
	if row, err := a.readLeaseSoon(ctx); err == nil && row.State == daemon.LeaseHeld && row.Host == a.global.host {
		a.say("the lease still names %s. A standby takes it %s after its last renewal. At once, on another host:\n"+
			"  exocomp serve --force-lease=%d --old-host-is-off=%[1]s", row.Host, row.TTL(), row.Epoch)
	}
	_, err := fmt.Fprintf(a.stdout, "host %s is quiet: %d processes\n", a.global.host, q.Left)
	return err
}

// sayStore prints the banner if the store can be read: a fence does not wait for
// one that cannot.
func (a *app) sayStore(ctx context.Context) {
	if row, err := a.readLeaseSoon(ctx); err == nil {
		a.say("%s", a.bannerOf(row))
	} else {
		a.say("store not read: %s", short(err.Error(), 160))
	}
}

func (a *app) readLeaseSoon(ctx context.Context) (daemon.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return a.readLease(ctx)
}

// writeFence leaves the file whole or not at all, and what an earlier fence said
// if there was one.
func (a *app) writeFence(f fenced) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	path := a.global.state(fenceFile)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return dirError(a.global.stateDir, err)
	}
	_, err = file.Write(append(text, '\n'))
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Link(path+".new", path)
	}
	_ = os.Remove(path + ".new")
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return dirError(a.global.stateDir, err)
	}
	return nil
}

// checkFence refuses to serve on a host that was fenced.
func (g *globals) checkFence() error {
	text, err := os.ReadFile(g.state(fenceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return dirError(g.stateDir, err)
	}
	var f fenced
	_ = json.Unmarshal(text, &f) // whatever it holds, it is there
	why := ""
	if f.Why != "" {
		why = ": " + short(f.Why, 200)
	}
	return daemon.Errorf(daemon.BadConfig, "serve is disabled on host %s: it was fenced by %s at %s%s", g.host, short(f.By, 60),
		stamp(f.At), why).Hint("make sure that no other host serves this store on its behalf, then: exocomp unfence")
}
