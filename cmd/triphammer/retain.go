package main

import (
	"context"
	"time"

	"triphammer/server/store"
)

const retainEvery = time.Hour

// retain deletes what is too old (SPEC C6.5), until ctx is done.
func (in *instance) retain(ctx context.Context) {
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		in.deleteOld(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// deleteOld deletes nothing while the clock is in doubt: one that jumps ten years
// ahead would make everything old.
func (in *instance) deleteOld(ctx context.Context) {
	if doubted := in.store.Clock().Doubted(); doubted != "" {
		in.opt.logger.Warn("nothing is deleted by its age: the clock is in doubt", "clock", doubted)
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
