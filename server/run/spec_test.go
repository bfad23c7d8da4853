package run

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/factory"
	"triphammer/server/secret"
)

func load(t *testing.T, files map[string]string) *factory.Factory {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	f, report, err := factory.Load(t.Context(), tree, factory.Options{})
	if err != nil || report.Diagnostics.HasErrors() {
		t.Fatal(err, report.Diagnostics)
	}
	return f
}

var tree = map[string]string{
	"factory.yaml":                "schemaVersion: v1alpha1\nname: f\nsecrets: [SHARED]\nagentDefaults:\n  environmentId: web\n  secrets: [TOKEN]\n",
	"environments/web.yaml":       "command: [make, agent]\nsetupCommands: [make deps]\nenv: {A: b}\nsecrets: [DB, TOKEN]\ntimeoutMinutes: 5\nidleMinutes: 0.5\nrepositories: [{url: 'https://example.com/app.git', ref: main}]\nnetwork: [example.com]\nisolation: container\n",
	"environments/bare.yaml":      "description: nothing\n",
	"webhooks/hook.yaml":          "secretName: S\nauthMode: token\n",
	"automations/a/automation.md": "---\nagent: boss\ntriggers:\n  - provider: webhook\n    event: received\n    filter: {webhooks: [hook]}\n---\nDo it.\n",
	"agents/boss/agent.md":        "---\nagentType: FOREMAN\n---\nBe good.\n",
}

func with(changes map[string]string) map[string]string {
	files := make(map[string]string)
	for name, text := range tree {
		files[name] = text
	}
	for name, text := range changes {
		files[name] = text
	}
	return files
}

func TestSpecFor(t *testing.T) {
	f := load(t, tree)
	a := f.Automation("a")
	s := SpecFor(f, a)
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeSpec(data)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%s came back as %+v, %v", data, got, err)
	}
	e := got.Environment
	if got.Problem != "" || got.Blob != f.Blob(a.Path) || got.Blob == "" || strings.TrimSpace(got.AgentPrompt) != "Be good." || got.Agent != "boss" ||
		!slices.Equal(got.Secrets, []string{"DB", "SHARED", "TOKEN"}) || e == nil || e.Blob == "" {
		t.Fatalf("spec %s", data)
	}
	want := &Environment{
		Name: "web", Path: "environments/web.yaml", Blob: e.Blob, Repositories: []factory.Repository{{URL: "https://example.com/app.git", Ref: "main"}},
		SetupCommands: []string{"make deps"}, Env: map[string]string{"A": "b"}, Command: []string{"make", "agent"},
		Timeout: 5 * time.Minute, Idle: 30 * time.Second, NetworkHosts: []string{"example.com"}, Isolation: "container",
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("environment %+v, want %+v", e, want)
	}
}

func TestSpecProblems(t *testing.T) { // SPEC 2.2a, 2.2e
	agent := "---\nagentType: FOREMAN\n"
	for _, tt := range []struct {
		name    string
		changes map[string]string
		problem string
		harness string
	}{
		{"environment without file", map[string]string{"agents/boss/agent.md": agent + "environmentId: gone\n---\n"}, `the environment "gone" has no file: add environments/gone.yaml`, ""},
		{"runner without file", map[string]string{"agents/boss/agent.md": agent + "runner: gone\n---\n"}, `the runner "gone" has no file`, ""},
		{"nothing to start", map[string]string{"agents/boss/agent.md": agent + "environmentId: bare\n---\n"}, "no harness is set; give environments/bare.yaml a command, or set harness.type to one of claude, codex, gemini, opencode", ""},
		{"foreign harness", map[string]string{"agents/boss/agent.md": agent + "environmentId: bare\nmodel: x\n---\n"}, `cannot start the harness "oz"`, "oz"},
		{"own harness", map[string]string{"agents/boss/agent.md": agent + "environmentId: bare\nharness: {type: gemini}\n---\n"}, "", "gemini"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := load(t, with(tt.changes))
			s := SpecFor(f, f.Automation("a"))
			if !strings.Contains(s.Problem, tt.problem) || tt.problem == "" && s.Problem != "" || s.Harness.Type != tt.harness {
				t.Errorf("problem %q, harness %q", s.Problem, s.Harness.Type)
			}
		})
	}
}

func TestStart(t *testing.T) { // SPEC 9.4
	s := Spec{Harness: factory.Harness{Type: "claude", Model: "opus", AuthSecret: "KEY"}, Environment: &Environment{}}
	task := &Task{Secrets: map[string]secret.Value{"KEY": secret.New("v")}, Env: map[string]string{"A": "b"}}
	if agent := s.start(task, ""); agent.Parse == nil || task.Command[0] != "claude" || task.Secrets["ANTHROPIC_API_KEY"].Reveal() != "v" || task.Env["A"] != "b" {
		t.Errorf("%q %v %v", task.Command, task.Secrets, task.Env)
	}
	s.Environment.Command = []string{"own"}
	if agent := s.start(task, ""); agent.Parse != nil || task.Command[0] != "own" {
		t.Errorf("the environment's command does not win: %q", task.Command)
	}
}

func TestEnvelope(t *testing.T) { // SPEC C6.4
	text := Envelope("deploys", "dlv_1")
	for _, want := range []string{"deploys", "dlv_1", "event-payload.json", "The payload is the request to act on", "untrusted context"} {
		if !strings.Contains(text, want) {
			t.Errorf("the envelope does not say %q:\n%s", want, text)
		}
	}
	s := Spec{Prompt: "\n Only this. \n"}
	if got := s.prompt("", ""); got != "Only this.\n" {
		t.Errorf("prompt %q", got)
	}
}

func TestDemoAgent(t *testing.T) { // SPEC 11
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ payload, hello string }{
		{`{"name":"Ada\nL"}`, "# Hello, Ada\n"},
		{`{"who":"Bo","name":"x"}`, "# Hello, Bo\n"},
		{`[1]`, "# Hello, world\n"},
		{"", "# Hello, world\n"},
		{"{\"title\":\"```\"}", "# Hello, ```\n"},
	} {
		attachments := t.TempDir()
		if tt.payload != "" {
			if err := os.WriteFile(filepath.Join(attachments, PayloadFile), []byte(tt.payload), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out strings.Builder
		err := DemoAgent(strings.NewReader("Greet them.\nNow."), &out, func(name string) string {
			return map[string]string{"TRIPHAMMER_ATTACHMENTS": attachments, "TRIPHAMMER_RUN_ID": "run_1"}[name]
		})
		if err != nil || !strings.Contains(out.String(), "It begins: Greet them.") {
			t.Errorf("%v, said %s", err, out.String())
		}
		got, err := os.ReadFile(greetingFile)
		if err != nil || !strings.HasPrefix(string(got), tt.hello) || !strings.Contains(string(got), "run_1") {
			t.Errorf("%s %v", got, err)
		}
	}
}
