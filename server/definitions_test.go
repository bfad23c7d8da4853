package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/bodies"
)

func files(t *testing.T, all ...string) string {
	t.Helper()
	var req api.DefinitionFiles
	for i := 0; i < len(all); i += 2 {
		req.Files = append(req.Files, api.DefinitionFile{Path: all[i], Content: &all[i+1]})
	}
	text, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const validateRoute = "/api/v1/factory-files/validate"

// TestValidateFiles: anybody may have definitions checked; the verdict is that
// of the command (SPEC 3.6, docs/api.md).
func TestValidateFiles(t *testing.T) {
	f := newFixture(t)
	yaml := "schemaVersion: v1alpha1\nname: X\n"
	for _, c := range []struct {
		name, query, body string
		codes             []string
	}{
		{"valid", "", files(t, "factory.yaml", yaml), nil},
		{"strict", "?strict=true", files(t, "factory.yaml", yaml), []string{schema.MissingRequired, schema.MissingRequired, schema.MissingRequired}},
		{"no factory", "", files(t, "webhooks/a.yaml", "secretName: A\n"), []string{schema.MissingFactory}},
		{"no files", "", `{"files":[]}`, []string{schema.MissingFactory}},
		{"two faults", "", files(t, "factory.yaml", yaml, "webhooks/a.yaml", "secretNam: A\nauthMode: tokn\n"), []string{schema.MissingRequired, schema.UnknownField, schema.InvalidValue}},
		{"a warning", "", files(t, "factory.yaml", yaml+"providers: {}\n"), nil},
		{"another version", "", files(t, "factory.yaml", "schemaVersion: v9\nname: X\n"), []string{schema.UnsupportedVersion}},
	} {
		got := f.do("POST", validateRoute+c.query, "", c.body)
		var answer schema.Answer
		if err := json.Unmarshal(got.body, &answer); got.status != 200 || err != nil || answer.Valid != (len(c.codes) == 0) || answer.Scope.StateDependent != "not_checked" || len(answer.NotRun) == 0 {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		if other := c.name == "another version"; other != (answer.SchemaVersion == "v9") || other != (answer.Scope.StateIndependent == "not_run") {
			t.Errorf("%s: %s", c.name, got.body)
		}
		// What is not an error stands apart: clients count the diagnostics.
		if warned := c.name == "a warning"; warned != (len(answer.Warnings) == 1) {
			t.Errorf("%s: %s", c.name, got.body)
		}
		var codes []string
		for _, d := range answer.Diagnostics {
			if codes = append(codes, d.Code); d.Line < 1 || d.Column < 1 {
				t.Errorf("%s: no place: %+v", c.name, d)
			}
		}
		if fmt.Sprint(codes) != fmt.Sprint(c.codes) {
			t.Errorf("%s: %v, want %v", c.name, codes, c.codes)
		}
	}
	// A key that is not one changes nothing: none is asked for.
	if got := f.do("POST", validateRoute, "thk_nonsense", files(t, "factory.yaml", yaml)); got.status != 200 {
		t.Errorf("with a key: %d", got.status)
	}
	deferred := f.do("POST", validateRoute, "", files(t, "factory.yaml", yaml, "webhooks/a.yaml", "secretName: A\n"))
	if !strings.Contains(string(deferred.body), `{"path":"webhooks/a.yaml","field":"secretName","kind":"secret","name":"A"}`) {
		t.Errorf("%s", deferred.body)
	}
}

// TestValidateCaps: the format's own caps, and paths that are none.
func TestValidateCaps(t *testing.T) {
	f := newFixture(t)
	var many []string
	for i := range maxValidateFiles + 1 {
		many = append(many, fmt.Sprintf("skills/%d", i), "x")
	}
	big := strings.Repeat("x", schema.MaxFile)
	var heavy []string
	for i := range 9 {
		heavy = append(heavy, fmt.Sprintf("skills/%d", i), big)
	}
	for _, c := range []struct {
		name, body string
		status     int
		field      string
	}{
		{"too many", files(t, many...), 400, "files"},
		{"one less", files(t, many[2:]...), 200, ""},
		{"a large file", files(t, "skills/a", big+"x"), 400, "files[0].content"},
		{"too much", files(t, heavy...), 400, "files"},
		{"as much as can be", files(t, heavy[2:]...), 200, ""},
		{"twice", files(t, "skills/a", "x", "skills/a", "y"), 400, "files[1].path"},
		{"upwards", files(t, "../factory.yaml", "x"), 400, "files[0].path"},
		{"absolute", files(t, "/factory.yaml", "x"), 400, "files[0].path"},
		{"no path", files(t, "", "x"), 400, "files[0].path"},
		{"another system's path", files(t, `webhooks\a.yaml`, "x"), 400, "files[0].path"},
		{"not JSON", "{", 400, ""},
		{"no files", `{}`, 400, "files"},
		{"no content", `{"files":[{"path":"factory.yaml","contents":"x"}]}`, 400, "files[0].content"},
		{"another shape", `{"files":{}}`, 400, ""},
		{"a huge body", files(t, "a", strings.Repeat("\x00", maxValidateBody)), 413, ""},
	} {
		got := f.do("POST", validateRoute, "", c.body)
		var p api.Problem
		_ = json.Unmarshal(got.body, &p) // a 200 has no problem
		if got.status != c.status || c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != c.field) {
			t.Errorf("%s: %d %.200s", c.name, got.status, got.body)
		}
	}
	if got := f.do("POST", validateRoute+"?strict=perhaps", "", files(t)); got.status != 400 {
		t.Errorf("strict=perhaps: %d", got.status)
	}
}

// TestValidateKey: the operator can ask for a key, any at all.
func TestValidateKey(t *testing.T) {
	f := newFixture(t)
	f.cfg.ValidateKey = true
	body := files(t, "factory.yaml", "schemaVersion: v1alpha1\nname: X\n")
	for key, status := range map[string]int{"": 401, "thk_nonsense": 401, f.key("r", "runs"): 200, f.key("d", "read"): 200} {
		if got := f.do("POST", validateRoute, key, body); got.status != status {
			t.Errorf("%q: %d, want %d", key, got.status, status)
		}
	}
}

// TestValidateSlowReaders: who does not read an answer holds nobody up, and has to
// be done in time.
func TestValidateSlowReaders(t *testing.T) {
	f := newFixture(t)
	f.patience = time.Second // an answer that holds a slot makes the others wait this long
	body := files(t, "factory.yaml", "schemaVersion: v1alpha1\nname: X\n", "webhooks/a.yaml", "secretNam: A\n")
	writing, read := make(chan *slowReader), make(chan struct{})
	var wg sync.WaitGroup
	for range 4 * maxChecked {
		wg.Go(func() {
			w := &slowReader{ResponseRecorder: httptest.NewRecorder(), writing: writing, read: read}
			f.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", validateRoute, strings.NewReader(body)))
		})
	}
	for range 4 * maxChecked {
		w := <-writing
		if left := time.Until(w.deadline); w.Code != 200 || left <= 0 || left > verdictTime {
			t.Errorf("%d, to be read within %v", w.Code, left)
		}
	}
	if got := f.do("POST", validateRoute, "", body); got.status != 200 {
		t.Errorf("beside slow readers: %d %s", got.status, got.body)
	}
	close(read)
	wg.Wait()
}

// TestValidateSilence: who sends nothing of a tree keeps nobody from having one
// checked.
func TestValidateSilence(t *testing.T) {
	f := newFixture(t)
	var dropped atomic.Int64
	f.trees = bodies.NewBudget(4*bodies.Step, 4*bodies.Step, func(netip.Prefix) { dropped.Add(1) })
	for range 20 {
		f.dial(unsent("POST " + validateRoute))
	}
	waitUntil(t, "the budget is not spent", func() bool { return f.trees.Spent() == 4*bodies.Step && dropped.Load() == 16 })
	status, _, _ := f.raw(post(validateRoute, files(t, "factory.yaml", "schemaVersion: v1alpha1\nname: X\n"+strings.Repeat("#", 2*bodies.Step))))
	if status != 200 {
		t.Errorf("beside silent ones: %d", status)
	}
	waitUntil(t, "a tree that was checked holds memory", func() bool { return f.trees.Spent() <= 4*bodies.Step-bodies.Step })
}

// slowReader is a connection whose other end reads when it pleases.
type slowReader struct {
	*httptest.ResponseRecorder
	deadline time.Time
	writing  chan<- *slowReader
	read     <-chan struct{}
	once     sync.Once
}

func (s *slowReader) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

func (s *slowReader) Write(data []byte) (int, error) {
	s.once.Do(func() { s.writing <- s })
	<-s.read
	return s.ResponseRecorder.Write(data)
}

// TestValidateTurns: many at once are all answered, a few at a time.
func TestValidateTurns(t *testing.T) {
	f := newFixture(t)
	body := files(t, "factory.yaml", "schemaVersion: v1alpha1\nname: X\n")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got := f.do("POST", validateRoute, "", body); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	wg.Wait()
}

// TestPlanRoute: the plan is against what serves here, with this server's secrets
// (SPEC 3.5), and only for who may read the factory.
func TestPlanRoute(t *testing.T) {
	f := newFixture(t)
	key := f.key("reader", "read")
	yaml := "schemaVersion: v1alpha1\nname: Test\n"
	route := "/api/v1/factories/default/plan"
	ask := func(body string) api.PlanAnswer {
		t.Helper()
		got := f.do("POST", route, key, body)
		var answer api.PlanAnswer
		if err := json.Unmarshal(got.body, &answer); err != nil || got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return answer
	}
	answer := ask(files(t, "factory.yaml", yaml, "webhooks/hook.yaml", "secretName: S\nauthMode: url_token\n"))
	if !answer.Valid || len(answer.Plan.Update) != 1 || len(answer.Plan.Delete) != 3 || len(answer.Plan.Callouts) != 2 {
		t.Errorf("%+v", answer)
	}
	answer = ask(files(t, "factory.yaml", yaml, "webhooks/hook.yaml", "secretName: NONE\n"))
	if answer.Valid || len(answer.Diagnostics) != 1 || answer.Diagnostics[0].Code != schema.MissingSecret || answer.Plan.Pending() {
		t.Errorf("%+v", answer)
	}
	for path, status := range map[string]int{
		"/api/v1/factories/other/plan": 404,
		route + "?deliveries=-1":       400,
		route + "?deliveries=1001":     400,
		route + "?deliveries=a":        400,
		route + "?deliveries=0":        200,
	} {
		if got := f.do("POST", path, key, files(t, "factory.yaml", yaml)); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestSchemas: the JSON Schemas are open to all, and editors need not read them
// twice (SPEC 3.6).
func TestSchemas(t *testing.T) {
	f := newFixture(t)
	root := "/api/v1/factory-files/schemas"
	if got := f.do("GET", root, "", ""); got.status != 200 || field(t, got, "current_version") != schema.Version {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, path := range []string{root, root + "/v1alpha1"} {
		got := f.do("GET", path, "", "")
		if again := f.do("GET", path, "", "", "If-None-Match", got.header.Get("ETag")); again.status != 304 || len(again.body) > 0 {
			t.Errorf("%s: %d, ETag %q", path, again.status, got.header.Get("ETag"))
		}
	}
	// The published shapes (docs/api.md).
	if got := f.do("GET", root, "", ""); string(got.body) != `{"current_version":"v1alpha1","versions":[{"schema_version":"v1alpha1","schema_url":"`+root+`/v1alpha1"}]}` {
		t.Errorf("%s", got.body)
	}
	bundle := f.do("GET", root+"/v1alpha1", "", "")
	var all struct {
		SchemaVersion string                     `json:"schema_version"`
		Documents     map[string]json.RawMessage `json:"documents"`
	}
	if err := json.Unmarshal(bundle.body, &all); err != nil || len(all.Documents) != len(schema.JSONSchemaNames()) || all.Documents["webhook.schema.json"] == nil || all.SchemaVersion != schema.Version {
		t.Errorf("%d %v", bundle.status, err)
	}
	for _, name := range schema.JSONSchemaNames() {
		for _, document := range []string{name, name + ".schema.json"} {
			got := f.do("GET", root+"/v1alpha1/"+document, "", "")
			if got.status != 200 || got.header.Get("Content-Type") != "application/schema+json" || !json.Valid(got.body) {
				t.Errorf("%s: %d %s", document, got.status, got.header)
			}
			for tag, status := range map[string]int{
				got.header.Get("ETag"): 304, "W/" + got.header.Get("ETag"): 304, `"x", ` + got.header.Get("ETag"): 304, "*": 304, `"x"`: 200,
			} {
				if again := f.do("GET", root+"/v1alpha1/"+document, "", "", "If-None-Match", tag); again.status != status {
					t.Errorf("%s, If-None-Match %s: %d", document, tag, again.status)
				}
			}
		}
	}
	for _, path := range []string{"/v2", "/v1alpha1/nothing", "/v2/webhook"} {
		if got := f.do("GET", root+path, "", ""); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

// TestFileContents: the bytes of a file come through JSON as they are, or are refused.
func TestFileContents(t *testing.T) {
	for _, data := range []string{"", "text ☃\n", "\x00\xff\xfe binary", strings.Repeat("\xff", 1000)} {
		content, encoding := api.EncodeContent([]byte(data))
		body, err := json.Marshal(api.DefinitionFiles{Files: []api.DefinitionFile{{Path: "skills/s/f", Content: &content, Encoding: encoding, Executable: true}}})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := treeOf(body, 1, 1<<20)
		if err != nil || len(tree.Files) != 1 || string(tree.Files[0].Data) != data || !tree.Files[0].Executable {
			t.Errorf("%.20q: %.60v, %v", data, tree, err)
		}
	}
	for body, want := range map[string]string{
		`{"files": [{"path": "f", "content": "x", "encoding": "utf-16"}]}`:  `the encoding "utf-16" is not base64`,
		`{"files": [{"path": "f", "content": "%%", "encoding": "base64"}]}`: "illegal base64",
		"{\"files\": [{\"path\": \"f\", \"content\": \"\xff\"}]}":           "encoding base64",
	} {
		if _, err := treeOf([]byte(body), 1, 1<<20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", body, err)
		}
	}
}
