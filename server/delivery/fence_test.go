package delivery

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"triphammer/applier"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// becomesLive records an apply in the store, as another server may, and returns the revision
// that it made live. It does not serve here yet.
func (f *fixture) becomesLive(t *testing.T, value string) *applier.Revision {
	t.Helper()
	r := f.build(t, value)
	id, err := f.store.Applies.Record(t.Context(), &store.Apply{
		Factory: "default", Commit: "c0ffee", Outcome: "applied", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.ApplyID = id.String()
	return r
}

// SPEC 17.2: a delivery is decided by what is live when it is recorded, also if this server
// does not serve it yet. The old secret is dead as soon as the apply is recorded. Without the
// fence, which is the control, the old secret still works.
func TestFence(t *testing.T) {
	const newSecret = "another-horse-battery"
	now := []string{"Authorization", "Bearer " + newSecret, "X-Event", "new"}
	f := newFixture(t)
	fenced := f.store
	for name, unfenced := range map[string]bool{"fence": false, "control": true} {
		t.Run(name, func(t *testing.T) {
			f.store, f.live = fenced, &applier.Live{}
			if unfenced {
				f.store = openUnfenced(t, f)
			}
			f.live.Swap(f.becomesLive(t, webhookSecret))
			next := f.becomesLive(t, newSecret)
			follows := 0
			f.start(Config{RateLimit: 2, AuthFailures: 1, Follow: func(context.Context, string) error {
				follows++
				f.live.Swap(next)
				return nil
			}})
			old := f.Receive(t.Context(), request("token", `{"n":1}`, bearer("X-Event", "old")...))
			if unfenced {
				if old.Status != http.StatusAccepted {
					t.Errorf("the control: %+v", old)
				}
				return
			}
			if old.Status != http.StatusUnauthorized || follows != 1 {
				t.Errorf("%+v, followed %d times", old, follows)
			}
			// A sender that has the new secret already is not charged a failure for that.
			f.live.Swap(next)
			after := f.becomesLive(t, webhookSecret)
			stale := f.build(t, newSecret)
			stale.ApplyID = next.ApplyID
			f.live.Swap(stale)
			f.start(Config{RateLimit: 1, AuthFailures: 1, Follow: func(context.Context, string) error { f.live.Swap(after); return nil }})
			if got := f.Receive(t.Context(), request("token", `{"n":2}`, bearer("X-Event", "2")...)); got.Status != http.StatusAccepted {
				t.Errorf("the secret that is live in the store: %+v", got)
			}
			if got := f.Receive(t.Context(), request("token", `{"n":3}`, now...)); got.Status != http.StatusUnauthorized {
				t.Errorf("it was counted as a failure: %+v", got)
			}
			if got := f.Receive(t.Context(), request("token", `{"n":4}`, bearer("X-Event", "4")...)); got.Status != http.StatusTooManyRequests || got.Reason != ReasonRate {
				t.Errorf("it was not counted once for the rate: %+v", got)
			}

			// What never becomes consistent is answered, and recorded nowhere.
			f.becomesLive(t, webhookSecret)
			f.start(Config{})
			before := len(f.log(t))
			if got := f.Receive(t.Context(), request("token", `{"n":5}`, bearer("X-Event", "5")...)); got.Status != http.StatusServiceUnavailable || got.RetryAfter == 0 {
				t.Errorf("without following: %+v", got)
			}
			if len(f.log(t)) != before {
				t.Error("it was recorded")
			}
		})
	}
}

func openUnfenced(t *testing.T, f *fixture) *store.Store {
	t.Helper()
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Now: f.clock, Unfenced: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// SPEC 17.2: a replay is decided by what is live, too.
func TestFenceReplay(t *testing.T) {
	f := newFixture(t)
	f.live.Swap(f.becomesLive(t, webhookSecret))
	first := f.Receive(t.Context(), request("token", `{"n":1}`, bearer("X-Event", "1")...))
	delete(f.tree, "automations/all.md")
	next := f.becomesLive(t, webhookSecret)
	f.start(Config{Follow: func(context.Context, string) error { f.live.Swap(next); return nil }})
	again, err := f.Replay(t.Context(), first.DeliveryID)
	if err != nil || len(again.RunIDs) != 0 {
		t.Errorf("%+v, %v; the automation is gone", again, err)
	}
}
