package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/exocomp/exocomp/daemon"
)

var _ daemon.Tx = (*tx)(nil)

// tx is a daemon.Tx, and the Reader of a View. All its SQL is derived from the
// declarations, with $N parameters, so that another store can speak it too.
type tx struct{ run runner }

// runner runs statements: prepared ones on the writing connection, others as
// they come on a reading one.
type runner interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	queryRow(ctx context.Context, query string, args ...any) (*sql.Row, error)
	exec(ctx context.Context, query string, args ...any) (int64, error)
}

type direct struct{ tx *sql.Tx }

func (d direct) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.tx.QueryContext(ctx, query, args...)
}

func (d direct) queryRow(ctx context.Context, query string, args ...any) (*sql.Row, error) {
	return d.tx.QueryRowContext(ctx, query, args...), nil
}

func (d direct) exec(context.Context, string, ...any) (int64, error) {
	return 0, errors.New("a View does not write")
}

type prepared struct{ s *Store }

func (p prepared) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := p.s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (p prepared) queryRow(ctx context.Context, query string, args ...any) (*sql.Row, error) {
	stmt, err := p.s.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryRowContext(ctx, args...), nil
}

func (p prepared) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := p.s.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// texts are the statements of one table.
type texts struct{ get, insert, put, del string }

var textOf sync.Map // *daemon.Table -> texts

func textsOf(t *daemon.Table) texts {
	if got, ok := textOf.Load(t); ok {
		return got.(texts)
	}
	var marks, sets []string
	for i, c := range t.Columns {
		marks = append(marks, fmt.Sprintf("$%d", i+1))
		if !slices.Contains(t.Key, c.Name) {
			sets = append(sets, c.Name+" = excluded."+c.Name)
		}
	}
	insert := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", t.Name, t.ColumnList(), strings.Join(marks, ", "))
	where := equal(t.Key, 1)
	x := texts{
		get:    fmt.Sprintf("SELECT %s FROM %s WHERE %s", t.ColumnList(), t.Name, where),
		insert: insert + " ON CONFLICT DO NOTHING",
		put:    fmt.Sprintf("%s ON CONFLICT (%s) DO UPDATE SET %s", insert, strings.Join(t.Key, ", "), strings.Join(sets, ", ")),
		del:    fmt.Sprintf("DELETE FROM %s WHERE %s", t.Name, where),
	}
	textOf.Store(t, x)
	return x
}

// equal returns "a = $n AND b = $n+1".
func equal(columns []string, n int) string {
	terms := make([]string, len(columns))
	for i, c := range columns {
		terms[i] = fmt.Sprintf("%s = $%d", c, n+i)
	}
	return strings.Join(terms, " AND ")
}

// Get implements daemon.Reader.
func (x *tx) Get(ctx context.Context, t *daemon.Table, row any, key []any) (bool, error) {
	found := false
	err := x.scan(ctx, t, textsOf(t).get, key, func() any { return row }, func(any) error {
		found = true
		return nil
	})
	return found, err
}

// Scan implements daemon.Reader.
func (x *tx) Scan(ctx context.Context, t *daemon.Table, q daemon.Query, yield func(any) error) error {
	where, order, args := clauses(t, q)
	query := fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d", t.ColumnList(), t.Name, where, order, q.Limit)
	return x.scan(ctx, t, query, args, t.New, yield)
}

// Count implements daemon.Reader.
func (x *tx) Count(ctx context.Context, t *daemon.Table, q daemon.Query) (int, error) {
	where, _, args := clauses(t, q)
	query := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s%s LIMIT %d)", t.Name, where, q.Limit)
	n := 0
	row, err := x.run.queryRow(ctx, query, args...)
	if err == nil {
		err = row.Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", t.Name, err)
	}
	return n, nil
}

// clauses returns WHERE and ORDER BY of q.
func clauses(t *daemon.Table, q daemon.Query) (where, order string, args []any) {
	if q.Limit <= 0 {
		panic(fmt.Sprintf("query on %s without a limit", t.Name))
	}
	ix := t.Index(q.By)
	var terms []string
	if ix.Where != "" {
		terms = append(terms, ix.Where)
	}
	if n := len(q.Equal); n > 0 {
		terms = append(terms, equal(ix.Columns[:n], 1))
		args = append(args, q.Equal...)
	}
	rest := ix.Columns[len(q.Equal):]
	if n := len(q.After); n > 0 {
		op := ">"
		if q.Desc {
			op = "<"
		}
		marks := make([]string, n)
		for i := range marks {
			marks[i] = fmt.Sprintf("$%d", len(args)+1+i)
		}
		terms = append(terms, fmt.Sprintf("(%s) %s (%s)", strings.Join(rest[:n], ", "), op, strings.Join(marks, ", ")))
		args = append(args, q.After...)
	}
	if len(terms) > 0 {
		where = " WHERE " + strings.Join(terms, " AND ")
	}
	if len(rest) == 0 {
		rest = ix.Columns
	}
	order = strings.Join(rest, ", ")
	if q.Desc {
		order = strings.Join(rest, " DESC, ") + " DESC"
	}
	return where, order, args
}

// scan runs query and yields each row.
func (x *tx) scan(ctx context.Context, t *daemon.Table, query string, args []any,
	fresh func() any, yield func(any) error) error {
	rows, err := x.run.query(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.Name, err)
	}
	defer rows.Close() // an unclosed one pins the WAL
	values := make([]any, len(t.Columns))
	ptrs := make([]any, len(values))
	for i := range values {
		ptrs[i] = &values[i]
	}
	for rows.Next() {
		row := fresh()
		if err := rows.Scan(ptrs...); err != nil {
			return fmt.Errorf("read %s: %w", t.Name, err)
		}
		if err := t.Fill(row, values); err != nil {
			return err
		}
		if err := yield(row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", t.Name, err)
	}
	return nil
}

// Claimable implements daemon.Reader.
func (x *tx) Claimable(ctx context.Context, heirs bool, limit int) ([]daemon.Job, error) {
	const live = "(SELECT 1 FROM jobs AS l WHERE l.%s = jobs.%s AND l.state IN ('starting', 'running', 'cancelling')%s)"
	query := "SELECT " + daemon.Jobs.ColumnList() + " FROM jobs WHERE state = 'queued' AND (lock_key = '' OR NOT EXISTS " +
		fmt.Sprintf(live, "lock_key", "lock_key", " AND l.lock_key <> ''") + ")"
	if heirs {
		query += " AND parent_id <> '' AND EXISTS " + fmt.Sprintf(live, "id", "parent_id", "")
	}
	query += fmt.Sprintf(" ORDER BY priority DESC, number LIMIT %d", limit)
	var jobs []daemon.Job
	err := x.scan(ctx, daemon.Jobs.Table, query, nil, daemon.Jobs.New, func(row any) error {
		jobs = append(jobs, *row.(*daemon.Job))
		return nil
	})
	return jobs, err
}

// Insert implements daemon.Tx.
func (x *tx) Insert(ctx context.Context, t *daemon.Table, row any) (bool, error) {
	n, err := x.write(ctx, t, textsOf(t).insert, row)
	return n > 0, err
}

// Put implements daemon.Tx.
func (x *tx) Put(ctx context.Context, t *daemon.Table, row any) error {
	_, err := x.write(ctx, t, textsOf(t).put, row)
	return err
}

func (x *tx) write(ctx context.Context, t *daemon.Table, query string, row any) (int64, error) {
	values, err := t.Values(row)
	if err != nil {
		return 0, err
	}
	n, err := x.run.exec(ctx, query, values...)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", t.Name, err)
	}
	return n, nil
}

// Delete implements daemon.Tx.
func (x *tx) Delete(ctx context.Context, t *daemon.Table, key []any) error {
	if _, err := x.run.exec(ctx, textsOf(t).del, key...); err != nil {
		return fmt.Errorf("delete from %s: %w", t.Name, err)
	}
	return nil
}
