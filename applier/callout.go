package applier

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/schema"
	"triphammer/schema/output"
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
	c := &callouts{plan: p, was: from.Definition, is: to.Definition}
	if gone, all := len(p.Delete), len(p.Delete)+len(p.Update)+len(p.Unchanged)-1; gone >= 2 && gone*2 > all {
		c.say("factory", to.Factory, "factory.yaml", "this removes most of the factory: %d of %d definitions are deleted", gone, all)
	}
	c.equips("factory", to.Factory, "factory.yaml", c.was.MCPServers, c.is.MCPServers)
	c.grants("factory", to.Factory, "factory.yaml", c.was.Secrets, c.is.Secrets)
	c.webhooks()
	for _, a := range c.is.Agents {
		before := cmp.Or(c.was.Agent(a.Name), &factory.Agent{})
		c.grants("agent", a.Name, a.Path, before.Settings.Secrets, a.Settings.Secrets)
		c.equips("agent", a.Name, a.Path, before.Settings.MCPServers, a.Settings.MCPServers)
	}
	wanted, wants := selections(from), selections(to)
	for _, a := range c.is.Automations {
		before := cmp.Or(c.was.Automation(a.Name), &factory.Automation{Enabled: true})
		c.grants("automation", a.Name, a.Path, before.Settings.Secrets, a.Settings.Secrets)
		c.equips("automation", a.Name, a.Path, before.Settings.MCPServers, a.Settings.MCPServers)
		if a.Enabled && !before.Enabled {
			c.say("automation", a.Name, a.Path, "is enabled")
		}
		c.starts(a, before, wanted[before.Name], wants[a.Name])
		c.starters(a, before)
		c.pushes(a, before)
		c.answers(a, before, wants[a.Name])
		c.outputs(a, before)
		c.approvals(a, before)
	}
	c.environments()
}

// callouts compares two definitions for a plan.
type callouts struct {
	plan    *Plan
	was, is *factory.Factory
}

func (c *callouts) say(kind, name, path, format string, args ...any) {
	c.plan.Callouts = append(c.plan.Callouts, Callout{kind, name, path, fmt.Sprintf(format, args...)})
}

func (c *callouts) grants(kind, name, path string, before, after []string) {
	if more := missing(after, before); len(more) > 0 {
		c.say(kind, name, path, "gets secrets that it did not have: %s", strings.Join(more, ", "))
	}
}

func (c *callouts) equips(kind, name, path string, before, after []factory.MCPServer) {
	var more []string
	for _, m := range after {
		if !slices.ContainsFunc(before, func(old factory.MCPServer) bool { return reflect.DeepEqual(old, m) }) {
			more = append(more, m.Name)
		}
	}
	if len(more) > 0 {
		c.say(kind, name, path, "gets MCP servers that it did not have: %s", strings.Join(more, ", "))
	}
}

func (c *callouts) webhooks() {
	for _, w := range c.is.Webhooks {
		before := c.was.Webhook(w.Name)
		if before == nil {
			continue
		}
		if strength[w.AuthMode] < strength[before.AuthMode] {
			c.say("webhook", w.Name, w.Path, "its senders are authenticated in a weaker way: authMode goes from %s to %s", before.AuthMode, w.AuthMode)
		}
		if w.Enabled && !before.Enabled {
			c.say("webhook", w.Name, w.Path, "is enabled: its URL takes deliveries")
		}
		switch was, is := before.ReplayWindow, w.ReplayWindow; {
		case was <= is:
		case is == 0:
			c.say("webhook", w.Name, w.Path, "whoever has captured a delivery can send its body again: replayWindow is gone")
		default:
			c.say("webhook", w.Name, w.Path, "whoever has captured a delivery can send its body again sooner: replayWindow goes from %s to %s", factory.ShortDuration(was), factory.ShortDuration(is))
		}
	}
}

// starts says which deliveries now start an automation and did not start it before. old and
// now hold the automation's selections, by webhook.
func (c *callouts) starts(a, before *factory.Automation, old, now map[string]*selection) {
	for _, webhook := range slices.Sorted(maps.Keys(now)) {
		switch s := now[webhook]; {
		case old[webhook] == nil && before.Enabled && c.was.Automation(a.Name) != nil:
			c.say("automation", a.Name, a.Path, "now also starts on deliveries of webhook %s", webhook)
		case old[webhook] == nil || old[webhook].every:
		case s.every:
			c.say("automation", a.Name, a.Path, "its filter is gone: every delivery of webhook %s starts a run", webhook)
		default:
			if wider := widened(old[webhook].allowed, s.allowed); len(wider) > 0 {
				c.say("automation", a.Name, a.Path, "its filter on webhook %s matches more: %s", webhook, strings.Join(wider, "; "))
			}
		}
	}
}

// starters says who may start an automation now and could not before (SPEC 24.1).
func (c *callouts) starters(a, before *factory.Automation) {
	switch more := missing(a.StartedBy, before.StartedBy); {
	case len(before.StartedBy) == 0:
	case len(a.StartedBy) == 0:
		c.say("automation", a.Name, a.Path, "startedBy is gone: whoever can cause its events may start it")
	case len(more) > 0:
		c.say("automation", a.Name, a.Path, "more people may start it: %s", strings.Join(more, ", "))
	}
	switch was, is := before.MaxPerPerson, a.MaxPerPerson; {
	case was == 0:
	case is == 0:
		c.say("automation", a.Name, a.Path, "one person may start it without a limit: maxRunsPerPersonPerHour is gone")
	case is > was:
		c.say("automation", a.Name, a.Path, "one person may start it %d times in an hour, and not %d times", is, was)
	}
}

// pushes says what an automation's runs may push now and could not before (SPEC 23.3).
func (c *callouts) pushes(a, before *factory.Automation) {
	was, is := before.Push.WithDefaults(), a.Push.WithDefaults()
	if more := wider(is.Branches, was.Branches); len(more) > 0 {
		c.say("automation", a.Name, a.Path, "its runs may push to more branches: %s", strings.Join(more, ", "))
	}
	if more := wider(is.Tags, was.Tags); len(more) > 0 {
		c.say("automation", a.Name, a.Path, "its runs may push more tags: %s", strings.Join(more, ", "))
	}
	if is.Max > was.Max {
		c.say("automation", a.Name, a.Path, "a run may push to %d branches and tags, and not to %d", is.Max, was.Max)
	}
	if is.MaxBytes > was.MaxBytes {
		c.say("automation", a.Name, a.Path, "a run may push %d bytes, and not %d", is.MaxBytes, was.MaxBytes)
	}
}

// wider are the patterns of push.branches or push.tags that no earlier pattern includes. A name
// without * is included by itself alone, because it may be that of the default branch.
func wider(is, was []string) (more []string) {
	for _, pattern := range missing(is, was) {
		loose := strings.Contains(pattern, "*") || pattern == factory.RefEvent
		if !loose || !slices.ContainsFunc(was, func(old string) bool {
			included, err := regexp.MatchString("^"+strings.ReplaceAll(regexp.QuoteMeta(old), `\*`, ".*")+"$", pattern)
			return included && err == nil
		}) {
			more = append(more, pattern)
		}
	}
	return more
}

// answers says what is told of an automation's runs now and was not told before (SPEC 22.5). now has
// the webhooks whose deliveries start it.
func (c *callouts) answers(a, before *factory.Automation, now map[string]*selection) {
	for _, webhook := range slices.Sorted(maps.Keys(now)) {
		is, was := c.is.Webhook(webhook), cmp.Or(c.was.Webhook(webhook), &factory.Webhook{})
		if told := a.Tells(is); told.URL != "" && told.URL != before.Tells(was).URL {
			c.say("automation", a.Name, a.Path, "%s is told of the runs that webhook %s starts", told.URL, webhook)
		}
		kinds, brief := a.Reports(is)
		old, wasBrief := before.Reports(was)
		replies := func(w *factory.Webhook, kinds []string) bool { return w.Replies && slices.Contains(kinds, "thread") }
		more, goesOn := missing(kinds, old), replies(is, kinds) && !replies(was, old)
		switch {
		case len(more) > 0 && goesOn:
			c.say("automation", a.Name, a.Path, "its runs are answered where the events of webhook %s came from: %s; replies there go on with them, whatever its filters say", webhook, strings.Join(more, ", "))
		case len(more) > 0:
			c.say("automation", a.Name, a.Path, "its runs are answered where the events of webhook %s came from: %s", webhook, strings.Join(more, ", "))
		case goesOn:
			c.say("automation", a.Name, a.Path, "goes on with replies in the threads of webhook %s that it has answered, whatever its filters say", webhook)
		case wasBrief && !brief && slices.Contains(kinds, "thread"):
			c.say("automation", a.Name, a.Path, "its answers to webhook %s have what the agent says", webhook)
		}
	}
}

// approvals says what of an automation waits for no person any more, or starts waiting runs that could not
// be started (SPEC 26.1).
func (c *callouts) approvals(a, before *factory.Automation) {
	is, was := a.Approval, before.Approval
	if was.Start && !is.Start {
		c.say("automation", a.Name, a.Path, "its runs start without the approval of a person")
	}
	if was.Outputs && !is.Outputs && len(a.Outputs) > 0 {
		c.say("automation", a.Name, a.Path, "what its agent asks for is done without the approval of a person")
	}
	if more := missing(is.Approvers, was.Approvers); len(more) > 0 {
		c.say("automation", a.Name, a.Path, "replies of %s decide what waits for a person", strings.Join(more, ", "))
	}
	if is.Outsiders && !was.Outsiders && len(before.StartedBy) > 0 {
		c.say("automation", a.Name, a.Path, "people whom startedBy does not list may start it, once a person has approved that")
	}
}

// outputs says what the agent of an automation may ask for now and could not before (SPEC 23.1).
func (c *callouts) outputs(a, before *factory.Automation) {
	var more []string
	for _, k := range output.Kinds {
		is, may := a.Outputs[k.Name]
		if was, could := before.Outputs[k.Name]; may && (!could || k.Wider(is, was)) {
			more = append(more, k.Name)
		}
	}
	if len(more) > 0 {
		c.say("automation", a.Name, a.Path, "its agent may ask the server for more: %s", strings.Join(more, ", "))
	}
}

func (c *callouts) environments() {
	for _, e := range c.is.Environments {
		before := c.was.Environment(e.Name)
		if more := opened(e, cmp.Or(before, &factory.Environment{})); len(more) > 0 {
			c.say("environment", e.Name, e.Path, "its runs get at more repositories: %s", strings.Join(more, ", "))
		}
		if before == nil {
			c.grants("environment", e.Name, e.Path, nil, e.Secrets)
			continue
		}
		c.grants("environment", e.Name, e.Path, before.Secrets, e.Secrets)
		if was, is := before.Network, e.Network; !was.Off && len(was.Hosts) == 0 {
			// It could already reach everything.
		} else if !is.Off && len(is.Hosts) == 0 {
			c.say("environment", e.Name, e.Path, "its runs may reach the whole network")
		} else if more := missing(is.Hosts, was.Hosts); len(more) > 0 {
			c.say("environment", e.Name, e.Path, "its runs may reach more hosts: %s", strings.Join(more, ", "))
		}
		if e.TrustRepositorySettings && !before.TrustRepositorySettings {
			c.say("environment", e.Name, e.Path, "the agent settings in its repositories act: hooks, MCP servers and the like")
		}
		if slices.Index(schema.Isolations, e.Isolation) < slices.Index(schema.Isolations, before.Isolation) {
			c.say("environment", e.Name, e.Path, "asks for less isolation: %s instead of %s", cmp.Or(e.Isolation, "any"), before.Isolation)
		}
	}
}

// selection describes which deliveries of a webhook start an automation.
type selection struct {
	every bool // every delivery
	// allowed has the paths that all filters of the automation test, each with the values
	// that any filter allows there. The values are nil if a filter does not limit them to a set.
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

// opened are the repositories to which an environment has more access by a credential than
// before.
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
