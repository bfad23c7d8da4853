package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
)

// TestDispatch: a run of a factory goes to its foreman, with its ticket as metadata, and
// once for an Idempotency-Key.
func TestDispatch(t *testing.T) {
	f := newFixtureWith(t, options{files: publishedTree})
	key := f.key("k", "runs")
	const path = "/api/v1/factory/default/runs"
	made := f.do("POST", path, key, `{"prompt":"Look.","ticket_ref":"linear:ACME-1","ticket_url":"https://linear.example.com/ACME-1"}`)
	run := f.get("/api/v1/agent/runs/"+field(t, made, "run_id"), key)
	for at, want := range map[string]string{
		"prompt": "Look.", "agent": "boss", "factory": "default", "environment_id": "e", "metadata/ticket_source": "linear", "metadata/ticket_id": "ACME-1",
		"metadata/ticket_url": "https://linear.example.com/ACME-1",
	} {
		if got := field(t, run, strings.Split(at, "/")...); got != want {
			t.Errorf("%s is %s, want %s", at, got, want)
		}
	}
	if got := field(t, made, "foreman_agent") + " " + field(t, made, "ticket_ref"); got != "boss linear:ACME-1" {
		t.Error(got)
	}
	if found := f.get("/api/v1/agent/runs?metadata[ticket_id]=ACME-1", key); field(t, found, "runs", "0", "run_id") != field(t, made, "run_id") {
		t.Errorf("the ticket does not find its run: %s", found.body)
	}
	first := f.do("POST", path, key, `{"prompt":"x"}`, "Idempotency-Key", "one")
	again := f.do("POST", path, key, `{"prompt":"x"}`, "Idempotency-Key", "one")
	if ref := field(t, first, "ticket_ref"); !strings.HasPrefix(ref, "adhoc:") || string(first.body) != string(again.body) {
		t.Errorf("%s, and again %s", first.body, again.body)
	}
	for body, status := range map[string]int{`{}`: 400, `{"prompt":"x","ticket_ref":"ACME-1"}`: 400, `{"prompt":"x","ticket_ref":":1"}`: 400, `[]`: 400} {
		if got := f.do("POST", path, key, body); got.status != status || field(t, got, "message") == "<nil>" {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	bare := newFixture(t)
	got := bare.do("POST", path, bare.key("k", "runs"), `{"prompt":"x"}`)
	if got.status != 422 || !strings.Contains(field(t, got, "message"), "agents/NAME/agent.md") {
		t.Errorf("without a foreman: %d %s", got.status, got.body)
	}
}

// TestPublishedLists: lists of the published API have pages and searches, and no parameter
// of them is ignored.
func TestPublishedLists(t *testing.T) {
	f := newFixtureWith(t, options{files: publishedTree})
	key := f.key("k", "runs")
	for query, want := range map[string]int{
		"": 1, "?search=EST": 1, "?search=default": 1, "?search=tests": 1, "?search=none": 0, "?filter_team_uid=default": 1, "?filter_team_uid=x": 0, "?cursor=default": 0,
	} {
		got := f.get("/api/v1/factory"+query, key)
		if n := strings.Count(string(got.body), `"uid":"default"`); got.status != http.StatusOK || n != want {
			t.Errorf("/factory%s: %d factories, want %d: %s", query, n, want, got.body)
		}
	}
	for _, path := range []string{
		"/factory?q=x", "/factory?limit=0", "/factory?limit=501", "/factory?search=a&search=b", "/agent/identities?limit=1", "/agent/models?provider=x", "/agent?repo=a/b",
		"/agent?sort_by=last_run", "/agent/environments?sort_by=x", "/agent/schedules?name=x",
		"/agent/run-by-external-reference", "/agent/run-by-external-reference?url=x&urls=y",
	} {
		if got := f.get("/api/v1"+path, key); got.status != http.StatusBadRequest || field(t, got, "message") == "<nil>" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, path := range []string{
		"/factory/none", "/factory/none/tasks", "/factory/none/benchmarks/suites", "/agent/identities/none",
		"/agent/identities/none%2Fboss", "/agent/runs/run_0000000000001/harness-usage",
		"/agent/conversations/run_0000000000001/transcript", "/agent/run-by-external-reference?url=https://example.com/none",
	} {
		if got := f.get("/api/v1"+path, key); got.status != http.StatusNotFound || field(t, got, "message") == "<nil>" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := f.get("/api/v1/agent/identities/boss", key); field(t, got, "uid") != "default/boss" || strings.Contains(string(got.body), "Authorization") {
		t.Errorf("an agent by its name: %s", got.body)
	}
}

// TestFactorySync: a dry run says what the newest commit would change, and changes nothing.
func TestFactorySync(t *testing.T) {
	f := newFixtureWith(t, options{files: publishedTree, hosted: true})
	key := f.key("k", "operate")
	serves := func() string { return field(t, f.get("/api/v1/factories/default", key), "applied", "commit") }
	before := serves()
	commitTo(t, f.home, fstest.MapFS{"automations/new.md": {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook]}}]\n---\nNew.\n")}})
	dry := f.do("POST", "/api/v1/factory/default/sync", key, `{"dry_run":true}`)
	if dry.status != http.StatusOK || field(t, dry, "plan", "creates", "0", "path") != "automations/new.md" || field(t, dry, "commit_sha") == before {
		t.Errorf("%d %s", dry.status, dry.body)
	}
	if got := serves(); got != before {
		t.Errorf("after a dry run, %s serves, not %s", got, before)
	}
	if got := f.do("POST", "/api/v1/factory/default/sync", key, fmt.Sprintf(`{"sha":%q}`, before)); got.status != 422 || !strings.Contains(field(t, got, "message"), "/pin") {
		t.Errorf("an older commit: %d %s", got.status, got.body)
	}
	if got := f.do("POST", "/api/v1/factory/default/sync", key, ""); got.status != http.StatusAccepted || field(t, got, "commit_sha") != field(t, dry, "commit_sha") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do("POST", "/api/v1/factory/default/sync", f.key("reads", "read"), ""); got.status != http.StatusForbidden {
		t.Errorf("with read alone: %d", got.status)
	}
}
