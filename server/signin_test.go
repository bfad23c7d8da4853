package server

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/oidc"
	"triphammer/server/oidc/oidctest"
	"triphammer/server/store"
)

// wanderer is a person with one.
type wanderer struct {
	*http.Client
	t *testing.T
}

func newWanderer(t *testing.T) wanderer {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return wanderer{&http.Client{Jar: jar}, t}
}

// get follows redirects.
func (b wanderer) get(address string) (status int, at *url.URL, body string) {
	b.t.Helper()
	resp, err := b.Get(address)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL, string(text)
}

// callback goes to the provider, and returns the address at which the person comes back,
// without going there.
func (b wanderer) callback(from string) string {
	b.t.Helper()
	stopped := *b.Client
	stopped.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, oidcCallback) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := stopped.Get(from)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusFound {
		b.t.Fatalf("the provider answers %d", resp.StatusCode)
	}
	return resp.Header.Get("Location")
}

func withProvider(t *testing.T, rules ...string) (*fixture, *oidctest.Provider) {
	t.Helper()
	p := oidctest.Start(t)
	f := newFixtureWith(t, options{signIn: func(base string) *oidc.Provider {
		p.Redirect = CallbackURL(base)
		cfg := oidc.Config{
			Issuer: p.URL, ClientID: oidctest.ClientID, Secret: func() (string, error) { return oidctest.ClientSecret, nil },
			Redirect: p.Redirect, Scopes: []string{"openid", "email"}, GroupsClaim: "groups",
		}
		for _, text := range rules {
			r, err := oidc.ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Rules = append(cfg.Rules, r)
		}
		made, err := oidc.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}})
	return f, p
}

func verified(email string, groups ...string) func(map[string]any) {
	return func(claims map[string]any) {
		claims["email"], claims["email_verified"], claims["groups"] = email, true, groups
	}
}

// TestRolesByClaims: the highest role of the rules that hold, and nobody else gets in (SPEC
// 18.4).
func TestRolesByClaims(t *testing.T) {
	f, p := withProvider(t, "viewer=domain:example.com", "operator=group:platform", "manager=email:Ada@example.com", "viewer=subject:42")
	for _, c := range []struct {
		name   string
		claims func(map[string]any)
		person string
		role   string // empty: refused
	}{
		{"of the domain", verified("bob@example.com"), "bob@example.com", "viewer"},
		{"of the group too", verified("bob@example.com", "x", "platform"), "bob@example.com", "operator"},
		{"the address", verified("ADA@example.com"), "ada@example.com", "manager"},
		{"another domain", verified("bob@example.com.evil.test"), "bob@example.com.evil.test", ""},
		{"a domain in the name", verified("bob@example.com@evil.test"), "bob@example.com@evil.test", ""},
		{"a subdomain", verified("bob@sub.example.com"), "bob@sub.example.com", ""},
		{"not verified", func(c map[string]any) { c["email"] = "ada@example.com" }, "248289761001", ""},
		{"not verified, said so", func(c map[string]any) { c["email"], c["email_verified"] = "ada@example.com", false }, "248289761001", ""},
		{"not verified, of the group", func(c map[string]any) {
			c["email"], c["groups"], c["preferred_username"] = "ada@example.com", "platform", "ada@example.com"
		}, "ada@example.com (248289761001)", "operator"},
		{"a subject like an address", func(c map[string]any) { c["sub"], c["groups"] = "ada@example.com", "platform" }, "subject ada@example.com", "operator"},
		{"the subject", func(c map[string]any) { c["sub"] = "42" }, "42", "viewer"},
		{"a group like it", verified("x@evil.test", "platform2", "Platform"), "x@evil.test", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Say(oidctest.RS256, c.claims)
			b := newWanderer(t)
			status, at, body := b.get(f.url + "/auth/oidc?to=" + url.QueryEscape("/deliveries?outcome=accepted"))
			if c.role == "" {
				if status != http.StatusForbidden || !strings.Contains(body, "no role here") || !strings.Contains(body, c.person) {
					t.Errorf("%d at %s:\n%s", status, at, body)
				}
				entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 1})
				if err != nil || entries[0].Action != "auth.refused" || entries[0].Object != c.person || entries[0].Actor != "page "+c.person {
					t.Errorf("audit %+v %v", entries, err)
				}
				if status, _, _ := b.get(f.url + "/"); status != http.StatusUnauthorized {
					t.Errorf("a page: %d", status)
				}
				return
			}
			if status != http.StatusOK || at.RequestURI() != "/deliveries?outcome=accepted" {
				t.Errorf("%d at %s:\n%s", status, at, body)
			}
			open, err := f.store.Sessions.List(t.Context())
			if err != nil || open[0].Person != c.person || open[0].Role != c.role || "http://"+open[0].Via != p.URL {
				t.Errorf("session %+v %v", open[0], err)
			}
		})
	}
}

// TestForgedSignIns: tokens and answers that no careful client takes open nothing.
func TestForgedSignIns(t *testing.T) {
	f, p := withProvider(t, "manager=domain:example.com")
	with := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { verified("ada@example.com")(c); c[name] = value }
	}
	for name, c := range map[string]struct {
		signed string
		claims func(map[string]any)
	}{
		"another nonce":            {oidctest.RS256, with("nonce", "x")},
		"no nonce":                 {oidctest.RS256, with("nonce", nil)},
		"another audience":         {oidctest.RS256, with("aud", "other")},
		"two audiences, no azp":    {oidctest.RS256, with("aud", []string{"other", oidctest.ClientID})},
		"another client":           {oidctest.RS256, with("azp", "other")},
		"no client":                {oidctest.RS256, with("azp", "")},
		"another issuer":           {oidctest.RS256, with("iss", "https://evil.test")},
		"expired":                  {oidctest.RS256, with("exp", time.Now().Add(-time.Hour).Unix())},
		"nobody":                   {oidctest.RS256, with("sub", "")},
		"not signed":               {oidctest.None, verified("ada@example.com")},
		"signed by the public key": {oidctest.HS256, verified("ada@example.com")},
		"another key":              {oidctest.OtherKey, verified("ada@example.com")},
		"a hidden name":            {oidctest.RS256, verified("a\u202eda@example.com")},
	} {
		p.Say(c.signed, c.claims)
		before := p.Tokens()
		if status, at, body := newWanderer(t).get(f.url + "/auth/oidc"); status != http.StatusUnauthorized || !strings.Contains(body, "The sign-in failed") || p.Tokens() != before+1 {
			t.Errorf("%s: %d at %s, %d tokens\n%s", name, status, at, p.Tokens()-before, body)
		}
	}
	p.Say(oidctest.RS256, verified("ada@example.com"))
	refused := func(name string, b wanderer, address string) {
		t.Helper()
		if status, at, _ := b.get(address); status != http.StatusUnauthorized {
			t.Errorf("%s: %d at %s", name, status, at)
		}
	}
	ada, mallory := newWanderer(t), newWanderer(t)
	answer := mallory.callback(f.url + "/auth/oidc")
	refused("the answer to another browser", ada, answer)
	ada.callback(f.url + "/auth/oidc")
	refused("the answer to another browser that signs in too", ada, answer)
	if status, _, _ := mallory.get(answer); status != http.StatusOK {
		t.Errorf("the right browser: %d", status)
	}
	refused("the same answer again", mallory, answer)
	b := newWanderer(t)
	answer = b.callback(f.url + "/auth/oidc")
	flow, err := url.Parse(f.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	kept := b.Jar.Cookies(flow)
	if status, _, _ := b.get(answer); status != http.StatusOK {
		t.Errorf("sign in: %d", status)
	}
	again := newWanderer(t)
	again.Jar.SetCookies(flow, kept) // whoever kept the cookie still has no second code
	refused("a code that was used", again, answer)
	b = newWanderer(t)
	refused("another issuer in the answer", b, strings.Replace(b.callback(f.url+"/auth/oidc"), "iss=http", "iss=https", 1))
	b = newWanderer(t)
	refused("no code", b, strings.Replace(b.callback(f.url+"/auth/oidc"), "code=", "cod=", 1))
	b = newWanderer(t)
	refused("an error", b, b.callback(f.url+"/auth/oidc")+"&error=access_denied&error_description=%3Cscript%3E")
	refused("no answer", newWanderer(t), f.url+oidcCallback)
	if n, err := f.store.Sessions.List(t.Context()); err != nil || len(n) != 2 {
		t.Errorf("%d sessions, %v", len(n), err)
	}
}

// TestLongReason: of the reason that an answer states, and anybody can write, a part is told.
func TestLongReason(t *testing.T) {
	f, _ := withProvider(t, "manager=domain:example.com")
	flow := oidc.Flow{State: "s", Until: time.Now().Add(time.Hour).Unix()}
	got := f.do("GET", "/auth/oidc/callback?state=s&error=no&error_description="+strings.Repeat("x", 5000), "", "", "Cookie", flowCookie+"="+flow.Encode())
	if n := strings.Count(string(got.body), "x"); got.status != http.StatusUnauthorized || !strings.Contains(string(got.body), "says no: xxx") || n > 1000 {
		t.Errorf("%d, %d x", got.status, n)
	}
}

// TestProviderDown: without the provider the server goes on, and so does signing in by a
// link. It is found when it answers again, also with another key.
func TestProviderDown(t *testing.T) {
	f, p := withProvider(t, "manager=domain:example.com")
	p.Say(oidctest.RS256, verified("ada@example.com"))
	p.SetDown(true)
	if status, _, body := newWanderer(t).get(f.url + "/auth/oidc"); status != http.StatusServiceUnavailable || !strings.Contains(body, "triphammer auth login") {
		t.Errorf("%d %s", status, body)
	}
	if got := f.page(f.signIn(f.link(f.key("admin", "manage")))); got != http.StatusOK {
		t.Errorf("a link: %d", got)
	}
	p.SetDown(false)
	signsIn := func() {
		t.Helper()
		if status, at, body := newWanderer(t).get(f.url + "/auth/oidc"); status != http.StatusOK || at.Path != "/" {
			t.Errorf("%d at %s\n%s", status, at, body)
		}
	}
	signsIn()
	p.Rotate(t)
	signsIn()
	// It goes down between the two halves of a sign-in.
	b := newWanderer(t)
	answer := b.callback(f.url + "/auth/oidc")
	p.SetDown(true)
	if status, _, body := b.get(answer); status != http.StatusUnauthorized || !strings.Contains(body, "The sign-in failed") {
		t.Errorf("%d %s", status, body)
	}
}

// TestReturnPath: a sign-in leads to a page of this server, and nowhere else.
func TestReturnPath(t *testing.T) {
	for to, want := range map[string]string{
		"/runs": "/runs", "/deliveries?webhook=a&cursor=b": "/deliveries?webhook=a&cursor=b", "/": "", "": "",
		"//evil.test": "", "///evil.test": "", "/\\evil.test": "", "https://evil.test/": "", "https:evil.test": "", "javascript:alert(1)": "", "evil.test": "",
		"/\t/evil.test": "", "/%2f/evil.test": "", "/%2fevil.test": "", "\\/evil.test": "", "/auth/logout": "", "/auth/oidc": "", "@evil.test": "", "/%zz": "", "/x\r\nSet-Cookie: a=b": "",
	} {
		if got := returnPath(to); got != want {
			t.Errorf("%q: %q, want %q", to, got, want)
		}
	}
	f, p := withProvider(t, "manager=domain:example.com")
	p.Say(oidctest.RS256, verified("ada@example.com"))
	for _, to := range []string{"//evil.test/", "https://evil.test/", "/\\evil.test"} {
		if status, at, _ := newWanderer(t).get(f.url + "/auth/oidc?to=" + url.QueryEscape(to)); status != http.StatusOK || "http://"+at.Host != f.url || at.Path != "/" {
			t.Errorf("%s: %d at %s", to, status, at)
		}
	}
	// Who is not signed in comes back to the page.
	if _, _, body := newWanderer(t).get(f.url + "/runs?state=FAILED"); !strings.Contains(body, `href="/auth/oidc?to=%2Fruns%3Fstate%3DFAILED"`) {
		t.Errorf("the page:\n%s", body)
	}
}

// TestLinkToPage: a link opens the page that it was made for, also for who is signed in
// already; that uses it up, because the page changes nobody's session. No link leads elsewhere.
func TestLinkToPage(t *testing.T) {
	f := newFixture(t)
	admin := f.key("admin", "manage")
	link := func(to string) string {
		t.Helper()
		got := f.do("POST", "/api/v1/auth/links", admin, `{"to":"`+to+`"}`)
		if got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return field(t, got, "url")
	}
	post := func(b wanderer, address string) (at *url.URL) {
		t.Helper()
		resp, err := b.Post(address, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", address, resp.StatusCode, err)
		}
		return resp.Request.URL
	}
	const to = "/runs?state=FAILED&source=API"
	b, first := newWanderer(t), link(to)
	_, _, page := b.get(first)
	form := regexp.MustCompile(`action="([^"]*)"`).FindStringSubmatch(page)
	if form == nil {
		t.Fatalf("the page of the link:\n%s", page)
	}
	if at := post(b, f.url+html.UnescapeString(form[1])); at.RequestURI() != to {
		t.Errorf("signing in ends at %s", at)
	}
	// Signed in already.
	before, err := f.store.Sessions.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, end := range map[string]string{to: to, "/": "/"} {
		second := link(path)
		if status, at, _ := b.get(second); status != http.StatusOK || at.RequestURI() != end {
			t.Errorf("%s: %d at %s", path, status, at)
		}
		if status, _, body := newWanderer(t).get(second); status != http.StatusUnauthorized || !strings.Contains(body, "This link does not work") {
			t.Errorf("the link for another one: %d\n%s", status, body)
		}
	}
	if after, err := f.store.Sessions.List(t.Context()); err != nil || len(after) != 1 || after[0].ID != before[0].ID {
		t.Errorf("sessions %+v, then %+v, %v", before, after, err)
	}
	// Signed in as somebody who may do less: the link is for signing in.
	viewer, third := newWanderer(t), link(to)
	post(viewer, f.url+f.link(f.key("looker", "read")))
	if _, at, body := viewer.get(third); at.Path != "/auth/login" || !strings.Contains(body, "with the role manager") {
		t.Errorf("a viewer with a link of a manager is at %s:\n%s", at, body)
	}
	if at := post(viewer, third); at.RequestURI() != to {
		t.Errorf("signing in as a manager ends at %s", at)
	}
	if _, at, _ := viewer.get(link("/people")); at.Path != "/people" {
		t.Errorf("a manager's session goes to %s", at)
	}
	// Without a page, it is for signing in.
	plain := f.url + f.link(admin)
	if _, at, body := b.get(plain); at.Path != "/auth/login" || !strings.Contains(body, "Sign in as") {
		t.Errorf("at %s:\n%s", at, body)
	}
	for _, elsewhere := range []string{"//evil.test/", "https://evil.test/", "/\\evil.test", "javascript:alert(1)", "runs", "/auth/logout"} {
		if got := f.do("POST", "/api/v1/auth/links", admin, `{"to":"`+strings.ReplaceAll(elsewhere, `\`, `\\`)+`"}`); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "path of a page") {
			t.Errorf("%s: %d %s", elsewhere, got.status, got.body)
		}
		changed := "&to=" + url.QueryEscape(elsewhere)
		if at := post(newWanderer(t), f.url+f.link(admin)+changed); "http://"+at.Host != f.url || at.Path != "/" {
			t.Errorf("signing in by a link that was changed to %s ends at %s", elsewhere, at)
		}
		if _, at, _ := b.get(f.url + f.link(admin) + changed); "http://"+at.Host != f.url || at.Path != "/" {
			t.Errorf("a link that was changed to %s leads to %s", elsewhere, at)
		}
	}
}

// TestSignInAnew: each sign-in has a new session, whatever cookie the browser brought, and
// ends the one before. A look at a link does not use it up (SPEC 10.3).
func TestSignInAnew(t *testing.T) {
	f := newFixture(t)
	admin := f.key("admin", "manage")
	first := f.signIn(f.link(admin))
	link := f.link(admin)
	for range 2 {
		if got := f.get(link, ""); got.status != http.StatusOK || got.header.Get("Set-Cookie") != "" || !strings.Contains(string(got.body), "Sign in as ada") {
			t.Errorf("a look at the link: %d %v\n%s", got.status, got.header, got.body)
		}
	}
	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.test"}} {
		if got := f.do("POST", link, "", "", from...); got.status != http.StatusForbidden {
			t.Errorf("from another site: %d", got.status)
		}
	}
	got := f.do("POST", link, "", "", "Cookie", first)
	second, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	if got.status != http.StatusSeeOther || second == first || second == "" {
		t.Errorf("%d %v", got.status, got.header)
	}
	if f.page(first) != http.StatusUnauthorized || f.page(second) != http.StatusOK {
		t.Error("the earlier session goes on, or the new one does not")
	}
	if got := f.do("POST", link, "", ""); got.status != http.StatusUnauthorized {
		t.Errorf("the link again: %d", got.status)
	}
	// A value that somebody else chose is never a session.
	chosen := "triphammer_session=ths_" + strings.Repeat("a", 48)
	got = f.do("POST", f.link(admin), "", "", "Cookie", chosen)
	if got.status != http.StatusSeeOther || strings.HasPrefix(got.header.Get("Set-Cookie"), chosen) || f.page(chosen) != http.StatusUnauthorized {
		t.Errorf("%d %v", got.status, got.header)
	}
}
