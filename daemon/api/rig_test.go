package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/logfile"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// rig is a real daemon, on a real store, behind the API: only its jobs are not
// real. They begin, and end when the test says so.
type rig struct {
	t      *testing.T
	store  *sqlite.Store
	loop   *daemon.Loop
	logs   logfile.Dir
	opts   api.Options
	srv    *api.Server
	tcp    *httptest.Server
	socket string
	tokens map[daemon.Scope]string
	admin  string
	slog   *safeBuffer
	jobs   *stage
}

// stage is a daemon.Runner whose jobs wait to be ended.
type stage struct {
	tell func(daemon.Event)
	mu   sync.Mutex
	live map[string]daemon.Start // by job
}

func (s *stage) Hello(_ context.Context, h daemon.Hello) error {
	s.tell(daemon.Listed{Instance: "keeper", Epoch: h.Epoch, Seq: h.Seq})
	return nil
}
func (s *stage) Start(_ context.Context, m daemon.Start) error {
	s.mu.Lock()
	s.live[m.Job] = m
	s.mu.Unlock()
	s.tell(daemon.Started{Instance: "keeper", Attempt: m.Attempt, AtMs: 1})
	return nil
}
func (s *stage) Signal(_ context.Context, m daemon.Signal) error {
	s.tell(daemon.Exited{Instance: "keeper", Exit: daemon.Exit{Attempt: m.Attempt, Signal: "SIGTERM", Cause: m.Cause, AtMs: 2}})
	return nil
}
func (s *stage) Extend(_ context.Context, x daemon.Extend) error {
	s.tell(daemon.Extended{Instance: "keeper", Seq: x.Seq})
	return nil
}
func (s *stage) List(context.Context) error             { return nil }
func (s *stage) Forget(context.Context, []string) error { return nil }
func (s *stage) KillAll(context.Context) error          { return nil }

// end ends a job with a code.
func (s *stage) end(job string, code int64) {
	s.mu.Lock()
	m := s.live[job]
	s.mu.Unlock()
	s.tell(daemon.Exited{Instance: "keeper", Exit: daemon.Exit{Attempt: m.Attempt, Code: code, Cause: daemon.CauseExit, AtMs: 2}})
}

type nobody struct{}

func (nobody) Holds() error                     { return nil }
func (nobody) Blocker() string                  { return "" }
func (nobody) Ready() error                     { return nil }
func (nobody) Stopping(string) error            { return nil }
func (nobody) StandDown(daemon.StandDown) error { return nil }
func (nobody) Exit(int, string)                 { /* the loop returns */ }

// safeBuffer is a log for many.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, nil)
}

// newRigWith is newRig with other options for the server.
func newRigWith(t *testing.T, change func(*api.Options)) *rig {
	t.Helper()
	x := &rig{t: t, tokens: map[daemon.Scope]string{}, slog: &safeBuffer{}, logs: logfile.Dir{Root: t.TempDir()}}
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "x.db")}
	clk := linux.NewClock()
	anchor, err := sqlite.Create(t.Context(), o, func(tx daemon.Tx) error { return x.seed(tx, clk) })
	if err != nil {
		t.Fatal(err)
	}
	anchor.Close()
	if x.store, err = sqlite.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(x.slog, &slog.HandlerOptions{Level: slog.LevelDebug}))
	x.jobs = &stage{live: map[string]daemon.Start{}, tell: func(ev daemon.Event) { x.loop.Tell(ev) }}
	cfg := daemon.Config{Identity: daemon.Identity{Holder: "alpha-1", Host: "alpha", Incarnation: "alpha-1"},
		Terms: daemon.DefaultTerms(), Limit: 10, DrainGrace: time.Second}
	d := daemon.New(cfg, daemon.Needs{Clock: clk, Store: x.store, Site: nobody{}, Chance: linux.Chance{}, Log: slog.New(slog.DiscardHandler)})
	x.loop = daemon.NewLoop(d, daemon.Ports{Runner: x.jobs, Process: nobody{}}, slog.New(slog.DiscardHandler), nil)
	desk := daemon.Desk{Store: x.store, Logs: x.logs, Clock: clk, Chance: linux.Chance{}, Ask: x.loop.Ask, Snapshot: x.loop.Snapshot, Pause: linux.PauseFor(time.Millisecond)}
	x.opts = api.Options{Desk: desk, Store: x.store, Clock: clk, Snapshot: x.loop.Snapshot, Log: log, Offer: x.loop.Offer,
		Beat: 10 * time.Millisecond}
	if change != nil {
		change(&x.opts)
	}
	x.srv = api.New(x.opts)
	x.open()
	go x.loop.Run(context.Background())
	x.eventually("the daemon is active", func() bool { return x.loop.Snapshot().Role == daemon.Active })
	return x
}

func (x *rig) seed(tx daemon.Tx, clk daemon.Clock) error {
	ctx, now := context.Background(), daemon.ReadClock(clk)
	var err error
	if x.admin, err = daemon.Seed(ctx, tx, now, linux.Chance{}); err != nil {
		return err
	}
	add := func(name string, scope daemon.Scope, change func(*daemon.Token)) string {
		text, row := daemon.NewToken(name, scope, now.Ms(), linux.Chance{})
		if change != nil {
			change(&row)
		}
		if perr := daemon.Tokens.Put(ctx, tx, row); perr != nil {
			err = perr
		}
		return text
	}
	for _, s := range []daemon.Scope{daemon.Viewer, daemon.Operator, daemon.Admin} {
		x.tokens[s] = add("a-"+string(s), s, nil)
	}
	x.tokens["expired"] = add("old", daemon.Admin, func(r *daemon.Token) { r.ExpiresMs = 1 })
	x.tokens["revoked"] = add("bad", daemon.Admin, func(r *daemon.Token) { r.RevokedMs = 1 })
	return err
}

// open opens both doors.
func (x *rig) open() {
	x.t.Helper()
	x.tcp = httptest.NewUnstartedServer(nil)
	x.tcp.Config = x.srv.HTTPServer(false)
	x.tcp.Start()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		x.t.Fatal(err)
	}
	x.socket = filepath.Join(dir, "api.sock")
	l, err := linux.ListenUnix(x.socket)
	if err != nil {
		x.t.Fatal(err)
	}
	local := x.srv.HTTPServer(true)
	go local.Serve(l)
	x.t.Cleanup(func() {
		x.loop.Tell(daemon.Stop{Why: "the test is over"})
		x.loop.Tell(daemon.Stop{Why: "now"})
		<-x.loop.Done()
		x.tcp.Config.Close()
		x.tcp.Listener.Close()
		local.Close()
		l.Close()
		x.store.Close()
		os.RemoveAll(dir)
	})
}

func (x *rig) eventually(what string, cond func() bool) {
	x.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			x.t.Fatalf("never: %s", what)
		}
	}
}

// client returns a Client over TCP with a token.
func (x *rig) client(token string) *api.Client {
	x.t.Helper()
	c, err := api.NewClient(api.ClientOptions{BaseURL: x.tcp.URL, Token: token})
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// local returns a Client over the socket.
func (x *rig) local(token string) *api.Client {
	x.t.Helper()
	c, err := api.NewClient(api.ClientOptions{BaseURL: "http://exocomp", Name: x.socket, Token: token,
		Dial:             func(ctx context.Context) (net.Conn, error) { return linux.DialUnix(ctx, x.socket) },
		MaintenanceToken: func() (string, error) { return x.admin, nil }})
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// problem is what an answer that is no success must be.
type problem struct {
	Title, Detail, Code, Remedy string
	Status                      int
	RequestID                   string `json:"request_id"`
}

// send makes a raw request over TCP.
func (x *rig) send(method, path, token, contentType, body string) (*http.Response, string) {
	x.t.Helper()
	req, err := http.NewRequest(method, x.tcp.URL+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		x.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return resp, string(text)
}

// wantProblem checks that an answer is a whole problem document.
func (x *rig) wantProblem(resp *http.Response, text string, status int, code daemon.Code) problem {
	x.t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		x.t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
	}
	if resp.StatusCode != status || p.Status != status || p.Code != string(code) || p.Title != http.StatusText(status) || p.Detail == "" ||
		resp.Header.Get("Content-Type") != "application/problem+json" || p.RequestID != resp.Header.Get("X-Request-Id") || p.RequestID == "" {
		x.t.Errorf("%s %s: %d %s: %+v, want %d %s", resp.Request.Method, resp.Request.URL.Path, resp.StatusCode,
			resp.Header.Get("Content-Type"), p, status, code)
	}
	return p
}

func (x *rig) enqueue(c daemon.Client, argv ...string) daemon.Job {
	x.t.Helper()
	e, err := c.Enqueue(context.Background(), "", daemon.EnqueueRequest{Spec: daemon.Spec{Argv: argv}})
	if err != nil {
		x.t.Fatal(err)
	}
	return e.Job
}

// running enqueues a job and waits until it runs.
func (x *rig) running(c daemon.Client) daemon.Job {
	x.t.Helper()
	j := x.enqueue(c, "true")
	x.eventually("the job runs", func() bool {
		got, err := c.Job(context.Background(), j.ID)
		return err == nil && got.State == daemon.Running
	})
	return j
}

func (x *rig) write(job string) *logfile.Writer {
	x.t.Helper()
	w, err := x.logs.Create(job, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	return w
}

// rng is chance that can be repeated.
func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func describe(err error) string {
	return fmt.Sprintf("%s: %v (%s)", daemon.CodeOf(err), err, daemon.RemedyOf(err))
}
