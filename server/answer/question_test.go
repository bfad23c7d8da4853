package answer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"triphammer/schema/output"
	"triphammer/server/store"
)

// asks records a run whose agent asks a question, and ends it. told says whether it was told that the run began.
func (f *fixture) asks(identity string, told bool, place Place, answers ...store.NewAnswer) store.RunID {
	f.t.Helper()
	place.Provider, place.Starters = "forge", []string{"write", "@ann"}
	at, _ := json.Marshal(place)
	for i := range answers {
		a := &answers[i]
		a.Kind, a.WebhookUID, a.Provider, a.Status = store.AnswerThread, "whk_1", "forge", store.AnswerPending
	}
	recorded, err := f.store.Deliveries.Record(f.t.Context(), &store.NewDelivery{Payload: []byte("{}"), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, ReceivedAt: f.now(), Identity: store.Identity{Source: store.IdentitySender, Value: identity},
	}, Runs: []store.NewRun{{
		Factory: "default", Automation: "fix", Source: store.SourceWebhook, Title: "fix", Answers: answers, Asks: true,
		Outputs: &store.OutputPlace{WebhookUID: "whk_1", Provider: "forge", Place: string(at)},
	}}})
	f.check(err)
	l := f.start()
	if told {
		f.turns(f.t.Context())
	}
	f.say(l, "I do not know.")
	f.check(f.store.Leases.Finish(f.t.Context(), l, store.Succeeded, "", nil, store.NewOutput{Kind: output.Ask, Request: `{"kind":"ask","question":"Why?"}`, Bounds: "{}"}))
	return recorded.RunIDs[0]
}

// TestQuestion: the question of a run is told once, as a new text, with who may answer, whatever else of the
// run is told in the place (SPEC 26.3).
func TestQuestion(t *testing.T) {
	whole, short := "ended  succeeded Why?", "ended  succeeded  "
	for name, c := range map[string]struct {
		told, kept bool
		kind       string
		asker      string
		brief      bool
		before     func(f *fixture)
		want       []string
	}{
		"nothing else is told":   {kind: "issue", asker: "@ann", want: []string{"@ann " + whole}},
		"the start was told":     {told: true, kept: true, kind: "issue", asker: "@ann", want: []string{short, "@ann " + whole}},
		"nobody asked in person": {told: true, kept: true, kind: "issue", want: []string{short, whole}},
		"it ended at once":       {kept: true, kind: "issue", asker: "@ann", want: []string{"@ann " + whole}},
		"a link alone":           {told: true, kept: true, brief: true, kind: "issue", want: []string{short, whole}},
		"on a pull request":      {kept: true, kind: pull, want: []string{short, whole}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var answers []store.NewAnswer
			if c.kept {
				answers = []store.NewAnswer{thread("7", c.kind, c.asker)}
				answers[0].Brief = c.brief
			}
			id := f.asks("1", c.told, Place{Container: "acme/app", Thread: "7", Kind: c.kind, Asker: c.asker}, answers...)
			f.turns(t.Context())
			got := f.forge.texts()
			if len(got) != len(c.want) {
				t.Fatalf("%q", got)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(strings.TrimSpace(got[i]), want) || !strings.HasSuffix(got[i], "Reply here to answer. A reply counts from people with write access, ann.") {
					t.Errorf("%q, not %q", got[i], want)
				}
			}
			if a := f.answer(id); a.Status != store.AnswerDelivered {
				t.Errorf("%+v", a)
			}
			if shown, err := f.Preview(t.Context(), &store.Answer{RunID: id}, run(t, f, id)); err != nil || !strings.Contains(shown, "Why?") || !strings.Contains(shown, "**fix** asks:") {
				t.Errorf("%q, %v", shown, err)
			}
		})
	}
}

func run(t *testing.T, f *fixture, id store.RunID) *store.Run {
	t.Helper()
	r, err := f.store.Runs.Get(t.Context(), id)
	f.check(err)
	return r
}

// TestQuestionFails: a question of which nobody knows whether it arrived is looked for, and a question that
// is refused needs a person, who sends it again (SPEC 22.3, 26.3).
func TestQuestionFails(t *testing.T) {
	place := Place{Container: "acme/app", Thread: "7", Kind: "issue"}
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("the start was told: ", told), func(t *testing.T) {
			f := newFixture(t)
			lost := 0
			posts := 0
			f.forge.set(func() {
				f.forge.lose = func(method string) bool {
					if method == "POST" {
						posts++
					}
					if method == "POST" && (!told || posts > 1) && lost == 0 {
						lost++
						return true
					}
					return false
				}
			})
			f.asks("1", told, place, thread("7", "issue", ""))
			for range 4 {
				f.turns(t.Context())
				f.pass(settleTime)
			}
			all := strings.Join(f.forge.texts(), "\n")
			if strings.Count(all, "Why?") != 1 || lost != 1 {
				t.Errorf("lost %d times: %q", lost, all)
			}
		})
	}
	f := newFixture(t)
	refused := false
	f.forge.set(func() {
		f.forge.refuse = func(method string) int {
			if method == "POST" && refused {
				return 403
			}
			return 0
		}
	})
	id := f.asks("1", true, place, thread("7", "issue", ""))
	f.forge.set(func() { refused = true })
	f.turns(t.Context())
	if a := f.answer(id); a.Status != store.AnswerFailed || !strings.Contains(a.Detail, "comments:write") {
		t.Fatalf("%+v", a)
	}
	f.forge.set(func() { refused = false })
	f.check(f.store.Answers.Again(t.Context(), id))
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 2 || !strings.Contains(got[1], "Why?") || f.answer(id).Status != store.AnswerDelivered {
		t.Errorf("%q", got)
	}
}
