//go:build full

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/factory/signature"
)

// home is a server with a factory that lives on it, which people change by its pages.
type home struct {
	*world
	agents string // the path on which the server finds the agents
}

// homeFiles are the first commit of the factory.
var homeFiles = map[string]string{
	"factory.yaml":           "schemaVersion: v1alpha1\nname: Payments\nagentDefaults:\n  harness: {type: claude, model: sonnet}\n  environmentId: app\n",
	"environments/say.yaml":  "description: Says what came\ncommand: [sh, -c, 'echo The step canary failed.']\n",
	"environments/slow.yaml": "description: Works until somebody stops it\ncommand: [sh, -c, 'echo It works.; while :; do sleep 1; done']\n",
}

// newHome starts such a server.
func newHome(t testing.TB) *home {
	t.Helper()
	agents, err := filepath.Abs("testdata/story")
	if err != nil {
		t.Fatal(err)
	}
	h := &home{&world{t: t, dir: openDir(t), addr: freeAddress(t)}, "PATH=" + agents + string(os.PathListSeparator) + os.Getenv("PATH")}
	h.cleanUp()
	app, err := os.ReadFile("testdata/story/factory/environments/app.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h.write(homeFiles)
	h.write(map[string]string{"environments/app.yaml": string(app)})
	h.serve()
	args := []string{"definition", "put", "environments/app.yaml=repo/environments/app.yaml"}
	for path := range homeFiles {
		args = append(args, path+"=repo/"+path)
	}
	h.run("", args...)
	return h
}

func (h *home) serve() {
	h.t.Helper()
	h.startWith(func(cmd *exec.Cmd) {
		cmd.Args = []string{cmd.Args[0], "serve", "--hosted", "payments", "--max-runs", "2"}
		cmd.Env = append(cmd.Env, h.agents)
	})
}

// person opens a tab of somebody who manages the factory, who likes a theme and a width.
func (h *home) person(t *testing.T, name, theme string, width int64) *tab {
	t.Helper()
	b := newTab(t, "http://"+h.addr)
	b.signIn(h.world, "--name", name, "--role", "manager")
	b.view(theme, width)
	return b
}

// remote is a program elsewhere that delivers to a webhook.
type remote struct {
	t           *testing.T
	url, secret string
	scheme      string // by which it signs; empty: it shows the secret
	sent        int
}

// send delivers what no delivery was before, and must be answered with a status. It returns
// the identifier of the delivery, if it got one.
func (s *remote) send(status int, fields ...string) string {
	s.t.Helper()
	s.sent++
	return s.repeat(status, fields...)
}

// repeat is send of the same again.
func (s *remote) repeat(status int, fields ...string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{%s "n": %d}`, strings.Join(append(fields, ""), ", "), s.sent)
	header := http.Header{"Content-Type": {"application/json"}, "X-Event-Id": {fmt.Sprint(s.sent)}}
	if s.scheme == "" {
		header.Set("Authorization", "Bearer "+s.secret)
	} else {
		scheme, _ := signature.Lookup(s.scheme)
		if err := scheme.Sign(s.secret, &signature.Request{Header: header, Body: []byte(body), Now: time.Now()}); err != nil {
			s.t.Fatal(err)
		}
	}
	got := post(s.t, "POST", s.url, strings.NewReader(body), header)
	if got.status != status {
		s.t.Errorf("the sender gets %d, not %d: %s", got.status, status, got.body)
	}
	return regexp.MustCompile(`dlv_[0-9a-z]+`).FindString(got.body)
}

// hook makes a webhook as its manager would by command, and returns its sender.
func (h *home) hook(t *testing.T, name string) *remote {
	t.Helper()
	h.run(testSecret, "secrets", "set", "JOURNEY_SECRET")
	h.run("secretName: JOURNEY_SECRET\ndeliveryIdHeader: X-Event-Id\n", "definition", "put", "webhooks/"+name+".yaml=-")
	return &remote{t: t, url: h.url(name), secret: testSecret}
}

// code is the first text to copy on the page that matches a pattern.
func (b *tab) code(pattern string) string {
	b.t.Helper()
	text, ok := js[string](b, call(`pattern => Array.from(document.querySelectorAll('code'), e => e.textContent).find(t => t.match(pattern))`, pattern))
	if !ok {
		b.t.Fatalf("no code on the page matches %s\n%s", pattern, b.text())
	}
	return text
}

// option is the one that a field offers and that ends in a text.
func (b *tab) option(label, end string) (option string) {
	b.t.Helper()
	b.until("the field "+label+" does not offer "+end, func() (found bool, _ error) {
		option, found = js[string](b, call(`(name, end) => {`+byName+`
	return Array.from(byName('select', name).options, o => o.label).find(l => l.endsWith(end)); }`, label, end))
		return found, nil
	})
	return option
}

// take chooses one of several choices.
func (b *tab) take(name string) {
	b.t.Helper()
	b.pressOf("input[type=radio], input[type=checkbox]", name)
}

// secretless checks that neither the page nor what the browser keeps of it has a secret.
func (b *tab) secretless(secret string) {
	b.t.Helper()
	if html, ok := js[string](b, `document.documentElement.outerHTML`); !ok || strings.Contains(html, secret) {
		b.t.Errorf("%s shows a secret that was to be shown once", b.path())
	}
}

// TestHostedJourneys: what people do with a factory that lives on the server, by pages alone.
// Senders are real: what they are answered is checked at each step.
func TestHostedJourneys(t *testing.T) {
	h := newHome(t)
	for _, journey := range []struct {
		name string
		goes func(*testing.T, *home)
	}{
		{"Webhook", webhookJourney},
		{"Automation", automationJourney},
		{"Filter", filterJourney},
		{"Editor", editorJourney},
		{"Run", runJourney},
		{"Plain", plainJourney},
		{"Restart", restartJourney},
	} {
		t.Run(journey.name, func(t *testing.T) {
			all := h.t
			h.t = t
			defer func() { h.t = all }()
			journey.goes(t, h)
		})
	}
}

// webhookJourney is the life of webhooks.
func webhookJourney(t *testing.T, h *home) {
	const mine, given = "a-secret-of-the-senders-own-choice", "given-by-the-sender-when-it-has-the-url"
	b := h.person(t, "ada", "dark", 375)
	create := func(name string, fill func()) *remote {
		t.Helper()
		b.open("/webhooks")
		b.press("New webhook")
		b.fill("Name", name)
		fill()
		b.look()
		if _, twice := js[bool](b, `(() => { const made = [...document.querySelectorAll("button")].find(b => b.textContent === "Create webhook"); made.click(); made.click(); return true; })()`); !twice {
			t.Fatal("Create webhook cannot be clicked twice")
		}
		b.see("and serving with commit")
		b.look()
		return &remote{t: t, url: b.copied("Copy URL")}
	}
	at := func(name string) { b.open("/webhooks"); b.press(name) }

	// Its secret is generated.
	ci := create("ci", func() { b.fill("Header that names a delivery", "X-Event-Id") })
	b.see("Waiting for the first delivery", "This is shown once")
	ci.secret = b.copied("Copy secret")
	(&remote{t: t, url: ci.url, secret: "wrong"}).send(http.StatusUnauthorized)
	ci.send(http.StatusAccepted)
	b.see("Nothing matched") // live
	b.press("I have stored it")
	b.see("The newest delivery came", "No automation listens to it")
	b.secretless(ci.secret)

	// The sender has made it.
	signed := create("signed", func() {
		b.take("Signature")
		b.fill("Sender, if it signs", "github")
		b.take("The sender made one")
		b.fill("The sender's secret", mine)
	})
	b.secretless(mine)
	signed.secret, signed.scheme = mine, "github"
	signed.send(http.StatusAccepted)

	// It is that of another one.
	shared := create("shared", func() {
		b.take("Use one that is set already")
		b.choose("The one that is set already", "CI_WEBHOOK_SECRET")
	})
	shared.secret = ci.secret
	shared.send(http.StatusAccepted)

	// It comes later.
	later := create("later", func() { b.take("Later") })
	b.see("It is disabled until its secret is there")
	later.secret = given
	later.send(http.StatusNotFound)
	at("later")
	b.press("Rotate…")
	b.take("I have one")
	b.fill("The sender's secret", given)
	b.press("Rotate and apply")
	b.see("The secret is there: deliveries are taken from now on")
	b.secretless(given)
	later.send(http.StatusAccepted)

	// It is edited: the header that names a delivery is another one.
	shared.send(http.StatusAccepted)
	at("shared")
	b.press("Edit")
	b.fill("Text", "secretName: CI_WEBHOOK_SECRET\ndeliveryIdHeader: X-Event-Id\n")
	b.see("No findings")
	b.press("Save as a commit")
	b.see("Saved as commit", "which serves")
	twice := shared.send(http.StatusAccepted, `"first": true`)
	shared.repeat(http.StatusAccepted, `"first": false`)
	at("shared")
	b.see("Duplicate")
	b.open("/deliveries/" + twice)
	b.see("Sent again")

	// An automation listens to it, which stays when it is gone.
	h.run("---\nenvironmentId: say\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [ci], payload: {wanted: [true]}}}\n---\nSay it.\n",
		"definition", "put", "automations/listener/automation.md=-")
	at("ci")
	b.press("Disable…")
	b.look()
	b.press("Disable it")
	b.see("Disabled: senders get 404 from now on", "Senders get 404: the file says enabled: false")
	ci.send(http.StatusNotFound)
	b.press("Enable")
	b.see("Enabled: deliveries are taken again")
	ci.send(http.StatusAccepted)

	old := *ci
	b.press("Rotate…")
	b.look()
	b.press("Rotate and apply")
	b.see("The secret is rotated: the old value is refused from now on", "This is shown once", "The new value is also that of webhook shared")
	b.look()
	ci.secret = b.copied("Copy secret")
	old.sent = ci.sent
	old.send(http.StatusUnauthorized)
	ci.send(http.StatusAccepted)
	b.reload()
	b.see("generation 2")
	b.secretless(ci.secret)

	b.press("Pause…")
	b.fill("Why (others will ask)", "the build farm moves")
	b.fill("For how many hours", "2")
	b.look()
	b.press("Pause it")
	b.see("ci is paused until", "Paused by page ada just now: the build farm moves, until")
	ci.send(http.StatusNotFound)
	b.open("/webhooks")
	b.see("1 is paused", "senders get 404: the build farm moves, until")
	b.press("ci")
	b.press("Resume")
	b.see("ci goes on")
	b.notSee("Paused by page ada")
	ci.send(http.StatusAccepted)

	b.press("Delete…")
	b.see("1 automation will hear nothing from it any more")
	b.fill("Type its name", "cj")
	b.press("Delete the webhook")
	b.see("Nothing was deleted: to delete the webhook, type its name, ci")
	ci.send(http.StatusAccepted)
	b.press("Delete…")
	b.fill("Type its name", "ci")
	b.press("Delete the webhook")
	b.see("The webhook ci is deleted: its senders get 404. Nothing delivers to listener from it any more.")
	b.look()
	ci.send(http.StatusNotFound)
	b.open("/automations")
	b.see("listener", "there is no webhook ci")
	b.press("listener")
	b.see("Dormant", "there is no webhook ci")
	b.look()
}

// automationJourney is the life of an automation.
func automationJourney(t *testing.T, h *home) {
	hook := h.hook(t, "builds")
	b := h.person(t, "ada", "light", 375)
	b.open("/automations")
	b.press("New automation")
	b.fill("Name", "canary")
	b.choose("Started by deliveries to", "builds")
	b.fill("That match this filter (JSON)", `{"status": `)
	b.choose("Environment", "say")
	b.fill("Prompt", "Say which step failed.")
	b.press("Create automation")
	b.see("Not saved.", "The payload filter is no JSON")
	b.expect("422")
	b.look()
	b.fill("That match this filter (JSON)", `{"status": ["failed"]}`)
	b.press("Create automation")
	b.see("Saved as commit", "which serves", "a delivery to builds", "is failed", "Say which step failed.")
	b.look()

	// came is what a delivery came to, as its page says.
	came := func(want, fields string) {
		t.Helper()
		b.open("/deliveries/" + hook.send(http.StatusAccepted, fields))
		b.see(want)
		b.open("/automations")
		b.press("canary")
	}
	came("wanted it", `"status": "failed"`)
	came("Why nothing ran", `"status": "success"`)
	b.see("Succeeded")

	b.press("Edit")
	b.see("Edit canary")
	b.fill("That match this filter (JSON)", `{"status": ["success"]}`)
	b.fill("Prompt", "Say that all is well.")
	b.fill("What the commit says", "Greet what went well")
	b.look()
	b.press("Save as a commit")
	b.see("Saved as commit", "is success", "Say that all is well.")
	came("Why nothing ran", `"status": "failed"`)
	came("wanted it", `"status": "success"`)

	b.press("Disable")
	b.see("Disabled: it starts nothing.")
	came("canary would not trigger: it is disabled", `"status": "success"`)
	b.press("Enable")
	b.see("Enabled.")
	came("wanted it", `"status": "success"`)

	b.press("Pause…")
	b.fill("Why (others will ask)", "it talks too much")
	b.press("Pause it")
	b.see("canary is paused until somebody resumes it", "Paused by page ada just now: it talks too much")
	b.look()
	came("canary was paused", `"status": "success"`)
	b.press("Resume")
	b.see("canary goes on")
	came("wanted it", `"status": "success"`)

	b.press("Delete…")
	b.fill("Type its name", "canary")
	b.press("Delete the automation")
	b.see("The automation canary is deleted. Its runs stay.")
	b.notSee("builds")
	b.open("/runs")
	b.see("canary")
}

// filterJourney is Test filter: what an automation, or a filter of one's own, does with a
// stored delivery, with a payload, and with the last ones.
func filterJourney(t *testing.T, h *home) {
	hook := h.hook(t, "deploys")
	h.run("---\nenvironmentId: say\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [deploys], payload: {status: [failed], env: {not_in: [dev]}}}}\n---\nSay it.\n",
		"definition", "put", "automations/on-deploy/automation.md=-")
	failed := hook.send(http.StatusAccepted, `"event": "deploy.finished", "status": "failed", "env": "prod"`)
	passed := hook.send(http.StatusAccepted, `"event": "deploy.finished", "status": "success", "env": "prod"`)
	b := h.person(t, "ada", "dark", 1280)
	b.open("/automations")
	b.press("on-deploy")
	b.press("Test filter")
	b.see("Would it start? Nothing is started or recorded")
	b.fill("Against a stored delivery", failed)
	b.see("Would trigger") // as one types
	b.look()
	b.fill("Against a stored delivery", passed)
	b.see("Would not trigger", "status is the first that fails")
	b.see("Nearest to this delivery")
	b.look()
	b.fill("Against a stored delivery", "")
	b.fill("or a payload (JSON)", `{"status": "failed", "env": "dev"}`)
	b.see("Would not trigger", "env is the first that fails")
	b.fill("or a payload (JSON)", `{"status": "failed", "env": "prod"}`)
	b.see("Would trigger")
	b.fill("or a payload (JSON)", `{"status": `)
	b.see("the payload is no JSON")
	b.expect("400")
	b.fill("or a payload (JSON)", "")
	b.choose("Automation", "the filter below")
	b.fill("or a payload filter (JSON)", `{"event": ["deploy.finished"]}`)
	b.see("Against the last", "would start it", "For the front matter")
	b.press("The deliveries")
	b.see(failed, passed)
	b.look()

	// A filter is made of a payload, tried, and copied into a new automation.
	b.open("/deliveries/" + failed)
	b.press("Make a filter from it")
	b.see("Would trigger", "For the front matter")
	b.look()
	made := b.copied("Copy")
	for _, want := range []string{"- deploys", "deploy.finished", "failed"} {
		if !strings.Contains(made, want) {
			t.Errorf("the filter that was made has no %s: %s", want, made)
		}
	}
}

// editorJourney is the text of a file with its findings beside it, and two people who change
// the same one.
func editorJourney(t *testing.T, h *home) {
	const path, begin = "environments/tools.yaml", "description: Tools\ncommand: ['true']\n"
	h.run(begin, "definition", "put", path+"=-")
	h.run("---\nenvironmentId: tools\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '0 3 * * *'}}]\n---\nTidy up.\n", "definition", "put", "automations/tidy/automation.md=-")
	ada, bob := h.person(t, "ada", "light", 1280), h.person(t, "bob", "dark", 375)
	for _, b := range []*tab{ada, bob} {
		b.open("/definition")
		b.press("Files")
		b.press(path)
		b.press("Edit")
		b.see("Edit " + path)
	}
	ada.fill("Text", begin+"timeoutMinuts: 5\n")
	ada.see("timeoutMinuts", "timeoutMinutes", path+":3:1") // the finding comes as one types
	ada.look()
	ada.fill("Text", begin+"timeoutMinutes: 5\n")
	ada.see("No findings")
	ada.fill("What the commit says", "Give the tools five minutes")
	ada.press("Save as a commit")
	ada.see("Saved as commit", "timeoutMinutes: 5")

	// Bob has seen the file as it was before.
	bob.fill("Text", begin+"idleMinutes: 2\n")
	bob.fill("What the commit says", "Be idle for two")
	bob.press("Save as a commit")
	bob.see("Not saved.", "What others changed meanwhile", "Give the tools five minutes, ada", "line 3: both changed it", "+ timeoutMinutes: 5", "+ idleMinutes: 2")
	bob.expect("409")
	bob.look()
	if text, _ := js[[]string](bob, `[document.querySelector('textarea').value, document.querySelector('[name=message]').value]`); len(text) != 2 || text[0] != begin+"idleMinutes: 2\n" || text[1] != "Be idle for two" {
		t.Errorf("what bob typed is now %q", text)
	}
	bob.press("Put both into the text")
	bob.see("The text has both now")
	bob.expect("422")
	bob.look()
	bob.press("Save as a commit")
	bob.see("Saved as commit", "timeoutMinutes: 5", "idleMinutes: 2")

	// The same in a form.
	for _, b := range []*tab{ada, bob} {
		b.open("/automations/tidy/edit")
		b.see("Edit tidy")
	}
	ada.fill("Prompt", "Tidy up the shelves.")
	ada.press("Save as a commit")
	ada.see("Saved as commit", "Tidy up the shelves.")
	bob.fill("Prompt", "Tidy up the floor.")
	bob.press("Save as a commit")
	bob.see("Not saved.", "What others changed meanwhile", "Edit automation tidy, ada", "line 1: both changed it")
	bob.expect("409")
	bob.look()
	if text, _ := js[string](bob, `document.getElementById('prompt').value`); strings.TrimSpace(text) != "Tidy up the floor." {
		t.Errorf("what bob typed is now %q", text)
	}
	bob.press("Save mine where we differ")
	bob.see("Saved as commit", "Tidy up the floor.")

	// History, differences, and a pin.
	ada.open("/definition")
	ada.see("Be idle for two", "Give the tools five minutes")
	ada.press("Be idle for two")
	ada.see("by bob", "What it changed", "idleMinutes")
	ada.choose("With the apply of", ada.option("With the apply of", "Give the tools five minutes"))
	ada.press("Show the difference")
	ada.see("The difference to", "idleMinutes")
	ada.look()
	ada.press("Definition")
	ada.press("Pin a commit…")
	ada.choose("Commit", ada.option("Commit", "Give the tools five minutes"))
	ada.fill("Why (others will ask)", "it was never idle")
	ada.press("Pin it")
	ada.see("is pinned: newer ones wait", "It is pinned by page ada: it was never idle")
	ada.look()
	bob.open("/")
	bob.see("pinned to")
	ada.press("Unpin")
	ada.see("The pin is lifted")
}

// runJourney: a person starts a run, follows it up, has one done again, stops one, and
// replays a delivery.
func runJourney(t *testing.T, h *home) {
	hook := h.hook(t, "alarms")
	h.run("---\nenvironmentId: slow\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [alarms]}}\n---\nLook after it.\n",
		"definition", "put", "automations/watch/automation.md=-")
	b := h.person(t, "ada", "dark", 375)
	b.open("/runs")
	b.press("Start a run…")
	b.fill("What the agent is to do", "Look why the canary fails.")
	b.choose("Environment", b.option("Environment", "app"))
	b.look()
	b.press("Start the run")
	b.see("Ended well", "The timeout of the gateway was 5 s", "Look why the canary fails.")
	b.look()
	first := b.path()

	b.press("Follow up…")
	b.fill("What the agent is to do now", "Now raise it to 60.")
	b.press("Start the follow-up")
	b.see("The conversation goes on with this run", "Now raise it to 60.", "Ended well", "Its conversation")
	b.look()
	second := b.path()
	b.press("Run again…")
	b.look()
	b.press("Run again")
	b.see("It runs again: this is the new run", "Ended well")
	if first == second || b.path() == second {
		t.Errorf("a follow-up or a run again is the same run: %s, %s, %s", first, second, b.path())
	}

	delivery := hook.send(http.StatusAccepted)
	b.open("/deliveries/" + delivery)
	b.press("Replay…")
	b.look()
	b.press("Replay it")
	b.see("It replays " + delivery)
	list := h.person(t, "bob", "light", 1280) // looks at the deliveries meanwhile
	list.open("/deliveries?webhook=alarms")
	list.see("watch is at work")
	for range 2 { // the one of the delivery, and the one of the replay
		b.open("/runs?state=INPROGRESS")
		b.press("watch")
		b.see("At work", "It works.")
		b.press("Cancel…")
		b.look()
		b.press("Cancel the run")
		b.see("Cancelled by ada while it was in progress. It ended after")
		b.notSee("At work")
	}
	list.notSee("watch is at work", "watch waits")
	list.see("watch was cancelled")
}

// plainJourney goes without JavaScript through the forms that JavaScript helps to fill in. What a
// form is answered otherwise is in the tests of the pages, which have no JavaScript either.
func plainJourney(t *testing.T, h *home) {
	b := h.person(t, "ada", "light", 375)
	const begin = "---\nenvironmentId: say\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [plain]}}\n"
	const generated = `^[\w-]{43}$`
	b.withoutScript()
	b.open("/webhooks/new")
	b.fill("Name", "plain")
	b.press("Create webhook")
	b.see("This is shown once", "Waiting for the first delivery")
	hook := &remote{t: t}
	hook.url, hook.secret = b.code("/whk_"), b.code(generated)
	delivery := hook.send(http.StatusAccepted, `"status": "failed"`)
	b.open("/automations/new")
	b.fill("Name", "plainly")
	b.choose("Started by deliveries to", "plain")
	b.choose("Environment", "say")
	b.fill("Prompt", "Say it.")
	b.press("Create automation")
	b.see("Saved as commit", "which serves")

	b.open("/automations/test")
	b.choose("Automation", "plainly")
	b.fill("Against a stored delivery", delivery)
	b.press("Test")
	b.see("Would trigger")

	b.open("/definition/edit/automations/plainly/automation.md")
	b.fill("Text", begin+"wrong: true\n---\nSay it.\n")
	b.press("Check")
	b.see("wrong", "automations/plainly/automation.md:5:1")
	b.press("Save as a commit")
	b.see("Not saved.")
	b.expect("422")
	b.fill("Text", begin+"---\nSay it well.\n")
	b.press("Save as a commit")
	b.see("Saved as commit", "Say it well.")

	b.open("/runs/new")
	b.fill("What the agent is to do", "Say it now.")
	b.choose("Environment", b.option("Environment", "say"))
	b.press("Start the run")
	b.until("the run does not start", func() (bool, error) { return strings.HasPrefix(b.path(), "/runs/run_"), nil })
	b.until("the run does not end", func() (bool, error) {
		if strings.Contains(b.text(), "Ended well") {
			return true, nil
		}
		b.reload()
		return false, nil
	})
	b.open("/webhooks/plain")
	b.press("Delete…")
	b.fill("Type its name", "plain")
	b.press("Delete the webhook")
	b.see("The webhook plain is deleted")
	hook.send(http.StatusNotFound)
}

// restartJourney: open lists of deliveries and runs go on by themselves when the server was
// killed and started again.
func restartJourney(t *testing.T, h *home) {
	hook := h.hook(t, "lasting")
	h.run("---\nenvironmentId: say\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [lasting]}}\n---\nSay it.\n",
		"definition", "put", "automations/last/automation.md=-")
	hook.send(http.StatusAccepted)
	deliveries, runs := h.person(t, "ada", "light", 1280), h.person(t, "ada", "dark", 1280)
	deliveries.open("/deliveries")
	runs.open("/runs?automation=last")
	runs.see("Succeeded")
	h.kill()
	h.serve()
	for _, b := range []*tab{deliveries, runs} {
		b.until("the stream of the page does not break", func() (bool, error) { return len(b.complained()) > 0, nil })
	}
	hook.send(http.StatusAccepted)
	deliveries.see("1 new delivery since you opened this page")
	deliveries.press("Show them")
	deliveries.until("the list has not both deliveries", func() (bool, error) { return strings.Count(deliveries.text(), "\tlasting\t") == 2, nil })
	deliveries.look()
	runs.see("1 new run since you opened this page")
	runs.press("Show them")
	runs.see("Succeeded")
	runs.look()
}
