package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

type fixture struct {
	*Store
	cfg   Config
	lined int // deliveries that about made
	at    time.Time
}

func open(t testing.TB) *fixture {
	t.Helper()
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	f.cfg = Config{Path: filepath.Join(dir, "data ?%#.db"), Key: key, Now: func() time.Time { return f.at }}
	f.cfg.URL = storetest.URL(t)
	f.reopen(t)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (f *fixture) reopen(t testing.TB) {
	t.Helper()
	if f.Store != nil {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(context.Background(), f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Store = s
}

func delivery(identity, body string, runs ...string) *NewDelivery {
	d := &NewDelivery{Payload: []byte(body), Delivery: Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: Accepted, Size: int64(len(body)),
		ReceivedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Identity: Identity{IdentitySender, identity}, ClientAddr: "192.0.2.1",
		Headers: map[string]string{"User-Agent": "test"},
	}}
	for _, name := range runs {
		d.Runs = append(d.Runs, NewRun{Factory: "default", Automation: name, Source: SourceWebhook, Title: name})
	}
	return d
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneIdentityAtOnce (R10, R12): of 64 deliveries in flight with one identity exactly
// one is Accepted, and its runs alone exist (SPEC 5.6, 9.2).
func TestOneIdentityAtOnce(t *testing.T) {
	s := open(t)
	for round := range 20 {
		var wg sync.WaitGroup
		results := make([]Recorded, 64)
		for i := range results {
			wg.Go(func() {
				results[i] = must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery(fmt.Sprint(round), `{"n":1}`, "a", "b")))
			})
		}
		wg.Wait()
		accepted := DeliveryID(0)
		for _, r := range results {
			if !r.Duplicate && accepted != 0 {
				t.Fatalf("accepted twice: %s and %s", accepted, r.ID)
			}
			if !r.Duplicate {
				accepted = r.ID
			}
		}
		for _, r := range results {
			if r.Duplicate && r.DuplicateOf != accepted {
				t.Fatalf("a duplicate of %s, not of %s", r.DuplicateOf, accepted)
			}
		}
		if runs := must[[]*Run](t)(s.Runs.List(t.Context(), RunQuery{DeliveryID: accepted})); len(runs) != 2 {
			t.Fatalf("%d runs", len(runs))
		}
	}
	if all := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{})); len(all) != min(maxLimit, 20*64) {
		t.Errorf("%d entries", len(all))
	}
}

func TestDeliveries(t *testing.T) {
	s := open(t)
	large := `{"a":"` + strings.Repeat("compress me ", 1000) + `"}`
	first := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", large, "a")))
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", large, "a")))
	other := delivery("1", `{}`)
	other.Identity.Source = IdentityHeader
	if r := must[Recorded](t)(s.Deliveries.Record(t.Context(), other)); r.Duplicate {
		t.Error("SPEC 5.6: identities are scoped to their source")
	}
	elsewhere := delivery("1", `{}`)
	elsewhere.WebhookUID = "whk_2"
	if r := must[Recorded](t)(s.Deliveries.Record(t.Context(), elsewhere)); r.Duplicate {
		t.Error("SPEC 5.6: identities are scoped to their webhook")
	}
	rejected := &NewDelivery{Delivery: Delivery{Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: RejectedAuth, Reason: "header_missing"}, Payload: []byte("x")}
	for range 2 {
		must[Recorded](t)(s.Deliveries.Record(t.Context(), rejected))
	}
	s.reopen(t)
	log := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{WebhookUID: "whk_1"}))
	var outcomes []Outcome
	for i, d := range log {
		outcomes = append(outcomes, d.Outcome)
		if _, err := s.Deliveries.Payload(t.Context(), d.ID); (err == nil) != (d.Outcome == Accepted) {
			t.Errorf("%s: payload %v", d.Outcome, err)
		}
		if i > 0 && d.ID >= log[i-1].ID {
			t.Errorf("not newest first: %s after %s", d.ID, log[i-1].ID)
		}
	}
	if !slices.Equal(outcomes, []Outcome{RejectedAuth, RejectedAuth, Accepted, Duplicate, Accepted}) {
		t.Errorf("outcomes %v", outcomes)
	}
	d := must[*Delivery](t)(s.Deliveries.Get(t.Context(), first.ID))
	if d.Identity != (Identity{IdentitySender, "1"}) || d.Headers["User-Agent"] != "test" || len(d.Runs) != 1 || d.Runs[0].Automation != "a" {
		t.Errorf("delivery %+v", d)
	}
	if body := must[[]byte](t)(s.Deliveries.Payload(t.Context(), first.ID)); string(body) != large {
		t.Error("the payload is not what came")
	}
	if page := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{WebhookUID: "whk_1", Before: log[2].ID, Limit: 1})); len(page) != 1 || page[0].ID != log[3].ID {
		t.Errorf("page %+v", page)
	}
	times := must[[]time.Time](t)(s.Deliveries.RecentTimes(t.Context(), "whk_1", s.Now().Add(-time.Minute)))
	if len(times) != 3 {
		t.Errorf("SPEC 5.8: %d authenticated deliveries", len(times))
	}
	for _, text := range []string{"", "dlv_", "dlv_zzzzzzzzzzzzz", "run_" + first.ID.String()[4:], "dlv_0000000000001", "dlv_000000000000i"} {
		id, err := ParseID[Delivery](text)
		if err == nil {
			_, err = s.Deliveries.Get(t.Context(), id)
		}
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestAbsentCaller: a caller that is gone before its turn leaves nothing.
func TestAbsentCaller(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Deliveries.Record(ctx, delivery("1", "{}")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	check(t, s.Close())
	if _, err := s.Deliveries.Record(t.Context(), delivery("1", "{}")); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	s.Store = nil
	s.reopen(t)
	if all := must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{})); len(all) != 0 {
		t.Errorf("%d entries", len(all))
	}
}

// TestFullDisk: nothing is acknowledged that is not kept, and the store heals
// (SPEC 5.4).
func TestFullDisk(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}", "a")))
	limit := func(pages string) {
		check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
			return tx.Row("PRAGMA max_page_count = "+pages, nil, new(int))
		}))
	}
	limit("1") // SQLite takes the present size
	random := make([]byte, 200_000)
	for i := range random {
		random[i] = byte(i * i >> 3)
	}
	var failed error
	for i := 0; failed == nil && i < 100; i++ {
		_, failed = s.Deliveries.Record(t.Context(), delivery(fmt.Sprint("x", i), string(random), "a"))
	}
	if !errors.Is(failed, ErrUnavailable) {
		t.Fatalf("%v", failed)
	}
	if _, err := s.Secrets.Set(t.Context(), "A", secret.New(string(random[:60_000]))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a secret on a full disk: %v", err)
	}
	limit("1000000")
	must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("2", "{}", "a")))
	runs, deliveries := must[[]*Run](t)(s.Runs.List(t.Context(), RunQuery{})), must[[]*Delivery](t)(s.Deliveries.List(t.Context(), DeliveryQuery{}))
	if len(runs) != len(deliveries) {
		t.Errorf("%d runs of %d deliveries: half-kept", len(runs), len(deliveries))
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	s := open(t)
	check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
		return errors.Join(tx.SetMeta("schema", "99"), tx.SetMeta(engine.MetaNeeds, "99"))
	}))
	check(t, s.Close())
	if _, err := Open(t.Context(), s.cfg); !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "99") {
		t.Errorf("%v", err)
	}
	other := s.cfg
	other.Path, other.URL = filepath.Join(t.TempDir(), "x.db"), storetest.URL(t)
	s2 := must[*Store](t)(Open(t.Context(), other))
	check(t, s2.Close())
	other.Key = must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(t.TempDir(), "key")))
	if _, err := Open(t.Context(), other); err == nil || !strings.Contains(err.Error(), "sealing key") {
		t.Errorf("another key: %v", err)
	}
}

// TestRuns: claims, fencing, cancel and reaping (SPEC 9.1, 9.6).
func TestRuns(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	d := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "b", "c", "d")))
	claim := func(n int) []Lease {
		return must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: n, Lease: time.Minute}))
	}
	state := func(id RunID) RunState { return must[*Run](t)(s.Runs.Get(ctx, id)).State }
	leases := claim(2)
	if len(leases) != 2 || leases[0].RunID != d.RunIDs[0] || state(d.RunIDs[0]) != InProgress || state(d.RunIDs[2]) != Queued {
		t.Fatalf("claimed %v of %v", leases, d.RunIDs)
	}
	said := []Event{{Seq: 1, At: s.Now(), Kind: "message", Data: json.RawMessage(`{"text":"hi"}`)}, {Seq: 2, Kind: "output", Data: json.RawMessage(`{}`)}}
	check(t, s.Transcripts.Append(ctx, leases[0], said[:1]))
	check(t, s.Transcripts.Append(ctx, leases[0], said)) // whether the first came is not always known
	if err := s.Transcripts.Append(ctx, leases[0], []Event{{Seq: 2, Kind: "output", Data: json.RawMessage(`{"text":"other"}`)}}); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("another event with the same number: %v", err)
	}
	code := int64(3)
	check(t, s.Leases.Finish(ctx, leases[0], FailedRun, "exit status 3", &code))
	for _, err := range []error{s.Leases.Finish(ctx, leases[0], Succeeded, "", nil), s.Transcripts.Append(ctx, leases[0], []Event{{Seq: 3, Kind: "x"}})} {
		if !errors.Is(err, ErrFenced) {
			t.Errorf("SPEC 9.1: a terminal run changed: %v", err)
		}
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, d.RunIDs[0])); r.State != FailedRun || *r.ExitCode != 3 || r.StatusMessage != "exit status 3" || r.Attempt != 1 || r.FinishedAt.IsZero() {
		t.Errorf("run %+v", r)
	}
	if events := must[[]Event](t)(s.Transcripts.List(ctx, d.RunIDs[0], 1, 10)); len(events) != 1 || events[0].Seq != 2 {
		t.Errorf("events %+v", events)
	}
	// Cancel: queued at once, running by flag, finished not at all.
	if r := must[*Run](t)(s.Runs.Stop(ctx, d.RunIDs[2], StopCancel, "")); r.State != Cancelled {
		t.Errorf("cancelled while queued: %+v", r)
	}
	must[*Run](t)(s.Runs.Stop(ctx, d.RunIDs[1], StopCancel, ""))
	if asked := must[Stop](t)(s.Leases.Renew(ctx, leases[1], time.Minute)); asked != StopCancel {
		t.Error("the worker is not told to stop")
	}
	if _, err := s.Runs.Stop(ctx, d.RunIDs[0], StopCancel, ""); !errors.Is(err, ErrTerminal) {
		t.Errorf("%v", err)
	}
	// A dead worker: only when its lease has ended.
	if reaped := must[[]RunID](t)(s.Leases.Reap(ctx, false, "gone")); len(reaped) != 0 {
		t.Errorf("reaped %v", reaped)
	}
	s.at = s.at.Add(2 * time.Minute)
	if reaped := must[[]RunID](t)(s.Leases.Reap(ctx, false, "gone")); len(reaped) != 1 || state(reaped[0]) != FailedRun {
		t.Errorf("reaped %v", reaped)
	}
	if _, err := s.Leases.Renew(ctx, leases[1], time.Minute); !errors.Is(err, ErrFenced) {
		t.Errorf("%v", err)
	}
	if left := claim(10); len(left) != 1 || left[0].RunID != d.RunIDs[3] {
		t.Errorf("claimed %v", left)
	}
	if reaped := must[[]RunID](t)(s.Leases.Reap(ctx, true, "restart")); len(reaped) != 1 {
		t.Errorf("reaped %v", reaped)
	}
	if got := must[[]*Run](t)(s.Runs.List(ctx, RunQuery{States: []RunState{FailedRun, Cancelled}, Automation: "c"})); len(got) != 1 {
		t.Errorf("query %v", got)
	}
}

// TestClaimPerAutomation: beyond its limit an automation's runs wait, and those
// of others do not wait for them (SPEC 9.6).
func TestClaimPerAutomation(t *testing.T) {
	s := open(t)
	d := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}", "a", "a", "a", "b")))
	claim := func() []RunID {
		var ids []RunID
		for _, l := range must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 10, Lease: time.Minute, PerAutomation: 2})) {
			ids = append(ids, l.RunID)
		}
		slices.Sort(ids)
		return ids
	}
	if got := claim(); !slices.Equal(got, []RunID{d.RunIDs[0], d.RunIDs[1], d.RunIDs[3]}) {
		t.Errorf("claimed %v of %v", got, d.RunIDs)
	}
	if got := claim(); len(got) != 0 {
		t.Errorf("claimed %v beyond the limit", got)
	}
}

func TestIdempotency(t *testing.T) {
	s := open(t)
	create := func(key, body string) (RunID, bool, error) {
		r, created, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}")}, key, []byte(body))
		if err != nil {
			return 0, false, err
		}
		return r.ID, created, nil
	}
	a, created, err := create("k", "body")
	if err != nil || !created {
		t.Fatal(err)
	}
	if b, created, err := create("k", "body"); b != a || created || err != nil {
		t.Errorf("again: %s %t %v", b, created, err)
	}
	if _, _, err := create("k", "other"); !errors.Is(err, ErrIdempotency) {
		t.Errorf("another body: %v", err)
	}
	if b, _, _ := create("", "body"); b == a {
		t.Error("no key, and the same run")
	}
	s.at = s.at.Add(25 * time.Hour)
	if b, created, err := create("k", "other"); b == a || !created || err != nil {
		t.Errorf("a day later: %s %t %v", b, created, err)
	}
}

// TestSecrets (SPEC 10.1).
func TestSecrets(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	for i, value := range []string{"one-value", "two-value"} {
		if g := must[int64](t)(s.Secrets.Set(ctx, "A", secret.New(value))); g != int64(i+1) {
			t.Errorf("generation %d", g)
		}
	}
	s.reopen(t)
	newest := must[map[string]SecretValue](t)(s.Secrets.Newest(ctx, []string{"A", "B"}))
	if len(newest) != 1 || newest["A"].Value.Reveal() != "two-value" || newest["A"].Generation != 2 {
		t.Errorf("%v", newest)
	}
	if v := must[SecretValue](t)(s.Secrets.At(ctx, "A", 1)); v.Value.Reveal() != "one-value" {
		t.Errorf("%v", v)
	}
	check(t, s.Secrets.Delete(ctx, "A", nil))
	if err := s.Secrets.Delete(ctx, "A", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := s.Secrets.At(ctx, "A", 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if g := must[int64](t)(s.Secrets.Set(ctx, "A", secret.New("three-value"))); g != 3 {
		t.Errorf("a generation came back: %d", g)
	}
	check(t, s.Close())
	for _, name := range must[[]string](t)(filepath.Glob(filepath.Dir(s.cfg.Path) + "/data*")) {
		if data := must[[]byte](t)(os.ReadFile(name)); bytes.Contains(data, []byte("-value")) {
			t.Errorf("%s holds a secret in the clear", name)
		}
	}
	s.Store = nil
	s.reopen(t)
}

// TestPendingFlood: who knows the URL cannot push out the secret that the sender
// gave from another address.
func TestPendingFlood(t *testing.T) {
	s := open(t)
	hold := func(uid, address string) {
		t.Helper()
		check(t, s.Secrets.Hold(t.Context(), PendingSecret{Factory: "default", Webhook: "asana", WebhookUID: uid, SecretName: "A", ClientAddr: address}, secret.New("given")))
	}
	hold("whk_1", "192.0.2.1")
	hold("whk_2", "192.0.2.1")
	count := func() map[string]int {
		counts := make(map[string]int)
		for _, p := range must[[]PendingSecret](t)(s.Secrets.Pending(t.Context(), "")) {
			counts[p.WebhookUID]++
			counts[p.ClientAddr]++
		}
		return counts
	}
	for range 2 * maxPendingOfAddress {
		hold("whk_1", "192.0.2.66")
	}
	if n := count(); n["192.0.2.66"] != maxPendingOfAddress || n["192.0.2.1"] != 2 {
		t.Errorf("%v", n)
	}
	for i := range 2 * maxPending {
		hold("whk_1", fmt.Sprintf("198.51.100.%d", i))
	}
	if n := count(); n["whk_1"] != maxPending || n["whk_2"] != 1 {
		t.Errorf("%v", n)
	}
}

// TestKeys (SPEC 10.2).
func TestKeys(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	k, token, err := s.Keys.Create(ctx, Key{Name: "ci", Kind: KeyPersonal, Owner: "ada", Scopes: []string{ScopeRuns, ScopeRead}, ExpiresAt: s.Now().Add(time.Hour)})
	check(t, err)
	if _, _, err := s.Keys.Create(ctx, Key{Name: "ci"}); !errors.Is(err, ErrConflict) {
		t.Errorf("the same name: %v", err)
	}
	got := must[*Key](t)(s.Keys.ByToken(ctx, token.Reveal()))
	if got.ID != k.ID || got.Owner != "ada" || !slices.Equal(got.Scopes, k.Scopes) {
		t.Errorf("%+v", got)
	}
	if used := must[[]*Key](t)(s.Keys.List(ctx))[0].LastUsedAt; used.IsZero() {
		t.Error("the last use is not noted")
	}
	if _, err := s.Keys.ByToken(ctx, token.Reveal()+"x"); !errors.Is(err, ErrKey) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Keys.Revoke(ctx, "ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Keys.ByToken(ctx, token.Reveal()); !errors.Is(err, ErrKey) {
		t.Errorf("revoked: %v", err)
	}
	_, token, err = s.Keys.Create(ctx, Key{Name: "ci", Kind: KeyAgent, Owner: "bot", Scopes: []string{ScopeRuns}, ExpiresAt: s.Now().Add(time.Hour)})
	check(t, err)
	s.at = s.at.Add(time.Hour)
	if _, err := s.Keys.ByToken(ctx, token.Reveal()); !errors.Is(err, ErrKey) {
		t.Errorf("expired: %v", err)
	}
}

// TestApplies: a UID is stable and comes back with its file (SPEC 4.3, 4.6).
func TestApplies(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	record := func(outcome string, hooks ...string) ApplyID {
		uids := must[map[string]string](t)(s.Applies.WebhookUIDs(ctx, "default", hooks))
		a := &Apply{Factory: "default", Commit: "abc", Outcome: outcome, Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), StartedAt: s.Now(), FinishedAt: s.Now()}
		var files []File
		for _, name := range hooks {
			a.Webhooks = append(a.Webhooks, BoundWebhook{name, uids[name], "S", 1})
			files = append(files, File{Path: "webhooks/" + name + ".yaml", Data: []byte("secretName: S\n")})
		}
		return must[ApplyID](t)(s.Applies.Record(ctx, a, files, map[[32]byte][]byte{sha256.Sum256([]byte("spec")): []byte("spec")}))
	}
	record("applied", "a", "b")
	uids := must[map[string]string](t)(s.Applies.WebhookUIDs(ctx, "default", []string{"a", "b"}))
	if len(uids["a"]) != 26 || !strings.HasPrefix(uids["a"], "whk_") || uids["a"] == uids["b"] {
		t.Errorf("UIDs %v", uids)
	}
	record("applied", "a")
	record("refused")
	last := must[*Apply](t)(s.Applies.Last(ctx, "default", "applied"))
	if len(last.Webhooks) != 1 || last.Webhooks[0].UID != uids["a"] {
		t.Errorf("last applied %+v", last)
	}
	again := record("applied", "b", "a")
	s.reopen(t)
	if a := must[*Apply](t)(s.Applies.Get(ctx, again)); a.Webhooks[1].UID != uids["b"] {
		t.Errorf("the UID did not come back: %+v", a.Webhooks)
	}
	if files := must[[]File](t)(s.Applies.Files(ctx, again)); len(files) != 2 || string(files[0].Data) != "secretName: S\n" {
		t.Errorf("files %v", files)
	}
	if other := must[map[string]string](t)(s.Applies.WebhookUIDs(ctx, "other", []string{"a"})); other["a"] == uids["a"] {
		t.Error("two factories share a UID")
	}
	if all := must[[]*Apply](t)(s.Applies.List(ctx, ApplyQuery{Factory: "default", Limit: 2})); len(all) != 2 || all[0].ID != again {
		t.Errorf("applies %v", all)
	}
	if spec := must[[]byte](t)(s.Specs.Get(ctx, sha256.Sum256([]byte("spec")))); string(spec) != "spec" {
		t.Errorf("spec %q", spec)
	}
}

func TestSessions(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	ada := LoginLink{Person: "ada", Role: "operator", Via: "link of local root", Life: 2 * time.Hour, Idle: time.Hour}
	from := Visitor{Address: "192.0.2.1", Browser: "Firefox on Linux"}
	link := must[string](t)(s.Sessions.CreateLoginLink(ctx, ada, time.Minute))
	if l := must[*LoginLink](t)(s.Sessions.LoginLink(ctx, link)); l.Person != "ada" || l.Role != "operator" {
		t.Errorf("link of %+v", l)
	}
	session, opened, err := s.Sessions.RedeemLoginLink(ctx, link, from)
	if err != nil || opened.Person != "ada" {
		t.Fatal(err)
	}
	if _, err := s.Sessions.LoginLink(ctx, link); !errors.Is(err, ErrNotFound) {
		t.Errorf("a used link: %v", err)
	}
	if _, _, err := s.Sessions.RedeemLoginLink(ctx, link, from); !errors.Is(err, ErrNotFound) {
		t.Errorf("a link works twice: %v", err)
	}
	if n := must[*PageSession](t)(s.Sessions.ByToken(ctx, session)); n.Role != "operator" || n.Via != ada.Via || n.Visitor != from || !n.SeenAt.Equal(n.CreatedAt) {
		t.Errorf("session %+v", n)
	}
	late := must[string](t)(s.Sessions.CreateLoginLink(ctx, ada, time.Minute))
	_, other, err := s.Sessions.RedeemLoginLink(ctx, must[string](t)(s.Sessions.CreateLoginLink(ctx, ada, time.Minute)), from)
	check(t, err)
	// A visit now and then keeps a session; without one it ends before its time.
	for range 2 {
		s.at = s.at.Add(50 * time.Minute)
		if n := must[*PageSession](t)(s.Sessions.ByToken(ctx, session)); !n.SeenAt.Equal(s.at) {
			t.Errorf("seen at %s", n.SeenAt)
		}
	}
	if all := must[[]*PageSession](t)(s.Sessions.List(ctx)); len(all) != 1 || all[0].ID != opened.ID || !all[0].SeenAt.Equal(s.at) {
		t.Errorf("sessions %v", all)
	}
	if _, err := s.Sessions.End(ctx, other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("an idle session: %v", err)
	}
	if err := s.Sessions.CallerLives(ctx, 0, other.ID); !errors.Is(err, ErrKey) {
		t.Errorf("an idle session: %v", err)
	}
	if _, _, err := s.Sessions.RedeemLoginLink(ctx, late, from); !errors.Is(err, ErrNotFound) {
		t.Errorf("a late link: %v", err)
	}
	check(t, s.Sessions.CallerLives(ctx, 0, opened.ID))
	s.at = s.at.Add(20 * time.Minute)
	if _, err := s.Sessions.ByToken(ctx, session); !errors.Is(err, ErrNotFound) {
		t.Errorf("a late session: %v", err)
	}
	for _, want := range []int{2, 0} {
		var n int
		check(t, s.Read.QueryRowContext(ctx, "SELECT count(*) FROM sessions").Scan(&n))
		if n != want {
			t.Fatalf("%d sessions are stored, want %d", n, want)
		}
		check(t, s.Sessions.prune(ctx))
	}
}

// TestPrune: at least the newest 50 and 7 days are kept, and what a run still
// needs (SPEC C6.5).
func TestPrune(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	must[ApplyID](t)(s.Applies.Record(ctx, &Apply{Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}}}, nil, nil))
	waiting := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("waiting", "{}", "a")))
	for i := range 1200 {
		must[Recorded](t)(s.Deliveries.Record(ctx, delivery(fmt.Sprint(i), "{}")))
	}
	keep := Retention{Keep: 50, Age: 7 * 24 * time.Hour}
	if n := must[int64](t)(s.Deliveries.Prune(ctx, keep)); n != 0 {
		t.Errorf("%d young ones deleted", n)
	}
	s.at = s.at.Add(8 * 24 * time.Hour)
	if n := must[int64](t)(s.Deliveries.Prune(ctx, keep)); n != 1150 {
		t.Errorf("%d deleted", n)
	}
	left := must[[]*Delivery](t)(s.Deliveries.List(ctx, DeliveryQuery{}))
	if len(left) != 51 || left[0].Identity.Value != "1199" || left[50].ID != waiting.ID {
		t.Errorf("%d left", len(left))
	}
	if r := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1199", "{}"))); !r.Duplicate {
		t.Error("a kept identity was forgotten")
	}
}

func BenchmarkRecordDelivery(b *testing.B) {
	body := `{"a":"` + strings.Repeat("0123456789", 100) + `"}`
	for _, workers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := open(b)
			s.Store.Now = time.Now
			next := make(chan int, 1024)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := range next {
						if _, err := s.Deliveries.Record(b.Context(), delivery(fmt.Sprint(i), body, "a")); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := range b.N {
				next <- i
			}
			close(next)
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// TestHeadersText: kept headers are written as encoding/json writes them.
func TestHeadersText(t *testing.T) {
	for _, headers := range []map[string]string{
		nil,
		{"User-Agent": "test/1.0 (a; b)"},
		{"X-A": `say "hi" \ <b> & more`, "X-B": "tab\there", "X-C": "é…\u2028", "A": "\xff not UTF-8", "B": "", "C": "\x7f"},
	} {
		if headers == nil {
			headers = map[string]string{}
		}
		want := must[[]byte](t)(json.Marshal(headers))
		if got := headersText(headers); got != string(want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// together holds the writer until all the calls wait, so that they share one
// transaction, and returns what each said.
func together(t *testing.T, s *Store, calls ...func() error) []error {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Do(context.Background(), func(*engine.Tx) error {
			close(held)
			<-release
			return nil
		})
	})
	<-held
	results := make([]error, len(calls))
	for i, call := range calls {
		all.Go(func() { results[i] = call() })
	}
	until(t, func() bool { return s.Waiting() == len(calls) })
	close(release)
	all.Wait()
	return results
}

func until(t *testing.T, ready func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !ready(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
	}
}

// bind makes the webhook of the tests known.
func (f *fixture) bind(ctx context.Context) error {
	_, err := f.Applies.Record(ctx, &Apply{
		Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}},
	}, nil, nil)
	return err
}
