package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// about makes a delivery with a run of the automation a about acme/app#1, and returns the run; 0:
// none was started.
func (f *fixture) about(t testing.TB, r NewRun) RunID {
	t.Helper()
	f.lined++
	d := delivery(fmt.Sprint("lined ", f.lined), "{}")
	d.Runs = []NewRun{inLineOf(r)}
	done := must[Recorded](t)(f.Deliveries.Record(t.Context(), d))
	if len(done.RunIDs) == 0 {
		return 0
	}
	return done.RunIDs[0]
}

func inLineOf(r NewRun) NewRun {
	r.Factory, r.Source, r.Title, r.Automation = "default", SourceWebhook, "a", cmp.Or(r.Automation, "a")
	if r.Subject == "" {
		r.Subject = "github:acme/app#1"
	}
	return r
}

// shown is the state of a run with its message, ids replaced by their places in all.
func (f *fixture) shown(t testing.TB, all []RunID, id RunID) string {
	t.Helper()
	r := must[*Run](t)(f.Runs.Get(t.Context(), id))
	text := strings.TrimSpace(string(r.State) + " " + r.StatusMessage)
	if !r.RunAt.IsZero() {
		text += " " + r.RunAt.Sub(f.at).String()
	}
	for i, id := range all {
		if id == 0 {
			continue
		}
		text = strings.ReplaceAll(text, id.String(), fmt.Sprint("#", i+1))
	}
	return text
}

// TestLines: what an event does while a run of its automation for the same subject has not ended
// (SPEC 21.3, 21.4). In the steps, + is an event, c claims what may start, a number ends that run,
// x ends it as cancelled if it was asked to stop, and a duration passes.
func TestLines(t *testing.T) {
	s := open(t)
	const waits = "QUEUED waits for #%d, which is about github:acme/app#1 too"
	for _, c := range []struct {
		name, steps string
		rule        NewRun
		want        []string
	}{
		{"parallel", "+ c +", NewRun{}, []string{"INPROGRESS", "QUEUED"}},
		{"queue", "+ + + c", NewRun{PerSubject: PerSubjectQueue}, []string{"INPROGRESS", fmt.Sprintf(waits, 1), fmt.Sprintf(waits, 2)}},
		{"queue, the first ends", "+ + + c 1 c", NewRun{PerSubject: PerSubjectQueue}, []string{"SUCCEEDED", "INPROGRESS", fmt.Sprintf(waits, 2)}},
		{"queue, one in the middle is cancelled", "+ + + c s2", NewRun{PerSubject: PerSubjectQueue}, []string{"INPROGRESS", "CANCELLED cancelled before it started", fmt.Sprintf(waits, 1)}},
		{"queue, all end", "+ + c 1 c 2 + c", NewRun{PerSubject: PerSubjectQueue}, []string{"SUCCEEDED", "SUCCEEDED", "INPROGRESS"}},
		{"replace what is queued", "+ +", NewRun{PerSubject: PerSubjectReplace}, []string{"CANCELLED cancelled in favour of #2 before it started", "QUEUED"}},
		{"replace what is at work", "+ c + c", NewRun{PerSubject: PerSubjectReplace}, []string{"INPROGRESS cancelled in favour of #2", fmt.Sprintf(waits, 1)}},
		{"replace twice", "+ c + + c", NewRun{PerSubject: PerSubjectReplace}, []string{"INPROGRESS cancelled in favour of #2", "CANCELLED cancelled in favour of #3 before it started", fmt.Sprintf(waits, 1)}},
		{"replace, the older is dead", "+ c + c x1 c", NewRun{PerSubject: PerSubjectReplace}, []string{"CANCELLED stopped", "INPROGRESS"}},
		{"skip", "+ c + +", NewRun{PerSubject: PerSubjectSkip}, []string{"INPROGRESS", "", ""}},
		{"skip, and later not", "+ c + 1 +", NewRun{PerSubject: PerSubjectSkip}, []string{"SUCCEEDED", "", "QUEUED"}},
		{"continue", "+ c + +", NewRun{PerSubject: PerSubjectContinue}, []string{"INPROGRESS", "QUEUED waits for #1, which is before it in the conversation", "QUEUED waits for #2, which is before it in the conversation"}},
		{"settle", "+ 20s + 20s +", NewRun{Settle: 30 * time.Second}, []string{
			"CANCELLED cancelled in favour of #2 before it started", "CANCELLED cancelled in favour of #3 before it started", "QUEUED waits for further events of github:acme/app#1 30s",
		}},
		{"settle, quiet", "+ 31s c +", NewRun{Settle: 30 * time.Second}, []string{"INPROGRESS", "QUEUED waits for further events of github:acme/app#1 30s"}},
		{"settle, quiet, but no worker", "+ 31s + c", NewRun{Settle: 30 * time.Second}, []string{"INPROGRESS", "QUEUED waits for further events of github:acme/app#1 30s"}},
		{"settle, at most ten times as long", "+ 9s + 9s + 9s + 9s + 9s + 9s + 9s + 9s + 9s + 9s + 9s +", NewRun{Settle: 10 * time.Second}, append(replaced(11), "QUEUED waits for further events of github:acme/app#1 1s")},
		{"settle and queue", "+ 31s c + +", NewRun{Settle: 30 * time.Second, PerSubject: PerSubjectQueue}, []string{"INPROGRESS", "CANCELLED cancelled in favour of #3 before it started", fmt.Sprintf(waits, 1)}},
		{"settle and queue, the first ends soon", "+ 31s c + 1s 1 c", NewRun{Settle: 30 * time.Second, PerSubject: PerSubjectQueue}, []string{"SUCCEEDED", "QUEUED waits for further events of github:acme/app#1 29s"}},
		{"settle and queue, the first ends late", "+ 31s c + 31s + 1 c", NewRun{Settle: 30 * time.Second, PerSubject: PerSubjectQueue}, []string{"SUCCEEDED", "INPROGRESS", fmt.Sprintf(waits, 2)}},
		{"settle and replace", "+ 31s c + x1 1s +", NewRun{Settle: 30 * time.Second, PerSubject: PerSubjectReplace}, []string{"CANCELLED stopped", "CANCELLED cancelled in favour of #3 before it started", "QUEUED waits for further events of github:acme/app#1 30s"}},
		{"settle and skip", "+ 1s + 31s c +", NewRun{Settle: 30 * time.Second, PerSubject: PerSubjectSkip}, []string{"CANCELLED cancelled in favour of #2 before it started", "INPROGRESS", ""}},
		{"overflow", "+ + + c", NewRun{MaxPerHour: 2, Overflow: true}, []string{"INPROGRESS", "INPROGRESS", "QUEUED " + waitsForRoom + " 1h0m0s"}},
		{"overflow, the hour has room", "+ 10m + + + 51m c", NewRun{MaxPerHour: 2, Overflow: true}, []string{"INPROGRESS", "INPROGRESS", "INPROGRESS", "QUEUED " + waitsForRoom + " 9m0s"}},
		{"what was superseded does not count", "+ + + 31s c", NewRun{MaxPerHour: 1, Settle: 30 * time.Second}, []string{
			"CANCELLED cancelled in favour of #2 before it started", "CANCELLED cancelled in favour of #3 before it started", "INPROGRESS",
		}},
		{"what was superseded does not count for its person", "+ + + 31s c", NewRun{MaxPerPerson: 1, Person: "github:ada 1", Settle: 30 * time.Second}, []string{
			"CANCELLED cancelled in favour of #2 before it started", "CANCELLED cancelled in favour of #3 before it started", "INPROGRESS",
		}},
		{"what waits for room counts for its person when it counts", "+ + 61m + +", NewRun{MaxPerHour: 1, Overflow: true, MaxPerPerson: 2, Person: "github:ada 1"}, []string{
			"QUEUED", "QUEUED " + waitsForRoom + " -1m0s", "QUEUED " + waitsForRoom + " 59m0s", "",
		}},
		{"overflow and queue", "+ + c 1 c", NewRun{MaxPerHour: 1, Overflow: true, PerSubject: PerSubjectQueue}, []string{"SUCCEEDED", "QUEUED " + waitsForRoom + " 1h0m0s"}},
	} {
		for _, again := range []string{"", "nothing is remembered: "} { // as after a restart
			t.Run(again+c.name, func(t *testing.T) {
				c.rule.Automation = again + c.name
				var all []RunID
				leases := make(map[RunID]Lease)
				for step := range strings.FieldsSeq(c.steps) {
					if again != "" {
						check(t, s.Do(t.Context(), func(*engine.Tx) error {
							hooks{s.db}.Forget()
							return nil
						}))
					}
					d, err := time.ParseDuration(step)
					var n int
					kind, _ := fmt.Sscanf(strings.TrimLeft(step, "xs"), "%d", &n)
					switch {
					case step == "+":
						all = append(all, s.about(t, c.rule))
					case step == "c":
						for _, l := range s.claimed(t) {
							leases[l.RunID] = l
						}
					case err == nil && strings.ContainsAny(step, "sm"):
						s.at = s.at.Add(d)
					case kind == 1 && step[0] == 's':
						must[*Run](t)(s.Runs.Stop(t.Context(), all[n-1], StopCancel, ""))
					case kind == 1 && step[0] == 'x':
						if asked := must[Stop](t)(s.Leases.Renew(t.Context(), leases[all[n-1]], time.Hour)); asked != StopCancel {
							t.Fatalf("#%d was not asked to stop", n)
						}
						check(t, s.Leases.Finish(t.Context(), leases[all[n-1]], Cancelled, "stopped", nil))
					default:
						check(t, s.Leases.Finish(t.Context(), leases[all[n-1]], Succeeded, "", nil))
					}
				}
				var got []string
				for _, id := range all {
					if id == 0 {
						got = append(got, "")
						continue
					}
					got = append(got, s.shown(t, all, id))
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s:\ngot  %s\nwant %s", c.steps, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
				}
				for _, id := range slices.Backward(all) { // the next case finds nothing of this one
					if l, began := leases[id]; began {
						_ = s.Leases.Finish(t.Context(), l, Cancelled, "", nil)
					} else if id != 0 {
						_, _ = s.Runs.Stop(t.Context(), id, StopCancel, "")
					}
				}
			})
		}
	}
}

func replaced(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("CANCELLED cancelled in favour of #%d before it started", i+2))
	}
	return all
}

// TestLineAlone: other subjects, other automations, replays and runs without a subject do not keep
// to a line.
func TestLineAlone(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectQueue}
	s.about(t, rule)
	d := delivery("others", "{}")
	other, none := inLineOf(rule), inLineOf(rule)
	other.Automation, none.Automation, none.Subject = "b", "c", ""
	d.Runs = []NewRun{other, none}
	must[Recorded](t)(s.Deliveries.Record(t.Context(), d))
	replay := delivery("replay", "{}")
	replay.ReplayOf, replay.Runs = 1, []NewRun{inLineOf(rule)}
	must[Recorded](t)(s.Deliveries.Record(t.Context(), replay))
	elsewhere := rule
	elsewhere.Subject = "github:acme/app#2"
	s.about(t, elsewhere)
	if got := s.claimed(t); len(got) != 5 {
		t.Errorf("%d of 5 runs may start", len(got))
	}
	var left int
	check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM lines").Scan(&left))
	if left != 3 {
		t.Errorf("%d rows of lines", left)
	}
}

// TestLineSkipped: a delivery tells because of which run it started nothing.
func TestLineSkipped(t *testing.T) {
	s := open(t)
	first := s.about(t, NewRun{PerSubject: PerSubjectSkip})
	d := delivery("second", "{}")
	d.Runs = []NewRun{inLineOf(NewRun{PerSubject: PerSubjectSkip})}
	done := must[Recorded](t)(s.Deliveries.Record(t.Context(), d))
	got := must[*Delivery](t)(s.Deliveries.Get(t.Context(), done.ID))
	if !slices.Equal(got.Skips, []Skip{{"a", first}}) || got.Started != 0 {
		t.Errorf("%+v", got)
	}
	// An answer of the sender's API does not start it either.
	started, _, err := s.Lookups.Record(t.Context(), done.ID, nil, d.Runs, nil)
	if check(t, err); len(started) != 0 {
		t.Errorf("started %v", started)
	}
}

// TestLineAnswers: of a run that another run replaces before it began, nothing more is told; of one that was
// at work, its end is.
func TestLineAnswers(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectReplace, Answers: []NewAnswer{told("k", AnswerSign)}}
	answer := func(id RunID) Answer { return must[[]Answer](t)(s.Answers.Of(t.Context(), id))[0] }
	first := s.about(t, rule)
	second := s.about(t, rule)
	if a := answer(first); a.Status != AnswerNone || a.Detail != second.String()+" took its place before it began" || !a.DueAt.IsZero() {
		t.Errorf("of the first: %+v", a)
	}
	lease := must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 9, Lease: time.Hour}))[0]
	s.about(t, rule)
	check(t, s.Leases.Finish(t.Context(), lease, Cancelled, "stopped", nil))
	if a := answer(second); a.Status != AnswerPending || a.Next != AnswerEnd {
		t.Errorf("of the second, which was at work: %+v", a)
	}
}

// TestLineOfLookup: what an older delivery starts late takes its place before the runs of newer
// ones, or yields to them.
func TestLineOfLookup(t *testing.T) {
	for _, c := range []struct {
		rule NewRun
		want []string // of the run of the older delivery, of the newer one, and of a third one
	}{
		{NewRun{PerSubject: PerSubjectQueue}, []string{"INPROGRESS", "SUCCEEDED", "QUEUED waits for #1, which is about github:acme/app#1 too"}},
		{NewRun{PerSubject: PerSubjectReplace}, []string{"CANCELLED cancelled in favour of #3 before it started", "SUCCEEDED", "INPROGRESS"}},
		{NewRun{Settle: time.Minute}, []string{"CANCELLED cancelled in favour of #3 before it started", "SUCCEEDED", "QUEUED waits for further events of github:acme/app#1 1m0s"}},
	} {
		s := open(t)
		older := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("older", "{}")))
		newer := s.about(t, c.rule)
		s.at = s.at.Add(2 * time.Minute)
		leases := s.claimed(t)
		third := s.about(t, c.rule)
		late, _, err := s.Lookups.Record(t.Context(), older.ID, nil, []NewRun{inLineOf(c.rule)}, nil)
		check(t, err)
		check(t, s.Leases.Finish(t.Context(), leases[0], Succeeded, "", nil))
		s.claimed(t)
		all := []RunID{late[0], newer, third}
		got := []string{s.shown(t, all, late[0]), s.shown(t, all, newer), s.shown(t, all, third)}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v:\ngot  %q\nwant %q", c.rule, got, c.want)
		}
	}
}

// TestLineOfLookupWaits: what an older delivery starts late waits for the run at work, also if a run that
// waits behind it is cancelled.
func TestLineOfLookupWaits(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectQueue}
	older := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("older", "{}")))
	s.about(t, rule)
	leases := s.claimed(t)
	third := s.about(t, rule)
	late, _, err := s.Lookups.Record(t.Context(), older.ID, nil, []NewRun{inLineOf(rule)}, nil)
	check(t, err)
	must[*Run](t)(s.Runs.Stop(t.Context(), third, StopCancel, ""))
	if got := s.claimed(t); len(got) != 0 {
		t.Errorf("claimed %v while a run is at work", got)
	}
	check(t, s.Leases.Finish(t.Context(), leases[0], Succeeded, "", nil))
	if got := idsOf(s.claimed(t)); !slices.Equal(got, late) {
		t.Errorf("claimed %v and not %v", got, late)
	}
}

// TestLookupAgain: the writer does a change anew if another one of its transaction failed. What an answer
// starts stays the same then.
func TestLookupAgain(t *testing.T) {
	s := open(t)
	d := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("d", "{}", "a")))
	runs := []NewRun{inLineOf(NewRun{Automation: "a"}), inLineOf(NewRun{Automation: "b"})}
	failed := errors.New("another change failed")
	again := func(tx *engine.Tx) error {
		_, _, err := s.Lookups.startLater(tx, d.ID, runs)
		return errors.Join(err, failed)
	}
	if err := s.Do(t.Context(), again); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	started, _, err := s.Lookups.Record(t.Context(), d.ID, nil, runs, nil)
	if check(t, err); len(started) != 1 || must[*Run](t)(s.Runs.Get(t.Context(), started[0])).Automation != "b" {
		t.Errorf("started %v", started)
	}
}

// TestLineContinues: an event goes on with the conversation of its subject while one is kept, and
// else begins a new one, so that no event is lost with the run before it.
func TestLineContinues(t *testing.T) {
	s := open(t)
	rule := func() NewRun {
		return NewRun{PerSubject: PerSubjectContinue, EndedAfter: s.at.Add(-time.Hour)}
	}
	conversation := func(id RunID) RunID { return must[*Run](t)(s.Runs.Get(t.Context(), id)).ConversationID }
	end := func(id RunID, session string) {
		t.Helper()
		leases := s.claimed(t)
		if got := idsOf(leases); !slices.Equal(got, []RunID{id}) {
			t.Fatalf("claimed %v and not %v", got, id)
		}
		if session != "" {
			check(t, s.Conversations.SetSession(t.Context(), leases[0], Session{"claude", session}))
		}
		check(t, s.Leases.Finish(t.Context(), leases[0], FailedRun, "no", nil))
	}
	first, second, third := s.about(t, rule()), s.about(t, rule()), s.about(t, rule())
	end(first, "") // before its agent had begun a session
	if conversation(second) != second || conversation(third) != second {
		t.Errorf("without a session: %v and %v go on with %v and %v", second, third, conversation(second), conversation(third))
	}
	end(second, "s1")
	end(third, "")
	if fourth := s.about(t, rule()); conversation(fourth) != second {
		t.Errorf("the fourth run goes on with %v", conversation(fourth))
	} else {
		end(fourth, "")
	}
	s.at = s.at.Add(2 * time.Hour)
	fifth := s.about(t, rule())
	if conversation(fifth) != fifth {
		t.Errorf("the fifth run goes on with the expired %v", conversation(fifth))
	}
	if sixth := s.about(t, rule()); conversation(sixth) != fifth {
		t.Errorf("the sixth run goes on with %v", conversation(sixth))
	}
	end(fifth, "s2")
}

// TestLineFollowUp: the follow-up of a person behind a run that waits in its line does not release
// that run.
func TestLineFollowUp(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectQueue}
	first, second := s.about(t, rule), s.about(t, rule)
	person := s.asked(t, NewRun{Conversation: second})
	must[*Run](t)(s.Runs.Stop(t.Context(), person, StopCancel, ""))
	if got := idsOf(s.claimed(t)); !slices.Equal(got, []RunID{first}) {
		t.Errorf("claimed %v", got)
	}
}

// TestLineFollowUpBehind: the follow-up of a person does not wait for good behind a run that begins a conversation
// anew, because the one that both were to go on with has no session.
func TestLineFollowUpBehind(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectContinue}
	first := s.about(t, rule)
	leases := s.claimed(t)
	second := s.about(t, rule)
	person := s.asked(t, NewRun{Conversation: first})
	check(t, s.Leases.Finish(t.Context(), leases[0], FailedRun, "no", nil))
	got := idsOf(s.claimed(t))
	slices.Sort(got)
	if !slices.Equal(got, []RunID{second, person}) {
		t.Errorf("claimed %v, not %v and %v", got, second, person)
	}
}

// TestLineLost: a run that waits for another one starts when that is dead, and not before, also if
// its worker is lost or it is tried again.
func TestLineLost(t *testing.T) {
	s := open(t)
	rule := NewRun{PerSubject: PerSubjectReplace, Spec: []byte(`{"retry":{"attempts":2,"delay_ns":60000000000}}`)}
	first := s.about(t, rule)
	s.claimed(t)
	second := s.about(t, rule)
	s.reopen(t)
	if got := s.claimed(t); len(got) != 0 {
		t.Fatalf("claimed %v while the first run is at work", got)
	}
	must[[]RunID](t)(s.Leases.Reap(t.Context(), true, "the server died"))
	if got := idsOf(s.claimed(t)); !slices.Equal(got, []RunID{second}) {
		t.Errorf("claimed %v", got)
	}
	if r := must[*Run](t)(s.Runs.Get(t.Context(), first)); r.State != FailedRun || r.ReplacedBy != second {
		t.Errorf("the first run is %s, replaced by %v", r.State, r.ReplacedBy)
	}
}

// TestLineBurst: of many deliveries of one subject at once, on two servers if there can be two, one
// run is at work at a time, in the order of the deliveries.
func TestLineBurst(t *testing.T) {
	s := open(t)
	stores := []*Store{s.Store}
	if s.cfg.URL != "" {
		other := must[*Store](t)(Open(t.Context(), s.cfg))
		t.Cleanup(func() { _ = other.Close() })
		stores = append(stores, other)
	}
	const events = 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	started := make(map[RunID]DeliveryID)
	for i := range events {
		wg.Go(func() {
			d := delivery(fmt.Sprint(i), "{}")
			d.Runs = []NewRun{inLineOf(NewRun{PerSubject: PerSubjectQueue})}
			done := must[Recorded](t)(stores[i%len(stores)].Deliveries.Record(t.Context(), d))
			mu.Lock()
			defer mu.Unlock()
			started[done.RunIDs[0]] = done.ID
		})
	}
	var order []DeliveryID
	for n := 0; n < events; {
		from := stores[rand.IntN(len(stores))]
		leases := must[[]Lease](t)(from.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 100, Lease: time.Minute}))
		if len(leases) > 1 {
			t.Fatalf("%d runs at once", len(leases))
		}
		if len(leases) == 0 {
			continue
		}
		order = append(order, must[*Run](t)(s.Runs.Get(t.Context(), leases[0].RunID)).DeliveryID)
		check(t, stores[rand.IntN(len(stores))].Leases.Finish(t.Context(), leases[0], Succeeded, "", nil))
		n++
	}
	wg.Wait()
	if !slices.IsSorted(order) || len(started) != events {
		t.Errorf("%d runs in the order %v", len(started), order)
	}
	var left int
	if check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM lines").Scan(&left)); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
