package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"

	"github.com/exocomp/exocomp/daemon"
)

// A store has one of two journals, and the file says which:
//   - A write-ahead log, where readers and the writer never wait for each other.
//     It needs memory that all processes share, so one host only opens the file.
//   - A rollback journal, for a file that several hosts open (--shared-store). It
//     needs nothing but locks that work between them.
//
// Who serves says which one it wants and is refused the other: the journal is
// not switched under somebody who has the file open, and before the lease nothing
// is changed (L18). Who only looks, or leaves a row in the inbox, takes what there
// is.

// Shared says whether the store has a rollback journal.
func (s *Store) Shared() bool { return s.shared }

// journal finds out which journal the file has, and refuses the wrong one.
func (s *Store) journal(ctx context.Context) (err error) {
	if s.opts.Memory != "" {
		return nil
	}
	s.shared, err = rollbackJournal(ctx, s.conn)
	switch {
	case err != nil || s.opts.ReadOnly || s.opts.Follow || s.shared == s.opts.Shared:
		return err
	case s.shared:
		return daemon.Errorf(daemon.BadConfig, "the store %s is a shared one, with a rollback journal, "+
			"and this daemon was started without --shared-store", s.opts.Path).
			Hint("start it with --shared-store. For one host only, convert the store while no daemon runs: " +
				"exocomp init --shared-store=false")
	}
	return daemon.Errorf(daemon.BadConfig, "the store %s has a write-ahead log, which works on one host only, "+
		"and this daemon was started with --shared-store", s.opts.Path).
		Hint("convert the store while no daemon runs: exocomp init --shared-store. For one host only, leave out --shared-store")
}

// sameJournal says whether the file still has the journal that it was opened
// with. With a rollback journal nobody who is idle holds a lock that would keep
// another program from switching. The caller holds mu, and has read something:
// a connection learns of a switch by reading.
func (s *Store) sameJournal(ctx context.Context) error {
	if s.opts.Memory != "" {
		return nil
	}
	stmt, err := s.prepare(ctx, journalMode)
	var mode string
	if err == nil {
		err = stmt.QueryRowContext(ctx).Scan(&mode)
	}
	if err != nil {
		return fmt.Errorf("read the journal mode: %w", err)
	}
	if (mode != "wal") != s.shared {
		return daemon.Errorf(daemon.StoodDown, "the journal of the store %s was switched to %q while it was served", s.opts.Path, mode).
			Hint("find out who did that, and convert it back while no daemon runs: exocomp init --shared-store=%t", s.shared)
	}
	return nil
}

const journalMode = "PRAGMA journal_mode"

func rollbackJournal(ctx context.Context, conn *sql.Conn) (bool, error) {
	var mode string
	if err := conn.QueryRowContext(ctx, journalMode).Scan(&mode); err != nil {
		return false, fmt.Errorf("read the journal mode: %w", err)
	}
	return mode != "wal", nil
}

// setJournal switches the file. SQLite folds a write-ahead log back first.
func setJournal(ctx context.Context, conn *sql.Conn, shared bool) error {
	want, got := "wal", ""
	if shared {
		want = "delete"
	}
	if err := conn.QueryRowContext(ctx, journalMode+" = "+want).Scan(&got); err != nil {
		return fmt.Errorf("set the journal mode: %w", err)
	}
	if got != want {
		return fmt.Errorf("set the journal mode to %s: it stays %s", want, got)
	}
	return nil
}

// hotJournal says that a reader found a commit that was cut off, which only
// somebody who may write can roll back.
func hotJournal(err error) bool {
	const readonlyRollback = sqliteReadonly | 3<<8
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == readonlyRollback
}

// JournalOf says whether the store at path has a rollback journal.
func JournalOf(ctx context.Context, path string) (shared bool, err error) {
	s, err := Open(ctx, Options{Path: path, ReadOnly: true})
	if err != nil {
		return false, err
	}
	return s.shared, s.Close()
}

// Convert gives the store at path the journal for many hosts, or for one. It
// refuses while a daemon holds the lease, and while anybody uses the file: it has
// the file alone from the look at the lease to the end. changed is false when the
// store had that journal before.
func Convert(ctx context.Context, path string, shared bool) (changed bool, err error) {
	o := Options{Path: path, Busy: 250 * time.Millisecond}
	if _, err := o.exists(); err != nil {
		return false, err
	}
	db, err := o.connect(exclusive)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	changed, err = convert(ctx, db, shared)
	if err != nil {
		return false, o.explain(err)
	}
	return changed, nil
}

func convert(ctx context.Context, db *sql.DB, shared bool) (changed bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	version, err := schemaVersion(ctx, conn)
	if err != nil {
		return false, err
	}
	if version > latest() {
		return false, newerSchema(version)
	}
	was, err := rollbackJournal(ctx, conn)
	if err != nil || was == shared {
		return false, err
	}
	if err := unheld(ctx, conn); err != nil {
		return false, err
	}
	return true, setJournal(ctx, conn, shared)
}

// unheld takes the file's lock, which an exclusive connection then keeps, and
// looks at the lease.
func unheld(ctx context.Context, conn *sql.Conn) error {
	exclusively, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer exclusively.Rollback()
	if _, err := exclusively.ExecContext(ctx, "UPDATE meta SET value = value WHERE name = $1", metaSchema); err != nil {
		return err
	}
	row, found, err := daemon.Leases.Get(ctx, &tx{run: direct{exclusively}}, 1)
	if err != nil {
		return err
	}
	if found && row.State == daemon.LeaseHeld {
		return daemon.Errorf(daemon.Held, "the store is not converted while its lease is held: by %s on host %s (pid %d, epoch %d)",
			row.Holder, row.Host, row.PID, row.Epoch).
			Hint("stop that daemon. If it is gone without a release, start one there as before, and stop it")
	}
	return exclusively.Commit()
}
