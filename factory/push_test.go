package factory

import (
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestPushWarnings: rules for pushes that mean nothing, and prompts whose pushes are refused by default,
// are warned of, and nothing else is (SPEC 23.3).
func TestPushWarnings(t *testing.T) {
	const private, readable = "repositories: [{url: https://example.com/x, secret: FORGE}]\n", "repositories: [{url: https://example.com/x, secret: FORGE, access: read}]\n"
	const daily, pulls = "triggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}]\n", "triggers: [{provider: github, event: pull_request_review_requested}]\n"
	for name, tt := range map[string]struct {
		environment, keys, prompt string
		want                      []string // parts of messages
	}{
		"rules and a repository":        {private, daily + "push: {branches: ['fix-*', event, main], tags: [v*]}\n", "Push it.", nil},
		"rules without a repository":    {"", daily + "push: {max: 1}\n", "Push it.", []string{"push has no effect"}},
		"rules for what is read":        {readable, daily + "push: {max: 1}\n", "Push it.", []string{"push has no effect"}},
		"refs in place of names":        {private, daily + "push: {branches: [refs/heads/x, 'a b', 'x^{}', ok], tags: [refs/tags/v1]}\n", "Push it.", []string{"push.branches: refs/heads/x", "push.branches: a b", "push.branches: x^{}", "push.tags: refs/tags/v1"}},
		"a prompt that does not say it": {private, daily, "Repair it, and PUSH it.", []string{"it speaks of a push"}},
		"a command that pushes":         {private + "command: [sh, -c, 'git push origin HEAD:fix']\n", daily, "Repair it.", []string{"it speaks of a push"}},
		"a prompt that says it":         {private, daily, "Repair it, and push triphammer/repair.", nil},
		"an agent that says it":         {private, daily + "agent: own\n", "Repair it, and push.", nil},
		"an agent that does not":        {private, daily + "agent: any\n", "Repair it.", []string{"it speaks of a push"}},
		"a prompt without a push":       {private, daily, "Say what a pushover does.", nil},
		"nowhere to push":               {readable, daily, "Repair it, and push it.", nil},
		"the pull request's branch":     {private, pulls, "Repair it, and push it.", nil},
	} {
		_, report, err := Load(t.Context(), tree(map[string]string{
			"factory.yaml": "schemaVersion: v1alpha1\nname: X\n", "agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n",
			"agents/own/agent.md": "---\nagentType: TRIAGE\n---\nPush branches triphammer/NAME.\n", "agents/any/agent.md": "---\nagentType: TRIAGE\n---\nPush branches.\n", "environments/e.yaml": "timeoutMinutes: 1\n" + tt.environment,
			"automations/a.md": "---\nenvironmentId: e\n" + tt.keys + "---\n" + tt.prompt + "\n",
		}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := slices.DeleteFunc(report.Diagnostics, func(d schema.Diagnostic) bool {
			return d.Severity == schema.Warning && !strings.Contains(d.Message, "push")
		})
		if len(found) != len(tt.want) {
			t.Errorf("%s: %v, want %q", name, found, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(found[i].Message, want) || found[i].Severity != schema.Warning {
				t.Errorf("%s: %v, want %q", name, found[i], want)
			}
		}
	}
}
