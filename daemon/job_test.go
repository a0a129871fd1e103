package daemon

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMovesEndInTerminalStates(t *testing.T) {
	for _, s := range States {
		if s.Terminal() != (len(moves[s]) == 0) {
			t.Errorf("%s: terminal %v, moves %v", s, s.Terminal(), moves[s])
		}
		for _, to := range moves[s] {
			if slices.Index(States, to) <= slices.Index(States, s) {
				t.Errorf("a job goes back from %s to %s", s, to)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a job rose from the dead")
		}
	}()
	Job{State: Succeeded}.move(Running, "")
}

func TestDecideExited(t *testing.T) {
	code := func(n int64) Exit { return Exit{Attempt: "a", Code: n, Cause: CauseExit} }
	cause := func(c Cause) Exit { return Exit{Attempt: "a", Signal: "SIGKILL", Cause: c} }
	tests := []struct {
		name  string
		state State
		exit  Exit
		want  State
	}{
		{"well", Running, code(0), Succeeded},
		{"before the news of its start", Starting, code(0), Succeeded},
		{"badly", Running, code(2), JobFailed},
		{"by a signal of its own", Running, cause(CauseExit), JobFailed},
		{"well, while a cancel was on its way", Cancelling, code(0), Succeeded},
		{"badly, while a cancel was on its way", Cancelling, code(1), JobFailed},
		{"cancelled", Cancelling, cause(CauseCancel), Cancelled},
		{"cancelled, with a code of its own", Cancelling, Exit{Attempt: "a", Code: 0, Cause: CauseCancel}, Cancelled},
		{"timed out", Running, cause(CauseTimeout), JobFailed},
		{"timed out, while a cancel was on its way", Cancelling, cause(CauseTimeout), JobFailed},
		{"cut off by the leash", Running, cause(CauseLeash), Interrupted},
		{"cut off by a stop", Running, cause(CauseStop), Interrupted},
		{"cut off with its keeper", Running, cause(CauseLost), Interrupted},
		{"cut off, while a cancel was on its way", Cancelling, cause(CauseLeash), Cancelled},
	}
	for _, tt := range tests {
		j, ok := decideExited(Job{Attempt: "a", State: tt.state, Reason: "cancelled by me"}, tt.exit)
		if !ok || j.State != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, j.State, j.Reason, tt.want)
		}
		if (j.Reason == "") != (j.State == Succeeded) {
			t.Errorf("%s: reason %q", tt.name, j.Reason)
		}
	}
	for _, s := range append([]State{Queued}, TerminalStates...) {
		if _, ok := decideExited(Job{Attempt: "a", State: s}, code(0)); ok {
			t.Errorf("a late end changed a job that is %s", s)
		}
	}
	if _, ok := decideExited(Job{Attempt: "b", State: Running}, code(0)); ok {
		t.Error("the end of another attempt changed a job")
	}
}

func TestARequestIsCheckedBeforeAnythingIsDrawn(t *testing.T) {
	good := func() EnqueueRequest { return EnqueueRequest{Spec: Spec{Argv: []string{"true"}}} }
	tests := []struct {
		name   string
		change func(*EnqueueRequest)
		want   string
	}{
		{"kind", func(r *EnqueueRequest) { r.Kind = "playbook" }, "kind \"playbook\" is not known"},
		{"nothing", func(r *EnqueueRequest) { r.Spec.Argv = nil }, "no command"},
		{"both", func(r *EnqueueRequest) { r.Spec.Shell = "x" }, "both"},
		{"empty name", func(r *EnqueueRequest) { r.Spec.Argv = []string{""} }, "name is empty"},
		{"many words", func(r *EnqueueRequest) { r.Spec.Argv = make([]string, 5000) }, "5000 words"},
		{"huge", func(r *EnqueueRequest) { r.Spec.Argv = append(r.Spec.Argv, strings.Repeat("x", 300_000)) }, "at most 262144"},
		{"NUL", func(r *EnqueueRequest) { r.Spec.Argv = []string{"a\x00b"} }, "NUL"},
		{"relative cwd", func(r *EnqueueRequest) { r.Spec.Cwd = "tmp" }, "not absolute"},
		{"env name", func(r *EnqueueRequest) { r.Spec.Env = map[string]string{"A=B": "c"} }, "environment name"},
		{"env ours", func(r *EnqueueRequest) { r.Spec.Env = map[string]string{"EXOCOMP_JOB": "c"} }, "set by exocomp"},
		{"env NUL", func(r *EnqueueRequest) { r.Spec.Env = map[string]string{"A": "secret\x00"} }, "holds a NUL"},
		{"timeout", func(r *EnqueueRequest) { r.TimeoutMs = -1 }, "timeout"},
		{"grace", func(r *EnqueueRequest) { r.GraceMs = 1 << 40 }, "grace"},
		{"priority", func(r *EnqueueRequest) { r.Priority = 1001 }, "priority 1001"},
		{"rerun", func(r *EnqueueRequest) { r.Rerun = "maybe" }, "never or safe"},
		{"label", func(r *EnqueueRequest) { r.Labels = map[string]string{"a b": "c"} }, "label"},
		{"label that rings", func(r *EnqueueRequest) { r.Labels = map[string]string{"a": "\x07"} }, "control character"},
		{"lock that moves the cursor", func(r *EnqueueRequest) { r.Lock = "a\x1b[2J" }, "control character"},
		{"dedup key with a C1 control", func(r *EnqueueRequest) { r.Dedup = "a\u009b2J" }, "control character"},
		{"lock", func(r *EnqueueRequest) { r.Lock = strings.Repeat("x", 201) }, "lock of 201 bytes"},
	}
	for _, tt := range tests {
		r := good()
		tt.change(&r)
		_, err := r.normal()
		if err == nil || !strings.Contains(err.Error(), tt.want) || RemedyOf(err) == "" {
			t.Errorf("%s: %v (remedy %q), want %q", tt.name, err, RemedyOf(err), tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes a value: %v", tt.name, err)
		}
	}
	r, err := good().normal()
	if err != nil || r.Kind != KindCommand || r.GraceMs != 10_000 || r.Rerun != "never" {
		t.Errorf("defaults: %+v, %v", r, err)
	}
}

func TestASpecIsShownAsAPersonWouldTypeIt(t *testing.T) {
	for want, argv := range map[string][]string{
		"echo hello":            {"echo", "hello"},
		"echo 'a b' ''":         {"echo", "a b", ""},
		`echo 'it'\''s'`:        {"echo", "it's"},
		"grep -e '$HOME' /a/b":  {"grep", "-e", "$HOME", "/a/b"},
		`printf $'a\nb\x1b[0m'`: {"printf", "a\nb\x1b[0m"},
	} {
		if got := (Spec{Argv: argv}).String(); got != want {
			t.Errorf("%q: got %s, want %s", argv, got, want)
		}
	}
}

func TestIDsSortByTimeAndAreNotRepeated(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[string]bool{}
	last := ""
	for range 10_000 {
		id := NewID("job", now, chance)
		if seen[id] || len(id) != 30 || id[:14] < last {
			t.Fatalf("id %s after %s", id, last)
		}
		seen[id], last = true, id[:14]
		now = now.Add(time.Millisecond)
	}
}

func TestTheQueueSetsAsideWhatFailsAloneThreeTimes(t *testing.T) {
	var q queue
	poison, good := Asked{Command: Cancel{Job: "poison"}}, Asked{Command: Cancel{Job: "good"}}
	q.push(good)
	q.push(poison)
	q.push(good)
	var done, aside, renewals int
	for turns := 0; q.len() > 0; turns++ {
		if turns > 50 {
			t.Fatalf("no end: %+v", q)
		}
		n := q.batch()
		bad := false
		for _, p := range q.items[:n] {
			bad = bad || p.ev == Event(poison)
		}
		switch {
		case bad:
			aside += len(q.failed(n))
		default:
			if n == 0 {
				renewals++
			}
			q.succeeded(n)
			done += n
		}
	}
	if done != 2 || aside != 1 || renewals < 3 {
		t.Errorf("%d done, %d set aside, %d renewals between", done, aside, renewals)
	}
}

func TestAFailureOfTheStoreAloneSetsNothingAside(t *testing.T) {
	var q queue
	q.push(Asked{})
	for range 100 { // the store is down: the renewal alone fails each time
		if aside := q.failed(q.batch()); len(aside) > 0 {
			t.Fatal("set aside an event that was not tried alone")
		}
	}
	q.succeeded(q.batch())
	if n := q.batch(); n != 1 {
		t.Fatalf("batch %d", n)
	}
	q.succeeded(1)
	if q.len() != 0 || q.mode != together {
		t.Errorf("%+v", q)
	}
}
