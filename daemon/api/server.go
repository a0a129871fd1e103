// Package api is the daemon over HTTP: the server, on TCP and on a Unix socket,
// and the Client that the command line speaks to it with.
//
// Rules of this package:
//   - Every answer that is not a success is an RFC 9457 problem document. It names
//     the thing, the rule and the remedy, and never a value that was sent.
//   - What an operation needs is said in one table, scopes, which the middleware
//     enforces and the tests walk.
//   - Over TCP a bearer token is asked for. The socket belongs to this user: its
//     peer may do everything but maintenance, which always needs a token.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/exocomp/exocomp/daemon"
)

// Options are what a Server needs.
type Options struct {
	Desk     daemon.Desk  // where verbs are carried out
	Store    daemon.Store // where tokens are looked up
	Clock    daemon.Clock
	Snapshot func() *daemon.Snapshot
	Version  string
	Log      *slog.Logger
	Beat     time.Duration // between heartbeats of a quiet stream; default 15 s
}

// Server serves the API.
type Server struct {
	opts Options
	mux  chi.Router
	ids  func() string // of requests
}

// Limits of one request.
const (
	maxBody      = 1 << 20
	answerWithin = 30 * time.Second // not of streams
)

// New returns a Server.
func New(o Options) *Server {
	if o.Beat == 0 {
		o.Beat = 15 * time.Second
	}
	s := &Server{opts: o}
	s.ids = func() string { return daemon.NewID("req", o.Clock.Now(), o.Desk.Chance) }
	s.mux = chi.NewRouter()
	s.mux.Use(s.envelope)
	s.mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, daemon.Errorf(daemon.NotFound, "there is no %s", r.URL.Path).Hint("the API is described at /openapi.json"))
	})
	s.mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		p := problemOf(daemon.Errorf(daemon.Usage, "%s does not take %s", r.URL.Path, r.Method).
			Hint("the API is described at /openapi.json"))
		p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
		p.write(w, r)
	})
	s.mux.Get("/healthz", s.healthz)
	s.mux.Get("/readyz", s.readyz)
	s.routes(humachi.New(s.mux, config(o.Version)))
	s.mux.Get("/api/v1/jobs/{job}/logs", s.guarded("read-log", s.logs))
	return s
}

// config is huma's without what it adds by itself: schema links in bodies, and
// a documentation page that loads scripts from elsewhere.
func config(version string) huma.Config {
	c := huma.DefaultConfig("exocomp", version)
	c.CreateHooks = nil
	c.DocsPath = ""
	c.SchemasPath = ""
	return c
}

// HTTPServer returns the server of one door. local is the one for the socket.
func (s *Server) HTTPServer(local bool) *http.Server {
	srv := &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       answerWithin,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	if local {
		srv.ConnContext = peerContext
	} else {
		srv.Handler = http.NewCrossOriginProtection().Handler(s.mux)
	}
	return srv
}

type requestIDKey struct{}

// envelope is around every request: its id, its limits, its line in the log,
// and a word instead of a broken connection when a handler panics.
func (s *Server) envelope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !saneID(id) {
			id = s.ids()
		}
		begin := s.opts.Clock.Now()
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				s.opts.Log.Error("a request broke its handler", "panic", p, "request", id, "stack", string(debug.Stack()))
				if sw.status == 0 {
					writeProblem(sw, r, daemon.Errorf(daemon.Failed, "the request broke the daemon's handler").
						Hint("it is in the daemon's log as request %s: please report it", id))
				}
			}
			s.opts.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", sw.status,
				"took", s.opts.Clock.Since(begin), "request", id)
		}()
		next.ServeHTTP(sw, r)
	})
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

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"alive": true})
}

// readyz is for load balancers and supervisors: 200 only on the active daemon.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	snap := s.opts.Snapshot()
	ready := snap.Ready(s.opts.Clock.Boot())
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]any{"ready": ready, "role": snap.Role})
}
