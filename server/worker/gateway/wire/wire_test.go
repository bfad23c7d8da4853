package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"triphammer/server/run/task"
)

// where are the requests of each API for an answer.
var where = map[string]struct {
	format *Format
	path   string
}{
	"messages":  {anthropic, "/v1/messages"},
	"count":     {anthropic, "/v1/messages/count_tokens"},
	"responses": {openAI, "/v1/responses"},
	"compact":   {openAI, "/responses/compact"},
	"chat":      {openAI, "/v1/chat/completions"},
	"other":     {compatible, "/chat/completions"},
	"generate":  {gemini, "/v1beta/models/gemini-2.5-pro:generateContent"},
	"stream":    {gemini, "/v1beta/models/gemini-2.5-pro:streamGenerateContent"},
}

func read(t testing.TB, api, body string) (*Request, error) {
	t.Helper()
	w := where[api]
	if w.format == nil {
		t.Fatalf("no API %s", api)
	}
	return w.format.Read(http.MethodPost, w.path, url.Values{}, http.Header{}, []byte(body), Options{})
}

// TestRead: what a request asks for, and what is passed on, also with a maximum of 7.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		api, body string
		model     string
		limit     int64
		stream    bool
		sent      string // empty: as it came
		limited   string
	}{
		{"messages", `{"model":"claude-x","max_tokens":100,"stream":true,"messages":[]}`, "claude-x", 100, true, "", `{"model":"claude-x","max_tokens":7,"stream":true,"messages":[]}`},
		{"messages", `{"model":"m"}`, "m", NoLimit, false, "", `{"max_tokens":7,"model":"m"}`},
		{"messages", `{"model":"m","max_tokens":null}`, "m", NoLimit, false, "", `{"model":"m","max_tokens":7}`},
		{"messages", `{"model":"m","max_tokens":9223372036854775807}`, "m", maxTokens, false, "", `{"model":"m","max_tokens":7}`}, // sums stay numbers
		{"messages", `{"model":"m","max_tokens":0}`, "m", 0, false, "", `{"model":"m","max_tokens":7}`},
		{"count", `{"model":"m","max_tokens":5}`, "m", NoLimit, false, "", `{"model":"m","max_tokens":5}`},
		{
			"responses", ` { "model": "gpt" , "input": "hi" , "store": false } `, "gpt", NoLimit, false, "",
			` {"max_output_tokens":7, "model": "gpt" , "input": "hi" , "store": false } `,
		},
		{
			"responses", `{"model":"gpt","max_output_tokens":9,"store":null}`, "gpt", 9, false,
			`{"model":"gpt","max_output_tokens":9,"store":false}`, `{"model":"gpt","max_output_tokens":7,"store":false}`,
		},
		{"responses", `{"model":"gpt"}`, "gpt", NoLimit, false, `{"store":false,"model":"gpt"}`, `{"store":false,"max_output_tokens":7,"model":"gpt"}`},
		{"compact", `{"model":"gpt"}`, "gpt", NoLimit, false, "", `{"model":"gpt"}`},
		{"chat", `{"model":"m","stream":true}`, "m", NoLimit, true, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"max_completion_tokens":7,"model":"m","stream":true}`},
		{"chat", `{"stream_options":null,"model":"m","stream":true}`, "m", NoLimit, true, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`, `{"max_completion_tokens":7,"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{"other", `{"stream_options":{ },"model":"m","stream":true,"n":1}`, "m", NoLimit, true, `{"stream_options":{"include_usage":true },"model":"m","stream":true,"n":1}`, `{"max_tokens":7,"stream_options":{"include_usage":true },"model":"m","stream":true,"n":1}`},
		{"other", `{"stream_options":{"include_usage":false},"model":"m","stream":true}`, "m", NoLimit, true, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`, `{"max_tokens":7,"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{"chat", `{"model":"m","max_tokens":3,"max_completion_tokens":20}`, "m", 20, false, "", `{"model":"m","max_tokens":7,"max_completion_tokens":7}`},
		{"generate", `{}`, "gemini-2.5-pro", NoLimit, false, "", `{"generationConfig":{"maxOutputTokens":7}}`},
		{"stream", `{"generationConfig":null}`, "gemini-2.5-pro", NoLimit, true, "", `{"generationConfig":{"maxOutputTokens":7}}`},
		{"stream", `{"generation_config":{"top_k":1}}`, "gemini-2.5-pro", NoLimit, true, "", `{"generation_config":{"maxOutputTokens":7,"top_k":1}}`},
		{"stream", `{"generationConfig":{"max_output_tokens":12}}`, "gemini-2.5-pro", 12, true, "", `{"generationConfig":{"max_output_tokens":7}}`},
		// What only looks like an extra.
		{"messages", `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"source":{"type":"url"},"file_id":"x","tools":[{"type":"web_search_x"}]}}]}]}`, "m", NoLimit, false, "", ""},
		{"messages", `{"model":"m","tools":[{"name":"t","input_schema":{"properties":{"container":{}}}},{"type":"bash_20250124"},{"type":"custom"}],"mcp_servers":[],"container":null}`, "m", NoLimit, false, "", ""},
		{"messages", `{"model":"m","messages":[{"content":[{"type":"image","source":{"type":"base64","data":"aa"}},{"type":"search_result","source":"https://x"}]}]}`, "m", NoLimit, false, "", ""},
		{"compact", `{"model":"m","tools":[{"type":"namespace","tools":[{"type":"function","parameters":{"properties":{"file_id":{"type":"string"}}}}]},{"type":"shell","environment":{"type":"local"}}]}`, "m", NoLimit, false, "", ""},
		{"compact", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,aa"}]},{"type":"function_call","arguments":"{\"file_id\":1}"}]}`, "m", NoLimit, false, "", ""},
		{"chat", `{"model":"m","messages":[{"content":[{"image_url":{"url":"data:x"}}]}],"service_tier":"flex"}`, "m", NoLimit, false, "", ""},
		{"chat", `{"model":"m","modalities":["text"],"audio":null}`, "m", NoLimit, false, "", ""},
		{"generate", `{"generationConfig":{"responseModalities":["TEXT"]},"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"aa"}}]}]}`, "gemini-2.5-pro", NoLimit, false, "", ""},
		{"generate", `{"tools":[{"functionDeclarations":[{"parameters":{"properties":{"fileData":{}}}}]},{"googleSearch":null}],"contents":[{"parts":[{"functionCall":{"args":{"fileData":1}}}]}]}`, "gemini-2.5-pro", NoLimit, false, "", ""},
	} {
		r, err := read(t, tt.api, tt.body)
		if err != nil {
			t.Errorf("%s %s: %v", tt.api, tt.body, err)
			continue
		}
		if tt.sent == "" {
			tt.sent = tt.body
		}
		if r.Model != tt.model || r.Limit != tt.limit || r.Stream != tt.stream || string(r.Body) != tt.sent || r.Free != (tt.api == "count") {
			t.Errorf("%s %s: %s, limit %d, stream %v, free %v, body %s", tt.api, tt.body, r.Model, r.Limit, r.Stream, r.Free, r.Body)
		}
		r.SetLimit(8)
		r.SetLimit(7) // the last counts
		if tt.limited != "" && string(r.Body) != tt.limited || !json.Valid(r.Body) {
			t.Errorf("%s %s, at most 7: %s", tt.api, tt.body, r.Body)
		}
	}
}

// TestRefused: what is not passed on, and why (SPEC 25.1).
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		api, body string
		status    int
		want      string
	}{
		{"messages", `{"model":"m","model":"n"}`, 400, `the key "model" twice`},
		{"messages", `{"model":"m","mod\u0065l":"n"}`, 400, `the key "model" twice`},
		{"messages", `{"model":"m","a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"d":2}`, 400, `the key "d" twice`},
		{"messages", `{"model":"m","messages":[{"content":[{"type":"tool_use","input":{"a":1,"a":2}}]}]}`, 400, `the key "a" twice`},
		{"messages", `{"model":"m","MAX_TOKENS":1}`, 400, `write "max_tokens"`},
		{"messages", `{"model":"m","max_tokens":1.5}`, 400, "max_tokens is no whole number"},
		{"messages", `{"model":"m","max_tokens":-1}`, 400, "max_tokens is no whole number"},
		{"messages", `{"model":"m","max_tokens":"5"}`, 400, "max_tokens is no whole number"},
		{"messages", `{"model":"m","max_tokens":99999999999999999999}`, 400, "max_tokens is no whole number"},
		{"messages", `{"model":"m","stream":1}`, 400, "stream is neither"},
		{"messages", `{"model":5}`, 400, "names no model"},
		{"messages", `{"model":"m\u0000"}`, 400, "names no model"},
		{"messages", `[]`, 400, "no object"},
		{"messages", `{"model":"m"`, 400, "not JSON"},
		{"messages", `{"model":"m","x":` + strings.Repeat("[", 200) + "1" + strings.Repeat("]", 200) + `}`, 400, "nested deeper"},
		{"messages", `{"model":"m","tools":[{"type":"web_search_20250305"}]}`, 403, "hosted tools (web_search_20250305)"},
		{"count", `{"model":"m","tools":[{"type":"code_execution_20250825"}]}`, 403, "hosted tools"},
		{"messages", `{"model":"m","mcp_servers":[{"url":"https://x"}]}`, 403, "remote MCP servers"},
		{"messages", `{"model":"m","container":"c"}`, 403, "container"},
		{"messages", `{"model":"m","messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}]}`, 403, "addresses and stored files"},
		{"messages", `{"model":"m","messages":[{"content":[{"type":"document","source":{"file_id":"f","type":"file"}}]}]}`, 403, "stored files"},
		{"messages", `{"model":"m","speed":"fast"}`, 403, "faster service"},
		{"messages", `{"model":"m","fallbacks":[{"model":"n"}]}`, 403, "other models"},
		{"responses", `{"model":"m","background":true}`, 403, "in the background"},
		{"responses", `{"model":"m","store":true}`, 403, "stored responses"},
		{"responses", `{"model":"m","previous_response_id":"r"}`, 403, "stored responses"},
		{"responses", `{"model":"m","input":[{"type":"item_reference","id":"i"}]}`, 403, "item_reference"},
		{"responses", `{"model":"m","input":[{"id":"i"}]}`, 403, "item_reference"},
		{"responses", `{"model":"m","tools":[{"type":"web_search"}]}`, 403, "hosted tools (web_search)"},
		{"responses", `{"model":"m","tools":[{"type":"mcp"}]}`, 403, "hosted tools (mcp)"},
		{"responses", `{"model":"m","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`, 403, "hosted tools (shell)"},
		{"responses", `{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"image_generation"}]}]}]}`, 403, "hosted tools (image_generation)"},
		{"responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}]}`, 403, "addresses"},
		{"responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}]}`, 403, "addresses"},
		{"responses", `{"model":"m","service_tier":"priority"}`, 403, "faster service"},
		{"chat", `{"model":"m","n":2}`, 400, "n asks for more"},
		{"chat", `{"model":"m","messages":[{"content":[{"image_url":{"url":"https://x"}}]}]}`, 403, "addresses"},
		{"chat", `{"model":"openai/gpt:online"}`, 403, "hosted tools (:online)"},
		{"chat", `{"model":"m","web_search_options":{}}`, 403, "hosted tools"},
		{"other", `{"model":"m","models":["n"]}`, 403, "other models"},
		{"chat", `{"model":"m","stream":true,"stream_options":[]}`, 400, "stream_options"},
		{"generate", `{"tools":[{"google_search":{}}]}`, 403, "hosted tools (google_search)"},
		{"generate", `{"tools":{"urlContext":{}}}`, 403, "hosted tools (urlContext)"},
		{"generate", `{"contents":[{"parts":[{"file_data":{"file_uri":"https://x"}}]}]}`, 403, "addresses"},
		{"generate", `{"cached_content":"c"}`, 403, "stored input"},
		{"chat", `{"model":"m","modalities":["text","audio"]}`, 403, "sound or images as answers (modalities)"},
		{"chat", `{"model":"m","audio":{"voice":"a","format":"wav"}}`, 403, "sound (audio)"},
		{"chat", `{"model":"m","messages":[{"content":[{"type":"input_audio","input_audio":{"data":"aa"}}]}]}`, 403, "sound (input_audio)"},
		{"responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"aa"}}]}]}`, 403, "sound (input_audio)"},
		{"generate", `{"generationConfig":{"responseModalities":["TEXT","AUDIO"]}}`, 403, "sound or images as answers"},
		{"generate", `{"generation_config":{"response_modalities":["IMAGE"]}}`, 403, "sound or images as answers"},
		{"generate", `{"generationConfig":{"speechConfig":{}}}`, 403, "sound (speechConfig)"},
		{"generate", `{"contents":[{"parts":[{"inline_data":{"mime_type":"Audio/wav","data":"aa"}}]}]}`, 403, "sound (inlineData"},
		{"generate", `{"generationConfig":{},"generation_config":{}}`, 400, "both generationConfig and generation_config"},
		{"generate", `{"generationConfig":{"candidateCount":2}}`, 400, "candidateCount"},
		{"generate", `{"generationConfig":[]}`, 400, "no object"},
	} {
		_, err := read(t, tt.api, tt.body)
		var no *Refusal
		if !errors.As(err, &no) || no.Status != tt.status || !strings.Contains(no.Reason, tt.want) {
			t.Errorf("%s %s: %v", tt.api, tt.body, err)
			continue
		}
		w := where[tt.api]
		body := strings.ReplaceAll(tt.body, `"model":"n"`, "")
		always := strings.Contains(tt.body, "background") || tt.want == "other models"
		if _, err := w.format.Read("POST", w.path, nil, nil, []byte(body), Options{Extras: true}); tt.status == 403 && (err != nil) != always {
			t.Errorf("%s %s with extras: %v", tt.api, tt.body, err)
		}
	}
}

// TestPaths: only the paths of the model's API are passed on.
func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		format *Format
		call   string
		status int // 0: passed on
	}{
		{anthropic, "GET /v1/models", 0},
		{anthropic, "POST /v1/messages/batches", 404},
		{anthropic, "POST /v1/files", 404},
		{anthropic, "POST /v1/messages/../files", 404},
		{anthropic, "POST /v1/messages%2f", 404},
		{anthropic, "POST //v1/messages", 404},
		{anthropic, "GET /v1/messages", 404},
		{anthropic, "DELETE /v1/models/x", 404},
		{openAI, "GET /v1/models/x", 0},
		{openAI, "GET /responses", 426},
		{openAI, "GET /v1/responses/resp_1", 404},
		{openAI, "POST /v1/responses/resp_1/cancel", 404},
		{openAI, "POST /v1/files", 404},
		{openAI, "POST /v1/embeddings", 404},
		{openAI, "POST /v1/batches", 404},
		{compatible, "GET /models", 0},
		{gemini, "GET /v1beta/models", 0},
		{gemini, "GET /v1beta/models/x", 0},
		{gemini, "POST /v1beta/models/x:batchGenerateContent", 404},
		{gemini, "POST /v1beta/models/x:generateContent/y", 404},
		{gemini, "POST /v1beta/tunedModels/x:generateContent", 404},
		{gemini, "POST /upload/v1beta/files", 404},
		{gemini, "POST /v1beta/cachedContents", 404},
	} {
		method, path, _ := strings.Cut(tt.call, " ")
		r, err := tt.format.Read(method, path, nil, nil, []byte(`{"model":"m"}`), Options{Extras: true})
		no := (*Refusal)(nil)
		if errors.As(err, &no); tt.status == 0 && (err != nil || !r.Free) || tt.status != 0 && (no == nil || no.Status != tt.status) {
			t.Errorf("%s %s: %v", tt.format.Name, tt.call, err)
		}
	}
	_, err := anthropic.Read("POST", "/v1/messages", nil, http.Header{"Content-Encoding": {"zstd"}}, nil, Options{})
	if err == nil || !strings.Contains(err.Error(), "zstd") {
		t.Error(err)
	}
}

// TestEstimate: the estimate of a request's tokens is upward, and an image has no more tokens
// for its size.
func TestEstimate(t *testing.T) {
	text := strings.Repeat("A text of some words. ", 10_000)
	r, err := read(t, "messages", `{"model":"m","messages":[{"content":"`+text+`"}]}`)
	if err != nil || r.Input < int64(len(text))/2 {
		t.Errorf("%v: %d tokens for %d bytes", err, r.Input, len(text))
	}
	png := `"iVBORw0KGgo` + strings.Repeat("A", 1<<20) + `"`
	for _, image := range []string{`"data":` + png + `,"media_type":"image/png"`, `"mimeType":"image/png","data":` + png, `"url":"data:image/jpeg;base64,/9j/` + strings.Repeat("A", 1<<20) + `"`} {
		r, err := read(t, "messages", `{"model":"m","messages":[{"content":[{`+image+`}]}]}`)
		if err != nil || r.Input < tokensOfImage || r.Input > 2*tokensOfImage {
			t.Errorf("%v: %d tokens for an image", err, r.Input)
		}
	}
	// What a model reads as text is no image, however it begins.
	for _, text := range []string{`"text":` + png, `"type":"text","media_type":"text/plain","data":` + png, `"input":{"media_type":"image/png","data":` + png + `}`, `"content":[` + png + `]`} {
		if r, err := read(t, "messages", `{"model":"m","messages":[{"content":[{`+text+`}]}]}`); err != nil || r.Input < 1<<19 {
			t.Errorf("%v: %d tokens for a text of 1 MiB: %.50s", err, r.Input, text)
		}
	}
}

// TestFailure: an error has the form of the provider.
func TestFailure(t *testing.T) {
	for _, f := range Formats {
		for _, status := range []int{400, 402, 403, 404, 413, 429, 500, 529} {
			var got struct {
				Error struct{ Message string }
			}
			if err := json.Unmarshal(f.Error(status, "Too \"much\"\xff."), &got); err != nil || got.Error.Message != `Too "much"?.` {
				t.Errorf("%s %d: %v %+v", f.Name, status, err, got)
			}
		}
	}
	if Named("openrouter") != compatible || Named("gemini") != gemini {
		t.Error("a format has another name")
	}
}

// sse is a stream of events.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("event: x\ndata: " + e + "\n\n")
	}
	return b.String()
}

var answers = []struct {
	name, api string
	text      string
	want      task.Tokens
	least     int64 // of input, once the first event has been there
	trouble   string
}{
	{
		"Anthropic's stream", "messages",
		sse(`{"type":"message_start","message":{"id":"m","model":"c","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"cache_read_input_tokens":4000,"output_tokens":1}}}`,
			`{"type":"ping"}`, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"He said \"usage\":{\"input_tokens\":9999} and }]"}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"output_tokens\": 77"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":150}}`, `{"type":"message_stop"}`),
		task.Tokens{Input: 25, CacheRead: 4000, CacheWrite: 300, CacheHour: 200, Output: 150},
		25, "",
	},
	{
		"Anthropic's stream with iterations", "messages",
		sse(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10,"output_tokens":5,"iterations":[{"type":"compaction","input_tokens":1000,"output_tokens":200},{"type":"message","input_tokens":10,"output_tokens":5}]}}`),
		task.Tokens{Input: 1010, Output: 205},
		10, "",
	},
	{
		"Anthropic's answer", "messages",
		`{"id":"m","content":[{"type":"tool_use","input":{"usage":{"output_tokens":5000}}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4,"server_tool_use":{"web_search_requests":1}}}`,
		task.Tokens{Input: 3, Output: 4},
		0, "",
	},
	{
		"Anthropic's stream with an error", "messages",
		sse(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`, `{"type":"error","error":{"type":"overloaded_error","message":"Over\u006coaded"}}`),
		task.Tokens{Input: 10, Output: 1},
		10, "overloaded_error: Overloaded",
	},
	{
		"OpenAI's stream of a response", "responses",
		sse(`{"type":"response.created","response":{"id":"r","usage":null}}`, `{"type":"response.output_text.delta","delta":"hi"}`,
			`{"type":"response.completed","response":{"output":[{"content":[{"text":"`+strings.Repeat("x", 5000)+`"}]}],"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":600,"cache_write_tokens":100},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":30},"total_tokens":1050}}}`),
		task.Tokens{Input: 300, CacheRead: 600, CacheWrite: 100, Output: 50, Reasoning: 30},
		0, "",
	},
	{
		"OpenAI's response", "responses",
		`{"id":"r","error":null,"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}`,
		task.Tokens{Input: 10, Output: 5},
		0, "",
	},
	{
		"OpenAI's failed response", "responses",
		sse(`{"type":"response.failed","response":{"error":{"code":"server_error","message":"No."},"usage":null}}`),
		task.Tokens{},
		0, "server_error: No.",
	},
	{
		"OpenAI's chat", "chat",
		sse(`{"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}],"usage":null}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}`, "[DONE]"),
		task.Tokens{Input: 15, CacheRead: 5, Output: 7, Reasoning: 2},
		0, "",
	},
	{
		"a chat that leaves reasoning out", "other",
		sse(`{"choices":[{"delta":{"reasoning_content":"hmm"}}],"usage":{"prompt_tokens":20,"completion_tokens":1,"total_tokens":21}}`,
			`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":57}}`),
		task.Tokens{Input: 20, Output: 37},
		20, "",
	},
	{"a chat that is no stream", "other", `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":2,"completion_tokens":3}}`, task.Tokens{Input: 2, Output: 3}, 0, ""},
	{
		"Gemini's stream", "stream",
		sse(`{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":1,"totalTokenCount":121,"thoughtsTokenCount":20}}`,
			`{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":9,"toolUsePromptTokenCount":4,"thoughtsTokenCount":20,"totalTokenCount":133}}`),
		task.Tokens{Input: 44, CacheRead: 60, Output: 29, Reasoning: 20},
		40, "",
	},
	{
		"Gemini's stream as an array", "stream",
		`[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}` + "\n,\n" +
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}]`,
		task.Tokens{Input: 10, Output: 5},
		0, "",
	},
	{
		"Gemini's answer", "generate",
		`{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"usageMetadata":{"promptTokenCount":1}}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}`,
		task.Tokens{Input: 10, Output: 5},
		0, "",
	},
}

func counter(t testing.TB, api string) *Counter {
	r, err := read(t, api, `{"model":"m"}`)
	if err != nil {
		t.Fatal(err)
	}
	return r.Counter()
}

// TestCount: the usage is counted however the answer is cut into writes, and with every kind
// of line ends; a part of an answer never counts more than the whole, and is not complete
// (SPEC 25.2).
func TestCount(t *testing.T) {
	for _, tt := range answers {
		for _, text := range []string{tt.text, strings.ReplaceAll(tt.text, "\n", "\r\n"), strings.ReplaceAll(tt.text, "\n", "\r"), "\xEF\xBB\xBF" + tt.text} {
			bytewise := counter(t, tt.api)
			told := false
			for i := range len(text) {
				cut := counter(t, tt.api)
				_, _ = cut.Write([]byte(text[:i]))
				before, complete := cut.Usage(), cut.Complete()
				if strings.Contains(text[:i], "}\n\n") && before.Input < tt.least {
					t.Errorf("%s, cut at %d: %+v", tt.name, i, before)
				}
				if before.Total() > tt.want.Total() && before.Output > tt.want.Output {
					t.Errorf("%s, cut at %d: %+v is more than the whole", tt.name, i, before)
				}
				if complete && before != tt.want {
					t.Fatalf("%s, cut at %d, is complete with %+v", tt.name, i, before)
				}
				_, _ = cut.Write([]byte(text[i:]))
				if cut.Usage() != tt.want || cut.Complete() != (tt.trouble == "") || cut.Trouble() != tt.trouble {
					t.Fatalf("%s, in two parts at %d: %+v %v %s", tt.name, i, cut.Usage(), cut.Complete(), cut.Trouble())
				}
				_, _ = bytewise.Write([]byte{text[i]})
				if told && !bytewise.Began() {
					t.Errorf("%s: the begin is forgotten", tt.name)
				}
				told = bytewise.Began()
			}
			if bytewise.Usage() != tt.want || !told && tt.trouble == "" {
				t.Errorf("%s, in bytes: %+v, began %v", tt.name, bytewise.Usage(), told)
			}
		}
	}
}

// TestCountStream: what the model has said counts before the provider tells how much it was.
func TestCountStream(t *testing.T) {
	c := counter(t, "responses")
	for range 100 {
		fmt.Fprint(c, sse(`{"type":"response.output_text.delta","delta":"`+strings.Repeat("word ", 8)+`"}`))
	}
	if c.Usage().Output != 1000 || c.Complete() || !c.Began() {
		t.Errorf("%+v", c.Usage())
	}
}

// TestCountGarbage: a counter takes anything, and keeps little of it.
func TestCountGarbage(t *testing.T) {
	for _, text := range []string{strings.Repeat("{", 1<<20), strings.Repeat(`["`, 1<<20), "data:" + strings.Repeat(`{"a":`, 1<<18), strings.Repeat("}", 1<<20), `{"` + strings.Repeat("x", 1<<20), strings.Repeat("a", 1<<20)} {
		c := counter(t, "messages")
		_, _ = c.Write([]byte(text))
		if kept := cap(c.scan.path) + cap(c.scan.text); kept > 4096 || c.Complete() {
			t.Errorf("%.20s: %d bytes are kept, complete %v", text, kept, c.Complete())
		}
	}
	c := counter(t, "messages") // after garbage, the next event counts
	fmt.Fprint(c, "data: {[[\n\n"+answers[0].text)
	if c.Usage() != answers[0].want {
		t.Errorf("%+v", c.Usage())
	}
}

// TestCountLongCache: what a request to OpenAI may have asked to be kept for longer counts as that.
func TestCountLongCache(t *testing.T) {
	for body, want := range map[string]int64{`{"model":"m","prompt_cache_key":"k"}`: 0, `{"model":"m","prompt_cache_retention":"24h"}`: 9} {
		r, err := read(t, "responses", body)
		if err != nil {
			t.Fatal(err)
		}
		c := r.Counter()
		fmt.Fprint(c, `{"usage":{"input_tokens":10,"input_tokens_details":{"cache_write_tokens":9},"output_tokens":1}}`)
		if c.Usage().CacheHour != want {
			t.Errorf("%s: %+v", body, c.Usage())
		}
	}
}

func FuzzRead(f *testing.F) {
	for api := range where {
		f.Add(api, []byte(`{"model":"m","max_tokens":5,"tools":[{"type":"custom"}],"generationConfig":{"x":[1]},"stream":true,"stream_options":{}}`))
	}
	f.Fuzz(func(t *testing.T, api string, body []byte) {
		w, known := where[api]
		if !known {
			return
		}
		for _, may := range []Options{{}, {Extras: true}} {
			r, err := w.format.Read(http.MethodPost, w.path, nil, nil, body, may)
			if no := (*Refusal)(nil); err != nil {
				if !errors.As(err, &no) || no.Status < 400 || no.Reason == "" {
					t.Fatal(err)
				}
				continue
			}
			limited := r.limit != nil
			r.SetLimit(11)
			if !json.Valid(r.Body) || r.Input < 0 {
				t.Fatalf("%s became %s", body, r.Body)
			}
			again, err := w.format.Read(http.MethodPost, w.path, nil, nil, r.Body, may)
			if err != nil || limited && again.Limit != 11 || string(again.Body) != string(r.Body) {
				t.Fatalf("%s became %s: %v", body, r.Body, err)
			}
		}
	})
}

func FuzzCount(f *testing.F) {
	for _, a := range answers {
		f.Add(a.api, []byte(a.text), len(a.text)/2)
	}
	f.Fuzz(func(t *testing.T, api string, text []byte, at int) {
		if _, known := where[api]; !known || api == "count" {
			return
		}
		whole, parts := counter(t, api), counter(t, api)
		_, _ = whole.Write(text)
		at = min(max(at, 0), len(text))
		_, _ = parts.Write(text[:at])
		before := parts.Usage()
		_, _ = parts.Write(text[at:])
		u := parts.Usage()
		if whole.Usage() != u || whole.Complete() != parts.Complete() || whole.Trouble() != parts.Trouble() {
			t.Fatalf("whole %+v, in two parts %+v", whole.Usage(), u)
		}
		for _, n := range []int64{u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Total() - before.Total()} {
			if n < 0 {
				t.Fatalf("%+v after %+v", u, before)
			}
		}
		if cap(parts.scan.path)+cap(parts.scan.text) > 4096 {
			t.Fatal("it keeps much")
		}
	})
}
