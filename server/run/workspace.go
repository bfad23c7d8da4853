package run

import (
	"context"
	"errors"
	"time"

	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Workspace is the folder with the files of a run. Runs of one conversation share theirs.
type Workspace struct {
	Path      string    // on the machine of the server; empty: it was removed
	KeptUntil time.Time // until then, unless the disk fills; zero: a run of its conversation has not ended
}

// Workspace finds the workspace of a run. It is nil if the run has had none yet, or if no
// server is running or another worker has it, so that nobody knows.
func (m *Manager) Workspace(ctx context.Context, r *store.Run) (*Workspace, error) {
	if !m.works.Load() || r.StartedAt.IsZero() || m.cfg.Shared && r.Worker != m.worker {
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

// lastOf is the run of a conversation that ended last; nil while one has not ended.
func lastOf(c *store.Conversation) *store.Run {
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

// keptUntil is until when the workspace of a conversation is kept; zero while a run of it
// has not ended.
func (m *Manager) keptUntil(c *store.Conversation) time.Time {
	last := lastOf(c)
	if last == nil {
		return time.Time{}
	}
	return last.FinishedAt.Add(m.cfg.keepFor(last.State, c.Session != nil))
}

// expired tells whether the workspace of that name is not to be kept any more. ended is
// when it was last in use.
func (m *Manager) expired(ctx context.Context, name string, ended time.Time) bool {
	return m.parts(ctx, name, func(c *store.Conversation) bool {
		now := m.cfg.Now()
		if c == nil { // its run was deleted with its age
			return now.Sub(ended) > max(m.cfg.KeepWorkspaces, m.cfg.KeepFailed, m.cfg.KeepSessions)
		}
		until := m.keptUntil(c)
		return !until.IsZero() && !now.Before(until)
	})
}

// parts tells whether the workspace of that name can be removed: it may, as its conversation
// shows, and no run will want it. For that the conversation is ended. Otherwise a follow-up
// could be accepted just before the workspace goes.
func (m *Manager) parts(ctx context.Context, name string, may func(*store.Conversation) bool) bool {
	id, err := store.ParseID[store.Run](name)
	var c *store.Conversation
	if err == nil {
		c, err = m.cfg.Store.Conversation(ctx, id)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return may(nil)
	case err != nil:
		return false
	}
	if at := lastStarted(c); m.cfg.Shared && at != nil && at.Worker != m.worker {
		return true // it has its workspace there now
	}
	if !may(c) {
		return false
	}
	last := lastOf(c)
	if last == nil || c.Session == nil {
		return last != nil // no run joins it without a session
	}
	ended, err := m.cfg.Store.EndConversation(ctx, c.ID, last.FinishedAt)
	if err != nil {
		m.logger.Warn("ending a conversation, to remove its workspace", "conversation", c.ID, "error", err)
	}
	return ended
}

// unusable is why no run can go on where another one ended, because its workspace is gone.
// Nobody knows while no server runs that has the store for itself.
func (m *Manager) unusable(ctx context.Context, of *store.Run) error {
	if m.cfg.Shared {
		c, err := m.cfg.Store.Conversation(ctx, of.ID)
		if err != nil {
			return err
		}
		if last := lastStarted(c); last == nil || last.Worker != m.worker {
			// A worker that removes a workspace ends the conversation, so that the store refuses.
			why, err := m.lostWorkspace(ctx, c)
			if err == nil && why != "" {
				err = &RefusedError{Conflict: true, Detail: why}
			}
			return err
		}
	}
	if !m.works.Load() {
		return nil
	}
	if _, there := m.cfg.Executor.Workspace(of.ConversationID.String()); there {
		return nil
	}
	c, err := m.cfg.Store.Conversation(ctx, of.ID)
	if err != nil {
		return err
	}
	if lastOf(c) == nil || c.Session == nil {
		return nil // it is about to be made, or something else is wrong
	}
	return &RefusedError{Conflict: true, Detail: task.ErrNoWorkspace.Error()}
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
