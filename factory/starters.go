package factory

import (
	"fmt"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema"
)

// starters reads who may start an automation (SPEC 24.1), and gives its triggers the list. A key that
// could not act is refused.
func (l *loader) starters(d *document, a *Automation) {
	n := d.Root.Get("startedBy")
	a.StartedBy = textsOf(n)
	for i := range a.StartedBy {
		a.StartedBy[i] = strings.TrimSpace(a.StartedBy[i])
	}
	people := slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.by() != nil })
	if limit := d.Root.Get("maxRunsPerPersonPerHour"); limit != nil && !people && len(a.Triggers) > 0 {
		d.Error(d.Root.KeyAt("maxRunsPerPersonPerHour"), schema.InvalidValue, "take it out; maxRunsPerHour counts all runs", "maxRunsPerPersonPerHour means nothing here: no event of its triggers names a person")
	}
	if n == nil {
		if a.Enabled {
			anybody(d, a)
		}
		return
	}
	at := d.Root.KeyAt("startedBy")
	if len(a.StartedBy) == 1 && a.StartedBy[0] == native.RoleAuthor {
		d.Warn(at, schema.AnybodyStarts, "add write, or logins, or take author out", "startedBy: [author] restricts nothing: anybody can open an issue, and is its author then")
	}
	for _, item := range itemsOf(n) {
		d.likeRole(item, "startedBy")
	}
	list := native.ParseStarters(a.StartedBy)
	list.Outsiders = a.Approval.Outsiders
	roles := slices.ContainsFunc(list.Roles, func(role string) bool { return role != native.RoleAuthor })
	var asked []*native.Sender
	refused := len(a.StartedBy) == 0 // reported before
	for i := range a.Triggers {
		t := &a.Triggers[i]
		where := fmt.Sprintf("triggers[%d]", i)
		by := t.by()
		switch {
		case t.Provider == "" || t.Event == "" || !t.known() || len(a.StartedBy) == 0:
			continue // reported before
		case by == nil:
			refused = true
			d.Error(t.At, schema.InvalidTrigger, "put this trigger into an automation of its own, without startedBy",
				fmt.Sprintf("%s: nobody could start it, because %s %s names no person, and startedBy asks for one", where, t.Provider, t.Event))
			continue
		case !slices.ContainsFunc(a.StartedBy, by.Suits):
			refused = true
			d.Error(t.At, schema.InvalidTrigger, "name people as the sender's events do, or put the trigger into an automation of its own",
				fmt.Sprintf("%s: nobody could start it, because %s does not say who is %s", where, t.Native.Event.Sender.Title, strings.Join(a.StartedBy, " or ")))
			continue
		}
		t.Native.StartedBy = list
		if s := t.Native.Event.Sender; roles && by.Asks != nil && !slices.Contains(asked, s) {
			asked = append(asked, s)
			l.asksWho(d, s, at)
		}
	}
	for _, item := range itemsOf(n) {
		entry := strings.TrimSpace(textOf(item))
		if people && !refused && !slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.by().Suits(entry) }) {
			d.Error(item.At, schema.InvalidValue, "take it out", fmt.Sprintf("startedBy: no sender of its triggers says who is %s", entry))
		}
	}
}

// likeRole warns of a login that reads like a role: whoever has the login would be meant.
func (d *document) likeRole(item *schema.Node, key string) {
	text := strings.TrimSpace(textOf(item))
	if role := strings.ToLower(text); role != text && slices.Contains(native.Roles, role) {
		d.Warn(item.At, schema.AnybodyStarts, fmt.Sprintf("write %s for the role, or %q for the login", role, "@"+text), fmt.Sprintf("%s: %s is whoever has this login, and not the role %s", key, text, role))
	}
}

// by says whose act the events of the trigger are; nil: nobody's.
func (t *Trigger) by() *native.Who {
	if t.Native == nil {
		return nil
	}
	return t.Native.Event.By
}

// known tells whether there is such an event.
func (t *Trigger) known() bool {
	_, is := catalogue()[t.Provider][t.Event]
	return is
}

// anybody warns of an automation that anybody can start who can write on a public repository.
func anybody(d *document, a *Automation) {
	var events []string
	var at schema.At
	for i := range a.Triggers {
		if t := &a.Triggers[i]; t.Native != nil && t.Native.Event.Public {
			if len(events) == 0 {
				at = t.At
			}
			if name := t.Provider + " " + t.Event; !slices.Contains(events, name) {
				events = append(events, name)
			}
		}
	}
	if len(events) > 0 {
		d.Warn(at, schema.AnybodyStarts, "add startedBy: [write], or whom you trust", fmt.Sprintf("on a public repository anybody can start this automation, by %s", strings.Join(events, ", ")))
	}
}

// asksWho warns of roles that no webhook of the trigger's sender can ask for.
func (l *loader) asksWho(d *document, s *native.Sender, at schema.At) {
	path := ""
	for _, w := range l.factory.Webhooks {
		if w.Sender() == s {
			if w.APISecretName != "" {
				return
			}
			path = w.Path
		}
	}
	if path != "" {
		title := s.Title
		d.Warn(at, schema.NoSender, fmt.Sprintf("add apiSecretName: NAME to %s, with a secret that %s's API takes", path, title),
			fmt.Sprintf("startedBy: deliveries of %s do not say of everybody what they may do, and no webhook can ask: those about whom they are silent start nothing", title))
	}
}
