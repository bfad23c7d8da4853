package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"triphammer/server/store/internal/engine"
)

// Schedule starts runs at the ticks of a cron expression. This package does not
// interpret the expression.
type Schedule struct {
	ID          ScheduleID
	Factory     string
	Automation  string // that defines it; empty for one made by the API
	Name        string
	Cron        string
	Enabled     bool
	Paused      string          // why an enabled schedule starts nothing: its key is no longer valid
	Request     json.RawMessage // of one made by the API: what a run is created with
	CreatorKind string
	CreatorName string
	KeyID       KeyID // of the API key that it needs, or none
	UpdatedKind string
	UpdatedBy   string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Anchor      time.Time // from when on its ticks count
	Seen        time.Time // up to when its ticks are decided
	FiredAt     time.Time // the newest tick that started a run; zero: none
	Error       string    // why the newest tick started none
}

const scheduleColumns = `id, factory, automation, name, cron, enabled, request, creator_kind, creator_name, key_id, updated_kind, updated_by,
	created_at, updated_at, anchor, seen, fired_at, error`

// Active tells whether its ticks start something.
func (n *Schedule) Active() bool { return n.Enabled && n.Paused == "" }

func scanSchedule(rows *sql.Rows) (*Schedule, error) {
	s := &Schedule{}
	var created, updated, anchor, seen, fired int64
	var request string
	err := rows.Scan(&s.ID, &s.Factory, &s.Automation, &s.Name, &s.Cron, &s.Enabled, &request, &s.CreatorKind, &s.CreatorName, &s.KeyID, &s.UpdatedKind,
		&s.UpdatedBy, &created, &updated, &anchor, &seen, &fired, &s.Error)
	s.Request = json.RawMessage(request)
	s.CreatedAt, s.UpdatedAt, s.Anchor, s.Seen, s.FiredAt = timeOf(created), timeOf(updated), timeOf(anchor), timeOf(seen), timeOf(fired)
	return s, err
}

// Schedules start runs by the clock.
type Schedules struct{ *db }

// List reads all of them, sorted by name; an empty factory means all.
func (s *Schedules) List(ctx context.Context, factory string) ([]*Schedule, error) {
	w := where{}
	w.text("factory", factory)
	return s.list(ctx, w.sql()+" ORDER BY name, id", w.args...)
}

func (s *Schedules) list(ctx context.Context, rest string, args ...any) ([]*Schedule, error) {
	all, err := engine.List(ctx, s.DB, scanSchedule, "SELECT "+scheduleColumns+" FROM schedules"+rest, args...)
	if err != nil {
		return nil, err
	}
	now, known := s.Latest(), make(map[KeyID]string)
	for _, n := range all {
		if n.KeyID == 0 || !n.Enabled {
			continue
		}
		why, ok := known[n.KeyID]
		if !ok {
			if why, err = s.keyEnd(ctx, n.KeyID, now); err != nil {
				return nil, err
			}
			known[n.KeyID] = why
		}
		n.Paused = why
	}
	return all, nil
}

// keyEnd says in words why a key is not valid; empty if it is valid.
func (s *Schedules) keyEnd(ctx context.Context, id KeyID, now time.Time) (string, error) {
	k, err := engine.First(engine.List(ctx, s.DB, scanKey, "SELECT "+keyColumns+" FROM api_keys WHERE id = $1", id))
	switch {
	case errors.Is(err, ErrNotFound):
		return "its API key is gone", nil
	case err != nil || k.End(now) == "":
		return "", err
	}
	return fmt.Sprintf("its API key %s %s", k.Name, k.End(now)), nil
}

// Get reads one.
func (s *Schedules) Get(ctx context.Context, id ScheduleID) (*Schedule, error) {
	found, err := engine.First(s.list(ctx, " WHERE id = $1", id))
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", id, err)
	}
	return found, nil
}

// Create makes one; its id and times are filled in.
func (s *Schedules) Create(ctx context.Context, n Schedule) (*Schedule, error) {
	err := s.Do(ctx, func(tx *engine.Tx) (err error) {
		n.ID, err = s.insert(tx, &n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, n.ID)
}

func (s *Schedules) insert(tx *engine.Tx, n *Schedule) (ScheduleID, error) {
	id := ScheduleID(tx.NextID())
	return id, tx.Exec(`INSERT INTO schedules (id, factory, automation, name, cron, enabled, request, creator_kind, creator_name, key_id, updated_kind,
		updated_by, created_at, updated_at, anchor, seen, fired_at, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $8, $11, $12, $12, $12, $12, 0, '')`,
		id, n.Factory, n.Automation, n.Name, n.Cron, n.Enabled, string(n.Request), n.CreatorKind, n.CreatorName, n.KeyID, n.UpdatedBy, micros(s.Now()))
}

// Update changes one that the API made. With another expression or key, or
// when it is enabled again, its ticks count from now on.
func (s *Schedules) Update(ctx context.Context, n Schedule) (*Schedule, error) {
	err := s.Do(ctx, func(tx *engine.Tx) error {
		changed, err := tx.ExecCount(`UPDATE schedules SET
			anchor = CASE WHEN cron <> $1 OR $2 > enabled OR key_id <> $3 THEN $4 ELSE anchor END,
			seen = CASE WHEN cron <> $1 OR $2 > enabled OR key_id <> $3 THEN $4 ELSE seen END,
			name = $5, cron = $1, enabled = $2, request = $6, creator_kind = $7, creator_name = $8, key_id = $3, updated_kind = $9, updated_by = $10,
			updated_at = $4 WHERE id = $11 AND automation = ''`,
			n.Cron, n.Enabled, n.KeyID, micros(s.Now()), n.Name, string(n.Request), n.CreatorKind, n.CreatorName, n.UpdatedKind, n.UpdatedBy, n.ID)
		if err == nil && changed == 0 {
			return fmt.Errorf("schedule %s: %w", n.ID, ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, n.ID)
}

// Delete deletes one that the API made. Its runs stay.
func (s *Schedules) Delete(ctx context.Context, id ScheduleID) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		deleted, err := tx.ExecCount("DELETE FROM schedules WHERE id = $1 AND automation = ''", id)
		if err == nil && deleted == 0 {
			return fmt.Errorf("schedule %s: %w", id, ErrNotFound)
		}
		return err
	})
}

// Sync replaces the schedules that the automations of a factory define with the
// given ones. A schedule with the same automation and name stays the same schedule:
// another expression changes it in place (factory/testdata/rules 4.3). The error is ErrStale
// if the apply that defines them is not live any more.
func (s *Schedules) Sync(ctx context.Context, factory string, by ApplyID, defined []Schedule) error {
	type key struct{ automation, name string }
	return s.Do(ctx, func(tx *engine.Tx) error {
		if err := s.store.Applies.notStale(tx, factory, by); err != nil {
			return err
		}
		have := make(map[key]*Schedule)
		err := tx.Each("SELECT "+scheduleColumns+" FROM schedules WHERE factory = $1 AND automation <> ''", []any{factory},
			func(rows *sql.Rows) (bool, error) {
				found, err := scanSchedule(rows)
				have[key{found.Automation, found.Name}] = found
				return true, err
			})
		if err != nil {
			return err
		}
		now := micros(s.Now())
		for _, d := range defined {
			k := key{d.Automation, d.Name}
			found := have[k]
			delete(have, k)
			if found == nil {
				d.Factory, d.CreatorKind, d.CreatorName, d.UpdatedBy, d.Request = factory, "automation", d.Automation, d.Automation, json.RawMessage("{}")
				_, err = s.insert(tx, &d)
			} else if found.Cron != d.Cron || found.Enabled != d.Enabled {
				err = tx.Exec("UPDATE schedules SET cron = $1, enabled = $2, anchor = $3, seen = $3, updated_at = $3 WHERE id = $4", d.Cron, d.Enabled, now, found.ID)
			}
			if err != nil {
				return err
			}
		}
		for _, gone := range have {
			if err := tx.Exec("DELETE FROM schedules WHERE id = $1", gone.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tick is one decision about a schedule.
type Tick struct {
	Schedule *Schedule // as it was read
	At       time.Time // up to when it is decided
	Runs     []NewRun  // what the tick at that time starts; at most one per automation
	Error    string    // why it starts none
	ApplyID  ApplyID   // by whose definitions; 0: by none
}

// Fire records a tick with its runs. Each run starts once, however often and by whomever
// Fire is called. It returns the ids of the runs; none if the tick was recorded before,
// or if the schedule was changed meanwhile. The error is ErrStale if the apply that decided
// is not live any more.
func (s *Schedules) Fire(ctx context.Context, t Tick) (runs []RunID, err error) {
	id := t.Schedule.ID
	err = s.Grow(ctx, func(tx *engine.Tx) error {
		runs = nil
		if err := s.store.Applies.notStale(tx, t.Schedule.Factory, t.ApplyID); err != nil {
			return err
		}
		changed, err := tx.ExecCount("UPDATE schedules SET seen = $1, error = $2 WHERE id = $3 AND updated_at = $4 AND enabled = 1 AND "+keyLives("$5"),
			micros(t.At), t.Error, id, micros(t.Schedule.UpdatedAt), micros(s.Now()))
		if err != nil || changed == 0 {
			return err
		}
		for _, r := range t.Runs {
			err := tx.Row("SELECT run_id FROM schedule_ticks WHERE schedule_id = $1 AND tick = $2 AND automation = $3",
				[]any{id, micros(t.At), r.Automation}, new(int64))
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrNotFound) {
				return err
			}
			starts, err := s.store.Runs.guarded(tx, &r)
			if err != nil {
				return err
			}
			why := "the automation " + r.Automation + " is paused"
			if starts {
				why, err = s.store.Approvals.full(tx, &r)
			}
			if err != nil {
				return err
			}
			if why != "" {
				err := tx.Exec("UPDATE schedules SET error = $1 WHERE id = $2", why, id)
				if err != nil {
					return err
				}
				continue
			}
			r.Schedule = &RunSchedule{ID: id, Name: t.Schedule.Name, Cron: t.Schedule.Cron}
			run, err := s.store.Runs.insert(tx, &r, 0)
			if err == nil && r.Approval != nil {
				_, err = s.store.Approvals.waits(tx, run, &r) // it has no subject
			}
			if err != nil {
				return err
			}
			err = tx.Exec("INSERT INTO schedule_ticks (schedule_id, tick, automation, run_id) VALUES ($1, $2, $3, $4)", id, micros(t.At), r.Automation, run)
			if err != nil {
				return err
			}
			runs = append(runs, run)
		}
		if len(runs) == 0 {
			return nil
		}
		return tx.Exec("UPDATE schedules SET fired_at = $1 WHERE id = $2", micros(t.At), id)
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// tickAge is how long ticks are remembered. If a clock goes back further, somebody will
// notice.
const tickAge = 90 * 24 * time.Hour

func (s *Schedules) pruneTicks(ctx context.Context) error {
	old := micros(s.Agreed().Add(-tickAge))
	return s.InSteps(ctx, engine.Task{Run: func(tx *engine.Tx, _ *engine.Step) (more bool, err error) {
		n, err := tx.ExecCount(`DELETE FROM schedule_ticks WHERE (schedule_id, tick, automation) IN
			(SELECT schedule_id, tick, automation FROM schedule_ticks WHERE tick < $1 LIMIT $2)`, old, engine.StepRows)
		return n == engine.StepRows, err
	}})
}
