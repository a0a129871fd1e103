package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

func (a *app) eventsCmd() *cobra.Command {
	var follow bool
	var cursor string
	var n int
	c := &cobra.Command{
		Use:   "events",
		Short: "what happened to the store: leases, cordons, tokens, settings, refusals",
		Long: "events prints the store's own history, the newest last. With --follow it goes on\n" +
			"until Ctrl-C. (exocomp lease history explains what happened to the lease.)\n" +
			"With -o json it is one document; with --follow, one object a line.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 0 || n > 1000 || n == 0 && !follow {
				return daemon.Errorf(daemon.Usage, "-n %d: it must be between 1 and 1000, or 0 with --follow", n).Hint("leave it out for 50")
			}
			if follow && cursor != "" {
				return daemon.Errorf(daemon.Usage, "--follow and --cursor: one goes on with what is new, the other with what is older").
					Hint("leave one of them out")
			}
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			return a.events(cmd.Context(), c, cursor, n, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens from now on")
	c.Flags().StringVar(&cursor, "cursor", "", "go on with what is older than an earlier page")
	c.Flags().IntVarP(&n, "lines", "n", 50, "how many of the last ones, at most 1000")
	return c
}

func (a *app) events(ctx context.Context, c daemon.Client, cursor string, n int, follow bool) error {
	page, err := c.Events(ctx, daemon.EventQuery{Cursor: cursor, Limit: max(n, 1)})
	if err != nil {
		return err
	}
	slices.Reverse(page.Events)
	shown := page.Events[len(page.Events)-min(n, len(page.Events)):]
	if a.json() && !follow {
		page.Events = shown
		return a.printJSON(page)
	}
	if len(shown) == 0 && !follow {
		a.say("nothing has happened yet")
	}
	for _, h := range shown {
		if err := a.printEvent(h); err != nil {
			return err
		}
	}
	if !follow {
		if page.Next != "" {
			a.say("older: --cursor %s", page.Next)
		}
		return nil
	}
	last := int64(0)
	if k := len(page.Events); k > 0 {
		last = page.Events[k-1].Seq
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = c.FollowEvents(ctx, last, a.printEvent)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitError(130)
	}
	return err
}

// printEvent prints one line: columns cannot be as wide as lines that are still
// to come.
func (a *app) printEvent(h daemon.Happening) error {
	if a.json() {
		text, err := json.Marshal(h)
		if err == nil {
			_, err = fmt.Fprintln(a.stdout, string(text))
		}
		return err
	}
	detail := ""
	if h.Detail != "" {
		detail = "  " + short(h.Detail, 200)
	}
	_, err := fmt.Fprintf(a.stdout, "%d  %s  epoch %d  %-16s %s%s\n", h.Seq, stamp(h.AtMs), h.Epoch, h.Kind, short(h.Subject, 80), detail)
	return err
}
