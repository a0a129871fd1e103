package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

func TestEveryVerbWorksOverBothDoors(t *testing.T) {
	x := newRig(t)
	ctx := context.Background()
	for name, c := range map[string]daemon.Client{"tcp": x.client(x.admin), "socket": x.local("")} {
		e, err := c.Enqueue(ctx, "key-"+name, daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"true"}},
			Labels: map[string]string{"door": name, "odd": "a=b,c"}, TimeoutMs: 60_000})
		if err != nil || e.Job.ID == "" || e.Job.TimeoutMs != 60_000 {
			t.Fatalf("%s: enqueue: %+v, %v", name, e, err)
		}
		again, err := c.Enqueue(ctx, "key-"+name, daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"true"}},
			Labels: map[string]string{"door": name, "odd": "a=b,c"}, TimeoutMs: 60_000})
		if err != nil || again.Job.ID != e.Job.ID || again.Existing != "idempotency" {
			t.Errorf("%s: replay: %+v, %v", name, again, err)
		}
		page, err := c.Jobs(ctx, daemon.JobQuery{Labels: map[string]string{"door": name, "odd": "a=b,c"}, States: daemon.States,
			Trigger: "manual", Since: e.Job.CreatedMs, Limit: 10})
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != e.Job.ID {
			t.Errorf("%s: list: %+v, %v", name, page, err)
		}
		j, err := c.Job(ctx, e.Job.ID)
		if err != nil || j.Number != e.Job.Number || j.CreatedMs != e.Job.CreatedMs {
			t.Errorf("%s: show: %+v, %v", name, j, err)
		}
		if a, err := c.Cancel(ctx, e.Job.ID); err != nil || a.Submitted {
			t.Errorf("%s: cancel: %+v, %v", name, a, err)
		}
		reason := "rack 7/b & more"
		if a, err := c.Cordon(ctx, reason, "why not"); err != nil || len(a.Cordons) != 1 || a.Cordons[0].Reason != reason {
			t.Errorf("%s: cordon: %+v, %v", name, a, err)
		}
		if a, err := c.Uncordon(ctx, reason); err != nil || len(a.Cordons) != 0 {
			t.Errorf("%s: uncordon: %+v, %v", name, a, err)
		}
		if st, err := c.Status(ctx); err != nil || !st.Daemon.Ready || st.StoreID == "" || st.Lease.Epoch != 1 {
			t.Errorf("%s: status: %+v, %v", name, st, err)
		}
		if l, err := c.Lease(ctx); err != nil || !l.HeldHere || l.TTLMs != 30_000 || l.Host != "alpha" {
			t.Errorf("%s: lease: %+v, %v", name, l, err)
		}
	}
}

// Every operation, with every kind of caller.
func TestWhoMayDoWhat(t *testing.T) {
	x := newRig(t)
	paths := map[string]struct{ method, path, body string }{
		"enqueue-job": {"POST", "/api/v1/jobs", `{"spec":{"argv":["true"]}}`},
		"list-jobs":   {"GET", "/api/v1/jobs", ""},
		"get-job":     {"GET", "/api/v1/jobs/1", ""},
		"cancel-job":  {"POST", "/api/v1/jobs/1/cancel", ""},
		"read-log":    {"GET", "/api/v1/jobs/1/logs", ""},
		"get-status":  {"GET", "/api/v1/status", ""},
		"get-lease":   {"GET", "/api/v1/lease", ""},
		"get-history": {"GET", "/api/v1/history", ""},
		"cordon":      {"POST", "/api/v1/maintenance/cordon", `{"reason":"x"}`},
		"uncordon":    {"DELETE", "/api/v1/maintenance/cordon/x", ""},

		"list-schedules":   {"GET", "/api/v1/schedules", ""},
		"add-schedule":     {"POST", "/api/v1/schedules", `{"name":"x","cron":"@daily","job":{"spec":{"argv":["true"]}}}`},
		"get-schedule":     {"GET", "/api/v1/schedules/x", ""},
		"edit-schedule":    {"PUT", "/api/v1/schedules/x", `{"name":"x","cron":"@daily","job":{"spec":{"argv":["true"]}}}`},
		"remove-schedule":  {"DELETE", "/api/v1/schedules/x", ""},
		"enable-schedule":  {"POST", "/api/v1/schedules/x/enable", ""},
		"disable-schedule": {"POST", "/api/v1/schedules/x/disable", ""},
		"list-upcoming":    {"GET", "/api/v1/upcoming", ""},
		"list-fires":       {"GET", "/api/v1/fires", ""},

		"list-events":   {"GET", "/api/v1/events", ""},
		"create-token":  {"POST", "/api/v1/tokens", `{"name":"new","scope":"viewer"}`},
		"list-tokens":   {"GET", "/api/v1/tokens", ""},
		"revoke-token":  {"DELETE", "/api/v1/tokens/new", ""},
		"list-settings": {"GET", "/api/v1/settings", ""},
		"get-setting":   {"GET", "/api/v1/settings/jobs.max_queued", ""},
		"set-setting":   {"PUT", "/api/v1/settings/jobs.max_queued", `{"value":"100"}`},
	}
	x.enqueue(x.local(""), "true")
	for _, id := range api.Operations(x.srv) {
		if _, ok := paths[id]; !ok {
			t.Errorf("operation %s is not tested", id)
		}
		if _, ok := api.Scopes()[id]; !ok {
			t.Errorf("operation %s is not in the table of scopes", id)
		}
	}
	for id, need := range api.Scopes() {
		p, ok := paths[id]
		if !ok {
			t.Errorf("operation %s is in the table of scopes and not served", id)
			continue
		}
		for _, scope := range []daemon.Scope{"", "wrong", "expired", "revoked", daemon.Viewer, daemon.Operator, daemon.Admin} {
			token := x.tokens[scope]
			if scope == "wrong" {
				token = x.admin[:len(x.admin)-1] + "x"
			}
			resp, text := x.send(p.method, p.path, token, "application/json", p.body)
			switch {
			case slices.Contains([]daemon.Scope{"", "wrong", "expired", "revoked"}, scope):
				x.wantProblem(resp, text, http.StatusUnauthorized, daemon.NoToken)
				if !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s: no WWW-Authenticate", id)
				}
			case !scope.Allows(need):
				x.wantProblem(resp, text, http.StatusForbidden, daemon.Forbidden)
			default:
				if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
					t.Errorf("%s: %s is refused: %s", id, scope, text)
				}
			}
		}
	}
	if strings.Contains(x.slog.String(), x.admin) {
		t.Error("a token stands in the log")
	}
}

func TestMaintenanceNeedsATokenOverTheSocketToo(t *testing.T) {
	x := newRig(t)
	c, err := api.NewClient(api.ClientOptions{BaseURL: "http://exocomp", Dial: x.dial()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cordon(t.Context(), "x", ""); daemon.CodeOf(err) != daemon.Forbidden || !strings.Contains(daemon.RemedyOf(err), "admin.token") {
		t.Errorf("got %s", describe(err))
	}
}

func TestAJobIsTheParentOfWhatItEnqueues(t *testing.T) {
	x := newRig(t)
	parent := x.running(x.local(""))
	x.jobs.mu.Lock()
	token := x.jobs.live[parent.ID].Token
	x.jobs.mu.Unlock()
	for name, c := range map[string]daemon.Client{"tcp": x.client(token), "socket": x.local(token)} {
		child := x.enqueue(c, "true")
		if child.ParentID != parent.ID || child.RootID != parent.RootID || child.Actor != "job:"+parent.ID {
			t.Errorf("%s: %+v", name, child)
		}
		if _, err := c.Cordon(t.Context(), "x", ""); daemon.CodeOf(err) != daemon.Forbidden {
			t.Errorf("%s: a job did maintenance: %s", name, describe(err))
		}
	}
	x.jobs.end(parent.ID, 0)
	x.eventually("the token ends with its job", func() bool {
		_, err := x.client(token).Status(context.Background())
		return daemon.CodeOf(err) == daemon.NoToken
	})
}

func TestBadRequestsAreProblemsAndNeverQuoteAValue(t *testing.T) {
	x := newRig(t)
	const secret = "hunter2-is-the-password"
	const json_ = "application/json"
	tests := []struct {
		name, method, path, contentType, body string
		status                                int
		code                                  daemon.Code
		want                                  string
	}{
		{"no such path", "GET", "/api/v1/nothing", "", "", 404, daemon.NotFound, "/api/v1/nothing"},
		{"no such method", "PUT", "/api/v1/jobs", json_, "{}", 405, daemon.Usage, "does not take PUT"},
		{"malformed", "POST", "/api/v1/jobs", json_, `{"spec":`, 400, daemon.Invalid, ""},
		{"malformed with a secret", "POST", "/api/v1/jobs", json_, `{"spec": ` + secret, 400, daemon.Invalid, ""},
		{"empty", "POST", "/api/v1/jobs", json_, "", 400, daemon.Invalid, "body"},
		{"unknown field", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["true"]},"` + "bogus" + `":"` + secret + `"}`, 422, daemon.Invalid, "bogus"},
		{"wrong type", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":"` + secret + `"}}`, 422, daemon.Invalid, "body.spec.argv"},
		{"wrong number", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["true"]},"priority":"` + secret + `"}`, 422, daemon.Invalid, "body.priority"},
		{"fraction", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["true"]},"priority":1.5}`, 422, daemon.Invalid, ""},
		{"missing", "POST", "/api/v1/jobs", json_, `{}`, 422, daemon.Invalid, "spec"},
		{"null", "POST", "/api/v1/jobs", json_, `null`, 422, daemon.Invalid, ""},
		{"array", "POST", "/api/v1/jobs", json_, `[1,2]`, 422, daemon.Invalid, ""},
		{"no command", "POST", "/api/v1/jobs", json_, `{"spec":{}}`, 422, daemon.Invalid, "no command"},
		{"env", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["a"],"env":{"A=":"` + secret + `"}}}`, 422, daemon.Invalid, "environment name"},
		{"not JSON", "POST", "/api/v1/jobs", "text/plain", secret, 415, daemon.Invalid, "application/json"},
		{"huge", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["` + strings.Repeat("x", 2<<20) + `"]}}`, 413, daemon.TooLarge, "1 MiB"},
		{"large", "POST", "/api/v1/jobs", json_, `{"spec":{"argv":["` + strings.Repeat("x", 300<<10) + `"]}}`, 413, daemon.TooLarge, "262144"},
		{"unknown query", "GET", "/api/v1/jobs?colour=" + secret, "", "", 422, daemon.Invalid, "colour"},
		{"limit", "GET", "/api/v1/jobs?limit=5000", "", "", 422, daemon.Invalid, "limit"},
		{"limit word", "GET", "/api/v1/jobs?limit=" + secret, "", "", 422, daemon.Invalid, "limit"},
		{"since", "GET", "/api/v1/jobs?since=" + secret, "", "", 422, daemon.Invalid, "RFC 3339"},
		{"label", "GET", "/api/v1/jobs?label=" + secret, "", "", 422, daemon.Invalid, "name=value"},
		{"no such job", "GET", "/api/v1/jobs/99", "", "", 404, daemon.NotFound, "99"},
		{"no such log", "GET", "/api/v1/jobs/99/logs", "", "", 404, daemon.NotFound, "99"},
		{"offset", "GET", "/api/v1/jobs/1/logs?from=" + secret, "", "", 422, daemon.Invalid, "offset"},
		{"raw", "GET", "/api/v1/jobs/1/logs?raw=" + secret, "", "", 422, daemon.Invalid, "raw"},
		{"follow", "GET", "/api/v1/jobs/1/logs?follow=" + secret, "", "", 422, daemon.Invalid, "follow"},
		{"long id", "GET", "/api/v1/jobs/" + strings.Repeat("9", 100), "", "", 422, daemon.Invalid, ""},
	}
	x.enqueue(x.local(""), "true")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, text := x.send(tt.method, tt.path, x.admin, tt.contentType, tt.body)
			p := x.wantProblem(resp, text, tt.status, tt.code)
			if !strings.Contains(p.Detail+p.Remedy, tt.want) || p.Remedy == "" {
				t.Errorf("%+v, want %q in it", p, tt.want)
			}
			if strings.Contains(text, "hunter2") {
				t.Errorf("the answer quotes the value: %s", text)
			}
		})
	}
	if page, err := x.local("").Jobs(t.Context(), daemon.JobQuery{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("a bad request changed something: %+v, %v", page, err)
	}
	if strings.Contains(x.slog.String(), "hunter2") {
		t.Error("the log quotes a value")
	}
}

func TestHealthAndReadiness(t *testing.T) {
	x := newRig(t)
	if resp, _ := x.send("GET", "/healthz", "", "", ""); resp.StatusCode != 200 {
		t.Errorf("healthz %d", resp.StatusCode)
	}
	resp, text := x.send("GET", "/readyz", "", "", "")
	var doc struct {
		Ready bool
		Role  string
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || resp.StatusCode != 200 || !doc.Ready || doc.Role != "active" {
		t.Errorf("readyz %d %s", resp.StatusCode, text)
	}
	x.loop.Tell(daemon.Stop{Why: "the test"})
	<-x.loop.Done()
	if resp, text = x.send("GET", "/readyz", "", "", ""); resp.StatusCode != 503 || !strings.Contains(text, `"ready":false`) {
		t.Errorf("after the end: %d %s", resp.StatusCode, text)
	}
	if _, err := x.client(x.admin).Enqueue(t.Context(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: []string{"true"}}}); daemon.CodeOf(err) != daemon.Unavailable {
		t.Errorf("after the end: %s", describe(err))
	}
}

func TestABrowserOfAnotherSiteIsTurnedAway(t *testing.T) {
	x := newRig(t)
	req, _ := http.NewRequest("POST", x.tcp.URL+"/api/v1/jobs", strings.NewReader("{}"))
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Authorization", "Bearer "+x.admin)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestTheDocumentDescribesEveryOperation(t *testing.T) {
	x := newRig(t)
	resp, text := x.send("GET", "/openapi.json", "", "", "")
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	for _, id := range api.Operations(x.srv) {
		if id != "read-log" && !strings.Contains(text, `"operationId":"`+id+`"`) {
			t.Errorf("operation %s is not described", id)
		}
	}
}
