package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
)

// jobFlags say what a job is: the flags that run and schedules share.
type jobFlags struct {
	kind, shell, cwd, lock, dedup, rerun string
	env, labels                          []string
	timeout, grace                       time.Duration
	priority                             int64
}

func (f *jobFlags) register(fl *pflag.FlagSet) {
	fl.SetInterspersed(false) // what comes behind the command belongs to it
	fl.StringVar(&f.kind, "kind", "command", "kind of the job")
	fl.StringVar(&f.shell, "shell", "", "a line for /bin/sh, instead of a command")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE for the job's environment, or NAME for the value it has here")
	fl.StringVar(&f.cwd, "cwd", "", "directory to run in (default an empty one of its own)")
	fl.DurationVar(&f.timeout, "timeout", 0, "end the job after this long (default the setting jobs.default_timeout: never)")
	fl.DurationVar(&f.grace, "grace", 0, "between TERM and KILL when it is ended (default the setting jobs.default_grace: 10s)")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "name=value, to find the job by")
	fl.Int64Var(&f.priority, "priority", 0, "-1000 to 1000; higher runs first")
	fl.StringVar(&f.lock, "lock", "", "run no two jobs with this lock at once")
	fl.StringVar(&f.dedup, "dedup-key", "", "at most one job with this key is queued or runs")
	fl.StringVar(&f.rerun, "rerun", "", "safe if running the job twice does no harm, else never")
}

// runFlags are the flags of run.
type runFlags struct {
	jobFlags
	key    string
	detach bool
}

func (a *app) runCmd() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "enqueue a command, follow its output, and exit with its code",
		Long: "run enqueues one command and follows it. Its output comes out here, stdout and\n" +
			"stderr apart, and its exit code is the exit code of run. 125 means that run\n" +
			"itself failed and the job's code is not known; 126 and 127 that the command\n" +
			"could not be run or was not found. Ctrl-C ends the following, not the job.",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			req, err := f.request(args)
			if err != nil {
				return err
			}
			return a.runJob(c.Context(), f, req)
		},
	}
	fl := c.Flags()
	f.register(fl)
	fl.Lookup("dedup-key").Usage = "if a job with this key is queued or runs, follow that one"
	fl.StringVar(&f.key, "idempotency-key", "", "one job of this name ever (default a new key)")
	fl.BoolVarP(&f.detach, "detach", "d", false, "print the job's id and do not follow")
	return c
}

// request checks what only the command line can know; the rest is checked by
// whoever accepts the job.
func (f jobFlags) request(args []string) (daemon.EnqueueRequest, error) {
	r := daemon.EnqueueRequest{Kind: f.kind, Spec: daemon.Spec{Argv: args, Shell: f.shell}, Lock: f.lock, Dedup: f.dedup,
		TimeoutMs: f.timeout.Milliseconds(), GraceMs: f.grace.Milliseconds(), Priority: f.priority, Rerun: f.rerun}
	for name, d := range map[string]time.Duration{"timeout": f.timeout, "grace": f.grace} {
		if d < 0 || d > 0 && d < time.Millisecond {
			return r, daemon.Errorf(daemon.Usage, "%s %s: the least is 1ms", name, d).Hint("give a duration such as 90s")
		}
	}
	var err error
	if r.Spec.Env, err = pairs("env", f.env, os.LookupEnv); err != nil {
		return r, err
	}
	r.Labels, err = pairs("label", f.labels, nil)
	if err == nil && f.cwd != "" {
		r.Spec.Cwd, err = filepath.Abs(f.cwd)
	}
	return r, err
}

// pairs splits NAME=VALUE arguments. Values are never quoted in an error.
func pairs(flag string, args []string, lookup func(string) (string, bool)) (map[string]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && lookup != nil {
			value, ok = lookup(name)
		}
		if !ok || name == "" {
			return nil, daemon.Errorf(daemon.Usage, "--%s %.40q is not NAME=VALUE%s", flag, name,
				map[bool]string{true: ", and no such variable is set here"}[lookup != nil]).
				Hint("write it as --%s NAME=VALUE", flag)
		}
		out[name] = value
	}
	return out, nil
}

// runJob enqueues and follows. From the acceptance on its own failures are 125:
// nobody may take them for the job's.
func (a *app) runJob(ctx context.Context, f runFlags, req daemon.EnqueueRequest) error {
	c, done, b, err := a.connectToChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	e, err := enqueue(ctx, c, f.key, req)
	if err != nil {
		return err
	}
	if f.detach || a.json() && e.Submitted {
		return a.printEnqueued(e, b)
	}
	if e.Submitted {
		a.say("submitted %s: no daemon is active on this host, and the job waits until one is", e.Job.ID)
		a.say("  start one with exocomp serve, then: exocomp jobs logs -f %s", e.Job.ID)
		return exitError(daemon.ExitOwn)
	}
	a.say("job %d (%s)%s", e.Job.Number, e.Job.ID, map[bool]string{true: ", which was there already"}[e.Existing != ""])
	return a.follow(ctx, c, e.Job.ID, logFlags{})
}

// enqueue asks with a key, so that it may ask again when the answer is lost.
func enqueue(ctx context.Context, c daemon.Client, key string, req daemon.EnqueueRequest) (daemon.Enqueued, error) {
	if key == "" {
		key = daemon.NewID("key", time.Now(), linux.Chance{})
	}
	e, err := c.Enqueue(ctx, key, req)
	for range 2 {
		if daemon.CodeOf(err) != daemon.TimedOut {
			break
		}
		e, err = c.Enqueue(ctx, key, req)
	}
	return e, err
}

func (a *app) printEnqueued(e daemon.Enqueued, b *banner) error {
	if a.json() {
		return a.printJSON(struct {
			daemon.Enqueued
			Banner *banner `json:"banner,omitempty"`
		}{e, b})
	}
	if e.Submitted {
		a.say("submitted: no daemon is active on this host, and the job waits until one is")
	}
	_, err := fmt.Fprintln(a.stdout, e.Job.ID)
	return err
}

// follow prints a job's output until it ends, and becomes its exit code.
func (a *app) follow(ctx context.Context, c daemon.Client, id string, f logFlags) error {
	f.follow = true
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	j, err := a.printLog(ctx, c, id, f)
	if err == nil {
		return a.endAs(j)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		a.say("\nno longer following; the job goes on. Look: exocomp jobs logs -f %s  End it: exocomp jobs cancel %s", id, id)
		return exitError(130)
	}
	a.complain(err)
	return exitError(daemon.ExitOwn)
}

// endAs ends with the code of j, and says why when it is not 0.
func (a *app) endAs(j daemon.Job) error {
	if j.State == daemon.Succeeded {
		return nil
	}
	a.say("job %d %s: %s", j.Number, j.State, j.Reason)
	switch {
	case j.ExitCode != nil && *j.ExitCode != 0:
		return exitError(int(*j.ExitCode))
	case j.Signal != "":
		return exitError(128 + linux.SignalNumber(j.Signal))
	}
	return exitError(daemon.ExitOwn)
}
