package engine

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"triphammer/server/disk"
)

// reserve is a file that only reserves space on the disk. On a full disk it is removed
// for writes that must still happen: ends of runs, deletions, the start of a server.
// While it is missing, the store takes no other writes, so that deliveries and agents do
// not use up that space.
type reserve struct {
	path string // empty: there is none
	held bool
}

const maxReserve = 16 << 20

// size is how much is reserved on a file system, in bytes.
func (r *reserve) size(room disk.Room) int64 { return min(maxReserve, room.Total/16) }

// hold makes the file if there is space for twice its size.
func (r *reserve) hold() error {
	room, err := disk.Measure(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	size := r.size(room)
	enough := room.Free >= 2*size
	if info, err := os.Stat(r.path); err == nil && info.Mode().IsRegular() && (allocated(info) >= size || !enough) {
		return nil
	}
	if !enough {
		return fmt.Errorf("%s of %s are left: %w", disk.Bytes(room.Free), disk.Bytes(room.Total), syscall.ENOSPC)
	}
	if err := os.RemoveAll(r.path); err != nil {
		return err
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = io.CopyN(f, rand.Reader, size) // nothing compresses it
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(r.path))
	}
	return nil
}

// allocated is how much of the disk a file takes.
func allocated(info os.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return st.Blocks * 512
}

// spend removes the reserve to make space, and tells whether there was one.
func (s *DB) spend(why error) bool {
	if s.reserve.path == "" {
		return false
	}
	info, err := os.Stat(s.reserve.path)
	if err != nil {
		return false
	}
	if err := os.Remove(s.reserve.path); err != nil {
		s.Logger.Error("the reserve on the disk cannot be removed", "error", err)
		return false
	}
	s.reserve.held = false
	s.spent.Store(true)
	select {
	case s.full <- struct{}{}: // a log that is copied begins anew, and needs no room
	default:
	}
	s.Logger.Error("the disk is full: no delivery and no new run is taken until there is room; what ends runs uses the reserve",
		"reserve", disk.Bytes(info.Size()), "error", why)
	return true
}

// restock makes the reserve again. It runs on the writer, or before it.
func (s *DB) restock() {
	if s.reserve.path == "" || s.reserve.held {
		return
	}
	err := s.reserve.hold()
	was := s.spent.Swap(err != nil)
	switch s.reserve.held = err == nil; {
	case err == nil && was:
		s.Logger.Info("the disk has room again: deliveries and runs are taken")
	case err != nil && !was:
		s.Logger.Error("there is no room on the disk for the reserve: no delivery and no new run is taken", "error", err)
	}
}

// isUnsynced tells whether the disk did not confirm a write. The operating system may
// have dropped the data, although a read still returns it.
func isUnsynced(err error) bool {
	var failure sqlite3.Error
	return errors.Is(err, syscall.EIO) || errors.As(err, &failure) && (failure.ExtendedCode == sqlite3.ErrIoErrFsync || failure.ExtendedCode == sqlite3.ErrIoErrDirFsync)
}

// settleEvery is the time between two attempts to settle.
const settleEvery = time.Second

// settle does nothing unless a sync failed. After a failed sync, nothing is committed
// until the whole log has been copied into the database and the disk has confirmed both.
// Then everything that was committed is in the database, and the failed part of the log
// is overwritten.
func (s *DB) settle(ctx context.Context) error {
	if !s.unsynced.Load() {
		return nil
	}
	if now := time.Now(); now.Sub(s.settled) < settleEvery {
		return errUnsettled
	} else {
		s.settled = now
	}
	if err := errors.Join(s.copyAgain(ctx), s.copyLog(ctx, "FULL")); err != nil {
		s.Logger.Error("the disk does not confirm writes: nothing is taken until it does", "error", err)
		return fmt.Errorf("%w: %w", errUnsettled, err)
	}
	s.unsynced.Store(false)
	s.Logger.Warn("the disk confirms writes again: everything that was acknowledged has been written anew")
	return nil
}

var errUnsettled = fmt.Errorf("%w: the disk does not confirm writes", ErrUnavailable)

// settleAtOpen copies the log that a server left when it did not close the store. A sync
// may have failed last, and the log may still read from memory as if it were complete.
func (s *DB) settleAtOpen(ctx context.Context) error {
	err := s.copyLog(ctx, "TRUNCATE")
	switch {
	case err == nil || isFull(err) && s.reserveIsGone():
	case isFull(err):
		return err // once more, without the reserve
	case errors.Is(err, errLogInUse): // by a backup
		s.Logger.Warn("the write-ahead log of the last server could not be copied into the database", "error", err)
	default:
		s.unsynced.Store(true)
		s.Logger.Error("the write-ahead log could not be copied into the database; nothing is taken until it can", "error", err)
	}
	return nil
}

func (s *DB) reserveIsGone() bool {
	_, err := os.Stat(s.reserve.path)
	return err != nil
}

// copyAgain writes to the database again what was copied there from the log. SQLite does not:
// it remembers how far it copied, also if the disk then dropped it. Until it is confirmed, the
// log still has it. It runs on the writer, and changes nothing that a reader sees.
func (s *DB) copyAgain(ctx context.Context) error {
	var busy, pages, copied int64
	if err := s.row(ctx, "PRAGMA wal_checkpoint(NOOP)", nil, &busy, &pages, &copied); err != nil || copied <= 0 {
		return err
	}
	log, err := os.Open(s.file.Name() + "-wal")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	const header, frameHeader = 32, 24 // of the file format of SQLite
	newest := make(map[uint32]int64)   // where the log has each page
	for n := range copied {
		at := header + n*(frameHeader+PageSize)
		var number [4]byte
		if _, err := log.ReadAt(number[:], at); err != nil {
			return err
		}
		newest[binary.BigEndian.Uint32(number[:])] = at + frameHeader
	}
	page := make([]byte, PageSize)
	for number, at := range newest {
		if _, err := log.ReadAt(page, at); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(page, int64(number-1)*PageSize); err != nil {
			return err
		}
	}
	return nil
}

// copyLog copies all of the log into the database.
func (s *DB) copyLog(ctx context.Context, mode string) error {
	return s.each(ctx, "PRAGMA wal_checkpoint("+mode+")", nil, func(rows *sql.Rows) (bool, error) {
		var busy, pages, copied int
		if err := rows.Scan(&busy, &pages, &copied); err != nil {
			return false, err
		}
		if busy != 0 || pages != copied {
			return false, errLogInUse
		}
		return false, nil
	})
}

var errLogInUse = errors.New("another program reads the database")

// outcome is the outcome of a write.
type outcome struct {
	at  time.Time
	err error
}

// pingAge is how long Ping reuses an outcome, so that frequent calls do not cause a
// write each time.
const pingAge = time.Second

// pingSize is how much Ping writes: as much as a delivery of some size.
const pingSize = 16 << 10

// Ping tells whether the store can take a delivery. It writes as much as one, unless
// something was written just now.
func (s *DB) Ping(ctx context.Context) error {
	select {
	case <-s.closing:
		return ErrClosed
	default:
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case s.pinging <- struct{}{}:
	}
	defer func() { <-s.pinging }()
	if s.spent.Load() {
		return ErrFull
	}
	if last := s.lastWrite.Load(); last != nil {
		if age := s.Now().Sub(last.at); 0 <= age && age < pingAge {
			return last.err
		}
	}
	text := make([]byte, pingSize/2)
	_, _ = rand.Read(text) // it never fails
	return s.Grow(ctx, func(tx *Tx) error { return tx.SetMeta("ping", hex.EncodeToString(text)) })
}
