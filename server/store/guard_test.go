package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// TestLoopGuard: an automation that starts more runs in an hour than it may is paused, also
// after a restart, until somebody resumes it; others are not (SPEC 15.7).
func TestLoopGuard(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	s.Runs.Guard(3)
	n := 0
	deliver := func(automations ...string) (started int, d *Delivery) {
		t.Helper()
		n++
		r := must[Recorded](t)(s.Deliveries.Record(ctx, delivery(fmt.Sprint(n), "{}", automations...)))
		d = must[*Delivery](t)(s.Deliveries.Get(ctx, r.ID))
		if d.Started != len(r.RunIDs) {
			t.Errorf("the delivery says that it started %d of %d runs", d.Started, len(r.RunIDs))
		}
		return len(r.RunIDs), d
	}
	for range 3 {
		deliver("a")
		s.at = s.at.Add(10 * time.Minute)
	}
	if started, d := deliver("a", "b"); started != 1 || fmt.Sprint(d.Paused) != "[a]" || d.Detail != "" {
		t.Errorf("beyond the limit: started %d, paused %v", started, d.Paused)
	}
	pauses := s.Pauses.List("default")
	if len(pauses) != 1 || pauses[0].Name != "a" || pauses[0].By != "loop guard" || !strings.Contains(pauses[0].Reason, "3 runs in an hour") || !pauses[0].At.Equal(s.at) {
		t.Errorf("pauses %+v", pauses)
	}
	s.at = s.at.Add(5 * time.Hour)
	s.reopen(t)
	s.Runs.Guard(3)
	if started, _ := deliver("a"); started != 0 {
		t.Error("after a restart and hours it is not paused any more")
	}
	if log := must[[]AuditEntry](t)(s.Audit.List(ctx, AuditQuery{Limit: 10})); len(log) != 1 || log[0].Action != "automation.pause" || log[0].Actor != "loop guard" {
		t.Errorf("audit log %+v", log)
	}
	check(t, s.Pauses.Resume(ctx, Pausable{KindAutomation, "default", "a"}))
	if err := s.Pauses.Resume(ctx, Pausable{KindAutomation, "default", "a"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("resumed twice: %v", err)
	}
	s.at = s.at.Add(time.Second)
	for i, want := range []int{1, 1, 1, 0} {
		if started, _ := deliver("a"); started != want {
			t.Errorf("delivery %d after it was resumed started %d", i+1, started)
		}
		s.reopen(t) // what was started before counts all the same
		s.Runs.Guard(3)
	}
	check(t, s.Pauses.Resume(ctx, Pausable{KindAutomation, "default", "a"}))
	s.at = s.at.Add(time.Second)
	for range 3 {
		s.at = s.at.Add(31 * time.Minute)
		deliver("a")
	}
	if started, _ := deliver("a"); started != 1 {
		t.Error("three runs within 62 minutes are too many")
	}
	// A run of its own that would start it again.
	own := delivery("own", "{}", "c")
	own.Runs[0].LoopOf = 7
	if r := must[Recorded](t)(s.Deliveries.Record(ctx, own)); len(r.RunIDs) != 0 {
		t.Error("a loop goes on")
	}
	if r := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("own", "{}", "c"))); !r.Duplicate {
		t.Error("the same delivery again is no duplicate")
	}
	// A person who does it again is no loop.
	s.Runs.Guard(0)
	must[Pause](t)(s.Pauses.Pause(ctx, Pause{Pausable: Pausable{KindAutomation, "default", "d"}, By: "ada", Reason: "holidays"}))
	again := NewRun{Factory: "default", Automation: "d", RetryOf: 1, Source: SourceWebhook, Spec: []byte("{}")}
	if _, _, err := s.Runs.Create(ctx, again, "", nil); err != nil {
		t.Errorf("a retry by hand: %v", err)
	}
	if started, d := deliver("d"); started != 0 || fmt.Sprint(d.Paused) != "[d]" {
		t.Errorf("paused by hand, it started %d", started)
	}
}

// TestNoGuard: where runs have no limit, nobody counts those of the last hour: there can be any
// number of them.
func TestNoGuard(t *testing.T) {
	s := open(t)
	s.Runs.Guard(0)
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}", "a")))
	check(t, s.Do(t.Context(), func(*engine.Tx) error {
		if n := len(s.groups.guards); n != 0 {
			t.Errorf("the runs of %d automations are counted", n)
		}
		return nil
	}))
}
