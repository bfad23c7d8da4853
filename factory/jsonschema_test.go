package factory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"

	"triphammer/schema"
)

// The JSON Schemas of schema/ (SPEC 3.6) are made here of the tables that the
// parser goes by: the shapes of package schema, the catalogue of events, the
// table of signature schemes. What the parser says in code, about the keys of
// one file, is said again in jsonschema_rules_test.go; jsonschema_agree_test.go holds the two
// to each other. The keywords are those that mean the same in draft-07 and in
// 2020-12.

// object is a JSON Schema, or another JSON object.
type object = map[string]any

// schemaDocument is a kind of file that has a JSON Schema.
type schemaDocument struct {
	name, title string
	kind        string // of the loader's table
	shape       *schema.Shape
}

var schemaDocuments = []schemaDocument{
	{"factory", "factory.yaml", "factory", &schema.Factory},
	{"agent", "Agent", "agent", &schema.Agent},
	{"automation", "Automation", "automation", &schema.Automation},
	{"scorer", "Scorer", "scorer", &schema.Scorer},
	{"runner", "Runner", "runner", &schema.Runner},
	{"webhook", "Webhook", "webhook", &schema.Webhook},
	{"benchmark_suite", "Benchmark suite", "benchmark suite", &schema.BenchmarkSuite},
	{"benchmark_suite_task", "Benchmark task", "benchmark task", &schema.BenchmarkTask},
	{"environment", "Environment", "environment", &schema.Environment},
	{"tests", "Filter tests", "filter test", &schema.Tests},
}

// sharedKeys are the keys whose schema is in common, by their definition there.
var sharedKeys = map[string]string{
	"model": "model", "harness": "harness", "runner": "runner", "environmentId": "environmentId", "secrets": "secrets",
	"mcpServers": "mcpServers", "workerHost": "workerHost", "cloudProviders": "cloudProviders", "providers": "cloudProviders",
}

// sharedShapes are the shapes of the definitions of common.
func sharedShapes() map[string]*schema.Shape {
	shapes := make(map[string]*schema.Shape)
	for _, of := range []*schema.Shape{&schema.Agent, &schema.Factory} {
		for i := range of.Keys {
			if key := &of.Keys[i]; sharedKeys[key.Name] == key.Name && shapes[key.Name] == nil {
				shapes[key.Name] = &key.Shape
			}
		}
	}
	return shapes
}

// TestSchemaFiles: the committed JSON Schemas are those of the tables.
func TestSchemaFiles(t *testing.T) {
	g := schemaGenerator{texts: maps.Clone(schemaTexts), rules: schemaRules(), shared: sharedShapes(), t: t}
	files := map[string]object{"common": g.common()}
	for _, d := range schemaDocuments {
		files[d.name] = g.document(d)
	}
	for path := range g.texts {
		t.Errorf("schemaTexts: no key is at %s", path)
	}
	for path := range g.rules {
		t.Errorf("schemaRules: no key is at %s", path)
	}
	for name, s := range files {
		text := schemaText(t, s)
		file := filepath.Join("..", "schema", name+".schema.json")
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if committed, _ := schema.LookupJSONSchema(name); !bytes.Equal(committed.Text, text) {
			t.Errorf("%s is not what the tables say now; write it: go test ./factory -run Schema -update", file)
		}
	}
	if got, want := schema.JSONSchemaNames(), slices.Sorted(maps.Keys(files)); !*update && !slices.Equal(got, want) {
		t.Errorf("embedded are %q, want %q", got, want)
	}
}

// TestSchemaDocuments: every kind of file has a JSON Schema.
func TestSchemaDocuments(t *testing.T) {
	for _, k := range kinds {
		if !slices.ContainsFunc(schemaDocuments, func(d schemaDocument) bool { return d.kind == k.id && d.shape == k.shape }) {
			t.Errorf("%s has no JSON Schema", k.id)
		}
	}
}

func schemaText(t *testing.T, s object) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	// What cannot be seen is escaped.
	var out []byte
	for _, r := range b.String() {
		if r > unicode.MaxASCII && !unicode.IsGraphic(r) || r > unicode.MaxASCII && unicode.IsSpace(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// schemaGenerator turns shapes into JSON Schemas. It takes what it used out of
// texts and rules.
type schemaGenerator struct {
	texts  map[string]string
	rules  map[string]object
	shared map[string]*schema.Shape
	t      *testing.T
}

const (
	dialect    = "https://json-schema.org/draft/2020-12/schema"
	yamlRules  = "One YAML document of at most 256 KiB, 32 levels and 20000 keys and values; no anchors, aliases, tags, merge keys or repeated keys; dates in quotes; integers without a point or exponent."
	refMessage = "common.schema.json#/definitions/"
)

func (g *schemaGenerator) common() object {
	definitions := object{}
	for name, shape := range g.shared {
		definitions[name] = g.shape(shape, "common."+name)
	}
	return object{
		"$schema": dialect, "title": "Common definitions", "description": "What several documents of the format " + schema.Version + " share.",
		"definitions": definitions,
	}
}

func (g *schemaGenerator) document(d schemaDocument) object {
	s := g.shape(d.shape, d.name)
	s["$schema"], s["title"], s["x-triphammer-yaml"] = dialect, d.title, yamlRules
	return s
}

// key is the schema of a mapping's key: its own, or a reference to common.
func (g *schemaGenerator) key(k *schema.Key, path string) object {
	name := sharedKeys[k.Name]
	if shape := g.shared[name]; shape == nil || !reflect.DeepEqual(shape, &k.Shape) {
		return g.shape(&k.Shape, path)
	}
	// What stands beside $ref is ignored in draft-07.
	s := object{"allOf": []any{object{"$ref": refMessage + name}}}
	if text, own := g.texts[path]; own {
		s["description"] = text
		delete(g.texts, path)
	} else {
		s["description"] = schemaTexts["common."+name]
	}
	g.addRules(s, path)
	return s
}

func (g *schemaGenerator) shape(shape *schema.Shape, path string) object {
	s := object{}
	if text := g.texts[path]; text == "" {
		g.t.Errorf("schemaTexts: nothing about %s", path)
	} else {
		s["description"] = text
		delete(g.texts, path)
	}
	typed := func(name string) {
		if s["type"] = any(name); shape.Nullable {
			s["type"] = []any{name, "null"}
		}
	}
	switch shape.Type {
	case schema.TypeString:
		typed("string")
		if shape.NonEmpty {
			maps.Copy(s, notBlank())
		}
		if len(shape.Enum) > 0 {
			values := anys(shape.Enum)
			if shape.Nullable {
				values = append(values, nil)
			}
			s["enum"] = values
		}
	case schema.TypeBool:
		typed("boolean")
	case schema.TypeInt:
		typed("integer")
	case schema.TypeNumber:
		typed("number")
	case schema.TypeList:
		list := s
		if shape.Single != nil {
			list = object{"type": "array"}
			one := object{"enum": anys(shape.Single.Enum)}
			s["anyOf"] = []any{list, one}
			if len(shape.Keys) > 0 {
				s["anyOf"] = []any{list, one, g.mapping(shape, path)}
			}
		} else {
			typed("array")
		}
		list["items"] = g.shape(shape.Elem, path+"[]")
		if shape.NonEmpty {
			list["minItems"] = 1
		}
		if shape.Unique {
			list["uniqueItems"], list["x-triphammer-unique-trimmed"] = true, true
		}
	case schema.TypeMap:
		maps.Copy(s, g.mapping(shape, path))
		typed("object")
	case schema.TypeMapOf:
		typed("object")
		if shape.Elem.Type != schema.Any {
			s["additionalProperties"] = g.shape(shape.Elem, path+".*")
		}
	}
	g.addRules(s, path)
	return s
}

// mapping is the schema of a mapping with the keys of a shape.
func (g *schemaGenerator) mapping(shape *schema.Shape, path string) object {
	properties, required := object{}, []any{}
	for i := range shape.Keys {
		k := &shape.Keys[i]
		property := g.key(k, path+"."+k.Name)
		if k.Default != "" {
			property["default"] = json.RawMessage(k.Default)
		}
		properties[k.Name] = property
		if k.Required {
			required = append(required, k.Name)
		}
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// addRules adds what the parser says in code.
func (g *schemaGenerator) addRules(s object, path string) {
	for keyword, value := range g.rules[path] {
		if old, both := s[keyword].([]any); both && keyword == "allOf" {
			value = append(slices.Clone(old), value.([]any)...)
		}
		s[keyword] = value
	}
	delete(g.rules, path)
}

// TestSchemaKeyTexts: every filter key is described.
func TestSchemaKeyTexts(t *testing.T) {
	used := make(map[string]bool)
	for _, g := range eventGroups() {
		for _, key := range g.keys {
			used[key] = true
			if keyTexts[key] == "" {
				t.Errorf("keyTexts: nothing about %s", key)
			}
		}
	}
	for key := range keyTexts {
		if !used[key] {
			t.Errorf("keyTexts: no event has %s", key)
		}
	}
}
