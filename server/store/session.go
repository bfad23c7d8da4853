package store

import (
	"context"
	"errors"
	"time"

	"triphammer/server/secret"
)

const (
	linkPrefix    = "thl"
	sessionPrefix = "ths"
)

// CreateLoginLink makes a one-time token that opens a session (SPEC 10.3). Both
// work for as long as the key does, if one is given.
func (s *Store) CreateLoginLink(ctx context.Context, actor string, key KeyID, life time.Duration) (token string, err error) {
	token = secret.NewToken(linkPrefix)
	hash := secret.HashToken(token)
	return token, s.do(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "INSERT INTO login_links (hash, actor, key_id, expires_at) VALUES ($1, $2, $3, $4)", hash[:], actor, key, micros(s.clock.latest().Add(life)))
	})
}

// RedeemLoginLink uses up a link and returns the token of a new session. It is
// ErrNotFound if the link is unknown, used or too old, or if its key is no longer valid.
func (s *Store) RedeemLoginLink(ctx context.Context, link string, life time.Duration) (session, actor string, err error) {
	if !secret.ValidToken(linkPrefix, link) {
		return "", "", ErrNotFound
	}
	session = secret.NewToken(sessionPrefix)
	linkHash, sessionHash := secret.HashToken(link), secret.HashToken(session)
	err = s.do(ctx, func(ctx context.Context) error {
		var key KeyID
		err := s.row(ctx, "DELETE FROM login_links WHERE hash = $1 AND expires_at > $2 AND "+keyLives("$2")+" RETURNING actor, key_id",
			[]any{linkHash[:], micros(s.clock.latest())}, &actor, &key)
		if err != nil {
			return err
		}
		return s.exec(ctx, "INSERT INTO sessions (hash, actor, key_id, expires_at) VALUES ($1, $2, $3, $4)", sessionHash[:], actor, key, micros(s.clock.latest().Add(life)))
	})
	if err != nil {
		return "", "", err
	}
	return session, actor, nil
}

// Session is the person to whom a session token belongs. It is ErrNotFound if the token
// is unknown or too old, or if the key of its link is no longer valid.
func (s *Store) Session(ctx context.Context, token string) (actor string, err error) {
	if !secret.ValidToken(sessionPrefix, token) {
		return "", ErrNotFound
	}
	hash := secret.HashToken(token)
	return first(list(ctx, s, scanText, "SELECT actor FROM sessions WHERE hash = $1 AND expires_at > $2 AND "+keyLives("$2"), hash[:], micros(s.clock.latest())))
}

// EndSession ends a session.
func (s *Store) EndSession(ctx context.Context, token string) error {
	hash := secret.HashToken(token)
	return s.do(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "DELETE FROM sessions WHERE hash = $1", hash[:])
	})
}

// Ended counts what ended with a key, or what somebody ended.
type Ended struct {
	Sessions   int64
	LoginLinks int64 // that nobody had used
	Schedules  int64 // that start nothing any more
}

// EndSessions ends every session and every link that nobody has used.
func (s *Store) EndSessions(ctx context.Context) (ended Ended, err error) {
	err = s.do(ctx, func(ctx context.Context) (err error) {
		ended, err = s.endSessions(ctx, "")
		return err
	})
	return ended, err
}

// endSessions ends those that a further condition selects. It runs on the writer.
func (s *Store) endSessions(ctx context.Context, and string, args ...any) (ended Ended, err error) {
	args = append([]any{micros(s.clock.latest())}, args...)
	if ended.Sessions, err = s.execCount(ctx, "DELETE FROM sessions WHERE expires_at > $1"+and, args...); err != nil {
		return ended, err
	}
	ended.LoginLinks, err = s.execCount(ctx, "DELETE FROM login_links WHERE expires_at > $1"+and, args...)
	return ended, err
}

// pruneSessions forgets what is too old to open anything.
func (s *Store) pruneSessions(ctx context.Context) error {
	old := micros(s.clock.agreed().Add(-idempotencyAge))
	_, err := s.remove(ctx, func() ([]oldRow, error) {
		return list(ctx, s, scanOldRow, "SELECT rowid, 0, 0 FROM idempotency WHERE created_at <= $1 LIMIT $2", old, prunePage)
	}, func(ctx context.Context, r oldRow) error {
		return s.exec(ctx, "DELETE FROM idempotency WHERE rowid = $1 AND created_at <= $2", r.id, old) // it may have been used again
	})
	return errors.Join(err, s.do(ctx, func(ctx context.Context) error {
		now := micros(s.clock.agreed())
		return errors.Join(
			s.exec(ctx, "DELETE FROM login_links WHERE expires_at <= $1", now),
			s.exec(ctx, "DELETE FROM sessions WHERE expires_at <= $1", now))
	}))
}
