package dashboard

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory/filter"
	"triphammer/factory/match"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// evil is what strangers may put anywhere.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(1)>`

func everyPage() map[string]Content {
	page := Page{Title: evil, Person: Person{Name: evil, Role: evil}, Said: evil, Factories: []api.FactoryStatus{{Name: evil, Title: evil, State: "failing"}}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	d := &store.Delivery{
		ID: 1, Webhook: evil, Outcome: store.RejectedAuth, Reason: evil, Size: 7, ReceivedAt: now, Headers: map[string]string{evil: evil},
		Runs: []store.RunRef{{ID: 1, Automation: evil}},
	}
	r := &store.Run{ID: 1, Title: evil, State: store.FailedRun, StatusMessage: evil, Automation: evil, DeliveryID: d.ID, Commit: evil, Source: evil, CreatedAt: now}
	encoded, _ := json.Marshal(map[string]any{
		"text": evil, "path": evil, "diff": evil, "message": evil, "state": evil, "command": evil, "phase": evil, "output": evil, "role": evil,
		"name": evil, "stream": evil, "change": evil, "exit_code": 3, "input": `{"path":"` + evil + `"}`, "host": evil, "reason": evil, "request": evil,
		"decision": evil, "harness": evil, "id": evil, "type": evil, "url": evil, "omitted": evil, "diff_omitted": evil, "signal": evil,
	})
	var events []api.Event
	kinds := []string{
		event.KindStatus, event.KindMessage, event.KindCommand, event.KindTool, event.KindOutput, event.KindFile, event.KindUsage, event.KindExit, event.KindStarted,
		event.KindTruncated, event.KindPhase, event.KindEgress, event.KindPermission, event.KindSession, event.KindResult, event.KindArtifact, "unknown",
	}
	for i, kind := range kinds {
		events = append(events, api.Event{Seq: int64(2*i + 1), At: now, Kind: kind, Data: encoded}, api.Event{Seq: int64(2*i + 2), At: now, Kind: kind, Data: json.RawMessage(evil)})
	}
	payload, _ := PayloadText(encoded)
	evilHook := api.Webhook{Name: evil, Factory: evil, Path: evil, URL: evil, UID: evil, AuthMode: evil, SignatureScheme: evil, SecretName: evil, DeliveryIDHeader: evil}
	evilQuery := url.Values{}
	for _, name := range append([]string{"prompt", "title", "model", "name", "cron"}, runFilters...) {
		evilQuery.Set(name, evil)
	}
	evilSchedule := api.Schedule{ID: evil, Name: evil, Cron: evil, PausedReason: evil, LastSpawnError: evil, Automation: evil, Prompt: evil, AgentUID: evil, CreatedBy: api.Profile{DisplayName: evil}}
	pages := map[string]Content{
		"overview": Overview{
			Page: page, Deliveries: []*store.Delivery{d}, Runs: []*store.Run{r},
			Serves: []Factory{{
				State:       applier.State{Factory: evil, Repository: evil, Branch: evil, Error: evil, LastApply: &applier.Apply{Commit: gitrepo.Commit{Subject: evil}}},
				LastOutcome: "refused", LastCommit: evil, Diagnostics: schema.Diagnostics{{Path: evil, Line: 1, Message: evil, Hint: evil}},
			}},
		},
		"deliveries": Deliveries{Page: page, Deliveries: []*store.Delivery{d}, Next: evil},
		"delivery": Delivery{Page: page, Payload: payload, Truncated: true, Trace: &delivery.Trace{
			Delivery: d, Commit: evil, Belt: []delivery.Stage{{Stage: evil, Outcome: "stopped", Detail: evil}},
			Matches: []match.Result{{Automation: evil, Path: evil, Want: evil, Got: evil}},
		}},
		"runs": RunList{Page: page, Filters: evilQuery, Next: evil, New: 2, Choices: choices{[]string{evil}, []string{evil}, []string{evil}},
			Now: []RunRow{{evilRun("QUEUED"), evil}}, Runs: []RunRow{{evilRun("FAILED"), ""}, {evilRun(evil), ""}}},
		"start a run": StartRun{Page: page, Choices: choices{nil, []string{evil}, []string{evil}}, Typed: evilQuery, Problem: evil, Fields: []api.FieldProblem{{Field: evil, Message: evil}, {Field: evil}}},
		"schedules":   ScheduleList{Page: page, Schedules: []ScheduleRow{{Schedule: evilSchedule, Path: evil, Last: &api.Run{RunID: evil, State: evil}}}},
		"schedule":    ScheduleForm{Page: page, ID: evil, Choices: choices{nil, []string{evil}, []string{evil}}, Typed: evilQuery, Problem: evil},
		"automations": Automations{Page: page, Automations: []api.Automation{
			{Factory: evil, Name: evil, Path: evil, EnvironmentID: evil, Enabled: true, Dormant: evil, Triggers: []api.Trigger{{Provider: evil, Event: evil, Dormant: evil}}},
		}},
		"filter test": FilterTest{
			Page: page, Automations: []api.Automation{{Factory: evil, Name: evil}}, Webhooks: []string{evil}, Automation: evil, Webhook: evil, Delivery: evil,
			Payload: evil, Error: evil, Result: &delivery.TestResult{
				WebhookCheck: delivery.Check{Detail: evil}, PayloadCheck: delivery.Check{Detail: evil},
				Webhooks: []delivery.WebhookVerdict{{Webhook: evil, Detail: evil}}, Conditions: []filter.Condition{{Path: evil, Want: evil, Got: evil}},
			},
		},
		"webhooks": WebhookList{Page: page, Webhooks: []WebhookRow{{
			Webhook: evilHook, State: state{"stop", "Disabled"}, Listens: []api.Automation{{Name: evil, Factory: evil}}, Last: &api.Delivery{ID: evil, Factory: evil, Outcome: evil, Reason: evil},
		}}},
		"webhook": Webhook{
			Page: page, Webhook: evilHook, State: state{"ok", "Enabled"}, File: Place{Path: evil, Commit: evil, Web: evil},
			Setup:      api.WebhookSetup{Provider: evil, Command: evil, Curl: evil, Guide: api.Guide{Steps: []string{"**" + evil + "** `" + evil + "`" + evil}, First: evil, Source: evil}},
			Scheme:     &api.SignatureScheme{Name: evil, Method: evil, Note: evil, Identity: []string{evil}},
			Secret:     &api.Secret{Source: evil, Pending: true, UsedBy: []api.SecretUse{{Kind: evil, Name: evil}}},
			Waiting:    []api.PendingSecret{{From: evil}},
			Listens:    []api.Automation{{Name: evil, Factory: evil}},
			Deliveries: []api.Delivery{{ID: evil, Outcome: evil, Reason: evil}, {ID: evil, Outcome: "ACCEPTED", Runs: []string{evil}}},
		},
		"run":       runWith(page, evilRun("FAILED"), events),
		"live run":  runWith(page, evilRun("INPROGRESS"), events),
		"a waiting": runWith(page, evilRun("QUEUED"), nil),
		"message":   Message{Page: page, Text: evil},
	}
	maps.Copy(pages, factoryPages(page, evilHook))
	return pages
}

// TestPagesEscape: nothing that a stranger, a definition or an agent wrote
// becomes markup, and nothing on a page needs what its policy forbids.
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
		"nothing yet":     Overview{Serves: []Factory{{}}},
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

func TestPayloadText(t *testing.T) {
	nested := strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)
	for _, c := range []struct {
		name, payload, want string
		cut                 bool
	}{
		{"indented", `{"b":1,"a":[1.50,"x"]}`, "{\n  \"b\": 1,\n  \"a\": [\n    1.50,\n    \"x\"\n  ]\n}", false},
		{"as it came", `{"a":1,"a":2}`, "{\n  \"a\": 1,\n  \"a\": 2\n}", false},
		{"brackets in strings", `["[[[{\"[[` + strings.Repeat("[", 100) + `"]`, "[\n  \"[[[{\\\"[[" + strings.Repeat("[", 100) + "\"\n]", false},
		{"nested too deeply to indent", nested, nested, false},
		{"too long", `"` + strings.Repeat("é", maxShown) + `"`, `"` + strings.Repeat("é", maxShown/2-1), true},
	} {
		if got, cut := PayloadText([]byte(c.payload)); got != c.want || cut != c.cut {
			t.Errorf("%s: cut %t\n%.300s", c.name, cut, got)
		}
	}
}

func TestWords(t *testing.T) {
	now := time.Now().UTC()
	for got, want := range map[string]string{
		short("0123456789abcdef"): "0123456", short("012"): "012",
		number(1234567): "1,234,567", number(int64(-1234)): "-1,234", number(999): "999",
		plural(1, "run"): "1 run", plural(int64(2000), "delivery"): "2,000 deliveries", plural(0, "run"): "0 runs",
		ago(now.Add(-3 * time.Hour)): "3 hours ago", ago(time.Time{}): "never", ago(&now): "just now",
		cost(0.424): "$0.42", web("javascript:alert(1)"): "", web("https://x/y"): "https://x/y", web("//x"): "", web("https:"): "",
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
		d      api.Delivery
		states []string
		head   int
		kind   string
		say    string
	}{
		{api.Delivery{Outcome: "rejected_too_large"}, nil, 0, "fail", "stopped at received: too large"},
		{api.Delivery{Outcome: "rejected_auth", Reason: "signature_mismatch"}, nil, 1, "fail", "stopped at authenticated: signature mismatch"},
		{api.Delivery{Outcome: "rejected_invalid_json", Reason: "not_json"}, nil, 2, "fail", "stopped at parsed: not json"},
		{api.Delivery{Outcome: "rejected_invalid_json", Reason: "body_too_slow"}, nil, 0, "fail", "stopped at received: body too slow"},
		{api.Delivery{Outcome: "duplicate"}, nil, 3, "skip", "stopped at new: a duplicate"},
		{api.Delivery{Outcome: "accepted", RunsStarted: &none}, nil, 4, "none", "stopped at matched: nothing wanted it"},
		{api.Delivery{Outcome: "accepted", RunsStarted: &two}, nil, 5, "ok", "matched; it started runs"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1", "run_2"}}, []string{"SUCCEEDED", "FAILED"}, 5, "fail", "matched; its run: failed"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1"}}, []string{"INPROGRESS"}, 5, "run", "matched; its run: running"},
		{api.Delivery{Outcome: "accepted", Runs: []string{"run_1"}}, []string{"CANCELLED"}, 5, "stop", "matched; its run: cancelled"},
		{api.Delivery{Outcome: "new in a later version"}, nil, 0, "fail", "stopped: new in a later version"},
	} {
		b := deliveryBelt(tt.d, tt.states...)
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
	for _, c := range [][3]string{{"default", "hello", "hello"}, {"", "hello", "hello"}, {"payments", "hello", "payments: hello"}} {
		if got := of(c[0], c[1]); got != c[2] {
			t.Errorf("%s of %s is shown as %s", c[1], c[0], got)
		}
	}
}
