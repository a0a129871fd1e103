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
	{"Jobs:", []string{"run", "jobs"}},
	{"The daemon and its store:", []string{"status", "lease", "serve", "cordon", "uncordon", "fence", "unfence"}},
	{"Setting up, and looking up:", []string{"init", "context", "docs", "completion", "version", "help"}},
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
	root.SetHelpCommandGroupID(groups[len(groups)-1].title)
}
