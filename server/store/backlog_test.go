package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// TestBacklog: beyond the limit nothing is enqueued, and nothing is half-kept;
// what is claimed or cancelled makes room.
func TestBacklog(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	check(t, s.Runs.LimitQueue(ctx, 3))
	create := func() (RunID, error) {
		r, _, err := s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}")}, "", nil)
		if err != nil {
			return 0, err
		}
		return r.ID, nil
	}
	var ids []RunID
	for range 3 {
		ids = append(ids, must[RunID](t)(create()))
	}
	if _, err := create(); !errors.Is(err, ErrBacklog) {
		t.Errorf("a fourth: %v", err)
	}
	if _, err := s.Deliveries.Record(ctx, delivery("1", "{}", "a")); !errors.Is(err, ErrBacklog) {
		t.Errorf("a delivery: %v", err)
	}
	if all := must[[]*Delivery](t)(s.Deliveries.List(ctx, DeliveryQuery{})); len(all) != 0 {
		t.Errorf("a refused delivery is kept: %+v", all[0])
	}
	if got := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("2", "{}"))); got.Duplicate {
		t.Error("a delivery that starts nothing is refused")
	}
	must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a")))
	if _, err := create(); !errors.Is(err, ErrBacklog) {
		t.Errorf("a fifth: %v", err)
	}
	must[*Run](t)(s.Runs.Stop(ctx, ids[2], StopCancel, ""))
	failure := errors.New("no")
	err := s.Do(ctx, func(*engine.Tx) error { return failure })
	if !errors.Is(err, failure) {
		t.Error(err)
	}
	check(t, s.Runs.LimitQueue(ctx, 3))
	must[RunID](t)(create())
	check(t, s.Runs.LimitQueue(ctx, 0))
	for i := range 5 {
		must[Recorded](t)(s.Deliveries.Record(ctx, delivery(fmt.Sprint("more", i), "{}", "a")))
	}
}

// TestBacklogRollsBack: what a full queue refused, and what was rolled back with it, takes no place in the queue. Else
// a wave of deliveries that is refused once would keep out the next deliveries, although no run waits.
func TestBacklogRollsBack(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	check(t, s.Runs.LimitQueue(ctx, 3))
	if _, err := s.Deliveries.Record(ctx, delivery("four", "{}", "a", "b", "c", "d")); !errors.Is(err, ErrBacklog) {
		t.Errorf("four runs: %v", err)
	}
	err := s.Do(ctx, func(tx *engine.Tx) error {
		for range 3 {
			if _, err := s.Runs.insert(tx, &NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}")}, 0); err != nil {
				return err
			}
		}
		return ErrConflict
	})
	if !errors.Is(err, ErrConflict) {
		t.Error(err)
	}
	var all sync.WaitGroup
	for i := range 60 { // in few transactions, whose first three deliveries fit, and are made again alone
		all.Go(func() {
			if _, err := s.Deliveries.Record(ctx, delivery(fmt.Sprint(i), "{}", "a")); err != nil && !errors.Is(err, ErrBacklog) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 10, Lease: time.Minute}))); n != 3 {
		t.Fatalf("%d runs waited", n)
	}
	for i := range 3 {
		must[Recorded](t)(s.Deliveries.Record(ctx, delivery(fmt.Sprint("late", i), "{}", "a")))
	}
}
