package run

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/store"
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
	w := newClockworks(t, time.Now)
	spec := Spec{Environment: &Environment{Name: "e", Command: []string{"agent"}, Timeout: time.Hour, Idle: time.Hour}, Retry: Retry{Attempts: 2}}
	data, err := spec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := w.store.CreateRun(t.Context(), store.NewRun{Factory: "f", Automation: "a", Source: store.SourceAPI, SpecHash: sha256.Sum256(data), Spec: data}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	worker := store.Worker{ID: "a", Kind: store.KindWorker, Lease: time.Hour}
	if _, err := w.store.StartWorker(t.Context(), worker, "p"); err != nil {
		t.Fatal(err)
	}
	leases, err := w.store.ClaimRuns(t.Context(), store.Claim{Worker: worker.ID, Most: 1, Lease: worker.Lease})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	m := New(Config{Store: w.store, Shared: true, Worker: worker, Executor: heldExecutor{}, Logger: slog.New(slog.DiscardHandler), Lease: worker.Lease})
	m.execute(t.Context(), leases[0], newHold(worker.Lease, time.Now().Add(time.Second-giveUpTime(worker.Lease))), false)
	events, err := w.store.Events(t.Context(), r.ID, 0, 100)
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	for _, e := range events {
		if s, is := decoded(e).(event.Status); is && s.State != "" && s.State != string(store.InProgress) {
			t.Errorf("the transcript says that it ended: %+v", s)
		}
	}
	if got, err := w.store.Run(t.Context(), r.ID); err != nil || got.State != store.InProgress {
		t.Errorf("%+v, %v", got, err)
	}
}
