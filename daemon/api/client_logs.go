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
// it broke: nothing is lost, and nothing comes twice.
func (c *Client) Logs(ctx context.Context, ref string, q daemon.LogQuery, yield func(daemon.LogChunk) error) (daemon.Job, error) {
	f := follower{Client: c, ref: ref, q: q, yield: yield}
	for drops := 0; ; {
		from := f.q.From
		j, err := f.connection(ctx)
		if !errors.Is(err, errBroken) {
			return j, err
		}
		if drops++; f.q.From > from {
			drops = 1
		}
		if drops > maxDrops {
			return j, f.lost(err)
		}
		if err := pause(ctx, time.Duration(drops*drops)*c.opts.Pause); err != nil {
			return j, c.unreached(err)
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

// follower is somebody's place in the log of one job.
type follower struct {
	*Client
	ref   string
	q     daemon.LogQuery
	yield func(daemon.LogChunk) error
	heard bool // a daemon answered once: it may come back
}

// lost is the error of a follower who gives up.
func (f *follower) lost(err error) error {
	if told, ok := errors.AsType[*daemon.Error](err); ok {
		return told
	}
	return f.unreached(err)
}

// connection reads one stream to its end, and moves q.From along.
func (f *follower) connection(ctx context.Context) (daemon.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := f.open(ctx)
	if err != nil {
		return daemon.Job{}, err
	}
	defer resp.Body.Close()
	f.heard = true
	in := newMessages(newQuiet(resp.Body, f.opts.Silence))
	for {
		m, err := in.next()
		switch {
		case ctx.Err() != nil:
			return daemon.Job{}, f.unreached(ctx.Err())
		case errors.Is(err, errLarge):
			return daemon.Job{}, daemon.Errorf(daemon.Failed, "read the log: %w", err).Hint("is another program at that address?")
		case err != nil:
			return daemon.Job{}, fmt.Errorf("%w: %w", errBroken, err)
		}
		if j, last, err := f.take(m); last || err != nil {
			return j, err
		}
	}
}

// open asks for the stream behind what was read. Once there was one, its end is
// no reason to give up at once: the daemon may be starting anew.
func (f *follower) open(ctx context.Context) (*http.Response, error) {
	from := strconv.FormatInt(f.q.From, 10)
	head := http.Header{"Accept": {"text/event-stream"}}
	if f.heard {
		head.Set("Last-Event-ID", from)
	}
	v := url.Values{"from": {from}, "follow": {strconv.FormatBool(f.q.Follow)}}
	resp, err := f.send(ctx, http.MethodGet, "/jobs/"+url.PathEscape(f.ref)+"/logs", v, head, nil)
	code := daemon.CodeOf(err)
	if err != nil && f.heard && ctx.Err() == nil && (code == daemon.Unavailable || code == daemon.TimedOut) {
		err = fmt.Errorf("%w: %w", errBroken, err)
	}
	return resp, err
}

// take handles one event. The last one brings the job.
func (f *follower) take(m message) (j daemon.Job, last bool, err error) {
	switch m.event {
	case "log":
		var e logEvent
		if err := json.Unmarshal(m.data, &e); err != nil {
			return j, false, garbled(err)
		}
		return j, false, f.pass(e.chunk())
	case "end":
		if err := json.Unmarshal(m.data, &j); err != nil {
			return j, true, garbled(err)
		}
		return j, true, nil
	case "error":
		return j, true, problemIn(m.data)
	}
	return j, false, nil // of a daemon that is newer
}

// pass hands a chunk on, if it is the next one: chunks cover the log without a
// hole, since what was cut is a chunk, too.
func (f *follower) pass(c daemon.LogChunk) error {
	if c.Offset != f.q.From || c.Next <= c.Offset {
		return garbled(fmt.Errorf("a chunk from %d to %d came where one from %d was due", c.Offset, c.Next, f.q.From))
	}
	if err := f.yield(c); err != nil {
		return err
	}
	f.q.From = c.Next
	return nil
}

func garbled(err error) error {
	return daemon.Errorf(daemon.Failed, "read the log: %w", err).
		Hint("read it again from its beginning, and report this if it stays")
}

// quiet reads from a stream and breaks it when nothing comes for too long: the
// heartbeats are there for that. The time that the reader itself takes between
// two reads does not count.
type quiet struct {
	in    io.ReadCloser
	limit time.Duration
	timer *time.Timer
}

func newQuiet(in io.ReadCloser, limit time.Duration) quiet {
	timer := time.AfterFunc(limit, func() { in.Close() })
	timer.Stop()
	return quiet{in, limit, timer}
}

// Read implements io.Reader.
func (q quiet) Read(b []byte) (int, error) {
	q.timer.Reset(q.limit)
	defer q.timer.Stop()
	return q.in.Read(b)
}
