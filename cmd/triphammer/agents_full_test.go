//go:build full

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
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

	budget    string // one that stops it in the middle
	talked    string // one that stops it in the middle of an answer
	unbounded string // the budgets that a warning names, because they do not stop it

	// It loses a conversation that goes on within the minute in which it began.
	forgetful bool

	// What it does not tell.
	noOutput, noFailure, noTokens bool
}

var realAgents = []realAgent{
	{
		name: "claude", harness: "{type: claude, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {ANTHROPIC_BASE_URL: MODEL}\n",
		budget:      "{tokens: 120000}",
		talked:      "{tokens: 200000, usdPerDay: 2}",
	},
	{
		name: "codex", harness: "{type: codex, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {OPENAI_BASE_URL: MODEL/v1}\n",
		budget:      "{tokens: 60000}", unbounded: "turns",
	},
	{
		name: "gemini", harness: "{type: gemini, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {GOOGLE_GEMINI_BASE_URL: MODEL}\n",
		noFailure:   true,
		budget:      "{tokens: 30000}",
	},
	{
		name: "opencode", harness: "{type: opencode, model: loop/m, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {BUN_JSC_useFTLJIT: '0'}\n",
		budget:      "{usd: 1}", unbounded: "turns",
	},
	{
		name: "claude-acp", harness: "{type: acp, command: [claude-agent-acp], auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {ANTHROPIC_BASE_URL: MODEL}\n",
		unbounded:   "turns",
	},
	{
		name: "codex-acp", harness: "{type: acp, command: [codex-acp], auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {CODEX_CONFIG: '{\"openai_base_url\":\"MODEL/v1\"}'}\n",
		unbounded:   "turns",
	},
	{
		name: "gemini-acp", harness: "{type: acp, command: [gemini, --acp, --skip-trust], auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {GOOGLE_GEMINI_BASE_URL: MODEL, GEMINI_CLI_NO_RELAUNCH: 'true'}\n" + geminiSettings,
		forgetful:   true, noOutput: true, noFailure: true,
		unbounded: "turns",
	},
	{
		name: "opencode-acp", harness: "{type: acp, command: [opencode, acp], model: loop/m, auth: {source: managedSecret, secretName: KEY}}", key: "KEY",
		environment: "env: {BUN_JSC_useFTLJIT: '0'}\n",
		noTokens:    true, // those of the last answer alone
		unbounded:   "turns",
	},
}

// opencodeProvider is the configuration of opencode for a model at MODEL.
const opencodeProvider = `{"model":"loop/m","autoupdate":false,"provider":{"loop":{"npm":"@ai-sdk/openai-compatible",` +
	`"options":{"baseURL":"MODEL/v1","apiKey":"{env:LOOP_KEY}"},"models":{"m":{}}}}}`

// opencodeEnvironment keeps opencode from optimizing its code, for which the runs are too short.
const opencodeEnvironment = "env: {BUN_JSC_useFTLJIT: '0', OPENCODE_CONFIG_CONTENT: '" + opencodeProvider + "'}\n"

// geminiSettings say where its credential is, and keep gemini from removing a conversation as
// soon as it has gone on once.
const geminiSettings = "setupCommands: ['mkdir -p ~/.gemini; echo ''{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}," +
	"\"general\":{\"sessionRetention\":{\"enabled\":false}}}'' > ~/.gemini/settings.json']\n"

// installed is a folder with the agents that the user of runs reaches, which need not be true
// of the checkout.
var installed = sync.OnceValues(func() (string, error) {
	from, err := filepath.Abs(filepath.Join(agentsFolder, "node_modules"))
	if err != nil {
		return "", err
	}
	to := filepath.Join(filepath.Dir(binary), "agents")
	const link = `mkdir "$2" && chmod 711 "$(dirname "$2")" && { cp -al "$1" "$2" 2>/dev/null || cp -a "$1" "$2"; }` // copies to another file system
	if out, err := exec.Command("sh", "-c", link, "sh", from, to).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return to, nil
})

// agentsPath is the folder of the agents, and a PATH with them.
func agentsPath(t *testing.T) (folder, path string) {
	t.Helper()
	folder, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	bins := []string{filepath.Join(folder, "node_modules/.bin"), filepath.Join(folder, "node_modules/opencode-linux-x64-baseline/bin")}
	for _, name := range []string{"claude", "codex", "gemini", "claude-agent-acp", "codex-acp", "../opencode-linux-x64-baseline/bin/opencode"} {
		if _, err := os.Stat(filepath.Join(bins[0], name)); err != nil {
			t.Fatalf("the agents are not installed (npm ci --prefix testdata/npm/agents): %v", err)
		}
	}
	return folder, strings.Join(append(bins, os.Getenv("PATH")), ":")
}

// listening is a model that plays scripts, and keeps the requests that have a text: path and body.
type listening struct {
	*httptest.Server
	host string // HOST:PORT
	keep string

	mu     sync.Mutex
	asked  []string
	answer chan struct{} // the requests that are kept get an answer when it is closed
}

// newListening starts a model. It has an address of loopback that programs reach through a
// proxy: they make an exception for 127.0.0.1.
func newListening(t *testing.T, keep string) *listening {
	t.Helper()
	m := &listening{keep: keep, answer: make(chan struct{})}
	m.Server = httptest.NewUnstartedServer(m)
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Listener.Close() // of 127.0.0.1
	m.Listener, m.host = l, l.Addr().String()
	m.Start()
	t.Cleanup(m.Close)
	return m
}

// ServeHTTP implements http.Handler.
func (m *listening) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent was stopped
	}
	if bytes.Contains(body, []byte(m.keep)) {
		m.mu.Lock()
		m.asked = append(m.asked, r.URL.Path+"\n"+string(body))
		answer := m.answer
		m.mu.Unlock()
		select {
		case <-answer:
		case <-r.Context().Done():
			return
		}
	}
	if bytes.Contains(body, []byte(talks)) && r.URL.Path == "/v1/messages" {
		talk(w, r)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	fakemodel.Handler().ServeHTTP(w, r)
}

// talks is a prompt to which Claude's model talks for ever.
const talks = "Talk without end."

// talk is an answer of Claude's model that does not end. It is faster than any model, but not as
// fast as the kernel: in a flood of gigabytes, Claude's program reads without ever telling
// anything, until it loses the connection.
func talk(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind, data string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, data)
	}
	send("message_start", `"message":{"id":"msg_talk","type":"message","role":"assistant","model":"claude-opus-4-8","content":[],"usage":{"input_tokens":1000,"output_tokens":1}}`)
	send("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		send("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"`+strings.Repeat("word ", 200)+`"}`)
		w.(http.Flusher).Flush()
		select {
		case <-pace.C:
		case <-r.Context().Done():
			return
		}
	}
}

// heard tells whether one request had all these texts.
func (m *listening) heard(texts ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.asked, func(body string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
	})
}

// speak forgets the requests, and answers those that come.
func (m *listening) speak() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = nil
	close(m.answer)
}

// walled starts the server with the isolation sandbox and the user of runs that serve
// chooses, and with the agents.
func (w *world) walled(args ...string) { w.walledBy("sandbox", args...) }

func (w *world) walledBy(isolation string, args ...string) {
	w.t.Helper()
	folder, path := agentsPath(w.t.(*testing.T))
	if err := os.Chmod(filepath.Dir(w.dir), 0o711); err != nil {
		w.t.Fatal(err)
	}
	w.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TRIPHAMMER_ISOLATION="+isolation, "TRIPHAMMER_RUN_USER=", "PATH="+path)
	}, append([]string{"--run-read", folder, "--rate-limit", "0"}, args...)...)
}

// agentCase is what the model has each agent do, and what the run must be then.
type agentCase struct {
	name        string
	prompt      string
	automation  string // further lines
	environment string
	key         string // another credential than the right one
	state       string
	message     string // in the status message
	during      func(w *agentsWorld, a realAgent, id string)
	after       func(t *testing.T, a realAgent, r agentRun)
}

// agentRun is a run that has ended.
type agentRun struct {
	api.Run
	events []event.Event
}

// workCase is what the follow-up goes on with.
const workCase = "work"

// startTime is how long an agent may take. On a busy machine, opencode starts in 40 seconds.
const startTime = 3 * time.Minute

// refusedHost is not among those that the runs may reach.
const refusedHost = "elsewhere.example"

var agentCases = []agentCase{
	{
		name: workCase, state: "SUCCEEDED",
		prompt: "MODEL: run curl -sS --max-time 20 https://" + refusedHost + "/\nMODEL: run echo no rule; exit 3\n" +
			"MODEL: run printf 'hello\\n' > greeting.txt; echo did it\nMODEL: say All is done.\n",
		automation: "retry: {attempts: 2, delaySeconds: 1}\nbudget: {usd: 9, tokens: 900000, turns: 90}\n",
		after: func(t *testing.T, a realAgent, r agentRun) {
			refused := r.command(t, refusedHost)
			if !strings.Contains(refused.Output, "403") && !a.noOutput || !refused.Failed && !a.noFailure {
				t.Errorf("a command that reaches for a host that is not listed is told as %+v", refused)
			}
			contact := find(r.events, func(e event.Egress) bool { return e.Host == refusedHost })
			if contact == nil || contact.Allowed || contact.Port != 443 || contact.Reason == "" {
				t.Errorf("the host is told as %+v", contact)
			}
			if c := r.command(t, "exit 3"); !c.Failed && !a.noFailure || c.ExitCode != nil && *c.ExitCode != 3 {
				t.Errorf("a command that fails is told as %+v", c)
			}
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
			var unbounded []string
			for _, e := range r.events {
				switch e := e.(type) {
				case event.Usage:
					used.InputTokens += e.InputTokens
					used.OutputTokens += e.OutputTokens
				case event.Status:
					if what, warned := strings.CutPrefix(e.Message, "warning: budget."); warned {
						unbounded = append(unbounded, what[:strings.Index(what, ":")])
					}
					if e.State == "INPROGRESS" && e.Isolation != "sandbox" {
						t.Errorf("it ran in the isolation %q", e.Isolation)
					}
				}
			}
			// Gemini asks a second model which one the prompt needs.
			if least := int64(4 * fakemodel.InputTokens); used.InputTokens < least && !a.noTokens || used.InputTokens > 2*least {
				t.Errorf("it used %d tokens, and the model says %d", used.InputTokens, least)
			}
			if slices.Sort(unbounded); strings.Join(unbounded, " ") != a.unbounded {
				t.Errorf("it warns of the budgets in %q, not %q", unbounded, a.unbounded)
			}
		},
	},
	{
		name: "cancel", prompt: "MODEL: repeat touch started; sleep 600\n", state: "CANCELLED", message: "while it was in progress",
		during: func(w *agentsWorld, a realAgent, id string) {
			// Not every agent tells that a command has begun.
			err := client.WaitFor(w.t.Context(), startTime, "no command sleeps", func() (bool, error) {
				return strings.Contains(strings.Join(processesOf(id), "\n"), " sleep 600"), nil
			})
			if err != nil {
				w.t.Fatal(err)
			}
			w.hunt(a, id)
			w.run("", "runs", "cancel", id)
		},
	},
	{
		name: "timeout", prompt: "MODEL: wait\n", environment: "timeoutMinutes: 0.1\n", state: "FAILED", message: "the run took longer than its timeout of 6s",
	},
	{
		name: "login", prompt: "MODEL: say Hello\n", key: "wrong", state: "FAILED", message: "credential",
	},
	{
		// It never comes to an end by itself.
		name: budgetCase, prompt: "MODEL: repeat echo again\n", state: "FAILED", message: "budget",
	},
	{
		name: talkCase, prompt: talks + "\n", state: "FAILED", message: "budget",
		after: func(t *testing.T, _ realAgent, r agentRun) {
			// At 25 dollars a million tokens, the budget of the day stops it first.
			if u := r.Usage; u == nil || u.TotalTokens < 20_000 || u.InferenceCostUSD < 0.5 {
				t.Errorf("it used %+v", u)
			}
		},
	},
}

// budgetCase is played by the agents that a budget can stop, and talkCase by those that it
// can stop in the middle of an answer.
const (
	budgetCase = "budget"
	talkCase   = "talk"
)

// plays tells whether the agent plays the case.
func (a realAgent) plays(c agentCase) bool {
	return c.name != budgetCase && c.name != talkCase || a.stops(c) != ""
}

// stops is the budget that stops it in a case.
func (a realAgent) stops(c agentCase) string {
	return map[string]string{budgetCase: a.budget, talkCase: a.talked}[c.name]
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

// agentsWorld is a world whose runs are asked about over HTTP, because a process for each
// question takes more time than the agents do.
type agentsWorld struct {
	world
	hook, key string
	args      []string // of the server
}

// get reads from the API.
func (w *agentsWorld) get(path string, into any) {
	w.t.Helper()
	got := post(w.t, http.MethodGet, "http://"+w.addr+"/api/v1/agent/"+path, nil, http.Header{"Authorization": {"Bearer " + w.key}})
	if err := json.Unmarshal([]byte(got.body), into); err != nil || got.status != http.StatusOK {
		w.t.Fatalf("%s: %+v", path, got)
	}
}

// ended waits for the end of a run, and reads all of it.
func (w *agentsWorld) ended(id string) (r agentRun) {
	w.t.Helper()
	err := client.WaitFor(w.t.Context(), startTime, id+" does not end", func() (bool, error) {
		w.get("runs/"+id, &r.Run)
		return r.FinishedAt != nil, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r.events = w.transcript(id)
	if all, err := json.Marshal(r.events); err != nil || bytes.Contains(all, []byte(fakemodel.Key)) {
		w.t.Errorf("the transcript has the key, %v", err)
	}
	if left := processesOf(id); len(left) > 0 {
		w.t.Errorf("processes of the run are left: %s", strings.Join(left, "\n"))
	}
	return r
}

// TestAgents runs the published agents between walls, each started by a delivery, with a
// model that plays a script and a network of that model alone (SPEC 15.1 to 15.4). Then each
// goes on with the conversation, and the server is killed meanwhile (SPEC 15.5, 9.6).
func TestAgents(t *testing.T) {
	model := newListening(t, secondTurn)
	files := map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n"}
	secrets := map[string]string{"OTHER_KEY": "wrong"}
	for _, a := range realAgents {
		for _, c := range agentCases {
			if !a.plays(c) {
				continue
			}
			name, harness, key := a.name+"-"+c.name, a.harness, a.key
			reach := model.host
			if key == "KEY" {
				reach = "nothing.example" // the gateway reaches the model
			}
			environment := strings.ReplaceAll(a.environment, "MODEL", model.URL) + c.environment + "isolation: sandbox\nnetwork: ['" + reach + "']\n"
			if c.key != "" && key == "KEY" {
				harness, key = strings.Replace(harness, "KEY", "OTHER_KEY", 1), "OTHER_KEY"
			} else if c.key != "" {
				environment = strings.Replace(environment, "env: {", "env: {"+key+": "+c.key+", ", 1)
				key = ""
			}
			if key != "" && !strings.Contains(harness, "auth:") {
				environment += "secrets: [" + key + "]\n"
			}
			if key != "" && key != "OTHER_KEY" {
				secrets[key] = fakemodel.Key
			}
			automation := c.automation
			if b := a.stops(c); b != "" {
				automation += "budget: " + b + "\n"
			}
			files["environments/"+name+".yaml"] = environment
			files["automations/"+name+".md"] = fmt.Sprintf("---\nenvironmentId: %s\nharness: %s\n%striggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {case: [%s]}}}\n---\nDo it.\n\n%s",
				name, harness, automation, name, c.prompt)
		}
	}
	w := &agentsWorld{world: *newWorld(t, files)}
	w.cleanUp()
	t.Cleanup(func() { // before that of the world, which has another copy
		if w.cmd != nil {
			w.kill()
		}
	})
	for name, value := range secrets {
		w.run(value, "secrets", "set", name)
	}
	prices := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(prices, []byte(`[{"models": {"m": {"input": 5, "output": 25, "answer": 2000}}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"--max-runs", "8", "--model-prices", prices, "--model-provider", "loop=" + model.URL + "/v1"}
	w.walled(w.args...)
	w.hook, w.key = w.url("hook"), strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))

	var mu sync.Mutex
	worked := make(map[string]api.Run) // the run of each agent that has worked
	t.Run("first", func(t *testing.T) {
		for _, a := range realAgents {
			for _, c := range agentCases {
				if !a.plays(c) {
					continue
				}
				t.Run(a.name+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					mine := *w // w.t is the test's that it fails
					mine.t = t
					if r := mine.play(t, a, c); c.name == workCase && !t.Failed() {
						mu.Lock()
						worked[a.name] = r
						mu.Unlock()
					}
				})
			}
		}
	})
	w.goOn(model, worked)
}

// secondTurn begins the prompt of a run that goes on.
const secondTurn = "The second turn of "

// goOn has each agent go on with its conversation. While all wait for the model, the server is
// killed. The runs are started again, and know of all that was before.
func (w *agentsWorld) goOn(model *listening, worked map[string]api.Run) {
	t := w.t.(*testing.T)
	knows := func(name string) bool { return model.heard(secondTurn+name+".", "greeting.txt", "All is done.") }
	runs := make(map[string]string)
	for _, a := range realAgents {
		first, ok := worked[a.name]
		if !ok {
			continue
		}
		if a.forgetful {
			err := client.WaitFor(t.Context(), 2*time.Minute, "the minute does not end", func() (bool, error) {
				return time.Now().Truncate(time.Minute).After(*first.StartedAt), nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		text := secondTurn + a.name + ".\nMODEL: run test -f greeting.txt && echo still here\nMODEL: say I went on.\n"
		runs[a.name] = strings.TrimSpace(w.run("", "runs", "followup", first.RunID, "--message", text, "-o", "name"))
	}
	for name, id := range runs {
		err := client.WaitFor(t.Context(), startTime, name+" does not ask the model", func() (bool, error) { return knows(name), nil })
		if err != nil {
			t.Fatalf("%v\n%s", err, w.run("", "runs", "logs", id))
		}
	}
	w.kill()
	for name, id := range runs {
		w.await("the end of "+name, func() bool { return len(processesOf(id)) == 0 })
	}
	model.speak()
	w.walled(w.args...)
	for _, a := range realAgents {
		if runs[a.name] == "" {
			continue
		}
		t.Run("again/"+a.name, func(t *testing.T) {
			mine := *w
			mine.t = t
			r := mine.ended(runs[a.name])
			if r.State != "SUCCEEDED" || r.Attempt != 2 || r.ConversationID != worked[a.name].RunID {
				t.Errorf("attempt %d of %s is %s: %s", r.Attempt, r.ConversationID, r.State, r.StatusMessage)
			}
			if !knows(a.name) {
				t.Error("the model is not told what was before")
			}
			if find(r.events, func(c event.Command) bool {
				return strings.Contains(c.Command, "still here") && !c.Failed && !c.Started
			}) == nil {
				t.Error("the file of the first turn is gone")
			}
			if find(r.events, func(m event.Message) bool { return m.Role == "assistant" && strings.Contains(m.Text, "I went on.") }) == nil {
				t.Error("what it said is not told")
			}
			if t.Failed() {
				t.Log(w.run("", "runs", "logs", r.RunID))
			}
		})
	}
}

// deliver starts the run of an automation that acts on a case of its own name.
func (w *agentsWorld) deliver(automation string) (id string) {
	w.t.Helper()
	got := post(w.t, http.MethodPost, w.hook, strings.NewReader(`{"case":"`+automation+`"}`), http.Header{"Authorization": {"Bearer " + testSecret}})
	if got.status != http.StatusAccepted {
		w.t.Fatalf("%+v", got)
	}
	var list struct{ Runs []api.Run }
	w.await("the run", func() bool {
		w.get("runs?automation="+automation, &list)
		return len(list.Runs) == 1
	})
	return list.Runs[0].RunID
}

// play has one agent do one thing, and returns its run.
func (w *agentsWorld) play(t *testing.T, a realAgent, c agentCase) api.Run {
	id := w.deliver(a.name + "-" + c.name)
	defer func() {
		if t.Failed() { // so that it does not keep the others waiting
			_ = w.command("runs", "cancel", id).Run()
		}
	}()
	if c.during != nil {
		c.during(w, a, id)
	}
	r := w.ended(id)
	if r.State != c.state || !strings.Contains(r.StatusMessage, c.message) {
		t.Errorf("the run is %s: %s", r.State, r.StatusMessage)
	}
	if c.after != nil {
		c.after(t, a, r)
	}
	if t.Failed() {
		t.Log(w.run("", "runs", "logs", id))
	}
	t.Logf("%s: %s in %s", r.State, r.StatusMessage, r.RunTime)
	return r.Run
}
