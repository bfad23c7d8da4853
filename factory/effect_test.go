package factory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestNoEffect: each row of the table is a warning where its key says something,
// none where it does not, and never with Strict, whose verdict is the format's.
func TestNoEffect(t *testing.T) {
	const settings = "runner: r\nworkerHost: h\nmcpServers: {m: {warpId: x}}\nharness: {type: claude, model: m, reasoningLevel: high, auth: {source: workerEnvironment}}\n"
	trigger := "triggers: [{provider: webhook, event: received, filter: {webhook_ids: [whk_1]}}]\n"
	files := tree(map[string]string{
		"factory.yaml": "schemaVersion: v1alpha1\nname: X\nalias: x\ncredentialStrategy: EXECUTOR\nrepositories: [{owner: a, name: b}]\ncodeForges: [GITHUB]\n" +
			"mcpServers: {m: {warpId: x}}\ncloudProviders: {aws: {roleArn: r}}\nproviders: {aws: {roleArn: r}}\n\n" +
			"selfImprovement: true\nscorerDefaults: {model: m}\nscoring: {enabled: true}\n" +
			"agentDefaults:\n  " + strings.ReplaceAll(strings.TrimSpace(settings), "\n", "\n  ") + "\n",
		"agents/lead/agent.md":    "---\nagentType: FOREMAN\n---\n",
		"agents/a/agent.md":       "---\nagentType: TRIAGE\ncredentialStrategy: CREATOR\n" + settings + "---\n",
		"automations/a.md":        "---\n" + trigger + settings + "---\n",
		"runners/r.yaml":          "platform: {linux: {dockerImage: i, registryCredentialSecretName: K}}\n",
		"runners/m.yaml":          "platform: {os: macos, mac: {version: '15'}}\n",
		"environments/e.yaml":     "dockerImage: i\nbudget: {usd: 1}\n",
		"scorers/s/scorer.md":     "---\nagents: [lead]\nlabels: [{value: a, score: 1}, {value: b, score: 0}]\npassingScore: 1\nmodel: m\n---\nRubric.\n",
		"benchmarks/b/suite.yaml": "{name: B, agent: lead, tasks: [one]}\n", "benchmarks/b/tasks/one.yaml": "{title: t, prompt: p, successCriteria: s}\n",
		"skills/x/SKILL.md": "x",
	})
	warned := func(opt Options) (all []string) {
		_, report, err := Load(t.Context(), files, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Diagnostics {
			if d.Code == schema.NoEffect {
				all = append(all, d.Path+": "+d.Message)
			} else if !opt.Strict && d.Severity == schema.Error {
				t.Error(d)
			}
		}
		return all
	}
	got := warned(Options{})
	paths := map[string]string{
		"factory": "factory.yaml", "agent": "agents/a/agent.md", "automation": "automations/a.md", "environment": "environments/e.yaml",
		"scorer": "scorers/s/scorer.md", "benchmark suite": "benchmarks/b/suite.yaml", "benchmark task": "benchmarks/b/tasks/one.yaml",
	}
	for _, row := range withoutEffect {
		what := row.key
		if what == "" {
			what = "this file"
		}
		path := paths[row.kind]
		if row.kind == "runner" {
			path = "runners/r.yaml"
			if strings.Contains(row.key, "mac") {
				path = "runners/m.yaml"
			}
		}
		if want := fmt.Sprintf("%s: %s has no effect on this server: %s", path, what, row.instead); !slices.Contains(got, want) {
			t.Errorf("nobody says %q", want)
		}
	}
	if len(got) != len(withoutEffect) {
		t.Errorf("%d warnings of %d rows:\n%s", len(got), len(withoutEffect), strings.Join(got, "\n"))
	}
	if got := warned(Options{Strict: true}); len(got) > 0 {
		t.Errorf("with Strict: %q", got)
	}
	// Nothing is said of what says nothing, and of what acts.
	files = tree(map[string]string{
		"factory.yaml":        "schemaVersion: v1alpha1\nname: X\nalias: ''\nmcpServers: {}\nintegrations: []\ncodeForges: []\nagentDefaults: {workerHost: null, runner: null, harness: {type: claude, model: m}}\n",
		"environments/e.yaml": "command: [x]\nbudget: {}\n",
		"automations/a.md":    "---\n" + trigger + "---\n",
		"automations/b.md":    "---\nenvironmentId: e\nmodel: m\n" + trigger + "---\n",
	})
	if got := warned(Options{}); len(got) > 0 {
		t.Errorf("%q", got)
	}
	// A trigger that nothing fires, and repositories of several forges.
	files = tree(map[string]string{
		"factory.yaml":     "schemaVersion: v1alpha1\nname: X\ncodeForges: [GITLAB, GITHUB]\nrepositories: [{owner: a, name: b}]\n",
		"automations/a.md": "---\nharness: {type: codex, reasoningLevel: high}\ntriggers: [{provider: factory, event: work_item_stage_changed}]\n---\n",
		"automations/c.md": "---\nmodel: m\n" + trigger + "---\n",
	})
	want := []string{
		"automations/a.md: triggers[0]: this server does not fire factory work_item_stage_changed",
		"factory.yaml: codeForges has several: the repositories are taken to be on the first, GITLAB",
	}
	if got := warned(Options{}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAccessWithoutSecret: access says what a run may do with the secret of a repository, so
// without one there is a warning.
func TestAccessWithoutSecret(t *testing.T) {
	for text, want := range map[string]int{"access: read": 1, "secret: S": 0, "secret: S, access: read": 0, "ref: main": 0} {
		f, report, err := Load(t.Context(), tree(map[string]string{
			"factory.yaml":        "schemaVersion: v1alpha1\nname: X\n",
			"environments/e.yaml": "repositories: [{owner: a, name: b, " + text + "}]\n",
		}), Options{})
		if err != nil || len(report.Diagnostics) != want || want > 0 && report.Diagnostics[0].Code != schema.NoEffect {
			t.Errorf("%s: %v %+v", text, err, report.Diagnostics)
		}
		if got := f.Environments[0].Repositories[0].ReadOnly(); got != strings.Contains(text, "read") {
			t.Errorf("%s: read-only is %v", text, got)
		}
		if deferred := len(report.Deferred) == 1 && report.Deferred[0].Name == "S"; deferred != strings.Contains(text, "secret") {
			t.Errorf("%s: deferred are %+v", text, report.Deferred)
		}
	}
}

// TestRefEventWithoutEvents: an automation that has no event about code has the default branch, and a
// warning says so (SPEC 21.7).
func TestRefEventWithoutEvents(t *testing.T) {
	for _, tt := range []struct {
		ref, triggers string
		want          bool
	}{
		{"event", "{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}", true},
		{"event", "{provider: webhook, event: received, filter: {webhooks: [w]}}", true},
		{"event", "{provider: linear, event: issue_created}", true},
		{"event", "{provider: webhook, event: received, filter: {webhooks: [w]}}, {provider: github, event: push}", false},
		{"main", "{provider: webhook, event: received, filter: {webhooks: [w]}}", false},
	} {
		_, report, err := Load(t.Context(), tree(map[string]string{
			"factory.yaml":                "schemaVersion: v1alpha1\nname: X\n",
			"webhooks/w.yaml":             "authMode: token\nsecretName: S\n",
			"environments/e.yaml":         "repositories: [{owner: a, name: b, ref: " + tt.ref + "}]\n",
			"automations/a/automation.md": "---\nenvironmentId: e\ntriggers: [" + tt.triggers + "]\n---\nWork.\n",
		}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		warned := slices.ContainsFunc(report.Diagnostics, func(d schema.Diagnostic) bool {
			return d.Code == schema.NoEffect && strings.Contains(d.Message, "environments/e.yaml says ref: event")
		})
		if warned != tt.want {
			t.Errorf("%s %s: %+v", tt.ref, tt.triggers, report.Diagnostics)
		}
	}
}

// TestSubjectWithoutPayload: rules about subjects do nothing where no event has one, and a warning says so (SPEC 21.3).
func TestSubjectWithoutPayload(t *testing.T) {
	const cron, hook = "{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}", "{provider: webhook, event: received, filter: {webhooks: [w]}}"
	for _, tt := range []struct {
		subject, triggers string
		want              int
	}{
		{"", cron, 2},
		{"subject: '{a}'\n", cron, 3},
		{"subject: '{a}'\n", cron + ", " + hook, 0},
		{"", hook, 2},
		{"", cron + ", {provider: github, event: push}", 0},
	} {
		_, report, err := Load(t.Context(), tree(map[string]string{
			"factory.yaml":                "schemaVersion: v1alpha1\nname: X\n",
			"webhooks/w.yaml":             "authMode: token\nsecretName: S\n",
			"automations/a/automation.md": "---\n" + tt.subject + "perSubject: queue\nsettle: 30s\ntriggers: [" + tt.triggers + "]\n---\nWork.\n",
		}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := slices.DeleteFunc(report.Diagnostics, func(d schema.Diagnostic) bool { return d.Code != schema.NoEffect })
		if len(found) != tt.want {
			t.Errorf("%s%s: %+v", tt.subject, tt.triggers, found)
		}
	}
}
