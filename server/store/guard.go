package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// guardTime is the time in which the starts of an automation are counted.
const guardTime = time.Hour

// guardian pauses an automation itself.
const guardian = "loop guard"

// Pause is the state of an automation that starts nothing until somebody resumes it.
type Pause struct {
	Factory, Automation string
	At                  time.Time
	By, Reason          string
}

// guardKey names an automation.
type guardKey struct{ factory, automation string }

// guard is what the writer remembers of an automation, so that a delivery reads nothing.
type guard struct {
	paused bool
	starts []int64 // times of its runs in the last hour, the oldest first
}

// GuardAutomations pauses each automation that starts more than most runs in an hour, if it
// has no limit of its own (NewRun.MaxPerHour). 0: none.
func (s *Store) GuardAutomations(most int64) { s.maxPerHour.Store(most) }

// recentStarts are the times of an automation's runs, but for those that a person started
// again. It takes its four values twice: for the queue and for the runs that have left it.
const recentStarts = `SELECT created_at FROM runs WHERE state = 'QUEUED'
	AND group_id IN (SELECT id FROM run_groups WHERE automation = $1 AND factory = $2) AND id >= $3 AND retry_of = 0 AND created_at > $4
	UNION ALL SELECT created_at FROM runs WHERE state IN ('HELD', 'INPROGRESS', 'SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED'
	AND group_id IN (SELECT id FROM run_groups WHERE automation = $5 AND factory = $6) AND id >= $7 AND retry_of = 0 AND created_at > $8
	ORDER BY 1`

// guardOf finds what is known of an automation. It runs on the writer.
func (s *Store) guardOf(ctx context.Context, k guardKey) (*guard, error) {
	if g := s.groups.guards[k]; g != nil {
		return g, nil
	}
	g := &guard{}
	var pausedAt, from int64
	err := s.row(ctx, "SELECT paused_at, counts_from FROM guards WHERE factory = $1 AND automation = $2",
		[]any{k.factory, k.automation}, &pausedAt, &from)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	g.paused = pausedAt != 0
	since := max(from, micros(s.now().Add(-guardTime)))
	groups, least := []any{k.automation, k.factory}, idAt(timeOf(since))
	err = s.each(ctx, recentStarts, append(append(groups, least, since), append(groups, least, since)...), func(rows *sql.Rows) (bool, error) {
		var at int64
		err := rows.Scan(&at)
		g.starts = append(g.starts, at)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if len(s.groups.guards) >= maxCached {
		s.groups.guards = nil
	}
	if s.groups.guards == nil {
		s.groups.guards = make(map[guardKey]*guard)
	}
	s.groups.guards[k] = g
	return g, nil
}

// guarded tells whether a run of an automation may start. If it may not, because the
// automation is in a loop, it pauses the automation. It runs on the writer.
func (s *Store) guarded(ctx context.Context, r *NewRun) (starts bool, err error) {
	if r.Automation == "" || r.RetryOf != 0 {
		return true, nil // a person starts it
	}
	g, err := s.guardOf(ctx, guardKey{r.Factory, r.Automation})
	if err != nil || g.paused {
		return false, err
	}
	reason := ""
	most := r.MaxPerHour
	if most == 0 {
		most = s.maxPerHour.Load()
	}
	now := micros(s.now())
	for len(g.starts) > 0 && g.starts[0] <= now-guardTime.Microseconds() {
		g.starts = g.starts[1:]
	}
	switch {
	case r.LoopOf != 0:
		reason = fmt.Sprintf("its own run %s made a commit that would start it again", r.LoopOf)
	case most > 0 && int64(len(g.starts)) >= most:
		reason = fmt.Sprintf("it started %d runs in an hour, which is its limit (maxRunsPerHour, or --max-runs-per-hour of the server)",
			len(g.starts))
	case most > 0:
		g.starts = append(g.starts, now)
	}
	if reason == "" {
		return true, nil
	}
	return false, s.pause(ctx, Pause{Factory: r.Factory, Automation: r.Automation, By: guardian, Reason: reason})
}

// pause is PauseAutomation within a transaction.
func (s *Store) pause(ctx context.Context, p Pause) error {
	g, err := s.guardOf(ctx, guardKey{p.Factory, p.Automation})
	if err != nil {
		return err
	}
	now := micros(s.now())
	err = s.exec(ctx, `INSERT INTO guards (factory, automation, paused_at, paused_by, reason, counts_from) VALUES ($1, $2, $3, $4, $5, 0)
		ON CONFLICT (factory, automation) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason`,
		p.Factory, p.Automation, now, p.By, p.Reason)
	if err != nil {
		return err
	}
	g.paused = true
	if p.By != guardian {
		return nil // the caller audits it
	}
	s.logger.Error("an automation is paused, because it is in a loop",
		"factory", p.Factory, "automation", p.Automation, "reason", p.Reason, "cure", "triphammer automations resume "+p.Automation)
	return s.audit(ctx, AuditEntry{
		Actor: p.By, Action: "automation.pause", Object: p.Automation, Factory: p.Factory, Details: p.Reason, Origin: "local",
	})
}

// PauseAutomation makes an automation start nothing until it is resumed. Its deliveries are
// still matched.
func (s *Store) PauseAutomation(ctx context.Context, p Pause) error {
	return s.do(ctx, func(ctx context.Context) error { return s.pause(ctx, p) })
}

// ResumeAutomation ends a pause. Earlier runs do not count towards the limit any more. The
// error is ErrNotFound if the automation is not paused.
func (s *Store) ResumeAutomation(ctx context.Context, factory, automation string) error {
	return s.do(ctx, func(ctx context.Context) error {
		n, err := s.execCount(ctx, "UPDATE guards SET paused_at = 0, counts_from = $1 WHERE factory = $2 AND automation = $3 AND paused_at <> 0",
			micros(s.now()), factory, automation)
		if err == nil && n == 0 {
			err = fmt.Errorf("the automation %s is not paused: %w", automation, ErrNotFound)
		}
		delete(s.groups.guards, guardKey{factory, automation})
		return err
	})
}

// Pauses are the automations that are paused, of one factory or of all if it is empty.
func (s *Store) Pauses(ctx context.Context, factory string) ([]Pause, error) {
	w := where{}
	w.add("paused_at <> 0")
	w.text("factory", factory)
	return list(ctx, s, func(rows *sql.Rows) (p Pause, err error) {
		var at int64
		err = rows.Scan(&p.Factory, &p.Automation, &at, &p.By, &p.Reason)
		p.At = timeOf(at)
		return p, err
	}, "SELECT factory, automation, paused_at, paused_by, reason FROM guards"+w.sql()+" ORDER BY factory, automation", w.args...)
}
