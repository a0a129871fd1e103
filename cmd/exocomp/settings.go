package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
)

func (a *app) settingsCmd() *cobra.Command {
	c := &cobra.Command{Use: "settings", Short: "list, show and change settings of the store",
		Long: "Settings whose names begin with serve are flags of the daemon: they are shown here\n" +
			"and changed by a restart. The others stand in the store and hold at once."}
	c.AddCommand(a.settingsListCmd(), a.settingsGetCmd(), a.settingsSetCmd())
	return c
}

// completeSettings offers the names of settings, and then nothing.
func completeSettings(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range daemon.AllSettings {
		if len(args) == 0 && (c.Name() == "get" || s.Flag == "") {
			out = append(out, s.Name+"\t"+s.Doc)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) settingsListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list every setting, its value and where that comes from",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			all, err := c.Settings(cmd.Context())
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(all)
			}
			rows := make([][]string, len(all.Settings))
			for i, s := range all.Settings {
				rows[i] = []string{s.Name, cmp.Or(short(s.Value, 60), "-"), short(s.Source, 60), s.Default, string(s.Needs), s.Doc}
			}
			return table(a.stdout, []string{"NAME", "VALUE", "FROM", "DEFAULT", "CHANGE", "WHAT IT IS"}, rows)
		},
	}
}

func (a *app) settingsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "print the value of one setting",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			s, err := c.Setting(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(s)
			}
			if s.Flag != "" && s.Value == "" {
				return daemon.Errorf(daemon.Unavailable, "the value of %s is known by the daemon, and none answers", s.Name).
					Hint("start one: exocomp serve")
			}
			_, err = fmt.Fprintln(a.stdout, s.Value)
			return err
		},
	}
}

func (a *app) settingsSetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME VALUE",
		Short: "change one setting; the value default takes the change back",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, b, err := a.connectToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			ch, err := c.SetSetting(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(struct {
					daemon.SettingChange
					Banner *banner `json:"banner,omitempty"`
				}{ch, b})
			}
			said := fmt.Sprintf("was %s, holds %s", ch.Was, ch.Setting.Needs)
			if !ch.Changed {
				said = "was so already"
			}
			_, err = fmt.Fprintf(a.stdout, "%s %s (%s)\n", ch.Setting.Name, ch.Setting.Value, said)
			return err
		},
	}
}

// flagValues are the values of the flags that are settings, and where each came
// from.
func (a *app) flagValues(fl *pflag.FlagSet) map[string]daemon.FlagValue {
	out := map[string]daemon.FlagValue{}
	for _, s := range daemon.AllSettings {
		f := fl.Lookup(s.Flag)
		if s.Flag == "" || f == nil {
			continue
		}
		v := daemon.FlagValue{Value: f.Value.String(), Source: "default"}
		if d, err := daemon.ParseSpan(v.Value); err == nil && s.Type == daemon.DurationSetting {
			v.Value = daemon.SpanText(d)
		}
		switch where, elsewhere := a.origin[f.Name]; {
		case elsewhere:
			v.Source = where
		case f.Changed:
			v.Source = "command line"
		}
		out[s.Flag] = v
	}
	return out
}
