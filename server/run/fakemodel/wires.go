package fakemodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// part is a piece of a message in any of the formats.
type part struct {
	Type             string          `json:"type"`
	Text             string          `json:"text"`
	FunctionResponse json.RawMessage `json:"functionResponse"` // Gemini
}

// parts is the content of a message: a text or a list.
type parts []part

// UnmarshalJSON implements json.Unmarshaler.
func (p *parts) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*p = parts{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]part)(p))
}

type message struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content parts  `json:"content"`
	Parts   parts  `json:"parts"` // Gemini
}

type schema struct {
	Properties map[string]any `json:"properties"`
}

// hear takes the messages of a conversation in order. A tool's result is a part, a message
// of the role "tool", or an item of its own.
func (c *conversation) hear(messages []message) {
	for _, m := range messages {
		if m.Role == "tool" || strings.HasSuffix(m.Type, "_call_output") {
			c.done++
			continue
		}
		if m.Role != "user" {
			continue
		}
		for _, p := range append(m.Content, m.Parts...) {
			if p.Type == "tool_result" || p.FunctionResponse != nil {
				c.done++
			} else {
				c.said(p.Text)
			}
		}
	}
}

// anthropic is POST /v1/messages.
type anthropic struct{}

func (anthropic) read(_ *http.Request, body []byte) (conversation, error) {
	var q struct {
		Model    string    `json:"model"`
		Stream   bool      `json:"stream"`
		Messages []message `json:"messages"`
		Tools    []struct {
			Name   string `json:"name"`
			Schema schema `json:"input_schema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, err
	}
	c := conversation{model: q.Model, stream: q.Stream}
	for _, t := range q.Tools {
		c.tools = append(c.tools, tool{name: t.Name, parameters: t.Schema.Properties})
	}
	c.hear(q.Messages)
	return c, nil
}

func (anthropic) answer(c conversation, a answer) []any {
	reason := "end_turn"
	block, start, delta := object{"type": "text", "text": a.text}, object{"type": "text", "text": ""}, object{"type": "text_delta", "text": a.text}
	if a.tool != "" {
		reason = "tool_use"
		block = object{"type": "tool_use", "id": "toolu_" + a.id, "name": a.tool, "input": json.RawMessage(a.args)}
		start = object{"type": "tool_use", "id": "toolu_" + a.id, "name": a.tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": a.args}
	}
	m := object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": c.model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": InputTokens, "output_tokens": OutputTokens},
	}
	if !c.stream {
		m["content"], m["stop_reason"] = []any{block}, reason
		return []any{m}
	}
	return []any{
		object{"type": "message_start", "message": m},
		object{"type": "content_block_start", "index": 0, "content_block": start},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": OutputTokens}},
		object{"type": "message_stop"},
	}
}

func (anthropic) failure(status int, message string) any {
	kind := "api_error"
	if status == http.StatusUnauthorized {
		kind = "authentication_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

// responses is POST /v1/responses of OpenAI.
type responses struct{}

func (responses) read(_ *http.Request, body []byte) (conversation, error) {
	var q struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Input  []struct {
			message
			Tools []responsesTool `json:"tools"` // the item "additional_tools" has them
		} `json:"input"`
		Tools []responsesTool `json:"tools"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, err
	}
	c := conversation{model: q.Model, stream: q.Stream}
	c.offer("", q.Tools)
	for _, item := range q.Input {
		c.offer("", item.Tools)
		c.hear([]message{item.message})
	}
	return c, nil
}

// responsesTool is a tool, or a group of them.
type responsesTool struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema schema          `json:"parameters"`
	Tools  []responsesTool `json:"tools"`
}

func (c *conversation) offer(space string, tools []responsesTool) {
	for _, t := range tools {
		switch {
		case t.Type == "custom":
			c.code = c.code || t.Name == codeTool
		default:
			c.tools = append(c.tools, tool{name: t.Name, space: space, parameters: t.Schema.Properties})
			c.offer(t.Name, t.Tools)
		}
	}
}

func (responses) answer(c conversation, a answer) []any {
	item := object{"type": "message", "role": "assistant", "id": "msg_" + a.id, "content": []any{object{"type": "output_text", "text": a.text}}}
	switch {
	case a.code:
		item = object{"type": "custom_tool_call", "id": "ctc_" + a.id, "call_id": a.id, "name": a.tool, "input": a.args}
	case a.tool != "":
		item = object{"type": "function_call", "id": "fc_" + a.id, "call_id": a.id, "name": a.tool, "arguments": a.args}
		if a.space != "" {
			item["namespace"] = a.space
		}
	}
	response := object{
		"id": "resp_" + a.id, "object": "response", "model": c.model, "status": "completed", "output": []any{item},
		"usage": object{
			"input_tokens": InputTokens, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": OutputTokens, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": InputTokens + OutputTokens,
		},
	}
	if !c.stream {
		return []any{response}
	}
	return []any{
		object{"type": "response.created", "response": object{"id": response["id"]}},
		object{"type": "response.output_item.added", "output_index": 0, "item": item},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": response},
	}
}

func (responses) failure(status int, message string) any { return openAIFailure(status, message) }

func openAIFailure(status int, message string) any {
	code := "server_error"
	if status == http.StatusUnauthorized {
		code = "invalid_api_key"
	}
	return object{"error": object{"message": message, "type": "invalid_request_error", "code": code, "param": nil}}
}

// chat is POST /v1/chat/completions of OpenAI, which many servers of models speak.
type chat struct{}

func (chat) read(_ *http.Request, body []byte) (conversation, error) {
	var q struct {
		Model    string    `json:"model"`
		Stream   bool      `json:"stream"`
		Messages []message `json:"messages"`
		Tools    []struct {
			Function struct {
				Name   string `json:"name"`
				Schema schema `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, err
	}
	c := conversation{model: q.Model, stream: q.Stream}
	for _, t := range q.Tools {
		c.tools = append(c.tools, tool{name: t.Function.Name, parameters: t.Function.Schema.Properties})
	}
	c.hear(q.Messages)
	return c, nil
}

func (chat) answer(c conversation, a answer) []any {
	reason, m := "stop", object{"role": "assistant", "content": a.text}
	if a.tool != "" {
		reason = "tool_calls"
		call := object{"index": 0, "id": a.id, "type": "function", "function": object{"name": a.tool, "arguments": a.args}}
		m = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}
	}
	usage := object{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}
	whole := func(kind string, choice object) object {
		return object{"id": "chatcmpl_" + a.id, "object": kind, "created": 0, "model": c.model, "choices": []any{choice}}
	}
	if !c.stream {
		answer := whole("chat.completion", object{"index": 0, "message": m, "finish_reason": reason})
		answer["usage"] = usage
		return []any{answer}
	}
	last := whole("chat.completion.chunk", object{"index": 0, "delta": object{}, "finish_reason": reason})
	last["usage"] = usage
	return []any{whole("chat.completion.chunk", object{"index": 0, "delta": m, "finish_reason": nil}), last, "[DONE]"}
}

func (chat) failure(status int, message string) any { return openAIFailure(status, message) }

// gemini is POST /v1beta/models/NAME:streamGenerateContent, and :generateContent.
type gemini struct{}

func (gemini) read(r *http.Request, body []byte) (conversation, error) {
	var q struct {
		Contents []message `json:"contents"`
		Tools    []struct {
			Functions []struct {
				Name       string `json:"name"`
				Schema     schema `json:"parametersJsonSchema"`
				Parameters schema `json:"parameters"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			Schema map[string]any `json:"responseJsonSchema"`
		} `json:"generationConfig"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return conversation{}, err
	}
	model, operation, _ := strings.Cut(r.PathValue("operation"), ":")
	c := conversation{model: model, stream: operation == "streamGenerateContent"}
	for _, set := range q.Tools {
		for _, f := range set.Functions {
			parameters := f.Schema.Properties
			if parameters == nil {
				parameters = f.Parameters.Properties
			}
			c.tools = append(c.tools, tool{name: f.Name, parameters: parameters})
		}
	}
	c.hear(q.Contents)
	if q.Config.Schema != nil {
		c.script, c.done = []string{"say " + instance(q.Config.Schema)}, 0
	}
	return c, nil
}

// instance is a flat JSON object of the schema. Gemini asks which model a prompt needs, and
// asks again until the answer fits.
func instance(schema map[string]any) string {
	answer := make(object)
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		property, _ := p.(map[string]any)
		kind, _ := property["type"].(string)
		choices, _ := property["enum"].([]any)
		switch strings.ToLower(kind) {
		case "integer", "number":
			answer[name] = 1
		case "boolean":
			answer[name] = false
		default:
			answer[name] = "loopback"
		}
		if len(choices) > 0 {
			answer[name] = choices[0]
		}
	}
	text, _ := json.Marshal(answer) // it came as JSON
	return string(text)
}

func (gemini) answer(c conversation, a answer) []any {
	p := object{"text": a.text}
	if a.tool != "" {
		p = object{"functionCall": object{"name": a.tool, "args": json.RawMessage(a.args)}}
	}
	return []any{object{
		"candidates":    []any{object{"index": 0, "content": object{"role": "model", "parts": []any{p}}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": InputTokens, "candidatesTokenCount": OutputTokens, "totalTokenCount": InputTokens + OutputTokens},
		"modelVersion":  c.model,
	}}
}

func (gemini) failure(status int, message string) any {
	state := "INTERNAL"
	if status == http.StatusUnauthorized {
		state = "UNAUTHENTICATED"
	}
	return object{"error": object{"code": status, "message": message, "status": state}}
}
