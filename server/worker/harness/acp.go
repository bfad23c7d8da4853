package harness

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"triphammer/server/inside/acp"
	"triphammer/server/run/event"
)

// acpAgent is any agent of the Agent Client Protocol. The agent itself tells whether it keeps
// its conversations; only then is there an event.Session.
var acpAgent = Harness{
	Name: "acp", Sessions: true,
	// What else agents that are known to speak the protocol read.
	instructs: []string{
		"AGENT.md", ".cursor", ".cursorrules", ".cursorignore", ".windsurf", ".windsurfrules", ".clinerules", ".roo", ".roorules", ".kiro", ".goosehints", ".warp", "WARP.md",
		".qwen", "QWEN.md", ".aider.conf.yml", ".continue", ".augment", ".junie", ".copilot", "copilot-instructions.md",
	},
	models: "those of the agent",
	knows:  func(string) bool { return true },
}

func init() {
	acpAgent.start, acpAgent.parse = startACP, parseACP
	acpAgent.ways = acpWays
}

// acpWays are the models of the agents that are known to find the address in a variable, or in settings.
// Of another agent, the environment says so: it sets the variable.
func acpWays(r Request, s *Start) []way {
	runs := func(name string) bool {
		return slices.ContainsFunc(r.Command, func(word string) bool {
			program, _, _ := strings.Cut(path.Base(word), "@") // a version
			return program == name
		})
	}
	switch {
	case runs("claude-agent-acp"), runs("claude-code-acp"):
		return []way{claudeWay(s)}
	case runs("gemini"):
		return []way{geminiWay(s)}
	case runs("codex-acp"):
		w := codexWay
		w.json, w.base = "openai_base_url", "CODEX_CONFIG"
		return []way{w}
	case runs("opencode"), runs("opencode-ai"):
		return opencodeWays(r, s)
	}
	for _, w := range []way{claudeWay(s), codexWay, geminiWay(s)} {
		if s.lookup(w.base) == "" {
			continue
		}
		if r.AuthName != "" { // the variable in which the agent looks for its key
			w.keys = append([]string{r.AuthName}, w.keys...)
		}
		return []way{w}
	}
	return nil
}

func startACP(r Request, s *Start) {
	if len(r.Command) > 0 {
		s.Program = r.Command[0]
	}
	s.Command = acp.Options{Model: r.Model, Reasoning: r.ReasoningLevel, Session: r.Session, Servers: len(r.MCPServers) > 0}.Args(r.Command)
	// Without this, some agents refuse to work unattended as root.
	s.set("IS_SANDBOX", "1")
	if len(r.MCPServers) > 0 {
		data, _ := json.MarshalIndent(r.MCPServers, "", "  ") // strings always encode
		s.file(acp.ServersFile, data)
	}
	if slices.ContainsFunc(acpWays(r, s), way.inSettings) && s.hasWay() {
		r.MCPServers = nil // the protocol has them
		s.file(".config/opencode/opencode.json", opencodeConfig(r, s))
	}
	// Agents look for skills in one of these.
	s.skills(".agents/skills", r.Skills)
	s.skills(".claude/skills", r.Skills)
	if r.AuthName != "" && len(acpWays(r, s)) == 0 {
		s.warn("harness.auth: an agent of type acp gets this secret in the variable of the same name alone: give the secret the name in which the agent looks for its credential; if it also reads the address of its model in ANTHROPIC_BASE_URL, OPENAI_BASE_URL or GOOGLE_GEMINI_BASE_URL, set that in the environment, and the key stays outside")
	}
	if !r.TrustRepositorySettings {
		s.warn("trustRepositorySettings: Triphammer cannot keep an agent of type acp from reading the settings in the repositories that it works on")
	}
	if r.Budget.Turns > 0 {
		s.warn("budget.turns: an agent of type acp does not tell its turns while it works, so a budget in turns cannot stop it: use timeoutMinutes")
	}
	if r.Budget.Tokens > 0 && !s.hasWay() { // the gateway counts
		s.warn("budget.tokens: an agent of type acp tells its tokens when it has ended, so a budget in tokens cannot stop it: use timeoutMinutes")
	}
}

func parseACP() Parser {
	return func(line []byte) ([]event.Event, bool) {
		events, ok := acp.Read(line)
		for i, e := range events {
			if r, is := e.(event.Result); is && r.Failed {
				events[i] = acpAgent.failure(r.Message, r.Turns)
			}
		}
		return events, ok
	}
}
