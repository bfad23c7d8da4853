package native

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"triphammer/factory/jsonscan"
)

// people are the persons of the samples (SPEC 24.1). Events that name nobody have an empty one.
var people = map[string]string{
	"azure_devops pull_request":            "azure_devops:ada@example.com",
	"azure_devops push":                    "azure_devops:ada@example.com",
	"azure_devops work_item":               "azure_devops:ada@example.com",
	"github check_suite_completed":         "",
	"github workflow_run_completed":        "",
	"github issue_assigned":                "github:grace 1002",
	"github issue_created":                 "github:grace 1002",
	"github issue_labeled":                 "github:grace 1002",
	"github issue_mentioned":               "github:grace 1002",
	"github pull_request_mentioned":        "github:grace 1002",
	"github pull_request_review_submitted": "github:grace 1002",
	"gitlab bot_mentioned":                 "gitlab:ada 7",
	"gitlab merge_request":                 "gitlab:ada 7",
	"gitlab push":                          "gitlab:ada 7",
}

// byProvider is the person of the other events.
var personBy = map[string]string{
	"github": "github:ada 1001", "jira": "jira:5b10ac8d82e05b22cc7d4ef5", "linear": "linear:a0000000-0000-4000-8000-000000000021",
	"slack": "slack:U0ADA", "teams": "teams:b15a9416-0000-4000-8000-000000000001",
}

// publicEvents are those that anybody can cause on a public repository: the others need a right there.
var publicEvents = "github issue_created issue_mentioned pull_request_closed pull_request_mentioned pull_request_opened pull_request_ready " +
	"pull_request_reopened pull_request_review_requested pull_request_review_submitted pull_request_synchronized gitlab bot_mentioned merge_request "

// TestPeople: each row says whose act its event is, and who can cause it.
func TestPeople(t *testing.T) {
	for _, s := range Senders() {
		for _, e := range s.Events {
			want, given := people[s.Provider+" "+e.Name]
			if !given {
				want = personBy[s.Provider]
			}
			if got := e.PersonOf(s.Read(sample(t, s, e.Name))).String(); got != want || (e.By == nil) != (want == "") {
				t.Errorf("%s %s is by %q, want %q", s.Provider, e.Name, got, want)
			}
			_, of, _ := strings.Cut(publicEvents, s.Provider+" ")
			if of, _, _ = strings.Cut(of, " gitlab"); e.Public != slices.Contains(strings.Fields(of), e.Name) {
				t.Errorf("%s %s: public %v", s.Provider, e.Name, e.Public)
			}
			if e.Public && e.By == nil {
				t.Errorf("%s %s is public, and names nobody who could be asked for", s.Provider, e.Name)
			}
		}
	}
}

// TestStartedBy: who may start, by the payload and by answers, also of forged and incomplete payloads.
func TestStartedBy(t *testing.T) {
	const permission, membership, access = "sender_permission acme/api ada 1", "sender_membership acme ada 1", "sender_access 15 7"
	repo := `"repository":{"full_name":"acme/api","owner":{"login":"acme","id":9,"type":"Organization"}}`
	issue := func(sender, more string) string {
		return `{"action":"opened","sender":` + sender + `,` + repo + `,"issue":{"id":3,"number":3,"user":{"id":1}` + more + `}}`
	}
	const ada, mallory = `{"login":"Ada","id":1,"type":"User"}`, `{"login":"mallory","id":66,"type":"User"}`
	gitlab := func(user string) string {
		return `{"object_kind":"merge_request","user":` + user + `,"project":{"id":15},"object_attributes":{"id":1,"author_id":7}}`
	}
	lower := strings.ToLower(ada)
	for _, c := range []struct {
		name, event, body string
		by                string
		answers           map[string]string // by the question
		want, asks        string            // yes or no; or the questions
	}{
		{"a login, in any case", "github issue_created", issue(ada, ""), "aDA", nil, "yes", ""},
		{"another login", "github issue_created", issue(mallory, ""), "ada", nil, "no", ""},
		{"the author", "github issue_created", issue(ada, ""), "author", nil, "yes", ""},
		{"not the author", "github issue_created", issue(mallory, ""), "author", nil, "no", ""},
		{"the author without an identifier", "github issue_created", issue(`{"login":"ada","type":"User"}`, ""), "author", nil, "no", ""},
		{"nobody", "github issue_created", `{"action":"opened",` + repo + `,"issue":{"id":3,"user":{"id":1}}}`, "author ada write", nil, "no", ""},
		{"a sender that is no object", "github issue_created", issue(`"ada"`, ""), "author ada write", nil, "no", ""},
		{"a login that is empty", "github issue_created", issue(`{"login":"","id":1}`, ""), "author write", nil, "no", ""},
		{"no identifier proves no role", "github issue_created", issue(`{"login":"ada"}`, `,"author_association":"OWNER"`), "owner write member", nil, "no", ""},
		{"an owner writes", "github issue_created", issue(ada, `,"author_association":"OWNER"`), "write", nil, "yes", ""},
		{"the association of another person", "github issue_created", issue(mallory, `,"author_association":"OWNER"`), "member", nil, "", "sender_membership acme mallory 66"},
		{"a member", "github issue_created", issue(ada, `,"author_association":"MEMBER"`), "member", nil, "yes", ""},
		{"a member may not be able to push", "github issue_created", issue(lower, `,"author_association":"MEMBER"`), "write", nil, "", permission},
		{"a collaborator may only read", "github issue_created", issue(lower, `,"author_association":"COLLABORATOR"`), "write", nil, "", permission},
		{"write, answered", "github issue_created", issue(lower, ""), "write", map[string]string{permission: "write"}, "yes", ""},
		{"write, refused", "github issue_created", issue(lower, ""), "write", map[string]string{permission: "read"}, "no", ""},
		{"write is no membership", "github issue_created", issue(lower, ""), "member", map[string]string{permission: "owner write", membership: "none"}, "no", ""},
		{"member or write, one answered", "github issue_created", issue(lower, ""), "member write", map[string]string{membership: "none"}, "", permission},
		{"member or write, both open", "github issue_created", issue(lower, ""), "member write", nil, "", membership + "; " + permission},
		{"member or write, the other one", "github issue_created", issue(lower, ""), "member write", map[string]string{membership: "member"}, "yes", ""},
		{"a repository without an organization has no members", "github issue_created", strings.Replace(issue(lower, ""), "Organization", "User", 1), "member", nil, "no", ""},
		{"its owner", "github issue_created", strings.Replace(strings.Replace(issue(lower, ""), "Organization", "User", 1), `"id":9`, `"id":1`, 1), "member", nil, "yes", ""},
		{"a bot by its name", "github issue_created", issue(`{"login":"dependabot[bot]","id":1,"type":"Bot"}`, ""), "Dependabot[bot]", nil, "yes", ""},
		{"a bot by a role", "github issue_created", issue(`{"login":"dependabot[bot]","id":1,"type":"Bot"}`, `,"author_association":"OWNER"`), "author write owner member", nil, "no", ""},
		{"a login that is spelled as a role", "github issue_created", issue(`{"login":"write","id":5}`, ""), "@write", nil, "yes", ""},
		{"a role is no login", "github issue_created", issue(`{"login":"write","id":5}`, ""), "write", map[string]string{"sender_permission acme/api write 5": "read"}, "no", ""},
		{"a commenter", "github issue_mentioned", `{"action":"created","sender":` + lower + `,` + repo + `,"issue":{"id":3,"number":3,"user":{"id":66}},"comment":{"id":1,"body":"@bot","user":{"id":1},"author_association":"MEMBER"}}`, "member", nil, "yes", ""},
		{"a commenter is not the author", "github issue_mentioned", `{"action":"created","sender":` + mallory + `,` + repo + `,"issue":{"id":3,"number":3,"user":{"id":1},"author_association":"OWNER"},"comment":{"id":1,"body":"@bot","user":{"id":66},"author_association":"NONE"}}`, "owner author", nil, "", "sender_permission acme/api mallory 66"},
		{"a push", "github push", `{"ref":"refs/heads/main","pusher":{"name":"ada"},"sender":` + ada + `,` + repo + `}`, "ada", nil, "yes", ""},
		{"a push that another name made", "github push", `{"ref":"refs/heads/main","pusher":{"name":"deploy key"},"sender":` + ada + `,` + repo + `}`, "ada", nil, "no", ""},
		{"gitlab, asked", "gitlab merge_request", gitlab(`{"id":7,"username":"ada"}`), "write", nil, "", access},
		{"gitlab, one question for all roles", "gitlab merge_request", gitlab(`{"id":7,"username":"ada"}`), "write member owner", nil, "", access},
		{"gitlab, answered", "gitlab merge_request", gitlab(`{"id":7,"username":"ada"}`), "write", map[string]string{access: "member write"}, "yes", ""},
		{"gitlab, a guest", "gitlab merge_request", gitlab(`{"id":7,"username":"ada"}`), "write owner", map[string]string{access: "member"}, "no", ""},
		{"gitlab, the author", "gitlab merge_request", gitlab(`{"id":7,"username":"ada"}`), "author", nil, "yes", ""},
		{"gitlab, no identifier", "gitlab merge_request", gitlab(`{"username":"ada"}`), "write author", nil, "no", ""},
		{"gitlab, a token", "gitlab merge_request", gitlab(`{"id":7,"username":"project_15_bot_1a2b"}`), "write author", nil, "no", ""},
		{"gitlab, a token by its name", "gitlab merge_request", gitlab(`{"id":7,"username":"project_15_bot_1a2b"}`), "project_15_bot_1a2b", nil, "yes", ""},
		{"slack", "slack app_mention", `{"team_id":"T","event":{"type":"app_mention","user":"U1","channel":"C","ts":"1"}}`, "u1", nil, "yes", ""},
		{"linear", "linear issue_created", `{"type":"Issue","action":"create","actor":{"id":"u9"},"data":{"id":"1","creatorId":"u9"}}`, "u1 author", nil, "yes", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			provider, name, _ := strings.Cut(c.event, " ")
			e := Find(provider, name)
			kind := map[string]string{"github issue_created": "issues", "github issue_mentioned": "issue_comment", "github push": "push"}[c.event]
			d := Delivery{Header: map[string]string{"X-Github-Event": kind}, Body: []byte(c.body), Answers: make(map[Question][]string)}
			for q, answer := range c.answers {
				question, args, _ := strings.Cut(q, " ")
				d.Answers[Question{Provider: provider, Name: question, Args: args}] = strings.Fields(answer)
			}
			p := e.Sender.Read(d)
			trigger := &Trigger{Event: e, StartedBy: ParseStarters(strings.Fields(c.by))}
			v := trigger.Explain(p)
			var asks []string
			for _, q := range v.Open {
				asks = append(asks, q.Name+" "+q.Args)
			}
			slices.Sort(asks)
			if v.Matched != (c.want == "yes") || strings.Join(asks, "; ") != c.asks || (c.asks == "") != (c.want != "") {
				t.Errorf("matched %v, asks %q: %+v", v.Matched, asks, v)
			}
			if last := v.Conditions[len(v.Conditions)-1]; last.Path != StartedBy || last.Want == "" || last.Got == "" {
				t.Errorf("it is not said who came and who may: %+v", last)
			}
			agree(t, []*Trigger{trigger}, p)

			// Whoever is refused is an outsider, unless it is a bot or nobody (SPEC 26.1).
			trigger.StartedBy.Outsiders = true
			who, all := e.PersonOf(p), trigger.Explain(p)
			outsider := c.want == "no" && who.Login != "" && !who.Bot
			if all.Matched != (c.want == "yes" || outsider) || all.Matched && trigger.Outsider(p) != outsider || !slices.Equal(all.Open, v.Open) {
				t.Errorf("with outsiders: matched %v, outsider %v: %+v", all.Matched, trigger.Outsider(p), all)
			}
			agree(t, []*Trigger{trigger}, p)
		})
	}
}

// agree holds the index to the explanation.
func agree(t *testing.T, triggers []*Trigger, p *Payload) {
	t.Helper()
	fired, open := NewIndex(triggers).Match(p, nil)
	for n, trigger := range triggers {
		v := trigger.Explain(p)
		at := slices.IndexFunc(open, func(o Open) bool { return o.Trigger == n })
		switch {
		case v.Matched != slices.Contains(fired, n), (len(v.Open) > 0) != (at >= 0):
			t.Errorf("the index fires %v and asks %+v, and it is explained as %+v", fired, open, v)
		case at >= 0 && !slices.Equal(v.Open, open[at].Questions):
			t.Errorf("the index asks %+v, and it is explained as %+v", open[at].Questions, v.Open)
		}
	}
}

// TestStartedByAgrees: many triggers with filters and lists, with and without answers, have the same
// verdicts by the index and by the explanation.
func TestStartedByAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	lists := []string{"write", "member", "owner", "author", "ada", "grace", "write member", "author owner", "mallory"}
	for _, s := range Senders() {
		for _, e := range s.Events {
			if e.By == nil {
				continue
			}
			d := sample(t, s, e.Name)
			for range 20 {
				d.Answers = make(map[Question][]string)
				p := s.Read(d)
				var triggers []*Trigger
				for range 5 {
					trigger := &Trigger{Event: e, StartedBy: ParseStarters(strings.Fields(lists[random.IntN(len(lists))]))}
					if key := &e.Keys[random.IntN(len(e.Keys))]; random.IntN(2) == 0 && key.Kind == Exact {
						in := []string{"nothing"}
						if values, _ := (&Filter{Key: key}).values(p); len(values) > 0 && random.IntN(2) == 0 {
							in = values
						}
						trigger.Filters = []Filter{{Key: key, In: in}}
					}
					triggers = append(triggers, trigger)
				}
				agree(t, triggers, p)
				for _, trigger := range triggers {
					for _, q := range trigger.Explain(p).Open {
						if random.IntN(2) == 0 {
							d.Answers[q] = []string{[]string{"write", "member", "none"}[random.IntN(3)]}
						}
					}
				}
				agree(t, triggers, s.Read(d))
			}
		}
	}
}

// FuzzPerson: whatever a payload says, the person is a name without blanks, and the index and the
// explanation agree about it.
func FuzzPerson(f *testing.F) {
	f.Add("issues", `{"action":"opened","sender":{"login":"a b","id":1},"issue":{"user":{"id":1}}}`, "github issue_created", "author write")
	f.Add("", `{"object_kind":"merge_request","user":{"id":{},"username":7},"project":{"id":1}}`, "gitlab merge_request", "member")
	f.Add("", `{"eventType":"workitem.updated","resource":{"fields":{"System.ChangedBy":"A <b> <c>"}}}`, "azure_devops work_item", "c")
	f.Fuzz(func(t *testing.T, header, body, event, by string) {
		provider, name, _ := strings.Cut(event, " ")
		e := Find(provider, name)
		if e == nil || jsonscan.Check([]byte(body)) != nil {
			return // the ingress accepts no such body
		}
		p := e.Sender.Read(Delivery{Header: map[string]string{"X-Github-Event": header}, Body: []byte(body)})
		if text := e.PersonOf(p).String(); strings.Count(text, " ") > 1 || len(text) > 2*MaxSubject+1 || strings.ContainsAny(text, "\n\r\t") {
			t.Errorf("%q", text)
		}
		agree(t, []*Trigger{{Event: e, StartedBy: ParseStarters(strings.Fields(by))}}, p)
	})
}

// TestPersonText: a name cannot play an identifier.
func TestPersonText(t *testing.T) {
	for _, c := range []struct {
		p    Person
		want string
	}{
		{Person{Provider: "github", Login: "ada", ID: "1"}, "github:ada 1"},
		{Person{Provider: "github", Login: "ada 2", ID: "1"}, "github:ada%202 1"},
		{Person{Provider: "slack", Login: "U1", ID: "U1"}, "slack:U1"},
		{Person{Provider: "slack", ID: "U1"}, ""},
	} {
		if got := fmt.Sprint(c.p); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
