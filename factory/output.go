package factory

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"triphammer/factory/native"
	"triphammer/schema"
	"triphammer/schema/output"
)

// outputs reads what the agent of an automation may ask for (SPEC 23.1).
func outputs(d *document) output.Allowed {
	n := d.Root.Get("outputs")
	if n == nil || n.Kind != schema.Mapping {
		return nil
	}
	all := make(output.Allowed)
	for _, k := range output.Kinds {
		of := n.Get(k.Name)
		if of == nil || of.Kind != schema.Mapping {
			continue
		}
		at := "outputs." + k.Name + "."
		b := output.Bounds{
			Allowed: textsOf(of.Get("allowed")), Repositories: textsOf(of.Get("repositories")), Channels: textsOf(of.Get("channels")), Labels: textsOf(of.Get("labels")),
			TitlePrefix: textOf(of.Get("titlePrefix")), Base: textOf(of.Get("base")), Draft: boolOf(of.Get("draft"), false),
		}
		for _, bound := range k.Bounds {
			if into := map[string]*int{"max": &b.Max, "comments": &b.Comments}[bound.Name]; into != nil && of.Get(bound.Name) != nil {
				*into = int(amount(d, at+bound.Name, float64(cmp.Or(bound.Most, output.MaxRequests))))
			}
		}
		for _, r := range itemsOf(of.Get("repositories")) {
			if !ownerName.MatchString(textOf(r)) {
				d.Error(r.At, schema.InvalidValue, "repositories: [acme/app] is an example", fmt.Sprintf("%q is no repository: write OWNER/NAME", textOf(r)))
			}
		}
		all[k.Name] = b
	}
	return all
}

// ownerName matches OWNER/NAME, also with the groups of GitLab.
var ownerName = regexp.MustCompile(`^[^/\s]+(/[^/\s]+)+$`)

// unperformed warns of outputs that no event of the automation could have (SPEC 23.1).
func (l *loader) unperformed(d *document, a *Automation) {
	if len(a.Outputs) == 0 {
		return
	}
	var senders []*native.Sender
	for _, t := range a.Triggers {
		if t.Native != nil && !slices.Contains(senders, t.Native.Event.Sender) {
			senders = append(senders, t.Native.Event.Sender)
		}
	}
	n := d.Root.Get("outputs")
	if len(senders) == 0 {
		d.Warn(d.Root.KeyAt("outputs"), schema.NoEffect, "name an event of a sender in a trigger, such as provider: github, or take outputs out",
			"outputs has no effect: no trigger names an event of a sender, so nothing says where its outputs go")
		return
	}
	for _, k := range output.Kinds {
		if _, has := a.Outputs[k.Name]; !has {
			continue
		}
		for _, s := range senders {
			if k.Needs[s.Provider] == "" {
				d.Warn(n.KeyAt(k.Name), schema.NoEffect, "take "+k.Name+" out, or the triggers of "+s.Title, fmt.Sprintf("outputs.%s has no effect for events of %s: the server cannot do this there", k.Name, s.Title))
			}
		}
	}
	for _, s := range senders {
		if _, asks := a.Outputs[output.Ask]; asks && a.Enabled && len(a.StartedBy) == 0 && s.Comment != nil && s.Comment.Public {
			d.Warn(n.KeyAt(output.Ask), schema.AnybodyStarts, "add startedBy: [write], or whom you trust", "on a public repository anybody can answer what this automation asks at "+s.Title)
		}
		if path := l.without(s); path != "" {
			d.Warn(d.Root.KeyAt("outputs"), schema.NoEffect, fmt.Sprintf("add apiSecretName: NAME to %s, with a secret with which %s takes requests", path, s.Title),
				fmt.Sprintf("outputs has no effect for events of %s: %s has no apiSecretName, so nothing can be asked of %s", s.Title, path, s.Title))
		}
	}
}

// without is a webhook file of a sender, if no webhook file of the sender names a secret for its API.
func (l *loader) without(s *native.Sender) (path string) {
	for _, w := range l.factory.Webhooks {
		switch {
		case w.Sender() != s:
		case w.APISecretName != "":
			return ""
		case path == "":
			path = w.Path
		}
	}
	return path
}
