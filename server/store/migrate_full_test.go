//go:build full

package store

import (
	"errors"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/store/storetest"
)

// TestUpgradeWhileAway: a program whose connection was lost while a newer one changed the
// store writes nothing more (SPEC 17.6).
func TestUpgradeWhileAway(t *testing.T) {
	s := open(t)
	check(t, s.Close())
	s.cfg.URL = storetest.Postgres(t)
	s.reopen(t)
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		return errors.Join(tx.SetMeta("schema", "99"), tx.SetMeta(engine.MetaNeeds, "98"))
	}))
	_, _ = s.Read.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	var err error
	for end := time.Now().Add(30 * time.Second); !errors.Is(err, ErrNewerSchema) && time.Now().Before(end); { // at first it finds out that the connection is lost
		if _, err = s.Deliveries.Record(t.Context(), delivery("2", "{}")); err == nil {
			break
		}
	}
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNewerSchema) {
		t.Errorf("%v", err)
	}
}
