package applier

import (
	"encoding/json"
	"maps"
	"slices"

	"triphammer/factory"
)

// Plan is what an apply changes (SPEC 4.2).
type Plan struct {
	Create    []Change `json:"create"`
	Update    []Change `json:"update"`
	Delete    []Change `json:"delete"`
	Unchanged []Change `json:"unchanged"`
	// Callouts are changes that widen what senders or agents can do, or that
	// delete most of the factory: what a reviewer must not overlook.
	Callouts []Callout `json:"callouts"`
}

// Pending tells whether anything changes.
func (p *Plan) Pending() bool { return len(p.Create)+len(p.Update)+len(p.Delete) > 0 }

// Change is one resource of a Plan.
type Change struct {
	Kind string   `json:"kind"` // factory, webhook, automation, agent, runner, environment
	Name string   `json:"name"`
	Path string   `json:"path"`
	Keys []string `json:"keys,omitempty"` // of an update: what differs
	// Values has an entry for each of Keys.
	Values []ValueChange `json:"values,omitempty"`
}

// ValueChange is one key of an update: JSON texts, empty if there is no value,
// cut off at maxShown characters.
type ValueChange struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

const maxShown = 200

// resource is a definition as it is compared: a JSON text per key.
type resource struct {
	Change
	values map[string]string
}

// Diff plans the change from one revision to the next; from may be nil.
func Diff(from, to *Revision) Plan {
	old, now := resources(from), resources(to)
	p := Plan{Create: []Change{}, Update: []Change{}, Delete: []Change{}, Unchanged: []Change{}, Callouts: []Callout{}}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		r := now[id]
		before, existed := old[id]
		switch keys := changed(before.values, r.values); {
		case !existed:
			p.Create = append(p.Create, r.Change)
		case len(keys) > 0:
			r.Keys = keys
			for _, key := range keys {
				r.Values = append(r.Values, ValueChange{key, shown(before.values[key]), shown(r.values[key])})
			}
			p.Update = append(p.Update, r.Change)
		default:
			p.Unchanged = append(p.Unchanged, r.Change)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		if _, stays := now[id]; !stays {
			p.Delete = append(p.Delete, old[id].Change)
		}
	}
	if from != nil {
		p.callOut(from, to)
	}
	return p
}

// shown is a JSON text as a plan shows it.
func shown(text string) string {
	switch text {
	case `""`, "null", "[]", "{}":
		return ""
	}
	if cut := []rune(text); len(cut) > maxShown {
		return string(cut[:maxShown]) + "…"
	}
	return text
}

func changed(a, b map[string]string) []string {
	var keys []string
	for key, value := range b {
		if a[key] != value {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func resources(r *Revision) map[string]resource {
	all := make(map[string]resource)
	if r == nil {
		return all
	}
	add := func(kind, name, path string, values map[string]any) {
		texts := make(map[string]string, len(values))
		for key, value := range values {
			text, _ := json.Marshal(value) // plain data always encodes
			texts[key] = string(text)
		}
		all[kind+"\x00"+name] = resource{Change{Kind: kind, Name: name, Path: path}, texts}
	}
	f := r.Definition
	add("factory", r.Factory, "factory.yaml", with(f.Defaults, map[string]any{
		"name": f.Name, "description": f.Description, "alias": f.Alias, "granted secrets": f.Secrets,
	}))
	for _, w := range r.Webhooks {
		scheme := ""
		if w.Def.Scheme != nil {
			scheme = w.Def.Scheme.Name
		}
		add("webhook", w.Def.Name, w.Def.Path, map[string]any{
			"authMode": w.Def.AuthMode, "signatureScheme": scheme, "signature": w.Def.Signature, "secretName": w.Def.SecretName,
			"deliveryIdHeader": w.Def.DeliveryIDHeader, "enabled": w.Def.Enabled, "secret generation": w.SecretGeneration,
		})
	}
	for _, a := range f.Automations {
		add("automation", a.Name, a.Path, with(a.Settings, map[string]any{
			"enabled": a.Enabled, "agent": a.Agent, "prompt": a.Prompt, "triggers": triggers(a),
		}))
	}
	for _, a := range f.Agents {
		add("agent", a.Name, a.Path, with(a.Settings, map[string]any{
			"agentType": a.Type, "prompt": a.Prompt, "description": a.Description,
		}))
	}
	for _, name := range f.Runners {
		path := "runners/" + name + ".yaml"
		add("runner", name, path, map[string]any{"definition": f.Blob(path)})
	}
	for _, e := range f.Environments {
		add("environment", e.Name, e.Path, map[string]any{
			"description": e.Description, "dockerImage": e.DockerImage, "repositories": e.Repositories, "setupCommands": e.SetupCommands,
			"env": e.Env, "secrets": e.Secrets, "command": e.Command, "timeoutMinutes": e.Timeout.Minutes(), "idleMinutes": e.Idle.Minutes(),
			"network": network(e.Network), "budget": e.Budget, "isolation": e.Isolation,
		})
	}
	return all
}

// network is what a run may reach, as its definition says it.
func network(n factory.Network) any {
	switch {
	case n.Off:
		return "off"
	case len(n.Hosts) > 0:
		return n.Hosts
	}
	return "on"
}

// with adds effective settings, by the keys that set them.
func with(s factory.Settings, values map[string]any) map[string]any {
	values["harness"], values["runner"], values["environmentId"] = s.Harness, s.Runner, s.EnvironmentID
	values["secrets"], values["workerHost"] = s.Secrets, s.WorkerHost
	return values
}

func triggers(a *factory.Automation) any {
	type trigger struct {
		Provider string          `json:"provider"`
		Event    string          `json:"event"`
		Cron     string          `json:"cron,omitempty"`
		IDs      []string        `json:"webhook_ids,omitempty"`
		Webhooks []string        `json:"webhooks,omitempty"`
		Payload  json.RawMessage `json:"payload,omitempty"`
	}
	var all []trigger
	for _, t := range a.Triggers {
		one := trigger{Provider: t.Provider, Event: t.Event, Cron: t.Cron, IDs: t.WebhookIDs, Webhooks: t.Webhooks}
		if t.Payload != nil {
			one.Payload = json.RawMessage(t.Payload.String())
		}
		all = append(all, one)
	}
	return all
}
