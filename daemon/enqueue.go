package daemon

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// A job is accepted once. Its id and its attempt token are drawn when the
// request arrives, so a Step that is repeated, because its commit failed or
// its answer was lost, meets its own row and changes nothing.
//
// An idempotency key names one job of one actor, for ever: the same request
// again gets that job, another request under the key is refused. A dedup key
// names at most one job that has not ended.

// EnqueueRequest asks for one job.
type EnqueueRequest struct {
	Kind      string            `json:"kind,omitempty" doc:"command, which is the default"`
	Spec      Spec              `json:"spec"`
	TimeoutMs int64             `json:"timeout_ms,omitempty" doc:"how long it may run; 0 is the setting jobs.default_timeout"`
	GraceMs   int64             `json:"grace_ms,omitempty" doc:"between TERM and KILL; 0 is the setting jobs.default_grace"`
	Labels    map[string]string `json:"labels,omitempty"`
	Priority  int64             `json:"priority,omitempty" doc:"-1000 to 1000; higher is claimed first"`
	Lock      string            `json:"lock,omitempty" doc:"at most one job with this lock runs"`
	Dedup     string            `json:"dedup_key,omitempty" doc:"at most one job with this key is queued or runs"`
	Rerun     string            `json:"rerun,omitempty" doc:"never, which is the default, or safe"`
}

// Enqueued is the answer.
type Enqueued struct {
	Job       Job    `json:"job"`
	Existing  string `json:"existing,omitempty" doc:"the key by which an earlier job answered: idempotency or dedup"`
	Submitted bool   `json:"submitted,omitempty" doc:"written to the inbox; a daemon takes it when one is active"`
}

// KindCommand runs Spec.Argv or Spec.Shell.
const KindCommand = "command"

// Limits of one request. They keep a row small enough that a Step which loads
// a hundred of them stays well inside its attempt.
const (
	maxWords    = 4096
	maxSpec     = 256 << 10 // bytes of argv, shell line, environment and cwd together
	maxLabels   = 64
	maxName     = 200 // a label, a key, a lock
	maxPriority = 1000
	maxTimeout  = 366 * 24 * time.Hour
	maxGrace    = time.Hour
	defGrace    = 10 * time.Second
)

// checkKey refuses an idempotency key that no row should carry.
func checkKey(key string) error {
	if len(key) > maxName {
		return Errorf(Invalid, "idempotency key of %d bytes: at most %d are taken", len(key), maxName).
			Hint("use a shorter one, such as a UUID")
	}
	return nil
}

// normal returns r with its defaults, or says what is wrong with it. It never
// quotes a value: an environment may hold a password.
func (r EnqueueRequest) normal() (EnqueueRequest, error) {
	if r.Kind == "" {
		r.Kind = KindCommand
	}
	if r.GraceMs == 0 {
		r.GraceMs = defGrace.Milliseconds()
	}
	if r.Rerun == "" {
		r.Rerun = "never"
	}
	for _, check := range []func(EnqueueRequest) error{checkKind, checkSpec, checkEnv, checkTimes, checkNames} {
		if err := check(r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func checkKind(r EnqueueRequest) error {
	if r.Kind != KindCommand {
		return Errorf(Invalid, "kind %.40q is not known: this exocomp runs jobs of kind command", r.Kind).
			Hint("leave the kind out, or use an exocomp that has that kind")
	}
	return nil
}

func checkSpec(r EnqueueRequest) error {
	s := r.Spec
	switch {
	case len(s.Argv) == 0 && s.Shell == "":
		return Errorf(Invalid, "no command: a job needs an argv or a shell line").
			Hint("exocomp run -- uname -a, or exocomp run --shell 'uname -a | wc -c'")
	case len(s.Argv) > 0 && s.Shell != "":
		return Errorf(Invalid, "both an argv and a shell line: a job has one of them").
			Hint("give the command behind --, or the line with --shell")
	case len(s.Argv) > maxWords:
		return Errorf(Invalid, "argv has %d words: at most %d are taken", len(s.Argv), maxWords).
			Hint("put the list in a file and name the file")
	case len(s.Argv) > 0 && s.Argv[0] == "":
		return Errorf(Invalid, "the program's name is empty").Hint("check the variable that should hold it")
	case s.Cwd != "" && !strings.HasPrefix(s.Cwd, "/"):
		return Errorf(Invalid, "cwd %.200q is not absolute: the daemon has no use for a relative one", s.Cwd).
			Hint("give the whole path")
	}
	if size := s.size(); size > maxSpec {
		return Errorf(TooLarge, "the command and its environment are %d bytes: at most %d are taken", size, maxSpec).
			Hint("put the data in a file and name the file")
	}
	if strings.ContainsRune(s.Shell+s.Cwd+strings.Join(s.Argv, ""), 0) {
		return Errorf(Invalid, "the command holds a NUL byte: no program can be given one").
			Hint("check how the command line was made")
	}
	return nil
}

// size returns how many bytes of text s holds.
func (s Spec) size() int {
	size := len(s.Shell) + len(s.Cwd)
	for _, w := range s.Argv {
		size += len(w)
	}
	for k, v := range s.Env { // a sum: the order does not matter
		size += len(k) + len(v)
	}
	return size
}

func checkEnv(r EnqueueRequest) error {
	for _, k := range slices.Sorted(maps.Keys(r.Spec.Env)) {
		switch {
		case k == "" || strings.Contains(k, "=") || !printable(k):
			return Errorf(Invalid, "environment name %.40q: a name is not empty and holds neither = nor a control character", k).
				Hint("give NAME=VALUE")
		case strings.HasPrefix(k, "EXOCOMP_"):
			return Errorf(Invalid, "environment name %.40q: names that begin with EXOCOMP_ are set by exocomp", k).
				Hint("choose another name")
		case strings.ContainsRune(r.Spec.Env[k], 0):
			return Errorf(Invalid, "the value of environment name %.40q holds a NUL byte", k).
				Hint("encode the value")
		}
	}
	return nil
}

func checkTimes(r EnqueueRequest) error {
	switch {
	case r.TimeoutMs < 0 || r.TimeoutMs > maxTimeout.Milliseconds():
		return Errorf(Invalid, "timeout of %d ms: it must be 0 (none), or at most %s", r.TimeoutMs, maxTimeout).
			Hint("give a duration such as 90s or 2h")
	case r.GraceMs < 0 || r.GraceMs > maxGrace.Milliseconds():
		return Errorf(Invalid, "grace of %d ms: it must be at most %s", r.GraceMs, maxGrace).
			Hint("give a duration such as 10s")
	case r.Priority < -maxPriority || r.Priority > maxPriority:
		return Errorf(Invalid, "priority %d: it must be between -%d and %d", r.Priority, maxPriority, maxPriority).
			Hint("0 is the default; higher runs first")
	}
	return nil
}

func checkNames(r EnqueueRequest) error {
	if r.Rerun != "never" && r.Rerun != "safe" {
		return Errorf(Invalid, "rerun %.40q: it must be never or safe", r.Rerun).
			Hint("say safe when running the job twice does no harm")
	}
	if len(r.Labels) > maxLabels {
		return Errorf(Invalid, "%d labels: at most %d are taken", len(r.Labels), maxLabels).
			Hint("put the data in the command")
	}
	for _, k := range slices.Sorted(maps.Keys(r.Labels)) {
		if k == "" || len(k) > maxName || len(r.Labels[k]) > maxName || strings.ContainsAny(k, "=, ") ||
			!printable(k+r.Labels[k]) {
			return Errorf(Invalid,
				"label %.40q: a name is not empty and holds no =, comma or space, and neither side a control character or over %d bytes",
				k, maxName).Hint("give name=value")
		}
	}
	for _, n := range []struct{ what, name string }{
		{"lock", r.Lock}, {"dedup key", r.Dedup}} {
		if len(n.name) > maxName {
			return Errorf(Invalid, "%s of %d bytes: at most %d are taken", n.what, len(n.name), maxName).
				Hint("use a shorter name, or a hash of the long one")
		}
		if !printable(n.name) {
			return Errorf(Invalid, "%s %.40q holds a control character", n.what, n.name).Hint("use letters, digits and dashes")
		}
	}
	return nil
}

// printable says that a name shows as it is: it holds nothing that moves the cursor
// or rings the bell of the terminal on which somebody looks for it.
func printable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 })
}

// hash identifies the request behind an idempotency key.
func (r EnqueueRequest) hash() string { return hashOf(r) }

// hashOf identifies a document by its JSON.
func hashOf(r any) string {
	doc, err := json.Marshal(r)
	if err != nil {
		panic(err) // only strings and numbers in it
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:])
}

// enqueueFacts is what the store knows that decides what becomes of a request.
type enqueueFacts struct {
	own    *Job // the row of this very request: it was accepted before
	idem   *Job // an earlier job of the same actor and idempotency key
	dedup  *Job // a job with the same dedup key that has not ended
	parent *Job // the job that asks
	last   int64
	limits jobLimits
}

// decideEnqueue returns the job that answers cmd, and whether it is a new row.
func decideEnqueue(now Instant, me Identity, epoch int64, cmd Enqueue, f enqueueFacts) (Enqueued, bool, error) {
	switch {
	case f.own != nil:
		return Enqueued{Job: *f.own}, false, nil
	case f.idem != nil && f.idem.IdemHash != cmd.Request.hash():
		return Enqueued{}, false, Errorf(Reused,
			"idempotency key was used for another request, which made job %s: a key names one request for ever", f.idem.ID).
			Hint("use a new key for a new request")
	case f.idem != nil:
		return Enqueued{Job: *f.idem, Existing: "idempotency"}, false, nil
	case f.dedup != nil:
		return Enqueued{Job: *f.dedup, Existing: "dedup"}, false, nil
	}
	if err := f.limits.check(); err != nil {
		return Enqueued{}, false, err
	}
	r := cmd.Request
	j := Job{
		ID: cmd.ID, Number: f.last + 1, Kind: r.Kind, Spec: r.Spec, State: Queued,
		Trigger: "manual", Actor: cmd.Actor, RootID: cmd.ID,
		DedupKey: r.Dedup, IdemKey: cmd.IdemKey, Owner: me.Incarnation, Epoch: epoch, Attempt: cmd.Attempt,
		CreatedMs: now.Ms(), TimeoutMs: cmp.Or(r.TimeoutMs, f.limits.timeoutMs), GraceMs: cmp.Or(f.limits.graceMs, r.GraceMs),
		Labels: r.Labels, Priority: r.Priority, LockKey: r.Lock, Rerun: r.Rerun,
	}
	if cmd.IdemKey != "" {
		j.IdemHash = r.hash()
	}
	if f.parent != nil {
		j.ParentID, j.RootID = f.parent.ID, f.parent.RootID
	}
	return Enqueued{Job: j}, true, nil
}
