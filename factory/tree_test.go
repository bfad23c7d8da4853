package factory

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier/gitrepo"
	"triphammer/schema"
)

const minimal = "schemaVersion: v1alpha1\nname: x\n"

func tree(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{"factory.yaml": {Data: []byte(minimal)}}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func codes(found schema.Diagnostics) []string {
	var all []string
	for _, d := range found {
		all = append(all, d.Code)
	}
	return all
}

// restricted are the findings without the warning that anybody can start an automation, for trees that are about
// something else.
func restricted(found schema.Diagnostics) schema.Diagnostics {
	return slices.DeleteFunc(slices.Clone(found), func(d schema.Diagnostic) bool { return d.Code == schema.AnybodyStarts })
}

// TestUnresolved: names without a file are deferred when a tree is checked and
// warned of when it is applied, never an error (SPEC 2.2a, 4.7).
func TestUnresolved(t *testing.T) {
	f, report := load(t, tree(map[string]string{
		"environments/build.yaml": "command: [run]\n",
		"automations/a.md": "---\nenvironmentId: biuld\nrunner: big\ntriggers:\n  - provider: webhook\n    event: received\n" +
			"    filter: {webhook_ids: [whk_1, whk_2]}\n---\n",
		"automations/b.md": "---\nenvironmentId: build\ntriggers:\n  - {provider: slack, event: app_mention, filter: {channels: [bugs]}}\n---\n",
	}), Options{})
	if len(report.Diagnostics) > 0 {
		t.Fatal(report.Diagnostics)
	}
	var deferred []string
	for _, d := range report.Deferred {
		deferred = append(deferred, fmt.Sprintf("%s %s %s %s", d.Path, d.Field, d.Kind, d.Name))
	}
	want := []string{
		"automations/a.md environmentId environment biuld",
		"automations/a.md runner runner big",
		"automations/a.md triggers[0].filter.webhook_ids webhook_uid whk_1",
		"automations/a.md triggers[0].filter.webhook_ids webhook_uid whk_2",
		"automations/b.md triggers[0].filter.channels slack_name_alias bugs",
	}
	if !slices.Equal(deferred, want) {
		t.Errorf("deferred %q, want %q", deferred, want)
	}
	found := f.Unresolved(map[string]bool{"whk_2": true})
	var got []string
	for _, d := range found {
		got = append(got, fmt.Sprintf("%d:%d %s %s", d.Line, d.Column, d.Severity, d.Message+" "+d.Hint))
	}
	want = []string{
		"3:9 warning there is no runners/big.yaml: a run that needs it fails ",
		`2:16 warning there is no environments/biuld.yaml: a run that needs it fails did you mean "build"?`,
		"7:28 warning no webhook has the UID whk_1: this selection fires nothing name the file in filter.webhooks instead",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestInheritance: what a later level omits it inherits; null and the empty
// string clear what can be cleared (factory/testdata/rules 1.4).
func TestInheritance(t *testing.T) {
	f, _ := load(t, os.DirFS(filepath.Join(trees, "good", "every-kind")), Options{})
	defaults := Settings{Harness: Harness{Type: "claude", Model: "large", ReasoningLevel: "high", AuthSecret: "MODEL_KEY"}, HarnessAt: Position{"factory.yaml", schema.At{Line: 20, Column: 19}}, Runner: "default", Secrets: []string{"A_KEY"}, WorkerHost: "builder"}
	cleared, small := defaults, defaults
	cleared.Harness, cleared.Secrets, cleared.WorkerHost = Harness{Type: "claude", Model: "large"}, nil, ""
	small.Harness, small.HarnessAt = Harness{Type: "oz", Model: "small"}, Position{"agents/small/agent.md", schema.At{Line: 2, Column: 8}}
	for name, want := range map[string]Settings{"lead": defaults, "bare": defaults, "cleared": cleared, "small": small} {
		if got := f.Agent(name).Settings; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("agent %s: %+v, want %+v", name, got, want)
		}
	}
	many := f.Automation("many")
	if many.Agent != "small" || !reflect.DeepEqual(many.Settings.Harness, small.Harness) || many.Enabled || len(many.Triggers) != 9 {
		t.Errorf("automation %+v", many)
	}
	f, _ = load(t, tree(map[string]string{
		"agents/a/agent.md": "---\nagentType: FOREMAN\nharness: {type: claude, model: m, reasoningLevel: high, auth: {source: managedSecret, secretName: K}}\n---\n",
		"automations/a.md":  "---\nharness: {type: oz}\ntriggers: [{provider: github, event: push}]\n---\n",
	}), Options{})
	if got := f.Automation("a").Settings.Harness; !reflect.DeepEqual(got, Harness{Type: "oz", Model: "m"}) {
		t.Errorf("oz inherits %+v", got)
	}
}

func TestEnvironment(t *testing.T) {
	f, _ := load(t, os.DirFS(filepath.Join(trees, "good", "full")), Options{})
	if got := f.Environment("build").Budget; got != (Budget{USD: 2.5, Turns: 40}) {
		t.Errorf("budget %+v", got)
	}
	f, _ = load(t, tree(map[string]string{"environments/e.yaml": "{}"}), Options{})
	if e := f.Environment("e"); e.Timeout != DefaultTimeout || e.Idle != DefaultIdle || e.Network.Off || e.Budget != (Budget{}) {
		t.Errorf("defaults %+v", e)
	}
	for text, want := range map[string]Network{"on": {On: true}, "off": {Off: true}, "[a.example]": {Hosts: []string{"a.example"}}} {
		f, report := load(t, tree(map[string]string{"environments/e.yaml": "network: " + text}), Options{})
		if got := f.Environment("e").Network; fmt.Sprint(got) != fmt.Sprint(want) || len(report.Diagnostics) > 0 {
			t.Errorf("%s: %+v %v", text, got, report.Diagnostics)
		}
	}
}

// TestSubmodule: the checkout of a submodule gets the verdict of a commit, which
// has a link in its place (SPEC 2.4).
func TestSubmodule(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.CopyFS(dir, tree(map[string]string{"webhooks/hook.yaml": "secretName: S\n", "agents/lead/agent.md": "---\nagentType: MAIN\n---\n"})); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "first")
	for _, at := range []string{"webhooks/shared", "agents/shared", "agents/lead/tools", "automations"} {
		git("submodule", "--quiet", "add", dir, at)
	}
	git("commit", "-q", "-m", "second")
	repo, err := gitrepo.Open(dir, "main")
	if err != nil {
		t.Fatal(err)
	}
	commit, err := repo.Tree(t.Context(), git("rev-parse", "HEAD"), ".")
	if err != nil {
		t.Fatal(err)
	}
	_, landed := load(t, commit, Options{})
	_, here := load(t, os.DirFS(dir), Options{})
	if len(landed.Diagnostics) != 2 || !slices.Equal(here.Diagnostics, landed.Diagnostics) {
		t.Errorf("here: %v\nas a commit: %v", here.Diagnostics, landed.Diagnostics)
	}
}

// TestNotTheFile: what is in a definition's place but is no file of this tree is
// a finding, never read and never a failure to check (SPEC 2.4).
func TestNotTheFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree(map[string]string{
		"tests/t.yaml":       "- {name: n, webhook: hook, payloadFile: link/p.json, expect: []}\n- {name: m, webhook: hook, payloadFile: p.json, expect: []}\n",
		"webhooks/hook.yaml": "secretName: S\n",
	})); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "p.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"tests/link": outside, "tests/p.json": filepath.Join(outside, "p.json"), "runners": outside} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
	}
	f, report := load(t, os.DirFS(dir), Options{})
	if got := codes(report.Diagnostics); !slices.Contains(got, schema.NotRegular) || f.Tests[0].Problem == "" || f.Tests[1].Problem == "" {
		t.Errorf("%v, tests %+v %+v", report.Diagnostics, f.Tests[0], f.Tests[1])
	}

	dir = t.TempDir()
	if err := os.CopyFS(dir, tree(map[string]string{"webhooks/ok.yaml": "secretName: S\n"})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "webhooks", "a\xff.yaml"), []byte("secretName: S\n"), 0o600); err != nil {
		return // a file system that refuses the name has no such tree
	}
	_, report = load(t, os.DirFS(dir), Options{})
	if got := codes(report.Diagnostics); !slices.Equal(got, []string{schema.UnsupportedPath}) {
		t.Errorf("a name that is not UTF-8: %v", report.Diagnostics)
	}
}

// growing is a tree whose file is larger when it is read than when it is listed.
type growing struct{ fstest.MapFS }

func (g growing) ReadFile(name string) ([]byte, error) {
	data, err := g.MapFS.ReadFile(name)
	return append(data, make([]byte, schema.MaxFile)...), err
}

// TestHostileTrees: a tree costs no more than its bounds, whatever is in it
// (SPEC 2.5).
func TestHostileTrees(t *testing.T) {
	if _, report := load(t, growing{tree(nil)}, Options{}); !slices.Equal(codes(report.Diagnostics), []string{schema.TooLarge}) {
		t.Errorf("a growing file: %v", report.Diagnostics)
	}
	if _, report := load(t, tree(nil), Options{MaxBytes: 3}); !slices.Equal(codes(report.Diagnostics), []string{schema.TooMany}) {
		t.Errorf("a small limit: %v", report.Diagnostics)
	}
}

func unknownKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "secretNam%d: x\n", i)
	}
	return b.String()
}

var _ fs.ReadFileFS = growing{}

// TestBrokenTestAlone: a test that cannot pass keeps no other from running.
func TestBrokenTestAlone(t *testing.T) {
	f, _ := load(t, tree(map[string]string{
		"webhooks/hook.yaml": "secretName: S\n",
		"tests/t.yaml":       "- {name: lost, webhook: none, payload: {}, expect: []}\n- {name: good, webhook: hook, payload: {}, expect: []}\n",
	}), Options{})
	if got := f.RunTests(); len(got) != 2 || got[0].Passed || !got[1].Passed {
		t.Errorf("%+v", got)
	}
}
