package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/exocomp/exocomp/daemon"
)

var _ daemon.Client = (*Client)(nil)

// ClientOptions say where a daemon is, and who asks.
type ClientOptions struct {
	BaseURL string                                  // such as https://ops.example:7373
	Dial    func(context.Context) (net.Conn, error) // for a socket; nil is TCP
	Name    string                                  // of the address, in errors; default BaseURL
	Token   string                                  // sent with every request, if not ""
	// MaintenanceToken finds the token for maintenance when Token is "".
	MaintenanceToken func() (string, error)
}

// Client is a daemon.Client over HTTP.
type Client struct {
	opts ClientOptions
	base *url.URL
	http *http.Client
}

// NewClient returns a Client. It refuses to send a token in clear text over a
// network.
func NewClient(o ClientOptions) (*Client, error) {
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, daemon.Errorf(daemon.Usage, "remote %q is not the URL of a daemon", o.BaseURL).
			Hint("write --remote=http://127.0.0.1:7373, with the =")
	}
	if o.Dial == nil && base.Scheme == "http" && !loopback(base.Hostname()) {
		return nil, daemon.Errorf(daemon.Usage, "remote %s is not on this host: a token does not go over the network in clear text", o.BaseURL).
			Hint("use https, or a tunnel: ssh -L 7373:127.0.0.1:7373 HOST")
	}
	if o.Name == "" {
		o.Name = o.BaseURL
	}
	transport := &http.Transport{ResponseHeaderTimeout: answerWithin + 10*time.Second, DisableCompression: true}
	if o.Dial != nil {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
	}
	return &Client{opts: o, base: base, http: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxAnswer bounds a document that a daemon sends.
const maxAnswer = 64 << 20

// call sends a request and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, head http.Header, in, out any) error {
	resp, err := c.send(ctx, method, path, query, head, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return c.unreached(fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// send returns a good answer, or what was wrong.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, head http.Header, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/api/v1" + path
	u.RawPath = ""
	if unescaped, err := url.PathUnescape(u.Path); err == nil && unescaped != u.Path {
		u.RawPath, u.Path = u.Path, unescaped
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for k, v := range head {
		req.Header[k] = v
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	token, err := c.token(path)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, c.refused(resp)
	}
	return resp, nil
}

func (c *Client) token(path string) (string, error) {
	if c.opts.Token == "" && c.opts.MaintenanceToken != nil && strings.HasPrefix(path, "/maintenance/") {
		return c.opts.MaintenanceToken()
	}
	return c.opts.Token, nil
}

// unreached is the error of a request that got no answer.
func (c *Client) unreached(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var timeout net.Error
	var op *net.OpError
	dialled := errors.As(err, &op) && op.Op == "dial"
	if errors.As(err, &timeout) && timeout.Timeout() && !dialled || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return daemon.Errorf(daemon.TimedOut, "the daemon at %s did not answer: whether it did what was asked is not known: %w", c.opts.Name, err).
			Hint("look at exocomp status and exocomp jobs list before you ask again")
	}
	return daemon.Errorf(daemon.Unavailable, "the daemon at %s cannot be reached: %w", c.opts.Name, err).
		Hint("is it running? Start it: exocomp serve. Is the address right? See --remote")
}

// refused turns a problem document back into the error that it was made from.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came is all there is to say
	err := problemIn(text)
	if _, ok := errors.AsType[*daemon.Error](err); !ok {
		return daemon.Errorf(daemon.Failed, "%s answered %s, and not as an exocomp daemon does", c.opts.Name, resp.Status).
			Hint("is another program at that address?")
	}
	return err
}

// Enqueue implements daemon.Client.
func (c *Client) Enqueue(ctx context.Context, key string, r daemon.EnqueueRequest) (e daemon.Enqueued, err error) {
	head := http.Header{}
	if key != "" {
		head.Set("Idempotency-Key", key)
	}
	err = c.call(ctx, http.MethodPost, "/jobs", nil, head, r, &e)
	return e, err
}

// Jobs implements daemon.Client.
func (c *Client) Jobs(ctx context.Context, q daemon.JobQuery) (page daemon.JobPage, err error) {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Add(name, value)
		}
	}
	states := make([]string, len(q.States))
	for i, s := range q.States {
		states[i] = string(s)
	}
	set("state", strings.Join(states, ","))
	set("trigger", q.Trigger)
	set("cursor", q.Cursor)
	for name, value := range q.Labels {
		set("label", name+"="+value)
	}
	since, err := q.Since.MarshalText()
	if err != nil {
		return page, err
	}
	set("since", string(since))
	if q.Limit != 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	err = c.call(ctx, http.MethodGet, "/jobs", v, nil, nil, &page)
	return page, err
}

// Job implements daemon.Client.
func (c *Client) Job(ctx context.Context, ref string) (j daemon.Job, err error) {
	err = c.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(ref), nil, nil, nil, &j)
	return j, err
}

// Cancel implements daemon.Client.
func (c *Client) Cancel(ctx context.Context, ref string) (a daemon.CancelAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(ref)+"/cancel", nil, nil, nil, &a)
	return a, err
}

// Cordon implements daemon.Client.
func (c *Client) Cordon(ctx context.Context, reason, why string) (a daemon.CordonAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/maintenance/cordon", nil, nil, cordonRequest{Reason: reason, Why: why}, &a)
	return a, err
}

// Uncordon implements daemon.Client.
func (c *Client) Uncordon(ctx context.Context, reason string) (a daemon.CordonAnswer, err error) {
	err = c.call(ctx, http.MethodDelete, "/maintenance/cordon/"+url.PathEscape(reason), nil, nil, nil, &a)
	return a, err
}

// Status implements daemon.Client.
func (c *Client) Status(ctx context.Context) (s daemon.Status, err error) {
	err = c.call(ctx, http.MethodGet, "/status", nil, nil, nil, &s)
	return s, err
}

// Lease implements daemon.Client.
func (c *Client) Lease(ctx context.Context) (l daemon.LeaseReport, err error) {
	err = c.call(ctx, http.MethodGet, "/lease", nil, nil, nil, &l)
	return l, err
}
