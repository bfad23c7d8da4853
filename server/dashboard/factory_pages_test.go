package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"triphammer/applier"
	"triphammer/schema"
	"triphammer/server/api"
)

// factoryPages are the pages of the definitions, with hostile values in every field.
func factoryPages(page Page, hook api.Webhook) map[string]Content {
	hosted := api.FactoryStatus{
		Name: evil, Title: evil, Branch: evil, Repository: evil, Hosted: true, CloneURL: evil, Error: evil, Links: &api.Links{Repository: evil, File: evil},
	}
	plan := Plan{
		Plan: applier.Plan{
			Create: []applier.Change{{Kind: evil, Name: evil, Path: evil}}, Delete: []applier.Change{{Kind: evil, Name: evil, Path: evil}},
			Update:   []applier.Change{{Kind: evil, Name: evil, Values: []applier.ValueChange{{Key: evil, Before: evil, After: evil}}}},
			Callouts: []applier.Callout{{Path: evil, Message: evil}},
		},
		BackTests: []applier.BackTest{{Automation: evil, After: 1}},
	}
	found := []finding{{
		Diagnostic: schema.Diagnostic{Severity: "error", Path: evil, Line: 2, Column: 1, Message: evil, Hint: evil, Code: evil},
		Lines:      []numbered{{1, evil}, {2, evil}}, Caret: "^", To: "#" + evil,
	}}
	apply := api.Apply{ID: evil, Factory: evil, Commit: evil, Author: evil, Subject: evil, Trigger: evil, Outcome: "refused", Error: evil}
	form := func(kind string) definitionForm {
		return definitionForm{
			Page: page, Kind: kind, Home: hosted, Name: evil, Seen: evil, File: evil, Prompt: evil, Message: evil, Failed: evil, Findings: found,
			Moved: &api.Moved{Tip: evil, Since: []api.FileEdit{{Path: evil, Author: evil, Subject: evil, Commit: evil}}},
		}
	}
	texts := url.Values{"secrets": {evil}}
	for key := range environmentFields {
		texts.Set(key, evil)
	}
	one := func(kind string) resourcePage {
		return resourcePage{
			Page: page, Kind: kind, Name: evil, InFactory: evil, Definition: api.Definition{Path: evil, Prompt: evil}, Keys: []keyValue{{evil, evil}},
			Users: []user{{Kind: evil, Name: evil, To: "/x", How: evil}}, File: Place{Path: evil, Hosted: true}, kept: kept{Failed: evil, Findings: found},
		}
	}
	return map[string]Content{
		"webhook new": NewWebhook{
			Page: page, Home: hosted, CommitSeen: evil, Failed: evil, Findings: found, Auth: evil, How: evil, Scheme: evil, Secrets: []api.Secret{{Name: evil}},
			Schemes: []api.SignatureScheme{{Name: evil, Provider: evil, Setup: evil}},
			Webhook: api.NewWebhook{Name: evil, WebhookKeys: api.WebhookKeys{SecretName: new(evil), DeliveryIDHeader: new(evil)}},
		},
		"webhook made": WebhookMade{
			Page: page, Did: "created", Setup: api.WebhookSetup{Provider: evil, Curl: evil, Guide: api.Guide{Steps: []string{evil}, First: evil, Source: evil}},
			Change: api.WebhookChange{
				Webhook: hook, Secret: evil, URLWithToken: evil, Warning: evil, SharedWith: []api.SecretUse{{Kind: evil, Name: evil}},
				Change: api.Change{Commit: evil, Waits: evil},
			},
		},
		"definition": Definition{
			Page: page, Home: &hosted, State: state{"fail", evil}, Serves: &apply, Failed: &apply, Findings: found, Plan: plan,
			Applies: []api.Apply{apply}, Counts: []string{evil},
		},
		"definitions": Definition{Page: page},
		"apply": Apply{
			Page: page, Apply: apply, Findings: found, Plan: plan, From: &api.ApplyDiff{FromCommit: evil}, Files: []api.AppliedFile{{Path: evil, Blob: evil}},
			Text: &api.AppliedFile{Path: evil, Content: evil}, Earlier: []api.Apply{apply},
		},
		"files": FileList{Page: page, Home: hosted, Files: api.FactoryFiles{Commit: evil, Files: []api.FactoryFile{{Path: evil}}}},
		"file":  File{Page: page, Home: hosted, File: api.FileText{FactoryFile: api.FactoryFile{Path: evil}, Commit: evil}, Lines: []string{evil}},
		"editor": Editor{
			Page: page, Home: hosted, Path: evil, Seen: evil, Text: evil, Message: evil, Failed: evil, Checked: true, Findings: found, Plan: plan,
			Moved:  &api.Moved{Tip: evil, Since: []api.FileEdit{{Path: evil, Author: evil, Subject: evil, Commit: evil}}},
			Merged: mergeLines(evil, evil+"a", evil+"b"),
		},
		"automation": Automation{
			Page: page, Automation: api.Automation{
				Name: evil, Factory: evil, Path: evil, Agent: evil, EnvironmentID: evil, Enabled: true, Dormant: evil, Warnings: []string{evil},
				Paused: &api.Pause{By: evil, Reason: evil}, Triggers: []api.Trigger{{Provider: evil, Dormant: evil}},
			},
			Definition: api.Definition{Prompt: evil}, Wants: []want{{evil, []keyValue{{evil, evil}}}}, Keys: []keyValue{{evil, evil}}, File: Place{Path: evil, Hosted: true},
			Runs: []api.Run{{RunID: evil, Title: evil, State: evil, StatusMessage: evil}},
		},
		"automation form": AutomationForm{
			definitionForm: form("automation"), Webhook: evil, Payload: evil, Cron: evil, Agent: evil, Env: evil,
			Webhooks: []string{evil}, Agents: []string{evil}, Envs: []string{evil},
		},
		"environment form": EnvironmentForm{
			definitionForm: form("environment"), Texts: texts, Repositories: []repository{{Address: evil, Ref: evil, Secret: evil}, {}}, SecretNames: []string{evil},
		},
		"agent form": AgentForm{definitionForm: form("agent"), Texts: texts, Model: "model", Envs: []string{evil}, SecretNames: []string{evil}},
		"environment": Environment{
			resourcePage: one("environment"), Description: evil, Repositories: []repository{{Address: evil, Ref: evil, Secret: evil, Access: evil, Path: evil}},
			Setup: []string{evil}, Variables: []string{evil}, Secrets: []string{evil},
		},
		"agent": Agent{resourcePage: one("agent"), Description: evil, Foreman: true},
		"environments": Environments{Page: page, All: 1, Environments: []EnvironmentRow{{
			AgentEnvironment: api.AgentEnvironment{Name: evil, Factory: evil, Description: evil, Repositories: []api.AgentRepository{{URL: evil, Ref: evil}}},
		}}},
		"agents":    Agents{Page: page, All: 1, Agents: []AgentRow{{Name: evil, Factory: evil, Type: evil, Description: evil, Environment: evil}}},
		"no editor": Editor{Page: page, Home: hosted, Path: evil, Text: evil, Why: evil},
	}
}

// TestMergeLines: changes of two people join, also at the ends of a text; at a clash nothing of
// either is lost.
func TestMergeLines(t *testing.T) {
	for _, c := range []struct{ base, theirs, mine, both, only, who string }{
		{"a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n", "A\nb\nC\n", "1 they, 3 you"},
		{"a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n", "a\nx\ny\nc\n", "a\ny\nc\n", "2 clash"},
		{"a\nb\nc\n", "a\nb\nc\nd\n", "0\na\nb\nc\n", "0\na\nb\nc\nd\n", "0\na\nb\nc\nd\n", "1 you, 4 they"},
		{"a\nb\nc\n", "a\nc\n", "a\nc\n", "a\nc\n", "a\nc\n", "2 alike"},
		{"a\nb\nc", "a\nb\nc\n", "a\nc", "a\nc\n", "a\nc\n", "2 you, 4 they"},
		{"a\nb\nc\n", "", "a\nb\nC\n", "a\nb\nC\n", "a\nb\nC\n", "1 clash"},
		{"", "x", "x", "x", "x", "1 alike"},
		{"a", "a", "a", "a", "a", ""},
		{"a\nb\n", "A\nb\n", "a\nB\n", "A\nb\na\nB\n", "a\nB\n", "1 clash"}, // beside each other
	} {
		m := mergeLines(c.base, c.theirs, c.mine)
		var who []string
		for _, h := range m.Hunks {
			word := map[bool]string{true: "they", false: "you"}[h.They]
			switch {
			case h.Clash:
				word = "clash"
			case h.They && h.You:
				word = "alike"
			}
			who = append(who, fmt.Sprint(h.Line, " ", word))
		}
		if m.Both != c.both || m.Mine != c.only || strings.Join(who, ", ") != c.who || m.Clash != strings.Contains(c.who, "clash") {
			t.Errorf("%q, theirs %q, mine %q: %q, %q, %q", c.base, c.theirs, c.mine, m.Both, m.Mine, who)
		}
	}
}

// TestCaret: a caret stands below the column, also after tabs, and never outside the line.
func TestCaret(t *testing.T) {
	for _, c := range []struct {
		line   string
		column int
		want   string
	}{
		{"  event: recieved", 10, "         ^^^^^^^^"}, {"\tevent: x", 2, "\t^^^^^"}, {"é: [striped]", 5, "    ^^^^^^^"}, {"", 1, "^"}, {"a", 0, ""}, {"a", 9, ""},
	} {
		if got := caret(c.line, c.column); got != c.want {
			t.Errorf("%q %d: %q, want %q", c.line, c.column, got, c.want)
		}
	}
}

func TestConditions(t *testing.T) {
	wants, keys := inWords([]byte(`{"environmentId": "app", "enabled": true, "maxRunsPerHour": 4, "triggers": [
		{"provider": "webhook", "event": "received", "filter": {"webhooks": ["a", "b"], "payload": {"action": ["x", 1], "label": {"name": {"not_in": ["y"]}}}}},
		{"provider": "schedule", "event": "cron_fired", "schedule": {"cron": "@daily"}}, {"provider": "github", "event": "push"}]}`))
	got := ""
	for _, w := range wants {
		got += w.Text + ";"
		for _, c := range w.Conditions {
			got += c.Key + " " + c.Value + ";"
		}
	}
	for _, k := range keys {
		got += k.Key + "=" + k.Value + ";"
	}
	if want := "a delivery to a or b;action is x or 1;label.name.not_in is y;the schedule  @daily;github, push;environmentId=app;maxRunsPerHour=4;"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
	if inWords([]byte(`{"triggers": [{"provider": "webhook", "filter": {"payload": ` + deep + `}}]}`)); conditions("", []byte("nonsense"), 0) == nil {
		t.Error("nothing is shown")
	}
}

// TestRail: the navigation shows how many factories are refused, and nothing of a page's own.
func TestRail(t *testing.T) {
	all := Page{Person: Person{Name: "ada", May: func(string) bool { return true }}, Factories: []api.FactoryStatus{{Name: "f", State: "failing"}}}
	for name, page := range factoryPages(all, api.Webhook{}) {
		var b strings.Builder
		if err := Render(&b, page); err != nil {
			t.Error(err)
		}
		if !strings.Contains(b.String(), `<span class="count fail">1<span class="vh"> newest commit refused</span></span>`) {
			t.Errorf("%s: another count", name)
		}
	}
}
