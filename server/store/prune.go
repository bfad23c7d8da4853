package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"triphammer/server/store/internal/engine"
)

// Retention is what Prune keeps: of each webhook at least the newest Keep
// deliveries, and everything younger than Age (SPEC C6.5: 50 and 7 days).
type Retention struct {
	Keep int
	Age  time.Duration
}

// prunePage is how many rows to delete are looked up at once.
const prunePage = 1000

// Prune deletes deliveries that are older, with their payloads and identities,
// unless a run of theirs has not finished. It returns how many.
func (s *Deliveries) Prune(ctx context.Context, keep Retention) (deleted int64, err error) {
	uids, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT uid FROM webhook_uids ORDER BY uid")
	if err != nil {
		return 0, err
	}
	for _, uid := range uids {
		n, err := s.pruneWebhook(ctx, uid, keep)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	return deleted, errors.Join(s.pruneStartedEvents(ctx, keep), s.store.Sessions.prune(ctx), s.store.Schedules.pruneTicks(ctx), s.store.Usage.prune(ctx))
}

func (s *Deliveries) pruneWebhook(ctx context.Context, uid string, keep Retention) (deleted int64, err error) {
	// What is older than the border goes: it is neither young nor among the newest.
	border := engine.IDAt(s.Agreed().Add(-keep.Age))
	if keep.Keep > 0 {
		var kept int64
		err := s.Read.QueryRowContext(ctx, "SELECT id FROM deliveries WHERE webhook_uid = $1 ORDER BY id DESC LIMIT 1 OFFSET $2", uid, keep.Keep-1).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		border = min(border, kept)
	}
	var last int64 // what a run still needs is passed by once
	return s.remove(ctx, func() (all []oldRow, err error) {
		all, err = engine.List(ctx, s.DB, scanOldRow, `SELECT d.id, 0, coalesce(length(d.payload), 0) FROM deliveries d WHERE d.webhook_uid = $1 AND d.id > $2 AND d.id < $3
			AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = d.id AND r.state IN ('QUEUED', 'HELD', 'INPROGRESS')) ORDER BY d.id LIMIT $4`,
			uid, last, border, prunePage)
		if len(all) > 0 {
			last = all[len(all)-1].id
		}
		return all, err
	}, func(tx *engine.Tx, v oldRow) error {
		// A run that has ended never begins again.
		return errors.Join(tx.Exec("DELETE FROM deliveries WHERE id = $1", v.id), tx.Exec("DELETE FROM answers WHERE run_id = $1", v.id), s.store.Lookups.drop(tx, DeliveryID(v.id)), s.store.Subjects.drop(tx, v.id), tx.Exec("DELETE FROM signed_bodies WHERE id = $1", v.id))
	})
}

// oldRow is a row to delete, named by its id, or by its id and a number. size is about
// how many bytes that frees.
type oldRow struct{ id, seq, size int64 }

func scanOldRow(rows *sql.Rows) (v oldRow, err error) {
	err = rows.Scan(&v.id, &v.seq, &v.size)
	return v, err
}

// remove deletes in steps what find finds, until it finds nothing. It is looked
// for beside the writer. n is how many were whole: those without a number.
func (s *db) remove(ctx context.Context, find func() ([]oldRow, error), one func(tx *engine.Tx, v oldRow) error) (n int64, err error) {
	for {
		all, err := find()
		if err != nil || len(all) == 0 {
			return n, err
		}
		left, whole, last := all, int64(0), (*engine.Step)(nil) // after the last step, which may be made again
		err = s.InSteps(ctx, engine.Task{Run: func(tx *engine.Tx, st *engine.Step) (more bool, err error) {
			if st != last { // the one before is committed
				all, n, last = left, n+whole, st
			}
			for left, whole = all, 0; len(left) > 0 && st.Takes(left[0].size); left = left[1:] {
				if err := one(tx, left[0]); err != nil {
					return false, err
				}
				if left[0].seq == 0 {
					whole++
				}
			}
			return len(left) > 0, nil
		}})
		if err != nil {
			return n, err
		}
		n += whole
	}
}
