package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/examples"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// TestExamples: each example of init is valid, its tests pass, and dev serves it, sends it
// a sample as its sender would, sees the demonstration agent succeed, and shows what the sender would
// be told (SPEC 11.1).
func TestExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	all := examples.All()
	if len(all) < 8 {
		t.Fatalf("%d examples", len(all))
	}
	for _, e := range all {
		t.Run(e.Name, func(t *testing.T) {
			if e.Description == "" {
				t.Error("factory.yaml has no description")
			}
			if !strings.Contains(string(page), "../examples/"+e.Name+"/README.md") {
				t.Error("docs/examples.md does not link to it")
			}
			home := t.TempDir()
			run := func(dir string, args ...string) string {
				t.Helper()
				cmd := exec.Command(binary, args...)
				cmd.Dir, cmd.Env = dir, append(environment(home), "TRIPHAMMER_DATA=")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("triphammer %v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			if out := run(home, "init", "--example", e.Name); !strings.Contains(out, "cd "+e.Name+"\n") || !strings.Contains(out, "triphammer dev") {
				t.Errorf("init does not say what is next:\n%s", out)
			}
			dir := filepath.Join(home, e.Name)
			if out := run(dir, "validate"); !strings.Contains(out, "0 errors, 0 warnings") {
				t.Error(out)
			}
			if out := run(dir, "test"); !regexp.MustCompile(`(?m)^([2-9]|\d\d) of `).MatchString(out) {
				t.Errorf("test:\n%s", out)
			}
			out := run(dir, "dev", "--once")
			_, told, succeeded := strings.Cut(out, "\nSUCCEEDED\n")
			if !succeeded {
				t.Errorf("dev:\n%s", out)
			}
			definitions := textsOf(t, dir, "factory.yaml", "webhooks/*.yaml")
			answers := strings.Contains(definitions, "apiSecretName")
			if shown := regexp.MustCompile(`(?m)^  (thread https|check )\S+: nothing is told, because there is no managed secret [A-Z_]+; set it \(triphammer secrets set [A-Z_]+\)\n  │ .*succeeded`).MatchString(told); shown != answers {
				t.Errorf("answers: %v; dev:\n%s", answers, told)
			}
			if takes := regexp.MustCompile(`signatureScheme: (github|gitlab|linear|jira|slack|teams|azure_devops)\b`).MatchString(definitions); takes != answers {
				t.Errorf("its sender takes answers: %v, and it answers: %v", takes, answers)
			}
			readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(definitions, "signatureScheme: github") && !strings.Contains(string(readme), "`application/json`") {
				t.Error("README.md does not say which content type to choose: GitHub's default is refused")
			}
			if _, err := os.Stat(filepath.Join(dir, "environments/demo.yaml")); (err == nil) != strings.Contains(string(readme), "a demonstration agent runs") {
				t.Errorf("README.md is wrong about the demonstration agent: %v", err)
			}
			for _, m := range regexp.MustCompile("`(tests/payloads/[a-z]+\\.json)`").FindAllSubmatch(readme, -1) {
				if _, err := os.Stat(filepath.Join(dir, string(m[1]))); err != nil {
					t.Errorf("README.md: %v", err)
				}
			}
			if says := strings.Contains(string(readme), "Below its run is the c"); says != answers {
				t.Errorf("README.md says that dev shows an answer: %v", says)
			}
			// What the definitions ask for stands in the README.
			for _, m := range regexp.MustCompile(`(?:[sS]ecretName|secret): ([A-Z_]+)`).FindAllStringSubmatch(definitions+textsOf(t, dir, "environments/*.yaml"), -1) {
				if !strings.Contains(string(readme), "`"+m[1]+"`") {
					t.Errorf("README.md does not tell of the secret %s", m[1])
				}
			}
			if out := run(dir, "validate", "--rev", "HEAD"); !strings.Contains(out, "valid: ") {
				t.Errorf("its commit:\n%s", out)
			}
		})
	}
}

// textsOf are the texts of files that match patterns.
func textsOf(t *testing.T, dir string, patterns ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range patterns {
		files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is good
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// TestPublicRepository: in the example for a public repository, nothing that a stranger does starts a run,
// what an agent asks beyond its bounds is refused, and the answer says nothing of the agent (SPEC 23.1,
// 24.1).
func TestPublicRepository(t *testing.T) {
	g := &gitHubChanges{}
	forge := httptest.NewServer(g)
	defer forge.Close()
	script, _ := json.Marshal(`
ask() { printf "%s" "$2" > "$TRIPHAMMER_OUTPUTS/$1.tmp"; mv "$TRIPHAMMER_OUTPUTS/$1.tmp" "$TRIPHAMMER_OUTPUTS/$1.json";
  n=0; until [ -e "$TRIPHAMMER_OUTPUTS/$1.result.json" ]; do n=$((n+1)); [ $n -lt 600 ] || exit 9; sleep 0.05; done; cat "$TRIPHAMMER_OUTPUTS/$1.result.json"; }
ask a '{"kind":"comment","body":"@everyone: closes #1"}'
ask b '{"kind":"comment","body":"once more"}'
ask c '{"kind":"addLabels","labels":["security"]}'
ask d '{"kind":"close"}'
ask e '{"kind":"createIssue","title":"Buy","body":"now"}'
ask f '{"kind":"assign","assignees":["mallory"]}'
env`) // texts always encode
	files := make(map[string]string)
	folder, err := fs.Sub(examples.Files, "public-repository")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files["environments/demo.yaml"] = "repositories: []\ncommand: [sh, -c, " + string(script) + "]\n"
	files["webhooks/github.yaml"] += "\napiURL: " + forge.URL + "\n"
	w := newWorld(t, files)
	token := "ghp_" + strings.Repeat("public", 6)
	w.run(token, "secrets", "set", "GITHUB_API_TOKEN")
	w.run(testSecret, "secrets", "set", "GITHUB_WEBHOOK_SECRET")
	w.start()
	address, sent := w.url("github"), 0
	send := func(event, person string, payload map[string]any) api.DeliveryDetail {
		t.Helper()
		sent++
		payload["repository"] = map[string]any{"id": 412345678, "full_name": "acme/payments", "default_branch": "main"}
		payload["sender"] = map[string]any{"login": person, "id": len(person), "type": "User"}
		body, _ := json.Marshal(payload) // always encodes
		header := http.Header{"X-Github-Event": {event}, "X-Github-Delivery": {fmt.Sprint(sent)}}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: body}); err != nil {
			t.Fatal(err)
		}
		a := post(t, http.MethodPost, address, bytes.NewReader(body), header)
		var accepted struct {
			ID string `json:"delivery_id"`
		}
		if err := json.Unmarshal([]byte(a.body), &accepted); a.status != http.StatusAccepted || err != nil {
			t.Fatalf("%+v", a)
		}
		var d api.DeliveryDetail
		w.list(&d, "deliveries", "show", accepted.ID)
		return d
	}
	author := map[string]any{"login": "mallory", "id": 7, "type": "User"}
	issue := func(label string) map[string]any {
		return map[string]any{"id": 1, "number": 402, "title": "Push to main", "html_url": "https://github.com/acme/payments/issues/402", "user": author, "labels": []any{map[string]any{"name": label}}}
	}
	labelled := func(label string) map[string]any {
		return map[string]any{"action": "labeled", "label": map[string]any{"name": label}, "issue": issue(label)}
	}
	pull := map[string]any{"id": 2, "number": 419, "user": author, "labels": []any{map[string]any{"name": "review"}}, "head": map[string]any{"ref": "x", "sha": strings.Repeat("a", 40)}, "base": map[string]any{"ref": "main"}}
	comment := map[string]any{"id": 5, "body": "@ada @hammer push to main", "user": author}
	for name, d := range map[string]api.DeliveryDetail{
		"a comment":        send("issue_comment", "mallory", map[string]any{"action": "created", "issue": issue("agent"), "comment": comment}),
		"an issue":         send("issues", "mallory", map[string]any{"action": "opened", "issue": issue("agent")}),
		"a label":          send("issues", "mallory", labelled("agent")),
		"another label":    send("issues", "mallory", labelled("look")),
		"a login's look":   send("issues", "ada[bot]", labelled("agent")),
		"a pull request":   send("pull_request", "mallory", map[string]any{"action": "opened", "pull_request": pull}),
		"a labelled one":   send("pull_request", "mallory", map[string]any{"action": "labeled", "label": map[string]any{"name": "review"}, "pull_request": pull}),
		"a review comment": send("pull_request_review_comment", "mallory", map[string]any{"action": "created", "pull_request": pull, "comment": comment}),
	} {
		if len(d.Runs) > 0 || d.Waiting {
			t.Errorf("%s of a stranger starts something: %+v", name, d)
		}
	}
	if calls := asked(g); len(calls) > 0 {
		t.Errorf("a stranger makes the server say something: %q", calls)
	}

	d := send("issues", "ada", labelled("agent"))
	if len(d.Runs) != 1 {
		t.Fatalf("%+v", d)
	}
	var r api.Run
	err = client.WaitFor(t.Context(), time.Minute, "the run is not answered", func() (bool, error) {
		r = api.Run{}
		w.list(&r, "runs", "show", d.Runs[0])
		return r.Detail != nil && len(r.Detail.Answers) == 1 && r.Detail.Answers[0].Status == "delivered" && len(r.Outputs) == 1 && r.Outputs[0].Status == "done", nil
	})
	calls, bodies := g.seen()
	if err != nil {
		t.Fatalf("%v: %+v\n%q\n%s", err, r, bodies, w.run("", "runs", "logs", d.Runs[0]))
	}
	transcript := w.run("", "runs", "logs", d.Runs[0])
	for _, want := range []string{"comment: the automation allows 1 in a run", `the automation allows no \"addLabels\"`, `the automation allows no \"close\"`, `the automation allows no \"createIssue\"`, `the automation allows no \"assign\"`} {
		if !strings.Contains(transcript, want) {
			t.Errorf("%q is not in the transcript:\n%s", want, transcript)
		}
	}
	if strings.Contains(transcript, token) || strings.Contains(strings.Join(bodies, ""), token) {
		t.Error("the token is where an agent works, or in a text")
	}
	for i, call := range calls {
		switch {
		case strings.HasSuffix(call, "/reactions"):
		case !strings.Contains(call, "/repos/acme/payments/issues/"):
			t.Errorf("%s %s", call, bodies[i])
		case strings.Contains(bodies[i], "everyone") && (!strings.Contains(bodies[i], "`@everyone") || !strings.Contains(bodies[i], "`#1`")):
			t.Errorf("it mentions or closes: %s", bodies[i])
		}
	}
	if text := r.Detail.Answers[0].Text; !strings.Contains(text, "succeeded") || strings.Contains(text, "everyone") {
		t.Errorf("the answer: %s", text)
	}
}
