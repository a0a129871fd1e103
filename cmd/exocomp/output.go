package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/exocomp/exocomp/daemon"
)

// table prints rows under a head, as wide as their widest cells. Lines
// do not end in spaces.
func table(w io.Writer, head []string, rows [][]string) error {
	paint := painter(w)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
		}
	}
	width := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{head}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(paint(cell) + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// colours of states, for a person who looks for the odd one out.
var colours = map[string]string{
	string(daemon.Running): "36", string(daemon.Starting): "36", string(daemon.Cancelling): "33",
	string(daemon.Succeeded): "32", string(daemon.JobFailed): "31", string(daemon.Interrupted): "35",
	string(daemon.Cancelled): "33",
}

// painter colours states at a terminal, unless NO_COLOR asks for none.
func painter(w io.Writer) func(string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return func(cell string) string { return cell }
	}
	return func(cell string) string {
		if c, ok := colours[cell]; ok {
			return "\x1b[" + c + "m" + cell + "\x1b[0m"
		}
		return cell
	}
}

// short cuts text to n runes, in one line: a command may hold anything.
func short(text string, n int) string {
	text = clean(text)
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// clean shows what a terminal would obey, rather than have it obeyed: names, reasons
// and commands come from elsewhere.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r < 0xa0 {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(text, "·"))
}

// ago says how long before now t was, in the largest unit that tells enough.
func ago(now, t daemon.Millis) string {
	if t == 0 {
		return "-"
	}
	return span(time.Duration(now-t) * time.Millisecond)
}

func span(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%s%dms", sign, d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%s%.1fs", sign, d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%s%ds", sign, int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%s%dm", sign, int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%dh", sign, int(d.Hours()))
	}
	return fmt.Sprintf("%s%dd", sign, int(d.Hours()/24))
}

// took says how long a job ran, or has run until now.
func took(j daemon.Job, now daemon.Millis) string {
	switch {
	case j.StartedMs == 0:
		return "-"
	case j.EndedMs != 0:
		now = j.EndedMs
	}
	return span(time.Duration(now-j.StartedMs) * time.Millisecond)
}

// count says n things.
func count(n int, thing, things string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %s", n, things)
}

func stamp(m daemon.Millis) string {
	if m == 0 {
		return "-"
	}
	return m.Time().Format(time.RFC3339)
}

// exitOf shows how a job's process ended.
func exitOf(j daemon.Job) string {
	switch {
	case j.Signal != "":
		return j.Signal
	case j.ExitCode != nil:
		return fmt.Sprint(*j.ExitCode)
	}
	return "-"
}

func isText(b []byte) bool { return utf8.Valid(b) }
