package factory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"triphammer/factory/native"
	"triphammer/schema"
)

// catalogue has the filter keys of each provider's events
// (factory/testdata/rules 4.1).
var catalogue = sync.OnceValue(buildCatalogue)

func buildCatalogue() map[string]map[string][]string {
	all := make(map[string]map[string][]string)
	on := func(provider string, events []string, keys ...string) {
		if all[provider] == nil {
			all[provider] = make(map[string][]string)
		}
		for _, event := range events {
			all[provider][event] = keys
		}
	}
	for _, sender := range native.Senders() {
		for _, e := range sender.Events {
			on(sender.Provider, []string{e.Name}, e.KeyNames()...)
		}
	}
	on("schedule", []string{"cron_fired"}, "schedule_ids")
	on("factory", []string{"work_item_stage_changed"}, "stages")
	on("webhook", []string{"received"}, "webhook_ids", "payload")
	return all
}

// providers are the providers that triggers may name; with strict, only those that the
// format publishes.
func providers(strict bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(catalogue())), func(name string) bool { return strict && guessed(name) })
}

// guessed tells that the spelling of a provider and its events is ours.
func guessed(provider string) bool {
	sender := native.ByProvider(provider)
	return sender != nil && sender.Guess
}

func eventsOf(provider string) []string { return slices.Sorted(maps.Keys(catalogue()[provider])) }

// senderTrigger reads the filter of a trigger that names a sender's event (SPEC 16).
func (l *loader) senderTrigger(d *document, n *schema.Node, t *Trigger, e *native.Event, where string) {
	t.Native = &native.Trigger{Event: e}
	if n == nil || n.Kind != schema.Mapping {
		return
	}
	used := make(map[*native.Key]bool)
	names := func() []string {
		return slices.DeleteFunc(e.KeyNames(), func(name string) bool { k, _ := e.Key(name); return l.opt.Strict && k.Own })
	}
	for _, f := range n.Fields {
		key, named := e.Key(f.Key)
		switch {
		case key != nil && used[key]:
			d.Error(f.At, schema.InvalidFilter, "keep one of them", fmt.Sprintf("%s.filter has %s under two names", where, key.Name))
		case key != nil && key.Own && l.opt.Strict:
			d.Error(f.At, schema.InvalidFilter, "take it out: only this server knows it", fmt.Sprintf("%s: %s %s cannot be filtered on %q", where, t.Provider, t.Event, f.Key))
			continue
		case key != nil:
		case t.Provider == "gitlab" && t.Event == "push":
			// The keys of this event are not published. The known keys are a guess from the pushes of other senders.
			d.Warn(f.At, schema.InvalidFilter, d.OneOf(f.Key, names()), fmt.Sprintf("%s.filter.%s: it is not known whether a push of gitlab can be filtered on it", where, f.Key))
			key = &native.Key{Name: f.Key}
		default:
			d.Error(f.At, schema.InvalidFilter, schema.Newer(d.OneOf(f.Key, names())), fmt.Sprintf("%s: %s %s cannot be filtered on %q", where, t.Provider, t.Event, f.Key))
			continue
		}
		used[key] = true
		m := matcher{d: d, where: fmt.Sprintf("%s.filter.%s", where, f.Key), provider: t.Provider, key: key, named: named}
		if named {
			m.names(l, f)
		} else {
			m.check(f.Value)
		}
		if c := m.compiled; len(c.In) > 0 || len(c.NotIn) > 0 {
			c.Key, c.Named = key, named
			t.Native.Filters = append(t.Native.Filters, c)
		}
	}
}

// raised warns of a trigger on an event that no webhook of the tree can raise (SPEC 16.1).
func (l *loader) raised(d *document, n *schema.Node, t *Trigger, where string) {
	s := t.Native.Event.Sender
	if !l.opt.Strict {
		l.answered(d, n, t, where)
	}
	if l.opt.Strict || !t.Fires() || slices.ContainsFunc(l.factory.Webhooks, func(w *Webhook) bool { return w.Sender() == s }) {
		return
	}
	scheme := strings.Join(s.Schemes, " or ")
	d.Warn(n.Get("provider").At, schema.NoSender,
		fmt.Sprintf("add webhooks/%s.yaml: {authMode: signature, signatureScheme: %s, secretName: NAME}, and give its URL to %s", s.Provider, scheme, s.Title),
		fmt.Sprintf("%s: no webhook of this factory takes deliveries of %s: %s fires nothing", where, s.Title, t.Event))
}

// answered warns of a filter that needs an answer of the sender's API, if no webhook has a
// secret for it (SPEC 16.3).
func (l *loader) answered(d *document, n *schema.Node, t *Trigger, where string) {
	keys := t.Native.Asks()
	path := ""
	for _, w := range l.factory.Webhooks {
		if w.Sender() != t.Native.Event.Sender {
			continue
		}
		if w.APISecretName != "" {
			return
		}
		path = cmp.Or(path, w.Path)
	}
	if len(keys) == 0 || path == "" {
		return
	}
	title := t.Native.Event.Sender.Title
	d.Warn(n.KeyAt("filter"), schema.NoSender, fmt.Sprintf("add apiSecretName: NAME to %s, with a secret that %s's API takes", path, title),
		fmt.Sprintf("%s.filter: %s is not in what %s sends, and no webhook can ask for it: this trigger starts nothing", where, strings.Join(keys, ", "), title))
}

// checkFilter checks the filter keys of a trigger that names no sender's event.
func (l *loader) checkFilter(d *document, n *schema.Node, t *Trigger, keys []string, where string) {
	for _, f := range n.Fields {
		if !slices.Contains(keys, f.Key) {
			d.Error(f.At, schema.InvalidFilter, schema.Newer(d.OneOf(f.Key, keys)), fmt.Sprintf("%s: %s %s cannot be filtered on %q", where, t.Provider, t.Event, f.Key))
		} else if f.Key != "schedule_ids" { // schedule_ids are checked with the schedule
			m := matcher{d: d, where: fmt.Sprintf("%s.filter.%s", where, f.Key), key: &native.Key{Name: f.Key}}
			m.check(f.Value)
		}
	}
}

// matcher is the value of one filter key of a trigger.
type matcher struct {
	d               *document
	where, provider string
	key             *native.Key
	named           bool
	compiled        native.Filter
}

// names checks the value of an alias that only the provider can resolve: a plain list.
func (m *matcher) names(l *loader, f schema.Field) {
	if f.Value.Kind == schema.Mapping {
		m.d.Error(f.Value.At, schema.InvalidFilter, "write [NAME], or "+m.key.Name+" with ids", m.where+" takes a list of names, without in and not_in")
		return
	}
	m.check(f.Value)
	for _, item := range itemsOf(f.Value) {
		if name := strings.TrimSpace(textOf(item)); name != "" {
			l.later(m.d, item.At, m.where, m.provider+"_name_alias", name)
		} else if item.Kind == schema.String {
			m.d.Error(item.At, schema.InvalidFilter, "take it out", m.where+" holds an empty name")
		}
	}
}

// check checks a list, or {in, not_in}.
func (m *matcher) check(n *schema.Node) {
	switch n.Kind {
	case schema.Null:
		return
	case schema.Mapping:
	default:
		m.compiled.In = m.values(n)
		return
	}
	for _, f := range n.Fields {
		switch f.Key {
		case "in":
			m.compiled.In = m.values(f.Value)
		case "not_in":
			m.compiled.NotIn = m.values(f.Value)
		default:
			m.d.Error(f.At, schema.InvalidFilter, m.d.OneOf(f.Key, []string{"in", "not_in"}), fmt.Sprintf("%s takes a list, in or not_in, not %q", m.where, f.Key))
		}
	}
	wanted := make(map[string]bool)
	for _, item := range itemsOf(n.Get("in")) {
		wanted[m.canonical(item.Text)] = true
	}
	for _, item := range itemsOf(n.Get("not_in")) {
		if wanted[m.canonical(item.Text)] {
			m.d.Error(item.At, schema.InvalidFilter, "take it out of one of them", fmt.Sprintf("%s: both in and not_in hold %q", m.where, item.Text))
		}
	}
}

// values checks a list, and returns its values in canonical form.
func (m *matcher) values(list *schema.Node) []string {
	if list.Kind != schema.List {
		hint := "write [VALUE]"
		if list.Text != "" && list.Kind != schema.Null {
			hint = "write [" + list.Text + "]"
		}
		m.d.Error(list.At, schema.InvalidFilter, hint, m.where+" takes a list, not "+list.Kind.String())
		return nil
	}
	kind := schema.String
	if m.key.Kind == native.Number {
		kind = schema.Int
	}
	var all []string
	for _, item := range list.Items {
		if item.Kind != kind {
			hint := "take it out"
			switch {
			case kind == schema.Int:
				hint = "write a whole number, without quotes"
			case kind == schema.String && item.Text != "" && item.Kind != schema.Null:
				hint = fmt.Sprintf("quote it: %q", item.Text)
			}
			m.d.Error(item.At, schema.InvalidFilter, hint, fmt.Sprintf("%s holds %s where %s is expected", m.where, item.Kind, kind))
			continue
		}
		value := m.canonical(item.Text)
		if len(m.key.Enum) > 0 && !slices.Contains(m.key.Enum, value) {
			m.d.Error(item.At, schema.InvalidFilter, m.d.OneOf(item.Text, m.key.Enum), fmt.Sprintf("%s cannot be %q", m.where, item.Text))
		}
		all = append(all, value)
	}
	return all
}

func (m *matcher) canonical(value string) string { return m.key.Canonical(value, m.named) }
