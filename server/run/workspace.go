package run

import (
	"context"
	"errors"
	"time"

	"triphammer/server/store"
)

// Workspace is the folder with the files of a run. Runs of one conversation share theirs.
type Workspace struct {
	Path      string    // on the machine of the server; empty: it was removed
	KeptUntil time.Time // until then, unless the disk fills; zero: a run of its conversation has not ended
}

// Workspace finds the workspace of a run. It is nil if the run has had none yet, or if no
// server is running, so that nobody knows.
func (m *Manager) Workspace(ctx context.Context, r *store.Run) (*Workspace, error) {
	if !m.works.Load() || r.StartedAt.IsZero() {
		return nil, nil
	}
	path, ok := m.cfg.Executor.Workspace(r.ConversationID.String())
	if !ok {
		return &Workspace{}, nil
	}
	c, err := m.cfg.Store.Conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &Workspace{Path: path, KeptUntil: m.keptUntil(c)}, nil
}

// keepFor is how long a workspace is kept after the end of the last run that used it. It is
// the policy. sessions tells whether the conversation can go on.
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

// keptUntil is until when the workspace of a conversation is kept; zero while a run of it
// has not ended.
func (m *Manager) keptUntil(c *store.Conversation) time.Time {
	last := &store.Run{}
	for _, r := range c.Runs {
		if !r.State.Terminal() {
			return time.Time{}
		}
		if r.FinishedAt.After(last.FinishedAt) {
			last = r
		}
	}
	return last.FinishedAt.Add(m.cfg.keepFor(last.State, c.Session != nil))
}

// expired tells whether the workspace of that name is not to be kept any more. ended is
// when it was last in use.
func (m *Manager) expired(ctx context.Context, name string, ended time.Time) bool {
	id, err := store.ParseID[store.Run](name)
	var c *store.Conversation
	if err == nil {
		c, err = m.cfg.Store.Conversation(ctx, id)
	}
	now := m.cfg.Now()
	switch {
	case errors.Is(err, store.ErrNotFound): // its run was deleted with its age
		return now.Sub(ended) > max(m.cfg.KeepWorkspaces, m.cfg.KeepFailed, m.cfg.KeepSessions)
	case err != nil:
		return false
	}
	until := m.keptUntil(c)
	return !until.IsZero() && !now.Before(until)
}

// sweep removes the workspaces that are not to be kept any more.
func (m *Manager) sweep(ctx context.Context) {
	if m.cfg.Store.Clock().Doubted() != "" {
		return // nothing is deleted by its age (SPEC 12.3)
	}
	err := m.cfg.Executor.Sweep(ctx, func(name string, ended time.Time) bool { return m.expired(ctx, name, ended) })
	if err != nil {
		m.logger.Warn("removing the files of old runs", "error", err)
	}
}

// dispose removes the workspace of a run that has ended, if it is not to be kept at all.
func (m *Manager) dispose(ctx context.Context, id store.RunID) {
	if min(m.cfg.KeepWorkspaces, m.cfg.KeepFailed) > 0 {
		return
	}
	r, err := m.cfg.Store.Run(ctx, id)
	if err == nil && r.State.Terminal() {
		folder := r.ConversationID.String()
		err = m.cfg.Executor.Sweep(ctx, func(name string, ended time.Time) bool { return name == folder && m.expired(ctx, name, ended) })
	}
	if err != nil {
		m.logger.Warn("removing the files of a run that has ended", "run", id, "error", err)
	}
}
