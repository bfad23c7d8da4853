package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// TestGuardByHand: what people start counts for no limit of the automation, whatever is remembered.
func TestGuardByHand(t *testing.T) {
	s := open(t)
	for range 2 {
		_, _, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Automation: "a", Source: SourceAPI, Spec: []byte("{}")}, "", nil)
		check(t, err)
	}
	s.reopen(t)
	if id := s.about(t, NewRun{MaxPerHour: 1}); id == 0 {
		t.Errorf("paused: %+v", s.Pauses.List("default"))
	}
}

// TestPersonReplaced: who is replaced by another person's event before the run started can start another, whatever
// is remembered.
func TestPersonReplaced(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := open(t)
		rule := NewRun{PerSubject: PerSubjectReplace, MaxPerPerson: 1}
		for _, person := range []string{"github:ada 1", "github:bob 2", "github:ada 1"} {
			if again {
				s.reopen(t)
			}
			if rule.Person = person; s.about(t, rule) == 0 {
				t.Errorf("%s starts nothing (after a restart: %v)", person, again)
			}
		}
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

// TestPersonLimit: an automation with a limit starts no more runs for one person in an hour, whatever the
// person is called by now, also after a restart; others and other automations go on, and nothing is
// paused (SPEC 24.1).
func TestPersonLimit(t *testing.T) {
	s := open(t)
	n := 0
	deliver := func(person string, most int64) *Delivery {
		t.Helper()
		n++
		d := delivery(fmt.Sprint("p", n), "{}", "a", "free")
		for i := range d.Runs {
			d.Runs[i].Person = person
		}
		d.Runs[0].MaxPerPerson = most
		r := must[Recorded](t)(s.Deliveries.Record(t.Context(), d))
		return must[*Delivery](t)(s.Deliveries.Get(t.Context(), r.ID))
	}
	is := func(what string, d *Delivery, want bool) {
		t.Helper()
		if started := d.Started == 2; started != want || (d.Limited["a"] == "") != want || len(d.Paused) != 0 || d.Started < 1 {
			t.Errorf("%s: started %d, limited %q, paused %q", what, d.Started, d.Limited, d.Paused)
		}
	}
	is("the first", deliver("github:ada 1", 2), true)
	s.at = s.at.Add(20 * time.Minute)
	is("the second", deliver("github:ada 1", 2), true)
	third := deliver("github:ada 1", 2)
	is("the third", third, false)
	if want := "github:ada has started 2 runs of it within an hour (maxRunsPerPersonPerHour)"; third.Limited["a"] != want {
		t.Errorf("the reason is %q", third.Limited["a"])
	}
	s.reopen(t)
	is("under another name, after a restart", deliver("github:countess 1", 2), false)
	is("a login that was somebody else's", deliver("github:ada 2", 2), true)
	is("a person of another sender with the same identifier", deliver("gitlab:ada 1", 2), true)
	is("nobody", deliver("", 2), true)
	s.at = s.at.Add(41 * time.Minute) // the first is older than an hour
	is("later", deliver("github:ada 1", 2), true)
	is("later, once more", deliver("github:ada 1", 2), false)
	is("no limit", deliver("github:ada 1", 0), true)
	if pauses := s.Pauses.List("default"); len(pauses) != 0 {
		t.Errorf("paused %+v", pauses)
	}
	run := must[*Run](t)(s.Runs.Get(t.Context(), third.Runs[0].ID))
	if run.Person != "github:ada" || run.Automation != "free" {
		t.Errorf("the run of %s is for %q", run.Automation, run.Person)
	}
}

// TestPersonLimitAtOnce: deliveries that come at the same time start no more than may be (SPEC 24.1).
func TestPersonLimitAtOnce(t *testing.T) {
	s := open(t)
	var group sync.WaitGroup
	var started atomic.Int64
	for i := range 40 {
		group.Go(func() {
			d := delivery(fmt.Sprint("c", i), "{}", "a")
			d.Runs[0].Person, d.Runs[0].MaxPerPerson = "github:ada 1", 5
			r, err := s.Deliveries.Record(t.Context(), d)
			if err != nil {
				t.Error(err)
			}
			started.Add(int64(len(r.RunIDs)))
		})
	}
	group.Wait()
	if started.Load() != 5 {
		t.Errorf("started %d runs, want 5", started.Load())
	}
}

// TestPersonLimitLater: an answer of the sender's API starts no more than may be, and what was refused
// stays refused (SPEC 24.1).
func TestPersonLimitLater(t *testing.T) {
	s := open(t)
	limited := func(automations ...string) []NewRun {
		runs := delivery("x", "{}", automations...).Runs
		for i := range runs {
			runs[i].Person, runs[i].MaxPerPerson = "github:ada 1", 1
		}
		return runs
	}
	first := delivery("1", "{}")
	first.Runs = limited("a")
	must[Recorded](t)(s.Deliveries.Record(t.Context(), first))
	second := delivery("2", "{}")
	second.Waiting = []Lookup{{Provider: "github", Name: "sender_permission", Args: "acme/api ada 1"}}
	r := must[Recorded](t)(s.Deliveries.Record(t.Context(), second))
	for range 2 {
		if got, _, err := s.Lookups.Record(t.Context(), r.ID, second.Waiting, limited("a"), nil); err != nil || len(got) != 0 {
			t.Errorf("started %v", got)
		}
		s.at = s.at.Add(2 * time.Hour)
	}
	if d := must[*Delivery](t)(s.Deliveries.Get(t.Context(), r.ID)); d.Limited["a"] == "" || d.Started != 0 {
		t.Errorf("%+v", d)
	}
}

// TestGuardFreed: a run that is cancelled before it started makes room only if it still counted.
func TestGuardFreed(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectReplace, MaxPerHour: 2}
	s.about(t, rule)
	s.claimed(t)
	s.about(t, rule) // it waits for the first one
	s.at = s.at.Add(61 * time.Minute)
	for i := range 2 {
		rule.Subject = fmt.Sprint("github:acme/app#", i+2)
		s.about(t, rule)
	}
	rule.Subject = ""
	if id := s.about(t, rule); id != 0 {
		t.Errorf("a third run within an hour: %s", s.shown(t, nil, id))
	}
}

// TestGuardRaised: while runs wait for room, a higher limit makes room at once, and each run counts for one
// hour.
func TestGuardRaised(t *testing.T) {
	s := open(t)
	rule := NewRun{MaxPerHour: 1, Overflow: true}
	s.about(t, rule)
	s.about(t, rule) // it counts in an hour
	rule.MaxPerHour = 3
	s.at = s.at.Add(10 * time.Minute)
	s.about(t, rule)
	s.at = s.at.Add(65 * time.Minute)
	for range 2 {
		if got := s.shown(t, nil, s.about(t, rule)); got != "QUEUED" {
			t.Error(got)
		}
	}
}

// TestGuardSetAgain: runs that started while there was no limit count towards one that comes back within the hour.
func TestGuardSetAgain(t *testing.T) {
	for _, limits := range []NewRun{{MaxPerHour: 3}, {MaxPerPerson: 3, Person: "github:ada 1"}} {
		s := open(t)
		unlimited := NewRun{Person: limits.Person}
		for _, rule := range []NewRun{limits, unlimited, unlimited} {
			if s.about(t, rule) == 0 {
				t.Fatalf("%+v starts nothing", rule)
			}
		}
		if id := s.about(t, limits); id != 0 {
			t.Errorf("a fourth run within an hour: %s", s.shown(t, nil, id))
		}
	}
}
