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
}

// Change is one resource of a Plan.
type Change struct {
	Kind string   `json:"kind"` // factory, webhook, automation, agent, runner, environment
	Name string   `json:"name"`
	Path string   `json:"path"`
	Keys []string `json:"keys,omitempty"` // of an update: what differs
}

// resource is a definition as it is compared: a JSON text per key.
type resource struct {
	Change
	values map[string]string
}

// Diff plans the change from one revision to the next; from may be nil.
func Diff(from, to *Revision) Plan {
	old, now := resources(from), resources(to)
	p := Plan{Create: []Change{}, Update: []Change{}, Delete: []Change{}, Unchanged: []Change{}}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		r := now[id]
		before, existed := old[id]
		switch keys := changed(before.values, r.values); {
		case !existed:
			p.Create = append(p.Create, r.Change)
		case len(keys) > 0:
			r.Keys = keys
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
	return p
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
			"authMode": w.Def.AuthMode, "signatureScheme": scheme, "secretName": w.Def.SecretName,
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
		add("environment", e.Name, e.Path, map[string]any{"definition": f.Blob(e.Path)})
	}
	return all
}

// with adds effective settings, by the keys that set them.
func with(s factory.Settings, values map[string]any) map[string]any {
	values["harness"], values["runner"], values["environmentId"] = s.Harness, s.Runner, s.EnvironmentID
	values["secrets"], values["workerHost"] = s.Secrets, s.WorkerHost
	return values
}

func triggers(a *factory.Automation) any {
	type shown struct {
		Provider, Event, Cron string
		IDs, Names            []string
		Payload               string
	}
	var all []shown
	for _, t := range a.Triggers {
		s := shown{Provider: t.Provider, Event: t.Event, Cron: t.Cron, IDs: t.WebhookIDs, Names: t.Webhooks}
		if t.Payload != nil {
			s.Payload = t.Payload.String()
		}
		all = append(all, s)
	}
	return all
}
