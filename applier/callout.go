package applier

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/schema"
)

// Callout is a change in a Plan that a reviewer must not overlook.
type Callout struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

// strength ranks the ways in which a sender is authenticated, the weakest first.
var strength = map[factory.AuthMode]int{factory.URLToken: 0, factory.Token: 1, factory.Signature: 2}

// callOut finds changes that widen what senders or agents may do.
func (p *Plan) callOut(from, to *Revision) {
	say := func(kind, name, path, format string, args ...any) {
		p.Callouts = append(p.Callouts, Callout{kind, name, path, fmt.Sprintf(format, args...)})
	}
	was, is := from.Definition, to.Definition
	if gone, all := len(p.Delete), len(p.Delete)+len(p.Update)+len(p.Unchanged)-1; gone >= 2 && gone*2 > all {
		say("factory", to.Factory, "factory.yaml", "this removes most of the factory: %d of %d definitions are deleted", gone, all)
	}
	grants := func(kind, name, path string, before, after []string) {
		if more := missing(after, before); len(more) > 0 {
			say(kind, name, path, "gets secrets that it did not have: %s", strings.Join(more, ", "))
		}
	}
	equips := func(kind, name, path string, before, after []factory.MCPServer) {
		var more []string
		for _, m := range after {
			if !slices.ContainsFunc(before, func(old factory.MCPServer) bool { return reflect.DeepEqual(old, m) }) {
				more = append(more, m.Name)
			}
		}
		if len(more) > 0 {
			say(kind, name, path, "gets MCP servers that it did not have: %s", strings.Join(more, ", "))
		}
	}
	equips("factory", to.Factory, "factory.yaml", was.MCPServers, is.MCPServers)
	grants("factory", to.Factory, "factory.yaml", was.Secrets, is.Secrets)
	for _, w := range is.Webhooks {
		before := was.Webhook(w.Name)
		if before == nil {
			continue
		}
		if strength[w.AuthMode] < strength[before.AuthMode] {
			say("webhook", w.Name, w.Path, "its senders are authenticated in a weaker way: authMode goes from %s to %s", before.AuthMode, w.AuthMode)
		}
		if w.Enabled && !before.Enabled {
			say("webhook", w.Name, w.Path, "is enabled: its URL takes deliveries")
		}
	}
	for _, a := range is.Agents {
		before := cmp.Or(was.Agent(a.Name), &factory.Agent{})
		grants("agent", a.Name, a.Path, before.Settings.Secrets, a.Settings.Secrets)
		equips("agent", a.Name, a.Path, before.Settings.MCPServers, a.Settings.MCPServers)
	}
	wanted, wants := selections(from), selections(to)
	for _, a := range is.Automations {
		before := cmp.Or(was.Automation(a.Name), &factory.Automation{Enabled: true})
		grants("automation", a.Name, a.Path, before.Settings.Secrets, a.Settings.Secrets)
		equips("automation", a.Name, a.Path, before.Settings.MCPServers, a.Settings.MCPServers)
		if a.Enabled && !before.Enabled {
			say("automation", a.Name, a.Path, "is enabled")
		}
		old, now := wanted[before.Name], wants[a.Name]
		for _, webhook := range slices.Sorted(maps.Keys(now)) {
			switch s := now[webhook]; {
			case old[webhook] == nil && before.Enabled && was.Automation(a.Name) != nil:
				say("automation", a.Name, a.Path, "now also starts on deliveries of webhook %s", webhook)
			case old[webhook] == nil || old[webhook].every:
			case s.every:
				say("automation", a.Name, a.Path, "its filter is gone: every delivery of webhook %s starts a run", webhook)
			default:
				if wider := widened(old[webhook].allowed, s.allowed); len(wider) > 0 {
					say("automation", a.Name, a.Path, "its filter on webhook %s lets more through: %s", webhook, strings.Join(wider, "; "))
				}
			}
		}
	}
	for _, e := range is.Environments {
		before := was.Environment(e.Name)
		if more := opened(e, cmp.Or(before, &factory.Environment{})); len(more) > 0 {
			say("environment", e.Name, e.Path, "its runs get at more repositories: %s", strings.Join(more, ", "))
		}
		if before == nil {
			grants("environment", e.Name, e.Path, nil, e.Secrets)
			continue
		}
		grants("environment", e.Name, e.Path, before.Secrets, e.Secrets)
		if was, is := before.Network, e.Network; !was.Off && len(was.Hosts) == 0 {
			// It could already reach everything.
		} else if !is.Off && len(is.Hosts) == 0 {
			say("environment", e.Name, e.Path, "its runs may reach the whole network")
		} else if more := missing(is.Hosts, was.Hosts); len(more) > 0 {
			say("environment", e.Name, e.Path, "its runs may reach more hosts: %s", strings.Join(more, ", "))
		}
		if e.TrustRepositorySettings && !before.TrustRepositorySettings {
			say("environment", e.Name, e.Path, "the agent settings in its repositories act: hooks, MCP servers and the like")
		}
		if slices.Index(schema.Isolations, e.Isolation) < slices.Index(schema.Isolations, before.Isolation) {
			say("environment", e.Name, e.Path, "asks for less isolation: %s instead of %s", cmp.Or(e.Isolation, "any"), before.Isolation)
		}
	}
}

// selection describes which deliveries of a webhook start an automation.
type selection struct {
	every bool // every delivery
	// allowed has the paths that all of its filters test, each with the values that any
	// filter allows there. The values are nil if a filter does not limit the path to a set.
	allowed map[string][]string
}

// selections are the selections of all automations, by the name of the automation and
// then by the name of the webhook.
func selections(r *Revision) map[string]map[string]*selection {
	all := make(map[string]map[string]*selection)
	for _, w := range r.Webhooks {
		for _, c := range r.Definition.Candidates(w.Def, w.UID) {
			s := &selection{}
			for i, t := range c.Triggers {
				if t == (match.Trigger{}) {
					s.every = true
					continue
				}
				values := t.Payload.Values()
				maps.Copy(values, t.Headers.Values())
				if i == 0 {
					s.allowed = values
					continue
				}
				for path, before := range s.allowed {
					switch more, there := values[path]; {
					case !there:
						delete(s.allowed, path)
					case before == nil || more == nil:
						s.allowed[path] = nil
					default:
						s.allowed[path] = slices.Concat(before, more)
					}
				}
			}
			if all[c.Automation] == nil {
				all[c.Automation] = make(map[string]*selection)
			}
			all[c.Automation][w.Def.Name] = s
		}
	}
	return all
}

// widened says in which ways a filter lets more through than its earlier version.
func widened(was, is map[string][]string) []string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(was)) {
		switch now, there := is[path]; {
		case !there:
			all = append(all, "it no longer looks at "+path)
		case was[path] != nil && now == nil:
			all = append(all, "it no longer asks for particular values of "+path)
		case was[path] != nil:
			if more := missing(now, was[path]); len(more) > 0 {
				all = append(all, "it allows more values of "+path+": "+strings.Join(more, ", "))
			}
		}
	}
	return all
}

// opened are the repositories for which an environment has a credential that it did not have,
// or not for as much.
func opened(now, before *factory.Environment) []string {
	var all []string
	for _, r := range now.Repositories {
		had := func(old factory.Repository) bool {
			return old.URL == r.URL && old.Secret == r.Secret && (r.ReadOnly() || !old.ReadOnly())
		}
		if r.Secret == "" || slices.ContainsFunc(before.Repositories, had) {
			continue
		}
		may := "write"
		if r.ReadOnly() {
			may = "read"
		}
		all = append(all, fmt.Sprintf("%s (%s, by %s)", r.URL, may, r.Secret))
	}
	return all
}

// missing are the elements of all that are not in have, in order.
func missing(all, have []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(have, s) })
}
