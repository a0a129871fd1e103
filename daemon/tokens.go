package daemon

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The rules of tokens:
//   - The token itself is drawn where it is asked for, answered once, and kept
//     nowhere. What comes to the Step, and into the store, is its hash.
//   - A name belongs to one token that is not revoked. The name of one that has
//     expired is free: the new token revokes it.
//   - A row stays when its token is revoked: jobs are told by the names of actors.
//   - The last token of scope admin is not revoked by accident.
//   - A token's last use is known to the minute. It is written by a command of its
//     own, behind the answer, so that no request waits for it.

// TokenVerbs are the verbs for tokens.
type TokenVerbs interface {
	// CreateToken makes a token. Its text is in the answer and nowhere else: an
	// answer that was lost cannot be had again.
	CreateToken(ctx context.Context, r TokenRequest) (TokenMade, error)
	Tokens(ctx context.Context, q TokenQuery) (TokenPage, error)
	// RevokeToken ends a token, by id or name. One that was revoked already is no
	// error. lockOut takes the last one of scope admin, too.
	RevokeToken(ctx context.Context, ref string, lockOut bool) (TokenInfo, error)
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name        string `json:"name" doc:"1 to 60 of a-z, A-Z, 0-9, dot, dash and underscore; its actor is token:NAME"`
	Scope       Scope  `json:"scope" enum:"viewer,operator,admin" doc:"each includes those before it"`
	ExpiresInMs int64  `json:"expires_in_ms,omitempty" doc:"how long it is good, by the daemon's clock; 0 is for ever"`
}

// TokenInfo is a token as it is shown.
type TokenInfo struct {
	Token
	State TokenState `json:"state" enum:"live,expired,revoked" doc:"by the daemon's clock"`
}

// TokenState says whether a token is good.
type TokenState string

// The states of a token.
const (
	TokenLive    TokenState = "live"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

func (t Token) info(now Millis) TokenInfo {
	state := TokenExpired
	switch {
	case t.RevokedMs != 0:
		state = TokenRevoked
	case t.live(now):
		state = TokenLive
	}
	return TokenInfo{Token: t, State: state}
}

// TokenMade is a new token.
type TokenMade struct {
	Token  TokenInfo `json:"token"`
	Secret string    `json:"secret" doc:"the token itself; it is shown this once"`
}

// TokenQuery asks for tokens, the newest first.
type TokenQuery struct {
	All    bool   // those that are revoked or expired, too
	Cursor string // TokenPage.Next of the page before
	Limit  int    // 1 to 1000; 0 is 50
}

// TokenPage is one page. As with jobs, a page may be short and not the last.
type TokenPage struct {
	Tokens []TokenInfo `json:"tokens"`
	Next   string      `json:"next,omitempty" doc:"cursor of the next page"`
}

// Limits of tokens.
const (
	maxTokens    = 1000 // that are not revoked
	maxTokenName = 60
	maxTokenLife = 10 * 366 * 24 * time.Hour
	minTokenLife = time.Second
)

// Check refuses a request. It quotes nothing: a token may have been pasted in
// the wrong place.
func (r TokenRequest) Check() error {
	switch {
	case !isTokenName(r.Name):
		return Errorf(Invalid, "the name of a token has 1 to %d letters, digits, dots, dashes or underscores, and begins with a letter or digit",
			maxTokenName).Hint("name it after who holds it, such as ci or ann-laptop")
	case isTokenID(r.Name):
		return Errorf(Invalid, "the name of a token must not look like an id (8 hex digits)").Hint("choose another name")
	case scopeRank[r.Scope] == 0:
		return Errorf(Invalid, "the scope of a token is viewer, operator or admin").
			Hint("viewer reads, operator runs and cordons, admin manages tokens and settings")
	}
	if d := r.ExpiresInMs; d != 0 && (d < minTokenLife.Milliseconds() || d > maxTokenLife.Milliseconds()) {
		return Errorf(Invalid, "a token is good for at least %s and at most ten years", minTokenLife).
			Hint("give a duration such as 90d, or leave it out for a token that does not expire")
	}
	return nil
}

func isTokenName(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", c)) {
			return false
		}
	}
	return s != "" && len(s) <= maxTokenName
}

func isTokenID(s string) bool {
	return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == ""
}

// draw draws the token that r asks for.
func (r TokenRequest) draw(now Millis, c Chance, by string) (string, Token) {
	text, row := NewToken(r.Name, r.Scope, now, c)
	row.By = by
	if r.ExpiresInMs != 0 {
		row.ExpiresMs = now + Millis(r.ExpiresInMs)
	}
	return text, row
}

// noSuchToken does not repeat ref when it is, or may be, a token.
func noSuchToken(ref string) *Error {
	if strings.HasPrefix(ref, tokenPrefix) || strings.HasPrefix(ref, jobTokenPrefix) {
		return Errorf(Invalid, "a token is revoked by its id or its name, not by the token itself").
			Hint("its id is the part between the first and the second underscore; whoever saw the command line may have it now")
	}
	return Errorf(NotFound, "no token %.60q in this store", ref).Hint("exocomp tokens list shows those that are good; with --all, all")
}

func findToken(ctx context.Context, r Reader, ref string) (Token, error) {
	row, ok, err := Tokens.Get(ctx, r, ref)
	if err == nil && !ok {
		row, ok, err = Tokens.First(ctx, r, Query{By: "tokens_live", Equal: []any{ref}})
	}
	if err == nil && !ok {
		err = noSuchToken(ref)
	}
	return row, err
}

// Tokens implements Client.
func (s reads) Tokens(ctx context.Context, q TokenQuery) (page TokenPage, err error) {
	after, err := q.check()
	if err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	now := ReadClock(s.clock).Ms()
	err = s.store.View(ctx, func(r Reader) error {
		page, err = q.page(ctx, r, now, after)
		return err
	})
	return page, err
}

// check returns where the page begins.
func (q TokenQuery) check() (after []any, err error) {
	if q.Limit < 0 || q.Limit > maxPage {
		return nil, Errorf(Invalid, "limit %d: it must be between 1 and %d", q.Limit, maxPage).Hint("follow the cursor for more")
	}
	if q.Cursor == "" {
		return []any{int64(math.MaxInt64), ""}, nil
	}
	at, id, ok := strings.Cut(strings.TrimPrefix(q.Cursor, "before-"), "-")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || !isTokenID(id) {
		return nil, badCursor()
	}
	return []any{ms, id}, nil
}

func badCursor() *Error {
	return Errorf(Invalid, "the cursor was not made by this API").
		Hint("use the cursor of the page before as it is, or none for the first page")
}

func (q TokenQuery) page(ctx context.Context, r Reader, now Millis, after []any) (TokenPage, error) {
	page := TokenPage{Tokens: []TokenInfo{}}
	for looked := 0; looked < maxLooked; {
		rows, err := Tokens.Scan(ctx, r, Query{By: "tokens_created", After: after, Desc: true, Limit: q.Limit})
		if err != nil {
			return page, err
		}
		for _, row := range rows {
			after = []any{int64(row.CreatedMs), row.ID}
			if !q.All && !row.live(now) {
				continue
			}
			if page.Tokens = append(page.Tokens, row.info(now)); len(page.Tokens) == q.Limit {
				page.Next = fmt.Sprintf("before-%d-%s", row.CreatedMs, row.ID)
				return page, nil
			}
		}
		if len(rows) < q.Limit {
			return page, nil
		}
		looked += len(rows)
	}
	page.Next = fmt.Sprintf("before-%d-%s", after...)
	return page, nil
}

// mayManage refuses whoever must not manage tokens and settings. The API asks
// for the scope first; this holds for every other way in.
func (p Principal) mayManage() error {
	if p.Job != nil {
		return Errorf(Forbidden, "a job's token does not manage tokens or settings").
			Hint("an admin does that, with a token of their own")
	}
	if !p.Scope.Allows(Admin) {
		return Errorf(Forbidden, "%s has the scope %s, and this needs %s", p.Actor, p.Scope, Admin).
			Hint("use a token of scope %s", Admin)
	}
	return nil
}

// CreateToken implements Client.
func (l Local) CreateToken(ctx context.Context, r TokenRequest) (TokenMade, error) {
	if err := l.who.mayManage(); err != nil {
		return TokenMade{}, err
	}
	if err := r.Check(); err != nil {
		return TokenMade{}, err
	}
	now := ReadClock(l.clock).Ms()
	text, row := r.draw(now, l.chance, l.who.Actor)
	row, err := tell[Token](ctx, l, CreateToken{Token: row})
	if CodeOf(err) == TimedOut {
		return TokenMade{}, Errorf(TimedOut, "no answer in time: whether the token was made is not known, and its text is lost").
			Hint("look at exocomp tokens list; if it is there, revoke it and make another")
	}
	if err != nil {
		return TokenMade{}, err
	}
	return TokenMade{Token: row.info(now), Secret: text}, nil
}

// RevokeToken implements Client.
func (l Local) RevokeToken(ctx context.Context, ref string, lockOut bool) (TokenInfo, error) {
	if err := l.who.mayManage(); err != nil {
		return TokenInfo{}, err
	}
	var row Token
	err := l.store.View(ctx, func(r Reader) (err error) {
		row, err = findToken(ctx, r, ref)
		return err
	})
	if err != nil {
		return TokenInfo{}, err
	}
	row, err = tell[Token](ctx, l, RevokeToken{ID: row.ID, Actor: l.who.Actor, LockOut: lockOut})
	return row.info(ReadClock(l.clock).Ms()), err
}

// CreateToken implements Client.
func (o Offline) CreateToken(ctx context.Context, _ TokenRequest) (TokenMade, error) {
	return TokenMade{}, o.noDaemon(ctx, "a token is made by a daemon",
		"exocomp serve; or, while no daemon serves the store, exocomp tokens create --local")
}

// RevokeToken implements Client.
func (o Offline) RevokeToken(ctx context.Context, _ string, _ bool) (TokenInfo, error) {
	return TokenInfo{}, o.noDaemon(ctx, "a token is revoked by a daemon", "exocomp serve")
}

// noDaemon refuses a change that does not go through the inbox, and says who
// could make it.
func (o Offline) noDaemon(ctx context.Context, what, start string) error {
	st, err := o.status(ctx)
	switch {
	case err != nil:
		return err
	case st.Lease.State == LeaseHeld && st.Lease.Host != o.about.Host:
		return Errorf(Unavailable, "%s, and none answers on this host: the store is held by host %s (epoch %d)", what,
			st.Lease.Host, st.Lease.Epoch).Hint("run it on %s, or use --remote=URL with a token", st.Lease.Host)
	}
	return Errorf(Unavailable, "%s, and none answers on this host", what).Hint("start one: %s", start)
}

func (t *turn) createToken(ctx context.Context, tx Tx, c CreateToken) (Token, error) {
	own, found, err := Tokens.Get(ctx, tx, c.Token.ID)
	if err != nil || found && own.Hash == c.Token.Hash { // this very request, again
		return own, err
	}
	row, err := issueToken(ctx, tx, t.now.Ms(), c.Token)
	if err != nil {
		return Token{}, err
	}
	return row, t.record(ctx, tx, "token.created", row.Name, row.story())
}

// story is what the history says of a new token.
func (t Token) story() string {
	text := fmt.Sprintf("by %s: id %s, scope %s", t.By, t.ID, t.Scope)
	if t.ExpiresMs != 0 {
		text += ", expires " + t.ExpiresMs.Time().Format(time.RFC3339)
	}
	return text
}

// issueToken adds row, if its name is free.
func issueToken(ctx context.Context, tx Tx, now Millis, row Token) (Token, error) {
	old, found, err := Tokens.First(ctx, tx, Query{By: "tokens_live", Equal: []any{row.Name}})
	if err != nil {
		return row, err
	}
	if found && old.live(now) {
		return row, Errorf(Conflict, "a token with the name %s is there already (id %s)", row.Name, old.ID).
			Hint("choose another name, or revoke that one first: exocomp tokens revoke %s", old.ID)
	}
	n, err := Tokens.Count(ctx, tx, Query{By: "tokens_live", Limit: maxTokens})
	if err != nil {
		return row, err
	}
	if n >= maxTokens {
		return row, Errorf(Conflict, "%d tokens are there already: no more are taken", n).
			Hint("revoke those that nobody uses: exocomp tokens list shows their last use")
	}
	if _, taken, err := Tokens.Get(ctx, tx, row.ID); err != nil {
		return row, err
	} else if taken {
		return row, Errorf(Conflict, "the id %s was drawn a second time", row.ID).Hint("ask again")
	}
	if found {
		old.RevokedMs = now
		if err := Tokens.Put(ctx, tx, old); err != nil {
			return row, err
		}
	}
	row.CreatedMs = now
	return row, Tokens.Put(ctx, tx, row)
}

func (t *turn) revokeToken(ctx context.Context, tx Tx, c RevokeToken) (Token, error) {
	row, found, err := Tokens.Get(ctx, tx, c.ID)
	switch {
	case err != nil:
		return row, err
	case !found:
		return row, noSuchToken(c.ID)
	case row.RevokedMs != 0:
		return row, nil
	}
	if row.Scope == Admin && row.live(t.now.Ms()) && !c.LockOut {
		if err := t.anotherAdmin(ctx, tx, row); err != nil {
			return Token{}, err
		}
	}
	row.RevokedMs = t.now.Ms()
	if err := Tokens.Put(ctx, tx, row); err != nil {
		return row, err
	}
	return row, t.record(ctx, tx, "token.revoked", row.Name, fmt.Sprintf("by %s: id %s, scope %s", c.Actor, row.ID, row.Scope))
}

// anotherAdmin refuses when no token of scope admin would be left.
func (t *turn) anotherAdmin(ctx context.Context, tx Tx, row Token) error {
	all, err := Tokens.Scan(ctx, tx, Query{By: "tokens_live", Limit: maxTokens})
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID != row.ID && other.Scope == Admin && other.live(t.now.Ms()) {
			return nil
		}
	}
	return Errorf(Conflict, "%s is the last token of scope admin: without it nobody manages tokens over the network, or cordons with admin.token", row.Name).
		Hint("make another first: exocomp tokens create NAME --scope admin. Or insist: exocomp tokens revoke %s --yes-lock-out; the socket still lets the owner of the data directory make one", row.ID)
}

// UseIsNews says whether a use at now is far enough from the last known one to be
// written down.
func UseIsNews(last, now Millis) bool {
	d := now - last
	return d >= 60_000 || d <= -60_000 // a clock that was set back must not stop it
}

func (t *turn) touchToken(ctx context.Context, tx Tx, c TouchToken) error {
	row, found, err := Tokens.Get(ctx, tx, c.ID)
	if err != nil || !found || row.RevokedMs != 0 || !UseIsNews(row.UsedMs, c.AtMs) {
		return err
	}
	row.UsedMs = c.AtMs
	return Tokens.Put(ctx, tx, row)
}
