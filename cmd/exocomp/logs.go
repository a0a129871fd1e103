package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

// logFlags are the flags of jobs logs.
type logFlags struct {
	follow, stamps bool
	only           string
	from           int64
}

func (a *app) jobsLogsCmd() *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:   "logs JOB",
		Short: "print what a job wrote",
		Long: "logs prints what a job wrote, byte for byte: its stdout to stdout, its stderr to\n" +
			"stderr. With -f it follows until the job ends and exits with the job's code.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.only != "" && f.only != "stdout" && f.only != "stderr" {
				return daemon.Errorf(daemon.Usage, "--only %q: it is stdout or stderr", f.only).Hint("leave it out for both")
			}
			return a.logs(cmd.Context(), args[0], f)
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on until the job ends, and exit with its code")
	fl.BoolVarP(&f.stamps, "timestamps", "t", false, "begin each line with the time it was read and its stream")
	fl.StringVar(&f.only, "only", "", "only one stream: stdout or stderr")
	fl.Int64Var(&f.from, "from", 0, "start at this offset, as -o json prints it")
	return c
}

func (a *app) logs(ctx context.Context, ref string, f logFlags) error {
	c, done, err := a.connect(ctx, false)
	if err != nil {
		return err
	}
	defer done()
	j, err := c.Job(ctx, ref)
	if err != nil {
		return err
	}
	if f.follow {
		return a.follow(ctx, c, j.ID, f)
	}
	_, err = a.printLog(ctx, c, j.ID, f)
	return err
}

// printLog prints a log, or follows it, and returns the job behind its end.
func (a *app) printLog(ctx context.Context, c daemon.Client, id string, f logFlags) (daemon.Job, error) {
	p := &logPrinter{out: a.stdout, err: a.stderr, stamps: f.stamps, fresh: map[daemon.Stream]bool{}}
	return c.Logs(ctx, id, daemon.LogQuery{From: f.from, Follow: f.follow}, func(chunk daemon.LogChunk) error {
		if f.only != "" && string(chunk.Stream) != f.only && chunk.Stream != daemon.Gap {
			return nil
		}
		if a.json() {
			return a.printJSON(logLine(chunk))
		}
		return p.print(chunk)
	})
}

// logLine is one chunk in -o json. Data that is no text is given in base64, as
// the API gives it.
func logLine(c daemon.LogChunk) map[string]any {
	doc := map[string]any{"offset": c.Offset, "next": c.Next, "at": c.At, "stream": c.Stream}
	switch {
	case c.Stream == daemon.Gap:
		doc["cut"] = c.Cut
	case isText(c.Data):
		doc["text"] = string(c.Data)
	default:
		doc["base64"] = c.Data
	}
	return doc
}

// logPrinter writes chunks where they belong.
type logPrinter struct {
	out, err io.Writer
	stamps   bool
	fresh    map[daemon.Stream]bool // the stream is in the middle of a line
}

func (p *logPrinter) print(c daemon.LogChunk) error {
	w := p.out
	switch c.Stream {
	case daemon.Gap:
		_, err := fmt.Fprintf(p.err, "\n[exocomp: %d bytes of log were dropped here: it grew over its cap]\n", c.Cut)
		return err
	case daemon.Stderr:
		w = p.err
	}
	if !p.stamps {
		_, err := w.Write(c.Data)
		return err
	}
	head := fmt.Sprintf("%s %s ", c.At.Time().Format("2006-01-02T15:04:05.000Z"), c.Stream)
	var b bytes.Buffer
	for line := range bytes.Lines(c.Data) {
		if !p.fresh[c.Stream] {
			b.WriteString(head)
		}
		b.Write(line)
		p.fresh[c.Stream] = !bytes.HasSuffix(line, []byte("\n"))
	}
	_, err := w.Write(b.Bytes())
	return err
}
