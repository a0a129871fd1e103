package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// make makes a token over the wire.
func (x *rig) make(name, scope, more string) daemon.TokenMade {
	x.t.Helper()
	return decode[daemon.TokenMade](x, x.do(call{method: "POST", path: "/api/v1/tokens", token: "admin",
		body: `{"name":"` + name + `","scope":"` + scope + `"` + more + `}`}), 201)
}

func TestATokenIsMadeUsedAndRevoked(t *testing.T) {
	x := newRig(t)
	made := x.make("ci", "operator", `,"expires_in_ms":3600000`)
	if made.Token.Name != "ci" || made.Token.Scope != daemon.Operator || made.Token.State != daemon.TokenLive ||
		made.Token.By != "token:a-admin" || made.Token.ExpiresMs-made.Token.CreatedMs < 3_590_000 {
		t.Errorf("made: %+v", made.Token)
	}
	e := decode[daemon.Enqueued](x, x.do(call{method: "POST", path: "/api/v1/jobs", token: made.Secret, body: run}), 201)
	if e.Job.Actor != "token:ci" {
		t.Errorf("actor %s", e.Job.Actor)
	}
	x.eventually("its use is known", func() bool {
		page := decode[daemon.TokenPage](x, x.do(call{path: "/api/v1/tokens", token: "admin"}), 200)
		i := slices.IndexFunc(page.Tokens, func(t daemon.TokenInfo) bool { return t.Name == "ci" })
		return i >= 0 && page.Tokens[i].UsedMs != 0
	})
	post := call{method: "POST", path: "/api/v1/tokens", token: "admin", body: `{"name":"ci","scope":"viewer"}`}
	x.refused(x.do(post), 409, daemon.Conflict)
	end := call{method: "DELETE", path: "/api/v1/tokens/ci", token: "admin"}
	if got := decode[daemon.TokenInfo](x, x.do(end), 200); got.State != daemon.TokenRevoked || got.ID != made.Token.ID {
		t.Errorf("revoked: %+v", got)
	}
	x.refused(x.do(call{path: "/api/v1/status", token: made.Secret}), 401, daemon.NoToken)
	x.refused(x.do(end), 404, daemon.NotFound) // the name is free
	end.path = "/api/v1/tokens/" + made.Token.ID
	decode[daemon.TokenInfo](x, x.do(end), 200) // by id it is no error
	x.make("ci", "viewer", "")
	if strings.Contains(x.slog.String(), made.Secret) || strings.Contains(x.slog.String(), "exo_") {
		t.Error("a token stands in the log")
	}
	events := decode[daemon.EventPage](x, x.do(call{path: "/api/v1/events", token: "viewer"}), 200)
	var kinds []string
	for _, h := range events.Events {
		kinds = append(kinds, h.Kind)
		if strings.Contains(h.Detail, made.Secret) {
			t.Errorf("a token stands in the history: %+v", h)
		}
	}
	if got := strings.Join(kinds[:3], " "); got != "token.created token.revoked token.created" {
		t.Errorf("the history is %s", got)
	}
}

func TestATokenEndsByTheDaemonsClock(t *testing.T) {
	x := newRig(t)
	made := x.make("brief", "viewer", `,"expires_in_ms":1000`)
	x.eventually("it has expired", func() bool {
		return x.do(call{path: "/api/v1/status", token: made.Secret}).status == 401
	})
	again := x.make("brief", "viewer", "") // the name of an expired one is free
	page := decode[daemon.TokenPage](x, x.do(call{path: "/api/v1/tokens?all=true", token: "admin"}), 200)
	for _, tok := range page.Tokens {
		if tok.Name == "brief" && (tok.ID == again.Token.ID) != (tok.State == daemon.TokenLive) {
			t.Errorf("%+v", tok)
		}
	}
}

func TestTheLastAdminIsNotRevokedByAccident(t *testing.T) {
	x := newRig(t)
	end := call{method: "DELETE", path: "/api/v1/tokens/admin", token: "admin"}
	decode[daemon.TokenInfo](x, x.do(end), 200) // a-admin is left
	end.path = "/api/v1/tokens/a-admin"
	if p := x.refused(x.do(end), 409, daemon.Conflict); !strings.Contains(p.Remedy, "--yes-lock-out") {
		t.Errorf("%+v", p)
	}
	end.path += "?lock_out=true"
	decode[daemon.TokenInfo](x, x.do(end), 200)
	x.refused(x.do(end), 401, daemon.NoToken)
	// The owner of the data directory still has the socket.
	decode[daemon.TokenMade](x, x.do(call{method: "POST", path: "/api/v1/tokens", local: true, body: `{"name":"new","scope":"admin"}`}), 201)
}

func TestTokensAreListedInPages(t *testing.T) {
	x := newRig(t)
	var want []string
	for i := range 7 {
		want = append(want, x.make(fmt.Sprintf("t%d", i), "viewer", "").Token.ID)
	}
	for _, tt := range []struct {
		query string
		n     int
	}{{"limit=2", 11}, {"limit=100", 11}, {"limit=11", 11}, {"all=true&limit=3", 13}} {
		var got []string
		cursor := ""
		for pages := 0; pages < 20; pages++ {
			page := decode[daemon.TokenPage](x, x.do(call{path: "/api/v1/tokens?" + tt.query + cursor, token: "admin"}), 200)
			for _, tok := range page.Tokens {
				got = append(got, tok.ID)
			}
			if page.Next == "" {
				break
			}
			cursor = "&cursor=" + page.Next
		}
		newest := slices.Clone(got[:7])
		slices.Sort(newest)
		slices.Sort(want)
		if len(got) != tt.n || !slices.Equal(newest, want) {
			t.Errorf("%s: %d tokens: %v", tt.query, len(got), got)
		}
	}
	for _, bad := range []string{"cursor=x", "cursor=before-1", "cursor=before-x-00000000", "cursor=before-1-zz", "limit=0", "limit=1001", "all=perhaps"} {
		x.refused(x.do(call{path: "/api/v1/tokens?" + bad, token: "admin"}), 422, daemon.Invalid)
	}
}

func TestSettingsAreChangedAndHoldAtOnce(t *testing.T) {
	x := newRig(t)
	set := func(name, value string) daemon.SettingChange {
		t.Helper()
		return decode[daemon.SettingChange](x, x.do(call{method: "PUT", path: "/api/v1/settings/" + name, token: "admin", body: `{"value":"` + value + `"}`}), 200)
	}
	c := set("jobs.default_timeout", "90m")
	if c.Was != "0s" || !c.Changed || c.Setting.Value != "1h30m" || c.Setting.Source != "store" || c.Setting.By != "token:a-admin" || c.Setting.Version != 1 {
		t.Errorf("changed: %+v", c)
	}
	if c = set("jobs.default_timeout", "1h30m"); c.Changed || c.Setting.Version != 1 {
		t.Errorf("the same again: %+v", c)
	}
	set("jobs.default_grace", "3s")
	post := call{method: "POST", path: "/api/v1/jobs", token: "operator", body: run, head: map[string]string{"Idempotency-Key": "k"}}
	e := decode[daemon.Enqueued](x, x.do(post), 201)
	if e.Job.TimeoutMs != 5_400_000 || e.Job.GraceMs != 3000 {
		t.Errorf("job: %+v", e.Job)
	}
	// A key finds its job again over a change of settings.
	set("jobs.default_grace", "4s")
	if again := decode[daemon.Enqueued](x, x.do(post), 200); again.Job.ID != e.Job.ID || again.Job.GraceMs != 3000 {
		t.Errorf("replay: %+v", again)
	}
	if c = set("jobs.default_grace", "default"); c.Was != "4s" || c.Setting.Value != "10s" || c.Setting.Source != "default" {
		t.Errorf("taken back: %+v", c)
	}
	decode[daemon.CordonAnswer](x, x.do(call{method: "POST", path: "/api/v1/maintenance/cordon", token: "operator", body: "{}"}), 200)
	set("jobs.max_queued", "1")
	post.head = nil
	decode[daemon.Enqueued](x, x.do(post), 201)
	if p := x.refused(x.do(post), 409, daemon.Conflict); !strings.Contains(p.Detail, "jobs.max_queued") {
		t.Errorf("%+v", p)
	}
	list := decode[daemon.SettingList](x, x.do(call{path: "/api/v1/settings", token: "viewer"}), 200)
	if len(list.Settings) != len(daemon.AllSettings) {
		t.Errorf("%d settings", len(list.Settings))
	}
}

func TestSettingsThatAreWrongAreRefused(t *testing.T) {
	x := newRig(t)
	for _, tt := range []struct {
		name, body string
		status     int
		code       daemon.Code
	}{
		{"jobs.max_queued", `{"value":"hunter2"}`, 422, daemon.Invalid},
		{"jobs.max_queued", `{"value":7}`, 422, daemon.Invalid},
		{"jobs.max_queued", `{}`, 422, daemon.Invalid},
		{"jobs.max_queued", `{"value":"1","hunter":2}`, 422, daemon.Invalid},
		{"jobs.max_queued", `{"value":"` + strings.Repeat("hunter2", 1000) + `"}`, 422, daemon.Invalid},
		{"jobs.default_timeout", `{"value":"hunter2"}`, 422, daemon.Invalid},
		{"db_password", `{"value":"hunter2"}`, 422, daemon.Invalid},
		{"colour", `{"value":"hunter2"}`, 404, daemon.NotFound},
		{"serve.jobs", `{"value":"hunter2"}`, 409, daemon.Conflict},
		{strings.Repeat("n", 101), `{"value":"hunter2"}`, 422, daemon.Invalid},
	} {
		a := x.do(call{method: "PUT", path: "/api/v1/settings/" + tt.name, token: "admin", body: tt.body})
		x.refused(a, tt.status, tt.code)
		if strings.Contains(a.text, "hunter2") {
			t.Errorf("%s: the answer repeats the value: %s", tt.name, a.text)
		}
	}
	x.refused(x.do(call{path: "/api/v1/settings/colour", token: "viewer"}), 404, daemon.NotFound)
	if strings.Contains(x.slog.String(), "hunter2") {
		t.Error("the log repeats a value")
	}
}

// Whatever is added later: a viewer changes nothing, and only an admin manages
// tokens and settings.
func TestScopesFollowTheirRule(t *testing.T) {
	x := newRig(t)
	for path, methods := range x.document().Paths {
		for method, o := range methods {
			scope, _, known := api.Need(o.OperationID)
			manages := strings.HasPrefix(path, "/api/v1/tokens") || strings.HasPrefix(path, "/api/v1/settings") && method != "get"
			switch {
			case !known:
				t.Errorf("%s is not in the table of scopes", o.OperationID)
			case manages && scope != daemon.Admin:
				t.Errorf("%s is for %s", o.OperationID, scope)
			case method != "get" && !scope.Allows(daemon.Operator):
				t.Errorf("%s changes something, and a %s may do it", o.OperationID, scope)
			}
		}
	}
	token := x.jobToken(x.running(x.inside()))
	for _, local := range []bool{false, true} {
		x.refused(x.do(call{method: "POST", path: "/api/v1/tokens", token: token, local: local, body: `{"name":"x","scope":"viewer"}`}), 403, daemon.Forbidden)
		x.refused(x.do(call{method: "PUT", path: "/api/v1/settings/jobs.max_queued", token: token, local: local, body: `{"value":"1"}`}), 403, daemon.Forbidden)
	}
}

// The client carries all of it, over both doors.
func TestTheClientManages(t *testing.T) {
	x := newRig(t)
	for name, c := range map[string]daemon.Client{"tcp": x.client(x.admin), "socket": x.local("")} {
		ctx := t.Context()
		made, err := c.CreateToken(ctx, daemon.TokenRequest{Name: name, Scope: daemon.Viewer})
		if err != nil || made.Secret == "" {
			t.Fatalf("%s: %+v, %v", name, made, err)
		}
		if page, err := c.Tokens(ctx, daemon.TokenQuery{Limit: 1, All: true}); err != nil || len(page.Tokens) != 1 || page.Next == "" {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
		if got, err := c.RevokeToken(ctx, name, false); err != nil || got.ID != made.Token.ID {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := c.RevokeToken(ctx, made.Secret, false); daemon.CodeOf(err) != daemon.Invalid || strings.Contains(err.Error(), "exo_") {
			t.Errorf("%s: %v", name, err)
		}
		if ch, err := c.SetSetting(ctx, "jobs.max_queued", "9"); err != nil || ch.Setting.Value != "9" {
			t.Errorf("%s: %+v, %v", name, ch, err)
		}
		if s, err := c.Setting(ctx, "jobs.max_queued"); err != nil || s.Value != "9" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if all, err := c.Settings(ctx); err != nil || len(all.Settings) == 0 {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}

// A token in constant use is written down once.
func TestUsesOfATokenAreFewWrites(t *testing.T) {
	var touched []daemon.Command
	done := make(chan daemon.Command, 1000)
	x := newRigWith(t, func(o *api.Options) { o.Offer = func(c daemon.Command) bool { done <- c; return true } })
	for range 20 {
		x.do(call{path: "/api/v1/status", token: "viewer"})
		x.do(call{path: "/api/v1/status", token: "expired"})
		x.do(call{path: "/api/v1/status", local: true})
	}
	for len(done) > 0 {
		touched = append(touched, <-done)
	}
	if len(touched) != 1 {
		t.Errorf("told %d times: %+v", len(touched), touched)
	}
}

// messagesIn reads n server-sent events of a stream.
func messagesIn(t *testing.T, resp *http.Response, n int) (events []daemon.Happening, ids []string) {
	t.Helper()
	buf, text := make([]byte, 4096), ""
	for len(events) < n {
		k, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v behind %q", err, text)
		}
		text += string(buf[:k])
		for {
			one, rest, whole := strings.Cut(text, "\n\n")
			if !whole {
				break
			}
			text = rest
			var h daemon.Happening
			if strings.HasPrefix(one, "event: event\n") {
				lines := strings.Split(one, "\n")
				if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &h); err != nil {
					t.Fatal(err)
				}
				events, ids = append(events, h), append(ids, strings.TrimPrefix(lines[1], "id: "))
			}
		}
	}
	return events, ids
}

func TestEventsArePagedAndFollowed(t *testing.T) {
	x := newRig(t)
	for i := range 5 {
		x.make(fmt.Sprintf("t%d", i), "viewer", "")
	}
	var seqs []int64
	for cursor := ""; ; {
		page := decode[daemon.EventPage](x, x.do(call{path: "/api/v1/events?limit=2" + cursor, token: "viewer"}), 200)
		for _, h := range page.Events {
			seqs = append(seqs, h.Seq)
		}
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	if fmt.Sprint(seqs) != "[7 6 5 4 3 2 1]" {
		t.Errorf("pages: %v", seqs)
	}
	stream := func(path, last string) *http.Response {
		resp := x.begin(t.Context(), call{path: path, token: "viewer", head: map[string]string{"Accept": "text/event-stream", "Last-Event-ID": last}})
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		return resp
	}
	all := stream("/api/v1/events?after=0", "")
	resumed := stream("/api/v1/events?after=0", "6")
	fresh := stream("/api/v1/events", "")
	for _, resp := range []*http.Response{all, resumed, fresh} {
		defer resp.Body.Close()
	}
	x.make("last", "viewer", "")
	for _, tt := range []struct {
		resp *http.Response
		want string
	}{{all, "1 2 3 4 5 6 7 8"}, {resumed, "7 8"}, {fresh, "8"}} {
		events, ids := messagesIn(t, tt.resp, len(strings.Fields(tt.want)))
		if got := strings.Join(ids, " "); got != tt.want || events[len(events)-1].Subject != "last" {
			t.Errorf("got %s, want %s: %+v", got, tt.want, events)
		}
	}
	for query, head := range map[string]string{"?after=1": "application/json", "?limit=0": "", "?limit=1001": "", "?limit=x": "",
		"?cursor=7": "", "?x=1": "", "?after=x": "text/event-stream", "?after=-1": "text/event-stream",
		"?limit=5": "text/event-stream"} {
		x.refused(x.do(call{path: "/api/v1/events" + query, token: "viewer", head: map[string]string{"Accept": head}}), 422, daemon.Invalid)
	}
}

func TestAFollowerOfEventsComesBack(t *testing.T) {
	x := newRig(t)
	c := x.dialling(nil)
	stop := fmt.Errorf("enough")
	var got []int64
	begun := make(chan bool, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.FollowEvents(t.Context(), 1, func(h daemon.Happening) error {
			if got = append(got, h.Seq); h.Subject == "second" {
				return stop
			}
			begun <- true
			return nil
		})
	}()
	<-begun // event 2
	x.make("first", "viewer", "")
	<-begun
	x.tcp.CloseClientConnections()
	x.make("second", "viewer", "")
	select {
	case err := <-ended:
		if err != stop || fmt.Sprint(got) != "[2 3 4]" {
			t.Errorf("%v, %v", got, err)
		}
	case <-time.After(patience):
		t.Fatal("the follower did not come back")
	}
	if err := c.FollowEvents(t.Context(), -1, nil); daemon.CodeOf(err) != daemon.Invalid {
		t.Errorf("a negative number: %v", err)
	}
}

func TestAWrongRequestForATokenIsNotRepeated(t *testing.T) {
	x := newRig(t)
	for body, status := range map[string]int{
		`{"name":"hunter2 x","scope":"viewer"}`:                   422,
		`{"name":"x","scope":"hunter2"}`:                          422,
		`{"name":7,"scope":"viewer"}`:                             422,
		`{"name":"x","scope":"viewer","expires_in_ms":"hunter2"}`: 422,
		`{"name":"x","scope":"viewer","expires_in_ms":-5}`:        422,
		`{"name":"x","scope":"viewer","secret":"hunter2"}`:        422,
		`{"name":"x"}`: 422,
		`{"name":"` + strings.Repeat("hunter2", 5000) + `","scope":"viewer"}`:      422,
		`{"name":"` + x.tokens[daemon.Viewer] + `","scope":"viewer"}`:              422,
		`{"name":"x","scope":"viewer","expires_in_ms":99999999999999999999999999}`: 400,
		`hunter2`: 400,
	} {
		a := x.do(call{method: "POST", path: "/api/v1/tokens", token: "admin", body: body})
		if a.status != status && a.status != 422 {
			t.Errorf("%.60s: %d", body, a.status)
		}
		x.refused(a, a.status, daemon.Invalid)
		if strings.Contains(a.text, "hunter2") || strings.Contains(a.text, "exo_") {
			t.Errorf("%.60s: the answer repeats it: %s", body, a.text)
		}
	}
	a := x.do(call{method: "DELETE", path: "/api/v1/tokens/" + x.tokens[daemon.Viewer], token: "admin"})
	if x.refused(a, 422, daemon.Invalid); strings.Contains(a.text, "exo_") {
		t.Errorf("the answer repeats a token: %s", a.text)
	}
	page := decode[daemon.TokenPage](x, x.do(call{path: "/api/v1/tokens", token: "admin"}), 200)
	if len(page.Tokens) != 4 {
		t.Errorf("%d tokens: a bad request made one", len(page.Tokens))
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	x := newRig(t)
	x.srv.RecheckEvery(10 * time.Millisecond)
	j := x.running(x.inside())
	made := x.make("watcher", "viewer", "")
	c := x.client(made.Secret)
	ended := make(chan error, 2)
	begun := make(chan bool, 100)
	go func() {
		ended <- c.FollowEvents(t.Context(), 0, func(daemon.Happening) error { begun <- true; return nil })
	}()
	go func() {
		_, err := c.Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error { begun <- true; return nil })
		ended <- err
	}()
	<-begun
	decode[daemon.TokenInfo](x, x.do(call{method: "DELETE", path: "/api/v1/tokens/watcher", token: "admin"}), 200)
	for range 2 {
		select {
		case err := <-ended:
			if daemon.CodeOf(err) != daemon.NoToken {
				t.Errorf("the stream ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the stream goes on without its token")
		}
	}
}
