package factory

import (
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestRules: the rules that concern more than one key or file, each by the codes
// it gives with and without Strict (factory/testdata/rules 1.3–1.7, SPEC
// 2.1–2.3, 5.7).
func TestRules(t *testing.T) {
	const (
		invalid, missing, twice = schema.InvalidValue, schema.MissingRequired, schema.DuplicateKey
		format                  = "schemaVersion: v1alpha1\nname: x\nrepositories: [{owner: a, name: b}]\n"
		lead                    = "---\nagentType: FOREMAN\n---\n"
	)
	type files = map[string]string
	for name, c := range map[string]struct {
		files        files
		want, strict []string
	}{
		"agentDefaults needs model or harness": {
			files{"factory.yaml": format + "agentDefaults: {runner: big}\n", "agents/a/agent.md": lead}, nil, []string{missing},
		},
		"a default harness needs type and model": {
			files{"factory.yaml": format + "agentDefaults: {harness: {reasoningLevel: high}}\n", "agents/a/agent.md": lead}, nil, []string{missing, missing},
		},
		"our harness": {
			files{"factory.yaml": format + "agentDefaults: {harness: {type: opencode, model: m}}\n", "agents/a/agent.md": lead}, nil, []string{invalid},
		},
		"no foreman": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": "---\n---\n"}, []string{missing}, []string{missing},
		},
		"our files are strays": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead, "environments/e.yaml": "- [", "automations/a.md": "---\nenvironmentId: e\ntriggers: [{provider: github, event: push}]\n---\n"},
			[]string{schema.InvalidYAML},
			nil,
		},
		"our schemes": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead, "webhooks/w.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: svix\n"},
			nil,
			[]string{invalid},
		},
		"a scheme is missing": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead, "webhooks/w.yaml": "secretName: S\nauthMode: signature\n"},
			[]string{missing},
			[]string{missing},
		},
		"a long alias": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\nalias: " + strings.Repeat("é", 61) + "\n", "agents/a/agent.md": lead}, []string{invalid}, []string{invalid},
		},
		"an alias of 60 characters": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\nalias: ' " + strings.Repeat("é", 60) + " '\n", "agents/a/agent.md": lead}, nil, nil,
		},
		"a repository twice": {
			files{"factory.yaml": "schemaVersion: v1alpha1\nname: x\nrepositories: [{owner: a, name: b}, {owner: a, name: ' b'}]\nagentDefaults: {model: m}\n", "agents/a/agent.md": lead},
			[]string{twice},
			[]string{twice},
		},
		"an integration twice": {
			files{"factory.yaml": format + "agentDefaults: {model: m}\nintegrations: [{type: slack}, {type: SLACK}]\n", "agents/a/agent.md": lead}, []string{twice}, []string{twice},
		},
		"model null beside a harness": {
			files{"factory.yaml": format + "agentDefaults: {model: null, harness: {type: codex, model: m}}\n", "agents/a/agent.md": lead}, nil, []string{invalid},
		},
		"no secret for a managed one": {
			files{"factory.yaml": format + "agentDefaults: {harness: {type: codex, model: m, auth: {source: managedSecret}}}\n", "agents/a/agent.md": lead}, []string{missing}, []string{missing},
		},
		"two unnamed schedules": {
			files{
				"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead,
				"automations/a.md": "---\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}\n- {provider: schedule, event: cron_fired, schedule: {cron: '@hourly'}}\n---\n",
			},
			[]string{twice},
			[]string{twice},
		},
		"bad cron lines": {
			files{
				"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead,
				"automations/a.md": "---\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {name: a, cron: '0 0 * * * *'}}\n" +
					"- {provider: schedule, event: cron_fired, schedule: {name: b, cron: 'CRON_TZ=UTC 0 0 * * *'}}\n" +
					"- {provider: schedule, event: cron_fired, schedule: {name: c, cron: '0 0 * * 7'}}\n---\n",
			},
			[]string{invalid, invalid, invalid},
			[]string{invalid, invalid, invalid},
		},
		"a provider's matcher": {
			files{
				"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead,
				"automations/a.md": "---\nenabled: false\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {pr_numbers: ['7'], labels: x, baseBranches: [a], base_branches: [b]}}\n---\n",
			},
			[]string{schema.InvalidFilter, schema.InvalidFilter, schema.InvalidFilter},
			[]string{schema.InvalidFilter, schema.InvalidFilter, schema.InvalidFilter},
		},
		"a webhook selected by its file": {
			files{
				"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead, "webhooks/w.yaml": "secretName: S\n",
				"automations/a.md": "---\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [w]}}\n---\n",
			},
			nil,
			[]string{schema.InvalidFilter, missing},
		},
		"no webhook selected": {
			files{
				"factory.yaml": format + "agentDefaults: {model: m}\n", "agents/a/agent.md": lead,
				"automations/a.md": "---\ntriggers:\n- {provider: webhook, event: received}\n- {provider: webhook, event: received, filter: {payload: {a: [1]}}}\n---\n",
			},
			[]string{missing, missing},
			[]string{missing, missing},
		},
	} {
		for _, strict := range []bool{false, true} {
			want := c.want
			if strict {
				want = c.strict
			}
			_, report := load(t, tree(c.files), Options{Strict: strict})
			got := codes(report.Diagnostics)
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%s (strict: %v): got %+v, want %v", name, strict, report.Diagnostics, want)
			}
			for _, d := range report.Diagnostics {
				if d.Severity != schema.Error || d.Message == "" {
					t.Errorf("%s: %+v", name, d)
				}
			}
		}
	}
}

// TestBrokenTests: no test refuses definitions, and no broken one passes.
func TestBrokenTests(t *testing.T) {
	f, report := load(t, tree(map[string]string{
		"webhooks/hook.yaml": "secretName: S\n",
		"tests/a.yaml":       "- {name: fine, webhook: hook, payload: {}, expect: []}\n",
		"tests/b.yaml":       "- [",
		"tests/c.yaml":       "x: 1\n",
		"tests/d.yaml":       "- {name: odd, webhook: hook, payload: {}, expect: [], extra: 1}\n",
		"tests/e.yaml":       "# " + strings.Repeat("x", schema.MaxFile),
		"tests/f.yaml":       "- {name: nobody, webhook: hook, payload: {}, expect: [nobody]}\n",
	}), Options{})
	if report.Diagnostics.HasErrors() || len(report.Diagnostics) != 5 {
		t.Error(report.Diagnostics)
	}
	var got []string
	for _, r := range f.RunTests() {
		if got = append(got, r.Path); r.Passed != (r.Name == "fine") || r.Passed == (r.Problem != "") {
			t.Errorf("%s: passed %v, problem %q", r.Path, r.Passed, r.Problem)
		}
	}
	if want := []string{"tests/a.yaml", "tests/b.yaml", "tests/c.yaml", "tests/d.yaml", "tests/e.yaml", "tests/f.yaml"}; !slices.Equal(got, want) {
		t.Errorf("tests of %v, want %v", got, want)
	}
}

// TestNames: a name is one path segment, of whatever characters; what looks like
// a definition elsewhere is an error (factory/testdata/rules 1.1).
func TestNames(t *testing.T) {
	f, report := load(t, tree(map[string]string{
		"webhooks/Über uns.yaml":            "secretName: S\n",
		"webhooks/.yaml":                    "not: read\n",
		"webhooks/README.md":                "not read",
		"automations/a.b/automation.md":     "---\ntriggers: [{provider: github, event: push}]\n---\n",
		"automations/a.b/notes.txt":         "not read",
		"automations/a/b/automation.md":     "not read",
		"elsewhere/webhooks/w.yaml":         "not read",
		"agents/lead/agent.md":              "---\nagentType: MAIN\n---\n",
		"agents/lead/skills/x/agent.md":     "not read",
		"benchmarks/b/tasks/deep/task.yaml": "not read",
		"skills/x/notes.md":                 "not read",
	}), Options{})
	if f.Webhook("Über uns") == nil || f.Automation("a.b") == nil || f.Foreman() == nil || len(f.Files) != 4 {
		t.Errorf("read %v", f.Files)
	}
	var got []string
	for _, d := range report.Diagnostics {
		got = append(got, d.Code+" "+d.Path)
	}
	want := []string{schema.UnsupportedPath + " automations/a/b/automation.md", schema.UnsupportedPath + " webhooks/.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if f.Blob("agents/lead/agent.md") == "" || f.Blob("nowhere") != "" {
		t.Error("blob names")
	}
}

// TestAppliedTree: a tree that an older program applied loads, with a warning for
// what a later rule refuses: a server that was upgraded still serves it.
func TestAppliedTree(t *testing.T) {
	old := tree(map[string]string{
		"factory.yaml":    "schemaVersion: v1alpha1\nname: x\n",
		"webhooks/a.yaml": "secretName: S\ndeliveryIdHeader: Content-Type\n",
		"webhooks/b.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: hmac\nsignature: {header: X-S, template: '{id}.{body}', idHeader: User-Agent}\n",
	})
	for _, c := range []struct {
		opt  Options
		want schema.Severity
	}{{Options{}, schema.Error}, {Options{Applied: true}, schema.Warning}} {
		f, report, err := Load(t.Context(), old, c.opt)
		if err != nil || len(report.Diagnostics) != 2 {
			t.Fatalf("%+v: %v, %v", c.opt, report, err)
		}
		for _, d := range report.Diagnostics {
			if d.Severity != c.want || d.Code != schema.InvalidValue {
				t.Errorf("%+v: %+v", c.opt, d)
			}
		}
		if c.opt.Applied && (f.Webhooks[0].DeliveryIDHeader != "Content-Type" || f.Webhooks[1].Scheme == nil) {
			t.Errorf("the webhooks are not complete: %+v", f.Webhooks)
		}
	}
}
