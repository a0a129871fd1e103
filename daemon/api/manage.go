package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/exocomp/exocomp/daemon"
)

// manageRoutes registers the operations on tokens and settings.
func (s *Server) manageRoutes(api huma.API) {
	create := op("create-token", http.MethodPost, "/tokens", "Make a token; its text is in this answer and nowhere else")
	create.DefaultStatus = http.StatusCreated
	register(api, create, s.createToken)
	register(api, op("list-tokens", http.MethodGet, "/tokens", "List tokens, the newest first"), s.listTokens)
	register(api, op("revoke-token", http.MethodDelete, "/tokens/{token}", "End a token, by id or name"), s.revokeToken)
	register(api, op("list-settings", http.MethodGet, "/settings", "List every setting"), s.listSettings)
	register(api, op("get-setting", http.MethodGet, "/settings/{name}", "Show one setting"), s.getSetting)
	register(api, op("set-setting", http.MethodPut, "/settings/{name}", "Change one setting"), s.setSetting)
}

func (s *Server) createToken(ctx context.Context, in *struct{ Body daemon.TokenRequest }) (*body[daemon.TokenMade], error) {
	made, err := s.client(ctx).CreateToken(ctx, in.Body)
	return &body[daemon.TokenMade]{made}, err
}

type tokensInput struct {
	All    bool   `query:"all" doc:"those that are revoked or expired, too"`
	Cursor string `query:"cursor" doc:"next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
}

func (s *Server) listTokens(ctx context.Context, in *tokensInput) (*body[daemon.TokenPage], error) {
	page, err := s.client(ctx).Tokens(ctx, daemon.TokenQuery{All: in.All, Cursor: in.Cursor, Limit: in.Limit})
	return &body[daemon.TokenPage]{page}, err
}

type revokeInput struct {
	Token   string `path:"token" maxLength:"100" doc:"id or name; never the token itself"`
	LockOut bool   `query:"lock_out" doc:"also the last token of scope admin"`
}

func (s *Server) revokeToken(ctx context.Context, in *revokeInput) (*body[daemon.TokenInfo], error) {
	t, err := s.client(ctx).RevokeToken(ctx, in.Token, in.LockOut)
	return &body[daemon.TokenInfo]{t}, err
}

func (s *Server) listSettings(ctx context.Context, _ *struct{}) (*body[daemon.SettingList], error) {
	all, err := s.client(ctx).Settings(ctx)
	return &body[daemon.SettingList]{all}, err
}

type settingInput struct {
	Name string `path:"name" maxLength:"100"`
}

func (s *Server) getSetting(ctx context.Context, in *settingInput) (*body[daemon.SettingInfo], error) {
	one, err := s.client(ctx).Setting(ctx, in.Name)
	return &body[daemon.SettingInfo]{one}, err
}

// settingRequest is the body of a change.
type settingRequest struct {
	Value string `json:"value" maxLength:"1000" doc:"the word default takes a change back"`
}

type setInput struct {
	Name string `path:"name" maxLength:"100"`
	Body settingRequest
}

func (s *Server) setSetting(ctx context.Context, in *setInput) (*body[daemon.SettingChange], error) {
	c, err := s.client(ctx).SetSetting(ctx, in.Name, in.Body.Value)
	return &body[daemon.SettingChange]{c}, err
}

// uses remembers which uses of tokens were told to the daemon, so that a token in
// constant use costs a write a minute and not one a request.
type uses struct {
	mu   sync.Mutex
	told map[string]daemon.Millis
}

// maxUses is more tokens than are ever good.
const maxUses = 10_000

// news says whether a use of p's token at now should be told.
func (u *uses) news(p daemon.Principal, now daemon.Millis) bool {
	if p.Token.ID == "" || !daemon.UseIsNews(p.Token.UsedMs, now) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, known := u.told[p.Token.ID]; known && !daemon.UseIsNews(last, now) {
		return false
	}
	if u.told == nil || len(u.told) >= maxUses {
		u.told = map[string]daemon.Millis{}
	}
	u.told[p.Token.ID] = now
	return true
}

// used files the use of a token, behind the request and only when it is news. A
// daemon that is too busy to take it loses a time of last use and nothing else.
func (s *Server) used(p daemon.Principal, now daemon.Millis) {
	if s.opts.Offer != nil && s.uses.news(p, now) {
		s.opts.Offer(daemon.TouchToken{ID: p.Token.ID, AtMs: now})
	}
}

// CreateToken implements daemon.Client.
func (c *Client) CreateToken(ctx context.Context, r daemon.TokenRequest) (made daemon.TokenMade, err error) {
	err = c.call(ctx, http.MethodPost, "/tokens", nil, nil, r, &made)
	return made, err
}

// Tokens implements daemon.Client.
func (c *Client) Tokens(ctx context.Context, q daemon.TokenQuery) (page daemon.TokenPage, err error) {
	v := pageQuery(q.Cursor, q.Limit)
	if q.All {
		v.Set("all", "true")
	}
	err = c.call(ctx, http.MethodGet, "/tokens", v, nil, nil, &page)
	return page, err
}

func pageQuery(cursor string, limit int) url.Values {
	v := url.Values{}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return v
}

// RevokeToken implements daemon.Client.
func (c *Client) RevokeToken(ctx context.Context, ref string, lockOut bool) (t daemon.TokenInfo, err error) {
	v := url.Values{}
	if lockOut {
		v.Set("lock_out", "true")
	}
	err = c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(ref), v, nil, nil, &t)
	return t, err
}

// Settings implements daemon.Client.
func (c *Client) Settings(ctx context.Context) (all daemon.SettingList, err error) {
	err = c.call(ctx, http.MethodGet, "/settings", nil, nil, nil, &all)
	return all, err
}

// Setting implements daemon.Client.
func (c *Client) Setting(ctx context.Context, name string) (one daemon.SettingInfo, err error) {
	err = c.call(ctx, http.MethodGet, "/settings/"+url.PathEscape(name), nil, nil, nil, &one)
	return one, err
}

// SetSetting implements daemon.Client.
func (c *Client) SetSetting(ctx context.Context, name, value string) (ch daemon.SettingChange, err error) {
	err = c.call(ctx, http.MethodPut, "/settings/"+url.PathEscape(name), nil, nil, settingRequest{value}, &ch)
	return ch, err
}
