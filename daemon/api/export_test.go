package api

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
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

// Operations returns the operations that a server serves under /api/v1, by walking
// its routes and naming each as the document does.
func Operations(s *Server) []string {
	names := map[string]string{}
	for path, item := range s.doc.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				names[method+" "+path] = op.OperationID
			}
		}
	}
	var out []string
	_ = chi.Walk(s.mux, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if len(route) < 7 || route[:7] != "/api/v1" {
			return nil
		}
		id, ok := names[method+" "+route]
		if !ok {
			id = method + " " + route // a route that the document does not know
		}
		out = append(out, id)
		return nil
	})
	slices.Sort(out)
	return out
}

// Document returns what is served at /openapi.json.
func (s *Server) Document() *huma.OpenAPI { return s.doc }
