package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"triphammer/server/run/event"
)

// claude is Claude Code.
var claude = Harness{
	Name: "claude", tested: "2.1.197", Sessions: true, Plans: true,
	Variables: []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"},
	instructs: []string{"CLAUDE.md", "CLAUDE.local.md", ".claude", ".claude.json", ".claude-plugin", ".mcp.json"},
	models:    "claude-… and the short names opus, sonnet, haiku, fable",
	knows: func(model string) bool {
		family, _, _ := strings.Cut(model, "[") // sonnet[1m]
		switch family {
		case "opus", "sonnet", "haiku", "fable", "opusplan", "default", "best":
			return true
		}
		return claudeModel.MatchString(model)
	},
}

// claudeModel matches also the names of Bedrock and Vertex.
var claudeModel = regexp.MustCompile(`(^|[./])claude-`)

func init() {
	claude.start, claude.parse = startClaude, parseClaude
	claude.ways = func(_ Request, s *Start) []way { return []way{claudeWay(s)} }
}

// claudeWay is also that of its agent for the Agent Client Protocol.
func claudeWay(s *Start) way {
	w := way{
		provider: "anthropic", keys: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}, bearer: "ANTHROPIC_AUTH_TOKEN", base: "ANTHROPIC_BASE_URL",
		login: func(key string) bool { return strings.HasPrefix(key, "sk-ant-oat") },
	}
	for _, name := range []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"} {
		if s.has(name) {
			w.never = "with " + name + ", claude signs its requests itself"
		}
	}
	return w
}

func startClaude(r Request, s *Start) {
	mode := "bypassPermissions"
	if r.Plan {
		mode = "plan"
	}
	// With partial messages, claude tells the usage of an answer while it streams. Without them,
	// claude tells the output tokens only at the end of the run.
	s.add("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--permission-mode", mode)
	// Without this, claude refuses to work unattended as root.
	s.set("IS_SANDBOX", "1")
	if !r.TrustRepositorySettings {
		// Then claude does not read the repository's CLAUDE.md either, because that is a setting to it.
		s.add("--setting-sources", "user")
		s.file(".claude/CLAUDE.md", []byte(instructions))
	}
	if !r.TrustRepositorySettings || len(r.MCPServers) > 0 {
		s.add("--strict-mcp-config")
	}
	if r.Model != "" {
		s.add("--model", r.Model)
	}
	s.level(r.ReasoningLevel, []string{"low", "medium", "high", "xhigh", "max"}, func(level string) []string { return []string{"--effort", level} })
	if r.Budget.USD > 0 {
		s.add("--max-budget-usd", strconv.FormatFloat(r.Budget.USD, 'f', -1, 64))
	}
	if r.Budget.Turns > 0 {
		s.add("--max-turns", strconv.FormatInt(r.Budget.Turns, 10))
	}
	if len(r.MCPServers) > 0 {
		s.add("--mcp-config", claudeServers(r))
	}
	if r.Session != "" {
		s.add("--resume", r.Session)
	}
	switch auth := r.Auth.Reveal(); {
	case auth == "":
	case strings.HasPrefix(auth, "sk-ant-oat"):
		s.Secrets["CLAUDE_CODE_OAUTH_TOKEN"] = r.Auth
	default:
		s.Secrets["ANTHROPIC_API_KEY"] = r.Auth
	}
	s.skills(".claude/skills", r.Skills)
}

// claudeServers is the value of --mcp-config. Claude itself replaces references to variables by
// their values.
func claudeServers(r Request) string {
	servers := make(map[string]any, len(r.MCPServers))
	for _, m := range r.MCPServers {
		servers[m.Name] = jsonServer{Type: "stdio", Command: m.Command, Args: m.Args, Env: m.Env}
		if m.URL != "" {
			servers[m.Name] = jsonServer{Type: "http", URL: m.URL, Headers: m.Headers}
		}
	}
	data, _ := json.Marshal(map[string]any{"mcpServers": servers}) // strings always encode
	return string(data)
}

type claudeUsage struct {
	Input   int64 `json:"input_tokens"`
	Read    int64 `json:"cache_read_input_tokens"`
	Written int64 `json:"cache_creation_input_tokens"`
	Output  int64 `json:"output_tokens"`
}

type claudeMessage struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   claudeUsage     `json:"usage"`
}

type claudeLine struct {
	Type    string        `json:"type"`
	Subtype string        `json:"subtype"`
	Session string        `json:"session_id"`
	Model   string        `json:"model"`
	Parent  string        `json:"parent_tool_use_id"`
	Message claudeMessage `json:"message"`

	// Event belongs to the type stream_event: what the provider streams.
	Event struct {
		Type    string        `json:"type"`
		Message claudeMessage `json:"message"`
		Usage   claudeUsage   `json:"usage"` // of message_delta: of the message so far
		Delta   struct {
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
			JSON     string `json:"partial_json"`
		} `json:"delta"`
	} `json:"event"`

	// These belong to the type system.
	MCPServers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
	Attempt     int    `json:"attempt"`
	MaxRetries  int    `json:"max_retries"`
	ErrorStatus int    `json:"error_status"`
	Error       string `json:"error"`
	Content     string `json:"content"`
	Text        string `json:"text"`
	Tool        string `json:"tool_name"`
	Reason      string `json:"decision_reason"`
	Status      any    `json:"status"` // a text, or null
	Summary     string `json:"summary"`

	// ToolResult belongs to the type user: the result of a tool, in the tool's own shape.
	ToolResult json.RawMessage `json:"tool_use_result"`

	// These belong to the type result.
	IsError   bool        `json:"is_error"`
	APIStatus int         `json:"api_error_status"`
	Cost      float64     `json:"total_cost_usd"`
	Result    string      `json:"result"`
	Errors    []string    `json:"errors"`
	Usage     claudeUsage `json:"usage"`
	Models    map[string]struct {
		Input   int64 `json:"inputTokens"`
		Read    int64 `json:"cacheReadInputTokens"`
		Written int64 `json:"cacheCreationInputTokens"`
		Output  int64 `json:"outputTokens"`
	} `json:"modelUsage"`
	Denials []struct {
		Tool  string          `json:"tool_name"`
		Input json.RawMessage `json:"tool_input"`
	} `json:"permission_denials"`
}

type claudePart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   text            `json:"content"`
	IsError   bool            `json:"is_error"`
}

type claudeParser struct {
	calls  calls
	spent  spent
	total  event.Usage              // of all answers of the model
	known  map[string]*claudeAnswer // by the id of the message
	stream map[string]*claudeAnswer // the answers that stream now, by parent_tool_use_id
}

func parseClaude() Parser {
	p := &claudeParser{calls: make(calls), known: make(map[string]*claudeAnswer), stream: make(map[string]*claudeAnswer)}
	return p.parse
}

func (p *claudeParser) parse(line []byte) ([]event.Event, bool) {
	if len(line) == 0 {
		return p.spent.upTo(p.total), true
	}
	var l claudeLine
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "system":
		return p.system(l)
	case "assistant", "user":
		events, ok := p.content(l)
		if ok && l.Type == "assistant" {
			events = append(events, p.answered(l)...)
		}
		return events, ok
	case "result":
		return p.result(l), true
	case "stream_event":
		return p.streamed(l), true
	case "tool_progress", "rate_limit_event", "tool_use_summary", "prompt_suggestion":
		return nil, true
	}
	return nil, false
}

func (p *claudeParser) system(l claudeLine) ([]event.Event, bool) {
	switch l.Subtype {
	case "init":
		events := append(begun(&claude, l.Session), event.Status{Message: "claude started with the model " + l.Model})
		for _, m := range l.MCPServers {
			if m.Status == "failed" {
				events = append(events, event.Status{Message: "claude cannot reach the MCP server " + m.Name})
			}
		}
		return events, true
	case "api_retry":
		why := l.Error
		if l.ErrorStatus != 0 {
			why = fmt.Sprintf("status %d, %s", l.ErrorStatus, why)
		}
		return claude.retrying(why, fmt.Sprintf("the model's API failed (%s): claude tries again, %d of %d", why, l.Attempt, l.MaxRetries)), true
	case "permission_denied":
		return []event.Event{event.Permission{Request: l.Tool, Decision: strings.TrimSpace("denied " + l.Reason)}}, true
	case "compact_boundary":
		return []event.Event{event.Status{Message: "claude has summed up the conversation, because it is long"}}, true
	case "informational", "notification", "model_fallback":
		if said := l.Content + l.Text; said != "" {
			return []event.Event{event.Status{Message: "claude: " + said}}, true
		}
	case "task_notification":
		return []event.Event{event.Status{Message: fmt.Sprintf("claude: a task ended (%s): %s", l.Status, l.Summary)}}, true
	case "thinking_tokens", "status", "task_started", "task_updated", "task_progress", "session_state_changed", "turn_starting", "turn_duration", "hook_started", "hook_progress", "commands_changed":
		return nil, true
	}
	return nil, false
}

func (p *claudeParser) content(l claudeLine) ([]event.Event, bool) {
	var said string
	if json.Unmarshal(l.Message.Content, &said) == nil {
		return []event.Event{event.Message{Role: l.Type, Text: said}}, true
	}
	var parts []claudePart
	if json.Unmarshal(l.Message.Content, &parts) != nil {
		return nil, false
	}
	var events []event.Event
	for _, part := range parts {
		switch part.Type {
		case "text":
			events = append(events, event.Message{Role: l.Type, Text: part.Text})
		case "thinking":
			events = append(events, event.Message{Role: "reasoning", Text: part.Thinking})
		case "redacted_thinking":
		case "tool_use", "server_tool_use":
			var input struct {
				Command string `json:"command"`
			}
			if part.Name == "Bash" {
				_ = json.Unmarshal(part.Input, &input)
			}
			events = append(events, p.calls.start(part.ID, part.Name, input.Command, part.Input))
		case "tool_result":
			o := outcome{name: "tool", failed: part.IsError, output: string(part.Content)}
			o.exit, o.output = claudeExit(part.IsError, o.output, l.ToolResult)
			events = append(events, p.calls.end(part.ToolUseID, o))
		default:
			return nil, false
		}
	}
	return events, true
}

var claudeExitCode = regexp.MustCompile(`^Exit code (\d{1,3})(\n|$)`)

// claudeExit finds the exit status of a command. Claude tells a status other than 0 in words.
func claudeExit(failed bool, output string, result json.RawMessage) (*int, string) {
	if failed {
		m := claudeExitCode.FindStringSubmatch(output)
		if m == nil {
			return nil, output
		}
		code, _ := strconv.Atoi(m[1])
		return &code, output[len(m[0]):]
	}
	var r struct {
		Stdout      *string `json:"stdout"`
		Interrupted bool    `json:"interrupted"`
		Background  string  `json:"backgroundTaskId"`
	}
	if json.Unmarshal(result, &r) != nil || r.Stdout == nil || r.Interrupted || r.Background != "" {
		return nil, output
	}
	return new(int), output
}

func (p *claudeParser) result(l claudeLine) []event.Event {
	total := event.Usage{CostUSD: l.Cost, Turns: p.total.Turns}
	for _, u := range l.Models { // includes the models of subagents
		total.InputTokens += u.Input + u.Read + u.Written
		total.CachedTokens += u.Read
		total.OutputTokens += u.Output
	}
	if len(l.Models) == 0 {
		u := l.Usage
		total.InputTokens, total.CachedTokens, total.OutputTokens = u.Input+u.Read+u.Written, u.Read, u.Output
	}
	// If claude was interrupted, its total lacks the answer that was streaming.
	events := append(p.spent.upTo(p.total), p.spent.upTo(total)...)
	for _, d := range l.Denials {
		events = append(events, event.Permission{Request: d.Tool + " " + string(d.Input), Decision: "denied"})
	}
	r := event.Result{Failed: l.IsError || l.Subtype != "success", Turns: p.total.Turns}
	if r.Failed {
		said := l.Result
		said = cmp.Or(said, strings.Join(l.Errors, "; "))
		switch l.Subtype {
		case "error_max_turns":
			said = fmt.Sprintf("the budget of turns is used up: claude was stopped after %d (budget.turns of its environment or automation)", p.total.Turns)
		case "error_max_budget_usd":
			said = fmt.Sprintf("the budget in US dollars is used up: claude has spent %.4f (budget.usd of its environment or automation)", l.Cost)
		case "success":
		default:
			said = strings.TrimSpace("claude ended with " + l.Subtype + ": " + said)
		}
		r = claude.failure(said, p.total.Turns)
		r.Final = r.Final || strings.HasPrefix(l.Subtype, "error_max_")
	}
	return append(events, r)
}
