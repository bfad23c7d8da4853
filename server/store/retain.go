package store

import (
	"context"
	"time"
)

const retainEvery = time.Hour

// Retain deletes what is too old (SPEC C6.5), at once and every hour, until ctx is
// done. What goes wrong is in the log, and tried again the next time.
func (s *Store) Retain(ctx context.Context, keep RunRetention) {
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		s.deleteOld(ctx, keep)
		s.sweepArtifacts(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// deleteOld deletes nothing while the clock is in doubt: one that jumps ten years
// ahead would make everything old.
func (s *Store) deleteOld(ctx context.Context, keep RunRetention) {
	if doubted := s.Clock().Doubted(); doubted != "" {
		s.Logger.Warn("nothing is deleted by its age: the clock is in doubt", "clock", doubted)
		return
	}
	failed := func(message string, err error) {
		if err != nil && ctx.Err() == nil {
			s.Logger.Error(message, "error", err)
		}
	}
	deliveries, err := s.Deliveries.Prune(ctx, Retention{Keep: 50, Age: 7 * 24 * time.Hour})
	failed("old deliveries could not be deleted", err)
	runs, transcripts, err := s.Runs.Prune(ctx, keep)
	failed("old runs could not be deleted", err)
	failed("what became free in the database could not be given back to the file system", s.Shrink(ctx))
	if deliveries+runs+transcripts > 0 {
		s.Logger.Info("what is too old was deleted", "deliveries", deliveries, "runs", runs, "transcripts", transcripts)
	}
}

// sweepArtifacts removes the files of artifacts that no row names.
func (s *Store) sweepArtifacts(ctx context.Context) {
	removed, err := s.Artifacts.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		s.Logger.Error("files of artifacts that are no longer known could not be removed", "error", err)
	}
	if removed > 0 {
		s.Logger.Info("files of artifacts that are no longer known were removed", "files", removed)
	}
}
