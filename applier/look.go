package applier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"triphammer/applier/gitrepo"
)

// slowLook is how long a look lasts before a kick ends it to begin anew.
const slowLook = 10 * time.Second

// watched is the trigger of a kick that only says "look": it does not hurry a
// failed commit.
const watched = "watch"

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
