package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
)

const (
	linkPrefix    = "thl"
	sessionPrefix = "ths"
)

// LoginLink opens a session of the pages once (SPEC 10.3).
type LoginLink struct {
	Person string
	Role   string
	Via    string // how the person came by it, such as "link of local ada"
	// KeyID is the key that made it, if one did. Link and session end with the key.
	KeyID KeyID
	// Life is how long the session lasts at most, and Idle how long it lasts without a visit.
	Life, Idle time.Duration
}

// Visitor is where somebody who signs in comes from.
type Visitor struct {
	Address string
	Browser string // as it calls itself
}

// PageSession is that somebody is signed in to the pages.
type PageSession struct {
	ID        PageSessionID
	Person    string
	Role      string
	Via       string // how the person signed in
	KeyID     KeyID  // of the key without which it ends, or none
	CreatedAt time.Time
	SeenAt    time.Time // its latest visit, within a minute
	ExpiresAt time.Time // its end, at the latest
	Idle      time.Duration
	Visitor
}

// Sessions are those of people who use the pages, and the links that begin them.
type Sessions struct{ *db }

// CreateLoginLink makes a one-time token that opens a session.
func (s *Sessions) CreateLoginLink(ctx context.Context, l LoginLink, life time.Duration) (token string, err error) {
	token = secret.NewToken(linkPrefix)
	hash := secret.HashToken(token)
	return token, s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("INSERT INTO login_links (hash, actor, role, via, key_id, life, idle, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			hash[:], l.Person, l.Role, l.Via, l.KeyID, l.Life.Microseconds(), l.Idle.Microseconds(), micros(s.Latest().Add(life)))
	})
}

const linkColumns = "actor, role, via, key_id, life, idle"

func (l *LoginLink) fields(life, idle *int64) []any {
	return []any{&l.Person, &l.Role, &l.Via, &l.KeyID, life, idle}
}

// LoginLink finds a link that works, without using it up. Otherwise it is ErrNotFound.
func (s *Sessions) LoginLink(ctx context.Context, token string) (*LoginLink, error) {
	if !secret.ValidToken(linkPrefix, token) {
		return nil, ErrNotFound
	}
	hash := secret.HashToken(token)
	return engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (*LoginLink, error) {
		l := &LoginLink{}
		return l, rows.Scan(l.fields(new(int64), new(int64))...)
	}, "SELECT "+linkColumns+" FROM login_links WHERE hash = $1 AND expires_at > $2 AND "+keyLives("$2"), hash[:], micros(s.Latest())))
}

// DropLoginLink makes a link work no more, if it did.
func (s *Sessions) DropLoginLink(ctx context.Context, token string) error {
	hash := secret.HashToken(token)
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("DELETE FROM login_links WHERE hash = $1", hash[:])
	})
}

// RedeemLoginLink uses up a link and returns the token of a new session. It is
// ErrNotFound if the link is unknown, used or too old, or if its key is no longer valid.
func (s *Sessions) RedeemLoginLink(ctx context.Context, link string, from Visitor) (token string, n *PageSession, err error) {
	if !secret.ValidToken(linkPrefix, link) {
		return "", nil, ErrNotFound
	}
	hash := secret.HashToken(link)
	err = s.Do(ctx, func(tx *engine.Tx) error {
		var l LoginLink
		var life, idle int64
		err := tx.Row("DELETE FROM login_links WHERE hash = $1 AND expires_at > $2 AND "+keyLives("$2")+" RETURNING "+linkColumns,
			[]any{hash[:], micros(s.Latest())}, l.fields(&life, &idle)...)
		if err != nil {
			return err
		}
		l.Life, l.Idle = time.Duration(life)*time.Microsecond, time.Duration(idle)*time.Microsecond
		token, n, err = s.open(tx, l, from)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return token, n, nil
}

// Open makes a session without a link, for somebody who signed in elsewhere.
func (s *Sessions) Open(ctx context.Context, l LoginLink, from Visitor) (token string, n *PageSession, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		token, n, err = s.open(tx, l, from)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return token, n, nil
}

// open makes a session.
func (s *Sessions) open(tx *engine.Tx, l LoginLink, from Visitor) (token string, n *PageSession, err error) {
	token = secret.NewToken(sessionPrefix)
	hash := secret.HashToken(token)
	now := s.Latest()
	n = &PageSession{
		ID: PageSessionID(tx.NextID()), Person: l.Person, Role: l.Role, Via: l.Via, KeyID: l.KeyID,
		CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(l.Life), Idle: l.Idle, Visitor: from,
	}
	return token, n, tx.Exec(`INSERT INTO sessions (id, hash, actor, role, via, key_id, created_at, seen_at, expires_at, idle, address, browser)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, $11)`,
		n.ID, hash[:], n.Person, n.Role, n.Via, n.KeyID, micros(now), micros(n.ExpiresAt), n.Idle.Microseconds(), n.Address, n.Browser)
}

const pageSessionColumns = "id, actor, role, via, key_id, created_at, seen_at, expires_at, idle, address, browser"

func scanPageSession(rows *sql.Rows) (*PageSession, error) {
	n := &PageSession{}
	var created, seen, expires, idle int64
	err := rows.Scan(&n.ID, &n.Person, &n.Role, &n.Via, &n.KeyID, &created, &seen, &expires, &idle, &n.Address, &n.Browser)
	n.CreatedAt, n.SeenAt, n.ExpiresAt, n.Idle = timeOf(created), timeOf(seen), timeOf(expires), time.Duration(idle)*time.Microsecond
	return n, err
}

// sessionLives is the SQL condition that a session goes on. The parameter is the present
// time.
func sessionLives(mark string) string {
	return "expires_at > " + mark + " AND seen_at + idle > " + mark + " AND " + keyLives(mark)
}

// ByToken is the session of a token, and notes the visit. It is ErrNotFound if the token is
// unknown, if the session has ended, or if the key of its link is no longer valid.
func (s *Sessions) ByToken(ctx context.Context, token string) (*PageSession, error) {
	if !secret.ValidToken(sessionPrefix, token) {
		return nil, ErrNotFound
	}
	hash := secret.HashToken(token)
	now := s.Latest()
	n, err := engine.First(engine.List(ctx, s.DB, scanPageSession, "SELECT "+pageSessionColumns+" FROM sessions WHERE hash = $1 AND "+sessionLives("$2"), hash[:], micros(now)))
	if err != nil || now.Sub(n.SeenAt) < touchEvery {
		return n, err
	}
	n.SeenAt = now
	err = s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("UPDATE sessions SET seen_at = $1 WHERE id = $2", micros(now), n.ID)
	})
	if err != nil {
		s.Logger.Warn("the last visit of a session could not be noted", "session", n.ID, "error", err)
	}
	return n, nil
}

// CallerLives tells whether a key works and a session goes on, each if it is given. The
// error is ErrKey if not.
func (s *Sessions) CallerLives(ctx context.Context, key KeyID, session PageSessionID) error {
	now := s.Latest()
	if key != 0 {
		if why, err := s.store.Schedules.keyEnd(ctx, key, now); err != nil || why != "" {
			return cmp.Or(err, ErrKey)
		}
	}
	if session != 0 {
		_, err := engine.First(engine.List(ctx, s.DB, scanPageSession, "SELECT "+pageSessionColumns+" FROM sessions WHERE id = $1 AND "+sessionLives("$2"), session, micros(now)))
		if errors.Is(err, ErrNotFound) {
			return ErrKey
		}
		return err
	}
	return nil
}

// List lists the sessions that go on, the newest first.
func (s *Sessions) List(ctx context.Context) ([]*PageSession, error) {
	return engine.List(ctx, s.DB, scanPageSession, "SELECT "+pageSessionColumns+" FROM sessions WHERE "+sessionLives("$1")+" ORDER BY id DESC", micros(s.Latest()))
}

// End ends a session at once. It is ErrNotFound if the session has ended.
func (s *Sessions) End(ctx context.Context, id PageSessionID) (*PageSession, error) {
	n, err := engine.First(engine.List(ctx, s.DB, scanPageSession, "SELECT "+pageSessionColumns+" FROM sessions WHERE id = $1 AND "+sessionLives("$2"), id, micros(s.Latest())))
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	return n, s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("DELETE FROM sessions WHERE id = $1", id)
	})
}

// Ended counts what ended with a key, or what somebody ended.
type Ended struct {
	Sessions   int64
	LoginLinks int64 // that nobody had used
	Schedules  int64 // that start nothing any more
}

// EndAll ends every session and every link that nobody has used.
func (s *Sessions) EndAll(ctx context.Context) (ended Ended, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) (err error) {
		ended, err = s.endWhere(tx, "")
		return err
	})
	return ended, err
}

// endWhere ends those that a further condition selects.
func (s *Sessions) endWhere(tx *engine.Tx, and string, args ...any) (ended Ended, err error) {
	args = append([]any{micros(s.Latest())}, args...)
	if ended.Sessions, err = tx.ExecCount("DELETE FROM sessions WHERE expires_at > $1 AND seen_at + idle > $1"+and, args...); err != nil {
		return ended, err
	}
	ended.LoginLinks, err = tx.ExecCount("DELETE FROM login_links WHERE expires_at > $1"+and, args...)
	return ended, err
}

// prune forgets what is too old to open anything.
func (s *Sessions) prune(ctx context.Context) error {
	old := micros(s.Agreed().Add(-idempotencyAge))
	err := s.InSteps(ctx, engine.Task{Run: func(tx *engine.Tx, _ *engine.Step) (more bool, err error) {
		n, err := tx.ExecCount(`DELETE FROM idempotency WHERE key_hash IN
			(SELECT key_hash FROM idempotency WHERE created_at <= $1 LIMIT $2)`, old, engine.StepRows)
		return n == engine.StepRows, err
	}})
	return errors.Join(err, s.Do(ctx, func(tx *engine.Tx) error {
		now := micros(s.Agreed())
		return errors.Join(
			tx.Exec("DELETE FROM login_links WHERE expires_at <= $1", now),
			tx.Exec("DELETE FROM sessions WHERE expires_at <= $1 OR seen_at + idle <= $1", now))
	}))
}
