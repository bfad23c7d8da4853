package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// archived is a backup that was read (docs/backup.md).
type archived struct {
	report       *store.Report
	store        string            // path of its store
	key          []byte            // nil: it has none
	repositories map[string]string // the production branches, by factory
	artifacts    int               // files
}

// sqliteHeader begins an SQLite file: a backup of a version before archives, or of the store alone.
const sqliteHeader = "SQLite format 3\x00"

// openBackup reads and verifies a backup. Its store is put into a folder, and if whole is true
// also the files of artifacts, and the repositories as files of git bundle.
func openBackup(ctx context.Context, path, into string, whole bool, shown *term.Progress) (*archived, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.ErrMissing
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	begin := make([]byte, len(sqliteHeader))
	if _, err := io.ReadFull(f, begin); err == nil && string(begin) == sqliteHeader {
		a := &archived{store: path}
		a.report, err = store.CheckFile(ctx, path)
		return a, err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	return readArchive(ctx, shown.Reading(untilDone{ctx, f}, "verifying "+path, info.Size()), into, whole)
}

// untilDone is a reader that ends with its context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

func readArchive(ctx context.Context, from io.Reader, into string, whole bool) (*archived, error) {
	a := &archived{repositories: make(map[string]string)}
	var sums map[string][sha256.Size]byte
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && a.report == nil && a.key == nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it is neither an archive of triphammer db backup nor a store", store.ErrForeign)
		case err != nil:
			return nil, cutShort(err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) || filepath.Clean(h.Name) != h.Name {
			return nil, fmt.Errorf("%w: no backup has %q", store.ErrForeign, h.Name)
		}
		path := filepath.Join(into, h.Name)
		artifact, isArtifact := strings.CutPrefix(h.Name, api.ArchivedArtifacts)
		factory, isRepository := strings.CutPrefix(h.Name, api.ArchivedHosted)
		switch {
		case h.Name == api.ArchivedKey && a.report == nil:
			a.key, err = io.ReadAll(io.LimitReader(r, client.MaxInput))
		case h.Name == api.ArchivedStore && a.report == nil:
			sums, err = a.takeStore(ctx, r, path)
		case isArtifact && strings.Count(artifact, "/") == 1 && a.report != nil:
			if !whole {
				path = os.DevNull
			}
			err = a.takeArtifact(r, path, artifact, sums)
		case isRepository && factoryNames().MatchString(factory) && a.report != nil:
			if a.repositories[factory] = h.PAXRecords[api.ArchivedBranch]; whole {
				err = unpackFile(r, path, nil)
			}
		case h.Name == api.ArchivedEnd && a.report != nil:
			a.missing(sums)
			return a, nil
		default:
			return nil, fmt.Errorf("%w: no backup has %q there", store.ErrForeign, h.Name)
		}
		if err != nil {
			return nil, ofEntry(err)
		}
	}
}

// takeStore unpacks the store, checks it, and returns the sums of the files of its artifacts.
func (a *archived) takeStore(ctx context.Context, from io.Reader, path string) (sums map[string][sha256.Size]byte, err error) {
	a.store = path
	if err = unpackFile(from, path, nil); err != nil {
		return nil, err
	}
	if a.report, err = store.CheckFile(ctx, path); err != nil {
		return nil, err
	}
	return store.ArtifactSums(ctx, path)
}

// missing notes the files of artifacts that the archive should have had.
func (a *archived) missing(sums map[string][sha256.Size]byte) {
	for _, lost := range slices.Sorted(maps.Keys(sums)) {
		a.report.Problems = append(a.report.Problems, "the file of an artifact is missing: "+lost)
	}
	a.report.Problems = a.report.Problems[:min(len(a.report.Problems), maxProblemsShown)]
}

// takeArtifact unpacks the file of an artifact, and compares it with what the store says of it.
func (a *archived) takeArtifact(from io.Reader, path, artifact string, sums map[string][sha256.Size]byte) error {
	sum := sha256.New()
	if err := unpackFile(from, path, sum); err != nil {
		return err
	}
	if want, named := sums[artifact]; named && !bytes.Equal(want[:], sum.Sum(nil)) {
		a.report.Problems = append(a.report.Problems, "the file of an artifact is not what was stored: "+artifact)
	}
	delete(sums, artifact)
	a.artifacts++
	return nil
}

// maxProblemsShown bounds what is told of a damaged backup.
const maxProblemsShown = 20

// ofEntry is an error of taking an entry: the archive may end within it.
func ofEntry(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return cutShort(err)
	}
	return err
}

func cutShort(err error) error {
	return fmt.Errorf("%w: the backup is incomplete, or damaged: %w", store.ErrDamaged, err)
}

// unpackFile writes a file of a backup, and its digest to sum unless that is nil.
func unpackFile(r io.Reader, path string, sum io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if sum != nil {
		r = io.TeeReader(r, sum)
	}
	if path == os.DevNull {
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	_, err = io.Copy(paced{f}, r)
	return errors.Join(err, f.Sync(), f.Close())
}

// addKey begins an archive with the sealing key of a data directory.
func addKey(w io.Writer, dir string) error {
	key, err := os.ReadFile(keyFileOf(dir))
	if err != nil {
		return exit.With(exit.Usage, "--with-key: the sealing key: %w", err)
	}
	t := tar.NewWriter(w)
	err = t.WriteHeader(&tar.Header{Name: api.ArchivedKey, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(key)), ModTime: Now()})
	if err == nil {
		_, err = t.Write(key)
	}
	return errors.Join(err, t.Flush()) // the rest of the archive follows
}

// placeArtifacts moves the files of artifacts that were restored into a data directory.
func placeArtifacts(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*", "*"))
	for _, f := range files {
		folder := filepath.Join(to, filepath.Base(filepath.Dir(f)))
		if err = errors.Join(err, os.MkdirAll(folder, 0o700)); err == nil {
			err = errors.Join(os.Rename(f, filepath.Join(folder, filepath.Base(f))), secret.SyncFolder(folder))
		}
		if err != nil {
			return err
		}
	}
	return err
}
