package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// clockworks are a store, and schedulers on it that share a clock.
type clockworks struct {
	*testing.T
	store *store.Store
	now   func() time.Time
	live  *applier.Live
	fail  error // of Request
}

func newClockworks(t *testing.T, now func() time.Time) *clockworks {
	t.Helper()
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "db"), URL: storetest.URL(t), Key: key, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	live := &applier.Live{}
	live.Swap(&applier.Revision{Factory: "f", Definition: &factory.Factory{}})
	return &clockworks{T: t, store: s, now: now, live: live}
}

func (c *clockworks) scheduler(missed string) *Scheduler {
	return NewScheduler(SchedulerConfig{
		Store: c.store, Missed: missed, Now: c.now, Poll: 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
		Live: c.live, Request: func([]byte) (Request, error) { return Request{Prompt: "x"}, c.fail },
	})
}

func (c *clockworks) create(name, cron string) *store.Schedule {
	c.Helper()
	n, err := c.store.Schedules.Create(c.Context(), store.Schedule{Factory: "f", Name: name, Cron: cron, Enabled: true, Request: []byte("{}")})
	if err != nil {
		c.Fatal(err)
	}
	return n
}

func (c *clockworks) pass(s *Scheduler) time.Time {
	c.Helper()
	next, err := s.pass(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return next
}

// started are the times of the runs of a schedule, oldest first.
func (c *clockworks) started(q store.RunQuery) (times []time.Time) {
	c.Helper()
	q.Ascending, q.Limit = true, 1000
	for {
		some, err := c.store.Runs.List(c.Context(), q)
		if err != nil {
			c.Fatal(err)
		}
		for _, r := range some {
			times = append(times, r.CreatedAt)
		}
		if len(some) < q.Limit {
			return times
		}
		q.After = q.Cursor(some[len(some)-1])
	}
}

// TestScheduleYear: over a simulated year, several schedulers on one store start
// each schedule once per tick, at its time; one of them is stopped and started
// again and again.
func TestScheduleYear(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		c := newClockworks(t, time.Now)
		crons := map[string]string{
			"yearly": "@yearly", "annually": "@annually", "monthly": "@monthly", "weekly": "@weekly", "daily": "@daily", "midnight": "@midnight",
			"leap": "0 0 29 2 *", "every": "@every 36h", "hours": "30 6,18 * * MON-FRI", "never": "0 0 30 2 *",
		}
		start := time.Now()
		made := make(map[string]*store.Schedule)
		for name, cron := range crons {
			made[name] = c.create(name, cron)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() { _ = c.scheduler("").Run(ctx) })
		}
		running.Go(func() {
			for ctx.Err() == nil {
				some, end := context.WithTimeout(ctx, 100*time.Hour+11*time.Minute)
				_ = c.scheduler("").Run(some)
				end()
			}
		})
		time.Sleep(366*24*time.Hour + 12*time.Hour)
		stop()
		running.Wait()
		total := 0
		for name, cron := range crons {
			parsed, err := factory.ParseCron(cron)
			if err != nil {
				t.Fatal(err)
			}
			var want []time.Time
			for tick := parsed.Next(start, made[name].Anchor); !tick.IsZero() && !tick.After(time.Now().Add(-time.Second)); tick = parsed.Next(tick, made[name].Anchor) {
				want = append(want, tick)
			}
			got := c.started(store.RunQuery{ScheduleID: made[name].ID})
			if len(got) != len(want) {
				t.Errorf("%s started %d runs, not %d", name, len(got), len(want))
				continue
			}
			for i := range got {
				if late := got[i].Sub(want[i]); late < 0 || late > time.Second {
					t.Errorf("%s: run %d started at %v, its tick was %v", name, i, got[i], want[i])
				}
			}
			total += len(got)
		}
		if total < 1500 {
			t.Errorf("only %d runs", total)
		}
	})
}

// handClock is a clock that a test sets.
type handClock struct{ at time.Time }

func (h *handClock) now() time.Time { return h.at }

func (h *handClock) set(text string) {
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	h.at = at
}

// TestMissedTicks: what came while no server ran starts nothing, or one run for
// all; what is seen within a minute was not missed.
func TestMissedTicks(t *testing.T) {
	for _, tt := range []struct {
		missed, until string
		runs          int
		problem       string
	}{
		{MissedSkip, "2026-11-21 12:00:00", 1, ""},
		{MissedSkip, "2026-11-21 12:00:59", 1, ""},
		{MissedSkip, "2026-11-21 12:30:00", 0, "no server ran when it was due, at 2026-11-21T12:00:00Z"},
		{MissedSkip, "2026-11-25 11:59:59", 0, "no server ran"},
		{MissedSkip, "2026-11-25 12:00:30", 1, ""},
		{MissedOnce, "2026-11-21 12:30:00", 1, ""},
		{MissedOnce, "2026-11-25 11:59:59", 1, ""},
		{MissedOnce, "2026-11-21 09:30:00", 0, ""},
	} {
		clock := &handClock{}
		clock.set("2026-11-21 08:30:00")
		c := newClockworks(t, clock.now)
		n := c.create("hourly", "0 9-12/3 * * *")
		c.pass(c.scheduler(tt.missed))
		clock.set("2026-11-21 09:00:01")
		c.pass(c.scheduler(tt.missed))
		clock.set(tt.until)
		s := c.scheduler(tt.missed)
		next := c.pass(s)
		c.pass(s)
		if got := len(c.started(store.RunQuery{})) - 1; got != tt.runs {
			t.Errorf("%s until %s: %d runs, not %d", tt.missed, tt.until, got, tt.runs)
		}
		n, err := c.store.Schedules.Get(t.Context(), n.ID)
		if err != nil || !strings.HasPrefix(n.Error, tt.problem) || tt.problem == "" && n.Error != "" {
			t.Errorf("%s until %s: %q, %v", tt.missed, tt.until, n.Error, err)
		}
		if !next.After(clock.at) {
			t.Errorf("%s until %s: the next tick is %v", tt.missed, tt.until, next)
		}
	}
}

// TestClockJumps: whatever the clock does, no tick starts two runs, and none that
// comes afterwards is lost.
func TestClockJumps(t *testing.T) {
	clock := &handClock{}
	clock.set("2026-11-21 11:59:30")
	c := newClockworks(t, clock.now)
	c.create("hourly", "@hourly")
	n := c.create("every", "@every 30m")
	s := c.scheduler("")
	total := 0
	for _, step := range []struct {
		at   string
		runs int
	}{
		{"2026-11-21 11:59:30", 0},
		{"2026-11-21 12:00:00", 1},
		{"2026-11-21 11:00:00", 0}, // an hour back: 12:00 comes again
		{"2026-11-21 12:00:01", 0},
		{"2026-11-21 12:29:30", 1},
		{"2026-11-21 12:28:50", 0}, // less than a minute back
		{"2026-11-21 12:29:31", 0},
		{"2036-11-21 12:00:00", 2}, // ten years ahead: what lies between is missed, but for what is due now
		{"2026-11-21 12:59:00", 0}, // and back
		{"2026-11-21 12:59:30", 1},
		{"2026-11-21 13:00:00", 1},
		{"2026-11-21 13:00:10", 0},
	} {
		clock.set(step.at)
		c.pass(s)
		c.pass(c.scheduler("")) // a server that starts just now, too
		total += step.runs
		if got := len(c.started(store.RunQuery{})); got != total {
			t.Fatalf("at %s: %d runs in all, not %d", step.at, got, total)
		}
	}
	if n, err := c.store.Schedules.Get(t.Context(), n.ID); err != nil || n.FiredAt.IsZero() {
		t.Error(n, err)
	}
}

// TestInlineSchedules: a schedule of an automation is known by its name: another
// expression changes it in place, another name replaces it, a deleted automation
// has none (factory/testdata/rules 4.3).
func TestInlineSchedules(t *testing.T) {
	clock := &handClock{}
	clock.set("2026-11-21 08:00:00")
	c := newClockworks(t, clock.now)
	s := c.scheduler("")
	version := 0
	define := func(automations ...*factory.Automation) []*store.Schedule {
		t.Helper()
		version++
		r := &applier.Revision{Factory: "f", ApplyID: fmt.Sprint(version), Definition: &factory.Factory{}}
		for _, a := range automations {
			r.Automations = append(r.Automations, &applier.Automation{Def: a})
		}
		c.live.Swap(r)
		c.pass(s)
		all, err := c.store.Schedules.List(t.Context(), "f")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	automation := func(name string, triggers ...factory.Trigger) *factory.Automation {
		for i := range triggers {
			triggers[i].Provider, triggers[i].Event = "schedule", "cron_fired"
		}
		return &factory.Automation{Name: name, Enabled: true, Triggers: triggers}
	}
	first := define(automation("a", factory.Trigger{Cron: "0 9 * * *", ScheduleName: "morning"}, factory.Trigger{Cron: "0 18 * * *"}))
	if len(first) != 2 || first[0].Name != "" || first[1].Cron != "0 9 * * *" || first[1].Automation != "a" {
		t.Fatalf("%+v", first)
	}
	clock.set("2026-11-21 08:30:00")
	changed := define(automation("a", factory.Trigger{Cron: "0 10 * * *", ScheduleName: "morning"}, factory.Trigger{Cron: "0 18 * * *"}))
	if changed[1].ID != first[1].ID || changed[1].Cron != "0 10 * * *" || !changed[1].Anchor.Equal(clock.at) || changed[0].UpdatedAt != first[0].UpdatedAt {
		t.Errorf("not changed in place: %+v", changed[1])
	}
	clock.set("2026-11-21 10:00:00")
	c.pass(s)
	if got := c.started(store.RunQuery{Automation: "a", ScheduleID: changed[1].ID}); len(got) != 1 {
		t.Errorf("%d runs at ten", len(got))
	}
	replaced := define(automation("a", factory.Trigger{Cron: "0 10 * * *", ScheduleName: "early"}, factory.Trigger{Cron: "0 18 * * *"}))
	if len(replaced) != 2 || replaced[1].ID == first[1].ID || replaced[1].Name != "early" {
		t.Errorf("not replaced: %+v", replaced[1])
	}
	// Another automation selects a schedule by its id: both start, once.
	other := automation("b", factory.Trigger{ScheduleIDs: []string{replaced[1].ID.String()}})
	define(automation("a", factory.Trigger{Cron: "0 10 * * *", ScheduleName: "early"}), other)
	clock.set("2026-11-22 10:00:10")
	c.pass(s)
	c.pass(c.scheduler(""))
	if a, b := c.started(store.RunQuery{ScheduleID: replaced[1].ID}), c.started(store.RunQuery{Automation: "b"}); len(a) != 2 || len(b) != 1 {
		t.Errorf("%d runs of the schedule, %d of the automation that selects it", len(a), len(b))
	}
	disabled := automation("a", factory.Trigger{Cron: "0 10 * * *", ScheduleName: "early"})
	disabled.Enabled = false
	if all := define(disabled); len(all) != 1 || all[0].Enabled {
		t.Errorf("a disabled automation has %+v", all[0])
	}
	clock.set("2026-11-23 10:00:10")
	c.pass(s)
	if got := c.started(store.RunQuery{Automation: "a"}); len(got) != 2 {
		t.Errorf("%d runs, though it is disabled", len(got))
	}
	if all := define(); len(all) != 0 {
		t.Errorf("%d schedules are left", len(all))
	}
}

// TestScheduleProblems: a tick whose run cannot be made says why, and the next one
// tries again; a paused schedule starts nothing, and misses nothing.
func TestScheduleProblems(t *testing.T) {
	clock := &handClock{}
	clock.set("2026-11-21 08:30:00")
	c := newClockworks(t, clock.now)
	n := c.create("hourly", "@hourly")
	s := c.scheduler(MissedOnce)
	c.fail = errors.New("there is no environment")
	clock.set("2026-11-21 09:00:00")
	c.pass(s)
	read := func() *store.Schedule {
		n, err := c.store.Schedules.Get(t.Context(), n.ID)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := read(); got.Error != "there is no environment" || !got.FiredAt.IsZero() || len(c.started(store.RunQuery{})) != 0 {
		t.Errorf("%+v", got)
	}
	c.fail = nil
	clock.set("2026-11-21 10:00:00")
	c.pass(s)
	if got := read(); got.Error != "" || !got.FiredAt.Equal(clock.at) {
		t.Errorf("%+v", got)
	}
	paused := read()
	paused.Enabled = false
	if _, err := c.store.Schedules.Update(t.Context(), *paused); err != nil {
		t.Fatal(err)
	}
	clock.set("2026-11-21 13:30:00")
	c.pass(s)
	paused.Enabled = true
	if _, err := c.store.Schedules.Update(t.Context(), *paused); err != nil {
		t.Fatal(err)
	}
	c.pass(s)
	if got := c.started(store.RunQuery{}); len(got) != 1 {
		t.Errorf("%d runs, though it was paused", len(got))
	}
	clock.set("2026-11-21 14:00:00")
	if next := c.pass(s); !next.Equal(clock.at.Add(time.Hour)) || len(c.started(store.RunQuery{})) != 2 {
		t.Errorf("next %v", next)
	}
}
