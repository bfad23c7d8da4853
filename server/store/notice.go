package store

import (
	"context"
	"database/sql"
	"time"
)

// States of a Notice.
const (
	NoticePending   = "pending"
	NoticeDelivered = "delivered"
	NoticeFailed    = "failed" // it was given up
)

// Notice is a message about the end of a run, and the state of its delivery.
type Notice struct {
	RunID     RunID
	DueAt     time.Time // of the next attempt; zero: there is none
	Attempts  int64
	Status    string
	Detail    string // of the last attempt
	UpdatedAt time.Time
}

// KeepNotices makes each end of a run from now on leave a notice, in the same
// transaction.
func (s *Store) KeepNotices() { s.notices.Store(true) }

// notice leaves a notice of a run that ends. It runs on the writer.
func (s *Store) notice(ctx context.Context, run RunID) error {
	if !s.notices.Load() {
		return nil
	}
	return s.exec(ctx, `INSERT INTO notices (run_id, due_at, attempts, status, detail, updated_at) VALUES ($1, $2, 0, 'pending', '', $2)
		ON CONFLICT (run_id) DO NOTHING`, run, micros(s.now()))
}

const noticeColumns = "run_id, due_at, attempts, status, detail, updated_at"

func scanNotice(rows *sql.Rows) (Notice, error) {
	var n Notice
	var due, updated int64
	err := rows.Scan(&n.RunID, &due, &n.Attempts, &n.Status, &n.Detail, &updated)
	n.DueAt, n.UpdatedAt = timeOf(due), timeOf(updated)
	return n, err
}

// DueNotices are the notices whose next attempt is due, the longest due first.
func (s *Store) DueNotices(ctx context.Context, limit int) ([]Notice, error) {
	return list(ctx, s, scanNotice, "SELECT "+noticeColumns+" FROM notices WHERE due_at <> 0 AND due_at <= $1 ORDER BY due_at LIMIT $2", micros(s.now()), limit)
}

// Notices lists the notices, those of the newest runs first.
func (s *Store) Notices(ctx context.Context, from RunID, limit int) ([]Notice, error) {
	w := where{}
	before(&w, "run_id", from)
	return list(ctx, s, scanNotice, "SELECT "+noticeColumns+" FROM notices"+w.sql()+" ORDER BY run_id DESC"+w.limit(limit), w.args...)
}

// SaveNotice records how an attempt went.
func (s *Store) SaveNotice(ctx context.Context, n Notice) error {
	return s.do(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "UPDATE notices SET due_at = $1, attempts = $2, status = $3, detail = $4, updated_at = $5 WHERE run_id = $6",
			micros(n.DueAt), n.Attempts, n.Status, n.Detail, micros(s.now()), n.RunID)
	})
}

// DropNotice deletes a notice that needs no message.
func (s *Store) DropNotice(ctx context.Context, run RunID) error {
	return s.do(ctx, func(ctx context.Context) error { return s.exec(ctx, "DELETE FROM notices WHERE run_id = $1", run) })
}
