package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
)

// routes registers every operation of the document. Each handler is one call of
// the Client.
func (s *Server) routes(api huma.API) {
	api.UseMiddleware(s.guard)
	enqueue := op("enqueue-job", http.MethodPost, "/jobs", "Accept a job: 201; or answer with the one that a key made before: 200")
	enqueue.DefaultStatus = http.StatusCreated
	register(api, enqueue, s.enqueue)
	answers := api.OpenAPI().Paths["/api/v1/jobs"].Post.Responses
	answers["200"] = answers["201"]
	register(api, op("list-jobs", http.MethodGet, "/jobs", "List jobs, the newest first"), s.listJobs)
	register(api, op("get-job", http.MethodGet, "/jobs/{job}", "Show one job"), s.getJob)
	register(api, op("cancel-job", http.MethodPost, "/jobs/{job}/cancel", "Cancel one job"), s.cancelJob)
	register(api, op("get-status", http.MethodGet, "/status", "Say what daemon and store are doing"), s.getStatus)
	register(api, op("get-lease", http.MethodGet, "/lease", "Say who holds the store"), s.getLease)
	register(api, op("get-history", http.MethodGet, "/history", "Say what happened to the store, the newest first"), s.getHistory)
	register(api, op("cordon", http.MethodPost, "/maintenance/cordon", "Start no new root jobs"), s.cordon)
	register(api, op("uncordon", http.MethodDelete, "/maintenance/cordon/{reason}", "Lift one reason of a cordon"), s.uncordon)
	s.scheduleRoutes(api)
	s.manageRoutes(api)
	describeLogs(api.OpenAPI())
	describeEvents(api.OpenAPI())
}

// op is what all operations share. huma's own limit on bodies lies one byte
// behind ours, so that ours is the one to be met: the server then keeps the
// connection for a moment, and a client that is still sending hears why.
func op(id, method, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: "/api/v1" + path, Summary: summary,
		MaxBodyBytes: maxBody + 1, BodyReadTimeout: answerWithin, RejectUnknownQueryParameters: true,
		Security: []map[string][]string{{"bearer": {string(scopes[id].scope)}}}}
}

// register lets a handler return any error: it is translated here.
func register[I, O any](api huma.API, o huma.Operation, fn func(context.Context, *I) (*O, error)) {
	huma.Register(api, o, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, problemFor(ctx, err)
		}
		return out, nil
	})
}

type enqueueInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"the same key from the same actor names one job for ever"`
	Body daemon.EnqueueRequest
}

type enqueueOutput struct {
	Status int
	Body   daemon.Enqueued
}

func (s *Server) enqueue(ctx context.Context, in *enqueueInput) (*enqueueOutput, error) {
	e, err := s.client(ctx).Enqueue(ctx, in.Key, in.Body)
	if err != nil {
		return nil, err
	}
	status := http.StatusCreated
	if e.Existing != "" {
		status = http.StatusOK
	}
	return &enqueueOutput{Status: status, Body: e}, nil
}

type listInput struct {
	State   []string `query:"state,explode" doc:"a state, or some with commas between; any of them matches"`
	Trigger string   `query:"trigger"`
	Label   []string `query:"label,explode" doc:"name=value; all must match"`
	Since   string   `query:"since" doc:"RFC 3339: created then or later"`
	Cursor  string   `query:"cursor" doc:"next of the page before"`
	Limit   int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

type body[T any] struct{ Body T }

func (s *Server) listJobs(ctx context.Context, in *listInput) (*body[daemon.JobPage], error) {
	q := daemon.JobQuery{Trigger: in.Trigger, Cursor: in.Cursor, Limit: in.Limit, Labels: map[string]string{}}
	for _, list := range in.State {
		for st := range strings.SplitSeq(list, ",") {
			q.States = append(q.States, daemon.State(st))
		}
	}
	for _, l := range in.Label {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, daemon.Errorf(daemon.Invalid, "a label to look for is not name=value").Hint("write label=name%%3Dvalue")
		}
		q.Labels[name] = value
	}
	if err := q.Since.UnmarshalText([]byte(in.Since)); err != nil {
		return nil, daemon.Errorf(daemon.Invalid, "since is no RFC 3339 time").Hint("write 2030-01-31T03:00:00Z")
	}
	page, err := s.client(ctx).Jobs(ctx, q)
	return &body[daemon.JobPage]{page}, err
}

type jobInput struct {
	Job string `path:"job" maxLength:"60" doc:"number or id"`
}

func (s *Server) getJob(ctx context.Context, in *jobInput) (*body[daemon.Job], error) {
	j, err := s.client(ctx).Job(ctx, in.Job)
	return &body[daemon.Job]{j}, err
}

func (s *Server) cancelJob(ctx context.Context, in *jobInput) (*body[daemon.CancelAnswer], error) {
	a, err := s.client(ctx).Cancel(ctx, in.Job)
	return &body[daemon.CancelAnswer]{a}, err
}

func (s *Server) getStatus(ctx context.Context, _ *struct{}) (*body[daemon.Status], error) {
	st, err := s.client(ctx).Status(ctx)
	return &body[daemon.Status]{st}, err
}

func (s *Server) getLease(ctx context.Context, _ *struct{}) (*body[daemon.LeaseReport], error) {
	l, err := s.client(ctx).Lease(ctx)
	return &body[daemon.LeaseReport]{l}, err
}

type historyInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

func (s *Server) getHistory(ctx context.Context, in *historyInput) (*body[daemon.HistoryPage], error) {
	p, err := s.client(ctx).History(ctx, in.Limit)
	return &body[daemon.HistoryPage]{p}, err
}

// cordonRequest is the body of a cordon.
type cordonRequest struct {
	Reason string `json:"reason,omitempty" doc:"operator, unless another is given"`
	Why    string `json:"why,omitempty" maxLength:"1000" doc:"a sentence for whoever finds it"`
}

func (s *Server) cordon(ctx context.Context, in *struct{ Body cordonRequest }) (*body[daemon.CordonAnswer], error) {
	if in.Body.Reason == "" {
		in.Body.Reason = daemon.OperatorCordon
	}
	a, err := s.client(ctx).Cordon(ctx, in.Body.Reason, in.Body.Why)
	return &body[daemon.CordonAnswer]{a}, err
}

type uncordonInput struct {
	Reason string `path:"reason" doc:"the reason to lift, escaped"`
}

func (s *Server) uncordon(ctx context.Context, in *uncordonInput) (*body[daemon.CordonAnswer], error) {
	a, err := s.client(ctx).Uncordon(ctx, in.Reason)
	return &body[daemon.CordonAnswer]{a}, err
}
