package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/exocomp/exocomp/daemon"
)

// A store that the first version made, with a token in it.
func TestAnOlderStoreIsBroughtUpToDate(t *testing.T) {
	old := migrations
	t.Cleanup(func() { migrations = old })
	migrations = old[:1]
	o := Options{Path: filepath.Join(t.TempDir(), "x.db")}
	db, err := Create(t.Context(), o, func(tx daemon.Tx) error {
		return daemon.Leases.Put(t.Context(), tx, daemon.Lease{ID: 1, Holder: "alpha", Epoch: 1, State: daemon.LeaseHeld})
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	s := mustOpen(t, o)
	exec(t, s, "DROP TRIGGER temp.fence_insert_tokens")
	exec(t, s, "INSERT INTO tokens VALUES ('0123abcd', 'admin', 'admin', 'hash', 5, 0, 0)")
	s.Close()
	migrations = old

	s = mustOpen(t, o)
	var row daemon.Token
	get := func() error {
		return s.View(t.Context(), func(r daemon.Reader) (err error) {
			row, _, err = daemon.Tokens.Get(t.Context(), r, "0123abcd")
			return err
		})
	}
	if err := get(); daemon.CodeOf(err) != daemon.Unavailable || daemon.RemedyOf(err) == "" {
		t.Errorf("before it is up to date: %v", err)
	}
	g := daemon.Guard{Holder: "alpha", Epoch: 1}
	if err := s.UpdateAlone(t.Context(), g, func(daemon.Tx) error { return nil }); daemon.CodeOf(err) != daemon.BadConfig {
		t.Errorf("alone: %v", err)
	}
	if err := s.Migrate(t.Context(), g, func(daemon.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := get(); err != nil || row.Name != "admin" || row.CreatedMs != 5 || row.UsedMs != 0 || row.By != "" {
		t.Errorf("the token is %+v, %v", row, err)
	}
}
