package dashboard

import (
	"encoding/json"
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
	page := Page{Title: evil, Actor: evil}
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
	var events []store.Event
	kinds := []string{
		event.KindStatus, event.KindMessage, event.KindCommand, event.KindTool, event.KindOutput, event.KindFile, event.KindUsage, event.KindExit, event.KindStarted,
		event.KindTruncated, event.KindPhase, event.KindEgress, event.KindPermission, event.KindSession, event.KindResult, event.KindArtifact, "unknown",
	}
	for i, kind := range kinds {
		events = append(events, store.Event{Seq: int64(i + 1), At: now, Kind: kind, Data: encoded}, store.Event{At: now, Kind: kind, Data: json.RawMessage(evil)})
	}
	payload, _ := PayloadText(encoded)
	return map[string]Content{
		"overview": Overview{
			Page: page, Deliveries: []*store.Delivery{d}, Runs: []*store.Run{r},
			Factories: []Factory{{
				State:       applier.State{Factory: evil, Repository: evil, Branch: evil, Error: evil, LastApply: &applier.Apply{Commit: gitrepo.Commit{Subject: evil}}},
				LastOutcome: "refused", LastCommit: evil, Diagnostics: schema.Diagnostics{{Path: evil, Line: 1, Message: evil, Hint: evil}},
			}},
		},
		"deliveries": Deliveries{Page: page, Deliveries: []*store.Delivery{d}, Next: evil},
		"delivery": Delivery{Page: page, Payload: payload, Truncated: true, Trace: &delivery.Trace{
			Delivery: d, Commit: evil, Belt: []delivery.Stage{{Stage: evil, Outcome: "stopped", Detail: evil}},
			Matches: []match.Result{{Automation: evil, Path: evil, Want: evil, Got: evil}},
		}},
		"runs": Runs{Page: page, Runs: []*store.Run{r}, Next: evil},
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
		"run":     Run{Page: page, Run: r, Prompt: evil, Events: events},
		"message": Message{Page: page, Text: evil},
	}
}

// TestPagesEscape: nothing that a stranger, a definition or an agent wrote
// becomes markup, and nothing on a page needs what its policy forbids.
func TestPagesEscape(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script|<img|<style| style=| on\w+="|javascript:|https?://`)
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
		"nothing yet":     Overview{Factories: []Factory{{}}},
		"None yet.":       Runs{},
		"triphammer send": Deliveries{},
		"Nothing yet.":    Run{Run: &store.Run{}},
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
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	for got, want := range map[string]string{
		when(at):                        "2026-11-21 11:00:00",
		when(time.Time{}):               "–",
		short("0123456789abcdef"):       "0123456789ab",
		short("012"):                    "012",
		took(&store.Run{StartedAt: at}): "",
		took(&store.Run{StartedAt: at, FinishedAt: at.Add(1500 * time.Millisecond)}): "1.5s",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStyle: light and dark, and nothing from elsewhere.
func TestStyle(t *testing.T) {
	if css := string(Style); !strings.Contains(css, "prefers-color-scheme: dark") || strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the style sheet is not what the policy allows")
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
