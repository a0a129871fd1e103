package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/exocomp/exocomp/daemon"
)

// Need returns what the table says of an operation.
func Need(op string) (scope daemon.Scope, bearer, known bool) {
	n, known := scopes[op]
	return n.scope, n.bearer, known
}

// Routes returns every route that s serves, as "GET /path".
func (s *Server) Routes() (routes []string) {
	_ = chi.Walk(s.mux, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+route)
		return nil
	})
	return routes
}

// AnswerWithin sets how long an answer may take.
func (s *Server) AnswerWithin(d time.Duration) { s.within = d }

// RecheckEvery sets how often a stream is looked at for whether it may go on.
func (s *Server) RecheckEvery(d time.Duration) { s.recheck = d }

// Break adds a route whose handler panics, after it began an answer or before.
func (s *Server) Break(path string, begun bool) {
	s.mux.Get(path, func(w http.ResponseWriter, _ *http.Request) {
		if begun {
			_, _ = w.Write([]byte("half an"))
		}
		panic("secret inside")
	})
}

// WithPeer makes ctx that of a request from uid.
func WithPeer(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, peerKey{}, peer{uid: uid, name: "someone"})
}
