package daemon

import "fmt"

// An attempt is one try at running a job, known by its token. What a keeper
// says of a token that the row does not carry, or of a row that is terminal,
// is late: it changes nothing (an end that nobody waits for must not turn a
// success into a failure).

// Cause says who ended an attempt.
type Cause string

// The causes.
const (
	CauseExit    Cause = "exit"    // it ended by itself
	CauseCancel  Cause = "cancel"  // the operator
	CauseTimeout Cause = "timeout" // its own limit
	CauseStop    Cause = "stop"    // the daemon stops
	CauseLeash   Cause = "leash"   // the daemon lost its trust in the lease, or died
	CauseLost    Cause = "lost"    // found dead, or killed, by a later keeper
)

// Exit is how an attempt ended: the keeper's record of it.
type Exit struct {
	Attempt string `json:"attempt"`
	Code    int64  `json:"code"`             // exit status; meaningless with Signal
	Signal  string `json:"signal,omitempty"` // the signal that ended the process, such as SIGKILL
	Cause   Cause  `json:"cause"`
	AtMs    Millis `json:"at"`
	Durable bool   `json:"durable"` // the record is on disk; not so when the disk is full (S9)

	LogBytes    int64 `json:"log_bytes"`
	LogCutAt    int64 `json:"log_cut_at,omitempty"`
	LogCutBytes int64 `json:"log_cut_bytes,omitempty"`
}

// decideStarted applies a keeper's word that the process of j runs.
func decideStarted(j Job, token string, at Millis) (Job, bool) {
	if j.Attempt != token || j.State.Terminal() || j.State == Queued || j.StartedMs != 0 {
		return j, false
	}
	j.StartedMs = at
	if j.State == Starting {
		j = j.move(Running, "")
	}
	return j, true
}

// decideStartFailed applies a keeper's word that j has no process and never
// had one.
func decideStartFailed(now Instant, j Job, ev StartFailed) (Job, bool) {
	if j.Attempt != ev.Attempt || !j.State.Live() || j.StartedMs != 0 {
		return j, false
	}
	switch {
	case j.State == Cancelling:
		return j.ended(now.Ms(), Cancelled, j.Reason+" before it started"), true
	case ev.Refused:
		return j.ended(now.Ms(), Interrupted, "never started: "+ev.Why), true
	}
	j.ExitCode = &ev.Code
	return j.ended(now.Ms(), JobFailed, ev.Why), true
}

// decideExited applies the end of an attempt to j. A job that ended by itself
// ended as it did, also when a cancel was on its way.
func decideExited(j Job, x Exit) (Job, bool) {
	if j.Attempt != x.Attempt || !j.State.Live() {
		return j, false
	}
	j.LogBytes, j.LogCutAt, j.LogCutBytes = x.LogBytes, x.LogCutAt, x.LogCutBytes
	if x.Signal == "" {
		j.ExitCode = &x.Code
	}
	j.Signal = x.Signal
	to, reason := outcome(j, x)
	return j.ended(x.AtMs, to, reason), true
}

func outcome(j Job, x Exit) (State, string) {
	killed := x.Cause != CauseExit && x.Cause != CauseTimeout
	if killed && j.State == Cancelling {
		return Cancelled, j.Reason
	}
	switch x.Cause {
	case CauseCancel:
		return Cancelled, "cancelled"
	case CauseTimeout:
		return JobFailed, fmt.Sprintf("timed out after %s", j.Timeout())
	case CauseStop:
		return Interrupted, "cut off: the daemon was stopped"
	case CauseLeash:
		return Interrupted, fmt.Sprintf("cut off: the daemon on %s died or lost its lease (epoch %d)", j.Host, j.Epoch)
	case CauseLost:
		return Interrupted, fmt.Sprintf("cut off: its keeper on %s died (epoch %d)", j.Host, j.Epoch)
	}
	switch {
	case x.Signal != "":
		return JobFailed, "killed by " + x.Signal
	case x.Code != 0:
		return JobFailed, fmt.Sprintf("exit status %d", x.Code)
	}
	return Succeeded, ""
}

// decideCutOff retires j, whose keeper no longer exists. Nobody will ever
// report its end.
func decideCutOff(now Instant, j Job, host string) Job {
	where := "here"
	if j.Host != host {
		where = "on " + j.Host
	}
	switch {
	case j.State == Cancelling:
		return j.ended(now.Ms(), Cancelled, fmt.Sprintf("%s; cut off when its daemon %s ended (epoch %d)", j.Reason, where, j.Epoch))
	case j.StartedMs == 0:
		return j.ended(now.Ms(), Interrupted,
			fmt.Sprintf("cut off as it started: its daemon %s ended (epoch %d)", where, j.Epoch))
	}
	return j.ended(now.Ms(), Interrupted,
		fmt.Sprintf("cut off: its daemon %s ended (epoch %d); outcome unknown", where, j.Epoch))
}

// decideDoomed retires j, which a dead daemon left in the queue.
func decideDoomed(now Instant, j Job) Job {
	return j.ended(now.Ms(), Interrupted,
		fmt.Sprintf("never started: its daemon ended without a clean stop (epoch %d)", j.Epoch))
}
