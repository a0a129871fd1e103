package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/proc"
)

// Whom a command talks to is said by the first of these that says anything:
//
//  1. the command line: --remote, --context, or --data-dir and --state-dir
//  2. the environment: EXOCOMP_REMOTE, EXOCOMP_CONTEXT, EXOCOMP_DATA_DIR, EXOCOMP_STATE_DIR
//  3. inside a job, the daemon that runs it
//  4. the current context: exocomp context use
//  5. the config file: the same names
//  6. the default: this host, the default data directory
//
// On one level --remote goes before a data directory, which then only says where
// the admin token lies. --context goes together with neither: it would be a guess
// which one was meant, and a wrong guess acts on the wrong hosts.

// place is whom a command talks to.
type place struct {
	context string         // name, "" when none was named
	by      string         // what chose it
	target  *remoteContext // nil on this host, and for a bare URL
}

// place levels.
const (
	onCommandLine = "command line"
	inEnvironment = "environment"
	inConfigFile  = "config file"
)

// said returns, for a level, which of the flags that name a place it sets.
func (a *app) said(c *cobra.Command, level string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"remote", "context", "data-dir", "state-dir"} {
		f := c.Flags().Lookup(name)
		origin, elsewhere := a.origin[name]
		env := strings.HasPrefix(origin, "EXOCOMP_")
		switch {
		case f == nil:
		case f.Changed && level == onCommandLine:
			out[name] = "--" + name
		case !f.Changed && elsewhere && env == (level == inEnvironment) && level != onCommandLine:
			out[name] = origin
		}
	}
	return out
}

// settle finds out whom the command talks to, and sets the globals to that.
func (a *app) settle(c *cobra.Command) error {
	g := &a.global
	for _, level := range []string{onCommandLine, inEnvironment} {
		if done, err := a.settleAs(c, level); done || err != nil {
			return err
		}
	}
	if os.Getenv(proc.MarkerName) != "" && os.Getenv("EXOCOMP_TOKEN_FILE") != "" {
		g.remote, a.place = "", place{by: "the job that this runs in"}
		return nil
	}
	all, err := readContexts()
	if err != nil {
		return err
	}
	if all.Current != "" {
		return a.goTo(all, all.Current, "exocomp context use")
	}
	_, err = a.settleAs(c, inConfigFile)
	return err
}

// settleAs does what one level says, if it says anything.
func (a *app) settleAs(c *cobra.Command, level string) (bool, error) {
	said, g := a.said(c, level), &a.global
	code := daemon.BadConfig
	if level == onCommandLine {
		code = daemon.Usage
	}
	where, ok := said["context"]
	for _, other := range []string{"remote", "data-dir", "state-dir"} {
		if ok && said[other] != "" {
			return true, daemon.Errorf(code, "%s and %s both say whom to talk to: only one of them may", where, said[other]).
				Hint("leave one out; a context has its own address and token")
		}
	}
	if ok && g.context == localContext {
		g.remote, a.place = "", place{context: localContext, by: where}
		return true, nil
	}
	if ok {
		all, err := readContexts()
		if err != nil {
			return true, err
		}
		return true, a.goTo(all, g.context, where)
	}
	if by, ok := said["remote"]; ok {
		a.place = place{by: by}
		return true, nil
	}
	for _, name := range []string{"data-dir", "state-dir"} {
		if by, ok := said[name]; ok {
			g.remote, a.place = "", place{by: by}
			return true, nil
		}
	}
	return false, nil
}

// goTo sets the globals to a context.
func (a *app) goTo(all contexts, name, by string) error {
	c, err := all.get(name)
	if err != nil {
		return err
	}
	a.global.remote, a.place = c.Address, place{context: name, by: by, target: &c}
	return nil
}

// elsewhere says whether the command talks to a daemon by its URL.
func (g *globals) elsewhere() bool { return g.remote != "" && g.remote != "self" }

// overHTTP is a client for the URL that was named, with the token that goes there.
func (a *app) overHTTP() (daemon.Client, error) {
	t := a.place.target
	if t == nil {
		token, err := a.token()
		if err != nil {
			return nil, err
		}
		return api.NewClient(api.ClientOptions{BaseURL: a.global.remote, Token: token})
	}
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	cas, err := t.authorities(daemon.BadConfig)
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.ClientOptions{BaseURL: t.Address, Token: token, CAs: cas, ClearText: t.InsecureHTTP,
		Name: fmt.Sprintf("%s (context %s)", t.Address, a.place.context)})
}

// talksTo says whom the command talks to, and why.
func (a *app) talksTo() string {
	g, by := &a.global, ""
	if a.place.by != "" {
		by = ", by " + a.place.by
	}
	switch {
	case a.place.target != nil:
		return fmt.Sprintf("context %s at %s%s", a.place.context, g.remote, by)
	case g.elsewhere():
		return g.remote + by
	case os.Getenv(proc.MarkerName) != "" && g.remote == "":
		return "the daemon that runs this job"
	}
	return fmt.Sprintf("this host (%s), %s%s", g.host, g.dataDir, by)
}

// viaDoc is the place in -o json.
type viaDoc struct {
	Context  string `json:"context,omitempty" doc:"absent when an address was given without one"`
	Address  string `json:"address,omitempty" doc:"absent on this host"`
	ChosenBy string `json:"chosen_by,omitempty" doc:"absent for the default"`
}

func (a *app) via() viaDoc {
	v := viaDoc{Context: a.place.context, ChosenBy: a.place.by}
	if a.global.elsewhere() {
		v.Address = a.global.remote
	} else {
		v.Context = localContext
	}
	return v
}

func (all contexts) names() []string { return slices.Sorted(maps.Keys(all.Named)) }
