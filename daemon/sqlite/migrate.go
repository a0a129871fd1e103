package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/exocomp/exocomp/daemon"
)

// Migrations go forward only. Each runs in one transaction, with the fence armed
// and the lease renewed inside it, and says from which schema on a binary can
// still read what it leaves.

//go:embed migrations/*.sql
var files embed.FS

type migration struct {
	version   int
	minReader int // oldest binary, by the schema it knows, that may still serve
	sql       string
}

// minReaders has an entry for each file in migrations.
var minReaders = []int{1, 2, 2}

// known returns the migrations in order.
func known() []migration {
	entries, err := files.ReadDir("migrations")
	if err != nil {
		panic(err)
	}
	var out []migration
	for i, e := range entries {
		text, err := files.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		if version, err := strconv.Atoi(e.Name()[:4]); err != nil || version != i+1 {
			panic("migrations are numbered from 0001 without a gap: " + e.Name())
		}
		out = append(out, migration{version: i + 1, minReader: minReaders[i], sql: string(text)})
	}
	return out
}

// migrations is a variable so that a test can add one to come.
var migrations = known()

// latest is the newest schema that this binary knows.
func latest() int { return migrations[len(migrations)-1].version }

// The rows of meta that migrations write.
const (
	metaSchema    = "schema_version"
	metaMinReader = "min_reader"
)

// schemaVersion reads the version of an open database.
func schemaVersion(ctx context.Context, conn *sql.Conn) (int, error) {
	var tables int
	err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").Scan(&tables)
	if err != nil {
		return 0, err
	}
	if tables == 0 {
		return 0, daemon.Errorf(daemon.BadConfig, "the file is a SQLite database, but no exocomp store").
			Hint("name the data directory that exocomp init made")
	}
	var text string
	if err := conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", metaSchema).Scan(&text); err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return strconv.Atoi(text)
}

// Migrate implements daemon.Store.
func (s *Store) Migrate(ctx context.Context, g daemon.Guard, beat func(daemon.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current {
		return nil
	}
	version, err := schemaVersion(ctx, s.conn)
	if err != nil {
		return err
	}
	if err := s.fence(ctx, g); err != nil {
		return err
	}
	for _, m := range migrations[min(version, len(migrations)):] {
		err := s.transact(ctx, func() error {
			t := &tx{run: prepared{s}}
			if err := t.holds(ctx, g); err != nil {
				return err
			}
			if err := beat(t); err != nil {
				return err
			}
			return apply(ctx, s.conn, m)
		})
		if err != nil {
			return fmt.Errorf("migrate to schema %d: %w", m.version, err)
		}
	}
	s.current = true
	return installFence(ctx, s.conn)
}

// apply runs one migration in the transaction that is open on conn.
func apply(ctx context.Context, conn *sql.Conn, m migration) error {
	if _, err := conn.ExecContext(ctx, m.sql); err != nil {
		return err
	}
	for _, row := range []struct {
		name string
		n    int
	}{{metaSchema, m.version}, {metaMinReader, m.minReader}} {
		_, err := conn.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) "+
			"ON CONFLICT (name) DO UPDATE SET value = excluded.value", row.name, strconv.Itoa(row.n))
		if err != nil {
			return err
		}
	}
	return nil
}

// Create makes a new database and runs seed in it. The file must not be there;
// after an error it is not. A database in memory lives until the closer that is
// returned, and every Store on it, are closed.
func Create(ctx context.Context, o Options, seed func(daemon.Tx) error) (io.Closer, error) {
	if o.Path != "" {
		f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("create the store: %w", err)
		}
		f.Close() // nothing was written
	}
	db, err := o.create(ctx, seed)
	if err != nil && o.Path != "" {
		err = errors.Join(err, removeAll(o.Path))
	}
	if err != nil {
		return nil, fmt.Errorf("create the store: %w", err)
	}
	return db, nil
}

// removeAll removes a database and what SQLite keeps beside it.
func removeAll(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (o Options) create(ctx context.Context, seed func(daemon.Tx) error) (db *sql.DB, err error) {
	if db, err = o.connect(readWrite); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if o.Memory == "" && !o.Shared {
		if err := setJournal(ctx, conn, false); err != nil {
			return nil, err
		}
	}
	s := &Store{opts: o, conn: conn, stmts: map[string]*sql.Stmt{}}
	defer func() { err = errors.Join(err, s.closeStatements()) }()
	return db, s.transact(ctx, func() error {
		for _, m := range migrations {
			if err := apply(ctx, conn, m); err != nil {
				return err
			}
		}
		return seed(&tx{run: prepared{s}})
	})
}
