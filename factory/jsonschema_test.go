package factory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"triphammer/factory/hosts"
	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/schema/output"
)

// The JSON Schemas of schema/ (SPEC 3.6) are made here of the tables that the
// parser goes by: the shapes of package schema, the catalogue of events, the
// table of signature schemes. What the parser says in code, about the keys of
// one file, is said again in schemaRules; jsonschema_agree_test.go holds the two
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

func anys[T any](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

func all(schemas ...object) []any { return anys(schemas) }

// blanks are the characters that strings.TrimSpace takes off, as themselves: the
// classes of regular expressions differ from engine to engine.
var blanks = func() string {
	var b strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.IsSpace(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}()

func notBlank() object { return pattern("[^"+blanks+"]", "must not be blank") }

func pattern(expression, message string) object {
	return object{"pattern": expression, "patternErrorMessage": message}
}

// lowered are the characters by what they are when lowered.
var lowered = sync.OnceValue(func() map[rune]string {
	all := make(map[rune]string)
	for r := rune(0); r <= unicode.MaxRune; r++ {
		all[unicode.ToLower(r)] += string(r)
	}
	return all
})

// anyCase is an expression for all spellings that are the word when lowered.
func anyCase(word string) string {
	var b strings.Builder
	for _, r := range word {
		if same := lowered()[r]; same == string(r) {
			b.WriteRune(r)
		} else {
			b.WriteString("[" + same + "]")
		}
	}
	return b.String()
}

func anyCaseOf(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = anyCase(word)
	}
	return "(" + strings.Join(out, "|") + ")"
}

// without refuses keys. Of the ways to say so, this is the one for which editors
// show the message, and show it at the key.
func without(message string, keys ...string) object {
	properties := object{}
	for _, key := range keys {
		properties[key] = false
	}
	return object{"properties": properties, "errorMessage": message}
}

// has accepts objects that have the key.
func has(key string) object { return object{"type": "object", "required": []any{key}} }

// is accepts objects that have the key with that very value.
func is(key string, value any) object {
	return object{"required": []any{key}, "properties": object{key: object{"const": value}}}
}

// nameList is a list of at least one name.
func nameList() object {
	return object{"type": "array", "minItems": 1, "items": merged(object{"type": "string"}, notBlank())}
}

func merged(parts ...object) object {
	out := object{}
	for _, part := range parts {
		maps.Copy(out, part)
	}
	return out
}

var oneModel = object{
	"if":   object{"required": []any{"model"}, "properties": object{"model": object{"type": "string"}}},
	"then": without("model is short for a harness: keep one of the two", "harness"),
}

// oz takes less than other harnesses.
var oz = object{
	"if": is("type", "oz"),
	"then": object{"properties": object{
		"auth":           object{"type": "null", "errorMessage": "type oz takes no auth"},
		"reasoningLevel": object{"enum": []any{nil, ""}, "errorMessage": "type oz takes no reasoningLevel"},
	}},
}

// acp is the one type that takes a command, and needs one.
var acp = object{
	"if":   is("type", "acp"),
	"then": object{"required": []any{"command"}},
	"else": without("only type acp takes a command", "command"),
}

var auth = object{
	"if":   is("source", "managedSecret"),
	"then": object{"required": []any{"secretName"}},
	"else": without("only source managedSecret takes a secretName", "secretName"),
}

// onWorker accepts settings whose credential is a worker's.
var onWorker = object{"required": []any{"harness"}, "properties": object{"harness": object{
	"type": "object", "required": []any{"auth"}, "properties": object{"auth": merged(object{"type": "object"}, is("source", "workerEnvironment"))},
}}}

// keptHost refuses to clear the host that such settings need.
var keptHost = object{"if": onWorker, "then": object{"properties": object{"workerHost": object{"type": "string", "minLength": 1}}}}

var (
	reportURL    = merged(pattern(apiURL.String(), "an https address without a query"), object{"examples": []any{"https://ci.example.com/hooks/runs"}})
	reportSecret = object{"x-triphammer-reference": "secrets", "examples": []any{"REPORT_SECRET"}}
)

// schemaRules is what the parser's code says about the keys of one file, by path.
// An annotation x-triphammer-… stands where JSON Schema has no words for it.
func schemaRules() map[string]object {
	rules := map[string]object{
		"common.harness": {
			"examples": []any{object{"type": "claude", "model": "sonnet"}},
			"allOf": all(oz, acp, object{
				"anyOf": []any{
					object{"required": []any{"type"}, "properties": object{"type": object{"type": "string"}}},
					object{"required": []any{"model"}, "properties": object{"model": object{"type": "string"}}},
					has("reasoningLevel"), has("auth"),
				},
				"errorMessage": "set type, model, reasoningLevel or auth",
			}),
			"x-triphammer-inherited": "With the inherited settings too: type oz takes neither auth nor reasoningLevel, and auth.source workerEnvironment needs workerHost.",
		},
		"common.harness.auth": {"allOf": all(auth)},
		"common.mcpServers.*": {
			"allOf": all(
				object{"if": has("warpId"), "then": without("keep one of warpId, command and url", "command", "url", "args", "env", "headers")},
				object{"if": has("command"), "then": without("keep one of warpId, command and url", "warpId", "url", "headers")},
				object{"if": has("url"), "then": without("keep one of warpId, command and url", "warpId", "command", "args", "env")},
				object{"anyOf": []any{has("warpId"), has("command"), has("url")}, "errorMessage": "write warpId, command or url"},
			),
			"examples": []any{object{"command": "npx", "args": []any{"-y", "@example/mcp"}}, object{"url": "https://mcp.example.com/"}},
		},
		"common.mcpServers.*.url":                                {"allOf": all(pattern("^https?://[^/]", "an address that begins with https://"))},
		"benchmark_suite.configurations[].agents[].harness":      {"allOf": all(oz, acp)},
		"benchmark_suite.configurations[].agents[].harness.auth": {"allOf": all(auth)},
		"common.runner":        {"x-triphammer-reference": "runners"},
		"common.environmentId": {"x-triphammer-reference": "environments"},

		"factory": {"allOf": all(object{
			"if":   object{"properties": object{"codeForges": object{"type": "array", "contains": object{"const": "NONE"}}}, "required": []any{"codeForges"}},
			"else": object{"properties": object{"repositories": object{"minItems": 1}}},
		}), "x-triphammer-tree": "At most 20 webhooks, 10000 files and 16 MiB; if there are agents, exactly one is the foreman."},
		"factory.alias": merged(
			pattern("^["+blanks+"]*([\\p{L}\\p{N}._-]([\\p{L}\\p{N} ._-]{0,58}[\\p{L}\\p{N}._-])?)?["+blanks+"]*$", "at most 60 letters, digits, spaces and . _ -")),
		"factory.repositories": {"uniqueItems": true, "x-triphammer-unique-by": []any{"owner", "name"}},
		"factory.providers":    {"deprecated": true, "deprecationMessage": "Old name of cloudProviders"},
		"factory.integrations": {
			"uniqueItems": true, "x-triphammer-unique-by": []any{"type"},
			"allOf": all(object{
				"if": object{"contains": object{"type": "object", "required": []any{"type"}, "properties": object{
					"type": object{"type": "string", "pattern": padded("linear")},
				}}},
				"then": object{"items": object{"properties": object{"type": pattern(padded("slack", "linear", "microsoft-teams"), "linear and jira exclude each other")}}},
			}),
		},
		"factory.integrations[].slack":  {"properties": object{"autoRespondToThreadReplies": object{"type": "boolean", "description": "true: a reply in a thread that an automation has answered goes on with its conversation."}}},
		"factory.integrations[].linear": {"properties": object{"teamIds": object{"type": "array", "items": object{"type": "string"}, "description": "Identifiers of teams."}}},
		"factory.integrations[].jira":   {"properties": object{"projectKeys": object{"type": "array", "items": object{"type": "string"}, "description": "Keys of projects."}}},
		"factory.integrations[].type": merged(
			pattern(padded("slack", "linear", "jira", "microsoft-teams"), "slack, linear, jira or microsoft-teams"),
			object{"examples": []any{"slack", "linear", "jira", "microsoft-teams"}}),
		"factory.agentDefaults": {"allOf": all(oneModel, keptHost, object{"if": onWorker, "then": object{"required": []any{"workerHost"}}})},
		"agent":                 {"allOf": all(oneModel, keptHost)},

		"automation": {
			"allOf": all(oneModel, keptHost, object{
				"if":   object{"required": []any{"approval"}, "properties": object{"approval": object{"type": "array", "contains": object{"const": "outsiders"}}}},
				"then": object{"required": []any{"startedBy"}},
			}),
			"definitions": filterDefinitions(),
		},
		"automation.agent":           {"x-triphammer-reference": "agents"},
		"automation.approvalTimeout": merged(pattern(approvalTimes.String(), "minutes or hours are expected, from 5m to 720h"), object{"examples": []any{"24h"}}),
		"automation.settle":          merged(pattern(settles.String(), "seconds, minutes or 1h is expected, from 1s to 1h"), object{"examples": []any{"30s"}}),
		"automation.subject": merged(
			pattern(`^[^{}]*(\{[^ \t\n\f\r.{}\[\]]+(\.[^ \t\n\f\r.{}\[\]]+)*\}[^{}]*)+$`, "{a.b} stands for the value at a.b of the payload, and there is at least one"),
			object{"examples": []any{"{service.name}/{alert.id}"}}),
		"automation.startedBy":               {"x-triphammer-person": "The events of all triggers name a person, who can be what the list says.", "examples": []any{[]any{"write"}}},
		"automation.maxRunsPerPersonPerHour": {"x-triphammer-person": "The events of a trigger name a person."},
		"automation.triggers": {
			"x-triphammer-unique-by": []any{"schedule.name"},
			"examples":               []any{[]any{object{"provider": "webhook", "event": "received", "filter": object{"webhooks": []any{"deploys"}}}}},
		},
		"automation.triggers[]":          {"allOf": triggerRules()},
		"automation.triggers[].provider": {"enum": anys(providers(false))},
		"automation.triggers[].schedule.cron": merged(object{
			"x-triphammer-cron": "Each field within its range: lists, ranges, steps, ? and names of months and weekdays; @every takes a duration such as 1h30m.",
			"examples":          []any{"0 6 * * 1-5", "@daily", "@every 2h"},
		}, pattern("^["+blanks+"]*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [^=]+|[^="+blanks+"]+(["+blanks+"]+[^="+blanks+"]+){4})["+blanks+"]*$",
			"five fields in UTC, or a descriptor such as @daily")),

		"webhook": {"allOf": all(object{
			"if":   is("authMode", "signature"),
			"then": object{"required": []any{"signatureScheme"}},
			"else": without("signatureScheme, signature and replayWindow need authMode: signature", "signatureScheme", "signature", "replayWindow"),
		}, object{
			"if":   has("connect"),
			"then": object{"required": []any{"appTokenName"}},
			"else": object{"required": []any{"secretName"}, "allOf": all(without("appTokenName needs connect: socket", "appTokenName"))},
		}, onlyWith("connect", connects), onlyWith("accounts", func(s *native.Sender) bool { return s.Accounts != "" }), onlyWith("apiSecretName", takesAPI), reportRule("", takesAnswers), reportRule("check", takesChecks), object{
			"if": has("apiURL"), "then": object{"anyOf": all(has("apiSecretName"), has("connect"))},
		}, object{
			"if": has("replayWindow"), "then": object{"required": []any{"secretName"}},
		}, object{
			"if": merged(has("apiSecretName"), object{"properties": object{"signatureScheme": object{
				"enum": anys(schemesOf(func(s *native.Sender) bool { return takesAPI(s) && s.API == "" })),
			}}, "required": []any{"apiSecretName", "signatureScheme"}}),
			"then": object{"required": []any{"apiURL"}},
		})},
		"webhook.report.url":           reportURL,
		"webhook.report.secretName":    reportSecret,
		"automation.report.url":        reportURL,
		"automation.report.secretName": reportSecret,
		"webhook.apiSecretName":        {"x-triphammer-reference": "secrets", "examples": []any{"GITHUB_API_TOKEN"}},
		"webhook.appTokenName":         {"x-triphammer-reference": "secrets", "x-triphammer-tree": "Enabled webhooks have different ones.", "examples": []any{"SLACK_APP_TOKEN"}},
		"webhook.apiURL":               merged(pattern(apiURL.String(), "an https address without a query"), object{"examples": []any{"https://github.example.com/api/v3"}}),
		"webhook.accounts":             {"examples": []any{[]any{"shop-bot"}}},
		"webhook.accounts[]":           pattern("^["+blanks+"]*[^@"+blanks+"]", "must not be blank, nor begin with @"),
		"webhook.signature": {"x-triphammer-signature": "The scheme says which keys it takes; hmac, ed25519 and token_header need header.", "examples": []any{
			object{"header": "X-Signature", "prefix": "sha256="},
		}},
		"webhook.signature.toleranceSeconds": {"minimum": 0, "maximum": 604800},
		"webhook.authMode": {"enumDescriptions": []any{
			"Header Authorization: Bearer <secret>", "The secret is the last segment of the URL", "The sender signs each request",
		}},
		"webhook.signatureScheme": schemeNames(),
		"webhook.secretName":      {"x-triphammer-reference": "secrets", "examples": []any{"DEPLOYS_WEBHOOK_SECRET"}},
		"webhook.deliveryIdHeader": merged(
			pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", "the name of a header, of at most 100 characters"),
			object{"x-triphammer-credential-header": false, "x-triphammer-shared-header": false, "examples": []any{"X-Request-Id"}}),

		"webhook.replayWindow": merged(pattern(replayWindows.String(), "minutes or hours are expected, from 1m to 72h"),
			object{"x-triphammer-replayable": "The scheme signs the body, and not the identity of a delivery.", "examples": []any{"10m"}}),

		"runner":                    runnerRules(),
		"runner.setupCommands":      {"examples": []any{[]any{"npm ci"}}},
		"environment.repositories":  {"examples": []any{[]any{object{"url": "https://git.example.com/shop.git", "ref": "main"}}}},
		"environment.command":       {"examples": []any{[]any{"claude", "-p"}}},
		"environment":               {"allOf": all(object{"if": has("cache"), "then": object{"required": []any{"setupCommands"}, "properties": object{"setupCommands": object{"minItems": 1}}}})},
		"environment.cache":         {"examples": []any{object{"paths": []any{"~/.npm"}, "files": []any{"package-lock.json"}}}},
		"environment.cache.paths[]": pattern(cachePath.String(), "a path below the working directory, or with ~/ below the home"),
		"environment.cache.files[]": pattern(cacheFile.String(), "a path below the working directory"),
		"environment.setupCommands": {"examples": []any{[]any{"npm ci"}}},
		"environment.repositories[]": {"allOf": all(object{
			"if":   has("url"),
			"then": without("url stands instead of owner and name", "owner", "name"),
			"else": object{"required": []any{"owner", "name"}},
		}, object{
			"if":   object{"required": []any{"secret", "url"}},
			"then": object{"properties": object{"url": pattern(secretURL.String(), "an address of https or ssh, which a secret may go to")}},
		})},
		"environment.repositories[].url": {
			"allOf":                             all(pattern("^[^-]", "must not begin with a dash")),
			"x-triphammer-url-without-password": true,
		},
		"environment.repositories[].ref":  {"allOf": all(pattern("^[^-]", "must not begin with a dash"))},
		"environment.repositories[].path": {"allOf": all(pattern(`^([^/.][^/]*|\.[^/.][^/]*)(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))*$`, "a plain path within the workspace"))},
		"environment.env": {
			"propertyNames": pattern("^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable"),
			"allOf": all(object{
				"patternProperties": object{"^TRIPHAMMER_": false}, "errorMessage": "names that begin with TRIPHAMMER_ are the server's",
			}),
		},
		"environment.env.*":          {"allOf": all(pattern("^[^\x00]*$", "must not hold a NUL byte"))},
		"environment.timeoutMinutes": {"exclusiveMinimum": 0, "maximum": maxMinutes},
		"environment.idleMinutes":    {"exclusiveMinimum": 0, "maximum": maxMinutes},
		"environment.network": {
			"type": []any{"string", "array"}, "examples": []any{"on", "off", []any{"api.example.com", "*.example.com:443"}},
			"minItems": 1, "items": merged(object{"type": "string", "maxLength": hosts.MaxText}, pattern(hosts.Syntax, "a host, such as api.example.com or *.example.com:443")),
			"if": object{"type": "string"}, "then": object{"enum": []any{"on", "off"}},
		},
		"environment.services": {"x-triphammer-services": "The variables of services differ from each other, and from those of env and secrets."},
		"environment.services[].name": merged(pattern(serviceName.String(), "small letters, digits and dashes, the first a letter"), object{
			"allOf": all(object{"not": object{"pattern": notService.String()}, "errorMessage": "agents and the server use the variable themselves"}),
		}),
		"environment.services[].url": merged(pattern(serviceURL.String(), "an https:// address without a user"), object{"x-triphammer-url": true, "examples": []any{"https://sentry.io/api/0"}}),
		"environment.services[].header": merged(pattern(serviceHeader.String(), "the name of a header"), object{
			"examples":                []any{"PRIVATE-TOKEN", "Authorization: Bearer"},
			"x-triphammer-own-header": true,
		}),
		"environment.services[].paths[]": merged(pattern(servicePath.String(), "a path below url"), object{
			"examples": []any{"/issues/*/comments", "/projects/**"},
			"allOf":    all(object{"not": object{"pattern": `\*\*/|\*\*.|[^/]\*\*`}, "errorMessage": "** stands at the end for the rest"}),
		}),
		"environment.isolation": {"examples": anys(schema.Isolations)},

		"tests[]": {"allOf": all(object{
			"if":   has("payloadFile"),
			"then": without("keep one of payload and payloadFile", "payload"),
			"else": object{"required": []any{"payload"}},
		})},
		"tests[].webhook":     {"x-triphammer-reference": "webhooks"},
		"tests[].expect":      {"x-triphammer-reference": "automations"},
		"tests[].payloadFile": {"x-triphammer-file": "tests"},

		"scorer":              {"x-triphammer-body": "The text below the front matter must not be blank."},
		"scorer.agents":       {"x-triphammer-reference": "agents"},
		"scorer.samplingRate": {"minimum": 0.005, "exclusiveMaximum": 100.005},
		"scorer.passingScore": {
			"minimum": 0, "maximum": 1,
			"x-triphammer-passing-score": "At least one label's score reaches it, and at least one does not.",
		},
		"scorer.labels":         {"maxItems": maxLabels, "x-triphammer-unique-by": []any{"value"}},
		"scorer.labels[].score": {"minimum": 0, "maximum": 1},

		"benchmark_suite":       {"x-triphammer-tree": "The name is unique in the factory; tasks and the files in tasks/ are the same."},
		"benchmark_suite.agent": {"x-triphammer-reference": "agents"},
		"benchmark_suite.tasks": {"x-triphammer-reference": "tasks"},
		"benchmark_suite.configurations": {
			"maxItems":               maxConfigurations,
			"x-triphammer-unique-by": []any{"name"}, "x-triphammer-at-most-one": object{"role": "baseline"},
		},
		"benchmark_suite.configurations[].agents[]": {"allOf": all(oneModel)},
		"benchmark_suite_task.startingRepoRefs[]": merged(
			pattern(strings.ReplaceAll(repoRef().String(), `\s`, " \t\n\f\r"), "github.com:OWNER/REPO@ and the 40 digits of a commit"),
			object{"examples": []any{"github.com:example/shop@0123456789abcdef0123456789abcdef01234567"}}),
	}
	for path, most := range map[string]int64{
		"environment.budget.usd": maxSpending, "environment.budget.tokens": maxSpending, "environment.budget.turns": maxSpending,
		"environment.resources.memoryMb": maxMegabytes, "environment.resources.cpus": maxCPUs,
		"environment.resources.processes": maxProcesses, "environment.resources.diskMb": maxMegabytes,
		"automation.budget.usd": maxSpending, "automation.budget.tokens": maxSpending, "automation.budget.turns": maxSpending,
		"automation.budget.usdPerDay": maxSpending, "automation.budget.tokensPerDay": maxSpending,
		"automation.retry.attempts": maxAttempts, "automation.retry.delaySeconds": maxSeconds, "automation.maxRunsPerHour": maxPerHour,
		"automation.maxRunsPerPersonPerHour": maxPerHour,
		"automation.push.max":                maxPushed, "automation.push.maxBytes": maxPushedBytes,
	} {
		rules[path] = merged(rules[path], object{"exclusiveMinimum": 0, "maximum": most})
	}
	for _, k := range output.Kinds {
		for _, b := range k.Bounds {
			if b.Type == output.Count {
				rules["automation.outputs."+k.Name+"."+b.Name] = object{"exclusiveMinimum": 0, "maximum": cmp.Or(b.Most, output.MaxRequests)}
			}
		}
	}
	rules["automation.outputs.createIssue.repositories[]"] = pattern(strings.ReplaceAll(ownerName.String(), `\s`, " \t\n\f\r"), "OWNER/NAME")
	return rules
}

// padded is an expression for words in any case, with blanks around them.
func padded(words ...string) string {
	return "^[" + blanks + "]*" + anyCaseOf(words) + "[" + blanks + "]*$"
}

// onlyWith refuses a key unless the scheme is one of those senders'.
func onlyWith(key string, means func(*native.Sender) bool) object {
	schemes := schemesOf(means)
	return object{
		"if": has(key),
		"then": object{
			"required":   []any{"signatureScheme"},
			"properties": object{"signatureScheme": object{"enum": anys(schemes), "errorMessage": key + " needs " + strings.Join(schemes, ", ")}},
		},
	}
}

// reportRule is which senders take an answer of a kind; empty: any kind.
func reportRule(kind string, means func(*native.Sender) bool) object {
	rule := onlyWith("report "+kind, means)
	said := object{"anyOf": []any{object{"enum": []any{"thread", "check"}}, object{"type": "array"}}}
	if kind != "" {
		said = object{"anyOf": []any{object{"enum": []any{kind}}, object{"type": "array", "contains": object{"enum": []any{kind}}}}}
	}
	rule["if"] = object{"properties": object{"report": said}, "required": []any{"report"}}
	return rule
}

func takesAnswers(s *native.Sender) bool { return len(s.Answers) > 0 }

func takesChecks(s *native.Sender) bool { return slices.Contains(s.Answers, "check") }

func schemeNames() object {
	var values, providers []any
	for _, s := range signature.All() {
		values, providers = append(values, s.Name), append(providers, s.Provider)
	}
	return object{"enum": values, "enumDescriptions": providers, "errorMessage": "no such scheme: triphammer schemes list has them"}
}

func runnerRules() object {
	shapes := []object{}
	for _, cpus := range slices.Sorted(maps.Keys(macShapes)) {
		for _, memory := range macShapes[cpus] {
			shapes = append(shapes, object{"properties": object{"vcpus": object{"const": cpus}, "memoryGb": object{"const": memory}}})
		}
	}
	size := object{"minimum": 1, "x-triphammer-power-of-two": true}
	return object{"allOf": all(object{
		"if": object{"required": []any{"platform"}, "properties": object{"platform": merged(object{"type": "object"}, is("os", "macos"))}},
		"then": object{"properties": object{
			"platform": object{
				"properties": object{"arch": object{"const": "aarch64", "errorMessage": "macOS runners are aarch64"}},
				"allOf":      all(without("linux means nothing with os macos", "linux")),
			},
			"instanceShape": object{"anyOf": anys(shapes), "errorMessage": "4 and 7, 6 and 14, 8 and 14, 12 and 28, or 12 and 56"},
		}},
		"else": object{
			"required": []any{"platform"},
			"properties": object{
				"platform":      object{"required": []any{"linux"}, "allOf": all(without("mac means nothing with os linux", "mac"))},
				"instanceShape": object{"properties": object{"vcpus": size, "memoryGb": size}},
			},
		},
	})}
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
