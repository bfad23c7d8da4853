package server

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"triphammer/server/store"
)

// TestAutomationRules: the API shows what the file of an automation says of its runs, and the defaults of what they may push.
func TestAutomationRules(t *testing.T) {
	f := newFixtureWith(t, options{secrets: map[string]string{"TELL": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, files: fstest.MapFS{
		"webhooks/hub.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"automations/full.md": {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: github, event: issue_labeled}]\nstartedBy: [write]\nmaxRunsPerHour: 7\nmaxRunsPerPersonPerHour: 3\noverflow: queue\nperSubject: queue\nsettle: 90s\n" +
			"outputs: {comment: {max: 2}, close: {}}\npush: {tags: ['v*'], max: 1}\nreport: {url: 'https://ci.example.com/hooks', secretName: TELL}\nbudget: {usd: 2.5}\nretry: {attempts: 2, delaySeconds: 1}\n---\nDo it.\n")},
		"automations/plain.md": {Data: []byte("---\nenvironmentId: e\ntriggers: [{provider: github, event: issue_labeled}]\n---\nDo it.\n")},
	}})
	var got struct{ Automations []map[string]any }
	if err := json.Unmarshal(f.get("/api/v1/automations", f.key("viewer", store.ScopeRead)).body, &got); err != nil {
		t.Fatal(err)
	}
	const push = `"branches":["triphammer/*","event"],"max":`
	for name, want := range map[string]string{
		"full": `{"budget":{"usd":2.5},"max_runs_per_hour":7,"max_runs_per_person_per_hour":3,"outputs":{"close":{},"comment":{"max":2}},"overflow":"queue","per_subject":"queue",` +
			`"push":{` + push + `1,"max_bytes":67108864,"tags":["v*"]},"report":{"kinds":[],"secret_name":"TELL","url":"https://ci.example.com"},"retry":{"attempts":2,"delay_ns":1000000000},"settle_seconds":90,"started_by":["write"]}`,
		"plain": `{"push":{` + push + `3,"max_bytes":67108864}}`,
	} {
		for _, a := range got.Automations {
			if a["name"] != name {
				continue
			}
			for _, other := range []string{"name", "factory", "path", "enabled", "agent", "environment_id", "triggers", "paused", "dormant", "warnings"} {
				delete(a, other)
			}
			if text, _ := json.Marshal(a); string(text) != want {
				t.Errorf("%s is %s, want %s", name, text, want)
			}
			want = ""
		}
		if want != "" {
			t.Errorf("%s is missing", name)
		}
	}
}
