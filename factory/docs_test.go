package factory

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/factory/native"
	"triphammer/schema"
)

// page holds a page of the documentation to what the tables say, or writes it.
func page(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "docs", name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the tables say now (%v); write it: go test ./factory -run Page -update", path, err)
	}
}

// kindsShown are the kinds of files on the reference page, each with an example
// that TestGoodTrees validates.
var kindsShown = []struct{ document, title, example string }{
	{"factory", "factory.yaml", "full/factory.yaml"},
	{"webhook", "webhooks/NAME.yaml", "full/webhooks/ci.yaml"},
	{"automation", "automations/NAME/automation.md", "full/automations/repair/automation.md"},
	{"agent", "agents/NAME/agent.md", "full/agents/fixer/agent.md"},
	{"environment", "environments/NAME.yaml", "full/environments/build.yaml"},
	{"tests", "tests/NAME.yaml", "full/tests/repair.yaml"},
	{"runner", "runners/NAME.yaml", "full/runners/big.yaml"},
	{"scorer", "scorers/NAME/scorer.md", "every-kind/scorers/tidy/scorer.md"},
	{"benchmark_suite", "benchmarks/NAME/suite.yaml", "every-kind/benchmarks/repairs/suite.yaml"},
	{"benchmark_suite_task", "benchmarks/NAME/tasks/TASK.yaml", "every-kind/benchmarks/repairs/tasks/one.yaml"},
}

// TestReferencePage: every key of every file, from the JSON Schemas, which are
// made of the parser's tables.
func TestReferencePage(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Every key

This page lists every key. It is generated from the tables of the parser (` + "`go test ./factory -run Page -update`" + `). [definitions.md](definitions.md) is the guide, and
[diagnostics.md](diagnostics.md) lists the findings about a bad file. Keys are case-sensitive; a key that is not on this page is an error. **Bold** keys are required. ` + "`[]`" + ` stands for each item of a list, ` + "`*`" + ` for each
name of a mapping. The keys of a Markdown file are in its front matter. **No effect yet** means that the key is checked, but that this server does not act on it; validation warns about it.
`)
	r := reference{t: t}
	documents := schema.JSONSchemaNames()
	for _, kind := range kindsShown {
		documents = slices.DeleteFunc(documents, func(name string) bool { return name == kind.document })
		root := r.document(kind.document)
		text, err := os.ReadFile(filepath.Join(trees, "good", kind.example))
		if err != nil {
			t.Fatal(err)
		}
		language := map[string]string{".yaml": "yaml", ".md": "markdown"}[filepath.Ext(kind.example)]
		fmt.Fprintf(&b, "\n## %s\n\n%s%s\n\n````%s\n%s````\n\n| key | type | |\n| --- | --- | --- |\n", kind.title, root["description"], withoutEffectText(kind.document, ""), language, text)
		r.kind, r.rows = kind.document, nil
		r.keys(kind.document, root, "")
		b.WriteString(strings.Join(r.rows, ""))
	}
	if !slices.Equal(documents, []string{"common"}) {
		t.Errorf("not on the page: %v", documents)
	}
	b.WriteString("\n## Events\n\nThe events of each provider and the keys of their filters. This server fires those in bold. It checks the others, and never fires them.\n")
	b.WriteString("A key takes a list of values, or `{in: […], not_in: […]}`.\n\n| provider | event | filter keys |\n| --- | --- | --- |\n")
	for _, provider := range providers(false) {
		for _, event := range eventsOf(provider) {
			keys := strings.Join(catalogue()[provider][event], "`, `")
			if provider == "webhook" {
				keys += "`, `headers`, `webhooks"
			}
			name := "`" + event + "`"
			if (&Trigger{Provider: provider, Event: event}).Fires() {
				name = "**" + name + "**"
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` |\n", provider, name, keys)
		}
	}
	b.WriteString("\nOther spellings that are accepted for these keys:")
	for _, provider := range slices.Sorted(maps.Keys(aliases)) {
		fmt.Fprintf(&b, "\n- %s: ", provider)
		for i, alias := range slices.Sorted(maps.Keys(aliases[provider])) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "`%s` for `%s`", alias, aliases[provider][alias])
		}
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "\n## Headers of deliveries\n\nThese headers are kept with the deliveries of every webhook, and can be filtered on: `%s`.\n", strings.Join((&Webhook{}).KeptHeaders(), "`, `"))
	b.WriteString(sourcesText())
	page(t, "reference.md", b.String())
}

// aliases are other spellings of a canonical key, by provider. An alias of a key that takes
// identifiers takes only a plain list of names.
var aliases = buildAliases()

func buildAliases() map[string]map[string]string {
	all := make(map[string]map[string]string)
	for _, sender := range native.Senders() {
		for _, e := range sender.Events {
			for _, k := range e.Keys {
				if k.Alias == "" {
					continue
				}
				if all[sender.Provider] == nil {
					all[sender.Provider] = make(map[string]string)
				}
				all[sender.Provider][k.Alias] = k.Name
			}
		}
	}
	return all
}

// sourcesText says of each event of a sender which deliveries have it, and where each filter key has its values.
func sourcesText() string {
	var b strings.Builder
	b.WriteString("\n## Where the values come from\n\nThese are the events of the senders: what happened, and where in the payload each filter key finds its values. A name with dots is a path of the body; `[]` stands for each item, and `@` for a header. The *subject* is what the event is about ([subjects.md](subjects.md)); a host that is not the sender's own stands before it.\n" +
		"A key that asks the sender's API needs `apiSecretName` in the webhook's file. Without it, a trigger that filters on the key starts nothing, and the belt says so.\n")
	for _, s := range native.Senders() {
		fmt.Fprintf(&b, "\n### %s\n\nProvider `%s`; `signatureScheme` is `%s`. Payloads: <%s>.", s.Title, s.Provider, strings.Join(s.Schemes, "` or `"), s.Docs)
		if s.Accounts != "" {
			fmt.Fprintf(&b, " `accounts` of the webhook's file are %s.", s.Accounts)
		}
		if s.Guess {
			b.WriteString(" How definitions spell this provider, its events and its keys is **not published**: the names are ours, and `--strict` refuses them.")
		}
		b.WriteString("\n\n| event | filter key | values |\n| --- | --- | --- |\n")
		for _, e := range s.Events {
			fmt.Fprintf(&b, "| **`%s`** | | %s |\n", e.Name, e.Doc)
			if e.Subject.Doc != "" {
				fmt.Fprintf(&b, "| | *subject* | `%s:` and then %s |\n", s.Provider, e.Subject.Doc)
			}
			for _, k := range e.Keys {
				fmt.Fprintf(&b, "| | `%s` | %s |\n", k.Name, k.Places(false))
				if k.Names != nil {
					fmt.Fprintf(&b, "| | `%s` | %s |\n", k.Alias, k.Places(true))
				}
			}
		}
	}
	return b.String()
}

// withoutEffectText says of a key, or of a whole kind of file, that this server
// does not act on it.
func withoutEffectText(document, key string) string {
	i := slices.IndexFunc(schemaDocuments, func(d schemaDocument) bool { return d.name == document })
	if i < 0 {
		return ""
	}
	for _, row := range withoutEffect {
		switch {
		case row.kind != schemaDocuments[i].kind || row.key != key:
		case row.values != nil:
			return fmt.Sprintf(" **No effect yet** of `%s`: %s.", strings.Join(row.values, "`, `"), row.instead)
		default:
			return " **No effect yet**: " + row.instead + "."
		}
	}
	return ""
}

type reference struct {
	t    *testing.T
	kind string // the document that is shown
	rows []string
}

func (r *reference) document(name string) object {
	r.t.Helper()
	one, found := schema.LookupJSONSchema(name)
	var root object
	if err := json.Unmarshal(one.Text, &root); !found || err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return root
}

// resolved follows the references of a schema, and keeps what stands beside them.
func (r *reference) resolved(document string, node object) (string, object) {
	out := maps.Clone(node)
	all, _ := node["allOf"].([]any)
	for _, one := range append([]any{node}, all...) {
		ref, ok := one.(object)["$ref"].(string)
		if !ok {
			continue
		}
		file, path, _ := strings.Cut(ref, "#/definitions/")
		if file != "" {
			document = file
		}
		definitions, _ := r.document(document)["definitions"].(object)
		target, ok := definitions[path].(object)
		if !ok {
			r.t.Fatalf("%s leads nowhere", ref)
		}
		var resolved object
		document, resolved = r.resolved(document, target)
		for key, value := range resolved {
			if _, has := out[key]; !has {
				out[key] = value
			}
		}
	}
	return document, out
}

// keys adds a row for each key below a node.
func (r *reference) keys(document string, node object, path string) {
	if items, ok := node["items"].(object); ok {
		in, items := r.resolved(document, items)
		r.keys(in, items, path+"[]")
	}
	if values, ok := node["additionalProperties"].(object); ok {
		in, values := r.resolved(document, values)
		r.keys(in, values, path+".*")
	}
	properties, _ := node["properties"].(object)
	required, _ := node["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(object)
		if !ok {
			continue // true or false: said elsewhere
		}
		in, property := r.resolved(document, property)
		key := strings.TrimPrefix(path+"."+name, ".")
		shown := "`" + key + "`"
		if slices.Contains(required, any(name)) {
			shown = "**" + shown + "**"
		}
		text, _ := property["description"].(string)
		if text == "" {
			r.t.Errorf("%s: %s is not described", document, key)
		}
		r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %s |\n", shown, typeOf(property), strings.ReplaceAll(text, "|", `\|`)+more(property)+withoutEffectText(r.kind, key)))
		r.keys(in, property, key)
	}
}

func typeOf(node object) string {
	switch kind := node["type"].(type) {
	case string:
		return kind
	case []any:
		var names []string
		for _, one := range kind {
			names = append(names, fmt.Sprint(one))
		}
		return strings.Join(names, " or ")
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if all, ok := node[word].([]any); ok {
			var names []string
			for _, one := range all {
				if name := typeOf(one.(object)); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			return strings.Join(names, " or ")
		}
	}
	if _, ok := node["enum"]; ok {
		return "string"
	}
	return "any"
}

// more are the values and the default of a key.
func more(node object) string {
	var text string
	if values, ok := node["enum"].([]any); ok && len(values) <= 20 {
		var names []string
		for _, v := range values {
			one, _ := json.Marshal(v) // it comes from JSON
			names = append(names, "`"+strings.Trim(string(one), `"`)+"`")
		}
		text += " One of " + strings.Join(names, ", ") + "."
	}
	if value, ok := node["default"]; ok {
		one, _ := json.Marshal(value) // it comes from JSON
		text += " Default `" + strings.Trim(string(one), `"`) + "`."
	}
	return text
}

// TestDiagnosticsPage: every code, explained, with what is printed for a tree
// that has it.
func TestDiagnosticsPage(t *testing.T) {
	large := fstest.MapFS{
		"factory.yaml":     {Data: []byte("schemaVersion: v1alpha1\nname: X\n")},
		"webhooks/ci.yaml": {Data: []byte("secretName: CI_SECRET\n" + strings.Repeat("#", schema.MaxFile))},
	}
	_, report := load(t, large, Options{})
	examples := map[string]string{
		schema.TooLarge: strings.TrimSuffix(printed(t, large, report), "not valid: 1 file, 1 error, 0 warnings\n"),
		// They need a server: package applier and the scripts of cmd/triphammer hold its findings to these.
		schema.NotHere: "factory.yaml:8:24: warning: this server has no program claude on its PATH, which starts the agent: a run fails [TH_NOT_HERE]\n",
		schema.MissingSecret: `webhooks/ci.yaml:1:1: error: there is no managed secret CI_SECRET [TH_MISSING_SECRET]
    1 | secretName: CI_SECRET
      | ^
  set it: triphammer secrets set CI_SECRET
`,
		schema.BadSecret: `webhooks/ci.yaml:1:1: error: secret CI_SECRET does not suit authMode url_token: the secret holds a character other than A-Z a-z 0-9 - . _ ~, so it cannot be part of a URL [TH_UNSUITABLE_SECRET]
    1 | secretName: CI_SECRET
      | ^
  set another value: triphammer secrets set CI_SECRET
`,
		schema.UnverifiedCommit: "error: the commit is not verified: 0123456789ab is not signed [TH_UNVERIFIED_COMMIT]\n",
		schema.ExpiredSigner:    "warning: 0123456789ab is signed with the key of ada@example.com, which may sign before 2026-01-01T00:00:00Z alone: it counts because the commit has an earlier date, which its committer sets [TH_EXPIRED_SIGNER]\n",
	}
	var b strings.Builder
	b.WriteString(`# Diagnostics

This page lists the findings that ` + "`validate`, `plan`, `apply`" + ` and the server report about definitions. It is generated from the table of codes and from trees whose output tests check
(` + "`go test ./factory -run Page -update`" + `). Codes that begin with ` + "`FF_`" + ` are the format's; ` + "`TH_`" + ` are this server's own, for limits, extensions and state.
An error refuses a commit; warnings alone do not. Line and column are 1-based, the column in characters.
`)
	first := regexp.MustCompile(`(?m)^\S.*: (?:error|warning): .* \[(\w+)\]\n(?: .*\n)*`)
	for _, code := range schema.Codes {
		example := examples[code.ID]
		if example == "" {
			golden, err := os.ReadFile(filepath.Join(trees, "bad", code.ID, "expected.txt"))
			if err != nil {
				t.Errorf("%s has no example: %v", code.ID, err)
			}
			for _, m := range first.FindAllStringSubmatch(string(golden), -1) {
				if m[1] == code.ID {
					example = m[0]
					break
				}
			}
		}
		if example == "" {
			t.Errorf("%s has no example", code.ID)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s %s\n\n```text\n%s```\n", code.ID, code.What, code.Fix, example)
	}
	page(t, "diagnostics.md", b.String())
}
