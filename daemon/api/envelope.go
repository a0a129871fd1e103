package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/exocomp/exocomp/daemon"
)

// The envelope is around every request, whatever answers it: the id, the limit
// of the body, the headers that every answer has, the line in the log, and a
// word instead of a broken connection when a handler panics.
//
// The log never holds a body, a header or a query: a token may stand in each.

// exchange is what the envelope keeps of one request. Only the goroutine of the
// request touches it.
type exchange struct {
	id    string
	local bool   // it came through the socket
	actor string // who asks, once that is known
	fault error  // our own, which the caller is not told
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// envelope puts next into it. local says that requests come through the socket.
func (s *Server) envelope(local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{id: r.Header.Get("X-Request-Id"), local: local}
		if !saneID(x.id) {
			x.id = s.ids()
		}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		h := w.Header()
		h.Set("X-Request-Id", x.id)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		sw := &statusWriter{ResponseWriter: w}
		defer s.note(sw, r, x)()
		defer s.settle(sw, r, x)
		next.ServeHTTP(sw, r)
	})
}

// note begins the line in the log and returns what ends it.
func (s *Server) note(w *statusWriter, r *http.Request, x *exchange) func() {
	begin := s.opts.Clock.Now()
	return func() {
		line := s.opts.Log.With("method", r.Method, "path", r.URL.Path, "status", w.status,
			"took", s.opts.Clock.Since(begin), "actor", x.actor, "request", x.id)
		if x.fault != nil && !errors.Is(x.fault, context.Canceled) {
			line.Error("a request failed", "err", x.fault)
		}
		line.Debug("request")
	}
}

// settle turns a panic into a problem, or, when the answer has begun, into a
// broken connection: half an answer must not look like a whole one.
func (s *Server) settle(w *statusWriter, r *http.Request, x *exchange) {
	p := recover()
	switch {
	case p == nil:
		return
	case p == http.ErrAbortHandler || peerIsGone(r, p):
		panic(http.ErrAbortHandler)
	}
	s.opts.Log.Error("a request broke its handler", "panic", p, "request", x.id, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, r, daemon.Errorf(daemon.Failed, "the request broke the daemon's handler").
		Hint("it is in the daemon's log as request %s: please report it", x.id))
}

// peerIsGone says whether p only tells that the answer could not be written:
// huma panics then.
func peerIsGone(r *http.Request, p any) bool {
	err, ok := p.(error)
	var op *net.OpError
	return ok && (errors.As(err, &op) || r.Context().Err() != nil)
}

// saneID says whether a caller's request id may stand in our log.
func saneID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range id {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// statusWriter remembers the status for the log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
