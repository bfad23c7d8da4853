package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// runsFixture has two agents and a runner besides the plain definitions.
func runsFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, options{files: fstest.MapFS{
		"agents/lead/agent.md":  {Data: []byte("---\nagentType: FOREMAN\nenvironmentId: e\n---\nYou lead.\n")},
		"agents/fixer/agent.md": {Data: []byte("---\nenvironmentId: e\ndescription: Fixes.\n---\nYou fix.\n")},
		"environments/app.yaml": {Data: []byte("command: ['true']\nrepositories: [{owner: o, name: r}]\n")},
		"runners/small.yaml":    {Data: []byte("platform: {linux: {dockerImage: debian}}\n")},
	}})
}

func (f *fixture) create(key, body string) string {
	f.t.Helper()
	got := f.do("POST", "/api/v1/agent/runs", key, body)
	if got.status != http.StatusOK {
		f.t.Fatalf("create: %d %s", got.status, got.body)
	}
	return field(f.t, got, "run_id")
}

// TestRunFilters: each filter of the published list selects what it says
// (docs/api.md).
func TestRunFilters(t *testing.T) {
	f := runsFixture(t)
	key := f.key("ada", "manage")
	_, token, err := f.store.Keys.Create(t.Context(), store.Key{Name: "bot", Kind: store.KeyAgent, Owner: "robot", Scopes: []string{"runs"}})
	if err != nil {
		t.Fatal(err)
	}
	delivered := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`), "delivery_id")
	hooked := field(t, f.get("/api/v1/deliveries/"+delivered, key), "runs", "0")
	plain := f.create(key, `{"prompt":"Update the changelog."}`)
	child := f.create(key, `{"prompt":"Then publish.","parent_run_id":"`+plain+`","metadata":{"ticket":"7"},"config":{"name":"nightly","environment_id":"app","model_id":"m1"}}`)
	fixed := f.create(token.Reveal(), `{"prompt":"Fix it.","title":"Zebra","agent_identity_uid":"fixer","metadata":{"ticket":"8","team":"web"}}`)
	f.do("POST", "/api/v1/agent/runs/"+plain+"/cancel", key, "")
	all := []string{plain, fixed, child, hooked} // by updated_at, newest first
	middle := field(t, f.get("/api/v1/agent/runs/"+child, key), "created_at")
	before, err := time.Parse(time.RFC3339, middle)
	if err != nil {
		t.Fatal(err)
	}
	none := []string{}
	for query, want := range map[string][]string{
		"":                                  all,
		"sort_by=created_at":                {fixed, child, plain, hooked},
		"sort_by=created_at&sort_order=asc": {hooked, plain, child, fixed},
		"sort_by=title":                     {hooked, fixed, plain, child},
		"sort_by=agent&sort_order=asc":      {plain, child, fixed, hooked},
		"state=CANCELLED":                   {plain},
		"state=QUEUED&state=CANCELLED":      all,
		"state=PENDING":                     none,
		"state=PENDING&state=CANCELLED":     {plain},
		"task_status=cancelled":             {plain},
		"task_status=running":               {fixed, child, hooked},
		"task_status=running&task_status=cancelled&state=CANCELLED": {plain},
		"task_status=blocked":                        none,
		"task_status=complete&state=CANCELLED":       none,
		"source=WEBHOOK&source=API":                  all,
		"source=SLACK&source=CUSTOM_WEBHOOK":         {hooked},
		"factory_only=true":                          all,
		"q=" + child:                                 {child},
		"q=https://hammer.example.com/runs/" + child: {child},
		"q=" + child + "&state=CANCELLED":            none,
		"q=run_0000000000001":                        none,
		"source=WEBHOOK":                             {hooked},
		"source=API":                                 {plain, fixed, child},
		"source=SCHEDULED_AGENT":                     none,
		"source=SLACK":                               none,
		"creator=ada":                                {plain, child},
		"creator=robot":                              {fixed},
		"executor=fixer":                             {fixed},
		"executor=ada":                               {plain, child},
		"agent=lead":                                 {hooked},
		"name=nightly":                               {child},
		"model_id=m1":                                {child},
		"environment_id=app":                         {child},
		"environment_id=default/app":                 {child},
		"environment_id=elsewhere/app":               none,
		"environment_id=empty-environment":           {plain},
		"execution_location=REMOTE":                  all,
		"execution_location=LOCAL":                   none,
		"skill_spec=o/r:s":                           none,
		"artifact_type=PLAN":                         none,
		"automation=a":                               {hooked},
		"automation_id=a":                            {hooked},
		"metadata[automation_id]=a":                  {hooked},
		"metadata[ticket]=7":                         {child},
		"metadata[ticket]=8&metadata[team]=web":      {fixed},
		"metadata[ticket]=9":                         none,
		"ancestor_run_id=" + plain:                   {child},
		"delivery_id=" + delivered:                   {hooked},
		"conversation_id=" + plain:                   {plain},
		"retry_of_run_id=" + plain:                   none,
		"factory=default":                            all,
		"factory_uid=default&factory_uid=x":          all,
		"factory=x":                                  none,
		"q=CHANGE":                                   {plain},
		"q=zebra fix":                                {fixed},
		"q=hangelog":                                 none,
		"created_after=" + middle:                    {fixed},
		"created_before=" + middle:                   {plain, hooked},
		"updated_after=" + before.Add(time.Hour).Format(time.RFC3339): none,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for page := f.get("/api/v1/agent/runs?limit=1&"+values.Encode(), key); ; page = f.get("/api/v1/agent/runs?limit=1&"+values.Encode(), key) {
			var list struct {
				Runs []api.Run    `json:"runs"`
				Info api.PageInfo `json:"page_info"`
			}
			if err := json.Unmarshal(page.body, &list); err != nil || page.status != 200 {
				t.Fatalf("%s: %d %s %v", query, page.status, page.body, err)
			}
			for _, r := range list.Runs {
				got = append(got, r.RunID)
			}
			if !list.Info.HasNextPage {
				break
			}
			values.Set("cursor", list.Info.NextCursor)
		}
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s selects %v, not %v", query, got, want)
		}
	}
	first := f.get("/api/v1/agent/runs?limit=1", key)
	if got := f.get("/api/v1/agent/runs?sort_by=title&cursor="+field(t, first, "page_info", "next_cursor"), key); got.status != 400 {
		t.Errorf("a cursor of another order: %d", got.status)
	}
}

// TestRunItem: a run has the fields of the published API
// (docs/api.md), as far as this server knows them.
func TestRunItem(t *testing.T) {
	f := runsFixture(t)
	key := f.key("ada", "manage")
	parent := f.create(key, `{"prompt":"First.","metadata":{"a":"1","b":"1"}}`)
	id := f.create(key, `{"prompt":"Fix it.\nAll of it.","parent_run_id":"`+parent+`","metadata":{"b":"2"},"agent_identity_uid":"default/fixer",
		"attachments":[{"file_name":"log.txt","mime_type":"text/plain","data":"aGk="}],"team":true,"interactive":false,
		"config":{"name":"nightly","environment_id":"app","runner_id":"small","base_prompt":"Be brief.","harness":{"type":"claude","model_id":"m1","reasoning_level":"high"},
		"idle_timeout_minutes":5,"credential_strategy":"EXECUTOR"}}`)
	got := f.get("/api/v1/agent/runs/"+id, key)
	for path, want := range map[string]string{
		"run_id": id, "task_id": id, "title": "Fix it.", "prompt": "Fix it.\nAll of it.", "state": "QUEUED", "source": "API",
		"creator.type": "user", "creator.uid": "ada", "executor.type": "service_account", "executor.uid": "fixer",
		"agent_config.name": "nightly", "agent_config.model_id": "m1", "agent_config.environment_id": "app", "agent_config.base_prompt": "You fix.\n\nBe brief.",
		"agent_config.harness.type": "claude", "agent_config.harness.reasoning_level": "high", "execution_location": "REMOTE", "scope.type": "Team",
		"parent_run_id": parent, "root_run_id": parent, "metadata.a": "1", "metadata.b": "2", "factory_uid": "default", "conversation_id": id, "is_run_type_cancellable": "true",
		"is_sandbox_running": "false", "environment_id": "app", "config.idle_timeout_minutes": "5", "artifacts": "[]",
	} {
		if value := field(t, got, strings.Split(path, ".")...); value != want {
			t.Errorf("%s is %s, not %s", path, value, want)
		}
	}
	timeline := f.get("/api/v1/agent/runs/"+id+"/timeline", key)
	if field(t, timeline, "events", "0", "event_type") != "run_created" {
		t.Errorf("timeline %s", timeline.body)
	}
	conversation := f.get("/api/v1/agent/runs/"+id+"/conversation", key)
	if field(t, conversation, "steps", "0", "messages", "0", "content", "0", "text") != "Fix it.\nAll of it." {
		t.Errorf("conversation %s", conversation.body)
	}
	if got := f.do("POST", "/api/v1/agent/runs/"+id+"/followups", key, `{"message":"More."}`); got.status != 422 {
		t.Errorf("follow-up: %d", got.status)
	}
	if got := f.get("/api/v1/agent/runs/"+id+"/handoff/attachments", key); got.status != 200 {
		t.Errorf("hand-off: %d", got.status)
	}
	if got := f.get("/api/v1/agent", key); field(t, got, "agents", "0", "name") != "fixer" || field(t, got, "agents", "0", "variants", "0", "environments", "0", "uid") != "default/e" {
		t.Errorf("agents %s", got.body)
	}
	if got := f.get("/api/v1/agent/environments", key); field(t, got, "environments", "0", "uid") != "default/app" || field(t, got, "environments", "0", "github_repos", "0", "repo") != "r" {
		t.Errorf("environments %s", got.body)
	}
	f.do("POST", "/api/v1/agent/runs/"+id+"/cancel", key, "")
	if got := f.get("/api/v1/agent/runs/"+id+"/timeline", key); !strings.Contains(string(got.body), "run_cancelled") {
		t.Errorf("timeline %s", got.body)
	}
}

// TestDurations: run_time is a duration of ISO 8601.
func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "PT0S", -time.Second: "PT0S", 1500 * time.Millisecond: "PT1.5S", time.Minute: "PT1M", 1723 * time.Millisecond: "PT1.723S", 59*time.Minute + 59999*time.Millisecond: "PT59M59.999S", time.Hour + 2*time.Second: "PT1H2S", 49 * time.Hour: "PT49H",
	} {
		if got := isoDuration(d); got != want {
			t.Errorf("%v is %s, not %s", d, got, want)
		}
	}
}

// FuzzRunList: no query of a list makes anything but a list or a refusal.
func FuzzRunList(f *testing.F) {
	f.Add("state=QUEUED&cursor=e30&metadata[a]=b")
	f.Add("sort_by=title&created_after=2026-01-01T00:00:00Z&q=x")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if l := parseRunList(values); l.wrong != nil && l.wrong.Message == "" {
			t.Errorf("%q is refused without a word: %+v", query, l.wrong)
		}
	})
}

// TestWhoseNames: with several factories, the schedule that is changed says whose
// environment is meant (SPEC 9.7).
func TestWhoseNames(t *testing.T) {
	f := runsFixture(t)
	key := f.key("ada", "runs")
	made := f.do("POST", "/api/v1/agent/schedules", key, `{"name":"x","cron_schedule":"@daily","prompt":"x"}`)
	schedule := "/api/v1/agent/schedules/" + field(t, made, "id")
	r, _ := f.parts.Live.Revision("default")
	second := *r
	second.Factory = "second"
	f.parts.Live.Swap(&second)
	for _, c := range []struct {
		config, factory, wrong string // whose it is, or the first of errors
	}{
		{`{}`, "default", ""},
		{`{"environment_id":"app"}`, "default", ""},
		{`{"environment_id":"second/app"}`, "", "agent_config.environment_id"},
	} {
		got := f.do("PUT", schedule, key, `{"name":"x","cron_schedule":"@daily","prompt":"y","enabled":true,"agent_config":`+c.config+`}`)
		if c.wrong != "" {
			if got.status != 400 || field(t, got, "errors", "0", "field") != c.wrong {
				t.Errorf("%s: %d %s", c.config, got.status, got.body)
			}
		} else if got.status != 200 || field(t, got, "factory") != c.factory {
			t.Errorf("%s: %d %s", c.config, got.status, got.body)
		}
	}
}

// TestRefusedValuesAreNamed: an error names the values that a list takes, as people write them.
func TestRefusedValuesAreNamed(t *testing.T) {
	f := newFixture(t)
	key := f.key("k", "read")
	for path, want := range map[string]string{
		"/api/v1/agent/runs?state=DONE":        "they are BLOCKED, QUEUED, INPROGRESS, ",
		"/api/v1/deliveries?outcome=gone":      "outcome is one of accepted, ",
		"/api/v1/deliveries?sinse=1h":          `does not take the parameter \"sinse\": it takes about, automation, cursor, duplicate_of, `,
		"/api/v1/applies?webhook=ci":           `does not take the parameter \"webhook\": it takes cursor, factory, `,
		"/api/v1/applies?since=yesterday":      "since is a time in RFC 3339",
		"/api/v1/agent/runs?artifact_type=PIE": "it is one of PLAN, ",
	} {
		if got := f.get(path, key); got.status != 400 || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
