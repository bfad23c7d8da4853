package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestJSONSchemas: the published documents (docs/api.md) and those
// of our extensions are there, by name and by file name, and in the bundle.
func TestJSONSchemas(t *testing.T) {
	want := []string{
		"agent", "automation", "benchmark_suite", "benchmark_suite_task", "common", "environment", "factory", "runner", "scorer", "tests", "webhook",
	}
	if got := JSONSchemaNames(); !slices.Equal(got, want) {
		t.Errorf("documents %q, want %q", got, want)
	}
	var all struct {
		SchemaVersion string                     `json:"schema_version"`
		Documents     map[string]json.RawMessage `json:"documents"`
	}
	if err := json.Unmarshal(JSONSchemaBundle().Text, &all); err != nil || all.SchemaVersion != Version || len(all.Documents) != len(want) {
		t.Fatalf("a bundle of %d documents, %v", len(all.Documents), err)
	}
	bundle := all.Documents
	tags := map[string]string{JSONSchemaBundle().ETag: "bundle"}
	for _, name := range want {
		one, ok := LookupJSONSchema(name)
		file, ok2 := LookupJSONSchema(name + ".schema.json")
		if !ok || !ok2 || !bytes.Equal(one.Text, file.Text) || one.ETag != file.ETag {
			t.Errorf("%s: found %v, by its file name %v", name, ok, ok2)
		}
		var alone, bundled any
		if err := errors.Join(json.Unmarshal(one.Text, &alone), json.Unmarshal(bundle[name+".schema.json"], &bundled)); err != nil || !reflect.DeepEqual(alone, bundled) {
			t.Errorf("%s is another in the bundle: %v", name, err)
		}
		if !strings.HasPrefix(one.ETag, `"`) || tags[one.ETag] != "" {
			t.Errorf("%s has the ETag %s, as has %s", name, one.ETag, tags[one.ETag])
		}
		tags[one.ETag] = name
	}
	for _, name := range []string{"", "Webhook", "../webhook", "webhook.schema.json.schema.json", "jsonschema.go"} {
		if _, ok := LookupJSONSchema(name); ok {
			t.Errorf("%q is found", name)
		}
	}
}

// understood are the keywords that draft-07 and 2020-12 give the same meaning,
// and those for editors, which both pass over. The others differ: $defs, $anchor,
// arrays in items, dependentRequired, unevaluatedProperties, maxContains …
var understood = []string{
	"$schema", "$ref", "definitions", "title", "description", "default", "examples", "deprecated",
	"type", "enum", "const", "properties", "patternProperties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties",
	"items", "minItems", "maxItems", "uniqueItems", "contains", "minLength", "maxLength", "pattern",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "allOf", "anyOf", "not", "if", "then", "else",
	"errorMessage", "patternErrorMessage", "enumDescriptions", "deprecationMessage",
}

// TestJSONSchemaVocabulary: an editor that knows draft-07 alone reads what one
// that knows 2020-12 reads (SPEC 3.6).
func TestJSONSchemaVocabulary(t *testing.T) {
	for _, name := range JSONSchemaNames() {
		one, _ := LookupJSONSchema(name)
		var root any
		if err := json.Unmarshal(one.Text, &root); err != nil {
			t.Fatal(err)
		}
		checkVocabulary(t, name, root)
	}
}

func checkVocabulary(t *testing.T, at string, schema any) {
	t.Helper()
	s, ok := schema.(map[string]any)
	if !ok {
		if _, boolean := schema.(bool); !boolean {
			t.Errorf("%s: %v is no schema", at, schema)
		}
		return
	}
	for keyword, value := range s {
		if !slices.Contains(understood, keyword) && !strings.HasPrefix(keyword, "x-triphammer-") {
			t.Errorf("%s: %s may mean something else in draft-07", at, keyword)
		}
		switch keyword {
		case "$ref":
			if len(s) > 1 {
				t.Errorf("%s: draft-07 ignores what stands beside $ref", at)
			}
		case "properties", "patternProperties", "definitions":
			for key, one := range value.(map[string]any) {
				checkVocabulary(t, at+"/"+keyword+"/"+key, one)
			}
		case "allOf", "anyOf":
			for _, one := range value.([]any) {
				checkVocabulary(t, at+"/"+keyword, one)
			}
		case "additionalProperties", "propertyNames", "items", "contains", "if", "then", "else":
			checkVocabulary(t, at+"/"+keyword, value)
		}
	}
}
