package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"triphammer/server/run/event"
)

// opencode is opencode.
var opencode = Harness{
	Name: "opencode", tested: "1.18.33", Sessions: true,
	Variables: []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY", "OPENCODE_API_KEY"},
	instructs: []string{"AGENTS.md", "CLAUDE.md", "CONTEXT.md", "opencode.json", "opencode.jsonc", ".opencode"},
	models:    "PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5",
	knows:     func(model string) bool { return strings.Contains(model, "/") },
}

func init() {
	opencode.start, opencode.parse = startOpencode, parseOpencode
	opencode.ways = opencodeWays
}

// opencodeWays is the model that opencode is told to use. It takes addresses from settings alone.
func opencodeWays(r Request, s *Start) []way {
	id, _, _ := strings.Cut(r.Model, "/")
	w := way{provider: id, keys: []string{providers[id]}, login: func(key string) bool { return strings.HasPrefix(strings.TrimSpace(key), "{") }}
	switch {
	case id == "google":
		w.provider = "gemini"
	case providers[id] == "" && r.Providers[id] != "":
		w.keys = []string{opencodeKey}
	case id == "" || defaultAddress(id) == "":
		return nil
	}
	for _, name := range []string{"OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT"} {
		if s.has(name) {
			w.never = name + " may give opencode another address"
		}
	}
	return []way{w}
}

// opencodeKey is the variable with the key for a provider of the operator.
const opencodeKey = "TRIPHAMMER_MODEL_KEY"

// providers are the variables in which opencode looks for the credential of a provider.
var providers = map[string]string{
	"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "google": "GOOGLE_GENERATIVE_AI_API_KEY",
	"openrouter": "OPENROUTER_API_KEY", "opencode": "OPENCODE_API_KEY",
}

func startOpencode(r Request, s *Start) {
	if !r.TrustRepositorySettings {
		s.Env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
		s.file(".config/opencode/AGENTS.md", []byte(instructions))
		s.add("/bin/sh", "-c", opencodeGuard, "opencode")
	}
	s.Program = "opencode"
	s.add(s.Program, "run", "--format", "json", "--thinking", "--auto")
	if r.Model != "" {
		s.add("-m", r.Model)
	}
	if r.ReasoningLevel != "" {
		s.add("--variant", strings.ToLower(r.ReasoningLevel))
	}
	if r.Budget.Turns > 0 {
		s.warn("budget.turns: opencode has no such limit, so the server stops it when it has used them")
	}
	if auth := r.Auth.Reveal(); auth != "" {
		provider, _, _ := strings.Cut(r.Model, "/")
		if strings.HasPrefix(strings.TrimSpace(auth), "{") { // the file of its logins
			s.Secrets["OPENCODE_AUTH_CONTENT"] = r.Auth
		} else if s.hasWay() {
			// The settings name the variable.
		} else if name, known := providers[provider]; known {
			s.Secrets[name] = r.Auth
		} else {
			s.warn("harness.auth: opencode has no variable for the credential of %q: store an auth.json of opencode as the secret instead", provider)
		}
	}
	if len(r.MCPServers) > 0 || s.hasWay() {
		s.file(".config/opencode/opencode.json", opencodeConfig(r, s))
	}
	s.skills(".config/opencode/skills", r.Skills)
	if r.Session != "" {
		s.add("--session", r.Session)
	}
}

// opencodeGuard starts opencode only if the repository has no settings for it, because opencode
// always runs the plugins that they name.
const opencodeGuard = `for f in opencode.json opencode.jsonc .opencode; do
	if [ -e "$f" ] || [ -L "$f" ]; then
		echo "the repository has settings of its own for opencode ($f), and opencode runs their plugins even if it is told not to: remove them, or say trustRepositorySettings: true in the environment" >&2
		exit 78
	fi
done
exec "$@"`

func opencodeConfig(r Request, s *Start) []byte {
	reference := func(name string) string { return "{env:" + name + "}" }
	servers := make(map[string]any, len(r.MCPServers))
	for _, m := range r.MCPServers {
		if m.URL != "" {
			servers[m.Name] = map[string]any{"type": "remote", "url": rewrite(m.URL, reference), "headers": rewriteAll(m.Headers, reference), "oauth": false}
		} else {
			servers[m.Name] = map[string]any{"type": "local", "command": append([]string{m.Command}, m.Args...), "environment": rewriteAll(m.Env, reference)}
		}
	}
	config := map[string]any{"mcp": servers}
	for _, to := range s.Services {
		if to.Provider == "" {
			continue
		}
		id, model, _ := strings.Cut(r.Model, "/")
		version := map[string]string{"anthropic": "/v1", "google": "/v1beta"}[id] // that the others have in their addresses
		own := map[string]any{"options": map[string]any{"baseURL": to.Address() + version, "apiKey": "{env:" + cmp.Or(providers[id], opencodeKey) + "}"}}
		if providers[id] == "" {
			own["npm"], own["models"] = "@ai-sdk/openai-compatible", map[string]any{model: map[string]any{}}
		}
		config["provider"] = map[string]any{id: own}
	}
	data, _ := json.MarshalIndent(config, "", "  ") // strings always encode
	return data
}

type opencodeParser struct {
	calls   calls
	spent   spent
	session string
	failed  *event.Result
	turns   int64
	empty   int // number of empty answers in a row
}

// opencodeEmpty is how many empty answers end the run. opencode itself asks again for ever.
const opencodeEmpty = 5

func parseOpencode() Parser {
	p := &opencodeParser{calls: make(calls)}
	return p.parse
}

// opencodeLine is a line of `opencode run --format json`.
type opencodeLine struct {
	Type    string `json:"type"`
	Session string `json:"sessionID"`
	Error   struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  int    `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
	Part struct {
		Text   string `json:"text"`
		Tool   string `json:"tool"`
		CallID string `json:"callID"`
		Reason string `json:"reason"`
		State  struct {
			Status   string          `json:"status"`
			Input    json.RawMessage `json:"input"`
			Output   text            `json:"output"`
			Error    string          `json:"error"`
			Metadata struct {
				Exit *int `json:"exit"`
			} `json:"metadata"`
			Time struct {
				Start int64 `json:"start"`
				End   int64 `json:"end"`
			} `json:"time"`
		} `json:"state"`
		Cost   float64 `json:"cost"`
		Tokens struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	} `json:"part"`
}

func (p *opencodeParser) parse(line []byte) ([]event.Event, bool) {
	var l opencodeLine
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	var events []event.Event
	if l.Session != "" && l.Session != p.session {
		p.session = l.Session
		events = append(events, event.Session{Harness: opencode.Name, ID: l.Session})
	}
	switch part := l.Part; l.Type {
	case "step_start":
		return events, true
	case "text":
		return append(events, event.Message{Role: "assistant", Text: part.Text}), true
	case "reasoning":
		return append(events, event.Message{Role: "reasoning", Text: part.Text}), true
	case "tool_use": // comes when the use has ended
		o := outcome{name: part.Tool, exit: part.State.Metadata.Exit, failed: part.State.Status == "error", output: string(part.State.Output)}
		if o.output == "" {
			o.output = part.State.Error
		}
		took := max(0, part.State.Time.End-part.State.Time.Start)
		var input struct {
			Command string `json:"command"`
		}
		if part.Tool == "bash" && json.Unmarshal(part.State.Input, &input) == nil && input.Command != "" {
			return append(events, event.Command{
				ID: part.CallID, Phase: event.PhaseAgent, Command: input.Command, ExitCode: o.exit,
				Failed: o.failed || o.exit != nil && *o.exit != 0, Output: o.output, DurationMS: took,
			}), true
		}
		return append(events, event.Tool{ID: part.CallID, Name: part.Tool, Input: string(part.State.Input), Output: o.output, Failed: o.failed, DurationMS: took}), true
	case "step_finish":
		return append(events, p.finish(&l)...), true
	case "error":
		said := l.Error.Data.Message
		if said == "" {
			said = l.Error.Name
		}
		if status := l.Error.Data.Status; status != 0 {
			said = fmt.Sprintf("status %d: %s", status, said)
		}
		failed := opencode.failure("opencode: "+said, p.turns)
		p.failed = &failed
		return append(events, failed), true
	}
	return nil, false
}

// finish takes the end of a step: its usage, and whether the agent ends with it.
func (p *opencodeParser) finish(l *opencodeLine) []event.Event {
	part, t := l.Part, l.Part.Tokens
	p.turns++
	events := p.spent.add(event.Usage{
		InputTokens: t.Input + t.Cache.Read + t.Cache.Write, CachedTokens: t.Cache.Read,
		OutputTokens: t.Output + t.Reasoning, ReasoningTokens: t.Reasoning, CostUSD: part.Cost, Turns: 1,
	})
	if part.Reason == "unknown" && t.Output+t.Reasoning == 0 {
		if p.empty++; p.empty == opencodeEmpty {
			r := opencode.failure("opencode: the answers of the model's API are empty or no answers of a model: check its address (the provider's baseURL)", p.turns)
			r.Hopeless = true
			events = append(events, r)
		}
		return events
	}
	p.empty = 0
	if part.Reason == "tool-calls" {
		return events
	}
	result := event.Result{}
	if p.failed != nil {
		result = *p.failed
	}
	result.Turns = p.turns
	return append(events, result)
}
