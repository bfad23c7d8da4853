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

	"triphammer/factory/match"
	"triphammer/factory/signature"
)

// TestSnapshotRebuilds: what an apply records is enough to build the same
// revision again, without Git and with the secrets' generations of then (SPEC
// 4.4), and to explain an old delivery without any secret.
func TestSnapshotRebuilds(t *testing.T) {
	source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(
		"webhooks/hook.yaml", webhookYAML, "automations/a.md", automation, "README.md", "not a definition")}}
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "first")
	cfg := r.config(source)
	a := New(cfg)
	if _, err := a.Apply(t.Context(), "command"); err != nil {
		t.Fatal(err)
	}
	recorded := r.Applies()[0]
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
	r.SetSecret("HOOK_SECRET", "second")
	in := BuildInput{
		Factory: "default", Commit: recorded.Commit, Tree: recorded.Snapshot.FS(), UIDs: r.UIDs, Spec: r.Spec,
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
	if matched, _, err := built.Revision.Webhooks[0].Index.Match(match.Delivery{Body: []byte(`{}`)}, nil); err != nil || len(matched) != 1 {
		t.Errorf("matched %v, %v", matched, err)
	}
}

// TestSnapshotFS: a snapshot is a file system as the standard library wants one.
func TestSnapshotFS(t *testing.T) {
	s := Snapshot{Files: []File{
		{Path: "webhooks/b.yaml", Data: []byte("b")},
		{Path: "factory.yaml", Data: []byte("name: x\n")},
		{Path: "agents/a/agent.md"},
		{Path: "webhooks/a.yaml", Data: []byte("a")},
		{Path: "factory.yaml/inside"},
		{Path: "../out"},
		{Path: "/abs"},
		{Path: "."},
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

// TestDormant: an automation that nothing starts says why, and one that a single
// trigger may start does not (SPEC 4.7).
func TestDormant(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	on := func(triggers string) *fstest.MapFile {
		return file("---\nenvironmentId: e\ntriggers:\n" + triggers + "---\nDo it.\n")
	}
	hook := func(selection string) string {
		return "- {provider: webhook, event: received, filter: {" + selection + "}}\n"
	}
	const push, daily = "- {provider: github, event: push}\n", "- {provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}\n"
	built, err := Build(t.Context(), BuildInput{
		Factory: "default",
		Tree: fstest.MapFS{
			"factory.yaml":         file("schemaVersion: v1alpha1\nname: x\n"),
			"environments/e.yaml":  file("command: ['true']\n"),
			"webhooks/hook.yaml":   file("secretName: S\n"),
			"webhooks/off.yaml":    file("secretName: S\nenabled: false\n"),
			"webhooks/rests.yaml":  file("secretName: S\n"),
			"automations/live.md":  on(hook("webhooks: [hook]")),
			"automations/half.md":  on(hook("webhooks: [rests, hook]")),
			"automations/rests.md": on(hook("webhooks: [rests, off]")),
			"automations/uid.md":   on(hook("webhook_ids: [whk_hook]")),
			"automations/some.md":  on(hook("webhooks: [gone, hook]")),
			"automations/other.md": on(hook("webhooks: [gone]") + daily),
			"automations/gone.md":  on(hook("webhooks: [gone]")),
			"automations/named.md": on(hook("webhook_ids: [hook]")), // a file's name is no UID
			"automations/idle.md":  on(hook("webhooks: [off, gone]")),
			"automations/push.md":  on(push + hook("webhooks: [gone]")),
			"automations/off.md":   file("---\nenvironmentId: e\nenabled: false\ntriggers:\n" + push + "---\nDo it.\n"),
		},
		UIDs: new(Memory).UIDs,
	})
	if err != nil || built.Revision == nil {
		t.Fatalf("%+v, %v", built, err)
	}
	for name, want := range map[string][]string{
		"live":  {"", ""},
		"half":  {"", ""},
		"rests": {"disabled: webhook off; paused: webhook rests", ""},
		"uid":   {"", ""},
		"some":  {"", "gone"},
		"other": {"", "gone"},
		"gone":  {"there is no webhook gone", "gone"},
		"named": {"there is no webhook hook", "hook"},
		"idle":  {"there is no webhook gone; disabled: webhook off", "gone"},
		"push":  {"no webhook takes deliveries of GitHub; there is no webhook gone", "gone"},
		"off":   {"", ""},
	} {
		def := built.Revision.Definition.Automation(name)
		if def == nil {
			t.Fatalf("no automation %s: %+v", name, built.Diagnostics)
		}
		var gone []string
		for i := range def.Triggers {
			gone = append(gone, built.Revision.Gone(&def.Triggers[i])...)
		}
		if why := built.Revision.Dormant(def, func(w *Webhook) bool { return w.Def.Name == "rests" }); why != want[0] || strings.Join(gone, " ") != want[1] {
			t.Errorf("%s: %q, gone %v; want %q", name, why, gone, want)
		}
	}
}
