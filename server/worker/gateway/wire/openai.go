package wire

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"triphammer/server/run/task"
)

// openAI is OpenAI's API: https://developers.openai.com/api/reference/resources/responses and
// https://developers.openai.com/api/reference/resources/chat.
var openAI = &Format{Name: "openai", Keys: []string{"Authorization", "Api-Key"}, KeyPrefix: "Bearer ", read: readOpenAI, failure: openAIFailure}

// compatible is the same as other servers speak it. Some refuse what they do not know.
var compatible = &Format{Name: "compatible", Keys: openAI.Keys, KeyPrefix: openAI.KeyPrefix, read: readOpenAI, failure: openAIFailure}

// openAIFailure is an error of https://developers.openai.com/api/docs/guides/error-codes.
func openAIFailure(status int, reason string) any {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusPaymentRequired || status == http.StatusTooManyRequests:
		kind = "insufficient_quota"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	return object{"error": object{"message": reason, "type": kind, "code": kind, "param": nil}}
}

// openAIChecks are of both APIs.
var openAIChecks = map[string]func(*call, span) string{
	"tools":     openAITools,
	"file_id":   func(*call, span) string { return "stored files as input (file_id)" },
	"file_url":  func(*call, span) string { return "addresses as input (file_url)" },
	"image_url": openAIImage,
	// https://developers.openai.com/api/docs/guides/priority-processing
	"service_tier": func(c *call, at span) string {
		if tier, _ := c.text(at); slices.Contains([]string{"auto", "default", "flex"}, tier) {
			return ""
		}
		return "faster service for more money (service_tier)"
	},
	// Sound costs more than text: https://developers.openai.com/api/docs/pricing.
	"audio":              func(*call, span) string { return "sound (audio)" },
	"input_audio":        func(*call, span) string { return "sound (input_audio)" },
	"modalities":         func(c *call, at span) string { return c.textAlone("modalities", at) },
	"web_search_options": func(*call, span) string { return "hosted tools (web_search_options)" },
	// Routers of models have these: https://openrouter.ai/docs/api/reference/overview.
	"plugins": func(*call, span) string { return "hosted tools (plugins)" },
	"models":  func(*call, span) string { return "other models besides (models)" },
	// https://openrouter.ai/docs/guides/routing/model-variants/online
	"model": func(c *call, at span) string {
		if name, _ := c.text(at); strings.Contains(name, ":online") {
			return "hosted tools (:online)"
		}
		return ""
	},
}

func openAIImage(c *call, at span) string {
	if address, is := c.fields(at)["url"]; is {
		at = address
	}
	if text, is := c.text(at); is && strings.HasPrefix(text, "data:") {
		return ""
	}
	return "addresses as input (image_url)"
}

// openAIClient are the tools that the agent itself performs, and the search in the list of
// tools, which reaches nothing.
var openAIClient = []string{"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview", "tool_search"}

func openAITools(c *call, at span) string {
	return c.each(at, func(tool span) string {
		fields := c.fields(tool)
		kind, is := c.text(fields["type"])
		if !is || slices.Contains(openAIClient, kind) {
			return ""
		}
		if kind == "namespace" { // its tools are checked as all tools are
			return ""
		}
		if where, _ := c.text(c.fields(fields["environment"])["type"]); kind == "shell" && where == "local" {
			return ""
		}
		return fmt.Sprintf("hosted tools (%s)", clip(kind))
	})
}

var responsesRules = rules{
	names: []string{"model", "max_output_tokens", "stream", "background", "store", "tools", "previous_response_id", "conversation", "prompt", "service_tier"},
	// Schemas are the agent's.
	opaque: []string{"parameters", "schema", "metadata"},
	checks: with(openAIChecks, map[string]func(*call, span) string{
		"input": func(c *call, at span) string {
			return c.each(at, func(item span) string {
				fields := c.fields(item)
				_, content := fields["content"]
				if kind, typed := c.text(fields["type"]); kind == "item_reference" || fields != nil && !typed && !content {
					return "parts of stored responses as input (item_reference)"
				}
				return ""
			})
		},
	}),
}

var chatRules = rules{
	names:  []string{"model", "max_completion_tokens", "max_tokens", "stream", "stream_options", "store", "tools", "n", "best_of", "models", "plugins", "service_tier"},
	opaque: responsesRules.opaque,
	checks: openAIChecks,
}

func with(all, more map[string]func(*call, span) string) map[string]func(*call, span) string {
	both := make(map[string]func(*call, span) string)
	for _, some := range []map[string]func(*call, span) string{all, more} {
		for name, check := range some {
			both[name] = check
		}
	}
	return both
}

func readOpenAI(c *call) error {
	path := strings.TrimPrefix(c.Path, "/v1")
	switch {
	case c.method == http.MethodGet && (path == "/models" || strings.HasPrefix(path, "/models/")):
		c.Free, c.Body, c.from = true, nil, nil
		return nil
	case c.method == http.MethodGet && path == "/responses":
		return &Refusal{http.StatusUpgradeRequired, "the gateway of this run takes no WebSocket"} // Codex goes on without
	case c.method != http.MethodPost:
		return c.unknown()
	}
	switch path {
	case "/responses", "/responses/compact", "/responses/input_tokens":
		return readResponses(c, path)
	case "/chat/completions":
		return readChat(c)
	}
	return c.unknown()
}

func readResponses(c *call, path string) (err error) {
	c.rules, c.told = responsesRules, responsesTold
	if err := c.body(); err != nil {
		return err
	}
	c.long = c.cachesLong()
	if !c.may.Extras {
		for _, name := range []string{"previous_response_id", "conversation", "prompt"} {
			if c.has(name) {
				return c.refused("stored responses (" + name + ")")
			}
		}
	}
	if err := c.named(); err != nil {
		return err
	}
	if c.Free = path == "/responses/input_tokens"; c.Free {
		return nil
	}
	if c.Stream, err = c.flag("stream"); err != nil {
		return err
	}
	if background, err := c.flag("background"); err != nil {
		return err
	} else if background {
		return c.refused("responses in the background (background), which nobody could count")
	}
	if path == "/responses/compact" { // it knows no maximum, and stores nothing
		return nil
	}
	if err := c.unstored(c.format.Name == "openai"); err != nil {
		return err
	}
	return c.maximum(c.whole(), c.top, "max_output_tokens")
}

// unstored refuses what asks to be stored. A response is stored unless it says otherwise, so
// that is put in.
func (c *call) unstored(byDefault bool) error {
	store, err := c.flag("store")
	switch {
	case err != nil:
		return err
	case c.may.Extras:
	case store:
		return c.refused("stored responses (store)")
	case byDefault && !c.has("store"):
		if at, has := c.top["store"]; has { // null
			c.edits = append(c.edits, edit{at, "false"})
		} else {
			c.edits = append(c.edits, member(c.from, c.whole(), `"store":false`))
		}
	}
	return nil
}

// cachesLong tells whether a request may ask for a cache that is kept for longer. Its answer does not
// tell: https://developers.openai.com/api/docs/guides/prompt-caching.
func (c *call) cachesLong() bool {
	for name := range c.top {
		if strings.HasPrefix(name, "prompt_cache_") && name != "prompt_cache_key" {
			return true
		}
	}
	return false
}

func readChat(c *call) (err error) {
	c.rules, c.told = chatRules, chatTold
	if err := c.body(); err != nil {
		return err
	}
	c.long = c.cachesLong()
	if err := c.named(); err != nil {
		return err
	}
	if err := c.unstored(false); err != nil {
		return err
	}
	for _, name := range []string{"n", "best_of"} {
		if at, has := c.top[name]; has {
			if n, err := c.number(name, at); err != nil || n > 1 {
				return c.bad("the gateway counts one answer to a request, and " + name + " asks for more")
			}
		}
	}
	if c.Stream, err = c.flag("stream"); err != nil {
		return err
	}
	if c.Stream {
		if err := c.includeUsage(); err != nil {
			return err
		}
	}
	// Older servers know max_tokens alone; OpenAI's newer models refuse it.
	if c.format.Name == "openai" {
		return c.maximum(c.whole(), c.top, "max_completion_tokens", "max_tokens")
	}
	return c.maximum(c.whole(), c.top, "max_tokens", "max_completion_tokens")
}

// includeUsage asks for the usage at the end of the stream, if the request does not.
func (c *call) includeUsage() error {
	const usage = `"include_usage":true`
	at, has := c.top["stream_options"]
	fields := c.fields(at)
	told, is := fields["include_usage"]
	switch {
	case !has:
		c.edits = append(c.edits, member(c.from, c.whole(), `"stream_options":{`+usage+"}"))
	case c.null(at):
		c.edits = append(c.edits, edit{at, "{" + usage + "}"})
	case fields == nil:
		return c.bad("stream_options is no object")
	case !is:
		c.edits = append(c.edits, member(c.from, at, usage))
	case string(c.from[told.from:told.to]) != "true":
		c.edits = append(c.edits, edit{told, "true"})
	}
	return nil
}

// responsesTold is where the usage stands: in the answer, or in the response of the last event:
// https://developers.openai.com/api/reference/resources/responses/streaming-events.
var responsesTold = told{
	fields: map[string]field{},
	said:   set("delta"),
	atEnd:  true,
	error:  set("error.code", "error.message", "response.error.code", "response.error.message"),
	tokens: openAITokens,
}

// chatTold is where the usage stands: in the answer, or in the last chunk of a stream, which
// has no choices: https://developers.openai.com/api/reference/resources/chat/subresources/completions/streaming-events.
// Others say it in each chunk, or only once in another than the last.
var chatTold = told{
	fields: map[string]field{
		"usage.prompt_cache_hit_tokens": cacheRead, // https://api-docs.deepseek.com/guides/kv_cache
	},
	said: set("choices[].delta.content", "choices[].delta.reasoning", "choices[].delta.reasoning_content", "choices[].delta.refusal",
		"choices[].delta.tool_calls[].function.arguments", "choices[].delta.tool_calls[].function.name"),
	ends:   set("choices[].finish_reason", "[]"), // the latter is [DONE]
	error:  set("error.code", "error.message"),
	tokens: openAITokens,
}

func init() {
	for _, usage := range []string{"usage.", "response.usage."} {
		for name, f := range map[string]field{
			"input_tokens": input, "output_tokens": output, "total_tokens": total,
			"input_tokens_details.cached_tokens": cacheRead, "input_tokens_details.cache_write_tokens": cacheWrite,
			"output_tokens_details.reasoning_tokens": reasoning,
		} {
			responsesTold.fields[usage+name] = f
		}
	}
	for name, f := range map[string]field{
		"prompt_tokens": input, "completion_tokens": output, "total_tokens": total,
		"prompt_tokens_details.cached_tokens": cacheRead, "prompt_tokens_details.cache_write_tokens": cacheWrite,
		"completion_tokens_details.reasoning_tokens": reasoning,
	} {
		chatTold.fields["usage."+name] = f
	}
}

// openAITokens makes the usage of numbers in which the input has all of the prompt. Some
// servers leave reasoning out of the output, but not out of the total.
func openAITokens(n *numbers) (task.Tokens, bool) {
	t := task.Tokens{CacheRead: min(n.of(cacheRead), n.of(input)), Output: max(n.of(output), n.of(reasoning), n.of(total)-n.of(input)), Reasoning: n.of(reasoning)}
	t.CacheWrite = min(n.of(cacheWrite), n.of(input)-t.CacheRead)
	t.Input = n.of(input) - t.CacheRead - t.CacheWrite
	return t, n[input] >= 0 && n[output] >= 0
}
