package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// TestConnection: the API and the page of a webhook with connect show its connection. Its URL takes
// no request without a secret, and signed ones with a secret. A test needs no secret (SPEC 29.1).
func TestConnection(t *testing.T) {
	const slack = "authMode: signature\nsignatureScheme: slack\nconnect: socket\nappTokenName: APP\n"
	f := newFixtureWith(t, options{secrets: map[string]string{"APP": "xapp-1", "APP2": "xapp-2"}, files: fstest.MapFS{
		"webhooks/chat.yaml":   {Data: []byte(slack)},
		"webhooks/both.yaml":   {Data: []byte(strings.Replace(slack, "APP", "APP2", 1) + "secretName: S\n")},
		"automations/asked.md": {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: slack, event: app_mention}\n---\nAnswer.\n")},
	}})
	admin := f.key("admin", store.ScopeManage)
	open, last := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	states := map[string]*api.Connection{f.uids()["chat"]: {Since: &open, LastEnvelope: &last, Error: "Slack answered 500", ErrorAt: &open}}
	f.cfg.Connection = func(uid string) *api.Connection { return states[uid] }
	got := string(f.get("/api/v1/webhooks/chat", admin).body)
	for _, want := range []string{`"connect":"socket"`, `"app_token_name":"APP"`, `"since":"2026-11-21T09:00:00Z"`, `"last_envelope":"2026-11-21T09:30:00Z"`, `"error":"Slack answered 500"`, `"secret_name":""`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if got := string(f.get("/api/v1/secrets", admin).body); !strings.Contains(got, `"kind":"connection"`) {
		t.Errorf("the use of the token is not shown: %s", got)
	}
	if got := string(f.get("/api/v1/webhooks/chat/setup", admin).body); !strings.Contains(got, "Socket Mode") || !strings.Contains(got, "`APP`") || strings.Contains(got, "Request URL") {
		t.Errorf("setup: %s", got)
	}
	b := f.visitor("manager")
	page := b.page("GET", "/webhooks/chat", "", 200, "Open since", "The last envelope came", "Slack answered 500", "opens it with the token in APP", "as if it came over the connection")
	for _, none := range []string{"Rotate", "Copy", "from your machine", "/webhooks/w/"} {
		if strings.Contains(page, none) {
			t.Errorf("%q is on the page of a webhook without a URL", none)
		}
	}
	states[f.uids()["chat"]] = &api.Connection{Error: "no <b>markup</b>", ErrorAt: &open}
	b.page("GET", "/webhooks/chat", "", 200, "Not open.", "no <b>markup</b>")
	b.page("GET", "/webhooks/both", "", 200, "No server has it.", "Rotate the secret")

	post := func(webhook string) int {
		return f.do(http.MethodPost, "/webhooks/w/"+f.uids()[webhook], "", `{"a":1}`).status
	}
	if chat, both := post("chat"), post("both"); chat != 404 || both != 401 {
		t.Errorf("a POST to the URL: %d without a secret, %d with one", chat, both)
	}
	if status, _, _ := f.webhook(admin, "POST", "webhooks/chat/rotate", map[string]string{}); status < 400 || status > 499 {
		t.Errorf("rotating a secret that is not there: %d", status)
	}
	const event = `{"payload":{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"app_mention","user":"U1","text":"x","ts":"1.1","channel":"C1"}}}`
	if got := f.do("POST", "/api/v1/factories/default/webhooks/chat/test", admin, event); got.status > 299 || !strings.Contains(string(got.body), "run_") && !strings.Contains(string(got.body), "dlv_") {
		t.Errorf("a test: %d %s", got.status, got.body)
	}
}
