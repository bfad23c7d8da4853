package applier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"triphammer/applier/gitrepo"
)

// slowLook is how long a look at the source lasts before a kick may restart it.
const slowLook = 10 * time.Second

// watched is the trigger of a kick that only asks for a look. It does not hasten the next
// attempt at a commit that failed.
const watched = "watch"

// Kick asks for a look at the head, and does not wait for it. Several waiting kicks count
// as one. Unless the trigger is watched, Kick ends a slow look, and another look begins.
// Kick does not end two looks in a row, so that a large fetch can complete.
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

func (a *Applier) head(ctx context.Context) (gitrepo.Commit, error) {
	a.mu.Lock()
	a.state.Looking = a.cfg.Now()
	a.mu.Unlock()
	stopTelling := a.tellLook()
	head, err := a.cfg.Source.Head(ctx)
	stopTelling()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Looking = time.Time{}
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

// tellEvery is how often the log tells the progress of a long look.
const tellEvery = 10 * time.Second

// tellLook logs the progress of a look, until stop is called.
func (a *Applier) tellLook() (stop func()) {
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				s := a.State()
				a.cfg.Logger.Info("still reading the repository of the definitions", "factory", s.Factory, "repository", s.Repository,
					"for", a.cfg.Now().Sub(s.Looking).Round(time.Second), "received_bytes", s.Progress.Received, "repository_says", s.Progress.Said)
			}
		}
	})
	return func() { close(ended); telling.Wait() }
}

// wanted records the head, if it is known, and tells whether to apply the commit hash,
// which should serve.
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
	a.failure = nil // the source can be read again, and has nothing new
	state := a.explain()
	a.mu.Unlock()
	if changed {
		a.cfg.OnChange(state)
	}
	return false
}
