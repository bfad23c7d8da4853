package factory

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"triphammer/factory/filter"
	"triphammer/factory/signature"
	"triphammer/schema"
)

// exampleDocument is a document of testdata/documents.txtar, or one that is made
// of a table.
type exampleDocument struct {
	name    string
	text    string
	value   any
	refused bool
}

// exampleDocuments are the documents of each kind.
func exampleDocuments(t testing.TB) map[string][]exampleDocument {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/documents.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]exampleDocument)
	add := func(kind, shows, text string) {
		kind, refused := strings.CutSuffix(kind, " refused")
		root := parseRoot(kind, []byte(frontMatter(kind, text, "")))
		example := exampleDocument{name: kind + ": " + shows, text: text, refused: refused}
		if root == nil {
			t.Fatalf("%s is not YAML of the format", example.name)
		}
		if err := json.Unmarshal(root.AppendJSON(nil), &example.value); err != nil {
			t.Fatalf("%s: %v", example.name, err)
		}
		all[kind] = append(all[kind], example)
	}
	for _, file := range archive.Files {
		kind, shows, _ := strings.Cut(file.Name, ": ")
		add(kind, shows, string(file.Data))
	}
	for _, name := range signature.Names() {
		options := ""
		if slices.Contains([]string{"hmac", "ed25519", "token_header"}, name) {
			options = "signature: {header: X-Token}\n"
		}
		add("webhook", name, "secretName: X\nauthMode: signature\nsignatureScheme: "+name+"\n"+options)
	}
	values := map[string]string{"pr_numbers": "[1, 1099511627776]", "conclusions": "[failure, Success]", "payload": "{a: [x]}"}
	for _, provider := range providers(false) {
		for _, event := range eventsOf(provider) {
			var filter []string
			for _, key := range catalogue()[provider][event] {
				value := values[key]
				if value == "" {
					value = "[a, B c]"
				}
				filter = append(filter, key+": "+value)
			}
			if provider == "webhook" {
				filter = append(filter, "headers: {X-Event-Type: [a, B c], x-event-key: {not_in: [x], exists: true}}")
			}
			add("automation", provider+" "+event, fmt.Sprintf("triggers: [{provider: %s, event: %s, filter: {%s}}]", provider, event, strings.Join(filter, ", ")))
		}
	}
	return all
}

// mutator changes documents at random.
type mutator struct{ *rand.Rand }

func (m *mutator) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m *mutator, from ...T) T { return from[m.IntN(len(from))] }

func clone(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = clone(value)
		}
		return out
	}
	return v
}

// slot is a place in a document.
type slot struct {
	at     string
	shape  *schema.Shape // nil where the tables leave it open
	value  any
	set    func(any)
	remove func()
}

// slotsOf are all places of a document, in a fixed order.
func slotsOf(document *any, shape *schema.Shape) []slot {
	var slots []slot
	var add func(slot)
	add = func(s slot) {
		slots = append(slots, s)
		switch v := s.value.(type) {
		case object:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				at, shape := inside(s.at, s.shape, key)
				add(slot{at, shape, v[key], func(n any) { v[key] = n }, func() { delete(v, key) }})
			}
		case []any:
			at, shape := inside(s.at, s.shape, "")
			for i, item := range v {
				add(slot{at, shape, item, func(n any) { v[i] = n }, func() { s.set(slices.Delete(v, i, i+1)) }})
			}
		}
	}
	add(slot{"", shape, *document, func(n any) { *document = n }, func() {}})
	return slots
}

// inside is the place and the shape of a key of a mapping, or of an item of a list.
func inside(at string, shape *schema.Shape, key string) (string, *schema.Shape) {
	if key == "" {
		at += "[]"
	} else {
		at += "." + key
	}
	if shape == nil {
		return at, nil
	}
	for i := range shape.Keys {
		if shape.Keys[i].Name == key {
			return at, &shape.Keys[i].Shape
		}
	}
	return at, shape.Elem
}

// keysOf are the places of all keys and items that a shape has.
func keysOf(at string, shape *schema.Shape) []string {
	all := []string{at}
	if shape.Type == schema.TypeList {
		all = append(all, keysOf(at+"[]", shape.Elem)...)
	}
	for i := range shape.Keys {
		all = append(all, keysOf(at+"."+shape.Keys[i].Name, &shape.Keys[i].Shape)...)
	}
	return all
}

// junk are values that are seldom what is meant, anywhere.
var junk = []any{
	nil, "", " ", "x", true, false, 0, 1, -1, 1.5, 1e20,
	[]any{},
	[]any{"x"},
	[]any{""},
	[]any{nil},
	[]any{1},
	[]any{object{}},
	[]any{"a", "a"},
	[]any{" a", "a"},
	object{},
	object{"in": []any{"x"}},
	object{"not_in": []any{1}},
	object{"exists": false},
	object{"exists": "x"},
	object{"x": "y"},
	object{"in": []any{}},
	object{"in": nil},
}

// words and numbers are junk where there is one already.
var (
	words = []any{
		"\u00a0", "\u0085", "\ufeff", "null", "-x", "../x", "..b", "a//b", "a/./b", "a/../b", "a/", "/a", "..", "a\u0000b", "[x]",
		"CRON_TZ=UTC 0 0 * * *", "0 0 * *", "@daily x", "@", "lınear", "2026-01-02",
		"oz", "signature", "macos", "linux", "workerEnvironment", "managedSecret", "baseline", "github", "webhook", "schedule", "received", "push",
		strings.Repeat("é", 60), strings.Repeat("a", 61), strings.Repeat("h", 100), strings.Repeat("b", 101),
	}
	numbers = []any{
		2, 3, 21, 2.5, -0.5, 0.005, 0.0049, 100, 100.004, 100.01, 10080, 10080.5, 604800, 604801, int64(1e15), int64(1e15 + 1),
	}
)

// replacements are what may be put in a place, instead of what is there.
func (s *slot) replacements() []any {
	all := slices.Clone(junk)
	switch v := s.value.(type) {
	case string:
		all = append(append(all, words...), v+" ", "\t"+v, strings.ToUpper(v), strings.ToLower(v), v+"x", v+strings.Repeat("é", 60), "-"+v)
	case float64:
		all = append(append(all, numbers...), v+1, v-1, -v, 2*v, v+0.5, v/1000+0.0001, v+100, fmt.Sprint(v))
	case []any:
		all = append(all, longer(v)...)
	case object:
		for _, key := range []string{"unknown", "in", "not_in", "exists", "", "x-y", "TRIPHAMMER_X", "1a"} {
			all = append(all, withKey(v, key, []any{"x"}), withKey(v, key, "x"))
		}
	}
	if s.shape != nil && len(s.shape.Enum) > 0 {
		all = append(append(all, anys(s.shape.Enum)...), committedEnums()...)
	}
	return all
}

// committedEnums are the values of all enums of the committed JSON Schemas: one may
// be there that the tables have no more.
var committedEnums = sync.OnceValue(func() (all []any) {
	var walk func(node any)
	walk = func(node any) {
		s, is := node.(object)
		if !is {
			return
		}
		values, _ := s["enum"].([]any)
		all = append(all, values...)
		properties, _ := s["properties"].(object)
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			walk(properties[key])
		}
		for _, keyword := range []string{"items", "additionalProperties"} {
			walk(s[keyword])
		}
	}
	for _, name := range schema.JSONSchemaNames() {
		var root any
		one, _ := schema.LookupJSONSchema(name)
		_ = json.Unmarshal(one.Text, &root) // newSchemaJudges holds it to be JSON
		walk(root)
	}
	return all
})

func withKey(m object, key string, value any) object {
	m = maps.Clone(m)
	m[key] = value
	return m
}

// longer are the list with an item twice, and as long as some limit or longer by
// one.
func longer(list []any) []any {
	if len(list) == 0 {
		return nil
	}
	all := []any{append(slices.Clone(list), clone(list[0]))}
	for _, n := range []int{maxConfigurations, maxLabels, filter.MaxValues} {
		for _, n := range []int{n, n + 1} {
			long := []any{}
			for i := range n {
				item := clone(list[i%len(list)])
				switch v := item.(type) {
				case string:
					item = fmt.Sprint(v, i)
				case object:
					for _, key := range []string{"name", "value"} {
						if text, ok := v[key].(string); ok {
							v[key] = fmt.Sprint(text, i)
						}
					}
				}
				long = append(long, item)
			}
			all = append(all, long)
		}
	}
	return all
}

// mutant is the document, changed in one to three places. The other is one of
// its kind.
func (m *mutator) mutant(document, other any, shape *schema.Shape) any {
	document, other = clone(document), clone(other)
	for range 1 + m.IntN(3) {
		s := pick(m, slotsOf(&document, shape)...)
		mapping, _ := s.value.(object)
		switch {
		case m.chance(15):
			s.remove()
		case mapping != nil && m.chance(70):
			// What the other has there, so that keys meet which exclude each other.
			for _, o := range slotsOf(&other, shape) {
				if values, ok := o.value.(object); ok && o.at == s.at && len(values) > 0 {
					key := pick(m, slices.Sorted(maps.Keys(values))...)
					mapping[key] = clone(values[key])
				}
			}
		default:
			s.set(clone(pick(m, s.replacements()...)))
		}
	}
	return document
}
