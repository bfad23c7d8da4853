package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/schema/output"
)

// wonder makes a run of an automation about a subject, which ends with a question.
func (f *fixture) wonder(t *testing.T, automation, thread string, answers ...NewAnswer) RunID {
	t.Helper()
	f.lined++
	d := delivery(fmt.Sprint("wonder ", f.lined), "{}", automation)
	d.Runs[0].Asks, d.Runs[0].Subject, d.Runs[0].Answers = true, "github:a/b#"+thread, answers
	d.Runs[0].Outputs = &OutputPlace{WebhookUID: "whk_1", Provider: "github", Place: `{"container":"a/b","kind":"issue","thread":"` + thread + `","starters":["ada"]}`}
	id := must[Recorded](t)(f.Deliveries.Record(t.Context(), d)).RunIDs[0]
	l := f.claimed(t)[0]
	check(t, f.Conversations.SetSession(t.Context(), l, Session{"claude", "s"}))
	check(t, f.Leases.Finish(t.Context(), l, Succeeded, "", nil,
		NewOutput{Kind: "close", Request: `{"kind":"close"}`, Bounds: "{}"}, NewOutput{Kind: output.Ask, Request: `{"kind":"ask","question":"Why?"}`, Bounds: "{}"}))
	return id
}

// TestQuestions: a question discards what else a run asks for, is told once, and is open until a reply in its
// thread or another run of its automation about its subject or in its conversation (SPEC 26.3).
func TestQuestions(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	key := func(thread string) string { return PlaceKey("whk_1", AnswerThread, "a/b", "issue", thread) }
	stands := func(id RunID, want string) {
		t.Helper()
		q := must[*Output](t)(f.Outputs.QuestionOf(ctx, id))
		if got := q.Status + " " + q.Detail; got != want {
			t.Errorf("the question is %q, not %q", got, want)
		}
	}
	open := func(want ...RunID) {
		t.Helper()
		all := must[[]Output](t)(f.Outputs.Asked(ctx, "default", 10))
		if len(all) != len(want) {
			t.Fatalf("%+v are open, not %v", all, want)
		}
		for i := range want {
			if o := all[i]; o.RunID != want[i] || o.Automation == "" || len(o.Starters()) != 1 || !strings.HasPrefix(o.Where(), "a/b ") {
				t.Errorf("%+v is open, not %v", o, want[i])
			}
		}
	}
	replies := func(thread string, change func(*NewRun), automations ...string) []*Run {
		t.Helper()
		return f.replied(t, func(d *NewDelivery) {
			for i := range d.Runs {
				r := &d.Runs[i]
				r.Thread, r.ToQuestion, r.Asks, r.Answers, r.Subject = key(thread), true, true, nil, "github:a/b#"+thread
				r.Outputs = &OutputPlace{WebhookUID: "whk_1", Provider: "github", Place: `{"thread":"` + thread + `"}`}
				if change != nil {
					change(r)
				}
			}
		}, automations...)
	}
	if got := replies("1", nil, "a"); len(got) != 0 {
		t.Fatalf("a comment where nobody asked starts %+v", got)
	}
	first := f.wonder(t, "a", "1")
	told := must[[]Answer](t)(f.Answers.Of(ctx, first))
	if len(told) != 1 || told[0].Kind != AnswerQuestion || told[0].PlaceKey != key("1") || told[0].Next != AnswerEnd || told[0].DueAt.IsZero() {
		t.Fatalf("%+v", told)
	}
	if all := must[[]Output](t)(f.Outputs.Of(ctx, first)); len(all) != 2 || all[0].Status != OutputNone || !all[0].DueAt.IsZero() || all[0].Detail == "" {
		t.Errorf("%+v", all)
	}
	second := f.wonder(t, "b", "1", NewAnswer{Kind: AnswerThread, WebhookUID: "whk_1", Provider: "github", Place: "{}", PlaceKey: key("1"), Next: AnswerStart, Status: AnswerPending})
	if told := must[[]Answer](t)(f.Answers.Of(ctx, second)); len(told) != 1 || told[0].Kind != AnswerThread || !told[0].Ended {
		t.Errorf("it is told twice: %+v", told)
	}
	open(second, first)
	if due := must[[]Output](t)(f.Outputs.Due(ctx, 10)); len(due) != 0 {
		t.Errorf("%+v is to be done", due)
	}
	if got := replies("2", nil, "a", "b"); len(got) != 0 {
		t.Errorf("a comment in another thread starts %+v", got)
	}
	// The newest question of the thread gets the reply, whatever perSubject says.
	got := replies("1", func(r *NewRun) { r.PerSubject = PerSubjectSkip }, "a", "b")
	if len(got) != 1 || got[0].Automation != "b" || got[0].ConversationID != second || got[0].StatusMessage != "" {
		t.Fatalf("%+v", got)
	}
	stands(second, "replied "+got[0].ID.String())
	stands(first, "asked ")
	open(first)
	if q := must[*Output](t)(f.Outputs.Question(ctx, got[0].ID)); q == nil || q.RunID != second {
		t.Errorf("it replies to %+v", q)
	}
	if again := f.asked(t, NewRun{RetryOf: got[0].ID, Automation: "b"}); again != 0 {
		if q := must[*Output](t)(f.Outputs.Question(ctx, again)); q == nil || q.RunID != second {
			t.Errorf("who does it again replies to %+v", q)
		}
	}
	// A trigger that wants the comment, too, goes on with the conversation.
	got = replies("1", func(r *NewRun) { r.OnlyReply = false }, "a")
	if len(got) != 1 || got[0].ConversationID != first {
		t.Errorf("%+v", got)
	}
	open()
	if got := replies("1", nil, "a", "b"); len(got) != 0 {
		t.Errorf("a second reply starts %+v", got)
	}
	for _, l := range f.claimed(t) {
		check(t, f.Leases.Finish(ctx, l, FailedRun, "no", nil))
	}
	for _, l := range f.claimed(t) {
		check(t, f.Leases.Finish(ctx, l, FailedRun, "no", nil))
	}

	// Another run of the subject, or of the conversation.
	third := f.wonder(t, "a", "3")
	fourth := f.wonder(t, "a", "3")
	stands(third, "passed "+fourth.String())
	other := f.wonder(t, "b", "3")
	open(other, fourth)
	followed := f.asked(t, NewRun{Automation: "a", Conversation: fourth, EndedAfter: f.at.Add(-time.Hour)})
	stands(fourth, "passed "+followed.String())
	again := f.asked(t, NewRun{Automation: "b", RetryOf: other})
	stands(other, "passed "+again.String())
	if told := must[[]Answer](t)(f.Answers.Of(ctx, again)); len(told) != 0 {
		t.Errorf("who does it again tells %+v", told)
	}
	for _, l := range f.claimed(t) {
		check(t, f.Leases.Finish(ctx, l, FailedRun, "no", nil))
	}

	// For a week.
	fifth := f.wonder(t, "a", "5")
	open(fifth)
	f.at = f.at.Add(askedTime)
	open()
	if due := must[[]Output](t)(f.Outputs.Due(ctx, 10)); len(due) != 0 {
		t.Errorf("%+v is to be done", due)
	}
	if got := replies("5", nil, "a"); len(got) != 1 {
		t.Errorf("a late reply starts %+v", got)
	}
}
