package engine

import (
	"context"
	"database/sql"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"triphammer/server/disk"
)

// walPages is the length, in pages, from which the write-ahead log is copied into the
// database. The log file keeps its size and is overwritten, which takes a disk half the
// time of growing a file.
//
// In a large store each delivery changes another page of the index of identities. With a
// longer log, fewer of these pages are copied twice. So from 1,000,000 deliveries on the
// log is four times as long.
const (
	walPages    = 8000
	maxWALPages = 4 * walPages
	walShare    = 6 // of the database
)

// longLog holds the lengths, in pages, at which the write-ahead log is to be copied: the
// present limit and the next one. They grow with the database, up to most.
type longLog struct{ pages, next, most int }

// logOf is the limit for the disk of a folder. It is lower on a small disk. atMost: 0 is no limit.
func logOf(dir string, atMost int) longLog {
	pages, most := walPages, maxWALPages
	if room, err := disk.Measure(dir); err == nil {
		limit := max(64, room.Total/32/PageSize)
		pages, most = int(min(walPages, limit)), int(min(maxWALPages, limit))
	}
	if atMost > 0 {
		pages, most = min(pages, atMost*walPages/maxWALPages), min(most, atMost)
	}
	return longLog{pages, pages, most}
}

// measureEvery is after how many commits the writer looks how long the log is.
const measureEvery = 8

// copyings is how often the log is copied beside the writer. The second time copies what
// was added during the first, so that hardly anything is left.
const copyings = 2

// flushWindow is how much of the database is written to the disk at once. If all of it
// were written at once, commits would wait for the disk.
const flushWindow = 16 << 20

// checkpoints copies the log whenever the writer says that it is long. Copying takes as
// long as many commits, so it happens beside the writer. Under load the log grows
// meanwhile, and it only restarts when it is copied to its end. So the writer copies the
// small rest itself, between two transactions.
func (s *DB) checkpoints() {
	defer close(s.checkpointed)
	for {
		select {
		case <-s.full:
		case <-s.closing:
			return // closing the last connection copies all of it
		}
		var err error
		for range copyings {
			if _, err = s.Read.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
				break
			}
			if err = s.flush(); err != nil {
				s.unsynced.Store(true)
				break
			}
		}
		if err != nil {
			if isUnsynced(err) {
				s.unsynced.Store(true)
			}
			s.Logger.Warn("the write-ahead log could not be copied into the database; it is tried again when it has grown", "error", err)
			continue
		}
		select {
		case s.rest <- struct{}{}:
		case <-s.closing:
		}
	}
}

// flush writes the copied pages of the database to the disk. SQLite does that only when
// it has copied the log to its end, which the writer does. Without flush, every commit
// would then wait until thousands of pages are on the disk.
func (s *DB) flush() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if err := flushRange(s.file, 0, info.Size()); err != nil {
		return err
	}
	return s.file.Sync()
}

// flushRange writes a part of a file to the disk, window by window. The data is durable
// only after a Sync, which then has little to do.
func flushRange(f *os.File, from, n int64) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	for to := from + n; from < to; from += flushWindow {
		switch err := unix.SyncFileRange(int(f.Fd()), from, min(flushWindow, to-from), all); {
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ESPIPE), errors.Is(err, unix.EINVAL):
			return nil // a file system that has no such thing has Sync
		case err != nil:
			return err
		}
	}
	return nil
}

// logLength is how many pages the write-ahead log has. The mode does what it
// says: NOOP nothing, PASSIVE copies what no reader needs.
func (s *DB) logLength(ctx context.Context, mode string) (pages int, err error) {
	err = s.each(ctx, "PRAGMA wal_checkpoint("+mode+")", nil, func(rows *sql.Rows) (bool, error) {
		var busy, copied int
		return false, rows.Scan(&busy, &pages, &copied)
	})
	return pages, err
}

// measure asks for a checkpoint when the log is long, and again when it has grown by as
// much, because a reader may have kept it from restarting. It runs on the writer.
func (s *DB) measure(ctx context.Context) {
	pages, err := s.logLength(ctx, "NOOP")
	if err != nil {
		s.Logger.Warn("the length of the write-ahead log is unknown", "error", err)
		return
	}
	if pages+s.long.pages < s.long.next {
		s.long.next = s.long.pages
	}
	if pages < s.long.next {
		return
	}
	var database int
	if err := s.row(ctx, "PRAGMA page_count", nil, &database); err != nil {
		s.Logger.Warn("the size of the database is unknown", "error", err)
	}
	if s.long.pages = max(s.long.pages, min(s.long.most, database/walShare)); pages < s.long.pages {
		s.long.next = s.long.pages
		return
	}
	s.long.next = pages + s.long.pages
	select {
	case s.full <- struct{}{}:
	default: // it is being copied
	}
}
