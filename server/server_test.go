package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/server/access"
	answering "triphammer/server/answer"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/hosted"
	"triphammer/server/ledger"
	"triphammer/server/metrics"
	"triphammer/server/oidc"
	"triphammer/server/run"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

const hookSecret = "correct-horse-battery-staple"

// fixture is a server on a real store, with definitions that are live and no run
// manager running: runs stay QUEUED.
type fixture struct {
	*Server
	t       *testing.T
	store   *store.Store
	applier *applier.Applier
	parts   access.Config // of its data
	work    string        // the folder of the definitions
	home    *hosted.Repository
	url     string
	spec    routers.Router
}

// options are what a fixture has beside the plain one.
type options struct {
	files              fstest.MapFS      // more definitions
	secrets            map[string]string // more managed secrets
	rate, authFailures int               // of the ingress; 0: no limit
	now                func() time.Time  // of the store and the ingress
	logger             *slog.Logger
	base               string // path of the base URL
	signIn             func(baseURL string) *oidc.Provider
	hosted             bool // the factory lives here, with the definitions as its first commit
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, options{})
}

func newFixtureWith(t *testing.T, opt options) *fixture {
	t.Helper()
	if opt.logger == nil {
		opt.logger = slog.New(slog.DiscardHandler)
	}
	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Artifacts: filepath.Join(dir, "artifacts"), Now: opt.now, Logger: opt.logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	work := filepath.Join(dir, "work")
	files := fstest.MapFS{
		"factory.yaml":         {Data: []byte("schemaVersion: v1alpha1\nname: Test\n")},
		"webhooks/hook.yaml":   {Data: []byte("secretName: S\n")},
		"environments/e.yaml":  {Data: []byte("command: ['true']\n")},
		"automations/a.md":     {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {n: [1]}}}\n---\nDo it.\n")},
		"automations/other.md": {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: github, event: push}\n---\nDo it.\n")},
	}
	maps.Copy(files, opt.files)
	source, home := sourceOf(t, dir, files, opt.hosted)
	if _, err := st.Secrets.Set(t.Context(), "S", secret.New(hookSecret)); err != nil {
		t.Fatal(err)
	}
	for name, value := range opt.secrets {
		if _, err := st.Secrets.Set(t.Context(), name, secret.New(value)); err != nil {
			t.Fatal(err)
		}
	}
	live := &applier.Live{}
	l := ledger.New(st)
	a := applier.New(applier.Config{Factory: "default", Source: source, Live: live, Ledger: l, Logger: opt.logger})
	counts := metrics.New("v1.2.3")
	desk := run.NewDesk(run.Config{Store: st, Logger: opt.logger, KeepWorkspaces: time.Hour, Observe: counts.Run, Now: opt.now}, nil)
	deliveries := delivery.New(delivery.Config{
		Live: live, Store: st, Load: l.Load, Observe: counts.Delivery, RateLimit: opt.rate, AuthFailures: opt.authFailures, Now: opt.now, Logger: opt.logger,
		Stopped: desk.Stopped,
	})
	if err := counts.Watch(st, nil, func() (int, int, int, error) { return 3, 2, 1, nil }); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: st, applier: a, work: work, home: home}
	answers := answering.New(answering.Config{Store: st, Waits: desk.WaitsFor, Link: func(id store.RunID) string { return "https://hammer.example.com/runs/" + id.String() }, Now: time.Now, Logger: opt.logger})
	f.parts = access.Config{Store: st, Live: live, Load: l.Load, Appliers: []*applier.Applier{a}, Delivery: deliveries, Runs: desk, Answers: answers}
	ts := httptest.NewUnstartedServer(nil)
	f.url = "http://" + ts.Listener.Addr().String()
	var signIn *oidc.Provider
	if opt.signIn != nil {
		signIn = opt.signIn(f.url)
	}
	f.Server, err = New(Config{
		SignIn: signIn,
		Data:   access.New(f.parts), Metrics: counts,
		BaseURL: f.url + opt.base, SyncSecrets: map[string]string{"default": "PUSH_SECRET"}, Version: "test", Logger: opt.logger, Place: func(string) Place { return Place{Home: home} },
		Host: func(_ context.Context, name, _ string) error { // in the same repository
			f.cfg.Data.Add(applier.New(applier.Config{Factory: name, Source: source, Live: live, Ledger: l, Logger: opt.logger}))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ts.Config = f.door.HTTPServer(f.Handler())
	ts.Start()
	t.Cleanup(ts.Close)
	if got := f.get("/readyz", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("ready before anything serves: %+v", got)
	}
	if done, err := a.Apply(t.Context(), "start"); err != nil || done.Outcome != applier.Applied {
		t.Fatal(done, err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.spec, err = gorillamux.NewRouter(doc); err != nil {
		t.Fatal(err)
	}
	return f
}

// sourceOf puts definitions into a folder, or into a repository that is hosted here.
func sourceOf(t *testing.T, dir string, files fstest.MapFS, here bool) (applier.Source, *hosted.Repository) {
	t.Helper()
	if !here {
		work := filepath.Join(dir, "work")
		if err := os.CopyFS(work, files); err != nil {
			t.Fatal(err)
		}
		source, err := gitrepo.OpenWorkTree(work)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = source.Close() })
		return source, nil
	}
	home, err := hosted.Open(t.Context(), hosted.Config{Dir: filepath.Join(dir, "home.git"), Branch: "main", Check: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	commitTo(t, home, files)
	source, err := gitrepo.Open(home.Dir(), "main")
	if err != nil {
		t.Fatal(err)
	}
	return source, home
}

// commitTo commits files to a hosted repository, without a check.
func commitTo(t *testing.T, home *hosted.Repository, files fstest.MapFS) {
	t.Helper()
	c := hosted.Change{Author: "Grace", Message: "By push", Files: make(map[string][]byte)}
	for name, file := range files {
		c.Files[name] = file.Data
	}
	if _, err := home.Commit(t.Context(), c, func(context.Context, string, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (f *fixture) get(path, key string) answer { return f.do(http.MethodGet, path, key, "") }

// do makes a request over the network and holds the answer to openapi.yaml.
func (f *fixture) do(method, path, key, body string, headers ...string) answer {
	f.t.Helper()
	req, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.spec != nil {
		f.hold(req, resp, data)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// documented tells whether a path is for programs. The pages and their files are for
// browsers.
func documented(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"api", "git", "mcp", "healthz", "readyz", "metrics", "openapi.yaml"}, first) || strings.HasPrefix(path, ingress)
}

func (f *fixture) hold(req *http.Request, resp *http.Response, body []byte) {
	f.t.Helper()
	if !documented(strings.TrimPrefix(req.URL.Path, f.base)) {
		return
	}
	route, params, err := f.spec.FindRoute(req)
	if err != nil {
		f.t.Errorf("%s %s is not in openapi.yaml: %v", req.Method, req.URL.Path, err)
		return
	}
	err = openapi3filter.ValidateResponse(f.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		f.t.Errorf("%s %s: %d: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, body)
	}
}

func (f *fixture) key(name string, scopes ...string) string {
	f.t.Helper()
	_, token, err := f.store.Keys.Create(f.t.Context(), store.Key{Name: name, Kind: store.KeyPersonal, Owner: "ada", Scopes: scopes})
	if err != nil {
		f.t.Fatal(err)
	}
	return token.Reveal()
}

func init() {
	for _, kind := range []string{"text/html", "text/css", "application/yaml", "text/event-stream", "application/vnd.sqlite3", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
}

// TestRoutesAreDocumented: every route for programs is in openapi.yaml, and the other way
// round (SPEC 13.10).
func TestRoutesAreDocumented(t *testing.T) {
	f := newFixture(t)
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]bool)
	for _, r := range f.engine.Routes() {
		path := regexp.MustCompile(`[:*](\w+)`).ReplaceAllString(r.Path, "{$1}")
		have[r.Method+" "+path] = true
		if !documented(r.Path) {
			continue
		}
		if item := doc.Paths.Value(path); item == nil || item.GetOperation(r.Method) == nil {
			t.Errorf("%s %s is not in openapi.yaml", r.Method, path)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !have[method+" "+path] {
				t.Errorf("%s %s is in openapi.yaml and not served", method, path)
			}
		}
	}
}

// TestMetricsAccess: the metrics name all factories and webhooks, and so are for
// requests of this machine, the socket, and keys that read all of it.
func TestMetricsAccess(t *testing.T) {
	f := newFixture(t)
	port := f.url[strings.LastIndex(f.url, ":"):]
	keys := map[string]string{
		"read": f.key("k1", "read"), "manage": f.key("k2", "manage"), "runs": f.key("k3", "runs"), "one": f.limitedKey("k4", "default", "read"), "wrong": "x",
	}
	for _, c := range []struct {
		from, host, header, key string
		want                    int
	}{
		{"127.0.0.1:1", "127.0.0.1" + port, "", "", 200},
		{"[::1]:1", "[::1]" + port, "", "", 200},
		{"127.0.0.1:1", "localhost", "", "", 200},
		{"127.0.0.1:1", "localhost", "", "read", 200},
		{"127.0.0.1:1", "localhost", "", "one", 403},
		{"127.0.0.1:1", "localhost", "", "wrong", 401},
		{"127.0.0.1:1", "hammer.example.com", "", "", 401}, // a tunnel
		{"127.0.0.1:1", "192.0.2.1" + port, "", "", 401},
		{"127.0.0.1:1", "localhost", "X-Forwarded-For", "", 401},
		{"127.0.0.1:1", "localhost", "Forwarded", "", 401},
		{"127.0.0.1:1", "localhost", "Via", "", 401},
		{"192.0.2.9:1", "localhost", "", "", 401},
		{"192.0.2.9:1", "hammer.example.com", "", "", 401},
		{"192.0.2.9:1", "hammer.example.com", "", "wrong", 401},
		{"192.0.2.9:1", "hammer.example.com", "", "runs", 403},
		{"192.0.2.9:1", "hammer.example.com", "", "one", 403},
		{"192.0.2.9:1", "hammer.example.com", "", "read", 200},
		{"192.0.2.9:1", "hammer.example.com", "", "manage", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		if c.header != "" {
			r.Header.Set(c.header, "192.0.2.9")
		}
		if c.key != "" {
			r.Header.Set("Authorization", "Bearer "+keys[c.key])
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		if w.Code != c.want || strings.Contains(w.Body.String(), "triphammer_") != (c.want == 200) {
			t.Errorf("%+v: %d\n%.300s", c, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.RemoteAddr = "@"
	f.LocalHandler("ada").ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("over the socket: %d", w.Code)
	}
}

// TestScopes: each route takes the scopes that it documents and no others
// (SPEC 10.2).
func TestScopes(t *testing.T) {
	f := newFixture(t)
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	keys, includes := make(map[string]string), map[string][]string{
		"runs": {"runs"}, "read": {"read"}, "operate": {"runs", "read", "operate"}, "manage": {"runs", "read", "operate", "manage"},
	}
	for scope := range includes {
		keys[scope] = f.key(scope, scope)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			wanted := regexp.MustCompile(`Scope: ([a-z ]+)`).FindStringSubmatch(op.Description)
			if wanted == nil {
				continue
			}
			path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x")
			if got := f.do(method, path, "", ""); got.status != http.StatusUnauthorized {
				t.Errorf("%s %s without a key: %d", method, path, got.status)
			}
			if got := f.do(method, path, "thk_nonsense", ""); got.status != http.StatusUnauthorized {
				t.Errorf("%s %s with nonsense: %d", method, path, got.status)
			}
			for scope, key := range keys {
				allowed := slices.ContainsFunc(includes[scope], func(has string) bool { return slices.Contains(strings.Fields(wanted[1]), has) })
				if got := f.do(method, path, key, ""); (got.status == http.StatusForbidden) == allowed {
					t.Errorf("%s %s with scope %s: %d", method, path, scope, got.status)
				}
			}
		}
	}
}

// idOf parses an id of an answer.
func idOf[Row any](t *testing.T, text string) store.ID[Row] {
	t.Helper()
	id, err := store.ParseID[Row](text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func field(t *testing.T, a answer, path ...string) string {
	t.Helper()
	var value any
	numbers := json.NewDecoder(bytes.NewReader(a.body))
	numbers.UseNumber() // as they are written
	if err := numbers.Decode(&value); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				t.Fatalf("%v: no element %s in %s", path, step, a.body)
			}
			value = v[i]
		}
	}
	return fmt.Sprint(value)
}

// TestContract walks through the API; do holds every answer to openapi.yaml.
func TestContract(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"agents/fixer/agent.md": {Data: []byte("---\nagentType: FOREMAN\ndescription: x\n---\nWork.\n")},
	}})
	manage := f.key("admin", "manage")
	must := func(a answer, status int) answer {
		t.Helper()
		if a.status != status {
			t.Fatalf("%d, want %d: %s", a.status, status, a.body)
		}
		return a
	}
	must(f.get("/healthz", ""), 200)
	must(f.get("/readyz", ""), 200)
	must(f.get("/openapi.yaml", ""), 200)
	if got := field(t, must(f.get("/api/v1/status", manage), 200), "factories", "0", "last_apply", "outcome"); got != "applied" {
		t.Errorf("outcome %s", got)
	}
	hooks := must(f.get("/api/v1/webhooks", manage), 200)
	uid, address := field(t, hooks, "webhooks", "0", "uid"), field(t, hooks, "webhooks", "0", "url")
	if address != f.url+"/webhooks/w/"+uid {
		t.Errorf("url %s", address)
	}
	must(f.get("/api/v1/webhooks/hook", manage), 200)
	must(f.get("/api/v1/webhooks/"+uid, manage), 200)
	must(f.get("/api/v1/webhooks/none", manage), 404)
	must(f.get("/api/v1/automations", manage), 200)

	ingressPath := "/webhooks/w/" + uid
	sent := must(f.do("POST", ingressPath, hookSecret, `{"n":1}`), 202)
	id := field(t, sent, "delivery_id")
	must(f.do("POST", ingressPath, hookSecret, `{"n":2}`), 202)
	must(f.do("POST", ingressPath, hookSecret, `{"n":`), 400)
	must(f.do("POST", ingressPath, "nope", `{"n":1}`), 401)
	must(f.do("POST", ingressPath+"0", hookSecret, `{"n":1}`), 404)
	list := must(f.get("/api/v1/deliveries?limit=1", manage), 200)
	if field(t, list, "page_info", "has_next_page") != "true" {
		t.Errorf("page %s", list.body)
	}
	must(f.get("/api/v1/deliveries?limit=1&cursor="+field(t, list, "page_info", "next_cursor"), manage), 200)
	must(f.get("/api/v1/deliveries?outcome=accepted&webhook=hook&since=2020-01-01T00:00:00Z", manage), 200)
	for _, bad := range []string{"limit=0", "limit=x", "outcome=x", "since=x"} {
		must(f.get("/api/v1/deliveries?"+bad, manage), 400)
	}
	shown := must(f.get("/api/v1/deliveries/"+id, manage), 200)
	if field(t, shown, "matches", "0", "automation") != "a" || field(t, shown, "belt", "0", "stage") != "received" {
		t.Errorf("delivery %s", shown.body)
	}
	if got := must(f.get("/api/v1/deliveries/"+id+"/payload", manage), 200); string(got.body) != `{"n":1}` || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("payload %s", got.body)
	}
	must(f.do("POST", "/api/v1/deliveries/"+id+"/replay", manage, ""), 200)
	must(f.get("/api/v1/deliveries/dlv_0000000000001", manage), 404)
	test := must(f.do("POST", "/api/v1/filters/test", manage, `{"automation":"a","delivery_id":"`+id+`"}`), 200)
	if field(t, test, "verdict") != "Would trigger" {
		t.Errorf("test %s", test.body)
	}
	must(f.do("POST", "/api/v1/filters/test", manage, `{"filter":{"n":1},"payload":{}}`), 400)
	// A pasted payload, as docs/api.md offers it (SPEC C6.3).
	for payload, want := range map[string]string{`{"n":1}`: "Would trigger", `{"n":2}`: "Would not trigger"} {
		test := must(f.do("POST", "/api/v1/filters/test", manage, `{"automation":"a","payload":`+payload+`,"filter":null}`), 200)
		if field(t, test, "verdict") != want || field(t, test, "webhooks", "0", "webhook") != "hook" || field(t, test, "payload_check", "ok") != fmt.Sprint(want == "Would trigger") {
			t.Errorf("%s: %s", payload, test.body)
		}
	}
	both := must(f.do("POST", "/api/v1/filters/test", manage, `{"automation":"a","payload":{"n":2},"webhook":"none"}`), 200)
	if field(t, both, "webhook_check", "ok") != "false" || field(t, both, "payload_check", "path") != "payload.n" || field(t, both, "payload_check", "got") != "2" {
		t.Errorf("both checks: %s", both.body)
	}
	must(f.do("POST", "/api/v1/filters/test", manage, `{"automation":"a","payload":{},"delivery_id":"`+id+`"}`), 400)

	must(f.get("/api/v1/applies", manage), 200)
	must(f.get("/api/v1/applies/apl_0000000000001", manage), 404)
	must(f.do("POST", "/api/v1/factories/default/sync?wait=true", manage, ""), 200)
	must(f.do("POST", "/api/v1/factories/default/sync", manage, ""), 202)
	must(f.do("POST", "/api/v1/factories/none/sync", manage, ""), 404)

	must(f.do("PUT", "/api/v1/secrets/S", manage, `{"value":"another-long-value-of-S"}`), 200)
	secrets := must(f.get("/api/v1/secrets", manage), 200)
	if field(t, secrets, "secrets", "0", "pending") != "true" || strings.Contains(string(secrets.body), "another-long") {
		t.Errorf("secrets %s", secrets.body)
	}
	must(f.do("PUT", "/api/v1/secrets/lower", manage, `{"value":"x"}`), 400)
	must(f.do("PUT", "/api/v1/secrets/EMPTY", manage, `{"value":""}`), 400)
	if got := must(f.do("PUT", "/api/v1/secrets/SHORT", manage, `{"value":"tiny"}`), 200); !strings.Contains(string(got.body), "shorter") {
		t.Errorf("short secret %s", got.body)
	}
	must(f.do("DELETE", "/api/v1/secrets/S", manage, ""), 409)
	must(f.do("DELETE", "/api/v1/secrets/SHORT", manage, ""), 204)
	must(f.do("DELETE", "/api/v1/secrets/SHORT", manage, ""), 404)

	made := must(f.do("POST", "/api/v1/keys", manage, `{"name":"bot","agent":"fixer","scopes":["runs"],"factory":"default","expires_seconds":3600}`), 201)
	bot := field(t, made, "key")
	must(f.do("POST", "/api/v1/keys", manage, `{"name":"bot"}`), 409)
	must(f.do("POST", "/api/v1/keys", manage, `{"name":"x","scopes":["all"]}`), 400)
	if got := must(f.get("/api/v1/keys", manage), 200); strings.Contains(string(got.body), bot) {
		t.Error("a key came out again")
	}

	created := must(f.do("POST", "/api/v1/agent/runs", bot, `{"prompt":"Say hello.","config":{"environment_id":"e"}}`), 200)
	runID := field(t, created, "run_id")
	must(f.do("POST", "/api/v1/agent/run", bot, `{"prompt":"Say hello.","config":{"environment_id":"default/e"}}`), 200)
	for _, bad := range []string{``, `{`, `{}`, `{"prompt":7}`, `{"prompt":"x","config":{"environment_id":"none"}}`} {
		must(f.do("POST", "/api/v1/agent/runs", bot, bad), 400)
	}
	read := must(f.get("/api/v1/agent/runs/"+runID, bot), 200)
	if field(t, read, "creator", "type") != "service_account" || field(t, read, "prompt") != "Say hello." || field(t, read, "state") != "QUEUED" || strings.Contains(string(read.body), "session_link") {
		t.Errorf("run %s", read.body)
	}
	must(f.get("/api/v1/agent/runs/"+runID+"/transcript", bot), 200)
	must(f.get("/api/v1/agent/runs?limit=1&state=QUEUED&source=API", bot), 200)
	if got := must(f.do("POST", "/api/v1/agent/runs/"+runID+"/cancel", bot, ""), 200); string(got.body) != `"`+runID+`"` {
		t.Errorf("cancel %s", got.body)
	}
	must(f.do("POST", "/api/v1/agent/runs/"+runID+"/cancel", bot, ""), 400)
	if got := must(f.get("/api/v1/agent/runs/"+runID, bot), 200); field(t, got, "state") != "CANCELLED" || !strings.HasPrefix(field(t, got, "session_link"), f.url+"/runs/") {
		t.Errorf("cancelled %s", got.body)
	}
	must(f.do("DELETE", "/api/v1/keys/bot", manage, ""), 200)
	must(f.get("/api/v1/agent/runs/"+runID, bot), 401)

	audit := must(f.get("/api/v1/audit?limit=100", manage), 200)
	for _, action := range []string{"secret.set", "secret.delete", "key.create", "key.revoke", "run.create", "run.cancel", "delivery.replay", "factory.apply"} {
		if !strings.Contains(string(audit.body), action) {
			t.Errorf("SPEC 10.4: %s is not in the audit log", action)
		}
	}
	if strings.Contains(string(audit.body), "another-long") || strings.Contains(string(audit.body), bot) {
		t.Error("the audit log holds a secret")
	}
	metrics := must(f.get("/metrics", ""), 200)
	if !bytes.Contains(metrics.body, []byte(`triphammer_ingress_requests_total{factory="default",outcome="accepted",reason="",status="202",webhook="hook"} 2`)) {
		t.Errorf("metrics:\n%s", metrics.body)
	}
	for _, want := range []string{`triphammer_child_processes{state="running"} 3`, `triphammer_child_processes{state="defunct"} 2`, "triphammer_workspaces 1", "process_open_fds "} {
		if !bytes.Contains(metrics.body, []byte("\n"+want)) {
			t.Errorf("no %s among the metrics:\n%s", want, metrics.body)
		}
	}
	if !regexp.MustCompile(`(?m)^triphammer_store_commits_total [1-9]`).Match(metrics.body) {
		t.Errorf("no commits among the metrics:\n%s", metrics.body)
	}
}

// TestIdempotencyKey (SPEC 9.7).
func TestIdempotencyKey(t *testing.T) {
	f := newFixture(t)
	create := func(key, idempotency, body string) (int, string) {
		req, _ := http.NewRequest(http.MethodPost, f.url+"/api/v1/agent/runs", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Idempotency-Key", idempotency)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var r api.CreatedRun
		_ = json.NewDecoder(resp.Body).Decode(&r) // of a problem nothing is read
		return resp.StatusCode, r.RunID
	}
	body := `{"prompt":"x","config":{"environment_id":"e"}}`
	ada, bob := f.key("ada", "runs"), f.key("bob", "runs")
	_, first := create(ada, "k", body)
	if status, again := create(ada, "k", body); status != 200 || again != first {
		t.Errorf("again: %d %s, want %s", status, again, first)
	}
	if status, _ := create(ada, "k", `{"prompt":"y","config":{"environment_id":"e"}}`); status != 422 {
		t.Errorf("another body: %d", status)
	}
	if _, other := create(bob, "k", body); other == first {
		t.Error("two keys share an Idempotency-Key")
	}
}

// TestPages: without the one-time link they answer 401, transcripts included
// (SPEC 10.3).
func TestPages(t *testing.T) {
	f := newFixture(t)
	manage := f.key("admin", "manage")
	uid := field(t, f.get("/api/v1/webhooks", manage), "webhooks", "0", "uid")
	payload := `{"n":1,"x":"<script>alert(1)</script>"}`
	id := field(t, f.do("POST", "/webhooks/w/"+uid, hookSecret, payload), "delivery_id")
	runID := field(t, f.get("/api/v1/deliveries/"+id, manage), "runs", "0")
	paths := map[string]string{"/": "Overview", "/deliveries": id, "/deliveries/" + id: "authenticated", "/runs": runID, "/runs/" + runID: "Do it."}
	const waits = `queued: since `
	for path := range paths {
		if got := f.get(path, ""); got.status != http.StatusUnauthorized || bytes.Contains(got.body, []byte(id)) {
			t.Errorf("%s without a session: %d", path, got.status)
		}
	}
	link := field(t, f.do("POST", "/api/v1/auth/links", manage, ""), "url")
	login := f.redeem(link)
	cookie := login.header.Get("Set-Cookie")
	if login.status != http.StatusSeeOther || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		t.Fatalf("login %d, cookie %s", login.status, cookie)
	}
	if again := f.get(strings.TrimPrefix(link, f.url), ""); again.status != http.StatusUnauthorized {
		t.Errorf("the link works twice: %d", again.status)
	}
	session := strings.SplitN(cookie, ";", 2)[0]
	request := func(method, path string, header ...string) answer {
		req, _ := http.NewRequest(method, f.url+path, nil)
		req.Header.Set("Cookie", session)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header, body}
	}
	for path, want := range paths {
		got := request(http.MethodGet, path)
		if got.status != 200 || !bytes.Contains(got.body, []byte(want)) || !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d\n%s", path, got.status, got.body)
		}
		if strings.HasSuffix(path, id) && !bytes.Contains(got.body, []byte(waits)) {
			t.Errorf("%s does not show that the run waits:\n%s", path, got.body)
		}
		if bytes.Contains(got.body, []byte("<script>alert")) || bytes.Contains(got.body, []byte(hookSecret)) {
			t.Errorf("%s shows what it must not:\n%s", path, got.body)
		}
	}
	if got := request(http.MethodGet, "/runs/run_0000000000001"); got.status != http.StatusNotFound {
		t.Errorf("no such run: %d", got.status)
	}
	if got := request(http.MethodPost, "/auth/logout", "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden {
		t.Errorf("a cross-site request: %d", got.status)
	}
	if got := request(http.MethodPost, "/auth/logout", "Sec-Fetch-Site", "same-origin"); got.status != 200 {
		t.Errorf("sign out: %d", got.status)
	}
	if got := request(http.MethodGet, "/"); got.status != http.StatusUnauthorized {
		t.Errorf("signed out: %d", got.status)
	}
}

// TestClientAddress: only a trusted proxy's word is believed (SPEC 5.9).
func TestClientAddress(t *testing.T) {
	f := newFixture(t)
	manage := f.key("admin", "manage")
	uid := field(t, f.get("/api/v1/webhooks", manage), "webhooks", "0", "uid")
	req, _ := http.NewRequest(http.MethodPost, f.url+"/webhooks/w/"+uid, strings.NewReader(`{}`))
	req.Header.Set("Authorization", "Bearer "+hookSecret)
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	id := field(t, f.get("/api/v1/deliveries", manage), "deliveries", "0", "id")
	if got := field(t, f.get("/api/v1/deliveries/"+id, manage), "client_addr"); got != "127.0.0.1" {
		t.Errorf("client %s", got)
	}
}
