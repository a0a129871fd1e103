package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/api"
)

// gather reads a log through a client.
func gather(ctx context.Context, c daemon.Client, ref string, q daemon.LogQuery) (all []daemon.LogChunk, j daemon.Job, err error) {
	j, err = c.Logs(ctx, ref, q, func(chunk daemon.LogChunk) error {
		all = append(all, chunk)
		return nil
	})
	return all, j, err
}

func TestALogComesThroughExactly(t *testing.T) {
	x := newRig(t)
	for seed := range uint64(3) {
		j := x.ended()
		want := x.says(j, noise(seed, 300)...)
		got, end, err := gather(t.Context(), x.dialling(nil), j.ID, daemon.LogQuery{})
		if err != nil || !reflect.DeepEqual(got, want) || len(want) != 300 {
			t.Errorf("seed %d: %d chunks, want %d, %v", seed, len(got), len(want), err)
		}
		if end.ID != j.ID || end.State != daemon.Succeeded {
			t.Errorf("seed %d: the job behind it is %+v", seed, end)
		}
		half := want[len(want)/2:]
		got, _, err = gather(t.Context(), x.dialling(nil), j.ID, daemon.LogQuery{From: half[0].Offset})
		if err != nil || !reflect.DeepEqual(got, half) {
			t.Errorf("seed %d: from the middle %d chunks, want %d, %v", seed, len(got), len(half), err)
		}
	}
}

func TestTheLargestChunkAndACutComeThrough(t *testing.T) {
	want := []daemon.LogChunk{
		{Next: 1 << 20, At: 1, Stream: daemon.Stdout, Data: make([]byte, 1<<20)},
		{Offset: 1 << 20, Next: 3 << 20, Stream: daemon.Gap, Cut: 2 << 20},
		{Offset: 3 << 20, Next: 4 << 20, At: 2, Stream: daemon.Stderr, Data: []byte(strings.Repeat("\xff", 1<<20))},
	}
	x := withLogs(t, func(_ context.Context, _ int64, _ func() (bool, error), yield func(daemon.LogChunk) error) error {
		return errors.Join(yield(want[0]), yield(want[1]), yield(want[2]))
	})
	x.ended()
	got, _, err := gather(t.Context(), x.dialling(nil), "1", daemon.LogQuery{})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d chunks, %v", len(got), err)
	}
}

// cutting dials connections that end in the middle of what they bring.
type cutting struct {
	address string
	mu      sync.Mutex
	rnd     *rand.Rand
	dials   int
}

func (c *cutting) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	return &cutConn{Conn: conn, left: 8000 + c.rnd.IntN(60000)}, nil
}

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func TestABrokenStreamIsTakenUpWhereItBroke(t *testing.T) {
	x := newRig(t)
	for seed := range uint64(3) {
		j := x.running(x.inside())
		cuts := &cutting{address: strings.TrimPrefix(x.tcp.URL, "http://"), rnd: rand.New(rand.NewPCG(seed, 2))}
		c := x.dialling(func(o *api.ClientOptions) { o.Dial = cuts.dial })
		var want []daemon.LogChunk
		var writer sync.WaitGroup
		writer.Go(func() {
			want = x.says(j, noise(seed, 500)...)
			x.jobs.end(j.ID, 0)
		})
		got, end, err := gather(t.Context(), c, j.ID, daemon.LogQuery{Follow: true})
		writer.Wait()
		if err != nil || !reflect.DeepEqual(got, want) || end.State != daemon.Succeeded {
			t.Errorf("seed %d: %d chunks, want %d, %s, %v", seed, len(got), len(want), end.State, err)
		}
		if cuts.dials < 3 {
			t.Errorf("seed %d: only %d connections were needed: nothing was proved", seed, cuts.dials)
		}
	}
}

// script serves one answer after another, and the last one again and again.
func script(t *testing.T, answers ...http.HandlerFunc) (url string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		answers[min(n, len(answers))-1](w, r)
	}))
	s.Config.SetKeepAlivesEnabled(false) // a client asks again by itself where one broke
	t.Cleanup(s.Close)
	return s.URL, asked
}

// says answers with a stream that ends behind text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

func logAt(offset, next int64) string {
	return fmt.Sprintf("event: log\nid: %d\ndata: {\"offset\":%d,\"next\":%d,\"at\":\"\",\"stream\":\"stdout\",\"text\":\"x\"}\n\n", next, offset, next)
}

const endEvent = "event: end\ndata: {\"id\":\"job_1\",\"state\":\"failed\"}\n\n"

func refuses(status int, code daemon.Code) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"no","remedy":"yes"}`, status, code)
	}
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestAFollowerIsPatientAndNotForEver(t *testing.T) {
	cut := says(logAt(0, 1) + "event: log\nid: 2\nda")
	more := says(logAt(1, 2))
	none := says("")
	tests := []struct {
		name    string
		answers []http.HandlerFunc
		asked   int64
		chunks  int
		code    daemon.Code // "" for a good end
	}{
		{"at once", []http.HandlerFunc{says(logAt(0, 1) + endEvent)}, 1, 1, ""},
		{"cut in an event", []http.HandlerFunc{cut, says(logAt(1, 2) + endEvent)}, 2, 2, ""},
		{"cut before anything came", []http.HandlerFunc{none, hangsUp, refuses(503, daemon.Unavailable), says(logAt(0, 1) + endEvent)}, 4, 1, ""},
		{"five times, then good", []http.HandlerFunc{cut, hangsUp, hangsUp, hangsUp, hangsUp, says(endEvent)}, 6, 1, ""},
		{"six times", []http.HandlerFunc{cut, hangsUp}, 6, 1, daemon.TimedOut},
		{"six times nothing", []http.HandlerFunc{none}, 6, 0, daemon.TimedOut},
		{"six times busy", []http.HandlerFunc{none, refuses(503, daemon.Unavailable)}, 6, 0, daemon.Unavailable},
		{"progress counts", []http.HandlerFunc{cut, none, none, none, more, none, none, none, none, says(endEvent)}, 10, 2, ""},
		{"refused at first", []http.HandlerFunc{refuses(503, daemon.Unavailable)}, 1, 0, daemon.Unavailable},
		{"refused later", []http.HandlerFunc{cut, refuses(401, daemon.NoToken)}, 2, 1, daemon.NoToken},
		{"gone at first", []http.HandlerFunc{hangsUp}, 1, 0, daemon.TimedOut},
		{"an error", []http.HandlerFunc{says("event: error\ndata: {\"code\":\"conflict\",\"detail\":\"no\"}\n\n")}, 1, 0, daemon.Conflict},
		{"a hole", []http.HandlerFunc{says(logAt(0, 1) + logAt(2, 3))}, 1, 1, daemon.Failed},
		{"twice the same", []http.HandlerFunc{cut, says(logAt(0, 1))}, 2, 1, daemon.Failed},
		{"no way on", []http.HandlerFunc{says(logAt(0, 0))}, 1, 0, daemon.Failed},
		{"garbage", []http.HandlerFunc{says("event: log\ndata: {\n\n")}, 1, 0, daemon.Failed},
		{"too large", []http.HandlerFunc{says("data: " + strings.Repeat("x", 9<<20))}, 1, 0, daemon.Failed},
		{"too many lines", []http.HandlerFunc{says(strings.Repeat("data: xxxxxxxx\n", 1<<20))}, 1, 0, daemon.Failed},
		{"what is not known yet", []http.HandlerFunc{says(":\n\nretry: 5\n\nevent: bye\ndata: a\ndata: b\n\n" + endEvent)}, 1, 0, ""},
	}
	for _, tt := range tests {
		url, asked := script(t, tt.answers...)
		c, err := api.NewClient(api.ClientOptions{BaseURL: url, Pause: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		all, j, err := gather(t.Context(), c, "1", daemon.LogQuery{Follow: true})
		c.Close()
		if len(all) != tt.chunks || asked.Load() != tt.asked {
			t.Errorf("%s: %d chunks in %d requests, want %d in %d (%v)", tt.name, len(all), asked.Load(), tt.chunks, tt.asked, err)
		}
		if tt.code == "" && (err != nil || j.State != daemon.JobFailed) || tt.code != "" && daemon.CodeOf(err) != tt.code {
			t.Errorf("%s: %s, %v, want %q", tt.name, j.State, err, tt.code)
		}
	}
}

func TestAResumeSaysWhereItWas(t *testing.T) {
	heads := make(chan string, 2)
	note := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			heads <- r.Header.Get("Last-Event-ID") + " " + r.URL.RawQuery
			next(w, r)
		}
	}
	url, _ := script(t, note(says(logAt(7, 8))), note(says(endEvent)))
	c, err := api.NewClient(api.ClientOptions{BaseURL: url, Pause: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err = gather(t.Context(), c, "1", daemon.LogQuery{Follow: true, From: 7}); err != nil {
		t.Fatal(err)
	}
	if one, two := <-heads, <-heads; one != " follow=true&from=7" || two != "8 follow=true&from=8" {
		t.Errorf("asked for %q, then %q", one, two)
	}
}

func TestASilentStreamIsABrokenOne(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) {
		says(logAt(0, 1))(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	url, asked := script(t, silent, says(endEvent))
	c, err := api.NewClient(api.ClientOptions{BaseURL: url, Pause: time.Nanosecond, Silence: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, _, err := gather(t.Context(), c, "1", daemon.LogQuery{Follow: true})
	if err != nil || len(all) != 1 || asked.Load() != 2 {
		t.Errorf("%d chunks in %d requests, %v", len(all), asked.Load(), err)
	}
}

func TestAFollowerMayLeave(t *testing.T) {
	x := newRig(t)
	j := x.running(x.inside())
	x.says(j, out("x"))
	stop := errors.New("enough")
	_, err := x.dialling(nil).Logs(t.Context(), j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("the reader's own error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = x.dialling(nil).Logs(ctx, j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = x.dialling(nil).Logs(ctx, j.ID, daemon.LogQuery{Follow: true}, func(daemon.LogChunk) error { return nil })
	if daemon.CodeOf(err) != daemon.TimedOut {
		t.Errorf("out of time: %v", err)
	}
}
