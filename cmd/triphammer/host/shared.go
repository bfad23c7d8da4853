package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// AddressFile is the file of a data directory whose store is a PostgreSQL database, with the
// address of the database. Commands find the store by it.
const AddressFile = "store"

// sharedStore is where the store of several servers is.
type sharedStore struct{ address, file string }

func (s *sharedStore) flags(f *pflag.FlagSet) {
	settings.StoreFlags(f, &s.address, &s.file)
}

// resolve is the address; empty: the store is in the data directory.
func (s *sharedStore) resolve() (string, error) {
	switch {
	case s.address != "" && s.file != "":
		return "", exit.With(exit.Usage, "--store and --store-file exclude each other")
	case s.file == "":
		return s.address, store.CheckURL(s.address)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return "", exit.With(exit.Usage, "--store-file: %w", err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", exit.With(exit.Usage, "--store-file: %s is empty", s.file)
	}
	if err := store.CheckURL(address); err != nil {
		return "", exit.With(exit.Usage, "--store-file: %s: %w", s.file, err)
	}
	return address, nil
}

// storeOfCommand is the shared store that a command names which opens a data directory in its
// own process: by a flag, a variable, or, for a new data directory, the configuration file.
func storeOfCommand(c *cobra.Command, dir string) (string, error) {
	if settings.GivenStore(c) {
		address, _ := c.Flags().GetString("store") // a command has both flags
		file, _ := c.Flags().GetString("store-file")
		return (&sharedStore{address, file}).resolve()
	}
	given := &serving{}
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	given.serveFlags(f)
	if absolute, err := filepath.Abs(dir); err != nil || absolute == nearestDev() {
		return "", err // dev has a store of its own
	}
	var config configuration
	if !isDataDirectory(dir) {
		var err error
		if config, err = configFile(f, ""); err != nil {
			return "", err
		}
	}
	if err := settings.FromEnvironment(f, config.values, "store", "store-file"); err != nil {
		return "", err
	}
	return given.database.resolve()
}

// sameStore refuses a command whose flag names another store than that of the server that runs on
// the data directory.
func sameStore(c *cobra.Command, dir string) error {
	if !settings.GivenStore(c) {
		return nil
	}
	given, err := storeOfCommand(c, dir)
	if err != nil {
		return err
	}
	if known, err := rememberedStore(dir); err != nil || given != known {
		return errors.Join(err, exit.With(exit.Conflict, "the server that runs on %s has another store than --store names", dir))
	}
	return nil
}

// rememberedStore is the address of the database that a data directory belongs to; empty: none.
func rememberedStore(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, AddressFile))
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
	_, missing := os.Lstat(filepath.Join(in.dir, StoreFile))
	switch given := in.opt.store; {
	case given != "" && missing == nil:
		return exit.With(exit.Usage, `%s has a store of its own, %s. Copy it into the database first, and then remove it or give another --data DIR:
  triphammer db copy --from %s --to %s`, in.dir, StoreFile, in.dir, store.NameOf(given))
	case given == "" && known != "" && !in.opt.impatient:
		return exit.With(exit.Usage, "%s belongs to a server whose store is %s: give --store (or TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE)", in.dir, store.NameOf(known))
	case given == "":
		in.opt.store = known
		return nil
	case given != known && known != "" && in.opt.impatient:
		return exit.With(exit.Conflict, "%s belongs to a server whose store is %s, and --store (or TRIPHAMMER_STORE, or TRIPHAMMER_STORE_FILE) names %s: give one of the two", in.dir, store.NameOf(known), store.NameOf(given))
	case given != known:
		if err := in.rememberStore(given); err != nil {
			return err
		}
	}
	// It is no sign of an interrupted start any more.
	if err := os.Remove(store.Unfinished(filepath.Join(in.dir, StoreFile))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Usage, "the data directory: %w", err)
	}
	return nil
}

// otherKey explains that a server that joins others has no sealing key of theirs, and removes
// the key that it made.
func (in *instance) otherKey(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return exit.With(exit.Usage, `the secrets in %s are sealed with the key of the servers that use it already.
Copy that key to %s, or name its file in TRIPHAMMER_KEY_FILE`, store.NameOf(in.opt.store), path)
}

func (in *instance) rememberStore(address string) error {
	err := os.WriteFile(filepath.Join(in.dir, AddressFile), []byte(address+"\n"), 0o600)
	if err = errors.Join(err, secret.SyncFolder(in.dir)); err != nil {
		return exit.With(exit.Usage, "the data directory: %w", err)
	}
	return nil
}
