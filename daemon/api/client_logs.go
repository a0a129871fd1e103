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
func (c *Client) Logs(ctx context.Context, ref string, q daemon.LogQuery, yield func(daemon.LogChunk) error) error {
	for drops := 0; ; {
		from := q.From
		err := c.streamOnce(ctx, ref, &q, yield)
		if !errors.Is(err, errBroken) {
			return err
		}
		if drops++; q.From > from {
			drops = 1
		}
		if drops > maxDrops {
			return c.unreached(err)
		}
		if err := pause(ctx, time.Duration(drops*drops)*50*time.Millisecond); err != nil {
			return err
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
func (c *Client) streamOnce(ctx context.Context, ref string, q *daemon.LogQuery, yield func(daemon.LogChunk) error) error {
	v := url.Values{"from": {strconv.FormatInt(q.From, 10)}, "follow": {strconv.FormatBool(q.Follow)}}
	resp, err := c.send(ctx, http.MethodGet, "/jobs/"+url.PathEscape(ref)+"/logs", v, nil, nil)
	if err != nil {
		if daemon.CodeOf(err) == daemon.Unavailable && q.From > 0 {
			return fmt.Errorf("%w: %w", errBroken, err) // it was there before: it may come back
		}
		return err
	}
	defer resp.Body.Close()
	in := newMessages(resp.Body)
	for {
		m, err := in.next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errBroken
		case err != nil:
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		done, err := take(m, q, yield)
		if done || err != nil {
			return err
		}
	}
}

// take handles one event and says whether it was the last.
func take(m message, q *daemon.LogQuery, yield func(daemon.LogChunk) error) (bool, error) {
	switch m.event {
	case "log":
		var e logEvent
		if err := json.Unmarshal(m.data, &e); err != nil {
			return true, fmt.Errorf("read the log: %w", err)
		}
		q.From = e.Next
		return false, yield(e.chunk())
	case "end":
		return true, nil
	case "error":
		var p problem
		if err := json.Unmarshal(m.data, &p); err != nil {
			return true, fmt.Errorf("read the log: %w", err)
		}
		return true, &daemon.Error{Code: p.Code, Msg: p.Detail, Remedy: p.Remedy}
	}
	return false, nil // a kind of event that a newer daemon has
}
