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
	"triphammer/cmd/triphammer/client"
	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/worker/harness"
)

const agentsGuide = "../../docs/agents.md"

// block is the text of a block in a guide, by what is written behind its fence.
func block(t *testing.T, name string) string {
	t.Helper()
	for _, guide := range pages(t) {
		_, rest, found := strings.Cut(guide, "```"+name+"\n")
		if text, _, ended := strings.Cut(rest, "\n```\n"); found && ended {
			return text + "\n"
		}
	}
	t.Fatalf("no guide has %s", name)
	return ""
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
	if _, found := factory.ReadMCPServers("mcp-servers.yaml", []byte(block(t, "yaml mcp-servers.yaml"))); len(found) > 0 {
		t.Errorf("the file of MCP servers: %+v", found)
	}
}

// TestPrivateRepository: with the environment and the commands of the guide, a run clones a
// private repository and pushes to it, but not where it may not, nor to the repository that it may
// only read. Neither the run nor its transcript has the token.
func TestPrivateRepository(t *testing.T) {
	t.Parallel()
	const token = "c4nary-of-the-forge-token"
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	bare := filepath.Join(w.dir, "forge", "example", "private.git")
	for _, dir := range []string{bare, filepath.Join(w.dir, "forge", "example", "runbooks.git")} {
		w.git("clone", "-q", "--bare", ".", dir)
		w.git("-C", dir, "config", "http.receivepack", "true")
		w.git("-C", dir, "config", "receive.advertisePushOptions", "true")
	}
	git := gittest.Serve(t, filepath.Join(w.dir, "forge"))
	git.Basic("x-access-token", token)

	script := "git checkout -q -b repair && git commit -q --allow-empty -m Repair\n" + block(t, "sh push") +
		"git push -o merge_request.create origin HEAD:triphammer/more || true\ngit push origin HEAD:refs/for/main || true\ngit push origin HEAD:main || true\n" +
		"git config remote.origin.url; env; echo it is " + token + "\n" +
		"git -C ../runbooks push origin HEAD:refs/heads/forbidden || true\n" +
		"echo https://github.com/example/private/pull/7 >> $TRIPHAMMER_ARTIFACTS/links\n"
	environment := strings.ReplaceAll(block(t, "yaml environments/private.yaml"), "https://github.com", git.URL) +
		"command: [sh, -ec, '{ " + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(script), "'", "''"), "\n", "; ") + "; } 2>&1']\n"
	w.write(map[string]string{
		"environments/env.yaml": environment,
		"automations/yearly.md": "---\nenvironmentId: env\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@yearly'}}]\n---\nRepair it.\n",
	})
	w.push()
	w.start("--git-ca-file", git.CAFile)
	if listed := w.run("", "automations", "list"); !strings.Contains(listed, "the secret FORGE_TOKEN is granted and not set") {
		t.Errorf("nobody warns of the secret:\n%s", listed)
	}
	run := func(want string) (id string, r api.Run) {
		t.Helper()
		id = strings.TrimSpace(w.run("", "runs", "create", "--environment", "env", "--prompt", "Repair it.", "-o", "name"))
		err := client.WaitFor(t.Context(), 30*time.Second, "the run does not end", func() (bool, error) {
			return json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r) == nil && r.FinishedAt != nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if logs := w.run("", "runs", "logs", id, "--full"); r.State != want || strings.Contains(logs, token) {
			t.Fatalf("%s: %s\n%s", r.State, r.StatusMessage, logs)
		}
		return id, r
	}
	if _, r := run("FAILED"); !strings.Contains(r.StatusMessage, "granted secrets are not set: FORGE_TOKEN") {
		t.Errorf("a secret that is missing: %s", r.StatusMessage)
	}
	w.run("an-old-token", "secrets", "set", "FORGE_TOKEN")
	if _, r := run("FAILED"); !strings.Contains(r.StatusMessage, "private.git refuses the secret FORGE_TOKEN (401") {
		t.Errorf("a token that is wrong: %s", r.StatusMessage)
	}
	w.run(token, "secrets", "set", "FORGE_TOKEN") // from the next run on
	id, _ := run("SUCCEEDED")
	logs := w.run("", "runs", "logs", id, "--full")
	for _, want := range []string{git.URL + "/example/private.git\n", "read-only for this run: its environment says access: read", "GIT_CONFIG_SYSTEM=", "it is [redacted]", "(a run sends no options of a push: ", "(a run pushes branches)", "(a run pushes to the default branch only if "} {
		if !strings.Contains(logs, want) {
			t.Errorf("the transcript does not show %q:\n%s", want, logs)
		}
	}
	if said := gittest.Git(t, bare, "log", "-1", "--format=%an %s %ce", "triphammer/repair-build"); !strings.HasPrefix(said, "Triphammer Repair run_") {
		t.Errorf("what was pushed: %s", said)
	}
	if refs := gittest.Git(t, filepath.Join(w.dir, "forge", "example", "runbooks.git"), "for-each-ref"); strings.Contains(refs, "forbidden") {
		t.Errorf("what may only be read was pushed to: %s", refs)
	}
	if refs := gittest.Git(t, bare, "for-each-ref"); strings.Contains(refs, "for/main") || strings.Contains(refs, "more") {
		t.Errorf("what was pushed: %s", refs)
	}
	if belt := w.run("", "runs", "show", id); !strings.Contains(belt, "pushed triphammer/repair-build of "+git.URL) || !strings.Contains(belt, "pushes refused: 3") {
		t.Errorf("the belt does not tell of the pushes:\n%s", belt)
	}
	if links := w.run("", "runs", "artifacts", id); !strings.Contains(links, "/pull/7") {
		t.Errorf("the pull request is not listed:\n%s", links)
	}
	if warnings := w.run("", "runs", "logs", id); strings.Contains(warnings, "warning:") {
		t.Errorf("the run warns:\n%s", warnings)
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
