package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/store"
)

// TestAskFilter: a test asks the API of its own webhook alone, for callers who may operate, with
// the managed secret; the verdict and what was asked are shown and in the audit log.
func TestAskFilter(t *testing.T) {
	const apiToken = "a-token-that-nobody-may-see"
	var asked, wrong atomic.Int64
	sender := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/api/repos/acme/api/pulls/7/files" || r.Header.Get("Authorization") != "Bearer "+apiToken {
			wrong.Add(1)
		}
		fmt.Fprint(w, `[{"filename":"docs/a.md"}]`)
	}))
	t.Cleanup(sender.Close)
	signedBy := "authMode: signature\nsignatureScheme: github\nsecretName: S\n"
	f := newFixtureWith(t, options{secrets: map[string]string{"API_TOKEN": apiToken}, files: fstest.MapFS{
		"webhooks/github.yaml":  {Data: []byte(signedBy + "apiSecretName: API_TOKEN\napiURL: " + sender.URL + "/api\n")},
		"webhooks/mute.yaml":    {Data: []byte(signedBy)},
		"automations/docs.md":   {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {paths: [docs/**]}}\n---\nDo it.\n")},
		"automations/source.md": {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {paths: ['*.go']}}\n---\nDo it.\n")},
	}})
	admin, viewer, operator := f.key("admin", store.ScopeManage), f.key("viewer", store.ScopeRead), f.key("operator", store.ScopeOperate)
	const payload = `{"action":"opened","api_url":"https://evil.example.com","repository":{"url":"https://evil.example.com","full_name":"acme/api"},"pull_request":{"number":7}}`
	request := func(automation, more string) string {
		return `{"factory":"default","automation":"` + automation + `","headers":{"X-GitHub-Event":"pull_request"},"payload":` + payload + more + `}`
	}
	const path = "/api/v1/filters/"
	is := func(got answer, status int, wants ...string) {
		t.Helper()
		text := string(got.body)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		if got.status != status || strings.Contains(text, apiToken) {
			t.Errorf("%d %s", got.status, text)
		}
	}
	is(f.do("POST", path+"test", viewer, request("docs", "")), 200, `"Not known"`, `"asks":"GitHub"`)
	is(f.do("POST", path+"ask", viewer, request("docs", "")), 403)
	is(f.do("POST", path+"ask", operator, request("docs", `,"webhook":"mute"`)), 400, "webhook mute has no apiSecretName")
	is(f.do("POST", path+"ask", operator, `{"filter":{"a":[1]},"payload":{"a":1}}`), 400, "name an automation")
	if asked.Load() != 0 {
		t.Errorf("%d questions without permission", asked.Load())
	}
	is(f.do("POST", path+"ask", operator, request("docs", "")), 200, `"Would trigger"`, "GitHub's API was asked for the pull request files of acme/api 7")
	is(f.do("POST", path+"ask", operator, request("source", `,"webhook":"github"`)), 200, `"Would not trigger"`, "docs/a.md")
	is(f.get("/api/v1/audit", admin), 200, "filter.ask", "the pull request files of acme/api 7", "operator")

	form := url.Values{"automation": {"default/docs"}, "payload": {payload}, "headers": {"X-GitHub-Event: pull_request"}}.Encode()
	page := func(key, path string) answer {
		return f.do("POST", path, "", form, "Cookie", f.signIn(f.link(key)), "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	}
	const button = "<button>Ask GitHub</button>"
	if got := page(viewer, "/automations/test"); strings.Contains(string(got.body), button) || !strings.Contains(string(got.body), "Only GitHub knows") {
		t.Errorf("a viewer's page: %s", got.body)
	}
	before := asked.Load()
	if got := page(viewer, "/automations/test/ask"); got.status != 403 || asked.Load() != before {
		t.Errorf("a viewer asks: %d", got.status)
	}
	is(page(operator, "/automations/test"), 200, button, "Not known")
	is(page(operator, "/automations/test/ask"), 200, "Would trigger", "was asked for the pull request files")

	for i := 0; ; i++ { // the rate
		got := f.do("POST", path+"ask", operator, request("docs", ""))
		if got.status == 429 {
			is(got, 429, "try again in")
			if got.header.Get("Retry-After") == "" || asked.Load() != 30 {
				t.Errorf("%v after %d questions", got.header, asked.Load())
			}
			break
		}
		if i > 40 {
			t.Fatal("there is no limit")
		}
	}
	if wrong.Load() != 0 {
		t.Errorf("%d questions elsewhere, or without the secret", wrong.Load())
	}
}

// TestMetricsParameters: the published parameters of a factory's figures act, or are refused.
func TestMetricsParameters(t *testing.T) {
	f := newFixture(t)
	key := f.key("reader", store.ScopeRead)
	if status, body, _ := f.raw(post(ingress+f.uids()["hook"], `{"n":1}`, auth)); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	for query, want := range map[string]string{
		"start_date=" + day(1):                                                `"step":"hour"`,
		"start_date=" + day(2) + "&group_by_period=day":                       `"step":"day"`,
		"start_date=" + day(3) + "&end_date=" + day(2):                        `"webhooks":[]`,
		"start_date=" + day(1) + "&end_date=" + day(0):                        `"webhook":"hook","uid"`,
		"start_date=" + time.Now().UTC().Add(-time.Hour).Format(time.RFC3339): `"factory_uid":"default","run_count":0`,
		"start_date=yesterday":                                                "start_date is a date such as",
		"start_date=" + day(40):                                               "of the last 30 days",
		"start_date=" + day(1) + "&end_date=" + day(5):                        "before the end",
		"group_by_period=week":                                                "group_by_period is day, or hour",
		"start_date=" + day(20) + "&group_by_period=hour":                     "for at most 7 days",
	} {
		got := f.get("/api/v1/factory/default/metrics?wait=true&"+query, key)
		if failed := got.status == 400; !strings.Contains(string(got.body), want) || failed == strings.HasPrefix(want, `"`) {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}
