package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	protocol "github.com/coder/acp-go-sdk"

	"triphammer/server/run/event"
)

const (
	// maxMessage bounds a message that is joined from its chunks, in bytes. A longer message
	// becomes several events.
	maxMessage = 32 << 10
	// maxCalls bounds the calls of tools in progress.
	maxCalls = 1000
)

// turn makes events of the agent's notifications. It is used by one goroutine at a time.
type turn struct {
	out    *output
	silent bool // an earlier conversation is told again

	role  string // of the message that comes in chunks
	text  strings.Builder
	calls map[string]*call
	cost  float64 // last known cost of the session
}

// call is a use of a tool that has not ended.
type call struct {
	title   string
	kind    protocol.ToolKind
	input   any
	output  any
	content []protocol.ToolCallContent
	meta    map[string]any
	printed strings.Builder // by a terminal of the agent
	shown   bool            // its first event was made
	began   time.Time
}

func (t *turn) update(u protocol.SessionUpdate) {
	if u.UsageUpdate != nil {
		t.spent(u.UsageUpdate.Cost)
	}
	if t.silent {
		return
	}
	switch {
	case u.AgentMessageChunk != nil:
		t.chunk("assistant", u.AgentMessageChunk.Content)
	case u.AgentThoughtChunk != nil:
		t.chunk("reasoning", u.AgentThoughtChunk.Content)
	case u.ToolCall != nil:
		c := u.ToolCall
		t.call(protocol.ToolCallUpdate{
			ToolCallId: c.ToolCallId, Title: &c.Title, Kind: &c.Kind, Status: &c.Status,
			RawInput: c.RawInput, RawOutput: c.RawOutput, Content: c.Content, Meta: c.Meta,
		})
	case u.ToolCallUpdate != nil:
		c := u.ToolCallUpdate
		t.call(protocol.ToolCallUpdate{
			ToolCallId: c.ToolCallId, Title: c.Title, Kind: c.Kind, Status: c.Status,
			RawInput: c.RawInput, RawOutput: c.RawOutput, Content: c.Content, Meta: c.Meta,
		})
	case u.Plan != nil:
		t.flush()
		t.out.add(event.Tool{Name: "plan", Input: jsonText(u.Plan.Entries)})
	}
}

func (t *turn) chunk(role string, c protocol.ContentBlock) {
	if role != t.role || t.text.Len() > maxMessage {
		t.flush()
	}
	t.role = role
	t.text.WriteString(contentText(c))
}

func (t *turn) flush() {
	if text := t.text.String(); strings.TrimSpace(text) != "" {
		t.out.add(event.Message{Role: t.role, Text: text})
	}
	t.text.Reset()
}

// call takes an update of a call. Agents tell the input late, and some of its fields never.
func (t *turn) call(u protocol.ToolCallUpdate) {
	t.flush()
	id := string(u.ToolCallId)
	c := t.calls[id]
	if c == nil {
		if len(t.calls) >= maxCalls {
			return
		}
		c = &call{began: time.Now()}
		t.calls[id] = c
	}
	c.take(u)
	status := protocol.ToolCallStatusPending
	if u.Status != nil && *u.Status != "" {
		status = *u.Status
	}
	ended := status == protocol.ToolCallStatusCompleted || status == protocol.ToolCallStatusFailed
	if status != protocol.ToolCallStatusPending && u.Content != nil {
		c.content = u.Content // earlier content tells what the agent is about to do
	}
	if ended || c.known() {
		t.show(id, c)
	}
	if ended {
		delete(t.calls, id)
		t.out.add(c.end(id, status == protocol.ToolCallStatusFailed))
	}
}

func (c *call) take(u protocol.ToolCallUpdate) {
	if u.Title != nil && *u.Title != "" && !c.shown {
		c.title = *u.Title
	}
	if u.Kind != nil && *u.Kind != "" && !c.shown {
		c.kind = *u.Kind
	}
	if !empty(u.RawInput) {
		c.input = u.RawInput
	}
	if !empty(u.RawOutput) {
		c.output = u.RawOutput
	}
	if u.Meta != nil {
		c.meta = u.Meta
	}
	for _, key := range []string{"terminal_output", "terminal_output_delta"} { // Codex
		if text, ok := dig(u.Meta, key, "data").(string); ok && c.printed.Len() < event.MaxText {
			c.printed.WriteString(text)
		}
	}
}

// known tells whether enough is known to show the call.
func (c *call) known() bool {
	if c.kind == protocol.ToolKindExecute {
		return c.input != nil && c.line() != ""
	}
	return !empty(c.input)
}

// show makes the first event of a call.
func (t *turn) show(id string, c *call) {
	if c.shown {
		return
	}
	c.shown = true
	if command := c.command(); command != "" {
		t.out.add(event.Command{ID: id, Phase: event.PhaseAgent, Command: command, Started: true})
		return
	}
	t.out.add(event.Tool{ID: id, Name: c.name(), Started: true, Input: jsonText(c.input)})
}

// end makes the last event of a call.
func (c *call) end(id string, failed bool) event.Event {
	took := time.Since(c.began).Milliseconds()
	if command := c.command(); command != "" {
		exit := c.exit()
		failed = failed || exit != nil && *exit != 0
		return event.Command{ID: id, Phase: event.PhaseAgent, Command: command, ExitCode: exit, Failed: failed, Output: c.result(), DurationMS: took}
	}
	return event.Tool{ID: id, Name: c.name(), Output: c.result(), Failed: failed, DurationMS: took}
}

// allowed makes the event that the agent asked for a permission, and got it.
func (t *turn) allowed(u protocol.ToolCallUpdate, decision string) {
	t.flush()
	c := t.calls[string(u.ToolCallId)]
	if c == nil {
		c = &call{began: time.Now()}
		t.calls[string(u.ToolCallId)] = c
	}
	c.take(u)
	t.show(string(u.ToolCallId), c)
	request := c.command()
	request = cmp.Or(request, c.name())
	t.out.add(event.Permission{Request: request, Decision: decision})
}

// spent makes the event of the cost since the last such event.
func (t *turn) spent(cost *protocol.Cost) {
	if cost == nil || cost.Currency != "USD" || cost.Amount <= t.cost {
		return
	}
	more := cost.Amount - t.cost
	t.cost = cost.Amount
	if !t.silent {
		t.out.add(event.Usage{CostUSD: more})
	}
}

// used makes the event of the tokens of the turn.
func (t *turn) used(answer protocol.PromptResponse) {
	u := event.Usage{Turns: 1}
	if n := answer.Usage; n != nil {
		u.CachedTokens = number(n.CachedReadTokens)
		u.InputTokens = int64(n.InputTokens) + u.CachedTokens + number(n.CachedWriteTokens)
		u.ReasoningTokens = number(n.ThoughtTokens)
		u.OutputTokens = int64(n.OutputTokens)
	} else { // Gemini
		in, _ := dig(answer.Meta, "quota", "token_count", "input_tokens").(float64)
		out, _ := dig(answer.Meta, "quota", "token_count", "output_tokens").(float64)
		u.InputTokens, u.OutputTokens = int64(in), int64(out)
	}
	t.out.add(u)
}

func number(n *int) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

// name is the name of a tool. The protocol has no names, only titles for people.
func (c *call) name() string {
	if c.title != "" {
		return c.title
	}
	return string(c.kind)
}

// command is the command of a call that executes a command. Some agents tell the command only in
// the title, and Codex says that tools of MCP servers execute something.
func (c *call) command() string {
	if c.kind != protocol.ToolKindExecute {
		return ""
	}
	if line := c.line(); line != "" || !empty(c.input) {
		return line
	}
	return strings.Trim(c.title, "`")
}

// line is the command line in the input of a call.
func (c *call) line() string {
	for _, key := range []string{"command", "cmd"} {
		switch v := dig(c.input, key).(type) {
		case string:
			return v
		case []any:
			words := make([]string, len(v))
			for i, word := range v {
				words[i] = fmt.Sprint(word)
			}
			return strings.Join(words, " ")
		}
	}
	return ""
}

// exit is the exit status of a command. The protocol has no field for it, so each agent puts it
// in another place.
func (c *call) exit() *int {
	for _, path := range [][]string{{"exit_code"}, {"exitCode"}, {"metadata", "exit"}} {
		if n, ok := dig(c.output, path...).(float64); ok {
			code := int(n)
			return &code
		}
	}
	if n, ok := dig(c.meta, "terminal_exit", "exit_code").(float64); ok {
		code := int(n)
		return &code
	}
	return nil
}

func (c *call) result() string {
	if c.printed.Len() > 0 {
		return c.printed.String()
	}
	var all []string
	for _, part := range c.content {
		switch {
		case part.Content != nil:
			all = append(all, contentText(part.Content.Content))
		case part.Diff != nil:
			all = append(all, part.Diff.Path)
		}
	}
	if text := strings.Join(all, "\n"); text != "" {
		if fenced := fence.FindStringSubmatch(text); fenced != nil && c.kind == protocol.ToolKindExecute {
			return fenced[1]
		}
		return text
	}
	for _, key := range []string{"output", "formatted_output", "aggregated_output", "stdout"} {
		if text, ok := dig(c.output, key).(string); ok {
			return text
		}
	}
	if text, ok := c.output.(string); ok {
		return text
	}
	if parts, ok := dig(c.output, "result", "content").([]any); ok { // Codex's form for tools of MCP servers
		for _, part := range parts {
			if text, ok := dig(part, "text").(string); ok {
				all = append(all, text)
			}
		}
		if len(all) > 0 {
			return strings.Join(all, "\n")
		}
	}
	return jsonText(c.output)
}

// fence matches output that an agent has dressed as Markdown.
var fence = regexp.MustCompile("(?s)^```[a-z]*\n(.*?)\n?```$")

// dig is the value at a path of JSON objects, or nil.
func dig(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func empty(v any) bool {
	m, object := v.(map[string]any)
	return v == nil || object && len(m) == 0
}

func jsonText(v any) string {
	if empty(v) {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// contentText is the readable part of a piece of content.
func contentText(c protocol.ContentBlock) string {
	switch {
	case c.Text != nil:
		return c.Text.Text
	case c.Image != nil:
		return "[image]"
	case c.Audio != nil:
		return "[audio]"
	case c.ResourceLink != nil:
		return c.ResourceLink.Uri
	case c.Resource != nil:
		return "[resource]"
	}
	return ""
}
