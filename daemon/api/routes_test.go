package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

const run = `{"spec":{"argv":["true"]}}`

func TestAJobIsAcceptedShownAndCancelled(t *testing.T) {
	x := newRig(t)
	post := call{method: "POST", path: "/api/v1/jobs", token: "operator", body: `{"spec":{"argv":["wait"]},"labels":{"a":"b"}}`,
		head: map[string]string{"Idempotency-Key": "k1"}}
	e := decode[daemon.Enqueued](x, x.do(post), 201)
	if e.Job.Actor != "token:a-operator" || e.Job.Number != 1 || e.Existing != "" || e.Job.ParentID != "" {
		t.Errorf("accepted: %+v", e)
	}
	again := decode[daemon.Enqueued](x, x.do(post), 200)
	if again.Job.ID != e.Job.ID || again.Existing != "idempotency" {
		t.Errorf("the same key again: %+v", again)
	}
	post.body = run
	x.refused(x.do(post), 422, daemon.Reused)

	for _, ref := range []string{e.Job.ID, "1", "%31"} {
		if j := decode[daemon.Job](x, x.do(call{path: "/api/v1/jobs/" + ref, token: "viewer"}), 200); j.ID != e.Job.ID {
			t.Errorf("job %s is %s", ref, j.ID)
		}
	}
	cancel := call{method: "POST", path: "/api/v1/jobs/1/cancel", token: "operator"}
	decode[daemon.CancelAnswer](x, x.do(cancel), 200)
	x.eventually("the job is cancelled", func() bool {
		return decode[daemon.Job](x, x.do(call{path: "/api/v1/jobs/1", token: "viewer"}), 200).State == daemon.Cancelled
	})
	decode[daemon.CancelAnswer](x, x.do(cancel), 200)
	x.ended()
	cancel.path = "/api/v1/jobs/2/cancel"
	x.refused(x.do(cancel), 409, daemon.Conflict)
}

func TestJobsAreListed(t *testing.T) {
	x := newRig(t)
	for i := range 3 {
		e := decode[daemon.Enqueued](x, x.do(call{method: "POST", path: "/api/v1/jobs", token: "operator",
			body: fmt.Sprintf(`{"spec":{"argv":["true"]},"labels":{"n":"%d","x":"a,b=c"}}`, i)}), 201)
		x.eventually("it started", func() bool { return x.jobToken(e.Job) != "" })
		x.jobs.end(e.Job.ID, 0)
	}
	x.running(x.inside()) // the fourth
	x.eventually("three have ended", func() bool {
		return len(decode[daemon.JobPage](x, x.do(call{path: "/api/v1/jobs?state=succeeded", token: "viewer"}), 200).Jobs) == 3
	})
	hour := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	tests := []struct{ query, want string }{
		{"", "4 3 2 1"},
		{"?limit=2", "4 3"},
		{"?limit=2&cursor=before-3", "2 1"},
		{"?state=succeeded", "3 2 1"},
		{"?state=succeeded,running", "4 3 2 1"},
		{"?state=succeeded&state=running", "4 3 2 1"},
		{"?state=queued", ""},
		{"?label=n%3D1", "2"},
		{"?label=n%3D1&label=x%3Da,b%3Dc", "2"},
		{"?label=n%3D1&label=n%3D2", "3"}, // the last one counts
		{"?trigger=manual", "4 3 2 1"},
		{"?trigger=schedule", ""},
		{"?since=2020-01-01T00:00:00Z", "4 3 2 1"},
		{"?since=" + hour, ""},
	}
	for _, tt := range tests {
		page := decode[daemon.JobPage](x, x.do(call{path: "/api/v1/jobs" + tt.query, token: "viewer"}), 200)
		var got []string
		for _, j := range page.Jobs {
			got = append(got, fmt.Sprint(j.Number))
		}
		if strings.Join(got, " ") != tt.want || page.Jobs == nil {
			t.Errorf("%s: got %v, want %s", tt.query, got, tt.want)
		}
	}
}

func TestStatusAndLeaseAreShown(t *testing.T) {
	x := newRig(t)
	st := decode[daemon.Status](x, x.do(call{path: "/api/v1/status", token: "viewer"}), 200)
	if st.StoreID == "" || st.Daemon == nil || !st.Daemon.Ready || st.Daemon.Host != "alpha" || !st.Lease.HeldHere {
		t.Errorf("status: %+v", st)
	}
	l := decode[daemon.LeaseReport](x, x.do(call{path: "/api/v1/lease", token: "viewer"}), 200)
	if l.Epoch != 1 || !l.HeldHere || l.Holder != "alpha-1" {
		t.Errorf("lease: %+v", l)
	}
}

func TestACordonIsSetAndLifted(t *testing.T) {
	x := newRig(t)
	set := call{method: "POST", path: "/api/v1/maintenance/cordon", token: "operator"}
	for _, body := range []string{`{}`, `{"reason":"a b/c%2F?","why":"rack is moved"}`} {
		set.body = body
		decode[daemon.CordonAnswer](x, x.do(set), 200)
	}
	a := decode[daemon.CordonAnswer](x, x.do(set), 200)
	if len(a.Cordons) != 2 || a.Cordons[0].Reason != "a b/c%2F?" || a.Cordons[1].Reason != daemon.OperatorCordon ||
		a.Cordons[0].Why != "rack is moved" || a.Cordons[0].By != "token:a-operator" {
		t.Errorf("cordons: %+v", a)
	}
	lift := call{method: "DELETE", path: "/api/v1/maintenance/cordon/a%20b%2Fc%252F%3F", token: "operator"}
	if a = decode[daemon.CordonAnswer](x, x.do(lift), 200); len(a.Cordons) != 1 {
		t.Errorf("cordons: %+v", a)
	}
	x.refused(x.do(lift), 404, daemon.NotFound)
	lift.path = "/api/v1/maintenance/cordon/operator"
	if a = decode[daemon.CordonAnswer](x, x.do(lift), 200); a.Cordons == nil || len(a.Cordons) != 0 {
		t.Errorf("cordons: %+v", a)
	}
	set.body = `{"reason":"restart:1"}`
	x.refused(x.do(set), 409, daemon.Conflict)
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	x := newRig(t)
	x.ended()
	long := strings.Repeat("x", 300)
	tests := []struct {
		call
		status int
		code   daemon.Code
		detail string
	}{
		{call{path: "/api/v1/jobs?limit=0"}, 422, daemon.Invalid, "query.limit"},
		{call{path: "/api/v1/jobs?limit=1001"}, 422, daemon.Invalid, "query.limit"},
		{call{path: "/api/v1/jobs?limit=many"}, 422, daemon.Invalid, "query.limit"},
		{call{path: "/api/v1/jobs?state=asleep"}, 422, daemon.Invalid, "is not one of"},
		{call{path: "/api/v1/jobs?label=x"}, 422, daemon.Invalid, "label"},
		{call{path: "/api/v1/jobs?since=yesterday"}, 422, daemon.Invalid, "RFC 3339"},
		{call{path: "/api/v1/jobs?cursor=7"}, 422, daemon.Invalid, "cursor"},
		{call{path: "/api/v1/jobs?nonsense=7"}, 422, daemon.Invalid, "query.nonsense"},
		{call{path: "/api/v1/status?verbose=1"}, 422, daemon.Invalid, "query.verbose"},
		{call{path: "/api/v1/jobs/99"}, 404, daemon.NotFound, `"99"`},
		{call{path: "/api/v1/jobs/job_x"}, 404, daemon.NotFound, `"job_x"`},
		{call{path: "/api/v1/jobs/" + long}, 422, daemon.Invalid, "path.job"},
		{call{path: "/api/v1/jobs/99/cancel", method: "POST"}, 404, daemon.NotFound, `"99"`},
		{call{path: "/api/v1/jobs/99/logs"}, 404, daemon.NotFound, `"99"`},
		{call{path: "/api/v1/jobs/1/logs?from=x"}, 422, daemon.Invalid, "offset"},
		{call{path: "/api/v1/jobs/1/logs?from=-1"}, 422, daemon.Invalid, "offset"},
		{call{path: "/api/v1/jobs/1/logs", head: map[string]string{"Last-Event-ID": "x"}}, 422, daemon.Invalid, "offset"},
		{call{path: "/api/v1/jobs/1/logs?follow=perhaps"}, 422, daemon.Invalid, "follow"},
		{call{path: "/api/v1/jobs/1/logs?raw=stdin"}, 422, daemon.Invalid, "raw"},
		{call{path: "/api/v1/jobs/1/logs?tail=5"}, 422, daemon.Invalid, "query.tail"},
		{call{path: "/api/v1/nothing"}, 404, daemon.NotFound, "/api/v1/nothing"},
		{call{path: "/"}, 404, daemon.NotFound, "/"},
		{call{path: "/docs"}, 404, daemon.NotFound, "/docs"},
		{call{path: "/api/v1/status", method: "PUT"}, 405, daemon.Usage, "PUT"},
		{call{path: "/api/v1/jobs", method: "POST", body: run, head: map[string]string{"Idempotency-Key": long}},
			422, daemon.Invalid, "header.Idempotency-Key"},
		{call{path: "/api/v1/jobs", method: "POST", body: `{"spec":{}}`}, 422, daemon.Invalid, "no command"},
		{call{path: "/api/v1/maintenance/cordon", method: "POST", body: `{"reason":"` + long + `"}`},
			422, daemon.Invalid, "cordon reason"},
	}
	for _, tt := range tests {
		tt.token = "admin"
		p := x.refused(x.do(tt.call), tt.status, tt.code)
		if !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s %s: detail %q, want %q in it", tt.method, tt.path, p.Detail, tt.detail)
		}
	}
	a := x.do(call{method: "PATCH", path: "/api/v1/jobs"})
	if a.status != 405 || a.head.Get("Allow") != "GET, POST" {
		t.Errorf("405 with Allow %q", a.head.Get("Allow"))
	}
}

func TestBothDoorsAreOpenForHealth(t *testing.T) {
	x := newRig(t)
	for _, local := range []bool{false, true} {
		if a := x.do(call{path: "/healthz", local: local}); a.status != 200 || a.text != "{\"alive\":true}\n" {
			t.Errorf("healthz: %d %s", a.status, a.text)
		}
		if a := x.do(call{path: "/readyz", local: local}); a.status != 200 || a.text != "{\"ready\":true,\"role\":\"active\"}\n" {
			t.Errorf("readyz: %d %s", a.status, a.text)
		}
	}
}

func TestWhoIsNotReadySaysWhy(t *testing.T) {
	var snap atomic.Pointer[daemon.Snapshot]
	x := newRigWith(t, func(o *api.Options) { o.Snapshot = snap.Load })
	for _, tt := range []struct {
		snap daemon.Snapshot
		why  string
	}{
		{daemon.Snapshot{Role: daemon.Watching, TrustUntil: 1 << 62}, "does not hold the lease"},
		{daemon.Snapshot{Role: daemon.Booting, TrustUntil: 1 << 62}, "not yet done"},
		{daemon.Snapshot{Role: daemon.Active}, "trust in the lease has run out"},
		{daemon.Snapshot{Role: daemon.Releasing, TrustUntil: 1 << 62, StopWhy: "terminated"}, "stopping: terminated"},
		{daemon.Snapshot{Role: daemon.Fenced, TrustUntil: 1 << 62}, "given up"},
	} {
		snap.Store(&tt.snap)
		doc := decode[struct {
			Ready bool
			Role  daemon.Role
			Why   string
		}](x, x.do(call{path: "/readyz"}), 503)
		if doc.Ready || doc.Role != tt.snap.Role || !strings.Contains(doc.Why, tt.why) {
			t.Errorf("%s: %+v, want %q", tt.snap.Role, doc, tt.why)
		}
	}
}

func TestEveryAnswerIsPlain(t *testing.T) {
	x := newRig(t)
	x.ended()
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/api/v1/jobs", "/api/v1/jobs/1", "/api/v1/status",
		"/api/v1/lease", "/api/v1/jobs/1/logs", "/nothing"} {
		a := x.do(call{path: path, token: "viewer"})
		if a.head.Get("Cache-Control") != "no-store" || a.head.Get("X-Content-Type-Options") != "nosniff" ||
			a.head.Get("X-Request-Id") == "" || a.head.Get("Link") != "" || strings.Contains(a.text, `"$schema"`) {
			t.Errorf("%s: %v\n%.300s", path, a.head, a.text)
		}
	}
}

func TestARequestHasAnId(t *testing.T) {
	x := newRig(t)
	for sent, kept := range map[string]bool{"abc-1.2_Z": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
		"a b": false, "a\tb": false, "<x>": false} {
		got := x.do(call{path: "/healthz", head: map[string]string{"X-Request-Id": sent}}).head.Get("X-Request-Id")
		if (got == sent) != kept || got == "" {
			t.Errorf("sent %q, got %q", sent, got)
		}
	}
	one, two := x.do(call{path: "/healthz"}), x.do(call{path: "/healthz"})
	if one.head.Get("X-Request-Id") == two.head.Get("X-Request-Id") {
		t.Error("two requests have one id")
	}
}

func TestTheServersHaveLimits(t *testing.T) {
	s := api.New(api.Options{Log: slog.New(slog.DiscardHandler)})
	for _, local := range []bool{false, true} {
		srv := s.HTTPServer(local)
		if srv.ReadHeaderTimeout != 5*time.Second || srv.ReadTimeout != 30*time.Second || srv.IdleTimeout != 2*time.Minute ||
			srv.MaxHeaderBytes != 64<<10 || srv.WriteTimeout != 0 || (srv.ConnContext != nil) != local {
			t.Errorf("local %v: %+v", local, srv)
		}
	}
}

func TestWhatTakesTooLongIsGivenUp(t *testing.T) {
	x := newRig(t)
	slow := x.opts
	slow.Desk.Ask = hang
	s := api.New(slow)
	s.AnswerWithin(time.Millisecond)
	x.refused(x.do(call{base: x.serve(s.HTTPServer(false)), method: http.MethodPost, path: "/api/v1/jobs", token: "operator", body: run}), 504, daemon.TimedOut)
}
