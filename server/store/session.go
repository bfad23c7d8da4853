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

// CreateLoginLink makes a one-time token that opens a session (SPEC 10.3).
func (s *Store) CreateLoginLink(ctx context.Context, actor string, life time.Duration) (token string, err error) {
	token = secret.NewToken(linkPrefix)
	hash := secret.HashToken(token)
	return token, s.do(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "INSERT INTO login_links (hash, actor, expires_at) VALUES ($1, $2, $3)", hash[:], actor, micros(s.now().Add(life)))
	})
}

// RedeemLoginLink uses a link up and returns the token of a new session;
// ErrNotFound if the link is unknown, used or too old.
func (s *Store) RedeemLoginLink(ctx context.Context, link string, life time.Duration) (session, actor string, err error) {
	if !secret.ValidToken(linkPrefix, link) {
		return "", "", ErrNotFound
	}
	session = secret.NewToken(sessionPrefix)
	linkHash, sessionHash := secret.HashToken(link), secret.HashToken(session)
	err = s.do(ctx, func(ctx context.Context) error {
		err := s.row(ctx, "DELETE FROM login_links WHERE hash = $1 AND expires_at > $2 RETURNING actor", []any{linkHash[:], micros(s.now())}, &actor)
		if err != nil {
			return err
		}
		return s.exec(ctx, "INSERT INTO sessions (hash, actor, expires_at) VALUES ($1, $2, $3)", sessionHash[:], actor, micros(s.now().Add(life)))
	})
	if err != nil {
		return "", "", err
	}
	return session, actor, nil
}

// Session is who a session token belongs to; ErrNotFound if it is unknown or
// too old.
func (s *Store) Session(ctx context.Context, token string) (actor string, err error) {
	if !secret.ValidToken(sessionPrefix, token) {
		return "", ErrNotFound
	}
	hash := secret.HashToken(token)
	return first(list(ctx, s, scanText, "SELECT actor FROM sessions WHERE hash = $1 AND expires_at > $2", hash[:], micros(s.now())))
}

// EndSession ends a session.
func (s *Store) EndSession(ctx context.Context, token string) error {
	hash := secret.HashToken(token)
	return s.do(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "DELETE FROM sessions WHERE hash = $1", hash[:])
	})
}

// pruneSessions forgets what is too old to open anything.
func (s *Store) pruneSessions(ctx context.Context) error {
	return s.do(ctx, func(ctx context.Context) error {
		now := micros(s.now())
		return errors.Join(
			s.exec(ctx, "DELETE FROM login_links WHERE expires_at <= $1", now),
			s.exec(ctx, "DELETE FROM sessions WHERE expires_at <= $1", now),
			s.exec(ctx, "DELETE FROM idempotency WHERE created_at <= $1", micros(s.now().Add(-idempotencyAge))))
	})
}
