package daemon

import "time"

// Event is something that happened. The set is closed: a Step knows them all.
type Event interface{ event() }

// What the clock and the operating system tell.
type (
	// Wake says that the instant which Next named has come, or may have.
	Wake struct{}
	// Stop asks for a clean end. A second one hurries, a third kills.
	Stop struct{ Why string }
	// Poke says that the inbox may have a new row.
	Poke struct{}
	// Reload asks to read the schedules again. Before READY it is remembered.
	Reload struct{ Why string }
)

// What the keeper tells. Instance names the keeper process that speaks; what a
// keeper of the past says is late.
type (
	// Listed answers Hello and List: what the keeper runs, and the ends that
	// nobody has yet let it forget, those of earlier keepers of this host too.
	Listed struct {
		Instance string
		Epoch    int64    // the term that the keeper obeys
		Seq      int64    // of the lease, as Hello brought it; 0 in an answer to List
		Running  []string // attempts
		Cgroup   bool     // it kills by a cgroup of its own, which nothing leaves
		Exits    []Exit
	}
	Started struct {
		Instance, Attempt string
		AtMs              Millis
	}
	// StartFailed says that the attempt has no process and will never have one.
	StartFailed struct {
		Instance, Attempt string
		Why               string
		Code              int64 // 126 or 127, as shells have it
		Refused           bool  // not the command's fault: too late, or unknown
	}
	Exited struct {
		Instance string
		Exit
	}
	// Extended acknowledges the leash that came with lease row Seq.
	Extended struct {
		Instance string
		Seq      int64
	}
	// KeeperLost says that the keeper is gone and all that it ran is dead.
	// Instance is "" when none could be started.
	KeeperLost struct{ Instance, Why string }
)

// Asked is a command of an operator with the place for its answer.
type Asked struct {
	Command Command
	Reply   Replier // nil: nobody waits
}

// Replier takes the answer to a command, once, without waiting.
type Replier interface{ Reply(result any, err error) }

// Command is a changing verb. Each is idempotent: a Step may repeat it.
type Command interface{ command() }

// The commands, each with what it answers. Ids in them were drawn when they
// were accepted.
type (
	// Enqueue answers Enqueued.
	Enqueue struct {
		ID, Attempt, Actor string
		IdemKey            string // one job of this actor ever
		Parent             string // the job that asks, known by its token
		Request            EnqueueRequest
	}
	// Cancel answers Job.
	Cancel struct{ Job, Actor string }
	// SetCordon answers []Cordon: all that stand after it.
	SetCordon struct{ Reason, Actor, Why string }
	// LiftCordon answers []Cordon.
	LiftCordon struct{ Reason, Actor string }
	// CreateToken answers Token. It carries the hash: the token itself stays with
	// whoever drew it.
	CreateToken struct{ Token Token }
	// RevokeToken answers Token.
	RevokeToken struct {
		ID, Actor string
		LockOut   bool // also when no token of scope admin is left
	}
	// TouchToken answers nothing: the token was used at AtMs.
	TouchToken struct {
		ID   string
		AtMs Millis
	}
	// SetSetting answers SettingChange.
	SetSetting struct{ Name, Value, Actor string }
)

func (Wake) event()        {}
func (Stop) event()        {}
func (Poke) event()        {}
func (Reload) event()      {}
func (Listed) event()      {}
func (Started) event()     {}
func (StartFailed) event() {}
func (Exited) event()      {}
func (Extended) event()    {}
func (KeeperLost) event()  {}
func (Asked) event()       {}

func (Enqueue) command()    {}
func (Cancel) command()     {}
func (SetCordon) command()  {}
func (LiftCordon) command() {}

func (CreateToken) command() {}
func (RevokeToken) command() {}
func (TouchToken) command()  {}
func (SetSetting) command()  {}

// Effect is something to be done in the world, owed by the committed state.
// The set is closed: Perform knows them all.
type Effect interface{ effect() }

// The effects. All but Reply and Leave are owed again by every Step until an
// event says that they are done.
type (
	Hello struct {
		Epoch       int64  `json:"epoch"`
		Incarnation string `json:"incarnation"`
		Seq         int64  `json:"seq"`
		Leash       Leash  `json:"leash"`
	}
	// Start asks the keeper for the process of one attempt. It is sent again
	// only to the same keeper instance, which knows the token (K3).
	Start struct {
		Attempt  string            `json:"attempt"`
		Epoch    int64             `json:"epoch"`
		Job      string            `json:"job"`
		Argv     []string          `json:"argv"`
		Env      map[string]string `json:"env,omitempty"` // what the job names, and EXOCOMP_*
		Cwd      string            `json:"cwd,omitempty"`
		Timeout  time.Duration     `json:"timeout,omitempty"`
		Grace    time.Duration     `json:"grace"`
		Token    string            `json:"token"` // what the job shows to be known as this job
		NotAfter Boottime          `json:"not_after"`
	}
	Signal struct {
		Attempt string        `json:"attempt"`
		Cause   Cause         `json:"cause"`
		Grace   time.Duration `json:"grace"` // between TERM and KILL; 0 kills at once
	}
	Extend struct {
		Epoch int64 `json:"epoch"`
		Seq   int64 `json:"seq"`
		Leash Leash `json:"leash"`
	}
	List    struct{}
	Forget  struct{ Attempts []string }
	KillAll struct{}
	// Ready tells the supervisor that this daemon is the active one.
	Ready struct{}
	// Stopping tells the supervisor that it ends.
	Stopping struct{ Why string }
	// Note writes standdown.jsonl.
	Note  struct{ StandDown }
	Reply struct {
		To     Replier
		Result any
		Err    error
	}
	Leave struct {
		Code int
		Why  string
	}
)

func (Hello) effect()    {}
func (Start) effect()    {}
func (Signal) effect()   {}
func (Extend) effect()   {}
func (List) effect()     {}
func (Forget) effect()   {}
func (KillAll) effect()  {}
func (Ready) effect()    {}
func (Stopping) effect() {}
func (Note) effect()     {}
func (Reply) effect()    {}
func (Leave) effect()    {}

// StandDown is one line of standdown.jsonl: why a daemon gave up a lease that
// it could no longer trust.
type StandDown struct {
	At          Millis `json:"at"`
	Host        string `json:"host"`
	Holder      string `json:"holder"`
	Incarnation string `json:"incarnation"`
	Epoch       int64  `json:"epoch"`
	Why         string `json:"why"`
	By          string `json:"by,omitempty"` // who holds the lease now, if known
	Jobs        int    `json:"jobs"`         // that were running
}
