package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

// statusDoc is what status prints with -o json.
type statusDoc struct {
	daemon.Status
	Via viaDoc `json:"via"`
}

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "say what the daemon and the store are doing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(statusDoc{st, a.via()})
			}
			return a.printStatus(st)
		},
	}
}

func (a *app) printStatus(st daemon.Status) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	line("talks to", "%s", a.talksTo())
	line("daemon", "%s", daemonLine(st.Daemon))
	if d := st.Daemon; d != nil && d.Doubt {
		line("doubt", "%d renewals failed: what runs goes on, nothing starts", st.Lease.Missed)
	}
	if d := st.Daemon; d != nil && d.Trouble != "" {
		line("trouble", "%s", short(d.Trouble, 300))
	}
	line("lease", "%s", leaseLine(st.Lease))
	if wait := leashWaitLine(st.Lease); wait != "" {
		line("leash wait", "%s", wait)
	}
	if forced := forcedLine(st.Lease.Lease); forced != "" {
		line("forced", "%s", forced)
	}
	if d := st.Daemon; d != nil && d.LeashPartial {
		line("leash", "partial: no cgroup is delegated here, so a job may hide a process (see docs/operations/lease.md)")
	}
	line("store", "%s, lineage %d", st.StoreID, st.Lineage)
	line("jobs", "%s", jobsLine(st))
	if _, err := fmt.Fprint(a.stdout, b.String()); err != nil {
		return err
	}
	if err := a.global.checkFence(); err != nil && !a.global.elsewhere() {
		if _, err := fmt.Fprintf(a.stdout, "%-10s %s\n", "fenced", err); err != nil {
			return err
		}
	}
	return a.printCordons(st.Cordons)
}

func daemonLine(d *daemon.DaemonStatus) string {
	if d == nil {
		return "none answers on this host"
	}
	role := string(d.Role)
	if d.Stopping != "" {
		role = "stopping (" + d.Stopping + "),"
	}
	return fmt.Sprintf("%s on %s, pid %d, %d of %d jobs running", role, d.Host, d.PID, d.Running, d.Limit)
}

func jobsLine(st daemon.Status) string {
	var parts []string
	for _, s := range daemon.States[:4] {
		n := fmt.Sprint(st.Jobs[string(s)])
		if st.Jobs[string(s)] > 10_000 {
			n = "over 10000"
		}
		parts = append(parts, n+" "+string(s))
	}
	return strings.Join(parts, ", ")
}
