package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// guardTime is the time in which the starts of an automation are counted.
const guardTime = time.Hour

// guardian pauses an automation itself.
const guardian = "loop guard"

// startsOf is whose runs a guard counts: those of an automation, or of them those for one person.
type startsOf struct {
	Pausable
	person string // as personKey has it; empty: all
}

// guard is what the writer remembers of an automation, so that a delivery reads nothing.
type guard struct {
	starts []int64 // times of its runs in the last hour, the oldest first
}

// Guard pauses each automation that starts more than most runs in an hour, if it
// has no limit of its own (NewRun.MaxPerHour). 0: none.
func (s *Runs) Guard(most int64) { s.maxPerHour.Store(most) }

// recentStarts are the times of an automation's runs, but for those that a person started, also
// again, and those that a newer one replaced before they started. It takes its four values twice,
// for the queue and for the runs that have left it, and then three for the runs that had to wait for room.
const recentStarts = `SELECT created_at, person, counts_at FROM runs WHERE state = 'QUEUED'
	AND group_id IN (SELECT id FROM run_groups WHERE automation = $1 AND factory = $2 AND source <> 'API') AND id >= $3 AND retry_of = 0 AND created_at > $4
	UNION ALL SELECT created_at, person, counts_at FROM runs WHERE state IN ('HELD', 'INPROGRESS', 'SUCCEEDED', 'FAILED', 'CANCELLED') AND state <> 'QUEUED'
	AND group_id IN (SELECT id FROM run_groups WHERE automation = $5 AND factory = $6 AND source <> 'API') AND id >= $7 AND retry_of = 0 AND created_at > $8
	AND counts_at <= 0 AND (replaced_by = 0 OR attempt > 0)
	UNION ALL SELECT counts_at, person, counts_at FROM runs WHERE counts_at > 0 AND counts_at <> 0 AND counts_at > $9
	AND group_id IN (SELECT id FROM run_groups WHERE automation = $10 AND factory = $11 AND source <> 'API') AND (replaced_by = 0 OR attempt > 0)
	ORDER BY 1`

// guardOf finds what is known of an automation.
func (s *Runs) guardOf(tx *engine.Tx, k startsOf) (*guard, error) {
	if g := s.groups.guards[k]; g != nil {
		return g, nil
	}
	g := &guard{}
	var from int64
	if k.person == "" {
		err := tx.Row("SELECT counts_from FROM guards WHERE factory = $1 AND automation = $2", []any{k.Factory, k.Name}, &from)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	since := max(from, micros(s.Now().Add(-guardTime)))
	groups, least := []any{k.Name, k.Factory}, engine.IDAt(timeOf(since))
	err := tx.Each(recentStarts, slices.Concat(groups, []any{least, since}, groups, []any{least, since, since}, groups), func(rows *sql.Rows) (bool, error) {
		var at, counts int64
		var person string
		err := rows.Scan(&at, &person, &counts)
		if k.person == "" && counts != neverCounts || k.person != "" && personKey(person) == k.person {
			g.starts = append(g.starts, at)
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if len(s.groups.guards) >= maxCached {
		s.groups.guards = nil
	}
	if s.groups.guards == nil {
		s.groups.guards = make(map[startsOf]*guard)
	}
	s.groups.guards[k] = g
	return g, nil
}

// forget drops the starts that do not count any more.
func (g *guard) forget(now int64) {
	for len(g.starts) > 0 && g.starts[0] <= now-guardTime.Microseconds() {
		g.starts = g.starts[1:]
	}
}

// personKey is what tells a person from others, whatever the person is called by now.
func personKey(person string) string {
	name, id, found := strings.Cut(person, " ")
	if !found {
		return name
	}
	provider, _, _ := strings.Cut(name, ":")
	return provider + ":" + id
}

// personal finds the runs of an automation for the person of a new run, if they are limited (SPEC 24.1).
// If there are as many as may be, why says so. freed are the times of those that are cancelled if it may start.
func (s *Runs) personal(tx *engine.Tx, r *NewRun, freed ...int64) (g *guard, why string, err error) {
	most := r.MaxPerPerson
	if most == 0 && r.Approval != nil && r.Approval.Outsider {
		most = outsiderRuns
	}
	if r.Person == "" || r.RetryOf != 0 {
		return nil, "", nil
	}
	of := startsOf{Pausable{KindAutomation, r.Factory, r.Automation}, personKey(r.Person)}
	if most == 0 { // nobody counts it: with a limit later, the runs are read again
		delete(s.groups.guards, of)
		return nil, "", nil
	}
	g, err = s.guardOf(tx, of)
	if err != nil {
		return nil, "", err
	}
	if g.forget(micros(s.Now())); int64(len(g.without(freed))) >= most {
		name, _, _ := strings.Cut(r.Person, " ")
		why = fmt.Sprintf("%s has started %s of it within an hour (maxRunsPerPersonPerHour)", name, terms.Counted(len(g.starts), "run"))
	}
	return g, why, nil
}

// without are the starts without the runs that counted at the times, as far as these still count.
func (g *guard) without(freed []int64) []int64 {
	if len(freed) == 0 {
		return g.starts
	}
	starts := slices.Clone(g.starts)
	for _, at := range freed {
		if i, _ := slices.BinarySearch(starts, at+1); i > 0 {
			starts = slices.Delete(starts, i-1, i)
		}
	}
	return starts
}

// count makes a run count at a time, in place of those that counted at the times of freed.
func (g *guard) count(at int64, freed []int64) {
	starts := g.without(freed)
	i, _ := slices.BinarySearch(starts, at+1)
	g.starts = slices.Insert(starts, i, at)
}

// guarded tells whether a run of an automation may start. If it may not, because the
// automation is in a loop, it pauses the automation. freed are the times at which runs counted that
// are cancelled if it may.
func (s *Runs) guarded(tx *engine.Tx, r *NewRun, freed ...int64) (starts bool, err error) {
	r.countsAt = 0
	if r.Automation == "" || r.RetryOf != 0 {
		return true, nil // a person starts it
	}
	what := Pausable{KindAutomation, r.Factory, r.Automation}
	if paused, err := s.store.Pauses.isPaused(tx, what); err != nil || paused {
		return false, err
	}
	reason := ""
	most := r.MaxPerHour
	most = cmp.Or(most, s.maxPerHour.Load())
	g := &guard{}
	if most <= 0 { // nobody counts it: with a limit later, the runs are read again
		delete(s.groups.guards, startsOf{Pausable: what})
	} else if g, err = s.guardOf(tx, startsOf{Pausable: what}); err != nil {
		return false, err
	}
	now := micros(s.Now())
	g.forget(now)
	counted := g.without(freed)
	count := int64(len(counted))
	switch {
	case r.LoopOf != 0:
		reason = fmt.Sprintf("its own run %s made a commit that would start it again", r.LoopOf)
	case r.Approval != nil: // a person starts it
	case most > 0 && count >= most && !r.Overflow:
		reason = fmt.Sprintf("it started %s in an hour, which is its limit (maxRunsPerHour, or --max-runs-per-hour of the server)",
			terms.Counted(int(count), "run"))
	case most > 0:
		counts := now
		if count >= most {
			counts = max(now, counted[count-most]+guardTime.Microseconds())
			r.countsAt = counts
		}
		g.count(counts, freed)
	}
	if reason == "" {
		return true, nil
	}
	s.Logger.Error("an automation is paused, because it is in a loop",
		"factory", r.Factory, "automation", r.Automation, "reason", reason, "cure", "triphammer automations resume "+r.Automation)
	return false, errors.Join(
		s.store.Pauses.pause(tx, Pause{Pausable: what, At: s.Now(), By: guardian, Reason: reason}),
		s.store.Audit.add(tx, AuditEntry{
			Actor: guardian, Action: "automation.pause", Object: r.Automation, Factory: r.Factory, Details: reason, Origin: "local",
		}))
}

// countAnew makes the earlier runs of an automation not count towards its limit. It runs on
// the writer.
func (s *Runs) countAnew(tx *engine.Tx, what Pausable) error {
	delete(s.groups.guards, startsOf{Pausable: what})
	return tx.Exec(`INSERT INTO guards (factory, automation, counts_from) VALUES ($1, $2, $3)
		ON CONFLICT (factory, automation) DO UPDATE SET counts_from = excluded.counts_from`, what.Factory, what.Name, micros(s.Now()))
}
