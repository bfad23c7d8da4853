package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSessionIsAudited: signing in and out are in the audit log (SPEC 10.4),
// under the name of who asked for the link.
func TestSessionIsAudited(t *testing.T) {
	f := newFixture(t)
	link := field(t, f.do("POST", "/api/v1/auth/links", f.key("k", "manage"), ""), "url")
	cookie := strings.SplitN(f.get(strings.TrimPrefix(link, f.url), "").header.Get("Set-Cookie"), ";", 2)[0]
	for range 2 { // the second ends nothing
		if status, answer, _ := f.raw(post("/auth/logout", "", "Cookie: "+cookie)); status != http.StatusOK {
			t.Fatalf("sign out: %d\n%s", status, answer)
		}
	}
	entries, err := f.store.AuditLog(t.Context(), "", 10)
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
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		} {
			if got := headerOf(answer, name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// TestSecureCookie: behind https the session's cookie never travels without it.
func TestSecureCookie(t *testing.T) {
	f := newFixture(t)
	for _, base := range []string{"https://hammer.example.com", "http://localhost"} {
		f.cfg.BaseURL = base
		token, err := f.store.CreateLoginLink(t.Context(), "ada", "", linkLife)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/auth/login?token="+token, nil))
		cookies := w.Result().Cookies()
		if len(cookies) != 1 || cookies[0].Secure != strings.HasPrefix(base, "https") || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode {
			t.Errorf("%s: %v", base, cookies)
		}
		if at := w.Header().Get("Location"); at != "/" {
			t.Errorf("%s: to %s", base, at)
		}
	}
}

// TestApplyFromPage: the button applies the head anew (SPEC 4.4), for who is
// signed in and came from these pages alone (SPEC 10.3).
func TestApplyFromPage(t *testing.T) {
	f := newFixture(t)
	token, err := f.store.CreateLoginLink(t.Context(), "ada", "", linkLife)
	if err != nil {
		t.Fatal(err)
	}
	signedIn := f.do(http.MethodGet, "/auth/login?token="+token, "", "")
	cookie, _, _ := strings.Cut(signedIn.header.Get("Set-Cookie"), ";")
	before := f.applier.State().LastApply.ID
	for _, c := range []struct {
		path    string
		headers []string
		status  int
	}{
		{"/factories/default/apply", nil, http.StatusUnauthorized},
		{"/factories/default/apply", []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"/factories/none/apply", []string{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, http.StatusNotFound},
	} {
		if got := f.do(http.MethodPost, c.path, "", "", c.headers...); got.status != c.status {
			t.Errorf("%s %v: %d", c.path, c.headers, got.status)
		}
	}
	if now := f.applier.State().LastApply.ID; now != before {
		t.Error("who may not has applied")
	}
	got := f.do(http.MethodPost, "/factories/default/apply", "", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	last := f.applier.State().LastApply
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/" || last.ID == before || last.Trigger != "dashboard" {
		t.Errorf("%d %v, apply %s by %s", got.status, got.header, last.ID, last.Trigger)
	}
	page := f.do(http.MethodGet, "/", "", "", "Cookie", cookie)
	if !strings.Contains(string(page.body), `action="/factories/default/apply"`) {
		t.Errorf("no button:\n%s", page.body)
	}
}
