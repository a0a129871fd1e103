package api

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"golang.org/x/sys/unix"

	"github.com/exocomp/exocomp/daemon"
)

// need is what an operation asks of its caller.
type need struct {
	scope  daemon.Scope
	bearer bool // a token, also over the socket
}

// scopes is the one table of who may do what, by operation.
var scopes = map[string]need{
	"enqueue-job": {daemon.Operator, false},
	"list-jobs":   {daemon.Viewer, false},
	"get-job":     {daemon.Viewer, false},
	"cancel-job":  {daemon.Operator, false},
	"read-log":    {daemon.Viewer, false},
	"get-status":  {daemon.Viewer, false},
	"get-lease":   {daemon.Viewer, false},
	"cordon":      {daemon.Operator, true},
	"uncordon":    {daemon.Operator, true},
}

type peerKey struct{}

// peerContext notes who is at the other end of a Unix socket: the kernel says.
func peerContext(ctx context.Context, c net.Conn) context.Context {
	uid := -1
	if uc, ok := c.(*net.UnixConn); ok {
		if raw, err := uc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // uid stays -1, which nobody is
				if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
					uid = int(cred.Uid)
				}
			})
		}
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// authenticate returns who asks.
func (s *Server) authenticate(r *http.Request) (daemon.Principal, error) {
	uid, local := r.Context().Value(peerKey{}).(int)
	if local && uid != os.Geteuid() && uid != 0 {
		return daemon.Principal{}, daemon.Errorf(daemon.Forbidden, "the socket is for the user who runs the daemon (uid %d), not for uid %d",
			os.Geteuid(), uid).Hint("run exocomp as that user, or use --remote=URL with a token")
	}
	if head := r.Header.Get("Authorization"); head != "" {
		scheme, token, ok := strings.Cut(head, " ")
		if !ok || !strings.EqualFold(scheme, "bearer") {
			return daemon.Principal{}, daemon.Errorf(daemon.NoToken, "the Authorization header holds no bearer token").
				Hint("send Authorization: Bearer TOKEN")
		}
		return daemon.Authenticate(r.Context(), s.opts.Store, daemon.ReadClock(s.opts.Clock).Ms(), strings.TrimSpace(token))
	}
	if local {
		return daemon.Principal{Actor: "local:" + userName(uid), Scope: daemon.Admin}, nil
	}
	return daemon.Principal{}, daemon.Errorf(daemon.NoToken, "no token: this address asks for one").
		Hint("send Authorization: Bearer TOKEN; the first token is in admin.token in the data directory")
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// authorize returns who asks for op, if he may.
func (s *Server) authorize(r *http.Request, op string) (daemon.Principal, error) {
	n, known := scopes[op]
	if !known {
		return daemon.Principal{}, daemon.Errorf(daemon.Forbidden, "operation %s has no place in the table of scopes", op)
	}
	who, err := s.authenticate(r)
	switch {
	case err != nil:
		return who, err
	case !who.Scope.Allows(n.scope):
		return who, daemon.Errorf(daemon.Forbidden, "%s has the scope %s, and this needs %s", who.Actor, who.Scope, n.scope).
			Hint("use a token of scope %s", n.scope)
	case n.bearer && !who.Bearer:
		return who, daemon.Errorf(daemon.Forbidden, "maintenance needs a token, also over the socket").
			Hint("exocomp reads it from admin.token in the data directory; others send Authorization: Bearer TOKEN")
	case n.bearer && who.Job != nil:
		return who, daemon.Errorf(daemon.Forbidden, "a job's token does not do maintenance").
			Hint("an operator does that, with a token of his own")
	}
	return who, nil
}

type principalKey struct{}

// guard enforces the table for huma's operations.
func (s *Server) guard(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	who, err := s.authorize(r, ctx.Operation().OperationID)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	limited, cancel := context.WithTimeout(context.WithValue(ctx.Context(), principalKey{}, who), answerWithin)
	defer cancel()
	next(huma.WithContext(ctx, limited))
}

// guarded enforces the table for a plain handler.
func (s *Server) guarded(op string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.authorize(r, op)
		if err != nil {
			writeProblem(w, r, err)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, who)))
	}
}

// client returns the Client of whoever asks.
func (s *Server) client(ctx context.Context) daemon.Client {
	who, ok := ctx.Value(principalKey{}).(daemon.Principal)
	if !ok {
		panic("a handler was reached without a principal") // guard stands before each
	}
	return s.opts.Desk.For(who)
}
