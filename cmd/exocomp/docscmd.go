package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/docs"
)

func (a *app) docsCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "show the operator's pages, which this binary carries",
		Long: "docs lists the pages for operators, and docs PAGE shows one. They are part of this\n" +
			"binary: they need no network, no daemon and no store, and fit this version.\n" +
			"-o md prints a page as it was written.",
		Example: "  exocomp docs\n  exocomp docs lease | less",
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var out []string
			for _, p := range pages() {
				if len(args) == 0 {
					out = append(out, p.Name+"\t"+p.Title)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPages()
			}
			return a.showPage(args[0])
		},
	}
	c.AddCommand(a.docsManCmd(), a.docsMarkdownCmd())
	return c
}

// page is one page for operators.
type page struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Sections []string `json:"sections"`
	Text     string   `json:"text,omitempty" doc:"Markdown; only of a page that was asked for"`
}

// pages returns all pages, by name.
func pages() []page {
	var out []page
	files, _ := fs.Glob(docs.Operations, "operations/*.md") // sorted; the pattern is good
	for _, file := range files {
		text, _ := docs.Operations.ReadFile(file) // it was listed
		p := page{Name: strings.TrimSuffix(filepath.Base(file), ".md"), Text: string(text), Sections: []string{}}
		fenced := false
		for line := range strings.Lines(p.Text) {
			line = strings.TrimSpace(line)
			fenced = fenced != strings.HasPrefix(line, "```")
			if title, ok := strings.CutPrefix(line, "# "); ok && p.Title == "" && !fenced {
				p.Title = title
			}
			if section, ok := strings.CutPrefix(line, "## "); ok && !fenced {
				p.Sections = append(p.Sections, section)
			}
		}
		out = append(out, p)
	}
	return out
}

func (a *app) listPages() error {
	all := pages()
	if a.json() {
		for i := range all {
			all[i].Text = ""
		}
		return a.printJSON(map[string][]page{"pages": all})
	}
	rows := make([][]string, len(all))
	names, titles := 4, 0
	for i, p := range all {
		rows[i] = []string{p.Name, p.Title, ""}
		names, titles = max(names, len(p.Name)), max(titles, len(p.Title))
	}
	for i, p := range all {
		rows[i][2] = short(strings.Join(p.Sections, " · "), max(20, screenWidth(a.stdout)-names-titles-4))
	}
	if err := table(a.stdout, []string{"PAGE", "TITLE", "WHAT IT ANSWERS"}, rows); err != nil {
		return err
	}
	a.say("\nread one: exocomp docs PAGE")
	return nil
}

func (a *app) showPage(name string) error {
	var names []string
	for _, p := range pages() {
		names = append(names, p.Name)
		switch {
		case p.Name != strings.TrimSuffix(name, ".md"):
		case a.json():
			return a.printJSON(p)
		case a.global.output == "md":
			_, err := io.WriteString(a.stdout, p.Text)
			return err
		default:
			return renderMarkdown(a.stdout, p.Text, screenWidth(a.stdout), styled(a.stdout))
		}
	}
	e := daemon.Errorf(daemon.NotFound, "there is no page %.60q", name)
	if like := nearest(name, names); like != "" {
		return e.Hint("did you mean %s? The pages are %s", like, strings.Join(names, ", "))
	}
	return e.Hint("the pages are %s", strings.Join(names, ", "))
}

// screenWidth is how wide text may be: that of the terminal, and not so wide that
// lines are hard to follow.
func screenWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(max(width, 30), 100)
		}
	}
	return 80
}

// styled says whether w takes bold and colours.
func styled(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (a *app) docsManCmd() *cobra.Command {
	return a.writeDocsCmd("man", "write a manual page for each command", "exocomp.1, exocomp-jobs.1, and so on", manPages)
}

func (a *app) docsMarkdownCmd() *cobra.Command {
	return a.writeDocsCmd("markdown", "write the reference of all commands", "cli.md", func(root *cobra.Command) map[string]string {
		return map[string]string{"cli.md": reference(root)}
	})
}

// writeDocsCmd is a command that renders the command tree into a directory.
func (a *app) writeDocsCmd(name, what, files string, render func(*cobra.Command) map[string]string) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   name + " --dir DIR",
		Short: what,
		Long:  name + " writes " + files + " into a directory, over what it\nwrote there before.",
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return daemon.Errorf(daemon.Usage, "%s needs a directory to write to", c.CommandPath()).Hint("give --dir DIR")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return writeError(dir, err)
			}
			all := render(c.Root())
			for file, text := range all {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					return writeError(dir, err)
				}
			}
			if a.json() {
				return a.printJSON(map[string]any{"dir": dir, "files": len(all)})
			}
			_, err := fmt.Fprintf(a.stdout, "wrote %s into %s\n", count(len(all), "file", "files"), dir)
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "write into `DIR`, which is made when it is not there")
	return c
}

func writeError(dir string, err error) error {
	return daemon.Errorf(daemon.Failed, "write into %s: %w", dir, err).Hint("name a directory that this user may write to")
}
