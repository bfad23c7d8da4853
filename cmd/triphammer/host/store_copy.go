package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/server/store/copy"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func storeCopyCommand() *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use:   "copy --from DIR|URL --to URL|DIR",
		Short: "Move a whole store into a PostgreSQL database, or out of one",
		Long: `Copy all that a store holds from a data directory into an empty PostgreSQL database, or from such a database into a data
directory, the files of artifacts too, and compare the copy with the store, row by row. Stop all servers and workers
first: a store that is in use is refused. The source is not changed.

No server opens a copy that was interrupted. Empty the target, or take another target, and make the copy anew.

The sealing key is not copied. Servers of the copy need the same key: copy DIR/key to each of them, or, to copy into a
data directory, put it there before. Give a password in PGPASSWORD or a file that PGPASSFILE names, not in the URL: every
user of the machine can read the arguments of a process. A data directory of a server with --store stands for the database
in --from.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return exit.With(exit.Usage, "--from and --to are required: see %s --help", c.CommandPath())
			}
			return copyWhole(c, from, to)
		},
	}
	c.Flags().StringVar(&from, "from", "", "data directory, or address of a PostgreSQL database, that has the store")
	c.Flags().StringVar(&to, "to", "", "address of an empty PostgreSQL database, or a data directory without a store")
	term.OutputFlag(c)
	return c
}

// isAddress tells whether a place of a store is a database, and not a data directory.
func isAddress(place string) bool {
	return strings.HasPrefix(place, "postgres://") || strings.HasPrefix(place, "postgresql://")
}

// CopyReport is what `db copy` prints as JSON.
type copyReport struct {
	Rows    map[string]int64  `json:"rows"`
	Digests map[string]string `json:"digests"`
	Texts   int64             `json:"changed_texts"`
	Files   int64             `json:"artifact_files"`
	Damaged []string          `json:"damaged_artifacts"`
	KeyID   string            `json:"key_id"`
}

func copyWhole(c *cobra.Command, from, to string) (err error) {
	ctx := c.Context()
	if !isAddress(from) {
		known, err := rememberedStore(from)
		if err != nil {
			return exit.With(exit.Usage, "--from: %w", err)
		}
		if _, missing := os.Lstat(filepath.Join(from, StoreFile)); missing != nil && known != "" {
			from = known
		}
	}
	if isAddress(from) == isAddress(to) {
		return exit.With(exit.Usage, "one of --from and --to is a data directory, and the other a database (postgres://USER@HOST/DATABASE). triphammer db backup copies a data directory's store, and pg_dump a database")
	}
	var source, target copy.Place
	var lock *folderLock
	dir := from
	if isAddress(from) {
		dir, source.URL = to, from
		target, lock, err = targetFolder(ctx, to)
	} else {
		target.URL = to
		source, lock, err = sourceFolder(ctx, from)
	}
	if lock != nil {
		defer func() { err = errors.Join(err, lock.close()) }()
	}
	if err != nil {
		return err
	}
	for name, place := range map[string]copy.Place{"--from": source, "--to": target} {
		if err := store.CheckURL(place.URL); err != nil {
			return exit.With(exit.Usage, "%s: %w", name, err)
		}
	}
	needed, err := copy.KeyOf(ctx, source)
	if err != nil {
		return copyFailed(err)
	}
	if err := keyFits(c, dir, needed, isAddress(to)); err != nil {
		return err
	}
	shown := term.ShowProgress(c, "opening both stores", nil)
	copied, err := copy.Copy(ctx, source, target, shown.Counted)
	shown.End()
	if err != nil {
		return copyFailed(err)
	}
	if !isAddress(to) { // the directory is not one of the database's servers any more
		if err := os.Remove(filepath.Join(dir, AddressFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return exit.With(exit.Usage, "%w", err)
		}
	}
	return emitCopy(c, copied, dir, source, target)
}

func copyFailed(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, copy.ErrDifferent), errors.Is(err, store.ErrDamaged):
		return exit.With(exit.Bad, "%w", err)
	case errors.Is(err, copy.ErrNotEmpty), errors.Is(err, store.ErrOthers):
		return exit.With(exit.Conflict, "%w", err)
	case errors.Is(err, store.ErrMissing):
		return exit.With(exit.NotFound, "%w", err)
	}
	return exit.With(exit.Usage, "%w", err)
}

// placeOf is the store of a data directory.
func placeOf(dir string) copy.Place {
	return copy.Place{Path: filepath.Join(dir, StoreFile), Artifacts: filepath.Join(dir, "artifacts")}
}

// sourceFolder locks a data directory that is copied.
func sourceFolder(ctx context.Context, dir string) (copy.Place, *folderLock, error) {
	place := placeOf(dir)
	lock, _, err := openFolder(ctx, dir, false, false, false)
	if err != nil {
		return place, nil, stopFirst(err)
	}
	names, err := hosted.Names(filepath.Join(dir, HostedFolder))
	if err != nil || len(names) == 0 {
		return place, lock, err
	}
	return place, lock, exit.With(exit.Conflict, `the repositories of hosted factories (%s) lie in %s, and cannot be in a database: servers of one database read the definitions from a repository elsewhere.
Put each on a server for repositories (git clone --mirror %s …; git push --mirror URL), move %s away, and name it with serve --repo`,
		strings.Join(names, ", "), filepath.Join(dir, HostedFolder), filepath.Join(dir, HostedFolder, names[0]+".git"), filepath.Join(dir, HostedFolder))
}

// targetFolder makes and locks a data directory that a store is copied into.
func targetFolder(ctx context.Context, dir string) (copy.Place, *folderLock, error) {
	place := placeOf(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return place, nil, exit.With(exit.Usage, "the data directory: %w", err)
	}
	lock, err := lockFolder(ctx, dir, false)
	if err == nil {
		_, err = keepPrivate(dir, true)
	}
	return place, lock, stopFirst(err)
}

// keyFits looks whether the sealing key of a data directory is that of the store.
func keyFits(c *cobra.Command, dir, needed string, up bool) error {
	keyFile := keyFileOf(dir)
	key, err := secret.LoadKey(keyFile)
	switch {
	case needed == "":
		return nil // it has sealed nothing yet
	case err == nil && key.ID() == needed:
		return nil
	case up: // the copy is right without it
		_, err := fmt.Fprintf(c.ErrOrStderr(), "warning: %s is not the sealing key of the store (its id is %s): the servers of the copy need that one\n", keyFile, needed)
		return err
	case errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Usage, "the sealing key %s is missing: put the key of the servers of the database there first (its id is %s)", keyFile, needed)
	case err != nil:
		return exit.With(exit.Usage, "%w", err)
	}
	return exit.With(exit.Usage, "the sealing key %s has the id %s, but the secrets of the store need the key %s: put that key there", keyFile, key.ID(), needed)
}

func emitCopy(c *cobra.Command, copied *copy.Copied, dir string, from, to copy.Place) error {
	r := copyReport{
		Rows: make(map[string]int64), Digests: make(map[string]string), Texts: copied.Texts, Files: copied.Files,
		Damaged: append([]string{}, copied.Damaged...), KeyID: copied.KeyID,
	}
	rows := int64(0)
	for _, t := range copied.Tables {
		r.Rows[t.Name], r.Digests[t.Name] = t.Rows, fmt.Sprintf("%016x", t.Digest)
		rows += t.Rows
	}
	return term.Emit(c, r, slices.Clone(r.Damaged), func(w io.Writer) error {
		fmt.Fprintf(w, "%s is a copy of %s now: %d rows in %d tables (%s), %d files of artifacts; each was compared\n",
			to, from, rows, len(copied.Tables), holdings(api.StoreReport{Rows: r.Rows}), copied.Files)
		if r.Texts > 0 {
			fmt.Fprintf(w, "%d values have another text there: PostgreSQL's text cannot have NUL and what is not UTF-8, and has U+FFFD instead\n", r.Texts)
		}
		for _, d := range r.Damaged {
			fmt.Fprintf(w, "damaged before: the content of %s is missing or not what was stored\n", d)
		}
		if to.URL != "" {
			fmt.Fprintf(w, `Next: give each server the sealing key %s (%s), and start it with --store on a data directory of its own.
Keep %s as it is until you are sure, and start no server on it: what each of them takes from now on, the other does not know
`, copied.KeyID, keyFileOf(dir), from)
			return nil
		}
		fmt.Fprintf(w, "Next: start the server with --data %s, without --store, and none on %s any more\n", dir, from)
		return nil
	})
}

// checkDatabase is `db check` of a database.
func checkDatabase(c *cobra.Command, shared *sharedStore) error {
	address, err := shared.resolve()
	if err != nil {
		return err
	}
	report, err := store.CheckDatabase(c.Context(), address)
	switch {
	case errors.Is(err, store.ErrMissing):
		return exit.With(exit.NotFound, "%s: %w", store.NameOf(address), err)
	case err != nil:
		return exit.With(exit.Usage, "%s: %w", store.NameOf(address), err)
	}
	return emitReport(c, server.ShowReport(report))
}
