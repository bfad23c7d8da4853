package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"triphammer/server/secret"
)

func applyOf(outcome string, base ApplyID, webhooks ...BoundWebhook) *Apply {
	return &Apply{
		Factory: "default", Commit: "c0ffee", Outcome: outcome, Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
		Webhooks: webhooks, Fenced: true, Base: base,
	}
}

// SPEC 17.2: nothing is recorded that an apply decided which is not live any more, or not yet.
func TestStaleDecisions(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	if live := must[ApplyID](t)(s.Applies.Live(ctx, "default")); live != 0 {
		t.Fatal(live)
	}
	first := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", 0), nil, nil))
	by := func(id ApplyID, identity string, outcome Outcome) error {
		d := delivery(identity, "{}", "a")
		d.ApplyID, d.Outcome = id, outcome
		_, err := s.Deliveries.Record(ctx, d)
		return err
	}
	check(t, by(first, "1", Accepted))
	must[ApplyID](t)(s.Applies.Record(ctx, applyOf("refused", first), nil, nil))
	check(t, by(first, "2", Accepted))
	other := applyOf("applied", 0)
	other.Factory = "other"
	must[ApplyID](t)(s.Applies.Record(ctx, other, nil, nil))
	check(t, by(first, "3", Accepted))
	second := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", first), nil, nil))
	for _, outcome := range []Outcome{Accepted, RejectedAuth} {
		if err := by(first, "4", outcome); !errors.Is(err, ErrStale) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s by the earlier apply: %v", outcome, err)
		}
	}
	if all := must[[]*Delivery](t)(s.Deliveries.List(ctx, DeliveryQuery{})); len(all) != 3 {
		t.Errorf("%d deliveries", len(all))
	}
	if n := must[map[RunState]int64](t)(s.Runs.Counts(ctx))[Queued]; n != 3 {
		t.Errorf("%d runs", n)
	}
	check(t, by(second, "4", Accepted))
	if live := must[ApplyID](t)(s.Applies.Live(ctx, "default")); live != second {
		t.Error(live)
	}
	if err := s.Schedules.Sync(ctx, "default", first, nil); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	check(t, s.Schedules.Sync(ctx, "default", second, []Schedule{{Automation: "a", Cron: "@daily", Enabled: true}}))
	schedule := must[[]*Schedule](t)(s.Schedules.List(ctx, ""))[0]
	if _, err := s.Schedules.Fire(ctx, Tick{Schedule: schedule, At: s.Now(), ApplyID: first}); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	must[[]RunID](t)(s.Schedules.Fire(ctx, Tick{Schedule: schedule, At: s.Now(), ApplyID: second}))
}

// SPEC 17.2: of two applies that began at the same time, one becomes live. The other one, which
// perhaps has an older commit, does not come after it.
func TestApplyFence(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	first := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", 0), nil, nil))
	if _, err := s.Applies.Record(ctx, applyOf("applied", 0), nil, nil); !errors.Is(err, ErrStale) {
		t.Fatal(err)
	}
	if live := must[ApplyID](t)(s.Applies.Live(ctx, "default")); live != first {
		t.Fatal(live, first)
	}
	check(t, must2(t)(s.Deliveries.Record(ctx, decidedBy(first, "1"))))

	must[int64](t)(s.Secrets.Set(ctx, "S", secret.New("x")))
	if err := s.Secrets.Delete(ctx, "S", map[string]ApplyID{"default": first + 1}); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	check(t, s.Secrets.Delete(ctx, "S", map[string]ApplyID{"default": first, "other": 0}))
	if _, err := s.Applies.Record(ctx, applyOf("applied", first, BoundWebhook{"hook", "whk_1", "S", 1}), nil, nil); !errors.Is(err, ErrStale) {
		t.Errorf("with a secret that was deleted: %v", err)
	}
}

func decidedBy(id ApplyID, identity string) *NewDelivery {
	d := delivery(identity, "{}")
	d.ApplyID = id
	return d
}

func must2(t testing.TB) func(Recorded, error) error {
	return func(_ Recorded, err error) error { t.Helper(); return err }
}

// After Applies.Record has returned, no transaction records what an earlier apply decided, however
// many wait. The control is a store without the fence.
func TestStaleDecisionsUnderLoad(t *testing.T) {
	late := func(s *Store) (late int) {
		ctx := t.Context()
		live := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", 0), nil, nil))
		var mu sync.Mutex
		for round := range 20 {
			var sending sync.WaitGroup
			began, applied := make(chan struct{}, 64), make(chan struct{})
			for i := range 64 {
				sending.Go(func() {
					for n := range 4 {
						if n == 1 {
							began <- struct{}{}
							<-applied // this one was decided before, and comes after
						}
						err := must2(t)(s.Deliveries.Record(ctx, decidedBy(live, fmt.Sprint(round, i, n))))
						if err != nil && !errors.Is(err, ErrStale) {
							t.Error(err)
						}
						if n > 0 && err == nil {
							mu.Lock()
							late++
							mu.Unlock()
						}
					}
				})
			}
			<-began
			next := must[ApplyID](t)(s.Applies.Record(ctx, applyOf("applied", live), nil, nil))
			close(applied)
			sending.Wait()
			live = next
		}
		return late
	}
	if n := late(open(t).Store); n != 0 {
		t.Errorf("%d deliveries were recorded that a dead apply decided", n)
	}
	without := open(t)
	without.unfenced = true
	if late(without.Store) == 0 {
		t.Error("the control: without the fence, no delivery came late")
	}
}
