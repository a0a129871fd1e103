package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

// versionDoc is what version -o json prints.
type versionDoc struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	SQLite  string `json:"sqlite_driver"`
}

func thisVersion() versionDoc {
	v := versionDoc{Name: "exocomp", Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == "modernc.org/sqlite" {
			v.SQLite = dep.Path + " " + dep.Version
		}
	}
	return v
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "say which exocomp this is",
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			if a.json() {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.stdout, "%s %s (%s, %s)\n", v.Name, v.Version, v.Go, v.SQLite)
			return err
		},
	}
}
