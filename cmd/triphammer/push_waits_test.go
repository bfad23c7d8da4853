package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestPushWaits: where outputs wait, the branches that a run pushes are outputs: nothing is at the forge before
// a person has approved it, then the branch is there and its pull request is opened, once over a kill of the
// server; what is declined or has moved is not pushed, and a pull request without its branch is not opened
// (SPEC 23.3).
func TestPushWaits(t *testing.T) {
	t.Parallel()
	f := newWayForge(t)
	script, _ := json.Marshal(`n=$(grep -o "branch-[0-9]*x" "$TRIPHAMMER_ATTACHMENTS/event-payload.json" | head -1)
git commit -q --allow-empty -m "first of $n" && git push -q origin HEAD:triphammer/$n || exit 7
git commit -q --allow-empty -m "second of $n" && git push origin HEAD:triphammer/$n || exit 8
git push origin HEAD:main && exit 9
to=$(git remote get-url origin)
echo "{\"kind\":\"createPullRequest\",\"title\":\"of $n\",\"body\":\"B\",\"head\":\"triphammer/$n\"}" > "$TRIPHAMMER_OUTPUTS/1.json"
until [ -e "$TRIPHAMMER_OUTPUTS/1.result.json" ]; do sleep 0.05; done; cat "$TRIPHAMMER_OUTPUTS/1.result.json"`) // texts always encode
	w := newWorld(t, map[string]string{
		"factory.yaml":          factoryYAML,
		"webhooks/hook.yaml":    "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: FORGE\napiURL: " + f.URL + "/api/v3\n",
		"environments/env.yaml": fmt.Sprintf("repositories: [{url: '%s/acme/api.git', secret: FORGE}]\ncommand: [sh, -c, %s]\n", f.URL, script),
		"automations/a.md":      "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_labeled}]\napproval: [outputs]\napprovalTimeout: 12h\noutputs: {createPullRequest: {}}\n---\nDo it.\n",
	})
	w.run(f.token, "secrets", "set", "FORGE")
	w.start()
	defer func() { f.pushed = nil }()
	var r api.Run
	until := func(what string, is func() bool) {
		t.Helper()
		if err := client.WaitFor(t.Context(), time.Minute, what, func() (bool, error) { return is(), nil }); err != nil {
			t.Fatal(err, w.run("", "runs", "show", r.RunID), w.run("", "runs", "logs", r.RunID))
		}
	}
	states := func() (all []string) {
		w.list(&r, "runs", "show", r.RunID)
		for _, o := range r.Outputs {
			all = append(all, o.Status)
		}
		return all
	}
	become := func(want ...string) {
		t.Helper()
		until(fmt.Sprintf("outputs become %q", want), func() bool { return slices.Equal(states(), want) })
	}
	n := 0
	asked := func() string {
		n++
		name := fmt.Sprintf("branch-%dx", n)
		labelIssue(t, w.url("hook"), fmt.Sprint(n), "fix", name)
		var all []api.Run
		until("a run asks", func() bool {
			if w.list(&all, "runs", "list"); len(all) == n {
				r = all[0]
				return r.FinishedAt != nil
			}
			return false
		})
		become("waiting", "waiting")
		return "triphammer/" + name
	}
	at := func(branch string) string {
		return gittest.Git(t, f.bare, "for-each-ref", "--format=%(subject)", "refs/heads/"+branch)
	}
	packs := func() (all []string) {
		_ = filepath.WalkDir(filepath.Join(w.dir, "data", "artifacts"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		return all
	}

	branch := asked()
	if at(branch) != "" || len(packs()) != 2 {
		t.Errorf("before it is approved, the forge has %q, and packs are %q", at(branch), packs())
	}
	if o := r.Outputs[0]; o.Kind != "push" || o.Where != f.URL+"/acme/api.git" || !strings.HasPrefix(o.Text, branch+" (new → ") || !strings.HasSuffix(o.Text, ", 2 commits): second of branch-1x; first of branch-1x") || o.Approval.EndsAt.Sub(o.Approval.AskedAt) != 12*time.Hour {
		t.Errorf("%+v %+v", o, o.Approval)
	}
	logs := w.run("", "runs", "logs", r.RunID)
	if !strings.Contains(logs, "waits until a person approves it") || !strings.Contains(logs, "default branch only if") {
		t.Errorf("%s", logs)
	}
	if page := w.run("", "inbox"); !strings.Contains(page, "1. push "+branch) {
		t.Errorf("%s", page)
	}
	// The pull request is approved first, and waits for its branch.
	w.run("", "inbox", "approve", r.RunID, "--output", "2")
	// The server dies when the forge has the branch, and before it knows that.
	var pushes atomic.Int64
	killed := make(chan struct{})
	f.pushed = func(serve func()) {
		if serve(); pushes.Add(1) == 1 {
			w.kill()
			close(killed)
		}
	}
	w.run("", "inbox", "approve", r.RunID)
	<-killed
	if calls, _ := f.seen(); len(calls) != 0 || at(branch) != "second of branch-1x" {
		t.Errorf("%q, and the forge has %q", calls, at(branch))
	}
	w.ahead = 10 * time.Minute // the turn that was killed is over
	w.start()
	become("done", "done")
	calls, bodies := f.seen()
	if pushes.Load() != 1 || !slices.Equal(calls, []string{"POST /repos/acme/api/pulls"}) || !strings.Contains(bodies[0], branch) {
		t.Errorf("%d pushes, %q %q", pushes.Load(), calls, bodies)
	}

	branch = asked()
	w.run("", "inbox", "decline", r.RunID, "--output", "1", "--reason", "no")
	w.run("", "inbox", "approve", r.RunID)
	become("discarded", "failed")
	if !strings.Contains(r.Outputs[1].Detail, "its branch is not there: output 1, the push, is discarded") || at(branch) != "" {
		t.Errorf("%+v, and the forge has %q", r.Outputs[1], at(branch))
	}

	branch = asked()
	gittest.Git(t, f.bare, "update-ref", "refs/heads/"+branch, "main")
	w.run("", "inbox", "approve", r.RunID)
	become("failed", "failed")
	if !strings.Contains(r.Outputs[0].Detail, "has moved since the run pushed") || at(branch) != "one" {
		t.Errorf("%+v, and the forge has %q", r.Outputs[0], at(branch))
	}
	gittest.Git(t, f.bare, "update-ref", "-d", "refs/heads/"+branch)
	w.run("", "runs", "answer", r.RunID) // once the branch is out of the way, a person has it done
	become("done", "done")
	if calls, _ := f.seen(); at(branch) != "second of branch-3x" || len(calls) != 2 {
		t.Errorf("the forge has %q, and was asked for %q", at(branch), calls)
	}
	w.kill()
	w.start() // which sweeps: nobody needs the packs any more
	until("the packs are deleted", func() bool { return len(packs()) == 0 })
}
