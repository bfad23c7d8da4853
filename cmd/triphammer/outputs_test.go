package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/api"
)

// gitHubChanges plays the part of GitHub's API that changes issues.
type gitHubChanges struct {
	mu     sync.Mutex
	calls  []string
	bodies []string
}

func (g *gitHubChanges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Method != http.MethodGet {
		g.calls, g.bodies = append(g.calls, r.Method+" "+r.URL.Path), append(g.bodies, string(body))
	}
	w.WriteHeader(http.StatusCreated)
	switch {
	case strings.HasSuffix(r.URL.Path, "/labels"):
		_, _ = io.WriteString(w, `[]`)
	case r.URL.Path == "/repos/acme/api":
		_, _ = io.WriteString(w, `{"default_branch":"main"}`)
	default:
		_, _ = fmt.Fprintf(w, `{"id":%d,"number":%[1]d,"html_url":"https://github.example.com/made/%[1]d"}`, len(g.calls))
	}
}

func (g *gitHubChanges) seen() (calls, bodies []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls), slices.Clone(g.bodies)
}

func asked(g *gitHubChanges) []string { calls, _ := g.seen(); return calls }

// asking is an environment whose agent is a script that asks for things with files, as the guide does first.
func asking(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/outputs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(guide), "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/outputs.md shows no script")
	}
	script, _ := json.Marshal(block + `
ask() { printf "%s" "$2" > "$TRIPHAMMER_OUTPUTS/$1.tmp"; mv "$TRIPHAMMER_OUTPUTS/$1.tmp" "$TRIPHAMMER_OUTPUTS/$1.json";
  n=0; until [ -e "$TRIPHAMMER_OUTPUTS/$1.result.json" ]; do n=$((n+1)); [ $n -lt 600 ] || exit 9; sleep 0.05; done; cat "$TRIPHAMMER_OUTPUTS/$1.result.json"; }
ask a '{"kind":"addLabels","labels":["triaged"]}'
ask b '{"kind":"addLabels","labels":["other"]}'
ask c '{"kind":"close"}'
ask d '{"kind":"comment","body":"Hello @everyone, this closes #1"}'
ask e '{"kind":"comment","body":"once more"}'
ask f 'not JSON'
ask g '{"kind":"createPullRequest","title":"Fix @you","body":"Text","head":"triphammer/fix"}'
exit $(grep -c FAIL "$TRIPHAMMER_ATTACHMENTS/event-payload.json")
`) // texts always encode
	return "command: [sh, -c, " + string(script) + "]\n"
}

// labelIssue sends what GitHub sends when an issue gets a label.
func labelIssue(t *testing.T, address, id, label, title string) {
	t.Helper()
	fromGitHub(t, address, id, "issues", map[string]any{
		"action": "labeled", "label": map[string]any{"name": label},
		"issue": map[string]any{
			"id": 1, "number": 7, "title": title, "html_url": "https://github.example.com/acme/api/issues/7", "user": map[string]any{"login": "ada"},
			"labels": []map[string]any{{"name": label}},
		},
	})
}

func fromGitHub(t *testing.T, address, id, event string, payload map[string]any) {
	t.Helper()
	payload["sender"] = map[string]any{"login": "ada", "type": "User"}
	signedByGitHub(t, address, id, event, payload)
}

// fromPerson sends what GitHub sends of a comment.
func fromPerson(t *testing.T, address, id, login, kind string, payload map[string]any) {
	t.Helper()
	payload["sender"] = map[string]any{"login": login, "type": kind}
	signedByGitHub(t, address, id, "issue_comment", payload)
}

func signedByGitHub(t *testing.T, address, id, event string, payload map[string]any) {
	t.Helper()
	payload["repository"] = map[string]any{"id": 1, "full_name": "acme/api"}
	body, _ := json.Marshal(payload) // always encodes
	header := http.Header{"X-Github-Event": {event}, "X-Github-Delivery": {id}}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: body}); err != nil {
		t.Fatal(err)
	}
	if a := post(t, http.MethodPost, address, bytes.NewReader(body), header); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
}

// TestOutputs: what an agent asks for within its bounds is done after its run has succeeded; what is
// out of bounds is refused at once; of a run that failed, nothing is done (SPEC 23).
func TestOutputs(t *testing.T) {
	g := &gitHubChanges{}
	forge := httptest.NewServer(g)
	defer forge.Close()
	token := "ghp_" + strings.Repeat("output", 6)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": asking(t),
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "\n",
		"automations/fix.md": "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_labeled}, {provider: github, event: issue_mentioned}]\noutputs:\n  comment: {}\n  addLabels: {allowed: [triaged, bug]}\n" +
			"  createPullRequest: {draft: true, titlePrefix: '[bot] '}\n---\nDo it.\n",
	})
	w.run(token, "secrets", "set", "API_TOKEN")
	w.start()
	address := w.url("hook")
	labelIssue(t, address, "1", "fix", "FAIL")
	labelIssue(t, address, "2", "fix", "fine")
	var all []api.Run
	deadline, ticker := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
	defer ticker.Stop()
	for ended := 0; ended < 2 || len(asked(g)) < 4; {
		select {
		case <-deadline:
			t.Fatalf("%+v\n%q", all, asked(g))
		case <-ticker.C:
		}
		w.list(&all, "runs", "list")
		ended = len(slices.DeleteFunc(slices.Clone(all), func(r api.Run) bool { return r.FinishedAt == nil }))
	}
	calls, bodies := g.seen()
	want := []string{"POST /repos/acme/api/issues/7/labels", "POST /repos/acme/api/issues/7/labels", "POST /repos/acme/api/issues/7/comments", "POST /repos/acme/api/pulls"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q\n%q", calls, want, bodies)
	}
	for _, text := range bodies {
		if strings.Contains(text, token) {
			t.Errorf("the token is in %s", text)
		}
	}
	if len(bodies) > 3 && (!strings.Contains(bodies[2], "`@everyone`") || !strings.Contains(bodies[2], "`#1`") || !strings.Contains(bodies[3], `"title":"[bot] Fix @`+"\u2060"+`you"`) || !strings.Contains(bodies[3], `"draft":true`)) {
		t.Errorf("%q", bodies)
	}
	var comment struct{ Body string }
	if err := json.Unmarshal([]byte(bodies[2]), &comment); err != nil {
		t.Fatal(err)
	}
	fromGitHub(t, address, "echo", "issue_comment", map[string]any{
		"action": "created", "issue": map[string]any{"id": 1, "number": 7}, "comment": map[string]any{"id": 9, "body": "@hammer " + comment.Body, "user": map[string]any{"login": "ada", "type": "User"}},
	})
	var sent []api.Delivery
	w.list(&sent, "deliveries", "list")
	if shown := w.run("", "deliveries", "show", sent[0].ID); !strings.Contains(shown, "it is about an answer of run_") {
		t.Errorf("what an output says starts something:\n%s", shown)
	}
	if story := w.run("", "subjects", "show", "github:acme/api#7"); !strings.Contains(story, "output") || !strings.Contains(story, "comment: Hello @everyone, this closes #1 https://github.example.com/made/") {
		t.Errorf("the story: %s", story)
	}
	for _, r := range all {
		shown := w.run("", "runs", "show", r.RunID)
		transcript := w.run("", "runs", "logs", r.RunID)
		for _, text := range []string{`{"ok":true}`, `addLabels: labels may not be \"other\"`, "the automation allows no \\\"close\\\"", "comment: the automation allows 1 in a run, and 1 came before; write the corrected request to a new file"} {
			if !strings.Contains(transcript, text) {
				t.Errorf("%q is not in the transcript of %s\n%s", text, r.RunID, transcript)
			}
		}
		if done := strings.Contains(shown, "addLabels"); done != (r.State == "SUCCEEDED") {
			t.Errorf("%s: %s", r.State, shown)
		}
	}
}
