package daemon_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon"
)

// rows is a Store with a few rows, for reading.
type rows struct {
	daemon.Store
	daemon.Reader
	tokens []daemon.Token
	metas  []daemon.Meta
	jobs   []daemon.Job
}

func (r rows) View(_ context.Context, fn func(daemon.Reader) error) error { return fn(r) }

func (r rows) Get(_ context.Context, t *daemon.Table, row any, key []any) (bool, error) {
	switch row := row.(type) {
	case *daemon.Token:
		for _, x := range r.tokens {
			if x.ID == key[0] {
				*row = x
				return true, nil
			}
		}
	case *daemon.Meta:
		for _, x := range r.metas {
			if x.Name == key[0] {
				*row = x
				return true, nil
			}
		}
	default:
		return false, errors.New("unexpected table " + t.Name)
	}
	return false, nil
}

func (r rows) Scan(_ context.Context, _ *daemon.Table, q daemon.Query, yield func(any) error) error {
	for _, j := range r.jobs {
		if j.Attempt == q.Equal[0] {
			return yield(&j)
		}
	}
	return nil
}

func TestAuthenticate(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	text, row := daemon.NewToken("ci", daemon.Operator, 1000, chance)
	if strings.Contains(row.Hash, text) || !strings.HasPrefix(text, "exo_"+row.ID+"_") {
		t.Fatalf("token %s, row %+v", text, row)
	}
	with := func(change func(*daemon.Token)) rows {
		r := row
		if change != nil {
			change(&r)
		}
		return rows{tokens: []daemon.Token{r}}
	}
	last := byte('0')
	if text[len(text)-1] == '0' {
		last = '1'
	}
	tests := []struct {
		name string
		s    rows
		text string
		ok   bool
	}{
		{"good", with(nil), text, true},
		{"mistyped", with(nil), text[:len(text)-1] + string(last), false},
		{"cut", with(nil), text[:len(text)-1], false},
		{"longer", with(nil), text + "0", false},
		{"empty", with(nil), "", false},
		{"the prefix", with(nil), "exo_", false},
		{"huge", with(nil), "exo_" + strings.Repeat("a", 1<<20), false},
		{"of another store", rows{}, text, false},
		{"revoked", with(func(r *daemon.Token) { r.RevokedMs = 1 }), text, false},
		{"expired", with(func(r *daemon.Token) { r.ExpiresMs = 2000 }), text, false},
		{"not yet expired", with(func(r *daemon.Token) { r.ExpiresMs = 2001 }), text, true},
	}
	for _, tt := range tests {
		p, err := daemon.Authenticate(t.Context(), tt.s, 2000, tt.text)
		if tt.ok != (err == nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && (daemon.CodeOf(err) != daemon.NoToken || len(tt.text) > 8 && strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil && (p.Actor != "token:ci" || p.Scope != daemon.Operator || !p.Bearer) {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}

func TestAJobIsKnownByItsTokenWhileItLives(t *testing.T) {
	key := []byte("0123456789abcdef")
	job := daemon.Job{ID: "job_1", Attempt: "att_1", State: daemon.Running}
	store := func(j daemon.Job) rows {
		return rows{metas: []daemon.Meta{{Name: daemon.MetaJobKey, Value: "30313233343536373839616263646566"}}, jobs: []daemon.Job{j}}
	}
	good := daemon.JobToken(key, "att_1")
	p, err := daemon.Authenticate(t.Context(), store(job), 1, good)
	if err != nil || p.Job == nil || p.Job.ID != "job_1" || p.Scope != daemon.Operator {
		t.Errorf("%+v, %v", p, err)
	}
	ended := job
	ended.State = daemon.Succeeded
	other := job
	other.Attempt = "att_2"
	for name, bad := range map[string]struct {
		s    rows
		text string
	}{
		"ended":          {store(ended), good},
		"no such job":    {store(other), good},
		"other key":      {store(job), daemon.JobToken([]byte("fedcba9876543210"), "att_1")},
		"other job's":    {store(job), daemon.JobToken(key, "att_2")},
		"without a mac":  {store(job), "exoj_att_1"},
		"no key at all":  {rows{jobs: []daemon.Job{job}}, daemon.JobToken(nil, "att_1")},
		"with an ending": {store(job), good + "x"},
	} {
		if _, err := daemon.Authenticate(t.Context(), bad.s, 1, bad.text); daemon.CodeOf(err) != daemon.NoToken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestScopes(t *testing.T) {
	order := []daemon.Scope{daemon.Viewer, daemon.Operator, daemon.Admin}
	for i, have := range order {
		for k, want := range order {
			if have.Allows(want) != (i >= k) {
				t.Errorf("%s allows %s: %v", have, want, have.Allows(want))
			}
		}
	}
	if daemon.Scope("").Allows("") || daemon.Admin.Allows("root") || daemon.Scope("root").Allows(daemon.Viewer) {
		t.Error("an unknown scope allows something")
	}
}
