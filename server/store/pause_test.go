package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var hook = Pausable{KindWebhook, "default", "hook"}

// TestPauseWebhook: what is paused takes nothing, over restarts, until it is resumed or its
// time is over, and then exactly (SPEC 18.2).
func TestPauseWebhook(t *testing.T) {
	s := open(t)
	set := s.watched(t)
	ctx := t.Context()
	n := 0
	takes := func(want bool) {
		t.Helper()
		n++
		for _, outcome := range []Outcome{Accepted, RejectedAuth} {
			d := delivery(fmt.Sprint(n), "{}", "a")
			d.Outcome = outcome
			_, err := s.Deliveries.Record(ctx, d)
			if want && err != nil || !want && !errors.Is(err, ErrPaused) {
				t.Errorf("%s: %v", outcome, err)
			}
		}
		if _, paused := s.Pauses.Of(hook); paused == want {
			t.Errorf("paused: %t", paused)
		}
		if all := s.Pauses.List("default"); (len(all) == 0) != want {
			t.Errorf("pauses %+v", all)
		}
	}
	takes(true)
	p := must[Pause](t)(s.Pauses.Pause(ctx, Pause{Pausable: hook, By: "ada", Reason: "a flood"}))
	if got, _ := s.Pauses.Of(hook); got != p || !p.At.Equal(s.at) {
		t.Errorf("%+v, not %+v", got, p)
	}
	takes(false)
	s.reopen(t)
	takes(false)
	for _, other := range []Pausable{{KindWebhook, "other", "hook"}, {KindWebhook, "default", "hook2"}, {KindAutomation, "default", "hook"}} {
		if _, paused := s.Pauses.Of(other); paused {
			t.Errorf("%+v is paused", other)
		}
		if err := s.Pauses.Resume(ctx, other); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	check(t, s.Pauses.Resume(ctx, hook))
	takes(true)
	s.reopen(t)
	takes(true)

	// A second pause replaces the first. It ends by itself.
	until := s.at.Add(2 * time.Hour)
	must[Pause](t)(s.Pauses.Pause(ctx, Pause{Pausable: hook, By: "ada", Reason: "for ever"}))
	must[Pause](t)(s.Pauses.Pause(ctx, Pause{Pausable: hook, Until: until, By: "bob", Reason: "the release"}))
	set(until.Add(-time.Microsecond))
	takes(false)
	s.reopen(t)
	takes(false)
	set(until)
	takes(true)
	s.reopen(t)
	takes(true)
}

// watched opens the store anew with a clock that may be set while the store looks at it, as it
// does when the end of a pause comes near.
func (f *fixture) watched(t *testing.T) (set func(time.Time)) {
	t.Helper()
	var now atomic.Pointer[time.Time]
	set = func(at time.Time) { now.Store(&at) }
	set(f.at)
	f.cfg.Now = func() time.Time { return *now.Load() }
	f.reopen(t)
	return set
}

// TestPauseEnds: the end of a pause by its time is in the audit log, also if it ended while
// no server ran, and it does not come back when the clock does.
func TestPauseEnds(t *testing.T) {
	s := open(t)
	start := s.at
	set := s.watched(t)
	ctx := t.Context()
	ended := func(name string, want int) {
		t.Helper()
		var found []AuditEntry
		for deadline := time.Now().Add(10 * time.Second); ; {
			found = nil
			for _, e := range must[[]AuditEntry](t)(s.Audit.List(ctx, AuditQuery{Limit: 100})) {
				if e.Object == name {
					found = append(found, e)
				}
			}
			if len(found) >= want || time.Now().After(deadline) {
				break
			}
		}
		if len(found) != want {
			t.Fatalf("%s: %+v", name, found)
		}
		if e := found[0]; e.Actor != "triphammer" || e.Origin != "local" || e.Factory != "default" || e.Details != "the time of its pause was over, which ada made: why" {
			t.Errorf("audit %+v", e)
		}
	}
	pause := func(kind, name string, until time.Time) Pausable {
		t.Helper()
		what := Pausable{kind, "default", name}
		must[Pause](t)(s.Pauses.Pause(ctx, Pause{Pausable: what, Until: until, By: "ada", Reason: "why"}))
		return what
	}
	// While it runs: the timer of the writer looks at once, because the next change sets it.
	pause(KindWebhook, "first", start.Add(time.Hour))
	set(start.Add(time.Hour))
	pause(KindAutomation, "second", start.Add(2*time.Hour))
	ended("first", 1)
	// While no server ran.
	check(t, s.Close())
	set(start.Add(3 * time.Hour))
	s.Store = nil
	s.reopen(t)
	ended("second", 1)
	if e := must[[]AuditEntry](t)(s.Audit.List(ctx, AuditQuery{Limit: 1}))[0]; e.Action != "automation.resume" {
		t.Errorf("audit %+v", e)
	}
	// The clock is set back by half an hour, which is believed.
	set(start.Add(90 * time.Minute))
	s.reopen(t)
	if all := s.Pauses.List(""); len(all) != 0 {
		t.Errorf("it came back: %+v", all)
	}
}

// TestPauseAndClock: while the clock is in doubt, a pause lasts as long as it would have.
func TestPauseAndClock(t *testing.T) {
	s := open(t)
	var mu sync.Mutex
	m := &machine{}
	move := func(passed, set time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		m.passed, m.set = m.passed+passed, m.set+set
	}
	s.cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return m.wall() }
	s.cfg.Passed = func() time.Duration { mu.Lock(); defer mu.Unlock(); return m.passed }
	s.cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s.reopen(t)
	for _, c := range []struct {
		name string
		set  time.Duration
		open bool // again, after the clock was set
	}{
		{"ten years ahead", 3650 * day, false},
		{"ten years ahead over a restart", 3650 * day, true},
		{"a day back", -day, false},
		{"a day back over a restart", -day, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			must[Pause](t)(s.Pauses.Pause(t.Context(), Pause{Pausable: hook, Until: s.Clock().Expected.Add(30 * time.Minute), By: "ada"}))
			move(time.Minute, c.set)
			if c.open {
				s.reopen(t)
			}
			move(28*time.Minute, 0)
			if _, paused := s.Pauses.Of(hook); !paused {
				t.Error("it ended early")
			}
			if c.open {
				move(time.Minute, 0) // what passed between the last write and the restart is not known
			}
			move(90*time.Second, 0)
			if _, paused := s.Pauses.Of(hook); paused {
				t.Errorf("it goes on; the clock %+v", s.Clock())
			}
			move(0, -c.set)
			s.reopen(t)
		})
	}
}

// TestPauseAtOnce: after the answer to a pause no delivery is recorded, and after that to
// its end all are, while others deliver.
func TestPauseAtOnce(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var pausedFor, takesFor atomic.Int64 // changes whenever a state is answered: 0 is neither
	var senders sync.WaitGroup
	var kept, refused atomic.Int64
	for i := range 4 {
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				paused, takes := pausedFor.Load(), takesFor.Load()
				_, err := s.Deliveries.Record(context.WithoutCancel(ctx), delivery(fmt.Sprint(i, n), "{}"))
				switch {
				case errors.Is(err, ErrPaused):
					refused.Add(1)
					if takes != 0 && takesFor.Load() == takes {
						t.Error("refused after it was resumed")
					}
				case err != nil:
					t.Error(err)
				default:
					kept.Add(1)
					if paused != 0 && pausedFor.Load() == paused {
						t.Error("accepted after it was paused")
					}
				}
			}
		})
	}
	for i := range int64(30) {
		must[Pause](t)(s.Pauses.Pause(t.Context(), Pause{Pausable: hook, By: "ada"}))
		pausedFor.Store(i + 1)
		for was := refused.Load(); refused.Load() < was+8; {
			if _, paused := s.Pauses.Of(hook); !paused {
				t.Fatal("it is not paused")
			}
		}
		pausedFor.Store(0)
		check(t, s.Pauses.Resume(t.Context(), hook))
		takesFor.Store(i + 1)
		for was := kept.Load(); kept.Load() < was+8; {
			if _, paused := s.Pauses.Of(hook); paused {
				t.Fatal("it is paused")
			}
		}
		takesFor.Store(0)
	}
	cancel()
	senders.Wait()
	if kept.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d kept, %d refused", kept.Load(), refused.Load())
	}
}
