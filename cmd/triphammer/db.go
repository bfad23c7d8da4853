//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/server"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func dbCommand() *cobra.Command {
	backup := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Copy the store to a file, while the server runs or not",
		Long: `Copy the store to a new file on this machine, or to standard output. What was acknowledged before it began is in it,
whatever is written meanwhile. The server makes the copy in its data directory first, which takes as much room as the
store has, at a pace that leaves the disk to deliveries.

The file is written under another name, read again and verified, and gets its own name when it is whole; one that is
there is not written over. Only its owner can read it. It holds no sealing key: keep a copy of DIR/key apart from it,
without which its secrets cannot be opened. It holds no files of artifacts either: copy DIR/artifacts after it.

Of a server whose store is a PostgreSQL database, the copy is the same kind of file, and has the content of artifacts too:
triphammer db restore makes it the store of one server, from where triphammer store copy moves it into a database.`,
		Args: exactly("FILE"),
		RunE: withServer(false, backupStore),
	}
	var shared sharedStore
	throughServer := withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
		var r api.StoreReport
		if err := cl.call(c.Context(), http.MethodPost, "/check", nil, &r); err != nil {
			return err
		}
		return emitReport(c, r)
	})
	check := &cobra.Command{
		Use: "check", Short: "Read all that is stored, and tell what is damaged", Args: cobra.NoArgs,
		Long: `Read all that is stored, on a server that runs, in a data directory, or with --store in a PostgreSQL database: the
structure of the file, and every payload, file of an apply, transcript and artifact as when it is used. It takes some
seconds per GB. Status 1 if something is damaged.`,
		RunE: func(c *cobra.Command, args []string) error {
			if shared.address+shared.file != "" {
				return checkDatabase(c, &shared)
			}
			return throughServer(c, args)
		},
	}
	var dir string
	var verify bool
	restore := &cobra.Command{
		Use:   "restore FILE --data DIR",
		Short: "Put a backup in the place of a store that is gone, or verify one",
		Long: `Verify a backup, and make it the store of a data directory that has none. A store that is there is never replaced: stop
the server and move triphammer.db away first, with the files whose names begin like it. The sealing key that the
backup's secrets need has to be in DIR/key (or where TRIPHAMMER_KEY_FILE says) before.

With --verify, the backup is verified and nothing else is done: the structure of the file, what it holds, its schema,
and which sealing key it needs. Status 1 if something is damaged.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := fromEnvironment(c.Flags(), nil, "data"); err != nil {
				return err
			}
			return restoreStore(c, args[0], dir, verify)
		},
	}
	for _, c := range []*cobra.Command{backup, check} {
		clientFlags(c)
	}
	restore.Flags().StringVar(&dir, "data", "", "data directory; made if it is missing")
	restore.Flags().BoolVar(&verify, "verify", false, "verify the backup, and do nothing else")
	check.Flags().StringVar(&shared.address, "store", "", "PostgreSQL database to check without a server")
	check.Flags().StringVar(&shared.file, "store-file", "", "file with that address, if it has a password")
	outputFlag(check)
	outputFlag(restore)
	db := noun("db", "Backups of the store, what is damaged in it, and moving it", backup, check, restore, storeCopyCommand())
	db.Aliases = []string{"store"}
	return db
}

func backupStore(c *cobra.Command, args []string, cl *client) (err error) {
	ctx, path := c.Context(), args[0]
	if path == "-" {
		if terminalOf(c.OutOrStdout()) != nil {
			return exitWith(exitUsage, "standard output is a terminal; write the copy to a file: triphammer db backup FILE")
		}
		shown := showProgress(c, copyingStore, nil)
		defer shown.end()
		resp, err := cl.answer(ctx, http.MethodPost, "/backup", nil)
		if err != nil {
			return err
		}
		return errors.Join(receive(resp, c.OutOrStdout(), shown), resp.Body.Close())
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return exitWith(exitConflict, "%s exists already, and is not overwritten", path)
	}
	// The file is made first, to find out early whether it can be written.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	defer func() {
		if removed := os.Remove(f.Name()); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	defer func() { _ = f.Close() }()
	shown := showProgress(c, copyingStore, nil)
	defer shown.end()
	resp, err := cl.answer(ctx, http.MethodPost, "/backup", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(receive(resp, paced{f}, shown), resp.Body.Close()); err != nil {
		return err
	}
	shown.set("verifying the copy")
	if err := f.Sync(); err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	report, err := store.CheckFile(ctx, f.Name())
	if err != nil || len(report.Problems) > 0 {
		return exitWith(exitBad, "the copy is damaged, and is not kept: %w; what does triphammer db check say?", errors.Join(err, problems(report)))
	}
	if err := publish(f.Name(), path); err != nil {
		return err
	}
	shown.end()
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%s is written (%s); its secrets need the sealing key %s, which is not in it\n",
		path, holdings(server.ShowReport(report)), report.KeyID)
	return err
}

// copyingStore is what the server does before its answer to a backup begins.
const copyingStore = "the server copies its store"

// receive copies the body of an answer.
func receive(resp *http.Response, to io.Writer, shown *progress) error {
	n, err := io.Copy(to, shown.reading(resp.Body, "receiving the copy", resp.ContentLength))
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return exitWith(exitUnreachable, "the copy ended after %d bytes: %w", n, err)
	}
	return nil
}

// paced writes to a file and syncs it every pacedBytes, so that little unwritten data
// waits in memory, and other programs can use the disk in between.
type paced struct{ file *os.File }

const pacedBytes = 4 << 20

func (p paced) Write(some []byte) (int, error) { return p.file.Write(some) }

// ReadFrom implements io.ReaderFrom, which io.Copy uses.
func (p paced) ReadFrom(r io.Reader) (n int64, err error) {
	for {
		some, err := io.CopyN(struct{ io.Writer }{p.file}, r, pacedBytes)
		n += some
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
		if err := p.file.Sync(); err != nil {
			return n, err
		}
	}
}

// publish gives a finished file its final name. It does not replace another file.
func publish(unfinished, path string) error {
	err := os.Link(unfinished, path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exitWith(exitConflict, "%s exists already, and is not overwritten", path)
	case err != nil: // the file system has no links
		err = os.Rename(unfinished, path)
	}
	if err == nil {
		err = secret.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	return nil
}

func problems(r *store.Report) error {
	if r == nil || len(r.Problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.Problems, "; "))
}

// holdings is the number of rows of each kind in a store, as text.
func holdings(r api.StoreReport) string {
	var all []string
	for _, kind := range []string{"deliveries", "runs", "applies", "secrets", "schedules"} {
		if n, ok := r.Rows[kind]; ok {
			all = append(all, fmt.Sprintf("%s: %d", kind, n))
		}
	}
	return strings.Join(all, ", ")
}

// emitReport prints a report. The exit status is 1 if something is damaged.
func emitReport(c *cobra.Command, r api.StoreReport) error {
	err := emit(c, r, slices.Clone(r.Problems), func(w io.Writer) error {
		for _, p := range r.Problems {
			fmt.Fprintln(w, "damaged:", p)
		}
		fmt.Fprintf(w, "schema: %d, %s\n", r.Schema, holdings(r))
		if r.Newest != nil {
			fmt.Fprintln(w, "newest delivery:", whenOf(w, r.Newest))
		}
		if r.Partial {
			fmt.Fprintln(w, "its schema is older than this program's: what its rows hold is checked once a server has opened it (triphammer db check)")
		}
		_, err := fmt.Fprintln(w, "sealing key that it needs:", r.KeyID)
		if r.Sound && err == nil {
			_, err = fmt.Fprintln(w, "nothing is damaged")
		}
		return err
	})
	if err == nil && !r.Sound {
		return silently(exitBad)
	}
	return err
}

func restoreStore(c *cobra.Command, from, dir string, verify bool) error {
	ctx := c.Context()
	if dir == "" && !verify {
		return exitWith(exitUsage, "which data directory? Give --data DIR (or TRIPHAMMER_DATA), or --verify to verify the backup alone")
	}
	shown := showProgress(c, "verifying "+from, nil)
	defer shown.end()
	report, err := store.CheckFile(ctx, from)
	switch {
	case errors.Is(err, store.ErrMissing):
		return exitWith(exitNotFound, "there is no file %s", from)
	case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrNewerSchema):
		return exitWith(exitBad, "%s: %w", from, err)
	case err != nil:
		return exitWith(exitUsage, "%s: %w", from, err)
	}
	if verify || len(report.Problems) > 0 {
		shown.end()
		return emitReport(c, server.ShowReport(report))
	}
	if err := restoreInto(ctx, from, dir, report, shown); err != nil {
		return err
	}
	shown.end()
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%s is the store of %s now (%s)\n", from, dir, holdings(server.ShowReport(report)))
	return err
}

// restoreInto copies a verified backup into a data directory that has no store.
func restoreInto(ctx context.Context, from, dir string, report *store.Report, shown *progress) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exitWith(exitUsage, "the data directory: %w", err)
	}
	lock, err := lockFolder(ctx, dir, false)
	if err != nil {
		return stopFirst(err)
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	known, err := rememberedStore(dir)
	if err != nil {
		return exitWith(exitUsage, "the data directory: %w", err)
	}
	if known != "" {
		return exitWith(exitConflict, `%s belongs to a server whose store is %s, and a store in it would never be used. Restore into a new folder, with the sealing key in it, and move that:
  triphammer store copy --from FOLDER --to %s`, dir, store.NameOf(known), store.NameOf(known))
	}
	path := filepath.Join(dir, storeFile)
	for _, name := range []string{path, path + "-wal", path + "-journal"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return exitWith(exitConflict, "%s is there, and no store is replaced: move it away first, with all files whose names begin like %s", name, path)
		}
	}
	keyFile := keyFileOf(dir)
	switch key, err := secret.LoadKey(keyFile); {
	case errors.Is(err, fs.ErrNotExist):
		return exitWith(exitUsage, "the sealing key %s is missing: put the key there with which the backup's secrets are sealed (its id is %s)",
			keyFile, report.KeyID)
	case err != nil:
		return exitWith(exitUsage, "%w", err)
	case report.KeyID != "" && key.ID() != report.KeyID:
		return exitWith(exitUsage, "the sealing key %s has the id %s, but the secrets of the backup need the key %s: put that key there",
			keyFile, key.ID(), report.KeyID)
	}
	if err := copyStore(from, path, shown); err != nil {
		return err
	}
	if err := os.Remove(store.Unfinished(path)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an interrupted first start
		return exitWith(exitUsage, "%w", err)
	}
	return nil
}

func copyStore(from, path string, shown *progress) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	defer func() { _ = source.Close() }()
	f, err := os.CreateTemp(filepath.Dir(path), storeFile+"-restore.*")
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	defer func() {
		if removed := os.Remove(f.Name()); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	size := int64(0)
	if info, err := source.Stat(); err == nil {
		size = info.Size()
	}
	_, err = io.Copy(paced{f}, shown.reading(source, "copying "+from, size))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	return publish(f.Name(), path)
}
