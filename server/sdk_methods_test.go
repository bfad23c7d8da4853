package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

var update = flag.Bool("update", false, "write the table of methods in docs/compatibility.md")

// sdkMethod is a method of the newest published SDK.
type sdkMethod struct {
	name  string // as the SDK has it
	route string // its method and path, below /api/v1
	// ask is the rest of the request: values for the parameters of the path, one after the
	// other, a query that begins with ?, and a body that begins with {.
	ask  string
	want int
	// at is where in the answer the thing is, and members are those that the SDK's types
	// require of it.
	at, members string
	note        string // what else a reader must know
}

const (
	runMembers      = "created_at finished_at prompt root_run_id run_id state task_id title updated_at"
	scheduleMembers = "id created_at cron_schedule enabled name prompt updated_at"
	identityMembers = "available created_at default_runner_uid memory name secrets skills uid updated_at"
	factoryMembers  = "agent_defaults alias avatar_url code_forge code_forges created_at credential_strategy default_environment default_model description " +
		"integrations name repositories scorer_defaults scoring team_uid uid updated_at"
)

// sdkMethods are all methods of the newest published SDK, in its order. What each is asked
// with {run}, {ended}, {artifact} and so on is made by the test.
var sdkMethods = []sdkMethod{
	{"agent.list", "GET /agent", "", 200, "agents 0", "name variants", "the agents of the definitions"},
	{"agent.downloadArtifact", "GET /agent/artifacts/:id/download", "{artifact}", 200, "", "", "the bytes themselves, without a redirect"},
	{"agent.getArtifact", "GET /agent/artifacts/:id", "{artifact}", 200, "data", "content_type download_url expires_at filename", "the URL needs the key, and does not expire"},
	{"agent.getRunByExternalReference", "GET /agent/run-by-external-reference", "?url=https://git.example.com/a/b/pull/7", 200, "", "run_id", "the run that first left the link"},
	{"agent.listEnvironments", "GET /agent/environments", "", 200, "environments 0", "config last_updated setup_failed uid", "the files in environments/"},
	{"agent.listModels", "GET /agent/models", "", 200, "models 0", "id display_name provider vision_supported", "those that live definitions name; whether one takes images is not known"},
	{"agent.run", "POST /agent/runs", `{"prompt":"x"}`, 200, "", "run_id state task_id", "[fields](api.md#runs)"},
	{"agent.runs.retrieve", "GET /agent/runs/:id", "{run}", 200, "", runMembers, "`status_message` is a string"},
	{"agent.runs.list", "GET /agent/runs", "", 200, "runs 0", runMembers, "[filters](api.md#runs)"},
	{"agent.runs.cancel", "POST /agent/runs/:id/cancel", "{queued}", 200, "", "", ""},
	{"agent.runs.getConversation", "GET /agent/runs/:id/conversation", "{run}", 200, "", "conversation_id steps", "one step for each run"},
	{"agent.runs.getHarnessUsage", "GET /agent/runs/:id/harness-usage", "{talk}", 200, "usage", "capturedAt captureSequence executionId harness metricsVersion snapshot", "of all harnesses that report usage; no counts of tools"},
	{"agent.runs.getTimeline", "GET /agent/runs/:id/timeline", "{run}", 200, "events 0", "event_type event_uuid occurred_at run_id", "the types have no `oz_` before them"},
	{"agent.runs.getTranscript", "GET /agent/runs/:id/transcript", "{run}", 200, "", "", "lines of JSON, for `Accept: application/octet-stream`; without a redirect"},
	{"agent.runs.interrupt", "POST /agent/runs/:id/interrupt", "{busy}", 200, "", "", "the run ends, and its conversation can go on"},
	{"agent.runs.listHandoffAttachments", "GET /agent/runs/:id/handoff/attachments", "{run}", 200, "", "attachments", "always empty"},
	{"agent.runs.submitFollowup", "POST /agent/runs/:id/followups", `{talk} {"message":"More."}`, 200, "", "followup_id outcome", "a new run of the conversation: `followup_id` and `run_id` are its id"},
	{"agent.schedules.create", "POST /agent/schedules", `{"name":"N","cron_schedule":"@daily","prompt":"x"}`, 201, "", scheduleMembers, ""},
	{"agent.schedules.retrieve", "GET /agent/schedules/:id", "{schedule}", 200, "", scheduleMembers, ""},
	{"agent.schedules.update", "PUT /agent/schedules/:id", `{schedule} {"name":"M","cron_schedule":"@daily","prompt":"x","enabled":true}`, 200, "", scheduleMembers, ""},
	{"agent.schedules.list", "GET /agent/schedules", "", 200, "schedules 0", scheduleMembers, "also those of automations"},
	{"agent.schedules.delete", "DELETE /agent/schedules/:id", "{gone}", 200, "", "success", ""},
	{"agent.schedules.pause", "POST /agent/schedules/:id/pause", "{schedule}", 200, "", scheduleMembers, ""},
	{"agent.schedules.resume", "POST /agent/schedules/:id/resume", "{schedule}", 200, "", scheduleMembers, ""},
	{"agent.agent.create", "POST /agent/identities", `{"name":"n"}`, 422, "", "", ""},
	{"agent.agent.update", "PUT /agent/identities/*uid", `default%2Fboss {"prompt":"x"}`, 422, "", "", ""},
	{"agent.agent.list", "GET /agent/identities", "", 200, "agents 0", identityMembers, "the agents of the definitions; the values of `env` and `headers` of MCP servers are left out"},
	{"agent.agent.delete", "DELETE /agent/identities/*uid", "default%2Fboss", 422, "", "", ""},
	{"agent.agent.get", "GET /agent/identities/*uid", "default%2Fboss", 200, "", identityMembers, "the times are those of the commit that serves"},
	{"agent.sessions.checkRedirect", "GET /agent/sessions/:id/redirect", "{run}", 200, "", "", "always `{}`: there are no shared sessions"},
	{"agent.conversations.retrieve", "GET /agent/conversations/:id", "{run}", 200, "", "conversation_id steps", ""},
	{"agent.conversations.checkRedirect", "GET /agent/conversations/:id/redirect", "{run}", 200, "", "", "always `{}`: there are no shared sessions"},
	{"agent.conversations.downloadScreenshot", "GET /agent/conversations/:id/screenshots/:screenshot/download", "{run} {screenshot}", 200, "", "", "a `SCREENSHOT` among the artifacts of its runs"},
	{"agent.conversations.getTranscript", "GET /agent/conversations/:id/transcript", "{run}", 200, "", "", "lines of JSON, of all harnesses; without a redirect"},
	{"agent.conversations.interrupt", "POST /agent/conversations/:id/interrupt", "{busy2}", 200, "", "run_id", ""},
	{"agent.conversations.submitFollowup", "POST /agent/conversations/:id/followups", `{talk} {"message":"More."}`, 200, "", "followup_id outcome run_id", "as for its run"},
	{"networking.getEgressRanges", "GET /networking/egress-ranges", "", 422, "", "", ""},
	{"factories.list", "GET /factory", "?search=tes&limit=5", 200, "factories 0", factoryMembers, "`uid` and `team_uid` are the name of the factory on the server"},
	{"factories.get", "GET /factory/:uid", "default", 200, "", factoryMembers, ""},
	{"factories.runs.create", "POST /factory/:uid/runs", `default {"prompt":"x","title":"X","ticket_ref":"linear:ACME-238","ticket_url":"https://linear.example.com/ACME-238"}`, 200, "", "factory_uid foreman_agent run_id state ticket_ref", "422 if the factory has no foreman"},
	{"factories.runs.listScores", "GET /factory/runs/:id/scores", "{run}", 422, "", "", ""},
	{"factories.tasks.create", "POST /factory/:uid/tasks", `default {"conversation_id":"{run}","title":"X"}`, 422, "", "", ""},
	{"factories.tasks.update", "PATCH /factory/:uid/tasks/:task", `default t {"title":"X"}`, 422, "", "", ""},
	{"factories.tasks.list", "GET /factory/:uid/tasks", "default", 422, "", "", ""},
	{"factories.tasks.delete", "DELETE /factory/:uid/tasks/:task", "default t", 422, "", "", ""},
	{"factories.tasks.cancel", "POST /factory/:uid/tasks/:task/cancel", "default t", 422, "", "", ""},
	{"factories.tasks.get", "GET /factory/:uid/tasks/:task", "default t", 422, "", "", ""},
	{"factories.tasks.getByConversation", "GET /factory/:uid/task-by-conversation", "default ?conversation_id={run}", 422, "", "", ""},
	{"factories.tasks.getByRun", "GET /factory/:uid/task-by-run", "default ?run_id={run}", 422, "", "", ""},
	{"factories.scorers.create", "POST /factory/scorers", `{"name":"x"}`, 422, "", "", ""},
	{"factories.scorers.list", "GET /factory/scorers", "?factory_uid=default", 422, "", "", ""},
	{"factories.scorers.listResultReasons", "GET /factory/scorers/:scorer/results/reasons", "1 ?run_id={run}", 422, "", "", ""},
	{"factories.scorers.listResults", "GET /factory/scorers/:scorer/results", "1", 422, "", "", ""},
	{"factories.benchmarks.suites.create", "POST /factory/:uid/benchmarks/suites", `default {"name":"x"}`, 422, "", "", ""},
	{"factories.benchmarks.suites.list", "GET /factory/:uid/benchmarks/suites", "default", 422, "", "", ""},
	{"factories.benchmarks.suites.get", "GET /factory/:uid/benchmarks/suites/:suite", "default repairs", 422, "", "", ""},
	{"factories.benchmarks.suites.launchRun", "POST /factory/:uid/benchmarks/suites/:suite/runs", `default repairs {"repetition_count":1}`, 422, "", "", ""},
	{"factories.benchmarks.runs.list", "GET /factory/:uid/benchmarks/runs", "default", 422, "", "", ""},
	{"factories.benchmarks.runs.get", "GET /factory/:uid/benchmarks/runs/:run", "default r", 422, "", "", ""},
	{"factories.benchmarks.runs.getResults", "GET /factory/:uid/benchmarks/runs/:run/results", "default r", 422, "", "", ""},
	{"factories.files.validate", "POST /factory-files/validate", `{"files":[{"path":"factory.yaml","content":"schemaVersion: v1alpha1\nname: A\n"}]}`, 200, "", "deferred_resolutions diagnostics schema_version state_dependent_checks_not_run valid validation_scope", "warnings are in `warnings`"},
	{"factories.files.schemas.retrieve", "GET /factory-files/schemas/:version", "v1alpha1", 200, "", "documents schema_version", ""},
	{"factories.files.schemas.list", "GET /factory-files/schemas", "", 200, "", "current_version versions", ""},
	{"factories.files.schemas.getDocument", "GET /factory-files/schemas/:version/:document", "v1alpha1 factory.schema.json", 200, "", "$schema", ""},
}

// TestSDKMethods asks for each method of the newest published SDK as it does. It holds the
// answers to the members that the SDK's types require, and docs/compatibility.md to what was
// answered (SPEC 19.2).
func TestSDKMethods(t *testing.T) {
	files := maps.Clone(publishedTree)
	files["environments/talks.yaml"] = &fstest.MapFile{Data: []byte("description: An agent that keeps its sessions\n")}
	f := newFixtureWith(t, options{files: files, hosted: true})
	things := f.sdkThings()
	key := f.key("sdk", "runs")
	var table strings.Builder
	table.WriteString("| method | route | answer |\n| --- | --- | --- |\n")
	answered, seen := 0, make(map[string]bool)
	for _, m := range sdkMethods {
		method, path, _ := strings.Cut(m.route, " ")
		if seen[m.name] || !slices.ContainsFunc(f.engine.Routes(), func(r gin.RouteInfo) bool { return r.Method == method && r.Path == api.Base+path }) {
			t.Errorf("%s is there twice, or no route is %s", m.name, m.route)
		}
		seen[m.name] = true
		what := f.askSDK(key, m, things)
		if m.want < 300 {
			answered++
		}
		fmt.Fprintf(&table, "| `%s` | `%s %s` | %s |\n", m.name, method, regexp.MustCompile(`[:*](\w+)`).ReplaceAllString(path, "{$1}"), what)
	}
	text := fmt.Sprintf("Of the %d methods, %d answer as published unless the table says otherwise; %d answer 422 with the reason.\n\n%s",
		len(sdkMethods), answered, len(sdkMethods)-answered, table.String())
	const page, from, to = "../docs/compatibility.md", "<!-- the table of methods: go test ./server -run SDKMethods -update -->\n", "<!-- end of the table -->"
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(was), from)
	_, after, more := strings.Cut(rest, to)
	now := before + from + "\n" + text + "\n" + to + after
	switch {
	case !ok || !more || len(sdkMethods) != 64:
		t.Fatalf("%d methods, and %s has a place for them: %v", len(sdkMethods), page, ok && more)
	case *update && !t.Failed():
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	case now != string(was):
		t.Errorf("%s does not say what is answered; write it: go test ./server -run SDKMethods -update", page)
	}
}

// sdkThings makes what the methods are asked about.
func (f *fixture) sdkThings() map[string]string {
	f.t.Helper()
	key := f.key("things", "runs")
	made := func(body string) string { return field(f.t, f.do("POST", "/api/v1/agent/runs", key, body), "run_id") }
	things := map[string]string{"run": made(`{"prompt":"x","config":{"environment_id":"e"}}`)}
	run, artifact := f.keepFile("out/report.html", "<p>")
	things["artifact"], things["screenshot"] = artifact, field(f.t, f.get("/api/v1/agent/runs/"+run, key), "artifacts", "3", "artifact_uid")
	things["talk"] = made(`{"prompt":"x","config":{"environment_id":"talks"}}`)
	l := f.claimUntil(things["talk"])
	if err := f.store.Conversations.SetSession(f.t.Context(), l, store.Session{Harness: "claude", ID: "s"}); err != nil {
		f.t.Fatal(err)
	}
	used, err := json.Marshal(event.Usage{Model: "large", InputTokens: 100, CachedTokens: 40, OutputTokens: 10, CostUSD: 0.5, Turns: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.store.Transcripts.Append(f.t.Context(), l, []store.Event{{Seq: 1, At: time.Now(), Kind: event.KindUsage, Data: used}}); err != nil {
		f.t.Fatal(err)
	}
	if err := f.store.Leases.Finish(f.t.Context(), l, store.Succeeded, "", nil); err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"busy", "busy2"} {
		things[name] = made(`{"prompt":"x","config":{"environment_id":"talks"}}`)
		f.claimUntil(things[name])
	}
	things["queued"] = made(`{"prompt":"x"}`)
	for _, name := range []string{"schedule", "gone"} {
		things[name] = field(f.t, f.do("POST", "/api/v1/agent/schedules", key, `{"name":"N","cron_schedule":"@daily","prompt":"x"}`), "id")
	}
	return things
}

// claimUntil claims a run, and what comes before it in the queue.
func (f *fixture) claimUntil(id string) store.Lease {
	f.t.Helper()
	for {
		leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Hour})
		if err != nil || len(leases) != 1 {
			f.t.Fatal(leases, err)
		}
		if leases[0].RunID.String() == id {
			return leases[0]
		}
	}
}

// askSDK asks for a method as the SDK does, and says what was answered.
func (f *fixture) askSDK(key string, m sdkMethod, things map[string]string) string {
	f.t.Helper()
	ask := m.ask
	for name, id := range things {
		ask = strings.ReplaceAll(ask, "{"+name+"}", id)
	}
	method, path, _ := strings.Cut(m.route, " ")
	rest, body, hasBody := strings.Cut(ask, `{"`)
	if hasBody {
		body = `{"` + body
	}
	path, headers := api.Base+path, []string(nil)
	for word := range strings.FieldsSeq(rest) {
		if strings.HasPrefix(word, "?") {
			path += word
			continue
		}
		at := regexp.MustCompile(`[:*]\w+`).FindStringIndex(path)
		path = path[:at[0]] + word + path[at[1]:]
	}
	if strings.HasSuffix(path, "/transcript") || strings.HasSuffix(path, "/download") {
		headers = []string{"Accept", "application/octet-stream"}
	}
	if strings.HasSuffix(path, "/redirect") || strings.HasPrefix(path, api.Base+"/factory-files/") {
		key = "" // the SDK sends none
	}
	got := f.do(method, path, key, body, headers...)
	if got.status != m.want {
		f.t.Errorf("%s: %s %s: %d, want %d: %s", m.name, method, path, got.status, m.want, got.body)
		return ""
	}
	if m.want == http.StatusUnprocessableEntity {
		if kind := field(f.t, got, "type"); !strings.HasSuffix(kind, "operation-not-supported") || field(f.t, got, "message") == "<nil>" {
			f.t.Errorf("%s: %s", m.name, got.body)
		}
		said := strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(field(f.t, got, "detail"))
		return "422: " + said
	}
	said := []string{"as published"}
	if m.members != "" {
		var thing any
		if err := json.Unmarshal(got.body, &thing); err != nil {
			f.t.Errorf("%s: %v: %s", m.name, err, got.body)
			return ""
		}
		for step := range strings.FieldsSeq(m.at) {
			switch v := thing.(type) {
			case map[string]any:
				thing = v[step]
			case []any:
				if len(v) == 0 {
					f.t.Errorf("%s: nothing is listed, so nothing is shown: %s", m.name, got.body)
					return ""
				}
				thing = v[0]
			}
		}
		members, ok := thing.(map[string]any)
		if !ok {
			f.t.Errorf("%s: no %s: %s", m.name, m.at, got.body)
		}
		var lacks []string
		for member := range strings.FieldsSeq(m.members) {
			if _, has := members[member]; !has {
				lacks = append(lacks, "`"+member+"`")
			}
		}
		if len(lacks) > 0 {
			said[0] += ", without " + strings.Join(lacks, ", ")
		}
	}
	if m.note != "" {
		said = append(said, m.note)
	}
	return strings.Join(said, "; ")
}
