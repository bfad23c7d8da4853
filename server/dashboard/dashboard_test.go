package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/run/event"
)

// evil is what strangers may put anywhere.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(1)>`

func everyPage() map[string]Content {
	page := Page{Title: evil, Person: Person{Name: evil, Role: evil}, Said: evil, Factories: []api.FactoryStatus{{Name: evil, Title: evil, State: "failing"}}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	entry := api.Delivery{
		ID: evil, Webhook: evil, Factory: evil, Outcome: "rejected_auth", Reason: evil, Detail: evil, Size: 7, ReceivedAt: now, ClientAddr: evil,
		Identity: &api.Identity{Source: evil, Value: evil}, DuplicateOf: evil, ReplayOf: evil,
	}
	accepted := entry
	accepted.Event, accepted.Person, accepted.Nearest = evil, evil, &api.Match{Automation: evil, Path: evil, Want: evil, Got: evil}
	accepted.Outcome, accepted.StartedRuns, accepted.Paused = "accepted", []api.StartedRun{{RunID: evil, Automation: evil, State: evil}}, []string{evil}
	match := api.Match{Automation: evil, Path: evil, Want: evil, Got: evil, Definition: evil, Conditions: []api.Condition{{Path: evil, Want: evil, Got: evil}, {Path: evil, Got: evil, OK: true}}}
	stats := api.Stats{
		Times: []api.StatsTime{{At: now, Deliveries: 3, Wanted: 1, Stopped: map[string]int64{"parsed": 1}}}, Total: api.StatsTime{Deliveries: 3},
		Webhooks: []api.WebhookStats{{Webhook: evil, Times: []int64{3}, Refused: []int64{1}}},
	}
	encoded, _ := json.Marshal(map[string]any{
		"text": evil, "path": evil, "diff": evil, "message": evil, "state": evil, "command": evil, "phase": evil, "output": evil, "role": evil,
		"name": evil, "stream": evil, "change": evil, "exit_code": 3, "input": `{"path":"` + evil + `"}`, "host": evil, "reason": evil, "request": evil,
		"decision": evil, "harness": evil, "id": evil, "type": evil, "url": evil, "omitted": evil, "diff_omitted": evil, "signal": evil,
		"repository": evil, "ref": evil, "new": evil, "refused": evil,
	})
	var events []api.Event
	kinds := []string{
		event.KindStatus, event.KindMessage, event.KindCommand, event.KindTool, event.KindOutput, event.KindFile, event.KindUsage, event.KindExit, event.KindStarted,
		event.KindTruncated, event.KindPhase, event.KindEgress, event.KindPush, event.KindPermission, event.KindSession, event.KindResult, event.KindArtifact, "unknown",
	}
	for i, kind := range kinds {
		events = append(events, api.Event{Seq: int64(2*i + 1), At: now, Kind: kind, Data: encoded}, api.Event{Seq: int64(2*i + 2), At: now, Kind: kind, Data: json.RawMessage(evil)})
	}
	evilHook := api.Webhook{Name: evil, Factory: evil, Path: evil, URL: evil, UID: evil, AuthMode: evil, SignatureScheme: evil, SecretName: evil, DeliveryIDHeader: evil}
	evilQuery := url.Values{}
	for _, name := range append([]string{"prompt", "title", "model", "name", "cron"}, runFilters...) {
		evilQuery.Set(name, evil)
	}
	evilSchedule := api.Schedule{ID: evil, Name: evil, Cron: evil, PausedReason: evil, LastSpawnError: evil, Automation: evil, Prompt: evil, AgentUID: evil, CreatedBy: api.Profile{DisplayName: evil}}
	evilAutomation := api.Automation{
		Factory: evil, Name: evil, Path: evil, EnvironmentID: evil, Agent: evil, Enabled: true, Dormant: evil, Warnings: []string{evil},
		Triggers: []api.Trigger{{Provider: evil, Event: evil, Dormant: evil}},
	}
	pages := map[string]Content{
		"overview": Overview{
			Page: page, Needs: []Need{{"fail", evil, evil, evil, "/x", evil}}, Stats: stats, Rows: []api.Delivery{entry, accepted},
			Work: []api.Run{{RunID: evil, Title: evil, State: evil, Source: evil, StatusMessage: evil, CreatedAt: now}},
		},
		"costs": Costs{Page: page, Stats: api.Stats{Spent: &api.Spent{
			Total: api.SpentBy{Runs: 1, PullRequests: 1}, Automations: []api.SpentBy{{Name: evil, Factory: evil}}, Repositories: []api.SpentBy{{Name: evil}, {}}, People: []api.SpentBy{{Name: evil}},
		}, Models: []api.DayUsage{{ModelUsage: api.ModelUsage{Model: evil}}}}},
		"first steps": Overview{Page: page, Steps: true},
		"deliveries": Deliveries{
			Page: page, Rows: []api.Delivery{entry, accepted}, Next: evil, Newest: evil, Webhooks: []string{evil}, Stats: stats, Command: evil,
			Filters: url.Values{"webhook": {evil}, "outcome": {evil}, "stopped": {evil}, "since": {evil}, "event": {evil}, "person": {evil}, "automation": {evil}}, Views: []View{{Name: evil, URL: "/x"}},
		},
		"no deliveries": Deliveries{Page: page, Filters: url.Values{"text": {evil}}, Searched: true},
		"delivery": Delivery{
			Page: page, Nearest: &match, Others: []api.Match{match}, Payload: []Line{{evil, "no", evil}}, Truncated: true,
			Repeats: []api.Delivery{entry}, Replays: []api.Delivery{accepted}, Curl: evil,
			DeliveryDetail: api.DeliveryDetail{
				Delivery: accepted, Headers: map[string]string{evil: evil}, Commit: evil, Path: evil, Belt: []api.Stage{{Stage: evil, Outcome: "stopped", Detail: evil}},
				Matches: []api.Match{match}, Disabled: []api.Match{match},
				RunBelts: []api.RunBelt{{RunID: evil, Automation: evil, State: evil, RetryOf: evil, Belt: []api.Stage{{Stage: evil, Outcome: evil, Detail: evil}}}},
			},
		},
		"refused delivery": Delivery{Page: page, Plain: evil, DeliveryDetail: api.DeliveryDetail{Delivery: entry}},
		"runs": RunList{
			Page: page, Filters: evilQuery, Next: evil, New: 2, Choices: choices{[]string{evil}, []string{evil}, []string{evil}, []string{evil}},
			Now: []RunRow{{evilRun("QUEUED"), evil}}, Runs: []RunRow{{evilRun("FAILED"), ""}, {evilRun(evil), ""}},
		},
		"start a run": StartRun{Page: page, Choices: choices{nil, nil, []string{evil}, []string{evil}}, Typed: evilQuery, Problem: evil, Fields: []api.FieldProblem{{Field: evil, Message: evil}, {Field: evil}}},
		"schedules":   ScheduleList{Page: page, Schedules: []ScheduleRow{{Schedule: evilSchedule, Path: evil, Last: &api.Run{RunID: evil, State: evil}}}},
		"schedule":    ScheduleForm{Page: page, ID: evil, Choices: choices{nil, nil, []string{evil}, []string{evil}}, Typed: evilQuery, Problem: evil},
		"automations": Automations{Page: page, All: 1, Automations: []AutomationRow{{Automation: evilAutomation, Month: month{Runs: 1, USD: 1}}}},
		"automation": Automation{
			Page: page, Automation: evilAutomation, State: automationState(evilAutomation), Definition: api.Definition{Prompt: evil},
			Wants: []want{{evil, []keyValue{{evil, evil}}}}, Keys: []keyValue{{evil, evil}}, Runs: []api.Run{{RunID: evil, Title: evil, State: evil, StatusMessage: evil}},
			Recent: recentTests{Tests: []Tested{{accepted, true}}, Why: []whyNot{{evil, 1}}}, File: Place{Path: evil, Commit: evil},
		},
		"filter test": FilterTest{
			Page: page, Automations: []api.Automation{{Factory: evil, Name: evil}}, Webhooks: []string{evil}, Recent: []api.Delivery{accepted},
			Automation: evil, Filter: evil, Webhook: evil, Delivery: evil, Payload: evil, Error: evil, Nearer: evil, Made: evil, Tests: []Tested{{accepted, true}},
			Result: &api.FilterVerdict{
				Verdict: evil, WebhookCheck: api.FilterCheck{Detail: evil}, PayloadCheck: api.FilterCheck{Detail: evil, Path: evil},
				Webhooks: []api.WebhookVerdict{{Webhook: evil, Detail: evil}}, Conditions: []api.Condition{{Path: evil, Want: evil, Got: evil}},
			},
		},
		"webhooks": WebhookList{Page: page, All: 1, Webhooks: []WebhookRow{{
			Webhook: evilHook, State: state{"stop", "Disabled"}, Listens: []api.Automation{{Name: evil, Factory: evil}}, Last: &api.Delivery{ID: evil, Factory: evil, Outcome: evil, Reason: evil},
		}}},
		"webhook": Webhook{
			Page: page, Webhook: evilHook, State: state{"ok", "Enabled"}, Test: webhookTest{Event: evil, Payload: evil, Failed: evil},
			Day: api.WebhookStats{Times: []int64{1}, Refused: []int64{0}, Duplicates: []int64{0}}, File: Place{Path: evil, Commit: evil, Web: evil},
			Setup:   api.WebhookSetup{Provider: evil, Command: evil, Curl: evil, Samples: []api.Sample{{Event: evil}, {Event: "other"}}, Guide: api.Guide{Steps: []string{"**" + evil + "** `" + evil + "`" + evil}, First: evil, Source: evil}},
			Scheme:  &api.SignatureScheme{Name: evil, Method: evil, Note: evil, Identity: []string{evil}},
			Secret:  &api.Secret{Source: evil, Pending: true, UsedBy: []api.SecretUse{{Kind: evil, Name: evil}}},
			Waiting: []api.PendingSecret{{From: evil}},
			Listens: []api.Automation{{Name: evil, Factory: evil}},
			Rows:    []api.Delivery{{ID: evil, Outcome: evil, Reason: evil}, {ID: evil, Outcome: "ACCEPTED", Runs: []string{evil}}},
		},
		"run":       runWith(page, evilRun("FAILED"), events),
		"live run":  runWith(page, evilRun("INPROGRESS"), events),
		"a waiting": runWith(page, evilRun("QUEUED"), nil),
		"system": System{
			Page: page, Status: api.Status{Version: evil}, Checks: []Check{{"fail", evil, evil}}, Notices: []api.Notice{{RunID: evil, Detail: evil}},
			Report: &api.StoreReport{Problems: []string{evil}}, Backup: &api.AuditEntry{Actor: evil, Details: evil},
		},
		"message": Message{Page: page, Text: evil},
		"search":  Search{Page: page, Text: evil, kept: []Found{{evil, evil, evil, "/x"}}},
	}
	maps.Copy(pages, factoryPages(page, evilHook))
	return pages
}

// TestPagesEscape: nothing that a stranger, a definition or an agent wrote
// becomes markup, and nothing on a page needs what its policy forbids (SPEC 18.5).
func TestPagesEscape(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script>|<script [^s]|<img|<style| style=| on\w+="|="\s*(javascript|data|//)|https?://`)
	for name, data := range everyPage() {
		var b strings.Builder
		if err := Render(&b, data); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if at := forbidden.FindStringIndex(b.String()); at != nil {
			t.Errorf("%s: …%s…", name, b.String()[max(0, at[0]-80):min(b.Len(), at[1]+80)])
		}
		for _, part := range []string{"<!doctype html>", `<html lang="en">`, `name="viewport"`, "</main>"} {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
		if !strings.Contains(b.String(), "&lt;script&gt;") {
			t.Errorf("%s shows nothing of its data", name)
		}
	}
}

// TestEmptyPages: before anything happened the pages say so.
func TestEmptyPages(t *testing.T) {
	for want, data := range map[string]Content{
		"First steps":     Overview{Steps: true},
		"No run yet.":     RunList{},
		"triphammer send": Deliveries{},
		"Nothing yet.":    RunPage{Run: api.Run{State: "INPROGRESS", Detail: &api.RunDetail{}}},
	} {
		var b strings.Builder
		err := Render(&b, data)
		if err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%T does not say %q: %v\n%s", data, want, err, b.String())
		}
	}
}

// TestSignedOut: a page for nobody offers nothing that needs a session.
func TestSignedOut(t *testing.T) {
	var b strings.Builder
	if err := Render(&b, Message{Page: Page{Title: "Sign in"}, Text: "Run it."}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<nav", "<form", "Sign out"} {
		if strings.Contains(b.String(), part) {
			t.Errorf("it has %s", part)
		}
	}
}

// TestPayloadLines: a payload is shown as it came, in lines, and those that the nearest
// automation looked at are marked, once each.
func TestPayloadLines(t *testing.T) {
	nested := strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)
	conditions := []api.Condition{{Path: "payload.a.b", OK: true}, {Path: "payload.list[].n", Want: "2"}, {Path: "payload.key:"}}
	for _, c := range []struct{ payload, want, plain string }{
		{`{"b":1.50,"a":{"b":"é","c":{}},"a.b":1}`, "{|  \"b\": 1.50,|  \"a\": {|    \"b\": \"é\",yes|    \"c\": {}|  },|  \"a.b\": 1|}", ""},
		{`{"list":[{"n":1},{"n":1}],"b":"x: {","key:":[]}`, "{|  \"list\": [|    {|      \"n\": 1no|    },|    {|      \"n\": 1|    }|  ],|  \"b\": \"x: {\",|  \"key:\": []no|}", ""},
		{`"just: text {"`, `"just: text {"`, ""},
		{nested, "", nested},
	} {
		d := Delivery{Nearest: &api.Match{Automation: "x", Conditions: conditions}}
		d.showPayload([]byte(c.payload))
		var lines []string
		for _, l := range d.Payload {
			lines = append(lines, l.Text+l.Class)
		}
		if got := strings.Join(lines, "|"); got != c.want || d.Plain != c.plain || d.Truncated {
			t.Errorf("%.40s: %s\n%.200s", c.payload, got, d.Plain)
		}
	}
	d := Delivery{}
	if d.showPayload([]byte(`"` + strings.Repeat("é", maxShown) + `"`)); !d.Truncated || d.Plain != `"`+strings.Repeat("é", maxShown/2-1) {
		t.Errorf("too long: %t, %d bytes", d.Truncated, len(d.Plain))
	}
	d = Delivery{}
	if d.showPayload([]byte("[" + strings.Repeat("1,", mostLines) + "1]")); !d.Truncated || len(d.Payload) != mostLines {
		t.Errorf("too many lines: %t, %d", d.Truncated, len(d.Payload))
	}
}

// TestFilterOf: a filter made of a payload has the fields that say what it is about, and is
// one that the payload passes.
func TestFilterOf(t *testing.T) {
	for payload, want := range map[string]string{
		`{"action":"labeled","number":402,"label":{"name":"bug","id":7},"title":"x"}`: `{"action":["labeled"],"label":{"name":["bug"]}}`,
		`{"id":1}`: `{}`, `[1]`: `{}`, `"x"`: `{}`,
	} {
		if got := strings.Join(strings.Fields(filterOf([]byte(payload))), ""); got != want {
			t.Errorf("%s: %s, not %s", payload, got, want)
		}
	}
	if got := frontMatter("github", `{"action":["labeled"]}`); !strings.Contains(got, "triggers:") || !strings.Contains(got, "action:") || !strings.Contains(got, "github") {
		t.Errorf("front matter:\n%s", got)
	}
	if got := frontMatter("github", `{`); got != "" {
		t.Errorf("of no filter: %s", got)
	}
}

// TestShellWord: a command that people copy runs what it shows.
func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"github": "github", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "--x": "--x"} {
		if got := shellWord(word); got != want {
			t.Errorf("%s: %s, not %s", word, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	now := time.Now().UTC()
	for got, want := range map[string]string{
		short("0123456789abcdef"): "0123456", short("012"): "012",
		number(1234567): "1,234,567", number(int64(-1234)): "-1,234", number(999): "999",
		plural(1, "run"): "1 run", plural(int64(2000), "delivery"): "2,000 deliveries", plural(0, "run"): "0 runs", plural(2, "key"): "2 keys",
		ago(now.Add(-3 * time.Hour)): "3 hours ago", ago(time.Time{}): "never", ago(&now): "just now",
		markdown.Web("javascript:alert(1)"): "", markdown.Web("https://x/y"): "https://x/y", markdown.Web("//x"): "", markdown.Web("https:"): "",
		string(timeTag(time.Time{})): "–", day(now): "Today", day(now.AddDate(0, 0, -1)): "Yesterday",
		string(timeTag(time.Date(2020, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600)))): `<time datetime="2020-01-02T02:04:05Z" title="2020-01-02 02:04:05.006 UTC">2 Jan 2020</time>`,
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStyle: light and dark, and nothing from elsewhere.
func TestStyle(t *testing.T) {
	css, kind, _, ok := Asset("triphammer.css")
	if !ok || !strings.HasPrefix(kind, "text/css") || !strings.Contains(string(css), "light-dark(") || strings.Contains(string(css), "@import") {
		t.Error("the style sheet is not what the policy allows")
	}
	for _, at := range regexp.MustCompile(`url\(([^)]*)\)`).FindAllSubmatch(css, -1) {
		if _, _, _, ok := Asset(string(at[1])); !ok {
			t.Errorf("the style sheet wants %s", at[1])
		}
	}
}

// TestBelt: each outcome has its head, its mark and its sentence.
func TestBelt(t *testing.T) {
	none, two := 0, 2
	for _, tt := range []struct {
		d    api.Delivery
		head int
		kind string
		say  string
	}{
		{api.Delivery{Outcome: "rejected_too_large"}, 0, "fail", "stopped at received: too large"},
		{api.Delivery{Outcome: "rejected_auth", Reason: "signature_mismatch"}, 1, "fail", "stopped at authenticated: signature mismatch"},
		{api.Delivery{Outcome: "rejected_invalid_json", Reason: "not_json"}, 2, "fail", "stopped at parsed: not json"},
		{api.Delivery{Outcome: "rejected_invalid_json", Reason: "body_too_slow"}, 0, "fail", "stopped at received: body too slow"},
		{api.Delivery{Outcome: "duplicate"}, 3, "skip", "stopped at new: a duplicate"},
		{api.Delivery{Outcome: "accepted", RunsStarted: &none}, 4, "none", "stopped at matched: nothing wanted it"},
		{api.Delivery{Outcome: "accepted", RunsStarted: &two}, 5, "ok", "matched; it started runs"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1", "run_2"}, StartedRuns: []api.StartedRun{{State: "SUCCEEDED"}, {State: "FAILED"}}}, 5, "fail", "matched; its run: failed"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1"}, StartedRuns: []api.StartedRun{{State: "INPROGRESS"}}}, 5, "run", "matched; its run: running"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1"}, StartedRuns: []api.StartedRun{{State: "CANCELLED"}}}, 5, "stop", "matched; its run: cancelled"},
		{api.Delivery{Outcome: "new in a later version"}, 0, "fail", "stopped: new in a later version"},
	} {
		b := deliveryBelt(tt.d)
		if b.Head != tt.head || b.Kind != tt.kind || b.Say != tt.say {
			t.Errorf("%+v: %+v", tt.d, b)
		}
		svg := string(b.Small())
		if strings.Count(svg, `class="past"`) != tt.head || strings.Count(svg, `class="rest"`) != len(stages)-1-tt.head || !strings.Contains(svg, tt.say) {
			t.Errorf("%+v: %s", tt.d, svg)
		}
	}
	all := stations([]api.Stage{{Stage: "received", Outcome: "passed", Detail: "2 bytes"}, {Stage: "matched", Outcome: "stopped", Detail: "x"}, {Stage: "run", Outcome: "not_reached"}}, "none", "Nothing wanted it")
	if all[0].Class != "past" || all[1].Class != "head none" || all[1].Say != "Nothing wanted it" || all[2].Class != "rest" {
		t.Errorf("%+v", all)
	}
	if svg := string(belt{1, 0, "ok", `"><b>`}.Small()); strings.Contains(svg, "<b>") {
		t.Error(svg)
	}
}

// TestDeclared: a page cannot send what its route does not declare.
func TestDeclared(t *testing.T) {
	for request, want := range map[string]bool{
		"POST /agent/runs/run_1/cancel": true, "POST /agent/runs//cancel": false, "DELETE /agent/runs/run_1/cancel": false, "POST /agent/runs/run_1/cancel/x": false,
	} {
		if fits("POST /agent/runs/:id/cancel", request) != want {
			t.Error(request)
		}
	}
	v := &Visit{Request: &http.Request{}, route: &Route{Sends: []string{"POST /a"}}}
	if err := v.Send("POST", "/b", nil, nil); !errors.Is(err, errUndeclared) {
		t.Error(err)
	}
}

// TestInert: no character hides text on a page or turns it around.
func TestInert(t *testing.T) {
	var b strings.Builder
	if err := Render(&b, Message{Page: Page{Title: "a\u202eb"}, Text: "x\u200by\x1b[31m\u0085"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`a\u202eb`, `x\u200by\u001b[31m\u0085`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
}

// TestOfFactory: with several factories, what is shown says whose it is.
func TestOfFactory(t *testing.T) {
	one := []api.FactoryStatus{{Name: "payments"}}
	two := append([]api.FactoryStatus{{Name: "search"}}, one...)
	for _, c := range []struct {
		page          Page
		factory, want string
	}{
		{Page{Factories: one}, "payments", "hello"},
		{Page{Factories: two}, "", "hello"},
		{Page{Factories: two}, "payments", "payments: hello"},
		{Page{Factories: two, Factory: "payments"}, "payments", "hello"},
	} {
		if got := c.page.Of(c.factory, "hello"); got != c.want {
			t.Errorf("hello of %q is shown as %q, not %q", c.factory, got, c.want)
		}
	}
}

// TestLocalPath: what is no path of this server is nowhere to go.
func TestLocalPath(t *testing.T) {
	for _, to := range []string{"", "runs", "//evil.example", `/\evil.example`, "/\t/evil.example", "/\n/evil.example", "https://evil.example/", "/%2f/evil.example"} {
		if got := LocalPath(to); got != "" {
			t.Errorf("%q leads to %q", to, got)
		}
	}
	for _, to := range []string{"/", "/runs?state=FAILED&q=a%2Fb", "/definition/files/a%20b.yaml"} {
		if got := LocalPath(to); got != to {
			t.Errorf("%q leads to %q", to, got)
		}
	}
}

// answers is an API with an answer for each path.
type answers map[string]string

func (a answers) Call(_ context.Context, _, path string, _, out any) error {
	path, _, _ = strings.Cut(path, "?")
	return json.Unmarshal([]byte(cmp.Or(a[path], "{}")), out)
}

// TestNeeds: the first page says that no run can start here, and why.
func TestNeeds(t *testing.T) {
	for isolation, want := range map[string]string{
		`{"name": "sandbox", "lacking": ["no kernel"]}`:              "",
		`{"name": "", "lacking": ["/x is closed", "no namespaces"]}`: "No run can start here: No walls can be put around it: /x is closed; no namespaces.",
	} {
		v := &Visit{Request: httptest.NewRequest(http.MethodGet, "/", nil), API: answers{
			"/status": `{"isolation": ` + isolation + `}`, "/agent/runs": `{"runs": [], "page_info": {}}`, "/inbox": `{"items": []}`,
		}}
		needs, err := v.needs(Page{}, api.Stats{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, n := range needs {
			got += n.Title + ": " + n.Text
		}
		if got != want {
			t.Errorf("%s: %q", isolation, got)
		}
	}
}
