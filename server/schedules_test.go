package server

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/run"
	"triphammer/server/store"
)

// TestSchedules: the schedules of the published API
// (docs/api.md).
func TestSchedules(t *testing.T) {
	f := runsFixture(t)
	key := f.key("ada", "runs")
	path := "/api/v1/agent/schedules"
	must := func(a answer, status int) answer {
		t.Helper()
		if a.status != status {
			t.Fatalf("%d, want %d: %s", a.status, status, a.body)
		}
		return a
	}
	made := must(f.do("POST", path, key, `{"name":"Nightly","cron_schedule":"0 3 * * *","prompt":"Tidy up.","team":true,
		"agent_config":{"environment_id":"app","model_id":"m1"},"agent_uid":"fixer","metadata":{"a":"1"}}`), http.StatusCreated)
	id := field(t, made, "id")
	for path, want := range map[string]string{
		"name": "Nightly", "cron_schedule": "0 3 * * *", "enabled": "true", "prompt": "Tidy up.", "agent_uid": "fixer", "metadata.a": "1",
		"agent_config.model_id": "m1", "created_by.uid": "ada", "scope.type": "Team", "history.last_ran": "<nil>",
	} {
		if got := field(t, made, strings.Split(path, ".")...); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
	if next := field(t, made, "history", "next_run"); !strings.HasSuffix(next, "T03:00:00Z") {
		t.Errorf("next_run %s", next)
	}
	must(f.do("POST", path, key, `{"name":"Another","cron_schedule":"@weekly","prompt":"x","enabled":false}`), http.StatusCreated)
	if got := must(f.get(path, key), 200); field(t, got, "schedules", "0", "name") != "Another" {
		t.Errorf("not by name: %s", got.body)
	}
	if got := must(f.do("PUT", path+"/"+id, key, `{"name":"Nightly","cron_schedule":"@hourly","prompt":"Tidy.","enabled":true}`), 200); field(t, got, "cron_schedule") != "@hourly" || field(t, got, "agent_uid") != "<nil>" {
		t.Errorf("changed: %s", got.body)
	}
	if got := must(f.do("POST", path+"/"+id+"/pause", key, ""), 200); field(t, got, "enabled") != "false" || field(t, got, "history", "next_run") != "<nil>" {
		t.Errorf("paused: %s", got.body)
	}
	if got := must(f.do("POST", path+"/"+id+"/resume", key, ""), 200); field(t, got, "enabled") != "true" || field(t, got, "prompt") != "Tidy." {
		t.Errorf("resumed: %s", got.body)
	}
	if got := must(f.get(path+"/"+id, key), 200); field(t, got, "id") != id {
		t.Errorf("read: %s", got.body)
	}
	for body, wrong := range map[string]string{
		`{"cron_schedule":"@daily","prompt":"x"}`:                                                     "name",
		`{"name":"x","cron_schedule":"often","prompt":"x"}`:                                           "cron_schedule",
		`{"name":"x","cron_schedule":"@every -1h","prompt":"x"}`:                                      "cron_schedule",
		`{"name":"x","cron_schedule":" @every 0","prompt":"x"}`:                                       "cron_schedule",
		`{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":{"environment_id":1}}`:      "agent_config.environment_id",
		`{"name":"x","cron_schedule":"@daily"}`:                                                       "prompt",
		`{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":{"environment_id":"none"}}`: "agent_config.environment_id",
		`{"name":"x","cron_schedule":"@daily","prompt":"x","agent_uid":"nobody"}`:                     "agent_uid",
		`{"name":"x","cron_schedule":"@daily","prompt":"x","metadata":{"":"1"}}`:                      "metadata",
	} {
		if got := must(f.do("POST", path, key, body), 400); field(t, got, "errors", "0", "field") != wrong {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	must(f.do("POST", path, key, `{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":{"skill_spec":"a"}}`), 422)
	must(f.do("PUT", path+"/"+id, key, `{"name":"Nightly","cron_schedule":"@hourly","prompt":"Tidy."}`), 400)
	null := must(f.do("POST", path, key, `{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":null}`), 201) // f.do holds it to openapi.yaml
	must(f.do("DELETE", path+"/"+field(t, null, "id"), key, ""), 200)
	other := f.limitedKey("other", "elsewhere", "runs")
	for _, c := range [][2]string{{"GET", ""}, {"PUT", ""}, {"DELETE", ""}, {"POST", "/pause"}, {"POST", "/resume"}} {
		must(f.do(c[0], path+"/"+id+c[1], other, `{}`), 404)
	}
	if got := must(f.get(path, other), 200); string(got.body) != `{"schedules":[]}` {
		t.Errorf("another factory's key sees %s", got.body)
	}
	if got := must(f.do("DELETE", path+"/"+id, key, ""), 200); string(got.body) != `{"success":true}` {
		t.Errorf("deleted: %s", got.body)
	}
	must(f.get(path+"/"+id, key), 404)
	must(f.do("DELETE", path+"/"+id, key, ""), 404)
}

// scheduledRun is what a tick of a schedule starts now.
func (f *fixture) scheduledRun(n *store.Schedule) (store.NewRun, error) {
	req, err := ScheduledRequest(n.Request)
	if err != nil {
		return store.NewRun{}, err
	}
	return run.FromSchedule(f.t.Context(), f.store, f.parts.Live, n, req)
}

// TestStoredSchedules: what older versions stored with a schedule starts the same
// run.
func TestStoredSchedules(t *testing.T) {
	f := runsFixture(t)
	for _, c := range []struct{ stored, config, refused string }{
		{`{"prompt":"Tidy up."}`, "", ""},
		{`{"prompt":"Tidy up.","agent_config":null,"mode":"normal"}`, "", ""},
		{
			`{"prompt":"Tidy up.","agent_config":{"environment_id":"app","model_id":"m1"},"agent_uid":"fixer","metadata":{"a":"1"}}`,
			`{"environment_id":"app","model_id":"m1"}`, "",
		},
		{`{"prompt":"Tidy up.","agent_config":{"skill_spec":"a"}}`, "", `config.skill_spec is not supported here: "a" is no skill of the definitions, which have none for this run; write REPOSITORY:PATH for one in a repository of the run, which has none`},
		{`{"prompt":"Tidy up.","mode":"plan"}`, "", ""},
		{`{"prompt":"Tidy up.","agent_config":{"environment_id":"gone"}}`, "", `config.environment_id "gone" is no environment here; it can be app, e`},
		{`{"prompt":7}`, "", "reading the schedule: json: cannot unmarshal number into Go struct field ScheduledRun.prompt of type string"},
	} {
		r, err := f.scheduledRun(&store.Schedule{Factory: "default", Name: "Nightly", CreatorKind: "user", CreatorName: "ada", Request: []byte(c.stored)})
		if c.refused != "" {
			if err == nil || err.Error() != c.refused {
				t.Errorf("%s: %v", c.stored, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.stored, err)
			continue
		}
		spec, err := run.DecodeSpec(r.Spec)
		if err != nil || spec.Prompt != "Tidy up." || string(spec.Config) != c.config || !slices.Equal(r.Search, []string{"Tidy up.", "Tidy up.", "Nightly"}) {
			t.Errorf("%s: %+v %+v %v", c.stored, spec, r, err)
		}
		if strings.Contains(c.stored, "fixer") && (spec.Agent != "fixer" || spec.Environment.Name != "app" || spec.Harness.Model != "m1" || r.Metadata["a"] != "1") {
			t.Errorf("%s: %+v", c.stored, spec)
		}
	}
}

// TestScheduledRun: a schedule starts what its creator would start now.
func TestScheduledRun(t *testing.T) {
	f := runsFixture(t)
	_, token, err := f.store.Keys.Create(t.Context(), store.Key{Name: "bot", Kind: store.KeyAgent, Owner: "robot", Scopes: []string{"runs"}})
	if err != nil {
		t.Fatal(err)
	}
	made := f.do("POST", "/api/v1/agent/schedules", token.Reveal(), `{"name":"Nightly","cron_schedule":"@daily","prompt":"Tidy up.","metadata":{"a":"1"},"agent_config":{"environment_id":"app"}}`)
	n, err := f.store.Schedules.Get(t.Context(), idOf[store.Schedule](t, field(t, made, "id")))
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.scheduledRun(n)
	if err != nil || r.Source != store.SourceSchedule || r.Title != "Nightly" || r.CreatorKind != "agent" || r.CreatorName != "robot" || r.Metadata["a"] != "1" {
		t.Fatalf("%+v %v", r, err)
	}
	runs, err := f.store.Schedules.Fire(t.Context(), store.Tick{Schedule: n, At: n.Anchor, Runs: []store.NewRun{r}})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	got := f.get("/api/v1/agent/runs/"+runs[0].String(), token.Reveal())
	for path, want := range map[string]string{
		"source": "SCHEDULE", "schedule.schedule_id": n.ID.String(), "schedule.schedule_name": "Nightly", "schedule.cron_schedule": "@daily", "prompt": "Tidy up.",
	} {
		if value := field(t, got, strings.Split(path, ".")...); value != want {
			t.Errorf("%s is %s, not %s", path, value, want)
		}
	}
	if list := f.get("/api/v1/agent/runs?source=SCHEDULED_AGENT&schedule_id="+n.ID.String(), token.Reveal()); field(t, list, "runs", "0", "run_id") != runs[0].String() {
		t.Errorf("list %s", list.body)
	}
}

// TestFileSchedules: what an automation defines is shown, and changed in its file
// alone.
func TestFileSchedules(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{"automations/nightly.md": {Data: []byte(
		"---\nenvironmentId: e\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {cron: '@daily', name: night}}\n---\nTidy up.\n")}}})
	key := f.key("ada", "manage")
	if err := f.store.Schedules.Sync(t.Context(), "default", 0, []store.Schedule{{Automation: "nightly", Name: "night", Cron: "@daily", Enabled: true}}); err != nil {
		t.Fatal(err)
	}
	list := f.get("/api/v1/agent/schedules", key)
	if field(t, list, "schedules", "0", "automation") != "nightly" || field(t, list, "schedules", "0", "prompt") != "Tidy up." {
		t.Errorf("%s", list.body)
	}
	id := field(t, list, "schedules", "0", "id")
	for _, c := range [][2]string{{"PUT", ""}, {"DELETE", ""}, {"POST", "/pause"}} {
		if got := f.do(c[0], "/api/v1/agent/schedules/"+id+c[1], key, `{}`); got.status != 422 || !strings.Contains(string(got.body), "change its file") {
			t.Errorf("%s%s: %d %s", c[0], c[1], got.status, got.body)
		}
	}
	// One without a name has its automation's, in the list and on its runs.
	if err := f.store.Schedules.Sync(t.Context(), "default", 0, []store.Schedule{{Automation: "nightly", Cron: "@daily", Enabled: true}}); err != nil {
		t.Fatal(err)
	}
	list = f.get("/api/v1/agent/schedules", key)
	n, err := f.store.Schedules.Get(t.Context(), idOf[store.Schedule](t, field(t, list, "schedules", "0", "id")))
	if err != nil {
		t.Fatal(err)
	}
	r := store.NewRun{Factory: "default", Source: store.SourceSchedule, Automation: "nightly", Title: "nightly", Spec: []byte("{}"), SpecHash: sha256.Sum256([]byte("{}"))}
	runs, err := f.store.Schedules.Fire(t.Context(), store.Tick{Schedule: n, At: n.Anchor, Runs: []store.NewRun{r}})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	if name := field(t, f.get("/api/v1/agent/runs/"+runs[0].String(), key), "schedule", "schedule_name"); name != "nightly" || field(t, list, "schedules", "0", "name") != "nightly" {
		t.Errorf("named %q on the run; %s", name, list.body)
	}
	automations := f.get("/api/v1/automations", key)
	if !strings.Contains(string(automations.body), `"provider":"schedule","event":"cron_fired","filtered":false,"fires":true`) {
		t.Errorf("automations %s", automations.body)
	}
}
