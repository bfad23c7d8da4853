package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/factory"
	"triphammer/schema/output"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// TestPushes: a run pushes to the branch of the pull request that it works on, and replaces what
// runs of its own automation pushed. Transcript and belt say what was pushed (SPEC 23.3).
func TestPushes(t *testing.T) {
	w, p := newWorld(t), newPulled(t)
	gittest.Git(t, p.bare, "config", "http.receivepack", "true")
	if _, err := w.store.Secrets.Set(t.Context(), "FORGE", secret.New("t0ken")); err != nil {
		t.Fatal(err)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	opened := p.pull(1, p.own, `{"id":1}`, "")
	const rewritten, only = "does not rewrite what its automation did not push", "a run pushes to "
	for _, tt := range []struct {
		automation, event, payload string
		push                       string // of a new commit on the head
		want                       string // of the refusal; empty: it is pushed
	}{
		{"a", "pull_request", opened, "HEAD:repair", ""},
		{"a", "pull_request", opened, "HEAD:main", "default branch only if"},
		{"a", "pull_request", opened, "HEAD:other", only + "triphammer/*, repair: "},
		{"a", "pull_request", p.pull(2, p.fork, `{"id":2}`, ""), "HEAD:triphammer/fork", "read-only"},
		{"a", "push", `{"ref":"refs/heads/repair","after":"` + p.own + `",` + p.repository() + `}`, "-f HEAD:repair", only + "triphammer/*: "},
		{"a", "pull_request", opened, "-f HEAD:repair", ""}, // that the first run pushed
		{"a", "pull_request", opened, "HEAD:triphammer/fix", ""},
		{"b", "pull_request", opened, "-f HEAD:triphammer/fix", rewritten},
		{"a", "pull_request", opened, "-f HEAD:triphammer/fix", ""},
		{"b", "pull_request", opened, "-f HEAD:repair", rewritten},
		{"waits", "pull_request", opened, "HEAD:triphammer/waits", "this push waits until a person approves it"},
		{"asks", "pull_request", opened, "HEAD:triphammer/asks", "this push waits until a person approves it"},
	} {
		w.store.Outputs.Approve(map[bool]time.Duration{true: time.Hour}[tt.automation == "asks"]) // --approve-outputs
		waits := tt.automation == "waits" || tt.automation == "asks"
		e := environment(fmt.Sprintf(`git fetch -q origin '+refs/heads/*:refs/remotes/origin/*'; git commit -q --allow-empty -m "$TRIPHAMMER_RUN_ID" && git push origin %s; git rev-parse HEAD`, tt.push))
		e.Repositories = []factory.Repository{{URL: p.url, Secret: "FORGE"}}
		spec := run.Spec{Environment: e, Automation: tt.automation, Waits: map[bool]time.Duration{true: time.Hour}[tt.automation == "waits"]}
		if tt.automation == "asks" {
			spec.Outputs = output.Allowed{"comment": {}}
		}
		n := w.newRun(spec)
		n.Source, n.Webhook = "GITHUB_WEBHOOK", "hook"
		id := w.deliver(n, tt.event, tt.payload)
		w.wants(w.finished(id), store.Succeeded, "")
		branch := tt.push[strings.Index(tt.push, ":")+1:]
		head := strings.TrimSpace(w.output(id, "stdout"))
		arrived := strings.Contains(gittest.Git(t, p.bare, "for-each-ref"), head)
		said, belt := w.output(id, "stderr"), w.belt(id)
		pushes, err := w.store.Transcripts.OfKinds(t.Context(), id, event.KindPush)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			if !arrived || len(pushes) != 1 || !strings.Contains(belt, "; pushed "+branch+" of "+p.url) {
				t.Errorf("%+v: arrived %v, told %v: %s\n%s", tt, arrived, pushes, said, belt)
			}
			continue
		}
		if told := strings.Contains(belt, "; pushes refused: 1"); arrived || !strings.Contains(said, tt.want) || told != (tt.want != "read-only" && !waits) ||
			strings.Contains(belt, "pushes that wait for a person: 1") != waits {
			t.Errorf("%+v: arrived %v, told %v: %s\n%s", tt, arrived, pushes, said, belt)
		}
	}
}
