package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/applier"
	"triphammer/factory/signature"
)

// TestHandshakes: what senders ask by POST is answered, after the signature check
// where there is one, and is no delivery (SPEC 6.2).
func TestHandshakes(t *testing.T) {
	schemes := []string{"slack", "zoom", "twitch", "line", "asana", "notion", "monday"}
	opt := options{files: fstest.MapFS{}}
	for _, name := range schemes {
		opt.files["webhooks/"+name+".yaml"] = &fstest.MapFile{Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: " + name + "\n")}
	}
	f := newFixtureWith(t, opt)
	post := func(scheme, body string, signed bool, headers ...string) answer {
		t.Helper()
		uid := f.uids()[scheme]
		r := &signature.Request{Method: http.MethodPost, URL: f.url + "/webhooks/w/" + uid, Header: http.Header{}, Body: []byte(body), Now: time.Now()}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		if signed {
			row, _ := signature.Lookup(scheme)
			if err := row.Sign(hookSecret, r); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for name := range r.Header {
			all = append(all, name, r.Header.Get(name))
		}
		return f.do(http.MethodPost, "/webhooks/w/"+uid, "", string(r.Body), all...)
	}
	for _, c := range []struct {
		name, scheme, body string
		signed             bool
		headers            []string
		status             int
		kind, want         string
	}{
		{"slack", "slack", `{"type":"url_verification","challenge":"3eZbrw1aB10="}`, true, nil, 200, "text/plain; charset=utf-8", "3eZbrw1aB10="},
		{"slack, unsigned", "slack", `{"type":"url_verification","challenge":"3eZbrw1aB10="}`, false, nil, 401, "", ""},
		{"slack, markup", "slack", `{"type":"url_verification","challenge":"<script>"}`, true, nil, 202, "", ""},
		{"twitch", "twitch", `{"challenge":"pogchamp-kappa"}`, true, []string{"Twitch-Eventsub-Message-Type", "webhook_callback_verification"}, 200, "text/plain; charset=utf-8", "pogchamp-kappa"},
		{"zoom", "zoom", `{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}`, true, nil, 200, "application/json", `"encryptedToken":"`},
		{"zoom, a token that could be signed content", "zoom", `{"event":"endpoint.url_validation","payload":{"plainToken":"v0:1700000000:{}"}}`, true, nil, 202, "", ""},
		{"zoom, unsigned", "zoom", `{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}`, false, nil, 401, "", ""},
		{"line", "line", `{"destination":"x","events":[]}`, true, nil, 200, "", ""},
		{"line, unsigned", "line", `{"destination":"x","events":[]}`, false, nil, 401, "", ""},
		{"monday", "monday", `{"challenge":"abc123"}`, false, nil, 200, "application/json", `{"challenge":"abc123"}`},
		{"monday, more than that", "monday", `{"challenge":"abc123","event":{}}`, false, nil, 401, "", ""},
		{"asana", "asana", `{}`, false, []string{"X-Hook-Secret", "b537207f20cbfa02357cf448134da559"}, 200, "", ""},
		{"notion", "notion", `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`, false, nil, 200, "", ""},
		{"another scheme's question", "slack", `{"challenge":"abc123"}`, false, nil, 401, "", ""},
	} {
		got := post(c.scheme, c.body, c.signed, c.headers...)
		if got.status != c.status || c.kind != "" && got.header.Get("Content-Type") != c.kind || !strings.Contains(string(got.body), c.want) {
			t.Errorf("%s: %d %s %q", c.name, got.status, got.header.Get("Content-Type"), got.body)
		}
		if c.status == 200 && got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: what a sender wrote comes back, and may be taken for a page", c.name)
		}
		if c.name == "asana" && got.header.Get("X-Hook-Secret") != c.headers[1] {
			t.Errorf("asana wants its secret back: %v", got.header)
		}
	}
	key := f.key("admin", "manage")
	list := string(f.get("/api/v1/deliveries", key).body)
	if n := strings.Count(list, `"id":"dlv_`); n != 7 {
		t.Errorf("%d entries in the log, want the 2 deliveries and the 5 that were refused:\n%s", n, list)
	}
	if strings.Contains(list, "b537207f") || strings.Contains(list, "tMrlL1") {
		t.Error("a secret is in the log")
	}
}

// TestPendingSecrets: a secret that a sender gives waits for the operator, and no
// delivery that is signed with it passes before.
func TestPendingSecrets(t *testing.T) {
	opt := options{files: fstest.MapFS{"webhooks/asana.yaml": {Data: []byte("secretName: ASANA_SECRET\nauthMode: signature\nsignatureScheme: asana\n")}}}
	opt.secrets = map[string]string{"ASANA_SECRET": "nothing-yet-0123456789"}
	f := newFixtureWith(t, opt)
	key := f.key("admin", "manage")
	const given = "b537207f20cbfa02357cf448134da559"
	uid := f.uids()["asana"]
	deliver := func() int {
		row, _ := signature.Lookup("asana")
		r := &signature.Request{Method: http.MethodPost, URL: f.url, Header: http.Header{}, Body: []byte(`{"events":[{"n":1}]}`), Now: time.Now()}
		if err := row.Sign(given, r); err != nil {
			t.Fatal(err)
		}
		return f.do(http.MethodPost, "/webhooks/w/"+uid, "", string(r.Body), "X-Hook-Signature", r.Header.Get("X-Hook-Signature")).status
	}
	for i, value := range []string{"aaaaaaaaaaaaaaaaaaaaaa", "x1", "x2", "x3", "x4", given} {
		if got := f.do(http.MethodPost, "/webhooks/w/"+uid, "", "{}", "X-Hook-Secret", value); got.status != 200 {
			t.Fatalf("handshake %d: %d", i, got.status)
		}
	}
	if status := deliver(); status != 401 {
		t.Errorf("a delivery before the secret is confirmed: %d", status)
	}
	pending := f.get("/api/v1/pending-secrets", key)
	if n := strings.Count(string(pending.body), `"id"`); n != 5 || strings.Contains(string(pending.body), given) {
		t.Errorf("%d pending: %s", n, pending.body)
	}
	id := field(t, pending, "pending_secrets", "0", "id")
	if got := f.do(http.MethodPost, "/api/v1/pending-secrets/"+id+"/confirm", key, ""); got.status != 200 || field(t, got, "generation") != "2" || strings.Contains(string(got.body), given) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if pending = f.get("/api/v1/pending-secrets", key); strings.Contains(string(pending.body), `"id"`) {
		t.Errorf("left are %s", pending.body)
	}
	if got := f.do(http.MethodPost, "/api/v1/pending-secrets/"+id+"/confirm", key, ""); got.status != 404 {
		t.Errorf("twice: %d", got.status)
	}
	if status := deliver(); status != 401 {
		t.Errorf("a delivery before the next apply (SPEC 4.4): %d", status)
	}
	if done, err := f.applier.Apply(t.Context(), "command"); err != nil || done.Outcome != applier.Applied {
		t.Fatal(err, done)
	}
	if status := deliver(); status != 202 {
		t.Errorf("a delivery after it: %d", status)
	}
}
