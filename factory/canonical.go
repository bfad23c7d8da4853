package factory

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"triphammer/schema"
)

// Definition is the content of a definition file, in a form in which two revisions can
// be compared. The tables of package schema make it from the parsed file, so that no key
// can be left out.
type Definition struct {
	Kind, Name, Path string
	// Values are sorted by key. The values of an agent or automation include inherited
	// values. The values of a Markdown file include its text.
	Values []schema.Value
}

// Decode reads the value of a key of the definition, such as "codeForges", into a variable.
// It leaves the variable unchanged if the definition lacks the key.
func (d *Definition) Decode(key string, into any) {
	for _, v := range d.Values {
		if v.Key == key {
			_ = json.Unmarshal([]byte(v.JSON), into) // the values of a valid tree have the types of their keys
		}
	}
}

// OfKind are the definitions of a kind, such as "scorer", sorted by path.
func (f *Factory) OfKind(kind string) []Definition {
	var all []Definition
	for _, d := range f.Definitions {
		if d.Kind == kind {
			all = append(all, d)
		}
	}
	return all
}

func (l *loader) definitions() {
	l.factory.Definitions = make([]Definition, 0, len(l.docs))
	var defaults []schema.Value
	agents := make(map[string][]schema.Value)
	add := func(d *document, inherited []schema.Value) []schema.Value {
		values := inherit(schema.Values(d.Root, d.kind.shape, d.kind.folder), inherited)
		if d.kind.text != "" {
			values = append(values, schema.Value{Key: d.kind.text, JSON: string(schema.AppendText(nil, d.Body))})
		}
		values = slices.DeleteFunc(values, func(v schema.Value) bool { return v.JSON == "" })
		slices.SortFunc(values, func(a, b schema.Value) int { return cmp.Compare(a.Key, b.Key) })
		l.factory.Definitions = append(l.factory.Definitions, Definition{d.kind.id, d.name, d.Path, values})
		return values
	}
	// A definition is listed before the definitions that inherit from it.
	for _, d := range l.docs {
		switch d.kind.id {
		case "factory":
			for _, v := range add(d, nil) {
				if key, is := strings.CutPrefix(v.Key, "agentDefaults."); is {
					defaults = append(defaults, schema.Value{Key: key, JSON: v.JSON})
				}
			}
		case "agent", "automation":
		default:
			add(d, nil)
		}
	}
	for _, d := range l.of("agent") {
		agents[d.name] = slices.DeleteFunc(slices.Clone(add(d, defaults)), func(v schema.Value) bool { return !isSetting(v.Key) })
	}
	for i, d := range l.of("automation") {
		inherited, has := agents[l.factory.Automations[i].Agent]
		if !has {
			inherited = defaults
		}
		add(d, inherited)
	}
	l.skillDefinitions()
}

// isSetting tells whether a key can be inherited.
func isSetting(key string) bool {
	first, _, _ := strings.Cut(key, ".")
	return slices.ContainsFunc(schema.Settings.Keys, func(k schema.Key) bool { return k.Name == first })
}

// inherit adds the inherited values whose keys own does not have
// (factory/testdata/rules 1.4).
func inherit(own, inherited []schema.Value) []schema.Value {
	if len(inherited) == 0 {
		return own
	}
	says := make(map[string]bool, len(own))
	model, harness := false, false // own sets it; a file may set only one of the two
	for _, v := range own {
		says[v.Key] = true
		model = model || v.Key == "model"
		harness = harness || strings.HasPrefix(v.Key, "harness.")
	}
	take := func(key, value string) {
		if !says[key] {
			own = append(own, schema.Value{Key: key, JSON: value})
		}
	}
	for _, v := range inherited {
		switch {
		case model && strings.HasPrefix(v.Key, "harness."):
		case harness && v.Key == "model": // model is short for a harness
			take("harness.type", `"oz"`)
			take("harness.model", v.JSON)
		default:
			take(v.Key, v.JSON)
		}
	}
	return own
}
