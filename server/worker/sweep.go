package worker

import (
	"context"
	"errors"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
)

// expired tells whether the time to keep the workspace of that name is over. ended is when the
// workspace was last in use.
func (m *Manager) expired(ctx context.Context, name string, ended time.Time) bool {
	return m.parts(ctx, name, func(c *store.Conversation) bool {
		now := m.cfg.Now()
		if c == nil { // the run was deleted as too old
			return now.Sub(ended) > max(m.cfg.KeepWorkspaces, m.cfg.KeepFailed, m.cfg.KeepSessions)
		}
		until := m.desk.KeptUntil(c)
		return !until.IsZero() && !now.Before(until)
	})
}

// parts tells whether the workspace of that name can be removed, that is, whether may allows it
// for the conversation. If so, parts also ends the conversation: otherwise a follow-up could be
// accepted just before the workspace goes.
func (m *Manager) parts(ctx context.Context, name string, may func(*store.Conversation) bool) bool {
	id, err := store.ParseID[store.Run](name)
	var c *store.Conversation
	if err == nil {
		c, err = m.cfg.Store.Conversations.Get(ctx, id)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return may(nil)
	case err != nil:
		return false
	}
	if at := run.LastStarted(c); m.cfg.Shared && at != nil && at.Worker != m.worker {
		return true // the conversation has its workspace at another worker now
	}
	if !may(c) {
		return false
	}
	last := run.LastOf(c)
	if last == nil || c.Session == nil {
		return last != nil // no run joins a conversation without a session
	}
	ended, err := m.cfg.Store.Conversations.End(ctx, c.ID, last.FinishedAt)
	if err != nil {
		m.logger.Warn("ending a conversation, to remove its workspace", "conversation", c.ID, "error", err)
	}
	return ended
}

// sweep removes the workspaces whose time to keep is over.
func (m *Manager) sweep(ctx context.Context) {
	if m.cfg.Store.Clock().Doubted() != "" {
		return // nothing is deleted for its age (SPEC 12.3)
	}
	err := m.cfg.Executor.Sweep(ctx, func(name string, ended time.Time) bool { return m.expired(ctx, name, ended) })
	if err != nil {
		m.logger.Warn("removing the files of old runs", "error", err)
	}
}

// dispose removes the workspace of an ended run, if the settings keep it for no time.
func (m *Manager) dispose(ctx context.Context, id store.RunID) {
	if min(m.cfg.KeepWorkspaces, m.cfg.KeepFailed) > 0 {
		return
	}
	r, err := m.cfg.Store.Runs.Get(ctx, id)
	if err == nil && r.State.Terminal() {
		folder := r.ConversationID.String()
		err = m.cfg.Executor.Sweep(ctx, func(name string, ended time.Time) bool { return name == folder && m.expired(ctx, name, ended) })
	}
	if err != nil {
		m.logger.Warn("removing the files of a run that has ended", "run", id, "error", err)
	}
}
