package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

func (a *app) cordonCmd() *cobra.Command {
	var reason, why string
	c := &cobra.Command{
		Use:   "cordon",
		Short: "start no new jobs; what runs goes on",
		Long: "cordon adds a reason why no new root job starts. Reasons add up: each is lifted on\n" +
			"its own. They stand in the store, over restarts and takeovers.",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.cordon(c.Context(), func(ctx context.Context, cl daemon.Client) (daemon.CordonAnswer, error) {
				return cl.Cordon(ctx, reason, why)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", daemon.OperatorCordon, "name of the reason")
	c.Flags().StringVar(&why, "why", "", "a sentence for whoever finds it")
	return c
}

func (a *app) uncordonCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "uncordon",
		Short: "lift one reason of a cordon",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.cordon(c.Context(), func(ctx context.Context, cl daemon.Client) (daemon.CordonAnswer, error) {
				return cl.Uncordon(ctx, reason)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", daemon.OperatorCordon, "name of the reason")
	return c
}

func (a *app) cordon(ctx context.Context, do func(context.Context, daemon.Client) (daemon.CordonAnswer, error)) error {
	c, done, b, err := a.connectToChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	ans, err := do(ctx, c)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(struct {
			daemon.CordonAnswer
			Banner *banner `json:"banner,omitempty"`
		}{ans, b})
	}
	if ans.Submitted {
		a.say("submitted: no daemon is active on this host; the next one does it first thing")
		return nil
	}
	if len(ans.Cordons) == 0 {
		_, err = fmt.Fprintln(a.stdout, "not cordoned: jobs start")
		return err
	}
	return a.printCordons(ans.Cordons)
}

func (a *app) printCordons(all []daemon.Cordon) error {
	now := daemon.Millis(time.Now().UnixMilli())
	for _, c := range all {
		why := ""
		if c.Why != "" {
			why = ": " + short(c.Why, 120)
		}
		if _, err := fmt.Fprintf(a.stdout, "cordoned   %s (by %s, %s ago)%s\n", clean(c.Reason), clean(c.By), ago(now, c.AtMs), why); err != nil {
			return err
		}
	}
	return nil
}
