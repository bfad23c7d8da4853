package server

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/getkin/kin-openapi/openapi3"

	"triphammer/server/api"
)

// createFields says of each field of a request for a run what becomes of some values. A
// status of 200 means that the run has the text in wants; any other one that the field is
// named in the refusal, which has the text.
var createFields = []struct {
	field, value string // the value is JSON
	status       int
	wants        string
}{
	{"prompt", `"Say hello."`, 200, `"prompt":"Say hello."`},
	{"prompt", `" "`, 400, "prompt is missing"},
	{"title", `"T1"`, 200, `"title":"T1"`},
	{"skill", `"deploy"`, 200, `Work by the skill deploy:\n\nDeploy with care.`},
	{"skill", `"deploy"`, 200, `"agent_config":{"name":"deploy"`},
	{"skill", `"review"`, 422, `"review" is no skill of the definitions, which have deploy for this run`},
	{"skill", `"o/other:deploy"`, 422, "the run has no repository o/other; it has o/r"},
	{"skill", `"o/r:.claude/skills/x/SKILL.md"`, 200, `"agent_skill":{"name":"x","full_path":"o/r:.claude/skills/x/SKILL.md"}`},
	{"skill", `"r:x"`, 200, `"agent_skill":{"name":"x","full_path":"o/r:x"}`},
	{"skill", `"o/r:../x"`, 400, "is not REPOSITORY:PATH"},
	{"skill", `"o/r:"`, 400, "is not REPOSITORY:PATH"},
	{"skill", `":x"`, 422, "the run has no repository"},
	{"mode", `"normal"`, 200, ""},
	{"mode", `"plan"`, 200, `"mode":"plan"`},
	{"mode", `"orchestrate"`, 422, "no agent here has that mode"},
	{"mode", `"dream"`, 400, "is one of normal, plan, orchestrate"},
	{"agent_identity_uid", `"reviewer"`, 200, `"agent":"reviewer"`},
	{"agent_identity_uid", `"default/reviewer"`, 200, `"agent":"reviewer"`},
	{"agent_identity_uid", `"nobody"`, 400, "names no agent"},
	{"parent_run_id", `"PARENT"`, 200, `"parent_run_id":"PARENT"`},
	{"parent_run_id", `"run_0000000000001"`, 400, "names no run"},
	{"metadata", `{"a":"1"}`, 200, `"metadata":{"a":"1"}`},
	{"metadata", `{"a b":"1"}`, 400, "has keys of"},
	{"attachments", `[{"file_name":"a.txt","mime_type":"text/plain","data":"aGk="}]`, 200, `{"name":"a.txt","size_bytes":2}`},
	{"images", `[{"mime_type":"image/png","data":"aGk="},{"mime_type":"image/jpeg","data":"aGk="}]`, 200, `{"name":"image-2.jpg","size_bytes":2}`},
	{"images", `[{"mime_type":"image/tiff","data":"aGk="}]`, 400, "is one of image/gif"},
	{"config", `null`, 200, ""},
	{"config", `7`, 400, "takes an object, not a JSON number"},
	{"conversation_id", `"PARENT"`, 200, `"conversation_id":"PARENT"`},
	{"conversation_id", `"nonsense"`, 400, "names no conversation"},
	{"interactive", `true`, 200, ""},
	{"team", `true`, 200, ""},
	{"team", `false`, 422, "a run belongs to its factory"},
	{"on_behalf_of", `"ada"`, 422, "belongs to the owner of the key"},
	{"priority", `3`, 200, `"priority":3`},
	{"priority", `11`, 400, "is a number from -10 to 10"},
	{"config.name", `"nightly"`, 200, `"name":"nightly"`},
	{"config.environment_id", `"app"`, 200, `"environment_id":"app"`},
	{"config.environment_id", `"empty-environment"`, 200, `"sent_prompt":"x\n"`},
	{"config.environment_id", `"gone"`, 400, "is no environment here"},
	{"config.runner_id", `"small"`, 200, `"runner_id":"small"`},
	{"config.runner_id", `"gone"`, 400, "names no runner"},
	{"config.base_prompt", `"Be brief."`, 200, `"sent_prompt":"Be brief.\n\nx\n"`},
	{"config.model_id", `"opus"`, 200, `"model_id":"opus"`},
	{"config.harness", `{"type":"claude-code","model_id":"opus","reasoning_level":"high"}`, 200, `"harness":{"type":"claude","model_id":"opus","reasoning_level":"high"}`},
	{"config.harness", `{"type":"oz"}`, 200, `"harness":{"type":"oz"}`},
	{"config.harness", `{"type":"mystery"}`, 422, `there is no harness "mystery": it is oz or one of claude`},
	{"config.harness", `{"type":"acp"}`, 422, "needs a command, which only definitions have"},
	{"config.harness", `{"typ":"oz"}`, 400, "is no field that this server knows"},
	{"config.worker_host", `"builder"`, 200, "waits for a worker named builder"},
	{"config.worker_host", `"warp"`, 200, ""},
	{"config.skill_spec", `"deploy"`, 200, "Deploy with care."},
	{"config.skill_spec", `"none"`, 422, `"none" is no skill of the definitions`},
	{"config.skills", `["deploy","r:x"]`, 200, `"sent_prompt":"[The skill x of the repository o/r comes here.]\n\nWork by the skill deploy:`},
	{"config.skills", `["deploy","none"]`, 422, `"none" is no skill of the definitions`},
	{"config.mcp_servers", `{"docs":{"url":"https://mcp.example.com/"}}`, 200, `https://mcp.example.com/`},
	{"config.mcp_servers", `{"docs":{"command":"run-it","args":["--stdio"],"env":{"A":"b"}}}`, 200, `run-it`},
	{"config.mcp_servers", `{"docs":{"warp_id":"abc"}}`, 422, "knows none by the identifier abc"},
	{"config.mcp_servers", `{"docs":{"url":"https://x.example/","headers":{"A":"${NOT_GRANTED}"}}}`, 422, "refers to ${NOT_GRANTED}"},
	{"config.mcp_servers", `{"docs":{}}`, 400, "has none of warp_id"},
	{"config.harness_auth_secrets", `{"claude_auth_secret_name":"S"}`, 422, "a request cannot"},
	{"config.harness_auth_secrets", `{"gemini_auth_secret_name":"S"}`, 422, "claude_auth_secret_name and codex_auth_secret_name"},
	{"config.idle_timeout_minutes", `60`, 200, ""},
	{"config.idle_timeout_minutes", `0`, 400, "is a number from 1 to 60"},
	{"config.credential_strategy", `"EXECUTOR"`, 200, ""},
	{"config.credential_strategy", `null`, 200, ""},
	{"config.credential_strategy", `"CREATOR"`, 422, "whoever started it"},
	{"config.credential_strategy", `"NOBODY"`, 400, "is one of EXECUTOR, CREATOR"},
	{"config.computer_use_enabled", `false`, 200, ""},
	{"config.computer_use_enabled", `true`, 422, "runs have no screen"},
	{"config.computer_use_model_id", `"m"`, 200, ""}, // as published: it means nothing without computer use
	{"config.memory_stores", `[]`, 200, ""},
	{"config.memory_stores", `[{"uid":"m","access":"read_only","instructions":""}]`, 422, "no memory for agents"},
	{"config.inference_providers", `{"aws":{"disabled":true}}`, 200, ""},
	{"config.inference_providers", `{"aws":{"region":"eu-west-1","role_arn":"r"}}`, 422, "calls the provider of its harness"},
	{"config.session_sharing", `{}`, 200, ""},
	{"config.session_sharing", `{"public_access":"VIEWER"}`, 422, "nobody else"},
	{"config.session_sharing", `{"public_access":"ALL"}`, 400, "is one of VIEWER, EDITOR"},
	{"not_a_field", `1`, 400, "is no field that this server knows"},
	{"config.not_a_field", `1`, 400, "is no field that this server knows"},
}

// TestCreateFields: every field of a request for a run acts, or is refused with the reason.
// None is ignored.
func TestCreateFields(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"factory.yaml":                           {Data: []byte("schemaVersion: v1alpha1\nname: Test\nrepositories: [{owner: o, name: r}]\nagentDefaults: {harness: {type: claude}}\n")},
		"agents/lead/agent.md":                   {Data: []byte("---\nagentType: FOREMAN\n---\nYou lead.\n")},
		"agents/reviewer/agent.md":               {Data: []byte("---\n---\nYou review.\n")},
		"agents/reviewer/skills/review/SKILL.md": {Data: []byte("Review by candlelight.\n")},
		"skills/deploy/SKILL.md":                 {Data: []byte("---\nname: deploy\n---\nDeploy with care.\n")},
		"environments/app.yaml":                  {Data: []byte("command: ['true']\n")},
		"runners/small.yaml":                     {Data: []byte("platform: {linux: {dockerImage: debian}}\n")},
	}})
	key := f.key("ada", "manage")
	parent := f.create(key, `{"prompt":"First."}`)
	for _, c := range createFields {
		t.Run(c.field+" "+c.value, func(t *testing.T) {
			body := map[string]any{"prompt": "x"}
			value := json.RawMessage(strings.ReplaceAll(c.value, "PARENT", parent))
			if inner, ok := strings.CutPrefix(c.field, "config."); ok {
				body["config"] = map[string]any{inner: value}
			} else {
				body[c.field] = value
			}
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			f.t = t
			got := f.do("POST", "/api/v1/agent/runs", key, string(text))
			if got.status != c.status {
				t.Fatalf("%d %s, want %d", got.status, got.body, c.status)
			}
			wants := strings.ReplaceAll(c.wants, "PARENT", parent)
			if c.status == 200 {
				got = f.get("/api/v1/agent/runs/"+field(t, got, "run_id"), key)
			} else if p := problemOf(t, got); len(p.Errors) == 0 || !strings.HasPrefix(p.Errors[0].Field, strings.Split(c.field, "[")[0]) {
				t.Errorf("the refusal names %v, not %s", p.Errors, c.field)
			}
			if !strings.Contains(unescaped(got.body), wants) {
				t.Errorf("%s\nlacks %s", got.body, wants)
			}
		})
	}
}

// TestNameOfSkill: a run that works by a skill is listed by its name, unless its request gives
// another one.
func TestNameOfSkill(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{"skills/deploy/SKILL.md": {Data: []byte("Deploy with care.\n")}}})
	key := f.key("ada", "manage")
	named := f.create(key, `{"skill":"deploy","config":{"environment_id":"e"}}`)
	other := f.create(key, `{"skill":"deploy","config":{"environment_id":"e","name":"nightly"}}`)
	for name, want := range map[string]string{"deploy": named, "nightly": other} {
		if got := f.get("/api/v1/agent/runs?name="+name, key); field(t, got, "runs", "0", "run_id") != want || strings.Count(string(got.body), `"run_id":`) != 1 {
			t.Errorf("%s lists %s", name, got.body)
		}
	}
}

func problemOf(t *testing.T, a answer) (p api.Problem) {
	t.Helper()
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatal(err)
	}
	p.Detail = strings.Trim(p.Detail, " ")
	return p
}

// unescaped is JSON as people write it.
func unescaped(body []byte) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(body)) + strings.ReplaceAll(string(body), `\"`, `"`)
}

// TestCreateFieldsAreDescribed: openapi.yaml, the types that read a request, the table of the
// test and the guide have the same fields.
func TestCreateFieldsAreDescribed(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "| field of a create |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, object := range []struct {
		schema, prefix string
		of             any
	}{{"CreateRun", "", api.CreateRun{}}, {"CreateConfig", "config.", api.RunConfig{}}} {
		schema := doc.Components.Schemas[object.schema].Value
		var read []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(object.of)) {
			read = append(read, f.Tag.Get("json"))
		}
		for name := range schema.Properties {
			field := object.prefix + name
			if !slices.Contains(read, name) {
				t.Errorf("%s is described and not read", field)
			}
			if !slices.ContainsFunc(createFields, func(row struct {
				field, value string
				status       int
				wants        string
			},
			) bool {
				return row.field == field
			}) {
				t.Errorf("%s is in no row of the test", field)
			}
			if name != "config" && !strings.Contains(table, "`"+field+"`") {
				t.Errorf("docs/api.md says nothing of %s", field)
			}
		}
		for _, name := range read {
			if schema.Properties[name] == nil {
				t.Errorf("%s%s is read and not described", object.prefix, name)
			}
		}
	}
}
