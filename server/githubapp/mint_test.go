package githubapp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/githubapp"
	"triphammer/server/githubapp/githubtest"
	"triphammer/server/secret"
)

var reads = githubapp.Use{Repository: "acme/app", Permissions: map[string]string{"contents": "read"}}

// TestToken: a token is for one repository and the asked permissions, is kept until shortly
// before its end, and many callers cost one request (SPEC 24.2).
func TestToken(t *testing.T) {
	hub := githubtest.Start(t, "")
	hub.Installed["acme/app"] = 5
	now := time.Now()
	hub.Now = func() time.Time { return now }
	m := githubapp.New(hub.Now)
	token := func(use githubapp.Use) githubapp.Token {
		t.Helper()
		got, err := m.Token(t.Context(), "APP", hub.Secret(t), use)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { token(reads) })
	}
	group.Wait()
	if all := hub.Grants(); len(all) != 1 || all[0].Repository != "acme/app" || fmt.Sprint(all[0].Permissions) != "map[contents:read]" {
		t.Fatalf("minted %+v", all)
	}
	writes := githubapp.Use{Repository: "acme/app", Permissions: map[string]string{"contents": "write"}}
	if token(writes).Value == token(reads).Value || len(hub.Grants()) != 2 {
		t.Error("one token serves two uses")
	}
	before := token(reads)
	if left := before.Renew.Sub(now); left < 50*time.Minute || left > 55*time.Minute {
		t.Errorf("it is renewed after %v", left)
	}
	now = before.Renew.Add(-time.Second)
	if token(reads).Value != before.Value {
		t.Error("it is renewed too early")
	}
	now = before.Renew
	if after := token(reads); after.Value == before.Value || !after.Renew.After(now) {
		t.Error("it is not renewed before its end")
	}
	if text := fmt.Sprintf("%v %+v %s", before, before, before.Value); strings.Contains(text, "ghs_") {
		t.Errorf("a token prints as %s", text)
	}
}

// TestHostileAnswers: every answer of GitHub becomes an error that says what to do and has no
// part of the key or of the proof.
func TestHostileAnswers(t *testing.T) {
	says := func(path string, status int, header, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, path) {
				return false
			}
			if name, value, is := strings.Cut(header, ": "); is {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "PROOF", r.Header.Get("Authorization")))
			return true
		}
	}
	for name, c := range map[string]struct {
		change func(*githubtest.Server)
		want   string
	}{
		"not installed": {func(s *githubtest.Server) { delete(s.Installed, "acme/app") }, "is not installed on acme/app: install it at SITE/apps/acme-hammer/installations/new"},
		"suspended":     {func(s *githubtest.Server) { s.Suspended = true }, "is suspended on acme/app: end the suspension at SITE/settings/installations/5"},
		"lacks": {
			func(s *githubtest.Server) { s.Permissions = map[string]string{"metadata": "read"} },
			"lacks permissions on acme/app: contents: read. Add what is missing in the App's settings (SITE/settings/apps/acme-hammer/permissions)",
		},
		"another key": {func(s *githubtest.Server) { s.Fault = says("/installation", 401, "", `{"message":"PROOF bad"}`) }, "it does not take the App's id and key"},
		"moved": {func(s *githubtest.Server) {
			s.Fault = says("/installation", 301, "Location: https://evil.example.com/", "{}")
		}, "has another name now"},
		"limit": {
			func(s *githubtest.Server) {
				s.Fault = says("/installation", 403, "Retry-After: 60", `{"message":"secondary rate limit"}`)
			},
			"answered 403 (secondary rate limit)",
		},
		"down":     {func(s *githubtest.Server) { s.Fault = says("/installation", 502, "", "<html>") }, "answered 502"},
		"no JSON":  {func(s *githubtest.Server) { s.Fault = says("/installation", 200, "", "<html>") }, "something other than the JSON"},
		"no id":    {func(s *githubtest.Server) { s.Fault = says("/installation", 200, "", "{}") }, "something other than an installation"},
		"long":     {func(s *githubtest.Server) { s.Fault = says("/installation", 200, "", strings.Repeat(" ", 2<<20)) }, "something other than the JSON"},
		"no token": {func(s *githubtest.Server) { s.Fault = says("/access_tokens", 201, "", "{}") }, "something other than a token"},
		"control": {func(s *githubtest.Server) {
			s.Fault = says("/access_tokens", 201, "", `{"token":"a\r\nX: y","expires_at":"2126-01-01T00:00:00Z"}`)
		}, "something other than a token"},
		"ended": {func(s *githubtest.Server) { s.Life = time.Minute }, "something other than a token"},
		"other page": {func(s *githubtest.Server) {
			s.Fault = says("/installation", 200, "", `{"id":5,"html_url":"https://evil.example.com/","app_slug":"../x"}`)
		}, "(SITE/settings/installations)"},
		"other app": {func(s *githubtest.Server) {
			delete(s.Installed, "acme/app")
			s.Fault = says("/app", 200, "", `{"id":1,"slug":"x"}`)
		}, "something other than the App"},
		"line breaks":  {func(s *githubtest.Server) { s.Fault = says("/installation", 400, "", `{"message":"a\u001b[31m\nb"}`) }, "answered 400 (a [31m b)"},
		"link-local":   {nil, ""},
		"wrong secret": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			hub := githubtest.Start(t, "")
			hub.Installed["acme/app"] = 5
			value := hub.Secret(t)
			switch {
			case c.change != nil:
				c.change(hub)
			case name == "link-local":
				value, _ = githubapp.Value(1, hub.PEM, "https://169.254.169.254")
				c.want = "the address is link-local"
			default:
				value, c.want = secret.New("ghp_x"), "it is no GitHub App"
			}
			_, err := githubapp.New(time.Now).Token(t.Context(), "APP", value, reads)
			_, is := err.(*githubapp.Error)
			if want := strings.ReplaceAll(c.want, "SITE", hub.URL); !is || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v, want %q", err, want)
			}
			if text := err.Error(); strings.Contains(text, "eyJ") || strings.Contains(text, "PRIVATE") || strings.Contains(text, "evil") || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("it says %q", text)
			}
		})
	}
}

// TestFailureIsRemembered: a run that asks again and again does not use up what GitHub allows,
// and a caller who left does not make others fail.
func TestFailureIsRemembered(t *testing.T) {
	hub := githubtest.Start(t, "")
	now := time.Now()
	hub.Now = func() time.Time { return now }
	m := githubapp.New(hub.Now)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Token(gone, "APP", hub.Secret(t), reads); err != context.Canceled {
		t.Error(err)
	}
	for range 10 {
		if _, err := m.Token(t.Context(), "APP", hub.Secret(t), reads); err == nil || !strings.Contains(err.Error(), "not installed") {
			t.Fatal(err)
		}
	}
	if asked := hub.Asked(); len(asked) > 2 {
		t.Errorf("asked %q", asked)
	}
	hub.Change(func() { hub.Installed["acme/app"] = 5 })
	now = now.Add(10 * time.Second)
	if _, err := m.Token(t.Context(), "APP", hub.Secret(t), reads); err != nil {
		t.Error(err)
	}
}

// TestLimitIsHeld: while GitHub wants no request, none is sent.
func TestLimitIsHeld(t *testing.T) {
	hub := githubtest.Start(t, "")
	hub.Installed["acme/app"] = 5
	now := time.Now()
	hub.Now = func() time.Time { return now }
	m := githubapp.New(hub.Now)
	hub.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	for range 6 {
		if _, err := m.Token(t.Context(), "APP", hub.Secret(t), reads); err == nil {
			t.Fatal("there is a token")
		}
		now = now.Add(9 * time.Second)
	}
	if asked := hub.Asked(); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
	hub.Change(func() { hub.Fault = nil })
	now = now.Add(6 * time.Second)
	if _, err := m.Token(t.Context(), "APP", hub.Secret(t), reads); err != nil {
		t.Error(err)
	}
}

func TestValue(t *testing.T) {
	pem := githubtest.PEM(githubtest.Key(t))
	for _, c := range []struct {
		id             int64
		key, api, want string
	}{
		{1, pem, "", ""},
		{1, pem, "https://github.example.com/api/v3/", ""},
		{0, pem, "", "the id of a GitHub App is a number"},
		{1, "ghp_x", "", "private-key.pem"},
		{1, "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", "", "cannot be read"},
		{1, pem, "http://github.example.com/api/v3", "an address such as"},
		{1, pem, "https://u:p@github.example.com", "an address such as"},
	} {
		v, err := githubapp.Value(c.id, c.key, c.api)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d %q: %v", c.id, c.api, err)
		}
		if !githubapp.Is(v) {
			t.Errorf("%d %q is no App", c.id, c.api)
		}
	}
	for text, want := range map[string]bool{
		"ghp_x": false, `{"a":1}`: false, "": false, `{"a":{"githubApp":1}}`: false, `{"githubApp":1}`: true, " {\n\"githubApp\": {\"key\": \"cut": true,
	} {
		if githubapp.Is(secret.New(text)) != want {
			t.Errorf("Is(%q) is not %v", text, want)
		}
	}
}

func TestServes(t *testing.T) {
	pem := githubtest.PEM(githubtest.Key(t))
	for _, c := range []struct{ api, repository, want string }{
		{"", "https://github.com/acme/app.git", "acme/app"},
		{"", "https://github.com/acme/app/", "acme/app"},
		{"", "https://github.example.com/acme/app", ""},
		{"", "http://github.com/acme/app", ""},
		{"", "https://github.com/acme", ""},
		{"", "https://github.com/acme/../x", ""},
		{"", "https://api.github.com/acme/app", ""},
		{"https://github.example.com/api/v3", "https://github.example.com/acme/app", "acme/app"},
		{"https://github.example.com/api/v3", "https://github.com/acme/app", ""},
		{"https://api.acme.ghe.com", "https://acme.ghe.com/acme/app", "acme/app"},
	} {
		v, err := githubapp.Value(1, pem, c.api)
		if err != nil {
			t.Fatal(err)
		}
		app, err := githubapp.Parse(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := app.Serves(c.repository); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q %q: %q, %v", c.api, c.repository, got, err)
		}
	}
}

// FuzzParse: no value makes Parse panic, print itself, or be an App without being one for Is.
func FuzzParse(f *testing.F) {
	f.Add(`{"githubApp": {"id": 1, "key": "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----", "api": "https://x"}}`)
	f.Add(`{"githubApp": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		app, err := githubapp.Parse(secret.New(text))
		if (app != nil && err == nil) && !githubapp.Is(secret.New(text)) {
			t.Error("it is an App and is none")
		}
	})
}
