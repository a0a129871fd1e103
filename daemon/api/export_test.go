package api

import (
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/exocomp/exocomp/daemon"
)

// Scopes returns the table of scopes for a test that walks it.
func Scopes() map[string]daemon.Scope {
	out := map[string]daemon.Scope{}
	for id, n := range scopes {
		out[id] = n.scope
	}
	return out
}

// Operations returns the operations that a server serves under /api/v1, by
// walking its routes.
func Operations(s *Server) []string {
	names := map[string]string{
		"POST /api/v1/jobs": "enqueue-job", "GET /api/v1/jobs": "list-jobs", "GET /api/v1/jobs/{job}": "get-job",
		"POST /api/v1/jobs/{job}/cancel": "cancel-job", "GET /api/v1/jobs/{job}/logs": "read-log",
		"GET /api/v1/status": "get-status", "GET /api/v1/lease": "get-lease", "GET /api/v1/history": "get-history",
		"POST /api/v1/maintenance/cordon": "cordon", "DELETE /api/v1/maintenance/cordon/{reason}": "uncordon",
		"GET /api/v1/schedules": "list-schedules", "POST /api/v1/schedules": "add-schedule",
		"GET /api/v1/schedules/{schedule}": "get-schedule", "PUT /api/v1/schedules/{schedule}": "edit-schedule",
		"DELETE /api/v1/schedules/{schedule}": "remove-schedule", "POST /api/v1/schedules/{schedule}/enable": "enable-schedule",
		"POST /api/v1/schedules/{schedule}/disable": "disable-schedule", "GET /api/v1/upcoming": "list-upcoming",
		"GET /api/v1/fires": "list-fires",
	}
	var out []string
	_ = chi.Walk(s.mux, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if len(route) < 7 || route[:7] != "/api/v1" {
			return nil
		}
		id, ok := names[method+" "+route]
		if !ok {
			id = method + " " + route // a route that nobody named
		}
		out = append(out, id)
		return nil
	})
	slices.Sort(out)
	return out
}
