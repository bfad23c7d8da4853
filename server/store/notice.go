package store

import (
	"context"
	"database/sql"
	"time"

	"triphammer/server/store/internal/engine"
)

// States of a Notice.
const (
	NoticePending   = "pending"
	NoticeDelivered = "delivered"
	NoticeFailed    = "failed" // it was given up
)

// RunNotices is the recipient of the notices that runs ended.
const RunNotices = "runs"

// maxNotices is how many notices are kept of each recipient but RunNotices, whose
// notices are kept as long as their runs.
const maxNotices = 100

// Notice is a message to an outside party, and the state of its delivery. The
// notices together are the outbox.
type Notice struct {
	ID        int64 // notices are ordered by it
	RunID     RunID // set if the notice is about the end of a run
	Recipient string
	Subject   string    // what it is about, once per recipient; empty: the run
	Body      []byte    // empty of runs: it is made when it is sent
	DueAt     time.Time // of the next attempt; zero: there is none
	Attempts  int64
	Status    string
	Detail    string // of the last attempt
	UpdatedAt time.Time
}

// metaRunNotices is there while ends of runs are told.
const metaRunNotices = "ends of runs are told"

// Notices are what people are still to be told of.
type Notices struct{ *db }

// KeepEnds makes each end of a run from now on leave a notice, in the same transaction, or
// none. The store remembers it, because a worker ends runs too, and only servers know who is told.
func (s *Notices) KeepEnds(ctx context.Context, keep bool) error {
	have, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT value FROM meta WHERE name = $1", metaRunNotices)
	if err != nil || keep == (len(have) > 0) {
		return err
	}
	return s.Do(ctx, func(tx *engine.Tx) error {
		if keep {
			return tx.SetMeta(metaRunNotices, "1")
		}
		return tx.Exec("DELETE FROM meta WHERE name = $1", metaRunNotices)
	})
}

// ofRun leaves a notice of a run that ends, if somebody is told.
func (s *Notices) ofRun(tx *engine.Tx, run RunID) error {
	return tx.Exec(`INSERT INTO notices (id, recipient, subject, body, due_at, attempts, status, detail, updated_at)
		SELECT $1, $2, '', $3, $4, 0, 'pending', '', $4 WHERE EXISTS (SELECT 1 FROM meta WHERE name = $5) ON CONFLICT (id) DO NOTHING`,
		int64(run), RunNotices, []byte{}, micros(s.Now()), metaRunNotices)
}

func (s *Notices) add(tx *engine.Tx, id int64, n Notice) error {
	return tx.Exec(`INSERT INTO notices (id, recipient, subject, body, due_at, attempts, status, detail, updated_at)
		VALUES ($1, $2, $3, $4, $5, 0, 'pending', '', $5) ON CONFLICT (id) DO NOTHING`, id, n.Recipient, n.Subject, append([]byte{}, n.Body...), micros(s.Now()))
}

// Add adds a notice behind the others of its recipient. It replaces the notice
// about the same subject. dropped is how many notices were deleted unsent, because
// more than maxNotices wait.
func (s *Notices) Add(ctx context.Context, n Notice) (dropped int64, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		if err := tx.Exec("DELETE FROM notices WHERE recipient = $1 AND subject = $2", n.Recipient, n.Subject); err != nil {
			return err
		}
		if err := s.add(tx, tx.NextID(), n); err != nil {
			return err
		}
		const old = "DELETE FROM notices WHERE recipient = $1 AND id <= (SELECT id FROM notices WHERE recipient = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)"
		if dropped, err = tx.ExecCount(old+" AND due_at <> 0", n.Recipient, maxNotices); err != nil {
			return err
		}
		return tx.Exec(old, n.Recipient, maxNotices)
	})
	return dropped, err
}

const noticeQuery = "SELECT id, recipient, subject, body, due_at, attempts, status, detail, updated_at FROM notices"

func scanNotice(rows *sql.Rows) (Notice, error) {
	var n Notice
	var due, updated int64
	err := rows.Scan(&n.ID, &n.Recipient, &n.Subject, &n.Body, &due, &n.Attempts, &n.Status, &n.Detail, &updated)
	if n.Recipient == RunNotices {
		n.RunID = RunID(n.ID)
	}
	n.DueAt, n.UpdatedAt = timeOf(due), timeOf(updated)
	return n, err
}

// Next are the notices of a recipient that wait for an attempt, the longest
// due first; with inOrder, the oldest first.
func (s *Notices) Next(ctx context.Context, recipient string, inOrder bool, limit int) ([]Notice, error) {
	order := " ORDER BY due_at"
	if inOrder {
		order = " ORDER BY id"
	}
	return engine.List(ctx, s.DB, scanNotice, noticeQuery+" WHERE recipient = $1 AND due_at <> 0"+order+" LIMIT $2", recipient, limit)
}

// Last is the newest notice of a recipient. If a subject is given, the notice
// is about that.
func (s *Notices) Last(ctx context.Context, recipient, subject string) (Notice, error) {
	w := where{}
	w.add("recipient = ?", recipient)
	w.text("subject", subject)
	return engine.First(engine.List(ctx, s.DB, scanNotice, noticeQuery+w.sql()+" ORDER BY id DESC"+w.limit(1), w.args...))
}

// List lists the notices about the ends of runs, those of the newest runs first.
func (s *Notices) List(ctx context.Context, from RunID, limit int) ([]Notice, error) {
	w := where{}
	w.add("recipient = ?", RunNotices)
	before(&w, "id", from)
	return engine.List(ctx, s.DB, scanNotice, noticeQuery+w.sql()+" ORDER BY id DESC"+w.limit(limit), w.args...)
}

// Save records how an attempt went, unless the notice was replaced meanwhile.
func (s *Notices) Save(ctx context.Context, n Notice) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("UPDATE notices SET due_at = $1, attempts = $2, status = $3, detail = $4, updated_at = $5 WHERE id = $6",
			micros(n.DueAt), n.Attempts, n.Status, n.Detail, micros(s.Now()), n.ID)
	})
}

// Drop deletes a notice that needs no message.
func (s *Notices) Drop(ctx context.Context, id int64) error {
	return s.Do(ctx, func(tx *engine.Tx) error { return tx.Exec("DELETE FROM notices WHERE id = $1", id) })
}
