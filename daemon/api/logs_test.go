package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
	"github.com/exocomp/exocomp/daemon/linux"
)

func (x *rig) dial() func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return linux.DialUnix(ctx, x.socket) }
}

func TestALogArrivesByteForByteAndEndsWithTheJob(t *testing.T) {
	x := newRig(t)
	c := x.local("")
	j := x.running(c)
	w := x.write(j.ID)
	r := rng(7)
	want := map[daemon.Stream]*bytes.Buffer{daemon.Stdout: {}, daemon.Stderr: {}}
	go func() {
		for i := range 300 {
			stream := []daemon.Stream{daemon.Stdout, daemon.Stderr}[i%2]
			piece := make([]byte, r.IntN(2000))
			for k := range piece {
				piece[k] = byte(r.Uint32())
			}
			if i%3 == 0 {
				piece = []byte("grüße, 世界\n"[i%9:])
			}
			w.Write(stream, daemon.Millis(i+1), piece)
			want[stream].Write(piece)
		}
		w.Close()
		x.jobs.end(j.ID, 4)
	}()
	got := map[daemon.Stream]*bytes.Buffer{daemon.Stdout: {}, daemon.Stderr: {}}
	var offsets []int64
	end, err := c.Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(chunk daemon.LogChunk) error {
		got[chunk.Stream].Write(chunk.Data)
		offsets = append(offsets, chunk.Next)
		return nil
	})
	if err != nil || end.State != daemon.JobFailed || *end.ExitCode != 4 {
		t.Fatalf("%+v, %v", end, err)
	}
	for stream := range want {
		if !bytes.Equal(got[stream].Bytes(), want[stream].Bytes()) {
			t.Errorf("%s: %d bytes arrived of %d", stream, got[stream].Len(), want[stream].Len())
		}
	}
	x.resumes(c, j.ID, offsets)
	for _, raw := range []daemon.Stream{daemon.Stdout, daemon.Stderr} {
		resp, text := x.send("GET", "/api/v1/jobs/"+j.ID+"/logs?raw="+string(raw), x.admin, "", "")
		if resp.StatusCode != 200 || text != want[raw].String() {
			t.Errorf("raw %s: %d, %d bytes", raw, resp.StatusCode, len(text))
		}
	}
}

// resumes checks that from every offset that was given out the rest comes.
func (x *rig) resumes(c daemon.Client, id string, offsets []int64) {
	x.t.Helper()
	for i := 0; i < len(offsets); i += 37 {
		n := 0
		_, err := c.Logs(context.Background(), id, daemon.LogQuery{From: offsets[i]}, func(daemon.LogChunk) error { n++; return nil })
		if err != nil || n != len(offsets)-i-1 {
			x.t.Errorf("from %d: %d chunks, %v", offsets[i], n, err)
		}
	}
	_, err := c.Logs(context.Background(), id, daemon.LogQuery{From: 1}, func(daemon.LogChunk) error { return nil })
	if daemon.CodeOf(err) != daemon.Invalid {
		x.t.Errorf("from the middle of an entry: %s", describe(err))
	}
}

// flaky drops connections in the middle of what they carry.
func flaky(t *testing.T, target string, after int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				in.Close()
				return
			}
			go io.Copy(out, in)
			go func() {
				io.CopyN(in, out, int64(after))
				in.Close()
				out.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestAFollowerTakesABrokenStreamUpAgain(t *testing.T) {
	x := newRig(t)
	j := x.running(x.local(""))
	w := x.write(j.ID)
	var want bytes.Buffer
	for range 400 {
		w.Write(daemon.Stdout, 1, []byte("a line of the log\n"))
		want.WriteString("a line of the log\n")
	}
	w.Close()
	x.jobs.end(j.ID, 0)
	c, err := api.NewClient(api.ClientOptions{BaseURL: flaky(t, x.tcp.URL, 9000), Token: x.admin})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	end, err := c.Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(chunk daemon.LogChunk) error {
		got.Write(chunk.Data)
		return nil
	})
	if err != nil || end.State != daemon.Succeeded || got.String() != want.String() {
		t.Errorf("%d bytes of %d, %v", got.Len(), want.Len(), err)
	}
}

func TestASilentStreamBeatsAndEndsWithItsReader(t *testing.T) {
	x := newRig(t)
	j := x.running(x.local(""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", x.tcp.URL+"/api/v1/jobs/"+j.ID+"/logs?follow=true", nil)
	req.Header.Set("Authorization", "Bearer "+x.admin)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v, %v", resp, err)
	}
	buf := make([]byte, 64)
	n, err := io.ReadAtLeast(resp.Body, buf, 16)
	if err != nil || !strings.HasPrefix(string(buf[:n]), ": beat\n\n: beat\n\n") {
		t.Errorf("%q, %v", buf[:n], err)
	}
	cancel()
	resp.Body.Close()
}

func TestAReaderMayStop(t *testing.T) {
	x := newRig(t)
	c := x.local("")
	j := x.running(c)
	w := x.write(j.ID)
	w.Write(daemon.Stdout, 1, []byte("one\n"))
	enough := errors.New("enough")
	if _, err := c.Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Logs(ctx, j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A reader that does not read holds up nobody but itself.
func TestASlowReaderHoldsUpNobody(t *testing.T) {
	x := newRig(t)
	c := x.local("")
	j := x.running(c)
	w := x.write(j.ID)
	conn, err := x.dial()(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /api/v1/jobs/"+j.ID+"/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n")
	piece := bytes.Repeat([]byte("x"), 32<<10)
	for range 300 { // more than all buffers between hold
		w.Write(daemon.Stdout, 1, piece)
	}
	totals, err := w.Close()
	if err != nil || totals.Bytes != int64(300*len(piece)) {
		t.Errorf("%+v, %v", totals, err)
	}
	x.jobs.end(j.ID, 0)
	n := 0
	if _, err := c.Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(chunk daemon.LogChunk) error {
		n += len(chunk.Data)
		return nil
	}); err != nil || n != 300*len(piece) {
		t.Errorf("another reader got %d bytes, %v", n, err)
	}
}

func TestTheClientExplainsWhatWentWrong(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>nginx</html>", http.StatusBadGateway)
	}))
	defer html.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cut.Close()
	redirect := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer redirect.Close()
	tests := []struct {
		name, url string
		code      daemon.Code
	}{
		{"nobody listens", gone.URL, daemon.Unavailable},
		{"not exocomp", html.URL, daemon.Failed},
		{"cut off", cut.URL, daemon.TimedOut},
		{"redirected", redirect.URL, daemon.Failed},
	}
	for _, tt := range tests {
		c, err := api.NewClient(api.ClientOptions{BaseURL: tt.url, Token: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Enqueue(t.Context(), "key", daemon.EnqueueRequest{})
		if daemon.CodeOf(err) != tt.code || daemon.RemedyOf(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %s", tt.name, describe(err))
		}
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	c, _ := api.NewClient(api.ClientOptions{BaseURL: slow.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); daemon.CodeOf(err) != daemon.TimedOut {
		t.Errorf("slow: %s", describe(err))
	}
	for _, bad := range []string{"", "ftp://x", "127.0.0.1:7373", "http://", "http://ops.example:7373", "http://[2001:db8::1]:1"} {
		if _, err := api.NewClient(api.ClientOptions{BaseURL: bad}); daemon.CodeOf(err) != daemon.Usage || daemon.RemedyOf(err) == "" {
			t.Errorf("%q: %s", bad, describe(err))
		}
	}
	for _, good := range []string{"http://localhost:1", "http://127.9.9.9", "http://[::1]:1", "https://ops.example"} {
		if _, err := api.NewClient(api.ClientOptions{BaseURL: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
