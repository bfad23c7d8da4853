package answer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"triphammer/factory/native"
)

// delivery is the sample of an event.
func delivery(t *testing.T, e *native.Event) native.Delivery {
	t.Helper()
	prefix := e.Sender.Provider
	if prefix == "teams" {
		prefix = "ms_teams"
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "factory", "signature", "samples", prefix+"."+e.Name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Headers map[string]string
		Body    json.RawMessage
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	d := native.Delivery{Header: map[string]string{}, Body: file.Body}
	for name, value := range file.Headers {
		d.Header[http.CanonicalHeaderKey(name)] = value
	}
	return d
}

// TestPlaces: each event of the table has a sample that says where it is answered, or why it is not.
func TestPlaces(t *testing.T) {
	var b strings.Builder
	for _, s := range Senders() {
		for _, e := range native.ByProvider(s.Provider).Events {
			fmt.Fprintf(&b, "%s %s\n\t%s\n", s.Provider, e.Name, placed(s, e, delivery(t, e)))
		}
	}
	golden(t, "places", b.String())
	for _, s := range native.Senders() {
		if ByProvider(s.Provider) == nil {
			t.Errorf("%s has events, and takes no answers", s.Provider)
		}
	}
	if ByProvider("nobody") != nil {
		t.Error("nobody takes answers")
	}
}

func placed(s *Sender, e *native.Event, d native.Delivery) string {
	p, err := s.Place(e, d)
	if err != nil {
		return "no answer: " + err.Error()
	}
	if p.Provider != s.Provider {
		return "of the provider " + p.Provider
	}
	p.Provider = ""
	return strings.Replace(packed(p), `"provider":"",`, "", 1)
}

// TestMorePlaces are deliveries that no sample has.
func TestMorePlaces(t *testing.T) {
	for _, c := range []struct{ event, body, want string }{
		{
			"github pull_request_mentioned", `{"repository":{"full_name":"acme/app"},"pull_request":{"number":7,"head":{"sha":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}},"comment":{"id":5,"user":{"login":"ada"}}}`,
			`{"container":"acme/app","thread":"7","kind":"pull","item":"5","itemKind":"review comment","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","asker":"@ada"}`,
		},
		{"github issue_mentioned", `{"repository":{"full_name":"acme/app"},"issue":{"number":7,"user":{"login":"ada"}}}`, `{"container":"acme/app","thread":"7","kind":"issue","item":"7","itemKind":"issue","asker":"@ada"}`},
		{"github issue_mentioned", `{"repository":{"full_name":"acme/app"},"issue":{"number":7},"comment":{"id":5,"user":{"login":"renovate[bot]"}}}`, `{"container":"acme/app","thread":"7","kind":"issue","item":"5","itemKind":"issue comment"}`},
		{"github push", `{"repository":{"full_name":"acme/app"},"after":"0000000000000000000000000000000000000000"}`, "no answer: the event has neither an issue, nor a pull request, nor a commit"},
		{"github push", `{"repository":{"full_name":"acme/app"},"after":"../../x"}`, "no answer: the event has neither an issue, nor a pull request, nor a commit"},
		{"github push", `[1]`, "no answer: the event names no repository"},
		{"github check_suite_completed", `{"repository":{"full_name":"acme/app"},"check_suite":{"head_sha":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","pull_requests":[{"number":1},{"number":2}]}}`, `{"container":"acme/app","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}`},
		{"github check_suite_completed", `{"repository":{"id":3,"full_name":"acme/app"},"check_suite":{"head_sha":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","pull_requests":[{"number":1,"base":{"repo":{"id":3}}}]}}`, `{"container":"acme/app","thread":"1","kind":"pull","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}`},
		{"github check_suite_completed", `{"repository":{"id":3,"full_name":"acme/app"},"check_suite":{"head_sha":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","pull_requests":[{"number":2,"base":{"repo":{"id":4}}},{"number":1,"base":{"repo":{"id":3}}}]}}`, `{"container":"acme/app","thread":"1","kind":"pull","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}`},
		{"github check_suite_completed", `{"repository":{"id":3,"full_name":"acme/app"},"check_suite":{"head_sha":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","pull_requests":[{"number":1,"base":{"repo":{"id":4}}}]}}`, `{"container":"acme/app","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}`},
		{
			"gitlab bot_mentioned", `{"object_kind":"note","user":{"username":"ada"},"project":{"path_with_namespace":"a/b/c"},"object_attributes":{"id":9,"internal":true,"url":"https://gitlab.com/a/b/c/-/issues/4#note_9"},"issue":{"iid":4}}`,
			`{"container":"a/b/c","thread":"4","kind":"issue","item":"9","itemKind":"note","asker":"@ada","internal":true,"link":"https://gitlab.com/a/b/c/-/issues/4"}`,
		},
		{"gitlab bot_mentioned", `{"object_kind":"note","user":{"username":"ada"},"project":{"path_with_namespace":"a/b"},"object_attributes":{"id":9},"commit":{"id":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"}}`, `{"container":"a/b","thread":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","kind":"commit","commit":"77b20b8d5c6ff8d09518454d4dd8b7b30f095a00","asker":"@ada"}`},
		{"gitlab bot_mentioned", `{"object_kind":"note","project":{"path_with_namespace":"a/b"},"object_attributes":{"id":9}}`, "no answer: the event has neither an issue, nor a merge request, nor a commit"},
		{"jira agent_session_created", `{"comment":{"id":"1","author":{"name":"ada"}},"issue":{"id":"10042","self":"https://jira.example.com/rest/api/2/issue/10042","key":"A-1"}}`, "no answer: the event is of Jira Data Center: only Jira Cloud takes answers"},
		{"jira agent_session_created", `{"comment":{"id":"1","author":{"accountId":"x1"},"jsdPublic":false},"issue":{"id":"10042"}}`, `{"thread":"10042","kind":"issue","asker":"x1","internal":true}`},
		{"jira agent_session_created", `{"comment":{"id":"1","author":{"accountId":"x1"},"visibility":{"type":"role","value":"Developers"}},"issue":{"id":"10042"}}`, `{"thread":"10042","kind":"issue","asker":"x1","audience":"{\"type\":\"role\",\"value\":\"Developers\"}"}`},
		{"jira issue_created", `{"issue":{"id":"10042","fields":{"project":{"projectTypeKey":"service_desk"}}}}`, `{"thread":"10042","kind":"issue","internal":true}`},
		{"jira issue_created", `{"issue":{"id":"../1"}}`, "no answer: the event names no issue"},
		{"slack app_mention", `{"event":{"channel":"C1","user":"U1","ts":"2.0","thread_ts":"1.0"}}`, `{"container":"C1","thread":"1.0","item":"2.0","itemKind":"message","asker":"<@U1>"}`},
		{
			"azure_devops pull_request", `{"eventType":"ms.vss-code.git-pullrequest-comment-event","resource":{"comment":{"id":2,"author":{"id":"54d125f7-0000-4000-8000-000000000001","displayName":"Ada Byron"}},"pullRequest":{"pullRequestId":41,"repository":{"id":"r1","project":{"id":"p1"}},"_links":{"web":{"href":"https://dev.azure.com/acme/p/_git/r/pullrequest/41"}}}}}`,
			`{"container":"p1/r1","thread":"41","kind":"pull","asker":"54d125f7-0000-4000-8000-000000000001 Ada Byron","link":"https://dev.azure.com/acme/p/_git/r/pullrequest/41"}`,
		},
		{"azure_devops work_item", `{"eventType":"workitem.updated","resource":{"id":5,"workItemId":77},"resourceContainers":{"project":{"id":"p1"}}}`, `{"container":"p1","thread":"77","kind":"item"}`},
		{"linear comment_created", `{"type":"Comment","data":{"issue":{"id":"i1"}},"actor":{"url":"https://linear.app/acme/profiles/ada"}}`, `{"thread":"i1","kind":"issue","asker":"https://linear.app/acme/profiles/ada"}`},
		{"linear agent_session_created", `{"agentSession":{"id":"s1"},"agentActivity":{"id":"act-1"}}`, `{"thread":"s1","kind":"session","item":"act-1","itemKind":"session"}`},
		{"linear comment_created", `{"type":"Comment"}`, "no answer: the event names neither an issue nor an agent's session"},
		{"teams app_mention", `{}`, "no answer: the event names no conversation"},
	} {
		provider, name, _ := strings.Cut(c.event, " ")
		if got := placed(ByProvider(provider), native.Find(provider, name), native.Delivery{Body: []byte(c.body)}); got != c.want {
			t.Errorf("%s of %s:\ngot  %s\nwant %s", c.event, c.body, got, c.want)
		}
	}
}

var dots = regexp.MustCompile(`/\.*/`)

// FuzzPlace: no delivery breaks a row, and no place leads out of its path.
func FuzzPlace(f *testing.F) {
	for _, body := range []string{`{}`, `[]`, `{"issue":{"number":"7/../8"},"repository":{"full_name":"a/.."}}`, `{"resource":{"repository":{"id":"..","project":{"id":"/"}},"pullRequestId":1}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || !utf8.Valid(body) { // as jsonscan.Check demands
			return
		}
		for _, s := range Senders() {
			sender := native.ByProvider(s.Provider)
			for _, e := range append([]*native.Event{sender.Reply, sender.Stop}, sender.Events...) {
				if e == nil {
					continue
				}
				p, err := s.Place(e, native.Delivery{Body: body, Header: map[string]string{}})
				if err != nil {
					continue
				}
				if p.Thread == "" && p.Commit == "" {
					t.Errorf("%s %s: %+v answers nothing", s.Provider, e.Name, p)
				}
				if got := at(p.Container, p.Thread, p.Item); strings.Count(got, "/") != 3 || dots.MatchString(got+"/") {
					t.Errorf("%s %s: %+v leads to %s", s.Provider, e.Name, p, got)
				}
			}
		}
	})
}
