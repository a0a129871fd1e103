package daemon

// Tables lists every declaration, in the order in which they stand below.
var Tables []*Table

// The declared tables. What each column means is said at its row type.
var (
	Leases = declare[Lease](Table{
		Name: "serve_lease", Key: []string{"id"}, Kept: true,
	})
	Metas = declare[Meta](Table{
		Name: "meta", Key: []string{"name"}, Guarded: true,
	})
	Jobs = declare[Job](Table{
		Name: "jobs", Key: []string{"id"}, Guarded: true, Kept: true,
		Terminal: []string{string(Succeeded), string(JobFailed), string(Cancelled), string(Interrupted)},
		Indexes: []Index{
			{Name: "jobs_number", Columns: []string{"number"}, Unique: true},
			{Name: "jobs_state", Columns: []string{"state", "number"}, Unique: true},
			{Name: "jobs_live", Columns: []string{"number"}, Unique: true,
				Where: "state IN ('starting', 'running', 'cancelling')"},
			{Name: "jobs_claim", Columns: []string{"state", "priority", "number"}, Unique: true, Where: "state = 'queued'"},
			{Name: "jobs_attempt", Columns: []string{"attempt"}, Unique: true},
			{Name: "jobs_idem", Columns: []string{"actor", "idem_key"}, Unique: true, Where: "idem_key <> ''"},
			{Name: "jobs_dedup", Columns: []string{"dedup_key"}, Unique: true,
				Where: "dedup_key <> '' AND state IN ('queued', 'starting', 'running', 'cancelling')"},
			{Name: "jobs_redrive", Columns: []string{"redrive_key"}, Unique: true, Where: "redrive_key <> ''"},
			{Name: "jobs_lock", Columns: []string{"lock_key"}, Unique: true,
				Where: "lock_key <> '' AND state IN ('starting', 'running', 'cancelling')"},
			{Name: "jobs_schedule", Columns: []string{"schedule", "number"}, Unique: true,
				Where: "schedule <> '' AND state IN ('queued', 'starting', 'running', 'cancelling')"},
		},
	})
	Inboxes = declare[InboxRow](Table{
		Name: "inbox", Key: []string{"id"},
		Indexes: []Index{{Name: "inbox_at", Columns: []string{"at_ms", "id"}, Unique: true}},
	})
	Cordons = declare[Cordon](Table{
		Name: "cordons", Key: []string{"reason"}, Guarded: true,
	})
	Schedules = declare[Schedule](Table{
		Name: "schedules", Key: []string{"name"}, Guarded: true,
	})
	Fires = declare[Fire](Table{
		Name: "fires", Key: []string{"schedule", "instant_ms"}, Guarded: true,
		Indexes: []Index{
			{Name: "fires_at", Columns: []string{"instant_ms", "schedule"}, Unique: true},
			{Name: "fires_until", Columns: []string{"schedule", "until_ms", "instant_ms"}, Unique: true, Where: "until_ms > 0"},
		},
	})
	Tokens = declare[Token](Table{
		Name: "tokens", Key: []string{"id"}, Guarded: true,
		Indexes: []Index{
			{Name: "tokens_live", Columns: []string{"name"}, Unique: true, Where: "revoked_ms = 0"},
			{Name: "tokens_created", Columns: []string{"created_ms", "id"}, Unique: true},
		},
	})
	SettingRows = declare[SettingRow](Table{
		Name: "settings", Key: []string{"name"}, Guarded: true,
	})
	Happenings = declare[Happening](Table{
		Name: "events", Key: []string{"seq"}, Guarded: true,
	})
)

// Meta is one fact about the store itself.
type Meta struct {
	Name  string `db:"name"`
	Value string `db:"value"`
}

// The names in meta.
const (
	metaDoomed = "doomed_epoch" // queued rows of this epoch and older were left by a dead daemon
	MetaJobKey = "job_key"      // from which the tokens of jobs are made, in hex
)

// Cordon is one reason why no new root job starts. Whoever set a reason
// removes only that one.
type Cordon struct {
	Reason string `db:"reason" json:"reason"`
	By     string `db:"by_actor" json:"by"`
	AtMs   Millis `db:"at_ms" json:"at"`
	Why    string `db:"why" json:"why,omitempty"`
}

// Happening is one line of the store's own history. (Event is what a Step is
// told.)
type Happening struct {
	Seq     int64  `db:"seq" json:"seq"`
	Kind    string `db:"kind" json:"kind"`
	Subject string `db:"subject" json:"subject"`
	Detail  string `db:"detail" json:"detail,omitempty"`
	Epoch   int64  `db:"epoch" json:"epoch"`
	AtMs    Millis `db:"at_ms" json:"at"`
}

// InboxRow is a request of somebody who owns no epoch: a command line without
// a daemon, perhaps on another host. The holder's Step moves it out (S10).
type InboxRow struct {
	ID      string `db:"id"` // drawn by the writer; of the job, when one is enqueued
	Verb    string `db:"verb"`
	Payload []byte `db:"payload"` // JSON of the Command
	Actor   string `db:"actor"`
	AtMs    Millis `db:"at_ms"`
}
