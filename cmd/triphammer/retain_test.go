package main

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"triphammer/server/store"
)

// TestMovedClock: while the clock is more than an hour off from what has passed,
// nothing is deleted by its age (R26); when it is right again, it is.
func TestMovedClock(t *testing.T) {
	in, err := openInstance(t.Context(), t.TempDir(), instanceOptions{
		make: true,
		keep: store.RunRetention{Runs: time.Nanosecond}, logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.close() }()
	ctx := context.Background()
	start := time.Now()
	for _, c := range []struct {
		moved   time.Duration
		deleted bool
	}{
		{0, true},
		{59 * time.Minute, true},
		{-59 * time.Minute, true},
		{61 * time.Minute, false},
		{-61 * time.Minute, false},
		{10 * 365 * 24 * time.Hour, false},
	} {
		r, _, err := in.store.CreateRun(ctx, store.NewRun{Factory: "f", Source: store.SourceAPI, Spec: []byte("{}")}, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.store.RequestCancel(ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		passed := 30 * time.Hour
		in.deleteOld(ctx, movedClock{
			start: start, passed: func() time.Duration { return passed }, wall: func() time.Time { return start.Add(passed + c.moved) },
		})
		if _, err := in.store.Run(ctx, r.ID); (err != nil) != c.deleted {
			t.Errorf("with a clock that was set by %v: %v", c.moved, err)
		}
		if _, _, err := in.store.PruneRuns(ctx, in.opt.keep); err != nil {
			t.Fatal(err)
		}
	}
	if moved := newMovedClock().by(); moved.Abs() > time.Second {
		t.Errorf("a clock that nobody set moved by %v", moved)
	}
}
