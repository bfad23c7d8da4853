package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// gitHubThread plays the part of GitHub's API that takes comments and reactions.
type gitHubThread struct {
	mu       sync.Mutex
	comments []string
	calls    []string
	refuse   bool
}

func (g *gitHubThread) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Body, Content string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, r.Method+" "+r.URL.Path)
	const comments = "/repos/acme/api/issues/comments/"
	switch {
	case g.refuse:
		http.Error(w, `{"message":"Resource not accessible by personal access token"}`, http.StatusForbidden)
		return
	case strings.HasSuffix(r.URL.Path, "/reactions"):
	case r.Method == http.MethodPost && r.URL.Path == "/repos/acme/api/issues/7/comments":
		g.comments = append(g.comments, body.Body)
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, comments):
		var n int
		_, _ = fmt.Sscan(strings.TrimPrefix(r.URL.Path, comments), &n)
		g.comments[n-1] = body.Body
	default:
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%d,"html_url":"https://github.example.com/acme/api/issues/7#issuecomment-%[1]d"}`, len(g.comments))
}

func (g *gitHubThread) seen() (comments, calls []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.comments...), append([]string(nil), g.calls...)
}

// TestAnswers: a comment on an issue starts a run, gets a sign at once, and is answered in one comment; the
// answer itself starts nothing, and one that GitHub refuses needs a person (SPEC 22).
func TestAnswers(t *testing.T) {
	g := &gitHubThread{}
	forge := httptest.NewServer(g)
	defer forge.Close()
	token := "ghp_" + strings.Repeat("answer", 6)
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API_TOKEN\napiURL: " + forge.URL + "\nreport: thread\n",
		"automations/fix.md": "---\nenvironmentId: env\ntriggers: [{provider: github, event: issue_mentioned}]\n---\nDo it.\n",
	})
	w.run(token, "secrets", "set", "API_TOKEN")
	w.start()
	address, sent := w.url("hook"), 0
	send := func(text string) (delivery string) {
		t.Helper()
		sent++
		body, _ := json.Marshal(map[string]any{
			"action": "created", "repository": map[string]any{"id": 1, "full_name": "acme/api"}, "sender": map[string]any{"login": "ada", "type": "User"},
			"issue":   map[string]any{"id": 1, "number": 7, "html_url": "https://github.example.com/acme/api/issues/7", "user": map[string]any{"login": "ada"}},
			"comment": map[string]any{"id": 100 + sent, "body": text, "user": map[string]any{"login": "ada", "type": "User"}},
		})
		header := http.Header{"X-Github-Event": {"issue_comment"}, "X-Github-Delivery": {fmt.Sprint(sent)}}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: body}); err != nil {
			t.Fatal(err)
		}
		if a := post(t, http.MethodPost, address, bytes.NewReader(body), header); a.status != http.StatusAccepted {
			t.Fatalf("%+v", a)
		}
		var all []api.Delivery
		w.list(&all, "deliveries", "list")
		return all[0].ID
	}
	shows := func(id string, texts ...string) {
		t.Helper()
		deadline, ticker := time.After(30*time.Second), time.NewTicker(50*time.Millisecond)
		defer ticker.Stop()
		for {
			shown, missing := w.run("", "deliveries", "show", id), ""
			for _, text := range texts {
				if !strings.Contains(shown, text) {
					missing = text
				}
			}
			if missing == "" {
				return
			}
			select {
			case <-deadline:
				_, calls := g.seen()
				t.Fatalf("%q is not in\n%s\n%q", missing, shown, calls)
			case <-ticker.C:
			}
		}
	}
	shows(send("@hammer please fix it"), "answered", "told https://github.example.com/acme/api/issues/7#issuecomment-1")
	comments, calls := g.seen()
	if len(comments) == 0 || len(comments) > 2 || !strings.Contains(comments[0], "succeeded") || strings.Contains(strings.Join(comments, ""), token) {
		t.Fatalf("%q", comments)
	}
	if !strings.HasSuffix(calls[0], "/issues/comments/101/reactions") {
		t.Errorf("the first call is no sign: %q", calls)
	}
	shows(send("@hammer "+comments[0]), "it is about an answer of run_")
	shows(send("@hammer, a quotation: "+strings.ReplaceAll(comments[0], "triphammer:run_", "hammer:run_")), "told https://github.example.com/")

	g.mu.Lock()
	g.refuse = true
	g.mu.Unlock()
	shows(send("@hammer, once more"), "could not be told, and needs a person", "answered 403")
	if status := w.run("", "status", "-o", "json"); !strings.Contains(status, `"unanswered"`) || !strings.Contains(status, "answered 403") {
		t.Errorf("status: %s", status)
	}
	figures := post(t, http.MethodGet, "http://"+w.addr+"/metrics", nil, nil).body
	for _, outcome := range []string{"delivered", "failed"} {
		if !strings.Contains(figures, `triphammer_sender_writes_total{outcome="`+outcome+`",provider="github",what="end"} `) {
			t.Errorf("the metrics count no end as %s", outcome)
		}
	}
	story := w.run("", "subjects", "show", "github:acme/api#7")
	for _, want := range []string{": it could not be told, and needs a person: ", " delivery ", " run ", "thread: told https://github.example.com/acme/api/issues/7#issuecomment-1", "failed"} {
		if !strings.Contains(story, want) {
			t.Errorf("%q is not in the story:\n%s", want, story)
		}
	}
	if strings.Index(story, "issuecomment-1") > strings.LastIndex(story, "answered 403") {
		t.Errorf("the story is not in the order of time:\n%s", story)
	}

	var all []api.Run
	w.list(&all, "runs", "list")
	id := all[0].RunID
	if out, err := w.command("runs", "answer", all[len(all)-1].RunID).CombinedOutput(); err == nil || !strings.Contains(string(out), "was given up") {
		t.Errorf("of a run that is answered: %s", out)
	}
	g.mu.Lock()
	g.refuse = false
	before := len(g.comments)
	g.mu.Unlock()
	w.run("", "runs", "answer", id)
	if err := client.WaitFor(t.Context(), 30*time.Second, "the answer is not told again", func() (bool, error) {
		return strings.Contains(w.run("", "runs", "show", id), "told https://github.example.com/"), nil
	}); err != nil {
		t.Error(err)
	}
	if comments, _ := g.seen(); len(comments) <= before || !strings.Contains(comments[before], id) {
		t.Errorf("%q", comments)
	}
	if log := w.run("", "audit", "list"); !strings.Contains(log, "run.answer") {
		t.Errorf("audit: %s", log)
	}

	// send --wait shows what was told, where.
	g.mu.Lock()
	g.refuse = false
	g.mu.Unlock()
	body, secret := filepath.Join(t.TempDir(), "body"), filepath.Join(t.TempDir(), "secret")
	for file, text := range map[string]string{body: `{"action":"created","repository":{"id":1,"full_name":"acme/api"},"sender":{"login":"ada","type":"User"},
		"issue":{"id":1,"number":7,"html_url":"https://github.example.com/acme/api/issues/7","user":{"login":"ada"}},
		"comment":{"id":99,"body":"@hammer wait","user":{"login":"ada","type":"User"}}}`, secret: testSecret} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sendAndWait := func(args ...string) string {
		return w.run("", append([]string{"send", "hook", "--secret-file", secret, "--payload-file", body, "-H", "X-GitHub-Event: issue_comment", "--wait"}, args...)...)
	}
	shown := sendAndWait()
	for _, want := range []string{"202 {", " of fix: SUCCEEDED", "  thread https://github.example.com/acme/api/issues/7: told https://github.example.com/acme/api/issues/7#issuecomment-", "  │ **fix** succeeded."} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
	var answered []struct {
		Status int
		Runs   []api.Run
	}
	if err := json.Unmarshal([]byte(sendAndWait("-o", "json", "-H", "X-GitHub-Delivery: again")), &answered); err != nil {
		t.Fatal(err)
	}
	if len(answered) != 1 || answered[0].Status != http.StatusAccepted || len(answered[0].Runs) != 1 || answered[0].Runs[0].Detail.Answers[0].Status != "delivered" || !strings.Contains(answered[0].Runs[0].Detail.Answers[0].Text, "succeeded") {
		t.Errorf("%+v", answered)
	}
}
