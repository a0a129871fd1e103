package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is where a job is in its life:
//
//	queued -> starting -> running -> cancelling -> succeeded | failed | cancelled | interrupted
//
// queued and starting may go straight to cancelled or interrupted, and starting
// to failed when there is nothing to start. The last four are terminal: such a
// row never changes again.
//
// failed means that the job itself failed; interrupted that it was cut off, so
// that nobody can say what it had done.
type State string

// The states.
const (
	Queued      State = "queued"
	Starting    State = "starting"
	Running     State = "running"
	Cancelling  State = "cancelling"
	Succeeded   State = "succeeded"
	JobFailed   State = "failed"
	Cancelled   State = "cancelled"
	Interrupted State = "interrupted"
)

// States lists every state, in the order of a job's life.
var States = []State{Queued, Starting, Running, Cancelling, Succeeded, JobFailed, Cancelled, Interrupted}

// LiveStates are those in which a process of the job may exist.
var LiveStates = []State{Starting, Running, Cancelling}

// TerminalStates are those that a job never leaves.
var TerminalStates = []State{Succeeded, JobFailed, Cancelled, Interrupted}

// Terminal says whether s is one that a job never leaves.
func (s State) Terminal() bool { return slices.Contains(TerminalStates, s) }

// Live says whether a process of a job in s may exist.
func (s State) Live() bool { return slices.Contains(LiveStates, s) }

// moves are the only ways from one state to another.
var moves = map[State][]State{
	Queued:     {Starting, Cancelled, Interrupted},
	Starting:   {Running, Cancelling, Succeeded, JobFailed, Cancelled, Interrupted},
	Running:    {Cancelling, Succeeded, JobFailed, Cancelled, Interrupted},
	Cancelling: {Succeeded, JobFailed, Cancelled, Interrupted},
}

// Job is one row of the table jobs, and the document that the API shows.
type Job struct {
	ID     string `db:"id" json:"id" doc:"sorts by the time of acceptance"`
	Number int64  `db:"number" json:"number" doc:"order of arrival, from 1; what people type"`
	Kind   string `db:"kind" json:"kind"`
	Spec   Spec   `db:"spec" json:"spec"`
	State  State  `db:"state" json:"state"`
	Reason string `db:"reason" json:"reason,omitempty" doc:"why it is in this state"`

	Trigger  string `db:"trigger" json:"trigger" doc:"what made it: manual, schedule, workflow, rule, redrive"`
	Actor    string `db:"actor" json:"actor"`
	ParentID string `db:"parent_id" json:"parent_id,omitempty" doc:"the job that enqueued it"`
	RootID   string `db:"root_id" json:"root_id" doc:"the first of its ancestors, itself if it has none"`

	WorkflowRun string `db:"workflow_run" json:"workflow_run,omitempty"`
	Step        string `db:"step" json:"step,omitempty"`
	Schedule    string `db:"schedule" json:"schedule,omitempty"`

	DedupKey   string `db:"dedup_key" json:"dedup_key,omitempty" doc:"at most one live job has it"`
	IdemKey    string `db:"idem_key" json:"-"` // one job of this actor ever
	IdemHash   string `db:"idem_hash" json:"-"`
	RedriveOf  string `db:"redrive_of" json:"redrive_of,omitempty"`
	RedriveKey string `db:"redrive_key" json:"-"`

	Owner   string `db:"owner" json:"-"` // incarnation that accepted or claimed it
	Host    string `db:"host" json:"host,omitempty" doc:"where it ran"`
	Epoch   int64  `db:"epoch" json:"epoch" doc:"of the lease under which it was accepted or claimed"`
	Attempt string `db:"attempt" json:"attempt" doc:"names this attempt to the processes it reaches"`
	Keeper  string `db:"keeper" json:"-"` // the keeper instance that was asked to start it

	ExitCode *int64 `db:"exit_code" json:"exit_code,omitempty"`
	Signal   string `db:"signal" json:"signal,omitempty" doc:"that ended it"`

	CreatedMs Millis `db:"created_ms" json:"created_at"`
	StartedMs Millis `db:"started_ms" json:"started_at,omitempty"`
	EndedMs   Millis `db:"ended_ms" json:"ended_at,omitempty"`

	TimeoutMs int64             `db:"timeout_ms" json:"timeout_ms,omitempty" doc:"0 is none"`
	GraceMs   int64             `db:"grace_ms" json:"grace_ms" doc:"between TERM and KILL"`
	Labels    map[string]string `db:"labels" json:"labels,omitempty"`
	Priority  int64             `db:"priority" json:"priority" doc:"higher is claimed first"`
	LockKey   string            `db:"lock_key" json:"lock,omitempty" doc:"at most one job with it runs"`
	Rerun     string            `db:"rerun" json:"rerun" doc:"never or safe: whether running it twice does no harm"`

	LogBytes    int64 `db:"log_bytes" json:"log_bytes" doc:"bytes that it wrote"`
	LogCutAt    int64 `db:"log_cut_at" json:"log_cut_at,omitempty" doc:"offset at which the log was cut"`
	LogCutBytes int64 `db:"log_cut_bytes" json:"log_cut_bytes,omitempty" doc:"bytes that were dropped there"`

	DueMs Millis `db:"due_ms" json:"due_at,omitempty" doc:"the instant of its schedule for which it was made"`
}

// Spec says what to run. Exactly one of Argv and Shell is set.
type Spec struct {
	Argv  []string          `json:"argv,omitempty" doc:"program and arguments, run without a shell"`
	Shell string            `json:"shell,omitempty" doc:"a line for /bin/sh -c"`
	Env   map[string]string `json:"env,omitempty" doc:"added to the short list that every job gets"`
	Cwd   string            `json:"cwd,omitempty" doc:"absolute; default is an empty directory of its own"`
}

// String returns the command as a person would type it.
func (s Spec) String() string {
	if s.Shell != "" {
		return s.Shell
	}
	words := make([]string, len(s.Argv))
	for i, w := range s.Argv {
		words[i] = quoteWord(w)
	}
	return strings.Join(words, " ")
}

const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+"

func quoteWord(w string) string {
	if w != "" && strings.Trim(w, plainWord) == "" {
		return w
	}
	if strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "$" + strings.ReplaceAll(fmt.Sprintf("%+q", w), `"`, "'")
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// Timeout returns how long the job may run; 0 is for ever.
func (j Job) Timeout() time.Duration { return time.Duration(j.TimeoutMs) * time.Millisecond }

// Grace returns how long the job has between TERM and KILL.
func (j Job) Grace() time.Duration { return time.Duration(j.GraceMs) * time.Millisecond }

// move returns j in state to, and panics when there is no such move: a rule
// that asks for one is wrong, and must not reach the store.
func (j Job) move(to State, reason string) Job {
	if !slices.Contains(moves[j.State], to) {
		panic(fmt.Sprintf("job %s cannot go from %s to %s", j.ID, j.State, to))
	}
	j.State, j.Reason = to, reason
	return j
}

// ended returns j in the terminal state to, at now.
func (j Job) ended(now Millis, to State, reason string) Job {
	j = j.move(to, reason)
	j.EndedMs = now
	return j
}

// decideCancel answers a request to cancel j. A queued job ends at once. One
// that may have a process is cancelling until that process is known to be gone.
func decideCancel(now Instant, j Job, actor string) (Job, error) {
	why := "cancelled by " + actor
	switch {
	case j.State == Queued:
		return j.ended(now.Ms(), Cancelled, why+" before it started"), nil
	case j.State == Cancelling, j.State == Cancelled: // asked for already, or by a try whose answer was lost
		return j, nil
	case j.State.Live():
		return j.move(Cancelling, why), nil
	}
	return j, Errorf(Conflict, "job %s cannot be cancelled: it is %s already", j.ID, j.State).
		Hint("nothing to do; see exocomp jobs show %s", j.ID)
}
