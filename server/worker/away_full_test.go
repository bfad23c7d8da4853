//go:build full

package worker

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// doneExecutor is an executor whose agents end well at once.
type doneExecutor struct{ heldExecutor }

func (doneExecutor) Start(context.Context, *task.Task, task.Sink) (task.Exit, error) {
	return task.Exit{}, nil
}

// TestStoreAwayBeforeRun: a run that begins while PostgreSQL ends its connections waits, and does not
// fail (SPEC 17.4).
func TestStoreAwayBeforeRun(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	check(err)
	address := storetest.Postgres(t)
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "db"), URL: address, Key: key})
	check(err)
	t.Cleanup(func() { _ = st.Close() })
	spec := run.Spec{Environment: &run.Environment{Name: "e", Command: []string{"agent"}, Timeout: time.Hour, Idle: time.Hour}}
	data, err := spec.Encode()
	check(err)
	r, _, err := st.Runs.Create(t.Context(), store.NewRun{Factory: "f", Automation: "a", Source: store.SourceAPI, SpecHash: sha256.Sum256(data), Spec: data}, "", nil)
	check(err)
	worker := store.Worker{ID: "a", Kind: store.KindWorker, Lease: time.Hour}
	_, err = st.Workers.Start(t.Context(), worker, "p")
	check(err)
	leases, err := st.Leases.Claim(t.Context(), store.Claim{Worker: worker.ID, Most: 1, Lease: worker.Lease})
	check(err)
	db, err := sql.Open("pgx", address)
	check(err)
	defer func() { _ = db.Close() }()
	lock, err := db.BeginTx(t.Context(), nil)
	check(err)
	_, err = lock.ExecContext(t.Context(), "LOCK TABLE specs IN ACCESS EXCLUSIVE MODE")
	check(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m := New(Config{Config: run.Config{Store: st, Shared: true, Worker: worker, Logger: slog.New(slog.DiscardHandler)}, Executor: doneExecutor{}, Lease: worker.Lease})
		m.execute(t.Context(), leases[0], newHold(worker.Lease, time.Now()), false)
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for cut := 0; cut < 2; <-tick.C { // also the second try
		n := 0
		check(db.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_locks
			WHERE NOT granted AND relation = 'specs'::regclass`).Scan(&n))
		cut += n
		select {
		case <-ended:
			got, err := st.Runs.Get(t.Context(), r.ID)
			t.Fatalf("it has ended after %d cuts: %+v, %v", cut, got, err)
		default:
		}
	}
	check(lock.Rollback())
	<-ended
	if got, err := st.Runs.Get(t.Context(), r.ID); err != nil || got.State != store.Succeeded {
		t.Errorf("%+v, %v", got, err)
	}
}
