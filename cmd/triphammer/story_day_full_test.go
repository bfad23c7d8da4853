//go:build full

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// day is a story of a day and a night: a hosted factory of a small team. Its clock is a file,
// which the story sets, and its agents too.
type day struct {
	*story
	keys  map[string]string // of each person and program of the team
	hooks map[string]*api.Webhook
	busy  bool // what it starts goes on until the end
}

// newDay serves a hosted factory, and lets a day happen.
func newDay(t testing.TB) *story {
	t.Helper()
	d := &day{story: &story{world: &world{t: t, dir: openDir(t), addr: freeAddress(t)}}, keys: make(map[string]string), hooks: make(map[string]*api.Webhook)}
	d.clock = filepath.Join(d.dir, clockFile)
	d.setClock(storyTime.AddDate(0, 0, -1).Add(-5 * time.Hour))
	if err := os.CopyFS(filepath.Join(d.dir, "bin"), os.DirFS("testdata/story/day/bin")); err != nil {
		t.Fatal(err)
	}
	d.cleanUp()
	d.startWith(func(cmd *exec.Cmd) {
		cmd.Args = []string{cmd.Args[0], "serve", "--hosted", "payments", "--max-runs", "2"}
		cmd.Env = append(cmd.Env, "PATH="+filepath.Join(d.dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	})
	for _, k := range [][]string{{"ada", "laptop of Ada", "manage"}, {"ines", "laptop of Ines", "manage"}, {"build-farm", "build-farm", "operate"}} {
		d.keys[k[0]] = strings.TrimSpace(d.run("", "keys", "create", k[1], "--owner", k[0], "--scope", k[2]))
	}
	d.beginnings()
	d.happens()
	return d.story
}

// beginnings are what the team did on the morning before.
func (d *day) beginnings() {
	for name, value := range storySecrets {
		d.run(value, "secrets", "set", name)
	}
	d.run("", "keys", "create", "reports", "--scope", "runs", "--expires", "720h")
	d.put("ada", "Look after the payment service", "testdata/story/factory", "")
	d.at("-10:50")
	d.put("ines", "Review each pull request before a person does", "testdata/story/day/factory", "review")
	d.at("-11:20")
	d.put("ada", "Look at alerts, and install what the service needs", "testdata/story/day/factory", "")
	d.at("-11:40")
	d.schedule = regexp.MustCompile(`sch_[0-9a-z]+`).FindString(d.run("", "schedules", "create", "--name", "Weekly look at costs", "--cron", "0 9 * * MON", "--prompt", "Say what the runs of last week cost."))
	var hooks []*api.Webhook
	d.list(&hooks, "webhooks", "list")
	for _, w := range hooks {
		d.hooks[w.Name] = w
	}
}

// happens is the day.
func (d *day) happens() {
	push := func(at, branch string) {
		d.at(at)
		d.post("github", "github", "push", "ref=refs/heads/"+branch, "head="+d.clockText())
	}
	deploy := func(at string, number int, status string) (id string) {
		d.at(at)
		return d.deploy(number, status)
	}
	alert := func(at, environment string) {
		d.at(at)
		d.post("sentry", "sentry", "event_alert", "data.event.environment="+environment, "data.event.event_id="+d.clockText())
	}
	pull := func(at, action string, number int, title string) (id string) {
		d.at(at)
		if !d.busy {
			d.mood("calm %d", number)
		}
		return d.post("github", "github", "pull_request", "action="+action, "number="+strconv.Itoa(number), "pull_request.number="+strconv.Itoa(number), "pull_request.title="+title)
	}
	issue := func(at, label string, number int) string {
		d.at(at)
		return d.post("github", "github", "issues", "action=labeled", "label.name="+label, "issue.number="+strconv.Itoa(number))
	}
	charge := func(at, mood string) (id string) {
		d.at(at)
		d.mood("%s 0", mood)
		return d.post("stripe", "stripe", "charge.failed", "id=evt_"+d.clockText())
	}
	invoice := func(at string) {
		d.at(at)
		d.post("stripe", "stripe", "invoice.payment_failed", "id=evt_"+d.clockText())
	}

	push("-14:41", "main")
	deploy("-14:52", 8790, "success")
	pull("-15:07", "opened", 410, "Round amounts once")
	push("-15:21", "round-amounts")
	pull("-15:30", "synchronize", 410, "Round amounts once")
	alert("-15:48", "staging")
	push("-16:02", "main")
	deploy("-16:13", 8793, "success")
	d.mood("calm 411")
	issue("-16:20", "bug", 397)
	invoice("-16:40")
	push("-17:12", "main")
	deploy("-17:26", 8797, "success")
	alert("-17:44", "production")
	pull("-18:03", "closed", 410, "Round amounts once")
	push("-18:04", "main")
	charge("-19:31", "calm")
	invoice("-21:15")
	deploy("-22:02", 8801, "success")
	alert("-23:40", "staging")
	invoice("01:10")
	d.at("03:00")
	d.api("POST", "/factories/payments/sync", nil) // looks at the schedules too
	d.until("the report of the night does not begin", func() bool { return len(d.runs("automation=nightly-report")) > 0 })
	d.rest()
	charge("05:25", "calm")
	push("07:40", "main")
	deploy("07:52", 8803, "success")
	pull("08:15", "opened", 415, "Ask the ledger once")
	push("08:31", "ledger")
	push("08:44", "main")
	deploy("08:55", 8804, "success")
	alert("09:02", "production")
	d.mood("calm 416")
	issue("09:20", "bug", 399)
	issue("09:41", "question", 400)
	push("09:50", "main")
	pull("10:05", "closed", 415, "Ask the ledger once")
	push("10:06", "main")
	deploy("10:19", 8806, "success")
	d.at("10:30")
	d.mood("costly 417")
	d.post("github", "github", "pull_request", "action=opened", "number=417", "pull_request.number=417", "pull_request.title=Replace the queue")
	invoice("10:52")
	push("11:03", "main")
	deploy("11:14", 8808, "success")
	push("11:32", "retry-captures")
	alert("11:47", "production")
	push("12:20", "main")
	deploy("12:33", 8810, "success")
	pull("12:50", "opened", 418, "Retry card captures once")
	d.at("13:05")
	d.as("ines", "automations", "pause", "triage-alert", "--reason", "The gateway is down, and Sentry tells us every minute", "--until", storyTime.Add(3*time.Hour).Format(time.RFC3339))
	alert("13:12", "production")
	alert("13:31", "production")
	push("13:38", "main")
	d.failed = d.runOf(charge("13:52", "fail"))
	for _, at := range []string{"13:58", "14:06", "14:13"} { // somebody has changed the secret at the sender
		d.at(at)
		d.forge("sentry", "sentry", "event_alert")
	}
	push("14:10", "main")
	push("14:16", "release")
	d.at("14:19")
	d.mood("calm 419")
	d.wanted = d.deploy(8812, "failed")
	d.done = d.runOf(d.wanted)
	d.deploy(8812, "failed") // the same again
	deploy("14:24", 8813, "success")
	d.unmatched = issue("14:26", "wontfix", 401)
	d.forge("sentry", "sentry", "issue")

	// What is at work now.
	d.at("14:28")
	d.mood("live 418")
	d.busy = true
	d.live = d.runOf(issue("14:28", "bug", 402))
	d.waits("fix-labeled-bug")
	pull("14:29", "synchronize", 418, "Retry card captures once")
	d.waits("review-pull-request")
	issue("14:31", "bug", 403)
	d.at("14:32")
	var applies []api.Apply
	d.list(&applies, "applies", "list")
	d.apply = applies[0].ID
	d.tells("internal-ci:payments/a41c9e2")
}

// at lets the time pass until a time of the story's day, or of the day before it: -15:04.
func (d *day) at(text string) {
	d.t.Helper()
	before := strings.HasPrefix(text, "-")
	clock, err := time.Parse("15:04", strings.TrimPrefix(text, "-"))
	if err != nil {
		d.t.Fatal(err)
	}
	goal := storyTime.Truncate(24 * time.Hour).Add(time.Duration(clock.Hour())*time.Hour + time.Duration(clock.Minute())*time.Minute)
	if before {
		goal = goal.AddDate(0, 0, -1)
	}
	// A server believes a clock that is set by an hour at most.
	for now := d.now(); now.Before(goal); {
		if now = now.Add(50 * time.Minute); now.After(goal) {
			now = goal
		}
		d.setClock(now)
		d.api("GET", "/status", nil)
	}
}

// clockText tells deliveries apart.
func (d *day) clockText() string { return d.now().UTC().Format("150405") }

func (d *day) now() time.Time {
	text, err := os.ReadFile(d.clock)
	if err != nil {
		d.t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return time.Unix(seconds, 0)
}

func (d *day) setClock(now time.Time) {
	err := os.WriteFile(d.clock+".next", fmt.Appendln(nil, now.Unix()), 0o644)
	if err == nil {
		err = os.Rename(d.clock+".next", d.clock)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// mood is what befalls the next agents, and the number of a pull request.
func (d *day) mood(format string, args ...any) {
	if err := os.WriteFile(filepath.Join(d.dir, "bin", "mood"), fmt.Appendf(nil, format, args...), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// as runs a command as somebody of the team.
func (d *day) as(person string, args ...string) {
	d.t.Helper()
	cmd := d.command(args...)
	cmd.Env = append(cmd.Env, "TRIPHAMMER_API_KEY="+d.keys[person], "TRIPHAMMER_SERVER=http://"+d.addr)
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("triphammer %v: %v\n%s", args, err, out)
	}
}

// put commits the files of a folder whose paths hold a text.
func (d *day) put(person, message, folder, part string) {
	d.t.Helper()
	folder, err := filepath.Abs(folder)
	if err != nil {
		d.t.Fatal(err)
	}
	args := []string{"definition", "put", "-m", message}
	err = fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Contains(path, part) {
			args = append(args, path+"="+filepath.Join(folder, path))
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.as(person, args...)
}

// api calls the API with the key of the build farm.
func (d *day) api(method, path string, into any) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.addr+"/api/v1"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.keys["build-farm"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		d.t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *day) runs(query string) []api.Run {
	d.t.Helper()
	var all api.List[api.Run]
	d.api("GET", "/agent/runs?limit=100&"+query, &all)
	return all.Entries
}

// runOf is the run that a delivery started.
func (d *day) runOf(delivery string) string {
	d.t.Helper()
	all := d.runs("delivery_id=" + delivery)
	if len(all) != 1 {
		d.t.Fatalf("the delivery %s has started %d runs", delivery, len(all))
	}
	return all[0].RunID
}

// waits waits until the agent of an automation does what takes long.
func (d *day) waits(automation string) {
	d.t.Helper()
	d.until("no agent of "+automation+" is at work", func() bool { return !missing(filepath.Join(d.dir, "bin", automation)) })
}

// rest waits until no run is at work.
func (d *day) rest() {
	d.t.Helper()
	d.until("the runs do not end", func() bool { return len(d.runs("state=QUEUED&state=INPROGRESS")) == 0 })
}

func (d *day) deploy(number int, status string) string {
	d.t.Helper()
	body := fmt.Sprintf(`{"event":"deploy.finished","status":%q,"env":"prod","service":"payments","commit":"a41c9e2","step":"canary","duration_s":312,"url":"https://ci.example.com/runs/%d"}`, status, number)
	return d.deliver(&client.Message{Webhook: d.hooks["internal-ci"], Body: []byte(body), Header: http.Header{"X-Ci-Run-Id": {strconv.Itoa(number)}}, Secret: storySecrets["INTERNAL_CI_SECRET"]})
}

// post sends a sample with other values, and lets all that it starts end.
func (d *day) post(webhook, provider, event string, sets ...string) string {
	d.t.Helper()
	return d.deliver(d.message(webhook, provider, event, sets))
}

// forge sends a sample with a wrong proof.
func (d *day) forge(webhook, provider, event string, sets ...string) {
	d.t.Helper()
	m := d.message(webhook, provider, event, sets)
	m.Tamper = "signature"
	d.deliver(m)
}

func (d *day) message(webhook, provider, event string, sets []string) *client.Message {
	d.t.Helper()
	found, err := client.FindSample(provider, event)
	if err != nil {
		d.t.Fatal(err)
	}
	m := &client.Message{Webhook: d.hooks[webhook], Body: found.Body, Header: http.Header{}, Secret: storySecrets[d.hooks[webhook].SecretName]}
	for name, value := range found.Headers {
		m.Header.Set(name, value)
	}
	if len(sets) > 0 {
		if m.Body, err = client.WithValues(m.Body, sets); err != nil {
			d.t.Fatal(err)
		}
	}
	return m
}

func (d *day) deliver(m *client.Message) string {
	d.t.Helper()
	was := term.Now
	term.Now = d.now
	defer func() { term.Now = was }()
	status, answer, _, err := m.Post(d.t.Context(), http.DefaultClient)
	if err != nil || (status != http.StatusAccepted) != (m.Tamper != "") {
		d.t.Fatalf("a delivery to %s: %d %s %v", m.Webhook.Name, status, answer, err)
	}
	if !d.busy {
		d.rest()
	}
	return regexp.MustCompile(`dlv_[0-9a-z]+`).FindString(string(answer))
}
