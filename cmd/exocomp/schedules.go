package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
)

func (a *app) schedulesCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "schedules",
		Short: "run jobs at set times, and say what became of each time",
		Long: "A schedule makes a job whenever its cron expression is due in its time zone. The\n" +
			"ledger keeps one line for each time it was due: the job, or why there was none.\n\n" +
			"The daemon reads schedules when it starts, and again at a reload (SIGHUP, or serve\n" +
			"--reload-interval). An edit is in force from then on.",
	}
	c.AddCommand(a.schedulesListCmd(), a.schedulesShowCmd(), a.schedulesAddCmd(), a.schedulesEditCmd(), a.schedulesRmCmd(),
		a.schedulesEnableCmd(true), a.schedulesEnableCmd(false), a.schedulesNextCmd(), a.schedulesFiresCmd("fires"),
		a.schedulesFiresCmd("missed"))
	return c
}

// scheduleFlags are the flags of schedules add and edit.
type scheduleFlags struct {
	jobFlags
	cron, zone, missed, overlap, dstMissing, dstDuplicate string
	deadline, jitter                                      time.Duration
	disabled                                              bool
}

func (f *scheduleFlags) register(fl *pflag.FlagSet) {
	f.jobFlags.register(fl)
	fl.StringVar(&f.cron, "cron", "", "when: minute hour day-of-month month day-of-week, @daily and its kin, or @every 90s")
	fl.StringVar(&f.zone, "tz", "UTC", "time zone, such as Europe/Berlin")
	fl.StringVar(&f.missed, "missed", daemon.MissedSkip, "a time at which no daemon was active: skip it, or start the latest one late")
	fl.DurationVar(&f.deadline, "deadline", 0, "with --missed latest: how late a job may still start (default 1h)")
	fl.StringVar(&f.overlap, "overlap", daemon.OverlapSkip, "when the job before has not ended: skip, queue or allow")
	fl.DurationVar(&f.jitter, "jitter", 0, "start up to this much later, always the same for a name")
	fl.StringVar(&f.dstMissing, "dst-missing", "run", "a fixed time that the clocks leap over: run it right behind the gap, or skip it")
	fl.StringVar(&f.dstDuplicate, "dst-duplicate", "once", "a fixed time that comes twice: once or both")
	fl.BoolVar(&f.disabled, "disabled", false, "keep it, and let it not fire")
}

// millis checks what only a duration can have wrong: a part of a millisecond.
func millis(name string, d time.Duration) (int64, error) {
	if d != d.Truncate(time.Millisecond) {
		return 0, daemon.Errorf(daemon.Usage, "--%s %s: whole milliseconds are the least", name, d).Hint("give a duration such as 90s")
	}
	return d.Milliseconds(), nil
}

func (a *app) schedulesAddCmd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "add NAME --cron EXPR [flags] -- COMMAND [ARG...]",
		Short: "add a schedule",
		Example: "  exocomp schedules add nightly --cron '30 3 * * *' --tz Europe/Berlin --missed latest -- /usr/local/bin/backup\n" +
			"  exocomp schedules add probe --cron '@every 5m' --overlap skip --shell 'curl -fsS https://example.org'",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.cron == "" {
				return daemon.Errorf(daemon.Usage, "--cron is missing: it says when the schedule is due").
					Hint("exocomp schedules add NAME --cron '30 3 * * *' --tz Europe/Berlin -- COMMAND")
			}
			r, err := f.changed(cmd.Flags(), daemon.ScheduleRequest{Name: args[0]}, args[1:], true)
			if err != nil {
				return err
			}
			return a.changeSchedule(cmd.Context(), func(ctx context.Context, c daemon.Client) (daemon.ScheduleAnswer, error) {
				return c.AddSchedule(ctx, r)
			}, "added")
		},
	}
	f.register(c.Flags())
	c.Flags().SetInterspersed(true) // the name comes before the flags
	return c
}

func (a *app) schedulesEditCmd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "edit NAME [flags] [-- COMMAND [ARG...]]",
		Short: "change what the flags name, and leave the rest as it is",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeSchedule(cmd.Context(), func(ctx context.Context, c daemon.Client) (daemon.ScheduleAnswer, error) {
				v, err := c.Schedule(ctx, args[0])
				if err != nil {
					return daemon.ScheduleAnswer{}, err
				}
				r, err := f.changed(cmd.Flags(), v.Request(), args[1:], false)
				if err != nil {
					return daemon.ScheduleAnswer{}, err
				}
				return c.EditSchedule(ctx, r)
			}, "is now version")
		},
	}
	f.register(c.Flags())
	c.Flags().SetInterspersed(true)
	return c
}

// changed returns r with what the flags say: all of them, or only those given.
func (f scheduleFlags) changed(fl *pflag.FlagSet, r daemon.ScheduleRequest, argv []string, all bool) (daemon.ScheduleRequest, error) {
	given := func(name string) bool { return all || fl.Changed(name) }
	job, err := f.request(argv)
	if err != nil {
		return r, err
	}
	text := map[string]struct {
		to   *string
		from string
	}{
		"cron": {&r.Cron, f.cron}, "tz": {&r.Zone, f.zone}, "missed": {&r.Missed, f.missed}, "overlap": {&r.Overlap, f.overlap},
		"dst-missing": {&r.DSTMissing, f.dstMissing}, "dst-duplicate": {&r.DSTDuplicate, f.dstDuplicate},
		"kind": {&r.Job.Kind, job.Kind}, "cwd": {&r.Job.Spec.Cwd, job.Spec.Cwd}, "lock": {&r.Job.Lock, job.Lock},
		"dedup-key": {&r.Job.Dedup, job.Dedup}, "rerun": {&r.Job.Rerun, job.Rerun},
	}
	for name, t := range text { // each its own field: the order does not matter
		if given(name) {
			*t.to = t.from
		}
	}
	spans := map[string]struct {
		to   *int64
		from time.Duration
	}{
		"deadline": {&r.DeadlineMs, f.deadline}, "jitter": {&r.JitterMs, f.jitter},
		"timeout": {&r.Job.TimeoutMs, f.timeout}, "grace": {&r.Job.GraceMs, f.grace},
	}
	for name, s := range spans {
		if !given(name) {
			continue
		}
		if *s.to, err = millis(name, s.from); err != nil {
			return r, err
		}
	}
	if fl.Changed("missed") && f.missed == daemon.MissedSkip && !fl.Changed("deadline") {
		r.DeadlineMs = 0
	}
	if given("disabled") {
		r.Disabled = f.disabled
	}
	if given("env") {
		r.Job.Spec.Env = job.Spec.Env
	}
	if given("label") {
		r.Job.Labels = job.Labels
	}
	if given("priority") {
		r.Job.Priority = job.Priority
	}
	if all || len(argv) > 0 || fl.Changed("shell") {
		r.Job.Spec.Argv, r.Job.Spec.Shell = job.Spec.Argv, job.Spec.Shell
	}
	return r, nil
}

func (a *app) schedulesRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "remove a schedule, at once; its ledger stays",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeSchedule(cmd.Context(), func(ctx context.Context, c daemon.Client) (daemon.ScheduleAnswer, error) {
				return c.RemoveSchedule(ctx, args[0])
			}, "removed")
		},
	}
}

func (a *app) schedulesEnableCmd(on bool) *cobra.Command {
	use, short, word := "enable NAME", "let a schedule fire, from the next reload on", "enabled"
	if !on {
		use, short, word = "disable NAME", "let a schedule not fire, at once", "disabled"
	}
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeSchedule(cmd.Context(), func(ctx context.Context, c daemon.Client) (daemon.ScheduleAnswer, error) {
				return c.EnableSchedule(ctx, args[0], on)
			}, word)
		},
	}
}

// changeSchedule makes one change and says when it is in force.
func (a *app) changeSchedule(ctx context.Context, change func(context.Context, daemon.Client) (daemon.ScheduleAnswer, error), word string) error {
	c, done, b, err := a.connectToChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	ans, err := change(ctx, c)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(struct {
			daemon.ScheduleAnswer
			Banner *banner `json:"banner,omitempty"`
		}{ans, b})
	}
	s := ans.Schedule
	if strings.HasSuffix(word, "version") {
		word = fmt.Sprintf("%s %d", word, s.Version)
	}
	if _, err := fmt.Fprintf(a.stdout, "schedule %s %s\n", s.Name, word); err != nil {
		return err
	}
	if word != "removed" && s.Enabled {
		next, err := c.Upcoming(ctx, daemon.UpcomingQuery{Name: s.Name, N: 1})
		if err == nil && len(next.Upcoming) > 0 {
			u := next.Upcoming[0]
			a.say("  next %s (%s)", u.Local, in(u.Starts))
		}
	}
	if ans.Generation > 0 && ans.Effective != string(daemon.AtOnce) {
		a.say("  in force %s", ans.Effective)
	}
	return nil
}

// in says how long from now t is.
func in(t daemon.Millis) string {
	d := time.Until(t.Time())
	if d < 0 {
		return span(-d) + " ago"
	}
	return "in " + span(d)
}

func (a *app) schedulesListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list schedules, by name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			list, err := c.Schedules(cmd.Context())
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(list)
			}
			rows := make([][]string, len(list.Schedules))
			for i, v := range list.Schedules {
				rows[i] = []string{v.Name, v.Cron, v.Zone, scheduleState(v), nextOf(v), short(v.Job.Spec.String(), 50)}
			}
			if len(rows) == 0 {
				a.say("no schedules; see exocomp schedules add --help")
				return nil
			}
			return table(a.stdout, []string{"NAME", "CRON", "ZONE", "STATE", "NEXT", "COMMAND"}, rows)
		},
	}
}

func scheduleState(v daemon.ScheduleView) string {
	switch {
	case v.Broken != "":
		return "broken"
	case !v.Enabled:
		return "disabled"
	case v.Pending:
		return "waits for reload"
	}
	return "on"
}

func nextOf(v daemon.ScheduleView) string {
	if v.Next == 0 {
		return "-"
	}
	return in(v.Next)
}

func (a *app) schedulesShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "show one schedule",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			v, err := c.Schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(v)
			}
			return a.showSchedule(v)
		},
	}
}

func (a *app) showSchedule(v daemon.ScheduleView) error {
	j := daemon.Job{Spec: v.Job.Spec, Labels: v.Job.Labels}
	missed := v.Missed
	if v.DeadlineMs > 0 {
		missed += ", up to " + limit(v.DeadlineMs) + " late"
	}
	return a.sheet([][2]string{
		{"schedule", fmt.Sprintf("%s (version %d)", v.Name, v.Version)}, {"state", scheduleState(v)}, {"broken", v.Broken},
		{"cron", v.Cron + "  in " + v.Zone}, {"next", cmp.Or(localTime(v.Next, v.Zone), "-")},
		{"command", short(j.Spec.String(), 200)}, {"cwd", j.Spec.Cwd}, {"env", envNames(j)}, {"labels", labels(j)},
		{"missed", missed}, {"overlap", v.Overlap}, {"jitter", limit(v.JitterMs)},
		{"dst", "missing time: " + v.DSTMissing + "; double time: " + v.DSTDuplicate},
		{"timeout", limit(v.Job.TimeoutMs)}, {"lock", v.Job.Lock}, {"dedup key", v.Job.Dedup},
		{"changed", stamp(v.ChangedMs) + " by " + v.By},
	})
}

// sheet prints what is known of one thing, leaving out what is empty.
func (a *app) sheet(rows [][2]string) error {
	for _, r := range rows {
		if r[1] == "" || r[1] == "-" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%-10s %s\n", r[0], clean(r[1])); err != nil {
			return err
		}
	}
	return nil
}

// localTime shows t in a zone, or in UTC where the zone is not known.
func localTime(t daemon.Millis, zone string) string {
	if t == 0 {
		return ""
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		loc = time.UTC
	}
	return t.Time().In(loc).Format("Mon 2006-01-02 15:04:05 -07:00") + ", " + in(t)
}

func (a *app) schedulesNextCmd() *cobra.Command {
	q, from := daemon.UpcomingQuery{}, ""
	c := &cobra.Command{
		Use:   "next [NAME]",
		Short: "when schedules will be due: the code that says so is the code that fires them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Name = args[0]
			}
			if q.N < 1 || q.N > 1000 {
				return outOfRange(q.N)
			}
			var err error
			if q.From, err = aTime("from", from, 1); err != nil {
				return err
			}
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			list, err := c.Upcoming(cmd.Context(), q)
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(list)
			}
			rows := make([][]string, len(list.Upcoming))
			for i, u := range list.Upcoming {
				rows[i] = []string{u.Schedule, u.Local, stamp(u.Instant), in(u.Starts), u.Note}
			}
			if len(rows) == 0 {
				a.say("nothing is due")
				return nil
			}
			return table(a.stdout, []string{"SCHEDULE", "LOCAL", "UTC", "STARTS", "NOTE"}, rows)
		},
	}
	c.Flags().IntVarP(&q.N, "number", "n", 10, "how many, at most 1000")
	c.Flags().StringVar(&from, "from", "", "from then on: a duration from now such as 24h, or an RFC 3339 time (default now)")
	return c
}

func outOfRange(n int) error {
	return daemon.Errorf(daemon.Usage, "-n %d: it must be between 1 and 1000", n).Hint("follow the cursor for more")
}

// aTime reads a flag that is a time, or a duration from now in that direction.
func aTime(flag, text string, direction time.Duration) (m daemon.Millis, err error) {
	if text == "" {
		return 0, nil
	}
	if d, derr := time.ParseDuration(text); derr == nil {
		return daemon.Millis(time.Now().Add(direction * d).UnixMilli()), nil
	}
	if err := m.UnmarshalText([]byte(text)); err != nil {
		return 0, daemon.Errorf(daemon.Usage, "--%s %.40q is neither a duration nor a time", flag, text).
			Hint("write 90m, or 2030-01-31T03:00:00Z")
	}
	return m, nil
}

func (a *app) schedulesFiresCmd(use string) *cobra.Command {
	q, since, outcomes := daemon.FireQuery{}, "", []string{}
	c := &cobra.Command{
		Use:   use + " [NAME]",
		Short: "what became of each time a schedule was due, the newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Schedule = args[0]
			}
			for _, o := range outcomes {
				q.Outcomes = append(q.Outcomes, daemon.Outcome(o))
			}
			if use == "missed" {
				q.Outcomes = daemon.Outcomes[1:]
			}
			if q.Limit < 1 || q.Limit > 1000 {
				return outOfRange(q.Limit)
			}
			var err error
			if q.Since, err = aTime("since", since, -1); err != nil {
				return err
			}
			return a.listFires(cmd.Context(), q, use)
		},
	}
	fl := c.Flags()
	if use == "missed" {
		c.Short = "the times at which no job was started, and why"
	} else {
		fl.StringSliceVar(&outcomes, "outcome", nil, "only these: "+outcomeNames())
	}
	fl.StringVar(&since, "since", "", "due since then: a duration such as 24h, or an RFC 3339 time")
	fl.StringVar(&q.Cursor, "cursor", "", "go on behind an earlier page")
	fl.IntVarP(&q.Limit, "limit", "n", 50, "how many, at most 1000")
	return c
}

func outcomeNames() string {
	names := make([]string, len(daemon.Outcomes))
	for i, o := range daemon.Outcomes {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

func (a *app) listFires(ctx context.Context, q daemon.FireQuery, use string) error {
	c, done, err := a.connect(ctx, false)
	if err != nil {
		return err
	}
	defer done()
	page, err := c.Fires(ctx, q)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(page)
	}
	rows := make([][]string, len(page.Fires))
	for i, f := range page.Fires {
		due := stamp(f.InstantMs)
		if f.UntilMs != 0 {
			due += " .. " + stamp(f.UntilMs)
		}
		rows[i] = []string{due, f.Schedule, string(f.Outcome), cmp.Or(f.Job, "-"), f.Reason}
	}
	if err := table(a.stdout, []string{"DUE", "SCHEDULE", "OUTCOME", "JOB", "REASON"}, rows); err != nil {
		return err
	}
	switch {
	case page.Next != "":
		a.say("more: --cursor %s", page.Next)
	case len(rows) == 0 && use == "missed":
		a.say("nothing was missed")
	case len(rows) == 0:
		a.say("nothing was due yet")
	}
	return nil
}
