package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
)

// problem is an RFC 9457 problem document.
type problem struct {
	Type      string      `json:"type"`
	Title     string      `json:"title"`
	Status    int         `json:"status"`
	Detail    string      `json:"detail"`
	Code      daemon.Code `json:"code"`
	Remedy    string      `json:"remedy,omitempty"`
	RequestID string      `json:"request_id,omitempty"`
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// problemOf is the one translation of an error. What is not a daemon.Error is
// ours, and its text stays with us.
func problemOf(err error) *problem {
	code := daemon.CodeOf(err)
	status := daemon.Meanings[code].Status
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code,
		Detail: "the daemon failed; its log says more", Remedy: daemon.RemedyOf(err)}
	if e, ok := errors.AsType[*daemon.Error](err); ok {
		p.Detail = e.Error()
	}
	return p
}

func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	if id, ok := r.Context().Value(requestIDKey{}).(string); ok {
		p.RequestID = id
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="exocomp"`)
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the peer may be gone
}

func writeProblem(w http.ResponseWriter, r *http.Request, err error) { problemOf(err).write(w, r) }

func writeJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // the peer may be gone
}

// huma makes its errors through these two variables. Its own would repeat the
// value that was wrong, which may be a secret.
func init() {
	huma.NewError = newError
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := newError(status, msg, errs...).(*problem)
		if ctx != nil {
			p.RequestID, _ = ctx.Context().Value(requestIDKey{}).(string)
		}
		return p
	}
}

// newError is a problem that huma found: of validation, as a rule.
func newError(status int, msg string, errs ...error) huma.StatusError {
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: msg, Code: codeOfStatus(status)}
	var places []string
	for _, err := range errs {
		told, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue // the text of a decoder may quote what it could not decode
		}
		d := told.ErrorDetail()
		places = append(places, strings.TrimPrefix(d.Location+": ", ": ")+d.Message)
	}
	if len(places) > 0 {
		p.Detail = msg + ": " + strings.Join(places, "; ")
	}
	switch status {
	case http.StatusRequestEntityTooLarge:
		p.Detail, p.Remedy = "the body is larger than 1 MiB", "put the data in a file and name the file"
	case http.StatusUnsupportedMediaType:
		p.Detail, p.Remedy = "the body is not JSON by its content type", "send Content-Type: application/json"
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		p.Remedy = "compare the request with /openapi.json"
	}
	return p
}

func codeOfStatus(status int) daemon.Code {
	switch status {
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		return daemon.Invalid
	case http.StatusRequestEntityTooLarge:
		return daemon.TooLarge
	case http.StatusRequestTimeout:
		return daemon.TimedOut
	case http.StatusUnauthorized:
		return daemon.NoToken
	case http.StatusForbidden:
		return daemon.Forbidden
	case http.StatusNotFound:
		return daemon.NotFound
	}
	return daemon.Failed
}
