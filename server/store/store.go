// Package store keeps what must survive a restart, and has all the SQL.
//
// Writes go through one goroutine, which commits all writes that wait as one
// transaction (writer.go). Reads use a small pool of connections.
//
// It guarantees:
//
//   - A write that returned nil is on the disk. `synchronous` is FULL, and that is
//     asserted when the store opens, because go-sqlite3's default loses acknowledged
//     writes when the power fails.
//   - Stored data is checked when it is read. Damaged data is an error (ErrDamaged).
//   - Secrets are sealed with a key that is not in the store.
//   - A store is never replaced by a fresh one.
//
// It is a file of SQLite, which one process at a time has open, or a PostgreSQL database that
// several processes share. What the two do differently is behind engine: sqlite.go with
// file.go, checkpoint.go, reserve.go, mark.go and backup.go; postgres.go and
// postgres_changes.go. All other code runs on both, and so do the tests (storetest):
//
//   - The statements are SQL that both have: $1 placeholders, ON CONFLICT, RETURNING, partial
//     indexes. checkPlaceholders exists because go-sqlite3 numbers $1, $2 … by their appearance.
//   - Of all processes, one writer at a time has a transaction. It keeps in memory what nobody
//     else can have changed: the newest id, groups, guards, the length of the queue. If another
//     process has written since, it forgets or reads that again when its transaction begins.
//   - The writer's exec may run later, with the next statement whose answer is needed.
//   - Each engine has its own migrations, of the same numbers, tables and columns.
//   - Lists of runs steer SQLite's planner by unary + (list.go). PostgreSQL's keeps to indexes
//     because sequential scans are switched off.
//
// It does not decide which runs to start and which definitions to apply: it records what its
// callers decide.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"

	"triphammer/server/secret"
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
	ErrConflict    = errors.New("conflict")
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// readers is how many connections read at once. They are all kept open: opening
// one costs more than most queries.
const readers = 8

// Config is what Open needs.
type Config struct {
	Path string      // of the database file of SQLite; its folder exists
	URL  string      // of a PostgreSQL database, in place of Path: postgres://user@host/name
	Key  *secret.Key // seals the secrets
	// Existing refuses, with ErrMissing, to make a store where there is none.
	Existing bool
	// Sources are looked at for managed secrets before the store's own, in this
	// order. A value that changed there becomes the next generation.
	Sources []secret.Source
	// Reserve is the file that sets room aside on the disk (reserve.go); empty: none.
	Reserve string
	// Unfenced records also what definitions decided that are not live any more. It is for
	// tests, which show by it that they would notice.
	Unfenced bool
	// Artifacts is the folder of the files of artifacts; empty: their content is in the database.
	Artifacts string
	Now       func() time.Time
	// Passed is what has passed since any moment, whatever the clock shows; nil: the
	// monotonic reading of Now.
	Passed func() time.Duration
	Logger *slog.Logger

	migrations fs.FS // of tests; nil: those of the program
}

// Store is the durable state of one server: how it is kept (db), and a type with the queries of each
// thing that is kept. It is safe for concurrent use.
type Store struct {
	*db
	Applies       *Applies
	Artifacts     *Artifacts
	Audit         *Audit
	Conversations *Conversations
	Deliveries    *Deliveries
	Keys          *Keys
	Leases        *Leases
	Lookups       *Lookups
	Notices       *Notices
	Pauses        *Pauses
	Pins          *Pins
	Runs          *Runs
	Schedules     *Schedules
	Secrets       *Secrets
	Sessions      *Sessions
	Specs         *Specs
	Transcripts   *Transcripts
	Usage         *Usage
	Workers       *Workers
}

// db is how things are kept: the engine, its connections, and the writer.
type db struct {
	store  *Store // for what one thing needs of another
	engine engine
	now    func() time.Time
	logger *slog.Logger
	key    *secret.Key
	read   *sql.DB
	// The database's own file. Closing it gives up the locks that SQLite has on it:
	// it is closed last.
	file *os.File

	sources   []secret.Source
	importing sync.Mutex // of what sources have
	backup    sync.Mutex // one at a time
	artifacts string     // folder of their files
	retreats  retreats
	holding   atomic.Int32 // how many backups need the files of artifacts
	naming    sync.RWMutex // of such a file: from its name until its row

	// The rest of this group is of the writer goroutine alone.
	writer     *sql.DB
	conn       *sql.Conn // the only one of writer
	statements map[string]*sql.Stmt
	execs      map[string]*sqlite3.SQLiteStmt // statements that return no rows
	args       []driver.NamedValue            // of the one that runs
	lastID     int64
	groups     groupCache
	lastHead   int64 // the group of the queue that a claim of runs looked at last, if it left some out
	lastHeld   int64 // the same of held runs
	long       longLog
	unmeasured int           // commits since it was looked how long the log is
	patience   time.Duration // of steps
	reserve    reserve
	settled    time.Time // when settle was tried last

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

	maxQueued, queued atomic.Int64 // runs (LimitQueue)
	maxPerHour        atomic.Int64 // runs of an automation (Runs.Guard)

	paused        atomic.Pointer[pauses]
	pausesChanged bool // by the transaction; of the writer alone
	pausesStale   bool // another process may have changed them; of the writer alone
	// identities are those that the transaction looked up, with the delivery that has each; 0: none
	// has. Of the writer alone.
	identities  map[string]DeliveryID
	leaders     int64       // how often a process became the leader; of the writer alone
	pauseEnd    *time.Timer // of the writer: a pause may end
	others      int64       // of the writer: no stamp of another process is newer
	othersWrote bool        // of the writer: others may be out of date

	touched sync.Map // key id to the last recorded use
	claims  claims

	undigested int64 // up to this id, rows were written without digests
	trusting   bool  // of tests alone: nothing that is read is checked
	unfenced   bool  // of tests alone
	known      int   // the newest schema that this program knows

	path    string // of the file; of a shared store, where backups are made
	damages damages

	clock clock
	seen  time.Time // the newest time that was believed at the last transaction
	noted time.Time // the one of these that is noted

	look  *time.Timer // of the writer
	looks bool        // it runs

	base     int64 // transactions before the start
	marked   int64 // as many are noted
	markFile *os.File
	lost     Loss
}

func newStore(db *db) *Store {
	db.store = &Store{
		db: db, Applies: &Applies{db: db}, Artifacts: &Artifacts{db}, Audit: &Audit{db}, Conversations: &Conversations{db},
		Deliveries: &Deliveries{db}, Keys: &Keys{db}, Leases: &Leases{db}, Lookups: &Lookups{db}, Notices: &Notices{db},
		Pauses: &Pauses{db}, Pins: &Pins{db}, Runs: &Runs{db}, Schedules: &Schedules{db}, Secrets: &Secrets{db},
		Sessions: &Sessions{db}, Specs: &Specs{db}, Transcripts: &Transcripts{db}, Usage: &Usage{db}, Workers: &Workers{db},
	}
	return db.store
}

// Open opens or makes the store and migrates it forward. It refuses a file that is not a
// store, or is damaged, and never replaces it: see ErrMissing, ErrForeign, ErrDamaged,
// ErrNewerSchema and ErrSealingKey.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if now, start := cfg.Now, cfg.Now(); cfg.Passed == nil {
		cfg.Passed = func() time.Duration { return now().Sub(start) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Key == nil {
		return nil, errors.New("opening the store: no sealing key is given")
	}
	if cfg.migrations == nil {
		cfg.migrations = migrations
	}
	s := newStore(&db{
		now: cfg.Now, unfenced: cfg.Unfenced, logger: cfg.Logger, key: cfg.Key, sources: cfg.Sources, artifacts: cfg.Artifacts, path: cfg.Path,
		statements: make(map[string]*sql.Stmt), execs: make(map[string]*sqlite3.SQLiteStmt), patience: stepPatience,
		jobs: make(chan *job, 4*maxBatch), steps: make(chan *job), pinging: make(chan struct{}, 1), full: make(chan struct{}, 1), rest: make(chan struct{}),
		closing: make(chan struct{}), done: make(chan struct{}),
	})
	wall := func() time.Time { return cfg.Now().Round(0) } // what it shows, without what has passed
	s.clock.wall, s.clock.passed, s.clock.logger = wall, cfg.Passed, cfg.Logger
	name := cfg.Path
	if cfg.URL != "" { // a folder would be of one server alone
		s.artifacts = ""
	}
	if s.engine = engine(&sqlite{s.db}); cfg.URL != "" {
		name = NameOf(cfg.URL)
		s.engine = newPostgres(s.db)
	}
	err := s.engine.open(ctx, cfg)
	if err == nil {
		s.pauseEnd = time.NewTimer(0)
		if err = s.Pauses.publish(&Tx{ctx, s.db}); err == nil {
			err = s.read.PingContext(ctx)
		}
	}
	if err != nil {
		close(s.closing) // of what open began
		_ = s.closeHandles()
		return nil, fmt.Errorf("opening the store %s: %w", name, damaged(err))
	}
	go s.write()
	if s.lost.AtMost > 0 {
		err := s.store.Audit.Add(ctx, AuditEntry{
			Actor: "triphammer", Action: "store.lost", Object: filepath.Base(cfg.Path), Origin: "local",
			Details: s.lost.String(),
		})
		err = errors.Join(err, s.do(ctx, func(tx *Tx) error { return tx.SetMeta("commits", strconv.FormatInt(s.base, 10)) }))
		if err != nil {
			s.logger.Error("the loss could not be noted in the audit log", "error", err)
		}
	}
	return s, nil
}

func (s *db) schemaVersion(ctx context.Context) (int, error) {
	text, err := s.meta(ctx, "schema")
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s *db) meta(ctx context.Context, name string) (string, error) {
	if err := s.engine.flush(ctx); err != nil {
		return "", err
	}
	var value string
	err := s.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (s *db) setMeta(ctx context.Context, name, value string) error {
	_, err := s.execCount(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	return err
}

// ErrSealingKey is what Open returns for another key than that of the store.
var ErrSealingKey = errors.New("the sealing key is not the one that this store's secrets were sealed with: put the right key file back (DIR/key, or TRIPHAMMER_KEY_FILE)")

// checkKey refuses a sealing key that is not the one of this store (SPEC 10.1).
func (s *db) checkKey(ctx context.Context) error {
	have, err := s.meta(ctx, "sealing key")
	if err == nil && have == "" { // of several servers that begin at the same time, one says which
		_, err = s.execCount(ctx, "INSERT INTO meta (name, value) VALUES ('sealing key', $1) ON CONFLICT (name) DO NOTHING", s.key.ID())
		if err == nil {
			have, err = s.meta(ctx, "sealing key")
		}
	}
	switch {
	case err != nil:
		return err
	case have != s.key.ID():
		return ErrSealingKey
	}
	return nil
}

// Close commits what waits and closes the store.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.done
		s.closed = s.closeHandles()
	})
	return s.closed
}

func (s *db) closeHandles() error {
	errs := []error{s.engine.close()}
	for _, stmt := range s.statements {
		errs = append(errs, stmt.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.read, s.writer} {
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

// Commits is how many transactions were committed since the store was opened.
func (s *Store) Commits() int64 { return s.commits.Load() }
