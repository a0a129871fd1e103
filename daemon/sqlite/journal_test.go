package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon"
	"github.com/exocomp/exocomp/daemon/storetest"
)

func create(t *testing.T, shared bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	anchor, err := Create(t.Context(), Options{Path: path, Shared: shared}, storetest.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := anchor.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantJournal(t *testing.T, path string, shared bool) {
	t.Helper()
	if got, err := JournalOf(t.Context(), path); err != nil || got != shared {
		t.Errorf("the store is shared: %v (%v), want %v", got, err, shared)
	}
}

func TestAStoreIsServedWithTheJournalItHasOrNotAtAll(t *testing.T) {
	for _, shared := range []bool{false, true} {
		path := create(t, shared)
		_, err := Open(t.Context(), Options{Path: path, Shared: !shared})
		if daemon.CodeOf(err) != daemon.BadConfig || !strings.Contains(daemon.RemedyOf(err), "exocomp init --shared-store") {
			t.Errorf("shared %v, opened as the other: %v, remedy %q", shared, err, daemon.RemedyOf(err))
		}
		wantJournal(t, path, shared)
		for _, o := range []Options{{Shared: shared}, {Follow: true}, {ReadOnly: true}, {ReadOnly: true, Shared: !shared}} {
			o.Path = path
			s := mustOpen(t, o)
			if s.Shared() != shared {
				t.Errorf("%+v: shared %v", o, s.Shared())
			}
			s.Close()
		}
	}
}

func TestASharedStoreHasNoSharedMemoryAndSyncsItsCommits(t *testing.T) {
	path := create(t, true)
	s := mustOpen(t, Options{Path: path, Shared: true})
	inbox(t, s, "x", 1)
	if err := s.View(t.Context(), func(daemon.Reader) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if _, err := os.Stat(path + suffix); err == nil {
			t.Errorf("there is a %s", suffix)
		}
	}
	for pragma, want := range map[string]string{"synchronous": "3", "journal_mode": "delete"} {
		if got := queryRows(t, s, "PRAGMA "+pragma); got[0] != want {
			t.Errorf("%s is %s, want %s", pragma, got[0], want)
		}
	}
}

// inbox writes a row of so many bytes.
func inbox(t *testing.T, s *Store, id string, size int) {
	t.Helper()
	if err := submit(t, s, id, size); err != nil {
		t.Fatal(err)
	}
}

func submit(t *testing.T, s *Store, id string, size int) error {
	return s.Update(t.Context(), daemon.Guard{}, func(tx daemon.Tx) error {
		_, err := daemon.Inboxes.Insert(t.Context(), tx, daemon.InboxRow{ID: id, Payload: make([]byte, size)})
		return err
	})
}

func waiting(t *testing.T, s *Store) (n int) {
	t.Helper()
	err := s.View(t.Context(), func(r daemon.Reader) (err error) {
		n, err = daemon.Inboxes.Count(t.Context(), r, daemon.Query{Limit: 1000})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConvertKeepsWhatIsThere(t *testing.T) {
	path := create(t, false)
	shared := false
	for i, to := range []bool{true, true, false, false} {
		s := mustOpen(t, Options{Path: path, Shared: shared})
		inbox(t, s, string(rune('a'+i)), 100_000)
		s.Close()
		changed, err := Convert(t.Context(), path, to)
		if err != nil || changed != (to != shared) {
			t.Fatalf("%v to %v: changed %v, %v", shared, to, changed, err)
		}
		shared = to
		wantJournal(t, path, shared)
		s = mustOpen(t, Options{Path: path, Shared: shared})
		if n := waiting(t, s); n != i+1 {
			t.Errorf("%d rows, want %d", n, i+1)
		}
		s.Close()
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
			t.Errorf("left beside the file: %v", left)
		}
	}
}

// The log of a daemon that was killed is folded back, not lost.
func TestConvertFoldsALogBack(t *testing.T) {
	path := create(t, false)
	s := mustOpen(t, Options{Path: path})
	inbox(t, s, "x", 100)
	dead := snapshot(t, path)
	if changed, err := Convert(t.Context(), dead, true); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if n := waiting(t, mustOpen(t, Options{Path: dead, Shared: true})); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// snapshot copies a store as a crash would leave it. It drops the locks of this
// process, which matters to nobody in these tests.
func snapshot(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "x.db")
	for _, suffix := range []string{"", "-wal", "-journal"} {
		text, err := os.ReadFile(path + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestConvertRefusesWhileSomebodyHasTheStore(t *testing.T) {
	for _, shared := range []bool{false, true} {
		path := create(t, shared)
		s := mustOpen(t, Options{Path: path, Shared: shared})
		refused := func(want string) {
			t.Helper()
			changed, err := Convert(t.Context(), path, !shared)
			if changed || daemon.CodeOf(err) != daemon.Held || !strings.Contains(err.Error(), want) || daemon.RemedyOf(err) == "" {
				t.Errorf("shared %v: changed %v, %v; want %q", shared, changed, err, want)
			}
			wantJournal(t, path, shared)
		}
		exec(t, s, "BEGIN IMMEDIATE")
		refused("locked by another process")
		exec(t, s, "ROLLBACK")
		exec(t, s, "UPDATE serve_lease SET holder = 'alpha-1', host = 'alpha', epoch = 7, state = 'held'")
		s.Close()
		refused("held: by alpha-1 on host alpha (pid 0, epoch 7)")
	}
}

func TestConvertRefusesWhatOpenRefuses(t *testing.T) {
	if _, err := Convert(t.Context(), filepath.Join(t.TempDir(), "none.db"), true); daemon.CodeOf(err) != daemon.BadConfig {
		t.Errorf("missing: %v", err)
	}
	path := create(t, false)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE meta SET value = '99' WHERE name = 'schema_version'"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := Convert(t.Context(), path, true); err == nil || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("newer: %v", err)
	}
}

// With a rollback journal who is idle holds no lock that keeps others from
// switching; the next renewal must notice.
func TestASwitchOfTheJournalUnderADaemonIsSeen(t *testing.T) {
	path := create(t, true)
	s := mustOpen(t, Options{Path: path, Shared: true})
	if err := s.Usable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changed, err := Convert(t.Context(), path, false); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	err := s.Usable(t.Context())
	if daemon.CodeOf(err) != daemon.StoodDown || !strings.Contains(err.Error(), `switched to "wal"`) {
		t.Errorf("got %v", err)
	}
}

func TestAnOpenReadBlocksTheCommitsOfASharedStore(t *testing.T) {
	a, b := openTwo(t, Options{Path: filepath.Join(t.TempDir(), "x.db"), Shared: true})
	err := b.View(t.Context(), func(r daemon.Reader) error {
		_, _, err := daemon.Leases.Get(t.Context(), r, 1)
		if err := submit(t, a, "x", 1); code(err) != sqliteBusy {
			t.Errorf("a commit beside an open read: %v, want busy", err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := waiting(t, b); n != 0 {
		t.Error("the commit that was refused is there")
	}
	inbox(t, a, "x", 1)
}

func TestAReadThatLastsTooLongIsCutOff(t *testing.T) {
	a, b := openTwo(t, Options{Path: filepath.Join(t.TempDir(), "x.db"), Shared: true})
	b.limit = time.Millisecond
	for began := false; !began; { // a busy machine may use the millisecond up before
		err := b.View(t.Context(), func(r daemon.Reader) (err error) {
			began = true
			for err == nil { // a reader that never lets go
				_, _, err = daemon.Leases.Get(t.Context(), r, 1)
			}
			inbox(t, a, "x", 1) // the snapshot is gone, though the function goes on
			return err
		})
		if daemon.CodeOf(err) != daemon.TimedOut {
			t.Fatalf("got %v", err)
		}
	}
	b.limit = sharedViewLimit
	if n := waiting(t, b); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// A daemon that was killed in a commit leaves a journal that the next to read
// must roll back. That may be somebody who only looks.
func TestWhoeverReadsRollsACutOffCommitBack(t *testing.T) {
	path := create(t, true)
	s := mustOpen(t, Options{Path: path, Shared: true})
	exec(t, s, "PRAGMA cache_size = 1") // so that pages are written before the commit
	exec(t, s, "BEGIN IMMEDIATE")
	for i := range 50 {
		exec(t, s, "INSERT INTO inbox (id, verb, payload, actor, at_ms) VALUES ($1, '', zeroblob(5000), '', 0)", i)
	}
	for _, o := range []Options{{ReadOnly: true}, {Shared: true}, {Follow: true}} {
		o.Path = snapshot(t, path)
		if info, err := os.Stat(o.Path + "-journal"); err != nil || info.Size() == 0 {
			t.Fatal("the commit was not cut off")
		}
		if n := waiting(t, mustOpen(t, o)); n != 0 {
			t.Errorf("%+v: %d rows of a commit that was cut off", o, n)
		}
	}
	// And while a daemon serves: its readers do it, too.
	other := mustOpen(t, Options{Path: snapshot(t, create(t, true)), Shared: true})
	dead := snapshot(t, path)
	for _, suffix := range []string{"", "-journal"} {
		text, err := os.ReadFile(dead + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other.opts.Path+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := waiting(t, other); n != 0 {
		t.Errorf("%d rows of a commit that was cut off", n)
	}
}
