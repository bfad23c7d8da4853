package copy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"triphammer/server/store"

	"triphammer/server/secret"
)

// content is the file of an artifact.
type content struct {
	id   store.ArtifactID
	run  store.RunID
	file string
	size int64
	sum  []byte
}

func (a content) String() string { return fmt.Sprintf("the artifact %s of %s", a.id, a.run) }

func (c *copying) contents(ctx context.Context) (all []content, err error) {
	rows, err := c.from.query(ctx, "SELECT id, run_id, file, size, sum FROM artifacts WHERE file <> '' ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.close()
	for {
		row, err := rows.next()
		if err != nil || row == nil {
			return all, err
		}
		all = append(all, content{store.ArtifactID(row[0].(int64)), store.RunID(row[1].(int64)), row[2].(string), row[3].(int64), row[4].([]byte)})
	}
}

// read reads the content of an artifact from a side.
func (a content) read(ctx context.Context, s side, place Place, file string, into io.Writer) (err error) {
	if file != store.InDatabase {
		if place.Artifacts == "" || place.URL != "" {
			return fmt.Errorf("%s is in a file of one server", a)
		}
		f, err := os.Open(filepath.Join(place.Artifacts, a.run.String(), file))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_, err = io.Copy(into, f)
		return err
	}
	rows, err := s.query(ctx, "SELECT data FROM artifact_parts WHERE artifact_id = $1 ORDER BY at", int64(a.id))
	if err != nil {
		return err
	}
	defer rows.close()
	for {
		row, err := rows.next()
		if err != nil || row == nil {
			return err
		}
		if _, err := into.Write(row[0].([]byte)); err != nil {
			return err
		}
	}
}

// matches tells whether a side has the content of an artifact as it was stored.
func (a content) matches(ctx context.Context, s side, place Place, file string) error {
	sum := sha256.New()
	if err := a.read(ctx, s, place, file, sum); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), a.sum) {
		return fmt.Errorf("%s is not what was stored: %w", a, store.ErrDamaged)
	}
	return nil
}

// copyContents copies the files of artifacts: a store of one server has them in a folder, a
// shared one in rows.
func (c *copying) copyContents(ctx context.Context) error {
	all, err := c.contents(ctx)
	if err != nil {
		return err
	}
	for i, a := range all {
		if err := c.copyContent(ctx, a); err != nil {
			return fmt.Errorf("copying %s: %w", a, err)
		}
		c.told("files of artifacts", int64(i+1), int64(len(all)))
	}
	return nil
}

// target is what an artifact is written to. It keeps why that failed, such as a full disk.
type target struct {
	to  io.Writer
	err error
}

func (t *target) Write(p []byte) (n int, err error) {
	n, err = t.to.Write(p)
	t.err = cmp.Or(t.err, err)
	return n, err
}

// copyContent copies the content of an artifact. What cannot be read is left out: verifyContents
// reports it.
func (c *copying) copyContent(ctx context.Context, a content) error {
	if c.toPlace.URL == "" {
		folder := filepath.Join(c.toPlace.Artifacts, a.run.String())
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		f, err := os.CreateTemp(folder, "*"+store.UnfinishedArtifact)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // what was written is synced
		into := &target{to: f}
		if err := a.read(ctx, c.from, c.fromPlace, a.file, into); err != nil {
			return cmp.Or(ctx.Err(), errors.Join(into.err, os.Remove(f.Name())))
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), filepath.Join(folder, a.id.String())); err != nil {
			return err
		}
		return errors.Join(secret.SyncFolder(folder), secret.SyncFolder(c.toPlace.Artifacts))
	}
	var data bytes.Buffer
	if err := a.read(ctx, c.from, c.fromPlace, a.file, &data); err != nil {
		return ctx.Err()
	}
	t := c.tables[slices.IndexFunc(c.tables, func(t *table) bool { return t.name == "artifact_parts" })]
	var rows [][]any
	for at := int64(0); data.Len() > 0; {
		part := slices.Clone(data.Next(store.ArtifactPart))
		row := make([]any, len(t.columns))
		row[t.at("artifact_id")], row[t.at("at")], row[t.at("data")] = int64(a.id), at, part
		rows = append(rows, row)
		at += int64(len(part))
	}
	if len(rows) == 0 {
		return nil
	}
	return c.to.insert(ctx, t, rows)
}

func (c *copying) verifyContents(ctx context.Context) error {
	all, err := c.contents(ctx)
	if err != nil {
		return err
	}
	for i, a := range all {
		file := store.InDatabase
		if c.toPlace.URL == "" {
			file = a.id.String()
		}
		switch wrong := a.matches(ctx, c.to, c.toPlace, file); {
		case wrong == nil:
			c.report.Files++
		case ctx.Err() != nil:
			return ctx.Err()
		case a.matches(ctx, c.from, c.fromPlace, a.file) == nil:
			return fmt.Errorf("%w: %w", ErrDifferent, wrong)
		default:
			c.report.Damaged = append(c.report.Damaged, a.String())
		}
		c.told("verifying files of artifacts", int64(i+1), int64(len(all)))
	}
	return nil
}
