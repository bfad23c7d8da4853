package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// replied makes a delivery with a reply in a thread for some automations, and returns the runs.
func (f *fixture) replied(t *testing.T, change func(*NewDelivery), automations ...string) (runs []*Run) {
	t.Helper()
	f.lined++
	d := delivery(fmt.Sprint("reply ", f.lined), "{}", automations...)
	for i := range d.Runs {
		r := &d.Runs[i]
		r.Thread, r.OnlyReply, r.Subject, r.EndedAfter = "k", true, "linear:ENG-4", f.at.Add(-time.Hour)
		r.Answers = []NewAnswer{told("k", AnswerStart)}
	}
	if change != nil {
		change(d)
	}
	done := must[Recorded](t)(f.Deliveries.Record(t.Context(), d))
	if kept := must[*Delivery](t)(f.Deliveries.Get(t.Context(), done.ID)); kept.Started != len(done.RunIDs) {
		t.Errorf("%d runs were started, and the log says %d", len(done.RunIDs), kept.Started)
	}
	for _, id := range done.RunIDs {
		runs = append(runs, must[*Run](t)(f.Runs.Get(t.Context(), id)))
	}
	return runs
}

// TestReplies: a reply goes on with the conversation of the automation that answered in its thread
// last, whatever other threads of the subject do, and elsewhere starts nothing (SPEC 21.6).
func TestReplies(t *testing.T) {
	s := open(t)
	other := s.answered(t, "other thread", told("other", AnswerStart))
	if got := s.replied(t, nil, "a"); len(got) != 0 {
		t.Fatalf("a reply in a thread without an answer starts %+v", got)
	}
	first := s.answered(t, "first", told("k", AnswerStart))
	got := s.replied(t, nil, "a", "b")
	if len(got) != 1 || got[0].ConversationID != first || got[0].Automation != "a" || got[0].Subject != "linear:ENG-4" ||
		got[0].StatusMessage != "waits for "+first.String()+", which is before it in the conversation" {
		t.Fatalf("a reply while the first run is at work: %+v", got)
	}
	if again := s.replied(t, func(d *NewDelivery) { d.Runs[0].Thread, d.Runs[0].Answers[0].PlaceKey = "other", "other" }, "a"); len(again) != 1 || again[0].ConversationID != other {
		t.Errorf("a reply in another thread of the subject: %+v", again)
	}
	mention := func(d *NewDelivery) { d.Runs[0].OnlyReply = false }
	if got := s.replied(t, mention, "b"); len(got) != 1 || got[0].ConversationID != got[0].ID || got[0].StatusMessage != "" {
		t.Errorf("what a trigger wants begins a conversation: %+v", got)
	}
	if got := s.replied(t, nil, "a", "b", "c"); len(got) != 1 || got[0].Automation != "b" {
		t.Errorf("the last that answered is not the one that goes on: %+v", got)
	}
	if got := s.replied(t, mention, "a"); len(got) != 1 || got[0].ConversationID != first {
		t.Errorf("a mention in the thread: %+v", got)
	}
	parallel := func(d *NewDelivery) { d.Runs[0].OnlyReply, d.Runs[0].PerSubject = false, PerSubjectSkip }
	if got := s.replied(t, parallel, "a"); len(got) != 0 {
		t.Errorf("perSubject of the automation does not count: %+v", got)
	}
	silent := func(d *NewDelivery) {
		d.Runs[0].Thread, d.Runs[0].Answers[0].PlaceKey = "none", "none"
		d.Runs[0].Answers[0].Status, d.Runs[0].OnlyReply = AnswerNone, false
	}
	s.replied(t, silent, "a")
	if got := s.replied(t, func(d *NewDelivery) { d.Runs[0].Thread = "none" }, "a"); len(got) != 0 {
		t.Errorf("a reply to a run that was not answered: %+v", got)
	}

	// One reply as two deliveries, in both orders.
	same := func(only bool) func(*NewDelivery) {
		return func(d *NewDelivery) { d.Runs[0].Event, d.Runs[0].OnlyReply = "slack thread_reply T C 1", only }
	}
	if got := s.replied(t, same(true), "a"); len(got) != 1 {
		t.Errorf("a reply with an identity: %+v", got)
	}
	if got := s.replied(t, same(false), "a"); len(got) != 0 {
		t.Errorf("the same reply as a mention: %+v", got)
	}
	if got := s.replied(t, func(d *NewDelivery) { d.ReplayOf = 1 }, "a"); len(got) != 1 || got[0].ConversationID != got[0].ID {
		t.Errorf("a replay: %+v", got)
	}
}

// TestReplyBeside: a run that waits for a person, or that nobody approved, keeps no reply in its thread from the
// conversation there.
func TestReplyBeside(t *testing.T) {
	s := open(t)
	outsider := func(d *NewDelivery) {
		d.Runs[0].OnlyReply, d.Runs[0].Approval = false, &NewApproval{For: time.Hour, Outsider: true}
	}
	first := s.answered(t, "first", told("k", AnswerStart))
	waits := s.replied(t, outsider, "a")[0]
	goesOn := func(when string) {
		t.Helper()
		if got := s.replied(t, nil, "a"); len(got) != 1 || got[0].ConversationID != first {
			t.Errorf("%s, a reply starts %+v", when, got)
		}
	}
	goesOn("while " + string(waits.State))
	check(t, s.decide(t, Decision{Run: s.replied(t, outsider, "a")[0].ID}))
	goesOn("once it is declined")
}

// TestReplyOfLookup: what the sender's API answers later gives a reply that one automation has taken to no other one.
func TestReplyOfLookup(t *testing.T) {
	s := open(t)
	s.answered(t, "first", told("k", AnswerStart))
	s.replied(t, func(d *NewDelivery) { d.Runs[0].OnlyReply = false }, "b")
	var again []NewRun
	got := s.replied(t, func(d *NewDelivery) { again = d.Runs }, "a", "b")
	if len(got) != 1 || got[0].Automation != "b" {
		t.Fatalf("the reply starts %+v", got)
	}
	started, _, err := s.Lookups.Record(t.Context(), got[0].DeliveryID, nil, again, nil)
	if check(t, err); len(started) != 0 {
		t.Errorf("once the API has answered, the reply starts %v", started)
	}
}

// TestReplyExpired: a reply to a conversation that is not kept any more begins a new one, and the
// next reply goes on with that.
func TestReplyExpired(t *testing.T) {
	s := open(t)
	first := s.answered(t, "first", told("k", AnswerStart))
	leases := s.claimed(t)
	check(t, s.Conversations.SetSession(t.Context(), leases[0], Session{"claude", "s"}))
	check(t, s.Leases.Finish(t.Context(), leases[0], Succeeded, "", nil))
	if got := s.replied(t, nil, "a"); len(got) != 1 || got[0].ConversationID != first || got[0].StatusMessage != "" {
		t.Fatalf("a reply to what has ended: %+v", got)
	}
	check(t, s.Leases.Finish(t.Context(), s.claimed(t)[0], Succeeded, "", nil))
	s.at = s.at.Add(2 * time.Hour)
	anew := s.replied(t, nil, "a")
	if len(anew) != 1 || anew[0].ConversationID != anew[0].ID {
		t.Fatalf("after an hour: %+v", anew)
	}
	if got := s.replied(t, nil, "a"); len(got) != 1 || got[0].ConversationID != anew[0].ID {
		t.Errorf("the next reply: %+v", got)
	}
	check(t, s.Leases.Finish(t.Context(), s.claimed(t)[0], FailedRun, "no", nil)) // before its agent had begun a session
	if got := s.claimed(t); len(got) != 1 {
		t.Errorf("a reply behind a run without a session is lost: %+v", got)
	}
}

// TestStop: a stop ends what is told in its place, whatever its state, and what has nothing to stop says so,
// once, until its delivery is deleted (SPEC 21.6).
func TestStop(t *testing.T) {
	s := open(t)
	stop := func() Recorded {
		t.Helper()
		s.lined++
		d := delivery(fmt.Sprint("stop ", s.lined), "{}")
		d.Stop, d.StopReason = "k", "stopped at Linear"
		d.Told = []NewAnswer{{Kind: AnswerIdle, WebhookUID: "whk_1", Provider: "linear", Place: "{}", PlaceKey: "k", Next: AnswerEnd, Status: AnswerPending}}
		return must[Recorded](t)(s.Deliveries.Record(t.Context(), d))
	}
	other := s.answered(t, "other", told("other", AnswerStart))
	first := s.answered(t, "first", told("k", AnswerStart))
	leases := s.claimed(t)
	second := s.replied(t, nil, "a")[0].ID
	done := stop()
	if !slices.Equal(done.Stopped, []RunID{second, first}) {
		t.Errorf("stopped %v, not %v and %v", done.Stopped, second, first)
	}
	if r := must[*Run](t)(s.Runs.Get(t.Context(), second)); r.State != Cancelled || r.StatusMessage != "stopped at Linear before it started" {
		t.Errorf("what waited: %s %s", r.State, r.StatusMessage)
	}
	if r := must[*Run](t)(s.Runs.Get(t.Context(), first)); r.State != InProgress || r.StopRequested != StopCancel {
		t.Errorf("what was at work: %+v", r)
	}
	if r := must[*Run](t)(s.Runs.Get(t.Context(), other)); r.StopRequested != NoStop {
		t.Errorf("another thread: %+v", r)
	}
	if d := must[*Delivery](t)(s.Deliveries.Get(t.Context(), done.ID)); !slices.Equal(d.Stopped, []RunID{second, first}) {
		t.Errorf("the log: %v", d.Stopped)
	}
	if told := must[[]Answer](t)(s.Answers.Of(t.Context(), RunID(done.ID))); len(told) != 0 {
		t.Errorf("told beside the end of the runs: %+v", told)
	}
	for _, l := range leases {
		check(t, s.Leases.Finish(t.Context(), l, Cancelled, "stopped at Linear", nil))
	}
	idle := stop()
	told := must[[]Answer](t)(s.Answers.Of(t.Context(), RunID(idle.ID)))
	if len(idle.Stopped) != 0 || len(told) != 1 || !told[0].OfDelivery() || told[0].Kind != AnswerIdle {
		t.Fatalf("nothing to stop: %+v, %+v", idle, told)
	}
	due := func() (n int) {
		for _, a := range must[[]Answer](t)(s.Answers.Due(t.Context(), 10)) {
			if a.OfDelivery() {
				n++
			}
		}
		return n
	}
	if due() != 0 {
		t.Error("it overtakes the ends of the runs in its place")
	}
	for _, id := range []RunID{first, second} {
		a := must[[]Answer](t)(s.Answers.Of(t.Context(), id))[0]
		a.Status, a.DueAt, a.Next = AnswerDelivered, time.Time{}, ""
		check(t, s.Answers.Save(t.Context(), a))
	}
	if due() != 1 {
		t.Error("it is not due")
	}
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		return tx.Exec("INSERT INTO webhook_uids (factory, name, uid) VALUES ('default', 'hook', 'whk_1')")
	}))
	s.at = s.at.Add(30 * 24 * time.Hour)
	must[int64](t)(s.Deliveries.Prune(t.Context(), Retention{Age: time.Hour}))
	if told := must[[]Answer](t)(s.Answers.Of(t.Context(), RunID(idle.ID))); len(told) != 0 {
		t.Errorf("it outlives its delivery: %+v", told)
	}
}
