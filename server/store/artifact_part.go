package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"triphammer/server/store/internal/engine"
)

// In a store that several servers share, the content of artifacts is in the database, so that
// every server has it: a folder would be on one machine alone.

// InDatabase is the file of an artifact whose content is in the database.
const InDatabase = "@"

// ArtifactPart is how many bytes of content a row has at most, so that no transaction is long.
const ArtifactPart = 256 << 10

// keepParts is KeepFile, in the database.
func (s *Artifacts) keepParts(ctx context.Context, l Lease, a Artifact, write func(io.Writer) error) (kept Artifact, err error) {
	p := &partWriter{db: s.db, ctx: ctx}
	defer func() {
		if err != nil && p.id != 0 {
			_ = s.deleteParts(context.WithoutCancel(ctx), p.id) // else the next sweep does
		}
	}()
	sum := sha256.New()
	if err := write(io.MultiWriter(p, sum)); err != nil {
		return kept, err
	}
	if err := p.flush(); err != nil {
		return kept, err
	}
	a.ID, a.Size, a.Sum, a.file = p.id, p.at, [sha256.Size]byte(sum.Sum(nil)), InDatabase
	return s.add(ctx, l, a)
}

// partWriter stores what is written as the parts of an artifact.
type partWriter struct {
	db   *db
	ctx  context.Context
	id   ArtifactID // 0: nothing is stored yet
	at   int64
	part []byte
}

func (p *partWriter) Write(data []byte) (n int, err error) {
	for n < len(data) {
		more := min(len(data)-n, ArtifactPart-len(p.part))
		p.part = append(p.part, data[n:n+more]...)
		n += more
		if len(p.part) == ArtifactPart {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *partWriter) flush() error {
	if len(p.part) == 0 {
		return nil
	}
	err := p.db.Grow(p.ctx, func(tx *engine.Tx) error {
		if p.id == 0 {
			p.id = ArtifactID(tx.NextID())
		}
		return tx.Exec("INSERT INTO artifact_parts (artifact_id, at, data) VALUES ($1, $2, $3)", p.id, p.at, p.part)
	})
	if err == nil {
		p.at += int64(len(p.part))
		p.part = p.part[:0]
	}
	return err
}

// deleteParts deletes the content of an artifact, the beginning last: a sweep finds what is
// left by it. If a row names it, the content stays: the connection may have been lost when that was committed.
func (s *Artifacts) deleteParts(ctx context.Context, id ArtifactID) error {
	for {
		n := int64(0)
		err := s.Do(ctx, func(tx *engine.Tx) (err error) {
			n, err = tx.ExecCount("DELETE FROM artifact_parts WHERE artifact_id = $1 AND at = (SELECT max(at) FROM artifact_parts WHERE artifact_id = $2)"+
				" AND NOT EXISTS (SELECT 1 FROM artifacts WHERE id = $3)", id, id, id)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// strayParts are the artifacts that have content but no row.
func (s *Artifacts) strayParts(ctx context.Context) ([]ArtifactID, error) {
	all, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (id ArtifactID, err error) {
		err = rows.Scan(&id)
		return id, err
	}, "SELECT artifact_id FROM artifact_parts p WHERE at = 0 AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.id = p.artifact_id)")
	fresh := engine.IDAt(s.Now().Add(-maxWriting)) // they may be being written
	var stray []ArtifactID
	for _, id := range all {
		if int64(id) < fresh {
			stray = append(stray, id)
		}
	}
	return stray, err
}

// sweepParts removes content that no row names.
func (s *Artifacts) sweepParts(ctx context.Context) (removed int, err error) {
	stray, err := s.strayParts(ctx)
	for _, id := range stray {
		if err == nil {
			err = s.deleteParts(ctx, id)
			removed++
		}
	}
	return removed, err
}

// openParts opens the content of an artifact in the database.
func (s *Artifacts) openParts(ctx context.Context, a *Artifact) (io.ReadCloser, error) {
	size, err := engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (n int64, err error) {
		err = rows.Scan(&n)
		return n, err
	}, "SELECT coalesce(sum(length(data)), 0) FROM artifact_parts WHERE artifact_id = $1", a.ID))
	if err == nil && size != a.Size {
		err = s.damage("the content of the artifact %s of %s", a.ID, a.RunID)
	}
	if err != nil {
		return nil, err
	}
	return &partReader{db: s.db, ctx: ctx, id: a.ID, size: a.Size}, nil
}

// partReader reads the content of an artifact, a part at a time.
type partReader struct {
	db       *db
	ctx      context.Context
	id       ArtifactID
	at, size int64
	part     []byte
}

func (p *partReader) Read(into []byte) (int, error) {
	if len(p.part) == 0 && p.at < p.size {
		part, err := engine.First(engine.List(p.ctx, p.db.DB, func(rows *sql.Rows) (data []byte, err error) {
			err = rows.Scan(&data)
			return data, err
		}, "SELECT data FROM artifact_parts WHERE artifact_id = $1 AND at = $2", p.id, p.at))
		if errors.Is(err, ErrNotFound) || err == nil && len(part) == 0 {
			return 0, fmt.Errorf("the artifact %s was deleted, or has no content at %d: %w", p.id, p.at, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return 0, err
		}
		p.part, p.at = part, p.at+int64(len(part))
	}
	if len(p.part) == 0 {
		return 0, io.EOF
	}
	n := copy(into, p.part)
	p.part = p.part[n:]
	return n, nil
}

// Close implements io.Closer.
func (p *partReader) Close() error { return nil }
