package store

import (
	"errors"
	"maps"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// TestSpending: what runs used is summed per run, automation and day (UTC), and only the
// worker that has a run can add to it (SPEC 15.4).
func TestSpending(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	s.at = time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC)
	must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "a", "b")))
	leases := s.claimed(t)
	for i, want := range []struct{ automation, server Spending }{
		{Spending{10, 0.5}, Spending{10, 0.5}},
		{Spending{10, 0.5}, Spending{20, 1}}, // of b, whose turn it is
		{Spending{20, 1}, Spending{30, 1.5}},
	} {
		automation, server, err := s.Usage.Record(ctx, leases[i], Spending{10, 0.5})
		if err != nil || automation != want.automation || server != want.server {
			t.Errorf("run %d: %v %v %v, want %v", i, automation, server, err, want)
		}
	}
	if got := must[Spending](t)(s.Usage.Today(ctx)); got != (Spending{30, 1.5}) {
		t.Errorf("spent %v", got)
	}
	for _, again := range []Spending{{10, 0.5}, {9, 0.5}, {10, 0.4}, {}} { // the answer was lost, or comes late
		if automation, server, err := s.Usage.Record(ctx, leases[2], again); err != nil || automation != (Spending{20, 1}) || server != (Spending{30, 1.5}) {
			t.Errorf("%v again: %v %v %v", again, automation, server, err)
		}
	}
	s.at = s.at.Add(2 * time.Minute) // the next day
	if automation, server, err := s.Usage.Record(ctx, leases[0], Spending{11, 0.5}); err != nil || automation != (Spending{1, 0}) || server != automation {
		t.Errorf("on the next day: %v %v %v", automation, server, err)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, leases[0].RunID)); r.Tokens != 11 || r.CostUSD != 0.5 {
		t.Errorf("the run used %d tokens and %v dollars", r.Tokens, r.CostUSD)
	}
	check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
	if _, _, err := s.Usage.Record(ctx, leases[0], Spending{12, 0.5}); !errors.Is(err, ErrFenced) {
		t.Errorf("of a run that has ended: %v", err)
	}
	old := dayOf(s.at) - spendingAge - 1
	check(t, s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("INSERT INTO spending (day, factory, automation, tokens, cost_micros) VALUES ($1, '', '', 1, 1)", old)
	}))
	check(t, s.Usage.prune(ctx))
	var oldest int64
	if check(t, s.Read.QueryRowContext(ctx, "SELECT min(day) FROM spending").Scan(&oldest)); oldest <= old {
		t.Errorf("the spending of day %d is kept", oldest)
	}
}

// TestSpentPullRequests: a pull request of which several runs left the link counts once, as one that the first of
// them opened, and so does its merge (SPEC 27.1).
func TestSpentPullRequests(t *testing.T) {
	s, ctx := open(t), t.Context()
	for _, identity := range []string{"1", "2"} {
		must[Recorded](t)(s.Deliveries.Record(ctx, delivery(identity, "{}", "fix", "else")))
	}
	other := delivery("other", "{}", "fix")
	other.Factory, other.Runs[0].Factory = "other", "other"
	must[Recorded](t)(s.Deliveries.Record(ctx, other))
	for _, l := range s.claimed(t) {
		for _, url := range []string{"https://example.com/acme/app/pull/1", "https://example.com/acme/app/pull/1", "https://example.com/acme/app/pull/2"} {
			must[Artifact](t)(s.Artifacts.KeepLink(ctx, l, Artifact{Type: "PULL_REQUEST", URL: url}))
		}
		check(t, s.Leases.Finish(ctx, l, Succeeded, "", nil))
	}
	check(t, s.Do(ctx, func(tx *engine.Tx) error {
		return s.Artifacts.became(tx, "default", PullState{"https://example.com/acme/app/pull/2", "merged"})
	}))
	got := make(map[string]int64)
	for _, of := range must[[]Spent](t)(s.Usage.Spent(ctx, s.at.Add(-time.Hour), s.at.Add(time.Hour), "")) {
		got[of.Factory+" runs"] += of.Runs
		got[of.Factory+" opened"] += of.PullRequests
		got[of.Factory+" merged"] += of.Merged
		got[of.Factory+" unchanged"] += of.Unchanged
	}
	want := map[string]int64{
		"default runs": 4, "default opened": 2, "default merged": 1, "default unchanged": 1,
		"other runs": 1, "other opened": 2, "other merged": 0, "other unchanged": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
