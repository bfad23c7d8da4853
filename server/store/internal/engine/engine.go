// Package engine keeps a store: a file of SQLite, which one process at a time has open, or a PostgreSQL
// database that several processes share. It knows no table but meta; what is kept is the part of
// package store.
//
// Writes go through one goroutine, the writer, which commits all writes that wait as one transaction
// (writer.go). Whoever changes something gets a Tx, and no Tx exists elsewhere. What the two databases
// do differently is behind dialect: sqlite.go with file.go, checkpoint.go, reserve.go, mark.go and
// backup.go; postgres.go and postgres_changes.go.
//
//   - A write that returned nil is on the disk. `synchronous` is FULL, and that is asserted when a file
//     is opened, because go-sqlite3's default loses acknowledged writes when the power fails.
//   - A database is never replaced by a fresh one.
//   - Of all processes, one writer at a time has a transaction. Its owner may remember what nobody else
//     can have changed, and is told when that is over (Memory).
//   - Tx.Exec may run later, with the next statement whose answer is needed.
//   - Placeholders are $1, $2 … in the order of their first use: go-sqlite3 numbers them by their
//     appearance (CheckPlaceholders).
package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"
)

// Errors for errors.Is. A closed store cannot commit, so ErrClosed is an ErrUnavailable
// too.
var (
	ErrNotFound    = errors.New("not found")
	ErrUnavailable = errors.New("the store cannot commit")
	ErrClosed      = fmt.Errorf("%w: it is closed", ErrUnavailable)
	// ErrFull refuses writes that add something while the reserve is used up.
	ErrFull        = fmt.Errorf("%w: the disk is full", ErrUnavailable)
	ErrNewerSchema = errors.New("the store was written by a newer version of triphammer")
)

// MetaCopying is of a store into which another one is being copied. No program opens it. The
// value says which.
const MetaCopying = "copying"

// ErrCopying refuses a store into which another one was being copied.
var ErrCopying = errors.New("a copy into it was not finished: make the copy anew, into an empty target")

// readers is how many connections read at once. They are all kept open: opening
// one costs more than most queries.
const readers = 8

// Options are what NewDB needs.
type Options struct {
	Path       string // of the database file of SQLite; its folder exists
	URL        string // of a PostgreSQL database, in place of Path: postgres://user@host/name
	Existing   bool   // refuses, with ErrMissing, to make a database where there is none
	Reserve    string // the file that sets room aside on the disk (reserve.go); empty: none
	MaxLog     int    // the most pages of the write-ahead log of SQLite before it is copied; 0: as suits the disk
	Migrations fs.FS
	Memory     Memory // nil: nothing is remembered, and any database with the schema is admitted
	Now        func() time.Time
	// Passed is what has passed since any moment, whatever the clock shows; nil: the
	// monotonic reading of Now.
	Passed func() time.Duration
	Logger *slog.Logger
}

// Memory is what the owner of a database remembers of it between transactions, so that few of them
// read. Its methods are called by the writer, or before the writer runs.
type Memory interface {
	// Admit refuses a database that is not the owner's. It is also called when a connection was
	// lost and made again: another database may be there.
	Admit(tx *Tx) error
	// Opened is called once all tables are there, and returns the newest id of all of them.
	Opened(tx *Tx) (lastID int64, err error)
	// Expect is called before a transaction with the identities of Record. It returns the query that
	// finds who has them, with them as its only value, and who is told of each row: an identity and an
	// id. Only PostgreSQL calls it: where each answer takes the time of a packet, it is worth asking once.
	Expect(identities [][]byte) (query string, found func(identity []byte, id int64))
	// Committed is called after each transaction that was committed, and when the database is opened.
	Committed(tx *Tx) error
	// Forget is called when something was rolled back: all that is remembered may be wrong.
	Forget()
	// ForgetOthers is called within a transaction, if another process has written since the last one.
	ForgetOthers()
	// ForgetRules is called within a transaction, if another process has changed since the last one by
	// what others decide (Tx.Rules).
	ForgetRules()
	// WentBack is called within a transaction, if the newest id of the database is older than one
	// that this process has seen.
	WentBack(newest, seen int64)
	// MayDiffer is called when another process has written.
	MayDiffer()
	// Wake is called at the time that SetAlarm gave. With write it can make a transaction.
	Wake(ctx context.Context, write func(func(tx *Tx) error) error)
}

// noMemory is that of a database which is only copied or checked.
type noMemory struct{}

func (noMemory) Admit(*Tx) error                                   { return nil }
func (noMemory) Opened(*Tx) (int64, error)                         { return 0, nil }
func (noMemory) Expect([][]byte) (string, func([]byte, int64))     { return "", nil }
func (noMemory) Committed(*Tx) error                               { return nil }
func (noMemory) Forget()                                           {}
func (noMemory) ForgetOthers()                                     {}
func (noMemory) ForgetRules()                                      {}
func (noMemory) WentBack(int64, int64)                             {}
func (noMemory) MayDiffer()                                        {}
func (noMemory) Wake(context.Context, func(func(*Tx) error) error) {}

// DB is a database with one writer. It is safe for concurrent use.
type DB struct {
	cfg     Options
	dialect dialect
	memory  Memory
	Now     func() time.Time
	Logger  *slog.Logger
	Read    *sql.DB
	// The database's own file. Closing it gives up the locks that SQLite has on it:
	// it is closed last.
	file *os.File

	// The rest of this group is of the writer goroutine alone.
	writer     *sql.DB
	conn       *sql.Conn // the only one of writer
	statements map[string]*sql.Stmt
	execs      map[string]*sqlite3.SQLiteStmt // statements that return no rows
	args       []driver.NamedValue            // of the one that runs
	lastID     int64
	long       longLog
	unmeasured int           // commits since it was looked how long the log is
	patience   time.Duration // of steps
	reserve    reserve
	settled    time.Time   // when settle was tried last
	rules      bool        // the transaction changes them (Tx.Rules)
	leaders    int64       // how often a process became the leader
	alarm      *time.Timer // of Memory.Wake
	look       *time.Timer
	looks      bool // it runs

	jobs         chan *job
	steps        chan *job     // of long tasks
	full, rest   chan struct{} // the log is long; only its end is not copied yet
	closing      chan struct{}
	done         chan struct{} // of the writer
	checkpointed chan struct{} // done, of checkpoints
	once         sync.Once
	closed       error // of Close

	commits   atomic.Int64            // transactions that went well since the start
	lastWrite atomic.Pointer[outcome] // of what grows the store
	pinging   chan struct{}           // holds the turn of Ping
	spent     atomic.Bool             // the reserve is: nothing may grow the store
	unsynced  atomic.Bool             // the disk may not have what it was told to keep

	// Queued is how many runs wait. All processes that share the database see the same number, as
	// of the last transaction of this one. Only jobs change it; what is rolled back does not count.
	Queued atomic.Int64

	backup sync.Mutex // one at a time
	known  int        // the newest schema that this program knows
	path   string     // of the file; of a shared store, where backups are made

	clock clock
	seen  time.Time // the newest time that was believed at the last transaction
	noted time.Time // the one of these that is noted

	base     int64 // transactions before the start
	marked   int64 // as many are noted
	markFile *os.File
	lost     Loss
}

func newDB(cfg Options) *DB {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if now, start := cfg.Now, cfg.Now(); cfg.Passed == nil {
		cfg.Passed = func() time.Duration { return now().Sub(start) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Memory == nil {
		cfg.Memory = noMemory{}
	}
	s := &DB{
		cfg: cfg, memory: cfg.Memory, Now: cfg.Now, Logger: cfg.Logger, path: cfg.Path,
		statements: make(map[string]*sql.Stmt), execs: make(map[string]*sqlite3.SQLiteStmt), patience: stepPatience,
		jobs: make(chan *job, 4*maxBatch), steps: make(chan *job), pinging: make(chan struct{}, 1), full: make(chan struct{}, 1), rest: make(chan struct{}),
		closing: make(chan struct{}), done: make(chan struct{}), alarm: time.NewTimer(0),
	}
	wall := func() time.Time { return cfg.Now().Round(0) } // what it shows, without what has passed
	s.clock.wall, s.clock.passed, s.clock.logger = wall, cfg.Passed, cfg.Logger
	return s
}

// NewDB is a database that is not open yet.
func NewDB(cfg Options) *DB {
	s := newSQLite(cfg)
	if cfg.URL != "" {
		s.dialect = newPostgres(s)
	}
	return s
}

// Open opens or makes the database, migrates it forward, and starts its writer. It refuses a file
// that is not a store, or is damaged, and never replaces it: see ErrMissing, ErrForeign, ErrDamaged
// and ErrNewerSchema.
func (s *DB) Open(ctx context.Context) error {
	err := s.dialect.open(ctx, s.cfg)
	if err == nil {
		if err = s.remember(ctx); err == nil {
			err = s.Read.PingContext(ctx)
		}
	}
	if err != nil {
		close(s.closing) // of what open began
		_ = s.closeHandles()
		name := s.path
		if s.cfg.URL != "" {
			name = NameOf(s.cfg.URL)
		}
		return fmt.Errorf("opening the store %s: %w", name, Damaged(err))
	}
	go s.write()
	return nil
}

// ReadFile is a file that is only read and that no server uses, such as a backup.
func ReadFile(path string) *DB {
	s := quiet()
	s.Read = NewDatabase(path, map[string]string{"mode": "ro", "immutable": "1"})
	return s
}

// ReadPostgres connects to a database that is only read. A server may use it.
func ReadPostgres(ctx context.Context, address string) (*DB, error) {
	s := quiet()
	p := newPostgres(s)
	s.dialect = p
	var err error
	if p.config, err = PostgresConfig(address); err != nil {
		return nil, err
	}
	p.config.RuntimeParams["default_transaction_read_only"] = "on"
	p.config.ValidateConnect = nil
	s.Read = openPool(p.config)
	var meta sql.NullString
	err = s.Read.QueryRowContext(ctx, "SELECT to_regclass('public.meta')::text").Scan(&meta)
	if err == nil && !meta.Valid {
		err = ErrMissing
	}
	if err != nil {
		s.CloseRead()
		return nil, err
	}
	return s, nil
}

// MakeFile makes the file of a store into which another one is to be copied: from says which.
func MakeFile(ctx context.Context, path string, migrations fs.FS, from string) error {
	s := quiet()
	s.cfg.Path, s.cfg.Migrations = path, migrations
	return s.create(ctx, s.cfg, func(s *DB) error { return s.setMeta(ctx, MetaCopying, from) })
}

// FillFile makes the tables of a store in a file. It is not on the disk before it is synced.
func FillFile(ctx context.Context, path string, migrations fs.FS) error {
	s := quiet()
	return errors.Join(s.fill(ctx, path, migrations), s.closeHandles())
}

// MakePostgres makes the tables of a store in a database into which another one is to be copied.
func MakePostgres(ctx context.Context, address string, migrations fs.FS) error {
	s := quiet()
	p := newPostgres(s)
	s.dialect = p
	var err error
	if p.config, err = PostgresConfig(address); err != nil {
		return err
	}
	p.config.RuntimeParams["application_name"] = "triphammer-copy"
	p.writer = openPool(p.config)
	if p.conn, err = p.writer.Conn(ctx); err == nil {
		if err = p.suitable(ctx); err == nil {
			err = p.make(ctx, Options{URL: address, Migrations: migrations})
		}
	}
	return errors.Join(err, s.closeHandles())
}

// CloseRead closes what was only read.
func (s *DB) CloseRead() { _ = s.closeHandles() }

// quiet is a database whose writer does not run and that logs nothing: a copy uses its parts alone.
func quiet() *DB { return newSQLite(Options{Logger: slog.New(slog.DiscardHandler)}) }

// admit asks the owner whether the database is the right one, and whole.
func (s *DB) admit(ctx context.Context) error {
	from, err := s.meta(ctx, MetaCopying)
	switch {
	case err != nil:
		return err
	case from != "":
		return fmt.Errorf("%w (of %s)", ErrCopying, from)
	}
	return s.memory.Admit(&Tx{ctx, s})
}

// remember tells the owner that something was committed.
func (s *DB) remember(ctx context.Context) error {
	ctx, cancel := s.dialect.bounded(ctx)
	defer cancel()
	return s.memory.Committed(&Tx{ctx, s})
}

// SetAlarm sets when Memory.Wake is called next; negative: never. Only the writer may call it.
func (s *DB) SetAlarm(in time.Duration) {
	s.alarm.Stop()
	if in >= 0 {
		s.alarm.Reset(in)
	}
}

func (s *DB) schemaVersion(ctx context.Context) (int, error) {
	text, err := s.meta(ctx, "schema")
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s *DB) meta(ctx context.Context, name string) (string, error) {
	if err := s.dialect.flush(ctx); err != nil {
		return "", err
	}
	var value string
	err := s.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (s *DB) setMeta(ctx context.Context, name, value string) error {
	_, err := s.execCount(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	return err
}

// AcceptLoss notes that somebody was told of the loss, so that the next start does not find it again.
func (s *DB) AcceptLoss(ctx context.Context) error {
	return s.Do(ctx, func(tx *Tx) error { return tx.SetMeta("commits", strconv.FormatInt(s.base, 10)) })
}

// Integrity looks for damage in the structure of the database.
func (s *DB) Integrity(ctx context.Context) (problems []string, err error) {
	return s.dialect.integrity(ctx)
}

// Shrink returns free space of the database to the file system.
func (s *DB) Shrink(ctx context.Context) error { return s.dialect.shrink(ctx) }

// Waiting is how many changes wait for the writer.
func (s *DB) Waiting() int { return len(s.jobs) }

// Commits is how many transactions were committed since the store was opened.
func (s *DB) Commits() int64 { return s.commits.Load() }

// Close commits what waits and closes the database.
func (s *DB) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.done
		s.closed = s.closeHandles()
	})
	return s.closed
}

func (s *DB) closeHandles() error {
	errs := []error{s.dialect.close()}
	for _, stmt := range s.statements {
		errs = append(errs, stmt.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.Read, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	for _, f := range []*os.File{s.file, s.markFile} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
