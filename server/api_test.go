package server

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func (f *fixture) limitedKey(name, factory string, scopes ...string) string {
	f.t.Helper()
	_, token, err := f.store.Keys.Create(f.t.Context(), store.Key{Name: name, Kind: store.KeyPersonal, Owner: "ada", Scopes: scopes, Factory: factory})
	if err != nil {
		f.t.Fatal(err)
	}
	return token.Reveal()
}

// TestOneFactory: a key of one factory neither sees nor changes another, nor
// what belongs to the whole server (SPEC 10.2).
func TestOneFactory(t *testing.T) {
	f := newFixture(t)
	admin := f.key("admin", "manage")
	path := ingress + f.uids()["hook"]
	id := field(t, f.do("POST", path, hookSecret, `{"n":1}`), "delivery_id")
	run := field(t, f.get("/api/v1/deliveries/"+id, admin), "runs", "0")
	apply := field(t, f.get("/api/v1/applies", admin), "applies", "0", "id")
	own, other := f.limitedKey("own", "default", "manage"), f.limitedKey("other", "elsewhere", "manage")
	for _, c := range []struct {
		method, path, body string
		own, other         int
	}{
		{"GET", "/api/v1/deliveries/" + id, "", 200, 404},
		{"GET", "/api/v1/deliveries/" + id + "/payload", "", 200, 404},
		{"POST", "/api/v1/deliveries/" + id + "/replay", "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run, "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run + "/transcript", "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run + "/timeline", "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run + "/conversation", "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run + "/handoff/attachments", "", 200, 404},
		{"POST", "/api/v1/agent/runs/" + run + "/followups", "{}", 400, 404},
		{"POST", "/api/v1/agent/runs/" + run + "/followups", `{"message":"x"}`, 422, 404},
		{"POST", "/api/v1/agent/runs/" + run + "/interrupt", "", 409, 404},
		{"POST", "/api/v1/agent/runs/" + run + "/retry", "", 409, 404},
		{"GET", "/api/v1/agent/conversations/" + run, "", 200, 404},
		{"POST", "/api/v1/agent/conversations/" + run + "/followups", `{"message":"x"}`, 422, 404},
		{"POST", "/api/v1/agent/conversations/" + run + "/interrupt", "", 409, 404},
		{"POST", "/api/v1/agent/runs/" + run + "/cancel", "", 200, 404},
		{"GET", "/api/v1/agent/runs/" + run + "/events", "", 200, 404},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","parent_run_id":"` + run + `","config":{"environment_id":"e"}}`, 200, 400},
		{"GET", "/api/v1/agent/runs?factory_uid=default&factory_uid=elsewhere", "", 403, 403},
		{"GET", "/api/v1/agent/schedules?factory=default", "", 200, 403},
		{"POST", "/api/v1/agent/schedules", `{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":{"environment_id":"default/e"}}`, 201, 400},
		{"GET", "/api/v1/notices", "", 403, 403},
		{"GET", "/api/v1/applies/" + apply, "", 200, 404},
		{"GET", "/api/v1/webhooks/hook", "", 200, 404},
		{"POST", "/api/v1/factories/default/sync", "", 202, 404},
		{"GET", "/api/v1/deliveries?factory=default", "", 200, 403},
		{"GET", "/api/v1/applies?factory=default", "", 200, 403},
		{"GET", "/api/v1/agent/runs?factory=default", "", 200, 403},
		{"POST", "/api/v1/filters/test", `{"factory":"default","automation":"a","payload":{"n":1},"webhook":"hook"}`, 200, 403},
		{"POST", "/api/v1/filters/test", `{"delivery_id":"` + id + `"}`, 200, 404},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"environment_id":"default/e"}}`, 200, 400},
		{"GET", "/api/v1/secrets", "", 403, 403},
		{"PUT", "/api/v1/secrets/S", `{"value":"x"}`, 403, 403},
		{"DELETE", "/api/v1/secrets/S", "", 403, 403},
		{"GET", "/api/v1/keys", "", 403, 403},
		{"POST", "/api/v1/keys", `{"name":"more"}`, 403, 403},
		{"DELETE", "/api/v1/keys/admin", "", 403, 403},
		{"GET", "/api/v1/audit", "", 403, 403},
		{"POST", "/api/v1/auth/links", "", 403, 403},
	} {
		if got := f.do(c.method, c.path, own, c.body); got.status != c.own {
			t.Errorf("%s %s with its own key: %d, want %d\n%s", c.method, c.path, got.status, c.own, got.body)
		}
		if got := f.do(c.method, c.path, other, c.body); got.status != c.other {
			t.Errorf("%s %s with another's key: %d, want %d\n%s", c.method, c.path, got.status, c.other, got.body)
		}
	}
	for _, list := range []string{"webhooks", "automations", "deliveries", "applies"} {
		if got := f.get("/api/v1/"+list, other); got.status != 200 || !strings.Contains(string(got.body), `"`+list+`":[]`) {
			t.Errorf("%s with another's key: %d %s", list, got.status, got.body)
		}
	}
	for path, empty := range map[string]string{"/api/v1/agent": `{"agents":[]}`, "/api/v1/agent/environments": `{"environments":[]}`, "/api/v1/agent/schedules": `{"schedules":[]}`} {
		if got := f.get(path, other); string(got.body) != empty {
			t.Errorf("%s with another's key: %s", path, got.body)
		}
	}
	if got := f.get("/api/v1/agent/runs", other); !strings.Contains(string(got.body), `"runs":[]`) {
		t.Errorf("runs with another's key: %s", got.body)
	}
	if got := f.get("/api/v1/status", other); !strings.Contains(string(got.body), `"factories":[]`) || !strings.Contains(string(got.body), `"runs":{}`) {
		t.Errorf("status with another's key: %s", got.body)
	}
}

// TestProblems: every refusal says what is wrong and whether to try again
// (RFC 9457, SPEC 9.8).
func TestProblems(t *testing.T) {
	f := newFixture(t)
	key := f.key("admin", "manage")
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string // of the first of errors
	}{
		{"GET", "/api/v1/agent/runs?limit=501", "", 400, "limit"},
		{"GET", "/api/v1/agent/runs?cursor=dlv_0000000000000", "", 400, "cursor"},
		{"GET", "/api/v1/agent/runs?cursor=nonsense", "", 400, "cursor"},
		{"GET", "/api/v1/deliveries?cursor=run_0000000000000", "", 400, "cursor"},
		{"GET", "/api/v1/applies?cursor=x", "", 400, "cursor"},
		{"GET", "/api/v1/audit?cursor=x", "", 400, "cursor"},
		{"GET", "/api/v1/agent/runs?delivery_id=x", "", 400, "delivery_id"},
		{"GET", "/api/v1/agent/runs?state=queued", "", 400, "state"},
		{"GET", "/api/v1/agent/runs?sort_by=prompt", "", 400, "sort_by"},
		{"GET", "/api/v1/agent/runs?sort_order=up", "", 400, "sort_order"},
		{"GET", "/api/v1/agent/runs?colour=red", "", 400, "colour"},
		{"GET", "/api/v1/agent/runs?source=MAIL", "", 400, "source"},
		{"GET", "/api/v1/agent/runs?created_after=yesterday", "", 400, "created_after"},
		{"GET", "/api/v1/agent/runs?creator=ada&creator=bob", "", 400, "creator"},
		{"GET", "/api/v1/agent/runs?artifact_type=POEM", "", 400, "artifact_type"},
		{"GET", "/api/v1/agent/runs?execution_location=MOON", "", 400, "execution_location"},
		{"GET", "/api/v1/agent/runs?metadata[a%20b]=1", "", 400, "metadata[a b]"},
		{"GET", "/api/v1/agent/runs?schedule_id=run_0000000000001", "", 400, "schedule_id"},
		{"GET", "/api/v1/agent/runs?ancestor_run_id=x", "", 400, "ancestor_run_id"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","attachments":[{"file_name":"../a","data":""}]}`, 400, "attachments[0].file_name"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","parent_run_id":"nonsense"}`, 400, "parent_run_id"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","attachments":[{"file_name":"a","data":"!"}]}`, 400, ""},
		{"POST", "/api/v1/agent/runs", `{"prompt":7}`, 400, "prompt"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"harness":{"type":7}}}`, 400, "config.harness.type"},
		{"POST", "/api/v1/keys", `{"name":7}`, 400, "name"},
		{"GET", "/api/v1/agent/runs/run_0000000000001/transcript?after=x", "", 404, ""},
		{"POST", "/api/v1/agent/runs", `{"config":{"environment_id":"e"}}`, 400, "prompt"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"environment_id":"none"}}`, 400, "config.environment_id"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":7}`, 400, "config"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"harness_auth_secrets":{"claude_auth_secret_name":"S"}}}`, 422, "config.harness_auth_secrets"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"harness_auth_secrets":{"gemini_auth_secret_name":"S"}}}`, 422, "config.harness_auth_secrets.gemini_auth_secret_name"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","conversation_id":"c"}`, 400, "conversation_id"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"mcp_servers":{"a":{}}}}`, 400, "config.mcp_servers"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"mcp_servers":{"a":{"command":"x","url":"https://x.example"}}}}`, 400, "config.mcp_servers"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"mcp_servers":{"a":{"url":"ftp://x"}}}}`, 400, "config.mcp_servers"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"x","config":{"mcp_servers":{"a":7}}}`, 400, "config.mcp_servers"},
		{"POST", "/api/v1/agent/runs", `{"prompt":"` + strings.Repeat("x", maxRequest) + `"}`, 413, ""},
		{"POST", "/api/v1/keys", `{"name":""}`, 400, "name"},
		{"POST", "/api/v1/keys", `{"name":"x","agent":"a","owner":"o"}`, 400, "owner"},
		{"POST", "/api/v1/keys", `{"name":"x","expires_seconds":-1}`, 400, "expires_seconds"},
		{"PUT", "/api/v1/secrets/BIG", `{"value":"` + strings.Repeat("x", secret.MaxValue+1) + `"}`, 400, "value"},
		{"DELETE", "/api/v1/keys/none", "", 404, ""},
	} {
		got := f.do(c.method, c.path, key, c.body)
		name := fmt.Sprintf("%s %s %.60s", c.method, c.path, c.body)
		if got.status != c.status || got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d, want %d; %v", name, got.status, c.status, got.header)
		}
		var p api.Problem
		if err := json.Unmarshal(got.body, &p); err != nil || p.Status != got.status || p.Type == "" || p.Title == "" || p.Message == "" || p.Error == "" || p.Retryable {
			t.Errorf("%s: %s, %v", name, got.body, err)
		}
		if c.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != c.field) {
			t.Errorf("%s: errors %v, want %s", name, p.Errors, c.field)
		}
	}
}

// TestMethods: outside the ingress a wrong method is told which ones there are.
func TestMethods(t *testing.T) {
	f := newFixture(t)
	status, answer, _ := f.raw("PATCH /api/v1/secrets/S HTTP/1.1\r\nHost: x\r\n\r\n")
	allow := strings.Split(headerOf(answer, "Allow"), ", ")
	slices.Sort(allow)
	if status != http.StatusMethodNotAllowed || !slices.Equal(allow, []string{"DELETE", "PUT"}) {
		t.Errorf("%d, Allow %v", status, allow)
	}
	_, answer, _ = f.raw("PUT /webhooks/new HTTP/1.1\r\nHost: x\r\n\r\n") // also the page of a webhook with this name
	if got := headerOf(answer, "Allow"); got != "GET" {
		t.Errorf("Allow %q", got)
	}
	for _, path := range []string{"/api/v1/none", "/api/v1/", "/api/v1/webhooks/", "//", "/api/v1/agent/runs/x/y/z"} {
		if status, answer, _ := f.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusNotFound || headerOf(answer, "Location") != "" {
			t.Errorf("%s: %d\n%s", path, status, answer)
		}
	}
}

func headerOf(answer, name string) string {
	for line := range strings.SplitSeq(answer, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return value
		}
	}
	return ""
}

// TestCredentialForms: one Bearer credential, and nothing else, opens the API.
func TestCredentialForms(t *testing.T) {
	f := newFixture(t)
	key := f.key("k", "read")
	for _, c := range []struct {
		header string
		status int
	}{
		{"Authorization: Bearer " + key, 200},
		{"Authorization: bearer " + key, 200},
		{"Authorization: Basic " + key, 401},
		{"Authorization: " + key, 401},
		{"Authorization: Bearer", 401},
		{"Authorization: Bearer " + key + "\r\nAuthorization: Bearer " + key, 401},
		{"Authorization: Bearer " + key + "x", 401},
		{"Cookie: triphammer_session=" + key, 401},
		{"X-Forwarded-For: 127.0.0.1", 401},
	} {
		status, answer, _ := f.raw("GET /api/v1/status HTTP/1.1\r\nHost: x\r\n" + c.header + "\r\n\r\n")
		if status != c.status || (status == 401) != (headerOf(answer, "Www-Authenticate") != "") {
			t.Errorf("%.40s: %d\n%s", c.header, status, answer)
		}
		if strings.Contains(answer, key) {
			t.Errorf("the answer shows the key:\n%s", answer)
		}
	}
}

// TestIdempotencyScope: a key that is made anew under an old name does not find
// what the old one made.
func TestIdempotencyScope(t *testing.T) {
	f := newFixture(t)
	create := func(key string) string {
		body := `{"prompt":"x"}`
		_, answer, _ := f.raw(post("/api/v1/agent/runs", body, "Authorization: Bearer "+key, "Idempotency-Key: one"))
		_, body, _ = strings.Cut(answer, "\r\n\r\n")
		return field(t, answerOf(body), "run_id")
	}
	first := f.key("ci", "runs")
	id := create(first)
	if again := create(first); again != id {
		t.Errorf("%s, want %s", again, id)
	}
	if _, _, err := f.store.Keys.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if other := create(f.key("ci", "runs")); other == id {
		t.Error("another key of the same name found the run")
	}
}

func answerOf(body string) answer { return answer{body: []byte(body)} }

// TestFieldsAreThere: what SPEC 13.8 lists is in every entry, also without a
// value.
func TestFieldsAreThere(t *testing.T) {
	f := newFixture(t)
	key := f.key("k", "read")
	path := ingress + f.uids()["hook"]
	id := field(t, f.do("POST", path, hookSecret, `{"n":2}`), "delivery_id")
	f.do("POST", path, hookSecret, `{"n":2}`)
	f.do("POST", path, "no", `{}`)
	var log struct{ Deliveries []map[string]any }
	if err := json.Unmarshal(f.get("/api/v1/deliveries", key).body, &log); err != nil || len(log.Deliveries) != 3 {
		t.Fatal(log, err)
	}
	for i, want := range []struct{ outcome, reason, duplicateOf any }{
		{"rejected_auth", "credential_mismatch", ""}, {"duplicate", "", id}, {"accepted", "", ""},
	} {
		d := log.Deliveries[i]
		for _, name := range []string{"id", "webhook", "outcome", "label", "size", "received_at", "identity", "duplicate_of", "reason", "runs"} {
			if _, there := d[name]; !there {
				t.Errorf("%v has no %s", d["outcome"], name)
			}
		}
		if d["outcome"] != want.outcome || d["reason"] != want.reason || d["duplicate_of"] != want.duplicateOf {
			t.Errorf("%v, want %v", d, want)
		}
	}
	var shown struct{ Matches []map[string]any }
	if err := json.Unmarshal(f.get("/api/v1/deliveries/"+id, key).body, &shown); err != nil || len(shown.Matches) != 1 {
		t.Fatal(shown, err)
	}
	if m := shown.Matches[0]; m["matched"] != false || m["path"] != "payload.n" || m["want"] == nil || m["got"] == nil {
		t.Errorf("match %v", m)
	}
}

// TestLastUse: a key shows when it was used last, to the minute (SPEC 10.2).
func TestLastUse(t *testing.T) {
	f := newFixture(t)
	admin, key := f.key("admin", "manage"), f.key("ci", "runs")
	lastUse := func() string {
		t.Helper()
		var list struct{ Keys []api.Key }
		if err := json.Unmarshal(f.get("/api/v1/keys", admin).body, &list); err != nil {
			t.Fatal(err)
		}
		for _, k := range list.Keys {
			if k.Name == "ci" && k.LastUsedAt != nil {
				return k.LastUsedAt.String()
			}
		}
		return ""
	}
	if got := lastUse(); got != "" {
		t.Errorf("an unused key was used at %s", got)
	}
	f.get("/api/v1/agent/runs", key)
	first := lastUse()
	if first == "" {
		t.Error("a use is not shown")
	}
	f.get("/api/v1/agent/runs", key+"x")
	f.get("/api/v1/agent/runs", key)
	if got := lastUse(); got != first {
		t.Errorf("%s, then %s within a minute", first, got)
	}
	if _, _, err := f.store.Keys.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if got := f.get("/api/v1/agent/runs", key); got.status != 401 {
		t.Errorf("the next request of a revoked key: %d", got.status)
	}
}

// TestAgentKey: a key is for an agent that the definitions have; a server that
// serves nothing yet cannot know better (SPEC 13.6).
func TestAgentKey(t *testing.T) {
	agent := func(kind string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("---\nagentType: " + kind + "\ndescription: x\n---\nWork.\n")}
	}
	f := newFixtureWith(t, options{files: fstest.MapFS{"agents/lead/agent.md": agent("FOREMAN"), "agents/fixer/agent.md": agent("CUSTOM")}})
	bare := newFixture(t)
	empty := newFixture(t)
	empty.parts.Live = &applier.Live{}
	empty.cfg.Data = access.New(empty.parts)
	for _, c := range []struct {
		on     *fixture
		body   string
		status int
		detail string
	}{
		{f, `{"name":"1","agent":"fixer"}`, 201, ""},
		{f, `{"name":"2","agent":"fixer","factory":"default"}`, 201, ""},
		{f, `{"name":"3","agent":"fixr"}`, 400, `no agent is named \"fixr\": did you mean \"fixer\"?`},
		{f, `{"name":"4","agent":"somebody"}`, 400, `it can be fixer, lead`},
		{f, `{"name":"5","agent":"fixr","factory":"default"}`, 400, `did you mean`},
		{bare, `{"name":"6","agent":"fixer"}`, 400, "the definitions have no agent"},
		{empty, `{"name":"7","agent":"fixer"}`, 201, ""},
	} {
		got := c.on.do("POST", "/api/v1/keys", c.on.key("admin"+c.body[9:10], "manage"), c.body)
		if got.status != c.status || !strings.Contains(string(got.body), c.detail) || c.status == 400 && field(t, got, "errors", "0", "field") != "agent" {
			t.Errorf("%s: %d %s", c.body, got.status, got.body)
		}
	}
}

// TestBackupAndCheck: who manages the whole server can copy and check its store,
// nobody else; an audit entry tells of it.
func TestBackupAndCheck(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/api/v1/backup", "/api/v1/check"} {
		for token, want := range map[string]int{
			"": 401, f.key("r"+path, "read"): 403, f.key("u"+path, "runs"): 403, f.limitedKey("f"+path, "default", "manage"): 403,
		} {
			if got := f.do("POST", path, token, ""); got.status != want {
				t.Errorf("%s: %d, not %d", path, got.status, want)
			}
		}
	}
	admin := f.key("admin", "manage")
	copied := f.do("POST", "/api/v1/backup", admin, "")
	var names []string
	for r := tar.NewReader(bytes.NewReader([]byte(copied.body))); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if copied.status != 200 || !slices.Equal(names, []string{api.ArchivedStore, api.ArchivedEnd}) {
		t.Errorf("%d, %d bytes", copied.status, len(copied.body))
	}
	checked := f.do("POST", "/api/v1/check", admin, "")
	if checked.status != 200 || !strings.Contains(string(checked.body), `"sound":true`) {
		t.Errorf("%d %s", checked.status, checked.body)
	}
	if log := string(f.get("/api/v1/audit", admin).body); !strings.Contains(log, "store.backup") {
		t.Error("no audit entry")
	}
}
