package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

// A completion is asked for at each press of a key. It reads, and never writes;
// it waits half a second at most; and what it cannot find out it leaves out,
// without a word: its stdout is read by a shell.

// completeWithin bounds what a person waits for.
const completeWithin = 500 * time.Millisecond

func (a *app) completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print what makes a shell complete exocomp's commands",
		Long:  "completion prints a script for a shell. Commands, flags, jobs, contexts and states are\nthen completed with the tab key.",
		Example: "  exocomp completion bash > ~/.local/share/bash-completion/completions/exocomp\n" +
			"  exocomp completion zsh > \"${fpath[1]}/_exocomp\"\n" +
			"  exocomp completion fish > ~/.config/fish/completions/exocomp.fish",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return c.Root().GenZshCompletion(a.stdout)
			case "fish":
				return c.Root().GenFishCompletion(a.stdout, true)
			}
			return daemon.Errorf(daemon.Usage, "shell %.40q is not known: it is bash, zsh or fish", args[0]).
				Hint("for another shell, ask exocomp __complete as these scripts do")
		},
	}
}

// words are the values of flags that take one of a few.
func words() map[string][]string {
	states := make([]string, len(daemon.States))
	for i, s := range daemon.States {
		states[i] = string(s)
	}
	return map[string][]string{"state": states, "output": formats, "only": {"stdout", "stderr"},
		"rerun": {"never", "safe"}, "scope": {string(daemon.Viewer), string(daemon.Operator), string(daemon.Admin)}, "kind": {"command"}, "trigger": {"manual"}}
}

// completions gives every flag of the tree its values, where they are known.
func (a *app) completions(root *cobra.Command) {
	offer := func(c *cobra.Command, flag string, f cobra.CompletionFunc) {
		if c.LocalFlags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, f) // fails where a command has its own
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for flag, list := range words() {
			offer(c, flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
		}
		for _, dir := range []string{"data-dir", "state-dir", "cwd", "dir"} {
			offer(c, dir, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			})
		}
		offer(c, "context", a.completeContexts)
		switch c.CommandPath() {
		case "exocomp jobs show", "exocomp jobs logs":
			c.ValidArgsFunction = a.completeJobs(nil)
		case "exocomp jobs cancel":
			c.ValidArgsFunction = a.completeJobs(daemon.States[:4])
		case "exocomp settings get", "exocomp settings set":
			c.ValidArgsFunction = completeSettings
		case "exocomp uncordon":
			offer(c, "reason", a.completeCordons)
		}
		if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && c.Name() != "run" {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// completeContexts offers the names of contexts, with their addresses.
func (a *app) completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := readContexts()
	if err != nil || len(args) > 0 && args[0] != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out := []string{localContext + "\tthis host"}
	for _, name := range all.names() {
		out = append(out, name+"\t"+short(all.Named[name].Address, 60))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeJobs offers the newest jobs in some states by their numbers.
func (a *app) completeJobs(states []daemon.State) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		page := askSoon(a, c, func(ctx context.Context, cl daemon.Client) (daemon.JobPage, error) {
			return cl.Jobs(ctx, daemon.JobQuery{States: states, Limit: 50})
		})
		var out []string
		for _, j := range page.Jobs {
			out = append(out, fmt.Sprintf("%d\t%s %s", j.Number, j.State, short(j.Spec.String(), 50)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeCordons offers the reasons that stand.
func (a *app) completeCordons(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	st := askSoon(a, c, func(ctx context.Context, cl daemon.Client) (daemon.Status, error) { return cl.Status(ctx) })
	var out []string
	for _, r := range st.Cordons {
		if !strings.ContainsAny(r.Reason, "\t\n") {
			out = append(out, r.Reason+"\t"+short(r.Why, 60))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// askSoon asks whoever the flags on the line name.
func askSoon[T any](a *app, c *cobra.Command, ask func(context.Context, daemon.Client) (T, error)) T {
	return soon(completeWithin, func(ctx context.Context) (answer T, err error) {
		if err := a.prepare(c); err != nil {
			return answer, err
		}
		cl, done, err := a.connect(ctx, false)
		if err != nil {
			return answer, err
		}
		defer done()
		return ask(ctx, cl)
	})
}

// soon returns what do returns, or nothing when that takes too long or fails: a
// file system may hang where a network would time out, and heeds no context.
func soon[T any](limit time.Duration, do func(context.Context) (T, error)) (answer T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	got := make(chan T, 1)
	go func() {
		defer close(got)
		if v, err := do(ctx); err == nil {
			got <- v
		}
	}()
	select {
	case answer = <-got:
	case <-ctx.Done():
	}
	return answer
}
