package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/store"
)

// These say what happens to ticks that were missed because no server ran: `skip` starts
// nothing, `once` starts one run for all of them.
const (
	MissedSkip = "skip"
	MissedOnce = "once"
)

const (
	// lateness is how late a tick may be noticed without counting as missed.
	lateness = time.Minute
	// scheduleTime is the longest sleep of the scheduler. It notices a change of the clock,
	// or of a schedule by another server, within that time.
	scheduleTime = 10 * time.Second
	// staleTime is the wait for definitions that the store has and that do not serve here yet.
	staleTime = 100 * time.Millisecond
)

// SchedulerConfig is what a Scheduler needs.
type SchedulerConfig struct {
	Store *store.Store
	Live  *applier.Live
	// Request reads the stored request of a schedule that the API made. Its error is for
	// the schedule's owner.
	Request func(stored []byte) (Request, error)
	Wake    func()        // tells the worker of new runs; nil: nobody is told
	Missed  string        // MissedSkip or MissedOnce; empty: MissedSkip
	Poll    time.Duration // 0 means 10 s
	Now     func() time.Time
	Logger  *slog.Logger
}

// Scheduler starts runs at the ticks of schedules. Automations define schedules, and the
// API makes others. A tick starts each of its runs once, across restarts and changes of the
// clock, because the store keeps which tick started which runs.
type Scheduler struct {
	cfg    SchedulerConfig
	kick   chan struct{}
	synced map[string]string // version of each factory
}

// NewScheduler makes a Scheduler. Its method Run starts it.
func NewScheduler(cfg SchedulerConfig) *Scheduler {
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	cfg.Poll = cmp.Or(cfg.Poll, scheduleTime)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Scheduler{cfg: cfg, kick: make(chan struct{}, 1), synced: make(map[string]string)}
}

// Kick tells the Scheduler that schedules or definitions changed. It never blocks.
func (s *Scheduler) Kick() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run fires schedules until ctx is done.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		wait := s.cfg.Poll
		next, err := s.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrStale):
			wait = staleTime
		case err != nil:
			s.cfg.Logger.Error("looking for schedules that are due; the next attempt follows", "error", err)
		case !next.IsZero():
			wait = min(wait, max(0, next.Sub(s.cfg.Now())))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass fires the schedules that are due. It returns the time of the next tick, zero if
// there is none.
func (s *Scheduler) pass(ctx context.Context) (next time.Time, err error) {
	for _, r := range s.cfg.Live.Revisions() {
		if err := s.sync(ctx, r); err != nil {
			return time.Time{}, err
		}
	}
	all, err := s.cfg.Store.Schedules.List(ctx, "")
	if err != nil {
		return time.Time{}, err
	}
	for _, schedule := range all {
		if !schedule.Active() {
			continue
		}
		tick, err := s.look(ctx, schedule)
		if err != nil {
			return time.Time{}, fmt.Errorf("schedule %s: %w", schedule.ID, err)
		}
		if !tick.IsZero() && (next.IsZero() || tick.Before(next)) {
			next = tick
		}
	}
	return next, nil
}

// sync makes the stored schedules of a factory equal to its definitions, if the revision is
// not the same as at the last call.
func (s *Scheduler) sync(ctx context.Context, r *applier.Revision) error {
	version := r.ApplyID + " " + r.Commit.Hash
	if s.synced[r.Factory] == version {
		return nil
	}
	var defined []store.Schedule
	for _, a := range r.Automations {
		for _, t := range a.Def.Triggers {
			if t.Scheduled() && t.Cron != "" {
				defined = append(defined, store.Schedule{Automation: a.Def.Name, Name: t.ScheduleName, Cron: t.Cron, Enabled: a.Def.Enabled})
			}
		}
	}
	if err := s.cfg.Store.Schedules.Sync(ctx, r.Factory, applyOf(r), defined); err != nil {
		return fmt.Errorf("the schedules of the factory %s: %w", r.Factory, err)
	}
	s.synced[r.Factory] = version
	return nil
}

// look fires a schedule if it is due, and returns its next tick.
func (s *Scheduler) look(ctx context.Context, schedule *store.Schedule) (time.Time, error) {
	cron, err := factory.ParseCron(schedule.Cron)
	if err != nil { // the expression was checked when the schedule was made
		s.cfg.Logger.Error("a schedule cannot be read", "schedule", schedule.ID, "cron", schedule.Cron, "error", err)
		return time.Time{}, nil
	}
	now := s.cfg.Now()
	if schedule.Seen.After(now.Add(lateness)) {
		// The clock was ahead and was set back: ticks that come again start nothing.
		s.cfg.Logger.Warn("the clock was set back behind a schedule; its ticks count from now on", "schedule", schedule.ID, "seen", schedule.Seen)
		_, err := s.cfg.Store.Schedules.Fire(ctx, store.Tick{Schedule: schedule, At: now, Error: schedule.Error})
		return cron.Next(now, schedule.Anchor), err
	}
	due := cron.Newest(schedule.Seen, now, schedule.Anchor)
	if due.IsZero() {
		return cron.Next(schedule.Seen, schedule.Anchor), nil
	}
	tick := store.Tick{Schedule: schedule, At: due}
	if now.Sub(due) > lateness && s.cfg.Missed != MissedOnce {
		tick.Error = "no server ran when it was due, at " + due.UTC().Format(time.RFC3339)
		s.cfg.Logger.Warn("a schedule was due while no server ran: it starts nothing", "schedule", schedule.ID, "name", schedule.Name, "due", due)
	} else {
		tick.Runs, tick.ApplyID, tick.Error = s.runs(ctx, schedule)
	}
	started, err := s.cfg.Store.Schedules.Fire(ctx, tick)
	if errors.Is(err, store.ErrBacklog) {
		tick.Runs, tick.Error = nil, err.Error()
		started, err = s.cfg.Store.Schedules.Fire(ctx, tick)
	}
	if err != nil {
		return time.Time{}, err
	}
	if len(started) > 0 {
		s.cfg.Logger.Info("a schedule fired", "schedule", schedule.ID, "name", schedule.Name, "tick", due, "runs", started)
		s.cfg.Wake()
	}
	return cron.Next(due, schedule.Anchor), nil
}

// runs are the runs that a tick starts: the schedule's own run, and one for each
// automation that selects the schedule. by is the apply that says so.
func (s *Scheduler) runs(ctx context.Context, schedule *store.Schedule) (runs []store.NewRun, by store.ApplyID, problem string) {
	r, serves := s.cfg.Live.Revision(schedule.Factory)
	if serves {
		by = applyOf(r)
		for _, a := range r.Automations {
			selected := a.Def.Name == schedule.Automation || slices.ContainsFunc(a.Def.Triggers, func(t factory.Trigger) bool {
				return t.Scheduled() && slices.Contains(t.ScheduleIDs, schedule.ID.String())
			})
			if a.Def.Enabled && selected {
				runs = append(runs, FromAutomation(r, a, store.SourceSchedule))
			}
		}
	}
	if schedule.Automation != "" {
		if !serves {
			problem = "the factory " + schedule.Factory + " does not serve on this server"
		}
		return runs, by, problem
	}
	req, err := s.cfg.Request(schedule.Request)
	if err != nil {
		return runs, by, err.Error()
	}
	own, err := FromSchedule(ctx, s.cfg.Store, s.cfg.Live, schedule, req)
	if err != nil {
		return runs, by, err.Error()
	}
	return append(runs, own), by, ""
}

// applyOf is the apply of a revision; 0 for a revision that is in no store.
func applyOf(r *applier.Revision) store.ApplyID {
	id, _ := store.ParseID[store.Apply](r.ApplyID)
	return id
}
