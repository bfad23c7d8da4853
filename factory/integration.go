package factory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema"
)

// integrationKind is a type that integrations can have.
type integrationKind struct {
	provider string
	// setting is the one that the format or its published client names, and instead what the server does
	// instead of acting on it; empty: it acts. How files spell the settings of types but
	// microsoft-teams is not published: we spell them as those.
	setting schema.Key
	instead string
}

var integrationKinds = map[string]integrationKind{
	"jira":            {"jira", schema.Key{Name: "projectKeys", Shape: texts}, "name the projects in the filters of triggers"},
	"linear":          {"linear", schema.Key{Name: "teamIds", Shape: texts}, "name the teams in the filters of triggers"},
	"microsoft-teams": {"teams", autoRespond, ""},
	"slack":           {"slack", autoRespond, ""},
}

var (
	texts       = schema.Shape{Type: schema.TypeList, Elem: &schema.Shape{Type: schema.TypeString}}
	autoRespond = schema.Key{Name: "autoRespondToThreadReplies", Shape: schema.Shape{Type: schema.TypeBool}}
)

// attached is an integration that webhooks of its sender have.
type attached struct {
	schema.At
	name    string
	sender  *native.Sender
	replies bool
}

// integrate reads what services the factory answers (SPEC 21.6), after its webhooks and before its
// automations.
func (l *loader) integrate(d *document) {
	known := slices.Sorted(maps.Keys(integrationKinds))
	seen := make(map[string]bool)
	for at, i := range itemsOf(d.Root.Get("integrations")) {
		for _, f := range i.Fields {
			if kind, ok := integrationKinds[f.Key]; ok && f.Key != "microsoft-teams" { // whose shape is published
				l.checkSettings(d, f.Value, kind.setting, fmt.Sprintf("integrations[%d].%s", at, f.Key))
			}
		}
		n := i.Get("type")
		if n == nil || n.Kind != schema.String {
			continue
		}
		t := strings.ToLower(strings.TrimSpace(n.Text))
		kind, ok := integrationKinds[t]
		switch {
		case t != "" && !ok:
			d.Error(n.At, schema.InvalidValue, schema.Newer(d.OneOf(t, known)), fmt.Sprintf("integrations cannot have the type %q", n.Text))
		case seen[t]:
			d.Error(n.At, schema.DuplicateKey, "take one of them out", fmt.Sprintf("integration %q is listed twice", t))
		case ok && !l.opt.Strict:
			l.attach(d, i, t, kind)
		}
		seen[t] = true
	}
	if seen["linear"] && seen["jira"] {
		d.Error(d.Root.KeyAt("integrations"), schema.InvalidValue, "keep one of them", "integrations linear and jira exclude each other")
	}
}

// checkSettings checks the settings of an integration. A key that is not known may be another
// spelling, so only --strict refuses it.
func (l *loader) checkSettings(d *document, settings *schema.Node, known schema.Key, where string) {
	for _, f := range settings.Fields {
		report := d.Warn
		switch {
		case f.Key == known.Name:
			schema.Check(d.Collector, f.Value, &known.Shape, where+"."+f.Key)
			continue
		case l.opt.Strict:
			report = d.Error
		}
		report(f.At, schema.UnknownField, schema.Newer(d.OneOf(f.Key, []string{known.Name})), fmt.Sprintf("unknown key %q", where+"."+f.Key))
	}
}

// attach makes the webhooks of an integration's sender answer in the thread, and says what the
// integration cannot do.
func (l *loader) attach(d *document, n *schema.Node, name string, kind integrationKind) {
	s, at := native.ByProvider(kind.provider), n.Get("type").At
	setting := n.Get(name).Get(kind.setting.Name)
	for _, f := range n.Fields {
		if _, other := integrationKinds[f.Key]; other && f.Key != name && says(f.Value) {
			d.Warn(f.At, schema.NoEffect, "take it out, or put it beside type: "+f.Key, fmt.Sprintf("settings of %s have no effect beside type: %s", f.Key, name))
		}
	}
	if kind.instead != "" && says(setting) {
		d.Warn(n.Get(name).KeyAt(kind.setting.Name), schema.NoEffect, kind.instead, fmt.Sprintf("%s has no effect on this server: automations say by filters what starts them", kind.setting.Name))
	}
	replies := s.Stop != nil || kind.instead == "" && boolOf(setting, false) // in a session, whoever writes means the agent
	var without *Webhook
	webhooks := 0
	for _, w := range l.factory.Webhooks {
		if w.Sender() != s {
			continue
		}
		webhooks++
		w.Replies = replies
		if !w.Report.Said {
			w.Report.Kinds = []string{thread}
		}
		if w.APISecretName == "" && !w.Report.Said { // else it is reported there
			without = w
		}
	}
	switch {
	case webhooks == 0:
		d.Warn(at, schema.NoEffect, "add webhooks/NAME.yaml with signatureScheme: "+s.Schemes[0], fmt.Sprintf("integration %s has no effect: no webhook is of %s", name, s.Title))
		return
	case without != nil:
		d.Warn(at, schema.NoEffect, fmt.Sprintf("add apiSecretName: NAME to %s, with a secret with which %s takes answers, or report: none", without.Path, s.Title),
			fmt.Sprintf("integration %s has no effect for %s without apiSecretName: nothing can be told to %s", name, without.Path, s.Title))
	}
	l.attached = append(l.attached, attached{at, name, s, replies})
	if replies && s.Provider == "teams" {
		d.Warn(n.Get(name).KeyAt(autoRespond.Name), schema.NoEffect, "mention the webhook in replies",
			"autoRespondToThreadReplies has no effect for replies that mention nobody: an outgoing webhook of Microsoft Teams sends only messages that mention it")
	}
}

// attachedTo says which automations cannot do what integrations say.
func (l *loader) attachedTo(d *document) {
	for _, i := range l.attached {
		told := false
		for _, a := range l.factory.Automations {
			if a.triggerOf(i.sender) == nil {
				continue
			}
			told = true
			e := l.environments[a.Settings.EnvironmentID]
			if i.replies && a.Enabled && e != nil && len(e.Command) > 0 && (!a.Report.Said || slices.Contains(a.Report.Kinds, thread)) {
				d.Warn(i.At, schema.NoEffect, "give "+a.Path+" an environment without a command, or say report: none there",
					fmt.Sprintf("each reply in a thread begins %s anew: the command of %s keeps no session that a run could go on with", a.Name, e.Path))
			}
		}
		if !told {
			d.Warn(i.At, schema.NoEffect, fmt.Sprintf("add an automation with provider: %s, event: %s", i.sender.Provider, i.sender.Events[0].Name),
				fmt.Sprintf("integration %s has no effect: no automation has a trigger with an event of %s", i.name, i.sender.Title))
		}
	}
}

// triggerOf is the first trigger of the automation that names an event of a sender; nil: none does.
func (a *Automation) triggerOf(s *native.Sender) *native.Trigger {
	for i := range a.Triggers {
		if t := a.Triggers[i].Native; t != nil && t.Event.Sender == s {
			return t
		}
	}
	return nil
}
