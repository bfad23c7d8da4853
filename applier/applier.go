// Package applier turns a commit into the live revision, or leaves the old one.
//
// There is one worker per factory, and it is level-triggered: whatever kicks it,
// it takes the newest commit of the production branch. An apply is
// whole or nothing: any error leaves what serves (SPEC 4.2).
//
// A commit that was applied or refused is settled: it waits for another commit,
// for the secret that it lacked, or for somebody who asks. What may heal by itself
// (a repository that cannot be read, a record that cannot be written) is a failure
// and is tried again, less and less often. A newer commit is tried at once.
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
	"maps"
	"math/rand/v2"
	"runtime/debug"
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

// Config is what an Applier needs: a factory, Source, Live and Ledger.
type Config struct {
	Factory string // its name on this server
	Source  Source
	Path    string // folder of the factory in the repository, "." for its root
	Options factory.Options
	// Live is where the factory serves. What it serves already, before New, is what
	// it served when the server stopped: that commit is not applied again by itself
	// (SPEC 4.4).
	Live   *Live
	Ledger Ledger
	// Pin is a past commit that is to serve, whatever the branch says.
	Pin *Pin
	// Verify returns why a commit must not apply (SPEC 4.10), an error that is an
	// ErrUnverified, or another one if that could not be found out; or a warning of
	// one that may. nil: all may.
	Verify func(ctx context.Context, hash string) (warning string, err error)
	// OnChange hears of the first state and of every change, in order; it must not
	// block or call the Applier.
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
	Trigger     string // start, watch, push, command, secret, dashboard, retry, pin, unpin
	Outcome     Outcome
	Error       string // of a failed one
	Diagnostics schema.Diagnostics
	Plan        Plan
	StartedAt   time.Time
	FinishedAt  time.Time
	Revision    *Revision // of an applied one
	Snapshot    Snapshot  // of an applied one, for Record alone

	past fs.FS // the files of a pinned commit
}

// Valid tells whether the definitions themselves are valid, whatever secrets this
// server lacks for them; known is false if they were not read to the end.
func (a *Apply) Valid() (valid, known bool) {
	valid, known = true, a.Outcome == Applied || a.Outcome == Refused
	for _, d := range a.Diagnostics {
		switch {
		case d.Code == schema.UnverifiedCommit:
			known = false
		case d.Severity == schema.Error && d.Code != schema.MissingSecret && d.Code != schema.BadSecret:
			valid = false
		}
	}
	return valid, known
}

// Pin keeps a past commit live.
type Pin struct {
	Commit string    `json:"commit"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is unpinned
}

// State is what a factory serves and why not something newer.
type State struct {
	Factory, Repository, Branch, Path string
	Head                              string    // hash, empty if it never could be read
	Checked                           time.Time // when the head was last read
	Looking                           time.Time // since when the present look at the head lasts, zero: there is none
	Applied                           *Revision
	LastApply                         *Apply
	Pin                               *Pin
	Error                             string    // why the newest commit is not live, or empty
	Reason                            Reason    // the same as one word
	Since                             time.Time // of Error
	NextAttempt                       time.Time // zero: waits for a change
}

// Reason is what kind of thing keeps the newest commit from serving.
type Reason string

// The reasons. A refusal waits for another commit or secret; the others heal by
// themselves.
const (
	Invalid       Reason = "invalid"    // its definitions have errors
	Unverified    Reason = "unverified" // no allowed key signed it
	NoBranch      Reason = "no_branch"  // the repository has no such branch
	NoRepository  Reason = "no_repository"
	Denied        Reason = "denied"        // the repository refuses the credential
	Unreachable   Reason = "unreachable"   // the repository does not answer as it should
	Misconfigured Reason = "misconfigured" // a file or setting of the server that says how to read it is missing or wrong
	Damaged       Reason = "damaged"       // an object of the repository cannot be read
	Other         Reason = "other"         // what Error says
)

func reasonOf(err error) Reason {
	for _, r := range []struct {
		err    error
		reason Reason
	}{
		{gitrepo.ErrNoBranch, NoBranch},
		{gitrepo.ErrNoRepository, NoRepository},
		{gitrepo.ErrUnsupported, NoRepository},
		{gitrepo.ErrDenied, Denied},
		{gitrepo.ErrUnreachable, Unreachable},
		{gitrepo.ErrMisconfigured, Misconfigured},
		{gitrepo.ErrCorrupt, Damaged},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return Other
}

// The time from a failure to the next attempt doubles between these, less up to
// a fifth, so that many servers do not come back at once.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// secretPoll is how often a commit that was refused for a secret looks for that: it
// may be in a folder beside the program.
const secretPoll = 5 * time.Second

// slowLook is how long a look lasts before a kick ends it to begin anew.
const slowLook = 10 * time.Second

// watched is the trigger of a kick that only says "look": it does not hurry a
// failed commit.
const watched = "watch"

// Applier is the worker of one factory.
type Applier struct {
	cfg   Config
	kicks chan struct{}
	busy  chan struct{} // held by the one apply that runs

	mu      sync.Mutex
	state   State
	pending string           // trigger of the kick that waits
	settled string           // hash that was applied or refused: not to be tried again by itself
	lacked  map[string]int64 // secrets for which it was refused, and the generation that did not suit, if any
	renewed map[string]bool  // secrets that were set since the last attempt began
	refusal refusal
	failure *failure // nil unless the last attempt failed
	pin     *Pin
	asked   int                // how many wait in Apply
	stop    context.CancelFunc // ends the look that the worker takes, or nil
	cut     bool               // the last one was ended by a kick
}

// refusal is why the settled commit does not serve, if it does not.
type refusal struct {
	why    string
	reason Reason
	since  time.Time
}

// failure is an attempt that may succeed later.
type failure struct {
	hash     string // of the commit, empty if the head could not be read
	why      string
	reason   Reason
	since    time.Time
	delay    time.Duration
	next     time.Time
	recorded bool
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
	a := &Applier{cfg: cfg, kicks: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
	a.pin = cfg.Pin
	a.state = State{Factory: cfg.Factory, Path: cfg.Path, Pin: cfg.Pin}
	a.state.Repository, a.state.Branch = cfg.Source.Describe()
	if restored, ok := cfg.Live.Revision(cfg.Factory); ok {
		a.state.Applied, a.settled = restored, restored.Commit.Hash
	}
	return a
}

// Run watches the source and applies what is new, until ctx is done.
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

// announce tells OnChange the state that the worker begins with.
func (a *Applier) announce(ctx context.Context) {
	select {
	case a.busy <- struct{}{}:
		a.cfg.OnChange(a.State())
		<-a.busy
	case <-ctx.Done():
	}
}

// Kick asks for a look at the head; it does not wait, and several are one. Unless
// it comes from watching, it ends a look that gets nowhere, but not two in a row: a
// large fetch has to come to its end.
func (a *Applier) Kick(trigger string) {
	a.mu.Lock()
	if a.pending == "" || a.pending == watched {
		a.pending = trigger
	}
	if begun := a.state.Looking; trigger != watched && a.stop != nil && !a.cut && !begun.IsZero() && a.cfg.Now().Sub(begun) > slowLook {
		a.cut = true
		a.stop()
	}
	a.mu.Unlock()
	select {
	case a.kicks <- struct{}{}:
	default:
	}
}

func (a *Applier) takeKick() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	trigger := a.pending
	a.pending = ""
	return trigger
}

// Apply applies the head now, even if it is live already (SPEC 4.4), and waits
// for the outcome. The error is only that of a ctx that ended before.
//
// It does not wait for a look that the worker takes: a repository that does not
// answer must not be in the way of somebody who pins a commit.
func (a *Applier) Apply(ctx context.Context, trigger string) (*Apply, error) {
	a.mu.Lock()
	a.asked++
	if a.stop != nil {
		a.stop()
	}
	a.mu.Unlock()
	done := a.sync(ctx, trigger, true)
	a.mu.Lock()
	a.asked--
	a.mu.Unlock()
	a.Kick(watched) // the worker may have to wait for another time now
	if done == nil {
		return nil, context.Cause(ctx)
	}
	return done, nil
}

// SecretSet tells that a secret has a new value: an apply that was refused for
// it is tried again (SPEC 4.4).
func (a *Applier) SecretSet(name string) {
	a.mu.Lock()
	if a.renewed == nil {
		a.renewed = make(map[string]bool)
	}
	a.renewed[name] = true
	_, waiting := a.lacked[name]
	if waiting {
		a.settled, a.lacked = "", nil
	}
	a.mu.Unlock()
	if waiting {
		a.Kick("secret")
	}
}

// lookForSecrets tells of those that were lacking and have another value now.
func (a *Applier) lookForSecrets(ctx context.Context) {
	a.mu.Lock()
	lacked := maps.Clone(a.lacked)
	a.mu.Unlock()
	if len(lacked) == 0 {
		return
	}
	values, err := a.cfg.Ledger.Secrets(ctx, slices.Sorted(maps.Keys(lacked)))
	for name, generation := range lacked {
		// Of one that cannot be read the apply says why.
		if v := values[name]; v.Generation != generation || err != nil && ctx.Err() == nil {
			a.SecretSet(name)
		}
	}
}

// State is the present state.
func (a *Applier) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// untilWake is the time until there is something to do without a kick, 0 if
// there is nothing.
func (a *Applier) untilWake() (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sooner := func(at time.Time) {
		if d := max(time.Millisecond, at.Sub(a.cfg.Now())); wait == 0 || d < wait {
			wait = d
		}
	}
	if a.failure != nil {
		sooner(a.failure.next)
	}
	if a.pin != nil && !a.pin.Until.IsZero() {
		sooner(a.pin.Until)
	}
	return wait
}

// SetPin makes a past commit the one to serve from the next look on, or with nil
// the head of the branch again.
func (a *Applier) SetPin(p *Pin) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pin, a.state.Pin = p, p
}

// pinned is the pin in force; one that has expired ends here.
func (a *Applier) pinned(ctx context.Context) *Pin {
	a.mu.Lock()
	p := a.pin
	over := p != nil && !p.Until.IsZero() && !a.cfg.Now().Before(p.Until)
	if over {
		a.pin, a.state.Pin, p = nil, nil, nil
	}
	a.mu.Unlock()
	if over {
		a.endPin(ctx)
	}
	return p
}

func (a *Applier) endPin(ctx context.Context) {
	if err := a.cfg.Ledger.EndPin(context.WithoutCancel(ctx), a.cfg.Factory); err != nil {
		a.cfg.Logger.Error("the end of a pin could not be recorded; the next start tries again", "factory", a.cfg.Factory, "error", err)
	}
}

// head looks at the source.
func (a *Applier) head(ctx context.Context) (gitrepo.Commit, error) {
	note := func(looking time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.state.Looking = looking
	}
	note(a.cfg.Now())
	defer note(time.Time{})
	head, err := a.cfg.Source.Head(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() == nil {
		a.cut = false
	}
	if err == nil {
		a.state.Checked = a.cfg.Now()
	}
	if errors.Is(err, gitrepo.ErrEmpty) && a.state.Applied != nil {
		err = fmt.Errorf("%w: the branch %q of %s is gone, and there is no other; %.12s keeps serving until it is pushed again",
			gitrepo.ErrNoBranch, a.state.Branch, a.state.Repository, a.state.Applied.Commit.Hash)
	}
	return head, err
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
	if !force {
		if a.asked > 0 {
			a.mu.Unlock()
			return nil // who waits looks, too
		}
		ctx, a.stop = context.WithCancel(ctx)
		defer func(stop context.CancelFunc) {
			stop()
			a.mu.Lock()
			a.stop = nil
			a.mu.Unlock()
		}(a.stop)
	}
	a.renewed = nil
	a.mu.Unlock()
	done := &Apply{Factory: a.cfg.Factory, Trigger: trigger, StartedAt: a.cfg.Now(), Plan: Diff(nil, nil)}
	done.Repository, done.Branch = a.cfg.Source.Describe()
	pin := a.pinned(ctx)
	var head gitrepo.Commit
	var err error
	if pin == nil || !force { // what is pinned is had without the repository
		head, err = a.head(ctx)
	}
	if pin != nil {
		// What the branch does is shown, and waits.
		if !force && (ctx.Err() != nil || !a.wanted(head.Hash, pin.Commit, trigger)) {
			return nil
		}
		head, done.past, err = a.cfg.Ledger.Past(ctx, a.cfg.Factory, pin.Commit)
	}
	if err != nil {
		return a.failed(ctx, done, err, force)
	}
	done.Commit = head
	if done.past == nil && !force && !a.wanted(head.Hash, head.Hash, trigger) {
		return nil
	}
	c := schema.Collector{} // of findings about the commit itself
	if done.past == nil && a.cfg.Verify != nil {
		switch warning, err := a.cfg.Verify(ctx, head.Hash); {
		case warning != "":
			c.Warn(schema.At{}, schema.ExpiredSigner, "", warning)
		case errors.Is(err, gitrepo.ErrUnverified):
			c.Error(schema.At{}, schema.UnverifiedCommit, "", err.Error())
			return a.refused(ctx, done, &Built{Diagnostics: c.Found}, Unverified)
		case err != nil:
			return a.failed(ctx, done, err, force)
		}
	}
	built, err := a.build(ctx, done)
	if err == nil {
		built.Diagnostics = append(c.Found, built.Diagnostics...)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return a.failed(ctx, done, err, force)
	case built.Revision == nil:
		return a.refused(ctx, done, built, Invalid)
	}
	return a.applied(ctx, done, built, force)
}

// wanted notes the head, if there is one, and tells whether the commit that is to
// serve is to be applied.
func (a *Applier) wanted(head, hash, trigger string) bool {
	a.mu.Lock()
	f := a.failure
	changed := f != nil || head != "" && a.state.Head != head
	if head != "" {
		a.state.Head = head
	}
	if a.settled != hash {
		a.mu.Unlock()
		return f == nil || f.hash != hash || trigger != watched || !a.cfg.Now().Before(f.next)
	}
	a.failure = nil // the source can be read again, and nothing in it is new
	state := a.explain()
	a.mu.Unlock()
	if changed {
		a.cfg.OnChange(state)
	}
	return false
}

// explain derives what the state says about the newest commit: a failure hides
// the refusal before it. a.mu is held.
func (a *Applier) explain() State {
	a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = a.refusal.why, a.refusal.reason, a.refusal.since, time.Time{}
	if f := a.failure; f != nil {
		a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = f.why, f.reason, f.since, f.next
	}
	return a.state
}

// build reads and compiles a commit. A panic is a failure like any other: one
// commit must not take down what serves.
func (a *Applier) build(ctx context.Context, done *Apply) (built *Built, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.cfg.Logger.Error("panic while applying definitions", "factory", a.cfg.Factory, "commit", done.Commit.Hash, "panic", p, "stack", string(debug.Stack()))
			built, err = nil, fmt.Errorf("internal error while applying %.12s: %v", done.Commit.Hash, p)
		}
	}()
	tree := done.past
	if tree == nil {
		tree, err = a.cfg.Source.Tree(ctx, done.Commit.Hash, a.cfg.Path)
	}
	if errors.Is(err, gitrepo.ErrNoFolder) {
		c := schema.Collector{Path: "factory.yaml"}
		c.Error(schema.At{}, schema.MissingFactory, "", err.Error())
		return &Built{Diagnostics: c.Found}, nil
	}
	if err != nil {
		return nil, err
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

// compile makes a revision with what the ledger has.
func (a *Applier) compile(ctx context.Context, commit gitrepo.Commit, tree fs.FS) (*Built, error) {
	l := a.cfg.Ledger
	return Build(ctx, BuildInput{
		Factory: a.cfg.Factory, Commit: commit, Tree: tree, Options: a.cfg.Options, Secrets: l.Secrets, UIDs: l.UIDs, Spec: l.Spec,
	})
}

func (a *Applier) applied(ctx context.Context, done *Apply, built *Built, force bool) *Apply {
	revision := built.Revision
	previous, _ := a.cfg.Live.Revision(a.cfg.Factory)
	done.Outcome, done.Diagnostics, done.Revision = Applied, built.Diagnostics, revision
	done.Plan = Diff(previous, revision)
	done.FinishedAt = a.cfg.Now()
	revision.AppliedAt = done.FinishedAt
	id, err := a.cfg.Ledger.Record(context.WithoutCancel(ctx), done)
	done.Snapshot = Snapshot{} // up to 16 MiB that the state need not hold
	if err != nil {
		done.Revision = nil
		return a.failed(ctx, done, fmt.Errorf("recording the apply: %w", err), force)
	}
	done.ID, revision.ApplyID = id, id
	a.cfg.Live.Swap(revision)
	a.finish(done, func() {
		a.settled, a.lacked = done.Commit.Hash, nil
		a.state.Applied, a.refusal, a.failure = revision, refusal{}, nil
	})
	a.cfg.Logger.Info("definitions applied", "factory", done.Factory, "commit", done.Commit.Hash, "trigger", done.Trigger,
		"create", len(done.Plan.Create), "update", len(done.Plan.Update), "delete", len(done.Plan.Delete))
	return done
}

func (a *Applier) refused(ctx context.Context, done *Apply, built *Built, reason Reason) *Apply {
	done.Outcome, done.Diagnostics, done.FinishedAt = Refused, built.Diagnostics, a.cfg.Now()
	id, err := a.cfg.Ledger.Record(context.WithoutCancel(ctx), done)
	if err != nil {
		return a.failed(ctx, done, fmt.Errorf("recording the apply: %w", err), false)
	}
	done.ID = id
	first := summary(built.Diagnostics)
	late := false
	a.finish(done, func() {
		a.settled, a.lacked = done.Commit.Hash, built.Lacking
		a.refusal = refusal{fmt.Sprintf("commit %.12s is refused: %s", done.Commit.Hash, first), reason, done.FinishedAt}
		a.failure = nil
		// A secret that was set after it had been looked for.
		for name := range built.Lacking {
			late = late || a.renewed[name]
		}
		if late {
			a.settled, a.lacked = "", nil
		}
	})
	if late {
		a.Kick("secret")
	}
	a.cfg.Logger.Warn("definitions refused", "factory", done.Factory, "commit", done.Commit.Hash, "first", first)
	return done
}

// summary is the first error, and how many more there are.
func summary(all schema.Diagnostics) string {
	i := slices.IndexFunc(all, func(d schema.Diagnostic) bool { return d.Severity == schema.Error })
	if i < 0 {
		return "its definitions have errors"
	}
	text := all[i].Message
	if where := all[i].Path; where != "" {
		if all[i].Line > 0 {
			where += fmt.Sprintf(":%d", all[i].Line)
		}
		text = where + ": " + text
	}
	if n, _ := all.Counts(); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text
}

// failed keeps what serves and has it tried again later. The same failure is
// recorded once, however often it comes.
func (a *Applier) failed(ctx context.Context, done *Apply, err error, force bool) *Apply {
	if ctx.Err() != nil {
		return nil
	}
	done.Outcome, done.Error, done.FinishedAt = Failed, err.Error(), a.cfg.Now()
	a.mu.Lock()
	f := failure{hash: done.Commit.Hash, why: done.Error, reason: reasonOf(err), since: done.FinishedAt}
	if last := a.failure; last != nil && last.hash == f.hash {
		f.delay = last.delay
		// The words of one problem can differ each time, by a port for instance.
		if last.why == f.why || last.reason == f.reason && f.reason != Other {
			why := f.why
			f = *last
			f.why = why
		}
	}
	a.mu.Unlock()
	if done.Trigger == watched && !force && done.FinishedAt.Before(f.next) {
		return done // the same again, before its time
	}
	if !f.recorded || force {
		id, err := a.cfg.Ledger.Record(context.WithoutCancel(ctx), done)
		done.ID, f.recorded = id, err == nil
		a.cfg.Logger.Warn("definitions could not be applied", "factory", done.Factory, "error", done.Error)
	}
	f.delay = min(max(firstRetry, 2*f.delay), lastRetry)
	f.next = a.cfg.Now().Add(f.delay - rand.N(f.delay/5))
	a.finish(done, func() { a.failure = &f })
	return done
}

// finish makes an attempt the last one, with what else it changes.
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
