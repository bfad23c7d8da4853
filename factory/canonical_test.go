package factory

import (
	"reflect"
	"testing"

	"triphammer/schema"
)

// TestDefaults: a key that is left out means what the table says it does.
func TestDefaults(t *testing.T) {
	const triggers = "triggers: [{provider: github, event: push}]\n"
	plain := map[string]string{
		"webhooks/w.yaml": "secretName: S\n", "environments/e.yaml": "{}\n", "automations/a.md": "---\n" + triggers + "---\n",
		"agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n", "agents/b/agent.md": "---\n---\n",
	}
	full := map[string]string{
		"webhooks/w.yaml": "secretName: S\n" + defaultsOf(&schema.Webhook), "environments/e.yaml": defaultsOf(&schema.Environment),
		"automations/a.md": "---\n" + triggers + defaultsOf(&schema.Automation) + "---\n", "agents/lead/agent.md": plain["agents/lead/agent.md"],
		"agents/b/agent.md": "---\n" + defaultsOf(&schema.Agent) + "---\n",
	}
	a, first := load(t, tree(plain), Options{})
	b, second := load(t, tree(full), Options{})
	if first.Diagnostics.HasErrors() || second.Diagnostics.HasErrors() {
		t.Fatal(first.Diagnostics, second.Diagnostics)
	}
	b.Webhooks[0].At, b.blobs = a.Webhooks[0].At, a.blobs // the text differs
	if !reflect.DeepEqual(a.Webhooks, b.Webhooks) || !reflect.DeepEqual(a.Environments, b.Environments) || !reflect.DeepEqual(a.Definitions, b.Definitions) {
		t.Errorf("left out\n%+v\nwritten out\n%+v", a.Definitions, b.Definitions)
	}
	for i := range a.Automations {
		if a.Automations[i].Enabled != b.Automations[i].Enabled || a.Agents[i].Type != b.Agents[i].Type {
			t.Errorf("%+v, %+v", b.Automations[i], b.Agents[i])
		}
	}
}

func defaultsOf(shape *schema.Shape) (yaml string) {
	for _, key := range shape.Keys {
		if key.Default != "" {
			yaml += key.Name + ": " + key.Default + "\n"
		}
	}
	return yaml
}
