package engine

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/mattn/go-sqlite3"

	"triphammer/server/secret"
)

// Errors of Open about the file. Open does not replace such a file. ErrDamaged is also
// the error of a read that finds other data than was stored.
var (
	ErrMissing = errors.New("there is no store")
	ErrForeign = errors.New("it is not a store of triphammer")
	ErrDamaged = errors.New("the store is damaged")
)

// applicationID is in the header of the file, and says whose it is ("TrpH").
// Stores from before it was set have 0.
const applicationID = 0x54727048

// header of an SQLite file: its first bytes, its length, and where the
// application's id is.
const (
	magic           = "SQLite format 3\x00"
	headerSize      = 100
	applicationIDAt = 68
)

// maxChecked is the size of the largest file that is checked at each start. The check
// takes about a millisecond per MB.
const maxChecked = 64 << 20

// Unfinished is the file in which a new store is made. It exists from before the sealing
// key is made until the store is complete. So it distinguishes a data directory whose
// first start was interrupted from one that has lost its store.
func Unfinished(path string) string { return path + ".new" }

// Beside are the files that belong to a store besides the database.
func Beside(path string) []string {
	return []string{path + "-wal", path + "-shm", markFile(path)}
}

// database opens connections, each with the settings that the driver has no
// parameter for: damage is noticed where a page is read, and nothing in the file
// can call a function that is not meant for it.
type database struct {
	driver sqlite3.SQLiteDriver
	dsn    string
}

func NewDatabase(path string, settings map[string]string) *sql.DB {
	q := url.Values{"_foreign_keys": {"1"}, "_busy_timeout": {"5000"}}
	for name, value := range settings {
		q.Set(name, value)
	}
	d := &database{dsn: "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()}
	d.driver.ConnectHook = func(c *sqlite3.SQLiteConn) error {
		_, err := c.Exec("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF", nil)
		return err
	}
	return sql.OpenDB(d)
}

// Connect implements driver.Connector.
func (d *database) Connect(context.Context) (driver.Conn, error) { return d.driver.Open(d.dsn) }

// Driver implements driver.Connector.
func (d *database) Driver() driver.Driver { return &d.driver }

// Durable are the settings of a store that serves.
func Durable(more map[string]string) map[string]string {
	all := map[string]string{"_journal_mode": "WAL", "_synchronous": "FULL", "_txlock": "immediate"}
	maps.Copy(all, more)
	return all
}

// Judge returns an error if a file is not a store. It does not change the file.
func Judge(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
			return fmt.Errorf("its write-ahead log is there without it: %w", ErrDamaged)
		}
		return ErrMissing
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a file: %w", ErrForeign)
	}
	header := make([]byte, headerSize)
	switch n, err := io.ReadFull(f, header); {
	case n == 0 && err == io.EOF:
		return fmt.Errorf("it is empty: %w", ErrDamaged)
	case err != nil && err != io.ErrUnexpectedEOF:
		return err
	case !bytes.HasPrefix(header, []byte(magic)):
		return fmt.Errorf("it does not begin like an SQLite database: it is damaged, or %w", ErrForeign)
	case n < headerSize:
		return fmt.Errorf("it ends after %d bytes: %w", n, ErrDamaged)
	}
	switch id := binary.BigEndian.Uint32(header[applicationIDAt:]); id {
	case applicationID:
		return nil
	case 0: // from before it was set, or any other program's
		return judgeTables(ctx, path)
	default:
		return fmt.Errorf("it is the SQLite database of another program (application_id %#x): %w", id, ErrForeign)
	}
}

// judgeTables looks for what every store has.
func judgeTables(ctx context.Context, path string) error {
	db := NewDatabase(path, map[string]string{"mode": "ro"})
	defer func() { _ = db.Close() }()
	var n int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('meta', 'deliveries', 'runs')").Scan(&n)
	if err == nil && n < 3 {
		err = fmt.Errorf("it is the SQLite database of another program: %w", ErrForeign)
	}
	return Damaged(err)
}

// create makes a new store under another name, and renames it when it is complete. So a
// process that is killed meanwhile leaves no store, and the next one starts again.
// more is done before that.
func (s *DB) create(ctx context.Context, cfg Options, more func(*DB) error) error {
	path := cfg.Path
	unfinished := Unfinished(path)
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Remove(unfinished + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Emptied and not removed: it says what the folder is. Nobody else may read it.
	f, err := os.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	fresh := newSQLite(cfg)
	err = fresh.fill(ctx, unfinished, cfg.Migrations)
	if err == nil && more != nil {
		err = more(fresh)
	}
	if err := errors.Join(err, fresh.closeHandles()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return err
	}
	return secret.SyncFolder(filepath.Dir(path))
}

// fill makes the tables of a new store. Nothing of it counts before all of it is
// on the disk, so that no step waits for it.
func (s *DB) fill(ctx context.Context, path string, files fs.FS) (err error) {
	s.writer = NewDatabase(path, map[string]string{"_journal_mode": "MEMORY", "_synchronous": "OFF", "_auto_vacuum": "incremental"})
	if s.conn, err = s.writer.Conn(ctx); err != nil {
		return err
	}
	if err := s.claimFile(ctx); err != nil {
		return err
	}
	if _, err := s.conn.ExecContext(ctx, "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"); err != nil {
		return err
	}
	all, err := MigrationsOf(files, "migrations")
	if err != nil {
		return err
	}
	if err := s.migrate(ctx, all); err != nil {
		return err
	}
	return s.admit(ctx)
}

// claimFile writes the application id into the header, if it is missing.
func (s *DB) claimFile(ctx context.Context) error {
	var id int
	if err := s.conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil || id == applicationID {
		return err
	}
	_, err := s.conn.ExecContext(ctx, "PRAGMA application_id = "+strconv.Itoa(applicationID))
	return err
}

// QuickCheck checks a file that is small enough.
func QuickCheck(ctx context.Context, conn *sql.Conn, path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxChecked {
		return err
	}
	rows, err := conn.QueryContext(ctx, "PRAGMA quick_check(3)")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var found []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		found = append(found, text)
	}
	if err := rows.Err(); err != nil || slices.Equal(found, []string{"ok"}) {
		return err
	}
	return fmt.Errorf("%w: %q", ErrDamaged, found)
}
