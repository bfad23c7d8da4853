package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"triphammer/server/store/internal/engine"
)

// Kinds of a Pausable.
const (
	KindWebhook    = "webhook"
	KindAutomation = "automation"
)

// Pausable names what can be paused: a webhook or an automation of a factory.
type Pausable struct{ Kind, Factory, Name string }

func (p Pausable) String() string { return "the " + p.Kind + " " + p.Name }

// Pause is an override beside a definition (SPEC 18.2): a webhook that takes nothing, or an
// automation that starts nothing, until somebody resumes it or its time is over.
type Pause struct {
	Pausable
	At         time.Time
	Until      time.Time // zero: until somebody resumes it
	By, Reason string
}

// ErrPaused is what Deliveries.Record returns for a webhook that is paused.
var ErrPaused = errors.New("it is paused")

// pauses is what is paused. It is never changed: a change makes a copy.
type pauses map[Pausable]Pause

// runs tells whether a pause goes on. While the clock is in doubt, time goes on as if it had
// not jumped.
func (p Pause) runs(now time.Time) bool { return p.Until.IsZero() || now.Before(p.Until) }

// Pauses are what starts no runs at present.
type Pauses struct {
	*db
	paused atomic.Pointer[pauses] // as everybody sees them
}

// Of finds the pause of something. It reads no database, and sees a change when the
// call that made it returns.
func (s *Pauses) Of(what Pausable) (Pause, bool) {
	p, ok := (*s.paused.Load())[what]
	return p, ok && p.runs(s.Believed())
}

// List are the pauses that go on, of one factory or of all if it is empty, sorted by
// factory, kind and name.
func (s *Pauses) List(factory string) []Pause {
	var all []Pause
	for _, p := range *s.paused.Load() {
		if (factory == "" || p.Factory == factory) && p.runs(s.Believed()) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Pause) int {
		return cmp.Or(cmp.Compare(a.Factory, b.Factory), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// all are all pauses, as the transaction sees them.
func (s *Pauses) all(tx *engine.Tx) (pauses, error) {
	if s.groups.pauses != nil {
		return s.groups.pauses, nil
	}
	all := make(pauses)
	err := tx.Each(selectPauses, nil, func(rows *sql.Rows) (bool, error) {
		p, err := scanPause(rows)
		all[p.Pausable] = p
		return true, err
	})
	if err != nil {
		return nil, err
	}
	s.groups.pauses = all
	return all, nil
}

const selectPauses = "SELECT kind, factory, name, paused_at, until, paused_by, reason FROM pauses"

func scanPause(rows *sql.Rows) (p Pause, err error) {
	var at, until int64
	err = rows.Scan(&p.Kind, &p.Factory, &p.Name, &at, &until, &p.By, &p.Reason)
	p.At, p.Until = timeOf(at), timeOf(until)
	return p, err
}

// isPaused is Paused within a transaction: it decides in the order of the writes.
func (s *Pauses) isPaused(tx *engine.Tx, what Pausable) (bool, error) {
	all, err := s.all(tx)
	if err != nil {
		return false, err
	}
	p, ok := all[what]
	return ok && p.runs(s.Believed()), nil
}

// Pause pauses something, or replaces its pause. After it returns, no delivery of the
// webhook is recorded, and no run of the automation is started.
func (s *Pauses) Pause(ctx context.Context, p Pause) (Pause, error) {
	err := s.Do(ctx, func(tx *engine.Tx) error {
		p.At = s.Now()
		return s.pause(tx, p)
	})
	return p, err
}

// pause is Pause within a transaction.
func (s *Pauses) pause(tx *engine.Tx, p Pause) error {
	all, err := s.all(tx)
	if err != nil {
		return err
	}
	err = tx.Exec(`INSERT INTO pauses (kind, factory, name, paused_at, until, paused_by, reason) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (kind, factory, name) DO UPDATE SET paused_at = excluded.paused_at, until = excluded.until, paused_by = excluded.paused_by, reason = excluded.reason`,
		p.Kind, p.Factory, p.Name, micros(p.At), micros(p.Until), p.By, p.Reason)
	if err != nil {
		return err
	}
	all = maps.Clone(all)
	all[p.Pausable] = p
	s.groups.pauses, s.pausesChanged = all, true
	tx.Rules()
	return nil
}

// Resume ends a pause. Earlier runs do not count towards the limit of an automation any
// more. The error is ErrNotFound if it is not paused.
func (s *Pauses) Resume(ctx context.Context, what Pausable) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		paused, err := s.isPaused(tx, what)
		if err == nil && !paused {
			err = fmt.Errorf("%s is not paused: %w", what, ErrNotFound)
		}
		if err != nil {
			return err
		}
		return s.resume(tx, what)
	})
}

// resume is Resume within a transaction.
func (s *Pauses) resume(tx *engine.Tx, what Pausable) error {
	all, err := s.all(tx)
	if err == nil {
		err = tx.Exec("DELETE FROM pauses WHERE kind = $1 AND factory = $2 AND name = $3", what.Kind, what.Factory, what.Name)
	}
	if err == nil && what.Kind == KindAutomation {
		err = s.store.Runs.countAnew(tx, what)
	}
	if err != nil {
		return err
	}
	all = maps.Clone(all)
	delete(all, what)
	s.groups.pauses, s.pausesChanged = all, true
	tx.Rules()
	return nil
}

// end records the end of the pauses whose time is over.
func (s *Pauses) end(tx *engine.Tx) error {
	all, err := s.all(tx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.runs(s.Believed()) {
			continue
		}
		if err := s.resume(tx, p.Pausable); err != nil {
			return err
		}
		err := s.store.Audit.add(tx, AuditEntry{
			Actor: "triphammer", Action: p.Kind + ".resume", Object: p.Name, Factory: p.Factory, Origin: "local",
			Details: "the time of its pause was over, which " + p.By + " made: " + p.Reason,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// endNow is end in a transaction of its own. The pauses have ended before, for
// everybody: this makes it known.
func (s *Pauses) endNow(write func(func(tx *engine.Tx) error) error) error {
	all := *s.paused.Load()
	over := func(p Pause) bool { return !p.runs(s.Believed()) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(all)), over) {
		s.await(all, 0)
		return nil
	}
	err := write(s.end)
	if err != nil {
		s.await(all, time.Second)
	}
	return err
}

// refreshAfter is how long pauses may be out of date, if another process changed them. What is
// written is decided by those of the database.
const refreshAfter = 100 * time.Millisecond

// mayDiffer is called when another process has written.
func (s *Pauses) mayDiffer() {
	if !s.pausesStale {
		s.pausesStale = true
		s.SetAlarm(refreshAfter)
	}
}

// refresh shows what another process has paused.
func (s *Pauses) refresh(ctx context.Context) error {
	if !s.pausesStale {
		return nil
	}
	s.pausesStale, s.groups.pauses = false, nil
	found, err := engine.List(ctx, s.DB, scanPause, selectPauses)
	if err != nil {
		s.mayDiffer()
		return err
	}
	all := make(pauses, len(found))
	for _, p := range found {
		all[p.Pausable] = p
	}
	s.paused.Store(&all)
	s.await(all, 0)
	return nil
}

// recheckPauses is how often it is looked whether a pause has ended, at least: the clock can
// be set.
const recheckPauses = time.Minute

// publish shows the committed pauses to everybody, and sets the timer of the writer to
// the next end of one. It runs on the writer, between transactions.
func (s *Pauses) publish(tx *engine.Tx) error {
	all, err := s.all(tx)
	if err != nil {
		return err
	}
	s.pausesChanged = false
	s.paused.Store(&all)
	s.await(all, 0)
	return nil
}

// await sets the timer of the writer to the next end of a pause, or to the time at which
// it reads them again.
func (s *Pauses) await(all pauses, least time.Duration) {
	wait, now := time.Duration(-1), s.Believed()
	for _, p := range all {
		if !p.Until.IsZero() && (wait < 0 || p.Until.Sub(now) < wait) { // the first one, or an earlier one
			wait = max(p.Until.Sub(now), least)
		}
	}
	if s.pausesStale && (wait < 0 || wait > refreshAfter) {
		wait = refreshAfter // what another process changed is not read yet
	}
	s.SetAlarm(min(wait, recheckPauses))
}
