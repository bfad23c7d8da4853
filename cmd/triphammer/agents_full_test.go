//go:build full

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/run/fakemodel"
)

// agentsFolder is where .ci/run installs the agents.
const agentsFolder = "../../testdata/npm/agents"

// realAgent is a published coding agent, and what a definition says to start it with the
// model of the test.
type realAgent struct {
	name        string
	harness     string // of the definition
	environment string // its lines, with MODEL for the URL of the model
	key         string // name of the secret that holds its credential

	// What it does not tell.
	noOutput, noFailure, noTokens bool
}

var realAgents = []realAgent{
	{
		name: "claude", harness: "{type: claude, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {ANTHROPIC_BASE_URL: MODEL}\n",
	},
	{
		name: "codex", harness: "{type: codex, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {OPENAI_BASE_URL: MODEL/v1}\n",
	},
	{
		name: "gemini", harness: "{type: gemini, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {GOOGLE_GEMINI_BASE_URL: MODEL}\n",
		noFailure:   true,
	},
	{
		name: "opencode", harness: "{type: opencode, model: loop/m}", key: "LOOP_KEY",
		environment: "env: {OPENCODE_CONFIG_CONTENT: '" + opencodeProvider + "'}\n",
	},
	{
		name: "claude-acp", harness: "{type: acp, command: [claude-agent-acp]}", key: "ANTHROPIC_API_KEY",
		environment: "env: {ANTHROPIC_BASE_URL: MODEL}\n",
	},
	{
		name: "codex-acp", harness: "{type: acp, command: [codex-acp]}", key: "CODEX_API_KEY",
		environment: "env: {CODEX_CONFIG: '{\"openai_base_url\":\"MODEL/v1\"}'}\n",
	},
	{
		name: "gemini-acp", harness: "{type: acp, command: [gemini, --acp, --skip-trust]}", key: "GEMINI_API_KEY",
		environment: "env: {GOOGLE_GEMINI_BASE_URL: MODEL}\n" + geminiSettings,
		noOutput:    true, noFailure: true,
	},
	{
		name: "opencode-acp", harness: "{type: acp, command: [opencode, acp]}", key: "LOOP_KEY",
		environment: "env: {OPENCODE_CONFIG_CONTENT: '" + opencodeProvider + "'}\n",
		noTokens:    true, // those of the last answer alone
	},
}

const geminiSettings = "setupCommands: ['mkdir -p ~/.gemini; echo ''{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}'' > ~/.gemini/settings.json']\n"

func agentsFolderOf(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(agentsFolder)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// agentsPath is a PATH with the agents.
func agentsPath(t *testing.T) string {
	t.Helper()
	folder := agentsFolderOf(t)
	bins := []string{filepath.Join(folder, "node_modules/.bin"), filepath.Join(folder, "node_modules/opencode-linux-x64-baseline/bin")}
	for _, name := range []string{"claude", "codex", "gemini", "claude-agent-acp", "codex-acp", "../opencode-linux-x64-baseline/bin/opencode"} {
		if _, err := os.Stat(filepath.Join(bins[0], name)); err != nil {
			t.Fatalf("the agents are not installed (npm ci --prefix testdata/npm/agents): %v", err)
		}
	}
	return strings.Join(append(bins, os.Getenv("PATH")), ":")
}

// agentCase is what the model has each agent do, and what the run must be then.
type agentCase struct {
	name        string
	prompt      string
	automation  string // further lines
	environment string
	key         string // another credential than the right one
	only        string // for the agents with such a name
	state       string
	message     string // in the status message
	during      func(w *world, id string)
	after       func(t *testing.T, a realAgent, r agentRun)
}

// agentRun is a run that has ended.
type agentRun struct {
	api.Run
	events []event.Event
}

var agentCases = []agentCase{
	{
		name: "change", prompt: "MODEL: run printf 'hello\\n' > greeting.txt; echo did it\nMODEL: say All is done.\n", state: "SUCCEEDED",
		after: func(t *testing.T, a realAgent, r agentRun) {
			c := r.command(t, "greeting.txt")
			if strings.TrimSpace(c.Output) != "did it" && !a.noOutput || c.Failed {
				t.Errorf("the command is told as %+v", c)
			}
			file := find(r.events, func(f event.File) bool { return f.Path == "greeting.txt" })
			if file == nil || file.Change != event.FileCreated || !strings.Contains(file.Diff, "+hello") {
				t.Errorf("the file that it made is told as %+v", file)
			}
			if find(r.events, func(m event.Message) bool { return m.Role == "assistant" && strings.Contains(m.Text, "All is done.") }) == nil {
				t.Error("what it said is not told")
			}
			var used event.Usage
			for _, e := range r.events {
				if u, ok := e.(event.Usage); ok {
					used.InputTokens += u.InputTokens
					used.OutputTokens += u.OutputTokens
				}
			}
			// Gemini asks a second model which one the prompt needs.
			if least := int64(2 * fakemodel.InputTokens); used.InputTokens < least && !a.noTokens || used.InputTokens > 2*least {
				t.Errorf("it used %d tokens, and the model says %d", used.InputTokens, least)
			}
		},
	},
	{
		name: "failure", prompt: "MODEL: run echo no rule; exit 3\nMODEL: say It does not work.\n", state: "SUCCEEDED",
		after: func(t *testing.T, a realAgent, r agentRun) {
			if c := r.command(t, "exit 3"); !c.Failed && !a.noFailure || c.ExitCode != nil && *c.ExitCode != 3 {
				t.Errorf("a command that fails is told as %+v", c)
			}
		},
	},
	{
		name: "cancel", prompt: "MODEL: repeat touch started; sleep 600\n", state: "CANCELLED", message: "cancelled while it was in progress",
		during: func(w *world, id string) {
			// Not every agent tells that a command has begun.
			w.await("the command", func() bool { return strings.Contains(strings.Join(processesOf(id), "\n"), " sleep 600") })
			w.run("", "runs", "cancel", id)
		},
	},
	{
		name: "timeout", prompt: "MODEL: wait\n", environment: "timeoutMinutes: 0.1\n", state: "FAILED", message: "the run took longer than its timeout of 6s",
	},
	{
		name: "login", prompt: "MODEL: say Hello\n", key: "wrong", state: "FAILED", message: "credential",
	},
}

// find is the first event of a type that is so, or nil.
func find[E event.Event](events []event.Event, is func(E) bool) *E {
	for _, e := range events {
		if x, ok := e.(E); ok && is(x) {
			return &x
		}
	}
	return nil
}

// command is the end of the command that has the text.
func (r agentRun) command(t *testing.T, text string) event.Command {
	t.Helper()
	c := find(r.events, func(c event.Command) bool { return !c.Started && strings.Contains(c.Command, text) })
	if c == nil {
		t.Fatalf("no command has %q", text)
	}
	return *c
}

// transcript is what is known of a run.
func (w *world) transcript(id string) []event.Event {
	w.t.Helper()
	var all api.Transcript
	w.list(&all, "runs", "logs", id)
	events := make([]event.Event, len(all.Events))
	for i, e := range all.Events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		events[i] = decoded
	}
	return events
}

// processesOf are the processes of a run.
func processesOf(id string) (all []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, err := os.ReadFile(filepath.Join(folder, "environ"))
		if err == nil && bytes.Contains(env, []byte(id)) {
			line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
			all = append(all, filepath.Base(folder)+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// TestAgents runs the published agents, each started by a delivery, with a model that plays
// a script (SPEC 15.1 to 15.3).
func TestAgents(t *testing.T) {
	path := agentsPath(t)
	model := httptest.NewServer(fakemodel.Handler())
	t.Cleanup(model.Close)
	files := map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n"}
	secrets := make(map[string]string)
	for _, a := range realAgents {
		for _, c := range agentCases {
			if !strings.Contains(a.name, c.only) {
				continue
			}
			name, harness, key := a.name+"-"+c.name, a.harness, a.key
			environment := strings.ReplaceAll(a.environment, "MODEL", model.URL) + c.environment
			if c.key != "" && key == "KEY" {
				harness, key = strings.Replace(harness, "KEY", "OTHER_KEY", 1), "OTHER_KEY"
			} else if c.key != "" {
				environment = strings.Replace(environment, "env: {", "env: {"+key+": "+c.key+", ", 1)
				key = ""
			}
			if key != "" {
				environment += "secrets: [" + key + "]\n"
				secrets[key] = fakemodel.Key
			}
			files["environments/"+name+".yaml"] = environment
			files["automations/"+name+".md"] = fmt.Sprintf("---\nenvironmentId: %s\nharness: %s\n%striggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {case: [%s]}}}\n---\nDo it.\n\n%s",
				name, harness, c.automation, name, c.prompt)
		}
	}
	secrets["OTHER_KEY"] = "wrong"
	w := newWorld(t, files)
	for name, value := range secrets {
		w.run(value, "secrets", "set", name)
	}
	t.Setenv("PATH", path)
	w.start("--rate-limit", "0", "--max-runs", "4")
	for _, a := range realAgents {
		for _, c := range agentCases {
			if strings.Contains(a.name, c.only) {
				t.Run(a.name+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					mine := *w // w.t is the test's that it fails
					mine.t = t
					mine.play(t, a, c)
				})
			}
		}
	}
}

// TestDoctorTries has doctor try the published agents, between walls (SPEC 15.8).
func TestDoctorTries(t *testing.T) {
	// The checkout may be in a folder that the user of runs does not reach.
	agents, was := openDir(t), agentsFolderOf(t)
	const link = `cp -al "$1" "$2" 2>/dev/null || cp -a "$1" "$2"` // copies if the folders are on two file systems
	if out, err := exec.Command("sh", "-c", link, "sh", filepath.Join(was, "node_modules"), agents).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := strings.ReplaceAll(agentsPath(t), was, agents)
	cmd := exec.Command(binary, "doctor", "--try", "--run-read", agents)
	cmd.Env = append(environment(t.TempDir()), "PATH="+path)
	out, err := cmd.CombinedOutput()
	for _, name := range defaultHarnesses() {
		if !regexp.MustCompile("(?m)^ok +" + name + " +answers").Match(out) {
			t.Errorf("%s does not answer", name)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, out)
	}
}

// play has one agent do one thing.
func (w *world) play(t *testing.T, a realAgent, c agentCase) {
	began := time.Now()
	name := a.name + "-" + c.name
	w.deliver("hook", `{"case":"`+name+`"}`)
	var runs []api.Run
	w.await("the run", func() bool { runs = w.runsOf(name); return len(runs) == 1 })
	id := runs[0].RunID
	defer func() {
		if t.Failed() { // so that it does not keep the others waiting
			_ = w.command("runs", "cancel", id).Run()
		}
	}()
	if c.during != nil {
		c.during(w, id)
	}
	r := agentRun{}
	err := waitFor(t.Context(), 2*time.Minute, name+" does not end", func() (bool, error) {
		return json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r.Run) == nil && r.FinishedAt != nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.events = w.transcript(id)
	if r.State != c.state || !strings.Contains(r.StatusMessage, c.message) {
		t.Errorf("the run is %s: %s", r.State, r.StatusMessage)
	}
	if left := processesOf(id); len(left) > 0 {
		t.Errorf("processes of the run are left: %s", strings.Join(left, "\n"))
	}
	if c.after != nil {
		c.after(t, a, r)
	}
	if t.Failed() {
		t.Log(w.run("", "runs", "logs", id))
	}
	t.Logf("%s: %s in %s", r.State, r.StatusMessage, time.Since(began).Round(100*time.Millisecond))
}
