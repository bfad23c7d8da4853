package main

import (
	"context"
	"time"

	"triphammer/server/store"
)

const (
	retainEvery = time.Hour
	// maxMoved is how far a clock may be set while old things are still deleted by
	// it.
	maxMoved = time.Hour
)

// movedClock tells how far the clock was set since a time: one that jumps ten
// years ahead would make everything old (research/reliability.md R26).
type movedClock struct {
	wall   func() time.Time     // what the clock shows
	passed func() time.Duration // what has passed, whatever it shows
	start  time.Time
}

func newMovedClock() movedClock {
	start := time.Now()
	return movedClock{
		wall: func() time.Time { return time.Now().Round(0) }, passed: func() time.Duration { return time.Since(start) }, start: start.Round(0),
	}
}

func (c movedClock) by() time.Duration { return c.wall().Sub(c.start) - c.passed() }

// retain deletes what is too old (CONTRACT.md 6.5), until ctx is done.
func (in *instance) retain(ctx context.Context) {
	clock := newMovedClock()
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		in.deleteOld(ctx, clock)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (in *instance) deleteOld(ctx context.Context, clock movedClock) {
	if moved := clock.by(); moved.Abs() > maxMoved {
		in.opt.logger.Error("the clock was set since this server started: nothing is deleted by its age until it is right, or the server is restarted", "moved", moved)
		return
	}
	deliveries, err := in.store.Prune(ctx, store.Retention{Keep: 50, Age: 7 * 24 * time.Hour})
	if err != nil && ctx.Err() == nil {
		in.opt.logger.Error("old deliveries could not be deleted", "error", err)
	}
	runs, transcripts, err := in.store.PruneRuns(ctx, in.opt.keep)
	if err != nil && ctx.Err() == nil {
		in.opt.logger.Error("old runs could not be deleted", "error", err)
	}
	if err := in.store.Shrink(ctx); err != nil && ctx.Err() == nil {
		in.opt.logger.Error("what became free in the database could not be given back to the file system", "error", err)
	}
	if deliveries+runs+transcripts > 0 {
		in.opt.logger.Info("what is too old was deleted", "deliveries", deliveries, "runs", runs, "transcripts", transcripts)
	}
}
