package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/docs"
)

const outputPage = "docs/operations/output.md"

// tableOf returns the rows of the table under a heading of output.md.
func tableOf(t interface{ Fatalf(string, ...any) }, heading string) [][]string {
	text, err := docs.Operations.ReadFile("operations/output.md")
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, text2, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", outputPage, heading)
	}
	section, _, _ := strings.Cut(text2, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") {
			rows = append(rows, splitRow(line))
		}
	}
	return rows[1:]
}

var codeWord = regexp.MustCompile("`([^`]+)`")

// named returns the commands that the first cells of a table name.
func named(rows [][]string) map[string]string {
	out := map[string]string{}
	for _, row := range rows {
		for _, m := range codeWord.FindAllStringSubmatch(row[0], -1) {
			out[m[1]] = row[1]
		}
	}
	return out
}

// The command tree and the page name the same commands, and the script asks each
// that has a document for it.
func TestEveryCommandIsInThePageOfOutputs(t *testing.T) {
	shapes, without := named(tableOf(t, "Documents")), named(tableOf(t, "Commands without a document"))
	script, err := os.ReadFile("testdata/script/output.txtar")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"run -d": true}
	for _, c := range visibleCommands((&app{}).root()) {
		name := strings.TrimPrefix(c.CommandPath(), "exocomp ")
		seen[name] = true
		if shapes[name] == "" && without[name] == "" {
			t.Errorf("%s is not in %s: give it -o json and a row under Documents, or a row with a reason under Commands without a document", c.CommandPath(), outputPage)
		}
		if c.Flags().Lookup("output") == nil && c.InheritedFlags().Lookup("output") == nil {
			t.Errorf("%s does not take --output", c.CommandPath())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		if !seen[name] {
			t.Errorf("%s has a row for %q, which is no command", outputPage, name)
		}
		if !strings.Contains(string(script), "\nshape '"+name+"'\n") {
			t.Errorf("testdata/script/output.txtar does not ask %q for its document: add the command with -o json, and shape '%[1]s'", name)
		}
	}
	for name := range without {
		if !seen[name] {
			t.Errorf("%s has a row for %q, which is no command", outputPage, name)
		}
	}
}

// shape COMMAND wants the last stdout to be documents with the fields that the
// page names for the command, and no other.
func shape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: shape command")
	}
	fields, ok := named(tableOf(ts, "Documents"))[args[0]]
	if !ok {
		ts.Fatalf("%s has no row for %q", outputPage, args[0])
	}
	must, may := map[string]bool{}, map[string]bool{}
	for f := range strings.SplitSeq(fields, ", ") {
		name, optional := strings.CutSuffix(f, "?")
		may[name], must[name] = true, !optional
	}
	n := 0
	for dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout"))); dec.More(); n++ {
		var doc map[string]any
		ts.Check(dec.Decode(&doc))
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			if !may[name] {
				ts.Fatalf("%s prints %q, which %s does not name", args[0], name, outputPage)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(must)) {
			if _, there := doc[name]; must[name] && !there {
				ts.Fatalf("%s does not print %q, which %s promises", args[0], name, outputPage)
			}
		}
	}
	if n == 0 {
		ts.Fatalf("%s printed no document", args[0])
	}
}

func TestThePageNamesEveryExitCode(t *testing.T) {
	want := map[string][]string{"0": {""}, fmt.Sprint(daemon.ExitWatchdog): {""}, fmt.Sprint(daemon.ExitOwn): {""}, "130": {""}}
	for code, m := range daemon.Meanings {
		exit := fmt.Sprint(m.Exit)
		want[exit] = append(want[exit], string(code))
	}
	got := map[string][]string{}
	for _, row := range tableOf(t, "Exit codes") {
		got[row[0]] = strings.Split(row[1], ", ")
	}
	for _, exit := range slices.Sorted(maps.Keys(want)) {
		slices.Sort(want[exit])
		slices.Sort(got[exit])
		if !slices.Equal(want[exit], got[exit]) {
			t.Errorf("%s: exit %s has the codes %q, want %q", outputPage, exit, got[exit], want[exit])
		}
		delete(got, exit)
	}
	for exit := range got {
		t.Errorf("%s names exit %s, which nothing ends with", outputPage, exit)
	}
}

// docs/cli.md is what the command tree says of itself.
func TestTheReferenceIsFresh(t *testing.T) {
	want := reference((&app{}).root())
	path := filepath.Join("..", "..", "docs", "cli.md")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/cli.md is stale (%v): make docs", err)
	}
}

// Every verb says in one line what it is for, and does not shout.
func TestEveryCommandSaysWhatItIsFor(t *testing.T) {
	root := (&app{}).root()
	for _, c := range visibleCommands(root) {
		if c.Short == "" || len(c.Short) > 90 || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: its Short %q is to be one line of at most 90 letters, without a dot", c.CommandPath(), c.Short)
		}
		for line := range strings.Lines(c.Long) {
			if len([]rune(line)) > 90 {
				t.Errorf("%s: a line of its Long is wider than 90 columns: %q", c.CommandPath(), line)
			}
		}
	}
	for _, p := range pages() {
		if p.Title == "" || len(p.Sections) == 0 {
			t.Errorf("docs/operations/%s.md begins with # Title, and has ## sections", p.Name)
		}
	}
}

// Pages keep to the width, whatever it is, but for lines that are copied.
func TestPagesKeepToTheWidth(t *testing.T) {
	for _, p := range pages() {
		for _, width := range []int{60, 80, 100} {
			var b strings.Builder
			if err := renderMarkdown(&b, p.Text, width, false); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				if visible(line) > width && !strings.HasPrefix(line, "    ") {
					t.Errorf("%s at width %d: %q has %d columns", p.Name, width, line, visible(line))
				}
			}
		}
	}
}

func TestMarkdownOnATerminal(t *testing.T) {
	const text = "# One\n\nSee [two.md](two.md), **now**,\nand `a b`.\n\n- first\n  goes on\n- second\n\n| | x |\n|---|---|\n| `a \\| b` | c |\n\n```\ncode   stays\n```\n"
	for _, tt := range []struct {
		name, want string
		style      bool
	}{
		{"plain", "ONE\n\nSee `exocomp docs\ntwo`, now, and `a\nb`.\n\n- first goes on\n- second\n\n         X\n`a | b`  c\n\n    code   stays\n", false},
		{"styled", "\x1b[1mONE\x1b[0m\n\nSee \x1b[36mexocomp docs\ntwo\x1b[0m, \x1b[1mnow\x1b[0m, and \x1b[36ma b\x1b[0m.\n\n- first goes on\n- second\n\n       \x1b[1mX\x1b[0m\n\x1b[36ma | b\x1b[0m  c\n\n    \x1b[36mcode   stays\x1b[0m\n", true},
	} {
		var b strings.Builder
		if err := renderMarkdown(&b, text, 18, tt.style); err != nil {
			t.Fatal(err)
		}
		if b.String() != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, b.String(), tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"jobs", "lease", "serve", "status", "uncordon"}
	for got, want := range map[string]string{"jbos": "jobs", "leese": "lease", "stat": "status", "frobnicate": "", "": "", "x": "",
		"SERVE": "serve", strings.Repeat("a", 100_000): "", "cordon": "uncordon"} {
		if w := nearest(got, words); w != want {
			t.Errorf("nearest(%.20q) = %q, want %q", got, w, want)
		}
	}
}

// A completion that nobody can answer is an empty one, in time.
func TestSoonDoesNotWaitForWhatHangs(t *testing.T) {
	hung := make(chan int)
	defer close(hung)
	for _, tt := range []struct {
		name string
		do   func(context.Context) (int, error)
		want int
	}{
		{"answers", func(context.Context) (int, error) { return 7, nil }, 7},
		{"fails", func(context.Context) (int, error) { return 7, errors.New("no") }, 0},
		{"hangs, and heeds no context", func(context.Context) (int, error) { return 1 + <-hung, nil }, 0},
	} {
		if got := soon(50*time.Millisecond, tt.do); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
