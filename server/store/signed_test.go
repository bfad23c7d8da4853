package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
	"triphammer/server/store/storetest"
)

// TestSameBodies: a signed body that came before under another identity is marked, within the webhook and
// for 72 hours (SPEC 5.13). What is deleted leaves nothing.
func TestSameBodies(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	must[ApplyID](t)(f.Applies.Record(ctx, &Apply{Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}, {"other", "whk_2", "S", 1}}}, nil, nil))
	record := func(identity, body, uid string) DeliveryID {
		t.Helper()
		d := delivery(identity, body)
		d.WebhookUID = uid
		return must[Recorded](t)(f.Deliveries.Record(ctx, d)).ID
	}
	is := func(id, want DeliveryID) {
		t.Helper()
		if got := must[*Delivery](t)(f.Deliveries.Get(ctx, id)).SameBodyAs; got != want {
			t.Errorf("%s has the body of %q, not of %q", id, got, want)
		}
	}
	first := record("1", `"a"`, "whk_1")
	other := record("2", `"a"`, "whk_2")
	duplicate := record("1", `"a"`, "whk_1")
	unsigned, again := record("3", `{}`, "whk_1"), record("4", `{}`, "whk_1")
	second := record("5", `"a"`, "whk_1")
	third := record("6", `"a"`, "whk_1")
	check(t, f.Subjects.Index(ctx, aboutBody))
	f.at = f.at.Add(SameBodyFor + time.Minute)
	late := record("7", `"a"`, "whk_1")
	check(t, f.Subjects.Index(ctx, aboutBody))
	for _, id := range []DeliveryID{first, other, duplicate, unsigned, again, late} {
		is(id, 0)
	}
	is(second, first)
	is(third, second)
	count := func(factory string, since time.Time, want int64, newest DeliveryID) {
		t.Helper()
		n, last, err := f.Deliveries.SameBodies(ctx, factory, since)
		if check(t, err); n != want || last != newest {
			t.Errorf("%d deliveries, the newest %q", n, last)
		}
	}
	count("", f.at.Add(-SameBodyFor-time.Hour), 2, third)
	count("default", f.at.Add(-SameBodyFor-time.Hour), 2, third)
	count("elsewhere", f.at.Add(-SameBodyFor-time.Hour), 0, 0)
	count("", f.at.Add(-time.Hour), 0, 0)
	// A second leader that indexes the same deliveries changes nothing.
	check(t, f.Do(ctx, func(tx *engine.Tx) error { return tx.SetMeta(metaSubjects, "0") }))
	f.Subjects.Forget()
	check(t, f.Subjects.Index(ctx, aboutBody))
	is(third, second)
	must[int64](t)(f.Deliveries.Prune(ctx, Retention{Age: time.Hour}))
	count("", time.Time{}, 0, 0)
	var left int
	check(t, f.Read.QueryRowContext(ctx, "SELECT count(*) FROM signed_bodies").Scan(&left))
	if left != 1 {
		t.Errorf("%d rows are left, not that of the newest delivery alone", left)
	}
}

// TestReplayWindowAtOnce (R12): of one signed body that comes under many identities at once, exactly one delivery
// is accepted, over all servers of the store, and also after a restart (SPEC 5.13). Without a window, which is
// the control, all are.
func TestReplayWindowAtOnce(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	servers := []*Store{f.Store}
	if storetest.OnPostgres() {
		cfg := f.cfg
		cfg.Path = filepath.Join(t.TempDir(), "db")
		other := must[*Store](t)(Open(ctx, cfg))
		t.Cleanup(func() { _ = other.Close() })
		servers = append(servers, other)
	}
	const senders = 64
	send := func(name, body string, window time.Duration) (accepted []DeliveryID, refused []DeliveryID) {
		var mu sync.Mutex
		var sending sync.WaitGroup
		for i := range senders {
			sending.Go(func() {
				d := delivery(fmt.Sprint(name, i), body, "a")
				d.ReplayWindow = window
				got, err := servers[i%len(servers)].Deliveries.Record(ctx, d)
				again := (*ReplayError)(nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.As(err, &again):
					refused = append(refused, again.Of)
				case err != nil || got.Duplicate || len(got.RunIDs) != 1:
					t.Errorf("%+v, %v", got, err)
				default:
					accepted = append(accepted, got.ID)
				}
			})
		}
		sending.Wait()
		return accepted, refused
	}
	all := func(refused []DeliveryID, of DeliveryID, want int) {
		t.Helper()
		if len(refused) != want {
			t.Errorf("%d are refused, not %d", len(refused), want)
		}
		for _, id := range refused {
			if id != of {
				t.Errorf("refused as %s, not %s", id, of)
			}
		}
	}
	accepted, refused := send("x", `{"n":1}`, 10*time.Minute)
	if len(accepted) != 1 {
		t.Fatalf("%d were accepted", len(accepted))
	}
	first := accepted[0]
	all(refused, first, senders-1)
	// The id of the accepted one is a duplicate, as ever.
	d := must[*Delivery](t)(f.Deliveries.Get(ctx, first))
	again := delivery(d.Identity.Value, `{"n":1}`, "a")
	again.ReplayWindow = 10 * time.Minute
	if got := must[Recorded](t)(f.Deliveries.Record(ctx, again)); got.DuplicateOf != first {
		t.Errorf("%+v", got)
	}
	f.reopen(t)
	servers[0] = f.Store
	f.at = f.at.Add(10*time.Minute - time.Second)
	accepted, refused = send("y", `{"n":1}`, 10*time.Minute)
	if len(accepted) != 0 {
		t.Errorf("after a restart, %d were accepted", len(accepted))
	}
	all(refused, first, senders)
	f.at = f.at.Add(2 * time.Second)
	accepted, _ = send("z", `{"n":1}`, 10*time.Minute)
	if len(accepted) != 1 {
		t.Fatalf("after the window, %d were accepted", len(accepted))
	}
	if d := must[*Delivery](t)(f.Deliveries.Get(ctx, accepted[0])); d.SameBodyAs != first {
		t.Errorf("marked is %+v", d)
	}
	if accepted, _ := send("w", `{"n":2}`, 0); len(accepted) != senders {
		t.Errorf("without a window, %d were accepted", len(accepted))
	}
}
