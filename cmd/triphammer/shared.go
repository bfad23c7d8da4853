//go:build linux && !client

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"triphammer/server/secret"
	"triphammer/server/store"
)

// addressFile is the file of a data directory whose store is a PostgreSQL database, with the
// address of the database. Commands find the store by it.
const addressFile = "store"

// sharedStore is where the store of several servers is.
type sharedStore struct{ address, file string }

func (s *sharedStore) flags(f *pflag.FlagSet) {
	f.StringVar(&s.address, "store", "",
		"PostgreSQL database that keeps what the server knows, for several servers at once: postgres://USER@HOST/DATABASE (default: a file in the data directory)")
	f.StringVar(&s.file, "store-file", "", "file with that address, if it has a password")
}

// resolve is the address; empty: the store is in the data directory.
func (s *sharedStore) resolve() (string, error) {
	switch {
	case s.address != "" && s.file != "":
		return "", exitWith(exitUsage, "--store and --store-file exclude each other")
	case s.file == "":
		return s.address, store.CheckURL(s.address)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return "", exitWith(exitUsage, "--store-file: %w", err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", exitWith(exitUsage, "--store-file: %s is empty", s.file)
	}
	if err := store.CheckURL(address); err != nil {
		return "", exitWith(exitUsage, "--store-file: %s: %w", s.file, err)
	}
	return address, nil
}

// rememberedStore is the address of the database that a data directory belongs to; empty: none.
func rememberedStore(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, addressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// chooseStore decides where the store of a data directory is. A server says it each time; a
// command finds it in the directory.
func (in *instance) chooseStore() error {
	known, err := rememberedStore(in.dir)
	if err != nil {
		return err
	}
	_, missing := os.Lstat(filepath.Join(in.dir, storeFile))
	switch given := in.opt.store; {
	case given != "" && missing == nil:
		return exitWith(exitUsage, `%s has a store of its own, %s. Copy it into the database first, and then remove it or give another --data DIR:
  triphammer store copy --from %s --to %s`, in.dir, storeFile, in.dir, store.NameOf(given))
	case given == "" && known != "" && !in.opt.impatient:
		return exitWith(exitUsage, "%s belongs to a server whose store is %s: give --store (or TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE)", in.dir, store.NameOf(known))
	case given == "":
		in.opt.store = known
		return nil
	case given != known:
		if err := in.rememberStore(given); err != nil {
			return err
		}
	}
	// It is no sign of an interrupted start any more.
	if err := os.Remove(store.Unfinished(filepath.Join(in.dir, storeFile))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exitWith(exitUsage, "the data directory: %w", err)
	}
	return nil
}

// otherKey explains that a server that joins others has no sealing key of theirs, and removes
// the key that it made.
func (in *instance) otherKey(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return exitWith(exitUsage, `the secrets in %s are sealed with the key of the servers that use it already.
Copy that key to %s, or name its file in TRIPHAMMER_KEY_FILE`, store.NameOf(in.opt.store), path)
}

func (in *instance) rememberStore(address string) error {
	err := os.WriteFile(filepath.Join(in.dir, addressFile), []byte(address+"\n"), 0o600)
	if err = errors.Join(err, secret.SyncFolder(in.dir)); err != nil {
		return exitWith(exitUsage, "the data directory: %w", err)
	}
	return nil
}
