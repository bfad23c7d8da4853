package applier

import (
	"context"
	"errors"
	"time"
)

// ErrSuperseded is the error of Ledger.Record for an apply during which another one became
// live, perhaps on another server (SPEC 17.2). It is made again, from what is live now.
var ErrSuperseded = errors.New("another apply became live meanwhile")

// maxSuperseded bounds how often an apply is made again at once.
const maxSuperseded = 5

// Follow makes the revision serve that the durable state says is live: another server may
// have applied it. When it returns nil, every apply that was recorded before the call
// serves here.
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

// Attend answers kicks until ctx is done, for a server that leaves watching the source to
// another one. Such a kick is a push notification or a secret.
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

// Report is the part of a State that only the server knows which watches the source.
type Report struct {
	Head        string    `json:"head"`
	Checked     time.Time `json:"checked"`
	Error       string    `json:"error,omitempty"`
	Reason      Reason    `json:"reason,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	NextAttempt time.Time `json:"next_attempt,omitzero"`
}

// Report is that of the state.
func (s *State) Report() Report {
	return Report{s.Head, s.Checked, s.Error, s.Reason, s.Since, s.NextAttempt}
}

// Show makes the state show what the server has found that watches the source.
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
