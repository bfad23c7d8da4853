package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
)

// Source is where definitions come from. Package gitrepo implements it.
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

// Config is what an Applier needs: a factory, Source, Live and Ledger.
type Config struct {
	Factory string // the name of the factory on this server
	Source  Source
	Path    string // folder of the factory in the repository, "." for its root
	Options factory.Options
	// Live holds what the factory serves. A revision that it holds before New is the one
	// that served when the server stopped. The commit of that revision is not applied
	// again automatically (SPEC 4.4).
	Live   *Live
	Ledger Ledger
	// Pin is a past commit that must serve, whatever the head of the branch is.
	Pin *Pin
	// Shared tells that other servers apply and pin the factory too.
	Shared bool
	// Verify tells whether a commit may apply (SPEC 4.10). An error that wraps
	// ErrUnverified says why the commit may not apply. Any other error says why the check
	// failed. A warning is about a commit that may apply. If Verify is nil, all commits may apply.
	Verify func(ctx context.Context, hash string) (warning string, err error)
	// Lacks finds what cannot act on this server, for warnings; nil: nothing is looked for.
	Lacks Lacks
	// Trial is as in BuildInput. An apply follows when a secret is set that was not.
	Trial bool
	// OnChange is called with the first state and with every later state, in order. It
	// must not block or call the Applier.
	OnChange func(State)

	Now    func() time.Time
	Logger *slog.Logger
}

// Applier is the worker of one factory.
type Applier struct {
	cfg   Config
	kicks chan struct{}
	busy  chan struct{} // held by the apply that runs; there is only one at a time

	serving sync.Mutex // held from the record of an apply until it serves

	mu      sync.Mutex
	state   State
	pending string           // trigger of the waiting kick
	settled string           // hash of the commit that was applied or refused; it is not tried again automatically
	lacked  map[string]int64 // secrets that were missing or unsuitable at the refusal, with the generation that did not suit
	renewed map[string]bool  // secrets that were set after the last attempt began
	refusal refusal
	failure *failure // nil unless the last attempt failed
	pin     *Pin
	asked   int                // number of callers that wait in Apply
	stop    context.CancelFunc // ends the worker's present look at the source; nil if there is none
	cut     bool               // a kick ended the last look
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
	cfg.Path = cmp.Or(cfg.Path, ".")
	a := &Applier{cfg: cfg, kicks: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
	a.pin = cfg.Pin
	a.state = State{Factory: cfg.Factory, Path: cfg.Path, Pin: cfg.Pin}
	a.state.Repository, a.state.Branch = cfg.Source.Describe()
	if restored, ok := cfg.Live.Revision(cfg.Factory); ok {
		a.state.Applied, a.settled = restored, restored.Commit.Hash
	}
	return a
}

// Run watches the source and applies new commits, until ctx is done.
func (a *Applier) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.cfg.Source.Watch(ctx, func() { a.Kick(watched) }) }()
	a.announce(ctx)
	a.endPin(ctx)
	a.Kick("start")
	secrets := time.NewTicker(secretPoll)
	defer secrets.Stop()
	retry := time.NewTimer(lastRetry)
	retry.Stop()
	defer retry.Stop()
	for {
		var trigger string
		select {
		case <-ctx.Done():
			return <-ended
		case err := <-ended:
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("watching the definitions: %w", err)
		case <-a.kicks:
			trigger = a.takeKick()
		case <-retry.C:
			trigger = "retry"
		case <-secrets.C:
			a.lookForSecrets(ctx)
			continue
		}
		a.sync(ctx, trigger, false)
		if wait := a.untilWake(); wait > 0 {
			retry.Reset(wait)
		} else {
			retry.Stop()
		}
	}
}

// announce calls OnChange with the state in which the worker begins.
func (a *Applier) announce(ctx context.Context) {
	select {
	case a.busy <- struct{}{}:
		a.cfg.OnChange(a.State())
		<-a.busy
	case <-ctx.Done():
	}
}

// Apply applies the head now, even if it is live already (SPEC 4.4), and waits for the
// outcome. It returns an error only if ctx ends before the outcome.
//
// Apply ends a look at the source that the worker has begun. Otherwise a repository that
// does not answer would delay somebody who pins a commit.
func (a *Applier) Apply(ctx context.Context, trigger string) (*Apply, error) {
	defer a.ask()()
	done := a.sync(ctx, trigger, true)
	if done == nil {
		return nil, context.Cause(ctx)
	}
	return done, nil
}

// sync makes the head live if it is not live yet, or if force is set. It returns nil if
// there was nothing to do, or if ctx ended.
func (a *Applier) sync(ctx context.Context, trigger string, force bool) *Apply {
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		return nil
	}
	a.mu.Lock()
	if !force {
		if a.asked > 0 {
			a.mu.Unlock()
			return nil // a caller of Apply is waiting, and will look at the head
		}
		ctx, a.stop = context.WithCancel(ctx)
		defer func(stop context.CancelFunc) {
			stop()
			a.mu.Lock()
			a.stop = nil
			a.mu.Unlock()
		}(a.stop)
	}
	a.mu.Unlock()
	return a.attempt(ctx, trigger, force)
}

// attempt is sync for a caller that holds a.busy. If another apply became live meanwhile,
// attempt tries again.
func (a *Applier) attempt(ctx context.Context, trigger string, force bool) *Apply {
	for try := 1; ; try++ {
		done, err := a.try(ctx, trigger, force)
		if err == nil {
			return done
		}
		if err = errors.Join(err, a.Follow(ctx)); try == maxSuperseded || !errors.Is(err, ErrSuperseded) {
			return a.failed(ctx, done, fmt.Errorf("recording the apply: %w", err), force)
		}
	}
}

// try is one attempt. Its error is about the record of an apply.
func (a *Applier) try(ctx context.Context, trigger string, force bool) (*Apply, error) {
	a.mu.Lock()
	a.renewed = nil
	a.mu.Unlock()
	done := &Apply{Factory: a.cfg.Factory, Trigger: trigger, StartedAt: a.cfg.Now(), Plan: Diff(nil, nil)}
	done.Repository, done.Branch = a.cfg.Source.Describe()
	var err error
	if done.Base, err = a.cfg.Ledger.Live(ctx, a.cfg.Factory); err != nil { // before the head is read
		return a.failed(ctx, done, err, force), nil
	}
	wanted, err := a.find(ctx, done, force)
	if err != nil {
		return a.failed(ctx, done, err, force), nil
	}
	if !wanted {
		return nil, nil
	}
	found, err := a.verify(ctx, done)
	if errors.Is(err, gitrepo.ErrUnverified) {
		return a.refused(ctx, done, &Built{Diagnostics: found}, Unverified), nil
	}
	var built *Built
	if err == nil {
		built, err = a.build(ctx, done)
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case err != nil:
		return a.failed(ctx, done, err, force), nil
	}
	built.Diagnostics = append(found, built.Diagnostics...)
	if built.Revision == nil {
		return a.refused(ctx, done, built, Invalid), nil
	}
	return a.applied(ctx, done, built)
}

// find sets the commit that should serve, and tells whether to apply it.
func (a *Applier) find(ctx context.Context, done *Apply, force bool) (wanted bool, _ error) {
	pin, err := a.pinned(ctx)
	if err != nil {
		return false, err
	}
	if pin == nil {
		head, err := a.head(ctx)
		if err != nil {
			return false, err
		}
		done.Commit = head
		return force || a.wanted(head.Hash, head.Hash, done.Trigger), nil
	}
	if !force {
		// The head is read only to be shown. The pinned commit can apply without it.
		head, _ := a.head(ctx)
		if ctx.Err() != nil || !a.wanted(head.Hash, pin.Commit, done.Trigger) {
			return false, nil
		}
	}
	commit, tree, err := a.cfg.Ledger.Past(ctx, a.cfg.Factory, pin.Commit)
	if err != nil {
		return false, err
	}
	done.Commit, done.past = commit, tree
	return true, nil
}

// verify returns the findings about the commit itself. A pinned commit is not verified
// again.
func (a *Applier) verify(ctx context.Context, done *Apply) (schema.Diagnostics, error) {
	if done.past != nil || a.cfg.Verify == nil {
		return nil, nil
	}
	c := schema.Collector{}
	warning, err := a.cfg.Verify(ctx, done.Commit.Hash)
	switch {
	case warning != "":
		c.Warn(schema.At{}, schema.ExpiredSigner, "", warning)
	case errors.Is(err, gitrepo.ErrUnverified):
		c.Error(schema.At{}, schema.UnverifiedCommit, "", err.Error())
	}
	return c.Found, err
}

// build reads and compiles a commit. It turns a panic into an error, because no commit
// may take down the server.
func (a *Applier) build(ctx context.Context, done *Apply) (built *Built, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.cfg.Logger.Error("panic while applying definitions", "factory", a.cfg.Factory, "commit", done.Commit.Hash,
				"panic", p, "stack", string(debug.Stack()))
			built, err = nil, fmt.Errorf("internal error while applying %.12s: %v", done.Commit.Hash, p)
		}
	}()
	tree, missing, err := a.tree(ctx, done)
	if tree == nil {
		return &Built{Diagnostics: missing}, err
	}
	r := NewRecorder(tree)
	built, err = a.compile(ctx, done.Commit, r)
	if err == nil && built.Revision != nil {
		for _, f := range r.Snapshot().Files {
			if built.Revision.Definition.Blob(f.Path) != "" {
				done.Snapshot.Files = append(done.Snapshot.Files, f)
			}
		}
	}
	return built, err
}

// compile makes a revision, with the secrets, UIDs and specs of the ledger.
func (a *Applier) compile(ctx context.Context, commit gitrepo.Commit, tree fs.FS) (*Built, error) {
	l := a.cfg.Ledger
	return Build(ctx, BuildInput{
		Factory: a.cfg.Factory, Commit: commit, Tree: tree, Options: a.cfg.Options, Secrets: l.Secrets, UIDs: l.UIDs, Spec: l.Spec, Lacks: a.cfg.Lacks, Trial: a.cfg.Trial,
	})
}

func (a *Applier) applied(ctx context.Context, done *Apply, built *Built) (*Apply, error) {
	revision := built.Revision
	a.serving.Lock()
	defer a.serving.Unlock()
	previous, _ := a.cfg.Live.Revision(a.cfg.Factory)
	done.Outcome, done.Diagnostics, done.Revision = Applied, built.Diagnostics, revision
	done.Plan = Diff(previous, revision)
	done.FinishedAt = a.cfg.Now()
	revision.AppliedAt = done.FinishedAt
	id, err := a.cfg.Ledger.Record(context.WithoutCancel(ctx), done)
	done.Snapshot = Snapshot{} // free up to 16 MiB, which the state does not need
	if err != nil {
		done.Revision = nil
		return done, err
	}
	done.ID, revision.ApplyID = id, id
	a.cfg.Live.Swap(revision)
	a.finish(done, func() {
		a.settled, a.lacked = done.Commit.Hash, built.Lacking // of a trial
		a.state.Applied, a.refusal, a.failure = revision, refusal{}, nil
	})
	a.cfg.Logger.Info("definitions applied", "factory", done.Factory, "commit", done.Commit.Hash, "trigger", done.Trigger,
		"create", len(done.Plan.Create), "update", len(done.Plan.Update), "delete", len(done.Plan.Delete))
	return done, nil
}

// finish makes done the last apply in the state, after update has changed other fields.
func (a *Applier) finish(done *Apply, update func()) {
	a.mu.Lock()
	update()
	if last := a.state.LastApply; done.Outcome != Failed || done.ID != "" || last == nil || last.Error != done.Error {
		a.state.LastApply = done
	}
	if done.Commit.Hash != "" && done.past == nil {
		a.state.Head = done.Commit.Hash
	}
	state := a.explain()
	a.mu.Unlock()
	a.cfg.OnChange(state)
}
