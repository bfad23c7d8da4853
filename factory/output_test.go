package factory

import (
	"strings"
	"testing"
)

// TestAsk: a question that anybody could answer, or that nobody can be asked, is a warning, and more than one
// question a run is an error (SPEC 26.3).
func TestAsk(t *testing.T) {
	const labeled, pushed = "triggers: [{provider: github, event: issue_labeled}]\n", "triggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}]\n"
	for name, c := range map[string]struct{ automation, want string }{
		"anybody":       {"outputs: {ask: {}}\n" + labeled, "on a public repository anybody can answer what this automation asks at GitHub"},
		"with a list":   {"outputs: {ask: {max: 1}}\nstartedBy: [write]\n" + labeled, ""},
		"disabled":      {"outputs: {ask: {}}\nenabled: false\n" + labeled, ""},
		"no question":   {"outputs: {close: {}}\n" + labeled, ""},
		"two questions": {"outputs: {ask: {max: 2}}\nstartedBy: [write]\n" + labeled, "outputs.ask.max is 2 where more than 0 and at most 1 is expected"},
		"no thread":     {"outputs: {ask: {}}\n" + pushed, "outputs has no effect: no trigger names an event of a sender"},
	} {
		t.Run(name, func(t *testing.T) {
			_, report, err := Load(t.Context(), tree(map[string]string{
				"factory.yaml": "schemaVersion: v1alpha1\nname: x\n", "agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n",
				"webhooks/w.yaml":  "authMode: signature\nsignatureScheme: github\nsecretName: S\napiSecretName: T\n",
				"automations/a.md": "---\n" + c.automation + "---\nPrompt\n",
			}), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, d := range report.Diagnostics {
				found = append(found, d.Message)
			}
			if all := strings.Join(found, "\n"); c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("%q, want %q", all, c.want)
			}
		})
	}
}
