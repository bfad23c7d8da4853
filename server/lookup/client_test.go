package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/factory/native"
	"triphammer/server/secret"
)

const token = "a-token-that-nobody-may-see"

// TestAsks: whatever the table of events says must be asked for, can be; and nothing else is.
func TestAsks(t *testing.T) {
	wanted := make(map[string]bool)
	for _, s := range native.Senders() {
		for _, e := range s.Events {
			if e.By != nil {
				for _, ask := range e.By.Asks {
					wanted[s.Provider+" "+ask.Name] = true
				}
			}
			for _, k := range e.Keys {
				if k.Ask != nil {
					wanted[s.Provider+" "+k.Ask.Name] = true
				}
				if k.Names != nil && k.Names.Ask != nil {
					wanted[s.Provider+" "+k.Names.Ask.Name] = true
				}
			}
		}
	}
	for name := range wanted {
		if asks[name] == nil {
			t.Errorf("nobody can ask %q", name)
		}
	}
	for name := range asks {
		if !wanted[name] {
			t.Errorf("no event asks %q", name)
		}
	}
}

// TestAsk: each question is asked where and as the sender documents it, and its answer read.
// The answers have the documented shapes: https://docs.github.com/rest/pulls/pulls,
// https://docs.slack.dev/reference/methods, https://linear.app/developers/graphql and
// https://developer.atlassian.com/cloud/jira/platform/rest/v2/api-group-issues.
func TestAsk(t *testing.T) {
	var page1 strings.Builder
	for i := range pageSize {
		fmt.Fprintf(&page1, `,{"filename":"a/%d"}`, i)
	}
	for _, c := range []askRow{
		{
			"github pull_request_files acme/api 7",
			map[string]string{
				"GET /repos/acme/api/pulls/7/files?per_page=100&page=1": "[" + page1.String()[1:] + "]",
				"GET /repos/acme/api/pulls/7/files?per_page=100&page=2": `[{"filename":"new","previous_filename":"old","status":"renamed"}]`,
			},
			nil, "Bearer " + token, // 102 values: see below
		},
		{
			"github pull_request_labels acme/api 7,8",
			map[string]string{
				"GET /repos/acme/api/pulls/7": `{"number":7,"labels":[{"name":"bug"},{"name":"p1"}],"user":{"login":"ada"}}`,
				"GET /repos/acme/api/pulls/8": `{"number":8,"labels":[],"user":{"login":"grace"}}`,
			},
			[]string{"bug", "p1"},
			"Bearer " + token,
		},
		{
			"github pull_request_authors acme/api 7,8",
			map[string]string{
				"GET /repos/acme/api/pulls/7": `{"user":{"login":"ada"}}`, "GET /repos/acme/api/pulls/8": `{"user":{"login":"grace"}}`,
			},
			[]string{"ada", "grace"},
			"Bearer " + token,
		},
		{
			"slack channel_names C024BE91L",
			map[string]string{"GET /conversations.info?channel=C024BE91L": `{"ok":true,"channel":{"id":"C024BE91L","name":"deploys","is_private":false}}`},
			[]string{"deploys"},
			"Bearer " + token,
		},
		{
			"slack user_names U1",
			map[string]string{"GET /users.info?user=U1": `{"ok":true,"user":{"id":"U1","name":"ada","profile":{"display_name":"Ada L","real_name":"Ada Lovelace"}}}`},
			[]string{"ada", "Ada L", "Ada Lovelace"},
			"Bearer " + token,
		},
		{
			"slack message_text C1 1700000000.000100",
			map[string]string{
				"GET /conversations.history?channel=C1&inclusive=true&latest=1700000000.000100&limit=1&oldest=1700000000.000100":                       `{"ok":true,"messages":[]}`,
				"GET /conversations.replies?channel=C1&inclusive=true&latest=1700000000.000100&limit=10&oldest=1700000000.000100&ts=1700000000.000100": `{"ok":true,"messages":[{"ts":"1699.1","text":"the thread"},{"ts":"1700000000.000100","text":"deploy failed"}]}`,
			},
			[]string{"deploy failed"},
			"Bearer " + token,
		},
		{
			"jira issue_labels 10002",
			map[string]string{"GET /rest/api/2/issue/10002?fields=labels": `{"id":"10002","key":"PAY-1","fields":{"labels":["bug","Ops"]}}`},
			[]string{"bug", "Ops"},
			"Bearer " + token,
		},
		{
			"linear issue_labels i1",
			map[string]string{"POST /graphql": `{"data":{"issue":{"project":null,"state":{"id":"s1","name":"Todo"},"labels":{"nodes":[{"name":"Bug"},{"name":"P1"}]}}}}`},
			[]string{"Bug", "P1"},
			"Bearer " + token,
		},
		personRow("sender_permission acme/api ada 1001", "/repos/acme/api/collaborators/ada/permission", `{"permission":"admin","role_name":"admin","user":{"login":"ada","id":1001}}`, "owner", "write"),
		personRow("sender_permission acme/api ada 1001", "/repos/acme/api/collaborators/ada/permission", `{"permission":"write","role_name":"maintain","user":{"id":1001}}`, "write"),
		personRow("sender_permission acme/api ada 1001", "/repos/acme/api/collaborators/ada/permission", `{"permission":"read","role_name":"triage","user":{"id":1001}}`, "read"),
		personRow("sender_permission acme/api ada 1001", "/repos/acme/api/collaborators/ada/permission", `{"permission":"none","user":{"id":1001}}`, "none"),
		personRow("sender_membership acme ada 1001", "/orgs/acme/memberships/ada", `{"state":"active","role":"member","user":{"id":1001}}`, "member"),
		personRow("sender_membership acme ada 1001", "/orgs/acme/memberships/ada", `{"state":"pending","role":"admin","user":{"id":1001}}`, "none"),
		levelRow(5, "none"), levelRow(10, "member"), levelRow(20, "member"), levelRow(30, "member", "write"), levelRow(40, "member", "write"), levelRow(50, "member", "write", "owner"),
		{"gitlab sender_access 15 7", map[string]string{"GET /projects/15/members/all/7": `{"id":7,"state":"blocked","access_level":50}`}, []string{"none"}, "Bearer " + token},
		{"linear issue_project i1", map[string]string{"POST /graphql": `{"data":{"issue":{"project":null,"state":{"id":"s1"},"labels":{"nodes":[]}}}}`}, nil, "Bearer " + token},
		{"linear issue_state i1", map[string]string{"POST /graphql": `{"data":{"issue":{"state":{"id":"s1","name":"Todo"},"labels":{"nodes":[]}}}}`}, []string{"s1"}, "Bearer " + token},
		{"linear issue_state_name i1", map[string]string{"POST /graphql": `{"data":{"issue":{"state":{"id":"s1","name":"Todo"},"labels":{"nodes":[]}}}}`}, []string{"Todo"}, "Bearer " + token},
		{
			"linear comment_mentions c1",
			map[string]string{"POST /graphql": `{"data":{"comment":{"bodyData":"{\"type\":\"doc\",\"content\":[{\"type\":\"suggestion_userMentions\",\"attrs\":{\"id\":\"u1\",\"label\":\"ada\"}}]}"}}}`},
			[]string{"u1"},
			"Bearer " + token,
		},
	} {
		t.Run(c.question, func(t *testing.T) {
			asked := make(map[string]bool)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				what := r.Method + " " + r.URL.RequestURI()
				answer, known := c.answers[what]
				if !known {
					t.Errorf("it asked %s", what)
				}
				if got := r.Header.Get("Authorization"); got != c.auth {
					t.Errorf("authorization %q", got)
				}
				if body, _ := io.ReadAll(r.Body); r.Method == http.MethodPost && !strings.Contains(string(body), `"variables":{"id":"`) {
					t.Errorf("it posted %s", body)
				}
				asked[what] = true
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			got, err := NewClient(time.Now).Ask(t.Context(), API{URL: server.URL, Secret: secret.New(token)}, question(c.question))
			if err != nil || len(asked) != len(c.answers) {
				t.Fatalf("%v, asked %v", err, asked)
			}
			if strings.HasPrefix(c.question, "github pull_request_files") {
				if len(got) != pageSize+2 || !slices.Equal(got[pageSize:], []string{"new", "old"}) {
					t.Errorf("got %d: %v", len(got), got)
				}
			} else if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

type askRow = struct {
	question string // provider, name, arguments
	answers  map[string]string
	want     []string
	auth     string
}

// personRow is a question about a person to GitHub.
func personRow(question, path, answer string, want ...string) askRow {
	return askRow{"github " + question, map[string]string{"GET " + path: answer}, want, "Bearer " + token}
}

// levelRow is a question about a person with a level of access at GitLab.
func levelRow(level int, want ...string) askRow {
	return askRow{"gitlab sender_access 15 7", map[string]string{"GET /projects/15/members/all/7": fmt.Sprintf(`{"id":7,"username":"ada","state":"active","access_level":%d}`, level)}, want, "Bearer " + token}
}

// TestNoMember: whom the API does not know as a member has no role (SPEC 24.1).
func TestNoMember(t *testing.T) {
	server := httptest.NewServer(code(404, nil))
	defer server.Close()
	for _, q := range []string{"github sender_membership acme ada 1001", "gitlab sender_access 15 7"} {
		got, err := NewClient(time.Now).Ask(t.Context(), API{URL: server.URL, Secret: secret.New(token)}, question(q))
		if err != nil || !slices.Equal(got, []string{native.NoRole}) {
			t.Errorf("%s: %q, %v", q, got, err)
		}
	}
}

func question(text string) native.Question {
	parts := strings.SplitN(text, " ", 3)
	return native.Question{Provider: parts[0], Name: parts[1], Args: parts[2]}
}

// TestRefusals: what is no answer is told in words that hold nothing of the credential or of
// the answer, and is asked again only if that can help.
func TestRefusals(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name, question string
		answer         http.HandlerFunc
		text           string
		final          bool
		after          time.Duration
	}{
		{"not there", "github pull_request_files acme/api 7", code(404, nil), "answered 404", true, 0},
		{"wrong token", "github pull_request_files acme/api 7", code(401, nil), "does not take the secret", false, 0},
		{"a server error", "github pull_request_files acme/api 7", code(502, nil), "answered 502", false, 0},
		{"too many", "github pull_request_files acme/api 7", code(429, http.Header{"Retry-After": {"30"}}), "too many requests", false, 30 * time.Second},
		{"the hour is used up", "github pull_request_labels acme/api 7", code(403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1700000600"}}), "too many requests", false, 10 * time.Minute},
		{"a silly wait", "github pull_request_labels acme/api 7", code(429, http.Header{"Retry-After": {"999999999"}}), "too many requests", false, maxRetryTime},
		{"a redirect", "github pull_request_labels acme/api 7", code(302, http.Header{"Location": {"https://elsewhere.example/"}}), "not followed", true, 0},
		{"no JSON", "github pull_request_labels acme/api 7", text("<html>" + token), "other than the JSON", false, 0},
		{"another JSON", "github pull_request_files acme/api 7", text(`{"message":"x"}`), "other than the JSON", false, 0},
		{"null", "github pull_request_files acme/api 7", text(`null`), "other than the JSON", false, 0},
		{"a file without a name", "github pull_request_files acme/api 7", text(`[{}]`), "other than the JSON", false, 0},
		{"more files than are listed", "github pull_request_files acme/api 7", text("[" + strings.Repeat(`{"filename":"a"},`, pageSize-1) + `{"filename":"a"}]`), "lists at most 3000 files", true, 0},
		{"no labels", "github pull_request_labels acme/api 7", text(`{}`), "other than the JSON", false, 0},
		{"a label without a name", "github pull_request_labels acme/api 7", text(`{"labels":[{}]}`), "other than the JSON", false, 0},
		{"no author", "github pull_request_authors acme/api 7", text(`null`), "other than the JSON", false, 0},
		{"an empty channel", "slack channel_names C1", text(`{"ok":true,"channel":{}}`), "other than the JSON", false, 0},
		{"an empty user", "slack user_names U1", text(`{"ok":true}`), "other than the JSON", false, 0},
		{"an empty issue", "linear issue_labels i1", text(`{"data":{"issue":{}}}`), "other than the JSON", false, 0},
		{"an empty comment", "linear comment_mentions c1", text(`{"data":{"comment":{}}}`), "other than the JSON", false, 0},
		{"no fields", "jira issue_labels 1", text(`{"fields":null}`), "other than the JSON", false, 0},
		{"no channel", "slack channel_names C1", text(`{"ok":false,"error":"channel_not_found"}`), "answered channel_not_found", true, 0},
		{"a stranger's words", "slack channel_names C1", text(`{"ok":false,"error":"<b>` + token + `"}`), "answered an error", false, 0},
		{"no message", "slack message_text C1 1.2", text(`{"ok":true,"messages":[]}`), "no such message", true, 0},
		{"an error of GraphQL", "linear issue_labels i1", text(`{"errors":[{"message":"` + token + `"}]}`), "error of GraphQL", false, 0},
		{"no issue", "linear issue_labels i1", text(`{"data":{"issue":null}}`), "no such issue", true, 0},
		{"no comment", "linear comment_mentions c1", text(`{"data":{"comment":null}}`), "no such comment", true, 0},
		{"a repository that leads elsewhere", "github pull_request_files ../../user 7", nil, "does not name what to ask for", true, 0},
		{"a number that is none", "github pull_request_files acme/api 7/../8", nil, "does not name what to ask for", true, 0},
		{"a login that somebody else has now", "github sender_permission acme/api ada 1001", text(`{"permission":"admin","user":{"login":"ada","id":66}}`), "another person's", true, 0},
		{"a member that somebody else is now", "github sender_membership acme ada 1001", text(`{"state":"active","user":{"id":66}}`), "another person's", true, 0},
		{"no permission", "github sender_permission acme/api ada 1001", text(`{"user":{"id":1001}}`), "other than the JSON", false, 0},
		{"an unknown permission", "github sender_permission acme/api ada 1001", text(`{"permission":"sudo","user":{"id":1001}}`), "other than the JSON", false, 0},
		{"nobody's permission", "github sender_permission acme/api ada 1001", text(`{"permission":"admin"}`), "other than the JSON", false, 0},
		{"a repository that is hidden", "github sender_permission acme/api ada 1001", code(404, nil), "may not read it", true, 0},
		{"a secret that may not ask for members", "github sender_membership acme ada 1001", code(403, nil), "may not read it", false, 0},
		{"a login that leads elsewhere", "github sender_permission acme/api ../x 1001", nil, "does not name what to ask for", true, 0},
		{"an organization that leads elsewhere", "github sender_membership .. ada 1001", nil, "does not name what to ask for", true, 0},
		{"a project that is none", "gitlab sender_access 15/../16 7", nil, "does not name what to ask for", true, 0},
		{"another user", "gitlab sender_access 15 7", text(`{"id":8,"state":"active","access_level":50}`), "other than the JSON", false, 0},
		{"an unknown question", "github nothing x", nil, "cannot ask", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.answer == nil {
					t.Errorf("it asked %s", r.URL)
					return
				}
				c.answer(w, r)
			}))
			defer server.Close()
			client := NewClient(func() time.Time { return now })
			values, err := client.Ask(t.Context(), API{URL: server.URL, Secret: secret.New(token)}, question(c.question))
			f := (*failure)(nil)
			if !errors.As(err, &f) {
				t.Fatalf("%q, %v", values, err)
			}
			if !strings.Contains(f.text, c.text) || f.final != c.final || f.after != c.after {
				t.Errorf("%q, final %v, after %v", f.text, f.final, f.after)
			}
			if strings.Contains(fmt.Sprint(err), token) {
				t.Errorf("the secret is in %v", err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		_, err := NewClient(time.Now).Ask(t.Context(), API{URL: server.URL, Secret: secret.New(token)}, question("slack user_names U1"))
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%v", err)
		}
	})
	t.Run("credentials of the machine", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := NewClient(time.Now).Ask(ctx, API{URL: "http://169.254.169.254", Secret: secret.New(token)}, question("slack user_names U1"))
		if err == nil || !strings.Contains(err.Error(), "link-local") {
			t.Errorf("%v", err)
		}
	})
}

func code(status int, header http.Header) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
	}
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// TestNamesAreRemembered: a name is asked for once in ten minutes, for each credential.
func TestNamesAreRemembered(t *testing.T) {
	asked, now := 0, time.Unix(1_700_000_000, 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"ok":true,"channel":{"id":"C1","name":"deploys"}}`)
	}))
	defer server.Close()
	client := NewClient(func() time.Time { return now })
	for _, c := range []struct {
		token string
		wait  time.Duration
		want  int
	}{{"a", 0, 1}, {"a", nameTime - time.Second, 1}, {"b", 0, 2}, {"a", time.Second, 3}} {
		now = now.Add(c.wait)
		names, err := client.Ask(t.Context(), API{URL: server.URL, Secret: secret.New(c.token)}, question("slack channel_names C1"))
		if err != nil || !slices.Equal(names, []string{"deploys"}) || asked != c.want {
			t.Errorf("%q, %v after %d requests, want %d", names, err, asked, c.want)
		}
	}
}
