package access

import (
	"context"

	"triphammer/server/store"
)

// Waiting is a run with what waits of it for the decision of a person (SPEC 26.1).
type Waiting struct {
	Run       Run
	Approvals []store.Approval
}

// Waiting are the runs of the factory of which something waits for a person, those that end first before
// the others.
func (f Factory) Waiting(ctx context.Context, limit int) (all []Waiting, err error) {
	some, err := f.data.cfg.Store.Approvals.Waiting(ctx, f.Name, limit)
	if err != nil {
		return nil, err
	}
	known := make(map[store.RunID]bool)
	for _, a := range some {
		if known[a.RunID] {
			continue
		}
		known[a.RunID] = true
		r, err := f.data.cfg.Store.Runs.Get(ctx, a.RunID)
		if err != nil {
			return nil, err
		}
		w := Waiting{Run: Run{r, f.data}}
		of, err := w.Run.Approvals(ctx) // all of the run, whatever the limit is
		if err != nil {
			return nil, err
		}
		for _, a := range of {
			if a.Decision == "" {
				w.Approvals = append(w.Approvals, a)
			}
		}
		if len(w.Approvals) > 0 { // else somebody has decided meanwhile
			all = append(all, w)
		}
	}
	return all, nil
}

// Approvals are what waits, or waited, of the run for the decision of a person.
func (r Run) Approvals(ctx context.Context) ([]store.Approval, error) {
	return r.data.cfg.Store.Approvals.Of(ctx, r.ID)
}

// Decide decides what waits of the run, as store.Approvals.Decide, and does what follows.
func (r Run) Decide(ctx context.Context, d store.Decision) (*store.Run, error) {
	d.Run = r.ID
	return r.data.cfg.Runs.Decide(ctx, d)
}

// Approved tells whether the run may be started again by whoever may start runs: nobody has to approve it,
// or somebody has.
func (r Run) Approved(ctx context.Context) (bool, error) {
	all, err := r.Approvals(ctx)
	for _, a := range all {
		if a.Seq == 0 && a.Decision != store.Approved {
			return false, err
		}
	}
	return err == nil, err
}
