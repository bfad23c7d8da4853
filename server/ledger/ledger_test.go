package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory/match"
	"triphammer/factory/signature"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

const (
	factoryYAML = "schemaVersion: v1alpha1\nname: Test\n"
	webhookYAML = "secretName: S\n"
	automation  = "---\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook]}}\n---\nDo it.\n"
)

func openStore(t *testing.T) *store.Store {
	t.Helper()
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func setSecret(t *testing.T, s *store.Store, name, value string) {
	t.Helper()
	if _, err := s.Secrets.Set(t.Context(), name, secret.New(value)); err != nil {
		t.Fatal(err)
	}
}

func deliver(t *testing.T, s *store.Store, webhookUID, id string, outcome store.Outcome) string {
	t.Helper()
	done, err := s.Deliveries.Record(t.Context(), &store.NewDelivery{
		Delivery: store.Delivery{
			Factory: "default", Webhook: "hook", WebhookUID: webhookUID, Outcome: outcome, ReceivedAt: time.Now(),
			Identity: store.Identity{Source: store.IdentitySender, Value: id},
			Headers:  map[string]string{"X-Event-Type": "e" + id},
		},
		Payload: []byte(id),
	})
	if err != nil {
		t.Fatal(err)
	}
	return done.ID.String()
}

// folder is an applier of a folder.
type folder struct {
	*applier.Applier
	t    *testing.T
	dir  string
	live *applier.Live
}

func newFolder(t *testing.T, l applier.Ledger) *folder {
	t.Helper()
	f := &folder{t: t, dir: t.TempDir(), live: &applier.Live{}}
	source, err := gitrepo.OpenWorkTree(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	f.Applier = applier.New(applier.Config{Factory: "default", Source: source, Live: f.live, Ledger: l, Logger: slog.New(slog.DiscardHandler)})
	return f
}

// apply replaces the files and applies them.
func (f *folder) apply(want applier.Outcome, files ...string) *applier.Apply {
	f.t.Helper()
	err := os.RemoveAll(filepath.Join(f.dir, "webhooks"))
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(f.dir, files[i])
		err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(files[i+1]), 0o600))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	done, err := f.Apply(f.t.Context(), "command")
	if err != nil || done.Outcome != want {
		f.t.Fatalf("%+v, %v; want it %s", done, err, want)
	}
	return done
}

// TestLedger: what the store promises to an applier.
func TestLedger(t *testing.T) {
	s := openStore(t)
	ctx, l := t.Context(), New(s)
	f := newFolder(t, l)
	setSecret(t, s, "OTHER", "x")
	f.apply(applier.Refused, "factory.yaml", factoryYAML, "webhooks/hook.yaml", webhookYAML) // for want of S
	setSecret(t, s, "S", "one")
	setSecret(t, s, "S", "two")
	if all, err := l.Secrets(ctx, []string{"S", "NONE"}); err != nil || len(all) != 1 || all["S"] != applier.NewSecretValue(2, "two") {
		t.Errorf("secrets %v, %v", all, err)
	}
	first := f.apply(applier.Applied, "factory.yaml", factoryYAML, "webhooks/hook.yaml", webhookYAML)
	bad := f.apply(applier.Refused, "webhooks/hook.yaml", "colour: green\n")
	next := f.apply(applier.Applied, "factory.yaml", factoryYAML+"description: no webhook\n")
	if first.ID == "" || first.ID == bad.ID || first.ID == next.ID || bad.ID == next.ID {
		t.Errorf("applies %s, %s and %s", first.ID, bad.ID, next.ID)
	}

	uid := first.Revision.Webhooks[0].UID
	uids, err := l.UIDs(ctx, "default", []string{"hook", "new"})
	if err != nil || len(uids) != 2 || uids["hook"] != uid || uids["new"] == "" || uids["new"] == uid {
		t.Errorf("UIDs %v, %v; hook had %s", uids, err, uid)
	}
	if _, _, err := l.Past(ctx, "default", bad.Commit.Hash); err == nil {
		t.Error("a refused commit is a past one")
	}
	commit, tree, err := l.Past(ctx, "default", first.Commit.Hash)
	if err != nil || commit.Hash != first.Commit.Hash {
		t.Fatal(commit, err)
	}
	if text, err := fs.ReadFile(tree, "webhooks/hook.yaml"); err != nil || string(text) != webhookYAML {
		t.Errorf("%q, %v", text, err)
	}
	f.SetPin(&applier.Pin{Commit: first.Commit.Hash})
	pinned := f.apply(applier.Applied)
	if w := pinned.Revision.Webhooks; pinned.Commit.Hash != first.Commit.Hash || len(w) != 1 || w[0].UID != uid || w[0].SecretGeneration != 2 {
		t.Errorf("%+v", pinned)
	}
	if err := l.EndPin(ctx, "default"); err != nil {
		t.Error(err)
	}

	for n := range 3 {
		deliver(t, s, uid, fmt.Sprint(n), store.Accepted)
	}
	var seen []string
	visit := func(_ string, _ time.Time, d match.Delivery) error {
		seen = append(seen, string(d.Body)+d.Headers["X-Event-Type"])
		return nil
	}
	if err := l.Deliveries(ctx, uid, 2, visit); err != nil || !slices.Equal(seen, []string{"2e2", "1e1"}) {
		t.Errorf("visited %v, %v", seen, err)
	}
	stop := errors.New("enough")
	if err := l.Deliveries(ctx, uid, 2, func(string, time.Time, match.Delivery) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := l.Deliveries(ctx, "whk_none", 2, func(string, time.Time, match.Delivery) error { return stop }); err != nil {
		t.Error(err)
	}
}

// TestRestore: after a restart the generation of a secret serves that the last
// apply took, whatever was set or refused since (SPEC 4.4); and an earlier apply can
// be explained, but verifies nothing.
func TestRestore(t *testing.T) {
	s := openStore(t)
	l := New(s)
	if r, err := l.Restore(t.Context(), "default"); r != nil || err != nil {
		t.Fatal(r, err)
	}
	setSecret(t, s, "S", "one")
	f := newFolder(t, l)
	first := f.apply(applier.Applied, "factory.yaml", factoryYAML, "webhooks/hook.yaml", webhookYAML, "automations/a.md", automation)
	setSecret(t, s, "S", "two")
	refused := f.apply(applier.Refused, "webhooks/hook.yaml", "colour: green\n")

	r, err := l.Restore(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	was, is := first.Revision.Webhooks[0], r.Webhooks[0]
	if r.ApplyID != first.ID || r.AppliedAt.IsZero() || r.Commit.Hash != first.Commit.Hash || is.UID != was.UID || is.SecretGeneration != 1 ||
		is.Automations[0].SpecHash != was.Automations[0].SpecHash {
		t.Errorf("%+v, webhook %+v; want %+v", r, is, was)
	}
	for value, want := range map[string]bool{"one": true, "two": false} {
		err := is.Verifier.Verify(&signature.Request{Method: "POST", Header: http.Header{"Authorization": {"Bearer " + value}}})
		if (err == nil) != want {
			t.Errorf("secret %s: %v", value, err)
		}
	}

	load := func(text string) (*applier.Revision, error) {
		id, err := store.ParseID[store.Apply](text)
		if err != nil {
			t.Fatal(err)
		}
		return l.Load(t.Context(), id)
	}
	f.apply(applier.Applied, "factory.yaml", factoryYAML+"description: newer\n", "automations/a.md", automation)
	if r, err = load(first.ID); err != nil || r.ApplyID != first.ID || r.Webhooks[0].UID != was.UID || r.Webhooks[0].Verifier != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := load(refused.ID); err == nil {
		t.Errorf("a refused apply made %+v", r)
	}
	if r, err := load(""); err == nil {
		t.Errorf("no apply made %+v", r)
	}
}

// TestArrived: a commit came when the first apply of it began, of any outcome.
func TestArrived(t *testing.T) {
	l := New(openStore(t))
	f := newFolder(t, l)
	first := f.apply(applier.Refused, "factory.yaml", "no: name\n")
	f.apply(applier.Refused)
	if at, err := l.Arrived(t.Context(), "default", first.Commit.Hash); err != nil || !at.Equal(first.StartedAt.Truncate(time.Microsecond)) {
		t.Errorf("%s, %v; it came at %s", at, err, first.StartedAt)
	}
	if at, err := l.Arrived(t.Context(), "other", first.Commit.Hash); err != nil || time.Since(at) > time.Minute || at.Before(first.StartedAt) {
		t.Errorf("%s, %v", at, err)
	}
}

// TestPins: a pin is as it was set, and is none when its time is over.
func TestPins(t *testing.T) {
	s := openStore(t)
	l := New(s)
	for until, want := range map[time.Time]bool{{}: true, time.Now().Add(time.Hour).Truncate(time.Second): true, time.Now().Add(-time.Hour): false} {
		set := store.Pin{Commit: "c1", Reason: "r", By: "ada", At: time.Now().Truncate(time.Second), Until: until}
		if err := s.Pins.Set(t.Context(), "default", set); err != nil {
			t.Fatal(err)
		}
		p, err := l.Pin(t.Context(), "default")
		if err != nil || (p != nil) != want || want && (p.Commit != "c1" || p.Reason != "r" || p.By != "ada" || !p.At.Equal(set.At) || !p.Until.Equal(until)) {
			t.Errorf("until %s: %+v, %v", until, p, err)
		}
	}
	if p, err := l.Pin(t.Context(), "other"); p != nil || err != nil {
		t.Error(p, err)
	}
}

// TestOnlyAcceptedCount: what was refused tells a back-test nothing, and takes the
// place of nothing that does.
func TestOnlyAcceptedCount(t *testing.T) {
	s := openStore(t)
	want := deliver(t, s, "whk_1", "good", store.Accepted)
	deliver(t, s, "whk_1", "bad", store.RejectedAuth)
	var got []string
	err := New(s).Deliveries(t.Context(), "whk_1", 1, func(id string, _ time.Time, _ match.Delivery) error {
		got = append(got, id)
		return nil
	})
	if err != nil || !slices.Equal(got, []string{want}) {
		t.Errorf("%v, %v; want %s alone", got, err, want)
	}
}
