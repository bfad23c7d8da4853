package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"triphammer/server/secret"
)

// SecretInfo is what may be told of a managed secret.
type SecretInfo struct {
	Name       string
	Generation int64
	SetAt      time.Time
}

// SecretValue is one generation of a managed secret.
type SecretValue struct {
	Generation int64
	Value      secret.Value
}

// sealContext binds a sealed value to its place.
func sealContext(name string, generation int64) []byte {
	return []byte("secret\x00" + name + "\x00" + strconv.FormatInt(generation, 10))
}

// SetSecret seals a new generation of the secret (SPEC 10.1).
func (s *Store) SetSecret(ctx context.Context, name string, value secret.Value) (generation int64, err error) {
	err = s.do(ctx, func(ctx context.Context) error {
		generation, err = s.setSecret(ctx, name, value)
		return err
	})
	return generation, err
}

// setSecret is SetSecret within a transaction.
func (s *Store) setSecret(ctx context.Context, name string, value secret.Value) (generation int64, err error) {
	err = s.row(ctx, `INSERT INTO secret_names (name, generation, deleted) VALUES ($1, 1, 0)
		ON CONFLICT (name) DO UPDATE SET generation = secret_names.generation + 1, deleted = 0 RETURNING generation`, []any{name}, &generation)
	if err != nil {
		return 0, err
	}
	sealed := s.key.Seal([]byte(value.Reveal()), sealContext(name, generation))
	return generation, s.exec(ctx, "INSERT INTO secrets (name, generation, sealed, set_at) VALUES ($1, $2, $3, $4)", name, generation, sealed, micros(s.now()))
}

// DeleteSecret removes all generations of the secret.
func (s *Store) DeleteSecret(ctx context.Context, name string) error {
	return s.do(ctx, func(ctx context.Context) error {
		n, err := s.execCount(ctx, "UPDATE secret_names SET deleted = 1 WHERE name = $1 AND deleted = 0", name)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("secret %s: %w", name, ErrNotFound)
		}
		return s.exec(ctx, "DELETE FROM secrets WHERE name = $1", name)
	})
}

// Secrets lists the managed secrets with their newest generation.
func (s *Store) Secrets(ctx context.Context) ([]SecretInfo, error) {
	return list(ctx, s, func(rows *sql.Rows) (SecretInfo, error) {
		var i SecretInfo
		var at int64
		err := rows.Scan(&i.Name, &i.Generation, &at)
		i.SetAt = timeOf(at)
		return i, err
	}, `SELECT n.name, n.generation, v.set_at FROM secret_names n JOIN secrets v ON v.name = n.name AND v.generation = n.generation
		WHERE n.deleted = 0 ORDER BY n.name`)
}

// NewestSecrets opens the newest generation of those of the names that exist.
func (s *Store) NewestSecrets(ctx context.Context, names []string) (map[string]SecretValue, error) {
	values := make(map[string]SecretValue, len(names))
	for _, name := range names {
		found, err := list(ctx, s, scanSealed, `SELECT v.generation, v.sealed FROM secret_names n JOIN secrets v ON v.name = n.name AND v.generation = n.generation
			WHERE n.name = $1 AND n.deleted = 0`, name)
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			if values[name], err = s.unseal(name, one); err != nil {
				return nil, err
			}
		}
	}
	return values, nil
}

// SecretAt opens one generation of a secret; ErrNotFound if it is gone.
func (s *Store) SecretAt(ctx context.Context, name string, generation int64) (SecretValue, error) {
	one, err := first(list(ctx, s, scanSealed, "SELECT generation, sealed FROM secrets WHERE name = $1 AND generation = $2", name, generation))
	if err != nil {
		return SecretValue{}, fmt.Errorf("secret %s, generation %d: %w", name, generation, err)
	}
	return s.unseal(name, one)
}

type sealedSecret struct {
	generation int64
	sealed     []byte
}

func scanSealed(rows *sql.Rows) (sealedSecret, error) {
	var v sealedSecret
	err := rows.Scan(&v.generation, &v.sealed)
	return v, err
}

func (s *Store) unseal(name string, v sealedSecret) (SecretValue, error) {
	plain, err := s.key.Open(v.sealed, sealContext(name, v.generation))
	if err != nil {
		return SecretValue{}, fmt.Errorf("secret %s: %w", name, err)
	}
	return SecretValue{Generation: v.generation, Value: secret.New(string(plain))}, nil
}
