package applier

import (
	"context"
	"errors"
	"time"
)

// ErrSuperseded is the error of Ledger.Record if another apply became live meanwhile,
// perhaps on another server (SPEC 17.2). The Applier then applies again, from what is live now.
var ErrSuperseded = errors.New("another apply became live meanwhile")

// maxSuperseded bounds how often an apply is made again at once.
const maxSuperseded = 5

// Follow loads the live revision from the Ledger and makes it serve, because another server
// may have applied it. When Follow returns nil, this server serves the last apply that was
// recorded before the call, or a later apply.
func (a *Applier) Follow(ctx context.Context) error {
	a.serving.Lock()
	defer a.serving.Unlock()
	live, err := a.cfg.Ledger.Live(ctx, a.cfg.Factory)
	if err != nil || live == "" {
		return err
	}
	if present, ok := a.cfg.Live.Revision(a.cfg.Factory); ok && present.ApplyID == live {
		return nil
	}
	other, err := a.cfg.Ledger.Serving(ctx, a.cfg.Factory)
	if err != nil || other == nil {
		return err
	}
	a.cfg.Live.Swap(other.Revision)
	a.finish(other, func() {
		a.settled, a.lacked = other.Commit.Hash, nil
		a.state.Applied, a.refusal, a.failure = other.Revision, refusal{}, nil
	})
	a.cfg.Logger.Info("definitions follow another apply", "factory", other.Factory, "commit", other.Commit.Hash, "apply", other.ID)
	return nil
}

// Attend answers kicks until ctx is done, on a server that does not watch the source because
// another server does. Its kicks come from push notifications, commands and secrets.
func (a *Applier) Attend(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kicks:
			if trigger := a.takeKick(); trigger != "" && trigger != watched {
				a.sync(ctx, trigger, false)
			}
		}
	}
}

// Report is the part of a State that only the server that watches the source knows.
type Report struct {
	Head        string    `json:"head"`
	Checked     time.Time `json:"checked"`
	Error       string    `json:"error,omitempty"`
	Reason      Reason    `json:"reason,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	NextAttempt time.Time `json:"next_attempt,omitzero"`
}

// Report returns the part of the state that other servers need.
func (s *State) Report() Report {
	return Report{s.Head, s.Checked, s.Error, s.Reason, s.Since, s.NextAttempt}
}

// Show puts the report of the server that watches the source into the state.
func (a *Applier) Show(r Report) {
	a.mu.Lock()
	was := a.state.Report()
	a.state.Head, a.state.Checked = r.Head, r.Checked
	a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = r.Error, r.Reason, r.Since, r.NextAttempt
	state := a.state
	a.mu.Unlock()
	if was.Checked = r.Checked; was != r {
		a.cfg.OnChange(state)
	}
}
