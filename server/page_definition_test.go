package server

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func form(pairs ...string) string {
	values := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// follow posts a form that is answered with another page, and returns the text of that one.
func (b browser) follow(path, form string, wants ...string) string {
	b.t.Helper()
	got := b.do("POST", path, "", form, "Cookie", b.cookie, "Sec-Fetch-Site", "same-origin")
	if got.status != http.StatusSeeOther {
		return b.page("POST", path, form, http.StatusSeeOther)
	}
	said, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	to := b
	to.cookie += "; " + said
	return to.page("GET", strings.TrimPrefix(got.header.Get("Location"), b.base), "", http.StatusOK, wants...)
}

// TestWebhookLifeByPages: a webhook of a hosted factory is made, rotated, paused, disabled and
// deleted by pages. Its secret is shown once (SPEC C3.2, C3.3).
func TestWebhookLifeByPages(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	b := f.visitor("manager")
	b.page("GET", "/webhooks", "", 200, "New webhook")
	b.page("GET", "/webhooks/new", "", 200, "Sender, if it signs", "hmac", "All schemes")
	const create = "/factories/default/webhooks"
	b.page("POST", create, form("name", "Bad Name", "auth", "token", "how", "generate"), 422, "Not created.", "bad-name")
	b.page("POST", create, form("name", "pay", "auth", "signature", "scheme", "stripe", "how", "generate"), 422, "Stripe issues it")
	b.page("POST", create, form("name", "pay", "auth", "signature", "scheme", "stripe", "how", "later"), 200, "pay Disabled", "It is disabled until its secret is there", "Point Stripe at it")
	made := b.page("POST", create, form("name", "ci", "auth", "token", "how", "generate"), 200, "ci Enabled Created, and serving with commit", "This is shown once.", "Waiting for the first delivery", "No automation listens to it yet")
	value := regexp.MustCompile(`CI_WEBHOOK_SECRET (\S{43}) Copy secret`).FindStringSubmatch(made)
	if value == nil {
		t.Fatalf("no secret in\n%s", made)
	}
	if got := f.do("POST", ingress+f.uids()["ci"], value[1], `{"n":1}`); got.status != http.StatusAccepted {
		t.Errorf("the secret of the page: %d", got.status)
	}
	if text := b.page("GET", "/webhooks/ci", "", 200, "generation 1"); strings.Contains(text, value[1]) {
		t.Error("the secret is shown again")
	}
	b.page("POST", create, form("name", "ci", "auth", "token", "how", "generate"), 422, "there is a webhook ci already")
	rotated := b.page("POST", create+"/ci/rotate", form("generation", "1", "how", "generate"), 200, "The secret is rotated", "generation 2")
	second := regexp.MustCompile(`CI_WEBHOOK_SECRET (\S{43}) Copy secret`).FindStringSubmatch(rotated)
	if got := f.do("POST", ingress+f.uids()["ci"], value[1], `{"n":2}`); second == nil || got.status != http.StatusUnauthorized {
		t.Errorf("the old secret: %d", got.status)
	}
	b.follow(create+"/ci/rotate", form("generation", "1", "how", "generate"), "The secret was rotated already, so nothing was changed.", "generation 2")
	b.follow(create+"/ci/pause", form("reason", "too noisy", "hours", "2"), "ci is paused until", "Paused by", "too noisy")
	b.page("GET", "/webhooks", "", 200, "1 is paused", "senders get 404: too noisy")
	if got := f.do("POST", ingress+f.uids()["ci"], second[1], `{"n":3}`); got.status != http.StatusNotFound {
		t.Errorf("a paused webhook: %d", got.status)
	}
	b.follow(create+"/ci/resume", "", "ci goes on.", "ci Enabled")
	b.follow(create+"/ci/disable", "", "Disabled: senders get 404 from now on. Saved as commit", "ci Disabled")
	b.follow(create+"/ci/enable", "", "Enabled: deliveries are taken again.")
	b.follow(create+"/ci/delete", form("sure", "no"), "Nothing was deleted")
	b.follow(create+"/hook/delete", form("sure", "hook"), "The webhook hook is deleted", "Nothing delivers to a from it any more.")
	for role, may := range map[string][]string{"viewer": nil, "operator": {"Pause…"}} {
		text := f.visitor(role).page("GET", "/webhooks/ci", "", 200)
		for _, action := range []string{"Pause…", "Edit", "Disable…", "Delete…", "Rotate…"} {
			if want := strings.Contains(strings.Join(may, " "), action); strings.Contains(text, action) != want {
				t.Errorf("a %s sees %s: %t", role, action, !want)
			}
		}
		f.visitor(role).page("GET", "/webhooks/new", "", 403)
		f.visitor(role).page("POST", create+"/ci/delete", form("sure", "ci"), 403)
	}
}

// TestDefinitionEditor: a file of a hosted factory is checked as it is typed, saved as a
// commit by the person, and refused with its findings; two people at once lose nothing.
func TestDefinitionEditor(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	b := f.visitor("manager")
	b.page("GET", "/definition", "", 200, "Definition Serves", "Work on it with git", "/git/default.git", "1 webhook, 2 automations, 1 environment", "Apply now")
	b.page("GET", "/definition/files", "", 200, "webhooks/hook.yaml", "New file")
	b.page("GET", "/definition/files/webhooks/hook.yaml", "", 200, "1 | secretName: S", "Edit")
	b.page("GET", "/definition/files/webhooks/none.yaml", "", 404)
	raw := string(b.do("GET", "/definition/edit/webhooks/hook.yaml", "", "", "Cookie", b.cookie).body)
	seen := regexp.MustCompile(`name="base" value="([0-9a-f]{40})"`).FindStringSubmatch(raw)
	if seen == nil || !strings.Contains(raw, "\nsecretName: S\n</textarea>") {
		t.Fatalf("no form:\n%s", raw)
	}
	const check, save = "/factories/default/check", "/factories/default/files"
	b.page("POST", check, form("path", "webhooks/hook.yaml", "text", "secretname: S\r\n"), 200, "Error webhooks/hook.yaml:1:1", `unknown key "secretname"`, "1 | secretname: S")
	b.page("POST", check, form("path", "webhooks/hook.yaml", "text", "secretName: S\n# why\n"), 200, "No findings. It changes nothing that serves.")
	b.page("POST", check, form("path", "webhooks/hook.yaml", "text", "secretName: S\nenabled: false\n"), 200, "What it would change: webhook hook changed")
	b.page("POST", save, form("path", "webhooks/hook.yaml", "text", "secretname: S\n", "base", seen[1]), 422, "Not saved.", `unknown key "secretname"`)
	b.follow(save, form("path", "webhooks/hook.yaml", "text", "secretName: S\r\n# one\r\n", "base", seen[1], "message", "Say one"), "Saved as commit", "which serves", "2 | # one")
	conflict := b.page("POST", save, form("path", "webhooks/hook.yaml", "text", "secretName: S\n# two\n", "base", seen[1]), 409, "Not saved.", "Say one, ada", "line 2: both changed it theirs + # one yours + # two", "Put both into the text", "Save mine over theirs", "# two")
	if strings.Count(conflict, "# two") < 2 {
		t.Error("what was typed is lost")
	}
	tip := f.git("rev-parse", "main")
	b.page("POST", save, form("path", "webhooks/hook.yaml", "text", "secretName: S\n# two\n", "base", seen[1], "tip", tip, "do", "both"), 422, "The text has both now", "secretName: S # one # two", "Save as a commit")
	apart := form("path", "webhooks/hook.yaml", "text", "# top\nsecretName: S\n", "base", seen[1], "tip", tip)
	b.page("POST", save, apart, 409, "line 1: you changed it + # top", "line 2: they changed it + # one", "Save both")
	b.follow(save, apart+"&do=both", "Saved as commit", "1 | # top", "3 | # one")
	b.follow(save, form("new", "1", "path", "webhooks/more.yaml", "text", "secretName: S\n"), "Saved as commit")
	b.page("POST", save, form("new", "1", "path", "webhooks/more.yaml", "text", "secretName: S\n"), 422, "There is a file webhooks/more.yaml already")
	b.page("POST", save, form("new", "1", "path", "../x", "text", ""), 422, "Not saved.")
	b.page("POST", save, form("path", "webhooks/more.yaml", "do", "delete", "sure", "x"), 422, "type its path")
	b.follow(save, form("path", "webhooks/more.yaml", "do", "delete", "sure", "webhooks/more.yaml"), "Saved as commit")
	b.page("GET", "/definition", "", 200, "Remove webhooks/more.yaml", "webhook more deleted")
	f.visitor("viewer").page("GET", "/definition/edit/webhooks/hook.yaml", "", 403)
	f.visitor("operator").page("POST", save, form("path", "webhooks/hook.yaml", "text", ""), 403)
}

// TestDefinitionRefused: the page says what serves, why the newest does not, and where.
func TestDefinitionRefused(t *testing.T) {
	f := newFixture(t)
	b := f.visitor("operator")
	path := filepath.Join(f.work, "webhooks/hook.yaml")
	if err := os.WriteFile(path, []byte("secretName: S\nenabeld: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.follow("/factories/default/sync", "", "is refused.", "Definition Newest refused", "keeps serving", "Error webhooks/hook.yaml:2:1", "2 | enabeld: false", "^^^^^^^", "Refused", "1 error")
	if err := os.WriteFile(path, []byte("secretName: S\nenabled: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := b.follow("/factories/default/sync", "", "serves.", "Definition Serves", "Served before", "webhook hook changed")
	if strings.Contains(text, "Edit") || strings.Contains(text, "New file") {
		t.Error("a factory elsewhere is not edited here")
	}
	raw := string(b.do("GET", "/definition", "", "", "Cookie", b.cookie).body)
	ids := regexp.MustCompile(`/definition/applies/(apl_\w+)"`).FindAllStringSubmatch(raw, -1)
	first := ids[len(ids)-1][1]
	b.page("GET", "/definition/applies/"+ids[0][1]+"?from="+first, "", 200, "The difference to", "enabled: false")
	b.page("GET", "/definition/applies/"+first+"?file=webhooks/hook.yaml", "", 200, "webhooks/hook.yaml secretName: S", "automations/a.md")
	commit := regexp.MustCompile(`<option value="([0-9a-f]+)">`).FindAllStringSubmatch(raw, -1)
	b.follow("/factories/default/pin", form("commit", commit[len(commit)-1][1], "reason", "to look at it", "hours", "1"), "Definition Pinned", "to look at it", "Unpin")
	b.follow("/factories/default/unpin", "", "The pin is lifted", "Definition Serves")
	f.visitor("viewer").page("POST", "/factories/default/unpin", "", 403)
}

// TestPlanOnto: a proposal can be laid over the newest commit.
func TestPlanOnto(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	key := f.key("k", "read")
	for body, want := range map[string]string{
		`{"files": [{"path": "webhooks/hook.yaml", "content": null}]}`:                                     `"delete":[{"kind":"webhook","name":"hook"`,
		`{"files": [{"path": "webhooks/b.yaml", "content": "secretName: S\n"}]}`:                           `"create":[{"kind":"webhook","name":"b"`,
		`{"files": [{"path": "webhooks/hook.yaml", "content": "secretName: S\ndeliveryIdHeader: X-A\n"}]}`: `"update":[{"kind":"webhook","name":"hook"`,
		`{"files": [{"path": "../b.yaml", "content": ""}]}`:                                                `is not a path`,
	} {
		if got := f.do("POST", "/api/v1/factories/default/plan?onto=newest", key, body); !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d, no %s in %s", body, got.status, want, got.body)
		}
	}
	if got := f.do("POST", "/api/v1/factories/default/plan?onto=x", key, `{"files": []}`); got.status != http.StatusBadRequest {
		t.Errorf("onto=x: %d", got.status)
	}
	if got := f.get("/api/v1/factories/default/files?commit=abc", key); got.status != http.StatusNotFound {
		t.Errorf("another commit: %d", got.status)
	}
}

// TestAutomationLifeByPages: an automation of a hosted factory is made, edited, paused,
// disabled and deleted by pages.
func TestAutomationLifeByPages(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	b := f.visitor("manager")
	b.page("GET", "/automations", "", 200, "2 automations", "New automation")
	b.page("GET", "/automations/a", "", 200, "a Enabled Wants a delivery to hook.", "n is 1", "Do it.", "No run ended in 30 days.", "No run of it is kept.", "environment e", "automations/a.md")
	b.page("GET", "/automations/none", "", 404, "no automation is named none")
	b.page("GET", "/automations/new", "", 200, "Started by deliveries to", "hook")
	const save = "/factories/default/automations"
	b.page("POST", save, form("new", "1", "name", "t", "webhook", "hook", "payload", "{", "environment", "e", "prompt", "Go."), 422, "The payload filter is no JSON")
	b.page("POST", save, form("new", "1", "name", "T T", "webhook", "hook", "environment", "e", "prompt", "Go."), 422, "Not saved.", "t-t")
	b.follow(save, form("new", "1", "name", "t", "webhook", "hook", "payload", `{"n": [7]}`, "environment", "e", "prompt", "Go."), "Saved as commit", "t Enabled Wants a delivery to hook.", "n is 7", "Go.")
	if got := f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":7}`); got.status != http.StatusAccepted {
		t.Error(got.status)
	}
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":8}`)
	b.page("GET", "/automations/t", "", 200, "Tried on its last deliveries", "1 of 2 would start it the other would not: payload.n", "Queued")
	b.page("GET", "/automations/a/edit", "", 200, "Edit a")
	if got := f.do("GET", "/automations/a/edit", "", "", "Cookie", b.cookie); !strings.Contains(string(got.body), `href="/definition/edit/automations/a.md"`) {
		t.Error("the page does not link to the file of the automation")
	}
	b.page("GET", "/automations/t/edit", "", 200, "Edit t", `"n": [`, "Edit the whole file")
	b.follow(save, form("name", "t", "webhook", "hook", "cron", "@daily", "environment", "e", "prompt", "Go on."), "Saved as commit", "the schedule @daily", "Go on.")
	b.page("POST", save, form("name", "t", "cron", "nonsense", "environment", "e", "prompt", "Go on."), 422, "Not saved.")
	b.follow(save+"/t/pause", form("reason", "wait"), "t is paused until somebody resumes it.", "Paused by", "wait")
	b.follow(save+"/t/resume", "", "t goes on.")
	b.follow(save+"/t/disable", "", "Disabled: it starts nothing.", "t Disabled")
	b.follow(save+"/t/enable", "", "t Enabled")
	b.follow(save+"/t/delete", form("sure", "x"), "Nothing was deleted")
	b.follow(save+"/t/delete", form("sure", "t"), "The automation t is deleted.")
	f.visitor("operator").page("GET", "/automations/a/edit", "", 403)
	if text := f.visitor("viewer").page("GET", "/automations/a", "", 200); strings.Contains(text, "Pause…") || strings.Contains(text, "Delete…") {
		t.Error("a viewer sees actions")
	}
}

// TestEnvironmentLifeByPages: an environment of a hosted factory is made, edited and deleted
// by pages. What a form does not show stays.
func TestEnvironmentLifeByPages(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	b := f.visitor("manager")
	const save = "/factories/default/environments"
	b.page("GET", "/environments", "", 200, "1 environment", "New environment", "e")
	b.page("GET", "/environments/none", "", 404)
	b.page("GET", "/environments/new", "", 200, "environments/NAME.yaml", "Repository 1")
	b.page("POST", save, form("new", "1", "name", "T T"), 422, "Not saved.", "t-t")
	b.page("POST", save, form("new", "1", "name", "t", "env", "A"), 422, "is not such as NAME=value")
	b.page("POST", save, form("new", "1", "name", "t", "network", "hosts", "hosts", " "), 422, "List the hosts")
	b.page("POST", save, form("new", "1", "name", "t", "timeoutMinutes", "soon"), 422, "soon is not a number")
	b.page("POST", save, form("new", "1", "name", "t", "timeoutMinutes", "99999"), 422, "Not saved.")
	b.follow(save, form(
		"new", "1", "name", "t", "description", "Tools", "repository", "https://git.example.com/app.git", "ref", "main", "secret", "", "repository", "example/docs", "ref", "", "secret", "",
		"repository", "", "setupCommands", "make\r\n\r\nmake test\r\n", "env", "B=2\nA=x=y", "secrets", "S", "network", "hosts", "hosts", "api.example.com", "timeoutMinutes", "30",
	), "Saved as commit", "t Tools", "https://git.example.com/app.git", "example/docs", "make test", "A=x=y", "Secrets S", "No automation, no agent and no schedule.")
	const made = `description: Tools
repositories:
  - url: https://git.example.com/app.git
    ref: main
  - owner: example
    name: docs
setupCommands: [make, make test]
env: {A: x=y, B: '2'}
secrets: [S]
timeoutMinutes: 30
network: [api.example.com]`
	if got := f.git("show", "main:environments/t.yaml"); got != made {
		t.Errorf("%s", got)
	}
	b.page("GET", "/environments/t/edit", "", 200, "Edit t", "Repository 3", "make test", "B=2", "Edit the whole file")

	// What the form cannot show is not touched, and neither is what nobody changed.
	odd := "# mine\nsetupCommands:\n  - |\n    a\n    b\nnetwork: on # really\nrepositories:\n  - {url: https://git.example.com/a.git, path: deep/er, access: read}\nresources: {cpus: 2}\n"
	f.change(f.key("admin", "manage"), f.git("rev-parse", "main"), map[string]*string{"environments/odd.yaml": &odd})
	b.page("GET", "/environments/odd/edit", "", 200, "It has more than this form can show")
	b.follow(save, form("name", "odd", "description", "New", "network", "on", "repository", "https://git.example.com/b.git", "ref", "", "secret", "S", "setupCommands", "gone"), "Saved as commit")
	if got := f.git("show", "main:environments/odd.yaml"); !strings.Contains(got, "    a\n    b\nnetwork: on # really") || !strings.Contains(got, "b.git") || !strings.Contains(got, "deep/er") || !strings.Contains(got, "access: read") || !strings.Contains(got, "secret: S") || !strings.Contains(got, "cpus: 2") || strings.Contains(got, "gone") {
		t.Error(got)
	}
	b.follow(save, form("name", "odd", "description", "New", "network", "on", "repository", "https://git.example.com/b.git", "ref", "", "secret", "S"), "Nothing was changed")

	// Two people at once: the second is told, and keeps what was typed. Saved is only what the second
	// changed, so what others changed elsewhere stays.
	base := f.git("rev-parse", "main")
	b.follow(save, form("name", "t", "base", base, "description", "Mine"), "Saved as commit")
	b.page("POST", save, form("name", "t", "base", base, "description", "Theirs"), 409, "What others changed meanwhile", "description both changed it", `"Mine" "Theirs"`, "Save mine where we differ")
	b.follow(save, form("name", "t", "base", base, "do", "over", "tip", f.git("rev-parse", "main"), "description", "Theirs"), "Saved as commit", "t Theirs")

	two := "description: A\ntimeoutMinutes: 5\n"
	f.change(f.key("admin2", "manage"), f.git("rev-parse", "main"), map[string]*string{"environments/two.yaml": &two})
	base = f.git("rev-parse", "main")
	b.follow(save, form("name", "two", "base", base, "description", "B", "timeoutMinutes", "5"), "Saved as commit")
	apart := form("name", "two", "base", base, "description", "A", "timeoutMinutes", "7")
	b.page("POST", save, apart, 409, `description "A" "B" "A"`, "timeoutMinutes 5 5 7", "Save both")
	b.follow(save, apart+"&do=over&tip="+f.git("rev-parse", "main"), "Saved as commit")
	if got := f.git("show", "main:environments/two.yaml"); got != "description: B\ntimeoutMinutes: 7" {
		t.Errorf("of two changes is left %q", got)
	}

	// One that is used is not deleted; the page says what would break.
	tip := f.git("rev-parse", "main")
	b.page("GET", "/environments/e", "", 200, "Who uses it", "automation a Enabled", "automation other Dormant")
	b.follow(save+"/e/delete", form("sure", "x"), "Nothing was deleted")
	b.page("POST", save+"/e/delete", form("sure", "e"), 422, "Not deleted; nothing was changed.", "automations/a.md", "automations/other.md")
	if f.git("rev-parse", "main") != tip {
		t.Error("it was deleted")
	}
	b.follow(save+"/t/delete", form("sure", "t"), "The environment t is deleted.")
	b.page("POST", save+"/t/delete", form("sure", "t"), 404)
	f.visitor("operator").page("GET", "/environments/e/edit", "", 403)
	if text := f.visitor("viewer").page("GET", "/environments/e", "", 200); strings.Contains(text, "Delete…") {
		t.Error("a viewer sees actions")
	}
}

// TestAgentLifeByPages: the same of an agent.
func TestAgentLifeByPages(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	b := f.visitor("manager")
	const save = "/factories/default/agents"
	b.page("GET", "/agents", "", 200, "No agent yet", "New agent")
	b.page("GET", "/agents/new", "", 200, "agents/NAME/agent.md")
	b.page("POST", save, form("new", "1", "name", "boss", "agentType", "CUSTOM", "prompt", "You."), 422, "Not saved.", "You.")
	b.follow(save, form("new", "1", "name", "boss", "agentType", "FOREMAN", "description", "Leads", "prompt", "You lead.\r\nKindly.", "harness.type", "claude", "harness.model", "opus", "environmentId", "e", "secrets", "S"),
		"Saved as commit", "boss Leads", "It is the foreman", "You lead.", "automation a Enabled")
	if got, want := f.git("show", "main:agents/boss/agent.md"), "---\nharness: {type: claude, model: opus}\nenvironmentId: e\nsecrets: [S]\ndescription: Leads\nagentType: FOREMAN\n---\nYou lead.\nKindly."; got != want {
		t.Errorf("%s", got)
	}
	b.page("GET", "/environments/e", "", 200, "agent boss")
	b.page("GET", "/agents", "", 200, "1 agent", "boss Leads foreman e 2")
	b.follow(save, form("new", "1", "name", "two", "description", "Helps", "prompt", "Help."), "Saved as commit", "two Helps", "No automation and no schedule.")
	b.page("GET", "/automations/a/edit", "", 200, "boss two")
	b.follow(save, form("name", "boss", "agentType", "FOREMAN", "prompt", "You lead.\nKindly.", "environmentId", "e"), "Saved as commit")
	if got, want := f.git("show", "main:agents/boss/agent.md"), "---\nenvironmentId: e\nagentType: FOREMAN\n---\nYou lead.\nKindly."; got != want {
		t.Errorf("%s", got)
	}
	b.page("POST", save+"/boss/delete", form("sure", "boss"), 422, "Not deleted; nothing was changed.", "foreman")
	b.follow(save+"/two/delete", form("sure", "two"), "The agent two is deleted.")

	// A prompt that a page cannot show as it is stays as it is.
	hidden := "---\nagentType: FOREMAN\n---\nTurn\u202eround.\n"
	f.change(f.key("admin", "manage"), f.git("rev-parse", "main"), map[string]*string{"agents/boss/agent.md": &hidden})
	b.page("GET", "/agents/boss/edit", "", 200, "It has more than this form can show")
	b.follow(save, form("name", "boss", "agentType", "FOREMAN", "description", "New"), "Saved as commit")
	if got := f.git("show", "main:agents/boss/agent.md"); !strings.Contains(got, "Turn\u202eround.") {
		t.Errorf("%q", got)
	}
}

// TestResourcesElsewhere: the pages of a factory whose repository is elsewhere show, and say
// where to change it.
func TestResourcesElsewhere(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{"agents/boss/agent.md": {Data: []byte("---\nagentType: FOREMAN\n---\nLead.\n")}}})
	b := f.visitor("manager")
	for path, want := range map[string]string{"/environments/e": "environments/e.yaml", "/agents/boss": "agents/boss/agent.md"} {
		if text := b.page("GET", path, "", 200, want, "Who uses it"); strings.Contains(text, "Delete…") || strings.Contains(text, "/edit\"") {
			t.Errorf("%s offers what it cannot do", path)
		}
		b.page("GET", path+"/edit", "", 200, "The repository of this factory is elsewhere", want)
	}
	b.page("POST", "/factories/default/environments", form("name", "e", "description", "x"), 422, "environments/e.yaml")
}
