package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

func (a *app) tokensCmd() *cobra.Command {
	c := &cobra.Command{Use: "tokens", Short: "make, list and revoke tokens of the API",
		Long: "A token is how a program, or a person on another host, is known to the daemon.\n" +
			"Its scope says what it may do: viewer reads, operator also runs and cordons,\n" +
			"admin also manages tokens and settings. The user who runs the daemon needs none on\n" +
			"its own host: the socket knows who asks."}
	c.AddCommand(a.tokensCreateCmd(), a.tokensListCmd(), a.tokensRevokeCmd())
	return c
}

// tokenFlags are the flags of tokens create.
type tokenFlags struct {
	scope, expires, out string
	local               bool
}

func (a *app) tokensCreateCmd() *cobra.Command {
	var f tokenFlags
	c := &cobra.Command{
		Use:   "create NAME --scope viewer|operator|admin",
		Short: "make a token, which is shown this once",
		Long: "create prints the new token on stdout and everything else on stderr, so that\n" +
			"it can go into a file: exocomp tokens create ci --scope operator --out ci.token\n\n" +
			"With --local it is made on the store itself, while no daemon serves it: for the\n" +
			"owner of the data directory who has no token left.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.request(args[0])
			if err != nil {
				return err
			}
			return a.createToken(c.Context(), f, r)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.scope, "scope", "", "what it may do: viewer, operator or admin")
	fl.StringVar(&f.expires, "expires", "", "how long it is good, such as 12h or 90d (default for ever)")
	fl.StringVar(&f.out, "out", "", "write the token to this new file (0600) and not to stdout")
	fl.BoolVar(&f.local, "local", false, "make it on the store of this host, while no daemon serves it")
	return c
}

// request never quotes an argument: a token may have been pasted there.
func (f tokenFlags) request(name string) (daemon.TokenRequest, error) {
	r := daemon.TokenRequest{Name: name, Scope: daemon.Scope(f.scope)}
	if f.scope == "" {
		return r, daemon.Errorf(daemon.Usage, "a token needs a scope").
			Hint("give --scope viewer, --scope operator or --scope admin")
	}
	if f.expires == "" {
		return r, r.Check()
	}
	d, err := daemon.ParseSpan(f.expires)
	if err != nil || d.Milliseconds() <= 0 {
		return r, daemon.Errorf(daemon.Usage, "--expires is no duration").Hint("write 12h or 90d; leave it out for a token that does not expire")
	}
	r.ExpiresInMs = d.Milliseconds()
	return r, r.Check()
}

func (a *app) createToken(ctx context.Context, f tokenFlags, r daemon.TokenRequest) (err error) {
	var file *os.File
	if f.out != "" { // before anything is made: a token that cannot be written is lost
		if file, err = newTokenFile(f.out); err != nil {
			return err
		}
		defer func() {
			if cerr := file.Close(); err == nil && cerr != nil {
				err = cerr
			}
			if err != nil {
				os.Remove(f.out)
			}
		}()
	}
	made, b, err := a.makeToken(ctx, f.local, r)
	if err != nil {
		return err
	}
	if file != nil {
		if _, err := fmt.Fprintln(file, made.Secret); err != nil {
			return fmt.Errorf("write the token, which is lost now: %w", err)
		}
		made.Secret = ""
	}
	return a.printToken(f, made, b)
}

func newTokenFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, daemon.Errorf(daemon.Conflict, "%s is there already: it is not overwritten", path).Hint("name a new file")
	}
	if err != nil {
		return nil, daemon.Errorf(daemon.Usage, "make the file for the token: %w", err).Hint("name a file in a directory that you may write to")
	}
	return file, nil
}

// makeToken asks whoever can make one: the daemon, or, with local, the store.
func (a *app) makeToken(ctx context.Context, local bool, r daemon.TokenRequest) (daemon.TokenMade, *banner, error) {
	if local {
		return a.makeTokenAlone(ctx, r)
	}
	c, done, b, err := a.connectToChange(ctx)
	if err != nil {
		return daemon.TokenMade{}, nil, err
	}
	defer done()
	made, err := c.CreateToken(ctx, r)
	return made, b, err
}

// makeTokenAlone keeps the order of serve: owner, lock, fence, store. Under the
// lock no daemon of this host starts; one of another host is refused by the lease.
func (a *app) makeTokenAlone(ctx context.Context, r daemon.TokenRequest) (made daemon.TokenMade, b *banner, err error) {
	g := &a.global
	if g.elsewhere() {
		return made, nil, daemon.Errorf(daemon.Usage, "--local is for the store of this host, and this command is for %s (%s)", g.remote, a.place.by).
			Hint("leave --local out, or say --context local")
	}
	if err := g.checkOwner(); err != nil {
		return made, nil, daemon.Errorf(daemon.CodeOf(err), "%w", err).Hint("run it as the owner of the data directory")
	}
	s, err := sqlite.Open(ctx, sqlite.Options{Path: g.data(storeFile), Follow: true})
	if err != nil {
		return made, nil, err
	}
	defer s.Close()
	lock, err := a.lockOut()
	if daemon.CodeOf(err) == daemon.Held {
		return made, nil, daemon.Errorf(daemon.Held, "%w", err).Hint("leave --local out: the daemon's socket needs no token of its own user")
	}
	if err != nil {
		return made, nil, err
	}
	defer lock.Release()
	if err := g.checkFence(); err != nil {
		return made, nil, err
	}
	bootID, err := linux.BootID()
	if err != nil {
		return made, nil, err
	}
	clk := linux.NewClock()
	if b, err = a.bannerAlone(ctx, s); err != nil {
		return made, b, err
	}
	incarnation := daemon.NewID("inc", clk.Now(), linux.Chance{})
	me := daemon.Identity{Holder: g.host + "/" + incarnation, Host: g.host, Incarnation: incarnation, BootID: bootID,
		PID: int64(os.Getpid()), LockDev: lock.Dev, LockIno: lock.Ino}
	made, err = daemon.CreateTokenAlone(ctx, s, clk, linux.Chance{}, me, "local:"+userName(), r)
	return made, b, err
}

// bannerAlone is the banner of a verb that works on the store itself (O8).
func (a *app) bannerAlone(ctx context.Context, s daemon.Store) (*banner, error) {
	var row daemon.Lease
	err := s.View(ctx, func(r daemon.Reader) (err error) {
		row, _, err = daemon.Leases.Get(ctx, r, 1)
		return err
	})
	b := a.bannerOf(row)
	if err == nil && !a.json() {
		a.say("%s", b)
	}
	return &b, err
}

func (a *app) printToken(f tokenFlags, made daemon.TokenMade, b *banner) error {
	if a.json() {
		return a.printJSON(struct {
			Token  daemon.TokenInfo `json:"token"`
			Secret string           `json:"secret,omitempty"`
			File   string           `json:"file,omitempty"`
			Banner *banner          `json:"banner,omitempty"`
		}{made.Token, made.Secret, f.out, b})
	}
	until := "does not expire"
	if made.Token.ExpiresMs != 0 {
		until = "expires " + stamp(made.Token.ExpiresMs)
	}
	a.say("token %s: id %s, scope %s, %s", made.Token.Name, made.Token.ID, made.Token.Scope, until)
	if f.out != "" {
		_, err := fmt.Fprintf(a.stdout, "token in %s (keep it; it is shown nowhere else)\n", f.out)
		return err
	}
	a.say("it is shown this once: keep it in a file that only you can read (EXOCOMP_TOKEN_FILE)")
	_, err := fmt.Fprintln(a.stdout, made.Secret)
	return err
}

func (a *app) tokensListCmd() *cobra.Command {
	var q daemon.TokenQuery
	c := &cobra.Command{
		Use:   "list",
		Short: "list the tokens that are good, the newest first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 {
				return daemon.Errorf(daemon.Usage, "limit %d: it must be between 1 and 1000", q.Limit).Hint("follow the cursor for more")
			}
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			page, err := c.Tokens(cmd.Context(), q)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(page)
			}
			return a.printTokens(page)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&q.All, "all", false, "those that are revoked or expired, too")
	fl.StringVar(&q.Cursor, "cursor", "", "go on behind an earlier page")
	fl.IntVarP(&q.Limit, "limit", "n", 50, "how many, at most 1000")
	return c
}

func (a *app) printTokens(page daemon.TokenPage) error {
	rows := make([][]string, len(page.Tokens))
	for i, t := range page.Tokens {
		rows[i] = []string{t.ID, t.Name, string(t.Scope), string(t.State), stamp(t.CreatedMs), stamp(t.ExpiresMs), stamp(t.UsedMs), t.By}
	}
	if err := table(a.stdout, []string{"ID", "NAME", "SCOPE", "STATE", "CREATED", "EXPIRES", "LAST USED", "BY"}, rows); err != nil {
		return err
	}
	switch {
	case len(rows) == 0 && page.Next == "":
		a.say("no token is good")
	case page.Next != "":
		a.say("more: --cursor %s", page.Next)
	}
	return nil
}

func (a *app) tokensRevokeCmd() *cobra.Command {
	var lockOut bool
	c := &cobra.Command{
		Use:   "revoke ID|NAME",
		Short: "end a token at once",
		Long: "revoke ends a token: the next request with it is refused. Revoking one that is\n" +
			"revoked already is no error. The last token of scope admin asks for --yes-lock-out;\n" +
			"the owner of the data directory can still make another over the socket.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, b, err := a.connectToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			t, err := c.RevokeToken(cmd.Context(), args[0], lockOut)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(struct {
					Token  daemon.TokenInfo `json:"token"`
					Banner *banner          `json:"banner,omitempty"`
				}{t, b})
			}
			_, err = fmt.Fprintf(a.stdout, "revoked token %s (id %s)\n", t.Name, t.ID)
			return err
		},
	}
	c.Flags().BoolVar(&lockOut, "yes-lock-out", false, "also the last token of scope admin")
	return c
}
