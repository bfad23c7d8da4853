package applier

import (
	"context"
	"fmt"
	"slices"
	"time"

	"triphammer/schema"
)

// refusal is the reason why the settled commit does not serve. It is empty if the commit
// serves.
type refusal struct {
	why    string
	reason Reason
	since  time.Time
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
		// A lacking secret may have been set after it was looked up.
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

// explain fills in why the newest commit is not live. A failure takes precedence over an
// earlier refusal. The caller holds a.mu.
func (a *Applier) explain() State {
	a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = a.refusal.why, a.refusal.reason, a.refusal.since, time.Time{}
	if f := a.failure; f != nil {
		a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = f.why, f.reason, f.since, f.next
	}
	return a.state
}

// summary is the first error, and the number of the other errors.
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
