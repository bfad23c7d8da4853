package harness

import (
	"cmp"
	"encoding/json"
	"strings"

	"triphammer/server/run/event"
)

// gemini is the Gemini CLI of Google.
var gemini = Harness{
	Name: "gemini", tested: "0.61.0", Sessions: true,
	Variables: []string{"GEMINI_API_KEY"},
	instructs: []string{"GEMINI.md", "AGENTS.md", ".gemini", ".geminiignore", ".env"},
	models:    "gemini-… and auto",
	knows:     prefixed("gemini-", "auto", "pro", "flash", "gemma"),
}

func init() {
	gemini.start, gemini.parse = startGemini, parseGemini
	gemini.ways = func(_ Request, s *Start) []way { return []way{geminiWay(s)} }
}

// geminiWay is also that of gemini as an agent of the Agent Client Protocol.
func geminiWay(s *Start) way {
	w := way{provider: "gemini", keys: gemini.Variables, base: "GOOGLE_GEMINI_BASE_URL"}
	if s.has("GOOGLE_GENAI_USE_VERTEXAI") {
		w.never = "Vertex takes tokens of an hour, which nobody renews here"
	}
	return w
}

func startGemini(r Request, s *Start) {
	s.add("gemini", "-o", "stream-json")
	// Without this, gemini starts itself a second time to have more memory, which takes twice as long.
	s.set("GEMINI_CLI_NO_RELAUNCH", "true")
	if r.Model != "" {
		s.add("-m", r.Model)
	}
	if r.ReasoningLevel != "" {
		s.warn("reasoningLevel %q: gemini has no such setting for a run", r.ReasoningLevel)
	}
	if r.Budget.Tokens > 0 && !s.hasWay() { // the gateway counts
		s.warn("budget.tokens: gemini tells its tokens when it has ended, so a budget in tokens cannot stop it before")
	}
	if r.Budget.USD > 0 && !s.hasWay() {
		s.warn("budget.usd: gemini does not tell what it costs, so a budget in US dollars cannot stop it: use budget.turns")
	}
	if !r.Auth.IsZero() {
		s.Secrets["GEMINI_API_KEY"] = r.Auth
	}
	auth := "gemini-api-key"
	if !s.has("GEMINI_API_KEY") && (s.has("GOOGLE_GENAI_USE_VERTEXAI") || s.has("GOOGLE_CLOUD_PROJECT") || s.has("GOOGLE_API_KEY")) {
		auth = "vertex-ai"
	}
	security := map[string]any{"auth": map[string]any{"selectedType": auth}}
	settings := map[string]any{"security": security}
	if r.TrustRepositorySettings {
		s.add("-y")
		s.Env["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
	} else {
		// Gemini has no unattended mode for a folder that it does not trust. But if it is told not
		// to ask about trust, it works there, and these rules allow the same as -y.
		s.Env["GEMINI_CLI_TRUST_WORKSPACE"] = "false"
		security["folderTrust"] = map[string]any{"enabled": false}
		settings["advanced"] = map[string]any{"ignoreLocalEnv": true}
		settings["experimental"] = map[string]any{"enableAgents": false}
		s.file(".gemini/policies/triphammer.toml", []byte(geminiRules))
		s.file(".gemini/GEMINI.md", []byte(instructions))
		if len(r.MCPServers) > 0 {
			s.warn("mcpServers: gemini starts none in a repository that it does not trust: they are left out unless the environment says trustRepositorySettings: true")
			r.MCPServers = nil
		}
	}
	if len(r.MCPServers) > 0 {
		servers := make(map[string]any, len(r.MCPServers))
		for _, m := range r.MCPServers {
			servers[m.Name] = jsonServer{HTTPURL: m.URL, Headers: m.Headers, Command: m.Command, Args: m.Args, Env: m.Env}
		}
		settings["mcpServers"] = servers
	}
	if r.Budget.Turns > 0 {
		settings["model"] = map[string]any{"maxSessionTurns": r.Budget.Turns}
	}
	data, _ := json.MarshalIndent(settings, "", "  ") // strings always encode
	s.file(".gemini/settings.json", data)
	s.skills(".gemini/skills", r.Skills)
	if r.Session != "" {
		s.add("--resume", r.Session)
	}
}

// geminiRules allow every tool. The rule with a pattern exempts commands from gemini's extra
// checks of Git and of redirections.
const geminiRules = `[[rule]]
toolName = "run_shell_command"
argsPattern = ".*"
decision = "allow"
allowRedirection = true
priority = 999

[[rule]]
toolName = "*"
decision = "allow"
priority = 998
`

type geminiParser struct {
	calls calls
	spent spent
	error string // the last error
}

func parseGemini() Parser {
	p := &geminiParser{calls: make(calls)}
	return p.parse
}

func (p *geminiParser) parse(line []byte) ([]event.Event, bool) {
	var l struct {
		Type    string          `json:"type"`
		Session string          `json:"session_id"`
		Model   string          `json:"model"`
		Role    string          `json:"role"`
		Content text            `json:"content"`
		Tool    string          `json:"tool_name"`
		ID      string          `json:"tool_id"`
		Params  json.RawMessage `json:"parameters"`
		Status  string          `json:"status"`
		Output  text            `json:"output"`
		Message string          `json:"message"`
		Error   struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Stats struct {
			Input  int64 `json:"input_tokens"`
			Cached int64 `json:"cached"`
			Output int64 `json:"output_tokens"`
		} `json:"stats"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "init":
		return append(begun(&gemini, l.Session), event.Status{Message: "gemini started with the model " + l.Model}), true
	case "message":
		if l.Role == "user" {
			return nil, true // it repeats the prompt
		}
		return []event.Event{event.Message{Role: l.Role, Text: string(l.Content)}}, true
	case "tool_use":
		var input struct {
			Command string `json:"command"`
		}
		if l.Tool == "run_shell_command" {
			_ = json.Unmarshal(l.Params, &input)
		}
		return []event.Event{p.calls.start(l.ID, l.Tool, input.Command, l.Params)}, true
	case "tool_result":
		output := string(l.Output)
		if output == "" {
			output = l.Error.Message
		}
		return []event.Event{p.calls.end(l.ID, outcome{name: "tool", failed: l.Status == "error", output: output})}, true
	case "error":
		p.error = l.Message
		return []event.Event{event.Status{Message: "gemini: " + l.Message}}, true
	case "result":
		events := p.spent.upTo(event.Usage{InputTokens: l.Stats.Input, CachedTokens: l.Stats.Cached, OutputTokens: l.Stats.Output})
		r := event.Result{}
		if stuck := strings.HasPrefix(p.error, "Loop detected"); stuck || l.Status != "success" { // it calls that a success
			r = gemini.failure(strings.TrimSuffix("gemini: "+cmp.Or(l.Error.Message, p.error), ": "), 0)
		}
		return append(events, r), true
	}
	return nil, false
}
