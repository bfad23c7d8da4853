package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
)

// Artifact is something that a run left for people: a file or a link (SPEC 15.6). The
// content of a file is in a file of its own in the folder of its run;
// in a store that several servers share, it is in the database (artifact_part.go).
type Artifact struct {
	ID        ArtifactID
	RunID     RunID
	Type      string
	Name      string // with slashes; or the title of a link
	URL       string // of a link; empty: it is a file
	MediaType string
	Size      int64
	Sum       [sha256.Size]byte
	// Outcome is what became of a pull request, as far as deliveries say (SPEC 27.1): open, merged,
	// merged_with_changes or closed; empty: nothing says.
	Outcome   string
	CreatedAt time.Time

	file string
}

// PackType is the media type of the pack of a push that waits for a person. No file that an agent leaves has it.
const PackType = "application/x-git-packed-objects"

// UnfinishedArtifact ends the names of files that are being written.
const UnfinishedArtifact = ".part"

// Artifacts are the files and links that runs leave.
type Artifacts struct {
	*db
	folder  string       // of their files; empty: their content is in the database
	holding atomic.Int32 // how many backups need the files
	naming  sync.RWMutex // of a file: from its name until its row
}

// KeepLink keeps a link of a run that the lease holds.
func (s *Artifacts) KeepLink(ctx context.Context, l Lease, a Artifact) (Artifact, error) {
	a.ID, a.Size, a.Sum, a.file = 0, 0, [sha256.Size]byte{}, ""
	return s.add(ctx, l, a)
}

// KeepFile keeps a file of a run that the lease holds. write writes its content. Nothing
// is kept if it fails, or if the lease is lost. The content is on the disk before the
// row that names it.
func (s *Artifacts) KeepFile(ctx context.Context, l Lease, a Artifact, write func(io.Writer) error) (kept Artifact, err error) {
	if s.folder == "" || s.Shared() {
		return s.keepParts(ctx, l, a, write)
	}
	folder := filepath.Join(s.folder, l.RunID.String())
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return kept, err
	}
	f, err := os.CreateTemp(folder, "*"+UnfinishedArtifact)
	if err != nil {
		return kept, err
	}
	defer func() {
		_ = f.Close() // what was written is synced
		if err != nil {
			_ = os.Remove(f.Name()) // else the next sweep does
		}
	}()
	sum := sha256.New()
	if err := write(io.MultiWriter(f, sum)); err != nil {
		return kept, err
	}
	info, err := f.Stat()
	if err != nil {
		return kept, err
	}
	if err := f.Sync(); err != nil {
		return kept, err
	}
	// No sweep sees the file between its name and its row.
	s.naming.RLock()
	defer s.naming.RUnlock()
	path := strings.TrimSuffix(f.Name(), UnfinishedArtifact)
	if err := os.Rename(f.Name(), path); err != nil {
		return kept, err
	}
	a.ID, a.Size, a.Sum, a.file = 0, info.Size(), [sha256.Size]byte(sum.Sum(nil)), filepath.Base(path)
	err = errors.Join(secret.SyncFolder(folder), secret.SyncFolder(s.folder))
	if err == nil {
		kept, err = s.add(ctx, l, a)
	}
	if err != nil {
		_ = os.Remove(path) // else the next sweep does
	}
	return kept, err
}

func (s *Artifacts) add(ctx context.Context, l Lease, a Artifact) (Artifact, error) {
	err := s.Grow(ctx, func(tx *engine.Tx) error {
		at := s.Now()
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET updated_at = $1", s.stamp(tx)); err != nil {
			return err
		}
		a.RunID, a.CreatedAt = l.RunID, timeOf(micros(at))
		return s.insert(tx, &a)
	})
	return a, err
}

func (s *Artifacts) insert(tx *engine.Tx, a *Artifact) error {
	if a.ID == 0 {
		a.ID = ArtifactID(tx.NextID())
	}
	err := tx.Exec(`INSERT INTO artifacts (id, run_id, type, name, url, media_type, size, file, sum, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		a.ID, a.RunID, a.Type, a.Name, a.URL, a.MediaType, a.Size, a.file, a.Sum[:], micros(a.CreatedAt))
	if err != nil || a.URL == "" {
		return err
	}
	// Take the outcome from the link of another run to the same pull request: its delivery has come already.
	return tx.Exec(`UPDATE artifacts SET outcome = coalesce((SELECT b.outcome FROM artifacts b JOIN runs o ON o.id = b.run_id JOIN runs r ON r.id = $1
		WHERE b.url = $2 AND b.url <> '' AND b.type = 'PULL_REQUEST' AND b.outcome <> '' AND o.factory = r.factory ORDER BY b.id LIMIT 1), '') WHERE id = $3 AND type = 'PULL_REQUEST'`, a.RunID, a.URL, a.ID)
}

// MergedWithChanges is the Artifact.Outcome of a pull request into which a person put commits before its merge.
const MergedWithChanges = "merged_with_changes"

// PullState is what a delivery says of a pull request.
type PullState struct{ URL, Outcome string }

// became records what became of a pull request that runs of a factory opened. What is merged stays so, although
// deliveries come late, are sent again or replayed, and pushes are forgotten.
func (s *Artifacts) became(tx *engine.Tx, factory string, p PullState) error {
	return tx.Exec(`UPDATE artifacts SET outcome = $1 WHERE url = $2 AND url <> '' AND type = 'PULL_REQUEST' AND outcome NOT IN ($1, 'merged', 'merged_with_changes')
		AND run_id IN (SELECT id FROM runs WHERE factory = $3)`, p.Outcome, p.URL, factory)
}

const artifactColumns = "SELECT id, run_id, type, name, url, media_type, size, file, sum, outcome, created_at FROM artifacts"

func scanArtifact(rows *sql.Rows) (*Artifact, error) {
	var a Artifact
	var sum []byte
	var at int64
	err := rows.Scan(&a.ID, &a.RunID, &a.Type, &a.Name, &a.URL, &a.MediaType, &a.Size, &a.file, &sum, &a.Outcome, &at)
	copy(a.Sum[:], sum)
	a.CreatedAt = timeOf(at)
	return &a, err
}

// Get finds an artifact.
func (s *Artifacts) Get(ctx context.Context, id ArtifactID) (*Artifact, error) {
	return engine.First(engine.List(ctx, s.DB, scanArtifact, artifactColumns+" WHERE id = $1", id))
}

// Of are the artifacts of runs, in the order in which they came.
func (s *Artifacts) Of(ctx context.Context, runs ...RunID) (map[RunID][]*Artifact, error) {
	all := make(map[RunID][]*Artifact)
	if len(runs) == 0 {
		return all, nil
	}
	w := where{}
	w.add(in(&w, "run_id", runs))
	found, err := engine.List(ctx, s.DB, scanArtifact, artifactColumns+w.sql()+" ORDER BY run_id, id", w.args...)
	for _, a := range found {
		all[a.RunID] = append(all[a.RunID], a)
	}
	return all, err
}

// RunByReference finds the run of a factory, or of any if it is empty, that first left a
// link with an address.
func (s *Artifacts) RunByReference(ctx context.Context, url, factory string) (*Run, error) {
	return engine.First(engine.List(ctx, s.DB, scanRun, selectRun+` WHERE r.id = (SELECT min(a.run_id) FROM artifacts a JOIN runs o ON o.id = a.run_id
		JOIN run_groups g ON g.id = o.group_id WHERE a.url = $1 AND a.url <> '' AND ($2 = '' OR g.factory = $2))`, url, factory))
}

// Open opens the content of an artifact. The error wraps ErrNotFound if the artifact
// is a link or was deleted, and ErrDamaged if its content is missing or of another size.
func (s *Artifacts) Open(ctx context.Context, a *Artifact) (io.ReadCloser, error) {
	if a.file == InDatabase {
		return s.openParts(ctx, a)
	}
	if a.file == "" || s.folder == "" {
		return nil, fmt.Errorf("%s has no file: %w", a.ID, ErrNotFound)
	}
	f, err := os.Open(filepath.Join(s.folder, a.RunID.String(), a.file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.damage("the file of the artifact %s of %s (it is missing)", a.ID, a.RunID)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != a.Size {
		err = s.damage("the file of the artifact %s of %s", a.ID, a.RunID)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// check reads the file of an artifact.
func (s *Artifacts) check(ctx context.Context, id ArtifactID) error {
	a, err := s.Get(ctx, id)
	if err != nil || a.file == "" || a.file != InDatabase && s.folder == "" { // a copy of the database alone
		return err
	}
	f, err := s.Open(ctx, a)
	if err == nil {
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err == nil && !bytes.Equal(sum.Sum(nil), a.Sum[:]) {
			err = s.damage("the file of the artifact %s of %s", a.ID, a.RunID)
		}
	}
	if _, gone := s.Get(ctx, id); errors.Is(gone, ErrNotFound) {
		return nil // it was deleted meanwhile
	}
	return err
}

// Hold keeps Sweep from removing files until release is called, so that the files
// of a copy of the store can be read after it.
func (s *Artifacts) Hold() (release func()) {
	s.holding.Add(1)
	return func() { s.holding.Add(-1) }
}

// EachFile calls a function with each file of artifacts. Its name is that of the folder of
// the run, a slash and the file's own.
func (s *Artifacts) EachFile(yield func(name string, f *os.File) error) error {
	paths, err := filepath.Glob(filepath.Join(s.folder, "*", "*"))
	if s.folder == "" || err != nil {
		return err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, UnfinishedArtifact) {
			continue
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was never finished: KeepFile removed it
		}
		if err != nil {
			return err
		}
		err = yield(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// ArtifactSums are the digests of the files of artifacts that a copy of a store names, by the names
// of Artifacts.EachFile.
func ArtifactSums(ctx context.Context, path string) (map[string][sha256.Size]byte, error) {
	s := engine.ReadFile(path)
	defer s.CloseRead()
	all, err := engine.List(ctx, s, scanArtifact, artifactColumns+" WHERE file <> '' AND file <> $1", InDatabase)
	sums := make(map[string][sha256.Size]byte)
	for _, a := range all {
		sums[a.RunID.String()+"/"+a.file] = a.Sum
	}
	return sums, err
}

// Sweep removes content that no row names: that of deleted runs, and what a crash
// left. It returns of how many artifacts it removed some.
func (s *Artifacts) Sweep(ctx context.Context) (removed int, err error) {
	if s.holding.Load() > 0 {
		return 0, nil // the next sweep does it
	}
	if err := s.dropPacks(ctx); err != nil {
		return 0, err
	}
	err = s.orphans(ctx, func(file string, _ time.Duration) error {
		err := os.Remove(file)
		if err == nil {
			removed++
			_ = os.Remove(filepath.Dir(file)) // which fails unless it is empty
		}
		return err
	})
	parts, partsErr := s.sweepParts(ctx)
	return removed + parts, errors.Join(err, partsErr)
}

// dropPacks deletes the packs of pushes that nobody needs any more: they were made, or will never be.
func (s *Artifacts) dropPacks(ctx context.Context) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec(`DELETE FROM artifacts WHERE media_type = 'application/x-git-packed-objects'
			AND EXISTS (SELECT 1 FROM runs r WHERE r.id = artifacts.run_id AND r.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED'))
			AND NOT EXISTS (SELECT 1 FROM outputs o WHERE o.run_id = artifacts.run_id AND o.kind = 'push' AND o.status IN ('waiting', 'pending', 'failed'))`)
	})
}

// orphanAge is the age at which a file that no row names is a problem: each hour a sweep
// removes such files.
const orphanAge = 3 * time.Hour

func (s *Artifacts) checkOrphans(ctx context.Context, r *Report) error {
	return s.orphans(ctx, func(file string, age time.Duration) error {
		if age > orphanAge && len(r.Problems) < engine.MaxProblems {
			r.Problems = append(r.Problems, fmt.Sprintf("no artifact has the file %s: a server removes it, unless its log says why it cannot", file))
		}
		return nil
	})
}

// orphans finds the files that no row names, with the time since they were written. A file
// that is being written counts from the time when no run can be writing it any more.
func (s *Artifacts) orphans(ctx context.Context, found func(file string, age time.Duration) error) error {
	if s.folder == "" {
		return nil
	}
	folders, err := os.ReadDir(s.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, folder := range folders {
		id, bad := ParseID[Run](folder.Name())
		if bad != nil {
			continue // no folder of ours
		}
		err = errors.Join(err, s.orphansOf(ctx, id, found))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

func (s *Artifacts) orphansOf(ctx context.Context, id RunID, found func(file string, age time.Duration) error) error {
	s.naming.Lock()
	defer s.naming.Unlock()
	rows, err := s.Of(ctx, id)
	if err != nil {
		return err
	}
	named := make(map[string]bool)
	for _, a := range rows[id] {
		named[a.file] = true
	}
	folder := filepath.Join(s.folder, id.String())
	files, err := os.ReadDir(folder)
	for _, f := range files {
		info, gone := f.Info()
		if gone != nil || named[f.Name()] {
			continue
		}
		age := time.Since(info.ModTime())
		if strings.HasSuffix(f.Name(), UnfinishedArtifact) {
			if age -= maxWriting; age < 0 {
				continue
			}
		}
		err = errors.Join(err, found(filepath.Join(folder, f.Name()), age))
	}
	return err
}

// maxWriting is longer than any file of an artifact is written.
const maxWriting = 24 * time.Hour
