package store

import (
	"context"
	"database/sql"
	"time"
)

// RunRetention is how long PruneRuns keeps runs, and the transcripts of runs that
// are kept, after their end. 0: for good.
type RunRetention struct{ Runs, Transcripts time.Duration }

// pruneRows is the most rows that one transaction deletes.
const pruneRows = 2000

const ended = "state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED'"

// PruneRuns deletes what is older, in chunks between which others get their turn:
// runs with all that belongs to them, and transcripts. A run that has not ended is
// never touched. It returns how many of each.
func (s *Store) PruneRuns(ctx context.Context, keep RunRetention) (runs, transcripts int64, err error) {
	if keep.Runs > 0 {
		old := micros(s.now().Add(-keep.Runs))
		runs, err = s.pruneChunks(ctx, func(ctx context.Context) ([]int64, error) {
			return s.ids(ctx, "SELECT id FROM runs WHERE updated_at < $1 AND "+ended+" ORDER BY updated_at LIMIT $2", old, pruneChunk)
		}, s.deleteRun)
	}
	if err == nil && keep.Transcripts > 0 {
		old := s.now().Add(-keep.Transcripts)
		transcripts, err = s.pruneChunks(ctx, func(ctx context.Context) ([]int64, error) {
			// A run is no older than its id.
			return s.ids(ctx, `SELECT DISTINCT e.run_id FROM run_events e JOIN runs r ON r.id = e.run_id WHERE e.run_id < $1
				AND r.updated_at < $2 AND r.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') ORDER BY e.run_id LIMIT $3`, idAt(old), micros(old), pruneChunk)
		}, func(context.Context, int64) error { return nil })
	}
	return runs, transcripts, err
}

// pruneChunks deletes the transcripts of the runs that find finds, and calls done
// for each that has none any more, until it finds none.
func (s *Store) pruneChunks(ctx context.Context, find func(context.Context) ([]int64, error), done func(context.Context, int64) error) (n int64, err error) {
	for more := true; more && ctx.Err() == nil; {
		var chunk int64
		err := s.do(ctx, func(ctx context.Context) error {
			chunk = 0
			ids, err := find(ctx)
			more = len(ids) > 0
			room := int64(pruneRows)
			for _, id := range ids {
				if err != nil || room <= 0 {
					return err
				}
				var deleted int64
				deleted, err = s.execCount(ctx, `DELETE FROM run_events WHERE run_id = $1 AND seq IN
					(SELECT seq FROM run_events WHERE run_id = $2 ORDER BY seq LIMIT $3)`, id, id, room)
				if room -= deleted + 1; err == nil && room > 0 {
					err = done(ctx, id)
					chunk++
				}
			}
			return err
		})
		if err != nil {
			return n, err
		}
		n += chunk
	}
	return n, ctx.Err()
}

// deleteRun deletes a run whose transcript is gone. What nothing else uses of its
// spec goes too; those of automations belong to their applies.
func (s *Store) deleteRun(ctx context.Context, id int64) error {
	var hash []byte
	var automation string
	if err := s.row(ctx, "DELETE FROM runs WHERE id = $1 RETURNING spec_hash, automation", []any{id}, &hash, &automation); err != nil {
		return err
	}
	for _, query := range []string{
		"DELETE FROM run_metadata WHERE run_id = $1",
		"DELETE FROM run_words WHERE run_id = $1",
		"DELETE FROM notices WHERE run_id = $1",
	} {
		if err := s.exec(ctx, query, id); err != nil {
			return err
		}
	}
	if automation != "" {
		return nil
	}
	return s.exec(ctx, "DELETE FROM specs WHERE hash = $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE spec_hash = $2 AND automation = '')", hash, hash)
}

// ids reads ids on the writer's connection.
func (s *Store) ids(ctx context.Context, query string, args ...any) (ids []int64, err error) {
	err = s.each(ctx, query, args, func(rows *sql.Rows) (bool, error) {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return true, err
	})
	return ids, err
}
