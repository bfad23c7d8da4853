package run

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/server/run/event"
	"triphammer/server/secret"
)

// parser makes events from one line of a harness's output. ok is false for a line that
// it does not know. It must accept any input, because lines come from outside.
type parser func(line []byte) (events []event.Event, ok bool)

// harness is a command-line agent that this server can start. Each gets the
// prompt on its standard input and answers in lines of JSON.
type harness struct {
	command  func(h factory.Harness) []string
	authVars []string          // variables in which it expects its credential
	env      map[string]string // variables that it needs to run unattended
	parse    parser
}

var harnesses = map[string]harness{
	"claude": {
		command: func(h factory.Harness) []string {
			return withModel([]string{"claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"}, "--model", h)
		},
		authVars: []string{"ANTHROPIC_API_KEY"},
		// Without this it refuses to run unattended as root.
		env:   map[string]string{"IS_SANDBOX": "1"},
		parse: parseClaude,
	},
	"codex": {
		command: func(h factory.Harness) []string {
			argv := withModel([]string{"codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}, "--model", h)
			if h.ReasoningLevel != "" {
				argv = append(argv, "-c", "model_reasoning_effort="+strings.ToLower(h.ReasoningLevel))
			}
			return append(argv, "-")
		},
		authVars: []string{"OPENAI_API_KEY", "CODEX_API_KEY"},
		parse:    parseCodex,
	},
	"gemini": {
		command: func(h factory.Harness) []string {
			return withModel([]string{"gemini", "-o", "stream-json", "-y", "--skip-trust"}, "-m", h)
		},
		authVars: []string{"GEMINI_API_KEY"},
		parse:    parseGemini,
	},
	"opencode": {
		command: func(h factory.Harness) []string {
			return withModel([]string{"opencode", "run", "--format", "json"}, "-m", h)
		},
		env:   map[string]string{"OPENCODE_CONFIG_CONTENT": `{"permission":{"edit":"allow","bash":"allow","webfetch":"allow"}}`},
		parse: parseOpencode,
	},
}

func withModel(argv []string, flag string, h factory.Harness) []string {
	if h.Model != "" {
		argv = append(argv, flag, h.Model)
	}
	return argv
}

func knownHarness(name string) bool {
	_, ok := harnesses[name]
	return ok
}

func harnessNames() []string { return slices.Sorted(maps.Keys(harnesses)) }

// start sets the command that starts the agent of the task. The environment's own
// command overrides the harness, because its author knows the machine.
func (s *Spec) start(t *Task) parser {
	if s.Environment != nil && len(s.Environment.Command) > 0 {
		t.Command = s.Environment.Command
		return nil
	}
	h, ok := harnesses[s.Harness.Type]
	if !ok {
		return nil
	}
	t.Command = h.command(s.Harness)
	env := maps.Clone(h.env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, t.Env)
	t.Env = env
	if value, granted := t.Secrets[s.Harness.AuthSecret]; granted {
		secrets := make(map[string]secret.Value, len(t.Secrets)+len(h.authVars))
		for _, name := range h.authVars {
			secrets[name] = value
		}
		maps.Copy(secrets, t.Secrets)
		t.Secrets = secrets
	}
	return h.parse
}

// text is a string, or the texts of a list of content parts.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(data, &parts) == nil {
		texts := make([]string, 0, len(parts))
		for _, p := range parts {
			if p.Text != "" {
				texts = append(texts, p.Text)
			}
		}
		*t = text(strings.Join(texts, "\n"))
		return nil
	}
	*t = text(data)
	return nil
}

func parseClaude(line []byte) ([]event.Event, bool) {
	var l struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		Model   string `json:"model"`
		Message struct {
			Content json.RawMessage `json:"content"`
		} `json:"message"`
		IsError  bool    `json:"is_error"`
		NumTurns int64   `json:"num_turns"`
		Cost     float64 `json:"total_cost_usd"`
		Result   string  `json:"result"`
		Usage    struct {
			Input  int64 `json:"input_tokens"`
			Cached int64 `json:"cache_read_input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "system":
		if l.Subtype != "init" {
			return nil, false
		}
		return []event.Event{event.Status{Message: "claude started with the model " + l.Model}}, true
	case "assistant", "user":
		return claudeContent(l.Type, l.Message.Content)
	case "result":
		events := []event.Event{event.Usage{InputTokens: l.Usage.Input, CachedTokens: l.Usage.Cached, OutputTokens: l.Usage.Output, CostUSD: l.Cost, Turns: l.NumTurns}}
		if l.IsError || l.Subtype != "success" {
			events = append(events, event.Status{Message: strings.TrimSpace("claude ended with " + l.Subtype + " " + l.Result)})
		}
		return events, true
	}
	return nil, false
}

func claudeContent(role string, data json.RawMessage) ([]event.Event, bool) {
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Content  text            `json:"content"`
		IsError  bool            `json:"is_error"`
	}
	if json.Unmarshal(data, &parts) != nil {
		return nil, false
	}
	var events []event.Event
	for _, p := range parts {
		switch p.Type {
		case "text":
			events = append(events, event.Message{Role: role, Text: p.Text})
		case "thinking":
			events = append(events, event.Message{Role: "reasoning", Text: p.Thinking})
		case "tool_use":
			events = append(events, event.Tool{Name: p.Name, Input: string(p.Input)})
		case "tool_result":
			events = append(events, event.Tool{Name: "result", Output: string(p.Content), Failed: p.IsError})
		default:
			return nil, false
		}
	}
	return events, true
}

func parseCodex(line []byte) ([]event.Event, bool) {
	var l struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
		Item struct {
			Type    string          `json:"type"`
			Text    string          `json:"text"`
			Message string          `json:"message"`
			Command string          `json:"command"`
			Output  string          `json:"aggregated_output"`
			Exit    *int            `json:"exit_code"`
			Status  string          `json:"status"`
			Changes json.RawMessage `json:"changes"`
			Tool    string          `json:"tool"`
		} `json:"item"`
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Cached int64 `json:"cached_input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "thread.started", "turn.started", "item.started", "item.updated":
		return nil, true // the completed item repeats it
	case "turn.completed":
		return []event.Event{event.Usage{InputTokens: l.Usage.Input, CachedTokens: l.Usage.Cached, OutputTokens: l.Usage.Output}}, true
	case "turn.failed":
		return []event.Event{event.Status{Message: "codex: " + l.Error.Message}}, true
	case "error":
		return []event.Event{event.Status{Message: "codex: " + l.Message}}, true
	case "item.completed":
		switch i := l.Item; i.Type {
		case "agent_message":
			return []event.Event{event.Message{Role: "assistant", Text: i.Text}}, true
		case "reasoning":
			return []event.Event{event.Message{Role: "reasoning", Text: i.Text}}, true
		case "command_execution":
			return []event.Event{event.Command{Phase: "agent", Command: i.Command, ExitCode: i.Exit, Failed: i.Status == "failed", Output: i.Output}}, true
		case "file_change":
			return []event.Event{event.Tool{Name: i.Type, Input: string(i.Changes), Failed: i.Status == "failed"}}, true
		case "mcp_tool_call":
			return []event.Event{event.Tool{Name: i.Tool, Failed: i.Status == "failed"}}, true
		case "error":
			return []event.Event{event.Status{Message: "codex: " + i.Message}}, true
		}
	}
	return nil, false
}

func parseGemini(line []byte) ([]event.Event, bool) {
	var l struct {
		Type    string          `json:"type"`
		Model   string          `json:"model"`
		Role    string          `json:"role"`
		Content text            `json:"content"`
		Tool    string          `json:"tool_name"`
		Params  json.RawMessage `json:"parameters"`
		Status  string          `json:"status"`
		Output  text            `json:"output"`
		Message string          `json:"message"`
		Stats   struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"stats"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "init":
		return []event.Event{event.Status{Message: "gemini started with the model " + l.Model}}, true
	case "message":
		return []event.Event{event.Message{Role: l.Role, Text: string(l.Content)}}, true
	case "tool_use":
		return []event.Event{event.Tool{Name: l.Tool, Input: string(l.Params)}}, true
	case "tool_result":
		return []event.Event{event.Tool{Name: "result", Output: string(l.Output), Failed: l.Status == "error"}}, true
	case "error":
		return []event.Event{event.Status{Message: "gemini: " + l.Message}}, true
	case "result":
		return []event.Event{event.Usage{InputTokens: l.Stats.Input, OutputTokens: l.Stats.Output}}, true
	}
	return nil, false
}

func parseOpencode(line []byte) ([]event.Event, bool) {
	var l struct {
		Type string `json:"type"`
		Part struct {
			Text  string `json:"text"`
			Tool  string `json:"tool"`
			State struct {
				Status string          `json:"status"`
				Input  json.RawMessage `json:"input"`
				Output text            `json:"output"`
			} `json:"state"`
			Cost   float64 `json:"cost"`
			Tokens struct {
				Input  int64 `json:"input"`
				Output int64 `json:"output"`
			} `json:"tokens"`
		} `json:"part"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch p := l.Part; l.Type {
	case "step_start":
		return nil, true
	case "text":
		return []event.Event{event.Message{Role: "assistant", Text: p.Text}}, true
	case "tool_use":
		return []event.Event{event.Tool{Name: p.Tool, Input: string(p.State.Input), Output: string(p.State.Output), Failed: p.State.Status == "error"}}, true
	case "step_finish":
		return []event.Event{event.Usage{InputTokens: p.Tokens.Input, OutputTokens: p.Tokens.Output, CostUSD: p.Cost}}, true
	}
	return nil, false
}
