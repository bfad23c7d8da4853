package server

import (
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

// TestRunAutomation: somebody starts a run of an automation, which is that of the automation
// in all but who asked for it.
func TestRunAutomation(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"automations/off.md":    {Data: []byte("---\nenabled: false\nenvironmentId: e\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {x: [1]}}}]\n---\nDo it.\n")},
		"automations/paused.md": {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {x: [1]}}}]\n---\nDo it.\n")},
	}})
	operator := f.key("op", "operate")
	f.do("POST", "/api/v1/factories/default/automations/paused/pause", operator, "")
	const at = "/api/v1/factories/default/automations/"
	for _, c := range []struct {
		name, automation, body string
		status                 int
		says                   string // the answer, or the prompt of the run
		not                    string
	}{
		{"as it is", "a", "", 200, "Do it.", "event-payload.json"},
		{"with a prompt", "a", `{"prompt":"Say what you would do, and change nothing."}`, 200, "Do it.\n\nSay what you would do, and change nothing.", "event-payload.json"},
		{"with a payload", "a", `{"payload":{"n":1},"title":"By hand"}`, 200, "event-payload.json", "Delivery ID"},
		{"null is no payload", "a", `{"payload":null}`, 200, "Do it.", "event-payload.json"},
		{"text that would be markup", "a", `{"prompt":"<script>\u202e"}`, 200, "<script>", ""},
		{"a disabled one", "off", "", 409, "disabled", ""},
		{"a paused one", "paused", "", 409, "paused by key op", ""},
		{"none", "none", "", 404, "none", ""},
		{"no JSON", "a", "{", 400, "not JSON", ""},
		{"another shape", "a", `{"prompt":7}`, 400, "prompt", ""},
		{"too large", "a", `{"prompt":"` + strings.Repeat("a", maxRequest) + `"}`, 413, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.do("POST", at+c.automation+"/run", operator, c.body)
			if got.status != c.status {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if c.status != 200 {
				if !strings.Contains(string(got.body), c.says) {
					t.Errorf("%s", got.body)
				}
				return
			}
			made := f.get("/api/v1/agent/runs/"+field(t, got, "run_id"), operator)
			prompt := field(t, made, "prompt")
			if field(t, made, "automation") != "a" || field(t, made, "source") != "API" || !strings.Contains(prompt, c.says) || c.not != "" && strings.Contains(prompt, c.not) {
				t.Errorf("%q of %s", prompt, made.body)
			}
			if title := field(t, made, "title"); title != "a" && title != "By hand" {
				t.Errorf("its title is %q", title)
			}
		})
	}
	for _, scope := range []string{"read", "runs"} {
		if got := f.do("POST", at+"a/run", f.key("k"+scope, scope), ""); got.status != 403 {
			t.Errorf("with %s: %d", scope, got.status)
		}
	}
	log, err := f.store.Audit.List(t.Context(), store.AuditQuery{Action: "automation.run"})
	if err != nil || len(log) != 5 || log[0].Details != "of a" {
		t.Errorf("%v, %v", log, err)
	}
	b, viewer := f.visitor("operator"), f.visitor("viewer")
	b.page("GET", "/automations/a", "", 200, "Run now…", "To add to its prompt")
	if text := viewer.page("GET", "/automations/a", "", 200); strings.Contains(text, "Run now…") {
		t.Error("a viewer is offered it")
	}
	const run = "/factories/default/automations/a/run"
	viewer.page("POST", run, "", 403)
	b.page("POST", run, url.Values{"prompt": {"Look <b>here"}, "payload": {"{"}}.Encode(), 422, "The payload is no JSON. Nothing was started.", "Look <b>here")
	b.page("POST", "/factories/default/automations/paused/run", "", 422, "resume it first")
	b.follow(run, url.Values{"payload": {`{"n": 1}`}}.Encode(), "The run is in the queue.", "Queued")
}
