package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"triphammer/server/store/internal/engine"
)

// Errors about conversations.
var (
	ErrNoSession = errors.New("the conversation has no session")
	ErrExpired   = errors.New("the conversation has expired")
)

// held is the state of a run that waits for a time or for another run. It is in other
// indexes than the queue, so that no claim passes by it again and again. Outside the store
// it is Queued.
const held RunState = "HELD"

// untilReleased is the time until which a run waits for the run before it.
const untilReleased = math.MaxInt64

// Session is what a harness keeps of a conversation, by which it goes on.
type Session struct{ Harness, ID string }

// Conversation is the runs that go on with one session, the oldest first.
type Conversation struct {
	ID      RunID // of the first run
	Session *Session
	Runs    []*Run
}

// ofConversation are the ids and states of its runs. It takes its id twice: one index has
// the first run, another one the others.
const ofConversation = `SELECT id, state, run_at, finished_at FROM runs WHERE id = $1
	UNION ALL SELECT id, state, run_at, finished_at FROM runs WHERE conversation_id = $2 AND conversation_id <> 0`

// Conversations are runs that continue each other.
type Conversations struct{ *db }

// Get reads the conversation to which a run belongs. Runs that were deleted with
// their age are missing.
func (s *Conversations) Get(ctx context.Context, of RunID) (*Conversation, error) {
	r, err := s.store.Runs.Get(ctx, of)
	if err != nil {
		return nil, err
	}
	c := &Conversation{ID: r.ConversationID}
	c.Runs, err = engine.List(ctx, s.DB, scanRun, selectRun+" WHERE r.id IN (SELECT id FROM ("+ofConversation+") AS runs) ORDER BY r.id", c.ID, c.ID)
	if err != nil {
		return nil, err
	}
	session, err := s.SessionOf(ctx, c.ID)
	switch {
	case err == nil:
		c.Session = &session
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	return c, nil
}

// SessionOf reads the session of a conversation. The error is ErrNotFound if there is none.
func (s *Conversations) SessionOf(ctx context.Context, conversation RunID) (Session, error) {
	return engine.First(engine.List(ctx, s.DB, scanSession, "SELECT harness, session FROM conversations WHERE id = $1", conversation))
}

func scanSession(rows *sql.Rows) (session Session, err error) {
	err = rows.Scan(&session.Harness, &session.ID)
	return session, err
}

// SetSession records the session by which the conversation of a run goes on. The newest
// counts.
func (s *Conversations) SetSession(ctx context.Context, l Lease, session Session) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET updated_at = $1", s.stamp(tx)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO conversations (id, harness, session)
			SELECT CASE conversation_id WHEN 0 THEN id ELSE conversation_id END, $1, $2 FROM runs WHERE id = $3
			ON CONFLICT (id) DO UPDATE SET harness = excluded.harness, session = excluded.session`, session.Harness, session.ID, l.RunID)
	})
}

// End forgets the session of a conversation, so that no run can join it any more
// and its workspace can be removed. It does nothing, and ended is false, if a run of it has
// not ended or has ended after the time.
func (s *Conversations) End(ctx context.Context, id RunID, lastEnd time.Time) (ended bool, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		ended = true
		err := tx.Each(ofConversation, []any{id, id}, func(rows *sql.Rows) (bool, error) {
			var r RunID
			var state RunState
			var at, finished int64
			err := rows.Scan(&r, &state, &at, &finished)
			ended = ended && state.Terminal() && finished <= micros(lastEnd)
			return ended, err
		})
		if err != nil || !ended {
			return err
		}
		return tx.Exec("DELETE FROM conversations WHERE id = $1", id)
	})
	return ended && err == nil, err
}

// join makes a new run the last one of its conversation. Until the runs before it have
// ended, it is held. If all have ended, there must be a session, and the last end must not
// be before endedAfter.
func (s *Conversations) join(tx *engine.Tx, id, conversation RunID, endedAfter time.Time) error {
	var last, before RunID // the last run, and the last one that has not ended
	var ended int64
	err := tx.Each(ofConversation, []any{conversation, conversation},
		func(rows *sql.Rows) (bool, error) {
			var r RunID
			var state RunState
			var at, finished int64
			err := rows.Scan(&r, &state, &at, &finished)
			last, ended = max(last, r), max(ended, finished)
			if !state.Terminal() {
				before = max(before, r)
			}
			return true, err
		})
	if err != nil {
		return err
	}
	if last == 0 {
		return fmt.Errorf("the conversation %s: %w", conversation, ErrNotFound)
	}
	if before == 0 {
		if ended < micros(endedAfter) {
			return fmt.Errorf("%w: its last run, %s, ended at %s", ErrExpired, last, timeOf(ended).Format(time.RFC3339))
		}
		var session string
		err := tx.Row("SELECT session FROM conversations WHERE id = $1", []any{conversation}, &session)
		if errors.Is(err, ErrNotFound) {
			return fmt.Errorf("%w: %s ended before its agent had begun one, or its workspace was removed", ErrNoSession, last)
		}
		if err != nil {
			return err
		}
		if err := tx.Exec("UPDATE runs SET conversation_id = $1 WHERE id = $2", conversation, id); err != nil {
			return err
		}
		return s.store.Workers.bindRun(tx, id, conversation)
	}
	return tx.Exec("UPDATE runs SET conversation_id = $1, state = 'HELD', run_at = $2, status_message = $3 WHERE id = $4",
		conversation, untilReleased, "waits for "+before.String()+", which is before it in the conversation", id)
}

// ended does what follows from the end of a run: the next run of its conversation and of its line
// may start, and whoever wants to know is told.
func (s *Conversations) ended(tx *engine.Tx, id RunID) error {
	var conversation RunID
	var subject string
	err := tx.Row("SELECT CASE conversation_id WHEN 0 THEN id ELSE conversation_id END, subject FROM runs WHERE id = $1", []any{id}, &conversation, &subject)
	if err == nil {
		err = s.releaseNext(tx, conversation)
	}
	if err == nil && subject != "" {
		err = s.store.Lines.leave(tx, id)
	}
	if err != nil {
		return err
	}
	if err := s.store.Answers.ofRun(tx, id); err != nil {
		return err
	}
	return s.store.Notices.ofRun(tx, id)
}

// releaseNext releases the first run of a conversation that has not ended, if all that have not ended wait for
// others. An approved run comes later than its id says, so the first one is not always the one at work.
func (s *Conversations) releaseNext(tx *engine.Tx, conversation RunID) error {
	var next RunID
	free := true
	err := tx.Each(ofConversation+" ORDER BY id", []any{conversation, conversation}, func(rows *sql.Rows) (bool, error) {
		var r RunID
		var state RunState
		var at, finished int64
		err := rows.Scan(&r, &state, &at, &finished)
		if err == nil && !state.Terminal() {
			next, free = cmp.Or(next, r), at == untilReleased && r != conversation // the first run has none before it: it waits in its line
		}
		return free, err
	})
	if err != nil || !free || next == 0 {
		return err
	}
	return s.release(tx, next, conversation)
}

// release makes a run that waited for others one that may start, at once or when its own time has
// come. A run of a line whose conversation has no session begins anew: its event is not lost.
func (s *Conversations) release(tx *engine.Tx, id, conversation RunID) error {
	ready, message, inLine, err := s.store.Lines.ready(tx, id)
	if err != nil {
		return err
	}
	err = tx.Exec("UPDATE runs SET run_at = $1, updated_at = $2, status_message = $3 WHERE id = $4 AND state = 'HELD'", max(ready, micros(s.Now())), s.stamp(tx), message, id)
	if err != nil || conversation == id {
		return err
	}
	if inLine {
		var session string
		err := tx.Row("SELECT session FROM conversations WHERE id = $1", []any{conversation}, &session)
		if errors.Is(err, ErrNotFound) {
			return s.beginAnew(tx, id, conversation)
		}
		if err != nil {
			return err
		}
	}
	return s.store.Workers.bindRun(tx, id, conversation)
}

// beginAnew makes a run the first one of a conversation, with the runs of its line that waited
// behind it. What else waited has nothing to go on with: it is released, and says so.
func (s *Conversations) beginAnew(tx *engine.Tx, id, conversation RunID) error {
	return errors.Join(
		tx.Exec("UPDATE runs SET conversation_id = 0 WHERE id = $1", id),
		tx.Exec("UPDATE runs SET conversation_id = $1 WHERE conversation_id = $2 AND conversation_id <> 0 AND state = 'HELD' AND id IN (SELECT run_id FROM lines)", id, conversation),
		tx.Exec("UPDATE subject_conversations SET conversation_id = $1 WHERE conversation_id = $2", id, conversation),
		s.releaseNext(tx, conversation),
	)
}

// Retry says how often a run that fails is tried again.
type Retry struct {
	Attempts int64         `json:"attempts"` // in all
	Delay    time.Duration `json:"delay_ns"` // before the second attempt; it doubles from then on
}

// maxDelay bounds the time between two attempts.
const maxDelay = 24 * time.Hour

// after is the time between an attempt and the next one.
func (r Retry) after(attempt int64) time.Duration {
	delay := r.Delay
	for ; attempt > 1 && delay < maxDelay; attempt-- {
		delay *= 2
	}
	return min(delay, maxDelay)
}

// again holds a run in progress for its next attempt, if its spec allows one and nobody
// has asked it to stop. next is when that may start.
func (s *Leases) again(tx *engine.Tx, id RunID, message string) (next time.Time, err error) {
	r := NewRun{}
	var hash []byte
	var attempt int64
	var stop Stop
	err = tx.Row("SELECT spec_hash, attempt, cancel_requested FROM runs WHERE id = $1", []any{id}, &hash, &attempt, &stop)
	if err != nil {
		return next, err
	}
	copy(r.SpecHash[:], hash)
	fields, err := s.store.Runs.specFields(tx, &r)
	if err != nil || stop != NoStop || attempt >= fields.Retry.Attempts {
		return next, err
	}
	now := s.Now()
	next = now.Add(fields.Retry.after(attempt))
	s.Queued.Add(1)
	return next, tx.Exec(`UPDATE runs SET state = 'HELD', run_at = $1, status_message = $2, updated_at = $3, lease_token = lease_token + 1
		WHERE id = $4`, micros(next), fmt.Sprintf("attempt %d of %d failed: %s", attempt, fields.Retry.Attempts, message), s.stamp(tx), id)
}
