package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// goSyntax is what an error for people has nowhere: values, types and layouts as Go writes them,
// and its own errors about them.
var goSyntax = regexp.MustCompile(`map\[|%!|strconv\.|json: |unmarshal|interface ?\{|\[\]string|Go value|Go struct|reflect|<nil>|2006-01-02|net/http|url\.|parse \\"|base64 data`)

// TestErrorsInPlainWords: whatever a body or a parameter holds, its error is in words of JSON and
// HTTP.
func TestErrorsInPlainWords(t *testing.T) {
	f := newFixture(t)
	key := f.key("all", store.ScopeManage, store.ScopeOperate, store.ScopeRead, store.ScopeRuns)
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	wrong := []string{`"x"`, `7`, `1e400`, `true`, `null`, `[1]`, `["x",{"a":1}]`, `{"a":{"x":[1]}}`}
	refused := 0
	try := func(method, path, body string) {
		t.Helper()
		got := f.do(method, path, key, body)
		if got.status >= 500 {
			t.Errorf("%s %s %.300s: %d %s", method, path, body, got.status, got.body)
		}
		if got.status < 400 {
			return
		}
		refused++
		var p api.Problem
		if err := json.Unmarshal(got.body, &p); err != nil {
			t.Errorf("%s %s: %s", method, path, got.body)
		}
		said := p.Message
		for _, field := range p.Errors {
			said += " | " + field.Message
		}
		if found := goSyntax.FindString(said); found != "" {
			t.Errorf("%s %s %.300s: %q in %s", method, path, body, found, said)
		}
	}
	names := strings.NewReplacer("{name}", "default", "{uid}", "default", "{automation}", "all", "{webhook}", "hook")
	for _, route := range f.engine.Routes() {
		path := names.Replace(inPath.ReplaceAllString(route.Path, "{$1}"))
		if !strings.HasPrefix(path, api.Base) || strings.HasSuffix(path, "/mcp/factory") || strings.HasSuffix(path, "/backup") {
			continue
		}
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x")
		operation := doc.Paths.Value(inPath.ReplaceAllString(route.Path, "{$1}")).GetOperation(route.Method)
		for _, p := range operation.Parameters {
			if p.Value.In == "query" {
				for _, value := range []string{"x", "-1", "99999999999999999999", "%zz"} {
					try(route.Method, path+"?"+p.Value.Name+"="+strings.ReplaceAll(url.QueryEscape(value), "%25zz", "%zz"), "")
				}
			}
		}
		if operation.RequestBody == nil {
			continue
		}
		for _, body := range append(wrong, `{`, `{"a"`, "\xff", `{} {}`) {
			try(route.Method, path, body)
		}
		content := operation.RequestBody.Value.Content["application/json"]
		if content == nil {
			continue
		}
		terms.Each(propertiesOf(content.Schema.Value, 0), func(property string) struct{} {
			for _, value := range []string{`"x"`, `1.5`, `null`, `[1]`, `{"a":{"x":[1]}}`} {
				body := value
				for _, name := range slices.Backward(strings.Split(property, ".")) {
					if inner, list := strings.CutSuffix(name, "[]"); list {
						name, body = inner, "["+body+"]"
					}
					body = `{"` + name + `":` + body + `}`
				}
				try(route.Method, path, body)
			}
			return struct{}{}
		})
	}
	if refused < 500 {
		t.Errorf("only %d were refused", refused)
	}
	if got := f.do(http.MethodPost, api.Base+"/agent/runs", key, `{"prompt":7}`); !strings.Contains(string(got.body), "prompt takes a text, not a JSON number") {
		t.Errorf("%s", got.body)
	}
}

// propertiesOf are the properties of a schema, and of those within it.
func propertiesOf(s *openapi3.Schema, depth int) (all []string) {
	for name, p := range s.Properties {
		all = append(all, name)
		if inner, suffix := p.Value, "."; depth < 3 && inner != nil {
			if inner.Items != nil {
				inner, suffix = inner.Items.Value, "[]."
			}
			for _, below := range propertiesOf(inner, depth+1) {
				all = append(all, name+suffix+below)
			}
		}
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		all = append(all, propertiesOf(part.Value, depth)...)
	}
	return all
}
