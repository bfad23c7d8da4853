package server

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/store"
)

// TestAnswerRun: an answer that was given up is sent again by whoever may start runs, from the page or by the
// API, and that is in the audit log (SPEC 22.5).
func TestAnswerRun(t *testing.T) {
	f := newFixtureWith(t, options{secrets: map[string]string{"TELL": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, files: fstest.MapFS{
		"webhooks/told.yaml":  {Data: []byte("secretName: S\nreport: {url: 'https://ci.example.com/hooks', secretName: TELL}\n")},
		"automations/told.md": {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [told]}}]\n---\nDo it.\n")},
	}})
	viewer, runner, admin := f.key("viewer", store.ScopeRead), f.key("runner", store.ScopeRuns), f.key("admin", store.ScopeManage)
	delivery := field(t, f.do("POST", ingress+f.uids()["told"], hookSecret, `{"n":1}`), "delivery_id")
	id := field(t, f.get("/api/v1/deliveries/"+delivery, admin), "runs", "0")
	run, err := store.ParseID[store.Run](id)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	leases, err := f.store.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Hour})
	if check(err); len(leases) != 1 {
		t.Fatalf("%+v", leases)
	}
	check(f.store.Leases.Finish(t.Context(), leases[0], store.Succeeded, "", nil))
	giveUp := func() {
		t.Helper()
		all, err := f.store.Answers.Of(t.Context(), run)
		if check(err); len(all) != 1 || all[0].Status != store.AnswerPending || all[0].DueAt.IsZero() {
			t.Fatalf("%+v", all)
		}
		a := all[0]
		if taken, err := f.store.Answers.Begin(t.Context(), &a, time.Time{}); !taken || err != nil {
			t.Fatal(taken, err)
		}
		a.Status, a.Detail, a.DueAt = store.AnswerFailed, "answered 410", time.Time{}
		check(f.store.Answers.Save(t.Context(), a))
	}
	const button = "Send it again"
	manager := f.visitor("manager")
	if page := manager.page("GET", "/runs/"+id, "", 200, "Answered: url: "); strings.Contains(page, button) {
		t.Errorf("an answer that waits can be sent again: %s", page)
	}
	path := "/api/v1/agent/runs/" + id + "/answer"
	if got := f.do("POST", path, runner, ""); got.status != 409 || !strings.Contains(string(got.body), "no answer and no output of "+id+" was given up") {
		t.Errorf("%d %s", got.status, got.body)
	}
	giveUp()
	manager.page("GET", "/runs/"+id, "", 200, "could not be told, and needs a person: answered 410", button)
	if page := f.visitor("viewer").page("GET", "/runs/"+id, "", 200, "answered 410"); strings.Contains(page, button) {
		t.Errorf("a viewer can send it again: %s", page)
	}
	if got := f.do("POST", path, viewer, ""); got.status != 403 {
		t.Errorf("a viewer: %d %s", got.status, got.body)
	}
	manager.page("POST", "/runs/"+id+"/answer", "", 303)
	giveUp()
	if got := f.do("POST", path, runner, ""); got.status != 200 || string(got.body) != `"`+id+`"` {
		t.Errorf("%d %s", got.status, got.body)
	}
	giveUp()
	if got := string(f.get("/api/v1/audit", admin).body); strings.Count(got, `"run.answer"`) != 2 {
		t.Errorf("audit: %s", got)
	}
}
