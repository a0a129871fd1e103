package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// patience is how long a condition may take to come true on a busy machine.
const patience = 30 * time.Second

// A test that leaves a goroutine behind has found a leak: of a stream, as a rule.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(patience); code == 0 && runtime.NumGoroutine() > 1; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			fmt.Printf("goroutines are left:\n%s\n", stacks[:runtime.Stack(stacks, true)])
			code = 1
		}
	}
	os.Exit(code)
}

// call is one request, over either door.
type call struct {
	method, path, body string
	token              string // that of a scope, or itself; "" for none
	local              bool   // through the socket
	base               string // instead of the address of the door
	head               map[string]string
}

// answer is what came.
type answer struct {
	call
	status int
	head   http.Header
	text   string
}

func (x *rig) check(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// door returns a client of one door and the URL to use with it.
func (x *rig) door(local bool) (*http.Client, string) {
	tr := &http.Transport{DisableKeepAlives: true}
	if !local {
		return &http.Client{Transport: tr}, x.tcp.URL
	}
	dial := x.dial()
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return &http.Client{Transport: tr}, "http://exocomp"
}

// begin sends c and returns the answer with its body unread.
func (x *rig) begin(ctx context.Context, c call) *http.Response {
	x.t.Helper()
	client, base := x.door(c.local)
	if c.base != "" {
		base = c.base
	}
	req, err := http.NewRequestWithContext(ctx, c.method, base+c.path, strings.NewReader(c.body))
	x.check(err)
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if text, known := x.tokens[daemon.Scope(c.token)]; known {
		c.token = text
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range c.head {
		req.Header.Set(k, v)
		if v == "" {
			req.Header.Del(k)
		}
	}
	resp, err := client.Do(req)
	x.check(err)
	return resp
}

// do sends c and reads the answer.
func (x *rig) do(c call) answer {
	x.t.Helper()
	resp := x.begin(context.Background(), c)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	x.check(err)
	return answer{c, resp.StatusCode, resp.Header, string(text)}
}

// refused checks that a is a whole problem document, and no more than that.
func (x *rig) refused(a answer, status int, code daemon.Code) problem {
	x.t.Helper()
	var p problem
	var fields map[string]any
	x.check(json.Unmarshal([]byte(a.text), &p))
	x.check(json.Unmarshal([]byte(a.text), &fields))
	if a.status != status || p.Status != status || p.Code != string(code) {
		x.t.Fatalf("%s %s: %d %s, want %d %s", a.method, a.path, a.status, a.text, status, code)
	}
	if len(fields) != 7 || fields["type"] != "about:blank" || p.Title != http.StatusText(status) || p.Detail == "" ||
		p.Remedy == "" || p.RequestID == "" || p.RequestID != a.head.Get("X-Request-Id") ||
		a.head.Get("Content-Type") != "application/problem+json" || a.head.Get("Cache-Control") != "no-store" {
		x.t.Fatalf("%s %s: a poor problem: %s %v", a.method, a.path, a.text, a.head)
	}
	return p
}

// decode reads a good answer.
func decode[T any](x *rig, a answer, status int) (doc T) {
	x.t.Helper()
	if a.status != status {
		x.t.Fatalf("%s %s: %d %s, want %d", a.method, a.path, a.status, a.text, status)
	}
	x.check(json.Unmarshal([]byte(a.text), &doc))
	return doc
}

// ended enqueues a job and ends it.
func (x *rig) ended() daemon.Job {
	x.t.Helper()
	c := x.inside()
	j := x.running(c)
	x.jobs.end(j.ID, 0)
	x.eventually("the job has ended", func() bool {
		var err error
		j, err = c.Job(context.Background(), j.ID)
		x.check(err)
		return j.State.Terminal()
	})
	return j
}

// inside returns a Client that needs no wire.
func (x *rig) inside() daemon.Client { return x.opts.Desk.For(daemon.Principal{Actor: "rig"}) }

// jobToken returns the token that a running job shows.
func (x *rig) jobToken(j daemon.Job) string {
	x.jobs.mu.Lock()
	defer x.jobs.mu.Unlock()
	return x.jobs.live[j.ID].Token
}

// serve serves h at an address of its own.
func (x *rig) serve(srv *http.Server) string {
	s := httptest.NewUnstartedServer(nil)
	s.Config = srv
	s.Start()
	x.t.Cleanup(s.Close)
	return s.URL
}

// dialling returns an api.Client with other options.
func (x *rig) dialling(change func(*api.ClientOptions)) *api.Client {
	x.t.Helper()
	o := api.ClientOptions{BaseURL: x.tcp.URL, Token: x.admin, Pause: time.Nanosecond}
	if change != nil {
		change(&o)
	}
	c, err := api.NewClient(o)
	x.check(err)
	x.t.Cleanup(c.Close)
	return c
}
