package factory

import (
	"fmt"
	"slices"
	"strings"

	"triphammer/schema"
)

// Agent is agents/<name>/agent.md.
type Agent struct {
	Name, Path, Description string
	Type                    string // CUSTOM, FOREMAN (MAIN is read as FOREMAN), TRIAGE, …
	Prompt                  string
	Settings                Settings // effective: the agent's own, else those of agentDefaults
}

// Settings can be set by agentDefaults, an agent and an automation. An agent inherits
// settings that it omits from agentDefaults, and an automation from its agent
// (factory/testdata/rules 1.4).
type Settings struct {
	Harness       Harness
	HarnessAt     Position // where a file sets Harness; zero: no file does
	Runner        string
	EnvironmentID string
	Secrets       []string // replaced as a whole, never merged
	WorkerHost    string
	MCPServers    []MCPServer // replaced as a whole, sorted by name
}

// Harness is the agent program that a run starts.
type Harness struct {
	Type           string   `json:"type,omitempty"` // claude, codex, gemini, opencode, acp; oz or empty: the server's default
	Model          string   `json:"model,omitempty"`
	ReasoningLevel string   `json:"reasoning_level,omitempty"`
	AuthSecret     string   `json:"auth_secret,omitempty"` // name of the managed secret
	AuthWorker     bool     `json:"auth_worker,omitempty"` // the credential is in variables of the worker
	Command        []string `json:"command,omitempty"`     // only for the type acp
}

// Position is a place in a definition file.
type Position struct {
	Path string
	schema.At
}

func (l *loader) agent(d *document) *Agent {
	a := &Agent{
		Name: d.name, Path: d.Path, Prompt: d.Body,
		Description: textOf(d.Root.Get("description")),
		Type:        textOf(d.Root.Get("agentType")),
		Settings:    l.settings(d, d.Root, l.factory.Defaults, ""),
	}
	switch a.Type {
	case "":
		a.Type = "CUSTOM"
	case "MAIN":
		a.Type = foreman
	}
	return a
}

// settings overrides the inherited settings with those that n sets.
func (l *loader) settings(d *document, n *schema.Node, base Settings, prefix string) Settings {
	s := base
	model, harness := n.Get("model"), n.Get("harness")
	if harness != nil && (isSet(model) || l.opt.Strict && model != nil) {
		d.Error(n.KeyAt("harness"), schema.InvalidValue, "model: X is short for harness: {type: oz, model: X}; keep one of them", prefix+"model and "+prefix+"harness exclude each other")
	}
	if host := n.Get("workerHost"); host != nil {
		s.WorkerHost = textOf(host) // null and empty clear it
		if s.WorkerHost == TheService {
			s.WorkerHost = ""
		}
	}
	if text := textOf(model); text != "" {
		s.Harness, s.HarnessAt = Harness{Type: "oz", Model: text}, Position{d.Path, model.At}
	}
	if harness != nil && harness.Kind == schema.Mapping {
		l.harness(d, harness, &s, prefix)
	}
	if text := textOf(n.Get("runner")); text != "" {
		s.Runner = text
		if l.factory.Runner(text) == nil {
			l.later(d, n.Get("runner").At, prefix+"runner", kindRunner, text)
		}
	}
	if text := textOf(n.Get("environmentId")); text != "" {
		s.EnvironmentID = text
		if l.environments[text] == nil {
			l.later(d, n.Get("environmentId").At, prefix+"environmentId", kindEnvironment, text)
		}
	}
	if list := n.Get("secrets"); list != nil && list.Kind == schema.List {
		s.Secrets = textsOf(list)
		l.deferSecrets(d, list.At, prefix+"secrets", s.Secrets)
	}
	if servers := n.Get("mcpServers"); servers != nil && servers.Kind == schema.Mapping {
		s.MCPServers = l.mcpServers(d, servers, prefix+"mcpServers")
	}
	return s
}

// TheService is the workerHost that means the same as an empty workerHost.
const TheService = "warp"

// harness overrides the harness in s with the keys that n sets.
func (l *loader) harness(d *document, n *schema.Node, s *Settings, prefix string) {
	// A type or model of null inherits. The whole of a default is checked on its own.
	sets := func(f schema.Field) bool { return f.Value.Kind != schema.Null || f.Key != "type" && f.Key != "model" }
	if !slices.ContainsFunc(n.Fields, sets) && !(l.opt.Strict && prefix == "agentDefaults.") {
		d.Error(n.At, schema.InvalidValue, "set type, model, reasoningLevel or auth, or take the key out", prefix+"harness sets nothing")
		return
	}
	if text := textOf(n.Get("type")); text != "" {
		if l.opt.Strict && slices.Contains(schema.OwnHarnessTypes, text) {
			d.Error(n.Get("type").At, schema.InvalidValue, d.OneOf(text, schema.HarnessTypes), fmt.Sprintf("%sharness.type cannot be %q", prefix, text))
		}
		if text == "claude-code" {
			text = "claude"
		}
		s.Harness.Type, s.HarnessAt = text, Position{d.Path, n.Get("type").At}
	}
	if text := textOf(n.Get("model")); text != "" {
		s.Harness.Model = text
	}
	if level := n.Get("reasoningLevel"); level != nil {
		s.Harness.ReasoningLevel = textOf(level) // null and empty clear it
	}
	auth := n.Get("auth")
	if auth != nil {
		s.Harness.AuthSecret, s.Harness.AuthWorker = "", false
	}
	if auth != nil && auth.Kind == schema.Mapping {
		l.harnessAuth(d, auth, s, prefix)
	}
	if list := n.Get("command"); list != nil {
		s.Harness.Command, s.HarnessAt = wordsOf(list), Position{d.Path, list.At}
	}
	switch is := textOf(n.Get("type")) == "acp"; {
	case l.opt.Strict: // the check of the shape has refused both keys
	case !is && n.Get("command") != nil:
		d.Error(n.KeyAt("command"), schema.InvalidValue, "write type: acp beside it, or take it out", prefix+"harness.command means nothing without type acp")
	case is && n.Get("command") == nil:
		d.Error(n.At, schema.MissingRequired, "add command: [PROGRAM], which starts an agent of the Agent Client Protocol",
			fmt.Sprintf("key %q is missing: type acp needs it", prefix+"harness.command"))
	}
	if s.Harness.Type != "acp" {
		s.Harness.Command = nil // inherited from another type
	}
	if s.Harness.Type != "oz" {
		return
	}
	for _, key := range []string{"auth", "reasoningLevel"} {
		if isSet(n.Get(key)) {
			d.Error(n.KeyAt(key), schema.InvalidValue, "take it out, or set another type", fmt.Sprintf("%sharness.%s means nothing with type oz", prefix, key))
		}
	}
	s.Harness.AuthSecret, s.Harness.AuthWorker, s.Harness.ReasoningLevel = "", false, "" // inherited from another type
}

// isSet tells whether a key is there with a value. A key that is null or an empty
// string sets nothing.
func isSet(n *schema.Node) bool {
	return n != nil && n.Kind != schema.Null && !(n.Kind == schema.String && n.Text == "")
}

func (l *loader) harnessAuth(d *document, auth *schema.Node, s *Settings, prefix string) {
	name := strings.TrimSpace(textOf(auth.Get("secretName")))
	switch textOf(auth.Get("source")) {
	case "managedSecret":
		switch given := auth.Get("secretName"); {
		case given != nil && name == "":
			return // empty, or no string
		case given == nil:
			d.Error(auth.At, schema.MissingRequired, "add secretName: NAME", fmt.Sprintf("key %q is missing: source managedSecret needs it", prefix+"harness.auth.secretName"))
			return
		}
		s.Harness.AuthSecret = name
		l.deferSecrets(d, auth.At, prefix+"harness.auth.secretName", []string{name})
	case "workerEnvironment":
		s.Harness.AuthWorker = true
		if auth.Get("secretName") != nil {
			d.Error(auth.KeyAt("secretName"), schema.InvalidValue, "take it out, or write source: managedSecret", prefix+"harness.auth.secretName means nothing with source workerEnvironment")
		}
		if s.WorkerHost == "" {
			d.Error(auth.At, schema.InvalidValue, "add workerHost: HOST, or write source: managedSecret", prefix+"harness.auth: source workerEnvironment needs a self-hosted workerHost")
		}
	}
}
