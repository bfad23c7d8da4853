package main

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestApprovals: a run waits until a person has approved it, and then what its agent asked for waits: what
// is approved is done once, and what is declined never (SPEC 26.1, 26.2).
func TestApprovals(t *testing.T) {
	g := &gitHubChanges{}
	forge := httptest.NewServer(g)
	defer forge.Close()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": asking(t),
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "\n",
		"automations/fix.md": "---\nenvironmentId: env\napproval: [start, outputs]\ntriggers: [{provider: github, event: issue_labeled}]\noutputs:\n  comment: {}\n  addLabels: {allowed: [triaged, bug]}\n---\nDo it.\n",
	})
	w.run("ghp_"+strings.Repeat("output", 6), "secrets", "set", "API_TOKEN")
	w.start()
	address := w.url("hook")
	labelIssue(t, address, "1", "fix", "fine")
	labelIssue(t, address, "2", "fix", "fine")
	var items []api.InboxItem
	until := func(what string, is func() bool) {
		t.Helper()
		deadline, ticker := time.After(time.Minute), time.NewTicker(50*time.Millisecond)
		defer ticker.Stop()
		for !is() {
			select {
			case <-deadline:
				t.Fatalf("%s: %+v\n%q", what, items, asked(g))
			case <-ticker.C:
			}
		}
	}
	waits := func(kind string, n int) func() bool {
		return func() bool {
			w.list(&items, "inbox")
			return len(items) == n && items[0].Kind == kind
		}
	}
	until("two runs wait", waits("start", 2))
	first, second := items[0].RunID, items[1].RunID
	if shown := w.run("", "inbox", "list"); !strings.Contains(shown, first) || !strings.Contains(shown, "fix waits to start") {
		t.Errorf("%s", shown)
	}
	if said := w.run("", "inbox", "decline", second, "--reason", "not now"); said != "declined: the start of fix, for github:ada\n" {
		t.Errorf("%q", said)
	}
	if shown := w.run("", "runs", "show", second); !strings.Contains(shown, "CANCELLED") || !strings.Contains(shown, "(not now) before it started") {
		t.Errorf("%s", shown)
	}
	w.run("", "inbox", "approve", first)
	until("its outputs wait", waits("outputs", 1))
	if items[0].RunID != first || len(items[0].Outputs) != 3 || len(asked(g)) != 0 {
		t.Fatalf("%+v\n%q", items, asked(g))
	}
	if said := w.run("", "inbox", "approve", first, "--output", "3"); said != "approved: output 3, comment: Hello @everyone, this closes #1\n" {
		t.Errorf("%q", said)
	}
	w.run("", "inbox", "decline", first)
	until("nothing waits", func() bool { w.list(&items, "inbox"); return len(items) == 0 })
	until("the comment is there", func() bool { return len(asked(g)) > 0 })
	if calls, _ := g.seen(); !slices.Equal(calls, []string{"POST /repos/acme/api/issues/7/comments"}) {
		t.Errorf("%q", calls)
	}
	shown := w.run("", "runs", "show", first)
	for _, text := range []string{"SUCCEEDED", "discarded", "declined by", "output 3 approved by"} {
		if !strings.Contains(shown, text) {
			t.Errorf("%q is not in\n%s", text, shown)
		}
	}
	if out, err := w.command("inbox", "approve", first).CombinedOutput(); err == nil || !strings.Contains(string(out), "approved by") && !strings.Contains(string(out), "declined by") {
		t.Errorf("decided twice: %s", out)
	}
}
