package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/run/harness"
)

const agentsGuide = "../../docs/agents.md"

// block is the text of a block with a file name in the guide for agents.
func block(t *testing.T, name string) string {
	t.Helper()
	guide := pages(t)[agentsGuide]
	_, rest, found := strings.Cut(guide, "```yaml "+name+"\n")
	text, _, ended := strings.Cut(rest, "\n```\n")
	if !found || !ended {
		t.Fatalf("the guide has no %s", name)
	}
	return text + "\n"
}

// TestAgentsGuide: the guide names the versions that the tests run, each harness, and
// definitions that TestDocsFactory validates.
func TestAgentsGuide(t *testing.T) {
	guide := pages(t)[agentsGuide]
	text, err := os.ReadFile("../../testdata/npm/agents/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Version string
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(@?[a-z][a-z/-]*)@([0-9][0-9a-z.-]*[0-9a-z])`).FindAllStringSubmatch(guide, -1) {
		locked := m[1]
		if locked == "opencode-ai" { // which installs this one on most machines
			locked = "opencode-linux-x64-baseline"
		}
		named[locked] = true
		if want := lock.Packages["node_modules/"+locked].Version; m[2] != want {
			t.Errorf("the guide has %s, and the tests run %q", m[0], want)
		}
	}
	var direct struct{ Dependencies map[string]string }
	text, err = os.ReadFile("../../testdata/npm/agents/package.json")
	if err == nil {
		err = json.Unmarshal(text, &direct)
	}
	if err != nil || len(direct.Dependencies) == 0 {
		t.Fatal(direct, err)
	}
	for name := range direct.Dependencies {
		if !named[name] {
			t.Errorf("the guide does not say which version of %s to install", name)
		}
	}
	for _, name := range harness.Names() {
		if !strings.Contains(guide, "type: "+name) {
			t.Errorf("the guide has no example of the harness %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^`{3,}(?:yaml|markdown)$").FindAllString(guide, -1) {
		t.Errorf("a block without a file name is validated by nobody: %s", m)
	}
	if _, found := factory.ReadMCPServers("mcp-servers.yaml", []byte(block(t, "mcp-servers.yaml"))); len(found) > 0 {
		t.Errorf("the file of MCP servers: %+v", found)
	}
}

// TestPrivateRepository: with the environment of the guide, a run clones a private
// repository and pushes to it, and its transcript does not show the token.
func TestPrivateRepository(t *testing.T) {
	const token = "c4nary-of-the-forge-token"
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	bare := filepath.Join(w.dir, "forge", "example", "private.git")
	w.git("clone", "-q", "--bare", ".", bare)
	w.git("-C", bare, "config", "http.receivepack", "true")
	git := gittest.Serve(t, filepath.Join(w.dir, "forge"))
	git.Basic("x-access-token", token)

	environment := strings.ReplaceAll(block(t, "environments/pull-requests.yaml"), "https://github.com", git.URL)
	environment = strings.Replace(environment, "env:\n", "env:\n  GIT_SSL_CAINFO: "+git.CAFile+"\n", 1) +
		"command: [sh, -c, 'git checkout -q -b repair && git commit -q --allow-empty -m Repair && git push -q origin repair && env && " +
		"echo https://github.com/example/private/pull/7 >> $TRIPHAMMER_ARTIFACTS/links']\n"
	w.write(map[string]string{"environments/env.yaml": environment})
	w.push()
	w.run(token, "secrets", "set", "GH_TOKEN")
	w.start()
	id := strings.TrimSpace(w.run("", "runs", "create", "--environment", "env", "--prompt", "Repair it.", "-o", "name"))
	var r api.Run
	err := waitFor(t.Context(), 30*time.Second, "the run does not end", func() (bool, error) {
		return json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r) == nil && r.FinishedAt != nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	logs := w.run("", "runs", "logs", id, "--full")
	if r.State != "SUCCEEDED" || strings.Contains(logs, token) || !strings.Contains(logs, "GH_TOKEN=[redacted]") {
		t.Fatalf("%s: %s\n%s", r.State, r.StatusMessage, logs)
	}
	if said := gittest.Git(t, bare, "log", "-1", "--format=%an %s %ce", "repair"); !strings.HasPrefix(said, "Triphammer Repair run_") {
		t.Errorf("what was pushed: %s", said)
	}
	if links := w.run("", "runs", "artifacts", id); !strings.Contains(links, "/pull/7") {
		t.Errorf("the pull request is not listed:\n%s", links)
	}
	resp, err := git.Client().Get(git.URL + "/example/private.git/info/refs?service=git-upload-pack")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the repository is not private: %s", resp.Status)
	}
}
