package native

import (
	"strings"
	"testing"
)

// TestPullRequest: what a delivery says of a pull request (SPEC 27.1).
func TestPullRequest(t *testing.T) {
	commit := strings.Repeat("a", 40)
	github := func(state string) string {
		return `{"pull_request":{"html_url":"https://github.com/a/b/pull/1",` + state + `,"head":{"sha":"` + commit + `"}}}`
	}
	gitlab := func(state string) string {
		return `{"object_kind":"merge_request","object_attributes":{"url":"https://gitlab.com/a/b/-/merge_requests/1","state":"` + state + `","last_commit":{"id":"` + commit + `"}}}`
	}
	azure := func(status string) string {
		return `{"eventType":"git.pullrequest.updated","resource":{"pullRequestId":1,"status":"` + status + `","_links":{"web":{"href":"https://dev.azure.com/a/b/_git/c/pullrequest/1"}},"lastMergeSourceCommit":{"commitId":"` + commit + `"}}}`
	}
	for _, c := range []struct{ provider, event, body, want string }{
		{"github", "pull_request", github(`"state":"open","merged":false`), PullOpen},
		{"github", "pull_request", github(`"state":"closed","merged":true`), PullMerged},
		{"github", "pull_request", github(`"state":"closed","merged":false`), PullClosed},
		{"github", "pull_request", github(`"state":"closed"`), PullClosed},
		{"github", "pull_request", github(`"state":"else"`), ""},
		{"github", "issues", github(`"state":"open"`), ""},
		{"github", "pull_request_review", github(`"state":"open"`), ""}, // it has no merged
		{"gitlab", "", gitlab("opened"), PullOpen},
		{"gitlab", "", gitlab("merged"), PullMerged},
		{"gitlab", "", gitlab("closed"), PullClosed},
		{"gitlab", "", gitlab("locked"), ""}, // while it is being merged
		{"gitlab", "", strings.Replace(gitlab("merged"), "merge_request", "issue", 1), ""},
		{"azure_devops", "", azure("active"), PullOpen},
		{"azure_devops", "", azure("completed"), PullMerged},
		{"azure_devops", "", azure("abandoned"), PullClosed},
		{"linear", "", github(`"state":"open"`), ""},
	} {
		header := map[string]string{}
		if c.event != "" {
			header["X-Github-Event"] = c.event
		}
		got, ok := ByProvider(c.provider).PullRequest(Delivery{Header: header, Body: []byte(c.body)})
		if got.Outcome != c.want || ok != (c.want != "") || ok && (got.Commit != commit || !strings.HasSuffix(got.URL, "/1")) {
			t.Errorf("%s %s: %+v, %v", c.provider, c.body, got, ok)
		}
	}
}
