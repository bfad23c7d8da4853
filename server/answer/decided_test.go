package answer

import (
	"context"
	"strings"
	"testing"
	"time"

	"triphammer/server/lookup"
	"triphammer/server/store"
)

// waiting is a run that has ended, and waits for a person to approve what its agent asked for.
func (f *fixture) waiting(a store.NewAnswer) store.RunID {
	f.t.Helper()
	a.Kind, a.WebhookUID, a.Provider, a.Status = store.AnswerThread, "whk_1", "forge", store.AnswerPending
	recorded, err := f.store.Deliveries.Record(f.t.Context(), &store.NewDelivery{Payload: []byte("{}"), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, ReceivedAt: f.now(), Identity: store.Identity{Source: store.IdentitySender, Value: "waiting"},
	}, Runs: []store.NewRun{{
		Factory: "default", Automation: "fix", Source: store.SourceWebhook, Title: "fix", Answers: []store.NewAnswer{a},
		Outputs: &store.OutputPlace{WebhookUID: "whk_1", Provider: "forge", Place: a.Place, Waits: 24 * time.Hour},
	}}})
	f.check(err)
	l := f.start()
	f.turns(f.t.Context())
	f.check(f.store.Leases.Finish(f.t.Context(), l, store.Succeeded, "", nil, store.NewOutput{Kind: "comment", Request: `{"kind":"comment","body":"x"}`, Bounds: "{}"}))
	f.turns(f.t.Context())
	return recorded.RunIDs[0]
}

func (f *fixture) decline(id store.RunID) {
	f.t.Helper()
	_, _, err := f.store.Approvals.Decide(f.t.Context(), store.Decision{Run: id, By: "ada", Actor: "page ada"})
	f.check(err)
}

// TestDecidedLate: a decision about an earlier run on a pull request does not put its end in the place of what
// the text says of a newer run (SPEC 22.2).
func TestDecidedLate(t *testing.T) {
	f := newFixture(t)
	id := f.waiting(thread("7", "pull", ""))
	f.deliver("2", thread("7", "pull", ""))
	l := f.start()
	f.say(l, "Newer")
	f.end(l)
	f.turns(t.Context())
	f.decline(id)
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 1 || !strings.Contains(got[0], "Newer") {
		t.Errorf("%q", got)
	}
}

// TestDecidedBetween: what is decided while a mention waits stands in the text, and the mention comes once (SPEC 26.2).
func TestDecidedBetween(t *testing.T) {
	f := newFixture(t)
	f.row.Paces = []Pace{{Writes: 2, Per: time.Hour}} // a start and an end
	id := f.waiting(thread("7", "issue", "@ann"))
	if got := f.forge.texts(); len(got) != 1 || !strings.Contains(got[0], "waits for a person") {
		t.Fatalf("%q", got)
	}
	f.decline(id)
	for range 3 {
		f.pass(time.Hour)
		f.turns(t.Context())
	}
	if got := f.forge.texts(); len(got) != 2 || strings.Contains(got[0], "waits") || !strings.HasPrefix(got[1], "@ann ended") {
		t.Errorf("%q", got)
	}
}

// TestEndAnew: if the text of a run was deleted, or cannot be changed any more, the end is a new text, once (SPEC 22.2).
func TestEndAnew(t *testing.T) {
	f := newFixture(t)
	var keys []string
	post := f.row.Post
	f.row.Post = func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, key string) (Posted, error) {
		keys = append(keys, key)
		return post(ctx, c, api, p, text, key)
	}
	id := f.deliver("1", thread("7", "issue", "@ann"))
	l := f.start()
	f.turns(t.Context())
	f.row.Edit = func(context.Context, *lookup.Client, lookup.API, Place, Posted, string) error {
		return lookup.Fail("answered edit_window_closed: the message can no longer be edited", true) // with 200, as Slack
	}
	f.end(l)
	f.turns(t.Context())
	if got := f.forge.texts(); len(got) != 2 || !strings.HasPrefix(got[0], "started") || !strings.HasPrefix(got[1], "ended") {
		t.Errorf("%q", got)
	}
	if a := f.answer(id); a.Status != store.AnswerDelivered || !strings.Contains(a.Posted, `"2"`) || len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("%+v, keys %q", a, keys)
	}
}
