package wire

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"triphammer/server/run/task"
)

// gemini is Google's Gemini API: https://ai.google.dev/api/generate-content. Names may be
// written as generationConfig or as generation_config
// (https://protobuf.dev/programming-guides/json/), so a body may have one of both.
var gemini = &Format{
	Name: "gemini", Keys: []string{"X-Goog-Api-Key", "Authorization"}, KeyQuery: "key",
	read: readGemini,
	failure: func(status int, reason string) any { // https://ai.google.dev/gemini-api/docs/troubleshooting
		name := map[int]string{
			http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusPaymentRequired: "PERMISSION_DENIED", http.StatusForbidden: "PERMISSION_DENIED",
			http.StatusNotFound: "NOT_FOUND", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED",
		}[status]
		if name == "" {
			name = "INVALID_ARGUMENT"
			if status >= http.StatusInternalServerError {
				name = "UNAVAILABLE"
			}
		}
		return object{"error": object{"code": status, "message": reason, "status": name}}
	},
}

var geminiRules = rules{
	names: []string{"generationConfig", "generation_config", "tools", "cachedContent", "cached_content", "generateContentRequest", "generate_content_request"},
	// Arguments and results of the agent's functions, and schemas, are the agent's.
	opaque: []string{
		"args", "response", "parameters", "parametersJsonSchema", "parameters_json_schema", "responseSchema", "response_schema",
		"responseJsonSchema", "response_json_schema", "_responseJsonSchema", "responseFormat", "response_format",
	},
	checks: both(map[string]func(*call, span) string{
		"tools":         geminiTools,
		"fileData":      func(*call, span) string { return "addresses and stored files as input (fileData)" },
		"cachedContent": func(*call, span) string { return "stored input (cachedContent)" },
		// Sound and images as answers cost more than text: https://ai.google.dev/gemini-api/docs/pricing.
		"responseModalities": func(c *call, at span) string { return c.textAlone("responseModalities", at) },
		"speechConfig":       func(*call, span) string { return "sound (speechConfig)" },
		"inlineData": func(c *call, at span) string {
			fields := c.fields(at)
			for _, name := range []string{"mimeType", "mime_type"} {
				if kind, _ := c.text(fields[name]); strings.HasPrefix(strings.ToLower(kind), "audio/") {
					return "sound (inlineData of the type " + clip(kind) + ")"
				}
			}
			return ""
		},
		"serviceTier": func(c *call, at span) string {
			if tier, _ := c.text(at); slices.Contains([]string{"", "unspecified", "standard", "flex"}, strings.TrimPrefix(strings.ToLower(tier), "service_tier_")) {
				return ""
			}
			return "faster service for more money (serviceTier)"
		},
	}),
}

var capital = regexp.MustCompile("[A-Z]")

// snake is the other spelling of a name.
func snake(name string) string {
	return capital.ReplaceAllStringFunc(name, func(c string) string { return "_" + strings.ToLower(c) })
}

func both(checks map[string]func(*call, span) string) map[string]func(*call, span) string {
	all := make(map[string]func(*call, span) string)
	for name, check := range checks {
		all[name], all[snake(name)] = check, check
	}
	return all
}

// geminiClient are the kinds of tools that the agent itself performs.
var geminiClient = []string{"functionDeclarations", "function_declarations", "computerUse", "computer_use"}

func geminiTools(c *call, at span) string {
	return c.each(at, func(tool span) string {
		for kind, value := range c.fields(tool) {
			if !slices.Contains(geminiClient, kind) && !c.null(value) {
				return fmt.Sprintf("hosted tools (%s)", clip(kind))
			}
		}
		return ""
	})
}

var geminiPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^/v1(?:beta|alpha)?/models(?:/([A-Za-z0-9][A-Za-z0-9._-]{0,199})(?::([A-Za-z]+))?)?$`)
})

func readGemini(c *call) error {
	parts := geminiPath().FindStringSubmatch(c.Path)
	if parts == nil {
		return c.unknown()
	}
	model, verb := parts[1], parts[2]
	if verb == "" && c.method == http.MethodGet {
		c.Free, c.Body, c.from = true, nil, nil
		return nil
	}
	if c.method != http.MethodPost || model == "" || !slices.Contains([]string{"generateContent", "streamGenerateContent", "countTokens"}, verb) {
		return c.unknown()
	}
	c.rules, c.told = geminiRules, geminiTold
	if err := c.body(); err != nil {
		return err
	}
	for _, name := range []string{"generationConfig", "cachedContent", "generateContentRequest"} {
		if _, is := c.top[snake(name)]; is {
			if _, twice := c.top[name]; twice {
				return c.bad(fmt.Sprintf("the body has both %s and %s", name, snake(name)))
			}
		}
	}
	c.Model, c.Stream, c.Free = model, verb == "streamGenerateContent", verb == "countTokens"
	if c.Free {
		return nil
	}
	return c.generation()
}

// generation reads the settings of the answer.
func (c *call) generation() error {
	at, has := c.top["generationConfig"]
	if !has {
		at, has = c.top["generation_config"]
	}
	if !has || c.null(at) {
		c.limit = func(n string) []edit {
			config := `{"maxOutputTokens":` + n + "}"
			if has {
				return []edit{{at, config}}
			}
			return []edit{member(c.from, c.whole(), `"generationConfig":`+config)}
		}
		return nil
	}
	fields := c.fields(at)
	if fields == nil {
		return c.bad("generationConfig is no object")
	}
	for _, name := range []string{"candidateCount", "candidate_count"} {
		if n, is := fields[name]; is {
			if n, err := c.number(name, n); err != nil || n > 1 {
				return c.bad("the gateway counts one answer to a request, and candidateCount asks for more")
			}
		}
	}
	return c.maximum(at, fields, "maxOutputTokens", "max_output_tokens")
}

// geminiTold is where the usage stands: in each part of a stream, cumulative:
// https://ai.google.dev/api/generate-content#UsageMetadata. The thoughts are not among the
// tokens of the candidates. A stream without alt=sse is one array.
var geminiTold = told{
	fields: map[string]field{},
	said:   map[string]bool{},
	ends:   map[string]bool{},
	error:  map[string]bool{},
	tokens: func(n *numbers) (task.Tokens, bool) {
		prompt := n.of(input) + n.of(toolInput)
		t := task.Tokens{CacheRead: min(n.of(cacheRead), prompt), Output: max(n.of(output)+n.of(reasoning), n.of(total)-prompt), Reasoning: n.of(reasoning)}
		t.Input = prompt - t.CacheRead
		return t, n[input] >= 0 && (n[output] >= 0 || n[total] >= 0)
	},
}

func init() {
	for _, answer := range []string{"", "[]."} {
		for name, f := range map[string]field{
			"promptTokenCount": input, "cachedContentTokenCount": cacheRead, "candidatesTokenCount": output, "thoughtsTokenCount": reasoning,
			"toolUsePromptTokenCount": toolInput, "totalTokenCount": total,
		} {
			geminiTold.fields[answer+"usageMetadata."+name] = f
		}
		geminiTold.said[answer+"candidates[].content.parts[].text"] = true
		geminiTold.ends[answer+"candidates[].finishReason"] = true
		geminiTold.ends[answer+"promptFeedback.blockReason"] = true
		geminiTold.error[answer+"error.status"] = true
		geminiTold.error[answer+"error.message"] = true
	}
}
