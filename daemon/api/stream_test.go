package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// tailFunc is a Logs of a test.
type tailFunc func(ctx context.Context, offset int64, ended func() (bool, error), yield func(daemon.LogChunk) error) error

func (f tailFunc) Tail(ctx context.Context, _ string, offset int64, ended func() (bool, error), yield func(daemon.LogChunk) error) error {
	return f(ctx, offset, ended, yield)
}

// withLogs returns a rig whose logs are f.
func withLogs(t *testing.T, f tailFunc) *rig {
	return newRigWith(t, func(o *api.Options) { o.Desk.Logs = f })
}

// event is one event as it stands on the wire.
type event struct{ name, id, data string }

// nextEvent reads one event or comment, line by line as the standard has it.
func nextEvent(in *bufio.Reader) (e event, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "":
			if line == "" {
				return e, nil
			}
			e.name = line // a comment
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data += value
		}
	}
}

// events reads a whole stream.
func (x *rig) events(c call) (all []event) {
	x.t.Helper()
	resp := x.begin(context.Background(), c)
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		x.t.Fatalf("%d %s", resp.StatusCode, text)
	}
	in := bufio.NewReader(resp.Body)
	for {
		e, err := nextEvent(in)
		if errors.Is(err, io.EOF) {
			return all
		}
		x.check(err)
		all = append(all, e)
	}
}

// says writes what a job says and returns it as it must be read.
func (x *rig) says(j daemon.Job, chunks ...daemon.LogChunk) []daemon.LogChunk {
	x.t.Helper()
	w := x.write(j.ID)
	for _, c := range chunks {
		w.Write(c.Stream, c.At, c.Data)
	}
	_, err := w.Close()
	x.check(err)
	return x.read(j)
}

// read reads a log from its files.
func (x *rig) read(j daemon.Job) (all []daemon.LogChunk) {
	x.t.Helper()
	x.check(x.logs.Tail(context.Background(), j.ID, 0, nil, func(c daemon.LogChunk) error {
		all = append(all, c)
		return nil
	}))
	return all
}

func out(text string) daemon.LogChunk {
	return daemon.LogChunk{At: 1_893_456_000_123, Stream: daemon.Stdout, Data: []byte(text)}
}

func errs(text string) daemon.LogChunk {
	return daemon.LogChunk{At: 1_893_456_000_123, Stream: daemon.Stderr, Data: []byte(text)}
}

func TestALogIsAStreamOfEvents(t *testing.T) {
	x := newRig(t)
	j := x.ended()
	chunks := x.says(j, out("a <b>\n"), errs("\xff\x00"), out("h\xc3"))
	all := x.events(call{path: "/api/v1/jobs/1/logs", token: "viewer"})
	next := func(i int) string { return strconv.FormatInt(chunks[i].Next, 10) }
	want := []event{
		{"log", next(0), `{"offset":0,"next":` + next(0) + `,"at":"2030-01-01T00:00:00.123Z","stream":"stdout","text":"a \u003cb\u003e\n"}`},
		{"log", next(1), `{"offset":` + next(0) + `,"next":` + next(1) + `,"at":"2030-01-01T00:00:00.123Z","stream":"stderr","base64":"/wA="}`},
		{"log", next(2), `{"offset":` + next(1) + `,"next":` + next(2) + `,"at":"2030-01-01T00:00:00.123Z","stream":"stdout","base64":"aMM="}`},
	}
	for i, w := range want {
		if all[i] != w {
			t.Errorf("event %d: %q\nwant %q", i, all[i], w)
		}
	}
	var end daemon.Job
	last := all[len(all)-1]
	x.check(json.Unmarshal([]byte(last.data), &end))
	if len(all) != 4 || last.name != "end" || last.id != "" || end.ID != j.ID || end.State != daemon.Succeeded {
		t.Errorf("%d events, the last is %+v", len(all), last)
	}

	if same := x.events(call{path: "/api/v1/jobs/%31/logs", token: "viewer"}); len(same) != 4 {
		t.Errorf("of an escaped number: %q", same)
	}
	rest := x.events(call{path: "/api/v1/jobs/" + j.ID + "/logs?from=" + next(0), token: "viewer"})
	again := x.events(call{path: "/api/v1/jobs/" + j.ID + "/logs?from=0", token: "viewer", head: map[string]string{"Last-Event-ID": next(1)}})
	if len(rest) != 3 || rest[0] != want[1] || len(again) != 2 || again[0] != want[2] {
		t.Errorf("taken up: %q and %q", rest, again)
	}
	lost := x.events(call{path: "/api/v1/jobs/1/logs?from=3", token: "viewer"})
	if len(lost) != 1 || lost[0].name != "error" || !strings.Contains(lost[0].data, "not where an entry begins") {
		t.Errorf("from the middle of an entry: %q", lost)
	}
}

func TestACutIsAnEvent(t *testing.T) {
	x := withLogs(t, func(_ context.Context, _ int64, _ func() (bool, error), yield func(daemon.LogChunk) error) error {
		return yield(daemon.LogChunk{Next: 70, Stream: daemon.Gap, Cut: 70})
	})
	x.ended()
	all := x.events(call{path: "/api/v1/jobs/1/logs", token: "viewer"})
	if want := (event{"log", "70", `{"offset":0,"next":70,"at":"","stream":"gap","cut":70}`}); all[0] != want {
		t.Errorf("%q", all)
	}
}

func TestALogIsAlsoGivenAsBytes(t *testing.T) {
	x := newRig(t)
	j := x.ended()
	x.says(j, out("a\xff"), errs("b"), out("\x00c"))
	for _, tt := range []struct{ query, accept, want string }{
		{"?raw=both", "", "a\xffb\x00c"},
		{"?raw=stdout", "", "a\xff\x00c"},
		{"?raw=stderr", "application/octet-stream", "b"},
		{"", "application/octet-stream", "a\xffb\x00c"},
	} {
		a := x.do(call{path: "/api/v1/jobs/1/logs" + tt.query, token: "viewer", head: map[string]string{"Accept": tt.accept}})
		if a.status != 200 || a.text != tt.want || a.head.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%+v: %d %q %v", tt, a.status, a.text, a.head)
		}
	}
	x.refused(x.do(call{path: "/api/v1/jobs/1/logs?raw=both&from=3", token: "viewer"}), 422, daemon.Invalid)
	k := x.ended()
	if a := x.do(call{path: "/api/v1/jobs/" + k.ID + "/logs?raw=both", token: "viewer"}); a.status != 200 || a.text != "" {
		t.Errorf("a job that said nothing: %d %q", a.status, a.text)
	}
}

func TestAFollowerSeesTheEnd(t *testing.T) {
	x := newRig(t)
	for _, raw := range []string{"", "&raw=both"} {
		j := x.running(x.inside())
		w := x.write(j.ID)
		w.Write(daemon.Stdout, 1, []byte("one\n"))
		resp := x.begin(t.Context(), call{path: "/api/v1/jobs/" + j.ID + "/logs?follow=true" + raw, token: "viewer"})
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		x.expect(in, "one")
		w.Write(daemon.Stdout, 1, []byte("two\n"))
		x.expect(in, "two")
		w.Write(daemon.Stdout, 1, []byte("three\n"))
		x.jobs.end(j.ID, 0)
		rest, err := io.ReadAll(in)
		x.check(err)
		if !strings.Contains(string(rest), "three") || strings.Contains(string(rest), `"state":"succeeded"`) == (raw != "") {
			t.Errorf("at the end: %s", rest)
		}
		_, err = w.Close()
		x.check(err)
	}
}

// expect reads lines until one holds text.
func (x *rig) expect(in *bufio.Reader, text string) {
	x.t.Helper()
	for {
		line, err := in.ReadString('\n')
		x.check(err)
		if strings.Contains(line, text) {
			return
		}
	}
}

// A quiet stream must outlive the time that a request has to be read: each beat
// here comes later than the server's ReadTimeout.
func TestAQuietStreamBeatsAndLives(t *testing.T) {
	x := newRigWith(t, func(o *api.Options) { o.Beat = 5 * time.Millisecond })
	j := x.running(x.inside())
	srv := x.srv.HTTPServer(false)
	srv.ReadTimeout, srv.ReadHeaderTimeout = time.Millisecond, time.Second
	resp := x.begin(t.Context(), call{base: x.serve(srv), path: "/api/v1/jobs/1/logs?follow=true", token: "viewer"})
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 5 {
		if e, err := nextEvent(in); err != nil || e.name != ": beat" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	x.jobs.end(j.ID, 0)
	for e := (event{name: ": beat"}); e.name == ": beat"; {
		var err error
		if e, err = nextEvent(in); err != nil || e.name != ": beat" && e.name != "end" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
}

func TestWhoLeavesIsNotReadFor(t *testing.T) {
	left := make(chan error, 1)
	var flood atomic.Bool
	x := withLogs(t, func(ctx context.Context, _ int64, _ func() (bool, error), yield func(daemon.LogChunk) error) (err error) {
		defer func() { left <- err }()
		big := out(strings.Repeat("x", 64<<10))
		for off := int64(0); ; off++ {
			big.Offset, big.Next = off, off+1
			if err := yield(big); err != nil {
				return err
			}
			if !flood.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
		}
	})
	x.running(x.inside())
	for _, full := range []bool{false, true} { // waiting for the job, and waiting for the reader
		flood.Store(full)
		for _, raw := range []string{"", "&raw=both"} {
			ctx, cancel := context.WithCancel(t.Context())
			resp := x.begin(ctx, call{path: "/api/v1/jobs/1/logs?follow=true" + raw, token: "viewer"})
			_, err := io.ReadFull(resp.Body, make([]byte, 1000))
			x.check(err)
			cancel()
			select {
			case err := <-left:
				if err == nil {
					t.Error("it was read to its end")
				}
			case <-time.After(patience):
				t.Fatalf("flood %v%s: still reading for somebody who left", full, raw)
			}
			resp.Body.Close()
		}
	}
	x.eventually("all four are in the log", func() bool { return strings.Count(x.slog.String(), "/logs") >= 4 })
	if book := x.slog.String(); strings.Contains(book, "level=ERROR") {
		t.Errorf("leaving is no error:\n%s", book)
	}
}

// What a slow reader has not read yet still comes, when it does read.
func TestASlowReaderLosesNothing(t *testing.T) {
	x := newRig(t)
	j := x.running(x.inside())
	w := x.write(j.ID)
	line := []byte(strings.Repeat("0123456789abcdef", 2000))
	w.Write(daemon.Stdout, 1, line)
	var slow []*http.Response
	for _, raw := range []string{"", "&raw=both"} {
		resp := x.begin(t.Context(), call{path: "/api/v1/jobs/1/logs?follow=true" + raw, token: "viewer"})
		defer resp.Body.Close()
		slow = append(slow, resp)
	}
	for range 300 { // more than all buffers between hold
		w.Write(daemon.Stdout, 1, line)
	}
	_, err := w.Close()
	x.check(err)
	x.jobs.end(j.ID, 0)
	if all := x.events(call{path: "/api/v1/jobs/1/logs?follow=true", token: "viewer"}); len(all) < 302 {
		t.Errorf("the quick one got %d events", len(all))
	}
	text, err := io.ReadAll(slow[0].Body)
	x.check(err)
	if n := bytes.Count(text, []byte("event: log\n")); n != 301 || !bytes.Contains(text, []byte("event: end\n")) {
		t.Errorf("the slow one got %d events", n)
	}
	text, err = io.ReadAll(slow[1].Body)
	x.check(err)
	if !bytes.Equal(text, bytes.Repeat(line, 301)) {
		t.Errorf("the slow one got %d bytes", len(text))
	}
}

func TestWhatBreaksMidStreamIsTold(t *testing.T) {
	var then atomic.Pointer[func() error]
	x := withLogs(t, func(_ context.Context, _ int64, _ func() (bool, error), yield func(daemon.LogChunk) error) error {
		c := out("first")
		c.Next = 5
		if err := yield(c); err != nil {
			return err
		}
		return (*then.Load())()
	})
	x.ended()
	for _, tt := range []struct {
		then   func() error
		code   daemon.Code
		detail string
	}{
		{func() error { return daemon.Errorf(daemon.Invalid, "rotten").Hint("throw it away") }, daemon.Invalid, "rotten"},
		{func() error { return errors.New("secret") }, daemon.Failed, "the daemon failed"},
		{func() error { panic("secret") }, daemon.Failed, "the daemon failed"},
	} {
		then.Store(&tt.then)
		all := x.events(call{path: "/api/v1/jobs/1/logs", token: "viewer", head: map[string]string{"X-Request-Id": "find-me"}})
		var p problem
		last := all[len(all)-1]
		x.check(json.Unmarshal([]byte(last.data), &p))
		if len(all) != 2 || last.name != "error" || p.Code != string(tt.code) || !strings.Contains(p.Detail, tt.detail) ||
			p.RequestID != "find-me" || strings.Contains(last.data, "secret") {
			t.Errorf("%q", all)
		}
		resp := x.begin(t.Context(), call{path: "/api/v1/jobs/1/logs?raw=both", token: "viewer"})
		if text, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a cut log came as a whole one: %q", text)
		}
		resp.Body.Close()
	}
	x.eventually("the operator is told", func() bool { return strings.Count(x.slog.String(), "secret") >= 4 })
}

// noise returns chunks of every kind: text, runes that two chunks share, bytes
// that are no text, lines that look like events, nothing but zeros.
func noise(seed uint64, n int) []daemon.LogChunk {
	rnd := rng(seed)
	text := "événement 世界 \U0001F600\r\n\ndata: x\nid: 7\n\nevent: end\u2028\u0000<&>\\\"\ufffd"
	chunks := make([]daemon.LogChunk, n)
	for i := range chunks {
		var data []byte
		switch rnd.IntN(4) {
		case 0: // any bytes
			data = make([]byte, 1+rnd.IntN(3000))
			for k := range data {
				data[k] = byte(rnd.Uint32())
			}
		case 1:
			data = make([]byte, 1+rnd.IntN(3000))
		default: // cut anywhere
			long := strings.Repeat(text, 3)
			from := rnd.IntN(len(long) - 1)
			data = []byte(long[from : from+1+rnd.IntN(len(long)-from)])
		}
		chunks[i] = daemon.LogChunk{At: daemon.Millis(1_893_456_000_000 + i), Stream: daemon.Stdout, Data: data}
		if rnd.IntN(3) == 0 {
			chunks[i].Stream = daemon.Stderr
		}
	}
	return chunks
}
