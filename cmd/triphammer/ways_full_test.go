//go:build full

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestWaysOut: an agent that is an enemy tries every way out that we know, within its run and when it has ended. It is told
// of each why not, and the forge has what its automation allows, and nothing else (SPEC 23).
func TestWaysOut(t *testing.T) {
	f := newWayForge(t)
	dir := t.TempDir()
	program := hostileProgram(t, dir)
	command, _ := json.Marshal([]string{program, hostileCommand, "ways", f.Listener.Addr().String()}) // always encodes
	w := newWorld(t, map[string]string{
		"factory.yaml":       factoryYAML,
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: FORGE\napiURL: " + f.URL + "/api/v3\n",
		"environments/env.yaml": fmt.Sprintf("repositories: [{url: '%s/acme/api.git', secret: FORGE}]\nisolation: sandbox\nnetwork: off\ncommand: %s\nenv: {%s}\n"+
			"setupCommands:\n- 'echo \"setup has ${TRIPHAMMER_OUTPUTS_TOKEN:-no token}\"; git fetch -q origin \"+refs/heads/*:refs/remotes/origin/*\"'\n", f.URL, command, strings.Replace(noRaceSleep, "=", ": ", 1)),
		"automations/a.md": "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_labeled}]\npush: {maxBytes: 200000}\noutputs:\n  comment: {max: 3}\n  addLabels: {allowed: [triaged]}\n  close: {}\n" +
			"  createPullRequest: {max: 2, titlePrefix: '[bot] ', draft: true, labels: [bot]}\n---\nDo it.\n",
	})
	w.run(f.token, "secrets", "set", "FORGE")
	before := gittest.Git(t, f.bare, "for-each-ref")
	w.start("--isolation", "sandbox", "--run-read", dir, "--keep-workspaces", "1h")
	labelIssue(t, w.url("hook"), "1", "any", "An issue")
	var runs []api.Run
	err := client.WaitFor(t.Context(), 2*time.Minute, "the run does not end", func() (bool, error) {
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].FinishedAt != nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	logs := w.run("", "runs", "logs", runs[0].RunID, "--full")
	if runs[0].State != "SUCCEEDED" || !strings.Contains(logs, "setup has no token") || strings.Contains(logs, f.token) {
		t.Fatalf("%+v\n%s", runs[0], logs)
	}
	saved := t.TempDir()
	w.run("", "runs", "artifacts", runs[0].RunID, "--download", saved)
	told := make(map[string]string)
	text, err := os.ReadFile(filepath.Join(saved, wayTold))
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil || len(told) != len(ways) {
		t.Fatal(err, len(told))
	}
	for _, way := range ways {
		if said := told[way.name]; !strings.Contains(said, way.want) {
			t.Errorf("%s: %.400q, want %q", way.name, said, way.want)
		}
	}
	for _, dropped := range []string{"no run of this automation has pushed a branch", "createPullRequest: the automation allows 2 in a run, and 2 came before"} {
		if !strings.Contains(logs, dropped) {
			t.Errorf("the transcript does not say %q", dropped)
		}
	}
	err = client.WaitFor(t.Context(), time.Minute, "the outputs are not done", func() (bool, error) {
		var r api.Run
		w.list(&r, "runs", "show", runs[0].RunID)
		return len(r.Outputs) > 0 && !slices.ContainsFunc(r.Outputs, func(o api.Output) bool { return o.Status == "pending" }), nil
	})
	if err != nil {
		t.Error(err, w.run("", "runs", "show", runs[0].RunID))
	}
	calls, bodies := f.seen()
	want := []string{"POST /repos/acme/api/pulls", "POST /repos/acme/api/issues/1/labels", "POST /repos/acme/api/pulls", "POST /repos/acme/api/issues/3/labels", "PATCH /repos/acme/api/issues/7", "POST /repos/acme/api/issues/7/comments"}
	if !slices.Equal(calls, want) {
		t.Errorf("the forge was asked for %q, want %q: %q", calls, want, bodies)
	}
	after := gittest.Git(t, f.bare, "for-each-ref")
	added := strings.Split(strings.TrimSpace(after), "\n")
	added = slices.DeleteFunc(added, func(ref string) bool { return strings.Contains(before, ref) })
	if len(added) != 1 || !strings.HasSuffix(added[0], "\trefs/heads/triphammer/fix") || len(strings.Split(after, "\n")) != len(strings.Split(before, "\n"))+1 {
		t.Errorf("the forge has\n%s, and had\n%s", after, before)
	}
	var comment, pull struct{ Body, Title string }
	if err := json.Unmarshal([]byte(bodies[0]), &pull); err != nil || pull.Title != "[bot] by the gateway" || !strings.HasPrefix(pull.Body, "> ```") || strings.Contains(pull.Body, "\n/") || strings.Contains(pull.Body, "#1") {
		t.Errorf("the pull request is %s", bodies[0])
	}
	if err := json.Unmarshal([]byte(bodies[len(bodies)-1]), &comment); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\n/close", " #1", " acme/api#2", "![", "<img", "triphammer:run_0:0 -->"} {
		if strings.Contains(comment.Body, bad) {
			t.Errorf("the comment has %q: %s", bad, comment.Body)
		}
	}
}
