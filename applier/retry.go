package applier

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"triphammer/applier/gitrepo"
)

// The time from a failure to the next attempt starts at firstRetry and doubles up to
// lastRetry. It is shortened at random by up to a fifth, so that many servers do not
// retry at the same time.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

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

// untilWake is the time after which the worker wakes without a kick; 0: it waits for a kick.
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

// failed keeps the live revision, and schedules another attempt. It records a repeated
// failure only once. It records an empty repository only if force is set.
func (a *Applier) failed(ctx context.Context, done *Apply, err error, force bool) *Apply {
	if ctx.Err() != nil {
		return nil
	}
	done.Outcome, done.Error, done.FinishedAt = Failed, err.Error(), a.cfg.Now()
	a.mu.Lock()
	f := failure{hash: done.Commit.Hash, why: done.Error, reason: reasonOf(err), since: done.FinishedAt}
	if last := a.failure; last != nil && last.hash == f.hash {
		f.delay = last.delay
		// The text of one problem can differ each time, for example by a port.
		if last.why == f.why || last.reason == f.reason && f.reason != Other {
			why := f.why
			f = *last
			f.why = why
		}
	}
	a.mu.Unlock()
	if done.Trigger == watched && !force && done.FinishedAt.Before(f.next) {
		return done // the same failure, before the next attempt is due
	}
	switch {
	case f.recorded && !force:
	case errors.Is(err, gitrepo.ErrEmpty) && !force: // so every repository begins: nothing is wrong
		f.recorded = true
		a.cfg.Logger.Info("the repository has no commit yet, so nothing serves", "factory", done.Factory, "reason", err)
	default:
		id, err := a.cfg.Ledger.Record(context.WithoutCancel(ctx), done)
		done.ID, f.recorded = id, err == nil
		a.cfg.Logger.Warn("definitions could not be applied", "factory", done.Factory, "error", done.Error)
	}
	f.delay = min(max(firstRetry, 2*f.delay), lastRetry)
	f.next = a.cfg.Now().Add(f.delay - rand.N(f.delay/5))
	a.finish(done, func() { a.failure = &f })
	return done
}
