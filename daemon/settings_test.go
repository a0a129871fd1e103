package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSettingsAreDeclaredSoundly(t *testing.T) {
	if !slices.IsSortedFunc(AllSettings, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("AllSettings is not in the order of names")
	}
	for _, s := range AllSettings {
		if s.Doc == "" || s.Default == "" || s.Needs == "" || strings.ToLower(s.Name) != s.Name || looksSecret(s.Name) {
			t.Errorf("%+v", s)
		}
		if s.Flag != "" {
			if s.Needs != NeedsRestart || !strings.HasPrefix(s.Name, "serve.") {
				t.Errorf("%s is a flag, and does not look like one", s.Name)
			}
			continue
		}
		if got, err := s.normal(s.Default); err != nil || got != s.Default {
			t.Errorf("%s: its default %q is kept as %q: %v", s.Name, s.Default, got, err)
		}
	}
}

func TestValuesOfSettings(t *testing.T) {
	long := strings.Repeat("hunter2", 1000)
	tests := []struct{ name, value, want string }{
		{"jobs.default_timeout", "90s", "1m30s"},
		{"jobs.default_timeout", "1d12h", "36h"},
		{"jobs.default_timeout", "7d", "168h"},
		{"jobs.default_timeout", "0", "0s"},
		{"jobs.default_timeout", "366d", "8784h"},
		{"jobs.default_timeout", "367d", ""},
		{"jobs.default_timeout", "-1s", ""},
		{"jobs.default_timeout", "1us", ""},
		{"jobs.default_timeout", "90", ""},
		{"jobs.default_timeout", "", ""},
		{"jobs.default_timeout", "1.5d", ""},
		{"jobs.default_timeout", "-1d", ""},
		{"jobs.default_timeout", "99999999999999999999d", ""},
		{"jobs.default_timeout", "1d25h", ""},
		{"jobs.default_timeout", "1d-1h", ""},
		{"jobs.default_timeout", long, ""},
		{"jobs.default_grace", "0", ""},
		{"jobs.default_grace", "1h", "1h"},
		{"jobs.default_grace", "61m", ""},
		{"jobs.max_queued", "0", "0"},
		{"jobs.max_queued", "007", "7"},
		{"jobs.max_queued", "-1", ""},
		{"jobs.max_queued", "1e3", ""},
		{"jobs.max_queued", "1000001", ""},
		{"jobs.max_queued", "\x00", ""},
	}
	for _, tt := range tests {
		_, err := checkSetting(tt.name, tt.value)
		s, _ := settingNamed(tt.name)
		got, nerr := s.normal(tt.value)
		if got != tt.want || (err == nil) != (tt.want != "") || (err == nil) != (nerr == nil) {
			t.Errorf("%s = %.30q: got %q, %v, want %q", tt.name, tt.value, got, err, tt.want)
		}
		if err != nil && (CodeOf(err) != Invalid || !strings.Contains(err.Error(), tt.name) || RemedyOf(err) == "" ||
			strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 200) {
			t.Errorf("%s = %.30q: %v (%s)", tt.name, tt.value, err, RemedyOf(err))
		}
	}
}

func TestASettingThatIsNoneIsToldApart(t *testing.T) {
	tests := []struct {
		name   string
		code   Code
		remedy string
	}{
		{"jobs.default_timout", NotFound, "did you mean jobs.default_timeout?"},
		{"default_grace", NotFound, "did you mean jobs.default_grace?"},
		{"lease-ttl", NotFound, "did you mean serve.lease_ttl?"},
		{"jobs.max_queue", NotFound, "did you mean jobs.max_queued?"},
		{"colour", NotFound, "exocomp settings list shows all"},
		{"", NotFound, "exocomp settings list shows all"},
		{strings.Repeat("x", 1<<16), NotFound, "exocomp settings list shows all"},
		{"db.password", Invalid, "keep the secret in a file"},
		{"API_TOKEN", Invalid, "keep the secret in a file"},
	}
	for _, tt := range tests {
		_, err := checkSetting(tt.name, "1")
		if CodeOf(err) != tt.code || !strings.HasPrefix(RemedyOf(err), tt.remedy) || len(err.Error()) > 200 {
			t.Errorf("%.40q: %v (%s)", tt.name, err, RemedyOf(err))
		}
	}
	_, err := checkSetting("serve.jobs", "default")
	if CodeOf(err) != Conflict || !strings.Contains(err.Error(), "--jobs") {
		t.Errorf("a flag: %v", err)
	}
}

// A row that a newer binary left, or that somebody wrote by hand, is no reason to
// fail.
func TestAStoredValueThatIsWrongCountsAsNotSet(t *testing.T) {
	for _, bad := range []string{"", "soon", "-1s", "999d"} {
		if d := (Settings{defaultGraceSetting: bad}).duration(defaultGraceSetting); d != 10*time.Second {
			t.Errorf("%q: %s", bad, d)
		}
	}
	if n := (Settings{maxQueuedSetting: "7"}).count(maxQueuedSetting); n != 7 {
		t.Errorf("7 is %d", n)
	}
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "1d1h1m1s": 25*time.Hour + 61*time.Second,
		"0": 0, "1h30m": 90 * time.Minute, "36h": 36 * time.Hour} {
		d, err := ParseSpan(text)
		back, berr := ParseSpan(SpanText(d))
		if err != nil || d != want || berr != nil || back != want {
			t.Errorf("%s: %s, %v; and back: %s, %v", text, d, err, back, berr)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 0: "0s",
		time.Hour + time.Second: "1h0m1s", 20 * time.Hour: "20h"} {
		if got := SpanText(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for _, bad := range []string{"d", "1dd", "x1d", "1d1d", "+1d"} {
		if d, err := ParseSpan(bad); err == nil {
			t.Errorf("%s is %s", bad, d)
		}
	}
}

func TestTheLimitsOfAJob(t *testing.T) {
	me := Identity{Incarnation: "i"}
	req, err := EnqueueRequest{Spec: Spec{Argv: []string{"true"}}}.normal()
	if err != nil {
		t.Fatal(err)
	}
	limits := jobLimits{timeoutMs: 60_000, graceMs: 5_000}
	e, _, err := decideEnqueue(Instant{}, me, 1, Enqueue{ID: "a", Request: req}, enqueueFacts{limits: limits})
	if err != nil || e.Job.TimeoutMs != 60_000 || e.Job.GraceMs != 5_000 {
		t.Errorf("defaults: %+v, %v", e.Job, err)
	}
	req.TimeoutMs = 1000
	e, _, err = decideEnqueue(Instant{}, me, 1, Enqueue{ID: "a", Request: req}, enqueueFacts{limits: jobLimits{timeoutMs: 60_000}})
	if err != nil || e.Job.TimeoutMs != 1000 || e.Job.GraceMs != 10_000 {
		t.Errorf("what is named counts: %+v, %v", e.Job, err)
	}
	full := jobLimits{maxQueued: 3, queued: 3}
	if _, _, err = decideEnqueue(Instant{}, me, 1, Enqueue{ID: "a", Request: req}, enqueueFacts{limits: full}); CodeOf(err) != Conflict {
		t.Errorf("a full queue: %v", err)
	}
	// The same request again is answered, also while the queue is full.
	old := Job{ID: "a"}
	if e, _, err = decideEnqueue(Instant{}, me, 1, Enqueue{ID: "a", Request: req}, enqueueFacts{own: &old, limits: full}); err != nil || e.Job.ID != "a" {
		t.Errorf("a repeat: %v", err)
	}
}
