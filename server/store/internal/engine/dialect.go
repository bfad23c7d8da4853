package engine

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/mattn/go-sqlite3"
)

// engine is what SQLite and PostgreSQL do differently. All other code of this package runs on
// both. But for open, its methods are of the writer.
type dialect interface {
	// open makes the database if there is none, migrates it, and sets the connections of the
	// store and what the writer knows.
	open(ctx context.Context, cfg Options) error
	// close releases what is not of database/sql.
	close() error

	// bounded bounds the time of what the writer does at once, such as a transaction.
	bounded(ctx context.Context) (context.Context, context.CancelFunc)
	// begin, commit and rollback are of the writer's transaction. begin returns an error if
	// nothing may be written now. It brings up to date what the writer keeps in memory, and may
	// look up the identities of the deliveries that the jobs record (Memory.Expect).
	begin(ctx context.Context, batch []*job) error
	commit(ctx context.Context) error
	rollback(ctx context.Context)
	// exec runs a statement and returns how many rows it changed.
	exec(ctx context.Context, query string, args []driver.NamedValue) (int64, error)
	// later is exec for statements whose number of rows is not needed. They may run later, in
	// their order, at the latest with flush: then flush returns their error.
	later(ctx context.Context, query string, args []driver.NamedValue) error
	flush(ctx context.Context) error

	// alone returns ErrOthers if another process has the store open.
	alone(ctx context.Context) error

	// committed is called after each turn of the writer, idle a second after the last one.
	committed(ctx context.Context)
	idle(ctx context.Context)

	// integrity looks for damage in the structure of the database, and shrink gives free space
	// back to the file system. They are not of the writer.
	integrity(ctx context.Context) (problems []string, err error)
	shrink(ctx context.Context) error
}

// damaged marks an error that means that the database is damaged.
func Damaged(err error) error {
	var lite sqlite3.Error
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &lite) && (lite.Code == sqlite3.ErrCorrupt || lite.Code == sqlite3.ErrNotADB),
		errors.As(err, &pg) && (pg.Code == "XX001" || pg.Code == "XX002"): // data, index corrupted
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// isFull tells whether a write failed for lack of space.
func isFull(err error) bool {
	var lite sqlite3.Error
	if !errors.As(err, &lite) {
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "53100" // disk_full
	}
	switch errno := lite.SystemErrno; {
	case lite.Code == sqlite3.ErrFull, lite.ExtendedCode == sqlite3.ErrIoErrSHMSize:
		return true
	default:
		return errno == syscall.ENOSPC || errno == syscall.EDQUOT
	}
}

// isOfDatabase tells whether an error is one of the database itself, and not of the data that
// it was given: to try again later can help.
func isOfDatabase(err error) bool {
	var lite sqlite3.Error
	if errors.As(err, &lite) {
		return lite.Code != sqlite3.ErrConstraint
	}
	return isOfPostgres(err)
}
