package daemon

import "context"

// Client is every operator verb, once. The command line knows nothing else, so
// the same command runs against the daemon's socket, over HTTP, in a simulated
// World, or, where no daemon is, on the store itself.
//
// A job is named by its id or by its number. Errors are *Error.
type Client interface {
	// Enqueue accepts a job. The same key (not "") from the same actor answers
	// with the job that it made first.
	Enqueue(ctx context.Context, key string, r EnqueueRequest) (Enqueued, error)
	Jobs(ctx context.Context, q JobQuery) (JobPage, error)
	Job(ctx context.Context, ref string) (Job, error)
	// Cancel ends a job: a queued one at once, another when its processes are
	// dead. Submitted says that no daemon has seen the request yet.
	Cancel(ctx context.Context, ref string) (CancelAnswer, error)
	// Logs calls yield with the log of a job, in order, and returns the job as it
	// was behind the last chunk: when following, ended.
	Logs(ctx context.Context, ref string, q LogQuery, yield func(LogChunk) error) (Job, error)
	Cordon(ctx context.Context, reason, why string) (CordonAnswer, error)
	Uncordon(ctx context.Context, reason string) (CordonAnswer, error)
	Schedules(ctx context.Context) (ScheduleList, error)
	Schedule(ctx context.Context, name string) (ScheduleView, error)
	// AddSchedule adds a schedule. One that is there already and is the same is
	// answered with; another one under its name is a Conflict.
	AddSchedule(ctx context.Context, r ScheduleRequest) (ScheduleAnswer, error)
	// EditSchedule replaces one, at the version that r names, if it names one.
	EditSchedule(ctx context.Context, r ScheduleRequest) (ScheduleAnswer, error)
	// RemoveSchedule removes one. What the ledger says of it stays.
	RemoveSchedule(ctx context.Context, name string) (ScheduleAnswer, error)
	// EnableSchedule lets one fire (at the next reload) or not (at once).
	EnableSchedule(ctx context.Context, name string, on bool) (ScheduleAnswer, error)
	// Upcoming says when schedules will be due, by the code that fires them.
	Upcoming(ctx context.Context, q UpcomingQuery) (UpcomingList, error)
	// Fires returns what became of due instants, the newest first.
	Fires(ctx context.Context, q FireQuery) (FirePage, error)
	Status(ctx context.Context) (Status, error)
	Lease(ctx context.Context) (LeaseReport, error)
	// History returns the last events of the store, at most limit, the newest first.
	History(ctx context.Context, limit int) (HistoryPage, error)
	TokenVerbs
	SettingVerbs
	EventVerbs
}

// JobQuery asks for jobs, the newest first.
type JobQuery struct {
	States  []State
	Trigger string
	Labels  map[string]string // all of them
	Since   Millis            // created at or after
	Cursor  string            // JobPage.Next of the page before
	Limit   int               // 1 to 1000; 0 is 50
}

// JobPage is one page. Jobs may be fewer than asked for, also none, and Next
// still not "": then the search goes on behind Next.
type JobPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty" doc:"cursor of the next page"`
}

// CancelAnswer is the job after the request.
type CancelAnswer struct {
	Job       Job  `json:"job"`
	Submitted bool `json:"submitted,omitempty" doc:"written to the inbox; a daemon takes it when one is active"`
}

// CordonAnswer is the set of reasons after the request.
type CordonAnswer struct {
	Cordons   []Cordon `json:"cordons"`
	Submitted bool     `json:"submitted,omitempty" doc:"written to the inbox; a daemon takes it when one is active"`
}

// LogQuery asks for a log.
type LogQuery struct {
	From   int64 // offset: LogChunk.Next of the last chunk that was read
	Follow bool  // until the job ends
}

// Status is one daemon and its store, as a person asks for it.
type Status struct {
	At       Millis         `json:"at"`
	Version  string         `json:"version"`
	Daemon   *DaemonStatus  `json:"daemon,omitempty" doc:"absent when no daemon answers on this host"`
	StoreID  string         `json:"store_id"`
	Lineage  int64          `json:"lineage"`
	Lease    LeaseReport    `json:"lease"`
	Jobs     map[string]int `json:"jobs" doc:"how many are in each state that is not terminal, counted up to 10001"`
	Cordons  []Cordon       `json:"cordons"`
	DataDir  string         `json:"data_dir,omitempty"`
	StateDir string         `json:"state_dir,omitempty"`
}

// DaemonStatus is what a daemon says of itself.
type DaemonStatus struct {
	Host         string   `json:"host"`
	PID          int64    `json:"pid"`
	Incarnation  string   `json:"incarnation"`
	Role         Role     `json:"role"`
	Ready        bool     `json:"ready"`
	Doubt        bool     `json:"doubt" doc:"a renewal was missed: running work goes on, nothing starts"`
	Trouble      string   `json:"trouble,omitempty" doc:"why the store was last not written, until it is again"`
	Stopping     string   `json:"stopping,omitempty"`
	Keeper       string   `json:"keeper,omitempty"`
	Unacked      int64    `json:"unacknowledged_leashes"`
	LeashPartial bool     `json:"leash_partial" doc:"no delegated cgroup: a process that leaves its job's tree in time escapes a kill when daemon and keeper die together"`
	Running      int      `json:"running"`
	Limit        int      `json:"limit"`
	Waiting      int      `json:"waiting_events"`
	NextWake     string   `json:"next_wake"`
	NextWakeMs   int64    `json:"next_wake_ms"`
	Counters     Counters `json:"counters"`
}

// LeaseReport is the row, and what the one who reports knows beyond it.
type LeaseReport struct {
	Lease
	AgeMs         int64  `json:"age_ms" doc:"of the last renewal, by this host's wall clock"`
	HeldHere      bool   `json:"held_here" doc:"by the daemon that reports"`
	TrustLeftMs   int64  `json:"trust_left_ms,omitempty" doc:"of the daemon that reports"`
	Missed        int    `json:"missed,omitempty" doc:"renewals failed in a row"`
	Trouble       string `json:"trouble,omitempty" doc:"why the store was last not written, until it is again"`
	TakeableInMs  int64  `json:"takeable_in_ms,omitempty" doc:"if nobody renews it"`
	LeashWaitMs   int64  `json:"leash_wait_ms,omitempty" doc:"taken by force: jobs are left alone for this long, since the old holder's may live on"`
	ClockSteps    int64  `json:"clock_steps"`
	FencedWrites  int64  `json:"fenced_writes"`
	ReportingHost string `json:"reporting_host,omitempty"`
}
