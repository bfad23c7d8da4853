package wire

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"triphammer/server/run/task"
)

// anthropic is the Messages API: https://platform.claude.com/docs/en/api/messages.
var anthropic = &Format{
	Name: "anthropic", Keys: []string{"X-Api-Key", "Authorization"},
	read: readAnthropic,
	failure: func(status int, reason string) any { // https://platform.claude.com/docs/en/api/errors
		kind := map[int]string{
			http.StatusUnauthorized: "authentication_error", http.StatusPaymentRequired: "billing_error", http.StatusForbidden: "permission_error",
			http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
			529: "overloaded_error",
		}[status]
		if kind == "" {
			kind = "invalid_request_error"
			if status >= http.StatusInternalServerError {
				kind = "api_error"
			}
		}
		return object{"type": "error", "error": object{"type": kind, "message": reason}}
	},
}

var anthropicRules = rules{
	names: []string{"model", "max_tokens", "stream", "tools", "mcp_servers", "container", "speed", "service_tier", "inference_geo"},
	// The input of a tool, and the schemas of tools, are the agent's.
	opaque: []string{"input", "input_schema", "metadata"},
	checks: map[string]func(*call, span) string{
		"tools": anthropicTools,
		"mcp_servers": func(c *call, at span) string {
			return c.each(at, func(span) string { return "remote MCP servers (mcp_servers)" })
		},
		"container": func(*call, span) string { return "a container of the provider (container)" },
		"file_id":   func(*call, span) string { return "stored files as input (file_id)" },
		"source": func(c *call, at span) string {
			kind, _ := c.text(c.fields(at)["type"])
			if kind == "url" || kind == "file" {
				return "addresses and stored files as input (a source of type " + kind + ")"
			}
			return ""
		},
		// Both cost more than the prices say: https://platform.claude.com/docs/en/about-claude/pricing.
		"speed": func(c *call, at span) string {
			if v, is := c.text(at); is && v != "standard" {
				return "faster service for more money (speed)"
			}
			return ""
		},
		"inference_geo": func(c *call, at span) string {
			if v, is := c.text(at); is && v != "global" {
				return "a place of service for more money (inference_geo)"
			}
			return ""
		},
		"fallbacks": func(*call, span) string { return "other models besides (fallbacks)" },
	},
}

// anthropicClient are the tools of the provider that the agent itself performs, by the begin
// of their types, and the search in the list of tools, which reaches nothing:
// https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-reference.
var anthropicClient = []string{"bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"}

func anthropicTools(c *call, at span) string {
	return c.each(at, func(tool span) string {
		kind, is := c.text(c.fields(tool)["type"])
		if !is || kind == "custom" || slices.ContainsFunc(anthropicClient, func(begin string) bool { return strings.HasPrefix(kind, begin) }) {
			return ""
		}
		return fmt.Sprintf("hosted tools (%s)", clip(kind))
	})
}

func readAnthropic(c *call) error {
	const counting = "/v1/messages/count_tokens"
	switch {
	case c.method == http.MethodGet && (c.Path == "/v1/models" || strings.HasPrefix(c.Path, "/v1/models/")):
		c.Free, c.Body, c.from = true, nil, nil
		return nil
	case c.method != http.MethodPost || c.Path != "/v1/messages" && c.Path != counting:
		return c.unknown()
	}
	c.rules, c.told = anthropicRules, anthropicTold
	if err := c.body(); err != nil {
		return err
	}
	if err := c.named(); err != nil {
		return err
	}
	if c.Free = c.Path == counting; c.Free {
		return nil
	}
	var err error
	if c.Stream, err = c.flag("stream"); err != nil {
		return err
	}
	return c.maximum(c.whole(), c.top, "max_tokens")
}

// anthropicTold is where the usage stands: at the begin of a stream (message_start) without
// the output, then with each message_delta, cumulative:
// https://platform.claude.com/docs/en/build-with-claude/streaming#event-types. Iterations of
// an answer are not all in its own usage: https://platform.claude.com/docs/en/build-with-claude/compaction#understanding-usage.
var anthropicTold = told{
	fields: map[string]field{},
	said:   set("delta.text", "delta.thinking", "delta.partial_json", "delta.content"),
	ends:   set("delta.stop_reason"),
	error:  set("error.type", "error.message"),
	tokens: func(n *numbers) (task.Tokens, bool) {
		t := task.Tokens{
			Input: max(n.of(input), n.of(partInput)), CacheRead: max(n.of(cacheRead), n.of(partCacheRead)),
			CacheWrite: max(n.of(cacheWrite), n.of(partCacheWrite), n.of(cacheHour)), CacheHour: n.of(cacheHour),
			Output: max(n.of(output), n.of(partOutput)),
		}
		return t, n[input] >= 0 && n[output] >= 0
	},
}

func init() {
	for _, usage := range []string{"usage.", "message.usage."} {
		for name, f := range map[string]field{
			"input_tokens": input, "cache_read_input_tokens": cacheRead, "cache_creation_input_tokens": cacheWrite,
			"cache_creation.ephemeral_1h_input_tokens": cacheHour, "output_tokens": output,
			"iterations[].input_tokens": partInput, "iterations[].cache_read_input_tokens": partCacheRead,
			"iterations[].cache_creation_input_tokens": partCacheWrite, "iterations[].output_tokens": partOutput,
		} {
			anthropicTold.fields[usage+name] = f
		}
	}
}

func set(paths ...string) map[string]bool {
	all := make(map[string]bool, len(paths))
	for _, p := range paths {
		all[p] = true
	}
	return all
}
