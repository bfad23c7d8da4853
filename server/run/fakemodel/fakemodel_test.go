package fakemodel

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// dialect is how a client of one format writes a conversation. The conversation is a list:
// "user TEXT" and "result TEXT".
type dialect struct {
	path, header, prefix string
	body                 func(messages []string) string
}

func list(messages []string, item func(kind, text string) string) string {
	items := make([]string, len(messages))
	for i, m := range messages {
		kind, text, _ := strings.Cut(m, " ")
		quoted, _ := json.Marshal(text)
		items[i] = item(kind, string(quoted))
	}
	return "[" + strings.Join(items, ",") + "]"
}

var dialects = map[string]dialect{
	"anthropic": {"/v1/messages", "X-Api-Key", "", func(messages []string) string {
		return `{"model":"m","stream":true,"tools":[{"name":"Bash","input_schema":{"properties":{"command":{"type":"string"}}}},{"name":"mcp__notes__add"}],"messages":` +
			list(messages, func(kind, text string) string {
				if kind == "user" {
					return `{"role":"user","content":` + text + `}`
				}
				return `{"role":"user","content":[{"type":"tool_result","content":` + text + `}]}`
			}) + `}`
	}},
	"responses": {"/v1/responses", "Authorization", "Bearer ", func(messages []string) string {
		return `{"model":"m","stream":true,"tools":[{"type":"function","name":"shell","parameters":{"properties":{"command":{"type":"array"}}}},` +
			`{"type":"namespace","name":"mcp__notes","tools":[{"type":"function","name":"add"}]}],"input":` +
			list(messages, func(kind, text string) string {
				if kind == "user" {
					return `{"type":"message","role":"user","content":[{"type":"input_text","text":` + text + `}]}`
				}
				return `{"type":"function_call_output","output":` + text + `}`
			}) + `}`
	}},
	"programs": {"/v1/responses", "Authorization", "Bearer ", func(messages []string) string {
		return `{"model":"m","stream":true,"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","tools":[{"type":"custom","name":"exec"}]}]},` +
			list(messages, func(kind, text string) string {
				if kind == "user" {
					return `{"type":"message","role":"user","content":[{"type":"input_text","text":` + text + `}]}`
				}
				return `{"type":"custom_tool_call_output","output":` + text + `}`
			})[1:] + `}`
	}},
	"chat": {"/v1/chat/completions", "Authorization", "Bearer ", func(messages []string) string {
		return `{"model":"m","stream":true,"tools":[{"function":{"name":"bash","parameters":{"properties":{"command":{"type":"string"},"description":{}}}}},{"function":{"name":"notes_add"}}],"messages":` +
			list(messages, func(kind, text string) string {
				if kind == "user" {
					return `{"role":"user","content":` + text + `}`
				}
				return `{"role":"tool","content":` + text + `}`
			}) + `}`
	}},
	"gemini": {"/v1beta/models/m:streamGenerateContent?alt=sse", "X-Goog-Api-Key", "", func(messages []string) string {
		return `{"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":{"properties":{"command":{"type":"string"}}}},{"name":"mcp_notes_add"}]}],"contents":` +
			list(messages, func(kind, text string) string {
				if kind == "user" {
					return `{"role":"user","parts":[{"text":` + text + `}]}`
				}
				return `{"role":"user","parts":[{"functionResponse":{"response":{"output":` + text + `}}}]}`
			}) + `}`
	}},
}

// ask returns the data of the answer's events.
func ask(t testing.TB, d dialect, key, body string) (status int, data string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, d.path, strings.NewReader(body))
	r.Header.Set(d.header, d.prefix+key)
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return w.Code, w.Body.String()
	}
	var events []string
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if event != "[DONE]" && !json.Valid([]byte(event)) {
				t.Errorf("not JSON: %s", event)
			}
			events = append(events, event)
		}
	}
	return w.Code, strings.Join(events, "\n")
}

// TestScript: in each format, the model plays the script of the newest prompt that has one.
func TestScript(t *testing.T) {
	const first = "user Do it.\nMODEL: run make\nMODEL: call add {\"n\":1}\nMODEL: say Well done\n"
	for name, d := range dialects {
		for _, c := range []struct {
			messages []string
			want     string
		}{
			{[]string{first}, "make"},
			{[]string{first, "result no rule"}, "add"},
			{[]string{first, "result no rule", "result 1"}, "Well done"},
			{[]string{first, "result no rule", "user a reminder", "result 1", "result 2"}, "Done."},
			{[]string{first, "result 1", "user Go on.\nMODEL: say Second"}, "Second"},
			{[]string{"user \nMODEL: repeat date", "result 1", "result 2", "result 3"}, "date"},
			{[]string{"user Hello"}, "Done."},
		} {
			status, data := ask(t, d, Key, d.body(c.messages))
			if status != http.StatusOK || !strings.Contains(data, c.want) || !strings.Contains(data, fmt.Sprint(InputTokens)) {
				t.Errorf("%s: %q is answered %d %s, not with %q", name, c.messages, status, data, c.want)
			}
		}
		for text, want := range map[string]int{"fail 500": 500, "fail 429": 429, "fail 200": 400, "dance": 400, "call add 1,": 400} {
			if status, data := ask(t, d, Key, d.body([]string{"user MODEL: " + text})); status != want || !json.Valid([]byte(data)) {
				t.Errorf("%s: %s is answered %d %s, not %d", name, text, status, data, want)
			}
		}
		if _, data := ask(t, d, Key, d.body([]string{first, "result no rule"})); name == "responses" && !strings.Contains(data, `"namespace":"mcp__notes"`) {
			t.Errorf("the group of a tool is not named: %s", data)
		}
		if status, _ := ask(t, d, "another", d.body([]string{"user Hello"})); status != http.StatusUnauthorized {
			t.Errorf("%s: a wrong key is answered %d", name, status)
		}
	}
}

// TestSchema: a question for an object gets one.
func TestSchema(t *testing.T) {
	d := dialects["gemini"]
	d.path = "/v1beta/models/m:generateContent"
	r := httptest.NewRequest(http.MethodPost, d.path, strings.NewReader(`{"contents":[{"role":"user","parts":[{"text":"MODEL: run make"}]}],"generationConfig":{"responseJsonSchema":`+
		`{"type":"OBJECT","properties":{"n":{"type":"INTEGER"},"why":{"type":"STRING"},"which":{"type":"string","enum":["flash"]},"sure":{"type":"BOOLEAN"}}}}}`))
	r.Header.Set(d.header, Key)
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	if want := `{\"n\":1,\"sure\":false,\"which\":\"flash\",\"why\":\"loopback\"}`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s has no %s", w.Body, want)
	}
}

// FuzzHandler: no request makes the model panic, or answer with anything but JSON.
func FuzzHandler(f *testing.F) {
	for _, d := range dialects {
		f.Add(d.path, d.body([]string{"user MODEL: run make", "result 1"}))
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if strings.Contains(body, "wait") {
			return // it waits
		}
		for _, d := range dialects {
			if d.path == path {
				ask(t, d, Key, body)
			}
		}
	})
}
