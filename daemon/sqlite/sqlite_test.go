package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/storetest"
)

func TestContractOnAFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b daemon.Store) {
		return openTwo(t, Options{Path: filepath.Join(t.TempDir(), "odd #?%41 name.db")})
	})
}

func TestContractOnASharedFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b daemon.Store) {
		return openTwo(t, Options{Path: filepath.Join(t.TempDir(), "x.db"), Shared: true})
	})
}

func TestContractInMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b daemon.Store) {
		return openTwo(t, Options{Memory: t.Name()})
	})
}

func openTwo(t *testing.T, o Options) (a, b *Store) {
	t.Helper()
	o.Busy = 20 * time.Millisecond
	anchor, err := Create(t.Context(), o, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { anchor.Close() })
	return mustOpen(t, o), mustOpen(t, o)
}

func mustOpen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The migrations must make exactly what is declared.
func TestMigrationsMakeTheDeclaredTables(t *testing.T) {
	s, _ := openTwo(t, Options{Memory: t.Name()})
	for _, table := range daemon.Tables {
		var want, got []string
		for _, c := range table.Columns {
			typ := string(c.Type)
			if c.Type == daemon.JSON {
				typ = "TEXT"
			}
			null := " NOT NULL"
			if c.Nullable || slices.Contains(table.Key, c.Name) {
				null = "" // STRICT or not, SQLite reports none for a key
			}
			want = append(want, c.Name+" "+typ+null)
		}
		got = queryRows(t, s, `SELECT name || ' ' || type ||
			CASE WHEN "notnull" AND NOT pk THEN ' NOT NULL' ELSE '' END
			FROM pragma_table_info('`+table.Name+`') ORDER BY cid`)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the migrations make\n %s\nand daemon declares\n %s", table.Name,
				strings.Join(got, ", "), strings.Join(want, ", "))
		}
		checkIndexes(t, s, table)
	}
	declared := func(name string) bool {
		return slices.ContainsFunc(daemon.Tables, func(t *daemon.Table) bool { return t.Name == name })
	}
	for _, name := range queryRows(t, s, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
		if !declared(name) {
			t.Errorf("the migrations make the table %s, which daemon does not declare", name)
		}
	}
}

func checkIndexes(t *testing.T, s *Store, table *daemon.Table) {
	t.Helper()
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, ix := range table.Indexes {
		want := "CREATE "
		if ix.Unique {
			want += "UNIQUE "
		}
		want += "INDEX " + ix.Name + " ON " + table.Name + " (" + strings.Join(ix.Columns, ", ") + ")"
		if ix.Where != "" {
			want += " WHERE " + ix.Where
		}
		got := queryRows(t, s, "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = '"+ix.Name+"'")
		if len(got) != 1 || squeeze(got[0]) != squeeze(want) {
			t.Errorf("index %s: the migrations make %q, and daemon declares %q", ix.Name, got, want)
		}
	}
}

func queryRows(t *testing.T, s *Store, query string) []string {
	t.Helper()
	rows, err := s.conn.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// Raw SQL that went past Update must meet the triggers, on every guarded table
// and for every kind of write.
func TestTriggersStopRawSQLOfADeposedHolder(t *testing.T) {
	a, b := openTwo(t, Options{Memory: t.Name()})
	alpha, beta := daemon.Guard{Holder: "alpha", Epoch: 1}, daemon.Guard{Holder: "beta", Epoch: 2}
	take := func(s *Store, g daemon.Guard) {
		t.Helper()
		exec(t, s, "UPDATE serve_lease SET holder = $1, epoch = $2, state = 'held'", g.Holder, g.Epoch)
	}
	take(a, alpha)
	err := a.Update(t.Context(), alpha, func(tx daemon.Tx) error {
		j := daemon.Job{ID: "j", State: daemon.Queued, Attempt: "a"}
		return errors.Join(daemon.Jobs.Put(t.Context(), tx, j),
			daemon.Cordons.Put(t.Context(), tx, daemon.Cordon{Reason: "r"}),
			daemon.Schedules.Put(t.Context(), tx, daemon.Schedule{Name: "s"}),
			daemon.Fires.Put(t.Context(), tx, daemon.Fire{Schedule: "s"}),
			daemon.SettingRows.Put(t.Context(), tx, daemon.SettingRow{Name: "s"}),
			daemon.Happenings.Put(t.Context(), tx, daemon.Happening{Seq: 1}))
	})
	if err != nil {
		t.Fatal(err)
	}
	raw := map[string][]string{}
	for _, table := range daemon.Tables {
		if table.Guarded {
			key := table.Key[0]
			raw[table.Name] = []string{
				"DELETE FROM " + table.Name,
				"UPDATE " + table.Name + " SET " + key + " = " + key,
				"INSERT INTO " + table.Name + " SELECT * FROM " + table.Name,
			}
		}
	}
	take(b, beta)
	for name, queries := range raw {
		for _, query := range queries {
			_, err := a.conn.ExecContext(t.Context(), query)
			keeps := err != nil && strings.Contains(err.Error(), "never deleted") // the other trigger was first
			if !errors.Is(fenceError(err), daemon.ErrFenced) && !keeps {
				t.Errorf("%s: %s: got %v, want the fence", name, query, err)
			}
		}
	}
}

func exec(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	if _, err := s.conn.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// Every guarded table has its three triggers on every writing connection, and
// after a migration too.
func TestFenceIsComplete(t *testing.T) {
	s, _ := openTwo(t, Options{Memory: t.Name()})
	check := func() {
		t.Helper()
		got := queryRows(t, s, "SELECT name FROM temp.sqlite_schema WHERE type = 'trigger'")
		for _, table := range daemon.Tables {
			for _, event := range []string{"insert", "update", "delete"} {
				name := "fence_" + event + "_" + table.Name
				if slices.Contains(got, name) != table.Guarded {
					t.Errorf("trigger %s: there %v, guarded %v", name, !table.Guarded, table.Guarded)
				}
			}
		}
	}
	check()
	oldMigrations := migrations
	t.Cleanup(func() { migrations = oldMigrations })
	migrations = append(slices.Clone(migrations), migration{version: latest() + 1, minReader: 2, sql: `
		CREATE TABLE cordons2 (reason TEXT PRIMARY KEY, by_actor TEXT NOT NULL, at_ms INTEGER NOT NULL, why TEXT NOT NULL) STRICT;
		DROP TABLE cordons; ALTER TABLE cordons2 RENAME TO cordons`})
	s.current = false
	g := daemon.Guard{Holder: "alpha", Epoch: 1}
	exec(t, s, "UPDATE serve_lease SET holder = 'alpha', epoch = 1, state = 'held'")
	beats := 0
	if err := s.Migrate(t.Context(), g, func(daemon.Tx) error { beats++; return nil }); err != nil {
		t.Fatal(err)
	}
	if beats != 1 {
		t.Errorf("the lease was renewed in %d of 1 migrations", beats)
	}
	check()
}

func TestMigrateIsFencedAndWhole(t *testing.T) {
	s, _ := openTwo(t, Options{Memory: t.Name()})
	old := migrations
	t.Cleanup(func() { migrations = old })
	migrations = append(slices.Clone(migrations), migration{version: latest() + 1, minReader: 1,
		sql: "CREATE TABLE later (x TEXT) STRICT; CREATE TABLE meta (y TEXT)"}) // fails at its second statement
	s.current = false
	beat := func(daemon.Tx) error { return nil }
	if err := s.Migrate(t.Context(), daemon.Guard{Holder: "nobody", Epoch: 1}, beat); !errors.Is(err, daemon.ErrFenced) {
		t.Errorf("without the lease: got %v, want ErrFenced", err)
	}
	exec(t, s, "UPDATE serve_lease SET holder = 'alpha', epoch = 1, state = 'held'")
	if err := s.Migrate(t.Context(), daemon.Guard{Holder: "alpha", Epoch: 1}, beat); err == nil {
		t.Error("a migration that cannot be applied was")
	}
	if n := queryRows(t, s, "SELECT name FROM sqlite_schema WHERE name = 'later'"); len(n) != 0 {
		t.Error("a failed migration left a table")
	}
	if v, _ := schemaVersion(t.Context(), s.conn); v != len(old) {
		t.Errorf("schema %d after a failed migration", v)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) string {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	made := func(name string, change string) string {
		anchor, err := Create(t.Context(), Options{Path: path(name)}, storetest.Seed)
		if err != nil {
			t.Fatal(err)
		}
		anchor.Close()
		db, err := sql.Open("sqlite", path(name))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(change); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	tests := []struct{ name, path, want string }{
		{"missing", path("none.db"), "no store at"},
		{"a directory", dir, "is not a file"},
		{"text", write("text.db", strings.Repeat("this is no database\n", 500)), "is damaged, or no exocomp store"},
		{"empty", write("empty.db", ""), "no exocomp store"},
		{"somebody else's", made("other.db", "DROP TABLE meta"), "no exocomp store"},
		{"newer", made("newer.db", "UPDATE meta SET value = '99' WHERE name = 'schema_version'"), "schema 99"},
	}
	for _, tt := range tests {
		_, err := Open(t.Context(), Options{Path: tt.path})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if daemon.CodeOf(err) != daemon.BadConfig || daemon.RemedyOf(err) == "" {
			t.Errorf("%s: code %s, remedy %q", tt.name, daemon.CodeOf(err), daemon.RemedyOf(err))
		}
	}
}

func TestCreateDoesNotTouchWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), Options{Path: path}, storetest.Seed); err == nil {
		t.Error("an existing file was taken for a new one")
	}
	if got, _ := os.ReadFile(path); string(got) != "mine" {
		t.Error("it was changed")
	}
}

// The file alone must be the whole store: it is copied, linked and backed up.
func TestACreatedOrClosedStoreIsOneFile(t *testing.T) {
	for _, shared := range []bool{false, true} {
		isOneFile(t, shared)
	}
}

func isOneFile(t *testing.T, shared bool) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Path: filepath.Join(dir, "x.db"), Shared: shared}
	anchor, err := Create(t.Context(), o, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	anchor.Close()
	check := func(when string) {
		t.Helper()
		entries, _ := os.ReadDir(dir)
		if len(entries) != 1 {
			t.Errorf("%s: %v", when, entries)
		}
	}
	check("created")
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, s, "UPDATE serve_lease SET host = 'alpha'")
	if err := s.View(t.Context(), func(r daemon.Reader) error {
		row, _, err := daemon.Leases.Get(t.Context(), r, 1)
		if row.Host != "alpha" {
			t.Errorf("host %q", row.Host)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed")
}

func TestCreateLeavesNothingWhenTheSeedFails(t *testing.T) {
	dir := t.TempDir()
	sick := errors.New("sick")
	_, err := Create(t.Context(), Options{Path: filepath.Join(dir, "x.db")}, func(daemon.Tx) error { return sick })
	if !errors.Is(err, sick) {
		t.Fatalf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReadOnlyDoesNotWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	openTwo(t, Options{Path: path})
	s := mustOpen(t, Options{Path: path, ReadOnly: true})
	err := s.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error {
		_, err := daemon.Inboxes.Insert(t.Context(), tx, daemon.InboxRow{ID: "x"})
		return err
	})
	if err == nil {
		t.Error("a read-only store was written")
	}
}

func TestABusyStoreGivesUp(t *testing.T) {
	a, b := openTwo(t, Options{Path: filepath.Join(t.TempDir(), "x.db")})
	exec(t, b, "BEGIN IMMEDIATE")
	err := a.Update(t.Context(), daemon.Guard{}, func(daemon.Tx) error { return nil })
	if code(err) != sqliteBusy {
		t.Errorf("got %v, want busy", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Update(ctx, daemon.Guard{}, func(daemon.Tx) error { return nil }); err == nil {
		t.Error("an Update with an ended context succeeded")
	}
	exec(t, b, "ROLLBACK")
	if err := a.Update(t.Context(), daemon.Guard{}, func(daemon.Tx) error { return nil }); err != nil {
		t.Errorf("after the lock is free: %v", err)
	}
}
