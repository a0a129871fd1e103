// Package sqlite keeps a daemon's tables in one SQLite file.
//
// Rules of this package:
//   - busy_timeout comes first among the pragmas: without it the others fail on a
//     busy file.
//   - Every writer begins IMMEDIATE. A deferred transaction that reads and then
//     writes is refused at once when somebody else wrote in between, whatever the
//     timeout.
//   - There is one writing connection and a small pool of read-only ones.
//   - Nothing opens the file but SQLite: closing any other descriptor of it would
//     drop SQLite's locks.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/exocomp/exocomp/daemon"
)

var _ daemon.AloneStore = (*Store)(nil)

// Options say which database, and how.
type Options struct {
	Path     string        // of the file; or
	Memory   string        // name of an in-memory database of this process, which ends with its last handle
	Busy     time.Duration // how long to wait for the write lock of another handle; default 2 s
	ReadOnly bool          // Update fails
	Shared   bool          // the file has a rollback journal, so that several hosts may open it
	Follow   bool          // take whichever journal the file has; ReadOnly does so too
}

// Store is a daemon.Store over one database. It is safe for concurrent use;
// Updates wait for each other.
type Store struct {
	opts    Options
	file    os.FileInfo // of the path, as it was opened
	writers *sql.DB
	readers *sql.DB

	mu      sync.Mutex
	conn    *sql.Conn // the writing connection
	stmts   map[string]*sql.Stmt
	fenced  daemon.Guard  // what stands in temp.fence of conn
	current bool          // the schema is the newest that this binary knows
	shared  bool          // the file has a rollback journal
	limit   time.Duration // of a View
}

// Open opens a database that Create made. It refuses one with a schema that is
// newer than this binary, with the other journal, or that is no such database.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Busy == 0 {
		o.Busy = 2 * time.Second
	}
	file, err := o.exists()
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, file: file, stmts: map[string]*sql.Stmt{}}
	err = s.open(ctx)
	if err != nil {
		s.Close()
		return nil, o.explain(err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	err := s.openWriter(ctx)
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, s.conn)
	if err != nil {
		return err
	}
	if version > latest() {
		return newerSchema(version)
	}
	s.current = version == latest()
	if err := s.journal(ctx); err != nil {
		return err
	}
	if err := s.openReaders(); err != nil || s.opts.ReadOnly {
		return err
	}
	if err := s.opts.sameFile(s.file); err != nil {
		return err
	}
	if err := s.writable(ctx); err != nil {
		return err
	}
	return installFence(ctx, s.conn)
}

func (s *Store) openWriter(ctx context.Context) (err error) {
	as := readWrite
	if s.opts.ReadOnly {
		as = readOnly
	}
	if s.writers, err = s.opts.connect(as); err != nil {
		return err
	}
	s.writers.SetMaxOpenConns(1)
	s.conn, err = s.writers.Conn(ctx)
	if !s.opts.ReadOnly || !hotJournal(err) {
		return err
	}
	if err := s.writers.Close(); err != nil {
		return err
	}
	if s.writers, err = s.opts.connect(queryOnly); err != nil {
		return err
	}
	s.conn, err = s.writers.Conn(ctx)
	return err
}

func (s *Store) openReaders() (err error) {
	as := readOnly
	s.limit = viewLimit
	if s.shared {
		as, s.limit = queryOnly, sharedViewLimit
	}
	if s.readers, err = s.opts.connect(as); err != nil {
		return err
	}
	s.readers.SetMaxOpenConns(4)
	s.readers.SetMaxIdleConns(4)
	return nil
}

// writable finds out now, not at the first renewal, that the file system is
// read-only. A lock held by another daemon is no answer to that question.
func (s *Store) writable(ctx context.Context) error {
	_, err := s.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	if code(err) == sqliteBusy {
		return nil
	}
	if err != nil {
		return err
	}
	if s.shared { // its journal is made by the first write
		_, err = s.conn.ExecContext(ctx, "UPDATE meta SET value = value")
	}
	if _, rerr := s.conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		err = rerr
	}
	return err
}

// Close closes all handles. Statements go first: a connection with an open one
// lingers, and the last to close would not fold the WAL back into the file.
func (s *Store) Close() error {
	errs := []error{s.closeStatements()}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.readers, s.writers} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *Store) closeStatements() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	s.stmts = map[string]*sql.Stmt{}
	return errors.Join(errs...)
}

func (o Options) exists() (os.FileInfo, error) {
	if o.Path == "" {
		return nil, nil
	}
	info, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, daemon.Errorf(daemon.BadConfig, "no store at %s", o.Path).
			Hint("make one: exocomp init --data-dir DIR")
	case errors.Is(err, fs.ErrPermission):
		return nil, daemon.Errorf(daemon.BadConfig, "the store at %s cannot be reached: permission denied", o.Path).
			Hint("run exocomp as the user who owns the data directory")
	case err != nil:
		return nil, daemon.Errorf(daemon.BadConfig, "the store at %s cannot be reached: %w", o.Path, err)
	case !info.Mode().IsRegular():
		return nil, daemon.Errorf(daemon.BadConfig, "%s is not a file", o.Path).Hint("name the data directory that holds exocomp.db")
	}
	return info, nil
}

// How a connection opens the file. Who only reads a file with a rollback journal
// must still be able to write: after a crash in a commit the first to read rolls
// that back.
const (
	readWrite = "&mode=rw"
	readOnly  = "&mode=ro"
	queryOnly = "&mode=rw&_query_only=1"
	exclusive = "&mode=rw&_pragma=locking_mode(exclusive)" // keeps each lock that it takes until it is closed
)

// connect returns a pool over the database. What every connection must have is
// in its name, not in a later statement that a new connection would miss.
//
// synchronous is EXTRA for the rollback journal: with FULL a commit that was
// acknowledged may be undone by a power failure, as the removal of the journal is
// not synced. With a write-ahead log the two are the same.
func (o Options) connect(as string) (*sql.DB, error) {
	name := "file:" + escape(o.Path)
	if o.Memory != "" {
		name, as = "file:/"+escape(o.Memory), memory(as)
	}
	name += fmt.Sprintf("?_pragma=busy_timeout(%d)%s&_pragma=synchronous(extra)&_pragma=mmap_size(0)"+
		"&_pragma=temp_store(memory)&_pragma=trusted_schema(0)&_dqs=0&_defensive=1&_error_rc=1", o.Busy.Milliseconds(), as)
	var c driver.Connector
	c, err := sqlite.NewConnector(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.name(), err)
	}
	return sql.OpenDB(c), nil
}

// memory is how a connection opens a database in memory.
func memory(as string) string {
	if as == readWrite {
		return "&vfs=memdb"
	}
	return "&vfs=memdb&_query_only=1"
}

func (o Options) name() string {
	if o.Memory != "" {
		return "memory:" + o.Memory
	}
	return o.Path
}

// escape makes a path safe inside a file: name.
func escape(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// The result codes that something is decided by; see sqlite.org/rescode.html.
const (
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadonly = 8
	sqliteIOErr    = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteNotADB   = 26
)

// code returns the primary result code in err, or 0.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// explain turns what SQLite says on opening into what an operator can act on.
func (o Options) explain(err error) error {
	var told *daemon.Error
	if errors.As(err, &told) {
		return err
	}
	e := daemon.Errorf(daemon.BadConfig, "open the store %s: %w", o.name(), err)
	switch code(err) {
	case sqliteCorrupt, sqliteNotADB:
		e = daemon.Errorf(daemon.BadConfig, "the store %s is damaged, or no exocomp store: %w", o.name(), err)
		return e.Hint("keep the file, and restore the newest backup into a new data directory")
	case sqliteReadonly:
		e = daemon.Errorf(daemon.BadConfig, "the store %s cannot be written: %w", o.name(), err)
		return e.Hint("check the owner, the mode and whether the file system is mounted read-only")
	case sqliteBusy:
		e = daemon.Errorf(daemon.Held, "the store %s is locked by another process: %w", o.name(), err)
		return e.Hint("start again; if it stays so, stop the process that holds the lock: fuser %s", o.name())
	case sqliteCantOpen:
		return e.Hint("check that the data directory can be read and written by this user")
	}
	return e
}

// View implements daemon.Store. At its limit the snapshot is gone, whatever fn is
// still doing.
func (s *Store) View(ctx context.Context, fn func(daemon.Reader) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	snapshot, err := s.readers.BeginTx(bounded, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		defer snapshot.Rollback()
		err = fn(&tx{run: direct{snapshot}})
	} else {
		err = fmt.Errorf("read the store: %w", err)
	}
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return daemon.Errorf(daemon.TimedOut, "a read of the store took longer than %s: %w", s.limit, err).
			Hint("ask for less at a time")
	case code(err) == sqliteBusy: // with a rollback journal a writer shuts readers out
		return fmt.Errorf("read the store: %w: %w", daemon.ErrBusy, err)
	case olderSchema(err):
		return daemon.Errorf(daemon.Unavailable, "the store %s has an older schema, which cannot tell this: %w", s.opts.name(), err).
			Hint("the next daemon of this version brings it up to date: exocomp serve")
	}
	return err
}

// olderSchema says whether err tells of a table or column that a migration is still
// to make: what is declared is there in the newest schema.
func olderSchema(err error) bool {
	return code(err) == sqliteError && (strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "no such column"))
}

const sqliteError = 1

// viewLimit and sharedViewLimit bound a read: in WAL mode an open one keeps the
// log from being folded back, and with a rollback journal it blocks every commit,
// of which a lease of 5 s must not miss two.
const (
	viewLimit       = 10 * time.Second
	sharedViewLimit = time.Second
)

// Version implements daemon.Store.
func (s *Store) Version(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v int64
	stmt, err := s.prepare(ctx, "PRAGMA data_version")
	if err == nil {
		err = stmt.QueryRowContext(ctx).Scan(&v)
	}
	if err != nil {
		return 0, fmt.Errorf("read the data version: %w", err)
	}
	return uint64(v), nil
}

// Usable implements daemon.Store.
func (s *Store) Usable(ctx context.Context) error {
	if err := s.opts.sameFile(s.file); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stmt, err := s.prepare(ctx, "SELECT value FROM meta WHERE name = '"+metaSchema+"'")
	var text string
	if err == nil {
		err = stmt.QueryRowContext(ctx).Scan(&text)
	}
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	if version > latest() {
		return newerSchema(version)
	}
	return s.sameJournal(ctx)
}

func newerSchema(version int) error {
	return daemon.Errorf(daemon.BadConfig, "the store has schema %d, and this exocomp knows none newer than %d",
		version, latest()).Hint("use the exocomp that wrote it, or a newer one; downgrades are not possible")
}

// sameFile says whether the path still names the file that was opened. It looks
// at the path and opens nothing: closing any descriptor of the file would drop
// SQLite's locks.
func (o Options) sameFile(opened os.FileInfo) error {
	if o.Path == "" {
		return nil
	}
	now, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return daemon.Errorf(daemon.StoodDown, "the store %s was removed or moved while it was served", o.Path).
			Hint("put the file back and start again, or restore a backup into a new data directory")
	case err != nil:
		return fmt.Errorf("look at the store: %w", err)
	case !os.SameFile(opened, now):
		return daemon.Errorf(daemon.StoodDown, "the store %s was replaced by another file while it was served", o.Path).
			Hint("find out who did that before you start again: exocomp lease shows what lies there now")
	}
	return nil
}

// prepare returns a statement of the writing connection. The caller holds mu.
func (s *Store) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// Update implements daemon.Store.
func (s *Store) Update(ctx context.Context, g daemon.Guard, fn func(daemon.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fence(ctx, g); err != nil {
		return fmt.Errorf("arm the fence: %w", err)
	}
	return s.transact(ctx, func() error {
		t := &tx{run: prepared{s}}
		if err := t.holds(ctx, g); err != nil {
			return err
		}
		return fn(t)
	})
}

// UpdateAlone implements daemon.AloneStore. The triggers compare the lease row with
// g at each write, so that they open when fn has taken the lease, not before. It
// does not migrate: an older schema is refused.
func (s *Store) UpdateAlone(ctx context.Context, g daemon.Guard, fn func(daemon.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current {
		return daemon.Errorf(daemon.BadConfig, "the store %s has an older schema: a daemon brings it up to date", s.opts.name()).
			Hint("start one: exocomp serve")
	}
	if err := s.fence(ctx, g); err != nil {
		return fmt.Errorf("arm the fence: %w", err)
	}
	return fenceError(s.transact(ctx, func() error { return fn(&tx{run: prepared{s}}) }))
}

// transact runs fn between BEGIN IMMEDIATE and COMMIT. The caller holds mu.
func (s *Store) transact(ctx context.Context, fn func() error) error {
	if err := s.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		if code(err) == sqliteBusy || ctx.Err() != nil { // the attempt may end while it waits for the lock
			return fmt.Errorf("begin: %w: %w", daemon.ErrBusy, err)
		}
		return fmt.Errorf("begin: %w", err)
	}
	err := fn()
	if err == nil {
		if err = s.exec(ctx, "COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	// SQLite may have rolled back by itself, so a refusal here says nothing.
	_ = s.exec(context.WithoutCancel(ctx), "ROLLBACK")
	return fenceError(err)
}

func (s *Store) exec(ctx context.Context, query string) error {
	stmt, err := s.prepare(ctx, query)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}
