package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

// What goes where: stdout has the result, stderr everything that is said about
// it. An error is one line that names the thing and the rule, and one that says
// what to do; its exit code comes from daemon.Meanings. A command prints nothing
// on stdout before it is sure of it.

// app is one run of the command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	global         globals
	origin         settings
	place          place
}

// globals are the flags that every command takes.
type globals struct {
	dataDir  string
	stateDir string
	host     string
	remote   string
	context  string
	output   string
	config   string
}

// exitError ends the command with a code and without a word: a job's own code,
// or a daemon's, which has spoken already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// run is the program. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if err != nil {
		return a.complain(err)
	}
	return 0
}

// complain prints err and returns its exit code.
func (a *app) complain(err error) int {
	code := daemon.CodeOf(err)
	if a.global.output == "json" {
		doc := map[string]any{"error": map[string]string{"code": string(code), "message": err.Error(),
			"remedy": daemon.RemedyOf(err)}}
		text, _ := json.Marshal(doc) // three strings
		fmt.Fprintln(a.stderr, string(text))
		return daemon.MeaningOf(code).Exit
	}
	fmt.Fprintf(a.stderr, "exocomp: %s\n", short(err.Error(), 2000)) // it may quote what somebody typed
	if remedy := daemon.RemedyOf(err); remedy != "" {
		fmt.Fprintf(a.stderr, "  %s\n", short(remedy, 2000))
	}
	return daemon.MeaningOf(code).Exit
}

// root builds the command tree. There are no package globals in it, so that a
// test may run many at once.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "exocomp",
		Short: "run a team's infrastructure jobs, and let a second host take over",
		Long: "exocomp runs commands from a queue over one SQLite file. One daemon is active;\n" +
			"another, on this host or a second one, takes over when it is gone.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // completion is ours
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.prepare(c) },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.global.dataDir, "data-dir", "", "use the store in `DIR` (EXOCOMP_DATA_DIR; default ~/.local/state/exocomp, or as XDG_STATE_HOME says)")
	f.StringVar(&a.global.stateDir, "state-dir", "", "keep lock, sockets and exit records in `DIR`, on this host (EXOCOMP_STATE_DIR; default the data dir)")
	f.StringVar(&a.global.host, "host", "", "be `NAME` in the lease (EXOCOMP_HOST; default the host name)")
	f.StringVar(&a.global.remote, "remote", "", "speak to the daemon at `URL`; bare --remote is this host's socket (EXOCOMP_REMOTE)")
	f.Lookup("remote").NoOptDefVal = "self"
	f.StringVar(&a.global.context, "context", "", "speak to the daemon called `NAME`, see exocomp context; local is this host (EXOCOMP_CONTEXT)")
	f.StringVar(&a.global.config, "config", "", "read settings of serve and of these flags from `FILE`, as YAML (EXOCOMP_CONFIG; default ~/.config/exocomp/config.yaml, or as XDG_CONFIG_HOME says)")
	f.StringVarP(&a.global.output, "output", "o", "table", "print as `FORMAT`, table or json")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		e := daemon.Errorf(daemon.Usage, "%s", short(err.Error(), 200)).Hint("see %s --help", c.CommandPath())
		if like := nearestFlag(c, err.Error()); like != "" {
			e.Remedy = fmt.Sprintf("did you mean --%s? See %s --help", like, c.CommandPath())
		}
		return e
	})
	root.AddCommand(a.initCmd(), a.serveCmd(), a.keeperCmd(), a.lockprobeCmd(), a.runCmd(), a.jobsCmd(), a.schedulesCmd(), a.cordonCmd(),
		a.uncordonCmd(), a.statusCmd(), a.leaseCmd(), a.fenceCmd(), a.unfenceCmd(), a.versionCmd(),
		a.tokensCmd(), a.settingsCmd(), a.eventsCmd(), a.contextCmd(), a.docsCmd(), a.completionCmd())
	a.completions(root)
	group(root)
	strictArgs(root)
	return root
}

// strictArgs makes a wrong number of arguments, or an unknown verb, a usage
// error of ours with a remedy.
func strictArgs(c *cobra.Command) {
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if c.HasSubCommands() && len(args) > 0 && check == nil {
			return unknownCommand(c, args[0])
		}
		if check == nil {
			check = cobra.NoArgs
		}
		if err := check(c, args); err != nil {
			return daemon.Errorf(daemon.Usage, "%s: %s", c.CommandPath(), short(err.Error(), 200)).Hint("see %s --help", c.CommandPath())
		}
		return nil
	}
	if c.HasSubCommands() && c.RunE == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		strictArgs(sub)
	}
}

func (g *globals) check() error {
	name, _ := os.Hostname() // empty is refused below
	g.dataDir = cmp.Or(g.dataDir, defaultDataDir())
	g.stateDir = cmp.Or(g.stateDir, g.dataDir)
	g.host = cmp.Or(g.host, name)
	for _, dir := range []*string{&g.dataDir, &g.stateDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return daemon.Errorf(daemon.Usage, "directory %q: %w", *dir, err)
		}
		*dir = abs
	}
	if g.host == "" || len(g.host) > 200 || strings.ContainsAny(g.host, " /:\x7f") || short(g.host, 200) != g.host {
		return daemon.Errorf(daemon.Usage, "host name %.60q: it is not empty, and holds no space, slash, colon or control character", g.host).
			Hint("give --host a short name")
	}
	return nil
}

// defaultDataDir is the XDG state directory of this user.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "exocomp")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(string(filepath.Separator), "var", "lib", "exocomp")
	}
	return filepath.Join(home, ".local", "state", "exocomp")
}

// Files of a data or state directory.
const (
	storeFile      = "exocomp.db"
	adminTokenFile = "admin.token"
	logsDir        = "logs"
	serveLock      = "serve.lock"
	keeperLock     = "keeper.lock"
	apiSocket      = "api.sock"
	keeperSocket   = "keeper.sock"
)

func (g *globals) data(name string) string  { return filepath.Join(g.dataDir, name) }
func (g *globals) state(name string) string { return filepath.Join(g.stateDir, name) }

// printJSON writes a document to stdout.
func (a *app) printJSON(doc any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

func (a *app) json() bool { return a.global.output == "json" }

// say prints a note about what happens: never on stdout.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }
