//go:build full

package main

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/run/fakemodel"
)

// TestAskTool: Claude Code finds the tool and asks; the question is posted once, and the reply reaches the
// model in the same conversation (SPEC 26.3).
func TestAskTool(t *testing.T) {
	g := &gitHubChanges{}
	forge := httptest.NewServer(g)
	defer forge.Close()
	model := newListening(t, "")
	model.speak()
	a := agentNamed("claude")
	w := &agentsWorld{world: *newWorld(t, map[string]string{
		"factory.yaml":       "schemaVersion: v1alpha1\nname: Asking\nagentDefaults: {secrets: [KEY]}\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "\n",
		"environments/e.yaml": strings.ReplaceAll(a.environment, "MODEL", model.URL) +
			fmt.Sprintf("isolation: sandbox\nnetwork: ['%s']\ntrustRepositorySettings: true\n", model.host),
		"automations/fix.md": "---\nenvironmentId: e\nharness: " + a.harness + "\ntriggers: [{provider: github, event: issue_labeled}]\nstartedBy: [ada]\noutputs: {ask: {}}\n---\n" +
			"MODEL: call ask {\"question\":\"Which database?\"}\nMODEL: say I wait.\n",
	})}
	w.cleanUp()
	t.Cleanup(func() {
		if w.cmd != nil {
			w.kill()
		}
		if t.Failed() {
			t.Log(w.logs)
		}
	})
	w.run(fakemodel.Key, "secrets", "set", "KEY")
	w.run("ghp_"+strings.Repeat("output", 6), "secrets", "set", "API_TOKEN")
	w.walled()
	w.key = strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	address := w.url("hook")
	labelIssue(t, address, "1", "fix", "An issue")
	var list struct{ Runs []api.Run }
	w.await("the run", func() bool { w.get("runs", &list); return len(list.Runs) == 1 })
	first := w.ended(list.Runs[0].RunID)
	w.await("the question", func() bool { return len(asked(g)) > 0 })
	calls, bodies := g.seen()
	if first.State != "SUCCEEDED" || first.Question == nil || first.Question.Text != "Which database?" || len(calls) != 1 || !strings.Contains(bodies[0], "Which database?") {
		t.Fatalf("%s %s %+v\n%q %q", first.State, first.StatusMessage, first.Question, calls, bodies)
	}
	fromPerson(t, address, "2", "ada", "User", map[string]any{
		"action": "created", "issue": map[string]any{"id": 1, "number": 7}, "comment": map[string]any{"id": 2, "body": "PostgreSQL, please.", "user": map[string]any{"login": "ada", "type": "User"}},
	})
	w.await("the reply", func() bool { w.get("runs", &list); return len(list.Runs) == 2 })
	second := w.ended(list.Runs[0].RunID)
	if second.State != "SUCCEEDED" || second.ConversationID != first.RunID {
		t.Errorf("%s %s: %s", second.State, second.StatusMessage, second.ConversationID)
	}
	model.mu.Lock()
	defer model.mu.Unlock()
	if !slices.ContainsFunc(model.asked, func(request string) bool {
		return strings.Contains(request, "PostgreSQL, please.") && strings.Contains(request, `"tool_use"`) && strings.Contains(request, "I wait.")
	}) {
		t.Error("the model was not asked with the conversation and the reply")
	}
}
