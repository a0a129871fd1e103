package api_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// hang answers no command.
func hang(ctx context.Context, _ daemon.Command) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// failing is a daemon that answers every command with one error.
type failing struct{ err atomic.Pointer[error] }

func (f *failing) set(err error) { f.err.Store(&err) }

func (f *failing) ask(context.Context, daemon.Command) (any, error) { return nil, *f.err.Load() }

func (f *failing) rig(t *testing.T) *rig {
	return newRigWith(t, func(o *api.Options) { o.Desk.Ask = f.ask })
}

var enqueue = call{method: "POST", path: "/api/v1/jobs", token: "operator", body: run}

func TestEveryCodeBecomesAProblem(t *testing.T) {
	var f failing
	x := f.rig(t)
	for _, code := range slices.Sorted(maps.Keys(daemon.Meanings)) {
		f.set(fmt.Errorf("outside: %w", daemon.Errorf(code, "the %s", "thing").Hint("the remedy")))
		a := x.do(enqueue)
		p := x.refused(a, daemon.MeaningOf(code).Status, code)
		if p.Detail != "the thing" || p.Remedy != "the remedy" {
			t.Errorf("%s: %+v", code, p)
		}
		if (a.head.Get("WWW-Authenticate") != "") != (a.status == 401) || (a.head.Get("Retry-After") != "") != (a.status == 503) {
			t.Errorf("%s: %v", code, a.head)
		}
	}
}

func TestWhatIsOursStaysWithUs(t *testing.T) {
	var f failing
	x := f.rig(t)
	f.set(errors.New("disk /secret/path is on fire"))
	a := x.do(enqueue)
	x.refused(a, 500, daemon.Failed)
	if strings.Contains(a.text, "secret") {
		t.Errorf("the caller is told: %s", a.text)
	}
	x.eventually("the operator is told", func() bool {
		book := x.slog.String()
		return strings.Contains(book, "/secret/path") && strings.Contains(book, a.head.Get("X-Request-Id"))
	})
	f.set(context.DeadlineExceeded)
	x.refused(x.do(enqueue), 504, daemon.TimedOut)
	f.set(daemon.Errorf("of-the-future", "a code that the table lacks").Hint("none"))
	if a := x.do(enqueue); a.status != 500 || !strings.Contains(a.text, "of-the-future") {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestABrokenHandlerIsNotABrokenDaemon(t *testing.T) {
	x := newRig(t)
	x.srv.Break("/before", false)
	x.srv.Break("/within", true)
	a := x.do(call{path: "/before"})
	x.refused(a, 500, daemon.Failed)
	if strings.Contains(a.text, "secret") {
		t.Errorf("the caller is told: %s", a.text)
	}
	client, base := x.door(false)
	resp, err := client.Get(base + "/within")
	if err == nil {
		resp.Body.Close()
		t.Errorf("half an answer came as a whole one: %d", resp.StatusCode)
	}
	x.eventually("the operator is told of both", func() bool { return strings.Count(x.slog.String(), "secret inside") == 2 })
}

func TestABodyMustBeWhatIsAskedFor(t *testing.T) {
	x := newRig(t)
	big := `{"spec":{"argv":["` + strings.Repeat("x", 1<<20) + `"]}}`
	tests := []struct {
		name, body, kind string
		status           int
		code             daemon.Code
		detail           string
	}{
		{"nothing", "", "application/json", 400, daemon.Invalid, "body is required"},
		{"half", `{"spec":`, "application/json", 400, daemon.Invalid, "it is not JSON"},
		{"trailing", run + "x", "application/json", 400, daemon.Invalid, "it is not JSON"},
		{"a list", `[]`, "application/json", 422, daemon.Invalid, "expected object"},
		{"a word", `"x"`, "application/json", 422, daemon.Invalid, "body"},
		{"no spec", `{}`, "application/json", 422, daemon.Invalid, "spec"},
		{"unknown field", `{"spec":{"argv":["true"]},"extra":1}`, "application/json", 422, daemon.Invalid, "body.extra: unexpected property"},
		{"unknown field inside", `{"spec":{"argv":["true"],"user":"x"}}`, "application/json", 422, daemon.Invalid, "body.spec.user"},
		{"wrong type", `{"spec":{"argv":"true"}}`, "application/json", 422, daemon.Invalid, "body.spec.argv: expected array"},
		{"fraction", `{"spec":{"argv":["true"]},"timeout_ms":1.5}`, "application/json", 422, daemon.Invalid, "body"},
		{"too large a number", `{"spec":{"argv":["true"]},"timeout_ms":1e30}`, "application/json", 422, daemon.Invalid, "body"},
		{"text", run, "text/plain", 415, daemon.Invalid, "content type"},
		{"a form", run, "application/x-www-form-urlencoded", 415, daemon.Invalid, "content type"},
		{"no type", run, "", 415, daemon.Invalid, "content type"},
		{"another JSON", run, "application/merge-patch+json", 415, daemon.Invalid, "content type"},
		{"huge", big, "application/json", 413, daemon.TooLarge, "1 MiB"},
		{"large spec", `{"spec":{"argv":["` + strings.Repeat("x", 300<<10) + `"]}}`, "application/json", 413, daemon.TooLarge, "bytes"},
	}
	for _, tt := range tests {
		c := enqueue
		c.body, c.head = tt.body, map[string]string{"Content-Type": tt.kind}
		if p := x.refused(x.do(c), tt.status, tt.code); !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s: detail %q, want %q in it", tt.name, p.Detail, tt.detail)
		}
	}
	c := enqueue
	c.head = map[string]string{"Content-Type": "application/json; charset=utf-8"}
	decode[daemon.Enqueued](x, x.do(c), 201)
	if page := decode[daemon.JobPage](x, x.do(call{path: "/api/v1/jobs", token: "viewer"}), 200); len(page.Jobs) != 1 {
		t.Errorf("%d jobs of one good request", len(page.Jobs))
	}
}

// A client that is still sending must hear why nobody listens, also one that
// closes its connection after each request.
func TestAHugeBodyIsRefusedInWords(t *testing.T) {
	x := newRig(t)
	for _, local := range []bool{false, true} {
		for range 10 {
			c := enqueue
			c.local, c.body = local, `{"spec":{"argv":["`+strings.Repeat("x", 3<<20)+`"]}}`
			x.refused(x.do(c), 413, daemon.TooLarge)
		}
	}
}

func TestNoAnswerRepeatsAValue(t *testing.T) {
	x := newRig(t)
	x.ended()
	const secret = "hunter2"
	bodies := []string{
		`{"spec":{"argv":"hunter2"}}`,
		`{"spec":"hunter2"}`,
		`"hunter2"`,
		`hunter2`,
		`{"spec":{"argv":["true"]},"timeout_ms":"hunter2"}`,
		`{"spec":{"argv":["true"]},"priority":"hunter2"}`,
		`{"spec":{"argv":["true"],"env":"hunter2"}}`,
		`{"spec":{"argv":["true"],"env":["hunter2"]}}`,
		`{"spec":{"argv":["true"],"env":{"PASSWORD":["hunter2"]}}}`,
		`{"spec":{"argv":["true"],"env":{"PASSWORD":"hunter2\u0000"}}}`,
		`{"spec":{"argv":["true"]},"extra":"hunter2"}`,
		`{"spec":{"argv":["true"],"env":{"PASSWORD":"hunter2"`,
		`{"spec":{"argv":["hunter2\u0000"]}}`,
		`{"spec":{"argv":["true"]},"dedup_key":"` + strings.Repeat("hunter2", 100) + `"}`,
		`{"spec":{"argv":["true"]},"labels":{"a":"` + strings.Repeat("hunter2", 100) + `"}}`,
	}
	for _, body := range bodies {
		c := enqueue
		c.body = body
		if a := x.do(c); a.status < 400 || a.status >= 500 || strings.Contains(a.text, secret) {
			t.Errorf("%s: %d %s", body, a.status, a.text)
		}
	}
	// A number that only the decoder of the struct refuses: it would quote it.
	c := enqueue
	c.body = `{"spec":{"argv":["true"]},"timeout_ms":31337e30}`
	if a := x.do(c); a.status != 422 || strings.Contains(a.text, "31337") {
		t.Errorf("%d %s", a.status, a.text)
	}
	for _, c := range []call{
		{path: "/api/v1/jobs?limit=hunter2"},
		{path: "/api/v1/jobs?since=hunter2"},
		{path: "/api/v1/jobs?label=hunter2"},
		{path: "/api/v1/jobs/1/logs?from=hunter2"},
		{path: "/api/v1/jobs/1/logs?raw=hunter2"},
		{method: "POST", path: "/api/v1/jobs", body: run, head: map[string]string{"Idempotency-Key": strings.Repeat("hunter2", 50)}},
		{method: "POST", path: "/api/v1/maintenance/cordon", body: `{"why":7,"reason":["hunter2"]}`},
	} {
		c.token = "admin"
		if a := x.do(c); a.status != 422 || strings.Contains(a.text, secret) {
			t.Errorf("%s: %d %s", c.path, a.status, a.text)
		}
	}
}

func TestManyMistakesMakeAShortProblem(t *testing.T) {
	x := newRig(t)
	var b strings.Builder
	b.WriteString(`{"spec":{"argv":["true"]}`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"%s%d":1`, strings.Repeat("é", 150), i)
	}
	b.WriteString("}")
	c := enqueue
	c.body = b.String()
	a := x.do(c)
	if x.refused(a, http.StatusRequestEntityTooLarge, daemon.TooLarge); len(c.body) < 1<<20 {
		t.Error("the body was meant to be larger")
	}
	c.body = c.body[:strings.LastIndex(c.body[:1<<19], ",")] + "}"
	if a = x.do(c); len(a.text) > 2600 || !strings.Contains(a.text, "and more") {
		t.Errorf("%d bytes: %.300s", len(a.text), a.text)
	}
	x.refused(a, 422, daemon.Invalid)
}
