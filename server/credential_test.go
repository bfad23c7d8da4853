package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

// TestCredential: whoever may operate asks the sender of a webhook whose its credential is, which is in the
// audit log; what the credential lacks is told if something is told of the webhook's events.
func TestCredential(t *testing.T) {
	const apiToken = "a-token-that-nobody-may-see"
	sender := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/user" || r.Header.Get("Authorization") != "Bearer "+apiToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-OAuth-Scopes", "read:user")
		_, _ = w.Write([]byte(`{"id":7,"login":"hammer-bot"}`))
	}))
	t.Cleanup(sender.Close)
	hook := "authMode: signature\nsignatureScheme: github\nsecretName: S\napiURL: " + sender.URL + "/api\n"
	f := newFixtureWith(t, options{secrets: map[string]string{"API_TOKEN": apiToken, "WRONG": "x"}, files: fstest.MapFS{
		"webhooks/told.yaml":  {Data: []byte(hook + "apiSecretName: API_TOKEN\nreport: thread\n")},
		"webhooks/wrong.yaml": {Data: []byte(hook + "apiSecretName: WRONG\n")},
		"webhooks/plain.yaml": {Data: []byte("secretName: S\n")},
		"automations/a.md":    {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: github, event: issue_created}]\n---\nDo it.\n")},
	}})
	admin, viewer, operator := f.key("admin", store.ScopeManage), f.key("viewer", store.ScopeRead), f.key("operator", store.ScopeOperate)
	is := func(got answer, status int, want string) {
		t.Helper()
		if text := string(got.body); got.status != status || !strings.Contains(text, want) || strings.Contains(text, apiToken) {
			t.Errorf("%d %s", got.status, text)
		}
	}
	check := func(webhook, key string) answer {
		return f.do("POST", "/api/v1/factories/default/webhooks/"+webhook+"/check", key, "")
	}
	is(check("told", viewer), 403, "")
	is(check("told", operator), 200, `"account":"hammer-bot","lacking":["repo or public_repo (comments, signs and commit statuses)"]`)
	is(check("wrong", operator), 409, "answered 401: it does not take the secret of apiSecretName; the credential needs write access")
	is(check("plain", operator), 409, "has no apiSecretName")
	is(check("nothing", operator), 404, "")
	is(f.get("/api/v1/audit", admin), 200, `"webhook.check"`)
	is(f.get("/api/v1/webhooks/told", viewer), 200, `"api_secret_name":"API_TOKEN"`)
	sender.Close()
	is(check("told", operator), 409, "connection refused")
}
