package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
)

// nearest returns the word that somebody who typed got may have meant: one that
// begins with it, or differs by a letter in three at most. "" is none.
func nearest(got string, words []string) string {
	best, least := "", min(len(got), 40)/3+1
	for _, w := range words {
		if len(got) > 1 && strings.HasPrefix(w, got) {
			return w
		}
		if d := distance(strings.ToLower(got), w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is how many letters must be changed, put in, left out or swapped with
// their neighbour to make one word of the other. Long words are not compared.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// unknownCommand is the error of a verb that c does not have.
func unknownCommand(c *cobra.Command, got string) error {
	e := daemon.Errorf(daemon.Usage, "unknown command %.60q for %s", got, c.CommandPath())
	if like := nearestCommand(c, got); like != "" {
		return e.Hint("did you mean %s %s? See %[1]s --help", c.CommandPath(), like)
	}
	return e.Hint("see %s --help", c.CommandPath())
}

// nearestCommand returns the verb of c that somebody may have meant.
func nearestCommand(c *cobra.Command, got string) string {
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return nearest(got, names)
}

// nearestFlag returns the flag of c that somebody may have meant by the flag that
// a message of pflag names.
func nearestFlag(c *cobra.Command, message string) string {
	got, ok := strings.CutPrefix(message, "unknown flag: --")
	if !ok {
		return ""
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return nearest(got, names)
}
