package server

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"triphammer/server/api"
)

// TestParameters: each route takes the parameters that openapi.yaml has, and refuses others, so
// that none silently does nothing.
func TestParameters(t *testing.T) {
	f := newFixtureWith(t, options{files: publishedTree, hosted: true})
	key := f.key("k", "manage")
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	described := make(map[string]map[string]parameter)
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			route := method + " " + path
			described[route] = make(map[string]parameter)
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				if p.Value.In != "query" {
					continue
				}
				described[route][p.Value.Name] = parameter{repeats: p.Value.Schema.Value.Type.Is("array"), keyed: p.Value.Style == "deepObject"}
				if strings.Contains(path, "{") || method != http.MethodGet || !strings.HasPrefix(path, api.Base) {
					continue // it would need a thing of that name
				}
				query := valid(p.Value)
				for _, other := range operation.Parameters { // without which there is no answer
					if other != p && other.Value.In == "query" && other.Value.Required {
						query += "&" + valid(other.Value)
					}
				}
				if got := f.get(path+"?"+query, key); got.status != http.StatusOK && got.status != http.StatusNotFound {
					t.Errorf("%s with %s: %d %s", route, query, got.status, got.body)
				}
			}
		}
	}
	if !reflect.DeepEqual(parameters(), described) {
		t.Errorf("the lines of openapi.yaml are read as\n%v\nnot as\n%v", parameters(), described)
	}

	seen := 0
	for _, r := range f.engine.Routes() {
		path := inPath.ReplaceAllString(r.Path, "x")
		if !strings.HasPrefix(path, api.Base) || strings.HasSuffix(path, "/mcp/factory") { // what MCP says is in its body
			continue
		}
		got := f.do(r.Method, path+"?nonsense=1", key, "")
		operation := doc.Paths.Value(inPath.ReplaceAllString(r.Path, "{$1}")).GetOperation(r.Method)
		succeeds := slices.ContainsFunc(slices.Collect(maps.Keys(operation.Responses.Map())), func(status string) bool { return status[0] == '2' })
		switch {
		case !succeeds: // it has no counterpart here, and says so
			if got.status < 400 {
				t.Errorf("%s %s: %d %s", r.Method, r.Path, got.status, got.body)
			}
		case got.status != http.StatusBadRequest || !strings.Contains(string(got.body), `"nonsense"`):
			t.Errorf("%s %s takes nonsense: %d %s", r.Method, r.Path, got.status, got.body)
		default:
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("only %d routes were asked", seen)
	}
	for query, want := range map[string]string{
		"/agent/runs?state=FAILED&state=QUEUED": "", "/agent/runs?metadata[a]=1&metadata[b]=2": "", "/agent/runs?limit=1&limit=2": "limit can be given once",
		"/agent/runs?limit[a]=1": `the parameter \"limit[a]\"`, "/agent/runs?metadata=a": `the parameter \"metadata\"`, "/agent/runs?metadata[a=1": `the parameter \"metadata[a\"`,
		"/agent/runs?state=%zz": "not well formed", "/agent/runs?a;b": "not well formed", "/caller?x": "takes no parameters",
	} {
		got := f.get(api.Base+query, key)
		if wantStatus := map[bool]int{true: 200, false: 400}[want == ""]; got.status != wantStatus || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// valid is a parameter with a value that its route takes.
func valid(p *openapi3.Parameter) string {
	s := p.Schema.Value
	if p.Style == "deepObject" {
		return p.Name + "[a]=1"
	}
	aTime := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if s.Type.Is("array") {
		s = s.Items.Value
	}
	if len(s.Enum) > 0 {
		return p.Name + "=" + s.Enum[0].(string)
	}
	values := map[string]string{
		"since": aTime, "until": aTime, "state": "FAILED", "source": "API", "outcome": "accepted", "stopped": "none", "cursor": "",
		"schedule_id": "sch_0000000000001", "ancestor_run_id": "run_0000000000001", "delivery_id": "dlv_0000000000001", "duplicate_of": "dlv_0000000000001",
		"replay_of": "dlv_0000000000001", "conversation_id": "run_0000000000001", "retry_of_run_id": "run_0000000000001",
	}
	value, named := values[p.Name]
	switch {
	case named:
	case s.Type.Is("integer"):
		value = "1"
	case s.Type.Is("boolean"):
		value = "true"
	case s.Format == "date-time":
		value = aTime
	default:
		value = "x"
	}
	return url.Values{p.Name: {value}}.Encode()
}
