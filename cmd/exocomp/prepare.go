package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

// Before a command runs, its flags are filled from environment and config file,
// and it is settled whom it talks to. Some commands need less, so that they work
// on the night on which a file is broken or nobody answers.

// verb is the first word of a command below exocomp.
func verb(c *cobra.Command) string {
	for c.HasParent() && c.Parent().HasParent() {
		c = c.Parent()
	}
	return c.Name()
}

// alone are the verbs that read no file and talk to nobody.
var alone = []string{"exocomp", "version", "docs", "completion", "help"}

// here are the verbs that act on this host whatever the current context is.
var here = []string{"init", "serve"}

// formats are the values of --output, and those that one command has beyond them.
var formats = []string{"table", "json"}

func (a *app) prepare(c *cobra.Command) error {
	if err := a.checkOutput(c); err != nil {
		return err
	}
	if c.Hidden || slices.Contains(alone, verb(c)) { // told all it needs by serve; needs nothing
		return a.global.check()
	}
	if err := a.configure(c); err != nil {
		return err
	}
	if err := a.settleFor(c); err != nil {
		return err
	}
	return a.global.check()
}

// settleFor settles the place of a command that has one.
func (a *app) settleFor(c *cobra.Command) error {
	switch {
	case verb(c) == "context":
		return nil // show settles by itself: the others mend what cannot be settled
	case slices.Contains(here, verb(c)):
		if name := a.global.context; c.Flags().Changed("context") && name != localContext {
			return daemon.Errorf(daemon.Usage, "%s acts on this host alone, and --context %.60q names another", verb(c), name).
				Hint("run it there, without --context")
		}
		return nil
	}
	return a.settle(c)
}

// checkOutput refuses a format that the command does not have.
func (a *app) checkOutput(c *cobra.Command) error {
	have := formats
	if verb(c) == "docs" {
		have = append(slices.Clip(have), "md")
	}
	if got := a.global.output; !slices.Contains(have, got) {
		list := strings.Join(have[:len(have)-1], ", ") + " or " + have[len(have)-1]
		a.global.output = "table" // in which this is said
		return daemon.Errorf(daemon.Usage, "output format %.60q is not known: it is %s", got, list).Hint("use -o %s", list)
	}
	return nil
}
