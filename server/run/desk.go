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

// Config is the configuration of a Desk, and of the worker of its process.
type Config struct {
	Store        *store.Store
	Capabilities Capabilities

	// Shared is set if other processes use the store too.
	Shared bool
	// Worker has the ID, Kind and Version that the store records of the worker of this
	// process. The worker sets the other fields. Without a Kind, nothing is recorded.
	Worker store.Worker

	// MaxRuns is how many runs may be in progress at once in this process. 0 starts none and
	// leaves them queued (SPEC 13.3).
	MaxRuns int
	// MaxPerAutomation is how many runs of one automation may be in progress at once; 0:
	// any number.
	MaxPerAutomation int

	// Budget limits what all runs may use on a day (UTC), by its fields PerDay.
	Budget factory.Budget

	// These say how long a workspace is kept after the end of the last run that used it.
	// KeepFailed counts if that run has not SUCCEEDED, else KeepWorkspaces. KeepSessions is
	// the least time if its conversation can go on. 0 means DefaultKeepWorkspaces, but for
	// KeepFailed KeepWorkspaces. A negative time means not at all.
	KeepWorkspaces, KeepFailed, KeepSessions time.Duration

	Observe func(Observation) // is called for metrics; nil: there are none
	Now     func() time.Time  // nil means time.Now
	Logger  *slog.Logger      // nil means slog.Default
}

// DefaultKeepWorkspaces is how long workspaces and conversations are kept, unless a Config says
// otherwise.
const DefaultKeepWorkspaces = 24 * time.Hour

// Fill sets fields that are not set to their defaults.
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
	Stop(id store.RunID, asked store.Stop) // stops the agent, if this worker executes the run
	Works() bool                           // whether the worker has begun and has not ended
	Blocked() string                       // why no queued run starts now; empty: nothing keeps all of them waiting
	Full() bool                            // whether another run would have to wait until a run ends
	Card() store.Worker                    // the worker's description of itself

	Preflight(t *task.Task) (task.Place, error)   // task.Executor.Preflight
	Workspace(name string) (path string, ok bool) // task.Executor.Workspace
}

// Desk answers requests about runs: what can be done with them, why they wait, where their files
// are. It does not execute runs.
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

func (d *Desk) works() bool { return d.local != nil && d.local.Works() }

// Observation tells metrics what has just happened to a run here. A zero field did not happen.
type Observation struct {
	Factory, Automation string
	Waited              time.Duration  // from its creation to its first attempt, at least 1 ns
	Used                store.Spending // since the last observation
	Ended               store.RunState
	Took                time.Duration // with Ended: the duration of its last attempt

	// These are of a request to a model that a gateway has carried. With Model, they tell of it.
	Model  string // as the table of prices names it, or else the run
	Priced bool   // the model has a price, and so its name is no stranger's
	Tokens task.Tokens
	Failed bool          // the provider did not answer
	First  time.Duration // the time to the first token; 0: there was no token
}

// Wake tells the worker of this process that runs may have been enqueued. It never blocks.
func (d *Desk) Wake() {
	if d.local != nil {
		d.local.Wake()
	}
}

// Feed lets readers follow runs.
func (d *Desk) Feed() *Feed { return d.feed }

// Cancel cancels a run: a queued run at once, a run in progress by stopping its agent. by
// names the person who asked. For a finished run, the error is store.ErrTerminal.
func (d *Desk) Cancel(ctx context.Context, id store.RunID, by string) error {
	return d.stop(ctx, id, store.StopCancel, by)
}

// Interrupt stops the agent of a run in progress. The conversation can go on in another run.
// The error is store.ErrTerminal for a finished run, and store.ErrConflict for a queued run.
func (d *Desk) Interrupt(ctx context.Context, id store.RunID, by string) error {
	return d.stop(ctx, id, store.StopInterrupt, by)
}

func (d *Desk) stop(ctx context.Context, id store.RunID, asked store.Stop, by string) error {
	r, err := d.cfg.Store.Runs.Stop(ctx, id, asked, by)
	if err != nil {
		return err
	}
	d.stopped(r, asked)
	return nil
}

// Stopped does what follows from runs that a newer event of their subject has cancelled in the
// store (SPEC 21.3).
func (d *Desk) Stopped(ctx context.Context, ids []store.RunID) {
	for _, id := range ids {
		r, err := d.cfg.Store.Runs.Get(ctx, id)
		if err != nil { // a worker stops it all the same when it renews its lease
			d.cfg.Logger.Warn("reading a run that was cancelled in favour of a newer run", "run", id, "error", err)
			continue
		}
		d.stopped(r, store.StopCancel)
	}
}

// Decide decides what waits of a run for a person, as store.Approvals.Decide, and does what follows.
func (d *Desk) Decide(ctx context.Context, asked store.Decision) (*store.Run, error) {
	r, stopped, err := d.cfg.Store.Approvals.Decide(ctx, asked)
	if err != nil {
		return nil, err
	}
	d.feed.Notify(r.ID)
	d.Wake()
	d.Stopped(context.WithoutCancel(ctx), stopped)
	return r, nil
}

// stopped does what follows from a run that was asked to stop in the store.
func (d *Desk) stopped(r *store.Run, asked store.Stop) {
	id := r.ID
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
}

// Continue does what FromConversation does, and refuses if the workspace is gone.
func (d *Desk) Continue(ctx context.Context, of *store.Run, req Request) (store.NewRun, error) {
	if err := d.unusable(ctx, of); err != nil {
		return store.NewRun{}, err
	}
	return FromConversation(ctx, d.cfg.Store, of, req, d.cfg.KeepSessions, d.cfg.Now())
}

// Retry does what FromRun does, and refuses to resume if the workspace is gone.
func (d *Desk) Retry(ctx context.Context, of *store.Run, by Caller, resume bool) (store.NewRun, error) {
	if resume || of.ConversationID != of.ID {
		if err := d.unusable(ctx, of); err != nil {
			return store.NewRun{}, err
		}
	}
	return FromRun(ctx, d.cfg.Store, of, by, resume, d.cfg.KeepSessions, d.cfg.Now())
}

// AtCapacity tells whether another run would have to wait until a run ends.
func (d *Desk) AtCapacity(ctx context.Context) bool {
	if !d.cfg.Shared {
		return d.local == nil || d.local.Full()
	}
	live, err := d.liveWorkers(ctx)
	return err == nil && !slices.ContainsFunc(live, func(w *store.Worker) bool { return !w.Drain && w.Blocked == "" && w.Active < w.MaxRuns })
}

// loggedReason bounds the reason of a failed run in the log, in bytes. The run itself has the
// whole reason.
const loggedReason = 500

// Ended tells the log and the metrics of a run that the caller has just ended. A run that has
// not ended changes nothing.
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
