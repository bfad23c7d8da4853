package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"triphammer/factory"
	"triphammer/server/store"
)

// What happens to ticks that nobody saw because no server ran: `skip` starts
// nothing, `once` starts one run for all of them.
const (
	MissedSkip = "skip"
	MissedOnce = "once"
)

const (
	// lateness is how late a tick may be seen and still not be missed.
	lateness = time.Minute
	// scheduleTime bounds how long the scheduler sleeps: a clock that is set, and
	// a schedule that another server changed, are noticed within it.
	scheduleTime = 10 * time.Second
)

// SchedulerConfig is what a Scheduler needs.
type SchedulerConfig struct {
	Store *store.Store
	// Definitions are what serves now.
	Definitions func() []ScheduledFactory
	// Prepare makes the run of a schedule that the API made. Its error is for the
	// schedule's owner.
	Prepare func(context.Context, *store.Schedule) (store.NewRun, error)
	Wake    func()        // the manager; nil: nobody
	Missed  string        // MissedSkip (also if empty) or MissedOnce
	Poll    time.Duration // 0 means 10 s
	Now     func() time.Time
	Logger  *slog.Logger
}

// ScheduledFactory are the automations of a factory, as they serve.
type ScheduledFactory struct {
	Name        string
	Version     string // another one means other definitions
	Automations []ScheduledAutomation
}

// ScheduledAutomation is what schedules start.
type ScheduledAutomation struct {
	Definition *factory.Automation
	Run        store.NewRun
}

// Scheduler starts runs at the ticks of schedules: those that automations define,
// and those that the API made. A tick starts each of its runs once, however many
// servers there are, and whatever their clocks do: the store keeps which tick
// started what (package store).
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
	if cfg.Poll == 0 {
		cfg.Poll = scheduleTime
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Scheduler{cfg: cfg, kick: make(chan struct{}, 1), synced: make(map[string]string)}
}

// Kick tells that schedules or definitions changed. It never blocks.
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

// pass fires what is due, and returns when the next tick is, zero if there is
// none.
func (s *Scheduler) pass(ctx context.Context) (next time.Time, err error) {
	factories := s.cfg.Definitions()
	for _, f := range factories {
		if err := s.sync(ctx, f); err != nil {
			return time.Time{}, err
		}
	}
	all, err := s.cfg.Store.Schedules(ctx, "")
	if err != nil {
		return time.Time{}, err
	}
	for _, schedule := range all {
		if !schedule.Active() {
			continue
		}
		tick, err := s.look(ctx, factories, schedule)
		if err != nil {
			return time.Time{}, fmt.Errorf("schedule %s: %w", schedule.ID, err)
		}
		if !tick.IsZero() && (next.IsZero() || tick.Before(next)) {
			next = tick
		}
	}
	return next, nil
}

// sync makes the stored schedules of a factory those that it defines, if it is
// another one than the last time.
func (s *Scheduler) sync(ctx context.Context, f ScheduledFactory) error {
	if s.synced[f.Name] == f.Version {
		return nil
	}
	var defined []store.Schedule
	for _, a := range f.Automations {
		for _, t := range a.Definition.Triggers {
			if t.Scheduled() && t.Cron != "" {
				defined = append(defined, store.Schedule{Automation: a.Definition.Name, Name: t.ScheduleName, Cron: t.Cron, Enabled: a.Definition.Enabled})
			}
		}
	}
	if err := s.cfg.Store.SyncSchedules(ctx, f.Name, defined); err != nil {
		return fmt.Errorf("the schedules of the factory %s: %w", f.Name, err)
	}
	s.synced[f.Name] = f.Version
	return nil
}

// look fires a schedule if it is due, and returns its next tick.
func (s *Scheduler) look(ctx context.Context, factories []ScheduledFactory, schedule *store.Schedule) (time.Time, error) {
	cron, err := factory.ParseCron(schedule.Cron)
	if err != nil { // it was checked when it was made
		s.cfg.Logger.Error("a schedule cannot be read", "schedule", schedule.ID, "cron", schedule.Cron, "error", err)
		return time.Time{}, nil
	}
	now := s.cfg.Now()
	if schedule.Seen.After(now.Add(lateness)) {
		// The clock was ahead, and was set back: what comes again starts nothing twice.
		s.cfg.Logger.Warn("the clock was set back behind a schedule; its ticks count from now on", "schedule", schedule.ID, "seen", schedule.Seen)
		_, err := s.cfg.Store.Fire(ctx, store.Tick{Schedule: schedule, At: now, Error: schedule.Error})
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
		tick.Runs, tick.Error = s.runs(ctx, factories, schedule)
	}
	started, err := s.cfg.Store.Fire(ctx, tick)
	if errors.Is(err, store.ErrBacklog) {
		tick.Runs, tick.Error = nil, err.Error()
		started, err = s.cfg.Store.Fire(ctx, tick)
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

// runs are what a tick starts: the schedule's own run, and one of each automation
// that selects the schedule.
func (s *Scheduler) runs(ctx context.Context, factories []ScheduledFactory, schedule *store.Schedule) (runs []store.NewRun, problem string) {
	for _, f := range factories {
		for _, a := range f.Automations {
			own := f.Name == schedule.Factory && a.Definition.Name == schedule.Automation
			selected := slices.ContainsFunc(a.Definition.Triggers, func(t factory.Trigger) bool {
				return t.Scheduled() && slices.Contains(t.ScheduleIDs, schedule.ID)
			})
			if f.Name == schedule.Factory && a.Definition.Enabled && (own || selected) {
				runs = append(runs, a.Run)
			}
		}
	}
	if schedule.Automation != "" {
		if !slices.ContainsFunc(factories, func(f ScheduledFactory) bool { return f.Name == schedule.Factory }) {
			problem = "the factory " + schedule.Factory + " does not serve on this server"
		}
		return runs, problem
	}
	run, err := s.cfg.Prepare(ctx, schedule)
	if err != nil {
		return runs, err.Error()
	}
	return append(runs, run), ""
}
