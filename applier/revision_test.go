package applier

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"triphammer/factory/signature"
)

// TestSnapshotRebuilds: what an apply records is enough to build the same
// revision again, without Git and with the secrets' generations of then (SPEC
// 4.4), and to explain an old delivery without any secret.
func TestSnapshotRebuilds(t *testing.T) {
	source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(
		"webhooks/hook.yaml", webhookYAML, "automations/a.md", automation, "README.md", "not a definition")}}
	r := &records{}
	r.set("HOOK_SECRET", 1, "first")
	cfg := r.config(source)
	a := New(cfg)
	if _, err := a.Apply(t.Context(), "command"); err != nil {
		t.Fatal(err)
	}
	recorded := r.applies[0]
	var paths []string
	for _, f := range recorded.Snapshot.Files {
		paths = append(paths, f.Path)
	}
	if !slices.Equal(paths, []string{"automations/a.md", "factory.yaml", "webhooks/hook.yaml"}) {
		t.Fatalf("recorded %v", paths)
	}
	if kept := a.State().LastApply.Snapshot.Files; kept != nil {
		t.Errorf("the state holds %d files", len(kept))
	}
	r.set("HOOK_SECRET", 2, "second")
	in := BuildInput{
		Factory: "default", Commit: recorded.Commit, Tree: recorded.Snapshot.FS(), UIDs: cfg.UIDs, Spec: cfg.Spec,
		Secrets: func(context.Context, []string) (map[string]SecretValue, error) {
			return map[string]SecretValue{"HOOK_SECRET": NewSecretValue(1, "first")}, nil
		},
	}
	built, err := Build(t.Context(), in)
	if err != nil || built.Revision == nil {
		t.Fatalf("%+v, %v", built, err)
	}
	if plan := Diff(recorded.Revision, built.Revision); len(plan.Create)+len(plan.Update)+len(plan.Delete) > 0 {
		t.Errorf("rebuilt with changes: %+v", plan)
	}
	hook := built.Revision.Webhooks[0]
	if hook.Automations[0].SpecHash != recorded.Revision.Automations[0].SpecHash {
		t.Error("another spec")
	}
	for secret, wants := range map[string]bool{"first": true, "second": false} {
		err := hook.Verifier.Verify(&signature.Request{Method: "POST", Header: http.Header{"Authorization": {"Bearer " + secret}}})
		if (err == nil) != wants {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
	in.Secrets = nil
	if built, err = Build(t.Context(), in); err != nil || built.Revision == nil || built.Revision.Webhooks[0].Verifier != nil {
		t.Fatalf("without secrets: %+v, %v", built, err)
	}
	if matched, err := built.Revision.Webhooks[0].Index.Match([]byte(`{}`), nil); err != nil || len(matched) != 1 {
		t.Errorf("matched %v, %v", matched, err)
	}
}

// TestSnapshotFS: a snapshot is a file system as the standard library wants one.
func TestSnapshotFS(t *testing.T) {
	s := Snapshot{Files: []File{
		{"webhooks/b.yaml", []byte("b")},
		{"factory.yaml", []byte("name: x\n")},
		{"agents/a/agent.md", nil},
		{"webhooks/a.yaml", []byte("a")},
		{"../out", nil},
		{"/abs", nil},
		{".", nil},
	}}
	if err := fstest.TestFS(s.FS(), "webhooks/a.yaml", "webhooks/b.yaml", "factory.yaml", "agents/a/agent.md"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(Snapshot{}.FS()); err != nil {
		t.Error(err)
	}
}

// TestSecretValueHides: no way of printing a secret prints it.
func TestSecretValueHides(t *testing.T) {
	v := NewSecretValue(3, "hunter2")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb, v) + fmt.Sprintf(verb, &v) + fmt.Sprintf(verb, []SecretValue{v}); strings.Contains(text, "hunter2") || strings.Contains(text, "68756e") {
			t.Errorf("%s: %s", verb, text)
		}
	}
}

// TestLive: readers see each factory whole while others are swapped.
func TestLive(t *testing.T) {
	live := &Live{}
	if _, ok := live.Webhook("whk_a"); ok || live.Revisions() != nil {
		t.Error("an empty table has something")
	}
	revision := func(factory string, uids ...string) *Revision {
		r := &Revision{Factory: factory}
		for _, uid := range uids {
			r.Webhooks = append(r.Webhooks, &Webhook{UID: uid, Factory: factory, Revision: r})
		}
		return r
	}
	live.Swap(revision("b", "whk_b"))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if i%2 == 0 {
				live.Swap(revision("a", "whk_1", "whk_2"))
				return
			}
			if w, ok := live.Webhook("whk_b"); !ok || w.Revision.Factory != "b" {
				t.Error("a swap of one factory took the webhook of another")
			}
			if w, ok := live.Webhook("whk_1"); ok && len(w.Revision.Webhooks) != 2 {
				t.Error("half a revision")
			}
		})
	}
	all.Wait()
	live.Swap(revision("a", "whk_2"))
	if _, ok := live.Webhook("whk_1"); ok {
		t.Error("a deleted webhook is still there")
	}
	if r := live.Revisions(); len(r) != 2 || r[0].Factory != "a" || r[1].Factory != "b" {
		t.Errorf("revisions %v", r)
	}
}
