package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/exocomp/exocomp/daemon"
)

// The fence. Every guarded Update compares its guard with the lease row, in the
// transaction that writes. Behind that stand TEMP triggers on the writing
// connection, made from the declarations: they stop a statement that somebody
// writes one day past Update. They cannot be left out, since a connection
// without them is never handed out, and they cost nothing to other programs,
// which do not see them.
//
// DROP TABLE takes a table's triggers with it: they are installed again after
// every migration.

const fencedMessage = "exocomp: fenced"

// installFence makes temp.fence and the triggers of every declared table that
// exists in the file.
func installFence(ctx context.Context, conn *sql.Conn) error {
	run := func(query string) error {
		if _, err := conn.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("install the fence: %w", err)
		}
		return nil
	}
	if err := run("CREATE TEMP TABLE IF NOT EXISTS fence (holder TEXT, epoch INTEGER)"); err != nil {
		return err
	}
	for _, t := range daemon.Tables {
		var n int
		err := conn.QueryRowContext(ctx,
			"SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = $1", t.Name).Scan(&n)
		if err != nil {
			return fmt.Errorf("install the fence: %w", err)
		}
		if n == 0 {
			continue // an older schema; its migration comes
		}
		for _, query := range triggers(t) {
			if err := run(query); err != nil {
				return err
			}
		}
	}
	return nil
}

// triggers returns the statements that guard t.
func triggers(t *daemon.Table) []string {
	var out []string
	add := func(name, event, when, message string) {
		out = append(out, fmt.Sprintf("CREATE TEMP TRIGGER IF NOT EXISTS %s_%s BEFORE %s ON main.%s%s "+
			"BEGIN SELECT RAISE(ABORT, '%s'); END", name, t.Name, event, t.Name, when, message))
	}
	if t.Guarded {
		const when = " WHEN NOT EXISTS (SELECT 1 FROM main.serve_lease AS l JOIN temp.fence AS f" +
			" ON l.holder = f.holder AND l.epoch = f.epoch WHERE l.state = 'held')"
		add("fence_insert", "INSERT", when, fencedMessage)
		add("fence_update", "UPDATE", when, fencedMessage)
		add("fence_delete", "DELETE", when, fencedMessage)
	}
	if len(t.Terminal) > 0 {
		add("terminal", "UPDATE", fmt.Sprintf(" WHEN OLD.state IN ('%s')", strings.Join(t.Terminal, "', '")),
			"exocomp: a terminal row of "+t.Name+" never changes")
	}
	if t.Kept {
		add("kept", "DELETE", "", "exocomp: rows of "+t.Name+" are never deleted")
	}
	return out
}

// fence writes the guard where the triggers look. The caller holds mu.
func (s *Store) fence(ctx context.Context, g daemon.Guard) error {
	if s.fenced == g {
		return nil
	}
	if s.opts.ReadOnly {
		return daemon.Errorf(daemon.Unavailable, "the store %s is open for reading only", s.opts.name())
	}
	if err := s.exec(ctx, "DELETE FROM temp.fence"); err != nil {
		return err
	}
	s.fenced = daemon.Guard{}
	if g == (daemon.Guard{}) {
		return nil
	}
	stmt, err := s.prepare(ctx, "INSERT INTO temp.fence VALUES ($1, $2)")
	if err != nil {
		return err
	}
	if _, err := stmt.ExecContext(ctx, g.Holder, g.Epoch); err != nil {
		return err
	}
	s.fenced = g
	return nil
}

// holds compares g with the lease row, inside the transaction.
func (t *tx) holds(ctx context.Context, g daemon.Guard) error {
	if g == (daemon.Guard{}) {
		return nil
	}
	var holder, state string
	var epoch int64
	row, err := t.run.queryRow(ctx, "SELECT holder, epoch, state FROM serve_lease WHERE id = 1")
	if err == nil {
		err = row.Scan(&holder, &epoch, &state)
	}
	switch {
	case err != nil:
		return fmt.Errorf("check the epoch: %w", err)
	case holder != g.Holder || epoch != g.Epoch || state != string(daemon.LeaseHeld):
		return daemon.ErrFenced
	}
	return nil
}

// fenceError makes ErrFenced of what a trigger said.
func fenceError(err error) error {
	if err != nil && code(err) == sqliteConstraint && strings.Contains(err.Error(), fencedMessage) {
		return fmt.Errorf("%w (%w)", daemon.ErrFenced, err)
	}
	return err
}

const sqliteConstraint = 19
