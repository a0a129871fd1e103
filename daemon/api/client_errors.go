package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/exocomp/exocomp/daemon"
)

// What goes wrong between a client and a daemon is told apart by what it means
// for the request: it was never made (Unavailable), nobody knows whether it was
// carried out (TimedOut), or it was answered (the code of the problem).

// unreached is the error of a request that got no whole answer.
func (c *Client) unreached(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case unknown(err):
		return daemon.Errorf(daemon.TimedOut,
			"the daemon at %s did not answer: whether it did what was asked is not known: %w", c.opts.Name, err).
			Hint("look at exocomp status and exocomp jobs list before you ask again")
	}
	if strange, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return daemon.Errorf(daemon.Unavailable, "the daemon at %s shows a certificate that is not trusted here: %w", c.opts.Name, strange.Err).
			Hint("if an authority of your own signed it: exocomp context add NAME --address URL --ca-file FILE")
	}
	return daemon.Errorf(daemon.Unavailable, "the daemon at %s cannot be reached: %w", c.opts.Name, err).
		Hint("is it running? Start it: exocomp serve. Is %s the right address? See --remote", c.opts.Name)
}

// unknown says whether the request of err may have been carried out: there was
// a connection, and it ended or stayed quiet.
func unknown(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op == "read" || op.Op == "write"
	}
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// refused turns a problem document back into the error that it was made from.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came is all there is to say
	err := problemIn(text)
	if _, ok := errors.AsType[*daemon.Error](err); !ok {
		return c.stranger(resp)
	}
	return err
}

// stranger is the error of an answer that no exocomp daemon gives; but for one
// that its HTTP server gives before the daemon sees the request.
func (c *Client) stranger(resp *http.Response) error {
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge || resp.StatusCode == http.StatusRequestURITooLong {
		return daemon.Errorf(daemon.TooLarge, "what was asked is too long for an address: %s takes no such name, state, label or cursor", c.opts.Name).
			Hint("give a shorter one")
	}
	return daemon.Errorf(daemon.Failed, "%s answered %s, and not as an exocomp daemon does", c.opts.Name, resp.Status).
		Hint("is another program at that address?")
}

// problemIn returns the error that a problem document was made from. A code that
// is not known here has no exit code: the status stands in for it.
func problemIn(text []byte) error {
	var p problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return fmt.Errorf("read a problem: %v", err)
	}
	if _, known := daemon.Meanings[p.Code]; !known {
		p.Code = codeOfStatus(p.Status)
	}
	return &daemon.Error{Code: p.Code, Msg: p.Detail, Remedy: p.Remedy}
}
