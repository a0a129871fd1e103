package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exocomp/exocomp/daemon"
)

func (a *app) jobsCmd() *cobra.Command {
	c := &cobra.Command{Use: "jobs", Short: "list, show, read and cancel jobs"}
	c.AddCommand(a.jobsListCmd(), a.jobsShowCmd(), a.jobsLogsCmd(), a.jobsCancelCmd())
	return c
}

// listFlags are the flags of jobs list.
type listFlags struct {
	states, labels         []string
	trigger, since, cursor string
	limit                  int
}

func (a *app) jobsListCmd() *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "list jobs, the newest first",
		RunE: func(c *cobra.Command, _ []string) error {
			q, err := f.query()
			if err != nil {
				return err
			}
			return a.listJobs(c.Context(), q)
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.states, "state", nil, "only jobs in these states: "+stateNames())
	fl.StringVar(&f.trigger, "trigger", "", "only jobs that this made: manual")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "only jobs with this label, name=value")
	fl.StringVar(&f.since, "since", "", "only jobs since then: a duration such as 2h, or an RFC 3339 time")
	fl.StringVar(&f.cursor, "cursor", "", "go on behind an earlier page")
	fl.IntVarP(&f.limit, "limit", "n", 50, "how many, at most 1000")
	return c
}

func stateNames() string {
	names := make([]string, len(daemon.States))
	for i, s := range daemon.States {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

func (f listFlags) query() (daemon.JobQuery, error) {
	q := daemon.JobQuery{Trigger: f.trigger, Cursor: f.cursor, Limit: f.limit}
	if f.limit < 1 {
		return q, daemon.Errorf(daemon.Usage, "limit %d: it must be between 1 and 1000", f.limit).Hint("follow the cursor for more")
	}
	for _, s := range f.states {
		q.States = append(q.States, daemon.State(s))
	}
	var err error
	if q.Labels, err = pairs("label", f.labels, nil); err != nil || f.since == "" {
		return q, err
	}
	if d, derr := time.ParseDuration(f.since); derr == nil {
		q.Since = daemon.Millis(time.Now().Add(-d).UnixMilli())
		return q, nil
	}
	if err := q.Since.UnmarshalText([]byte(f.since)); err != nil {
		return q, daemon.Errorf(daemon.Usage, "--since %.40q is neither a duration nor a time", f.since).
			Hint("write 90m, or 2030-01-31T03:00:00Z")
	}
	return q, nil
}

func (a *app) listJobs(ctx context.Context, q daemon.JobQuery) error {
	c, done, err := a.connect(ctx, false)
	if err != nil {
		return err
	}
	defer done()
	page, err := c.Jobs(ctx, q)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(page)
	}
	now := daemon.Millis(time.Now().UnixMilli())
	rows := make([][]string, len(page.Jobs))
	for i, j := range page.Jobs {
		rows[i] = []string{fmt.Sprint(j.Number), j.ID, string(j.State), ago(now, j.CreatedMs), took(j, now), exitOf(j),
			short(j.Spec.String(), 60)}
	}
	if err := table(a.stdout, []string{"NO", "ID", "STATE", "AGE", "TOOK", "EXIT", "COMMAND"}, rows); err != nil {
		return err
	}
	switch {
	case len(rows) == 0 && page.Next == "":
		a.say("no jobs match")
	case page.Next != "":
		a.say("more: --cursor %s", page.Next)
	}
	return nil
}

func (a *app) jobsShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show JOB",
		Short: "show one job, by number or id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, err := a.connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer done()
			j, err := c.Job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(j)
			}
			return a.showJob(j)
		},
	}
}

func (a *app) showJob(j daemon.Job) error {
	now := daemon.Millis(time.Now().UnixMilli())
	rows := [][2]string{
		{"job", fmt.Sprintf("%d  %s", j.Number, j.ID)}, {"state", string(j.State)}, {"reason", j.Reason},
		{"command", short(j.Spec.String(), 200)}, {"cwd", j.Spec.Cwd}, {"env", envNames(j)},
		{"made by", j.Actor + " (" + j.Trigger + ")"}, {"parent", j.ParentID},
		{"ran on", where(j)}, {"exit", exitOf(j)},
		{"created", stamp(j.CreatedMs)}, {"started", stamp(j.StartedMs)}, {"ended", stamp(j.EndedMs)}, {"took", took(j, now)},
		{"timeout", limit(j.TimeoutMs)}, {"grace", limit(j.GraceMs)}, {"priority", fmt.Sprint(j.Priority)},
		{"lock", j.LockKey}, {"dedup key", j.DedupKey}, {"labels", labels(j)}, {"log", logSize(j)},
	}
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

// envNames shows which variables a job names. Their values may be secret.
func envNames(j daemon.Job) string {
	return strings.Join(slices.Sorted(maps.Keys(j.Spec.Env)), " ")
}

func where(j daemon.Job) string {
	if j.Host == "" {
		return ""
	}
	return fmt.Sprintf("%s (epoch %d)", j.Host, j.Epoch)
}

func limit(ms int64) string {
	if ms == 0 {
		return ""
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func labels(j daemon.Job) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		out = append(out, k+"="+j.Labels[k])
	}
	return strings.Join(out, " ")
}

func logSize(j daemon.Job) string {
	switch {
	case j.LogCutBytes > 0:
		return fmt.Sprintf("%d bytes, of which %d were dropped from the middle", j.LogBytes, j.LogCutBytes)
	case j.State.Terminal():
		return fmt.Sprintf("%d bytes", j.LogBytes)
	}
	return ""
}

func (a *app) jobsCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel JOB",
		Short: "cancel one job, by number or id",
		Long:  "cancel ends a queued job at once. A running one gets TERM, and KILL after its grace.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, done, b, err := a.connectToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			ans, err := c.Cancel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json() {
				return a.printJSON(struct {
					daemon.CancelAnswer
					Banner *banner `json:"banner,omitempty"`
				}{ans, b})
			}
			word := string(ans.Job.State)
			if ans.Submitted {
				word = "submitted: no daemon is active on this host; the next one cancels it"
			}
			_, err = fmt.Fprintf(a.stdout, "job %d %s\n", ans.Job.Number, word)
			return err
		},
	}
}
