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
// The statements keep to SQL that PostgreSQL has too: $1 placeholders, ON CONFLICT,
// RETURNING, partial indexes. But the store runs on SQLite alone, and these places are
// written for it:
//
//   - opening and protecting the file: PRAGMAs, journal mode, integrity check, file formats
//     (store.go, file.go, check.go), backup (backup.go), write-ahead log (checkpoint.go),
//     what a full disk and a failed sync mean (reserve.go, writer.go);
//   - the writer: it prepares statements on the driver's connection, and keeps in memory
//     what one writer alone may keep: the newest id, the cache of groups, the length of the
//     queue (writer.go, id.go, group.go, run.go);
//   - lists of runs: the unary + and partial indexes steer SQLite's planner (list.go);
//   - rowid, where a table has no id of its own (check.go, reseal.go, session.go), tables
//     WITHOUT ROWID and the types INTEGER and BLOB (migrations), and giving
//     free pages back (prune.go).
//
// checkPlaceholders exists because go-sqlite3 numbers $1, $2 … by their appearance.
//
// One process at a time may have the store open. It does not decide which runs to
// start and which definitions to apply: it records what its callers decide.
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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

//go:embed migrations/*.sql
var migrations embed.FS

// minSQLite has the fix of a WAL-reset bug that corrupts databases.
const minSQLite = 3_051_003

// readers is how many connections read at once. They are all kept open: opening
// one costs more than most queries.
const readers = 8

// Config is what Open needs.
type Config struct {
	Path string      // of the database file; its folder exists
	Key  *secret.Key // seals the secrets
	// Existing refuses, with ErrMissing, to make a store where there is none.
	Existing bool
	// Sources are looked at for managed secrets before the store's own, in this
	// order. A value that changed there becomes the next generation.
	Sources []secret.Source
	// Reserve is the file that sets room aside on the disk (reserve.go); empty: none.
	Reserve string
	// Artifacts is the folder of the files of artifacts; empty: it keeps none.
	Artifacts string
	Now       func() time.Time
	// Passed is what has passed since any moment, whatever the clock shows; nil: the
	// monotonic reading of Now.
	Passed func() time.Duration
	Logger *slog.Logger
}

// Store is the durable state of one server. It is safe for concurrent use.
type Store struct {
	now    func() time.Time
	logger *slog.Logger
	key    *secret.Key
	read   *sql.DB
	// The database's own file. Closing it gives up the locks that SQLite has on it:
	// it is closed last.
	file *os.File

	sources   []secret.Source
	importing sync.Mutex   // of what sources have
	backup    sync.Mutex   // one at a time
	artifacts string       // folder of their files
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
	maxPerHour        atomic.Int64 // runs of an automation (GuardAutomations)
	notices           atomic.Bool  // ends of runs are kept

	paused        atomic.Pointer[pauses]
	pausesChanged bool        // by the transaction; of the writer alone
	pauseEnd      *time.Timer // of the writer: a pause may end

	touched sync.Map // key id to the last recorded use

	undigested int64 // up to this id, rows were written without digests
	trusting   bool  // of tests alone: nothing that is read is checked
	damages    damages

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
	if name, version, _ := sqlite3.Version(); version < minSQLite {
		return nil, fmt.Errorf("SQLite %s is too old: before 3.51.3 it could corrupt a database", name)
	}
	s := &Store{
		now: cfg.Now, logger: cfg.Logger, key: cfg.Key, sources: cfg.Sources, artifacts: cfg.Artifacts,
		statements: make(map[string]*sql.Stmt), execs: make(map[string]*sqlite3.SQLiteStmt), reserve: reserve{path: cfg.Reserve}, patience: stepPatience,
		jobs: make(chan *job, 4*maxBatch), steps: make(chan *job), pinging: make(chan struct{}, 1), full: make(chan struct{}, 1), rest: make(chan struct{}),
		closing: make(chan struct{}), done: make(chan struct{}), checkpointed: make(chan struct{}),
	}
	s.long = logOf(filepath.Dir(cfg.Path))
	err := s.openOrMake(ctx, cfg)
	if isFull(err) && s.spend(err) {
		_ = s.closeHandles() // they were made on the full disk
		clear(s.statements)
		clear(s.execs)
		err = s.openOrMake(ctx, cfg)
	}
	if err != nil {
		s.closeHandles()
		return nil, fmt.Errorf("opening the store %s: %w", cfg.Path, damaged(err))
	}
	s.restock()
	go s.write()
	go s.checkpoints()
	if s.lost.AtMost > 0 {
		err := s.Audit(ctx, AuditEntry{
			Actor: "triphammer", Action: "store.lost", Object: filepath.Base(cfg.Path), Origin: "local",
			Details: s.lost.String(),
		})
		err = errors.Join(err, s.do(ctx, func(ctx context.Context) error { return s.setMeta(ctx, "commits", strconv.FormatInt(s.base, 10)) }))
		if err != nil {
			s.logger.Error("the loss could not be noted in the audit log", "error", err)
		}
	}
	return s, nil
}

func (s *Store) openOrMake(ctx context.Context, cfg Config) error {
	wall := func() time.Time { return cfg.Now().Round(0) } // what it shows, without what has passed
	s.clock.wall, s.clock.passed, s.clock.logger = wall, cfg.Passed, cfg.Logger
	err := judge(ctx, cfg.Path)
	if errors.Is(err, ErrMissing) && !cfg.Existing {
		err = s.create(ctx, cfg.Path)
	}
	if err != nil {
		return err
	}
	return s.open(ctx, cfg.Path, durable(nil))
}

func (s *Store) open(ctx context.Context, path string, settings map[string]string) (err error) {
	s.writer = newDatabase(path, settings)
	s.writer.SetMaxOpenConns(1)
	if s.conn, err = s.writer.Conn(ctx); err != nil {
		return err
	}
	if err := assertDurable(ctx, s.conn); err != nil {
		return err
	}
	// The connection is the only one that writes: without this, one commit in many
	// would wait for a whole checkpoint. The identities lie all over their index:
	// 8 MB keep that of some 200,000 deliveries at hand.
	if _, err := s.conn.ExecContext(ctx, "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -8000"); err != nil {
		return err
	}
	if err := s.quickCheck(ctx, path); err != nil {
		return err
	}
	if err := s.settleAtOpen(ctx); err != nil {
		return err
	}
	names, err := migrationNames()
	if err != nil {
		return err
	}
	switch version, err := s.schemaVersion(ctx); {
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("it does not say which schema it has: %w", ErrDamaged)
	}
	if err := s.checkKey(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx, names); err != nil {
		return err
	}
	if err := s.claimFile(ctx); err != nil {
		return err
	}
	since, err := s.meta(ctx, metaUndigested)
	if err != nil {
		return err
	}
	if err := s.digestsSince(since); err != nil {
		return err
	}
	for _, table := range []string{"deliveries", "runs", "applies", "api_keys", "audit", "run_groups", "schedules", "notices"} {
		var id int64
		if err := s.conn.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM "+table).Scan(&id); err != nil {
			return err
		}
		s.lastID = max(s.lastID, id)
	}
	if s.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	if err := s.compareMarks(ctx, path); err != nil {
		return err
	}
	if err := s.startClock(ctx); err != nil {
		return err
	}
	_ = os.Remove(unfinishedBackup(path)) // of a process that was killed: the next backup says what is wrong
	readOnly := maps.Clone(settings)
	readOnly["_query_only"] = "1"
	s.read = newDatabase(path, readOnly)
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.pauseEnd = time.NewTimer(0)
	if err := s.publishPauses(ctx); err != nil {
		return err
	}
	return s.read.PingContext(ctx)
}

// assertDurable refuses a connection on which a commit could be lost.
func assertDurable(ctx context.Context, conn *sql.Conn) error {
	var synchronous int
	var journal string
	err := errors.Join(
		conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous),
		conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal))
	if err != nil {
		return err
	}
	if synchronous != 2 || journal != "wal" {
		return fmt.Errorf("the database has synchronous=%d and journal_mode=%s where 2 (FULL) and wal are needed", synchronous, journal)
	}
	return nil
}

// migrationNames are the files of the migrations, in order.
func migrationNames() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	slices.Sort(names)
	return names, err
}

// migrate applies the numbered migrations that are missing, each in its own
// transaction. There is no way back: an older program refuses the store.
func (s *Store) migrate(ctx context.Context, names []string) error {
	have, err := s.schemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > len(names) {
		return fmt.Errorf("%w: it has schema %d, this one knows up to %d", ErrNewerSchema, have, len(names))
	}
	for i, name := range names[have:] {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		version := have + i + 1
		if !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%04d_", version)) {
			return fmt.Errorf("migration %s is not number %d", name, version)
		}
		err = s.transaction(ctx, func() error {
			if _, err := s.conn.ExecContext(ctx, string(text)); err != nil {
				return err
			}
			return s.setMeta(ctx, "schema", strconv.Itoa(version))
		})
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return nil
}

func (s *Store) schemaVersion(ctx context.Context) (int, error) {
	text, err := s.meta(ctx, "schema")
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s *Store) meta(ctx context.Context, name string) (string, error) {
	var value string
	err := s.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (s *Store) setMeta(ctx context.Context, name, value string) error {
	_, err := s.conn.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	return err
}

// ErrSealingKey is what Open returns for another key than that of the store.
var ErrSealingKey = errors.New("the sealing key is not the one that this store's secrets were sealed with: put the right key file back (DIR/key, or TRIPHAMMER_KEY_FILE)")

// checkKey refuses a sealing key that is not the one of this store (SPEC 10.1).
func (s *Store) checkKey(ctx context.Context) error {
	have, err := s.meta(ctx, "sealing key")
	switch {
	case err != nil:
		return err
	case have == "":
		return s.setMeta(ctx, "sealing key", s.key.ID())
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
		<-s.checkpointed
		s.closed = s.closeHandles()
	})
	return s.closed
}

func (s *Store) closeHandles() error {
	var errs []error
	for _, stmt := range s.statements {
		errs = append(errs, stmt.Close())
	}
	for _, stmt := range s.execs {
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
