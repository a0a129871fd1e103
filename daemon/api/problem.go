package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
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
	e, told := errors.AsType[*daemon.Error](err)
	switch {
	case told:
	case errors.Is(err, context.DeadlineExceeded):
		e = daemon.Errorf(daemon.TimedOut, "the daemon did not get it done in time").
			Hint("try again; if it was a change, see first whether it was made")
	default:
		e = daemon.Errorf(daemon.Failed, "the daemon failed; its log says more under this request's id").
			Hint("try again, and report it if it stays")
	}
	status := daemon.Meanings[e.Code].Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Msg,
		Code: e.Code, Remedy: e.Remedy}
}

// problemFor is problemOf for the answer to one request. An error whose text
// stays with us goes to the log.
func problemFor(ctx context.Context, err error) *problem {
	p, x := problemOf(err), exchangeOf(ctx)
	p.RequestID = x.id
	if _, told := errors.AsType[*daemon.Error](err); !told {
		x.fault = err
	}
	return p
}

// GetHeaders implements huma.HeadersError: what goes with the status.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="exocomp"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	return h
}

func (p *problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the peer may be gone
}

func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	problemFor(r.Context(), err).write(w)
}

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
			p.RequestID = exchangeOf(ctx.Context()).id
		}
		return p
	}
}

// newError is a problem that huma found: of validation, as a rule.
func newError(status int, msg string, errs ...error) huma.StatusError {
	if slices.ContainsFunc(errs, isTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: msg,
		Code: codeOfStatus(status)}
	switch status {
	case http.StatusRequestEntityTooLarge:
		p.Detail, p.Remedy = "the body is larger than 1 MiB", "put the data in a file and name the file"
	case http.StatusUnsupportedMediaType:
		p.Detail, p.Remedy = "the body is not JSON by its content type", "send Content-Type: application/json"
	case http.StatusRequestTimeout:
		p.Detail, p.Remedy = "the body did not arrive in time", "send it again"
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		p.Remedy = "compare the request with /openapi.json"
	default:
		p.Remedy = "try again, and report it if it stays"
	}
	if places := placesIn(errs); places != "" {
		p.Detail += ": " + places
	}
	return p
}

func isTooLarge(err error) bool {
	_, is := errors.AsType[*http.MaxBytesError](err)
	return is
}

// maxPlaces is how many mistakes one problem names, maxPlace how long one is.
const (
	maxPlaces = 10
	maxPlace  = 200
)

// placesIn says where mistakes are and which rule each breaks. It names fields
// and never quotes values.
func placesIn(errs []error) string {
	var places []string
	for _, err := range errs {
		told, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue // of a reader or a decoder, which may quote what it read
		}
		if len(places) == maxPlaces {
			places = append(places, "and more")
			break
		}
		places = append(places, placeOf(told.ErrorDetail()))
	}
	return strings.Join(places, "; ")
}

func placeOf(d *huma.ErrorDetail) string {
	if _, text := d.Value.(string); text && d.Location == "body" { // in the words of the JSON decoder
		return "body: it is not JSON, or a value in it has no place in its field"
	}
	place := strings.TrimPrefix(d.Location+": ", ": ") + d.Message
	if len(place) > maxPlace {
		place = strings.ToValidUTF8(place[:maxPlace], "") + "..."
	}
	return place
}

// codeOfStatus is the code of a problem that came without one that is known
// here: from huma, or from a daemon that is newer than this client.
func codeOfStatus(status int) daemon.Code {
	switch status {
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		return daemon.Invalid
	case http.StatusRequestEntityTooLarge:
		return daemon.TooLarge
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return daemon.TimedOut
	case http.StatusUnauthorized:
		return daemon.NoToken
	case http.StatusForbidden:
		return daemon.Forbidden
	case http.StatusNotFound:
		return daemon.NotFound
	case http.StatusConflict:
		return daemon.Conflict
	case http.StatusServiceUnavailable:
		return daemon.Unavailable
	}
	return daemon.Failed
}
