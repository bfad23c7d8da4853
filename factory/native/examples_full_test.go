//go:build full

package native

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// exampleEvents are the events that each kind of GitHub's own examples must have, written by hand from
// factory/testdata/rules 4.1 and 4.2. What is not in it has none. After + stands what is changed of
// an example: its text mentions somebody, its pull request was merged, its author is a bot.
var exampleEvents = map[string][]string{
	"push":                                             {"push"},
	"issues opened":                                    {"issue_created"},
	"issues opened +mention":                           {"issue_created", "issue_mentioned"},
	"issues opened +mention +bot":                      {"issue_created"},
	"issues labeled":                                   {"issue_labeled"},
	"issues labeled +mention":                          {"issue_labeled"},
	"issues labeled +mention +bot":                     {"issue_labeled"},
	"issues assigned":                                  {"issue_assigned"},
	"issues assigned +mention":                         {"issue_assigned"},
	"issues assigned +mention +bot":                    {"issue_assigned"},
	"issue_comment created +mention":                   {"issue_mentioned"},
	"issue_comment created of a pull request +mention": {"pull_request_mentioned"},
	"pull_request opened":                              {"pull_request_opened"},
	"pull_request opened +mention":                     {"pull_request_opened", "pull_request_mentioned"},
	"pull_request opened +mention +bot":                {"pull_request_opened"},
	"pull_request ready_for_review":                    {"pull_request_ready"},
	"pull_request closed":                              {"pull_request_closed"},
	"pull_request closed +merged":                      {"pull_request_merged"},
	"pull_request labeled":                             {"pull_request_labeled"},
	"pull_request synchronize":                         {"pull_request_synchronized"},
	"pull_request reopened":                            {"pull_request_reopened"},
	"pull_request assigned":                            {"pull_request_assigned"},
	"pull_request review_requested":                    {"pull_request_review_requested"},
	"pull_request_review submitted":                    {"pull_request_review_submitted"},
	"pull_request_review submitted +mention":           {"pull_request_review_submitted", "pull_request_mentioned"},
	"pull_request_review submitted +mention +bot":      {"pull_request_review_submitted"},
	"pull_request_review_comment created +mention":     {"pull_request_mentioned"},
	"check_suite completed":                            {"check_suite_completed"},
	"check_suite rerequested":                          {"check_suite_rerequested"},
	"check_run rerequested":                            {"check_run_rerequested"},
	"workflow_run completed":                           {"workflow_run_completed"},
}

// withText are the deliveries that have a text that somebody wrote, and where.
var withText = map[string]string{"issues": "issue", "issue_comment": "comment", "pull_request": "pull_request", "pull_request_review": "review", "pull_request_review_comment": "comment"}

// TestGitHubExamples derives the events of each example that GitHub's package has.
func TestGitHubExamples(t *testing.T) {
	text, err := os.ReadFile("../../testdata/npm/senders/node_modules/@octokit/webhooks-examples/api.github.com/index.json")
	if err != nil {
		t.Fatalf("the examples are not installed (npm ci --prefix testdata/npm/senders): %v", err)
	}
	var all []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	count, kinds, fired := 0, map[string]bool{}, map[string]int{}
	for _, group := range all {
		for _, example := range group.Examples {
			count++
			kind := group.Name
			body := func() map[string]any {
				var b map[string]any
				if err := json.Unmarshal(example, &b); err != nil {
					t.Fatal(err)
				}
				return b
			}
			if action, _ := body()["action"].(string); action != "" {
				kind += " " + action
			}
			kinds[kind] = true
			try := func(kind string, b map[string]any) {
				for _, e := range checkExample(t, group.Name, kind, b) {
					fired[e]++
				}
			}
			try(kind, body())
			if kind == "pull_request closed" {
				b := body()
				b["pull_request"].(map[string]any)["merged"] = true
				try(kind+" +merged", b)
			}
			where := withText[group.Name]
			if where == "" {
				continue
			}
			mention := func(bot bool, pull bool) map[string]any {
				b := body()
				object := b[where].(map[string]any)
				object["body"] = "Hello @triphammer!"
				if user, _ := object["user"].(map[string]any); bot {
					user["type"] = "Bot"
				}
				if pull {
					b["issue"].(map[string]any)["pull_request"] = map[string]any{"url": "https://api.github.com/repos/a/b/pulls/1"}
				}
				return b
			}
			try(kind+" +mention", mention(false, false))
			try(kind+" +mention +bot", mention(true, false))
			if group.Name == "issue_comment" {
				try(kind+" of a pull request +mention", mention(false, true))
			}
		}
	}
	for kind := range exampleEvents {
		kind, _, _ = strings.Cut(kind, " +")
		if kind = strings.TrimSuffix(kind, " of a pull request"); !kinds[kind] {
			t.Errorf("no example of %s", kind)
		}
	}
	for _, e := range ByProvider("github").Events {
		if fired[e.Name] == 0 {
			t.Errorf("no example has %s", e.Name)
		}
	}
	if t.Logf("%d examples: %v", count, fired); count < 300 {
		t.Errorf("only %d examples", count)
	}
}

// checkExample checks which triggers a delivery fires, and returns its events.
func checkExample(t *testing.T, name, kind string, body map[string]any) []string {
	t.Helper()
	plain, _, _ := strings.Cut(kind, " +")
	want, known := exampleEvents[kind]
	if !known && !strings.Contains(kind, " of a pull request") && !strings.HasPrefix(plain, "issue_comment") && !strings.HasPrefix(plain, "pull_request_review_comment") {
		want = exampleEvents[plain] // the text changes nothing
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	sender := ByProvider("github")
	p := sender.Read(Delivery{Header: map[string]string{"X-Github-Event": name}, Body: raw})
	repository, _ := body["repository"].(map[string]any)
	repo, _ := repository["full_name"].(string)
	for _, e := range sender.Events {
		repos, _ := e.Key("repos")
		triggers := []*Trigger{
			{Event: e},
			{Event: e, Filters: []Filter{{Key: repos, In: []string{repo}}}},
			{Event: e, Filters: []Filter{{Key: repos, In: []string{"somebody/else"}}}},
			{Event: e, Filters: []Filter{{Key: repos, In: []string{strings.ToUpper(repo)}}}},
			{Event: e, Filters: []Filter{{Key: repos, NotIn: []string{repo}}}},
		}
		var must []int
		if slices.Contains(want, e.Name) {
			must = []int{0, 1}
		}
		if got, _ := NewIndex(triggers).Match(p, nil); !slices.Equal(got, must) {
			t.Errorf("%s of %s fires %v of %s, want %v", kind, repo, got, e.Name, must)
		}
		for n, tr := range triggers {
			if v := tr.Explain(p); v.Matched != slices.Contains(must, n) {
				t.Errorf("%s of %s: explained %s %d: %+v", kind, repo, e.Name, n, v)
			}
		}
	}
	return want
}
