package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func dbCommand() *cobra.Command {
	var withKey bool
	backup := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Copy all that the server keeps to a file, while the server runs or not",
		Long: `Copy the store, the files of artifacts and the repositories of hosted factories to a new file on this machine, or to
standard output. What was acknowledged before it began is in it, whatever is written meanwhile. The server copies the store
in its data directory first, which takes as much room as the store has, at a pace that leaves the disk to deliveries.

The file is written under another name, read again and verified, and gets its own name when it is whole; a file that is
there is not written over. Only its owner can read it. To verify it, the command needs room for the store beside it.

Without --with-key it holds no sealing key: keep a copy of DIR/key apart from it, without which its secrets cannot be
opened. With the key, whoever has the file has all secrets, and a restored data directory needs nothing else.

Of a server whose store is a PostgreSQL database, the copy is the same kind of file: triphammer db restore makes it the
store of one server, from where triphammer db copy moves it into a database.`,
		Args: client.Exactly("FILE"),
		RunE: client.WithServer(false, func(c *cobra.Command, args []string, cl *client.Client) error {
			if withKey && cl.Target.Data == "" {
				return exit.With(exit.Usage, "--with-key: the sealing key is on the machine of the server, which sends it to nobody: call this there, with --data DIR")
			}
			return backupStore(c, args[0], cl, withKey)
		}),
	}
	backup.Flags().BoolVar(&withKey, "with-key", false, "add the sealing key: keep such a file as you keep the secrets themselves")
	var shared sharedStore
	throughServer := client.WithServer(false, func(c *cobra.Command, _ []string, cl *client.Client) error {
		var r api.StoreReport
		if err := cl.Call(c.Context(), http.MethodPost, "/check", nil, &r); err != nil {
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
		Short: "Make a data directory from a backup, or verify one",
		Long: `Verify a backup, and make it a data directory: the store, the files of artifacts, and the repositories of hosted
factories, which the server then serves without any setting. A store or repository that is there is never replaced: stop
the server and move it away first (of the store, all files whose names begin with triphammer.db). The sealing key that the
backup's secrets need is in the backup (db backup --with-key), or has to be in DIR/key (or where TRIPHAMMER_KEY_FILE says)
before.

With --verify, the backup is verified and nothing else is done: that it is whole, what it holds, its schema, and which
sealing key it needs. Status 1 if something is damaged.`,
		Args: client.Exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := settings.FromEnvironment(c.Flags(), nil, "data"); err != nil {
				return err
			}
			return restoreStore(c, args[0], dir, verify)
		},
	}
	for _, c := range []*cobra.Command{backup, check} {
		client.ClientFlags(c)
	}
	restore.Flags().StringVar(&dir, "data", "", "data directory; made if it is missing")
	restore.Flags().BoolVar(&verify, "verify", false, "verify the backup, and do nothing else")
	check.Flags().StringVar(&shared.address, "store", "", "PostgreSQL database to check without a server")
	check.Flags().StringVar(&shared.file, "store-file", "", "file with that address, if it has a password")
	term.OutputFlag(check)
	term.OutputFlag(restore)
	db := client.Noun("db", "Backups of the store, what is damaged in it, and moving it", backup, check, restore, storeCopyCommand())
	db.Aliases = []string{"store"}
	return db
}

func backupStore(c *cobra.Command, path string, cl *client.Client, withKey bool) (err error) {
	ctx := c.Context()
	if path == "-" {
		if term.TerminalOf(c.OutOrStdout()) != nil {
			return exit.With(exit.Usage, "standard output is a terminal; write the copy to a file: triphammer db backup FILE")
		}
		return copyAll(c, cl, c.OutOrStdout(), withKey)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Conflict, "%s exists already, and is not overwritten", path)
	}
	// The file is made first, to find out early whether it can be written.
	work, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	f, err := os.OpenFile(filepath.Join(work, "copy"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	defer func() { _ = f.Close() }()
	if err := copyAll(c, cl, paced{f}, withKey); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	shown := term.ShowProgress(c, "verifying the copy", nil)
	defer shown.End()
	got, err := openBackup(ctx, f.Name(), work, false, shown)
	if err == nil {
		err = problems(got.report)
	}
	if err != nil {
		return exit.With(exit.Bad, "the copy is damaged, and is not kept: %w; what does triphammer db check say?", err)
	}
	if err := publish(f.Name(), path); err != nil {
		return err
	}
	shown.End()
	key := fmt.Sprintf("its secrets need the sealing key %s, which is not in it", got.report.KeyID)
	if withKey {
		key = "the sealing key is in it: keep it as you keep the secrets themselves"
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%s is written (%s); %s\n", path, got.holdings(), key)
	return err
}

// copyAll writes what the server sends, after the sealing key if that is wanted.
func copyAll(c *cobra.Command, cl *client.Client, to io.Writer, withKey bool) error {
	shown := term.ShowProgress(c, copyingStore, nil)
	defer shown.End()
	resp, err := cl.Answer(c.Context(), http.MethodPost, "/backup", nil)
	if err != nil {
		return err
	}
	if withKey {
		err = addKey(to, cl.Target.Data)
	}
	if err == nil {
		err = receive(resp, to, shown)
	}
	return errors.Join(err, resp.Body.Close())
}

// holdings is what a backup holds, as text.
func (a *archived) holdings() string {
	text := holdings(server.ShowReport(a.report))
	if a.artifacts > 0 {
		text += fmt.Sprintf(", files of artifacts: %d", a.artifacts)
	}
	if names := slices.Sorted(maps.Keys(a.repositories)); len(names) > 0 {
		text += ", hosted factories: " + strings.Join(names, " ")
	}
	return text
}

// copyingStore is what the server does before its answer to a backup begins.
const copyingStore = "the server copies its store"

// receive copies the body of an answer.
func receive(resp *http.Response, to io.Writer, shown *term.Progress) error {
	n, err := io.Copy(to, shown.Reading(resp.Body, "receiving the copy", 0))
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return exit.With(exit.Unreachable, "the copy ended after %d bytes: %w", n, err)
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
		return exit.With(exit.Conflict, "%s exists already, and is not overwritten", path)
	case err != nil: // the file system has no links
		err = os.Rename(unfinished, path)
	}
	if err == nil {
		err = secret.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
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
	err := term.Emit(c, r, slices.Clone(r.Problems), func(w io.Writer) error {
		for _, p := range r.Problems {
			fmt.Fprintln(w, "damaged:", p)
		}
		fmt.Fprintf(w, "schema: %d, %s\n", r.Schema, holdings(r))
		if r.Newest != nil {
			fmt.Fprintln(w, "newest delivery:", term.WhenOf(w, r.Newest))
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
		return exit.Silently(exit.Bad)
	}
	return err
}

func restoreStore(c *cobra.Command, from, dir string, verify bool) error {
	ctx := c.Context()
	if dir == "" && !verify {
		return exit.With(exit.Usage, "which data directory? Give --data DIR (or TRIPHAMMER_DATA), or --verify to verify the backup alone")
	}
	shown := term.ShowProgress(c, "verifying "+from, nil)
	defer shown.End()
	if verify {
		work, err := os.MkdirTemp(filepath.Dir(from), ".verify.*")
		if err != nil {
			work, err = os.MkdirTemp("", "triphammer-verify.*") // the backup may lie where nobody writes
		}
		if err != nil {
			return exit.With(exit.Usage, "%w", err)
		}
		defer func() { _ = os.RemoveAll(work) }() // nothing else is in it
		got, err := openBackup(ctx, from, work, false, shown)
		if err != nil {
			return unusable(from, err)
		}
		shown.End()
		return emitReport(c, server.ShowReport(got.report))
	}
	got, err := restoreInto(ctx, from, dir, shown)
	if err != nil {
		return err
	}
	if shown.End(); len(got.report.Problems) > 0 {
		return emitReport(c, server.ShowReport(got.report))
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%s is the store of %s now (%s)\n", from, dir, got.holdings())
	var shared sharedStore
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	shared.flags(flags)
	if settings.FromEnvironment(flags, nil) == nil && err == nil {
		if address, bad := shared.resolve(); bad == nil && address != "" {
			_, err = fmt.Fprintf(c.ErrOrStderr(), "The store of the servers is %s: move it there with triphammer db copy --from %s --to %s\n", store.NameOf(address), dir, store.NameOf(address))
		}
	}
	return err
}

// unusable is the error of a backup that cannot be read.
func unusable(path string, err error) error {
	e := (*exit.Error)(nil)
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &e):
		return err
	case errors.Is(err, store.ErrMissing):
		return exit.With(exit.NotFound, "there is no file %s", path)
	case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrNewerSchema):
		return exit.With(exit.Bad, "%s: %w", path, err)
	}
	return exit.With(exit.Usage, "%s: %w", path, err)
}

// restoreInto verifies a backup and puts it into a data directory that has no store. A damaged
// one is not put there.
func restoreInto(ctx context.Context, from, dir string, shown *term.Progress) (got *archived, err error) {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil, unusable(from, store.ErrMissing)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, exit.With(exit.Usage, "the data directory: %w", err)
	}
	lock, err := lockFolder(ctx, dir, false)
	if err != nil {
		return nil, stopFirst(err)
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	known, err := rememberedStore(dir)
	if err != nil {
		return nil, exit.With(exit.Usage, "the data directory: %w", err)
	}
	if known != "" {
		return nil, exit.With(exit.Conflict, `%s belongs to a server whose store is %s, and a store in it would never be used. Restore into a new folder, with the sealing key in it, and move that:
  triphammer db copy --from FOLDER --to %s`, dir, store.NameOf(known), store.NameOf(known))
	}
	path := filepath.Join(dir, StoreFile)
	for _, name := range []string{path, path + "-wal", path + "-journal"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return nil, exit.With(exit.Conflict, "%s is there, and no store is replaced: move it away first, with all files whose names begin like %s", name, path)
		}
	}
	left, err := filepath.Glob(path + "-restore.*") // of a restore that was killed
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(name))
	}
	var work string
	if err == nil {
		work, err = os.MkdirTemp(dir, StoreFile+"-restore.*")
	}
	if err != nil {
		return nil, exit.With(exit.Usage, "the data directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	got, err = openBackup(ctx, from, work, true, shown)
	if err != nil {
		return nil, unusable(from, err)
	}
	if len(got.report.Problems) > 0 {
		return got, nil
	}
	if err := got.placeKey(dir); err != nil {
		return nil, err
	}
	for name, branch := range got.repositories {
		there := filepath.Join(dir, HostedFolder, name+".git")
		if _, err := os.Lstat(there); !errors.Is(err, fs.ErrNotExist) {
			return nil, exit.With(exit.Conflict, "%s is there, and no repository is replaced: move it away first", there)
		}
		shown.Set("making the repository of the factory " + name)
		err := hosted.Unbundle(ctx, filepath.Join(work, HostedFolder, name), branch, filepath.Join(work, name+".git"), "restored from a backup at "+Now().UTC().Format(time.RFC3339))
		if err != nil {
			return nil, exit.With(exit.Usage, "%w", err)
		}
	}
	err = placeArtifacts(filepath.Join(work, api.ArchivedArtifacts), filepath.Join(dir, "artifacts"))
	for name := range got.repositories {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, HostedFolder), 0o700))
		if err == nil {
			err = os.Rename(filepath.Join(work, name+".git"), filepath.Join(dir, HostedFolder, name+".git"))
		}
	}
	if len(got.repositories) > 0 && err == nil {
		err = secret.SyncFolder(filepath.Join(dir, HostedFolder))
	}
	if err != nil {
		return nil, exit.With(exit.Usage, "the data directory: %w", err)
	}
	if got.store == from { // which stays
		err = copyStore(from, path, shown)
	} else {
		err = publish(got.store, path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(store.Unfinished(path)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an interrupted first start
		return nil, exit.With(exit.Usage, "%w", err)
	}
	return got, nil
}

// placeKey makes sure that a data directory has the sealing key that a backup needs.
func (a *archived) placeKey(dir string) error {
	keyFile := keyFileOf(dir)
	key, err := secret.LoadKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) && a.key != nil {
		if err := os.WriteFile(keyFile, a.key, 0o600); err != nil {
			return exit.With(exit.Usage, "%w", err)
		}
		key, err = secret.LoadKey(keyFile)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Usage, "the sealing key %s is missing: put the key there with which the backup's secrets are sealed (its id is %s)",
			keyFile, a.report.KeyID)
	case err != nil:
		return exit.With(exit.Usage, "%w", err)
	case a.report.KeyID != "" && key.ID() != a.report.KeyID:
		return exit.With(exit.Usage, "the sealing key %s has the id %s, but the secrets of the backup need the key %s: put that key there",
			keyFile, key.ID(), a.report.KeyID)
	}
	return secret.SyncFolder(filepath.Dir(keyFile))
}

func copyStore(from, path string, shown *term.Progress) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	defer func() { _ = source.Close() }()
	f, err := os.CreateTemp(filepath.Dir(path), StoreFile+"-restore.*")
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
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
	_, err = io.Copy(paced{f}, shown.Reading(source, "copying "+from, size))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	return publish(f.Name(), path)
}
