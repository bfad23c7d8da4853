package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/server/access"
	"triphammer/server/store"
)

// TestLoginLinks: a link has the role of who makes it or a lower one, and only a manager
// makes links for others (SPEC 10.3).
func TestLoginLinks(t *testing.T) {
	f := newFixture(t)
	keys := map[string]string{"runs": f.key("k1", "runs"), "read": f.key("k2", "read"), "operate": f.key("k3", "operate"), "manage": f.key("k4", "manage")}
	for kind, scope := range map[string]string{"agent": "operate", "agent boss": "manage"} {
		_, token, err := f.store.Keys.Create(t.Context(), store.Key{Name: kind, Kind: store.KeyAgent, Owner: "ada", Scopes: []string{scope}})
		if err != nil {
			t.Fatal(err)
		}
		keys[kind] = token.Reveal()
	}
	keys["one factory"] = f.limitedKey("k5", "default", "manage")
	for _, c := range []struct {
		key, body  string
		status     int
		name, role string
	}{
		{"runs", "", 403, "", ""},
		{"read", "", 201, "ada", "viewer"},
		{"read", `{"role":"viewer","name":"ada"}`, 201, "ada", "viewer"},
		{"read", `{"role":"operator"}`, 403, "", ""},
		{"read", `{"name":"bob"}`, 403, "", ""},
		{"operate", "", 201, "ada", "operator"},
		{"operate", `{"role":"viewer"}`, 201, "ada", "viewer"},
		{"operate", `{"role":"manager"}`, 403, "", ""},
		{"operate", `{"role":"viewer","name":"bob"}`, 403, "", ""},
		{"manage", "", 201, "ada", "manager"},
		{"manage", `{"role":"operator","name":"bob"}`, 201, "bob", "operator"},
		{"manage", `{"role":"boss"}`, 400, "", ""},
		{"manage", `{"role":"manage"}`, 400, "", ""},
		{"manage", `{"name":"bob\u202emoc"}`, 400, "", ""},
		{"manage", `{"name":"` + strings.Repeat("b", 101) + `"}`, 400, "", ""},
		{"manage", `{`, 400, "", ""},
		{"agent", "", 403, "", ""}, // its session would count as that of a person of its name
		{"agent", `{"name":"ada"}`, 403, "", ""},
		{"agent boss", "", 400, "", ""},
		{"agent boss", `{"name":"bob"}`, 201, "bob", "manager"},
		{"one factory", "", 403, "", ""},
	} {
		got := f.do("POST", "/api/v1/auth/links", keys[c.key], c.body)
		if got.status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.key, c.body, got.status, c.status, got.body)
		}
		if got.status != http.StatusCreated || c.status != http.StatusCreated {
			continue
		}
		if name, role := field(t, got, "name"), field(t, got, "role"); name != c.name || role != c.role {
			t.Errorf("%s %s: for %s, %s", c.key, c.body, name, role)
		}
		f.signIn(strings.TrimPrefix(field(t, got, "url"), f.url))
		open, err := f.store.Sessions.List(t.Context())
		if err != nil || open[0].Person != c.name || open[0].Role != c.role || !strings.HasPrefix(open[0].Via, "link of key ") {
			t.Errorf("%s %s: %+v %v", c.key, c.body, open, err)
		}
	}
}

// TestEndSession: a manager sees who is signed in, and ends one session at once (SPEC 10.3).
func TestEndSession(t *testing.T) {
	f := newFixture(t)
	admin := f.key("admin", "manage")
	cookies := make(map[string]string)
	for _, role := range access.Roles {
		cookies[role] = f.signIn(strings.TrimPrefix(field(t, f.do("POST", "/api/v1/auth/links", admin, `{"name":"`+role+`","role":"`+role+`"}`), "url"), f.url))
	}
	list := f.get("/api/v1/auth/sessions", admin)
	for i, role := range []string{"manager", "operator", "viewer"} {
		at := []string{"sessions", []string{"0", "1", "2"}[i]}
		of := func(name string) string { return field(t, list, append(at, name)...) }
		if of("name") != role || of("role") != role || of("from") != "127.0.0.1" || of("via") != "link of key admin (ada)" || of("idle_seconds") != "7200" {
			t.Errorf("%s: %s", role, list.body)
		}
		begun, err := time.Parse(time.RFC3339, of("created_at"))
		ends, endErr := time.Parse(time.RFC3339, of("expires_at"))
		if err != nil || endErr != nil || ends.Sub(begun) != 12*time.Hour {
			t.Errorf("%s: from %s to %s, not 12 hours", role, begun, ends)
		}
	}
	id := field(t, list, "sessions", "1", "id")
	if got := f.do("DELETE", "/api/v1/auth/sessions/"+id, admin, ""); got.status != 200 || field(t, got, "name") != "operator" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do("DELETE", "/api/v1/auth/sessions/"+id, admin, ""); got.status != 404 {
		t.Errorf("again: %d %s", got.status, got.body)
	}
	for role, want := range map[string]int{"viewer": 200, "operator": 401, "manager": 200} {
		if got := f.page(cookies[role]); got != want {
			t.Errorf("%s: %d", role, got)
		}
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || entries[0].Action != "auth.session_end" || entries[0].Object != "operator" || entries[0].Details != id {
		t.Errorf("audit %+v %v", entries, err)
	}
}

// TestBrowserOf: nothing that a stranger wrote is kept of a User-Agent.
func TestBrowserOf(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                         "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0":                  "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15":                          "Safari on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/141.0.0.0 Mobile/15E148 Safari/604.1":     "Chrome on iOS",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile Safari/537.36":                                "Chrome on Android",
		"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 \u202e<script>alert(1)</script>": "Chrome on ChromeOS",
		"curl/8.14.1":       "curl",
		"":                  "unknown",
		"\x1b[31m<b>me</b>": "unknown",
	} {
		if got := browserOf(agent); got != want {
			t.Errorf("%q: %s, want %s", agent, got, want)
		}
	}
}
