//go:build full

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/run/event"
	"triphammer/server/run/fakemodel"
)

// notesServer is a server of the Model Context Protocol with one tool.
const notesServer = `import readline from "node:readline";

const send = (m) => console.log(JSON.stringify({ jsonrpc: "2.0", ...m }));
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue; // nobody waits for an answer
  if (method === "initialize") {
    send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "notes", version: "1" } } });
  } else if (method === "tools/list") {
    const inputSchema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
    send({ id, result: { tools: [{ name: "remember", description: "Keep a note", inputSchema }] } });
  } else if (method === "tools/call") {
    const text = "noted " + params.arguments.text + " with a token of " + process.env.NOTES_TOKEN.length + " characters";
    send({ id, result: { content: [{ type: "text", text }] } });
  } else if (method === "ping") {
    send({ id, result: {} });
  } else {
    send({ id, error: { code: -32601, message: "no such method" } });
  }
}
`

// wholeTree has everything that trees elsewhere have, for one automation each of the agents.
var wholeTree = map[string]string{
	"factory.yaml": `schemaVersion: v1alpha1
name: Whole
repositories: [{owner: acme, name: app}]
codeForges: [GITHUB]
mcpServers:
  notes: {command: node, args: [TOOLS/notes.mjs], env: {NOTES_TOKEN: "${NOTES_TOKEN}"}}
agentDefaults: {model: opus, secrets: [NOTES_TOKEN, ANTHROPIC_API_KEY, CODEX_API_KEY, GEMINI_API_KEY, LOOP_KEY, KEY]}
`,
	"webhooks/hook.yaml":                 "secretName: S\n",
	"skills/deploy/SKILL.md":             "---\nname: deploy\ndescription: How to deploy with the left hand\n---\nDeploy with care.\n",
	"agents/lead/agent.md":               "---\nagentType: FOREMAN\nrunner: small\n---\nYou lead the works at the river.\n",
	"agents/lead/skills/review/SKILL.md": "---\nname: review\ndescription: How to review by candlelight\n---\nReview with care.\n",
	"runners/small.yaml":                 "platform: {linux: {dockerImage: debian}}\nsetupCommands: [echo the runner was here >> setup.txt]\n",
}

// wholeAgents are the agents with what an automation says of each.
var wholeAgents = []struct {
	name     string   // of realAgents
	settings string   // of the automation; none: the default harness, with the model of the tree
	trust    bool     // gemini starts no MCP servers without
	asked    []string // the model is asked with these
}{
	{name: "claude", asked: []string{`"model":"claude-opus-`}},
	{
		name: "claude", settings: "harness: {type: claude, model: sonnet, reasoningLevel: high, auth: {source: managedSecret, secretName: KEY}}",
		asked: []string{`"model":"claude-sonnet-`, `"effort":"high"`},
	},
	{
		name: "codex", settings: "harness: {type: codex, model: gpt-5-codex, reasoningLevel: high, auth: {source: managedSecret, secretName: KEY}}",
		asked: []string{`"model":"gpt-5-codex"`, `"effort":"high"`},
	},
	{
		name: "gemini", settings: "harness: {type: gemini, model: gemini-2.5-pro, auth: {source: managedSecret, secretName: KEY}}", trust: true,
		asked: []string{"/models/gemini-2.5-pro:"},
	},
	{name: "opencode", settings: "harness: {type: opencode, model: loop/m, reasoningLevel: high}", asked: []string{`"model":"m"`, `"reasoning_effort":"high"`}},
	{
		name: "claude-acp", settings: "harness: {type: acp, command: [claude-agent-acp], model: sonnet, reasoningLevel: high}",
		asked: []string{`"model":"claude-sonnet-`, `"effort":"high"`},
	},
	{
		name: "codex-acp", settings: "harness: {type: acp, command: [codex-acp], model: gpt-6-sol, reasoningLevel: high}",
		asked: []string{`"model":"gpt-6-sol"`, `"effort":"high"`},
	},
	{
		name: "gemini-acp", settings: "harness: {type: acp, command: [gemini, --acp, --skip-trust], model: gemini-2.5-pro}",
		asked: []string{"/models/gemini-2.5-pro:"},
	},
	{name: "opencode-acp", settings: "harness: {type: acp, command: [opencode, acp], model: loop/m}", asked: []string{`"model":"m"`}},
}

// environmentOf is the environment of an agent. Models of opencode have levels in settings alone that
// keep it from its gateway.
func environmentOf(agent string) string {
	if strings.HasPrefix(agent, "opencode") {
		return opencodeEnvironment
	}
	return agentNamed(agent).environment
}

func agentNamed(name string) realAgent {
	return realAgents[slices.IndexFunc(realAgents, func(a realAgent) bool { return a.name == name })]
}

// TestWholeTree runs the published agents on a tree with everything of a real one, and each
// part of the tree acts (SPEC 15.1, 15.2).
func TestWholeTree(t *testing.T) {
	model := newListening(t, "")
	model.speak()
	tools := openDir(t)
	if err := os.WriteFile(filepath.Join(tools, "notes.mjs"), []byte(notesServer), 0o644); err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for name, text := range wholeTree {
		files[name] = strings.ReplaceAll(text, "TOOLS", tools)
	}
	for i, a := range wholeAgents {
		name := fmt.Sprint(a.name, i)
		// A model of opencode has levels if it is said to reason.
		environment := strings.NewReplacer("MODEL", model.URL, `"m":{}`, `"m":{"reasoning":true}`).Replace(environmentOf(a.name))
		files["environments/"+name+".yaml"] = environment +
			fmt.Sprintf("isolation: sandbox\nnetwork: ['%s']\ntrustRepositorySettings: %t\n", model.host, a.trust)
		files["automations/"+name+".md"] = fmt.Sprintf("---\nenvironmentId: %s\n%s\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {case: [%s]}}}\n---\nThis is for %s.\n\n"+
			"MODEL: run cat README.md setup.txt ../setup.txt\nMODEL: call remember {\"text\":\"forty-two\"}\nMODEL: say All is done.\n", name, a.settings, name, name)
	}
	w := &agentsWorld{world: *newWorld(t, files)}
	w.cleanUp()
	t.Cleanup(func() {
		if w.cmd != nil {
			w.kill()
		}
		if t.Failed() {
			t.Log(w.logs)
		}
	})
	forge := filepath.Join(tools, "forge")
	w.git("init", "-q", "--initial-branch=main", forge+"/acme/app.git")
	if err := os.WriteFile(forge+"/acme/app.git/README.md", []byte("This is the app.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("-C", forge+"/acme/app.git", "add", "-A")
	w.git("-C", forge+"/acme/app.git", "commit", "-q", "-m", "First")
	for _, name := range []string{"ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "LOOP_KEY", "KEY"} {
		w.run(fakemodel.Key, "secrets", "set", name)
	}
	w.run("thirteen-long", "secrets", "set", "NOTES_TOKEN")
	w.walled("--max-runs", "8", "--run-read", tools, "--code-forges", "GITHUB=file://"+forge)
	w.hook, w.key = w.url("hook"), strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	for i, a := range wholeAgents {
		name := fmt.Sprint(a.name, i)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := *w
			mine.t = t
			r := mine.ended(mine.deliver(name))
			if r.State != "SUCCEEDED" {
				t.Errorf("the run is %s: %s", r.State, r.StatusMessage)
			}
			printed := mine.run("", "runs", "logs", r.RunID, "--full")
			for _, text := range []string{"This is the app.", "the runner was here"} {
				if !strings.Contains(printed, text) && !agentNamed(a.name).noOutput {
					t.Errorf("no command prints %q", text)
				}
			}
			if !strings.Contains(printed, "warning: the image debian is not used") {
				t.Error("nobody is told that there are no containers")
			}
			if find(r.events, func(c event.Tool) bool {
				return strings.Contains(c.Output, "noted forty-two with a token of 13 characters") && !c.Failed
			}) == nil {
				t.Error("the tool of the MCP server is not called")
			}
			for _, text := range append([]string{"You lead the works at the river.", "How to deploy with the left hand", "How to review by candlelight"}, a.asked...) {
				if !model.heard("This is for "+name+".", text) {
					t.Errorf("the model is not asked with %s", text)
				}
			}
			if t.Failed() {
				t.Log(printed)
			}
		})
	}
}
