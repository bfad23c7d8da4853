package factory

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/schema"
)

var update = flag.Bool("update", false, "write the golden files")

const trees = "../testdata/factories"

// load reads a tree without what is said of keys that have no effect yet, which
// TestNoEffect is about, and of events that no webhook takes, which the bad trees show.
func load(t testing.TB, tree fs.FS, opt Options) (*Factory, *schema.Report) {
	t.Helper()
	f, report, err := Load(context.Background(), tree, opt)
	if err != nil {
		t.Fatal(err)
	}
	report.Diagnostics = slices.DeleteFunc(report.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == schema.NoEffect || d.Code == schema.NoSender })
	return f, report
}

func printed(t *testing.T, tree fs.FS, report *schema.Report) string {
	t.Helper()
	var b bytes.Buffer
	source := func(path string) []byte {
		data, _ := fs.ReadFile(tree, path)
		return data
	}
	if err := schema.Print(&b, "text", report, schema.PrintOptions{Source: source}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBadTrees: each folder is named after a code, perhaps with a word after a
// dash, and shows what is printed for a tree with it (SPEC 3.1, 3.3).
func TestBadTrees(t *testing.T) {
	for _, name := range folders(t, "bad") {
		t.Run(name, func(t *testing.T) {
			code, _, _ := strings.Cut(name, "-")
			tree := os.DirFS(filepath.Join(trees, "bad", name))
			_, report := load(t, tree, Options{})
			if code == schema.NoEffect || code == schema.NoSender {
				var err error
				if _, report, err = Load(t.Context(), tree, Options{}); err != nil {
					t.Fatal(err)
				}
			}
			got := printed(t, tree, report)
			golden := filepath.Join(trees, "bad", name, "expected.txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if !slices.ContainsFunc(report.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == code }) {
				t.Errorf("%s is not among the findings", code)
			}
		})
	}
}

func folders(t *testing.T, kind string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(trees, kind))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestEveryCodeHasATree: a code without a case fails.
func TestEveryCodeHasATree(t *testing.T) {
	elsewhere := []string{
		schema.TooLarge,                                                                                       // TestLimits: the file would be large
		schema.MissingSecret, schema.BadSecret, schema.UnverifiedCommit, schema.ExpiredSigner, schema.NotHere, // package applier: they need a server
	}
	source, err := os.ReadFile("../schema/diagnostic.go")
	if err != nil {
		t.Fatal(err)
	}
	have := folders(t, "bad")
	for _, m := range regexp.MustCompile(`"((?:FF|TH)_[A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		if !slices.Contains(have, m[1]) && !slices.Contains(elsewhere, m[1]) {
			t.Errorf("%s has no tree in %s/bad", m[1], trees)
		}
	}
}

func TestGoodTrees(t *testing.T) {
	for _, name := range folders(t, "good") {
		tree := os.DirFS(filepath.Join(trees, "good", name))
		if _, report := load(t, tree, Options{}); len(report.Diagnostics) > 0 {
			t.Errorf("%s:\n%s", name, printed(t, tree, report))
		}
	}
}

// TestStrict: without --strict there are further acceptances (SPEC 2.1–2.3).
func TestStrict(t *testing.T) {
	for name, want := range map[string][]string{
		"format-only": nil,
		"minimal":     {schema.MissingRequired, schema.MissingRequired, schema.MissingRequired}, // repositories, agentDefaults, an agent
		"full":        {schema.InvalidFilter, schema.MissingRequired},                           // filter.webhooks, no webhook_ids
	} {
		tree := os.DirFS(filepath.Join(trees, "good", name))
		_, report := load(t, tree, Options{Strict: true})
		var got []string
		for _, d := range report.Diagnostics {
			got = append(got, d.Code)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v:\n%s", name, got, want, printed(t, tree, report))
		}
	}
}

func TestFull(t *testing.T) {
	f, report := load(t, os.DirFS(filepath.Join(trees, "good", "full")), Options{})
	if f.Name != "Example" || f.Alias != "Café 1.0" || f.Foreman().Name != "lead" || len(f.Files) != 10 || len(f.Skills) != 1 {
		t.Errorf("factory %+v", f)
	}
	ci, alerts := f.Webhook("ci"), f.Webhook("alerts")
	if ci.AuthMode != Signature || ci.Scheme.Name != "github" || !ci.Enabled || alerts.Enabled || alerts.AuthMode != URLToken || alerts.DeliveryIDHeader != "X-Alert-Id" {
		t.Errorf("webhooks %+v %+v", ci, alerts)
	}
	// agentDefaults → agent → automation (factory/testdata/rules 1.4)
	repair := f.Automation("repair")
	want := Settings{Harness: Harness{Type: "claude", Model: "large", ReasoningLevel: "high"}, HarnessAt: Position{"factory.yaml", schema.At{Line: 12, Column: 19}}, EnvironmentID: "build", Secrets: []string{"FIX_TOKEN"}}
	if got := fmt.Sprintf("%+v", repair.Settings); got != fmt.Sprintf("%+v", want) {
		t.Errorf("settings %s, want %+v", got, want)
	}
	if repair.Agent != "fixer" || strings.TrimSpace(repair.Prompt) != "Find out why it failed and repair it." || repair.Triggers[1].Cron != "0 6 * * 1-5" {
		t.Errorf("automation %+v", repair)
	}
	e := f.Environment("build")
	if e.Timeout != 30*time.Minute || e.Idle != 90*time.Second || len(e.Network.Hosts) != 2 || e.Env["MODE"] != "ci" || e.Repositories[1] != (Repository{URL: "https://git.example.com/b.git", Ref: "main", Path: "libs/b"}) {
		t.Errorf("environment %+v", e)
	}
	for _, r := range f.RunTests() {
		if !r.Passed {
			t.Errorf("test %q: got %v, want %v, %s", r.Name, r.Got, r.Expect, r.Problem)
		}
	}
	var deferred []string
	for _, d := range report.Deferred {
		deferred = append(deferred, d.Kind+" "+d.Name)
	}
	for _, want := range []string{"secret HOOK_SECRET", "secret DEPLOY_KEY", "secret FIX_TOKEN", "secret SHARED_TOKEN"} {
		if !slices.Contains(deferred, want) {
			t.Errorf("%s is not deferred: %v", want, deferred)
		}
	}
	// The name that `git hash-object` gives.
	if got := blobName([]byte("hello\n")); got != "ce013625030ba8dba906f756967f9e9ca394464a" {
		t.Errorf("blob name %s", got)
	}
}

func TestFailingFilterTest(t *testing.T) {
	tree := fstest.MapFS{
		"factory.yaml":       {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
		"webhooks/hook.yaml": {Data: []byte("secretName: S\n")},
		"automations/a.md":   {Data: []byte("---\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {n: [1]}}}\n---\n")},
		"tests/t.yaml":       {Data: []byte("- {name: one, webhook: hook, payload: {n: 2}, expect: [a]}\n- {name: two, webhook: hook, payload: {n: 1.0}, expect: [a]}\n- {name: three, webhook: hook, expect: []}\n")},
	}
	f, _ := load(t, tree, Options{})
	got := f.RunTests()
	if got[0].Passed || got[0].Why[0].Path != "payload.n" || !got[1].Passed || got[2].Passed || got[2].Problem == "" {
		t.Errorf("%+v", got)
	}
}

// TestLimits (SPEC 2.4, 2.5).
func TestLimits(t *testing.T) {
	minimal := []byte("schemaVersion: v1alpha1\nname: x\n")
	large := fstest.MapFS{"factory.yaml": {Data: minimal}, "webhooks/w.yaml": {Data: []byte("secretName: S # " + strings.Repeat("x", schema.MaxFile))}}
	many := fstest.MapFS{"factory.yaml": {Data: minimal}}
	for i := range 30 {
		many[fmt.Sprintf("runners/r%d.yaml", i)] = &fstest.MapFile{Data: []byte("platform: {linux: {dockerImage: x}}\n")}
	}
	submodule := fstest.MapFS{"factory.yaml": {Data: minimal}, "webhooks/w.yaml": {Mode: fs.ModeIrregular}}
	for _, c := range []struct {
		tree fstest.MapFS
		opt  Options
		want string
	}{
		{large, Options{}, schema.TooLarge},
		{many, Options{MaxFiles: 20}, schema.TooMany},
		{many, Options{MaxBytes: 300}, schema.TooMany},
		{many, Options{}, ""},
		{submodule, Options{}, schema.NotRegular},
	} {
		_, report := load(t, c.tree, c.opt)
		got := ""
		if len(report.Diagnostics) > 0 {
			got = report.Diagnostics[0].Code
		}
		if got != c.want || len(report.Diagnostics) > 1 {
			t.Errorf("got %+v, want %q", report.Diagnostics, c.want)
		}
	}
}

// TestSelecting: a trigger selects by UID or by file name; disabled automations
// are no candidates (SPEC C6.3, 2.2c).
func TestSelecting(t *testing.T) {
	f := &Factory{Automations: []*Automation{
		{Name: "by-name", Enabled: true, Triggers: []Trigger{{Provider: "webhook", Event: "received", Webhooks: []string{"hook"}}}},
		{Name: "by-uid", Enabled: true, Triggers: []Trigger{{Provider: "webhook", Event: "received", WebhookIDs: []string{"whk_1"}}}},
		{Name: "disabled", Triggers: []Trigger{{Provider: "webhook", Event: "received", Webhooks: []string{"hook"}}}},
		{Name: "other", Enabled: true, Triggers: []Trigger{{Provider: "github", Event: "push"}}},
	}}
	for uid, want := range map[string][]string{"whk_1": {"by-name", "by-uid"}, "whk_2": {"by-name"}, "": {"by-name"}} {
		var got []string
		for _, c := range f.Candidates(&Webhook{Name: "hook"}, uid) {
			got = append(got, c.Automation)
		}
		if !slices.Equal(got, want) {
			t.Errorf("UID %q: %v, want %v", uid, got, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	err := fs.WalkDir(os.DirFS(trees), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(trees, name))
		for i, path := range fuzzed {
			if filepath.Base(path) == filepath.Base(name) || strings.HasPrefix(path, filepath.Base(filepath.Dir(name))+"/") {
				f.Add(i, data)
			}
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		tree := fstest.MapFS{"factory.yaml": {Data: []byte("schemaVersion: v1alpha1\nname: x\n")}}
		tree[fuzzed[(i%len(fuzzed)+len(fuzzed))%len(fuzzed)]] = &fstest.MapFile{Data: data}
		for _, strict := range []bool{false, true} {
			factory, report := load(t, tree, Options{Strict: strict})
			for _, d := range report.Diagnostics {
				if d.Message == "" || d.Line < 0 || d.Column < 0 || d.Line > bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+2 {
					t.Errorf("%+v", d)
				}
			}
			printed(t, tree, report)
			factory.RunTests()
		}
	})
}

var fuzzed = []string{
	"factory.yaml", "webhooks/w.yaml", "automations/a/automation.md", "agents/a/agent.md", "environments/e.yaml", "tests/t.yaml", "runners/r.yaml",
	"scorers/s/scorer.md", "benchmarks/b/suite.yaml", "benchmarks/b/tasks/t.yaml",
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1, 1000} {
		tree := fstest.MapFS{
			"factory.yaml":         {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
			"webhooks/hook.yaml":   {Data: []byte("secretName: S\n")},
			"agents/lead/agent.md": {Data: []byte("---\nagentType: FOREMAN\n---\nLead.\n")},
		}
		for i := range n {
			tree[fmt.Sprintf("automations/a%d/automation.md", i)] = &fstest.MapFile{Data: []byte(fmt.Sprintf(
				"---\ntriggers:\n  - provider: webhook\n    event: received\n    filter:\n      webhooks: [hook]\n      payload:\n        build: {status: [failed], number: {not_in: [%d]}}\n---\nRepair it.\n", i))}
		}
		dir := b.TempDir()
		if err := os.CopyFS(dir, tree); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("automations=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, report := load(b, os.DirFS(dir), Options{}); len(report.Diagnostics) > 0 {
					b.Fatal(report.Diagnostics)
				}
			}
		})
	}
}

// TestAnswers: a filter test whose outcome only the sender's API decides passes if it states the
// answer, and not otherwise, whatever it expects (SPEC 2.2b).
func TestAnswers(t *testing.T) {
	opened := `headers: {X-GitHub-Event: pull_request}, payload: {action: opened, number: 7, pull_request: {number: 7}, repository: {full_name: acme/api}}`
	tree := fstest.MapFS{
		"factory.yaml":      {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
		"webhooks/hub.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: T\n")},
		"webhooks/own.yaml": {Data: []byte("secretName: S\n")},
		"automations/paths.md": {Data: []byte("---\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {paths: [docs/**]}}\n" +
			"- {provider: github, event: pull_request_opened, filter: {repos: [acme/web]}}\n---\n")},
		"automations/other.md": {Data: []byte("---\ntriggers:\n- {provider: github, event: pull_request_opened, filter: {repos: [acme/web], paths: [docs/**]}}\n---\n")},
	}
	for _, c := range []struct{ webhook, test, want string }{
		{"hub", opened + ", expect: []", "? paths: not known: paths wanted one of \"docs/**\", and only the sender's API knows it: state it with answers: {pull_request_files: [...]}"},
		{"hub", opened + ", expect: [paths]", "? paths: not known"},
		{"hub", opened + ", expect: [paths], answers: {pull_request_files: [main.go, docs/a.md]}", ""},
		{"hub", opened + ", expect: [], answers: {pull_request_files: [main.go]}", ""},
		{"hub", opened + ", expect: [], answers: {pull_request_files: []}", ""},
		{"hub", opened + ", expect: [], answers: {pull_request_files: [docs/a.md]}", "+ paths: its filter accepts"},
		{"hub", opened + ", expect: [], answers: {pull_request_file: [docs/a.md]}", `GitHub is asked nothing named "pull_request_file"; did you mean "pull_request_files"?`},
		{"own", "payload: {}, expect: [], answers: {pull_request_files: [docs/a.md]}", `no trigger asks the sender of webhook "own" anything`},
	} {
		tree["tests/t.yaml"] = &fstest.MapFile{Data: []byte("- {name: one, webhook: " + c.webhook + ", " + c.test + "}\n")}
		f, _ := load(t, tree, Options{})
		got := f.RunTests()[0]
		if got.Passed != (c.want == "") || !got.Passed && !strings.Contains(got.Failure(), c.want) {
			t.Errorf("%s: passed %t, %s", c.test, got.Passed, got.Failure())
		}
	}
}
