package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
)

const eventsPath = "/api/v1/events"

// maxFollowers is how many may follow the events at once: each looks at the store
// a few times a second.
const maxFollowers = 64

// describeEvents puts the events into huma's document: they are a page of JSON or
// a stream, as the caller wants, which huma does not serve.
func describeEvents(doc *huma.OpenAPI) {
	o := op("list-events", http.MethodGet, "/events", "Say what happened to the store: a page, the newest first, or a stream")
	o.Description = "With Accept: text/event-stream it is server-sent events: event (with its number as id), in order, " +
		"and error (a problem). The stream goes on behind Last-Event-ID or after; without either it has only what is new."
	param := func(name, in, kind, text string) {
		o.Parameters = append(o.Parameters, &huma.Param{Name: name, In: in, Description: text, Schema: &huma.Schema{Type: kind}})
	}
	param("cursor", "query", huma.TypeString, "of a page: next of the page before")
	param("limit", "query", huma.TypeInteger, "of a page: 1 to 1000; 50 unless given")
	param("after", "query", huma.TypeInteger, "of a stream: number of the last event that was read; 0 for all")
	param("Last-Event-ID", "header", huma.TypeInteger, "counts more than after")
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[daemon.EventPage](), true, "")
	o.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"application/json": {Schema: schema}, "text/event-stream": {}}},
		"default": problemResponse(doc),
	}
	doc.AddOperation(&o)
}

// problemResponse is what every operation answers that does not succeed.
func problemResponse(doc *huma.OpenAPI) *huma.Response {
	return &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {
		Schema: doc.Components.Schemas.Schema(reflect.TypeFor[problem](), true, "")}}}
}

// eventsInput is what is asked of the events.
type eventsInput struct {
	page   daemon.EventQuery
	stream bool
	after  int64 // -1: behind the newest
}

// events answers with a page or a stream.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	in, err := readEventsInput(r)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	c := s.client(r.Context())
	if in.stream {
		s.streamEvents(w, r, c, in.after)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.within)
	defer cancel()
	page, err := c.Events(ctx, in.page)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, page)
}

func readEventsInput(r *http.Request) (in eventsInput, err error) {
	in.stream = strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	in.after = -1
	v := r.URL.Query()
	for name := range v { // one that is wrong is enough: the order does not matter
		if name != "cursor" && name != "limit" && name != "after" {
			return in, daemon.Errorf(daemon.Invalid, "query.%.40s: unknown query parameter", name).
				Hint("events take cursor and limit, or, as a stream, after")
		}
	}
	switch paged := v.Has("cursor") || v.Has("limit"); {
	case in.stream && paged:
		return in, daemon.Errorf(daemon.Invalid, "a stream has no pages: cursor and limit are for Accept: application/json").
			Hint("use after, or Last-Event-ID")
	case !in.stream && v.Has("after"):
		return in, daemon.Errorf(daemon.Invalid, "after is for a stream").Hint("send Accept: text/event-stream, or use cursor")
	}
	in.page.Cursor = v.Get("cursor")
	if text := v.Get("limit"); text != "" {
		if in.page.Limit, err = strconv.Atoi(text); err != nil || in.page.Limit < 1 {
			return in, daemon.Errorf(daemon.Invalid, "query.limit: expected a whole number from 1 to 1000").Hint("leave it out for 50")
		}
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = v.Get("after")
	}
	if in.stream && last != "" {
		if in.after, err = strconv.ParseInt(last, 10, 64); err != nil || in.after < 0 {
			return in, daemon.Errorf(daemon.Invalid, "the number to start behind is no number").
				Hint("use 0, or the id of an event")
		}
	}
	return in, nil
}

// streamEvents writes
//
//	event: event   id: its number     data: a Happening
//	event: error   data: a problem
//
// and a comment when there was nothing for a while. It ends with the daemon: who
// follows takes it up again behind the last id.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request, c daemon.Client, after int64) {
	if s.followers.Add(1) > maxFollowers {
		s.followers.Add(-1)
		writeProblem(w, r, daemon.Errorf(daemon.Unavailable, "%d follow the events already", maxFollowers).
			Hint("end some of them, or read pages"))
		return
	}
	defer s.followers.Add(-1)
	if after < 0 {
		page, err := c.Events(r.Context(), daemon.EventQuery{Limit: 1})
		if err != nil {
			writeProblem(w, r, err)
			return
		}
		after = 0
		for _, newest := range page.Events {
			after = newest.Seq
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, ended := follow(ctx, c, after)
	out := newSSE(w)
	beat := time.NewTicker(s.opts.Beat)
	defer beat.Stop()
	check := time.NewTicker(s.recheck)
	defer check.Stop()
	for {
		var err error
		select {
		case <-check.C:
			if err = s.stillMay(r, "list-events"); err != nil {
				_ = out.send("error", "", problemFor(r.Context(), err)) // the peer may be gone
			}
		case h := <-events:
			beat.Reset(s.opts.Beat)
			err = out.send("event", strconv.FormatInt(h.Seq, 10), h)
		case <-beat.C:
			err = out.comment("beat")
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				_ = out.send("error", "", problemFor(r.Context(), err)) // the peer may be gone
			}
			return
		}
		if err != nil {
			cancel()
			<-ended
			return
		}
	}
}

// follow reads events in a goroutine of its own, as tail does a log.
func follow(ctx context.Context, c daemon.Client, after int64) (<-chan daemon.Happening, <-chan error) {
	events, ended := make(chan daemon.Happening), make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("follow events: panic: %v\n%s", p, debug.Stack())
			}
			ended <- err
		}()
		err = c.FollowEvents(ctx, after, func(h daemon.Happening) error {
			select {
			case events <- h:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return events, ended
}

// Events implements daemon.Client.
func (c *Client) Events(ctx context.Context, q daemon.EventQuery) (page daemon.EventPage, err error) {
	err = c.call(ctx, http.MethodGet, "/events", pageQuery(q.Cursor, q.Limit), nil, nil, &page)
	return page, err
}

// FollowEvents implements daemon.Client. A stream that breaks is taken up again
// behind the last event that came.
func (c *Client) FollowEvents(ctx context.Context, after int64, yield func(daemon.Happening) error) error {
	f := eventFollower{Client: c, after: after, yield: yield}
	for drops := 0; ; {
		from := f.after
		err := f.connection(ctx)
		if !errors.Is(err, errBroken) {
			return err
		}
		if drops++; f.after > from {
			drops = 1
		}
		if drops > maxDrops {
			if told, ok := errors.AsType[*daemon.Error](err); ok {
				return told
			}
			return c.unreached(err)
		}
		if err := pause(ctx, time.Duration(drops*drops)*c.opts.Pause); err != nil {
			return c.unreached(err)
		}
	}
}

// eventFollower is somebody's place in the events.
type eventFollower struct {
	*Client
	after int64
	yield func(daemon.Happening) error
	heard bool // a daemon answered once: it may come back
}

// connection reads one stream to its end, and moves after along.
func (f *eventFollower) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	after := strconv.FormatInt(f.after, 10)
	head := http.Header{"Accept": {"text/event-stream"}, "Last-Event-ID": {after}}
	resp, err := f.send(ctx, http.MethodGet, "/events", nil, head, nil)
	code := daemon.CodeOf(err)
	if err != nil && f.heard && ctx.Err() == nil && (code == daemon.Unavailable || code == daemon.TimedOut) {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f.heard = true
	in := newMessages(newQuiet(resp.Body, f.opts.Silence))
	for {
		m, err := in.next()
		switch {
		case ctx.Err() != nil:
			return f.unreached(ctx.Err())
		case errors.Is(err, errLarge):
			return daemon.Errorf(daemon.Failed, "read the events: %w", err).Hint("is another program at that address?")
		case err != nil:
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		if err := f.take(m); err != nil {
			return err
		}
	}
}

func (f *eventFollower) take(m message) error {
	switch m.event {
	case "event":
		var h daemon.Happening
		if err := json.Unmarshal(m.data, &h); err != nil || h.Seq <= f.after {
			return daemon.Errorf(daemon.Failed, "read the events: one came that is none, or out of order").
				Hint("begin anew, and report this if it stays")
		}
		if err := f.yield(h); err != nil {
			return err
		}
		f.after = h.Seq
	case "error":
		return problemIn(m.data)
	}
	return nil // of a daemon that is newer
}
