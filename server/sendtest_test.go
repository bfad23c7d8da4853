package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

const testPath = "/api/v1/factories/default/webhooks/"

// TestSendTest: the server signs a test with the stored secret and takes it as any other
// delivery. The log and the audit log say who sent it, and nothing shows the secret.
func TestSendTest(t *testing.T) {
	opt := options{
		files: fstest.MapFS{
			"webhooks/path.yaml": {Data: []byte("secretName: S\nauthMode: url_token\n")},
			"webhooks/own.yaml":  {Data: []byte("secretName: S\ndeliveryIdHeader: X-Run\n")},
			"webhooks/off.yaml":  {Data: []byte("secretName: S\nenabled: false\n")},
			"webhooks/late.yaml": {Data: []byte("secretName: LATE\nenabled: false\n")},
		},
	}
	for _, scheme := range []string{"github", "slack", "figma", "discord"} {
		opt.files["webhooks/"+scheme+".yaml"] = &fstest.MapFile{Data: []byte("secretName: " + strings.ToUpper(scheme) + "\nauthMode: signature\nsignatureScheme: " + scheme + "\n")}
	}
	opt.secrets = map[string]string{
		"GITHUB": hookSecret, "SLACK": hookSecret, "FIGMA": hookSecret, "DISCORD": strings.Repeat("a1", 32),
	}
	f := newFixtureWith(t, opt)
	operator := f.key("op", "operate")
	f.do("POST", "/api/v1/factories/default/webhooks/own/pause", operator, `{"reason":"x"}`)
	big := `{"payload":"` + strings.Repeat("a", 262144) + `"}`
	for _, c := range []struct {
		name, webhook, body string
		status              int    // of the request
		answered            int    // with it, the webhook
		outcome, text       string // of its delivery
	}{
		{"no body", "hook", "", 200, 202, "accepted", `"event":"test"`},
		{"a payload that is wanted", "hook", `{"payload":{"n":1}}`, 200, 202, "accepted", `{"n":1}`},
		{"byte for byte", "hook", `{"payload": {"n" : 1.0,"a":"\u003cb\u003e"} }`, 200, 202, "accepted", `{"n" : 1.0,"a":"\u003cb\u003e"}`},
		{"an identity, once", "hook", `{"payload":{"n":1},"headers":{"X-Service-Delivery-Id":"7"}}`, 200, 202, "accepted", ``},
		{"an identity, again", "hook", `{"payload":{"n":1},"headers":{"X-Service-Delivery-Id":"7"}}`, 200, 202, "duplicate", ``},
		{"null is no payload", "hook", `{"payload":null}`, 200, 202, "accepted", `"event":"test"`},
		{"the secret in the URL", "path", `{"payload":{"n":1}}`, 200, 202, "accepted", `{"n":1}`},
		{"a credential of one's own", "hook", `{"headers":{"Authorization":"Bearer x"}}`, 200, 202, "accepted", ``},
		{"a sender's first sample", "github", ``, 200, 202, "accepted", `"action": "labeled"`},
		{"a sample by its event", "github", `{"event":"push"}`, 200, 202, "accepted", `"ref": "refs/heads/main"`},
		{"an event with a payload", "github", `{"event":"push","payload":{"n":1}}`, 200, 202, "accepted", `{"n":1}`},
		{"an unknown event", "github", `{"event":"nothing"}`, 400, 0, "", "there are issues, check_run_rerequested"},
		{"too large", "hook", big, 200, 413, "rejected_too_large", ""},
		{"far too large", "hook", `{"payload":"` + strings.Repeat("a", maxRequest) + `"}`, 413, 0, "", ""},
		{"no JSON", "hook", `{"payload":{]}`, 400, 0, "", "not JSON"},
		{"numbers twice", "hook", `{"payload":{"n":1,"n":1}}`, 200, 202, "accepted", ``},
		{"half a character", "hook", `{"payload":"\ud800"}`, 200, 202, "accepted", ""},
		{"very deep", "hook", `{"payload":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, 0, "", "depth"},
		{"a header that is none", "hook", `{"headers":{"a b":"c"}}`, 400, 0, "", "no header name"},
		{"a header with a line", "hook", `{"headers":{"X-A":"b\r\nX-C: d"}}`, 400, 0, "", "control characters"},
		{"a question of the sender", "slack", `{"payload":{"type":"url_verification","challenge":"3eZbrw1aB10="}}`, 200, 200, "", ""},
		{"a disabled webhook", "off", "", 409, 0, "", "it is disabled"},
		{"no secret", "late", "", 409, 0, "", "LATE is not set"},
		{"a paused webhook", "own", "", 409, 0, "", "it is paused"},
		{"a private key", "discord", "", 409, 0, "", "private key"},
		{"the secret in the body", "figma", "", 409, 0, "", "into the body"},
		{"no such webhook", "none", "", 404, 0, "", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.do("POST", testPath+c.webhook+"/test", operator, c.body)
			if got.status != c.status || c.status != 200 && !strings.Contains(string(got.body), c.text) {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if strings.Contains(string(got.body), hookSecret) {
				t.Errorf("the secret is shown: %s", got.body)
			}
			if c.status != 200 {
				return
			}
			if field(t, got, "status") != fmt.Sprint(c.answered) {
				t.Errorf("%s", got.body)
			}
			if c.outcome == "" {
				if field(t, got, "delivery") != "<nil>" {
					t.Errorf("%s", got.body)
				}
				return
			}
			id := field(t, got, "delivery", "id")
			if field(t, got, "delivery", "outcome") != c.outcome || field(t, got, "delivery", "test_by") != "key op (ada)" {
				t.Errorf("%s", got.body)
			}
			shown := f.get("/api/v1/deliveries/"+id, operator)
			if c.outcome != "rejected_too_large" && !strings.Contains(field(t, shown, "belt", "0", "detail"), "a test by key op (ada)") || strings.Contains(string(shown.body), hookSecret) {
				t.Errorf("%s", shown.body)
			}
			if payload := f.get("/api/v1/deliveries/"+id+"/payload", operator); c.outcome == "accepted" && (!strings.Contains(string(payload.body), c.text) || strings.Contains(string(payload.body), hookSecret)) {
				t.Errorf("the payload is %s", payload.body)
			}
		})
	}
	log, err := f.store.Audit.List(t.Context(), store.AuditQuery{Action: "webhook.test"})
	if err != nil || len(log) != 15 || log[len(log)-1].Actor != "key op (ada)" || !strings.HasPrefix(log[len(log)-1].Details, "dlv_") {
		t.Errorf("%d %v, %v", len(log), log, err)
	}
	// The ingress remembers no test: a sender cannot say that it sends one.
	got := f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":2}`, "Test-By", "ada", "X-Test-By", "ada")
	if shown := f.get("/api/v1/deliveries/"+field(t, got, "delivery_id"), operator); strings.Contains(string(shown.body), "test_by") {
		t.Errorf("%s", shown.body)
	}
}

// TestSendTestRate: tests count for the limit of the webhook, as deliveries do.
func TestSendTestRate(t *testing.T) {
	f := newFixtureWith(t, options{rate: 2})
	operator := f.key("op", "operate")
	for i, want := range []int{200, 200, 429} {
		got := f.do("POST", testPath+"hook/test", operator, "")
		if got.status != want || want == 429 && got.header.Get("Retry-After") == "" {
			t.Errorf("%d: %d %s", i, got.status, got.body)
		}
	}
}

// TestSendTestPage: the page of a webhook sends a test and leads to its delivery.
func TestSendTestPage(t *testing.T) {
	f := newFixtureWith(t, options{
		files: fstest.MapFS{
			"webhooks/gh.yaml":  {Data: []byte("authMode: signature\nsignatureScheme: github\nsecretName: S\n")},
			"webhooks/off.yaml": {Data: []byte("secretName: S\nenabled: false\n")},
		},
	})
	operator, viewer := f.visitor("operator"), f.visitor("viewer")
	operator.page("GET", "/webhooks/gh", "", 200, "signs it with the stored secret as GitHub does", "Payload: a sample of issues", "Other samples: check_run_rerequested , check_suite_completed ,", "Send the test")
	operator.page("GET", "/webhooks/gh?sample=push", "", 200, "Payload: a sample of push", "refs/heads/main")
	operator.page("GET", "/webhooks/gh?sample=nothing", "", 200, "Payload: a sample of issues")
	operator.page("GET", "/webhooks/off", "", 200, "This server cannot send one: it is disabled.")
	if text := viewer.page("GET", "/webhooks/gh", "", 200, "triphammer webhooks test gh"); strings.Contains(text, "Send the test") {
		t.Error("a viewer is offered it")
	}
	form := url.Values{"event": {"push"}, "payload": {"{\r\n\"ref\": \"x\"}"}}.Encode()
	viewer.page("POST", "/factories/default/webhooks/gh/test", form, 403, "Not allowed")
	got := f.do("POST", "/factories/default/webhooks/gh/test", "", form, "Cookie", operator.cookie, "Sec-Fetch-Site", "same-origin")
	to := got.header.Get("Location")
	if got.status != http.StatusSeeOther || !strings.HasPrefix(to, "/deliveries/dlv_") {
		t.Fatalf("%d %s", got.status, to)
	}
	operator.page("GET", to, "", 200, "It was a test by page ada.", "a test by page ada", "X-Github-Event push")
	operator.page("GET", "/webhooks/gh", "", 200, "a test by page ada")
	operator.page("GET", "/deliveries", "", 200, "a test by page ada")
	bad := url.Values{"payload": {"<b>{"}}.Encode()
	operator.page("POST", "/factories/default/webhooks/gh/test", bad, 422, "The payload is no JSON, which no webhook takes. Nothing was sent.", "<b>{", "gh Enabled")
	operator.page("POST", "/factories/default/webhooks/off/test", "", 422, "no test can be sent to off: it is disabled")
	operator.page("POST", "/factories/default/webhooks/none/test", "", 404)
	if got := f.do("POST", "/factories/default/webhooks/gh/test", "", form, "Cookie", operator.cookie, "Sec-Fetch-Site", "cross-site"); got.status != 403 {
		t.Errorf("from another site: %d", got.status)
	}
}
