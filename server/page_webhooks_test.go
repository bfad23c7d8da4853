package server

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// browser reads pages of a fixture as somebody who is signed in.
type browser struct {
	*fixture
	cookie string
}

// visitor signs somebody in who has a role.
func (f *fixture) visitor(role string) browser {
	f.t.Helper()
	token, err := f.store.Sessions.CreateLoginLink(f.t.Context(), linkFor("ada", role), linkLife)
	if err != nil {
		f.t.Fatal(err)
	}
	cookie := f.signIn("/auth/login?token=" + token)
	return browser{f, cookie}
}

var tags = regexp.MustCompile(`(?s)<svg.*?</svg>|<[^>]*>`)

// page requests a page and returns its text without tags. It must have the status and
// contain the parts.
func (b browser) page(method, path, form string, status int, wants ...string) string {
	b.t.Helper()
	got := b.do(method, path, "", form, "Cookie", b.cookie, "Sec-Fetch-Site", "same-origin")
	text := strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(strings.ReplaceAll(string(got.body), "<wbr>", ""), " "))), " ")
	if got.status != status {
		b.t.Errorf("%s %s: %d, want %d\n%s", method, path, got.status, status, text)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			b.t.Errorf("%s %s: no %q in\n%s", method, path, want, text)
		}
	}
	return text
}

// TestWebhookPages: the list and the page of a webhook say what it is, who listens, what
// came, and how its sender is set up.
func TestWebhookPages(t *testing.T) {
	f := newFixtureWith(t, options{
		files: fstest.MapFS{
			"webhooks/gh.yaml":  {Data: []byte("authMode: signature\nsignatureScheme: github\nsecretName: GH_SECRET\n")},
			"webhooks/off.yaml": {Data: []byte("authMode: url_token\nsecretName: S\nenabled: false\n")},
			"webhooks/new.yaml": {Data: []byte("secretName: S\n")},
		},
		secrets: map[string]string{"GH_SECRET": "a-secret-of-github"},
	})
	b := f.visitor("manager")
	b.page("GET", "/webhooks", "", 200, "3 webhooks take deliveries, 1 is disabled.", "Enabled hook bearer token none a none yet", "Disabled off secret in the URL; senders get 404 none nobody")
	b.page("GET", "/webhooks/hook", "", 200, "hook Enabled No delivery came yet. 1 automation listens to it.", "Waiting for the first delivery", `-H "Authorization: Bearer $S"`, "webhooks/hook.yaml", "also for webhook new, webhook off")
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`)
	f.do("POST", ingress+f.uids()["hook"], "wrong-wrong-wrong", `{"n":2}`)
	b.page("GET", "/webhooks/hook", "", 200, "The newest delivery came just now: refused.", "Refused: credential mismatch", "Last 24 hours", "1 accepted 0 duplicates 1 refused")
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`)
	b.page("GET", "/webhooks/hook", "", 200, "1 accepted 1 duplicate 1 refused")
	b.page("GET", "/webhooks", "", 200, "Enabled hook bearer token 3 a")
	b.page("GET", "/webhooks/gh", "", 200, "Point GitHub at it", "Payload URL is "+f.url+ingress, "Secret is the value of GH_SECRET", "triphammer send gh", "scheme github")
	b.page("GET", "/webhooks/off", "", 200, "off Disabled Senders get 404: the file says enabled: false .", "in place of {token}")
	b.page("GET", "/webhooks/"+f.uids()["hook"], "", 200, "hook Enabled")
	b.page("GET", "/webhooks/~new", "", 200, "new Enabled")
	b.page("GET", "/webhooks/none", "", 404, "no webhook is named none")
	for _, path := range []string{"/webhooks", "/webhooks/hook", "/webhooks/gh"} {
		if text := b.page("GET", path, "", 200); strings.Contains(text, hookSecret) || strings.Contains(text, "a-secret-of-github") {
			t.Errorf("%s shows a secret", path)
		}
	}
}

// TestSchemesAPI: schemes and the setup of webhooks are in the API (SPEC 13.10).
func TestSchemesAPI(t *testing.T) {
	f := newFixture(t)
	key := f.key("k", "read")
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"signature-schemes":        {200, `"name":"github"`},
		"signature-schemes/github": {200, `"secret_is_yours":true`},
		"signature-schemes/gihtub": {404, "github"},
		"webhooks/hook/setup":      {200, `Authorization: Bearer $S`},
		"webhooks/none/setup":      {404, "none"},
	} {
		if got := f.get("/api/v1/"+path, key); got.status != want.status || !strings.Contains(string(got.body), want.text) {
			t.Errorf("%s: %d %.300s", path, got.status, got.body)
		}
	}
}
