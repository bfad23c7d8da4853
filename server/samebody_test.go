package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/store"
)

// TestSameBody: a signed body that came before under another id is shown by the API, the page, the status
// and the metrics, and with replayWindow the sender gets the answer of a wrong signature (SPEC 5.13).
func TestSameBody(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"webhooks/window.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\nreplayWindow: 2h\n")},
	}})
	key := f.key("reader", "read")
	if s := read[api.Status](t, f.get("/api/v1/status", key)); s.Factories[0].SameBodies != nil {
		t.Errorf("%+v", s.Factories[0].SameBodies)
	}
	first := f.github("ping", "1", `{"zen":"a"}`)
	second := f.github("ping", "2", `{"zen":"a"}`)
	if err := f.store.Subjects.Index(t.Context(), func(*store.Delivery, []byte) ([]string, store.PullState, bool) { return nil, store.PullState{}, true }); err != nil {
		t.Fatal(err)
	}
	d := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+second, key))
	if d.SameBodyAs != first || !strings.Contains(d.Belt[3].Detail, "same signed body as "+first) {
		t.Errorf("%+v", d)
	}
	sent := &signature.Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte(`{"zen":"b"}`)}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(hookSecret, sent); err != nil {
		t.Fatal(err)
	}
	proof := sent.Header.Get("X-Hub-Signature-256")
	send := func(id string) answer {
		return f.do("POST", ingress+f.uids()["window"], "", `{"zen":"b"}`, "X-Hub-Signature-256", proof, "X-GitHub-Delivery", id)
	}
	if got := send("1"); got.status != http.StatusAccepted {
		t.Fatalf("%+v", got)
	}
	forged := f.do("POST", ingress+f.uids()["window"], "", `{"zen":"c"}`, "X-Hub-Signature-256", proof, "X-GitHub-Delivery", "3")
	if got := send("2"); got.status != http.StatusUnauthorized || string(got.body) != string(forged.body) || got.status != forged.status {
		t.Errorf("%+v, and with a wrong signature %+v", got, forged)
	}
	refused := read[api.List[api.Delivery]](t, f.get("/api/v1/deliveries?outcome=rejected_auth&webhook=window", key)).Entries[0]
	if refused.Reason != store.ReasonReplayed || refused.SameBodyAs == "" || refused.Identity.Value != "2" {
		t.Errorf("%+v", refused)
	}
	s := read[api.Status](t, f.get("/api/v1/status", key)).Factories[0].SameBodies
	if s == nil || *s != (api.SameBodies{Count: 2, Newest: refused.ID}) {
		t.Errorf("%+v", s)
	}
	if got := string(f.get("/metrics", key).body); !strings.Contains(got, "\ntriphammer_same_body_deliveries 2\n") || !strings.Contains(got, `reason="body_replayed",status="401",webhook="window"`) {
		t.Errorf("the metrics are %s", got)
	}
	if w := read[api.Webhook](t, f.get("/api/v1/webhooks/window", key)); w.ReplayWindow != "2h" {
		t.Errorf("%+v", w)
	}
	page := f.visitor("viewer")
	page.page("GET", "/deliveries/"+second, "", 200, "It has the same signed body as "+first)
	page.page("GET", "/webhooks/window", "", 200, "replay window 2h")
}
