package api_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// wanted is what each operation must ask for. It is written down twice, here
// and in the table, so that a slip in one of them is seen.
var wanted = map[string]struct {
	scope  daemon.Scope
	bearer bool
}{
	"enqueue-job": {daemon.Operator, false},
	"list-jobs":   {daemon.Viewer, false},
	"get-job":     {daemon.Viewer, false},
	"cancel-job":  {daemon.Operator, false},
	"read-log":    {daemon.Viewer, false},
	"get-status":  {daemon.Viewer, false},
	"get-lease":   {daemon.Viewer, false},
	"get-history": {daemon.Viewer, false},
	"cordon":      {daemon.Operator, true},
	"uncordon":    {daemon.Operator, true},

	"list-schedules":   {daemon.Viewer, false},
	"add-schedule":     {daemon.Operator, false},
	"get-schedule":     {daemon.Viewer, false},
	"edit-schedule":    {daemon.Operator, false},
	"remove-schedule":  {daemon.Operator, false},
	"enable-schedule":  {daemon.Operator, false},
	"disable-schedule": {daemon.Operator, false},
	"list-upcoming":    {daemon.Viewer, false},
	"list-fires":       {daemon.Viewer, false},

	"list-events":   {daemon.Viewer, false},
	"create-token":  {daemon.Admin, false},
	"list-tokens":   {daemon.Admin, false},
	"revoke-token":  {daemon.Admin, false},
	"list-settings": {daemon.Viewer, false},
	"get-setting":   {daemon.Viewer, false},
	"set-setting":   {daemon.Admin, false},
}

// document is what is read of /openapi.json.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Security    []map[string][]string
	}
	Components struct {
		SecuritySchemes map[string]any `json:"securitySchemes"`
	}
}

func (x *rig) document() document {
	x.t.Helper()
	return decode[document](x, x.do(call{path: "/openapi.json"}), 200)
}

// Every route must be an operation of the document, or be known here as open.
func TestNoRouteIsForgotten(t *testing.T) {
	x := newRig(t)
	open := []string{"GET /healthz", "GET /readyz", "GET /openapi.json", "GET /openapi.yaml",
		"GET /openapi-3.0.json", "GET /openapi-3.0.yaml"}
	doc := x.document()
	for _, route := range x.srv.Routes() {
		method, path, _ := strings.Cut(route, " ")
		op, found := doc.Paths[path][strings.ToLower(method)]
		if _, _, known := api.Need(op.OperationID); slices.Contains(open, route) == (found && known) {
			t.Errorf("route %s is neither open nor an operation of the table", route)
		}
	}
}

func TestEachOperationAsksForWhatItShould(t *testing.T) {
	x := newRig(t)
	doc := x.document()
	if len(doc.Components.SecuritySchemes) != 1 {
		t.Error("the document does not say what a bearer is")
	}
	var served []string
	for _, path := range doc.Paths {
		for _, op := range path {
			served = append(served, op.OperationID)
			scope, bearer, known := api.Need(op.OperationID)
			if want := wanted[op.OperationID]; !known || scope != want.scope || bearer != want.bearer || len(op.Security) != 1 {
				t.Errorf("operation %s: in the table %v %v %v, want %v", op.OperationID, known, scope, bearer, want)
			}
		}
	}
	for op := range api.Scopes() {
		if !slices.Contains(served, op) {
			t.Errorf("the table has the operation %s, and nothing serves it", op)
		}
	}
}

// caller is somebody who asks.
type caller struct {
	name   string
	token  string
	local  bool
	scope  daemon.Scope // "" for nobody
	bearer bool
	job    bool
}

func (c caller) may(scope daemon.Scope, bearer bool) bool {
	return c.scope.Allows(scope) && (!bearer || c.bearer && !c.job)
}

func TestEachCallerAtEachDoor(t *testing.T) {
	x := newRig(t)
	callers := []caller{{name: "socket", local: true, scope: daemon.Admin}, {name: "nobody"}}
	token := x.jobToken(x.running(x.inside()))
	for _, local := range []bool{false, true} {
		callers = append(callers,
			caller{"viewer", "viewer", local, daemon.Viewer, true, false},
			caller{"operator", "operator", local, daemon.Operator, true, false},
			caller{"admin", "admin", local, daemon.Admin, true, false},
			caller{"job", token, local, daemon.Operator, true, true},
			caller{"expired", "expired", local, "", true, false},
			caller{"revoked", "revoked", local, "", true, false},
			caller{"mistyped", x.admin + "x", local, "", true, false})
	}
	fill := strings.NewReplacer("{job}", "99", "{reason}", "none", "{schedule}", "none", "{token}", "none", "{name}", "none")
	for path, methods := range x.document().Paths {
		for method, op := range methods {
			need := wanted[op.OperationID]
			for _, c := range callers {
				body := map[string]string{"post": "{}", "put": "{}"}[method]
				a := x.do(call{method: strings.ToUpper(method), path: fill.Replace(path), body: body, token: c.token, local: c.local})
				switch {
				case c.scope == "":
					x.refused(a, 401, daemon.NoToken)
					if !strings.HasPrefix(a.head.Get("WWW-Authenticate"), "Bearer") {
						t.Errorf("%s: no WWW-Authenticate", op.OperationID)
					}
				case !c.may(need.scope, need.bearer):
					x.refused(a, 403, daemon.Forbidden)
				case a.status == 401 || a.status == 403:
					t.Errorf("%s by %s (socket %v): %d %s", op.OperationID, c.name, c.local, a.status, a.text)
				}
			}
		}
	}
}

func TestWhatIsNoBearerIsRefused(t *testing.T) {
	x := newRig(t)
	for _, head := range []string{"Basic YTpi", "Bearer", "Bearer ", "Bearer x", x.admin, "Bearer " + strings.Repeat("x", 5000)} {
		for _, local := range []bool{false, true} {
			a := x.do(call{path: "/api/v1/status", local: local, head: map[string]string{"Authorization": head}})
			if p := x.refused(a, 401, daemon.NoToken); strings.Contains(a.text, "YTpi") || strings.Contains(a.text, "exo_") {
				t.Errorf("the answer repeats what was sent: %+v", p)
			}
		}
	}
	for _, head := range []string{"bearer " + x.tokens[daemon.Viewer], "BEARER  " + x.tokens[daemon.Viewer]} {
		if a := x.do(call{path: "/api/v1/status", head: map[string]string{"Authorization": head}}); a.status != 200 {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
}

func TestTheSocketKnowsItsPeer(t *testing.T) {
	x := newRig(t)
	us, err := user.Current()
	x.check(err)
	e := decode[daemon.Enqueued](x, x.do(call{method: "POST", path: "/api/v1/jobs", body: run, local: true}), 201)
	if e.Job.Actor != "local:"+us.Username {
		t.Errorf("actor %s", e.Job.Actor)
	}
	e = decode[daemon.Enqueued](x, x.do(call{method: "POST", path: "/api/v1/jobs", body: run, local: true, token: "operator"}), 201)
	if e.Job.Actor != "token:a-operator" {
		t.Errorf("actor %s", e.Job.Actor)
	}
	p := x.refused(x.do(call{method: "POST", path: "/api/v1/maintenance/cordon", body: "{}", local: true}), 403, daemon.Forbidden)
	if !strings.Contains(p.Detail, "needs a token") || !strings.Contains(p.Remedy, "admin.token") {
		t.Errorf("%+v", p)
	}
}

func TestOnlyOurUserAndRootAreAdmitted(t *testing.T) {
	x := newRig(t)
	get := func(h http.Handler, ctx context.Context) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/status", nil))
		return w.Code
	}
	local, tcp := x.srv.Handler(true), x.srv.Handler(false)
	for uid, want := range map[int]int{os.Geteuid(): 200, 0: 200, 12345: 403, -1: 403} {
		if got := get(local, api.WithPeer(t.Context(), uid)); got != want {
			t.Errorf("uid %d: %d, want %d", uid, got, want)
		}
	}
	if got := get(local, t.Context()); got != 403 {
		t.Errorf("a socket without a peer: %d", got)
	}
	if got := get(tcp, api.WithPeer(t.Context(), 0)); got != 401 {
		t.Errorf("a peer on TCP: %d", got)
	}
	pipe, other := net.Pipe()
	defer other.Close()
	if got := get(local, api.PeerContext(t.Context(), pipe)); got != 403 {
		t.Errorf("what is no socket: %d", got)
	}
	pipe.Close()
}

// The kernel takes the user of the thread that connects.
func TestAnotherUserIsRefusedByTheKernelsWord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	x := newRig(t)
	x.check(os.Chmod(x.socket, 0o777))
	x.check(os.Chmod(filepath.Dir(x.socket), 0o755))
	conns := make(chan net.Conn, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		conns <- x.connectAs(65534)
	}()
	conn := <-conns
	if conn == nil {
		t.FailNow()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	req, err := http.NewRequest("GET", "http://exocomp/api/v1/status", nil)
	x.check(err)
	req.Header.Set("Authorization", "Bearer "+x.admin)
	resp, err := client.Do(req)
	x.check(err)
	defer resp.Body.Close()
	var p problem
	x.check(json.NewDecoder(resp.Body).Decode(&p))
	if resp.StatusCode != 403 || !strings.Contains(p.Detail, "not for uid 65534") {
		t.Errorf("%d %+v", resp.StatusCode, p)
	}
}

// connectAs connects this thread, and no other, as another user.
func (x *rig) connectAs(uid int) net.Conn {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		x.t.Error(err)
		return nil
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		x.t.Error(errno)
		return nil
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: x.socket}); err != nil {
		x.t.Error(err)
		return nil
	}
	conn, err := net.FileConn(f)
	if err != nil {
		x.t.Error(err)
	}
	return conn
}

func TestAJobsTokenEndsWithIt(t *testing.T) {
	x := newRig(t)
	parent := x.running(x.inside())
	token := x.jobToken(parent)
	for _, local := range []bool{false, true} {
		e := decode[daemon.Enqueued](x, x.do(call{method: "POST", path: "/api/v1/jobs", body: run, local: local, token: token}), 201)
		if e.Job.ParentID != parent.ID || e.Job.RootID != parent.ID || e.Job.Actor != "job:"+parent.ID {
			t.Errorf("child: %+v", e.Job)
		}
	}
	a := x.do(call{method: "POST", path: "/api/v1/maintenance/cordon", body: "{}", token: token})
	if p := x.refused(a, 403, daemon.Forbidden); !strings.Contains(p.Detail, "job's token") {
		t.Errorf("%+v", p)
	}
	x.jobs.end(parent.ID, 0)
	x.eventually("the token ended with its job", func() bool {
		return x.do(call{path: "/api/v1/status", token: token}).status == 401
	})
}

func TestAPageOfAnotherSiteIsRefused(t *testing.T) {
	x := newRig(t)
	post := call{method: "POST", path: "/api/v1/jobs", token: "admin", body: run}
	for _, head := range []map[string]string{{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}} {
		post.head, post.local = head, false
		x.refused(x.do(post), 403, daemon.Forbidden)
		post.local = true // no page reaches a socket
		decode[daemon.Enqueued](x, x.do(post), 201)
	}
	post.local, post.head = false, map[string]string{"Sec-Fetch-Site": "same-origin"}
	decode[daemon.Enqueued](x, x.do(post), 201)
}

func TestTheLogNamesCallersAndNoSecrets(t *testing.T) {
	x := newRig(t)
	id := map[string]string{"X-Request-Id": "find-me"}
	x.do(call{method: "POST", path: "/api/v1/jobs?x=hunter2", token: "admin", head: id,
		body: `{"spec":{"argv":["true"],"env":{"P":"hunter2"}}}`})
	x.do(call{method: "POST", path: "/api/v1/jobs", token: "admin", body: `{"spec":{"argv":["true"],"env":{"P":"hunter2"}}}`})
	x.do(call{method: "POST", path: "/api/v1/jobs", token: "exo_00000000_hunter2", body: `hunter2`})
	x.eventually("all three are in the log", func() bool { return strings.Count(x.slog.String(), "msg=request ") == 3 })
	book := x.slog.String()
	for _, secret := range []string{"hunter2", "exo_", "Bearer"} {
		if strings.Contains(book, secret) {
			t.Errorf("the log holds %s:\n%s", secret, book)
		}
	}
	for _, part := range []string{"level=DEBUG", "method=POST", "path=/api/v1/jobs ", "status=422", "status=201", "status=401",
		"actor=token:a-admin", "request=find-me", "took="} {
		if !strings.Contains(book, part) {
			t.Errorf("the log does not hold %s:\n%s", part, book)
		}
	}
}
