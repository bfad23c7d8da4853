package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
)

// Run is a run.
type Run struct {
	*store.Run
	data *Data
}

// Spec is the spec of the run.
func (r Run) Spec(ctx context.Context) (run.Spec, error) {
	data, err := r.data.cfg.Store.Specs.Get(ctx, r.SpecHash)
	if err != nil {
		return run.Spec{}, fmt.Errorf("spec of %s: %w", r.ID, err)
	}
	return run.DecodeSpec(data)
}

// Replied is the end of the prompt of a run that is the reply to a question, as run.Replied.
func (r Run) Replied(ctx context.Context) (string, error) {
	return run.Replied(ctx, r.data.cfg.Store, r.Run)
}

// Question is what the run asked a person when it ended; nil: nothing (SPEC 26.3).
func (r Run) Question(ctx context.Context) (*store.Output, error) {
	return r.data.cfg.Store.Outputs.QuestionOf(ctx, r.ID)
}

// Belt says how far the run came, and why it waits or stopped there.
func (r Run) Belt(ctx context.Context) ([]run.Stage, error) { return r.data.cfg.Runs.Belt(ctx, r.Run) }

// WorkerName is the name of the worker that has or had the run; empty: none yet.
func (r Run) WorkerName(ctx context.Context) (string, error) {
	w, err := r.data.cfg.Runs.WorkerOf(ctx, r.Worker)
	if err != nil || w == nil {
		return r.Worker, err
	}
	return w.Name(), nil
}

// Lacks says that the run waits for a worker and that no suitable worker is connected. It is empty
// otherwise.
func (r Run) Lacks(ctx context.Context) (string, error) {
	return r.data.cfg.Runs.LacksWorker(ctx, r.Run)
}

// Takes says what can be asked of the run now.
func (r Run) Takes(ctx context.Context) ([]string, error) {
	return r.data.cfg.Runs.Takes(ctx, r.Run)
}

// EventCounts is how many events of each kind the transcript has.
func (r Run) EventCounts(ctx context.Context) (map[string]int64, error) {
	return r.data.cfg.Store.Transcripts.Counts(ctx, r.ID)
}

// ModelUsage is what the run's requests to models used, by model.
func (r Run) ModelUsage(ctx context.Context) ([]store.ModelUsage, error) {
	return r.data.cfg.Store.Usage.UsageOf(ctx, r.ID)
}

// Workspace finds the workspace of the run, as run.Desk.
func (r Run) Workspace(ctx context.Context) (*run.Workspace, error) {
	return r.data.cfg.Runs.Workspace(ctx, r.Run)
}

// Metadata returns the metadata of runs, by the id of the run.
func Metadata(ctx context.Context, runs ...Run) (map[store.RunID]map[string]string, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Runs.Metadata(ctx, idsOf(runs)...)
}

// Roots are the topmost parents of runs that other runs asked for, by the id of the run.
func Roots(ctx context.Context, runs ...Run) (map[store.RunID]store.RunID, error) {
	var below []store.RunID
	for _, r := range runs {
		if r.ParentID != 0 {
			below = append(below, r.ID)
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Runs.Roots(ctx, below...)
}

// Events are the events of the transcript after an event number.
func (r Run) Events(ctx context.Context, after int64, limit int) ([]store.Event, error) {
	return r.data.cfg.Store.Transcripts.List(ctx, r.ID, after, limit)
}

// EventPage is a part of the transcript.
func (r Run) EventPage(ctx context.Context, p store.EventPage) ([]store.Event, error) {
	return r.data.cfg.Store.Transcripts.Page(ctx, r.ID, p)
}

// FirstEvent is when the first event of a kind happened; zero if there is none.
func (r Run) FirstEvent(ctx context.Context, kind string) (time.Time, error) {
	return r.data.cfg.Store.Transcripts.First(ctx, r.ID, kind)
}

// Answers are the answers of runs, those of the oldest run first.
func Answers(ctx context.Context, runs ...Run) ([]store.Answer, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Answers.Of(ctx, idsOf(runs)...)
}

// Preview is what an answer says of the run now, as people read it.
func (r Run) Preview(ctx context.Context, a store.Answer) (string, error) {
	return r.data.cfg.Answers.Preview(ctx, &a, r.Run)
}

// Artifacts returns the artifacts of runs, by the id of the run.
func Artifacts(ctx context.Context, runs ...Run) (map[store.RunID][]*store.Artifact, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Artifacts.Of(ctx, idsOf(runs)...)
}

// EventCounts is how many events of a kind the transcripts of runs have, by the id of the run.
func EventCounts(ctx context.Context, kind string, runs ...Run) (map[store.RunID]int64, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Transcripts.CountsOf(ctx, kind, idsOf(runs)...)
}

// Outputs are what the agents of runs asked the server to do, in order.
func Outputs(ctx context.Context, runs ...Run) ([]store.Output, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Outputs.Of(ctx, idsOf(runs)...)
}

func idsOf(runs []Run) []store.RunID {
	ids := make([]store.RunID, len(runs))
	for i, r := range runs {
		ids[i] = r.ID
	}
	return ids
}

// Follow follows the run, like run.Feed.
func (r Run) Follow(ctx context.Context, from run.Position, quiet time.Duration, tell func(*run.News) error) error {
	return r.data.cfg.Runs.Feed().Follow(ctx, r.ID, from, quiet, tell)
}

// Answer sends the answers of the run again that were given up, and has its outputs done that were (SPEC
// 22.5, 26.2). It is store.ErrConflict if there are none.
func (r Run) Answer(ctx context.Context) error {
	told, done := r.data.cfg.Store.Answers.Again(ctx, r.ID), r.data.cfg.Store.Outputs.Again(ctx, r.ID)
	switch {
	case errors.Is(told, store.ErrConflict) && errors.Is(done, store.ErrConflict):
		return fmt.Errorf("no answer and no output of %s was given up: %w", r.ID, store.ErrConflict)
	case errors.Is(told, store.ErrConflict):
		return done
	case errors.Is(done, store.ErrConflict):
		return told
	}
	return errors.Join(told, done)
}
