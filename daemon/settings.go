package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A setting is one row of the table below. There are two kinds:
//
//   - Those with a Flag are decided by whoever starts the daemon. They are shown,
//     and changed by another start.
//   - The others stand in the store, so that every daemon that serves it keeps to
//     them. Each Step that needs one reads it in its own transaction: a change
//     holds for the very next command, and there is no copy that could be old.
//
// A value is kept in one spelling. A stored row that this binary does not know, or
// whose value it refuses, counts as not set: no Step fails because of a setting.

// Setting declares one setting.
type Setting struct {
	Name    string
	Type    SettingType
	Default string
	Min     int64 // of a duration in milliseconds, or of a count
	Max     int64
	Needs   SettingNeed
	Flag    string // of serve, without the dashes; "" for one that is kept in the store
	Doc     string
}

// SettingType is what a value must be.
type SettingType string

// The types of settings.
const (
	DurationSetting SettingType = "duration"
	CountSetting    SettingType = "count"
	SwitchSetting   SettingType = "switch"
	TextSetting     SettingType = "text"
)

// SettingNeed is what must happen before a changed value holds.
type SettingNeed string

// What a change needs.
const (
	AtOnce       SettingNeed = "at once"
	NeedsReload  SettingNeed = "reload"
	NeedsRestart SettingNeed = "restart"
)

// The settings that the core reads.
const (
	defaultTimeoutSetting = "jobs.default_timeout"
	defaultGraceSetting   = "jobs.default_grace"
	maxQueuedSetting      = "jobs.max_queued"
)

// AllSettings is every setting, by name.
var AllSettings = []Setting{
	{Name: defaultGraceSetting, Type: DurationSetting, Default: "10s", Min: 1, Max: maxGrace.Milliseconds(), Needs: AtOnce,
		Doc: "between TERM and KILL, for a job that names no grace"},
	{Name: defaultTimeoutSetting, Type: DurationSetting, Default: "0s", Max: maxTimeout.Milliseconds(), Needs: AtOnce,
		Doc: "how long a job may run that names no timeout; 0 is for ever"},
	{Name: maxQueuedSetting, Type: CountSetting, Default: "0", Max: 1_000_000, Needs: AtOnce,
		Doc: "how many jobs may wait in the queue; further ones are refused; 0 is any number"},
	{Name: "serve.drain_grace", Type: DurationSetting, Default: "30s", Needs: NeedsRestart, Flag: "drain-grace",
		Doc: "on a stop: how long running jobs may go on"},
	{Name: "serve.jobs", Type: CountSetting, Default: "cores", Needs: NeedsRestart, Flag: "jobs",
		Doc: "how many jobs run at once"},
	{Name: "serve.lease_renew", Type: DurationSetting, Default: "ttl/5", Needs: NeedsRestart, Flag: "lease-renew",
		Doc: "how often the lease is renewed"},
	{Name: "serve.lease_ttl", Type: DurationSetting, Default: "30s", Needs: NeedsRestart, Flag: "lease-ttl",
		Doc: "how long a silent holder keeps the lease"},
	{Name: "serve.listen", Type: TextSetting, Default: "127.0.0.1:7373", Needs: NeedsRestart, Flag: "listen",
		Doc: "TCP address of the API"},
	{Name: "serve.reload_interval", Type: DurationSetting, Default: "0s", Needs: NeedsRestart, Flag: "reload-interval",
		Doc: "how often the schedules are read again unasked; 0 is never"},
	{Name: "serve.shared_store", Type: SwitchSetting, Default: "false", Needs: NeedsRestart, Flag: "shared-store",
		Doc: "several hosts open the store"},
	{Name: "serve.single_host", Type: SwitchSetting, Default: "false", Needs: NeedsRestart, Flag: "single-host",
		Doc: "no other host may serve the store"},
	{Name: "serve.standby", Type: SwitchSetting, Default: "false", Needs: NeedsRestart, Flag: "standby",
		Doc: "wait for the lease rather than refuse to start"},
}

// SettingVerbs are the verbs for settings.
type SettingVerbs interface {
	// Settings returns every setting, by name.
	Settings(ctx context.Context) (SettingList, error)
	Setting(ctx context.Context, name string) (SettingInfo, error)
	// SetSetting changes a stored setting; the value "default" takes the change back.
	SetSetting(ctx context.Context, name, value string) (SettingChange, error)
}

// SettingRow is a stored value. Value is "" once it was set back to the default.
type SettingRow struct {
	Name    string `db:"name"`
	Value   string `db:"value"`
	By      string `db:"by_actor"`
	AtMs    Millis `db:"at_ms"`
	Version int64  `db:"version"` // rises with each change
}

// FlagValue is the value of a flag of the daemon that answers.
type FlagValue struct{ Value, Source string }

// SettingInfo is a setting as it is shown.
type SettingInfo struct {
	Name    string      `json:"name"`
	Type    SettingType `json:"type" enum:"duration,count,switch,text"`
	Value   string      `json:"value" doc:"in force; empty for a flag when no daemon answers"`
	Source  string      `json:"source" doc:"default, store, or where a flag was given"`
	Default string      `json:"default"`
	Needs   SettingNeed `json:"needs" enum:"at once,reload,restart" doc:"before a change holds"`
	Flag    string      `json:"flag,omitempty" doc:"of serve, which alone sets it"`
	Doc     string      `json:"doc"`
	By      string      `json:"by,omitempty"`
	AtMs    Millis      `json:"at,omitempty"`
	Version int64       `json:"version,omitempty"`
}

// SettingList is all of them.
type SettingList struct {
	Settings []SettingInfo `json:"settings"`
}

// SettingChange is a setting after a request to change it.
type SettingChange struct {
	Setting SettingInfo `json:"setting"`
	Was     string      `json:"was" doc:"the value before"`
	Changed bool        `json:"changed" doc:"false when it was so already"`
}

// setToDefault is the value that takes a change back.
const setToDefault = "default"

// maxSettings is more rows than there will be settings.
const maxSettings = 1000

// settingNamed finds a setting, or says which one may be meant.
func settingNamed(name string) (Setting, error) {
	i := slices.IndexFunc(AllSettings, func(s Setting) bool { return s.Name == name })
	if i >= 0 {
		return AllSettings[i], nil
	}
	if looksSecret(name) {
		return Setting{}, Errorf(Invalid, "the name of that setting looks like a secret's: settings are kept and shown in clear text").
			Hint("keep the secret in a file that only the user of the daemon can read, and name the file to the job")
	}
	e := Errorf(NotFound, "no setting %.40q", name)
	if near := nearest(name); near != "" {
		return Setting{}, e.Hint("did you mean %s? exocomp settings list shows all", near)
	}
	return Setting{}, e.Hint("exocomp settings list shows all")
}

func looksSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"secret", "password", "passwd", "passphrase", "token", "credential", "apikey", "api_key", "private_key"},
		func(part string) bool { return strings.Contains(name, part) })
}

// nearest returns the setting whose name is most like name, or "".
func nearest(name string) string {
	best, found := 4, "" // more slips than three make another word
	for _, s := range AllSettings {
		_, last, _ := strings.Cut(s.Name, ".")
		if name != "" && (name == last || name == s.Flag) {
			return s.Name
		}
		if d := slips(name, s.Name); d < best {
			best, found = d, s.Name
		}
	}
	return found
}

// slips counts the letters to change, add or take away between a and b. Names of
// another length than any setting has are not compared: the work is a product.
func slips(a, b string) int {
	if len(a) > 60 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// normal returns value in the spelling that is kept, or says which rule it
// breaks. It never repeats the value.
func (s Setting) normal(value string) (string, error) {
	if s.Flag != "" {
		return "", Errorf(Conflict, "setting %s is the flag --%s of serve: it is decided when the daemon starts", s.Name, s.Flag).
			Hint("start the daemon with --%s, or put %[1]s into its config file, and restart it", s.Flag)
	}
	switch s.Type {
	case DurationSetting:
		d, err := ParseSpan(value)
		if err != nil || d < 0 || d%time.Millisecond != 0 || d.Milliseconds() < s.Min || d.Milliseconds() > s.Max {
			return "", s.refusal("a duration such as 90s, 2h or 7d, from %s to %s",
				SpanText(time.Duration(s.Min)*time.Millisecond), SpanText(time.Duration(s.Max)*time.Millisecond))
		}
		return SpanText(d), nil
	case CountSetting:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < s.Min || n > s.Max {
			return "", s.refusal("a whole number from %d to %d", s.Min, s.Max)
		}
		return formatInt(n), nil
	}
	panic("setting " + s.Name + " has a type that the store does not keep")
}

func (s Setting) refusal(rule string, args ...any) error {
	return Errorf(Invalid, "setting %s: the value must be %s", s.Name, fmt.Sprintf(rule, args...)).
		Hint("its default is %s: exocomp settings set %s default", s.Default, s.Name)
}

// Settings are the stored values by name: what differs from the defaults.
type Settings map[string]string

// value returns the value in force of a setting that the core names itself.
func (v Settings) value(name string) string {
	s, err := settingNamed(name)
	if err != nil {
		panic(err)
	}
	if text, err := s.normal(v[name]); err == nil {
		return text
	}
	return s.Default
}

func (v Settings) duration(name string) time.Duration {
	d, _ := ParseSpan(v.value(name)) // it was checked
	return d
}

func (v Settings) count(name string) int64 {
	n, _ := strconv.ParseInt(v.value(name), 10, 64) // it was checked
	return n
}

func loadSettings(ctx context.Context, r Reader) (Settings, []SettingRow, error) {
	rows, err := SettingRows.Scan(ctx, r, Query{Limit: maxSettings})
	v := Settings{}
	for _, row := range rows {
		v[row.Name] = row.Value
	}
	return v, rows, err
}

// info shows a setting.
func (s Setting) info(v Settings, rows []SettingRow, flags map[string]FlagValue) SettingInfo {
	out := SettingInfo{Name: s.Name, Type: s.Type, Default: s.Default, Needs: s.Needs, Flag: s.Flag, Doc: s.Doc, Source: "default"}
	if s.Flag != "" {
		f := flags[s.Flag]
		out.Value, out.Source = f.Value, cmp.Or(f.Source, "not known: no daemon answers")
		return out
	}
	out.Value = v.value(s.Name)
	for _, row := range rows {
		if row.Name == s.Name {
			out.By, out.AtMs, out.Version = row.By, row.AtMs, row.Version
		}
	}
	if v[s.Name] == out.Value {
		out.Source = "store"
	}
	return out
}

// Settings implements Client.
func (s reads) Settings(ctx context.Context) (SettingList, error) {
	out := SettingList{Settings: []SettingInfo{}}
	err := s.store.View(ctx, func(r Reader) error {
		v, rows, err := loadSettings(ctx, r)
		for _, one := range AllSettings {
			out.Settings = append(out.Settings, one.info(v, rows, s.about.Flags))
		}
		return err
	})
	return out, err
}

// Setting implements Client.
func (s reads) Setting(ctx context.Context, name string) (out SettingInfo, err error) {
	one, err := settingNamed(name)
	if err != nil {
		return out, err
	}
	err = s.store.View(ctx, func(r Reader) error {
		v, rows, err := loadSettings(ctx, r)
		out = one.info(v, rows, s.about.Flags)
		return err
	})
	return out, err
}

// checkSetting refuses what needs no store to be refused.
func checkSetting(name, value string) (Setting, error) {
	s, err := settingNamed(name)
	if err == nil && (value != setToDefault || s.Flag != "") {
		_, err = s.normal(value)
	}
	return s, err
}

// SetSetting implements Client.
func (l Local) SetSetting(ctx context.Context, name, value string) (SettingChange, error) {
	if err := l.who.mayManage(); err != nil {
		return SettingChange{}, err
	}
	if _, err := checkSetting(name, value); err != nil {
		return SettingChange{}, err
	}
	return tell[SettingChange](ctx, l, SetSetting{Name: name, Value: value, Actor: l.who.Actor})
}

// SetSetting implements Client.
func (o Offline) SetSetting(ctx context.Context, name, value string) (SettingChange, error) {
	if _, err := checkSetting(name, value); err != nil {
		return SettingChange{}, err
	}
	return SettingChange{}, o.noDaemon(ctx, "a setting is changed by a daemon", "exocomp serve")
}

func (t *turn) setSetting(ctx context.Context, tx Tx, c SetSetting) (SettingChange, error) {
	s, err := checkSetting(c.Name, c.Value)
	if err != nil {
		return SettingChange{}, err
	}
	v, rows, err := loadSettings(ctx, tx)
	if err != nil {
		return SettingChange{}, err
	}
	was := s.info(v, rows, nil)
	row := SettingRow{Name: s.Name, By: c.Actor, AtMs: t.now.Ms(), Version: was.Version + 1}
	if c.Value != setToDefault {
		row.Value, _ = s.normal(c.Value) // it was checked
	}
	if v[s.Name] == row.Value {
		return SettingChange{Setting: was, Was: was.Value}, nil
	}
	if err := SettingRows.Put(ctx, tx, row); err != nil {
		return SettingChange{}, err
	}
	v[s.Name] = row.Value
	now := s.info(v, []SettingRow{row}, nil)
	detail := fmt.Sprintf("by %s: from %s to %s", c.Actor, was.Value, now.Value)
	return SettingChange{Setting: now, Was: was.Value, Changed: true}, t.record(ctx, tx, "setting.changed", s.Name, detail)
}
