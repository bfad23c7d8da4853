package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mattn/go-sqlite3"

	"triphammer/server/disk"
)

// ErrBackup refuses a second backup while one is being made.
var ErrBackup = errors.New("a backup is being made already")

// backupPages is how many pages are copied before it is looked whether the step is
// over.
const backupPages = 32

// PageSize is that of SQLite.
const PageSize = 4096

// backupReserve is how much room a backup leaves on the file system.
const backupReserve = 64 << 20

// unfinishedBackup is the file in which a copy is made, until it is complete.
func unfinishedBackup(path string) string { return path + "-backup" }

// Backup makes a copy of the store, with all that was acknowledged before it
// began, and returns its file. The file has no name any more: it is gone when the
// caller closes it. It needs as much room as the store, beside it. The key is not
// in it.
//
// The pages are copied by the connection that writes: what is written meanwhile
// goes into the copy too. A copy by any other would begin anew at each commit, or
// keep the write-ahead log from doing so.
//
// The pages of a shared database cannot be copied: into copies it, as it is at one moment, into the
// new file.
func (s *DB) Backup(ctx context.Context, into func(ctx context.Context, address, path string) error) (copied *os.File, err error) {
	if !s.backup.TryLock() {
		return nil, ErrBackup
	}
	defer s.backup.Unlock()
	select {
	case <-s.closing:
		return nil, ErrClosed
	default:
	}
	p, shared := s.dialect.(*postgres)
	near := s.path
	if err := s.roomForBackup(ctx, near); err != nil {
		return nil, err
	}
	path := unfinishedBackup(near)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, os.Remove(path))
		if err != nil {
			copied = nil
			_ = f.Close()
		}
	}()
	if shared {
		err = into(ctx, p.config.ConnString(), path)
	} else {
		err = s.copyPages(ctx, path, f)
	}
	if err != nil {
		return nil, fmt.Errorf("copying the store: %w", err)
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// roomForBackup refuses a backup for which there is no space, before it uses the space
// that deliveries need.
func (s *DB) roomForBackup(ctx context.Context, near string) error {
	size := int64(0)
	if s.Shared() {
		if err := s.Read.QueryRowContext(ctx, "SELECT pg_database_size(current_database())").Scan(&size); err != nil {
			return err
		}
	} else {
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	room, err := disk.Measure(filepath.Dir(near))
	if need := size + backupReserve; err == nil && room.Free < need {
		return fmt.Errorf("%w: a backup needs %s beside the store, and %s are free there", ErrNoRoom, disk.Bytes(need), disk.Bytes(room.Free))
	}
	return err
}

// ErrNoRoom refuses something for which there is not enough space on the disk.
var ErrNoRoom = errors.New("not enough room")

// copyPages copies the store to a file in steps between which others write. A step
// has no transaction: SQLite copies nothing within one that writes.
func (s *DB) copyPages(ctx context.Context, path string, f *os.File) (err error) {
	// What is copied counts only when all of it is.
	to := NewDatabase(path, map[string]string{"_journal_mode": "OFF", "_synchronous": "OFF"})
	defer func() { err = errors.Join(err, to.Close()) }()
	conn, err := to.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "PRAGMA cache_size = -1000"); err != nil { // it is written once
		return err
	}
	return conn.Raw(func(raw any) (err error) {
		var b *sqlite3.SQLiteBackup
		defer func() {
			if b != nil {
				err = errors.Join(err, b.Finish())
			}
			if err == nil {
				err = f.Sync()
			}
		}()
		copied, flushed := int64(0), int64(0)
		return s.InSteps(ctx, Task{alone: true, Run: func(_ *Tx, st *Step) (more bool, err error) {
			if b == nil {
				err = s.conn.Raw(func(from any) (err error) {
					b, err = raw.(*sqlite3.SQLiteConn).Backup("main", from.(*sqlite3.SQLiteConn), "main")
					return err
				})
			}
			for err == nil && st.Takes(backupPages*PageSize) {
				copied += backupPages * PageSize
				var done bool
				if done, err = b.Step(backupPages); done {
					return false, err
				}
			}
			return true, err
		}, after: func() (err error) {
			if copied-flushed >= flushWindow {
				err = flushRange(f, flushed, copied-flushed)
				flushed = copied
			}
			return err
		}})
	})
}
