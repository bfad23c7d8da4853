package harness

import (
	"encoding/json"

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

func init() { acpAgent.start, acpAgent.parse = startACP, parseACP }

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
	// Agents look for skills in one of these.
	s.skills(".agents/skills", r.Skills)
	s.skills(".claude/skills", r.Skills)
	if !r.Auth.IsZero() {
		s.warn("harness.auth: an agent of type acp gets this secret in the variable of the same name alone: give the secret the name in which the agent looks for its credential")
	}
	if !r.TrustRepositorySettings {
		s.warn("trustRepositorySettings: Triphammer cannot keep an agent of type acp from reading the settings in the repositories that it works on")
	}
	if r.Budget.Turns > 0 {
		s.warn("budget.turns: an agent of type acp does not tell its turns while it works, so a budget in turns cannot stop it: use timeoutMinutes")
	}
	if r.Budget.Tokens > 0 {
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
