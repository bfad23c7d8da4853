//go:build full

package store

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"triphammer/server/secret"
)

// TestRetreat: a database that lost an apply decides nothing by the one of before, until there is
// a newer one, which cannot bring back a secret that was out of use (SPEC 17.2).
func TestRetreat(t *testing.T) {
	s := openPostgres(t)
	ctx := t.Context()
	set := func(text string) int64 {
		return must[int64](t)(s.Secrets.Set(ctx, "S", secret.New(text)))
	}
	hook := func(generation int64) BoundWebhook { return BoundWebhook{"hook", "whk_1", "S", generation} }
	by := func(id ApplyID, identity string) error {
		d := delivery(identity, "{}", "a")
		d.ApplyID = id
		_, err := s.Deliveries.Record(ctx, d)
		return err
	}
	old := set("old-secret-of-16-bytes")
	first := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", 0, hook(old)), nil, nil))
	check(t, by(first, "1"))
	db := must[*sql.DB](t)(sql.Open("pgx", s.cfg.URL))
	defer func() { _ = db.Close() }()
	var newest int64
	check(t, db.QueryRowContext(ctx, "SELECT last_value FROM newest_id").Scan(&newest))
	renewed := set("new-secret-of-16-bytes")
	second := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", first, hook(renewed)), nil, nil))
	check(t, by(second, "2"))

	// A standby without the last commits.
	for _, statement := range []string{
		"DELETE FROM runs", "DELETE FROM deliveries", "DELETE FROM apply_webhooks WHERE apply_id = $1", "DELETE FROM applies WHERE id = $1", "DELETE FROM secrets WHERE generation = $1", "SELECT setval('newest_id', $1)",
	} {
		args := []any{int64(second)}
		switch {
		case !strings.Contains(statement, "$1"):
			args = nil
		case strings.Contains(statement, "secrets"):
			args = []any{renewed}
		case strings.Contains(statement, "setval"):
			args = []any{newest}
		}
		_, err := db.ExecContext(ctx, statement, args...)
		check(t, err)
	}

	for _, decided := range []ApplyID{first, second} {
		if err := by(decided, "3"); !errors.Is(err, ErrWentBack) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("a delivery that %s decided: %v", decided, err)
		}
	}
	if live, err := s.Applies.Live(ctx, "default"); !errors.Is(err, ErrWentBack) {
		t.Errorf("live is %s, %v", live, err)
	}
	if problems := strings.Join(s.Problems(), "\n"); !strings.Contains(problems, "the database had gone back") || !strings.Contains(problems, "until the definitions are applied anew") {
		t.Error("nobody is told:", problems)
	}
	if _, err := s.Applies.Record(ctx, applyOf("applied", first, hook(old)), nil, nil); !errors.Is(err, ErrStale) {
		t.Errorf("an apply that does not know of the lost one: %v", err)
	}
	if _, err := s.Applies.Record(ctx, applyOf("applied", second, hook(old)), nil, nil); !errors.Is(err, ErrWentBack) || !strings.Contains(err.Error(), "secrets set S") {
		t.Errorf("an apply with a secret that was out of use: %v", err)
	}
	again := set("new-secret-of-16-bytes")
	third := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", second, hook(again)), nil, nil))
	check(t, by(third, "3"))
	if live := must[ApplyID](t)(s.Applies.Live(ctx, "default")); live != third {
		t.Errorf("live is %s", live)
	}
	if err := by(first, "4"); !errors.Is(err, ErrStale) {
		t.Errorf("a delivery that the first apply decided: %v", err)
	}
}
