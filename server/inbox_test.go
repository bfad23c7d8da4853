package server

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// inboxFixture is a server whose runs and outputs wait for people.
func inboxFixture(t *testing.T, c *clock, automation string) *fixture {
	return newFixtureWith(t, options{now: c.Now, files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: S\n")},
		"automations/other.md": {Data: []byte("---\nenvironmentId: e\n" + automation + "\ntriggers:\n- {provider: github, event: push}\n---\nDo it.\n")},
	}})
}

// ended ends the only queued run well, with what its agent asked for.
func (f *fixture) ended(asked ...string) string {
	f.t.Helper()
	leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 10, Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		f.t.Fatalf("%v %v", leases, err)
	}
	var all []store.NewOutput
	for _, request := range asked {
		all = append(all, store.NewOutput{Kind: "comment", Request: request, Bounds: "{}"})
	}
	if err := f.store.Leases.Finish(f.t.Context(), leases[0], store.Succeeded, "", nil, all...); err != nil {
		f.t.Fatal(err)
	}
	return leases[0].RunID.String()
}

func (f *fixture) runOf(id, key string) api.Run {
	f.t.Helper()
	return read[api.Run](f.t, f.get("/api/v1/agent/runs/"+id, key))
}

func (f *fixture) inbox(key string) []api.InboxItem {
	f.t.Helper()
	return read[struct{ Items []api.InboxItem }](f.t, f.get("/api/v1/inbox", key)).Items
}

// waiting is a run of the automation a that waits to be approved.
func (f *fixture) waiting() string {
	f.t.Helper()
	done, err := f.store.Deliveries.Record(f.t.Context(), &store.NewDelivery{
		Delivery: store.Delivery{Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, Identity: store.Identity{Source: store.IdentityBody, Value: rand.Text()}},
		Runs:     []store.NewRun{{Factory: "default", Automation: "a", Title: "a", SpecHash: sha256.Sum256([]byte("{}")), Spec: []byte("{}"), Approval: &store.NewApproval{For: time.Hour}}},
	})
	if err != nil || len(done.RunIDs) != 1 {
		f.t.Fatalf("%+v %v", done, err)
	}
	return done.RunIDs[0].String()
}

// TestInboxStart: a run that waits to start is in the inbox, whoever may decides it, and everybody sees who
// did (SPEC 26.1, 26.2).
func TestInboxStart(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)}
	f := inboxFixture(t, c, "approval: [start]\napprovalTimeout: 2h")
	key, reader, runs := f.key("op", "operate"), f.key("reader", "read"), f.key("ci", "runs")
	id := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+f.push("1"), reader)).Runs[0]
	r := f.runOf(id, reader)
	if r.State != "BLOCKED" || r.Approval == nil || r.Undecided == "" || !strings.Contains(r.Belt[0].Detail, "waits for a person to approve it") || strings.Join(r.Detail.Takes, " ") != "cancel" {
		t.Fatalf("%+v %+v", r, r.Belt)
	}
	items := f.inbox(reader)
	if len(items) != 1 || items[0].Kind != "start" || items[0].RunID != id || items[0].Shown != r.Undecided || items[0].Person != "github:ada" || !items[0].EndsAt.Equal(c.now.Add(2*time.Hour)) {
		t.Errorf("%+v", items)
	}
	decide := func(key, decision, shown, reason string) answer {
		return f.do("POST", "/api/v1/agent/runs/"+id+"/decision", key, fmt.Sprintf(`{"decision":%q,"shown":%q,"reason":%q}`, decision, shown, reason))
	}
	_, token, err := f.store.Keys.Create(t.Context(), store.Key{Name: "robot", Kind: store.KeyAgent, Owner: "robot", Scopes: []string{"operate"}})
	if err != nil {
		t.Fatal(err)
	}
	manager, viewer := f.visitor("manager"), f.visitor("viewer")
	for _, path := range []string{"/inbox", "/runs/" + id} {
		manager.page("GET", path, "", http.StatusOK, "github:ada", "Approve", "Decline")
		if page := viewer.page("GET", path, "", http.StatusOK, "github:ada"); strings.Contains(page, "Decline") {
			t.Errorf("a viewer can decide on %s: %s", path, page)
		}
	}
	manager.page("GET", "/", "", http.StatusOK, "other waits to start", "Look, then decide")
	viewer.page("POST", "/runs/"+id+"/decision", "decision=approve&shown="+r.Undecided, http.StatusForbidden)
	manager.page("POST", "/runs/"+id+"/decision", "decision=approve&shown=other", http.StatusConflict, "it changed since it was shown")
	for name, c := range map[string]struct {
		key, decision, shown, reason string
		status                       int
		says                         string
	}{
		"a reader":        {reader, "approve", r.Undecided, "", http.StatusForbidden, "operate"},
		"a key for runs":  {runs, "approve", r.Undecided, "", http.StatusForbidden, "operate"},
		"an agent":        {token.Reveal(), "approve", r.Undecided, "", http.StatusForbidden, "a key of an agent does not"},
		"something else":  {key, "approve", strings.Repeat("0", 64), "", http.StatusConflict, "it changed since it was shown"},
		"nothing shown":   {key, "approve", "", "", http.StatusBadRequest, "shown is required"},
		"no decision":     {key, "maybe", r.Undecided, "", http.StatusBadRequest, "approve or decline"},
		"a long reason":   {key, "decline", "", strings.Repeat("x", 501), http.StatusBadRequest, "reason"},
		"a reason of two": {key, "decline", "", "x\ny", http.StatusBadRequest, "reason"},
	} {
		if a := decide(c.key, c.decision, c.shown, c.reason); a.status != c.status || !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := f.do("POST", "/api/v1/agent/runs/"+id+"/followups", key, `{"message":"go on"}`); a.status != http.StatusConflict {
		t.Errorf("a follow-up of a run that waits: %d %s", a.status, a.body)
	}
	if a := decide(key, "approve", r.Undecided, "fine"); a.status != http.StatusOK || read[api.Decided](t, a) != (api.Decided{RunID: id, ID: id, State: "QUEUED", Decision: "approved"}) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := decide(key, "decline", "", ""); a.status != http.StatusConflict || !strings.Contains(string(a.body), "approved by ada (fine), at 2026-11-26T09:00:00Z") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if r = f.runOf(id, reader); r.State != "QUEUED" || r.Approval.By != "ada" || r.Approval.Through != "key op (ada)" || r.Undecided != "" || !strings.Contains(r.Belt[0].Detail, "approved by ada (fine)") {
		t.Errorf("%+v %+v", r, r.Belt)
	}
	if items := f.inbox(reader); len(items) != 0 {
		t.Errorf("%+v", items)
	}
	admin := f.key("admin", "manage")
	if log := string(f.get("/api/v1/audit?action=run.approve", admin).body); !strings.Contains(log, "sha256:") || !strings.Contains(log, "key op (ada)") {
		t.Errorf("%s", log)
	}
}

// TestInboxRetry: a run that was not approved starts again by nobody who could not have approved it.
func TestInboxRetry(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)}
	f := inboxFixture(t, c, "approval: [start]")
	key, runs := f.key("op", "operate"), f.key("ci", "runs")
	id := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+f.push("1"), key)).Runs[0]
	if a := f.do("POST", "/api/v1/agent/runs/"+id+"/decision", key, `{"decision":"decline","reason":"no"}`); a.status != http.StatusOK || read[api.Decided](t, a).State != "CANCELLED" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r := f.runOf(id, key); r.StatusMessage != "declined by ada (no) before it started" {
		t.Errorf("%+v", r)
	}
	if a := f.do("POST", "/api/v1/agent/runs/"+id+"/retry", runs, ""); a.status != http.StatusForbidden {
		t.Errorf("by a key that may not approve: %d %s", a.status, a.body)
	}
	a := f.do("POST", "/api/v1/agent/runs/"+id+"/retry", key, "")
	if a.status != http.StatusOK || f.runOf(field(t, a, "run_id"), key).State != "QUEUED" {
		t.Errorf("by a person: %d %s", a.status, a.body)
	}
	// So do runs that a person starts by hand.
	if a := f.do("POST", "/api/v1/factories/default/automations/other/run", key, "{}"); a.status != http.StatusOK || f.runOf(field(t, a, "run_id"), key).State != "QUEUED" {
		t.Errorf("by hand: %d %s", a.status, a.body)
	}
}

// TestInboxOutputs: what an agent asked for is in the inbox as people read it, and leaves when it is approved,
// each by itself or all together (SPEC 26.1, 26.2).
func TestInboxOutputs(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)}
	f := inboxFixture(t, c, "outputs: {comment: {max: 9}}\napproval: [outputs]")
	key := f.key("op", "operate")
	f.push("1")
	id := f.ended(`{"kind":"comment","body":"one"}`, `{"kind":"comment","body":"two"}`, `{"kind":"comment","body":"three"}`)
	items := f.inbox(key)
	if len(items) != 1 || items[0].Kind != "outputs" || len(items[0].Outputs) != 3 || items[0].Outputs[1].Text != "two" || items[0].Title != "other asks for 3 things" {
		t.Fatalf("%+v", items)
	}
	manager := f.visitor("manager")
	for _, path := range []string{"/inbox", "/runs/" + id} {
		manager.page("GET", path, "", http.StatusOK, "1. comment what Comments on what the event is about.", "two", "Approve all", "Decline all")
	}
	decide := func(body string) answer { return f.do("POST", "/api/v1/agent/runs/"+id+"/decision", key, body) }
	two := f.runOf(id, key).Outputs[1]
	if a := decide(fmt.Sprintf(`{"decision":"approve","output":2,"shown":%q}`, two.Approval.Shown)); a.status != http.StatusOK || read[api.Decided](t, a).State != "SUCCEEDED" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := decide(fmt.Sprintf(`{"decision":"approve","shown":%q}`, items[0].Shown)); a.status != http.StatusConflict {
		t.Errorf("all, as they were before: %d %s", a.status, a.body)
	}
	manager.page("POST", "/runs/"+id+"/decision", "back=inbox&decision=decline&reason=rude&shown="+f.runOf(id, key).Undecided, http.StatusSeeOther)
	manager.page("GET", "/runs/"+id, "", http.StatusOK, "Discarded", "declined by ada (rude)")
	var states []string
	for _, o := range f.runOf(id, key).Outputs {
		states = append(states, o.Status+" "+o.Approval.Decision+" "+o.Detail)
	}
	if got := strings.Join(states, "; "); got != "discarded declined declined by ada (rude); pending approved ; discarded declined declined by ada (rude)" {
		t.Errorf("%s", got)
	}
}
