// Package store keeps what must survive a restart, and has all the SQL.
//
// Writes go through one goroutine, which commits all writes that wait as one
// transaction. Reads use a small pool of connections.
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
// Each thing that is kept has a type with its queries (Runs, Deliveries, Leases …), each in the file of
// its name. How all of it is kept is the part of package internal/engine: the writer, and what SQLite
// and PostgreSQL do differently. All code of this package runs on both, and so do its tests
// (storetest):
//
//   - The statements are SQL that both have: $1 placeholders in the order of their first use, ON
//     CONFLICT, RETURNING, partial indexes.
//   - The writer remembers what nobody else can have changed (memory.go).
//   - Each engine has its own migrations, of the same numbers, tables and columns.
//   - Lists of runs steer SQLite's planner by unary + (list.go). PostgreSQL's keeps to indexes
//     because sequential scans are switched off.
//
// It does not decide which runs to start and which definitions to apply: it records what its
// callers decide.
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
)

// ErrConflict refuses a change that another one has made impossible.
var ErrConflict = errors.New("conflict")

//go:embed migrations/*.sql migrations/postgres/*.sql
var Migrations embed.FS

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
	maxLog     int   // of tests: engine.Options.MaxLog
}

// Store is the durable state of one server: how it is kept (db), and a type with the queries of each
// thing that is kept. It is safe for concurrent use.
type Store struct {
	*db
	Answers       *Answers
	Applies       *Applies
	Approvals     *Approvals
	Artifacts     *Artifacts
	Audit         *Audit
	Conversations *Conversations
	Deliveries    *Deliveries
	Keys          *Keys
	Leases        *Leases
	Lines         *Lines
	Lookups       *Lookups
	Notices       *Notices
	Outputs       *Outputs
	Pauses        *Pauses
	Pins          *Pins
	Runs          *Runs
	Schedules     *Schedules
	Secrets       *Secrets
	Sessions      *Sessions
	Specs         *Specs
	Subjects      *Subjects
	Transcripts   *Transcripts
	Usage         *Usage
	Workers       *Workers
}

// db is what all of these share: the engine, and what more than one of them needs.
type db struct {
	*engine.DB
	store *Store // for what one thing needs of another

	key *secret.Key

	damages damages
	memory  // of the writer alone

	undigested int64 // up to this id, rows were written without digests
	trusting   bool  // of tests alone: nothing that is read is checked
	unfenced   bool  // of tests alone
}

func newStore(db *db) *Store {
	db.store = &Store{
		db: db, Answers: &Answers{db}, Applies: &Applies{db: db}, Approvals: &Approvals{db}, Artifacts: &Artifacts{db: db}, Audit: &Audit{db}, Conversations: &Conversations{db},
		Deliveries: &Deliveries{db}, Keys: &Keys{db: db}, Leases: &Leases{db: db}, Lines: &Lines{db}, Lookups: &Lookups{db}, Notices: &Notices{db}, Outputs: &Outputs{db: db},
		Pauses: &Pauses{db: db}, Pins: &Pins{db}, Runs: &Runs{db: db}, Schedules: &Schedules{db}, Secrets: &Secrets{db: db},
		Sessions: &Sessions{db}, Specs: &Specs{db}, Subjects: &Subjects{db: db}, Transcripts: &Transcripts{db}, Usage: &Usage{db}, Workers: &Workers{db},
	}
	return db.store
}

// Open opens or makes the store and migrates it forward. It refuses a file that is not a
// store, or is damaged, and never replaces it: see ErrMissing, ErrForeign, ErrDamaged,
// ErrNewerSchema and ErrSealingKey.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Key == nil {
		return nil, errors.New("opening the store: no sealing key is given")
	}
	if cfg.migrations == nil {
		cfg.migrations = Migrations
	}
	s := newStore(&db{key: cfg.Key, unfenced: cfg.Unfenced})
	s.Secrets.sources = cfg.Sources
	if cfg.URL == "" { // a folder would be of one server alone
		s.Artifacts.folder = cfg.Artifacts
	}
	s.pausesChanged = true // nobody has read them
	s.DB = engine.NewDB(engine.Options{
		Path: cfg.Path, URL: cfg.URL, Existing: cfg.Existing, Reserve: cfg.Reserve, Migrations: cfg.migrations, MaxLog: cfg.maxLog, Memory: hooks{s.db},
		Now: cfg.Now, Passed: cfg.Passed, Logger: cfg.Logger,
	})
	if err := s.DB.Open(ctx); err != nil {
		return nil, err
	}
	if lost := s.Lost(); lost.AtMost > 0 {
		err := s.Audit.Add(ctx, AuditEntry{
			Actor: "triphammer", Action: "store.lost", Object: filepath.Base(cfg.Path), Origin: "local",
			Details: lost.String(),
		})
		if err = errors.Join(err, s.AcceptLoss(ctx)); err != nil {
			s.Logger.Error("the loss could not be noted in the audit log", "error", err)
		}
	}
	return s, nil
}

// ErrSealingKey is what Open returns for another key than that of the store.
var ErrSealingKey = errors.New("the sealing key is not the one that this store's secrets were sealed with: put the right key file back (DIR/key, or TRIPHAMMER_KEY_FILE)")

// Problems is what is wrong with what the store holds, in words.
func (s *Store) Problems() (all []string) {
	if s.Lost().AtMost > 0 {
		all = append(all, fmt.Sprintf("at its start the store lacked %s: its write-ahead log was damaged, or an older copy was put in its place", s.Lost()))
	}
	all = append(all, s.Applies.retreats.problems()...)
	if n := s.Damages(); n > 0 {
		all = append(all, fmt.Sprintf("%d reads since the start found damaged data, which was neither shown nor run: the log says which; restore a backup", n))
	}
	return all
}
