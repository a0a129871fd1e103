package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
)

// Every flag of serve that may stand in a config file is a setting that is shown,
// with the same default, and no other is.
func TestTheFlagsOfServeAreSettings(t *testing.T) {
	var a app
	fl := a.serveCmd().Flags()
	var shown []string
	for _, s := range daemon.AllSettings {
		if s.Flag == "" {
			continue
		}
		shown = append(shown, s.Flag)
		f := fl.Lookup(s.Flag)
		if f == nil {
			t.Errorf("setting %s is the flag --%s, which serve does not have", s.Name, s.Flag)
			continue
		}
		if s.Name != "serve."+strings.ReplaceAll(s.Flag, "-", "_") {
			t.Errorf("--%s is shown as %s", s.Flag, s.Name)
		}
		if s.Flag != "jobs" && s.Flag != "lease-renew" && s.Default != f.DefValue { // those two are computed
			t.Errorf("--%s has the default %s, and %s says %s", s.Flag, f.DefValue, s.Name, s.Default)
		}
	}
	fl.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(shown, f.Name) && !slices.Contains(commandLineOnly, f.Name) {
			t.Errorf("--%s is no setting in daemon/settings.go, and not for the command line alone", f.Name)
		}
	})
}
