package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exocomp/exocomp/daemon"
)

// The row that a daemon of the first version left. Every later one must write it
// in the same bytes, and read it: two versions meet in it before either knows what
// the other is (L18).
var frozenLease = daemon.Lease{ID: 1, StoreID: "store_01m91jeffrm2eagyfb6v0993zt", Lineage: 3,
	Holder: "alpha/inc_01m91jeffrm2eagyfb6v0993zt", Host: "alpha", Incarnation: "inc_01m91jeffrm2eagyfb6v0993zt",
	BootID: "7c2d7a3e-55a2-4e0b-9d52-0d7fb8b4f9a1", LockDev: 2049, LockIno: 1<<40 + 7, PID: 4711,
	Epoch: 18, Seq: 90_210, Stamp: "0123456789abc", TTLMs: 30_000, RenewMs: 6_000, State: daemon.LeaseHeld,
	ReadyEpoch: 17, SingleHost: true, AcquiredMs: 1_793_829_394_000, RenewedMs: 1_793_829_400_123,
	ForcedBy: "ann@alpha", ForceReason: "epoch 17 deposed, attested: host beta is off"}

const frozenFile = "testdata/serve_lease.sql"

func TestTheLeaseRowIsFrozenByteForByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exocomp.db")
	s, err := Create(t.Context(), Options{Path: path}, func(tx daemon.Tx) error {
		return daemon.Leases.Put(t.Context(), tx, frozenLease)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(frozenFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := dumpLease(t, path); got != string(want) {
		t.Errorf("the lease is stored as\n%s\nand daemons that are out there know\n%s", got, want)
	}
}

func TestALeaseOfTheFirstVersionIsRead(t *testing.T) {
	text, err := os.ReadFile(frozenFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "exocomp.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{string(text), "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
		"INSERT INTO meta VALUES ('schema_version', '0')"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Options{Path: path, ReadOnly: true})
	err = s.View(t.Context(), func(r daemon.Reader) error {
		got, found, err := daemon.Leases.Get(context.Background(), r, 1)
		if err == nil && (!found || got != frozenLease) {
			t.Errorf("read %t %+v\nwant %+v", found, got, frozenLease)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dumpLease returns the table and its row as SQL, with every value as stored.
func dumpLease(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var create string
	if err := db.QueryRow("SELECT sql FROM sqlite_schema WHERE name = 'serve_lease'").Scan(&create); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query("SELECT name FROM pragma_table_info('serve_lease') ORDER BY cid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var quoted []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		quoted = append(quoted, "quote("+name+")")
	}
	var values string
	if err := db.QueryRow("SELECT " + strings.Join(quoted, " || ',' || ") + " FROM serve_lease").Scan(&values); err != nil {
		t.Fatal(err)
	}
	return create + ";\nINSERT INTO serve_lease VALUES (" + values + ");\n"
}
