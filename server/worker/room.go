package worker

import (
	"context"
	"fmt"
	"time"

	"triphammer/server/disk"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// roomTime is the time between two looks at the disk.
const roomTime = time.Second

// keepRoom watches the disk until ctx ends. While there is too little space, it keeps new
// runs waiting, removes the workspaces of ended runs, and as the last resort stops the run
// that uses the most.
func (m *Manager) keepRoom(ctx context.Context) {
	tick := time.NewTicker(roomTime)
	defer tick.Stop()
	var stopping store.RunID
	for {
		if s, err := m.cfg.Disk.Look(disk.Workspaces); err == nil && s.Level > disk.Enough {
			m.reclaim(ctx)
		}
		if s := m.lookAtDisk(); s.Level == disk.Critical {
			stopping = m.stopLargest(ctx, s, stopping)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Short says why no run starts while there is too little space on the disk. It is empty
// otherwise.
func (m *Manager) Short() string {
	if why := m.short.Load(); why != nil {
		return *why
	}
	return ""
}

// lookAtDisk decides whether runs may start, and returns the state of the
// workspaces.
func (m *Manager) lookAtDisk() (workspaces disk.State) {
	if m.cfg.Disk == nil {
		return workspaces
	}
	states, err := m.cfg.Disk.All()
	if err != nil {
		m.logger.Error("looking at the disk", "error", err)
	}
	problem := ""
	for _, s := range states {
		if s.Volume == disk.Workspaces {
			workspaces = s
		}
		if problem == "" {
			problem = s.Problem()
		}
	}
	was := m.Short()
	switch {
	case problem == "":
		m.short.Store(nil)
		if was != "" {
			m.logger.Info("the disk has room again: queued runs start")
			m.Wake()
		}
	default:
		m.short.Store(&problem)
		if was == "" {
			m.logger.Warn("new runs wait for room on the disk", "problem", problem)
		}
	}
	return workspaces
}

// reclaim removes the workspaces of ended runs, the oldest first, until there is enough
// space.
func (m *Manager) reclaim(ctx context.Context) {
	removed, err := m.cfg.Executor.Reclaim(ctx, func() bool {
		s, err := m.cfg.Disk.Look(disk.Workspaces)
		return err != nil || s.Level == disk.Enough
	}, func(workspace string) bool {
		return m.parts(ctx, workspace, func(*store.Conversation) bool { return true })
	})
	if removed > 0 {
		m.logger.Warn("workspaces of runs that have ended were removed early, because there is little room on the disk", "runs", removed)
	}
	if err != nil && ctx.Err() == nil {
		m.logger.Warn("removing the files of runs that have ended", "error", err)
	}
}

// stopLargest stops the run in progress that uses the most of the disk, if the workspaces
// fill the disk. The other runs and the server go on. It stops one run at a time: last is the
// run that the previous call stopped, and the result is the run that this call stopped.
func (m *Manager) stopLargest(ctx context.Context, s disk.State, last store.RunID) store.RunID {
	m.mu.Lock()
	ids := make([]store.RunID, 0, len(m.active))
	for id := range m.active {
		ids = append(ids, id)
	}
	_, stopping := m.active[last]
	m.mu.Unlock()
	if stopping {
		return last
	}
	var largest store.RunID
	var most, all int64
	takes := disk.Bytes
	if s.Inodes {
		takes = func(n int64) string { return fmt.Sprintf("%d inodes", n) }
	}
	for _, id := range ids {
		size, files := m.cfg.Executor.Size(ctx, id.String())
		if s.Inodes {
			size = files
		}
		if all += size; size > most {
			largest, most = id, size
		}
	}
	if largest == 0 || all < s.Lacks || ctx.Err() != nil {
		return last // stopping runs would not help
	}
	m.mu.Lock()
	cancel := m.active[largest]
	m.mu.Unlock()
	if cancel == nil {
		return last // the run has ended by itself
	}
	m.logger.Error("a run fills the disk: it is stopped", "run", largest, "takes", takes(most), "problem", s.Problem())
	cancel(fmt.Errorf("%w: its files take %s; %s", task.ErrDisk, takes(most), s.Problem()))
	return largest
}
