package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/terms"
)

// Scopes of an API key (SPEC 10.2).
const (
	ScopeRuns    = terms.ScopeRuns
	ScopeRead    = terms.ScopeRead
	ScopeOperate = terms.ScopeOperate
	ScopeManage  = terms.ScopeManage
)

// Kinds of an API key.
const (
	KeyPersonal = "personal" // runs belong to its owner
	KeyAgent    = "agent"    // runs belong to the agent
)

// keyPrefix is that of API keys, so that scanners find leaked ones.
const keyPrefix = "thk"

// Key is an API key without its secret part.
type Key struct {
	ID         KeyID
	Name       string
	Kind       string
	Owner      string // a person, or the agent's name
	Scopes     []string
	Factory    string // empty: all
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: it works
	LastUsedAt time.Time
}

// End says in words why the key is not valid; empty if it is valid.
func (k *Key) End(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "was revoked"
	case !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now):
		return "has expired"
	}
	return ""
}

// keyLives is the SQL condition that a row's key is valid, or that it has none. The
// parameter is the present time.
func keyLives(mark string) string {
	return "(key_id = 0 OR EXISTS (SELECT 1 FROM api_keys k WHERE k.id = key_id AND k.revoked_at = 0 AND (k.expires_at = 0 OR k.expires_at > " + mark + ")))"
}

// ErrKey is what Keys.ByToken returns for a token that is no working key.
var ErrKey = errors.New("the API key is unknown, expired or revoked")

// Keys are the API keys.
type Keys struct {
	*db
	touched sync.Map // key id to the last recorded use
}

// Create makes a key and returns the token, which is stored as a hash alone.
// The name of a working key can be used once.
func (s *Keys) Create(ctx context.Context, k Key) (*Key, secret.Value, error) {
	token := secret.NewToken(keyPrefix)
	hash := secret.HashToken(token)
	err := s.Do(ctx, func(tx *engine.Tx) error {
		var n int64
		if err := tx.Row("SELECT count(*) FROM api_keys WHERE name = $1 AND revoked_at = 0", []any{k.Name}, &n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("a key named %q exists: %w", k.Name, ErrConflict)
		}
		k.ID, k.CreatedAt = KeyID(tx.NextID()), s.Now()
		return tx.Exec(`INSERT INTO api_keys (id, name, kind, owner, scopes, factory, hash, created_at, expires_at, revoked_at, last_used_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0)`, k.ID, k.Name, k.Kind, k.Owner, strings.Join(k.Scopes, ","), k.Factory, hash[:], micros(k.CreatedAt), micros(k.ExpiresAt))
	})
	if err != nil {
		return nil, secret.Value{}, err
	}
	return &k, secret.New(token), nil
}

const keyColumns = "id, name, kind, owner, scopes, factory, created_at, expires_at, revoked_at, last_used_at"

func scanKey(rows *sql.Rows) (*Key, error) {
	k := &Key{}
	var created, expires, revoked, used int64
	var scopes string
	err := rows.Scan(&k.ID, &k.Name, &k.Kind, &k.Owner, &scopes, &k.Factory, &created, &expires, &revoked, &used)
	k.Scopes = strings.Split(scopes, ",")
	k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = timeOf(created), timeOf(expires), timeOf(revoked), timeOf(used)
	return k, err
}

// touchEvery is the precision of LastUsedAt.
const touchEvery = time.Minute

// ByToken finds the working key of a token, and notes its use.
func (s *Keys) ByToken(ctx context.Context, token string) (*Key, error) {
	if !secret.ValidToken(keyPrefix, token) {
		return nil, ErrKey
	}
	hash := secret.HashToken(token)
	k, err := engine.First(engine.List(ctx, s.DB, scanKey, "SELECT "+keyColumns+" FROM api_keys WHERE hash = $1", hash[:]))
	if errors.Is(err, ErrNotFound) {
		return nil, ErrKey
	}
	if err != nil {
		return nil, err
	}
	now := s.Latest()
	if k.End(now) != "" {
		return nil, ErrKey
	}
	if last, ok := s.touched.Load(k.ID); !ok || now.Sub(last.(time.Time)) >= touchEvery {
		s.touched.Store(k.ID, now)
		err := s.Do(ctx, func(tx *engine.Tx) error {
			return tx.Exec("UPDATE api_keys SET last_used_at = $1 WHERE id = $2", micros(now), k.ID)
		})
		if err != nil {
			s.Logger.Warn("the last use of a key could not be noted", "key", k.Name, "error", err)
		}
	}
	return k, nil
}

// List lists all keys, newest first.
func (s *Keys) List(ctx context.Context) ([]*Key, error) {
	return engine.List(ctx, s.DB, scanKey, "SELECT "+keyColumns+" FROM api_keys ORDER BY id DESC")
}

// Revoke ends a key, found by id or by name, at once, and with it the sessions
// and links that were made with it. Its schedules are paused by that
// (Schedule.Paused).
func (s *Keys) Revoke(ctx context.Context, idOrName string) (*Key, Ended, error) {
	ended := Ended{}
	keys, err := s.List(ctx)
	if err != nil {
		return nil, ended, err
	}
	i := slices.IndexFunc(keys, func(k *Key) bool { return k.RevokedAt.IsZero() && (k.ID.String() == idOrName || k.Name == idOrName) })
	if i < 0 {
		return nil, ended, fmt.Errorf("key %s: %w", idOrName, ErrNotFound)
	}
	k := keys[i]
	k.RevokedAt = s.Now()
	err = s.Do(ctx, func(tx *engine.Tx) error {
		if err := tx.Exec("UPDATE api_keys SET revoked_at = $1 WHERE id = $2", micros(k.RevokedAt), k.ID); err != nil {
			return err
		}
		if ended, err = s.store.Sessions.endWhere(tx, " AND key_id = $2", k.ID); err != nil {
			return err
		}
		return tx.Row("SELECT count(*) FROM schedules WHERE key_id = $1 AND enabled = 1", []any{k.ID}, &ended.Schedules)
	})
	return k, ended, err
}
