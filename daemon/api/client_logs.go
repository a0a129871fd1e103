package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

// maxDrops is how often in a row a stream may break without a new chunk before
// a follower gives up.
const maxDrops = 5

// errBroken says that a stream ended before it said so.
var errBroken = errors.New("the stream ended early")

// Logs implements daemon.Client. A stream that breaks is taken up again where
// it broke.
func (c *Client) Logs(ctx context.Context, ref string, q daemon.LogQuery, yield func(daemon.LogChunk) error) (daemon.Job, error) {
	for drops := 0; ; {
		from := q.From
		j, err := c.streamOnce(ctx, ref, &q, yield)
		if !errors.Is(err, errBroken) {
			return j, err
		}
		if drops++; q.From > from {
			drops = 1
		}
		if drops > maxDrops {
			return j, c.unreached(err)
		}
		if err := pause(ctx, time.Duration(drops*drops)*50*time.Millisecond); err != nil {
			return j, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// streamOnce reads one connection to its end, and moves q.From along.
func (c *Client) streamOnce(ctx context.Context, ref string, q *daemon.LogQuery, yield func(daemon.LogChunk) error) (daemon.Job, error) {
	var j daemon.Job
	v := url.Values{"from": {strconv.FormatInt(q.From, 10)}, "follow": {strconv.FormatBool(q.Follow)}}
	resp, err := c.send(ctx, http.MethodGet, "/jobs/"+url.PathEscape(ref)+"/logs", v, nil, nil)
	if err != nil {
		if daemon.CodeOf(err) == daemon.Unavailable && q.From > 0 {
			err = fmt.Errorf("%w: %w", errBroken, err) // it was there before: it may come back
		}
		return j, err
	}
	defer resp.Body.Close()
	in := newMessages(resp.Body)
	for {
		m, err := in.next()
		switch {
		case ctx.Err() != nil:
			return j, ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return j, errBroken
		case err != nil:
			return j, fmt.Errorf("%w: %w", errBroken, err)
		}
		switch m.event {
		case "log":
			var e logEvent
			if err := json.Unmarshal(m.data, &e); err != nil {
				return j, fmt.Errorf("read the log: %w", err)
			}
			q.From = e.Next
			if err := yield(e.chunk()); err != nil {
				return j, err
			}
		case "end":
			if err := json.Unmarshal(m.data, &j); err != nil {
				return j, fmt.Errorf("read the log: %w", err)
			}
			return j, nil
		case "error":
			return j, problemIn(m.data)
		} // others are of a newer daemon
	}
}

// problemIn returns the error that a problem document was made from.
func problemIn(text []byte) error {
	var p problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return fmt.Errorf("read a problem: %v", err)
	}
	return &daemon.Error{Code: p.Code, Msg: p.Detail, Remedy: p.Remedy}
}
