package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// Files of a data directory (docs/operating.md). They are made after the file that
// store.Unfinished names.
const (
	StoreFile = "triphammer.db"
	KeyName   = "key"
)

// traces are the files which show that a folder without a store was a data directory.
func traces(dir string) (found []string) {
	for _, name := range append([]string{KeyName, baseURLFile}, store.Beside(StoreFile)...) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// openFolder locks a data directory for this process. With mayMake, it makes a data
// directory that is missing, or completes one whose making was interrupted. made tells
// whether it did, so that the store must be made; otherwise the store must exist. A data
// directory that has lost its store is always refused, because a new store would silently
// forget the URL of every webhook. A shared store is elsewhere.
func openFolder(ctx context.Context, dir string, mayMake, wait, shared bool) (lock *folderLock, made bool, err error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !mayMake:
		return nil, false, noFolder("there is no data directory %s", dir)
	case errors.Is(err, fs.ErrNotExist):
		if err = os.MkdirAll(dir, 0o700); err != nil {
			err = fmt.Errorf("%w (--data or TRIPHAMMER_DATA names another place)", err)
		}
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err != nil {
		return nil, false, exit.With(exit.Usage, "the data directory: %w", err)
	}
	if lock, err = lockFolder(ctx, dir, wait); err != nil {
		return nil, false, err
	}
	if lock.exposed, err = keepPrivate(dir, mayMake); err == nil {
		made, err = prepareFolder(dir, mayMake, shared)
	}
	if err != nil {
		return nil, false, errors.Join(err, lock.close())
	}
	return lock, made, nil
}

// passing is the mode for others of the data directory of a root server, whose runs have
// another user: they reach their workspaces through it, and see nothing of it.
const passing = 0o011

// keepPrivate makes sure that only this user can look into a data directory, or into a
// folder that will become one. If it changes the mode, it returns the earlier one. It
// refuses a folder that belongs to another user, or that has other uses.
func keepPrivate(dir string, mayMake bool) (was fs.FileMode, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, exit.With(exit.Usage, "the data directory: %w", err)
	}
	isData, mode := isDataDirectory(dir), info.Mode().Perm()
	if others := mode & 0o077; others == 0 || others == passing && os.Geteuid() == 0 || !isData && !mayMake {
		return 0, nil
	}
	const instead = "Give a folder below it, which is made for this server alone: --data %s"
	below := filepath.Join(dir, "triphammer")
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return 0, exit.With(exit.Usage, "other users can look into the data directory %s (mode %04o), which belongs to the user %d and not to %d. Its owner must run chmod 700 on it.\n"+instead,
			dir, mode, owner, os.Geteuid(), below)
	}
	if !isData && len(traces(dir)) == 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, exit.With(exit.Usage, "the data directory: %w", err)
		}
		for _, e := range entries {
			if e.Name() != store.Unfinished(StoreFile) {
				return 0, exit.With(exit.Usage, "other users can look into %s (mode %04o), which holds %s and is not a data directory, so it is not closed to them.\n"+instead,
					dir, mode, e.Name(), below)
			}
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return 0, exit.With(exit.Usage, "other users can look into the data directory: %w", err)
	}
	return mode, nil
}

// isDataDirectory tells whether a folder has a store, or the address of one.
func isDataDirectory(dir string) bool {
	for _, name := range []string{StoreFile, AddressFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// prepareFolder checks a folder that this process has locked. It marks a folder that will
// become a data directory.
func prepareFolder(dir string, mayMake, shared bool) (made bool, err error) {
	path := filepath.Join(dir, StoreFile)
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	unfinished, left := exists(store.Unfinished(path)), traces(dir)
	switch {
	case exists(path), exists(filepath.Join(dir, AddressFile)):
		return false, nil
	case !unfinished && len(left) > 0 && !(shared && mayMake): // the sealing key of the others can be there first
		return false, exit.With(exit.Usage, `%s was a data directory (it holds %s), and its store %s is missing.
Put %s back from a backup (triphammer db restore FILE). To begin anew instead, with other webhook URLs and without the secrets, remove what is left there first`,
			dir, strings.Join(left, ", "), StoreFile, StoreFile)
	case !mayMake && unfinished:
		return false, noFolder("the data directory %s is incomplete", dir)
	case !mayMake:
		return false, noFolder("%s is not a data directory: it holds no %s", dir, StoreFile)
	}
	f, err := os.OpenFile(store.Unfinished(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), secret.SyncFolder(dir))
	}
	if err != nil {
		return false, exit.With(exit.Usage, "the data directory: %w", err)
	}
	return true, nil
}

func noFolder(format string, args ...any) error {
	return exit.With(exit.NotFound, format+`
Name that of the server: --data DIR, or TRIPHAMMER_DATA. A new one is made by serve, dev, secrets set and keys create`, args...)
}

// announce prints that a data directory was made, or that it was closed to other users.
func (in *instance) announce(w io.Writer) {
	if was := in.lock.exposed; was != 0 && in.made {
		fmt.Fprintf(w, "The folder %s was open to other users (mode %04o) and is closed to them now (0700)\n", in.dir, was)
	} else if was != 0 {
		fmt.Fprintf(w, "warning: other users could look into the data directory %s (mode %04o); it is closed to them now (0700)\n", in.dir, was)
	}
	if in.made && in.opt.store != "" {
		fmt.Fprintf(w, "Made the data directory %s of a server whose store is %s (sealing key: %s)\n", in.dir, store.NameOf(in.opt.store), keyFileOf(in.dir))
	} else if in.made {
		fmt.Fprintf(w, "Made the data directory %s, with a new store and a new sealing key (%s)\n", in.dir, keyFileOf(in.dir))
	}
}

// keyFileOf is the path of the sealing key (SPEC 10.1).
func keyFileOf(dir string) string {
	if path := os.Getenv("TRIPHAMMER_KEY_FILE"); path != "" {
		return path
	}
	return filepath.Join(dir, KeyName)
}

// sealingKey reads the sealing key. It makes a key only for a new store, because a new key
// cannot open the secrets of an existing store.
func (in *instance) sealingKey(path string) (*secret.Key, error) {
	if !in.opt.joins && (in.made || in.opt.store != "") { // of a database with other servers, opening it tells
		return secret.LoadOrCreateKey(path)
	}
	key, err := secret.LoadKey(path)
	if errors.Is(err, fs.ErrNotExist) && in.opt.joins {
		return nil, fmt.Errorf("the sealing key of the servers is missing: copy it to %s, or name its file in TRIPHAMMER_KEY_FILE", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf(`the sealing key %s of the store in %s is missing.
Put it back from where you keep it (TRIPHAMMER_KEY_FILE names another place). No new one is made: it would open none of the secrets`, path, in.dir)
	}
	return key, err
}

// wayBack adds to an error about the store how to recover.
func wayBack(err error) error {
	for _, lost := range []error{store.ErrMissing, store.ErrForeign, store.ErrDamaged} {
		if errors.Is(err, lost) {
			return fmt.Errorf(`%w
Nothing is put in its place. Restore %s from a backup (triphammer db restore; docs/backup.md, "Restoring"), or give another --data DIR`, err, StoreFile)
		}
	}
	return err
}

// errLocked is the error for a data directory that another process has locked.
var errLocked = errors.New("in use by another process")

// stopFirst is the error of a command that has a data directory for itself, or nobody has it.
func stopFirst(err error) error {
	if !errors.Is(err, errLocked) {
		return err
	}
	return exit.With(exit.Conflict, "%w: stop it first", err)
}

// folderLock is the lock of a data directory. It locks the folder itself, so that a new
// folder at the same path cannot be mistaken for it.
type folderLock struct {
	folder  *os.File
	exposed fs.FileMode // the earlier mode of a folder that was open to other users; 0: it was not
}

func lockFolder(ctx context.Context, dir string, wait bool) (*folderLock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, cmp.Or(noEntry(dir, err), exit.With(exit.Usage, "the data directory: %w", err))
	}
	if err := flock(ctx, f, wait); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &folderLock{folder: f}, nil
}

func (l *folderLock) close() error { return l.folder.Close() }

// flock locks a folder.
func flock(ctx context.Context, f *os.File, wait bool) error {
	dir := f.Name()
	err := client.WaitFor(ctx, lockPatience, "it is held", func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		held := errors.Is(err, syscall.EWOULDBLOCK)
		if err != nil && (!held || !wait) {
			return false, err
		}
		return !held, nil
	})
	switch e := (*exit.Error)(nil); {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.As(err, &e):
		return exit.With(exit.Usage, "the data directory %s cannot be locked; it belongs on a local disk: %w", dir, err)
	}
	if !wait { // whoever does not wait finds out what to say
		return exit.With(exit.Unreachable, "the data directory %s is %w", dir, errLocked)
	}
	cl, err := SocketClient(ctx, dir)
	if err != nil {
		return silentHolder(dir, err)
	}
	cl.Close()
	return exit.With(exit.Unreachable, "the data directory %s is %w: a server is running on it, and answers on its socket. Stop it, or give this one another: --data DIR", dir, errLocked)
}

// silentHolder is the error of a data directory that a process has locked which did not
// answer on its socket, but with err.
func silentHolder(dir string, err error) error {
	return exit.With(exit.Unreachable, `the data directory %s is %w, which does not answer on its socket (%v).
A server that starts or stops does not answer, nor does a command that works on the store: try again in a moment. Else find the process (lslocks shows it): if it is stopped, continue it (kill -CONT); if it hangs, or its socket %s was removed, end it and start it again`,
		dir, errLocked, err, SocketName)
}
