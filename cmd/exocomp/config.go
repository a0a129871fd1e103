package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/exocomp/exocomp/daemon"
)

// A flag's value comes from the first of these that names it: the command line,
// the environment (EXOCOMP_LEASE_TTL for --lease-ttl), the config file, the
// default. The file is flat YAML; its keys are the names of the flags. Flags
// that depose somebody are for the command line alone.

// commandLineOnly are flags that nothing else may set.
var commandLineOnly = []string{"force-lease", "depose-live", "old-host-is-off", "help", "config", "check", "output"}

// settings are where the values of flags came from, for those that the command
// line did not give.
type settings map[string]string

// configure fills the flags of c that the command line left alone. A key that
// belongs to another command is fine: there is one file for all.
func (a *app) configure(c *cobra.Command) error {
	file, err := a.readConfig(c.Root())
	if err != nil {
		return err
	}
	a.origin = settings{}
	var bad error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if bad != nil || f.Changed || slices.Contains(commandLineOnly, f.Name) || !settable(c, f.Name) {
			return
		}
		if name := envName(f.Name); os.Getenv(name) != "" {
			bad = a.set(f, os.Getenv(name), name)
		} else if v, ok := file[f.Name]; ok {
			bad = a.set(f, v.text, v.where)
		}
	})
	return bad
}

// settable says whether a flag can be given outside the command line: those that
// every command has, and those of serve.
func settable(c *cobra.Command, name string) bool {
	return c.Root().PersistentFlags().Lookup(name) != nil || c.Name() == "serve"
}

func envName(flag string) string {
	return "EXOCOMP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func (a *app) set(f *pflag.Flag, text, where string) error {
	if err := f.Value.Set(text); err != nil {
		return daemon.Errorf(daemon.BadConfig, "%s sets %s to %.60q: %w", where, f.Name, text, err).
			Hint("put it right, or take it out for the default (%s)", f.DefValue)
	}
	a.origin[f.Name] = where
	return nil
}

// blame turns a usage error about values that came from elsewhere into one that
// names the place: nobody typed them.
func (a *app) blame(err error, flags ...string) error {
	if daemon.CodeOf(err) != daemon.Usage {
		return err
	}
	for _, name := range flags {
		if where, ok := a.origin[name]; ok {
			return daemon.Errorf(daemon.BadConfig, "%w (%s is set in %s)", err, name, where).Hint("%s", daemon.RemedyOf(err))
		}
	}
	return err
}

// value is one setting of the file.
type value struct{ text, where string }

// configLimit is more than every flag at length.
const configLimit = 64 << 10

// readConfig reads the file that --config or EXOCOMP_CONFIG names, or the user's
// own when there is one.
func (a *app) readConfig(root *cobra.Command) (map[string]value, error) {
	path, named := a.configPath()
	info, err := os.Stat(path)
	if !named && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
		return nil, nil // not there, or in a home that is not this user's
	}
	var text []byte
	if err == nil && (info.Size() > configLimit || !info.Mode().IsRegular()) {
		err = fmt.Errorf("it is no file of at most %d bytes", configLimit)
	}
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, daemon.Errorf(daemon.BadConfig, "read the config file %s: %w", path, err).
			Hint("name another with --config, or make it readable to this user")
	}
	return parseConfig(root, path, text)
}

func (a *app) configPath() (path string, named bool) {
	if a.global.config != "" {
		return a.global.config, true
	}
	if path := os.Getenv("EXOCOMP_CONFIG"); path != "" {
		return path, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "exocomp", "config.yaml"), false
}

func parseConfig(root *cobra.Command, path string, text []byte) (map[string]value, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, daemon.Errorf(daemon.BadConfig, "the config file %s is no YAML: %w", path, err).
			Hint("write lines such as lease-ttl: 30s")
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, daemon.Errorf(daemon.BadConfig, "the config file %s is no list of settings", path).
			Hint("write lines such as lease-ttl: 30s")
	}
	out := map[string]value{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		where := fmt.Sprintf("%s line %d", path, k.Line)
		if err := checkSetting(root, where, k.Value, v, out); err != nil {
			return nil, err
		}
		out[k.Value] = value{text: v.Value, where: where}
	}
	return out, nil
}

func checkSetting(root *cobra.Command, where, key string, v *yaml.Node, before map[string]value) error {
	serve, _, _ := root.Find([]string{"serve"}) // it is there
	known := root.PersistentFlags().Lookup(key) != nil || serve.Flags().Lookup(key) != nil
	_, twice := before[key]
	switch {
	case slices.Contains(commandLineOnly, key):
		return daemon.Errorf(daemon.BadConfig, "%s sets %s, which is for the command line only", where, key).
			Hint("take it out of the file: it would hold again at every start")
	case !known:
		return daemon.Errorf(daemon.BadConfig, "%s sets %.60q, which is no setting", where, key).
			Hint("the settings are the long flags of exocomp serve --help, without the dashes")
	case twice:
		return daemon.Errorf(daemon.BadConfig, "%s sets %s a second time", where, key).Hint("keep one of them")
	case v.Kind != yaml.ScalarNode || v.Value == "":
		return daemon.Errorf(daemon.BadConfig, "%s: %s needs one value", where, key).Hint("write %s: VALUE", key)
	}
	return nil
}
