package harness

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"triphammer/factory"
	"triphammer/server/run/event"
	"triphammer/server/secret"
)

var update = flag.Bool("update", false, "write the golden files")

// told is the events that a harness's lines make, one a line, as they are stored.
func told(t *testing.T, parse Parser, lines []byte) string {
	t.Helper()
	var b strings.Builder
	for line := range bytes.Lines(append(lines, '\n')) { // the empty line is the end
		line = bytes.TrimSpace(line)
		events, ok := parse(line)
		if !ok && len(line) > 0 {
			b.WriteString("unknown " + string(line) + "\n")
		}
		for _, e := range events {
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(e.Kind() + " " + string(data) + "\n")
		}
	}
	return b.String()
}

// TestTranscripts reads what the real programs printed, with a model of ours behind them
// (SPEC 15.3).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		t.Run(name, func(t *testing.T) {
			lines, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h, _, _ := strings.Cut(name, "-")
			var got string
			synctest.Test(t, func(t *testing.T) { // durations are 0
				got = told(t, Named(h).Start(Request{}).Parse, lines)
			})
			golden := strings.TrimSuffix(file, ".jsonl") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || got != string(want) {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}

// TestStart shows all that each harness is started with (SPEC 15.1, 15.2, 14.8).
func TestStart(t *testing.T) {
	servers := []factory.MCPServer{
		{Name: "local", Command: "serve", Args: []string{"--x", "it's"}, Env: map[string]string{"T": "a'${TOKEN}", "PLAIN": "p"}},
		{Name: "remote", URL: "https://example.com/mcp", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}", "X-Key": "${TOKEN}", "X-Plain": "p"}},
		{Name: "open", Command: "serve", Args: []string{"--token=${TOKEN}"}},
		{Name: "lost", URL: "https://example.com/${NOTHING}"},
	}
	for _, h := range all {
		for name, r := range map[string]Request{
			"bare": {},
			"full": {
				Command: []string{"agent", "--x"}, Model: "unheard-of", ReasoningLevel: "HIGH", MCPServers: servers, Session: "s1",
				Skills: []factory.Skill{{Name: "mine", Files: map[string][]byte{"SKILL.md": []byte("read me")}}},
				Budget: factory.Budget{USD: 1.5, Tokens: 1000, Turns: 7}, Auth: secret.New("key"), AuthName: "KEY",
				Env: map[string]string{"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "IS_SANDBOX": "0"}, Secrets: map[string]secret.Value{"TOKEN": secret.New("t0ken")},
			},
			"trusting": {TrustRepositorySettings: true, ReasoningLevel: "very much", MCPServers: servers[:1], Secrets: map[string]secret.Value{"TOKEN": secret.New("t0ken")}},
		} {
			s := h.Start(r)
			var b strings.Builder
			for _, arg := range s.Command {
				fmt.Fprintf(&b, "argument %q\n", arg)
			}
			for _, name := range slices.Sorted(maps.Keys(s.Env)) {
				fmt.Fprintf(&b, "variable %s=%s\n", name, s.Env[name])
			}
			for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
				fmt.Fprintf(&b, "secret %s=%s\n", name, s.Secrets[name].Reveal())
			}
			for _, to := range s.Services {
				fmt.Fprintf(&b, "service %s at %s, from %s", to.Name, to.URL, to.Secret)
				for _, name := range slices.Sorted(maps.Keys(to.Header)) {
					fmt.Fprintf(&b, ", %s: %s", name, to.Header[name].Reveal())
				}
				b.WriteString("\n")
			}
			for _, n := range s.Notes {
				fmt.Fprintf(&b, "note %s\n", n)
			}
			for _, w := range s.Warnings {
				fmt.Fprintf(&b, "warning %s\n", w)
			}
			for _, f := range s.Files {
				fmt.Fprintf(&b, "file %s\n%s\n", f.Path, f.Data)
			}
			text := b.String()
			for _, to := range s.Services {
				text = strings.ReplaceAll(text, to.Token, "TOKEN-OF-"+strings.ToUpper(to.Name))
			}
			b.Reset()
			b.WriteString(text)
			golden := filepath.Join("testdata", "start-"+h.Name+"-"+name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || b.String() != string(want) {
				t.Errorf("%s: %v\n%s", golden, err, b.String())
			}
		}
	}
}

// TestExplain: what providers say of a model that they do not have is known for what it is.
func TestExplain(t *testing.T) {
	for _, said := range []string{
		"[API Error: models/gemini-9.9-pro is not found for API version v1beta]",
		"status 404: said by the provider",
		"unexpected status 404 Not Found: no such thing, url: https://api.example.com/v1/responses",
	} {
		if text, final := gemini.explain(said); !final || !strings.HasPrefix(text, "the provider does not offer this model") {
			t.Errorf("%s: %s", said, text)
		}
	}
}

// TestCodexResumed: codex tells what a thread has used in all, and the run counts what it
// has used itself.
func TestCodexResumed(t *testing.T) {
	parse := codex.Start(Request{Session: "0a+200+100+84+14"}).Parse
	got := told(t, parse, []byte(`{"type":"thread.started","thread_id":"0a"}
{"type":"turn.completed","usage":{"input_tokens":300,"cached_input_tokens":150,"output_tokens":126,"reasoning_output_tokens":21}}`))
	want := `usage {"input_tokens":100,"cached_tokens":50,"output_tokens":42,"reasoning_tokens":7}
session {"harness":"codex","id":"0a+300+150+126+21"}
result {}
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestResolve(t *testing.T) { // SPEC 15.1
	for _, tt := range []struct {
		asked       factory.Harness
		kind, model string
		warning     string
	}{
		{factory.Harness{}, "claude", "", ""},
		{factory.Harness{Type: "oz", Model: "claude-4-6-opus-high"}, "claude", "claude-4-6-opus-high", ""},
		{factory.Harness{Type: "oz", Model: "gpt-5"}, "claude", "", `the model "gpt-5" is not one of claude`},
		{factory.Harness{Type: "codex", Model: "strange"}, "codex", "strange", ""},
	} {
		got, warning := Resolve(tt.asked, "claude")
		if got.Type != tt.kind || got.Model != tt.model || !strings.HasPrefix(warning, tt.warning) || tt.warning == "" && warning != "" {
			t.Errorf("%+v: %+v, %q", tt.asked, got, warning)
		}
	}
}

func TestSecretsStayOffCommandLines(t *testing.T) { // SPEC 14.7
	for _, name := range Names() {
		s := Named(name).Start(Request{
			Model: "openai/gpt-5", ReasoningLevel: "high", Auth: secret.New("s3cret-key"),
			Secrets: map[string]secret.Value{"TOKEN": secret.New("s3cret-token"), "OPENAI_BASE_URL": secret.New("http://s3cret")},
			MCPServers: []factory.MCPServer{
				{Name: "local", Command: "serve", Args: []string{"--x"}, Env: map[string]string{"T": "a ${TOKEN}"}},
				{Name: "remote", URL: "https://example.com/mcp", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"}},
			},
		})
		if line := strings.Join(s.Command, " "); strings.Contains(line, "s3cret") {
			t.Errorf("%s: %s", name, line)
		}
		for key, value := range s.Env {
			if strings.Contains(value, "s3cret") {
				t.Errorf("%s: %s=%s is not redacted", name, key, value)
			}
		}
	}
}

// FuzzParsers: no line makes a parser fail or what it makes unstorable, and no usage
// decreases.
func FuzzParsers(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		lines, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		for _, name := range Names() {
			parse := Named(name).Start(Request{}).Parse
			for line := range bytes.Lines(lines) {
				events, ok := parse(bytes.TrimSpace(line))
				if !ok && len(events) > 0 {
					t.Errorf("%s: events of an unknown line %q", name, line)
				}
				for _, e := range events {
					data, err := json.Marshal(e)
					if err != nil {
						t.Fatalf("%s: %q: %v", name, line, err)
					}
					if _, err := event.Decode(e.Kind(), data); err != nil {
						t.Errorf("%s: %q: %v", name, line, err)
					}
					if u, ok := e.(event.Usage); ok && (u.InputTokens < 0 || u.CachedTokens < 0 || u.OutputTokens < 0 || u.ReasoningTokens < 0 || u.CostUSD < 0 || u.Turns < 0) {
						t.Errorf("%s: %q: %+v", name, line, u)
					}
				}
			}
		}
	})
}

// TestTested: the version that a failed run names is the one that the tests install.
func TestTested(t *testing.T) {
	data, err := os.ReadFile("../../../testdata/npm/agents/package.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "gemini": "@google/gemini-cli", "opencode": "opencode-linux-x64-baseline"} {
		start := Named(name).Start(Request{})
		version, is := strings.CutPrefix(start.Tested(), name+" ")
		if !is || !strings.Contains(string(data), `"`+of+`": "`+version+`"`) {
			t.Errorf("%s is said to be tested as %q, which is not what testdata/npm/agents installs", name, start.Tested())
		}
	}
}
