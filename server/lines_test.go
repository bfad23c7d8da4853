package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/store"
)

// push sends a delivery of GitHub about a push to main, and returns its id.
func (f *fixture) push(commit string) string {
	f.t.Helper()
	return f.github("push", commit, fmt.Sprintf(`{"ref":"refs/heads/main","after":"%040s","repository":{"id":1,"full_name":"acme/app"},"sender":{"login":"ada"},"commits":[]}`, commit))
}

// github delivers an event of GitHub.
func (f *fixture) github(event, id, body string) string {
	f.t.Helper()
	id = event + "-" + id
	header := http.Header{"X-Github-Event": {event}, "X-Github-Delivery": {id}}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(hookSecret, &signature.Request{Header: header, Body: []byte(body)}); err != nil {
		f.t.Fatal(err)
	}
	a := f.do("POST", ingress+f.uids()["github"], "", body, "X-GitHub-Event", event, "X-GitHub-Delivery", id, "X-Hub-Signature-256", header.Get("X-Hub-Signature-256"))
	if a.status != http.StatusAccepted {
		f.t.Fatalf("%d %s", a.status, a.body)
	}
	return field(f.t, a, "delivery_id")
}

// read reads an answer.
func read[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFivePushes: five quick pushes make one run, which is about the newest; a push while that is
// at work takes its place when it is dead; and all of it can be seen (SPEC 21.3, 21.4).
func TestFivePushes(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)}
	f := newFixtureWith(t, options{now: c.Now, files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"automations/other.md": {Data: []byte("---\nenvironmentId: e\nsettle: 30s\nperSubject: replace\ntriggers:\n- {provider: github, event: push}\n---\nDo it.\n")},
	}})
	key := f.key("reader", "read")
	claim := func() []store.Lease {
		leases, err := f.store.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 10, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return leases
	}
	var deliveries []string
	for n := range 5 {
		deliveries = append(deliveries, f.push(fmt.Sprint(n)))
		c.pass(20 * time.Second)
	}
	if leases := claim(); len(leases) != 0 {
		t.Fatalf("%v started before it was quiet", leases)
	}
	show := func(delivery string) api.DeliveryDetail {
		return read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+delivery, key))
	}
	runOf := func(delivery string) api.Run {
		return read[api.Run](t, f.get("/api/v1/agent/runs/"+show(delivery).Runs[0], key))
	}
	if d := show(deliveries[4]); len(d.Runs) == 0 {
		t.Fatalf("%+v", d.Belt)
	}
	newest := runOf(deliveries[4])
	if belt := newest.Belt[0].Detail; !strings.Contains(belt, "waits for further events of github:acme/app/heads/main; it starts at") {
		t.Errorf("the newest is %s: %s", newest.State, belt)
	}
	c.pass(11 * time.Second)
	leases := claim()
	if len(leases) != 1 || leases[0].RunID.String() != newest.RunID {
		t.Fatalf("started %v, and not %s alone", leases, newest.RunID)
	}
	for i, delivery := range deliveries[:4] {
		if r, next := runOf(delivery), runOf(deliveries[i+1]).RunID; r.State != "CANCELLED" || r.ReplacedBy != next || !strings.Contains(r.StatusMessage, next) {
			t.Errorf("push %d: %s %s, replaced by %s and not %s", i, r.State, r.StatusMessage, r.ReplacedBy, next)
		}
	}
	sixth := f.push("5")
	c.pass(time.Minute)
	if again := claim(); len(again) != 0 {
		t.Fatalf("%v started beside %s", again, newest.RunID)
	}
	if r := runOf(sixth); r.State != "QUEUED" || !strings.Contains(r.Belt[0].Detail, "waits for "+newest.RunID) {
		t.Errorf("%s %s: %+v", r.State, r.StatusMessage, r.Belt)
	}
	asked, err := f.store.Leases.Renew(t.Context(), leases[0], time.Hour)
	if err != nil || asked != store.StopCancel {
		t.Fatalf("%v %v", asked, err)
	}
	if err := f.store.Leases.Finish(t.Context(), leases[0], store.Cancelled, "", nil); err != nil {
		t.Fatal(err)
	}
	if again := claim(); len(again) != 1 || again[0].RunID.String() != runOf(sixth).RunID {
		t.Errorf("started %v", again)
	}
}

// TestSkippedPush: a push while a run is at work starts nothing, and the delivery says which run.
func TestSkippedPush(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"automations/other.md": {Data: []byte("---\nenvironmentId: e\nperSubject: skip\ntriggers:\n- {provider: github, event: push}\n---\nDo it.\n")},
	}})
	key := f.key("reader", "read")
	first, second := f.push("1"), f.push("2")
	run := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+first, key)).Runs[0]
	got := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+second, key))
	last := got.Belt[len(got.Belt)-1]
	if len(got.Runs) != 0 || len(got.Skips) != 1 || got.Skips[0] != (api.Skip{Automation: "other", Of: run}) || !strings.Contains(last.Detail, "other was skipped: "+run) {
		t.Errorf("%v %+v %+v", got.Runs, got.Skips, last)
	}
}

// TestNoSubject: what has no subject starts its run at once, and the belt says so.
func TestNoSubject(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"automations/a.md": {Data: []byte("---\nenvironmentId: e\nsubject: \"{alert.id}\"\nperSubject: queue\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook]}}\n---\nDo it.\n")},
	}})
	key := f.key("reader", "read")
	for _, body := range []string{`{"n":1}`, `{"n":2}`} {
		a := f.do("POST", ingress+f.uids()["hook"], hookSecret, body)
		got := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+field(t, a, "delivery_id"), key))
		if belt := got.Belt[4].Detail; !strings.Contains(belt, "without a subject, a run starts as with perSubject: parallel (a)") {
			t.Errorf("the belt says %q", belt)
		}
		run := read[api.Run](t, f.get("/api/v1/agent/runs/"+got.Runs[0], key))
		if !strings.Contains(run.Belt[0].Detail, "no server is running") {
			t.Errorf("%+v", run.Belt[0])
		}
	}
}
