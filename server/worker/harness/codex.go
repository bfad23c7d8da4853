package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"triphammer/factory"
	"triphammer/server/run/event"
)

// codex is Codex of OpenAI.
var codex = Harness{
	Name: "codex", tested: "0.169.0", Sessions: true,
	Variables: []string{"OPENAI_API_KEY", "CODEX_API_KEY"},
	instructs: []string{"AGENTS.md", "AGENTS.override.md", ".codex", ".agents"},
	models:    "gpt-…, o3 and its kin, codex-…",
	knows:     prefixed("gpt-", "codex-", "o1", "o3", "o4", "chatgpt-"),
}

func init() {
	codex.start, codex.parse = startCodex, parseCodex
	codex.ways = func(r Request, _ *Start) []way {
		w := codexWay
		if own, _, named := strings.Cut(r.Model, "/"); named && r.Providers[own] != "" {
			w.provider = own
		}
		return []way{w}
	}
}

// codexWay is also that of its agent for the Agent Client Protocol.
var codexWay = way{
	provider: "openai", keys: codex.Variables, base: "OPENAI_BASE_URL",
	login: func(key string) bool { return strings.HasPrefix(strings.TrimSpace(key), "{") }, // the file of a login with ChatGPT
}

func startCodex(r Request, s *Start) {
	// Before 0.169, codex trusts every repository if it can ask nobody. The shell knows which
	// folder the repository is.
	level := "untrusted"
	if r.TrustRepositorySettings {
		level = "trusted"
	} else {
		s.file(".codex/AGENTS.md", []byte(instructions))
	}
	s.Program = "codex"
	s.add("/bin/sh", "-c", `exec codex exec -c "projects={\"$(pwd -P)\"={trust_level=\"`+level+`\"}}" "$@"`, "codex",
		"--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
	if r.TrustRepositorySettings {
		s.add("--dangerously-bypass-hook-trust")
	}
	model := r.Model
	for _, to := range s.Services {
		if to.Provider != "" && !r.Extras {
			s.add("-c", `web_search="disabled"`) // the gateway would refuse each request that offers it
		}
		if own, is := strings.CutPrefix(model, to.Provider+"/"); is && to.Provider != "" {
			model = own
		}
	}
	if model != "" {
		s.add("--model", model)
	}
	s.level(r.ReasoningLevel, []string{"none", "minimal", "low", "medium", "high", "xhigh"}, func(level string) []string {
		return []string{"-c", "model_reasoning_effort=" + quoted(level)}
	})
	switch auth := r.Auth.Reveal(); {
	case auth == "":
	case strings.HasPrefix(strings.TrimSpace(auth), "{"): // the file of a login with ChatGPT
		s.file(".codex/auth.json", []byte(auth))
	default:
		for _, name := range codex.Variables {
			s.Secrets[name] = r.Auth
		}
	}
	if r.Budget.Tokens > 0 && !s.hasWay() { // the gateway counts
		s.warn("budget.tokens: codex tells its tokens when it has ended, so a budget in tokens cannot stop it before")
	}
	if r.Budget.USD > 0 && !s.hasWay() {
		s.warn("budget.usd: codex does not tell what it costs, so a budget in US dollars cannot stop it: use timeoutMinutes")
	}
	if r.Budget.Turns > 0 {
		s.warn("budget.turns: codex does not tell its turns, so this budget cannot stop it: use timeoutMinutes")
	}
	if config := codexConfig(r, s); config != "" {
		s.file(".codex/config.toml", []byte(config))
	}
	s.skills(".agents/skills", r.Skills)
	p := newCodexParser()
	if r.Session != "" {
		p.session, p.spent.told = codexSession(r.Session)
		s.add("resume", p.session)
	}
	s.add("-")
	s.Parse = p.parse
}

// codexSession reads the name of a session: the thread, and the usage of the thread when its
// last run ended. Codex tells only the total usage of a thread.
func codexSession(name string) (thread string, used event.Usage) {
	thread, rest, _ := strings.Cut(name, "+")
	_, _ = fmt.Sscanf(rest, "%d+%d+%d+%d", &used.InputTokens, &used.CachedTokens, &used.OutputTokens, &used.ReasoningTokens) // none: 0
	return thread, used
}

// quoted is a string of TOML. The escapes of JSON are among those of TOML.
func quoted(s string) string {
	data, _ := json.Marshal(strings.ToValidUTF8(s, "\uFFFD")) // a string does not fail
	return string(data)
}

// codexConfig is the config.toml of codex. Codex expands no variables there. So a shell gives
// its variables to a server that codex starts, and a header is named by its variable.
func codexConfig(r Request, s *Start) string {
	var b strings.Builder
	// Codex ignores this variable. It needs a provider of its own to speak plain HTTP.
	if base := s.lookup("OPENAI_BASE_URL"); base != "" {
		fmt.Fprintf(&b, "model_provider = \"triphammer\"\n\n[model_providers.triphammer]\nname = \"OPENAI_BASE_URL\"\nbase_url = %s\nwire_api = \"responses\"\n", quoted(base))
		for _, name := range codex.Variables {
			if s.has(name) {
				fmt.Fprintf(&b, "env_key = %s\n", quoted(name))
				break
			}
		}
	}
	for _, m := range r.MCPServers {
		fmt.Fprintf(&b, "\n[mcp_servers.%s]\n", quoted(m.Name))
		if m.URL != "" {
			codexRemote(&b, m, s)
			continue
		}
		codexLocal(&b, m)
	}
	return b.String()
}

func codexRemote(b *strings.Builder, m factory.MCPServer, s *Start) {
	fmt.Fprintf(b, "url = %s\n", quoted(rewrite(m.URL, s.lookup)))
	plain, named := make(map[string]string), make(map[string]string)
	for header, value := range m.Headers {
		switch refers := names(value); {
		case len(refers) == 0:
			plain[header] = value
		case value == "${"+refers[0]+"}":
			named[header] = refers[0]
		default:
			named[header] = s.derived(value)
		}
	}
	table(b, "http_headers", plain)
	table(b, "env_http_headers", named)
}

func codexLocal(b *strings.Builder, m factory.MCPServer) {
	command, args := m.Command, m.Args
	plain := make(map[string]string)
	var forwarded []string
	var assign strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		refers := names(m.Env[name])
		if len(refers) == 0 || !variable.MatchString("${"+name+"}") { // the shell takes no other names
			plain[name] = m.Env[name]
			continue
		}
		forwarded = append(forwarded, refers...)
		fmt.Fprintf(&assign, "export %s=%s; ", name, shellQuoted(m.Env[name]))
	}
	if assign.Len() > 0 {
		args = append([]string{"-c", assign.String() + `exec "$@"`, "sh", command}, args...)
		command = "/bin/sh"
	}
	fmt.Fprintf(b, "command = %s\nargs = %s\n", quoted(command), list(args))
	if len(forwarded) > 0 {
		slices.Sort(forwarded)
		fmt.Fprintf(b, "env_vars = %s\n", list(slices.Compact(forwarded)))
	}
	table(b, "env", plain)
}

// shellQuoted is a value for a shell, which then replaces only the references to variables.
func shellQuoted(value string) string {
	var b strings.Builder
	end := 0
	for _, at := range variable.FindAllStringIndex(value, -1) {
		b.WriteString("'" + strings.ReplaceAll(value[end:at[0]], "'", `'\''`) + `'"` + value[at[0]:at[1]] + `"`)
		end = at[1]
	}
	return b.String() + "'" + strings.ReplaceAll(value[end:], "'", `'\''`) + "'"
}

func list(values []string) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = quoted(v)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func table(b *strings.Builder, name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		all = append(all, quoted(k)+" = "+quoted(values[k]))
	}
	fmt.Fprintf(b, "%s = { %s }\n", name, strings.Join(all, ", "))
}

type codexItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	Exit      *int            `json:"exit_code"`
	Status    string          `json:"status"`
	Changes   json.RawMessage `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    *struct {
		Content text `json:"content"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Query string          `json:"query"`
	Items json.RawMessage `json:"items"`
}

type codexParser struct {
	calls   calls
	spent   spent
	session string // the thread
}

func newCodexParser() *codexParser { return &codexParser{calls: make(calls)} }

func parseCodex() Parser { return newCodexParser().parse }

func (p *codexParser) parse(line []byte) ([]event.Event, bool) {
	var l struct {
		Type    string `json:"type"`
		Thread  string `json:"thread_id"`
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
		Item  codexItem `json:"item"`
		Usage struct {
			Input     int64 `json:"input_tokens"`
			Cached    int64 `json:"cached_input_tokens"`
			Output    int64 `json:"output_tokens"`
			Reasoning int64 `json:"reasoning_output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil, false
	}
	switch l.Type {
	case "thread.started":
		if l.Thread == p.session {
			return nil, true
		}
		p.session = l.Thread
		return begun(&codex, l.Thread), true
	case "turn.started":
		return nil, true
	case "turn.completed":
		events := p.spent.upTo(event.Usage{
			InputTokens: l.Usage.Input, CachedTokens: l.Usage.Cached, OutputTokens: l.Usage.Output, ReasoningTokens: l.Usage.Reasoning,
		})
		if u := p.spent.told; p.session != "" {
			events = append(events, event.Session{
				Harness: codex.Name,
				ID:      fmt.Sprintf("%s+%d+%d+%d+%d", p.session, u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens),
			})
		}
		return append(events, event.Result{}), true
	case "turn.failed":
		return []event.Event{codex.failure("codex: "+l.Error.Message, 0)}, true
	case "error":
		if try, why, again := strings.Cut(l.Message, " ("); again && strings.HasPrefix(try, "Reconnecting") && !strings.Contains(why, "url: ws") { // a WebSocket is its first try
			return codex.retrying(strings.TrimSuffix(why, ")"), "codex: "+l.Message), true
		}
		return []event.Event{event.Status{Message: "codex: " + l.Message}}, true
	case "item.started", "item.updated", "item.completed":
		return p.item(strings.TrimPrefix(l.Type, "item."), l.Item)
	}
	return nil, false
}

func (p *codexParser) item(stage string, i codexItem) ([]event.Event, bool) {
	var name, command, output string
	var input json.RawMessage
	switch i.Type {
	case "agent_message", "reasoning", "error":
		if stage != "completed" {
			return nil, true // the completed item repeats it
		}
		switch i.Type {
		case "agent_message":
			return []event.Event{event.Message{Role: "assistant", Text: i.Text}}, true
		case "reasoning":
			return []event.Event{event.Message{Role: "reasoning", Text: i.Text}}, true
		}
		return []event.Event{event.Status{Message: "codex: " + i.Message}}, true
	case "command_execution":
		name, command, output = i.Type, i.Command, i.Output
	case "file_change":
		name, input = "file_change", i.Changes
	case "mcp_tool_call":
		name, input = "mcp__"+i.Server+"__"+i.Tool, i.Arguments
		if i.Result != nil {
			output = string(i.Result.Content)
		}
	case "web_search":
		name, input = "web_search", json.RawMessage(`{"query":`+strconv.Quote(i.Query)+`}`)
	case "todo_list":
		name, input = "todo_list", i.Items
	case "collab_tool_call":
		name, input = i.Tool, i.Arguments
	default:
		return nil, false
	}
	if i.Error != nil {
		output = strings.TrimSpace(output + "\n" + i.Error.Message)
	}
	if stage == "updated" {
		return nil, true
	}
	var events []event.Event
	_, began := p.calls[i.ID]
	if !began {
		events = append(events, p.calls.start(i.ID, name, command, input))
	}
	if stage == "completed" {
		o := outcome{name: name, exit: i.Exit, failed: i.Status == "failed" || i.Status == "declined" || i.Exit != nil && *i.Exit != 0, output: output}
		events = append(events, p.calls.end(i.ID, o))
	}
	return events, true
}
