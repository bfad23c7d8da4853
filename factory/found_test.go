package factory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestFindings: what is said of mistakes that were once passed over, or told in
// words that lead astray.
func TestFindings(t *testing.T) {
	on := func(filter string) string {
		return "---\ntriggers: [{provider: webhook, event: received, filter: {" + filter + "}}]\n---\n"
	}
	many := map[string]string{}
	var beyond []string
	for i := range 27 {
		many[fmt.Sprintf("webhooks/w%02d.yaml", i)] = "secretName: S\n"
		if i >= MaxWebhooks {
			beyond = append(beyond, fmt.Sprintf("TH_TOO_MANY webhooks/w%02d.yaml", i))
		}
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
		hint  string
	}{
		{"27 webhooks", many, beyond, "delete it"},
		{"a file's name among UIDs", map[string]string{"webhooks/hook.yaml": "secretName: S\n", "automations/a.md": on("webhook_ids: [hook]")}, []string{"warning TH_UNKNOWN_TARGET automations/a.md:2:72"}, "write filter: {webhooks: [hook]}"},
		{"a trigger without event", map[string]string{"automations/a.md": "---\ntriggers: [{provider: webhook, filter: {webhook_ids: [whk_1]}}]\n---\n"}, []string{"FF_MISSING_REQUIRED automations/a.md:2:12"}, "add event: received"},
		{"a trigger of teams without event", map[string]string{"automations/a.md": "---\ntriggers: [{provider: teams}]\n---\n"}, []string{"FF_MISSING_REQUIRED automations/a.md:2:12"}, "add event: app_mention|message_posted"},
		{"a newer provider", map[string]string{"automations/a.md": "---\ntriggers: [{provider: some_forge, event: push}]\n---\n"}, []string{"FF_INVALID_EVENT automations/a.md:2:23"}, "newer than this program"},
		{"tests of a webhook that cannot be read", map[string]string{"webhooks/hook.yaml": "secretName: [\n", "tests/t.yaml": "- {name: n, webhook: hook, payload: 1, expect: []}\n"}, []string{"FF_INVALID_YAML webhooks/hook.yaml:1:1"}, ""},
	} {
		_, report := load(t, tree(c.files), Options{})
		var got []string
		for _, d := range report.Diagnostics {
			got = append(got, describe(d))
			if !strings.Contains(d.Hint, c.hint) {
				t.Errorf("%s: hint %q", c.name, d.Hint)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestHugeNumbers: a number is one however large it is, and equal by its decimal
// value (SPEC 8.2).
func TestHugeNumbers(t *testing.T) {
	f, report := load(t, tree(map[string]string{
		"webhooks/hook.yaml": "secretName: S\n",
		"automations/a.md":   "---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {n: [1e400, -1.50e+999]}}}]\n---\n",
		"tests/t.yaml": "- {name: the same, webhook: hook, payload: {n: 10e399}, expect: [a]}\n- {name: another, webhook: hook, payload: {n: 1e401}, expect: []}\n" +
			"- {name: negative, webhook: hook, payload: {n: -15e998}, expect: [a]}\n- {name: a text, webhook: hook, payload: {n: '1e400'}, expect: []}\n",
	}), Options{})
	if len(report.Diagnostics) > 0 {
		t.Fatal(report.Diagnostics)
	}
	for _, r := range f.RunTests() {
		if !r.Passed {
			t.Errorf("%s: %s", r.Name, r.Failure())
		}
	}
	_, report = load(t, tree(map[string]string{"webhooks/hook.yaml": "secretName: 1e400\n"}), Options{})
	if got := codes(report.Diagnostics); !slices.Equal(got, []string{schema.TypeMismatch}) {
		t.Errorf("a number as a name: %v", report.Diagnostics)
	}
}
