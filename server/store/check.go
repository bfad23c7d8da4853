package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/mattn/go-sqlite3"
)

// Report is what Check found.
type Report struct {
	Schema   int    // of the tables
	Known    int    // the newest schema that this program knows
	KeyID    string // of the key that its secrets are sealed with
	Rows     map[string]int64
	Newest   time.Time // delivery; zero: there is none
	Partial  bool      // only the file's structure was looked at: its schema is older
	Problems []string  // at most MaxProblems
}

// counted are the tables whose rows a Report has.
var counted = []string{"deliveries", "runs", "applies", "secrets", "webhook_uids", "schedules", "artifacts"}

// Check reads all that the store holds: its file's structure, and each payload,
// file of an apply, spec and transcript as when it is used. It takes some seconds
// per GB, beside what is written meanwhile.
func (s *Store) Check(ctx context.Context) (*Report, error) {
	r := &Report{Rows: make(map[string]int64)}
	all, err := engine.MigrationsOf(Migrations, "migrations")
	if err != nil {
		return nil, err
	}
	r.Known = engine.Newest(all)
	if err := s.describe(ctx, r); err != nil {
		return nil, err
	}
	var needed string
	err = s.Read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", engine.MetaNeeds).Scan(&needed)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, engine.Damaged(err)
	}
	if err := engine.MayOpen(r.Schema, needed, r.Known); err != nil {
		return nil, err
	}
	found, err := s.Integrity(ctx)
	if err != nil {
		return nil, err
	}
	r.Problems = append(r.Problems, found...)
	if r.Partial = r.Schema < r.Known; r.Partial {
		return r, nil
	}
	if err := s.checkContents(ctx, r); err != nil {
		return r, err
	}
	return r, s.Artifacts.checkOrphans(ctx, r)
}

func (s *Store) describe(ctx context.Context, r *Report) error {
	err := s.Read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'schema'").Scan(&r.Schema)
	if err != nil {
		return engine.Damaged(err)
	}
	err = s.Read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'sealing key'").Scan(&r.KeyID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return engine.Damaged(err)
	}
	for _, table := range counted {
		var n int64
		err := s.Read.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
		var failure sqlite3.Error
		switch {
		case errors.As(err, &failure) && failure.Code == sqlite3.ErrError: // an older schema has no such table
		case err != nil:
			return engine.Damaged(err)
		default:
			r.Rows[table] = n
		}
	}
	var newest int64
	err = s.Read.QueryRowContext(ctx, "SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1").Scan(&newest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return engine.Damaged(err)
	}
	r.Newest = timeOf(newest)
	return nil
}

// checkContents reads everything as it is read when it is used.
func (s *Store) checkContents(ctx context.Context, r *Report) error {
	const page = 500
	for _, kind := range []struct {
		ids  string // after one id
		read func(id int64) error
	}{
		{"SELECT id FROM deliveries WHERE id > $1 AND payload IS NOT NULL ORDER BY id LIMIT $2", func(id int64) error {
			_, err := s.Deliveries.Payload(ctx, DeliveryID(id))
			return err
		}},
		{"SELECT id FROM applies WHERE id > $1 ORDER BY id LIMIT $2", func(id int64) error {
			_, err := s.Applies.Files(ctx, ApplyID(id))
			return err
		}},
		{"SELECT DISTINCT run_id FROM run_events WHERE run_id > $1 ORDER BY run_id LIMIT $2", func(id int64) error {
			for after := int64(0); ; {
				events, err := s.Transcripts.List(ctx, RunID(id), after, page)
				if err != nil || len(events) < page {
					return err
				}
				after = events[len(events)-1].Seq
			}
		}},
		{"SELECT id FROM artifacts WHERE id > $1 AND file <> '' ORDER BY id LIMIT $2", func(id int64) error {
			return s.Artifacts.check(ctx, ArtifactID(id))
		}},
	} {
		for after := int64(0); ; {
			ids, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (id int64, err error) {
				err = rows.Scan(&id)
				return id, err
			}, kind.ids, after, page)
			if err != nil {
				return engine.Damaged(err)
			}
			for _, id := range ids {
				after = id
				// What is deleted meanwhile is no problem.
				if err := kind.read(id); err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, sql.ErrNoRows) {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if r.Problems = append(r.Problems, err.Error()); len(r.Problems) >= engine.MaxProblems {
						return nil
					}
				}
			}
			if len(ids) < page {
				break
			}
		}
	}
	return s.checkSpecs(ctx, r)
}

func (s *Store) checkSpecs(ctx context.Context, r *Report) error {
	const page = 500
	for after := []byte{}; ; {
		hashes, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (hash []byte, err error) {
			err = rows.Scan(&hash)
			return hash, err
		}, "SELECT hash FROM specs WHERE hash > $1 ORDER BY hash LIMIT $2", after, page)
		if err != nil {
			return engine.Damaged(err)
		}
		for _, after = range hashes {
			if len(after) != 32 || len(r.Problems) >= engine.MaxProblems {
				continue
			}
			if _, err := s.Specs.Get(ctx, [32]byte(after)); err != nil && !errors.Is(err, ErrNotFound) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.Problems = append(r.Problems, err.Error())
			}
		}
		if len(hashes) < page {
			return nil
		}
	}
}

// CheckDatabase is Check of a database of PostgreSQL, also while servers use it. It changes
// nothing and needs no key.
func CheckDatabase(ctx context.Context, address string) (*Report, error) {
	read, err := engine.ReadPostgres(ctx, address)
	if err != nil {
		return nil, err
	}
	return checkRead(ctx, read)
}

// checkRead is Check of a database that is only read.
func checkRead(ctx context.Context, read *engine.DB) (*Report, error) {
	defer read.CloseRead()
	s := newStore(&db{DB: read})
	var since string
	err := read.Read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = $1", metaUndigested).Scan(&since)
	if err == nil {
		err = s.digestsSince(since)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // an older schema has no digests
		return nil, engine.Damaged(err)
	}
	return s.Check(ctx)
}

// CheckFile is Check of a copy that no server uses, such as a backup. It changes
// nothing and needs no key.
func CheckFile(ctx context.Context, path string) (*Report, error) {
	if err := engine.Judge(ctx, path); err != nil {
		return nil, err
	}
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return nil, fmt.Errorf("the write-ahead log %s-wal belongs to it: it is no backup, but the file of a server that runs or was cut off", path)
	}
	return checkRead(ctx, engine.ReadFile(path))
}
