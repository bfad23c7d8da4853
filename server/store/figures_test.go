package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// plainly counts with one query each what Figures counts in steps.
func (f *fixture) plainly(t *testing.T, since time.Time) (counts map[string]int64) {
	t.Helper()
	counts = make(map[string]int64)
	rows := must[[]*Delivery](t)(f.all(t.Context(), since))
	for _, d := range rows {
		stopped := map[Outcome]string{Duplicate: "new", RejectedAuth: "authenticated", RejectedInvalidJSON: "parsed", RejectedTooLarge: "received"}[d.Outcome]
		if d.Reason == "body_too_slow" {
			stopped = "received"
		}
		if d.Outcome == Accepted && d.Started == 0 {
			stopped = "matched"
		}
		counts[fmt.Sprint(engine.TimeOfID(int64(d.ID)).Truncate(time.Hour).Unix(), d.Webhook, d.Outcome, stopped)]++
		counts["started"] += int64(max(d.Started, 0))
	}
	for _, r := range must[[]*Run](t)(f.Runs.List(t.Context(), RunQuery{States: []RunState{Succeeded, FailedRun, Cancelled}, Limit: 1000})) {
		if r.State.Terminal() && !r.FinishedAt.Before(since) {
			counts[fmt.Sprint(r.FinishedAt.Truncate(time.Hour).Unix(), r.Automation, r.State)]++
		}
	}
	return counts
}

func (f *fixture) all(ctx context.Context, since time.Time) (all []*Delivery, err error) {
	for q := (DeliveryQuery{Since: since, Limit: 1000}); ; q.Before = all[len(all)-1].ID {
		some, err := f.Deliveries.List(ctx, q)
		if all = append(all, some...); err != nil || len(some) < 1000 {
			return all, err
		}
	}
}

func (f *fixture) figures(g *Figures, since time.Time) (counts map[string]int64, complete bool) {
	counts = make(map[string]int64)
	complete = g.Each(since, false, func(d DeliveryFigure) {
		counts[fmt.Sprint(d.Hour.Unix(), d.Webhook, d.Outcome, d.Stopped)] += d.Count
		counts["started"] += d.Started
	}, func(r RunFigure) { counts[fmt.Sprint(r.Hour.Unix(), r.Automation, r.State)] += r.Count })
	return counts, complete
}

// TestFigures: what is counted in steps, before and after the first question, is what a plain
// count finds, by hour, stage and state.
func TestFigures(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	end := f.at
	n := 0
	some := func(count int, from, to time.Time) {
		t.Helper()
		check(t, f.Do(ctx, func(tx *engine.Tx) error {
			for i := range count {
				f.at = from.Add(to.Sub(from) / time.Duration(count) * time.Duration(i))
				n++
				d := delivery(fmt.Sprint(n), "{}")
				switch i % 7 {
				case 0:
					d = delivery(fmt.Sprint(n), "{}", "a", "b")
				case 1:
					d.Outcome, d.Reason, d.Payload = RejectedAuth, "signature_mismatch", nil
				case 2:
					d.Identity.Value = "again"
				case 3:
					d.Outcome, d.Reason, d.Payload = RejectedInvalidJSON, "invalid_json", nil
				case 4:
					d.Outcome, d.Reason, d.Payload, d.Webhook = RejectedInvalidJSON, "body_too_slow", nil, "other"
				case 5:
					d.Outcome, d.Reason, d.Payload = RejectedTooLarge, "too_large", nil
				}
				if err := f.record(tx, d); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	stop := func(count int) {
		t.Helper()
		for _, r := range must[[]*Run](t)(f.Runs.List(ctx, RunQuery{States: []RunState{Queued}, Ascending: true, Limit: count})) {
			f.at = f.at.Add(time.Second)
			must[*Run](t)(f.Runs.Stop(ctx, r.ID, StopCancel, ""))
		}
	}
	some(100, end.Add(-40*24*time.Hour), end.Add(-32*24*time.Hour)) // too old
	some(12_000, end.Add(-29*24*time.Hour), end.Add(-time.Hour))
	f.at = end.Add(-48 * time.Hour)
	stop(50)
	f.at = end
	g := NewFigures(f.Store)
	defer g.Stop()
	same := func(what string) {
		t.Helper()
		check(t, g.Catch(ctx, true))
		since := end.Add(-29 * 24 * time.Hour).Truncate(time.Hour)
		want := f.plainly(t, since)
		if got, complete := f.figures(g, since); !complete || !maps.Equal(got, want) {
			t.Errorf("%s: complete %t, %d groups, not %d", what, complete, len(got), len(want))
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if got[key] != want[key] {
					t.Errorf("%s: %d, not %d", key, got[key], want[key])
				}
			}
		}
	}
	same("the first time")
	f.at = end
	same("when nothing came")
	some(6000, end, end.Add(10*time.Minute))
	stop(20)
	same("after more came")
	g.mu.Lock()
	for key := range g.byHour.deliveries {
		if time.Unix(key.hour*3600, 0).Before(f.at.Add(-FiguresAge - 25*time.Hour)) {
			t.Errorf("an hour that is too old is kept: %v", key)
		}
	}
	g.mu.Unlock()
	day := end.Add(-20 * 24 * time.Hour).Truncate(24 * time.Hour)
	byDay := make(map[string]int64)
	g.Each(day, false, func(d DeliveryFigure) {
		byDay[fmt.Sprint(d.Hour.Truncate(24*time.Hour).Unix(), d.Webhook, d.Outcome, d.Stopped)] += d.Count
		byDay["started"] += d.Started
	}, func(r RunFigure) {
		byDay[fmt.Sprint(r.Hour.Truncate(24*time.Hour).Unix(), r.Automation, r.State)] += r.Count
	})
	g.Each(day, true, func(d DeliveryFigure) {
		byDay[fmt.Sprint(d.Hour.Unix(), d.Webhook, d.Outcome, d.Stopped)] -= d.Count
		byDay["started"] -= d.Started
	}, func(r RunFigure) { byDay[fmt.Sprint(r.Hour.Unix(), r.Automation, r.State)] -= r.Count })
	for key, n := range byDay {
		if n != 0 {
			t.Errorf("%s: the hours have %d more than the day", key, n)
		}
	}
	if len(byDay) < 20 {
		t.Errorf("%d groups", len(byDay))
	}
}

// BenchmarkFiguresOfAMonth reads the figures of 30 days in which 20 automations ended 130,000
// runs, of each hour and kind one, and 20 webhooks took as many deliveries.
func BenchmarkFiguresOfAMonth(b *testing.B) {
	g := &Figures{byHour: newSums(1), byDay: newSums(24)}
	now := time.Now()
	for h := range int64(720) {
		hour := now.Unix()/3600 - h
		for i := range 20 {
			name := fmt.Sprint(i)
			for _, sums := range []*sums{&g.byHour, &g.byDay} {
				for _, outcome := range terms.Outcomes {
					sums.addDeliveries(deliveryKey{hour, DeliveryCount{Factory: "f", Webhook: name, WebhookUID: name, Outcome: outcome}}, deliverySum{1, 1})
				}
				for _, state := range []RunState{Succeeded, FailedRun, Cancelled} {
					sums.addRuns(runKey{hour, "f", name, state}, RunSum{3, 1, 1})
				}
			}
		}
	}
	for b.Loop() {
		n := int64(0)
		g.Each(now.Add(-FiguresAge).Truncate(24*time.Hour), true, func(d DeliveryFigure) { n += d.Count }, func(r RunFigure) { n += r.Count })
		if n == 0 {
			b.Fatal("nothing")
		}
	}
}
