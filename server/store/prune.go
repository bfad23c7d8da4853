package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"
)

// Retention is what Prune keeps: of each webhook at least the newest Keep
// deliveries, and everything younger than Age (CONTRACT.md 6.5: 50 and 7 days).
type Retention struct {
	Keep int
	Age  time.Duration
}

const (
	pruneChunk  = 500  // rows per transaction: others get their turn between
	vacuumPages = 1000 // given back to the file system per transaction
)

// Prune deletes deliveries that are older, with their payloads and identities,
// unless a run of theirs has not finished. It returns how many. The file shrinks
// by what became free.
func (s *Store) Prune(ctx context.Context, keep Retention) (deleted int64, err error) {
	uids, err := list(ctx, s, scanText, "SELECT uid FROM webhook_uids ORDER BY uid")
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
	return deleted, errors.Join(s.pruneSessions(ctx), s.pruneTicks(ctx), s.shrink(ctx))
}

func (s *Store) pruneWebhook(ctx context.Context, uid string, keep Retention) (deleted int64, err error) {
	// What is older than the border goes: it is neither young nor among the newest.
	border := idAt(s.now().Add(-keep.Age))
	if keep.Keep > 0 {
		var kept int64
		err := s.read.QueryRowContext(ctx, "SELECT id FROM deliveries WHERE webhook_uid = $1 ORDER BY id DESC LIMIT 1 OFFSET $2", uid, keep.Keep-1).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		border = min(border, kept)
	}
	for n := int64(pruneChunk); n == pruneChunk; deleted += n {
		err := s.do(ctx, func(ctx context.Context) error {
			var err error
			n, err = s.execCount(ctx, `DELETE FROM deliveries WHERE id IN (SELECT d.id FROM deliveries d WHERE d.webhook_uid = $1 AND d.id < $2
				AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.delivery_id = d.id AND r.state IN ('QUEUED', 'INPROGRESS')) ORDER BY d.id LIMIT $3)`,
				uid, border, pruneChunk)
			return err
		})
		if err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// shrink gives free pages back to the file system, in small steps.
func (s *Store) shrink(ctx context.Context) error {
	for free := int64(vacuumPages); free >= vacuumPages; {
		err := s.do(ctx, func(ctx context.Context) error {
			if err := s.row(ctx, "PRAGMA freelist_count", nil, &free); err != nil || free == 0 {
				return err
			}
			every := func(*sql.Rows) (bool, error) { return true, nil } // each step of it is a page
			return s.each(ctx, "PRAGMA incremental_vacuum("+strconv.Itoa(vacuumPages)+")", nil, every)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func scanText(rows *sql.Rows) (string, error) {
	var text string
	err := rows.Scan(&text)
	return text, err
}
