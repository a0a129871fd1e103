package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
)

// leaseDoc is what lease prints with -o json.
type leaseDoc struct {
	daemon.LeaseReport
	Verdict daemon.Verdict `json:"verdict"`
	Local   *localDoc      `json:"local,omitempty"`
}

func (a *app) leaseCmd() *cobra.Command {
	var now bool
	c := &cobra.Command{
		Use:   "lease",
		Short: "say who holds the store, and whether they live",
		Long: "lease watches the lease row, also without a daemon, and ends in a verdict after at\n" +
			"most a third of the TTL and two seconds: a seq that moves is a holder that lives.\n" +
			"Ages are by this host's wall clock: they are for people, and decide nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			return a.lease(cmd.Context(), c, now)
		},
	}
	c.Flags().BoolVar(&now, "now", false, "show the row as it is, and do not watch")
	c.AddCommand(a.leaseHistoryCmd())
	return c
}

func (a *app) lease(ctx context.Context, c daemon.Client, now bool) error {
	doc, err := a.watchLease(ctx, c, now)
	if err != nil {
		return err
	}
	if !a.global.elsewhere() {
		doc.Local = a.look()
	}
	if a.json() {
		return a.printJSON(doc)
	}
	return a.printLease(doc)
}

// watchLease looks at the row four times a second until the verdict stands.
func (a *app) watchLease(ctx context.Context, c daemon.Client, now bool) (leaseDoc, error) {
	clk := linux.NewClock()
	begin := clk.Boot()
	l, err := c.Lease(ctx)
	if err != nil {
		return leaseDoc{}, err
	}
	tick := clk.Ticker(250 * time.Millisecond)
	defer tick.Stop()
	for w := (daemon.Watch{First: l, Last: l, Blocker: a.blocker()}); ; {
		v, final := w.Verdict()
		if final || now {
			return leaseDoc{LeaseReport: w.Last, Verdict: v}, nil
		}
		select {
		case <-ctx.Done():
			return leaseDoc{}, ctx.Err()
		case <-tick.C:
		}
		l, err := c.Lease(ctx)
		if err != nil {
			return leaseDoc{}, err
		}
		w = w.Add(l, clk.Boot().Sub(begin))
		w.Trouble = l.Trouble
		if a.blocker() != w.Blocker {
			w.Blocker = ""
		}
	}
}

// blocker names who holds the write lock of the store, if it lies on this host.
func (a *app) blocker() string {
	if a.global.elsewhere() {
		return ""
	}
	return linux.Site{Database: a.global.data(storeFile)}.Blocker()
}

func leaseLine(l daemon.LeaseReport) string {
	if l.Epoch == 0 {
		return "never held"
	}
	age := span(time.Duration(l.AgeMs) * time.Millisecond)
	switch {
	case l.State == daemon.LeaseReleased:
		return fmt.Sprintf("released by %s %s ago (epoch %d)", l.Host, age, l.Epoch)
	case l.HeldHere && l.SingleHost:
		return fmt.Sprintf("held here (epoch %d), for this host alone", l.Epoch)
	case l.HeldHere:
		return fmt.Sprintf("held here (epoch %d), trusted for another %s", l.Epoch, msSpan(l.TrustLeftMs))
	}
	return fmt.Sprintf("held by %s, pid %d (epoch %d), renewed %s ago by its clock", l.Host, l.PID, l.Epoch, age)
}

func msSpan(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }

func (a *app) printLease(doc leaseDoc) error {
	l := doc.LeaseReport
	rows := [][2]string{
		{"verdict", string(doc.Verdict.Word) + " " + doc.Verdict.Text},
		{"lease", leaseLine(l)}, {"holder", l.Holder}, {"host", l.Host}, {"epoch", fmt.Sprint(l.Epoch)},
		{"renewals", fmt.Sprint(l.Seq)}, {"ttl", l.TTL().String()},
		{"renewed", stamp(l.RenewedMs)}, {"acquired", stamp(l.AcquiredMs)}, {"forced", forcedLine(l.Lease)},
		{"leash wait", leashWaitLine(l)},
	}
	if l.HeldHere {
		rows = append(rows, [2]string{"missed", fmt.Sprintf("%d renewals in a row", l.Missed)},
			[2]string{"clock", fmt.Sprintf("%d steps of the wall clock seen", l.ClockSteps)},
			[2]string{"fenced", fmt.Sprintf("%d writes", l.FencedWrites)})
	}
	if l.TakeableInMs > 0 {
		rows = append(rows, [2]string{"takeable", "in " + msSpan(l.TakeableInMs) + ", if nobody renews it"})
	}
	if doc.Local != nil {
		rows = append(rows, [2]string{"this host", doc.Local.String()})
	}
	return a.printRows(rows)
}

// printRows prints what is not empty.
func (a *app) printRows(rows [][2]string) error {
	var b strings.Builder
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(&b, "%-10s %s\n", r[0], clean(r[1]))
		}
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}

func forcedLine(l daemon.Lease) string {
	if l.ForcedBy == "" {
		return ""
	}
	return fmt.Sprintf("by %s: %s", l.ForcedBy, l.ForceReason)
}

func leashWaitLine(l daemon.LeaseReport) string {
	if l.LeashWaitMs == 0 {
		return ""
	}
	return fmt.Sprintf("%s: until then the old holder's jobs may live, and no job is touched", msSpan(l.LeashWaitMs))
}
