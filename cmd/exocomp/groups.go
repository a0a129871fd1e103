package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// groups are how exocomp --help orders the verbs: first what people do all day,
// last what they do once. A verb that is not named here comes behind them.
var groups = []struct {
	title string
	verbs []string
}{
	{"Jobs:", []string{"run", "jobs", "schedules"}},
	{"The daemon and its store:", []string{"status", "lease", "events", "serve", "cordon", "uncordon", "fence", "unfence"}},
	{"Setting up, and looking up:", []string{"init", "tokens", "settings", "context", "docs", "completion", "version", "help"}},
}

// helpCmd is --help for whoever types help, and knows what is no command.
func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "say how a command is used",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			of, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []string
			for _, sub := range of.Commands() {
				if !sub.Hidden {
					out = append(out, sub.Name()+"\t"+sub.Short)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(of, rest[0])
			}
			if err != nil {
				return err
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(g.verbs, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	help := helpCmd()
	help.GroupID = groups[len(groups)-1].title
	root.SetHelpCommand(help)
}
