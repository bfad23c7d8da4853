package applier

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"triphammer/schema"
)

// Plan is what an apply changes (SPEC 4.2).
type Plan struct {
	Create    []Change `json:"create"`
	Update    []Change `json:"update"`
	Delete    []Change `json:"delete"`
	Unchanged []Change `json:"unchanged"`
	// Callouts are the changes that a reviewer must not overlook: they widen what senders
	// or agents can do, or delete most of the factory.
	Callouts []Callout `json:"callouts"`
}

// Pending tells whether anything changes.
func (p *Plan) Pending() bool { return len(p.Create)+len(p.Update)+len(p.Delete) > 0 }

// Change is one resource of a Plan.
type Change struct {
	Kind string   `json:"kind"` // such as factory, webhook or automation
	Name string   `json:"name"`
	Path string   `json:"path"`
	Keys []string `json:"keys,omitempty"` // only for an update: the keys that differ, such as triggers[0].filter.webhooks
	// Values has an entry for each of Keys.
	Values []ValueChange `json:"values,omitempty"`
}

// ValueChange is one changed key of an update. Before and After are JSON texts, empty if
// there is no value. A long text is cut to maxShown characters, which start a little
// before the first difference.
type ValueChange struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

const (
	maxShown = 200
	leadIn   = 40 // characters before the first difference
	// maxParts is how many differences within one key are listed separately.
	maxParts = 20
)

// resource is a definition as it is compared.
type resource struct {
	Change
	values []schema.Value
}

// Diff plans the change from one revision to the next; from may be nil.
func Diff(from, to *Revision) Plan {
	old, now := resources(from), resources(to)
	p := Plan{Create: []Change{}, Update: []Change{}, Delete: []Change{}, Unchanged: []Change{}, Callouts: []Callout{}}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		r := now[id]
		before, existed := old[id]
		if !existed {
			p.Create = append(p.Create, r.Change)
			continue
		}
		r.compare(before.values)
		if len(r.Values) > 0 {
			p.Update = append(p.Update, r.Change)
		} else {
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

// compare records the keys that differ from the values before. Both are sorted by key.
func (r *resource) compare(before []schema.Value) {
	after := r.values
	for len(before) > 0 || len(after) > 0 {
		var was, is schema.Value
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Key < after[0].Key:
			was, before = before[0], before[1:]
		case len(before) == 0 || after[0].Key < before[0].Key:
			is, after = after[0], after[1:]
		default:
			was, before, is, after = before[0], before[1:], after[0], after[1:]
		}
		if was.JSON != is.JSON {
			r.Values = append(r.Values, differences(cmp.Or(is.Key, was.Key), was.JSON, is.JSON)...)
		}
	}
	for _, v := range r.Values {
		r.Keys = append(r.Keys, v.Key)
	}
}

// differences are the places where two JSON texts differ. It descends into mappings, and
// into lists of mappings whose length did not change. If more than maxParts places
// differ, the whole value counts as one difference.
func differences(key, before, after string) []ValueChange {
	was, is := parts(before), parts(after)
	if was == nil || is == nil || before[0] != after[0] || before[0] == '[' && len(was) != len(is) {
		return []ValueChange{valueChange(key, before, after)}
	}
	var all []ValueChange
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			all = append(all, differences(key+name, was[name], is[name])...)
		}
	}
	if len(all) > maxParts {
		return []ValueChange{valueChange(key, before, after)}
	}
	return all
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// parts are the JSON texts of the values of a mapping, or of the items of a list of
// mappings. Each is under the suffix that names it, such as .key or [0]. Any other text
// has no parts: the result is nil.
func parts(text string) map[string]string {
	var mapping map[string]json.RawMessage
	var list []json.RawMessage
	all := make(map[string]string)
	switch {
	case text == "":
		return nil
	case text[0] == '{' && json.Unmarshal([]byte(text), &mapping) == nil:
		for key, value := range mapping {
			if !plainKey.MatchString(key) {
				key = string(schema.AppendText(nil, key))
			}
			all["."+key] = string(value)
		}
	case text[0] == '[' && json.Unmarshal([]byte(text), &list) == nil:
		for i, item := range list {
			if item[0] != '{' {
				return nil
			}
			all[fmt.Sprintf("[%d]", i)] = string(item)
		}
	default:
		return nil
	}
	return all
}

// valueChange makes a ValueChange. In long texts it leaves out most of the common
// beginning, and cuts the end off.
func valueChange(key, before, after string) ValueChange {
	a, b := []rune(before), []rune(after)
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	cut := func(text []rune) string {
		from, mark := 0, ""
		if len(text) > maxShown && same > 2*leadIn {
			from, mark = min(same-leadIn, len(text)), "…"
		}
		if text = text[from:]; len(text) > maxShown {
			return mark + string(text[:maxShown]) + "…"
		}
		return mark + string(text)
	}
	return ValueChange{key, cut(a), cut(b)}
}

// resources are the definitions of a revision, by kind and name. A webhook has one more
// value, which is in no file: the generation of its secret.
func resources(r *Revision) map[string]resource {
	all := make(map[string]resource)
	if r == nil {
		return all
	}
	generations := make(map[string]int64)
	for _, w := range r.Webhooks {
		generations[w.Def.Name] = w.SecretGeneration
	}
	for _, d := range r.Definition.Definitions {
		name, values := d.Name, d.Values
		switch d.Kind {
		case "factory":
			name = r.Factory
		case "webhook":
			values = append(slices.Clip(values), schema.Value{Key: "secret generation", JSON: strconv.FormatInt(generations[name], 10)})
			slices.SortFunc(values, func(a, b schema.Value) int { return cmp.Compare(a.Key, b.Key) })
		}
		all[d.Kind+"\x00"+name] = resource{Change{Kind: d.Kind, Name: name, Path: d.Path}, values}
	}
	return all
}
