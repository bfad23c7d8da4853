//go:build full

package factory

import (
	"testing"
)

// TestSchemaEveryPlace: the examples have every key of the format, and the parser
// and the schemas agree if one is missing or has another value.
func TestSchemaEveryPlace(t *testing.T) {
	judges := newSchemaJudges(t)
	examples := exampleDocuments(t)
	for _, d := range schemaDocuments {
		t.Run(d.name, func(t *testing.T) {
			seen := make(map[string]bool)
			for _, example := range examples[d.name] {
				places := slotsOf(&example.value, d.shape)
				if example.refused || len(places) > 100 { // 64 conditions, one like the other
					continue
				}
				for i, place := range places {
					if seen[place.at] || t.Failed() {
						continue
					}
					seen[place.at] = true
					replacements := place.replacements()
					for which := range len(replacements) + 1 {
						mutant := clone(example.value)
						s := slotsOf(&mutant, d.shape)[i]
						if which < len(replacements) {
							s.set(clone(replacements[which]))
						} else {
							s.remove()
						}
						text := jsonText(t, mutant)
						if root, found := parseAlone(t, d.name, text, "Body\n"); root != nil {
							judges.compare(t, d.name, text, root, found, false)
						}
					}
				}
			}
			for _, key := range keysOf("", d.shape) {
				if !seen[key] {
					t.Errorf("no document of testdata/documents.txtar that is accepted has the key %s%s", d.name, key)
				}
			}
		})
	}
}
