package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/exocomp/exocomp/daemon"
)

// logEvent is one chunk of a log on the wire. Bytes that are no text go in
// base64, so that every byte arrives as it was; a rune that two chunks share
// makes both of them base64.
type logEvent struct {
	Offset int64         `json:"offset"`
	Next   int64         `json:"next"`
	At     daemon.Millis `json:"at"`
	Stream daemon.Stream `json:"stream"`
	Text   string        `json:"text,omitempty"`
	Base64 []byte        `json:"base64,omitempty"`
	Cut    int64         `json:"cut,omitempty"`
}

func newLogEvent(c daemon.LogChunk) logEvent {
	e := logEvent{Offset: c.Offset, Next: c.Next, At: c.At, Stream: c.Stream, Cut: c.Cut}
	if utf8.Valid(c.Data) {
		e.Text = string(c.Data)
	} else {
		e.Base64 = c.Data
	}
	return e
}

func (e logEvent) chunk() daemon.LogChunk {
	c := daemon.LogChunk{Offset: e.Offset, Next: e.Next, At: e.At, Stream: e.Stream, Cut: e.Cut, Data: e.Base64}
	if e.Text != "" {
		c.Data = []byte(e.Text)
	}
	return c
}

const logsPath = "/api/v1/jobs/{job}/logs"

// describeLogs puts the one operation that huma does not serve into its document.
func describeLogs(doc *huma.OpenAPI) {
	o := op("read-log", http.MethodGet, "/jobs/{job}/logs", "Read or follow what a job wrote")
	o.Description = "Server-sent events: log, end (the job) and error (a problem). With raw, or Accept: " +
		"application/octet-stream, bytes and nothing else."
	param := func(name, in, kind, text string) {
		o.Parameters = append(o.Parameters, &huma.Param{Name: name, In: in, Description: text, Required: in == "path",
			Schema: &huma.Schema{Type: kind}})
	}
	param("job", "path", huma.TypeString, "number or id")
	param("from", "query", huma.TypeInteger, "offset to begin at: 0, or an id that the log gave out")
	param("follow", "query", huma.TypeBoolean, "go on until the job ends")
	param("raw", "query", huma.TypeString, "stdout, stderr or both")
	param("Last-Event-ID", "header", huma.TypeInteger, "counts more than from")
	o.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"text/event-stream": {}, "application/octet-stream": {}}}, "default": problemResponse(doc)}
	doc.AddOperation(&o)
}

// logs streams a log as server-sent events:
//
//	event: log    id: the offset behind it    data: a logEvent
//	event: end    data: the job, when it has ended or nothing was to be followed
//	event: error  data: a problem
//
// It goes on where Last-Event-ID, or from=, says. With raw=stdout, stderr or
// both it is bytes and nothing else.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	q, raw, err := logQuery(r)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	c := s.client(r.Context())
	j, err := c.Job(r.Context(), jobIn(r))
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	if raw != "" {
		rawLog(w, r, c, j.ID, q, raw)
		return
	}
	s.streamLog(w, r, c, j.ID, q)
}

// jobIn returns the job that the path of r names. chi matches the path as it was
// sent, so what was escaped still is.
func jobIn(r *http.Request) string {
	ref := chi.URLParam(r, "job")
	if plain, err := url.PathUnescape(ref); err == nil && r.URL.RawPath != "" {
		return plain
	}
	return ref
}

func logQuery(r *http.Request) (q daemon.LogQuery, raw string, err error) {
	v := r.URL.Query()
	for name := range v { // one that is wrong is enough: the order does not matter
		if name != "from" && name != "follow" && name != "raw" {
			return q, "", daemon.Errorf(daemon.Invalid, "query.%.40s: unknown query parameter", name).
				Hint("a log takes from, follow and raw")
		}
	}
	from := v.Get("from")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		from = last
	}
	if from != "" {
		if q.From, err = strconv.ParseInt(from, 10, 64); err != nil || q.From < 0 {
			return q, "", daemon.Errorf(daemon.Invalid, "the offset to start from is no number").
				Hint("use 0, or an id that the log gave out")
		}
	}
	if f := v.Get("follow"); f != "" {
		if q.Follow, err = strconv.ParseBool(f); err != nil {
			return q, "", daemon.Errorf(daemon.Invalid, "follow is neither true nor false").Hint("write follow=true")
		}
	}
	raw, err = rawStreams(v.Get("raw"), r.Header.Get("Accept"))
	return q, raw, err
}

// rawStreams says which streams are wanted as bytes: "" for none.
func rawStreams(raw, accept string) (string, error) {
	switch raw {
	case "stdout", "stderr", "both":
		return raw, nil
	case "":
		if strings.Contains(accept, "application/octet-stream") {
			return "both", nil
		}
		return "", nil
	}
	return "", daemon.Errorf(daemon.Invalid, "raw is not stdout, stderr or both").Hint("write raw=both")
}

// rawLog writes bytes. What went wrong before the first of them is a problem;
// later the connection breaks, since a cut log must not look like a whole one.
func rawLog(w http.ResponseWriter, r *http.Request, c daemon.Client, id string, q daemon.LogQuery, raw string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	out := newPatient(w)
	began, unread := false, false
	_, err := c.Logs(r.Context(), id, q, func(chunk daemon.LogChunk) error {
		if chunk.Stream == daemon.Gap || raw != "both" && raw != string(chunk.Stream) {
			return nil
		}
		began = true
		err := out.write(chunk.Data)
		unread = err != nil
		return err
	})
	switch {
	case err == nil:
	case !began:
		writeProblem(w, r, err)
	default:
		if !unread {
			problemFor(r.Context(), err) // for the log
		}
		panic(http.ErrAbortHandler)
	}
}

// logEnd is how a log ended.
type logEnd struct {
	job daemon.Job
	err error
}

// tail reads a log in a goroutine of its own, so that the connection can be kept
// alive while nothing comes. Nothing is kept in between: a slow reader slows
// only itself. The end comes even when reading breaks, which must not take the
// daemon along.
func tail(ctx context.Context, c daemon.Client, id string, q daemon.LogQuery) (<-chan daemon.LogChunk, <-chan logEnd) {
	chunks, ended := make(chan daemon.LogChunk), make(chan logEnd, 1)
	go func() {
		var e logEnd
		defer func() {
			if p := recover(); p != nil {
				e.err = fmt.Errorf("read log: panic: %v\n%s", p, debug.Stack())
			}
			ended <- e
		}()
		e.job, e.err = c.Logs(ctx, id, q, func(chunk daemon.LogChunk) error {
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return chunks, ended
}

// streamLog writes events, and a comment when there was none for a while: it
// keeps what lies between from closing the connection, and tells the reader that
// somebody is there.
func (s *Server) streamLog(w http.ResponseWriter, r *http.Request, c daemon.Client, id string, q daemon.LogQuery) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	chunks, ended := tail(ctx, c, id, q)
	out := newSSE(w)
	beat := time.NewTicker(s.opts.Beat)
	defer beat.Stop()
	check := time.NewTicker(s.recheck)
	defer check.Stop()
	for {
		var err error
		select {
		case <-check.C:
			if err = s.stillMay(r, "read-log"); err != nil {
				_ = out.send("error", "", problemFor(r.Context(), err)) // the peer may be gone
			}
		case chunk := <-chunks:
			beat.Reset(s.opts.Beat)
			err = out.send("log", strconv.FormatInt(chunk.Next, 10), newLogEvent(chunk))
		case <-beat.C:
			err = out.comment("beat")
		case e := <-ended:
			endLog(out, r, e)
			return
		}
		if err != nil {
			cancel()
			<-ended
			return
		}
	}
}

// endLog says how the stream ended.
func endLog(out *sse, r *http.Request, e logEnd) {
	switch {
	case e.err == nil:
		_ = out.send("end", "", e.job) // the peer may be gone
	case !errors.Is(e.err, context.Canceled):
		_ = out.send("error", "", problemFor(r.Context(), e.err)) // the peer may be gone
	}
}
