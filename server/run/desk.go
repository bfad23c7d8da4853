package run

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Config is what a Desk needs, and what it has in common with the worker of its process.
type Config struct {
	Store        *store.Store
	Capabilities Capabilities

	// Shared is set if other processes use the store too.
	Shared bool
	// Worker is what the store is to know of the worker of this process: its ID, Kind and
	// Version. The worker sets the rest. Without a Kind, nothing is recorded.
	Worker store.Worker

	// MaxRuns is how many runs may be in progress at once in this process. 0 starts none and
	// leaves them queued (SPEC 13.3).
	MaxRuns int
	// MaxPerAutomation is how many runs of one automation may be in progress at once; 0:
	// no such limit.
	MaxPerAutomation int

	// Budget limits what all runs may use on a day (UTC), by its fields PerDay.
	Budget factory.Budget

	// How long workspaces are kept after the end of the last run that used them: in general,
	// if that run has not SUCCEEDED, and at least if its conversation can go on. 0 means
	// DefaultKeepWorkspaces, and of KeepFailed KeepWorkspaces. A negative time means not at all.
	KeepWorkspaces, KeepFailed, KeepSessions time.Duration

	Observe func(Observation) // is called with what runs do; nil: nobody is told
	Now     func() time.Time  // nil means time.Now
	Logger  *slog.Logger      // nil means slog.Default
}

// DefaultKeepWorkspaces is how long workspaces and conversations are kept, unless a Config says
// otherwise.
const DefaultKeepWorkspaces = 24 * time.Hour

// Fill sets what is not set to its default.
func (c *Config) Fill() {
	c.KeepWorkspaces = cmp.Or(c.KeepWorkspaces, DefaultKeepWorkspaces)
	c.KeepFailed = cmp.Or(c.KeepFailed, c.KeepWorkspaces)
	c.KeepSessions = cmp.Or(c.KeepSessions, DefaultKeepWorkspaces)
	if c.Observe == nil {
		c.Observe = func(Observation) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Local is the worker of this process, as its Desk sees it.
type Local interface {
	Wake()                                 // runs may have been enqueued; it never blocks
	Stop(id store.RunID, asked store.Stop) // its agent, if this worker executes the run
	Works() bool                           // it has begun, and has not ended
	Blocked() string                       // why no queued run starts now; empty: nothing keeps all of them waiting
	Full() bool                            // a further run would have to wait until one ends
	Card() store.Worker                    // what it tells of itself

	Preflight(t *task.Task) (task.Place, error)   // task.Executor.Preflight
	Workspace(name string) (path string, ok bool) // task.Executor.Workspace
}

// Desk answers what is asked of runs: what can be done with them, why they wait, where they are.
// It executes none.
type Desk struct {
	cfg   Config
	local Local // nil: this process executes no runs and never will
	feed  *Feed
	known workerCache
}

// NewDesk makes a Desk. local may be nil.
func NewDesk(cfg Config, local Local) *Desk {
	cfg.Fill()
	return &Desk{cfg: cfg, local: local, feed: newFeed(cfg.Store)}
}

// works tells whether this process executes runs.
func (d *Desk) works() bool { return d.local != nil && d.local.Works() }

// Observation is what a run has just done here, for metrics. What is zero it did not do.
type Observation struct {
	Factory, Automation string
	Waited              time.Duration  // from its creation to its first attempt, at least 1 ns
	Used                store.Spending // since the last observation
	Ended               store.RunState
	Took                time.Duration // with Ended: its last attempt
}

// Wake tells the worker of this process that runs may have been enqueued. It never blocks.
func (d *Desk) Wake() {
	if d.local != nil {
		d.local.Wake()
	}
}

// Feed lets readers follow runs.
func (d *Desk) Feed() *Feed { return d.feed }

// Cancel cancels a run: a queued one at once, one in progress by stopping its
// agent. by is who asked. A finished run is store.ErrTerminal.
func (d *Desk) Cancel(ctx context.Context, id store.RunID, by string) error {
	return d.stop(ctx, id, store.StopCancel, by)
}

// Interrupt stops the agent of a run in progress. Its conversation can go on in another
// run. A finished run is store.ErrTerminal, a queued one store.ErrConflict.
func (d *Desk) Interrupt(ctx context.Context, id store.RunID, by string) error {
	return d.stop(ctx, id, store.StopInterrupt, by)
}

func (d *Desk) stop(ctx context.Context, id store.RunID, asked store.Stop, by string) error {
	r, err := d.cfg.Store.Runs.Stop(ctx, id, asked, by)
	if err != nil {
		return err
	}
	d.feed.Notify(id)
	if r.State == store.Cancelled && strings.HasSuffix(r.StatusMessage, store.CancelledQueued) { // else its worker ends it
		d.Ended(r)
	}
	if r.State.Terminal() {
		d.Wake() // another run of its conversation may have waited for it
	}
	if d.local != nil {
		d.local.Stop(id, asked)
	}
	return nil
}

// Continue is FromConversation, of what this server keeps.
func (d *Desk) Continue(ctx context.Context, of *store.Run, req Request) (store.NewRun, error) {
	if err := d.unusable(ctx, of); err != nil {
		return store.NewRun{}, err
	}
	return FromConversation(ctx, d.cfg.Store, of, req, d.cfg.KeepSessions, d.cfg.Now())
}

// Retry is FromRun, of what this server keeps.
func (d *Desk) Retry(ctx context.Context, of *store.Run, by Caller, resume bool) (store.NewRun, error) {
	if resume || of.ConversationID != of.ID {
		if err := d.unusable(ctx, of); err != nil {
			return store.NewRun{}, err
		}
	}
	return FromRun(ctx, d.cfg.Store, of, by, resume, d.cfg.KeepSessions, d.cfg.Now())
}

// AtCapacity tells whether another run would have to wait for one to end.
func (d *Desk) AtCapacity(ctx context.Context) bool {
	if !d.cfg.Shared {
		return d.local == nil || d.local.Full()
	}
	live, err := d.liveWorkers(ctx)
	return err == nil && !slices.ContainsFunc(live, func(w *store.Worker) bool { return !w.Drain && w.Blocked == "" && w.Active < w.MaxRuns })
}

// loggedReason bounds the reason of a failed run in the log, in bytes. The run has all of it.
const loggedReason = 500

// Ended tells the log and the metrics of a run, if it has ended. The caller has just ended it.
func (d *Desk) Ended(r *store.Run) {
	if !r.State.Terminal() {
		return
	}
	var took time.Duration
	if !r.StartedAt.IsZero() {
		took = max(0, r.FinishedAt.Sub(r.StartedAt))
	}
	attrs := []any{"run", r.ID, "factory", r.Factory, "automation", r.Automation, "state", r.State, "duration", took.Round(time.Millisecond), "reason", reasonOf(r)}
	if r.State == store.FailedRun {
		d.cfg.Logger.Warn("run failed", attrs...)
	} else {
		d.cfg.Logger.Info("run finished", attrs...)
	}
	d.cfg.Observe(Observation{Factory: r.Factory, Automation: r.Automation, Ended: r.State, Took: took})
}

// reasonOf is the first line of why a run ended as it did.
func reasonOf(r *store.Run) string {
	line, _, _ := strings.Cut(r.StatusMessage, "\n")
	if len(line) > loggedReason {
		line = strings.ToValidUTF8(line[:loggedReason], "") + "…"
	}
	return line
}
