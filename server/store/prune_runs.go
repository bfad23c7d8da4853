package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"triphammer/server/store/internal/engine"
)

// RunRetention is how long Runs.Prune keeps runs, and the transcripts of runs that
// are kept, after their end. 0: for good.
type RunRetention struct{ Runs, Transcripts time.Duration }

const ended = "state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED'"

// needed tells of a run that somebody waits for, or something that is to leave the server.
const needed = `(EXISTS (SELECT 1 FROM approvals a WHERE a.run_id = runs.id AND a.decision = '') OR EXISTS (SELECT 1 FROM outputs o WHERE o.run_id = runs.id AND o.status = 'pending')
	OR EXISTS (SELECT 1 FROM answers a WHERE a.run_id = runs.id AND a.status = 'pending'))`

// Prune deletes what is older, in steps between which others get their turn:
// runs with all that belongs to them, and transcripts. A run that has not ended, or of
// which something waits for a person or is still to be sent, is not deleted. It returns how many of each.
func (s *Runs) Prune(ctx context.Context, keep RunRetention) (runs, transcripts int64, err error) {
	if keep.Runs > 0 {
		old := micros(s.Agreed().Add(-keep.Runs))
		runs, err = s.remove(ctx, func() ([]oldRow, error) {
			return s.store.Transcripts.old(ctx, "SELECT id FROM runs WHERE updated_at < $1 AND "+ended+" AND NOT "+needed+" ORDER BY updated_at LIMIT $2", old, prunePage)
		}, func(tx *engine.Tx, v oldRow) error {
			if v.seq == 0 {
				return s.delete(tx, v.id)
			}
			return s.store.Transcripts.delete(tx, v)
		})
	}
	if err == nil && keep.Transcripts > 0 {
		old := s.Agreed().Add(-keep.Transcripts)
		transcripts, err = s.remove(ctx, func() ([]oldRow, error) {
			// A run is no older than its id.
			return s.store.Transcripts.old(ctx, `SELECT DISTINCT e.run_id FROM run_events e JOIN runs r ON r.id = e.run_id WHERE e.run_id < $1
				AND r.updated_at < $2 AND r.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') ORDER BY e.run_id LIMIT $3`, engine.IDAt(old), micros(old), prunePage)
		}, func(tx *engine.Tx, v oldRow) error {
			if v.seq == 0 {
				return nil
			}
			return s.store.Transcripts.delete(tx, v)
		})
	}
	return runs, transcripts, err
}

// old are the events of the runs that a query finds, and the runs all of
// whose events are among them.
func (s *Transcripts) old(ctx context.Context, query string, args ...any) ([]oldRow, error) {
	ids, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (id int64, err error) {
		err = rows.Scan(&id)
		return id, err
	}, query, args...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	w := where{}
	w.add(in(&w, "run_id", ids))
	all, err := engine.List(ctx, s.DB, scanOldRow, fmt.Sprintf("SELECT run_id, seq, length(data) FROM run_events%s ORDER BY run_id, seq LIMIT %d", w.sql(), prunePage+1), w.args...)
	if err != nil {
		return nil, err
	}
	whole := int64(math.MaxInt64) // runs before this one
	if len(all) > prunePage {
		whole, all = all[prunePage].id, all[:prunePage]
	}
	for _, id := range ids {
		if id < whole {
			all = append(all, oldRow{id: id})
		}
	}
	return all, nil
}

func (s *Transcripts) delete(tx *engine.Tx, v oldRow) error {
	if v.seq == 1 { // from now on the transcript has no beginning, and is not damaged for it
		if err := tx.Exec("UPDATE runs SET events = NULL WHERE id = $1", v.id); err != nil {
			return err
		}
	}
	return tx.Exec("DELETE FROM run_events WHERE run_id = $1 AND seq = $2", v.id, v.seq)
}

// delete deletes a run whose transcript is gone. What nothing else uses of its
// spec goes too; those of automations belong to their applies.
func (s *Runs) delete(tx *engine.Tx, id int64) error {
	var hash []byte
	var automation string
	if err := tx.Row("DELETE FROM runs WHERE id = $1 RETURNING spec_hash, automation", []any{id}, &hash, &automation); err != nil {
		return err
	}
	for _, query := range []string{
		"DELETE FROM run_metadata WHERE run_id = $1",
		"DELETE FROM run_words WHERE run_id = $1",
		"DELETE FROM notices WHERE id = $1",
		"DELETE FROM answers WHERE run_id = $1",
		"DELETE FROM outputs WHERE run_id = $1",
		"DELETE FROM approvals WHERE run_id = $1",
		"DELETE FROM conversations WHERE id = $1",
		"DELETE FROM subject_conversations WHERE conversation_id = $1",
		"DELETE FROM artifacts WHERE run_id = $1", // their files go with the next sweep
	} {
		if err := tx.Exec(query, id); err != nil {
			return err
		}
	}
	if err := s.store.Subjects.drop(tx, id); err != nil || automation != "" {
		return err
	}
	return tx.Exec("DELETE FROM specs WHERE hash = $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE spec_hash = $2 AND automation = '')", hash, hash)
}
