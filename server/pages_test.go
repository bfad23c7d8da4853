package server

import (
	"cmp"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

// linkFor is a link as the server's own user makes it.
func linkFor(person, role string) store.LoginLink {
	return store.LoginLink{Person: person, Role: role, Via: "link of local root", Life: sessionLife, Idle: sessionIdle}
}

// TestSessionIsAudited: signing in and out are in the audit log (SPEC 10.4),
// under the name of who asked for the link.
func TestSessionIsAudited(t *testing.T) {
	f := newFixture(t)
	link := field(t, f.do("POST", "/api/v1/auth/links", f.key("k", "manage"), ""), "url")
	cookie := f.signIn(link)
	for range 2 { // the second ends nothing
		if status, answer, _ := f.raw(post("/auth/logout", "", "Cookie: "+cookie)); status != http.StatusOK {
			t.Fatalf("sign out: %d\n%s", status, answer)
		}
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	for _, e := range entries {
		log = append(log, e.Action+" "+e.Object+" by "+e.Actor+" from "+e.Origin)
	}
	want := "auth.logout ada by page ada from 127.0.0.1\nauth.login ada by page ada from 127.0.0.1\nauth.link ada by key k (ada) from 127.0.0.1"
	if got := strings.Join(log, "\n"); got != want {
		t.Errorf("audit log:\n%s\nwant:\n%s", got, want)
	}
}

// TestSignInPage: who has no session is told how to get one, and no page
// without one has anything but its policy's parts.
func TestSignInPage(t *testing.T) {
	f := newFixture(t)
	for _, cookie := range []string{"", "triphammer_session=", "triphammer_session=ths_nonsense"} {
		status, answer, _ := f.raw("GET / HTTP/1.1\r\nHost: x\r\nCookie: " + cookie + "\r\n\r\n")
		if status != http.StatusUnauthorized || !strings.Contains(answer, "triphammer auth login") {
			t.Errorf("%q: %d\n%s", cookie, status, answer)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": contentPolicy,
		} {
			if got := headerOf(answer, name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// TestSecureCookie: behind https the session's cookie never travels without it, and no
// other host can set it.
func TestSecureCookie(t *testing.T) {
	f := newFixture(t)
	for base, name := range map[string]string{
		"https://hammer.example.com": "__Host-triphammer_session", "https://example.com/hammer": "__Secure-triphammer_session",
		"http://localhost": "triphammer_session",
	} {
		f.cfg.BaseURL = base
		if err := f.setBase(); err != nil {
			t.Fatal(err)
		}
		token, err := f.store.Sessions.CreateLoginLink(t.Context(), linkFor("ada", "manager"), linkLife)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/auth/login?token="+token, nil))
		cookies := w.Result().Cookies()
		if len(cookies) != 1 || cookies[0].Secure != strings.HasPrefix(base, "https") || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Name != name || cookies[0].Path != cmp.Or(f.base, "/") {
			t.Errorf("%s: %v", base, cookies)
		}
		if at := w.Header().Get("Location"); at != f.base+"/" {
			t.Errorf("%s: to %s", base, at)
		}
	}
}

// TestApplyFromPage: the button applies the head anew (SPEC 4.4), for who is
// signed in and came from these pages alone (SPEC 10.3).
func TestApplyFromPage(t *testing.T) {
	f := newFixture(t)
	token, err := f.store.Sessions.CreateLoginLink(t.Context(), linkFor("ada", "manager"), linkLife)
	if err != nil {
		t.Fatal(err)
	}
	cookie := f.signIn("/auth/login?token=" + token)
	viewer, err := f.store.Sessions.CreateLoginLink(t.Context(), linkFor("bob", "viewer"), linkLife)
	if err != nil {
		t.Fatal(err)
	}
	before := f.applier.State().LastApply.ID
	for _, c := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/factories/default/sync", nil, http.StatusUnauthorized},
		{"/factories/default/sync", []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"/factories/default/sync", []string{"Cookie", f.signIn("/auth/login?token=" + viewer)}, http.StatusForbidden},
		{"/factories/none/sync", []string{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, http.StatusNotFound},
	} {
		if got := f.do(http.MethodPost, c.path, "", "", c.headers...); got.status != c.status {
			t.Errorf("%s %v: %d", c.path, c.headers, got.status)
		}
	}
	if now := f.applier.State().LastApply.ID; now != before {
		t.Error("who may not has applied")
	}
	got := f.do(http.MethodPost, "/factories/default/sync", "", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	last := f.applier.State().LastApply
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/definition?factory=default" || last.ID == before || last.Trigger != "dashboard" {
		t.Errorf("%d %v, apply %s by %s", got.status, got.header, last.ID, last.Trigger)
	}
}

// TestAutomationsPage: the list says what nothing starts, and Test filter both of
// its checks, of a stored delivery and of a pasted payload (SPEC C6.3).
func TestAutomationsPage(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"automations/gone.md": file("---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [gone]}}\n---\nDo it.\n"),
		"automations/off.md":  file("---\nenvironmentId: e\nenabled: false\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook]}}\n---\nDo it.\n"),
	}})
	id := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`), "delivery_id")
	unmatched := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":2}`), "delivery_id")
	token, err := f.store.Sessions.CreateLoginLink(t.Context(), linkFor("ada", "manager"), linkLife)
	if err != nil {
		t.Fatal(err)
	}
	cookie := f.signIn("/auth/login?token=" + token)
	page := func(method, path, form string, status int, wants ...string) {
		t.Helper()
		got := f.do(method, path, "", form, "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
		text := strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.ReplaceAll(string(got.body), "<wbr>", ""), " "))), " ")
		if got.status != status {
			t.Errorf("%s %s: %d", method, path, got.status)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s %s: no %q in\n%s", method, path, form, want, text)
			}
		}
	}
	page("GET", "/automations", "", 200, "Enabled a webhook hook", "Dormant gone webhook gone (there is no webhook gone)", "Disabled off webhook hook", "Dormant other")
	page("GET", "/deliveries", "", 200, "2 in 24 hours: 1 started a run, 1 matched nothing", "Nothing matched", "a waits", "All 2")
	page("GET", "/deliveries?stopped=matched&since=1h&text=%7B&webhook=gone", "", 200, "No delivery fits these filters", "triphammer deliveries list --webhook gone --stopped matched --text '{' --since 1h")
	page("GET", "/deliveries?event=push&person=ada&automation=a&subject=b&outcome=accepted", "", 200, "No delivery fits these filters", "--outcome accepted --event push --person ada --automation a --subject b")
	page("GET", "/deliveries?outcome=x", "", 400)
	page("GET", "/", "", 200, "2 deliveries in 24 hours", "Nothing needs you.", "2 received", "1 wanted by nothing", "At work", "Newest deliveries")
	page("GET", "/deliveries/"+unmatched, "", 200, "a came closest: it wants 1 in payload.n , and 2 came", "Why nothing ran a would not trigger Conditions that hold: 0 of 1", "a wants 1", "off would not trigger: it is disabled; if enabled, it would.", "Replay…")
	page("GET", "/deliveries/"+id, "", 200, "Why it ran a wanted it", "What it started", "holds")
	page("GET", "/deliveries/dlv_0000000000001", "", 404)
	page("GET", "/automations/test?delivery="+id, "", 200, "Against a stored delivery")
	page("GET", "/automations/test?make=filter&delivery="+unmatched, "", 200, "Would trigger", "For the front matter", "triggers:")
	const test = "/automations/test"
	page("POST", test, "automation=default/a&delivery="+id, 200, "Would trigger", `Webhook a trigger selects the webhook "hook"`, "payload.n is 1", "Against the last 2 deliveries", "1 would start it")
	page("POST", test, "automation=default/a&payload="+url.QueryEscape(`{"n": 2}`), 200, "Would not trigger", "Webhook no webhook was named: from hook it would not trigger", "payload.n is the first that fails", "payload.n wanted 1 came 2", `{"n": 2}`)
	page("POST", test, "automation=default/off&payload=%7B%7D&webhook=hook", 200, "Would not trigger", `Webhook a trigger selects the webhook "hook", but off is disabled`, "Payload there is no payload filter")
	page("POST", test, "automation=default/a", 200, "Against the last 2 deliveries", "1 would start it")
	page("POST", test, "filter="+url.QueryEscape(`{"n":[2]}`)+"&delivery="+unmatched, 200, "Would trigger", "1 would start it", "Nearest to this delivery: a (0 of 1 conditions hold)")
	page("POST", test, "filter=%7B", 400, "the filter is no JSON")
	page("POST", test, "filter="+url.QueryEscape(`{"n":{"$x":1}}`)+"&payload=1", 400, "filter")
	page("POST", test, "payload=1", 400, "choose an automation")
	page("POST", test, "automation=default/a&delivery=dlv_0000000000001", 400, "not found")
	page("POST", test, "automation=default/none&payload=1", 400, `no automation "none" is live`)
	page("POST", test, "automation=default/a&payload=%7B", 400, "payload")
	page("POST", test, "payload=%zz", 400, "The form cannot be read")
	if got := f.do("POST", test, "", "automation=default/a&payload=1", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden {
		t.Errorf("from another site: %d", got.status)
	}
}
