package server

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
)

// TestDocumentedCalls: docs/api.md shows each call of the API, and none that there
// is not. The table of the published SDK's methods shows its routes (TestSDKMethods).
func TestDocumentedCalls(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	shown := make(map[string]bool)
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, line := range regexp.MustCompile(`(?m)^curl .*$`).FindAllString(joined, -1) {
		path := regexp.MustCompile(`\{base_url\}([^ "?]*)`).FindStringSubmatch(line)
		if path == nil {
			t.Errorf("no address: %s", line)
			continue
		}
		method := http.MethodGet
		if strings.Contains(line, " -d ") {
			method = http.MethodPost
		}
		if m := regexp.MustCompile(` -X (\w+)`).FindStringSubmatch(line); m != nil {
			method = m[1]
		}
		if !slices.Contains(f.methodsOf(path[1]), method) {
			t.Errorf("there is no such call: %s", line)
		}
		for _, r := range f.engine.Routes() {
			pattern := "^" + regexp.MustCompile(`:\w+`).ReplaceAllString(strings.Replace(r.Path, "*path", ".+", 1), `[^/]+`) + "$"
			if r.Method == method && regexp.MustCompile(pattern).MatchString(path[1]) {
				shown[method+" "+r.Path] = true
			}
		}
	}
	for _, m := range sdkMethods {
		method, path, _ := strings.Cut(m.route, " ")
		shown[method+" "+api.Base+path] = true
	}
	for _, r := range f.engine.Routes() {
		if strings.HasPrefix(r.Path, api.Base) && !shown[r.Method+" "+r.Path] {
			t.Errorf("docs/api.md does not show %s %s", r.Method, r.Path)
		}
	}
}
