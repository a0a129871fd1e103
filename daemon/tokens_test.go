package daemon_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/linux"
	"github.com/exocomp/exocomp/daemon/sqlite"
)

// aloneStore is a new store that nobody holds.
func aloneStore(t *testing.T) *sqlite.Store {
	t.Helper()
	o := sqlite.Options{Path: filepath.Join(t.TempDir(), "x.db")}
	db, err := sqlite.Create(t.Context(), o, func(tx daemon.Tx) error {
		_, err := daemon.Seed(t.Context(), tx, daemon.ReadClock(linux.NewClock()), linux.Chance{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func leaseOf(t *testing.T, s daemon.Store) (row daemon.Lease) {
	t.Helper()
	err := s.View(t.Context(), func(r daemon.Reader) (err error) {
		row, _, err = daemon.Leases.Get(t.Context(), r, 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func putLease(t *testing.T, s daemon.Store, row daemon.Lease) {
	t.Helper()
	err := s.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error { return daemon.Leases.Put(t.Context(), tx, row) })
	if err != nil {
		t.Fatal(err)
	}
}

func createAlone(t *testing.T, s daemon.AloneStore, r daemon.TokenRequest) (daemon.TokenMade, error) {
	t.Helper()
	me := daemon.Identity{Holder: "alpha/me", Host: "alpha", Incarnation: "me"}
	return daemon.CreateTokenAlone(t.Context(), s, linux.NewClock(), rand.New(rand.NewPCG(7, 7)), me, "local:ann", r)
}

func TestATokenIsMadeOnAStoreThatNobodyHolds(t *testing.T) {
	s := aloneStore(t)
	before := leaseOf(t, s)
	before.TTLMs, before.RenewMs, before.ReadyEpoch = 60_000, 7_000, 3
	putLease(t, s, before)
	made, err := createAlone(t, s, daemon.TokenRequest{Name: "rescue", Scope: daemon.Admin, ExpiresInMs: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	now := daemon.ReadClock(linux.NewClock()).Ms()
	p, err := daemon.Authenticate(t.Context(), s, now, made.Secret)
	if err != nil || p.Scope != daemon.Admin || p.Actor != "token:rescue" || p.Token.ID != made.Token.ID {
		t.Errorf("the token is good for %+v, %v", p, err)
	}
	if _, err := daemon.Authenticate(t.Context(), s, now+70_000, made.Secret); daemon.CodeOf(err) != daemon.NoToken {
		t.Errorf("after its end: %v", err)
	}
	after := leaseOf(t, s)
	if after.State != daemon.LeaseReleased || after.Epoch != before.Epoch+1 || after.Seq <= before.Seq || after.Stamp == before.Stamp ||
		after.TTLMs != 60_000 || after.RenewMs != 7_000 || after.ReadyEpoch != 3 || after.Holder != "alpha/me" {
		t.Errorf("the lease is %+v", after)
	}
	err = s.View(t.Context(), func(r daemon.Reader) error {
		h, _, err := daemon.Happenings.First(t.Context(), r, daemon.Query{Desc: true})
		if h.Kind != "token.created" || h.Epoch != after.Epoch || !strings.Contains(h.Detail, "local:ann") || strings.Contains(h.Detail, made.Secret) {
			t.Errorf("the history says %+v", h)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoreThatIsHeldIsLeftAlone(t *testing.T) {
	s := aloneStore(t)
	free := leaseOf(t, s)
	held, other := free, free
	held.State, held.Host, held.Epoch = daemon.LeaseHeld, "beta", 4
	other.SingleHost, other.Host = true, "beta"
	for name, row := range map[string]daemon.Lease{"held": held, "of another host": other} {
		putLease(t, s, row)
		_, err := createAlone(t, s, daemon.TokenRequest{Name: "x", Scope: daemon.Admin})
		if daemon.CodeOf(err) != daemon.Held || !strings.Contains(err.Error(), "beta") {
			t.Errorf("%s: %v", name, err)
		}
		if got := leaseOf(t, s); got != row {
			t.Errorf("%s: the lease became %+v", name, got)
		}
	}
	putLease(t, s, free)
	_, err := createAlone(t, s, daemon.TokenRequest{Name: "admin", Scope: daemon.Admin})
	if daemon.CodeOf(err) != daemon.Conflict || leaseOf(t, s) != free {
		t.Errorf("a name that is taken: %v, and the lease %+v", err, leaseOf(t, s))
	}
	// Nothing but the taking opens the guarded tables.
	g := daemon.Guard{Holder: "alpha/me", Epoch: 1}
	err = s.UpdateAlone(t.Context(), g, func(tx daemon.Tx) error {
		return daemon.Tokens.Put(context.Background(), tx, daemon.Token{ID: "x"})
	})
	if !strings.Contains(err.Error(), "fenced") {
		t.Errorf("without taking the lease: %v", err)
	}
}

func TestTokenRequestsThatAreWrongAreRefusedWithoutTheirWords(t *testing.T) {
	s := aloneStore(t)
	good := daemon.TokenRequest{Name: "ci", Scope: daemon.Viewer}
	secret, _ := daemon.NewToken("x", daemon.Admin, 1, linux.Chance{})
	for _, name := range []string{"", "-x", ".x", "a b", "a/b", "ä", "x\n", secret, strings.Repeat("a", 61), "0123abcd", "'"} {
		r := good
		r.Name = name
		_, err := createAlone(t, s, r)
		if daemon.CodeOf(err) != daemon.Invalid || daemon.RemedyOf(err) == "" || len(name) > 2 && strings.Contains(err.Error(), name) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, scope := range []daemon.Scope{"", "root", daemon.Scope(secret)} {
		r := good
		r.Scope = scope
		if _, err := createAlone(t, s, r); daemon.CodeOf(err) != daemon.Invalid || scope != "" && strings.Contains(err.Error(), string(scope)) {
			t.Errorf("scope %q: %v", scope, err)
		}
	}
	for _, ms := range []int64{-1, 1, 999, (11 * 366 * 24 * time.Hour).Milliseconds(), 1 << 62} {
		r := good
		r.ExpiresInMs = ms
		if _, err := createAlone(t, s, r); daemon.CodeOf(err) != daemon.Invalid {
			t.Errorf("expires in %d ms: %v", ms, err)
		}
	}
}

func TestAUseIsNewsOnceAMinute(t *testing.T) {
	for _, tt := range []struct {
		last, now daemon.Millis
		want      bool
	}{{0, 1_000_000, true}, {1_000_000, 1_000_001, false}, {1_000_000, 1_059_999, false}, {1_000_000, 1_060_000, true},
		{1_000_000, 999_000, false}, {1_000_000, 900_000, true}} {
		if got := daemon.UseIsNews(tt.last, tt.now); got != tt.want {
			t.Errorf("%d after %d: %v", tt.now, tt.last, got)
		}
	}
}
