package store

import (
	"errors"
	"testing"
	"time"
)

// TestPins: one pin per factory, that ends when its time has come, and the commits
// that can be pinned.
func TestPins(t *testing.T) {
	s, ctx := open(t), t.Context()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Now = func() time.Time { return now }
	missing := func() {
		t.Helper()
		if p, err := s.Pins.Of(ctx, "default"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v, %v", p, err)
		}
	}
	missing()
	check(t, s.Pins.Set(ctx, "other", Pin{Commit: "c"}))
	check(t, s.Pins.Set(ctx, "default", Pin{Commit: "a", Reason: "r", By: "ada", At: now}))
	want := Pin{Commit: "b", Reason: "s", By: "bob", At: now, Until: now.Add(time.Hour)}
	check(t, s.Pins.Set(ctx, "default", want))
	if got := must[Pin](t)(s.Pins.Of(ctx, "default")); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	check(t, s.Pins.End(ctx, "default"))
	if got := must[Pin](t)(s.Pins.Of(ctx, "default")); got != want {
		t.Errorf("before its time: %+v", got)
	}
	now = now.Add(time.Hour)
	missing()
	for range 2 {
		check(t, s.Pins.End(ctx, "default"))
		check(t, s.Pins.End(ctx, "other")) // it has no end
	}
	log := must[[]AuditEntry](t)(s.Audit.List(ctx, AuditQuery{Limit: 10}))
	if len(log) != 1 || log[0].Actor != "server" || log[0].Action != "definition.unpin" || log[0].Factory != "default" ||
		log[0].Details != "b: the pin ran out at 2026-01-02T04:04:05Z: s" {
		t.Errorf("audit log %+v", log)
	}
	missing()
	check(t, s.Pins.Delete(ctx, "default"))
	missing()

	for _, a := range []Apply{
		{Factory: "default", Commit: "aaaa1", Outcome: "applied", StartedAt: now.Add(time.Minute)},
		{Factory: "default", Commit: "aaaa2", Outcome: "applied"},
		{Factory: "default", Commit: "aaaa1", Outcome: "applied", Trigger: "command", StartedAt: now.Add(time.Hour)},
		{Factory: "default", Commit: "bbbb", Outcome: "refused"},
		{Factory: "other", Commit: "cccc", Outcome: "applied"},
	} {
		if _, err := s.Applies.Record(ctx, &a, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Applies.First(ctx, "default", "cccc"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a commit of another factory: %v", err)
	}
	if at := must[time.Time](t)(s.Applies.First(ctx, "default", "aaaa1")); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("first applied at %s", at)
	}
	if a := must[*Apply](t)(s.Applies.Commit(ctx, "default", "aaaa1")); a.Trigger != "command" {
		t.Errorf("not the newest: %+v", a)
	}
	for prefix, want := range map[string]error{"aaaa": ErrConflict, "bbbb": ErrNotFound, "cccc": ErrNotFound, "": ErrNotFound, "a%": ErrNotFound, "_aaa1": ErrNotFound, "AAAA1": ErrNotFound} {
		if a, err := s.Applies.Commit(ctx, "default", prefix); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v; want %v", prefix, a, err, want)
		}
	}
	if a := must[*Apply](t)(s.Applies.Commit(ctx, "", "cccc")); a.Factory != "other" {
		t.Errorf("%+v", a)
	}
}
