package native

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"triphammer/factory/jsonscan"
)

// sampleSubjects are what the samples are about, by the sender and the beginning of the event's name.
var sampleSubjects = []struct{ provider, event, subject string }{
	{"azure_devops", "work_item", "azure_devops:Acme#77"},
	{"azure_devops", "pull_request", "azure_devops:Acme/payments!41"},
	{"azure_devops", "push", "azure_devops:Acme/payments/heads/main"},
	{"github", "push", "github:acme/payments/heads/main"},
	{"github", "issue_", "github:acme/payments#402"},
	{"github", "pull_request_", "github:acme/payments#418"},
	{"github", "check_", "github:acme/payments@77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"},
	{"github", "workflow_run_", "github:acme/payments@59b20b8d5c6ff8d09518454d4dd8b7b30f095ab5"},
	{"gitlab", "push", "gitlab:gitlab.example.com/acme/payments/heads/main"},
	{"gitlab", "", "gitlab:gitlab.example.com/acme/payments!41"},
	{"jira", "", "jira:PAY-77"},
	{"linear", "", "linear:PAY-77"},
	{"slack", "reaction_added", "slack:T0SAMPLE/C0DEPLOYS/1772612400.000100"},
	{"slack", "member_joined_channel", "slack:T0SAMPLE/C0DEPLOYS"},
	{"slack", "message_dm", "slack:T0SAMPLE/D0ADA/1772612501.000200"},
	{"slack", "message_im", "slack:T0SAMPLE/D0ADA/1772612500.000200"},
	{"slack", "message_mpim", "slack:T0SAMPLE/G0GROUP/1772612500.000200"},
	{"slack", "", "slack:T0SAMPLE/C0DEPLOYS/1772612500.000200"},
	{"teams", "", "teams:19:deploys@thread.tacv2;messageid=1772612880000"},
}

// TestSubjectsOfSamples: each event is about something (SPEC 21.1).
func TestSubjectsOfSamples(t *testing.T) {
	for _, s := range Senders() {
		for _, e := range s.Events {
			got := e.SubjectOf(s.Read(sample(t, s, e.Name)))
			for _, want := range sampleSubjects {
				if want.provider != s.Provider || !strings.HasPrefix(e.Name, want.event) {
					continue
				}
				if got != want.subject {
					t.Errorf("%s %s is about %q, not %q", s.Provider, e.Name, got, want.subject)
				}
				break
			}
			if got == "" || e.Subject.Doc == "" {
				t.Errorf("%s %s is about nothing, or nothing says what", s.Provider, e.Name)
			}
		}
	}
}

// TestSubjects: what stands in a subject, and when there is none.
func TestSubjects(t *testing.T) {
	const repo = `"repository":{"id":1,"full_name":"acme/app","html_url":"https://github.com/acme/app"}`
	const ghes = `"repository":{"id":1,"full_name":"acme/app","html_url":"https://git.acme.example/acme/app"}`
	suite := func(pulls string) string {
		return `{` + repo + `,"check_suite":{"head_sha":"77b2","pull_requests":[` + pulls + `]}}`
	}
	const own, other = `{"number":12,"base":{"repo":{"id":1}}}`, `{"number":12,"base":{"repo":{"id":2}}}`
	const project = `"project":{"path_with_namespace":"group/app","web_url":"https://gitlab.com/group/app"}`
	for _, c := range []struct{ provider, event, body, want string }{
		{"github", "issue_created", `{` + repo + `,"issue":{"number":12}}`, "github:acme/app#12"},
		{"github", "pull_request_opened", `{` + repo + `,"pull_request":{"number":12}}`, "github:acme/app#12"},
		{"github", "pull_request_mentioned", `{` + repo + `,"issue":{"number":12,"pull_request":{}}}`, "github:acme/app#12"},
		{"github", "issue_created", `{` + ghes + `,"issue":{"number":12}}`, "github:git.acme.example/acme/app#12"},
		{"github", "issue_created", `{` + repo + `}`, ""},
		{"github", "issue_created", `{"issue":{"number":12}}`, ""},
		{"github", "push", `{` + repo + `,"ref":"refs/tags/v1"}`, "github:acme/app/tags/v1"},
		{"github", "check_suite_completed", suite(""), "github:acme/app@77b2"},
		{"github", "check_suite_completed", suite(own), "github:acme/app#12"},
		{"github", "check_suite_completed", suite(own + "," + own), "github:acme/app@77b2"},
		{"github", "check_suite_completed", suite(strings.Replace(other, "12", "7", 1) + "," + own), "github:acme/app#12"},
		{"github", "check_suite_completed", suite(other), "github:acme/app@77b2"}, // of a fork, about a pull request elsewhere
		{"gitlab", "merge_request", `{` + project + `,"object_kind":"merge_request","object_attributes":{"iid":7}}`, "gitlab:group/app!7"},
		{"gitlab", "bot_mentioned", `{` + project + `,"object_kind":"issue","object_attributes":{"iid":7}}`, "gitlab:group/app#7"},
		{"gitlab", "bot_mentioned", `{` + project + `,"object_kind":"note","object_attributes":{"id":9},"issue":{"iid":7}}`, "gitlab:group/app#7"},
		{"gitlab", "bot_mentioned", `{` + project + `,"object_kind":"note","object_attributes":{"id":9},"merge_request":{"iid":7}}`, "gitlab:group/app!7"},
		{"gitlab", "bot_mentioned", `{` + project + `,"object_kind":"note","object_attributes":{"id":9},"commit":{"id":"77b2"}}`, "gitlab:group/app@77b2"},
		{"slack", "app_mention", `{"team_id":"T1","event":{"channel":"C1","ts":"2.0","thread_ts":"1.0"}}`, "slack:T1/C1/1.0"},
		{"azure_devops", "push", `{"resource":{"repository":{"name":"r","project":{"name":"p"}},"refUpdates":[{"name":"refs/heads/a"},{"name":"refs/heads/b"}]}}`, ""},
		{"azure_devops", "pull_request", `{"resource":{"pullRequestId":7,"repository":{"name":"r","remoteUrl":"https://acme.visualstudio.com/p/_git/r","project":{"name":"p"}}}}`, "azure_devops:p/r!7"},
		{"azure_devops", "pull_request", `{"resource":{"pullRequestId":7,"repository":{"name":"r","remoteUrl":"https://tfs.acme.example/c/p/_git/r","project":{"name":"p"}}}}`, "azure_devops:tfs.acme.example/p/r!7"},
		{"azure_devops", "work_item", `{"resource":{"id":7,"url":"https://tfs.acme.example/c/_apis/wit/workItems/7","fields":{"System.TeamProject":"p"}}}`, "azure_devops:tfs.acme.example/p#7"},
		{"jira", "issue_created", `{"issue":{"self":"https://api.atlassian.com/ex/jira/1/rest/api/2/issue/1","key":"ABC-9"}}`, "jira:ABC-9"},
		{"jira", "issue_created", `{"issue":{"self":"https://acme.atlassian.net/rest/api/2/issue/1","key":"ABC-9"}}`, "jira:ABC-9"},
		{"jira", "issue_created", `{"issue":{"self":"https://jira.atlassian.com/rest/api/2/issue/99291","key":"JRA-20002"}}`, "jira:JRA-20002"},
		{"jira", "issue_created", `{"issue":{"self":"https://jira.acme.example/rest/api/2/issue/1","key":"ABC-9"}}`, "jira:jira.acme.example/ABC-9"},
	} {
		e := Find(c.provider, c.event)
		if got := e.SubjectOf(e.Sender.Read(Delivery{Body: []byte(c.body)})); got != c.want {
			t.Errorf("%s %s of %s is about %q, not %q", c.provider, c.event, c.body, got, c.want)
		}
	}
}

// TestSubjectText: two names never have one text, whatever is in them, and none is too long.
func TestSubjectText(t *testing.T) {
	long := strings.Repeat("é", MaxSubject)
	for name, want := range map[string]string{
		"acme/app#12":            "github:acme/app#12",
		"a b":                    "github:a%20b",
		"a%20b":                  "github:a%2520b",
		"a\nb\x1b[1m":            "github:a%0Ab%1B[1m",
		"\xff":                   "github:%FF",
		"\u0085":                 "github:%C2%85",
		"Öffnung":                "github:Öffnung",
		long:                     "",
		long[:len(long)-2] + "e": "",
	} {
		got := SubjectText("github", name)
		if want != "" && got != want {
			t.Errorf("%q is %q, not %q", name, got, want)
		}
		if len(got) > MaxSubject || !utf8.ValidString(got) {
			t.Errorf("%q has %d bytes", got, len(got))
		}
	}
	if SubjectText("x", long) == SubjectText("x", long+"e") {
		t.Error("two long names are the same")
	}
}

// FuzzSubject: whatever a sender says, a subject is one short line that begins with the provider.
func FuzzSubject(f *testing.F) {
	f.Add("refs/heads/main", "acme/app")
	f.Add("refs/heads/\x00\xff %", strings.Repeat("a", 300))
	e := Find("github", "push")
	f.Fuzz(func(t *testing.T, ref, repo string) {
		text := func(s string) string { b, _ := json.Marshal(s); return string(b) }
		body := fmt.Sprintf(`{"ref":%s,"repository":{"full_name":%s}}`, text(ref), text(repo))
		got := e.SubjectOf(e.Sender.Read(Delivery{Body: []byte(body)}))
		if !strings.HasPrefix(got, "github:") || len(got) > MaxSubject || !utf8.ValidString(got) || strings.ContainsAny(got, " \n\r\t\x00\x1b") {
			t.Errorf("%q", got)
		}
	})
}

// TestTemplates: the subject that an automation gives (SPEC 21.1).
func TestTemplates(t *testing.T) {
	for _, c := range []struct{ template, webhook, body, want, missing string }{
		{"{service.name}/{alert.id}", "alerts", `{"service":{"name":"pay"},"alert":{"id":7}}`, "alerts:pay/7", ""},
		{"{a}:{b}", "w", `{"a":"x:y","b":"z"}`, "w:x%3Ay:z", ""},
		{"{a}:{b}", "w", `{"a":"x","b":"y:z"}`, "w:x:y%3Az", ""},
		{"100%{a}", "w", `{"a":"é b"}`, "w:100%25é%20b", ""},
		{"{a}", "github", `{"a":"acme"}`, "webhook:github:acme", ""},
		{"acme/app#{n}", "github", `{"n":12}`, "webhook:github:acme/app#12", ""},
		{"{a}", "webhook", `{"a":"github:x"}`, "webhook:webhook:github%3Ax", ""},
		{"{a}", "pager duty", `{"a":1}`, "pager%20duty:1", ""},
		{"8080/acme/app#{n}", "github:git.acme.example", `{"n":12}`, "github%3Agit.acme.example:8080/acme/app#12", ""}, // no GitHub with a port
		{"{@type}/{a.@id}", "w", `{"@type":"Alert","a":{"@id":7}}`, "w:Alert/7", ""},
		{"{a.b}", "w", `{"a":{"b":null}}`, "", "a.b"},
		{"{a.b}", "w", `{"a":{"b":[1]}}`, "", "a.b"},
		{"{a.b}", "w", `{"a":"x"}`, "", "a.b"},
		{"{a}", "w", `[]`, "", "a"},
		{"{a}", "w", `{"a":""}`, "", "a"},
	} {
		tpl, err := ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		if got, missing := tpl.Subject(c.webhook, []byte(c.body)); got != c.want || missing != c.missing {
			t.Errorf("%s of %s at %s is %q, missing %q", c.template, c.body, c.webhook, got, missing)
		}
	}
	for _, bad := range []string{"", "all", "{", "{a", "a}", "{}", "{a..b}", "{a[]}", "{a b}", "{.a}", "{a}}", "{{a}}"} {
		if _, err := ParseTemplate(bad); err == nil {
			t.Errorf("%q is a template", bad)
		}
	}
}

// FuzzTemplate: no template and no payload end the program, and what comes out is a short line.
func FuzzTemplate(f *testing.F) {
	f.Add("{a.b}/{c}", `{"a":{"b":"x"},"c":true}`)
	f.Add("{a}", `{"a":"\u0000"}`)
	f.Add("{a}", "{\"a\":\"\xdcuuuu0\"}")
	f.Fuzz(func(t *testing.T, text, body string) {
		tpl, err := ParseTemplate(text)
		if err != nil || jsonscan.Check([]byte(body)) != nil { // the ingress accepts no such body
			return
		}
		got, missing := tpl.Subject("w", []byte(body))
		if (got == "") != (missing != "") || len(got) > MaxSubject || strings.ContainsAny(got, " \n\x00") {
			t.Errorf("%q, %q", got, missing)
		}
	})
}

// TestTitlesOfSamples: a list can name an issue or a pull request as people do.
func TestTitlesOfSamples(t *testing.T) {
	for _, want := range []struct{ provider, event, title string }{
		{"azure_devops", "work_item", "Captures fail for split shipments"},
		{"azure_devops", "pull_request", "Retry card captures once"},
		{"azure_devops", "push", ""},
		{"github", "issue_labeled", "Captures fail for split shipments"},
		{"github", "pull_request_opened", "Retry card captures once"},
		{"github", "push", ""},
		{"gitlab", "merge_request", "Retry card captures once"},
		{"jira", "issue_created", "Captures fail for split shipments"},
		{"linear", "issue_created", "Captures fail for split shipments"},
		{"linear", "comment_created", "Captures fail for split shipments"},
		{"slack", "message_posted", ""},
	} {
		for _, s := range Senders() {
			if s.Provider == want.provider {
				if got := s.TitleOf(sample(t, s, want.event)); got != want.title {
					t.Errorf("%s %s is about %q, not %q", want.provider, want.event, got, want.title)
				}
			}
		}
	}
}

// TestRepositories: the repository of a subject, whatever of it the subject is.
func TestRepositories(t *testing.T) {
	for subject, want := range map[string]string{
		"github:acme/app#12": "github:acme/app", "github:acme/app@77b20b8d": "github:acme/app", "github:acme/app/heads/a#b": "github:acme/app", "gitlab:gitlab.example.com/acme/app!4": "gitlab:gitlab.example.com/acme/app",
		"gitlab:gitlab.example.com/acme/app/tags/v1": "gitlab:gitlab.example.com/acme/app", "azure_devops:Acme/payments!41": "azure_devops:Acme/payments", "jira:PAY-77": "", "internal-ci:payments/a41c9e2": "", "": "", "github:": "",
	} {
		if got := RepositoryOf(subject); got != want {
			t.Errorf("%q is in %q, not %q", subject, got, want)
		}
	}
}
