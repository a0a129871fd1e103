package api_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

const committedDocument = "../../docs/openapi.json"

// The document in docs is the one that is served. It names no build.
func TestTheCommittedDocumentIsTheServedOne(t *testing.T) {
	x := newRig(t)
	var want bytes.Buffer
	x.check(json.Indent(&want, []byte(x.do(call{path: "/openapi.json"}).text), "", "  "))
	want.WriteByte('\n')
	if os.Getenv("UPDATE") != "" {
		x.check(os.WriteFile(filepath.FromSlash(committedDocument), want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(filepath.FromSlash(committedDocument))
	x.check(err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/openapi.json is stale: UPDATE=1 go test ./daemon/api -run TestTheCommittedDocument")
	}
}

// exchange is a request, and the status that its answer must have.
type exchange struct {
	call
	status int
}

// exchanges are requests for each operation: one that succeeds, at least, and what
// else answers with a document of its own.
func exchanges() map[string][]exchange {
	return map[string][]exchange{
		"enqueue-job": {
			{call{method: "POST", path: "/api/v1/jobs", body: run, head: map[string]string{"Idempotency-Key": "k"}}, 201},
			{call{method: "POST", path: "/api/v1/jobs", body: run, head: map[string]string{"Idempotency-Key": "k"}}, 200},
			{call{method: "POST", path: "/api/v1/jobs", body: `{}`}, 422}},
		"list-jobs":     {{call{path: "/api/v1/jobs?limit=1"}, 200}, {call{path: "/api/v1/jobs?state=queued"}, 200}},
		"get-job":       {{call{path: "/api/v1/jobs/1"}, 200}, {call{path: "/api/v1/jobs/99"}, 404}},
		"cancel-job":    {{call{method: "POST", path: "/api/v1/jobs/1/cancel"}, 409}, {call{method: "POST", path: "/api/v1/jobs/2/cancel"}, 200}},
		"get-status":    {{call{path: "/api/v1/status"}, 200}},
		"get-lease":     {{call{path: "/api/v1/lease"}, 200}},
		"get-history":   {{call{path: "/api/v1/history"}, 200}},
		"cordon":        {{call{method: "POST", path: "/api/v1/maintenance/cordon", body: `{"why":"x"}`}, 200}},
		"uncordon":      {{call{method: "DELETE", path: "/api/v1/maintenance/cordon/operator"}, 200}},
		"read-log":      {{call{path: "/api/v1/jobs/1/logs"}, 200}},
		"list-events":   {{call{path: "/api/v1/events?limit=2"}, 200}, {call{path: "/api/v1/events?limit=x"}, 422}},
		"create-token":  {{call{method: "POST", path: "/api/v1/tokens", body: `{"name":"n","scope":"viewer","expires_in_ms":60000}`}, 201}},
		"list-tokens":   {{call{path: "/api/v1/tokens?all=true"}, 200}},
		"revoke-token":  {{call{method: "DELETE", path: "/api/v1/tokens/n"}, 200}, {call{method: "DELETE", path: "/api/v1/tokens/n"}, 404}},
		"list-settings": {{call{path: "/api/v1/settings"}, 200}},
		"get-setting":   {{call{path: "/api/v1/settings/serve.jobs"}, 200}},
		"add-schedule": {{call{method: "POST", path: "/api/v1/schedules", body: everySecond}, 200},
			{call{method: "POST", path: "/api/v1/schedules", body: `{"name":"x"}`}, 422}},
		"edit-schedule": {{call{method: "PUT", path: "/api/v1/schedules/s", body: everySecond}, 200},
			{call{method: "PUT", path: "/api/v1/schedules/other", body: everySecond}, 422}},
		"get-schedule":     {{call{path: "/api/v1/schedules/s"}, 200}, {call{path: "/api/v1/schedules/none"}, 404}},
		"list-schedules":   {{call{path: "/api/v1/schedules"}, 200}},
		"enable-schedule":  {{call{method: "POST", path: "/api/v1/schedules/s/enable"}, 200}},
		"disable-schedule": {{call{method: "POST", path: "/api/v1/schedules/s/disable"}, 200}},
		"remove-schedule":  {{call{method: "DELETE", path: "/api/v1/schedules/s"}, 200}, {call{method: "DELETE", path: "/api/v1/schedules/s"}, 404}},
		"list-upcoming":    {{call{path: "/api/v1/upcoming?schedule=s&n=3"}, 200}, {call{path: "/api/v1/upcoming?from=x"}, 422}},
		"list-fires":       {{call{path: "/api/v1/fires?limit=5"}, 200}, {call{path: "/api/v1/fires?outcome=lost"}, 422}},
		"set-setting":      {{call{method: "PUT", path: "/api/v1/settings/jobs.max_queued", body: `{"value":"5"}`}, 200}},
	}
}

const everySecond = `{"name":"s","cron":"@every 1s","job":{"spec":{"argv":["true"]}}}`

// order is that of operations whose answers need what another has made.
var order = []string{"enqueue-job", "create-token", "cordon", "add-schedule"}

func TestEveryAnswerIsWhatTheDocumentSays(t *testing.T) {
	x := newRig(t)
	x.ended() // job 1
	tests := exchanges()
	ops := slices.Clone(order)
	for _, id := range api.Operations(x.srv) {
		if !slices.Contains(ops, id) {
			ops = append(ops, id)
		}
	}
	for _, id := range ops {
		if len(tests[id]) == 0 {
			t.Errorf("operation %s is not exercised here", id)
		}
		for _, tt := range tests[id] {
			tt.token = "admin"
			a := x.do(tt.call)
			if a.status != tt.status {
				t.Errorf("%s: %d %s, want %d", id, a.status, a.text, tt.status)
				continue
			}
			x.conforms(id, a)
		}
	}
}

// conforms checks an answer against the schema that the document has for it.
func (x *rig) conforms(id string, a answer) {
	x.t.Helper()
	o := operation(x.srv.Document(), id)
	resp := o.Responses[strconv.Itoa(a.status)]
	if resp == nil && a.status >= 400 {
		resp = o.Responses["default"]
	}
	if resp == nil {
		x.t.Errorf("%s: the document has no answer %d", id, a.status)
		return
	}
	kind, _, _ := strings.Cut(a.head.Get("Content-Type"), ";")
	media := resp.Content[kind]
	switch {
	case media == nil:
		x.t.Errorf("%s %d: the document has no %s", id, a.status, kind)
		return
	case media.Schema == nil: // a stream
		return
	}
	var doc any
	x.check(json.Unmarshal([]byte(a.text), &doc))
	res := &huma.ValidateResult{}
	huma.Validate(x.srv.Document().Components.Schemas, media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, doc, res)
	for _, err := range res.Errors {
		x.t.Errorf("%s %d: %v\n%s", id, a.status, err, a.text)
	}
}

func operation(doc *huma.OpenAPI, id string) *huma.Operation {
	for _, p := range doc.Paths {
		for _, o := range []*huma.Operation{p.Get, p.Put, p.Post, p.Delete} {
			if o != nil && o.OperationID == id {
				return o
			}
		}
	}
	return nil
}

// Each event of a stream is what the document calls one.
func TestAStreamedEventIsWhatTheDocumentSays(t *testing.T) {
	x := newRig(t)
	resp := x.begin(t.Context(), call{path: "/api/v1/events?after=0", token: "viewer", head: map[string]string{"Accept": "text/event-stream"}})
	defer resp.Body.Close()
	events, _ := messagesIn(t, resp, 2)
	schemas := x.srv.Document().Components.Schemas
	schema := schemas.Schema(reflect.TypeFor[daemon.Happening](), true, "")
	for _, h := range events {
		text, err := json.Marshal(h)
		x.check(err)
		var doc any
		x.check(json.Unmarshal(text, &doc))
		res := &huma.ValidateResult{}
		huma.Validate(schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, doc, res)
		for _, err := range res.Errors {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
