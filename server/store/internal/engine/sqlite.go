package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mattn/go-sqlite3"
)

// minSQLite has the fix of a WAL-reset bug that corrupts databases.
const minSQLite = 3_051_003

// sqlite is the engine of one process with a file of its own. What it keeps is in the store.
type sqlite struct{ *DB }

func newSQLite(cfg Options) *DB {
	s := newDB(cfg)
	s.dialect = &sqlite{s}
	return s
}

func (s *sqlite) open(ctx context.Context, cfg Options) error {
	if name, version, _ := sqlite3.Version(); version < minSQLite {
		return fmt.Errorf("SQLite %s is too old: before 3.51.3 it could corrupt a database", name)
	}
	s.reserve.path, s.long = cfg.Reserve, logOf(filepath.Dir(cfg.Path), cfg.MaxLog)
	err := s.openOrMake(ctx, cfg)
	if isFull(err) && s.spend(err) {
		_ = s.closeHandles() // they were made on the full disk
		clear(s.statements)
		clear(s.execs)
		err = s.openOrMake(ctx, cfg)
	}
	if err != nil {
		return err
	}
	s.restock()
	s.checkpointed = make(chan struct{})
	go s.checkpoints()
	return nil
}

func (s *sqlite) close() error {
	if s.checkpointed != nil {
		<-s.checkpointed
	}
	var errs []error
	if s.file != nil && s.unsynced.Load() { // the last connection copies the rest of the log, and removes it
		errs = append(errs, s.copyAgain(context.Background()))
	}
	for _, stmt := range s.execs {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

func (s *sqlite) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {} // the driver would start a goroutine for each statement
}

func (s *sqlite) begin(ctx context.Context, _ []*job) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	_, err := s.exec(ctx, "BEGIN IMMEDIATE", nil)
	return err
}

func (s *sqlite) commit(ctx context.Context) error {
	_, err := s.exec(ctx, "COMMIT", nil)
	return err
}

func (s *sqlite) rollback(ctx context.Context) {
	_, _ = s.exec(ctx, "ROLLBACK", nil) // after some errors SQLite has rolled back already
}

// exec goes to the driver itself: nobody else has the writer's connection, and what
// database/sql does to share one costs more than binding the values.
func (s *sqlite) exec(ctx context.Context, query string, args []driver.NamedValue) (n int64, err error) {
	err = s.conn.Raw(func(conn any) error {
		st := s.execs[query]
		if st == nil {
			if err := CheckPlaceholders(query); err != nil {
				return err
			}
			prepared, err := conn.(*sqlite3.SQLiteConn).PrepareContext(ctx, query)
			if err != nil {
				return err
			}
			st = prepared.(*sqlite3.SQLiteStmt)
			s.execs[query] = st
		}
		result, err := st.ExecContext(ctx, args)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	return n, err
}

func (s *sqlite) later(ctx context.Context, query string, args []driver.NamedValue) error {
	_, err := s.exec(ctx, query, args)
	return err
}

func (s *sqlite) flush(context.Context) error { return nil }

func (s *sqlite) alone(context.Context) error { return nil }

func (s *sqlite) committed(ctx context.Context) {
	if s.unmeasured++; s.unmeasured >= measureEvery {
		s.unmeasured = 0
		s.measure(ctx)
	}
}

func (s *sqlite) idle(ctx context.Context) {
	s.restock()
	s.mark(ctx)
}

func (s *sqlite) openOrMake(ctx context.Context, cfg Options) error {
	err := Judge(ctx, cfg.Path)
	if errors.Is(err, ErrMissing) && !cfg.Existing {
		err = s.create(ctx, cfg, nil)
	}
	if err != nil {
		return err
	}
	return s.openFile(ctx, cfg, Durable(nil))
}

func (s *sqlite) openFile(ctx context.Context, cfg Options, settings map[string]string) (err error) {
	path := cfg.Path
	s.writer = NewDatabase(path, settings)
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
	if err := QuickCheck(ctx, s.conn, path); err != nil {
		return err
	}
	if err := s.settleAtOpen(ctx); err != nil {
		return err
	}
	all, err := MigrationsOf(cfg.Migrations, "migrations")
	if err != nil {
		return err
	}
	switch version, err := s.schemaVersion(ctx); {
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("it does not say which schema it has: %w", ErrDamaged)
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx, all); err != nil {
		return err
	}
	if err := s.claimFile(ctx); err != nil {
		return err
	}
	if s.lastID, err = s.memory.Opened(&Tx{ctx, s.DB}); err != nil {
		return err
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
	s.Read = NewDatabase(path, readOnly)
	s.Read.SetMaxOpenConns(readers)
	s.Read.SetMaxIdleConns(readers)
	return nil
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

// MaxProblems bounds what an answer says of damage.
const MaxProblems = 20

func (s *sqlite) integrity(ctx context.Context) (problems []string, err error) {
	found, err := List(ctx, s.DB, ScanText, fmt.Sprintf("PRAGMA integrity_check(%d)", MaxProblems))
	switch {
	case errors.Is(err, ErrDamaged):
		return []string{err.Error()}, nil
	case err != nil || len(found) == 1 && found[0] == "ok":
		return nil, err
	}
	return found, nil
}

// spareShare is the share of the database that may be free pages. New rows use them; to
// give them back to the file system and to ask for them again would cost twice.
const spareShare = 16

// shrink returns free pages of the file, except for a sixteenth of the file.
func (s *sqlite) shrink(ctx context.Context) error {
	return s.InSteps(ctx, Task{Run: func(tx *Tx, st *Step) (more bool, err error) {
		var free, pages int64
		if err := errors.Join(tx.Row("PRAGMA freelist_count", nil, &free), tx.Row("PRAGMA page_count", nil, &pages)); err != nil {
			return false, err
		}
		surplus := min(free-pages/spareShare, StepRows)
		if surplus <= 0 {
			return false, nil
		}
		// Each row of the answer is a page that moved.
		err = tx.Each("PRAGMA incremental_vacuum("+strconv.FormatInt(surplus, 10)+")", nil, func(*sql.Rows) (bool, error) {
			return st.Takes(0), nil
		})
		return true, err
	}})
}
