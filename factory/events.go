package factory

import "encoding/json"

// Providers are the providers that a trigger may name, sorted.
func Providers() []string { return providers(false) }

// Events are the events of a provider, each with the keys that its filter may have; nil if
// no trigger may name the provider. Callers must not change the result.
func Events(provider string) map[string][]string { return catalogue()[provider] }

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
