package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAccount: what a run uses and reserves is kept as its worker says it, also when it is less
// than before, and never grows over a limit (SPEC 25.2, 25.3).
func TestAccount(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	s.at = time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC)
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "a", "b")))
	leases := s.claimed(t)
	account := func(run int, used Spending, of ModelUsage, may Limits) error {
		return s.Usage.Account(ctx, leases[run], s.at, used, may, of)
	}
	first := ModelUsage{Model: "m", Input: 60, Output: 40, CostUSD: 1, Requests: 1}
	for range 2 { // the answer was lost
		check(t, account(0, Spending{100, 1}, first, Limits{Run: Spending{100, 1}}))
	}
	check(t, account(1, Spending{50, 0.5}, ModelUsage{Model: "n", Input: 50, CostUSD: 0.5, Requests: 1}, Limits{}))
	for _, tt := range []struct {
		run  int
		used Spending
		may  Limits
		want Crossed
	}{
		{0, Spending{101, 1}, Limits{Run: Spending{Tokens: 100}}, Crossed{"run", Spending{100, 1}}},
		{0, Spending{100, 1.01}, Limits{Run: Spending{CostUSD: 1}}, Crossed{"run", Spending{100, 1}}},
		{2, Spending{1, 0}, Limits{Automation: Spending{Tokens: 50}}, Crossed{}},
		{0, Spending{101, 1}, Limits{Automation: Spending{Tokens: 100}}, Crossed{"automation", Spending{100, 1}}},
		{0, Spending{101, 1}, Limits{Automation: Spending{Tokens: 101}, Server: Spending{Tokens: 150}}, Crossed{"server", Spending{150, 1.5}}},
	} {
		err := account(tt.run, tt.used, first, tt.may)
		var crossed *Crossed
		if tt.want.Of == "" {
			if !errors.As(err, &crossed) {
				t.Errorf("%+v: %v", tt, err) // of the same automation as run 0 or 1
			}
			continue
		}
		if !errors.As(err, &crossed) || *crossed != tt.want {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	reserved := s.at
	s.at = s.at.Add(2 * time.Minute) // the next day
	check(t, s.Usage.Account(ctx, leases[0], reserved, Spending{30, 0.25}, Limits{}, ModelUsage{Model: "m", Input: 20, Output: 10, CostUSD: 0.25, Requests: 1, Answered: 1, WaitedMS: 7}))
	if got := must[Spending](t)(s.Usage.Today(ctx)); got != (Spending{}) {
		t.Errorf("what was given back counts on another day: %v", got)
	}
	r := must[*Run](t)(s.Runs.Get(ctx, leases[0].RunID))
	if r.Tokens != 30 || r.CostUSD != 0.25 {
		t.Errorf("the run used %d tokens and %v dollars", r.Tokens, r.CostUSD)
	}
	check(t, s.Usage.Account(ctx, leases[0], s.at, Spending{35, 0.5}, Limits{Automation: Spending{Tokens: 5}, Server: Spending{Tokens: 5}}, ModelUsage{Model: "m", CacheRead: 5, CostUSD: 0.25, Requests: 1, Errors: 1}))
	of := must[[]ModelUsage](t)(s.Usage.UsageOf(ctx, leases[0].RunID))
	if len(of) != 1 || of[0] != (ModelUsage{Model: "m", Input: 20, CacheRead: 5, Output: 10, CostUSD: 0.5, Requests: 2, Errors: 1, Answered: 1, WaitedMS: 7}) {
		t.Errorf("%+v", of)
	}
	daily := must[[]DayUsage](t)(s.Usage.Daily(ctx, reserved, ""))
	if len(daily) != 3 || daily[0].Input != 20 || daily[1].Model != "n" || !daily[2].Day.Equal(s.at.Truncate(24*time.Hour)) {
		t.Errorf("%+v", daily)
	}
	if none := must[[]DayUsage](t)(s.Usage.Daily(ctx, reserved, "another")); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
	if err := account(0, Spending{}, first, Limits{}); !errors.Is(err, ErrFenced) {
		t.Errorf("of a run that has ended: %v", err)
	}
	s.at = s.at.Add((spendingAge + 1) * 24 * time.Hour)
	check(t, s.Usage.prune(ctx))
	if left := must[[]DayUsage](t)(s.Usage.Daily(ctx, reserved, "")); len(left) > 1 {
		t.Errorf("%+v are kept", left)
	}
}

// TestAccountTogether: runs that reserve at the same time do not cross a limit of the day
// together.
func TestAccountTogether(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "b", "c")))
	leases := s.claimed(t)
	var taken [3]atomic.Int64
	var mu [3]sync.Mutex
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			run := i % len(leases)
			mu[run].Lock() // a worker reserves for one run in turn
			defer mu[run].Unlock()
			used := taken[run].Load() + 7
			err := s.Usage.Account(ctx, leases[run], s.Now(), Spending{Tokens: used}, Limits{Server: Spending{Tokens: 100}}, ModelUsage{Model: "m"})
			if crossed := (*Crossed)(nil); err == nil {
				taken[run].Store(used)
			} else if !errors.As(err, &crossed) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := must[Spending](t)(s.Usage.Today(ctx)); got.Tokens != 98 {
		t.Errorf("%d tokens of 100 are taken, in steps of 7", got.Tokens)
	}
}

// TestAdoptedUsage: what a lease has used goes on under the lease that adopts it, and what is reserved goes
// without a trace when nothing of it is left (SPEC 17.5, 25.2).
func TestAdoptedUsage(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "b")))
	leases := s.claimed(t)
	m, reserved := ModelUsage{Model: "m", Input: 60, Requests: 1}, ModelUsage{Model: Reserved, Input: 40}
	for _, l := range leases {
		check(t, s.Usage.Account(ctx, l, s.Now(), Spending{Tokens: 100}, Limits{}, m, reserved))
	}
	held := must[[]Held](t)(s.Leases.Held(ctx))
	lost := held[0]
	adopted := must[[]Lease](t)(s.Leases.Adopt(ctx, []Held{lost, {Lease: Lease{RunID: held[1].RunID, Token: 99}}}, "w", time.Minute))
	if len(adopted) != 1 || adopted[0].Token == lost.Token {
		t.Fatalf("%+v", adopted)
	}
	if of := must[[]ModelUsage](t)(s.Usage.Under(ctx, adopted[0])); len(of) != 2 || of[0] != reserved || of[1] != m {
		t.Errorf("%+v", of)
	}
	if of := must[[]ModelUsage](t)(s.Usage.Under(ctx, lost.Lease)); len(of) != 0 {
		t.Errorf("the lost lease keeps %+v", of)
	}
	reserved.Input = 0
	check(t, s.Usage.Account(ctx, adopted[0], s.Now(), Spending{Tokens: 60}, Limits{}, m, reserved))
	if of := must[[]ModelUsage](t)(s.Usage.UsageOf(ctx, lost.RunID)); len(of) != 1 || of[0] != m {
		t.Errorf("%+v", of)
	}
}
