package api

import (
	"context"
	"mime"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

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
	"get-history": {daemon.Viewer, false},
	"cordon":      {daemon.Operator, true},
	"uncordon":    {daemon.Operator, true},

	"list-schedules":   {daemon.Viewer, false},
	"add-schedule":     {daemon.Operator, false},
	"get-schedule":     {daemon.Viewer, false},
	"edit-schedule":    {daemon.Operator, false},
	"remove-schedule":  {daemon.Operator, false},
	"enable-schedule":  {daemon.Operator, false},
	"disable-schedule": {daemon.Operator, false},
	"list-upcoming":    {daemon.Viewer, false},
	"list-fires":       {daemon.Viewer, false},

	"list-events":   {daemon.Viewer, false},
	"create-token":  {daemon.Admin, false},
	"list-tokens":   {daemon.Admin, false},
	"revoke-token":  {daemon.Admin, false},
	"list-settings": {daemon.Viewer, false},
	"get-setting":   {daemon.Viewer, false},
	"set-setting":   {daemon.Admin, false},
}

// peer is the user at the other end of a Unix socket.
type peer struct {
	uid  int
	name string
}

// nobody is a peer whose user the kernel did not tell.
var nobody = peer{uid: -1}

type peerKey struct{}

// PeerContext notes the user at the other end of a Unix socket, as the kernel
// tells it (SO_PEERCRED). It is for http.Server.ConnContext; the user is looked
// at with each request, since a connection cannot be answered.
func PeerContext(ctx context.Context, c net.Conn) context.Context {
	p := nobody
	if uid, ok := peerUID(c); ok {
		p = peer{uid, userName(uid)}
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func peerUID(c net.Conn) (uid int, ok bool) {
	uc, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	var told error
	err = raw.Control(func(fd uintptr) {
		cred, told = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || told != nil {
		return 0, false
	}
	return int(cred.Uid), true
}

// admitPeer returns the peer of a request that came through the socket. The
// mode of the socket keeps others out already; this holds when somebody loosens
// that.
func admitPeer(ctx context.Context) (peer, error) {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		p = nobody
	}
	if us := os.Geteuid(); p.uid != us && p.uid != 0 {
		return p, daemon.Errorf(daemon.Forbidden,
			"the socket is for the user who runs the daemon (uid %d), not for uid %d", us, p.uid).
			Hint("run exocomp as that user, or use --remote=URL with a token")
	}
	return p, nil
}

// authenticate returns who asks. A token counts more than the socket it came
// through: so a job that shows its own is known as that job.
func (s *Server) authenticate(r *http.Request) (daemon.Principal, error) {
	local := exchangeOf(r.Context()).local
	p := nobody
	if local {
		var err error
		if p, err = admitPeer(r.Context()); err != nil {
			return daemon.Principal{}, err
		}
	}
	head := r.Header.Get("Authorization")
	switch {
	case head != "":
		return s.bearer(r.Context(), head)
	case local:
		return daemon.Principal{Actor: "local:" + p.name, Scope: daemon.Admin}, nil
	}
	return daemon.Principal{}, daemon.Errorf(daemon.NoToken, "no token: this address asks for one").
		Hint("send Authorization: Bearer TOKEN; the first token is in admin.token in the data directory")
}

// bearer returns who the token in an Authorization header belongs to.
func (s *Server) bearer(ctx context.Context, head string) (daemon.Principal, error) {
	scheme, token, ok := strings.Cut(head, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return daemon.Principal{}, daemon.Errorf(daemon.NoToken, "the Authorization header holds no bearer token").
			Hint("send Authorization: Bearer TOKEN")
	}
	now := daemon.ReadClock(s.opts.Clock).Ms()
	who, err := daemon.Authenticate(ctx, s.opts.Store, now, strings.TrimSpace(token))
	if err == nil {
		s.used(who, now)
	}
	return who, err
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// authorize returns who asks for op, if the table lets them.
func (s *Server) authorize(r *http.Request, op string) (daemon.Principal, error) {
	n, known := scopes[op]
	if !known {
		return daemon.Principal{}, daemon.Errorf(daemon.Forbidden, "operation %s has no place in the table of scopes", op).
			Hint("this is a bug of exocomp: please report it")
	}
	who, err := s.authenticate(r)
	if err != nil {
		return who, err
	}
	exchangeOf(r.Context()).actor = who.Actor
	return who, n.refusal(who)
}

// refusal says why who may not, or nil.
func (n need) refusal(who daemon.Principal) error {
	switch {
	case !who.Scope.Allows(n.scope):
		return daemon.Errorf(daemon.Forbidden, "%s has the scope %s, and this needs %s", who.Actor, who.Scope, n.scope).
			Hint("use a token of scope %s", n.scope)
	case n.bearer && !who.Bearer:
		return daemon.Errorf(daemon.Forbidden, "maintenance needs a token, also over the socket").
			Hint("exocomp reads it from admin.token in the data directory; others send Authorization: Bearer TOKEN")
	case n.bearer && who.Job != nil:
		return daemon.Errorf(daemon.Forbidden, "a job's token does not do maintenance").
			Hint("an operator does that, with a token of their own")
	}
	return nil
}

// stillMay says whether whoever opened a stream may go on with it: a token that was
// revoked, or has expired, ends what it began. A store that cannot be read just now
// is no reason to.
func (s *Server) stillMay(r *http.Request, op string) error {
	_, err := s.authorize(r, op)
	if code := daemon.CodeOf(err); code == daemon.NoToken || code == daemon.Forbidden {
		return err
	}
	return nil
}

type principalKey struct{}

// guard enforces the table for huma's operations, and what else all of them
// share: JSON only, and an end to the patience with both sides.
func (s *Server) guard(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	op := ctx.Operation()
	who, err := s.authorize(r, op.OperationID)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	// huma takes a body without a type for JSON. A page of another site may send
	// such a body without asking; with the type named, it may not.
	if op.RequestBody != nil && !isJSON(r.Header.Get("Content-Type")) {
		p := newError(http.StatusUnsupportedMediaType, "").(*problem)
		p.RequestID = exchangeOf(r.Context()).id
		p.write(w)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.within + writeWithin)) // not all writers can
	limited, cancel := context.WithTimeout(context.WithValue(ctx.Context(), principalKey{}, who), s.within)
	defer cancel()
	next(huma.WithContext(ctx, limited))
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
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
