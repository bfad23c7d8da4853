package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
	"triphammer/server/githubapp/githubtest"
)

// appWorld is a server whose secret APP is the App of a GitHub with the private repository
// acme/app.
func appWorld(t *testing.T, files map[string]string) (*world, *githubtest.Server, string) {
	t.Helper()
	root := t.TempDir()
	bare := filepath.Join(root, "acme", "app.git")
	gittest.Git(t, root, "init", "-q", "--bare", "-b", "main", bare)
	gittest.Git(t, bare, "config", "http.receivepack", "true")
	work := t.TempDir()
	gittest.Git(t, work, "init", "-q", "-b", "main")
	gittest.Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	gittest.Git(t, work, "push", "-q", bare, "main")
	hub := githubtest.Start(t, root)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "HUB", hub.URL)
	}
	hub.Installed["acme/app"] = 5
	hub.Permissions = map[string]string{"contents": "write", "metadata": "read", "pull_requests": "write"}
	w := newWorld(t, files)
	w.setApp(hub)
	return w, hub, bare
}

// setApp sets the secret APP.
func (w *world) setApp(hub *githubtest.Server) string {
	w.t.Helper()
	key := filepath.Join(w.dir, "app.private-key.pem")
	if err := os.WriteFile(key, []byte(hub.PEM), 0o600); err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = os.Remove(key) }()
	return w.run("", "secrets", "set", "APP", "--github-app", fmt.Sprint(hub.ID), "--key-file", key, "--api-url", hub.API())
}

// TestGitHubApp: a run clones and pushes with the token of a GitHub App, which the run does not
// have, and nobody prints the key (SPEC 24.2).
func TestGitHubApp(t *testing.T) {
	script := "git log --format=%s; git checkout -q -b repair; git commit -q --allow-empty -m two; git push -q origin repair && echo pushed; env; cat .git/config $GIT_CONFIG_SYSTEM; cat /proc/self/environ"
	w, hub, bare := appWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: APP\napiURL: HUB/api/v3\n",
		"environments/env.yaml":   "repositories: [{url: HUB/acme/app.git, secret: APP}]\ncommand: [sh, -c, '" + script + "']\n",
		"environments/other.yaml": "repositories: [{url: HUB/acme/other.git, secret: APP}]\ncommand: [env]\n",
		"environments/leak.yaml":  "secrets: [APP]\ncommand: [env]\n",
		"automations/a.md":        automationFile("hook", ""),
		"automations/leak.md":     "---\nenvironmentId: leak\nsecrets: [APP]\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@yearly'}}]\n---\nLeak it.\n",
	})
	w.start()
	run := func(environment, want string) (r api.Run, logs string) {
		t.Helper()
		id := strings.TrimSpace(w.run("", "runs", "create", "--environment", environment, "--prompt", "Go.", "-o", "name"))
		err := client.WaitFor(t.Context(), 30*time.Second, "the run does not end", func() (bool, error) {
			return json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r) == nil && r.FinishedAt != nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		logs = w.run("", "runs", "logs", id, "--full")
		if r.State != want || strings.Contains(logs, "ghs_") || strings.Contains(logs, "githubApp") {
			t.Fatalf("%s: %s\n%s", r.State, r.StatusMessage, logs)
		}
		return r, logs
	}
	tried := func(args ...string) string {
		out, _ := w.command(args...).CombinedOutput() // most end with an error
		return string(out)
	}
	_, logs := run("other", "FAILED")
	if !strings.Contains(logs, "is not installed on acme/other: install it at "+hub.URL+"/apps/acme-hammer/installations/new") {
		t.Errorf("it does not say where to install the App:\n%s", logs)
	}
	_, logs = run("env", "SUCCEEDED")
	if !strings.Contains(logs, "pushed") {
		t.Errorf("it did not push:\n%s", logs)
	}
	gittest.Git(t, bare, "rev-parse", "--verify", "repair")
	granted := hub.Grants()
	if len(granted) != 1 || granted[0].Repository != "acme/app" || fmt.Sprint(granted[0].Permissions) != "map[contents:write pull_requests:write]" {
		t.Errorf("minted %+v", granted)
	}
	for _, g := range granted { // in nothing that the server keeps or says
		if out, err := exec.Command("grep", "-rl", g.Token, w.dir).CombinedOutput(); len(out) > 0 || err == nil {
			t.Errorf("the token is in %s", out)
		}
	}
	if out, _ := exec.Command("grep", "-rl", strings.Split(hub.PEM, "\n")[3], w.dir).CombinedOutput(); len(out) > 0 {
		t.Errorf("the key is in %s", out)
	}

	if listed := w.run("", "secrets", "list"); !strings.Contains(listed, "GitHub App 4711") {
		t.Errorf("secrets list: %s", listed)
	}
	if warned := w.run("", "automations", "list"); !strings.Contains(warned, "the secret APP is a GitHub App, whose key no run gets") {
		t.Errorf("nobody warns of the grant:\n%s", warned)
	}
	if said := tried("runs", "create", "--environment", "leak", "--prompt", "Go."); !strings.Contains(said, "whose key no run gets") {
		t.Errorf("a run with the key is made: %s", said)
	}
	doctor := tried("doctor")
	for _, want := range []string{"APP is acme-hammer, whose key works", "lacks issues: write (answers in issues and pull requests), checks: write"} {
		if !strings.Contains(doctor, want) {
			t.Errorf("doctor does not say %q:\n%s", want, doctor)
		}
	}
	hub.Change(func() {
		hub.Fault = func(rw http.ResponseWriter, _ *http.Request) bool {
			http.Error(rw, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
			return true
		}
	})
	if doctor = tried("doctor"); !strings.Contains(doctor, "it does not take the App's id and key") {
		t.Errorf("doctor does not see that the key is refused:\n%s", doctor)
	}
}
