package server

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"triphammer/server/access"
	"triphammer/server/dashboard"
)

// as signs somebody in with a role.
func (f *fixture) as(name, role string) (cookie string) {
	f.t.Helper()
	token, err := f.store.Sessions.CreateLoginLink(f.t.Context(), linkFor(name, role), linkLife)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.signIn("/auth/login?token=" + token)
}

// TestPeoplePage: keys and links are made and shown once, and keys and sessions end by their
// buttons; the audit log can be filtered.
func TestPeoplePage(t *testing.T) {
	f := newFixture(t)
	boss, bob := f.as("boss", "manager"), f.as("bob <b>\u202e", "viewer")
	visit := func(method, path, body string) (int, string) {
		t.Helper()
		got := f.do(method, path, "", body, "Cookie", boss, "Sec-Fetch-Site", "same-origin")
		return got.status, html.UnescapeString(string(got.body))
	}
	status, page := visit("POST", "/people/keys", "name=ci&scope=read&kind=personal&owner=cleo&expires=720h")
	key := regexp.MustCompile(`thk_\w+`).FindString(page)
	if status != 200 || key == "" || f.get("/api/v1/status", key).status != 200 || f.get("/api/v1/keys", key).status != 403 {
		t.Errorf("a new key: %d\n%s", status, page)
	}
	if _, page := visit("GET", "/people", ""); strings.Contains(page, key) || !strings.Contains(page, "cleo") || strings.Contains(page, "<b>\u202e") {
		t.Errorf("the page:\n%s", page)
	}
	if status, page := visit("POST", "/people/keys", "name=ci&scope=read"); status != 422 || !strings.Contains(page, `a key named "ci" exists`) {
		t.Errorf("the name again: %d\n%s", status, page)
	}
	status, page = visit("POST", "/people/links", "name=dan&role=operator")
	link := regexp.MustCompile(`http\S+/auth/login\?token=thl_\w+`).FindString(page)
	if status != 200 || link == "" {
		t.Fatalf("a link: %d\n%s", status, page)
	}
	f.signIn(link)
	open := field(t, f.get("/api/v1/auth/sessions", f.key("admin", "manage")), "sessions", "0", "id")
	if status, page := visit("POST", "/people/sessions/"+open+"/end", ""); status != 303 {
		t.Errorf("ending a session: %d\n%s", status, page)
	}
	keys := f.get("/api/v1/keys", f.key("k", "manage"))
	id := ""
	for i := range 3 {
		if n := string(rune('0' + i)); field(t, keys, "keys", n, "name") == "ci" {
			id = field(t, keys, "keys", n, "id")
		}
	}
	if status, page := visit("POST", "/people/keys/"+id+"/revoke", ""); status != 303 || f.get("/api/v1/status", key).status != 401 {
		t.Errorf("revoking: %d\n%s", status, page)
	}
	for query, want := range map[string][2]string{ // what is shown, and what is not
		"":                           {"key.create", "\x00"},
		"action=key":                 {"key.revoke", "auth.link<"},
		"actor=BOSS&object=dan":      {"auth.link", "key.create"},
		"until=2020-01-01T00:00:00Z": {"Nothing fits these filters", "key.create"},
		"since=2020-01-01":           {"auth.session_end", "\x00"},
	} {
		if status, page := visit("GET", "/audit?"+query, ""); status != 200 || !strings.Contains(page, want[0]) || strings.Contains(page, want[1]) {
			t.Errorf("audit %s: %d\n%s", query, status, page)
		}
	}
	if status, _ := visit("GET", "/audit?since=yesterday", ""); status != 400 {
		t.Errorf("a bad filter: %d", status)
	}
	for _, path := range []string{"/people", "/audit"} {
		if got := f.do("GET", path, "", "", "Cookie", bob); got.status != 403 {
			t.Errorf("%s as a viewer: %d", path, got.status)
		}
	}
	if status, _ := visit("POST", "/people/sessions/end", ""); status != 303 || f.page(boss) != 401 || f.page(bob) != 401 {
		t.Errorf("signing everybody out: %d", status)
	}
}

// pageRoles is the least role for each page and each form that does not belong to everybody
// who may read. A route that is missing here is for viewers if it is a GET; any other one
// must be here.
var pageRoles = map[string]string{
	"GET /people": "manager", "GET /audit": "manager",
	"POST /theme": "viewer", "POST /columns": "viewer", "POST /automations/test": "viewer",
}

// leastRole derives the least role of a page from what it sends: the API decides by the scope
// that it documents.
func (f *fixture) leastRole(route string) string {
	if role, ok := pageRoles[route]; ok {
		return role
	}
	method, path, _ := strings.Cut(route, " ")
	for i := range dashboard.Routes {
		r := &dashboard.Routes[i]
		if r.Method != method || r.Path != path {
			continue
		}
		for _, role := range access.Roles {
			if (&access.Caller{Scopes: []string{access.ScopeOf(role)}}).May(r.Needs()) {
				return role
			}
		}
	}
	if method == http.MethodGet {
		return "viewer"
	}
	return ""
}

// TestEveryPageByRole: every page and every form, for every role (SPEC 10.3): who may not is refused, and
// so is another site, also for who may. Every answer forbids framing and other sites'
// scripts. A session that has ended is none.
func TestEveryPageByRole(t *testing.T) {
	f := newFixture(t)
	f.spec = nil
	cookies := map[string]string{"": "", "ended": f.as("gone", "manager")}
	for _, role := range access.Roles {
		cookies[role] = f.as(role, role)
	}
	all, err := f.store.Sessions.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Sessions.End(t.Context(), all[len(all)-1].ID); err != nil {
		t.Fatal(err)
	}
	rank := map[string]int{"": -1, "ended": -1, "viewer": 0, "operator": 1, "manager": 2}
	seen := 0
	for _, r := range f.engine.Routes() {
		if strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/webhooks/w/") || strings.HasPrefix(r.Path, "/git/") || strings.HasPrefix(r.Path, dashboard.AssetPath) ||
			strings.HasPrefix(r.Path, "/auth/") || strings.HasPrefix(r.Path, dashboard.LivePath) || r.Path == "/healthz" || r.Path == "/readyz" || r.Path == "/metrics" || r.Path == "/mcp" || r.Path == "/openapi.yaml" {
			continue
		}
		route := r.Method + " " + r.Path
		least := f.leastRole(route)
		if least == "" {
			t.Errorf("%s: nothing says who may", route)
			continue
		}
		seen++
		path := regexp.MustCompile(`[:*]\w+`).ReplaceAllString(r.Path, "none")
		for who, cookie := range cookies {
			if route == "POST /people/sessions/end" && rank[who] >= rank[least] {
				continue // it would end the others
			}
			got := f.do(r.Method, path, "", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
			switch {
			case rank[who] < 0 && got.status != http.StatusUnauthorized:
				t.Errorf("%s as %q: %d", route, who, got.status)
			case rank[who] >= 0 && (got.status == http.StatusForbidden) != (rank[who] < rank[least]):
				t.Errorf("%s as %q: %d, and it is for %s", route, who, got.status, least)
			case !strings.Contains(got.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || got.header.Get("X-Content-Type-Options") != "nosniff":
				t.Errorf("%s as %q: %v", route, who, got.header)
			}
		}
		if r.Method == http.MethodGet {
			continue
		}
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.test"}, {"Origin", "null"}} {
			got := f.do(r.Method, path, "", url.Values{"name": {"x"}}.Encode(), append(header, "Cookie", cookies["manager"])...)
			if got.status != http.StatusForbidden {
				t.Errorf("%s from another site (%v): %d", route, header, got.status)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d routes were seen", seen)
	}
}
