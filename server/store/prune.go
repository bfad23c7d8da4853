package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Retention is what Prune keeps: of each webhook at least the newest Keep
// deliveries, and everything younger than Age (CONTRACT.md 6.5: 50 and 7 days).
type Retention struct {
	Keep int
	Age  time.Duration
}

const pruneChunk = 500 // rows per transaction: others get their turn between

// Prune deletes deliveries that are older, with their payloads and identities,
// unless a run of theirs has not finished. It returns how many.
func (s *Store) Prune(ctx context.Context, keep Retention) (deleted int64, err error) {
	uids, err := list(ctx, s, scanText, "SELECT uid FROM webhook_uids ORDER BY uid")
	if err != nil {
		return 0, err
	}
	for _, uid := range uids {
		border := idAt(s.now().Add(-keep.Age))
		var kept int64
		err := s.read.QueryRowContext(ctx, "SELECT id FROM deliveries WHERE webhook_uid = $1 ORDER BY id DESC LIMIT 1 OFFSET $2", uid, keep.Keep-1).Scan(&kept)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return deleted, err
		}
		for n := int64(pruneChunk); n == pruneChunk; {
			err := s.do(ctx, func(ctx context.Context) error {
				var err error
				n, err = s.execCount(ctx, `DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries d WHERE webhook_uid = $1 AND id < $2
					AND NOT EXISTS (SELECT 1 FROM runs WHERE delivery_id = d.id AND state IN ('QUEUED', 'INPROGRESS')) ORDER BY id LIMIT $3)`,
					uid, min(border, kept), pruneChunk)
				return err
			})
			if err != nil {
				return deleted, err
			}
			deleted += n
		}
	}
	return deleted, s.pruneSessions(ctx)
}

func scanText(rows *sql.Rows) (string, error) {
	var text string
	err := rows.Scan(&text)
	return text, err
}
