//go:build full

package store

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

// hold takes a lock, and returns what gives it back as soon as n others wait for it.
func hold(t *testing.T, db *sql.DB, lock, of string, n int) (release func()) {
	t.Helper()
	tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
	_, err := tx.ExecContext(t.Context(), lock)
	check(t, err)
	return func() {
		t.Helper()
		until(t, func() bool {
			var waiting int
			check(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND "+of).Scan(&waiting))
			return waiting >= n
		})
		check(t, tx.Rollback())
	}
}

// TestKeysAtOnce: of servers with other sealing keys that begin at the same time on a new store,
// one has it, and the others are refused.
func TestKeysAtOnce(t *testing.T) {
	address := storetest.Postgres(t)
	empty := engine.NewDB(engine.Options{URL: address, Migrations: Migrations})
	check(t, empty.Open(t.Context()))
	check(t, empty.Close())
	db := must[*sql.DB](t)(sql.Open("pgx", address))
	defer func() { _ = db.Close() }()
	release := hold(t, db, "LOCK TABLE meta IN SHARE MODE", "relation = 'meta'::regclass", 2)
	results := make(chan error)
	for range 2 {
		key := must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key")))
		go func() {
			s, err := Open(t.Context(), Config{URL: address, Key: key})
			if err == nil {
				err = s.Close()
			}
			results <- err
		}()
	}
	release()
	refused := 0
	for range 2 {
		switch err := <-results; {
		case errors.Is(err, ErrSealingKey):
			refused++
		default:
			check(t, err)
		}
	}
	if refused != 1 {
		t.Errorf("%d are refused", refused)
	}
}

// TestImportAtOnce: servers that see a new value of a secret at the same time make one generation
// of it.
func TestImportAtOnce(t *testing.T) {
	t.Setenv("HAMMER_SECRET_TOKEN", "value")
	first := openPostgres(t)
	first.cfg.Sources = []secret.Source{secret.Environment("HAMMER_SECRET_")}
	first.reopen(t)
	second := must[*Store](t)(Open(t.Context(), first.cfg))
	defer func() { check(t, second.Close()) }()
	db := must[*sql.DB](t)(sql.Open("pgx", first.cfg.URL))
	defer func() { _ = db.Close() }()
	release := hold(t, db, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", engine.LockWriter), "locktype = 'advisory'", 2)
	var reading sync.WaitGroup
	for _, s := range []*Store{first.Store, second} {
		reading.Go(func() {
			if v, err := s.Secrets.Newest(t.Context(), []string{"TOKEN"}); err != nil || v["TOKEN"].Generation != 1 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	release()
	reading.Wait()
	if all := must[[]SecretInfo](t)(first.Secrets.List(t.Context())); len(all) != 1 || all[0].Generation != 1 {
		t.Errorf("%+v", all)
	}
}

// TestResealAlone: the sealing key is not replaced while another process has the store open, and
// one that was cut off meanwhile writes nothing more with the old key.
func TestResealAlone(t *testing.T) {
	first := openPostgres(t)
	ctx := t.Context()
	must[int64](t)(first.Secrets.Set(ctx, "S", secret.New("value")))
	second := must[*Store](t)(Open(ctx, first.cfg))
	defer func() { _ = second.Close() }() // its connections are gone
	key := must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key")))
	if _, err := first.Secrets.Reseal(ctx, key); !errors.Is(err, ErrOthers) {
		t.Fatalf("beside another process: %v", err)
	}
	for _, s := range []*Store{first.Store, second} {
		if v := must[SecretValue](t)(s.Secrets.At(ctx, "S", 1)); v.Value.Reveal() != "value" {
			t.Error("the secret is another one")
		}
	}
	var own int
	check(t, first.Do(ctx, func(tx *engine.Tx) error { return tx.Row("SELECT pg_backend_pid()", nil, &own) }))
	db := must[*sql.DB](t)(sql.Open("pgx", first.cfg.URL))
	defer func() { _ = db.Close() }()
	_, err := db.ExecContext(ctx, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), $1)", own)
	check(t, err)
	if n := must[int](t)(first.Secrets.Reseal(ctx, key)); n != 1 {
		t.Errorf("%d values are sealed again", n)
	}
	until(t, func() bool {
		_, err = second.Secrets.Set(ctx, "S", secret.New("other"))
		return err == nil || errors.Is(err, ErrSealingKey) // at first it finds that it was cut off
	})
	if err == nil {
		t.Error("a process with the old key seals with it")
	}
	until(t, func() bool { // its connections for reading were ended, too
		v, err := first.Secrets.At(ctx, "S", 1)
		return err == nil && v.Value.Reveal() == "value"
	})
}
