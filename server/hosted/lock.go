package hosted

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// lockLife is longer than a live program of Git holds a lock, which it does to write a line.
	lockLife = 5 * time.Second
	// incomingLife is longer than the objects of a push can wait for their check.
	incomingLife = 2 * serveTime
)

// clean removes files that killed programs of Git have left. A left lock would keep everybody
// from pushing for good. But a program that outlives the last server may still hold a lock, so
// clean waits before it removes a fresh lock.
func (r *Repository) clean(ctx context.Context) error {
	var locks []string
	for _, pattern := range []string{"*.lock", "objects/info/*.lock"} {
		found, err := fs.Glob(os.DirFS(r.cfg.Dir), pattern)
		if err != nil {
			return err
		}
		locks = append(locks, found...)
	}
	err := fs.WalkDir(os.DirFS(r.cfg.Dir), "refs", func(name string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".lock") {
			locks = append(locks, name)
		}
		return gone(err)
	})
	for _, lock := range locks {
		err = errors.Join(err, r.outlive(ctx, filepath.Join(r.cfg.Dir, lock)))
	}
	incoming, _ := fs.Glob(os.DirFS(r.cfg.Dir), "objects/tmp_objdir-*") // the pattern is right
	told, _ := fs.Glob(os.DirFS(r.cfg.Dir), toldFolder+"*")
	for _, name := range append(incoming, told...) {
		name = filepath.Join(r.cfg.Dir, name)
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > incomingLife {
			_ = os.RemoveAll(name) // after an error, the folder only takes room
		}
	}
	return err
}

// outlive waits until a lock is gone, or so old that nobody holds it. Then it removes the lock.
func (r *Repository) outlive(ctx context.Context, lock string) error {
	for {
		info, err := os.Stat(lock)
		if err != nil {
			return gone(err)
		}
		age := time.Since(info.ModTime())
		if age >= lockLife || age < 0 {
			r.cfg.Logger.Warn("a lock that a killed program of git has left behind is removed", "file", lock)
			return gone(os.Remove(lock))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(lockLife-age, lockLife/50)):
		}
	}
}

// gone returns the error, but nil if the error says that a file is not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
