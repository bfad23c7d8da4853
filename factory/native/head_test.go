package native

import (
	"fmt"
	"strings"
	"testing"

	"triphammer/factory/jsonscan"
)

const (
	commitA = "77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"
	noneYet = "0000000000000000000000000000000000000000"
)

// TestHeads: the code that events are about, and whose it is (SPEC 21.7).
func TestHeads(t *testing.T) {
	const repo = `"repository":{"id":1,"clone_url":"https://github.com/acme/app.git"}`
	pull := func(ref, repoOfHead, more string) string {
		return `{` + repo + `,"pull_request":{"number":12,"head":{"sha":"` + commitA + `","ref":"` + ref + `","repo":` + repoOfHead + `},"base":{"ref":"main","repo":{"id":1}}` + more + `}}`
	}
	suite := func(pulls string) string {
		return `{` + repo + `,"check_suite":{"head_sha":"` + commitA + `","head_branch":"x","pull_requests":[` + pulls + `]}}`
	}
	push := func(ref, after string) string { return `{` + repo + `,"ref":"` + ref + `","after":"` + after + `"}` }
	request := func(source, more string) string {
		return `{"object_kind":"merge_request","project":{"git_http_url":"https://gitlab.com/acme/app.git"},"object_attributes":{"iid":7,"source_project_id":` + source + `,"target_project_id":1,"source_branch":"x","target_branch":"main","last_commit":{"id":"` + commitA + `"}` + more + `}}`
	}
	azure := func(fork string) string {
		return `{"resource":{"pullRequestId":3,"repository":{"id":"r","remoteUrl":"https://dev.azure.com/acme/P/_git/app"},"targetRefName":"refs/heads/main","lastMergeSourceCommit":{"commitId":"` + commitA + `"}` + fork + `}}`
	}
	for _, tt := range []struct{ provider, event, body, want string }{
		{"github", "pull_request", pull("x", `{"id":1}`, ""), "pull request 12, " + commitA + ", x, main, own"},
		{"github", "pull_request", pull("x", `{"id":2}`, ""), "pull request 12, " + commitA + ", , main, another"},
		{"github", "pull_request", pull("x", `null`, ""), "pull request 12, " + commitA + ", , main, unknown"},
		{"github", "pull_request_review", pull("x", `{"id":2}`, ""), "pull request 12, " + commitA + ", , main, another"},
		{"github", "pull_request", pull("x", `{"id":2}`, `,"merged":true,"merge_commit_sha":"`+commitA+`"`), "merged pull request 12, " + commitA + ", , main, own"},
		{"github", "pull_request", pull("x", `{"id":2}`, `,"merged":true,"merge_commit_sha":null`), "pull request 12, " + commitA + ", , main, another"},
		{"github", "pull_request", pull("--upload-pack=touch x", `{"id":1}`, ""), "pull request 12, " + commitA + ", , main, own"},
		{"github", "pull_request", pull("x:refs/heads/main", `{"id":1}`, ""), "pull request 12, " + commitA + ", , main, own"},
		{"github", "pull_request", pull("HEAD", `{"id":1}`, ""), "pull request 12, " + commitA + ", , main, own"},
		{"github", "pull_request", pull("ä/$(x)'b", `{"id":1}`, ""), "pull request 12, " + commitA + ", ä/$(x)'b, main, own"},
		{"github", "pull_request", strings.Replace(pull("x", `{"id":1}`, ""), commitA, "--upload-pack=x", 1), ""},
		{"github", "issue_comment", `{` + repo + `,"issue":{"number":12,"pull_request":{"url":"x"}}}`, "pull request 12, refs/pull/12/head, , , unknown"},
		{"github", "issue_comment", `{` + repo + `,"issue":{"number":"12/../../x y","pull_request":{"url":"x"}}}`, ""},
		{"github", "issue_comment", `{` + repo + `,"issue":{"number":12}}`, ""},
		{"github", "check_suite", suite(``), "commit, " + commitA + ", , , unknown"},
		{"github", "check_suite", suite(`{"head":{"repo":{"id":1}},"base":{"ref":"main"}}`), "commit, " + commitA + ", x, main, own"},
		{"github", "check_suite", suite(`{"head":{"repo":{"id":2}},"base":{"ref":"main"}}`), "commit, " + commitA + ", , main, another"},
		{"github", "push", push("refs/heads/x", commitA), "pushed commit, " + commitA + ", x, , own"},
		{"github", "push", push("refs/tags/v1", commitA), "pushed commit, " + commitA + ", , , own"},
		{"github", "push", push("refs/heads/x", noneYet), ""},
		{"gitlab", "", request("1", ""), "merge request 7, " + commitA + ", x, main, own"},
		{"gitlab", "", request("2", ""), "merge request 7, " + commitA + ", , main, another"},
		{"gitlab", "", request("2", `,"state":"merged","merge_commit_sha":"`+commitA+`"`), "merged merge request 7, " + commitA + ", , main, own"},
		{"gitlab", "", `{"object_kind":"note","project":{},"merge_request":{"iid":7,"source_project_id":2,"target_project_id":1,"source_branch":"x","target_branch":"main","last_commit":{"id":"` + commitA + `"}}}`, "merge request 7, " + commitA + ", , main, another"},
		{"gitlab", "", `{"object_kind":"note","commit":{"id":"` + commitA + `"}}`, "commit, " + commitA + ", , , unknown"},
		{"gitlab", "", `{"object_kind":"issue"}`, ""},
		{"azure_devops", "", azure(""), "pull request 3, " + commitA + ", , main, unknown"},
		{"azure_devops", "", azure(`,"forkSource":{"repository":{"id":"f"}}`), "pull request 3, " + commitA + ", , main, another"},
		{"azure_devops", "", `{"resource":{"repository":{},"refUpdates":[{"name":"refs/heads/x","newObjectId":"` + commitA + `"}]}}`, "pushed commit, " + commitA + ", x, , own"},
		{"linear", "", `{}`, ""},
	} {
		h, ok := ByProvider(tt.provider).Head(Delivery{Header: map[string]string{"X-Github-Event": tt.event}, Body: []byte(tt.body)})
		got := ""
		if ok {
			got = fmt.Sprintf("%s, %s, %s, %s, %s", h.What, h.Fetch, h.Branch, h.Base, []string{"unknown", "own", "another"}[h.Whose])
		}
		if got != tt.want {
			t.Errorf("%s %s %s:\n%q, want\n%q", tt.provider, tt.event, tt.body, got, tt.want)
		}
	}
}

// TestHeadIn: an address names a repository by any protocol, and no other repository.
func TestHeadIn(t *testing.T) {
	h := Head{Origins: []string{"https://github.com/Acme/app.git", "ssh://git@dev.example:7999/acme/app"}}
	for address, want := range map[string]bool{
		"https://github.com/acme/app": true, "https://ada@GitHub.com:443/acme/app.git/": true, "git@github.com:acme/app.git": true, "ssh://git@github.com/acme/app": true, "http://github.com/acme/app": true,
		"git@dev.example:acme/app.git": true, "https://github.com/acme/app2": false, "https://github.com:8443/acme/app": false, "https://evil.example/acme/app": false, "https://evil.example/github.com/acme/app": false,
		"/acme/app.git": false, "file:///acme/app.git": false, "": false, "%zz": false,
	} {
		if h.In(address) != want {
			t.Errorf("%s: not %v", address, want)
		}
	}
	if none := (Head{Origins: []string{"", "app"}}); none.In("") || none.In("app") {
		t.Error("what is no address names a repository")
	}
}

// FuzzHead: whatever a payload says, what Git is told has no meaning but the name of a commit or of a ref.
func FuzzHead(f *testing.F) {
	for _, s := range Senders() {
		for _, e := range s.Events {
			f.Add(s.Provider, "pull_request", sample(f, s, e.Name).Body)
		}
	}
	f.Fuzz(func(t *testing.T, provider, event string, body []byte) {
		s := ByProvider(provider)
		if s == nil || jsonscan.Check(body) != nil {
			return
		}
		h, ok := s.Head(Delivery{Header: map[string]string{"X-Github-Event": event}, Body: body})
		if !ok {
			return
		}
		if !commitName.MatchString(h.Fetch) && (!strings.HasPrefix(h.Fetch, "refs/") || !refName(h.Fetch)) {
			t.Errorf("git would fetch %q", h.Fetch)
		}
		for _, name := range []string{h.Branch, h.Base} {
			if name != "" && (strings.ContainsAny(name, " :^~*?[\\\x00\n") || strings.HasPrefix(name, "-") || strings.Contains(name, "..")) {
				t.Errorf("git would get the branch %q", name)
			}
		}
		if h.Branch != "" && h.Whose != Own {
			t.Errorf("the branch %q is another repository's", h.Branch)
		}
		for _, o := range h.Origins {
			h.In(o)
		}
	})
}
