// Package proc runs job processes: the keeper, which is their parent, and the
// daemon's side of the socket between the two.
//
// What the keeper promises (the names are those of the protocol rules):
//   - K1: when the leash ends the jobs are dead, not being killed. TERM, KILL and
//     the last funeral all come before the deadline; who wakes past it kills at
//     once. The goroutine that kills touches clocks and processes, no file.
//   - K2: one session. A hello makes older connections void, with whatever they
//     had not yet read; a request carries its epoch, and the leash is looked at
//     just before the fork.
//   - K3: an attempt is started once. Asked again the keeper says what became of it.
//   - K4: who starts while an older keeper holds the lock waits 5 s for it to go,
//     then kills its jobs and it, from outside (premises.go).
//   - K5: whoever may open the socket may have everything killed, and hears when
//     it is; nothing starts after that before the next hello. The daemon asks for
//     it on its way out, and kills from outside when it is not heard.
//   - K6: a leash is acknowledged. The list says whether a cgroup holds the jobs.
//   - L21: a leash replaces the one before it, also with a shorter one.
//   - S9: the end of an attempt is on disk before it is reported, and stays there
//     until the daemon says that it has committed it.
//   - The leash is zero for now: the end of the daemon's socket kills everything.
//
// A job is its leader and all that descends from it. Where a cgroup can be made
// each attempt has one, and nothing gets out of it. Elsewhere the keeper is a
// subreaper: what a job leaves behind becomes the keeper's child, and is known by
// its session or by the attempt token in its environment. Two things get past
// that: a process that left the session and wiped its environment while another
// job ran (it dies when that job ends), and everything when daemon and keeper are
// killed in the same instant (the next keeper finds what still carries a token).
package proc

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/exocomp/exocomp/daemon"
)

// Proto is the version of the protocol. Renew, list and kill never change.
const Proto = 0

// request is what the daemon asks. Exactly one field is set.
type request struct {
	Proto   int            `json:"proto"`
	Hello   *daemon.Hello  `json:"hello,omitempty"`
	Start   *daemon.Start  `json:"start,omitempty"`
	Signal  *daemon.Signal `json:"signal,omitempty"`
	Extend  *daemon.Extend `json:"extend,omitempty"`
	List    bool           `json:"list,omitempty"`
	Forget  []string       `json:"forget,omitempty"`
	KillAll bool           `json:"kill_all,omitempty"`
}

// report is what the keeper answers, and tells of its own accord.
type report struct {
	Listed      *daemon.Listed      `json:"listed,omitempty"`
	Started     *daemon.Started     `json:"started,omitempty"`
	StartFailed *daemon.StartFailed `json:"start_failed,omitempty"`
	Exited      *daemon.Exited      `json:"exited,omitempty"`
	Extended    *daemon.Extended    `json:"extended,omitempty"`
	Killed      bool                `json:"killed,omitempty"`  // to who asked for that: nothing runs
	Trouble     string              `json:"trouble,omitempty"` // for the daemon's log
}

// event returns the event in r, or nil.
func (r report) event() daemon.Event {
	switch {
	case r.Listed != nil:
		return *r.Listed
	case r.Started != nil:
		return *r.Started
	case r.StartFailed != nil:
		return *r.StartFailed
	case r.Exited != nil:
		return *r.Exited
	case r.Extended != nil:
		return *r.Extended
	}
	return nil
}

// writeFrame sends one message: a line of JSON.
func writeFrame(w io.Writer, msg any) error {
	text, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("encode %T: %w", msg, err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
