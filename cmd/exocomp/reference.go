package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The reference and the manual pages are made from the command tree, so that they
// say what --help says. Nothing in them depends on the machine that made them.

// visibleCommands returns c and everything below it that people type, in order.
func visibleCommands(c *cobra.Command) []*cobra.Command {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, visibleCommands(sub)...)
	}
	return out
}

// about is what a command says of itself at length.
func about(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short
}

// flagDoc is one flag for a reader.
type flagDoc struct{ head, usage string }

// flagDocs returns the flags that c itself has. help is on every command.
func flagDocs(flags *pflag.FlagSet) []flagDoc {
	var out []flagDoc
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		switch {
		case value != "" && f.NoOptDefVal != "":
			head += "[=" + value + "]"
		case value != "":
			head += " " + value
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" {
			usage += " (default " + d + ")"
		}
		out = append(out, flagDoc{head, usage})
	})
	return out
}

// usageLine is how c is typed.
func usageLine(c *cobra.Command) string {
	line := c.UseLine()
	if c.HasAvailableSubCommands() && !c.HasParent() {
		line = c.CommandPath() + " COMMAND"
	} else if c.HasAvailableSubCommands() && c.Args != nil && !strings.Contains(c.Use, " ") {
		line = c.CommandPath() + " [COMMAND]"
	}
	return strings.TrimSuffix(line, " [flags]")
}

// reference is docs/cli.md.
func reference(root *cobra.Command) string {
	var b strings.Builder
	all := visibleCommands(root)
	fmt.Fprintf(&b, "# The command line\n\n<!-- made by: make docs -->\n\n%s\n\n", root.Long)
	b.WriteString("What commands print with `-o json`, and all exit codes: [operations/output.md](operations/output.md).\n\n")
	b.WriteString("| command | |\n|---|---|\n")
	for _, c := range all[1:] {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), bars(c.Short))
	}
	b.WriteString("\n## Flags of every command\n\n")
	flagTable(&b, flagDocs(root.PersistentFlags()))
	for _, c := range all[1:] {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), about(c), usageLine(c))
		if c.Example != "" {
			fmt.Fprintf(&b, "\nFor example:\n\n```\n%s\n```\n", dedent(c.Example))
		}
		if flags := flagDocs(c.NonInheritedFlags()); len(flags) > 0 {
			b.WriteString("\n")
			flagTable(&b, flags)
		}
	}
	return b.String()
}

func flagTable(b *strings.Builder, flags []flagDoc) {
	b.WriteString("| flag | |\n|---|---|\n")
	for _, f := range flags {
		fmt.Fprintf(b, "| `%s` | %s |\n", f.head, bars(f.usage))
	}
}

// bars keeps a bar from ending a cell, and a name in brackets from becoming markup.
func bars(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*").Replace(text)
}

func dedent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}

// manPages are the manual pages of section 1, by file name.
func manPages(root *cobra.Command) map[string]string {
	out := map[string]string{}
	for _, c := range visibleCommands(root) {
		out[manName(c)+".1"] = manPage(c)
	}
	return out
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"exocomp\" \"exocomp manual\"\n", roff(strings.ToUpper(manName(c))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(usageLine(c)))
	b.WriteString(".SH DESCRIPTION\n")
	for _, par := range strings.Split(about(c), "\n\n") {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(par))
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	manFlags(&b, "OPTIONS", flagDocs(c.NonInheritedFlags()))
	manFlags(&b, "OPTIONS OF EVERY COMMAND", flagDocs(c.InheritedFlags()))
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(dedent(c.Example)))
	}
	b.WriteString(".SH SEE ALSO\n")
	if c.HasParent() {
		fmt.Fprintf(&b, ".BR %s (1),\n", roff(manName(c.Parent())))
	}
	b.WriteString("the operator's pages:\n.B exocomp docs\n")
	return b.String()
}

func manFlags(b *strings.Builder, head string, flags []flagDoc) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", head)
	for _, f := range flags {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(f.head), roff(f.usage))
	}
}

// roff writes text so that troff shows it as it stands: a dash that is typed is
// no hyphen, and a line that begins with a dot is no request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`, "'", `\(aq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
