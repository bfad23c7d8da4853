// Package applier turns a commit into the live revision, or leaves the old one.
//
// There is one worker per factory, and it is level-triggered: whatever kicks it,
// it takes the newest commit of the production branch (DESIGN 3.5). An apply is
// whole or nothing: any error leaves what serves (SPEC 4.2). A refused commit
// waits for another commit or for the secret that it lacked; what may heal by
// itself is tried again, less and less often.
//
// The package knows no database and no request: what it needs of them are
// functions in its Config.
package applier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
)

// Source is where definitions come from; package gitrepo has them.
type Source interface {
	// Head is the newest commit.
	Head(ctx context.Context) (gitrepo.Commit, error)
	// Tree opens a folder of a commit.
	Tree(ctx context.Context, hash, dir string) (fs.FS, error)
	// Watch calls kick whenever the head may have changed, until ctx is done.
	Watch(ctx context.Context, kick func()) error
	// Describe names the source.
	Describe() (repository, branch string)
}

// Config is what an Applier needs. All functions but OnChange are required.
type Config struct {
	Factory string // its name on this server
	Source  Source
	Path    string // folder of the factory in the repository, "." for its root
	Options factory.Options
	Live    *Live
	// Restored is what the factory served when the server stopped, if anything:
	// its commit is not applied again by itself (SPEC 4.4).
	Restored *Revision

	Secrets func(ctx context.Context, names []string) (map[string]SecretValue, error)
	UIDs    func(ctx context.Context, names []string) (map[string]string, error)
	Spec    func(f *factory.Factory, a *factory.Automation) ([]byte, error)
	// Record keeps an apply of any outcome, in one transaction, and returns its id.
	Record   func(ctx context.Context, a *Apply) (id string, err error)
	OnChange func(State)

	Now    func() time.Time
	Logger *slog.Logger
}

// Outcome of an Apply.
type Outcome string

// The outcomes.
const (
	Applied Outcome = "applied"
	Refused Outcome = "refused" // the definitions are not valid
	Failed  Outcome = "failed"  // something could not be read or written
)

// Apply is one attempt to make a commit live.
type Apply struct {
	ID          string
	Factory     string
	Repository  string
	Branch      string
	Commit      gitrepo.Commit
	Trigger     string // start, watch, push, command, secret, dashboard, retry
	Outcome     Outcome
	Error       string // of a failed one
	Diagnostics schema.Diagnostics
	Plan        Plan
	StartedAt   time.Time
	FinishedAt  time.Time
	Revision    *Revision // of an applied one
	Snapshot    Snapshot  // of an applied one
}

// State is what a factory serves and why not something newer.
type State struct {
	Factory, Repository, Branch, Path string
	Head                              string // hash, empty if it never could be read
	Applied                           *Revision
	LastApply                         *Apply
	Error                             string    // why the newest commit is not live, or empty
	Since                             time.Time // of Error
	NextAttempt                       time.Time // zero: waits for a change
}

const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Applier is the worker of one factory.
type Applier struct {
	cfg   Config
	kicks chan string
	busy  chan struct{} // held by the one apply that runs

	mu      sync.Mutex
	state   State
	settled string   // hash that was applied or refused: not to be tried again by itself
	lacked  []string // secrets for which it was refused
	set     []string // secrets that were set since the present apply began
	refusal refusal
	delay   time.Duration
}

// refusal is why the settled commit does not serve, if it does not.
type refusal struct {
	why   string
	since time.Time
}

// New makes an Applier; Run starts it.
func New(cfg Config) *Applier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(State) {}
	}
	if cfg.Path == "" {
		cfg.Path = "."
	}
	a := &Applier{cfg: cfg, kicks: make(chan string, 1), busy: make(chan struct{}, 1)}
	a.state = State{Factory: cfg.Factory, Path: cfg.Path, Applied: cfg.Restored}
	a.state.Repository, a.state.Branch = cfg.Source.Describe()
	if cfg.Restored != nil {
		a.settled = cfg.Restored.Commit.Hash
	}
	return a
}

// Run watches the source and applies what is new, until ctx is done.
func (a *Applier) Run(ctx context.Context) error {
	watched := make(chan error, 1)
	go func() { watched <- a.cfg.Source.Watch(ctx, func() { a.Kick("watch") }) }()
	a.Kick("start")
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		trigger := ""
		select {
		case <-ctx.Done():
			return <-watched
		case err := <-watched:
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("watching the definitions: %w", err)
		case trigger = <-a.kicks:
		case <-retry.C:
			trigger = "retry"
		}
		a.sync(ctx, trigger, false)
		if wait := a.untilRetry(); wait > 0 {
			retry.Reset(wait)
		} else {
			retry.Stop()
		}
	}
}

// Kick asks for a look at the head; it does not wait, and several are one.
func (a *Applier) Kick(trigger string) {
	select {
	case a.kicks <- trigger:
	default:
	}
}

// Apply applies the head now, even if it is live already (SPEC 4.4), and waits
// for the outcome.
func (a *Applier) Apply(ctx context.Context, trigger string) (*Apply, error) {
	done := a.sync(ctx, trigger, true)
	if done == nil {
		return nil, ctx.Err()
	}
	return done, nil
}

// SecretSet tells that a secret has a new value: an apply that was refused for
// it is tried again (SPEC 4.4).
func (a *Applier) SecretSet(name string) {
	a.mu.Lock()
	a.set = append(a.set, name)
	waiting := a.retryFor(a.set)
	a.mu.Unlock()
	if waiting {
		a.Kick("secret")
	}
}

// retryFor forgets a refusal if one of the secrets is what it lacked. The value
// may have been set while the apply that lacked it was still running.
func (a *Applier) retryFor(set []string) bool {
	if !slices.ContainsFunc(a.lacked, func(name string) bool { return slices.Contains(set, name) }) {
		return false
	}
	a.settled, a.lacked = "", nil
	return true
}

// State is the present state.
func (a *Applier) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

func (a *Applier) untilRetry() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.NextAttempt.IsZero() {
		return 0
	}
	return max(time.Millisecond, a.state.NextAttempt.Sub(a.cfg.Now()))
}

// sync makes the head live if it is not, or if forced. It returns nil if there
// was nothing to do or ctx ended.
func (a *Applier) sync(ctx context.Context, trigger string, force bool) *Apply {
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return nil
	}
	a.mu.Lock()
	a.set = nil
	a.mu.Unlock()
	done := &Apply{Factory: a.cfg.Factory, Trigger: trigger, StartedAt: a.cfg.Now(), Plan: Diff(nil, nil)}
	done.Repository, done.Branch = a.cfg.Source.Describe()
	head, err := a.cfg.Source.Head(ctx)
	if err != nil {
		return a.failed(ctx, done, err, force)
	}
	done.Commit = head
	if !a.wanted(head.Hash) && !force {
		return nil
	}
	built, err := a.build(ctx, done)
	switch {
	case err != nil:
		return a.failed(ctx, done, err, force)
	case built.Revision == nil:
		return a.refused(ctx, done, built)
	}
	return a.applied(ctx, done, built, force)
}

// wanted notes the head and tells whether it is to be applied.
func (a *Applier) wanted(hash string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Head = hash
	if a.settled != hash {
		return true
	}
	if last := a.state.LastApply; last == nil || last.Outcome == Failed {
		// The source can be read again, and nothing in it is new.
		a.heal()
	}
	return false
}

// heal forgets a passing failure; what remains is a refusal, if there is one.
func (a *Applier) heal() {
	a.state.Error, a.state.Since = a.refusal.why, a.refusal.since
	a.state.NextAttempt, a.delay = time.Time{}, 0
}

func (a *Applier) build(ctx context.Context, done *Apply) (*Built, error) {
	tree, err := a.cfg.Source.Tree(ctx, done.Commit.Hash, a.cfg.Path)
	if errors.Is(err, gitrepo.ErrNoFolder) {
		c := schema.Collector{Path: "factory.yaml"}
		c.Error(schema.At{}, schema.MissingFactory, "", err.Error())
		return &Built{Diagnostics: c.Found}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &recorder{FS: tree, read: make(map[string][]byte)}
	built, err := Build(ctx, BuildInput{
		Factory: a.cfg.Factory, Commit: done.Commit, Tree: r, Options: a.cfg.Options,
		Secrets: a.cfg.Secrets, UIDs: a.cfg.UIDs, Spec: a.cfg.Spec,
	})
	if err == nil && built.Revision != nil {
		for _, f := range r.snapshot().Files {
			if built.Revision.Definition.Blob(f.Path) != "" {
				done.Snapshot.Files = append(done.Snapshot.Files, f)
			}
		}
	}
	return built, err
}

func (a *Applier) applied(ctx context.Context, done *Apply, built *Built, force bool) *Apply {
	revision := built.Revision
	previous, _ := a.cfg.Live.Revision(a.cfg.Factory)
	done.Outcome, done.Diagnostics, done.Revision = Applied, built.Diagnostics, revision
	done.Plan = Diff(previous, revision)
	done.FinishedAt = a.cfg.Now()
	revision.AppliedAt = done.FinishedAt
	id, err := a.cfg.Record(ctx, done)
	if err != nil {
		done.Snapshot, done.Revision = Snapshot{}, nil
		return a.failed(ctx, done, fmt.Errorf("recording the apply: %w", err), force)
	}
	done.ID, revision.ApplyID = id, id
	a.cfg.Live.Swap(revision)
	a.finish(done, func() {
		a.settled, a.lacked = done.Commit.Hash, nil
		a.state.Applied, a.refusal = revision, refusal{}
		a.heal()
	})
	a.cfg.Logger.Info("definitions applied", "factory", done.Factory, "commit", done.Commit.Hash, "trigger", done.Trigger,
		"create", len(done.Plan.Create), "update", len(done.Plan.Update), "delete", len(done.Plan.Delete))
	return done
}

func (a *Applier) refused(ctx context.Context, done *Apply, built *Built) *Apply {
	done.Outcome, done.Diagnostics, done.FinishedAt = Refused, built.Diagnostics, a.cfg.Now()
	id, err := a.cfg.Record(ctx, done)
	if err != nil {
		return a.failed(ctx, done, fmt.Errorf("recording the apply: %w", err), false)
	}
	done.ID = id
	errs, _ := built.Diagnostics.Counts()
	a.finish(done, func() {
		a.settled, a.lacked = done.Commit.Hash, built.Lacking
		if a.retryFor(a.set) {
			a.Kick("secret")
		}
		a.refusal = refusal{fmt.Sprintf("commit %.12s is refused: its definitions have errors", done.Commit.Hash), done.FinishedAt}
		a.heal()
	})
	a.cfg.Logger.Warn("definitions refused", "factory", done.Factory, "commit", done.Commit.Hash, "errors", errs, "first", built.Diagnostics[0].Message)
	return done
}

// failed keeps what serves and tries again later. The same failure is recorded
// once, however often it comes.
func (a *Applier) failed(ctx context.Context, done *Apply, err error, force bool) *Apply {
	if ctx.Err() != nil {
		return nil
	}
	done.Outcome, done.Error, done.FinishedAt = Failed, err.Error(), a.cfg.Now()
	state := a.State()
	known := state.Error == done.Error && state.LastApply != nil && state.LastApply.Outcome == Failed
	if !known || force {
		if id, err := a.cfg.Record(ctx, done); err == nil {
			done.ID = id
		}
		a.cfg.Logger.Warn("definitions could not be applied", "factory", done.Factory, "error", done.Error)
	}
	a.finish(done, func() {
		if !known {
			a.state.Since = done.FinishedAt
		}
		a.state.Error = done.Error
		a.delay = min(max(firstRetry, 2*a.delay), lastRetry)
		a.state.NextAttempt = a.cfg.Now().Add(a.delay)
	})
	return done
}

func (a *Applier) finish(done *Apply, update func()) {
	a.mu.Lock()
	update()
	a.state.LastApply = done
	if done.Commit.Hash != "" {
		a.state.Head = done.Commit.Hash
	}
	state := a.state
	a.mu.Unlock()
	a.cfg.OnChange(state)
}
