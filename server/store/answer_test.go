package store

import (
	"context"
	"testing"
	"time"
)

func (f *fixture) answered(t *testing.T, identity string, answers ...NewAnswer) RunID {
	t.Helper()
	d := delivery(identity, `{"n":1}`, "a")
	d.Runs[0].Answers = answers
	return must[Recorded](t)(f.Deliveries.Record(t.Context(), d)).RunIDs[0]
}

func told(key, next string) NewAnswer {
	return NewAnswer{Kind: AnswerThread, WebhookUID: "whk_1", Provider: "github", Place: "{}", PlaceKey: key, Next: next, Status: AnswerPending}
}

// TestAnswers: an answer is recorded with its run, its end is due in the transaction that ends the run,
// whoever sends something meanwhile, and it goes with its run (SPEC 22).
func TestAnswers(t *testing.T) {
	s := open(t)
	due := func(want ...string) []Answer {
		t.Helper()
		all := must[[]Answer](t)(s.Answers.Due(t.Context(), 10))
		var got []string
		for _, a := range all {
			got = append(got, a.Next)
		}
		if len(got) != len(want) {
			t.Fatalf("due %v, not %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("due %v, not %v", got, want)
			}
		}
		return all
	}
	s.answered(t, "plain")
	id := s.answered(t, "1", told("k", AnswerSign))
	due()
	a := must[[]Answer](t)(s.Answers.Of(t.Context(), id))[0]
	a.Next, a.DueAt = AnswerStart, a.CreatedAt.Add(StartPatience)
	check(t, s.Answers.Signed(t.Context(), a))
	due()
	leases := must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 9, Lease: time.Hour}))
	a = due(AnswerStart)[0]
	if a.Run != InProgress {
		t.Errorf("%+v", a)
	}
	stale := a
	if taken, err := s.Answers.Begin(t.Context(), &a, s.at.Add(time.Minute)); !taken || err != nil {
		t.Fatal(taken, err)
	}
	if taken, err := s.Answers.Begin(t.Context(), &stale, s.at.Add(time.Minute)); taken || err != nil {
		t.Fatalf("two turns at once: %v", err)
	}
	for _, l := range leases {
		check(t, s.Leases.Finish(t.Context(), l, Succeeded, "", nil))
	}
	due() // the turn is not over
	a.Next, a.DueAt, a.Uncertain, a.Posted, a.Said, a.Attempts = AnswerEnd, time.Time{}, false, `{"id":"5"}`, "started", 0
	check(t, s.Answers.Save(t.Context(), a))
	stale.Status = AnswerFailed
	check(t, s.Answers.Save(t.Context(), stale)) // of a server that lost its turn
	a = due(AnswerEnd)[0]
	if a.Posted != `{"id":"5"}` || !a.Ended || a.Status != AnswerPending {
		t.Errorf("%+v", a)
	}
	later := s.answered(t, "2", told("k", AnswerStart))
	if got := must[string](t)(s.Answers.Earlier(t.Context(), &must[[]Answer](t)(s.Answers.Of(t.Context(), later))[0])); got != `{"id":"5"}` {
		t.Errorf("earlier: %q", got)
	}
	check(t, s.Leases.Finish(t.Context(), must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 9, Lease: time.Hour}))[0], Succeeded, "", nil))
	due(AnswerEnd) // the older one first
	again, _, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Automation: "a", Title: "a", RetryOf: id}, "", nil)
	check(t, err)
	if copied := must[[]Answer](t)(s.Answers.Of(t.Context(), again.ID)); len(copied) != 1 || copied[0].Posted != `{"id":"5"}` || copied[0].Next != AnswerStart {
		t.Errorf("of a run again: %+v", copied)
	}
	s.reopen(t)
	due(AnswerEnd)
	for _, a := range must[[]Answer](t)(s.Answers.Of(t.Context(), id, later)) {
		a.Status, a.Next, a.DueAt = AnswerDelivered, "", time.Time{}
		check(t, s.Answers.Save(t.Context(), a))
	}
	s.at = s.at.Add(365 * 24 * time.Hour)
	_, _, err = s.Runs.Prune(t.Context(), RunRetention{Runs: time.Hour})
	check(t, err)
	if left := must[[]Answer](t)(s.Answers.Of(t.Context(), id, later)); len(left) > 0 {
		t.Errorf("answers of runs that are gone: %+v", left)
	}
}

// TestAnswersOfManyWebhooks: what waits for one webhook keeps nothing of another one back, and nothing is
// dropped for its number.
func TestAnswersOfManyWebhooks(t *testing.T) {
	s := open(t)
	for i := range 300 {
		a := told(string(rune('a'+i)), AnswerStart)
		if i == 299 {
			a.WebhookUID = "whk_2"
		}
		s.answered(t, string(rune('a'+i)), a)
	}
	s.at = s.at.Add(StartPatience)
	seen := make(map[string]int)
	for _, a := range must[[]Answer](t)(s.Answers.Due(context.Background(), 8)) {
		seen[a.WebhookUID]++
	}
	if seen["whk_1"] != 8 || seen["whk_2"] != 1 {
		t.Errorf("%v", seen)
	}
}

// TestEcho: a delivery about an answer of this server keeps which run it is of.
func TestEcho(t *testing.T) {
	s := open(t)
	id := s.answered(t, "1", told("k", AnswerStart))
	d := delivery("2", `{"n":2}`)
	d.AnswerOf = id
	got := must[*Delivery](t)(s.Deliveries.Get(t.Context(), must[Recorded](t)(s.Deliveries.Record(t.Context(), d)).ID))
	if got.AnswerOf != id || got.Started != 0 {
		t.Errorf("%+v", got)
	}
}
