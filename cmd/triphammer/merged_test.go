package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestMerged: what becomes of the pull request of a run is known from the deliveries that come anyway: whether
// it is merged, with a person's commits or without, or closed (SPEC 27.1).
func TestMerged(t *testing.T) {
	t.Parallel()
	f := newWayForge(t)
	script, _ := json.Marshal(`n=$(grep -o "branch-[0-9]*x" "$TRIPHAMMER_ATTACHMENTS/event-payload.json" | head -1)
[ $n = branch-4x ] && exit 0
git commit -q --allow-empty -m "for $n" && git push -q origin HEAD:triphammer/$n || exit 7
echo "{\"kind\":\"createPullRequest\",\"title\":\"of $n\",\"body\":\"B\",\"head\":\"triphammer/$n\"}" > "$TRIPHAMMER_OUTPUTS/1.json"`) // texts always encode
	w := newWorld(t, map[string]string{
		"factory.yaml":          factoryYAML,
		"webhooks/hook.yaml":    "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: FORGE\napiURL: " + f.URL + "/api/v3\n",
		"environments/env.yaml": fmt.Sprintf("repositories: [{url: '%s/acme/api.git', secret: FORGE}]\ncommand: [sh, -c, %s]\n", f.URL, script),
		"automations/a.md":      "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_labeled}]\noutputs: {createPullRequest: {}}\n---\nDo it.\n",
	})
	w.run(f.token, "secrets", "set", "FORGE")
	w.start()
	var all []api.Run
	until := func(what string, is func(r api.Run) bool) (r api.Run) {
		t.Helper()
		err := client.WaitFor(t.Context(), time.Minute, what, func() (bool, error) {
			w.list(&all, "runs", "list")
			w.list(&r, "runs", "show", all[0].RunID)
			return is(r), nil
		})
		if err != nil {
			t.Fatalf("%v: %+v %+v\n%s", err, r.About, r.Artifacts, w.run("", "runs", "logs", r.RunID))
		}
		return r
	}
	hammered := strings.TrimSpace(gittest.Git(t, f.bare, "rev-parse", "triphammer/theirs"))
	for i, c := range []struct {
		state, outcome, status string
		merged, theirs         bool
	}{
		{"closed", "merged", "merged", true, false},
		{"closed", "merged_with_changes", "merged", true, true},
		{"closed", "closed", "closed", false, false},
	} {
		name := fmt.Sprintf("branch-%dx", i+1)
		labelIssue(t, w.url("hook"), fmt.Sprint(i), "fix", name)
		r := until("the pull request is opened", func(r api.Run) bool { return len(all) == i+1 && r.About.Outcome == "open" })
		if len(r.Artifacts) != 1 || r.Artifacts[0].Data.Status != "unknown" || r.Artifacts[0].Data.Title != "of "+name {
			t.Fatalf("%+v", r.Artifacts)
		}
		head := strings.TrimSpace(gittest.Git(t, f.bare, "rev-parse", "triphammer/"+name))
		if c.theirs {
			head = hammered
		}
		fromGitHub(t, w.url("hook"), "p"+fmt.Sprint(i), "pull_request", map[string]any{
			"action":       "closed",
			"pull_request": map[string]any{"id": i, "number": i, "html_url": r.Artifacts[0].Data.URL, "state": c.state, "merged": c.merged, "head": map[string]any{"sha": head}},
		})
		r = until(c.outcome, func(r api.Run) bool { return r.About.Outcome == c.outcome })
		if r.Artifacts[0].Data.Status != c.status || r.Artifacts[0].Data.Outcome != c.outcome {
			t.Errorf("%+v", r.Artifacts[0])
		}
	}
	labelIssue(t, w.url("hook"), "9", "fix", "branch-4x")
	until("the run that does nothing ends", func(r api.Run) bool { return len(all) == 4 && r.FinishedAt != nil && r.About.Outcome == "nothing" })
}
