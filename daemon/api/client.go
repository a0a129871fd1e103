package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	// Pause is how long a follower waits before it takes up a stream that broke;
	// after n breaks in a row, n*n times as long. Default 200 ms.
	Pause time.Duration
	// CAs are the authorities that a daemon behind https may be known by; nil are
	// those of this host.
	CAs *x509.CertPool
	// ClearText lets a token go over a network in clear text: somebody said so of
	// this very address.
	ClearText bool
	// Silence is how long a stream may be quiet before it counts as broken. Default
	// 60 s, which is four heartbeats.
	Silence time.Duration
}

// Client is a daemon.Client over HTTP. It is safe for concurrent use.
type Client struct {
	opts ClientOptions
	base *url.URL
	http *http.Client
}

// NewClient returns a Client. Unless o says ClearText it refuses an address to
// which a token would go in clear text over a network, even while it has none:
// daemon.Usage, as for a BaseURL that is none.
func NewClient(o ClientOptions) (*Client, error) {
	base, err := o.address()
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = o.BaseURL
	}
	if o.Pause == 0 {
		o.Pause = 200 * time.Millisecond
	}
	if o.Silence == 0 {
		o.Silence = time.Minute
	}
	return &Client{opts: o, base: base, http: &http.Client{Transport: o.transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// address returns the URL that o names, if tokens may go there.
func (o ClientOptions) address() (*url.URL, error) {
	base, err := url.Parse(o.BaseURL)
	switch {
	case err == nil && base.User != nil: // not quoted: it may hold a password
		return nil, daemon.Errorf(daemon.Usage, "the remote has a user in its URL: exocomp knows callers by tokens").
			Hint("leave the part before @ out, and name a token file in EXOCOMP_TOKEN_FILE")
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, daemon.Errorf(daemon.Usage, "remote %q is not the URL of a daemon", o.BaseURL).
			Hint("write --remote=http://127.0.0.1:7373, with the =")
	case o.Dial != nil || base.Scheme == "https" || o.ClearText || loopback(base.Hostname()):
		return base, nil
	}
	return nil, daemon.Errorf(daemon.Usage,
		"remote %s is not on this host: a token does not go over the network in clear text", o.BaseURL).
		Hint("use https, or a tunnel: ssh -L 7373:127.0.0.1:7373 HOST")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// connectWithin is how long a host may take to answer at all.
const connectWithin = 10 * time.Second

// transport waits somewhat longer for an answer than a daemon takes for one. It
// knows no proxy: a token goes to the host that was named and to no other.
func (o ClientOptions) transport() *http.Transport {
	dial := (&net.Dialer{Timeout: connectWithin}).DialContext
	if o.Dial != nil {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) }
	}
	return &http.Transport{DialContext: dial, TLSHandshakeTimeout: connectWithin, IdleConnTimeout: time.Minute,
		TLSClientConfig:       &tls.Config{RootCAs: o.CAs, MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout: answerWithin + 10*time.Second, DisableCompression: true}
}

// Close lets go of connections that wait for another request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxAnswer bounds a document that a daemon sends.
const maxAnswer = 16 << 20

// call sends a request and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, head http.Header, in, out any) error {
	resp, err := c.send(ctx, method, path, query, head, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreached(fmt.Errorf("read the answer: %w", err))
	case len(text) > maxAnswer:
		return daemon.Errorf(daemon.TooLarge, "the answer of %s is larger than %d MiB", c.opts.Name, maxAnswer>>20).
			Hint("ask for less at a time, such as fewer jobs on a page")
	case json.Unmarshal(text, out) != nil:
		return c.stranger(resp)
	}
	return nil
}

// send returns a good answer, or what was wrong.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, head http.Header, in any) (*http.Response, error) {
	req, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return nil, err
	}
	for k, v := range head {
		req.Header[k] = v
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

// request makes a request. path is escaped already.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	u := *c.base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/api/v1"+path, ""
	if unescaped, err := url.PathUnescape(u.Path); err == nil && unescaped != u.Path {
		u.RawPath, u.Path = u.Path, unescaped
	}
	u.RawQuery, u.Fragment = query.Encode(), ""
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func (c *Client) token(path string) (string, error) {
	if c.opts.Token == "" && c.opts.MaintenanceToken != nil && strings.HasPrefix(path, "/maintenance/") {
		return c.opts.MaintenanceToken()
	}
	return c.opts.Token, nil
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

// History implements daemon.Client.
func (c *Client) History(ctx context.Context, limit int) (p daemon.HistoryPage, err error) {
	err = c.call(ctx, http.MethodGet, "/history", url.Values{"limit": {strconv.Itoa(limit)}}, nil, nil, &p)
	return p, err
}

// Lease implements daemon.Client.
func (c *Client) Lease(ctx context.Context) (l daemon.LeaseReport, err error) {
	err = c.call(ctx, http.MethodGet, "/lease", nil, nil, nil, &l)
	return l, err
}
