// Package api is the daemon over HTTP: the server, on TCP and on a Unix socket,
// and the Client that the command line speaks to it with.
//
// Rules of this package:
//   - Every answer that is not a success is an RFC 9457 problem document. It names
//     the thing, the rule and the remedy. One about validation never repeats a
//     value that was sent: it may be a password in the wrong place.
//   - What an operation needs is said in one table, scopes, which the middleware
//     enforces and the tests walk.
//   - Over TCP a bearer token is asked for. The socket belongs to this user: its
//     peer may do everything but maintenance, which always needs a token.
package api

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
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
	Log      *slog.Logger
	Beat     time.Duration // between heartbeats of a quiet stream; default 15 s
	// Offer files a command that nobody waits for, if there is room. Nil: the last
	// use of tokens is not kept.
	Offer func(daemon.Command) bool
}

// Server serves the API.
type Server struct {
	opts   Options
	mux    chi.Router
	ids    func() string // of requests
	within time.Duration // how long an answer may take
	doc    *huma.OpenAPI

	recheck   time.Duration // between two looks at whether a stream may go on
	uses      uses
	followers atomic.Int64
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
	s := &Server{opts: o, mux: chi.NewRouter(), within: answerWithin, recheck: 15 * time.Second}
	s.ids = func() string { return daemon.NewID("req", o.Clock.Now(), o.Desk.Chance) }
	s.mux.NotFound(notFound)
	s.mux.MethodNotAllowed(s.wrongMethod)
	s.mux.Get("/healthz", s.healthz)
	s.mux.Get("/readyz", s.readyz)
	api := humachi.New(s.mux, config())
	s.doc = api.OpenAPI()
	s.routes(api)
	s.mux.Get(eventsPath, s.guarded("list-events", s.events))
	s.mux.Get(logsPath, s.guarded("read-log", s.logs))
	return s
}

// documentVersion is the version of the document: it rises when the API changes in
// a way that its callers notice. The version of the program is in the status.
const documentVersion = "1.0.0"

// config is huma's without what it adds by itself: schema links in bodies, and
// a documentation page that loads scripts from elsewhere.
func config() huma.Config {
	c := huma.DefaultConfig("exocomp", documentVersion)
	c.CreateHooks = nil
	c.DocsPath = ""
	c.SchemasPath = ""
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}
	return c
}

// Handler returns the API behind one door. The one for the socket trusts what
// PeerContext noted about the peer, and refuses a request that it did not see.
func (s *Server) Handler(local bool) http.Handler {
	if local {
		return s.envelope(true, s.mux)
	}
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, daemon.Errorf(daemon.Forbidden, "the request comes from a page of another site").
			Hint("send it from a program: the API serves no pages"))
	}))
	return s.envelope(false, cross.Handler(s.mux))
}

// HTTPServer returns the server of one door. local is the one for the socket.
// It has no WriteTimeout, since logs stream: each write has its own.
func (s *Server) HTTPServer(local bool) *http.Server {
	srv := &http.Server{
		Handler:           s.Handler(local),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       answerWithin,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	if local {
		srv.ConnContext = PeerContext
	}
	return srv
}

const seeDocument = "the API is described at /openapi.json"

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, r, daemon.Errorf(daemon.NotFound, "there is no %.200s", r.URL.Path).Hint(seeDocument))
}

func (s *Server) wrongMethod(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", s.allowed(r))
	p := problemFor(r.Context(), daemon.Errorf(daemon.Usage, "%.200s does not take %.20s", r.URL.Path, r.Method).
		Hint(seeDocument))
	p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
	p.write(w)
}

// allowed lists the methods that r could have used.
func (s *Server) allowed(r *http.Request) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if s.mux.Match(chi.NewRouteContext(), m, r.URL.EscapedPath()) {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"alive": true})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready bool        `json:"ready"`
	Role  daemon.Role `json:"role"`
	Why   string      `json:"why,omitempty"` // it is not ready
}

// readyz is for load balancers and supervisors: 200 only on the active daemon.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	snap := s.opts.Snapshot()
	doc := readiness{Ready: snap.Ready(s.opts.Clock.Boot()), Role: snap.Role}
	if doc.Ready {
		writeJSON(w, http.StatusOK, doc)
		return
	}
	doc.Why = unready(snap)
	w.Header().Set("Retry-After", "1")
	writeJSON(w, http.StatusServiceUnavailable, doc)
}

// unready says why a daemon is not ready.
func unready(snap *daemon.Snapshot) string {
	switch {
	case snap.StopWhy != "":
		return "the daemon is stopping: " + snap.StopWhy
	case snap.Role == daemon.Active:
		return "trust in the lease has run out"
	case snap.Role == daemon.Watching:
		return "the daemon does not hold the lease"
	case snap.Role == daemon.Booting:
		return "the daemon holds the lease and is not yet done with what its predecessor left"
	}
	return "the daemon has given up the lease"
}
