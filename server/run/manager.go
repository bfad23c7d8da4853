package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"triphammer/factory"
	"triphammer/server/disk"
	"triphammer/server/store"
)

// Config is what a Manager needs.
type Config struct {
	Store    *store.Store
	Executor Executor // nil in a manager that starts no runs

	Capabilities Capabilities

	// MaxRuns is how many runs may be in progress at once. 0 starts none and
	// leaves them queued (SPEC 13.3); a negative number means DefaultMaxRuns.
	MaxRuns int
	// MaxPerAutomation is how many runs of one automation may be in progress at once; 0:
	// no such limit.
	MaxPerAutomation int

	// Budget limits what all runs may use on a day (UTC), by its fields PerDay.
	Budget factory.Budget

	// MaxQueued is how many runs may wait; 0: no limit.
	MaxQueued int

	// Disk tells how much space is left; nil: the manager does not look.
	Disk *disk.Watch

	Grace           time.Duration // the time that runs get when the server stops; 0 means DefaultGrace
	TranscriptLimit int           // bytes per run; 0 means DefaultTranscriptLimit
	ArtifactLimit   int64         // bytes of one artifact; 0 means DefaultArtifactLimit
	ArtifactsLimit  int64         // bytes of all artifacts of a run; 0 means DefaultArtifactsLimit

	// How long workspaces are kept after the end of the last run that used them: in general,
	// if that run has not SUCCEEDED, and at least if its conversation can go on. 0 means
	// DefaultKeepWorkspaces, and of KeepFailed KeepWorkspaces. A negative time means not at all.
	KeepWorkspaces, KeepFailed, KeepSessions time.Duration

	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means slog.Default
}

// Defaults of a Config.
const (
	DefaultMaxRuns        = 4
	DefaultGrace          = 10 * time.Second
	DefaultKeepWorkspaces = 24 * time.Hour
)

const (
	leaseTime = time.Minute
	beatTime  = 10 * time.Second // between renewals of a lease
	pollTime  = 2 * time.Second  // between claims when nothing wakes the manager
	sweepTime = time.Hour
	retryTime = time.Second // between attempts to record an end
	lastTries = 5           // such attempts once the server stops
)

// Manager claims queued runs and brings them to their end.
type Manager struct {
	cfg    Config
	logger *slog.Logger
	worker string
	wake   chan struct{}
	feed   *Feed

	mu     sync.Mutex
	active map[store.RunID]context.CancelCauseFunc

	short atomic.Pointer[string] // why new runs wait for disk space; nil: they do not
	works atomic.Bool            // Run has begun
}

// New makes a Manager. Its method Run starts it.
func New(cfg Config) *Manager {
	if cfg.MaxRuns < 0 {
		cfg.MaxRuns = DefaultMaxRuns
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.TranscriptLimit == 0 {
		cfg.TranscriptLimit = DefaultTranscriptLimit
	}
	cfg.ArtifactLimit = cmp.Or(cfg.ArtifactLimit, DefaultArtifactLimit)
	cfg.ArtifactsLimit = cmp.Or(cfg.ArtifactsLimit, DefaultArtifactsLimit)
	cfg.KeepWorkspaces = cmp.Or(cfg.KeepWorkspaces, DefaultKeepWorkspaces)
	cfg.KeepFailed = cmp.Or(cfg.KeepFailed, cfg.KeepWorkspaces)
	cfg.KeepSessions = cmp.Or(cfg.KeepSessions, DefaultKeepWorkspaces)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // the name only helps people who read the table
	}
	return &Manager{
		cfg: cfg, logger: cfg.Logger,
		worker: host + "/" + strconv.Itoa(os.Getpid()),
		wake:   make(chan struct{}, 1),
		feed:   newFeed(cfg.Store),
		active: make(map[store.RunID]context.CancelCauseFunc),
	}
}

// Wake tells the manager that runs may have been enqueued. It never blocks.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Feed lets readers follow runs.
func (m *Manager) Feed() *Feed { return m.feed }

// Cancel cancels a run: a queued one at once, one in progress by stopping its
// agent. A finished run is store.ErrTerminal.
func (m *Manager) Cancel(ctx context.Context, id store.RunID) error {
	return m.stop(ctx, id, store.StopCancel, ErrCancelled)
}

// Interrupt stops the agent of a run in progress. Its conversation can go on in another
// run. A finished run is store.ErrTerminal, a queued one store.ErrConflict.
func (m *Manager) Interrupt(ctx context.Context, id store.RunID) error {
	return m.stop(ctx, id, store.StopInterrupt, ErrInterrupted)
}

func (m *Manager) stop(ctx context.Context, id store.RunID, asked store.Stop, cause error) error {
	r, err := m.cfg.Store.RequestStop(ctx, id, asked)
	if err != nil {
		return err
	}
	m.feed.notify(id)
	if r.State.Terminal() {
		m.Wake() // another run of its conversation may have waited for it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel, ours := m.active[id]; ours {
		cancel(cause)
	}
	return nil
}

// Continue is FromConversation, of what this server keeps.
func (m *Manager) Continue(ctx context.Context, of *store.Run, req Request) (store.NewRun, error) {
	if err := m.unusable(ctx, of); err != nil {
		return store.NewRun{}, err
	}
	return FromConversation(ctx, m.cfg.Store, of, req, m.cfg.KeepSessions, m.cfg.Now())
}

// Retry is FromRun, of what this server keeps.
func (m *Manager) Retry(ctx context.Context, of *store.Run, by Caller, resume bool) (store.NewRun, error) {
	if resume || of.ConversationID != of.ID {
		if err := m.unusable(ctx, of); err != nil {
			return store.NewRun{}, err
		}
	}
	return FromRun(ctx, m.cfg.Store, of, by, resume, m.cfg.KeepSessions, m.cfg.Now())
}

// Active is how many runs this manager has in progress.
func (m *Manager) Active() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.active)
}

// AtCapacity tells whether another run would have to wait for one to end.
func (m *Manager) AtCapacity() bool { return m.full() != "" }

// Run first ends the runs that a dead server left in progress. Then it claims and
// executes runs until ctx ends. Then it claims no more, gives the runs in progress their
// grace, stops those that remain, and returns when the ends of all are recorded.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.recover(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it began; the next start recovers
		}
		return err
	}
	m.limit(ctx)
	m.lookAtDisk()
	m.works.Store(true)
	defer m.works.Store(false)
	// Runs may go on after ctx for the grace.
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var running sync.WaitGroup
	running.Go(func() { m.sweep(ctx) })
	if m.cfg.Disk != nil {
		running.Go(func() { m.keepRoom(ctx) })
	}
	ended := make(chan struct{}, 1)

	poll, sweep := time.NewTicker(pollTime), time.NewTicker(sweepTime)
	defer poll.Stop()
	defer sweep.Stop()
	for {
		m.claim(ctx, func(l store.Lease) {
			running.Go(func() {
				m.execute(work, l)
				select {
				case ended <- struct{}{}:
				default:
				}
			})
		})
		select {
		case <-ctx.Done():
			m.drain(&running, stop)
			return nil
		case <-sweep.C:
			running.Go(func() { m.sweep(ctx) })
		case <-poll.C:
			if m.cfg.MaxQueued > 0 {
				m.limit(ctx)
			}
		case <-m.wake:
		case <-ended:
		}
	}
}

// recover ends the attempts that were in progress when the last server died, and what is
// left of them (SPEC 9.6). Their runs fail, or are tried again if their specs say so.
func (m *Manager) recover(ctx context.Context) error {
	reaped, err := m.cfg.Store.ReapRuns(ctx, true, "the server stopped before this run had finished; what it did until then is in its transcript")
	if err != nil {
		return fmt.Errorf("failing the runs of the last server: %w", err)
	}
	for _, id := range reaped {
		if r, err := m.cfg.Store.Run(ctx, id); err == nil {
			m.logger.Warn("a run was in progress when the last server stopped", "run", id, "state", r.State, "next_attempt", r.RunAt)
		}
		if err := m.cfg.Executor.Reap(ctx, id.String()); err != nil {
			m.logger.Error("stopping what is left of a run", "run", id, "error", err)
		}
	}
	return nil
}

// limit makes the store count the queue again.
func (m *Manager) limit(ctx context.Context) {
	if err := m.cfg.Store.LimitQueue(ctx, int64(m.cfg.MaxQueued)); err != nil && ctx.Err() == nil {
		m.logger.Warn("counting the queue of runs", "error", err)
	}
}

// full says why no further run starts beside those in progress; empty: there is room.
func (m *Manager) full() string {
	switch active := m.Active(); {
	case m.cfg.MaxRuns == 0:
		return "this server starts no runs (--max-runs 0)"
	case active >= m.cfg.MaxRuns:
		return fmt.Sprintf("%d of %d runs are in progress (--max-runs)", active, m.cfg.MaxRuns)
	}
	return ""
}

// blocked says why no queued run starts now; empty: nothing keeps all of them waiting.
func (m *Manager) blocked() string { return cmp.Or(m.full(), m.Short()) }

// claims says which runs this manager may take now.
func (m *Manager) claims() store.Claim {
	return store.Claim{
		Worker: m.worker, Most: m.cfg.MaxRuns - m.Active(), Lease: leaseTime, PerAutomation: m.cfg.MaxPerAutomation,
		Hosts: m.cfg.Capabilities.WorkerHosts,
	}
}

// claim takes as many queued runs as there is room for.
func (m *Manager) claim(ctx context.Context, start func(store.Lease)) {
	if ctx.Err() != nil || m.full() != "" {
		return
	}
	if m.lookAtDisk(); m.blocked() != "" {
		return
	}
	// A claim must not be interrupted: its runs would wait for the next start.
	leases, err := m.cfg.Store.ClaimRuns(context.WithoutCancel(ctx), m.claims())
	if err != nil {
		if ctx.Err() == nil {
			m.logger.Error("claiming runs; the next attempt follows", "error", err)
		}
		return
	}
	for _, l := range leases {
		m.mu.Lock()
		m.active[l.RunID] = func(error) {} // it counts from here on
		m.mu.Unlock()
		m.feed.notify(l.RunID)
		start(l)
	}
}

// drain waits for the runs: first for as long as the grace, then after stopping
// them.
func (m *Manager) drain(running *sync.WaitGroup, stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	grace := time.NewTimer(m.cfg.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
	}
	stop(ErrStopped)
	<-done
}

// verdict is how a run ended.
type verdict struct {
	state   store.RunState
	message string
	exit    *int64
	again   bool // another attempt may end otherwise
}

func failed(format string, args ...any) verdict {
	return verdict{state: store.FailedRun, message: fmt.Sprintf(format, args...)}
}

// again is failed, of what may go well at another attempt.
func again(format string, args ...any) verdict {
	v := failed(format, args...)
	v.again = true
	return v
}

// execute brings one claimed run to its end.
func (m *Manager) execute(ctx context.Context, l store.Lease) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.mu.Lock()
	m.active[l.RunID] = cancel
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.active, l.RunID)
	}()

	// What is written about the run outlives its own context.
	always := context.WithoutCancel(ctx)
	a := &attempt{manager: m, lease: l, cancel: cancel, logger: m.logger.With("run", l.RunID)}
	a.renew = func(ctx context.Context) (store.Stop, error) { return m.cfg.Store.RenewLease(ctx, l, leaseTime) }
	v := a.run(ctx, always)
	if errors.Is(context.Cause(ctx), errLost) {
		a.logger.Warn("the run was taken away from this worker; its agent is stopped")
		return
	}
	m.finish(ctx, always, a, v)
	m.dispose(always, l.RunID)
}

// giveUp tells whether to stop trying to store how a run ended. ctx is the run's. While
// nobody stops the run, it never gives up.
func giveUp(ctx context.Context, try int, err error) bool {
	return errors.Is(err, store.ErrClosed) || context.Cause(ctx) != nil && try >= lastTries
}

// finish records the end of a run. While the store cannot commit, it tries again, because
// nobody else will record it.
func (m *Manager) finish(ctx, always context.Context, a *attempt, v verdict) {
	for try := 1; ; try++ {
		var next time.Time
		var err error
		if v.again {
			next, err = m.cfg.Store.FailRun(always, a.lease, v.message, v.exit)
		} else {
			err = m.cfg.Store.FinishRun(always, a.lease, v.state, v.message, v.exit)
		}
		switch {
		case err == nil && !next.IsZero():
			m.feed.notify(a.lease.RunID)
			a.logger.Info("an attempt failed; another one follows", "message", v.message, "not_before", next)
			return
		case err == nil:
			m.feed.notify(a.lease.RunID)
			a.logger.Info("run finished", "state", v.state, "message", v.message)
			return
		case errors.Is(err, store.ErrFenced):
			a.logger.Warn("the run ended elsewhere first", "state", v.state)
			return
		}
		a.logger.Error("recording the end of a run; the next attempt follows", "error", err)
		if giveUp(ctx, try, err) {
			return // the next start fails it
		}
		time.Sleep(retryTime)
	}
}
