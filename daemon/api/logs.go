package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

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
	if c.Data == nil {
		c.Data = []byte(e.Text)
	}
	return c
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
	j, err := c.Job(r.Context(), chi.URLParam(r, "job"))
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	if raw != "" {
		s.rawLog(w, r, c, j.ID, q, raw)
		return
	}
	s.streamLog(w, r, c, j.ID, q)
}

func logQuery(r *http.Request) (q daemon.LogQuery, raw string, err error) {
	v := r.URL.Query()
	from := v.Get("from")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		from = last
	}
	if from != "" {
		if q.From, err = strconv.ParseInt(from, 10, 64); err != nil || q.From < 0 {
			return q, "", daemon.Errorf(daemon.Invalid, "the offset to start from is no number").Hint("use 0, or an id that the log gave out")
		}
	}
	if f := v.Get("follow"); f != "" {
		if q.Follow, err = strconv.ParseBool(f); err != nil {
			return q, "", daemon.Errorf(daemon.Invalid, "follow is neither true nor false").Hint("write follow=true")
		}
	}
	raw = v.Get("raw")
	if raw != "" && raw != "stdout" && raw != "stderr" && raw != "both" {
		return q, "", daemon.Errorf(daemon.Invalid, "raw is not stdout, stderr or both").Hint("write raw=both")
	}
	return q, raw, nil
}

// writeWithin is how long a reader may take for one piece. It slows nobody but
// itself: the job writes to a file.
const writeWithin = 30 * time.Second

func (s *Server) rawLog(w http.ResponseWriter, r *http.Request, c daemon.Client, id string, q daemon.LogQuery, raw string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	rc := http.NewResponseController(w)
	wrote := false
	_, err := c.Logs(r.Context(), id, q, func(chunk daemon.LogChunk) error {
		if chunk.Stream == daemon.Gap || raw != "both" && raw != string(chunk.Stream) {
			return nil
		}
		wrote = true
		if err := rc.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return err
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return err
		}
		return rc.Flush()
	})
	switch {
	case err != nil && !wrote:
		writeProblem(w, r, err)
	case err != nil:
		panic(http.ErrAbortHandler) // a cut stream must not look like a whole one
	}
}

// streamLog writes events. The log is read by a goroutine of its own, so that
// the connection can be kept alive while nothing comes.
func (s *Server) streamLog(w http.ResponseWriter, r *http.Request, c daemon.Client, id string, q daemon.LogQuery) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	type end struct {
		job daemon.Job
		err error
	}
	chunks, ended := make(chan daemon.LogChunk), make(chan end, 1)
	go func() {
		job, err := c.Logs(ctx, id, q, func(chunk daemon.LogChunk) error {
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ended <- end{job, err}
	}()
	out := newSSE(w)
	beat := time.NewTicker(s.opts.Beat)
	defer beat.Stop()
	for {
		var err error
		select {
		case chunk := <-chunks:
			err = out.send("log", strconv.FormatInt(chunk.Next, 10), newLogEvent(chunk))
		case <-beat.C:
			err = out.comment("beat")
		case e := <-ended:
			endLog(out, r, e.job, e.err)
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
func endLog(out *sse, r *http.Request, j daemon.Job, err error) {
	switch {
	case err == nil:
		_ = out.send("end", "", j) // the peer may be gone
	case !errors.Is(err, context.Canceled):
		p := problemOf(err)
		p.RequestID, _ = r.Context().Value(requestIDKey{}).(string)
		_ = out.send("error", "", p) // the peer may be gone
	}
}
