package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
)

// SecretInfo is what may be shown of a managed secret.
type SecretInfo struct {
	Name       string
	Generation int64
	SetAt      time.Time
	Source     string // where it comes from, empty if it was set here
}

// SecretValue is one generation of a managed secret.
type SecretValue struct {
	Generation int64
	Value      secret.Value
}

// sealContext binds a sealed value to its name and generation.
func sealContext(name string, generation int64) []byte {
	return []byte("secret\x00" + name + "\x00" + strconv.FormatInt(generation, 10))
}

// Secrets are the managed secrets, sealed, with their generations.
type Secrets struct {
	*db
	sources   []secret.Source
	importing sync.Mutex // of what sources have
}

// Set seals a new generation of the secret (SPEC 10.1). It is an
// ErrConflict if a source has the secret.
func (s *Secrets) Set(ctx context.Context, name string, value secret.Value) (generation int64, err error) {
	if err := s.notSourced(name); err != nil {
		return 0, err
	}
	err = s.Do(ctx, func(tx *engine.Tx) error {
		generation, err = s.set(tx, name, value)
		return err
	})
	return generation, err
}

// importOne makes a value that a source has the next generation, unless another process has
// done so since it was looked.
func (s *Secrets) importOne(ctx context.Context, name string, value secret.Value) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		var newest sealedSecret
		err := tx.Row(selectNewest, []any{name}, &newest.generation, &newest.sealed)
		if err == nil {
			if is, err := s.unseal(name, newest); err != nil || is.Value.Reveal() == value.Reveal() {
				return err
			}
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		_, err = s.set(tx, name, value)
		return err
	})
}

// set is Set within a transaction.
func (s *Secrets) set(tx *engine.Tx, name string, value secret.Value) (generation int64, err error) {
	err = tx.Row(`INSERT INTO secret_names (name, generation, deleted) VALUES ($1, 1, 0)
		ON CONFLICT (name) DO UPDATE SET generation = secret_names.generation + 1, deleted = 0 RETURNING generation`, []any{name}, &generation)
	if err != nil {
		return 0, err
	}
	sealed := s.key.Seal([]byte(value.Reveal()), sealContext(name, generation))
	return generation, tx.Exec("INSERT INTO secrets (name, generation, sealed, set_at) VALUES ($1, $2, $3, $4)", name, generation, sealed, micros(s.Now()))
}

// sourceOf finds the source that has the secret, nil if none has.
func (s *Secrets) sourceOf(name string) (secret.Source, secret.Value, error) {
	for _, source := range s.sources {
		if value, found, err := source.Lookup(name); found || err != nil {
			return source, value, err
		}
	}
	return nil, secret.Value{}, nil
}

func (s *Secrets) notSourced(name string) error {
	source, _, err := s.sourceOf(name)
	if source != nil || err != nil {
		return fmt.Errorf("%w: secret %s comes from %s; change it there", ErrConflict, name, source)
	}
	return nil
}

// importSecrets makes a new generation of each secret that changed in a source.
func (s *Secrets) importSecrets(ctx context.Context, names []string) error {
	s.importing.Lock() // or two that look at once would make two generations
	defer s.importing.Unlock()
	for _, name := range names {
		source, value, err := s.sourceOf(name)
		if err != nil {
			return err
		}
		if source == nil {
			continue
		}
		newest, known, err := s.newest(ctx, name)
		if err != nil {
			return err
		}
		if known && newest.Value.Reveal() == value.Reveal() {
			continue
		}
		if err := s.importOne(ctx, name, value); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes all generations of the secret. It is an ErrConflict if a
// source has the secret. The caller has found that the live applies that it saw, by factory,
// do not use it; ErrStale if another one is live.
func (s *Secrets) Delete(ctx context.Context, name string, seen map[string]ApplyID) error {
	if err := s.notSourced(name); err != nil {
		return err
	}
	return s.Do(ctx, func(tx *engine.Tx) error {
		for factory, apply := range seen {
			if err := s.store.Applies.notStale(tx, factory, apply); err != nil {
				return err
			}
		}
		n, err := tx.ExecCount("UPDATE secret_names SET deleted = 1 WHERE name = $1 AND deleted = 0", name)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("secret %s: %w", name, ErrNotFound)
		}
		return tx.Exec("DELETE FROM secrets WHERE name = $1", name)
	})
}

// List lists the managed secrets with their newest generation.
func (s *Secrets) List(ctx context.Context) ([]SecretInfo, error) {
	from := make(map[string]string)
	for _, source := range slices.Backward(s.sources) {
		names, err := source.Names()
		if err != nil {
			return nil, fmt.Errorf("the secrets of %s: %w", source, err)
		}
		// A secret that cannot be read fails for whoever uses it; the list shows the rest.
		readable := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, _, err := s.sourceOf(name)
			if err != nil {
				s.Logger.Warn("a managed secret cannot be read from its source", "error", err)
			}
			return err != nil
		})
		if err := s.importSecrets(ctx, readable); err != nil {
			return nil, err
		}
		for _, name := range names {
			from[name] = source.String()
		}
	}
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (SecretInfo, error) {
		var i SecretInfo
		var at int64
		err := rows.Scan(&i.Name, &i.Generation, &at)
		i.SetAt, i.Source = timeOf(at), from[i.Name]
		return i, err
	}, `SELECT n.name, n.generation, v.set_at FROM secret_names n JOIN secrets v ON v.name = n.name AND v.generation = n.generation
		WHERE n.deleted = 0 ORDER BY n.name`)
}

// Newest opens the newest generation of those of the names that exist.
func (s *Secrets) Newest(ctx context.Context, names []string) (map[string]SecretValue, error) {
	if err := s.importSecrets(ctx, names); err != nil {
		return nil, err
	}
	values := make(map[string]SecretValue, len(names))
	for _, name := range names {
		value, known, err := s.newest(ctx, name)
		if err != nil {
			return nil, err
		}
		if known {
			values[name] = value
		}
	}
	return values, nil
}

const selectNewest = `SELECT v.generation, v.sealed FROM secret_names n JOIN secrets v ON v.name = n.name AND v.generation = n.generation
	WHERE n.name = $1 AND n.deleted = 0`

func (s *Secrets) newest(ctx context.Context, name string) (value SecretValue, known bool, err error) {
	one, err := engine.First(engine.List(ctx, s.DB, scanSealed, selectNewest, name))
	if errors.Is(err, ErrNotFound) {
		return SecretValue{}, false, nil
	}
	if err != nil {
		return SecretValue{}, false, err
	}
	value, err = s.unseal(name, one)
	return value, err == nil, err
}

// At opens one generation of a secret; ErrNotFound if it is gone.
func (s *Secrets) At(ctx context.Context, name string, generation int64) (SecretValue, error) {
	one, err := engine.First(engine.List(ctx, s.DB, scanSealed, "SELECT generation, sealed FROM secrets WHERE name = $1 AND generation = $2", name, generation))
	if err != nil {
		return SecretValue{}, fmt.Errorf("secret %s, generation %d: %w", name, generation, err)
	}
	return s.unseal(name, one)
}

// All opens every generation of the names that is kept.
func (s *Secrets) All(ctx context.Context, names []string) (values []secret.Value, err error) {
	for _, name := range names {
		all, err := engine.List(ctx, s.DB, scanSealed, "SELECT generation, sealed FROM secrets WHERE name = $1 ORDER BY generation", name)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		for _, one := range all {
			v, err := s.unseal(name, one)
			if err != nil {
				return nil, err
			}
			values = append(values, v.Value)
		}
	}
	return values, nil
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

func (s *Secrets) unseal(name string, v sealedSecret) (SecretValue, error) {
	plain, err := s.key.Open(v.sealed, sealContext(name, v.generation))
	if err != nil {
		return SecretValue{}, fmt.Errorf("secret %s: %w", name, err)
	}
	return SecretValue{Generation: v.generation, Value: secret.New(string(plain))}, nil
}
