package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Parts of a lease (SPEC 17.4). A worker renews its leases several times before they end. If
// it cannot, it stops its agents in good time. If it cannot do that either, the supervisors
// kill the agents. So nothing of an attempt lives when the lease is over, and another worker
// may have the run.
func beatTime(lease time.Duration) time.Duration   { return lease / 6 }      // between renewals
func giveUpTime(lease time.Duration) time.Duration { return lease * 7 / 12 } // until the agent is asked to end
func deadTime(lease time.Duration) time.Duration   { return lease * 3 / 4 }  // until the agent is killed

// heartbeat is the time between two signs of life of a worker. It is limited, because other
// processes would otherwise take a worker with a long lease for lost between two renewals.
func heartbeat(lease time.Duration) time.Duration { return min(beatTime(lease), store.LostAfter/4) }

// hold tells how long an attempt may go on, that is, until when only this worker has it, by the
// monotonic clock of this machine.
type hold struct {
	lease time.Duration
	since atomic.Pointer[time.Time] // beginning of the last successful renewal
}

func newHold(lease time.Duration, since time.Time) *hold {
	h := &hold{lease: lease}
	h.since.Store(&since)
	return h
}

// until implements task.Task.Lease.
func (h *hold) until() time.Time { return h.since.Load().Add(deadTime(h.lease)) }

// guard calls lost when the lease was not renewed for too long. It returns when ctx ends.
func (h *hold) guard(ctx context.Context, lost func()) {
	for {
		left := time.Until(h.since.Load().Add(giveUpTime(h.lease)))
		if left <= 0 {
			lost()
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// changesTime is the shortest time between two looks at what other processes have changed.
const changesTime = 100 * time.Millisecond

// enroll records that this worker has started, and ends what its last process left in
// progress.
func (m *Manager) enroll(ctx context.Context) error {
	if m.cfg.Shared {
		if err := m.takeBack(ctx, false); err != nil {
			return err
		}
	}
	before, err := m.cfg.Store.Workers.Start(ctx, m.Card(), m.process)
	if err != nil {
		return fmt.Errorf("registering this worker: %w", err)
	}
	if err := m.lookAtDrain(ctx); err != nil {
		return err
	}
	if !m.cfg.Shared || !before {
		return nil
	}
	held, err := m.cfg.Store.Leases.Held(ctx)
	if err != nil {
		return fmt.Errorf("finding the runs of the last process of this worker: %w", err)
	}
	m.endLeft(ctx, slices.DeleteFunc(held, func(h store.Held) bool { return h.Worker != m.worker }))
	// What it has adopted is its own in the store too, and not what its last process left.
	reaped, err := m.cfg.Store.Leases.ReapWorker(ctx, m.worker, "the worker stopped before this run had finished; what it did until then is in its transcript", m.adoptedRuns()...)
	if err != nil {
		return fmt.Errorf("ending the runs of the last process of this worker: %w", err)
	}
	m.reaped(ctx, reaped, "a run was in progress when this worker stopped the last time")
	return nil
}

// Card is this worker's description of itself.
func (m *Manager) Card() store.Worker {
	w := m.cfg.Worker
	w.ID, w.Host, w.MaxRuns, w.Lease = m.worker, m.host, int64(m.cfg.MaxRuns), m.cfg.Lease
	w.Names, w.Labels = m.cfg.Capabilities.WorkerHosts, m.cfg.Capabilities.Labels
	w.Isolation, _ = m.cfg.Executor.Isolation()
	w.Blocked = m.Short()
	if w.Isolation == "" {
		w.Blocked = "no walls can be put around runs there"
	}
	if m.stopping.Load() {
		w.Blocked = "it is stopping"
	}
	return w
}

// enrolled tells whether the store knows this manager as a worker. A manager that starts no runs
// is no worker.
func (m *Manager) enrolled() bool { return m.cfg.MaxRuns > 0 && m.cfg.Worker.Kind != "" }

// attend records that this worker is alive, and does what other processes ask of it, until ctx
// ends. In a store that nobody else uses it records nothing. The error is store.ErrSuperseded
// if this worker must stop.
func (m *Manager) attend(ctx context.Context) error {
	changed := m.cfg.Store.Changed()
	beat, poll := time.NewTicker(heartbeat(m.cfg.Lease)), time.NewTicker(pollTime)
	defer beat.Stop()
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if m.cfg.Shared && m.enrolled() {
				if err := m.beat(ctx, false); err != nil {
					return err
				}
			}
			continue
		case <-poll.C:
		case <-changed:
			rest := time.NewTimer(changesTime)
			select {
			case <-ctx.Done():
				rest.Stop()
				return nil
			case <-rest.C:
			}
		}
		if m.cfg.Shared {
			m.desk.Feed().NotifyAll()
			m.obey(ctx)
			m.Wake()
		}
		if m.enrolled() {
			if err := m.lookAtDrain(ctx); err != nil && ctx.Err() == nil {
				m.logger.Warn("looking whether this worker is to start runs", "error", err)
			}
		}
	}
}

// beat records that this worker is alive.
func (m *Manager) beat(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, giveUpTime(m.cfg.Lease))
	defer cancel()
	drain, err := m.cfg.Store.Workers.Beat(ctx, m.Card(), m.process, stopped)
	switch {
	case errors.Is(err, store.ErrSuperseded):
		return fmt.Errorf("%w: its data directory was copied, and both copies run. Give the copy its own identity: remove its file %q", err, IdentityFile)
	case errors.Is(err, store.ErrNotFound) && !stopped: // it was cut off for so long that it was forgotten
		_, err = m.cfg.Store.Workers.Start(ctx, m.Card(), m.process)
	}
	if err != nil {
		m.logger.Warn("telling that this worker is alive", "error", err)
		return nil
	}
	m.drain(drain)
	return nil
}

// IdentityFile is the name of the file in the data directory that has the id of the worker.
const IdentityFile = "worker-id"

func (m *Manager) lookAtDrain(ctx context.Context) error {
	drain, err := m.cfg.Store.Workers.Draining(ctx, m.worker)
	if err == nil {
		m.drain(drain)
	}
	return err
}

func (m *Manager) drain(drain bool) {
	if was := m.draining.Swap(drain); was == drain {
		return
	}
	if drain {
		m.logger.Info("this worker starts no further runs: somebody has asked it to drain", "in_progress", m.Active())
	} else {
		m.logger.Info("this worker starts runs again")
		m.Wake()
	}
}

// obey stops the runs of this worker that another process has asked to stop.
func (m *Manager) obey(ctx context.Context) {
	m.mu.Lock()
	ids := make([]store.RunID, 0, len(m.active))
	for id := range m.active {
		ids = append(ids, id)
	}
	m.mu.Unlock()
	asked, err := m.cfg.Store.Leases.StopsAsked(ctx, ids)
	if err != nil && ctx.Err() == nil {
		m.logger.Warn("looking which runs are to stop", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, stop := range asked {
		if cancel := m.active[id]; cancel != nil {
			cancel(causeOf(stop))
		}
	}
}

// causeOf is the cause of the end of a run that somebody asks to stop.
func causeOf(stop store.Stop) error {
	if stop == store.StopInterrupt {
		return task.ErrInterrupted
	}
	return task.ErrCancelled
}

// reapTime is how often Reap looks.
const reapTime = 5 * time.Second

// Reap ends the attempts of lost workers, until ctx ends. Their runs fail, or are tried again
// if their specs say so. Only one process at a time may call it. It compares no clocks: it ends
// an attempt whose lease it has seen unchanged, by its own clock, for longer than the lease
// lasts. A worker that could not renew its lease for so long has ended the attempt.
func (m *Manager) Reap(ctx context.Context) error {
	known := make(leaseWatch)
	tick := time.NewTicker(min(reapTime, m.cfg.Lease/4))
	defer tick.Stop()
	var forgot time.Time
	for {
		begun := time.Now()
		held, err := m.cfg.Store.Leases.Held(ctx)
		if err != nil && ctx.Err() == nil {
			m.logger.Warn("looking for runs whose worker is lost", "error", err)
		}
		if err == nil {
			lost := known.over(held, begun, func(h store.Held) time.Duration {
				if run.Outlives(h.Isolation) { // another worker may take up the attempt
					return adoptTime
				}
				return 0
			})
			m.reapLost(ctx, lost)
		}
		if time.Since(forgot) > time.Hour {
			forgot = time.Now()
			if err := m.cfg.Store.Workers.Forget(ctx); err != nil && ctx.Err() == nil {
				m.logger.Warn("forgetting workers that are gone", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (m *Manager) reapLost(ctx context.Context, lost []store.Held) {
	lost = slices.DeleteFunc(lost, func(h store.Held) bool { return m.conclude(ctx, h) })
	if len(lost) == 0 {
		return
	}
	names := make(map[string]string)
	if workers, err := m.cfg.Store.Workers.List(ctx); err == nil {
		for _, w := range workers {
			names[w.ID] = w.Name()
		}
	}
	byWorker := make(map[string][]store.Held)
	for _, h := range lost {
		byWorker[h.Worker] = append(byWorker[h.Worker], h)
	}
	for worker, leases := range byWorker {
		who := "its worker"
		if name := names[worker]; name != "" {
			who = "the worker " + name
		}
		reaped, err := m.cfg.Store.Leases.ReapHeld(ctx, leases, who+" was lost before this run had finished; what it did until then is in its transcript")
		if err != nil && ctx.Err() == nil {
			m.logger.Error("ending the runs of a worker that is lost", "worker", worker, "error", err)
		}
		m.reaped(ctx, reaped, "the worker of a run is lost")
	}
}

func (m *Manager) reaped(ctx context.Context, ids []store.RunID, why string) {
	for _, id := range ids {
		if r, err := m.cfg.Store.Runs.Get(ctx, id); err == nil {
			m.logger.Warn(why, "run", id, "state", r.State, "next_attempt", r.RunAt)
			m.desk.Ended(r)
		}
		m.desk.Feed().Notify(id)
	}
	if len(ids) > 0 {
		m.Wake()
	}
}
