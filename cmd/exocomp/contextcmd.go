package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

func (a *app) contextCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "context",
		Short: "name daemons elsewhere, and choose one",
		Long: "context keeps daemons under names, with the token that each wants, in\n" +
			"~/.config/exocomp/contexts.yaml (0600). Any command then takes --context NAME, and\n" +
			"context use makes one the default. The name local is this host.\n\n" +
			"Whom a command talks to is said by the first of: its flags (--remote, --context,\n" +
			"--data-dir), the environment (EXOCOMP_REMOTE, EXOCOMP_CONTEXT, EXOCOMP_DATA_DIR),\n" +
			"the job it runs in, the current context, the config file, and this host.",
	}
	c.AddCommand(a.contextAddCmd(), a.contextListCmd(), a.contextUseCmd(), a.contextShowCmd(), a.contextRmCmd())
	return c
}

// contextDoc is a context as -o json prints it: never with the token.
type contextDoc struct {
	Name         string `json:"name"`
	Address      string `json:"address,omitempty" doc:"absent for this host"`
	Token        string `json:"token,omitempty" doc:"kept (in contexts.yaml) or file"`
	TokenFile    string `json:"token_file,omitempty"`
	CAFile       string `json:"ca_file,omitempty"`
	InsecureHTTP bool   `json:"insecure_http,omitempty"`
	Current      bool   `json:"current" doc:"chosen with context use"`
}

func (all contexts) doc(name string) contextDoc {
	c, ok := all.Named[name]
	d := contextDoc{Name: name, Address: c.Address, TokenFile: c.TokenFile, CAFile: c.CAFile,
		InsecureHTTP: c.InsecureHTTP, Current: name == cmp.Or(all.Current, localContext)}
	switch {
	case c.TokenFile != "":
		d.Token = "file"
	case ok:
		d.Token = "kept"
	}
	return d
}

// notes are what a person should know of a context beyond address and token.
func (d contextDoc) notes() string {
	var out []string
	if d.Address == "" {
		out = append(out, "this host: its daemon, or its store when none runs")
	}
	if d.CAFile != "" {
		out = append(out, "signed by "+d.CAFile)
	}
	if d.InsecureHTTP {
		out = append(out, "INSECURE: the token goes in clear text")
	}
	return strings.Join(out, "; ")
}

func (d contextDoc) tokenText() string {
	if d.Token == "kept" {
		return "kept here"
	}
	return cmp.Or(d.TokenFile, "-")
}

func (a *app) contextListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the contexts; * is the current one",
		RunE: func(*cobra.Command, []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			docs := []contextDoc{}
			for _, name := range append(all.names(), localContext) {
				docs = append(docs, all.doc(name))
			}
			if a.json() {
				return a.printJSON(map[string]any{"contexts": docs, "current": cmp.Or(all.Current, localContext), "file": all.path})
			}
			var rows [][]string
			for _, d := range docs {
				rows = append(rows, []string{map[bool]string{true: "*", false: " "}[d.Current], d.Name,
					cmp.Or(short(d.Address, 80), "-"), d.tokenText(), d.notes()})
			}
			return table(a.stdout, []string{" ", "NAME", "ADDRESS", "TOKEN", "NOTES"}, rows)
		},
	}
}

// addFlags are the flags of context add.
type addFlags struct {
	address, tokenFile, caFile string
	insecure, replace          bool
}

func (a *app) contextAddCmd() *cobra.Command {
	var f addFlags
	c := &cobra.Command{
		Use:   "add NAME --address URL",
		Short: "keep a daemon under a name",
		Long: "add keeps the address of a daemon under a name, with a token: where it stands, with\n" +
			"--token-file, or the token itself, which is asked for at a terminal and read from\n" +
			"stdin elsewhere. A token never stands on the command line, where ps shows it.\n\n" +
			"An address without TLS is refused unless it is this host's: use https, a tunnel\n" +
			"(ssh -L 7373:127.0.0.1:7373 HOST), or --insecure-http on a network that you trust.",
		Example: "  exocomp context add prod --address https://ops.example:7373 --token-file ~/.secrets/prod\n" +
			"  pass exocomp/lab | exocomp context add lab --address https://10.0.0.7:7373 --ca-file lab-ca.pem",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.addContext(args[0], f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.address, "address", "", "the daemon answers at `URL`, such as https://ops.example:7373")
	fl.StringVar(&f.tokenFile, "token-file", "", "the token stands in `FILE`, 0600, which is read at each use")
	fl.StringVar(&f.caFile, "ca-file", "", "the authority that signed the daemon's certificate is in `FILE`, as PEM (default those of this host)")
	fl.BoolVar(&f.insecure, "insecure-http", false, "let the token go over the network in clear text")
	fl.BoolVar(&f.replace, "replace", false, "replace the context of that name")
	return c
}

func (a *app) addContext(name string, f addFlags) error {
	if err := checkContextName(name); err != nil {
		return err
	}
	c, err := f.context()
	if err != nil {
		return err
	}
	if err := refuseTwice(name, f.replace); err != nil { // before anybody types a token
		return err
	}
	if f.tokenFile == "" {
		if c.Token, err = a.askToken(name); err != nil {
			return err
		}
	}
	var all contexts
	if err := changeContexts(func(now *contexts) error {
		if _, there := now.Named[name]; there && !f.replace {
			return alreadyThere(name)
		}
		now.Named[name] = c
		all = *now
		return nil
	}); err != nil {
		return err
	}
	if f.insecure && !a.json() {
		a.say("warning: the token of %s goes over the network in clear text", name)
	}
	if a.json() {
		return a.printJSON(all.doc(name))
	}
	_, err = fmt.Fprintf(a.stdout, "context %s is %s\nuse it: exocomp --context %[1]s status, or for all commands: exocomp context use %[1]s\n",
		name, c.Address)
	return err
}

func refuseTwice(name string, replace bool) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	if _, there := all.Named[name]; there && !replace {
		return alreadyThere(name)
	}
	return nil
}

func alreadyThere(name string) error {
	return daemon.Errorf(daemon.Conflict, "context %s is there already", name).
		Hint("give --replace to put this one in its place, or choose another name")
}

// context checks what was given, and makes file names whole: a context is used
// from any directory.
func (f addFlags) context() (remoteContext, error) {
	c := remoteContext{Address: f.address, InsecureHTTP: f.insecure}
	if f.address == "" {
		return c, daemon.Errorf(daemon.Usage, "a context needs an address").Hint("give --address https://HOST:7373")
	}
	_, err := api.NewClient(api.ClientOptions{BaseURL: f.address, ClearText: true})
	if err != nil {
		return c, daemon.Errorf(daemon.Usage, "--address: %w", err).Hint("write --address https://HOST:7373; the token stands elsewhere")
	}
	if _, err := api.NewClient(api.ClientOptions{BaseURL: f.address}); err != nil && !f.insecure {
		return c, daemon.Errorf(daemon.Usage, "--address %.80s is not on this host, and without TLS: its token would go over the network in clear text", f.address).
			Hint("use https, or a tunnel (ssh -L 7373:127.0.0.1:7373 HOST); --insecure-http if you trust that network")
	}
	for name, file := range map[*string]string{&c.TokenFile: f.tokenFile, &c.CAFile: f.caFile} {
		if file == "" {
			continue
		}
		if *name, err = filepath.Abs(file); err != nil {
			return c, daemon.Errorf(daemon.Usage, "file %q: %w", file, err)
		}
	}
	if _, err := c.authorities(daemon.Usage); err != nil {
		return c, err
	}
	if c.TokenFile == "" {
		return c, nil
	}
	token, err := readToken(c.TokenFile)
	if err == nil {
		err = checkToken(token)
	}
	return c, err
}

// askToken reads the token from the person or the program at stdin.
func (a *app) askToken(name string) (string, error) {
	var text []byte
	var err error
	if in, ok := a.stdin.(*os.File); ok && isTerminal(in) {
		fmt.Fprintf(a.stderr, "token for %s (it is not shown): ", name)
		text, err = term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(a.stderr)
	} else {
		text, err = bufio.NewReader(io.LimitReader(a.stdin, 4097)).ReadBytes('\n')
	}
	if err != nil && err != io.EOF {
		return "", daemon.Errorf(daemon.Failed, "read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	return token, checkToken(token)
}

// checkToken refuses what is no token. It never quotes it.
func checkToken(token string) error {
	strange := strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	switch {
	case token == "":
		return daemon.Errorf(daemon.Usage, "no token: it is empty").Hint("type it at the prompt, pipe it to stdin, or name its file with --token-file")
	case strange || len(token) > 4096:
		return daemon.Errorf(daemon.Usage, "that is no token: one is a single word of printable ASCII, of at most 4096 bytes").
			Hint("give the line that exocomp init wrote to admin.token, or one that was made for you")
	}
	return nil
}

func (a *app) contextUseCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "make a context the current one; local is this host",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			var all contexts
			if err := changeContexts(func(now *contexts) error {
				now.Current = ""
				if args[0] != localContext {
					if _, err := now.get(args[0]); err != nil {
						return err
					}
					now.Current = args[0]
				}
				all = *now
				return nil
			}); err != nil {
				return err
			}
			a.warnOfOverride()
			d := all.doc(args[0])
			if a.json() {
				return a.printJSON(d)
			}
			_, err := fmt.Fprintf(a.stdout, "commands now go to %s\n", cmp.Or(d.Address, "this host"))
			return err
		},
	}
}

// warnOfOverride says what goes before the current context in this very shell.
func (a *app) warnOfOverride() {
	for _, name := range []string{"EXOCOMP_REMOTE", "EXOCOMP_CONTEXT", "EXOCOMP_DATA_DIR", "EXOCOMP_STATE_DIR"} {
		if v := os.Getenv(name); v != "" {
			a.say("note: %s=%s is set here, and goes before the current context", name, short(v, 80))
			return
		}
	}
}

// shownContext is what context show prints with -o json.
type shownContext struct {
	contextDoc
	ChosenBy string `json:"chosen_by,omitempty" doc:"what made it this one; absent for the default, and for a name that was asked for"`
}

func (a *app) contextShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "show [NAME]",
		Short:             "show a context, or whom commands talk to here and now",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := a.contextInForce(c, args)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(doc)
			}
			return a.showContext(doc)
		},
	}
}

func (a *app) showContext(doc shownContext) error {
	token, notes := "", ""
	if doc.Token != "" {
		token, notes = doc.tokenText(), doc.notes()
	}
	return a.printRows([][2]string{{"context", cmp.Or(doc.Name, "none: a bare address")},
		{"address", cmp.Or(doc.Address, "this host, "+a.global.dataDir)}, {"token", token}, {"notes", notes}, {"chosen by", doc.ChosenBy}})
}

func (a *app) contextInForce(c *cobra.Command, args []string) (shownContext, error) {
	all, err := readContexts()
	if err != nil {
		return shownContext{}, err
	}
	if len(args) == 1 {
		if args[0] != localContext {
			_, err = all.get(args[0])
		}
		return shownContext{contextDoc: all.doc(args[0])}, err
	}
	if err := a.settle(c); err != nil {
		return shownContext{}, err
	}
	switch {
	case a.place.target != nil:
		return shownContext{all.doc(a.place.context), a.place.by}, nil
	case a.global.elsewhere():
		return shownContext{contextDoc{Address: a.global.remote}, a.place.by}, nil
	}
	return shownContext{all.doc(localContext), a.place.by}, nil
}

func (a *app) contextRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME",
		Short:             "forget a context and its token",
		Long:              "rm forgets a context. The token stays valid until it is revoked where it was made.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == localContext {
				return checkContextName(localContext)
			}
			was := false
			if err := changeContexts(func(now *contexts) error {
				if _, err := now.get(args[0]); err != nil {
					return err
				}
				delete(now.Named, args[0])
				if was = now.Current == args[0]; was {
					now.Current = ""
				}
				return nil
			}); err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(map[string]any{"name": args[0], "removed": true, "was_current": was})
			}
			if was {
				a.say("it was the current one: commands now go to this host")
			}
			_, err := fmt.Fprintf(a.stdout, "context %s is forgotten\n", args[0])
			return err
		},
	}
}
