package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"triphammer/server/api"
	"triphammer/server/terms"
)

// goSyntax is what an error for people has nowhere: values and types as Go writes them, and its
// own errors about them.
var goSyntax = regexp.MustCompile(`map\[|%!|strconv\.|json: |unmarshal|validating |interface ?\{|\[\]string|struct|reflect|<nil>|<invalid`)

// TestWrongArguments: whatever a tool is given, it says in words of JSON what is wrong.
func TestWrongArguments(t *testing.T) {
	p := &Peer{Caller: api.Caller{Scopes: terms.Scopes}, Version: "test", Logger: slog.New(slog.DiscardHandler)}
	p.API = func(context.Context, string, string, []byte) (int, []byte, error) {
		return 200, []byte(`{"factories":[{"name":"default","uid":"default"}],"path":"a","content":"x"}`), nil
	}
	s := connected(t, p)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != len(Tools) {
		t.Fatal(len(list.Tools), err)
	}
	valid := map[string]json.RawMessage{"string": json.RawMessage(`"x"`), "array": json.RawMessage(`[]`), "object": json.RawMessage(`{}`), "integer": json.RawMessage(`1`)}
	values := map[string]string{
		"text": `"twelve"`, "number": `7`, "fraction": `1.5`, "huge": `1e400`, "large": `99999999999999999999`, "true": `true`, "null": `null`, "list": `[{"a":{"b":1}}]`, "object": `{"a":{"x":[1]}}`,
		"long": `"` + strings.Repeat("x", 5000) + `"`, "nulls": `[null]`, "hidden": `{"\u202e":1}`, "mixed": `{"path":5,"content":{}}`, "files": `[{"path":5,"content":{}}]`, "less": `[{"path":"a"}]`,
	}
	failures := 0
	call := func(tool string, arguments any) string {
		t.Helper()
		got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Errorf("%s: %v", tool, err)
			return ""
		}
		if !got.IsError {
			return ""
		}
		failures++
		said := got.Content[0].(*sdk.TextContent).Text
		if found := goSyntax.FindString(said); found != "" || len(said) > 700 || strings.Contains(said, "\u202e") {
			t.Errorf("%s: %q in %s", tool, found, said)
		}
		return said
	}
	for _, tool := range list.Tools {
		schema := tool.InputSchema.(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		base := make(map[string]json.RawMessage)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			kind, _ := properties[name.(string)].(map[string]any)["type"].(string)
			if kind == "" {
				kind = "array"
			}
			base[name.(string)] = valid[kind]
		}
		for name := range properties {
			for _, value := range values {
				with := maps.Clone(base)
				with[name] = json.RawMessage(value)
				call(tool.Name, with)
			}
		}
		for _, name := range required {
			without := maps.Clone(base)
			delete(without, name.(string))
			if said := call(tool.Name, without); said != name.(string)+" is missing" {
				t.Errorf("%s without %s: %s", tool.Name, name, said)
			}
		}
		with := maps.Clone(base)
		with["surprise"] = json.RawMessage(`1`)
		if said := call(tool.Name, with); !strings.HasPrefix(said, "arguments takes ") || !strings.HasSuffix(said, "and not surprise") {
			t.Errorf("%s: %s", tool.Name, said)
		}
		for _, arguments := range []string{`[1]`, `"x"`, `7`, `{"a":{"x":[1]}}`} {
			call(tool.Name, json.RawMessage(arguments))
		}
	}
	if err := checkArguments(json.RawMessage(" null"), reflect.TypeFor[struct{}]()); err != nil {
		t.Errorf("null for no arguments: %v", err)
	}
	if failures < 500 {
		t.Errorf("%d calls failed", failures)
	}
	for _, one := range []struct{ tool, arguments, want string }{
		{"list_deliveries", `{"limit":"ten"}`, `limit: a whole number is expected, not "ten"`},
		{"list_deliveries", `{"webhook":{"a":"x"}}`, `webhook: a text is expected, not {"a":"x"}`},
		{"list_deliveries", `{"limit":1.5}`, `limit: a whole number is expected, not 1.5`},
		{"list_runs", `{"state":"FAILED"}`, `state: a list is expected, not "FAILED"`},
		{"list_runs", `{"state":[{"a":1}]}`, `state[0]: a text is expected, not {"a":1}`},
		{"start_run", `{"prompt":"x","metadata":{"a":1}}`, `metadata.a: a text is expected, not 1`},
		{"retry_run", `{"run_id":"run_x","resume":"yes"}`, `resume: true or false is expected, not "yes"`},
		{"validate_factory_files", `{"files":[{"path":"a"}]}`, `files[0].content is missing`},
		{"change_factory_files", `{"files":[{"path":7,"content":null}]}`, `files[0].path: a text is expected, not 7`},
		{"get_run", `[1]`, `arguments: an object is expected, not [1]`},
	} {
		if said := call(one.tool, json.RawMessage(one.arguments)); said != one.want {
			t.Errorf("%s %s: %s", one.tool, one.arguments, said)
		}
	}
	if slices.Contains([]bool{goSyntax.MatchString("map[a:x]"), goSyntax.MatchString("json: cannot unmarshal string into Go value of type int")}, false) {
		t.Error("Go is not recognized")
	}
}
