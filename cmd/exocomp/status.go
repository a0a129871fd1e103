package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

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
				return a.printJSON(st)
			}
			return a.printStatus(st)
		},
	}
}

func (a *app) printStatus(st daemon.Status) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("daemon", "%s", daemonLine(st.Daemon))
	if d := st.Daemon; d != nil && d.Doubt {
		line("doubt", "%d renewals failed: what runs goes on, nothing starts", st.Lease.Missed)
	}
	line("lease", "%s", leaseLine(st.Lease))
	line("store", "%s, lineage %d", st.StoreID, st.Lineage)
	line("jobs", "%s", jobsLine(st))
	if _, err := fmt.Fprint(a.stdout, b.String()); err != nil {
		return err
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

func leaseLine(l daemon.LeaseReport) string {
	if l.Epoch == 0 {
		return "never held"
	}
	age := span(time.Duration(l.AgeMs) * time.Millisecond)
	switch {
	case l.State == daemon.LeaseReleased:
		return fmt.Sprintf("released by %s %s ago (epoch %d)", l.Host, age, l.Epoch)
	case l.HeldHere:
		return fmt.Sprintf("held here (epoch %d), trusted for another %s", l.Epoch, span(time.Duration(l.TrustLeftMs)*time.Millisecond))
	}
	return fmt.Sprintf("held by %s, pid %d (epoch %d), renewed %s ago by its clock", l.Host, l.PID, l.Epoch, age)
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

func (a *app) leaseCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "lease",
		Short: "say who holds the store",
		Long: "lease shows the lease row, also without a daemon. Ages are by this host's wall\n" +
			"clock: they are for people, and decide nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			l, err := c.Lease(cmd.Context())
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(l)
			}
			return a.printLease(l)
		},
	}
}

func (a *app) printLease(l daemon.LeaseReport) error {
	rows := [][2]string{
		{"lease", leaseLine(l)}, {"holder", l.Holder}, {"host", l.Host}, {"epoch", fmt.Sprint(l.Epoch)},
		{"renewals", fmt.Sprint(l.Seq)}, {"ttl", l.TTL().String()},
		{"renewed", stamp(l.RenewedMs)}, {"acquired", stamp(l.AcquiredMs)},
	}
	if l.HeldHere {
		rows = append(rows, [2]string{"trust", span(time.Duration(l.TrustLeftMs) * time.Millisecond)},
			[2]string{"missed", fmt.Sprintf("%d renewals in a row", l.Missed)},
			[2]string{"clock", fmt.Sprintf("%d steps of the wall clock seen", l.ClockSteps)},
			[2]string{"fenced", fmt.Sprintf("%d writes", l.FencedWrites)})
	}
	if l.TakeableInMs > 0 {
		rows = append(rows, [2]string{"takeable", "in " + span(time.Duration(l.TakeableInMs)*time.Millisecond) + ", if nobody renews it"})
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%-10s %s\n", r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}
