package native

import "testing"

// TestComments: what may be the reply to a question, whose it is, and what it says: a new text of a person
// who is no account of the webhook (SPEC 26.3).
func TestComments(t *testing.T) {
	const (
		github = `{"action":"created","repository":{"full_name":"a/b","html_url":"https://github.com/a/b"},"issue":{"number":7},"sender":{"login":"Ada","id":5,"type":"User"},"comment":{"id":9,"body":"yes","user":{"type":"User"}}`
		gitlab = `{"object_kind":"note","user":{"username":"ada","id":5},"project":{"path_with_namespace":"a/b"},"merge_request":{"iid":3},"object_attributes":{"id":9,"note":"yes"`
		jira   = `{"webhookEvent":"comment_created","issue":{"key":"ENG-4"},"comment":{"id":"9","body":"yes","author":{"accountId":"ada"`
		linear = `{"type":"Comment","action":"create","data":{"id":"9","body":"yes","issueId":"i","issue":{"identifier":"ENG-4"},"userId":"ada"`
		item   = `{"id":"9","eventType":"workitem.commented","resource":{"id":5,"fields":{"System.TeamProject":"p","System.ChangedBy":"Ada B <Ada@example.com>","System.History":"yes"}`
		pull   = `{"id":"9","eventType":"ms.vss-code.git-pullrequest-comment-event","resource":{"pullRequest":{"pullRequestId":4,"repository":{"name":"r","project":{"name":"p"}}},"comment":{"content":"yes","author":{"uniqueName":"Ada@example.com"},"publishedDate":"1"`
	)
	for name, c := range map[string]struct {
		provider, body string
		subject, who   string // empty: it is no reply
	}{
		"github":                      {"github", github + `}`, "github:a/b#7", "github:Ada 5"},
		"github, edited":              {"github", github + `,"action":"edited"}`, "", ""},
		"github, deleted":             {"github", github + `,"action":"deleted"}`, "", ""},
		"github, a bot":               {"github", github + `,"comment":{"id":9,"body":"yes","user":{"type":"Bot"}}}`, "", ""},
		"gitlab":                      {"gitlab", gitlab + `,"action":"create"}}`, "gitlab:a/b!3", "gitlab:ada 5"},
		"gitlab, edited":              {"gitlab", gitlab + `,"action":"update"}}`, "", ""},
		"gitlab, perhaps edited":      {"gitlab", gitlab + `}}`, "", ""},
		"gitlab, of the system":       {"gitlab", gitlab + `,"action":"create","system":true}}`, "", ""},
		"gitlab, our account":         {"gitlab", gitlab + `,"action":"create"},"user":{"username":"hammer","id":6}}`, "", ""},
		"gitlab, a token":             {"gitlab", gitlab + `,"action":"create"},"user":{"username":"project_1_bot_x","id":6}}`, "", ""},
		"jira":                        {"jira", jira + `}}}`, "jira:ENG-4", "jira:ada"},
		"jira, an app":                {"jira", jira + `,"accountType":"app"}}}`, "", ""},
		"jira, our account":           {"jira", jira + `,"accountId":"hammer"}}}`, "", ""},
		"jira, edited":                {"jira", jira + `}},"webhookEvent":"comment_updated"}`, "", ""},
		"linear":                      {"linear", linear + `}}`, "linear:ENG-4", "linear:ada"},
		"linear, a bot":               {"linear", linear + `,"botActor":{"id":"b"}}}`, "", ""},
		"linear, our account":         {"linear", linear + `,"userId":"hammer"}}`, "", ""},
		"linear, edited":              {"linear", linear + `},"action":"update"}`, "", ""},
		"azure, a work item":          {"azure_devops", item + `}}`, "azure_devops:p#5", "azure_devops:ada@example.com"},
		"azure, another change":       {"azure_devops", item + `},"eventType":"workitem.updated"}`, "", ""},
		"azure, a pull request":       {"azure_devops", pull + `,"lastContentUpdatedDate":"1"}}}`, "azure_devops:p/r!4", "azure_devops:ada@example.com"},
		"azure, an edited comment":    {"azure_devops", pull + `,"lastContentUpdatedDate":"2"}}}`, "", ""},
		"azure, a deleted comment":    {"azure_devops", pull + `,"isDeleted":true}}}`, "", ""},
		"azure, of the system":        {"azure_devops", pull + `,"commentType":"system"}}}`, "", ""},
		"slack":                       {"slack", `{"team_id":"T","event":{"type":"message","channel":"C","ts":"2","thread_ts":"1","user":"ada","text":"yes"}}`, "slack:T/C/1", "slack:ada"},
		"linear, in a session":        {"linear", `{"type":"AgentSessionEvent","action":"prompted","agentSession":{"id":"s","issue":{"identifier":"ENG-4"}},"agentActivity":{"id":"9","userId":"ada","content":{"body":"yes"}}}`, "linear:ENG-4", "linear:ada"},
		"teams":                       {"teams", `{"type":"message","id":"2","text":"yes","conversation":{"id":"c"},"from":{"id":"ada"}}`, "teams:c", "teams:ada"},
		"github, not about an issue":  {"github", `{"action":"created","comment":{"body":"yes"}}`, "", ""},
		"slack, an edit of a message": {"slack", `{"team_id":"T","event":{"type":"message","subtype":"message_changed","channel":"C","ts":"2","thread_ts":"1","user":"ada","text":"yes"}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := ByProvider(c.provider)
			d := Delivery{Body: []byte(c.body), Accounts: []string{"hammer"}, Header: map[string]string{}}
			if c.provider == "github" && c.subject+name != "github, not about an issue" {
				d.Header["X-Github-Event"] = "issue_comment"
			}
			p := s.Read(d)
			e := s.Comment
			if !p.Is(e) {
				e = s.Reply
			}
			text, who := s.Said(d)
			switch {
			case !p.Is(e):
				if c.subject != "" || text != "" {
					t.Errorf("it is no reply, and says %q", text)
				}
			case e.SubjectOf(p) != c.subject || who.String() != c.who || text != "yes" || e.Identity(p) == "":
				t.Errorf("about %q by %q: %q, %q", e.SubjectOf(p), who, text, e.Identity(p))
			}
		})
	}
}
