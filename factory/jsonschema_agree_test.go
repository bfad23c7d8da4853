package factory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"triphammer/schema"
)

// The JSON Schemas and the parser agree (SPEC 3.6): on every document either both
// accept it or both refuse it, but for the rules listed here, which the parser
// has in addition.

// unspoken is a rule that JSON Schema cannot say. The schema of the document has
// the annotation, and accepts what breaks the rule.
type unspoken struct {
	annotation, document string
	breaks               string // front matter or file that breaks it and no other rule; empty if it takes several files
	message              string // expression that fits the parser's message
	inherited            bool   // depends on what other files say, and otherwise is said by the schema
}

var unspokenRules = []unspoken{
	{"x-triphammer-yaml", "webhook", "secretName: 2026-01-02", "(is|holds) a date where a string", false},
	{"x-triphammer-yaml", "webhook", "secretName: X\n<<: {enabled: true}", `^merge key`, false},
	{"x-triphammer-yaml", "webhook", "secretName: X\n? [a]\n: b", "^a key must be a plain word", false},
	{"x-triphammer-yaml", "webhook", "", `^alias \*`, false},
	{"x-triphammer-yaml", "runner", "platform: {linux: {dockerImage: x}}\ninstanceShape: {vcpus: 2.0, memoryGb: 4}", "(is|holds) a number where an integer", false},
	{"x-triphammer-yaml", "webhook", "secretName: &a X", `^anchor &`, false},
	{"x-triphammer-yaml", "webhook", "secretName: !!str X", `^tag `, false},
	{"x-triphammer-yaml", "webhook", "secretName: X\nsecretName: X", `^key ".*" is there twice`, false},
	{"x-triphammer-unique-trimmed", "factory", minimal + "secrets: [A, ' A']", "lists .* twice", false},
	{"x-triphammer-unique-by", "factory", minimal + "repositories: [{owner: a, name: b}, {owner: a, name: ' b'}]", "is listed twice", false},
	{"x-triphammer-unique-by", "factory", minimal + "integrations: [{type: slack}, {type: Slack}]", "integration .* is listed twice", false},
	{"x-triphammer-unique-by", "scorer", "model: m\nagents: [lead]\npassingScore: 1\nlabels: [{value: a, score: 0}, {value: a, score: 1}]", "^label .* is there twice", false},
	{"x-triphammer-unique-by", "benchmark_suite", "name: s\nagent: lead\nconfigurations: [{name: a}, {name: a}]\ntasks: [one, two]", "^configuration .* is there twice", false},
	{
		"x-triphammer-unique-by", "automation",
		"triggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}, {provider: schedule, event: cron_fired, schedule: {cron: '@hourly'}}]",
		"two schedules of one automation", false,
	},
	{
		"x-triphammer-at-most-one", "benchmark_suite",
		"name: s\nagent: lead\nconfigurations: [{name: a, role: baseline}, {name: b, role: baseline}]\ntasks: [one, two]", "a second baseline", false,
	},
	{"x-triphammer-power-of-two", "runner", "platform: {linux: {dockerImage: x}}\ninstanceShape: {vcpus: 3, memoryGb: 4}", "where a power of two is expected", false},
	{
		"x-triphammer-passing-score", "scorer", "model: m\nagents: [lead]\nlabels: [{value: a, score: 0}, {value: b, score: 1}]\npassingScore: 0",
		"passingScore needs a label", false,
	},
	{"x-triphammer-body", "scorer", "", "the scorer has no rubric", false},
	{
		"x-triphammer-cron", "automation", "triggers: [{provider: schedule, event: cron_fired, schedule: {cron: 99 * * * *}}]",
		`schedule\.cron: `, false,
	},
	{"x-triphammer-credential-header", "webhook", "secretName: X\ndeliveryIdHeader: authorization", "which carries a credential", false},
	{"x-triphammer-shared-header", "webhook", "secretName: X\ndeliveryIdHeader: content-type", "which tells no delivery from another", false},
	{"x-triphammer-signature", "webhook", "secretName: X\nauthMode: signature\nsignatureScheme: github\nsignature: {header: X-Id}", "^signature: ", false},
	{"x-triphammer-replayable", "webhook", "secretName: X\nauthMode: signature\nsignatureScheme: svix\nreplayWindow: 10m", "^replayWindow does nothing with signatureScheme", false},
	{"x-triphammer-url-without-password", "environment", "repositories: [{url: 'https://a:b@git.example.com/x'}]", "holds a password", false},
	{"x-triphammer-url", "environment", "services: [{name: a, url: 'https://a:99999', secretName: S, paths: [/]}]", "is not an address to which a secret may go", false},
	{"x-triphammer-own-header", "environment", "services: [{name: a, url: 'https://a', secretName: S, paths: [/], header: user-agent}]", "is not the name of a header for a credential", false},
	{"x-triphammer-services", "environment", "services: [{name: a, url: 'https://a', secretName: S, paths: [/]}]\nenv: {A_URL: x}", "would set the variable", false},
	{"x-triphammer-disjoint", "automation", "triggers: [{provider: github, event: push, filter: {repos: {in: [a/b], not_in: [a/b]}}}]", "both in and not_in hold", false},
	{
		"x-triphammer-disjoint", "automation",
		"triggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {a: {in: [1], not_in: [1.0]}}}}]", "both in and not_in hold", false,
	},
	{
		"x-triphammer-kept-header", "automation",
		"triggers: [{provider: webhook, event: received, filter: {webhooks: [hook], headers: {X-Custom: [a]}}}]",
		"is not kept with deliveries|carries a credential|is not a header name|is the same header as", false,
	},
	{
		"x-triphammer-max-depth", "automation",
		"triggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: [1]}}}}}}}}}}}}}]",
		"nested deeper than 10 levels", false,
	},
	{
		"x-triphammer-max-leaves", "automation",
		"triggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {" + leaves(65) + "}}}]", "fields with a condition", false,
	},
	{"x-triphammer-person", "automation", "startedBy: [ada]\ntriggers: [{provider: github, event: workflow_run_completed}]", "^triggers.*nobody could start it", false},
	{"x-triphammer-person", "automation", "startedBy: [ada, write]\ntriggers: [{provider: slack, event: app_mention}]", "^startedBy: no sender", false},
	{"x-triphammer-person", "automation", "maxRunsPerPersonPerHour: 1\ntriggers: [{provider: github, event: workflow_run_completed}]", "^maxRunsPerPersonPerHour means nothing", false},
	{"x-triphammer-reference", "automation", "agent: nobody\ntriggers: [{provider: github, event: push}]", "no agent is named", false},
	{"x-triphammer-reference", "benchmark_suite", "name: s\nagent: lead\nconfigurations: [{name: a}]\ntasks: [one, two, three]", "there is no benchmarks/", false},
	{"x-triphammer-reference", "tests", "[{name: t, webhook: nothing, payload: {}, expect: []}]", "there is no webhook", false},
	{"x-triphammer-reference", "tests", "[{name: t, webhook: hook, payload: {}, expect: [nothing]}]", "there is no automation", false},
	{"x-triphammer-reference", "tests", "[{name: t, webhook: github, payload: {}, answers: {nothing: []}, expect: []}]", "^test .* answers: ", false},
	{"x-triphammer-file", "tests", "[{name: t, webhook: hook, payloadFile: ../x.json, expect: []}]", "is not within tests/|there is no tests/|there is no folder|is not a regular file", false},
	{"x-triphammer-inherited", "common", "", "means nothing with type oz|needs a self-hosted workerHost", true},
	{"x-triphammer-tree", "webhook", "", "opens a connection for .* already", false},
	{"x-triphammer-tree", "factory", "", "foreman|at most 20 webhooks|is defined by", false},
	{"x-triphammer-tree", "benchmark_suite", "", "no suite lists this task|has the name .* already", false},
}

func leaves(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: [1], ", i)
	}
	return b.String()
}

// schemaJudges have each document's schema in both dialects.
type schemaJudges map[string][2]*jsonschema.Schema

func newSchemaJudges(t testing.TB) schemaJudges {
	t.Helper()
	judges := make(schemaJudges)
	for i, draft := range []string{dialect, "http://json-schema.org/draft-07/schema#"} {
		compiler := jsonschema.NewCompiler()
		for _, name := range schema.JSONSchemaNames() {
			one, _ := schema.LookupJSONSchema(name)
			text := bytes.Replace(one.Text, []byte(dialect), []byte(draft), 1)
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := compiler.AddResource("https://factory.test/"+name+".schema.json", value); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, name := range schema.JSONSchemaNames() {
			// Compiling holds the schema to its meta-schema.
			compiled, err := compiler.Compile("https://factory.test/" + name + ".schema.json")
			if err != nil {
				t.Fatalf("%s in %s: %v", name, draft, err)
			}
			both := judges[name]
			both[i] = compiled
			judges[name] = both
		}
	}
	return judges
}

// judge is the verdict of the schema, which is the same in both dialects.
func (j schemaJudges) judge(t testing.TB, document string, root *schema.Node) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(root.AppendJSON(nil)))
	if err != nil {
		t.Fatalf("%s: %v", root.AppendJSON(nil), err)
	}
	new07, new20 := j[document][1].Validate(value), j[document][0].Validate(value)
	if (new07 == nil) != (new20 == nil) {
		t.Errorf("%s: the dialects differ on %s:\n2020-12: %v\ndraft-07: %v", document, root.AppendJSON(nil), new20, new07)
	}
	return new20
}

// compare holds the findings about one document to the verdict of its schema. It
// tells whether the document is without findings.
func (j schemaJudges) compare(t testing.TB, document, text string, root *schema.Node, findings schema.Diagnostics, inherited bool) (valid bool) {
	t.Helper()
	err := j.judge(t, document, root)
	unspoken, spoken := false, false
	for _, d := range findings {
		if isUnspoken(d, inherited) {
			unspoken = true
		} else {
			spoken = true
		}
	}
	switch {
	case spoken && err == nil:
		t.Errorf("%s: the schema accepts what the parser refuses:\n%s\n%v", document, text, findings)
	case !spoken && !unspoken && err != nil:
		t.Errorf("%s: the schema refuses what the parser accepts:\n%s\n%v", document, text, err)
	}
	return len(findings) == 0
}

var unspokenExpressions = func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, rule := range unspokenRules {
		all = append(all, regexp.MustCompile(rule.message))
	}
	return all
}()

func isUnspoken(d schema.Diagnostic, inherited bool) bool {
	for i, rule := range unspokenRules {
		if (inherited || !rule.inherited) && unspokenExpressions[i].MatchString(d.Message) {
			return true
		}
	}
	return false
}

// schemaPlaces is where a document is put to be judged alone.
var schemaPlaces = map[string]string{
	"factory": "factory.yaml", "agent": "agents/lead/agent.md", "automation": "automations/it/automation.md", "scorer": "scorers/it/scorer.md",
	"runner": "runners/it.yaml", "webhook": "webhooks/it.yaml", "benchmark_suite": "benchmarks/s/suite.yaml",
	"benchmark_suite_task": "benchmarks/s/tasks/one.yaml", "environment": "environments/it.yaml", "tests": "tests/it.yaml",
}

// parseAlone is the parser's verdict on one document among files that it may
// refer to: the agent lead, the webhook hook, the automation hello, the tasks one
// and two. Without a root it is no YAML that the format allows.
func parseAlone(t testing.TB, document, text, body string) (*schema.Node, schema.Diagnostics) {
	t.Helper()
	task := "title: t\nprompt: p\nsuccessCriteria: s\n"
	files := map[string]string{"factory.yaml": minimal + "agentDefaults: {workerHost: builder}\n"}
	switch document {
	case "automation", "scorer", "tests", "benchmark_suite", "benchmark_suite_task": // which refer to others
		maps.Copy(files, map[string]string{
			"agents/lead/agent.md":        "---\nagentType: MAIN\n---\n",
			"webhooks/hook.yaml":          "secretName: X\n",
			"webhooks/github.yaml":        "secretName: X\nauthMode: signature\nsignatureScheme: github\n",
			"automations/hello.md":        "---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook]}}]\n---\n",
			"benchmarks/s/suite.yaml":     "name: s\nagent: lead\nconfigurations: [{name: c}]\ntasks: [one, two]\n",
			"benchmarks/s/tasks/one.yaml": task,
			"benchmarks/s/tasks/two.yaml": task,
			"tests/payload.json":          "{}",
		})
	}
	place := schemaPlaces[document]
	text = frontMatter(document, text, body)
	files[place] = text
	if document == "environment" {
		files["automations/names/automation.md"] = "---\nenvironmentId: it\ntriggers: [{provider: github, event: push}]\n---\n"
	}
	_, report := load(t, tree(files), Options{})
	return parseRoot(document, []byte(text)), findingsAt(report, document, place)
}

// frontMatter is the file of a document: in Markdown it stands above the body.
func frontMatter(document, text, body string) string {
	if path.Ext(schemaPlaces[document]) == ".md" {
		return "---\n" + text + "\n---\n" + body
	}
	return text
}

func parseRoot(document string, text []byte) *schema.Node {
	c := &schema.Collector{}
	var doc *schema.Document
	switch {
	case path.Ext(schemaPlaces[document]) == ".md":
		doc = schema.ParseMarkdown(c, text)
	case document == "tests":
		doc = schema.Parse(c, text, schema.List)
	default:
		doc = schema.Parse(c, text, schema.Mapping)
	}
	if doc == nil {
		return nil
	}
	return doc.Root
}

// findingsAt are what refuses a document. What is wrong with a filter test, or with
// an environment that nothing names, is a warning.
func findingsAt(report *schema.Report, document, place string) schema.Diagnostics {
	var found schema.Diagnostics
	for _, d := range report.Diagnostics {
		stray := document == "environment" && d.Code == schema.StrayFile // nothing names it
		if d.Path == place && (d.Severity == schema.Error || document == "tests" || stray) {
			found = append(found, d)
		}
	}
	return found
}

// TestSchemaUnspoken: each rule that JSON Schema cannot say is noted in the
// schema, which accepts what breaks the rule; and no other rule is noted.
func TestSchemaUnspoken(t *testing.T) {
	judges := newSchemaJudges(t)
	page, err := os.ReadFile(filepath.Join("..", "docs", "editors.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for i, rule := range unspokenRules {
		listed[rule.annotation] = true
		if !bytes.Contains(page, []byte("`"+rule.annotation+"`")) {
			t.Errorf("docs/editors.md does not tell of %s", rule.annotation)
		}
		one, _ := schema.LookupJSONSchema(rule.document)
		if !bytes.Contains(one.Text, []byte(`"`+rule.annotation+`"`)) {
			t.Errorf("the schema %s has no %s", rule.document, rule.annotation)
		}
		document, body := rule.document, "Body\n"
		switch {
		case rule.annotation == "x-triphammer-body":
			rule.breaks, body = "model: m\nagents: [lead]\npassingScore: 1\nlabels: [{value: a, score: 0}, {value: b, score: 1}]", ""
		case rule.breaks == "":
			continue
		case document == "common":
			document = "agent"
		}
		root, found := parseAlone(t, document, rule.breaks, body)
		if len(found) != 1 || !unspokenExpressions[i].MatchString(found[0].Message) {
			t.Errorf("%s: %q does not break just this rule: %v", rule.annotation, rule.breaks, found)
		} else if err := judges.judge(t, document, root); err != nil {
			t.Errorf("%s: %q: the schema says what it is noted for not to say: %v", rule.annotation, rule.breaks, err)
		}
	}
	for _, name := range schema.JSONSchemaNames() {
		one, _ := schema.LookupJSONSchema(name)
		for _, annotation := range regexp.MustCompile(`x-triphammer-[a-z-]+`).FindAllString(string(one.Text), -1) {
			if !listed[annotation] {
				t.Errorf("%s notes %s, which is not among the rules that it cannot say", name, annotation)
			}
		}
	}
}

// TestSchemaTrees: the parser and the schemas agree on every file of every tree
// of testdata, and of the one that init writes.
func TestSchemaTrees(t *testing.T) {
	judges := newSchemaJudges(t)
	all := map[string]fs.FS{"template": os.DirFS(filepath.Join("..", "cmd", "triphammer", "client", "template"))}
	for _, kind := range []string{"good", "bad"} {
		for _, name := range folders(t, kind) {
			all[name] = os.DirFS(filepath.Join(trees, kind, name))
		}
	}
	for name, c := range allRuleCases(t) {
		all[name] = c.files
	}
	seen := make(map[string]int)
	for root, tree := range all {
		_, report := load(t, tree, Options{})
		unsupported := slices.ContainsFunc(report.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == schema.UnsupportedVersion })
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			document := documentAt(name)
			if err != nil || !d.Type().IsRegular() || document == "" || unsupported && document != "factory" {
				return err
			}
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			node := parseRoot(document, text)
			if node == nil {
				return nil // no value that a schema could judge
			}
			seen[document]++
			judges.compare(t, document, root+" "+name, node, findingsAt(report, document, name), true)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, d := range schemaDocuments {
		if seen[d.name] == 0 {
			t.Errorf("no tree has a %s", d.title)
		}
	}
}

// documentAt is the document that a path of a tree holds, or empty.
func documentAt(name string) string {
	if name == "factory.yaml" {
		return "factory"
	}
	folder, rest, _ := strings.Cut(name, "/")
	if k, resource := place(folder, rest); resource != "" {
		for _, d := range schemaDocuments {
			if d.kind == k.id {
				return d.name
			}
		}
	}
	return ""
}

// TestSchemaExamples: each document of testdata/documents.txtar is accepted by
// the parser and its schema, or refused by both, as its name says.
func TestSchemaExamples(t *testing.T) {
	judges := newSchemaJudges(t)
	for kind, examples := range exampleDocuments(t) {
		for _, example := range examples {
			t.Run(example.name, func(t *testing.T) {
				root, found := parseAlone(t, kind, example.text, "Body\n")
				if refused := len(found) > 0; refused != example.refused {
					t.Errorf("the parser refuses it: %v, want %v\n%s\n%v", refused, example.refused, example.text, found)
				}
				if err := judges.judge(t, kind, root); (err != nil) != example.refused {
					t.Errorf("the schema refuses it: %v, want %v\n%s\n%v", err != nil, example.refused, example.text, err)
				}
			})
		}
	}
}

// TestSchemaFilterKeys: the parser and the schema agree on every filter key that any
// event has, on every event; and on unlikely values of those that the event has.
func TestSchemaFilterKeys(t *testing.T) {
	judges := newSchemaJudges(t)
	for _, provider := range providers(false) {
		canonical := map[string]string{"nothing_of_the_kind": ""}
		for key := range keyTexts {
			canonical[key] = key
		}
		maps.Copy(canonical, aliases[provider])
		for _, event := range eventsOf(provider) {
			for name, key := range canonical {
				values := []string{"null", "x"}
				if slices.Contains(catalogue()[provider][event], key) {
					values = append(values, "[a]", "{in: [a]}", "[1]", "[' ']")
				}
				for _, value := range values {
					text := fmt.Sprintf("triggers: [{provider: %s, event: %s, filter: {%s: %s}}]", provider, event, name, value)
					root, found := parseAlone(t, "automation", text, "Body\n")
					judges.compare(t, "automation", text, root, found, false)
				}
			}
		}
	}
}

// TestSchemaMutants: the parser and the schemas agree on what random changes make
// of the examples.
func TestSchemaMutants(t *testing.T) {
	judges := newSchemaJudges(t)
	examples := exampleDocuments(t)
	for _, d := range schemaDocuments {
		t.Run(d.name, func(t *testing.T) {
			rounds := 600
			if d.name == "automation" {
				rounds = 2500
			}
			m := mutator{rand.New(rand.NewPCG(1, 1))}
			accepted, refused := 0, 0
			for i := 0; i < rounds && !t.Failed(); i++ {
				switch judges.compareMutant(t, d, &m, examples[d.name]) {
				case "accepted":
					accepted++
				case "refused":
					refused++
				}
			}
			if accepted < rounds/16 || refused < rounds/4 {
				t.Errorf("of %d mutants %d are valid and %d are not: too few to prove anything", rounds, accepted, refused)
			}
		})
	}
}

// compareMutant makes a mutant of one of the examples, and says what became of it.
func (j schemaJudges) compareMutant(t testing.TB, d schemaDocument, m *mutator, examples []exampleDocument) (verdict string) {
	t.Helper()
	text := jsonText(t, m.mutant(pick(m, examples...).value, pick(m, examples...).value, d.shape))
	root, found := parseAlone(t, d.name, text, "Body\n")
	if root == nil {
		return "" // another kind of value at the root: no YAML file of the format
	}
	if j.compare(t, d.name, text, root, found, false) {
		return "accepted"
	}
	return "refused"
}

// FuzzSchema: whatever changes are made to the examples, the parser and the
// schemas agree.
func FuzzSchema(f *testing.F) {
	judges := newSchemaJudges(f)
	for i := range schemaDocuments {
		f.Add(uint8(i), []byte("some choices"))
	}
	examples := exampleDocuments(f)
	f.Fuzz(func(t *testing.T, which uint8, choices []byte) {
		d := schemaDocuments[int(which)%len(schemaDocuments)]
		m := mutator{rand.New(&choiceSource{choices: choices, then: rand.NewPCG(uint64(len(choices)), 2)})}
		judges.compareMutant(t, d, &m, examples[d.name])
	})
}

// choiceSource makes random numbers of the fuzzer's bytes, then of a seed.
type choiceSource struct {
	choices []byte
	then    rand.Source
}

func (s *choiceSource) Uint64() uint64 {
	if len(s.choices) == 0 {
		return s.then.Uint64()
	}
	b := uint64(s.choices[0])
	s.choices = s.choices[1:]
	return b<<56 | b<<24 | b
}

func jsonText(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
