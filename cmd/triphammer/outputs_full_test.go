//go:build full

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
	"triphammer/server/run/fakemodel"
)

// TestOutputTools: each of the published agents finds the tools, learns from a refusal, and what it
// asks for is done without a token of the forge inside the walls (SPEC 23.2). One fixes what an issue is about, from
// the label to the pull request and the comment.
func TestOutputTools(t *testing.T) {
	g := newWayForge(t)
	model := newListening(t, "")
	model.speak()
	files := map[string]string{
		"factory.yaml":       "schemaVersion: v1alpha1\nname: Outputs\nagentDefaults: {secrets: [ANTHROPIC_API_KEY, CODEX_API_KEY, GEMINI_API_KEY, LOOP_KEY, KEY]}\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + g.URL + "/api/v3\n",
	}
	agents := []string{"claude", "codex", "gemini", "opencode", "claude-acp"}
	for _, name := range agents {
		a := agentNamed(name)
		files["environments/"+name+".yaml"] = strings.ReplaceAll(a.environment, "MODEL", model.URL) + fmt.Sprintf("isolation: sandbox\nnetwork: ['%s']\ntrustRepositorySettings: true\n", model.host)
		files["automations/"+name+".md"] = fmt.Sprintf("---\nenvironmentId: %s\nharness: %s\ntriggers: [{provider: github, event: issue_labeled, filter: {labels: [%s]}}]\n"+
			"outputs: {addLabels: {allowed: [%[1]s-done]}}\n---\nMODEL: call addLabels {\"labels\":[\"admin\"]}\nMODEL: call addLabels {\"labels\":[\"%[1]s-done\"]}\nMODEL: run env\nMODEL: say All is done.\n", name, a.harness, name)
	}
	files["environments/fix.yaml"] = files["environments/claude.yaml"] + "repositories: [{url: '" + g.URL + "/acme/api.git', secret: API_TOKEN}]\n"
	files["automations/fix.md"] = `---
environmentId: fix
harness: ` + agentNamed("claude").harness + `
triggers: [{provider: github, event: issue_labeled, filter: {labels: [fix]}}]
outputs: {addLabels: {allowed: [triaged]}, createPullRequest: {titlePrefix: "[agent] ", draft: true}, comment: {}}
---
MODEL: run git checkout -q -b triphammer/fix && echo fixed >fix.txt && git add . && git commit -qm "Fix it" && git push -q origin HEAD:main; git push origin triphammer/fix
MODEL: call addLabels {"labels":["triaged"]}
MODEL: call createPullRequest {"title":"Fix it","body":"It was broken.","head":"triphammer/fix"}
MODEL: call comment {"body":"I have opened a pull request."}
MODEL: run env; cat .git/config ~/.claude.json
MODEL: say It is fixed.
`
	w := &agentsWorld{world: *newWorld(t, files)}
	w.cleanUp()
	t.Cleanup(func() {
		if w.cmd != nil {
			w.kill()
		}
		if t.Failed() {
			t.Log(w.logs)
		}
	})
	for _, name := range []string{"ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "LOOP_KEY", "KEY"} {
		w.run(fakemodel.Key, "secrets", "set", name)
	}
	w.run(g.token, "secrets", "set", "API_TOKEN")
	w.walled("--max-runs", "8", "--model-provider", "loop="+model.URL+"/v1")
	w.key = strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	address := w.url("hook")
	for i, name := range agents {
		labelIssue(t, address, fmt.Sprint(i), name, "An issue")
	}
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
			mine := *w
			mine.t = t
			var list struct{ Runs []api.Run }
			mine.await("the run", func() bool {
				mine.get("runs?automation="+name, &list)
				return len(list.Runs) == 1
			})
			r := mine.ended(list.Runs[0].RunID)
			printed := mine.run("", "runs", "logs", r.RunID, "--full")
			refused := strings.Contains(printed, `labels may not be "admin"`) || strings.Contains(printed, "one of the allowed values") // gemini reads the schema of the tool
			if r.State != "SUCCEEDED" || strings.Contains(printed, g.token) || !refused {
				t.Errorf("%s %s\n%s", r.State, r.StatusMessage, printed)
			}
			err := client.WaitFor(t.Context(), startTime, "the label is not there", func() (bool, error) {
				_, bodies := g.seen()
				return slices.Contains(bodies, `{"labels":["`+name+`-done"]}`), nil
			})
			if err != nil {
				_, bodies := g.seen()
				t.Errorf("%v\n%q\n%s", err, bodies, printed)
			}
		})
	}
	if calls, _ := g.seen(); len(calls) != len(agents) {
		t.Errorf("%q", calls)
	}

	labelIssue(t, address, "fix", "fix", "It is broken")
	var list struct{ Runs []api.Run }
	w.await("the run", func() bool {
		w.get("runs?automation=fix", &list)
		return len(list.Runs) == 1
	})
	printed := w.run("", "runs", "logs", w.ended(list.Runs[0].RunID).RunID, "--full")
	w.await("what it asked for", func() bool { return len(asked(&g.gitHubChanges)) == len(agents)+3 })
	calls, bodies := g.seen()
	calls, bodies = calls[len(agents):], bodies[len(agents):]
	if want := []string{"POST /repos/acme/api/issues/7/labels", "POST /repos/acme/api/pulls", "POST /repos/acme/api/issues/7/comments"}; !slices.Equal(calls, want) ||
		!strings.Contains(bodies[1], `"title":"[agent] Fix it"`) || !strings.Contains(bodies[1], `"head":"triphammer/fix"`) || !strings.Contains(bodies[2], "I have opened a pull request.") {
		t.Errorf("the forge was asked for %q: %q\n%s", calls, bodies, printed)
	}
	refs := gittest.Git(t, g.bare, "for-each-ref", "--format=%(refname) %(subject)")
	if strings.Contains(printed, g.token) || !strings.Contains(printed, "default branch only if") || refs != "refs/heads/main one\nrefs/heads/triphammer/fix Fix it\nrefs/heads/triphammer/theirs theirs" {
		t.Errorf("the forge has %q\n%s", refs, printed)
	}
}
