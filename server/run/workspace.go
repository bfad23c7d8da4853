package run

import (
	"context"
	"time"

	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Workspace is the folder with the files of a run. Runs of one conversation share a Workspace.
type Workspace struct {
	Path      string    // on the machine of the server; empty: it was removed
	KeptUntil time.Time // unless the disk fills; zero: a run of the conversation has not ended
}

// Workspace finds the workspace of a run. It returns nil if the run has no workspace yet, or
// if this process does not know it: no server is running, or another worker has it.
func (d *Desk) Workspace(ctx context.Context, r *store.Run) (*Workspace, error) {
	if !d.works() || r.StartedAt.IsZero() || d.cfg.Shared && r.Worker != d.cfg.Worker.ID {
		return nil, nil
	}
	path, ok := d.local.Workspace(r.ConversationID.String())
	if !ok {
		return &Workspace{}, nil
	}
	c, err := d.cfg.Store.Conversations.Get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &Workspace{Path: path, KeptUntil: d.KeptUntil(c)}, nil
}

// keepFor is how long a workspace is kept after the end of the last run that used it.
// sessions tells whether the conversation can go on.
func (c *Config) keepFor(last store.RunState, sessions bool) time.Duration {
	keep := c.KeepWorkspaces
	if last != store.Succeeded {
		keep = c.KeepFailed
	}
	if sessions {
		keep = max(keep, c.KeepSessions)
	}
	return max(keep, 0)
}

// LastOf is the run of a conversation that ended last; nil while a run has not ended.
func LastOf(c *store.Conversation) *store.Run {
	last := &store.Run{}
	for _, r := range c.Runs {
		if !r.State.Terminal() {
			return nil
		}
		if r.FinishedAt.After(last.FinishedAt) {
			last = r
		}
	}
	return last
}

// KeptUntil is the time until which the workspace of a conversation is kept; zero while a run
// of the conversation has not ended.
func (d *Desk) KeptUntil(c *store.Conversation) time.Time {
	last := LastOf(c)
	if last == nil {
		return time.Time{}
	}
	return last.FinishedAt.Add(d.cfg.keepFor(last.State, c.Session != nil))
}

// unusable returns an error if no run can go on where another run ended, because the workspace
// is gone. While no server runs on a store of its own, this is not known, and no error.
func (d *Desk) unusable(ctx context.Context, of *store.Run) error {
	if d.cfg.Shared {
		c, err := d.cfg.Store.Conversations.Get(ctx, of.ID)
		if err != nil {
			return err
		}
		if last := LastStarted(c); last == nil || last.Worker != d.cfg.Worker.ID {
			// A worker that removes a workspace ends the conversation, so that the store refuses.
			why, err := d.lostWorkspace(ctx, c)
			if err == nil && why != "" {
				err = &RefusedError{Conflict: true, Detail: why}
			}
			return err
		}
	}
	if !d.works() {
		return nil
	}
	if _, there := d.local.Workspace(of.ConversationID.String()); there {
		return nil
	}
	c, err := d.cfg.Store.Conversations.Get(ctx, of.ID)
	if err != nil {
		return err
	}
	if LastOf(c) == nil || c.Session == nil {
		return nil // the workspace is about to be made, or something else is wrong
	}
	return &RefusedError{Conflict: true, Detail: task.ErrNoWorkspace.Error()}
}
