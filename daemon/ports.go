package daemon

import "context"

// The ports are what the core needs from the world. A port never waits for an
// outcome: what came of a request arrives later as an Event, perhaps twice,
// perhaps at a later image of this daemon.

// Guard names the term under which a write is made. The zero Guard is for the
// few writers that own no term: the inbox, the compare-and-set of the lease
// itself, init and provenance. A guarded table refuses them.
type Guard struct {
	Holder string
	Epoch  int64
}

// Store keeps the declared tables. Daemons that share one see a single order
// of Updates.
type Store interface {
	// Update runs fn in one immediate transaction: all of its writes commit, or
	// none. A Guard that does not hold the lease gets ErrFenced and fn is not
	// called. After any other error the caller does not know whether the
	// transaction committed: it must read before it believes anything.
	Update(ctx context.Context, g Guard, fn func(Tx) error) error
	// View runs fn over one bounded snapshot, apart from the writer. Never call
	// it inside an Update.
	View(ctx context.Context, fn func(Reader) error) error
	// Version returns a number that is another one after any other handle has
	// committed. It is cheap: it reads no row and takes no lock for writing.
	Version(ctx context.Context) (uint64, error)
	// Usable says whether the store can still be served: the file is the one that
	// was opened, and its schema is one that this binary knows.
	Usable(ctx context.Context) error
	// Migrate brings an older schema up to the one that this binary knows, each
	// step in a transaction of its own under g, with beat called in each so that
	// the lease is renewed by the very transaction that holds the write lock
	// (L19). It does nothing when the schema is current.
	Migrate(ctx context.Context, g Guard, beat func(Tx) error) error
}

// Reader reads rows. The typed face is TableOf.
type Reader interface {
	Get(ctx context.Context, t *Table, row any, key []any) (found bool, err error)
	Scan(ctx context.Context, t *Table, q Query, yield func(row any) error) error
	Count(ctx context.Context, t *Table, q Query) (int, error)
	// Claimable returns queued jobs by priority, then in the order of their
	// arrival, leaving out those whose lock a live job holds. With heirs only,
	// it returns none but the children of jobs that are live.
	Claimable(ctx context.Context, heirs bool, limit int) ([]Job, error)
}

// Tx is a Reader that also writes.
type Tx interface {
	Reader
	Insert(ctx context.Context, t *Table, row any) (bool, error)
	Put(ctx context.Context, t *Table, row any) error
	Delete(ctx context.Context, t *Table, key []any) error
}

// Runner is the keeper of this host's job processes, as the daemon talks to
// it. Every request is answered by an event: Hello by Listed, Start by Started
// or StartFailed and later Exited, Extend by Extended, List by Listed. The end
// of the keeper is the event KeeperLost. An error means that the request was
// never sent.
type Runner interface {
	// Hello opens a session: older sessions and what they had not yet read are
	// void. It finds a keeper or starts one, and kills what an earlier keeper
	// left running first.
	Hello(ctx context.Context, h Hello) error
	Start(ctx context.Context, s Start) error
	Signal(ctx context.Context, s Signal) error
	Extend(ctx context.Context, x Extend) error
	List(ctx context.Context) error
	// Forget lets the keeper drop the records of ends that are committed.
	Forget(ctx context.Context, attempts []string) error
	// KillAll ends every job now. It touches only processes: no file, no store.
	KillAll(ctx context.Context) error
}

// Site is the place where this daemon runs: its lock file, and what else the
// operating system of this host knows about the store.
type Site interface {
	// Holds says whether the lock is still ours: the path names the very file
	// that we locked.
	Holds() error
	// Blocker says which process of this host holds the write lock of the store, by
	// pid and command; "" when none is known to. It is for a message: it decides
	// nothing.
	Blocker() string
}

// Process is this process, as the operating system and the supervisor see it.
type Process interface {
	// Ready tells the supervisor that the daemon serves.
	Ready() error
	// Stopping tells the supervisor that the daemon ends, and why.
	Stopping(why string) error
	// StandDown notes in the state dir, not in the store, why the daemon stood
	// down.
	StandDown(n StandDown) error
	// Exit ends the process, soon, with that code.
	Exit(code int, why string)
}

// Chance is the only source of chance: ids and tokens come from it. The
// simulator's is its tape. The loop and the API draw from it at the same time:
// outside the simulator it must be safe for that.
type Chance interface {
	Uint64() uint64
}

// Logs reads what jobs wrote.
type Logs interface {
	// Tail calls yield with the log of a job from offset on, and returns when
	// the log has ended: ended reports that nothing more will be written. With
	// ended nil it returns at what is now the end.
	Tail(ctx context.Context, job string, offset int64, ended func() (bool, error),
		yield func(LogChunk) error) error
}

// LogChunk is a piece of a job's output: what one read of a pipe returned.
type LogChunk struct {
	Offset int64  // in the log, of this chunk
	Next   int64  // offset behind it: where a reader resumes
	At     Millis // when it was read
	Stream Stream
	Data   []byte // any bytes; a rune may be split over two chunks
	Cut    int64  // on a chunk of stream Gap: how many bytes of log were dropped here
}

// LogTotals sum a log up.
type LogTotals struct {
	Bytes    int64 // that the job wrote
	CutAt    int64 // offset of the first hole
	CutBytes int64 // of log that were dropped
}

// Stream tells apart where a chunk came from.
type Stream string

// The streams of a log.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	Gap    Stream = "gap" // the middle of a log that grew over its cap
)
