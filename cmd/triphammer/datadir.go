package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/secret"
	"triphammer/server/store"
)

// What a data directory holds (docs/operating.md). None of it is made before the
// file that store.Unfinished names.
const (
	storeFile = "triphammer.db"
	keyName   = "key"
	lockName  = "lock"
)

// traces are what tells a data directory that has lost its store from a folder
// that never was one.
func traces(dir string) (found []string) {
	for _, name := range append([]string{keyName, lockName, baseURLFile}, store.Beside(storeFile)...) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// openFolder takes a data directory for this process alone. With mayMake, it
// makes one that is missing, or whose making was cut off; made tells whether it
// did: the store is to be made then, and else to be found. What was a data
// directory and has no store is refused in any case: a fresh one in its place
// would forget every webhook's URL without a word.
func openFolder(ctx context.Context, dir string, mayMake, wait bool) (lock *folderLock, made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !mayMake:
		return nil, false, noFolder("there is no data directory %s", dir)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(dir, 0o700)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err != nil {
		return nil, false, exitWith(exitUsage, "the data directory: %w", err)
	}
	if lock, err = lockFolder(ctx, dir, wait); err != nil {
		return nil, false, err
	}
	if lock.exposed, err = keepPrivate(dir, mayMake); err == nil {
		made, err = prepareFolder(dir, mayMake)
	}
	if err == nil {
		err = lock.takeFile(ctx, wait)
	}
	if err != nil {
		return nil, false, errors.Join(err, lock.close())
	}
	return lock, made, nil
}

// keepPrivate sees to it that nobody but this user can look into a data directory,
// or into a folder that is to become one. It returns the mode that it had if it
// had to be changed. A folder that is not this user's, or that others use too, is
// refused.
func keepPrivate(dir string, mayMake bool) (was fs.FileMode, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, exitWith(exitUsage, "the data directory: %w", err)
	}
	_, err = os.Lstat(filepath.Join(dir, storeFile))
	isData, mode := err == nil, info.Mode().Perm()
	if mode&0o077 == 0 || !isData && !mayMake {
		return 0, nil
	}
	const instead = "Give a folder below it, which is made for this server alone: --data %s"
	below := filepath.Join(dir, "triphammer")
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return 0, exitWith(exitUsage, "other users can look into the data directory %s (mode %04o), which belongs to the user %d and not to %d. Let its owner chmod 700 it.\n"+instead,
			dir, mode, owner, os.Geteuid(), below)
	}
	if !isData && len(traces(dir)) == 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, exitWith(exitUsage, "the data directory: %w", err)
		}
		for _, e := range entries {
			if e.Name() != store.Unfinished(storeFile) {
				return 0, exitWith(exitUsage, "other users can look into %s (mode %04o), which holds %s and is no data directory: it is not closed to them.\n"+instead,
					dir, mode, e.Name(), below)
			}
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return 0, exitWith(exitUsage, "other users can look into the data directory: %w", err)
	}
	return mode, nil
}

// prepareFolder judges a folder that this process holds, and marks one that is to
// become a data directory.
func prepareFolder(dir string, mayMake bool) (made bool, err error) {
	path := filepath.Join(dir, storeFile)
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	unfinished, left := exists(store.Unfinished(path)), traces(dir)
	switch {
	case exists(path):
		return false, nil
	case !unfinished && len(left) > 0:
		return false, exitWith(exitUsage, `%s was a data directory (it holds %s), and its store %s is missing.
Put %s back from a backup (triphammer db restore FILE). To begin anew instead, with other webhook URLs and without the secrets, remove what is left there first`,
			dir, strings.Join(left, ", "), storeFile, storeFile)
	case !mayMake && unfinished:
		return false, noFolder("the data directory %s was not made to its end", dir)
	case !mayMake:
		return false, noFolder("%s is no data directory: it holds no %s", dir, storeFile)
	}
	f, err := os.OpenFile(store.Unfinished(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), secret.SyncFolder(dir))
	}
	if err != nil {
		return false, exitWith(exitUsage, "the data directory: %w", err)
	}
	return true, nil
}

func noFolder(format string, args ...any) error {
	return exitWith(exitNotFound, format+`
Name that of the server: --data DIR, or TRIPHAMMER_DATA. A new one is made by serve, dev, secrets set and keys create`, args...)
}

// announce says that a data directory was made, and where, or was closed to others.
func (in *instance) announce(w io.Writer) {
	if was := in.lock.exposed; was != 0 && in.made {
		fmt.Fprintf(w, "The folder %s was open to other users (mode %04o) and is closed to them now (0700)\n", in.dir, was)
	} else if was != 0 {
		fmt.Fprintf(w, "warning: other users could look into the data directory %s (mode %04o); it is closed to them now (0700)\n", in.dir, was)
	}
	if in.made {
		fmt.Fprintf(w, "Made the data directory %s, with a new store and a new sealing key (%s)\n", in.dir, keyFileOf(in.dir))
	}
}

// keyFileOf is the file of the sealing key (SPEC 10.1).
func keyFileOf(dir string) string {
	if path := os.Getenv("TRIPHAMMER_KEY_FILE"); path != "" {
		return path
	}
	return filepath.Join(dir, keyName)
}

// sealingKey reads the key, or makes that of a new store. A store that is there
// was sealed with another than a new one.
func (in *instance) sealingKey(path string) (*secret.Key, error) {
	if in.made {
		return secret.LoadOrCreateKey(path)
	}
	key, err := secret.LoadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf(`the sealing key %s of the store in %s is missing.
Put it back from where you keep it (TRIPHAMMER_KEY_FILE names another place). No new one is made: it would open none of the secrets`, path, in.dir)
	}
	return key, err
}

// wayBack adds to an error about the store what to do.
func wayBack(err error) error {
	for _, lost := range []error{store.ErrMissing, store.ErrForeign, store.ErrDamaged} {
		if errors.Is(err, lost) {
			return fmt.Errorf(`%w
Nothing is put in its place. Restore %s from a backup (triphammer db restore; docs/operating.md, "Restore"), or give another --data DIR`, err, storeFile)
		}
	}
	return err
}

// lockPatience is how long to wait for the data directory: a command that holds
// it is done in a moment.
const lockPatience = 5 * time.Second

// errLocked is what a data directory is that another process holds.
var errLocked = errors.New("in use by another process")

// folderLock holds a data directory: the folder itself, which nobody can take away
// from under a server and make anew, and the file in it that older programs look
// at.
type folderLock struct {
	folder, file *os.File
	exposed      fs.FileMode // of a folder that was open to others; 0: it was not
}

func lockFolder(ctx context.Context, dir string, wait bool) (*folderLock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, exitWith(exitUsage, "the data directory: %w", err)
	}
	if err := flock(ctx, f, dir, wait); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &folderLock{folder: f}, nil
}

// takeFile locks the file too.
func (l *folderLock) takeFile(ctx context.Context, wait bool) (err error) {
	dir := l.folder.Name()
	if l.file, err = os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return exitWith(exitUsage, "the data directory: %w", err)
	}
	return flock(ctx, l.file, dir, wait)
}

func (l *folderLock) close() error {
	err := l.folder.Close()
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return err
}

// flock takes the lock of a file of a data directory.
func flock(ctx context.Context, f *os.File, dir string, wait bool) error {
	err := waitFor(ctx, lockPatience, "it is held", func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		held := errors.Is(err, syscall.EWOULDBLOCK)
		if err != nil && (!held || !wait) {
			return false, err
		}
		return !held, nil
	})
	switch e := (*exitError)(nil); {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.As(err, &e):
		return exitWith(exitUsage, "the data directory %s cannot be locked; it belongs on a local disk: %w", dir, err)
	}
	if wait {
		if cl, err := socketClient(dir); err == nil {
			cl.close()
			return exitWith(exitUnreachable, "the data directory %s is %w%s: a server is running on it, and answers on its socket", dir, errLocked, holder(f))
		}
	}
	return exitWith(exitUnreachable, "the data directory %s is %w%s, which does not answer on its socket (a server that starts or stops?)", dir, errLocked, holder(f))
}

// holder is which process holds the lock of a file, for a message; empty if the
// system does not tell, as of a process of another container.
func holder(f *os.File) string {
	var st syscall.Stat_t
	table, err := os.ReadFile("/proc/locks")
	if err != nil || syscall.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(table)) {
		// 1: FLOCK ADVISORY WRITE 4711 fd:00:12345 0 EOF
		if lock := strings.Fields(line); len(lock) > 5 && lock[1] == "FLOCK" && lock[5] == file && lock[4] != "0" {
			return " (process " + lock[4] + ")"
		}
	}
	return ""
}
