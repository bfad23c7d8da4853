package worker

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// heldExecutor executes a task until it is stopped, as an agent that does not end by itself.
type heldExecutor struct{ task.Executor }

func (heldExecutor) Preflight(*task.Task) (task.Place, error) { return task.Place{}, nil }

func (heldExecutor) Start(ctx context.Context, _ *task.Task, _ task.Sink) (task.Exit, error) {
	<-ctx.Done()
	return task.Exit{}, context.Cause(ctx)
}

// TestLostRunHasNoEnd: a worker that lets go of a run, because another one may have it soon,
// tells the transcript of no end: whoever has the run next would end it by that (SPEC 17.4).
func TestLostRunHasNoEnd(t *testing.T) {
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "db"), URL: storetest.URL(t), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	spec := run.Spec{Environment: &run.Environment{Name: "e", Command: []string{"agent"}, Timeout: time.Hour, Idle: time.Hour}, Retry: run.Retry{Attempts: 2}}
	data, err := spec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := st.Runs.Create(t.Context(), store.NewRun{Factory: "f", Automation: "a", Source: store.SourceAPI, SpecHash: sha256.Sum256(data), Spec: data}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	worker := store.Worker{ID: "a", Kind: store.KindWorker, Lease: time.Hour}
	if _, err := st.Workers.Start(t.Context(), worker, "p"); err != nil {
		t.Fatal(err)
	}
	leases, err := st.Leases.Claim(t.Context(), store.Claim{Worker: worker.ID, Most: 1, Lease: worker.Lease})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	m := New(Config{Config: run.Config{Store: st, Shared: true, Worker: worker, Logger: slog.New(slog.DiscardHandler)}, Executor: heldExecutor{}, Lease: worker.Lease})
	m.execute(t.Context(), leases[0], newHold(worker.Lease, time.Now().Add(time.Second-giveUpTime(worker.Lease))), false)
	events, err := st.Transcripts.List(t.Context(), r.ID, 0, 100)
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	for _, e := range events {
		if s, is := decoded(e).(event.Status); is && s.State != "" && s.State != string(store.InProgress) {
			t.Errorf("the transcript says that it ended: %+v", s)
		}
	}
	if got, err := st.Runs.Get(t.Context(), r.ID); err != nil || got.State != store.InProgress {
		t.Errorf("%+v, %v", got, err)
	}
}
