package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"triphammer/server/disk"
	"triphammer/server/githubapp"
	"triphammer/server/run"
	"triphammer/server/run/price"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Config is what a Manager needs. The embedded run.Config is for its desk, too.
type Config struct {
	run.Config // a negative MaxRuns means DefaultMaxRuns

	Executor task.Executor     // executes the runs
	Apps     *githubapp.Minter // makes the tokens of repositories whose secrets are GitHub Apps; nil: githubapp.New

	// Lease is how long this worker has a run without a renewal; 0 means store.DefaultLease.
	// It matters only if other processes use the store too (run.Config.Shared).
	Lease time.Duration

	// Unguarded keeps agents at work after their lease is over. It is for a test, which shows by it
	// that the test would notice a missing guard.
	Unguarded bool

	// TraceParent is the variable TRACEPARENT of a run, for what the agent calls; the headers are those of
	// the delivery that started it. Nil: runs are not traced.
	TraceParent func(r *store.Run, sent map[string]string) string

	// MaxQueued is how many runs may wait; 0: no limit.
	MaxQueued int

	// Disk tells how much space is left; nil: the manager does not look.
	Disk *disk.Watch

	Grace           time.Duration // how long runs may go on when the server stops; 0 means DefaultGrace
	TranscriptLimit int           // bytes per run; 0 means DefaultTranscriptLimit
	ArtifactLimit   int64         // bytes of one artifact; 0 means DefaultArtifactLimit
	ArtifactsLimit  int64         // bytes of all artifacts of a run; 0 means DefaultArtifactsLimit
}

// Defaults of a Config.
const (
	DefaultMaxRuns = 4
	DefaultGrace   = 10 * time.Second
)

const (
	pollTime  = 2 * time.Second // between claims when nothing wakes the manager
	sweepTime = time.Hour
	retryTime = time.Second // between attempts to record an end
	lastTries = 5           // attempts to record an end once the server stops
)

// Manager claims queued runs and brings them to their end. It is the run.Local of its desk.
type Manager struct {
	cfg     Config
	logger  *slog.Logger
	desk    *run.Desk
	worker  string // id of this worker
	host    string
	shown   string // name of this worker in transcripts
	process string // random id of this process
	wake    chan struct{}

	mu     sync.Mutex
	active map[store.RunID]context.CancelCauseFunc

	short atomic.Pointer[string] // why new runs wait for disk space; nil: they do not
	works atomic.Bool            // Run has begun

	adopted []adoption // the attempts that were adopted when this worker began

	draining atomic.Bool // somebody has asked this worker to start no runs
	stopping atomic.Bool // Run is to end soon
}

// New makes a Manager. Its method Run starts it.
func New(cfg Config) *Manager {
	if cfg.MaxRuns < 0 {
		cfg.MaxRuns = DefaultMaxRuns
	}
	cfg.Grace = cmp.Or(cfg.Grace, DefaultGrace)
	cfg.TranscriptLimit = cmp.Or(cfg.TranscriptLimit, DefaultTranscriptLimit)
	cfg.ArtifactLimit = cmp.Or(cfg.ArtifactLimit, DefaultArtifactLimit)
	cfg.ArtifactsLimit = cmp.Or(cfg.ArtifactsLimit, DefaultArtifactsLimit)
	cfg.Lease = cmp.Or(cfg.Lease, store.DefaultLease)
	cfg.Fill()
	if cfg.Capabilities.Prices == nil {
		cfg.Capabilities.Prices = price.Standard()
	}
	if cfg.Apps == nil {
		cfg.Apps = githubapp.New(cfg.Now)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // the name is only for people
	}
	shown := host + "/" + strconv.Itoa(os.Getpid())
	cfg.Worker.ID = cmp.Or(cfg.Worker.ID, shown)
	if len(cfg.Capabilities.WorkerHosts) > 0 {
		shown = cfg.Capabilities.WorkerHosts[0] + " (" + shown + ")"
	}
	m := &Manager{
		cfg: cfg, logger: cfg.Logger,
		worker: cfg.Worker.ID, host: host, shown: shown, process: rand.Text(),
		wake:   make(chan struct{}, 1),
		active: make(map[store.RunID]context.CancelCauseFunc),
	}
	m.desk = run.NewDesk(cfg.Config, m)
	return m
}

// Desk is the desk of this worker.
func (m *Manager) Desk() *run.Desk { return m.desk }

// Wake tells the manager that runs may have been enqueued. It never blocks.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Works tells whether Run has begun, and has not ended.
func (m *Manager) Works() bool { return m.works.Load() }

// Stop stops the agent of a run, if it is in progress here.
func (m *Manager) Stop(id store.RunID, asked store.Stop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel, ours := m.active[id]; ours {
		cancel(causeOf(asked))
	}
}

// Preflight implements run.Local. It asks the executor.
func (m *Manager) Preflight(t *task.Task) (task.Place, error) {
	return m.cfg.Executor.Preflight(t)
}

// Workspace implements run.Local. It asks the executor.
func (m *Manager) Workspace(name string) (path string, ok bool) {
	return m.cfg.Executor.Workspace(name)
}

// Retire makes the manager start no more runs. Run goes on with its runs in progress.
func (m *Manager) Retire() { m.stopping.Store(true) }

// Active is how many runs this manager has in progress.
func (m *Manager) Active() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.active)
}

// has tells whether this manager has the run in progress.
func (m *Manager) has(id store.RunID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, has := m.active[id]
	return has
}

// Run first ends the runs that a dead server left in progress. Then it claims and executes
// runs until ctx ends. Then it gives the runs in progress their grace, stops the remaining
// runs, and returns when the ends of all runs are recorded.
func (m *Manager) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := m.begin(ctx); err != nil {
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
	always := context.WithoutCancel(ctx)
	work, stop := context.WithCancelCause(always)
	defer stop(nil)
	var running sync.WaitGroup
	running.Go(func() { m.sweep(ctx) })
	if m.cfg.Disk != nil {
		running.Go(func() { m.keepRoom(ctx) })
	}
	// The worker gives signs of life until its last run has ended.
	attending, leave := context.WithCancel(context.WithoutCancel(ctx))
	superseded := make(chan error, 1)
	var attends sync.WaitGroup
	attends.Go(func() {
		if err := m.attend(attending); err != nil {
			superseded <- err
		}
	})
	defer attends.Wait()
	defer leave()
	ended := make(chan struct{}, 1)
	start := func(l store.Lease, begun time.Time, adopted bool) {
		running.Go(func() {
			m.execute(work, l, newHold(m.cfg.Lease, begun), adopted)
			select {
			case ended <- struct{}{}:
			default:
			}
		})
	}
	takeUp := func(one adoption) {
		m.mu.Lock()
		m.active[one.lease.RunID] = func(error) {} // the run counts from here on
		m.mu.Unlock()
		m.desk.Feed().Notify(one.lease.RunID)
		m.logger.Info("a run is taken up that goes on without its worker", "run", one.lease.RunID)
		start(one.lease, one.begun, true)
	}
	for _, one := range m.adopted {
		takeUp(one)
	}
	if _, ok := m.outliving(); ok && m.cfg.Shared {
		running.Go(func() { m.adopt(ctx, takeUp) })
	}

	poll, sweep := time.NewTicker(pollTime), time.NewTicker(sweepTime)
	defer poll.Stop()
	defer sweep.Stop()
	for {
		m.claim(ctx, func(l store.Lease, begun time.Time) { start(l, begun, false) })
		select {
		case <-ctx.Done():
			m.Retire()
			if m.cfg.Shared && m.enrolled() {
				_ = m.beat(attending, false) // attend meets the same error
			}
			m.await(&running, stop)
			leave()
			attends.Wait()
			if m.enrolled() {
				_ = m.beat(always, true)
			}
			return nil
		case err := <-superseded:
			end()
			stop(task.ErrLost) // the other process takes this process for dead, and has its runs
			running.Wait()
			return err
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

// begin takes up what this worker left when it last ended, and enrolls the worker.
func (m *Manager) begin(ctx context.Context) error {
	if !m.cfg.Shared { // with a shared store, runs in progress may belong to other workers
		if err := m.recover(ctx); err != nil {
			return err
		}
	}
	if !m.enrolled() {
		return nil
	}
	return m.enroll(ctx)
}

// recover ends the attempts that were in progress when the last server died, with all their
// processes (SPEC 9.6). Their runs fail, or are tried again if their specs say so.
func (m *Manager) recover(ctx context.Context) error {
	if err := m.takeBack(ctx, true); err != nil {
		return err
	}
	held, err := m.cfg.Store.Leases.Held(ctx)
	if err != nil {
		return fmt.Errorf("finding the runs of the last server: %w", err)
	}
	m.endLeft(ctx, held)
	reaped, err := m.cfg.Store.Leases.Reap(ctx, true, "the server stopped before this run had finished; what it did until then is in its transcript", m.adoptedRuns()...)
	if err != nil {
		return fmt.Errorf("failing the runs of the last server: %w", err)
	}
	m.reaped(ctx, reaped, "a run was in progress when the last server stopped")
	return nil
}

// limit makes the store count the queue again.
func (m *Manager) limit(ctx context.Context) {
	if err := m.cfg.Store.Runs.LimitQueue(ctx, int64(m.cfg.MaxQueued)); err != nil && ctx.Err() == nil {
		m.logger.Warn("counting the queue of runs", "error", err)
	}
}

// full says why no further run starts beside the runs in progress; empty: there is room.
func (m *Manager) full() string {
	switch active := m.Active(); {
	case m.cfg.MaxRuns == 0:
		return "this server starts no runs (--max-runs 0)"
	case m.stopping.Load():
		return "this server is stopping"
	case m.draining.Load():
		return "this worker is drained (triphammer workers resume)"
	case active >= m.cfg.MaxRuns:
		return fmt.Sprintf("%d of %d runs are in progress (--max-runs)", active, m.cfg.MaxRuns)
	}
	return ""
}

// Full tells whether another run would have to wait until a run ends.
func (m *Manager) Full() bool { return m.full() != "" }

// Blocked says why no queued run starts now; empty: nothing keeps all of them waiting.
func (m *Manager) Blocked() string { return cmp.Or(m.full(), m.Short()) }

// claims says which runs this manager may take now.
func (m *Manager) claims() store.Claim {
	return store.Claim{
		Worker: m.worker, Most: m.cfg.MaxRuns - m.Active(), Lease: m.cfg.Lease, PerAutomation: m.cfg.MaxPerAutomation,
		Hosts: m.cfg.Capabilities.Hosts(),
	}
}

// claim takes as many queued runs as there is room for.
func (m *Manager) claim(ctx context.Context, start func(store.Lease, time.Time)) {
	if ctx.Err() != nil || m.full() != "" {
		return
	}
	if m.lookAtDisk(); m.Blocked() != "" {
		return
	}
	if m.cfg.Shared { // turns of the writer are scarce: all workers share them
		if may, err := m.cfg.Store.Leases.MayClaim(ctx); err == nil && !may {
			return
		}
	}
	begun := time.Now()
	// A claim must not be interrupted: its runs would wait for the next start.
	leases, err := m.cfg.Store.Leases.Claim(context.WithoutCancel(ctx), m.claims())
	if err != nil {
		if ctx.Err() == nil {
			m.logger.Error("claiming runs; the next attempt follows", "error", err)
		}
		return
	}
	for _, l := range leases {
		m.mu.Lock()
		m.active[l.RunID] = func(error) {} // the run counts from here on
		m.mu.Unlock()
		m.desk.Feed().Notify(l.RunID)
		start(l, begun)
	}
}

// await waits for the runs: first for the grace, then, after it has stopped them, to their end.
func (m *Manager) await(running *sync.WaitGroup, stop context.CancelCauseFunc) {
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
	stop(task.ErrStopped)
	<-done
}

// verdict is how a run ended.
type verdict struct {
	state   store.RunState
	message string
	exit    *int64
	again   bool // another attempt may end otherwise
	left    bool // the attempt has not ended: it goes on without this worker
}

func failed(format string, args ...any) verdict {
	return verdict{state: store.FailedRun, message: fmt.Sprintf(format, args...)}
}

// again is failed, for a failure that another attempt may avoid.
func again(format string, args ...any) verdict {
	v := failed(format, args...)
	v.again = true
	return v
}

// execute brings one claimed run to its end.
func (m *Manager) execute(ctx context.Context, l store.Lease, h *hold, adopted bool) {
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

	// Writes about the run outlive its own context.
	always := context.WithoutCancel(ctx)
	a := &attempt{manager: m, lease: l, adopted: adopted, beat: beatTime(m.cfg.Lease), cancel: cancel, logger: m.logger.With("run", l.RunID)}
	a.renew = func(ctx context.Context) (store.Stop, error) {
		begun := time.Now()
		stop, err := m.cfg.Store.Leases.Renew(ctx, l, m.cfg.Lease)
		if err == nil {
			h.since.Store(&begun)
		}
		return stop, err
	}
	if m.cfg.Shared && !m.cfg.Unguarded { // only with a shared store can another worker take the run
		a.until = h.until
		go h.guard(ctx, func() {
			a.logger.Error("the lease of a run could not be renewed: this worker gives it up, because another worker may have it soon")
			cancel(task.ErrLost)
		})
	}
	v := a.run(ctx, always)
	if errors.Is(context.Cause(ctx), task.ErrLost) {
		a.logger.Warn("the run was taken away from this worker, or may be soon: this worker gave it up")
		return
	}
	if v.left {
		a.logger.Info("the run goes on without this worker")
		return
	}
	m.finish(ctx, always, a, v)
	if o, ok := m.outliving(); ok && a.number > 0 {
		if err := o.Ended(always, l.RunID.String(), a.number); err != nil {
			a.logger.Warn("removing what is left of an attempt; the next sweep tries again", "error", err)
		}
	}
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
			next, err = m.cfg.Store.Leases.Fail(always, a.lease, v.message, v.exit)
		} else {
			err = m.cfg.Store.Leases.Finish(always, a.lease, v.state, v.message, v.exit, a.transcript.outputs()...)
		}
		switch {
		case err == nil && !next.IsZero():
			m.desk.Feed().Notify(a.lease.RunID)
			a.logger.Info("an attempt failed; another attempt follows", "message", v.message, "not_before", next)
			return
		case err == nil:
			m.desk.Feed().Notify(a.lease.RunID)
			if r, err := m.cfg.Store.Runs.Get(always, a.lease.RunID); err != nil {
				a.logger.Warn("a run has ended that the metrics do not count", "state", v.state, "error", err)
			} else {
				m.desk.Ended(r)
			}
			return
		case errors.Is(err, store.ErrFenced):
			a.logger.Warn("the run ended elsewhere first", "state", v.state)
			return
		}
		a.logger.Error("recording the end of a run; the next attempt follows", "error", err)
		if giveUp(ctx, try, err) {
			return // the next start ends the run
		}
		time.Sleep(retryTime)
	}
}
