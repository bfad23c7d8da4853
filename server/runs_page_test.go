package server

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// reader is a person who looks at pages.
type reader struct {
	*fixture
	cookie string
}

func (f *fixture) reader(role string) reader {
	f.t.Helper()
	token, err := f.store.Sessions.CreateLoginLink(f.t.Context(), linkFor("ada", role), linkLife)
	if err != nil {
		f.t.Fatal(err)
	}
	return reader{f, f.signIn("/auth/login?token=" + token)}
}

func (v reader) get(path string, headers ...string) answer {
	return v.do(http.MethodGet, path, "", "", append([]string{"Cookie", v.cookie}, headers...)...)
}

func (v reader) post(path string, form ...string) answer {
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	return v.do(http.MethodPost, path, "", values.Encode(), "Cookie", v.cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
}

// TestColumns: a person leaves columns out of a list, whatever the address, until the person takes them
// back. Why nothing was started stays there, and a list has no other columns to leave out.
func TestColumns(t *testing.T) {
	f := newFixture(t)
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":7}`)
	v := f.reader("viewer")
	chosen := v.post("/columns", "list", "deliveries", "from", "/deliveries?stopped=matched", "column", "from", "column", "what")
	cookie := strings.Split(chosen.header.Get("Set-Cookie"), ";")[0]
	if chosen.status != http.StatusSeeOther || chosen.header.Get("Location") != "/deliveries?stopped=matched" || cookie != "triphammer_columns_deliveries=size" {
		t.Fatalf("%d %v", chosen.status, chosen.header)
	}
	v.cookie += "; " + cookie
	for _, want := range []string{`<table class="t no-size"`, "nearest a: payload.n is 7", `value="from" checked`, `value="size">`} {
		if body := string(v.get("/deliveries").body); !strings.Contains(body, want) {
			t.Errorf("the list has no %q:\n%s", want, body)
		}
	}
	if all := v.post("/columns", "list", "deliveries", "from", "//evil.example", "column", "from", "column", "size"); !strings.Contains(all.header.Get("Set-Cookie"), "Max-Age=0") || all.header.Get("Location") != "/" {
		t.Errorf("all columns: %v", all.header)
	}
	if other := v.post("/columns", "list", "people"); other.status != http.StatusBadRequest {
		t.Errorf("another list: %d", other.status)
	}
}

// plain is the text of a page.
func plain(body []byte) string {
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.ReplaceAll(string(body), "<wbr>", ""), " "))
	return strings.Join(strings.Fields(text), " ")
}

// shows tells what a page lacks.
func (v reader) shows(path string, status int, wants ...string) answer {
	v.t.Helper()
	got := v.get(path)
	text := plain(got.body)
	if got.status != status {
		v.t.Errorf("%s: %d", path, got.status)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			v.t.Errorf("%s has no %q:\n%s", path, want, text)
		}
	}
	if len(got.body) > 100_000 {
		v.t.Errorf("%s has %d bytes", path, len(got.body))
	}
	return got
}

// begin starts the run that waits, and appends to its transcript.
func (f *fixture) begin() (store.Lease, func(...event.Event)) {
	f.t.Helper()
	leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute})
	if err != nil || len(leases) != 1 {
		f.t.Fatal(leases, err)
	}
	seq := int64(0)
	return leases[0], func(all ...event.Event) {
		f.t.Helper()
		var events []store.Event
		for _, e := range all {
			data, err := json.Marshal(e)
			if err != nil {
				f.t.Fatal(err)
			}
			seq++
			events = append(events, store.Event{Seq: seq, At: time.Now(), Kind: e.Kind(), Data: data})
		}
		if err := f.store.Transcripts.Append(f.t.Context(), leases[0], events); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestRunPage: a run from the queue to its end, as its page tells it.
func TestRunPage(t *testing.T) {
	f := newFixture(t)
	v := f.reader("manager")
	id := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`), "delivery_id")
	runID := field(t, f.get("/api/v1/deliveries/"+id, f.key("k", "read")), "runs", "0")
	at := "/runs/" + runID
	waits := v.shows(at, 200, "Queued It waits: no server is running that could start it", "from a delivery to hook", "Cancel…", "Prompt, as sent", "Do it.", "The payload is the request to act on.", "event-payload.json")
	for _, not := range []string{"Run again…", "Interrupt", "Follow up…"} {
		if strings.Contains(plain(waits.body), not) {
			t.Errorf("a run that waits offers %q", not)
		}
	}
	if got := v.get(at + "/event-payload.json"); string(got.body) != `{"n":1}` || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the payload: %d %v %s", got.status, got.header, got.body)
	}
	lease, say := f.begin()
	zero, one := 0, 1
	say(event.Status{State: "INPROGRESS", Worker: "here", Isolation: "sandbox"}, event.Phase{Name: "clone", DurationMS: 900}, event.AgentStarted{Command: "true"},
		event.Message{Role: "assistant", Text: "I look."}, event.Command{ID: "1", Phase: "agent", Command: "make test", Started: true})
	live := v.shows(at, 200, "Running At work for", "isolation sandbox", "Interrupt the turn", "Cancel…", "make test", "started", "Messages 1 events")
	part := v.get(at+"?after=5&was=INPROGRESS", "HX-Request", "true")
	if strings.Contains(string(part.body), "I look.") || strings.Contains(string(part.body), `id="actions" hx-swap-oob`) {
		t.Errorf("what is new has more than that:\n%s", part.body)
	}
	if strings.Contains(string(live.body), "hx-swap-oob") {
		t.Error("the page takes the place of parts of itself")
	}
	say(event.Command{ID: "1", Phase: "agent", Command: "make test", ExitCode: &one, Output: "FAIL x"}, event.Egress{Host: "evil.example.net", Port: 443, Reason: "not listed"},
		event.File{Path: "a.go", Change: event.FileModified, Diff: "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n"}, event.Ended{ExitCode: zero},
		event.Message{Role: "assistant", Text: "It **fails**, see [the log](https://evil.example/x)."}, event.Result{Failed: true, Message: "the agent ended with exit status 3"})
	part = v.get(at+"?after=5&was=INPROGRESS", "HX-Request", "true")
	for _, want := range []string{`<li id="e-5" class="fail" hx-swap-oob="true">`, "FAIL x", `<li id="e-7" class="wait">`} {
		if !strings.Contains(string(part.body), want) {
			t.Errorf("what is new has no %s:\n%s", want, part.body)
		}
	}
	if err := f.store.Leases.Finish(t.Context(), lease, store.FailedRun, "the agent ended with exit status 3: \u202eno\x1b[31m", nil); err != nil {
		t.Fatal(err)
	}
	done := v.shows(at, 200, "Failed Failed after", ": The agent ended with exit status 3: ", "Once that is mended, run it again . It changed 1 file.", `\u202eno\u001b[31m`, "What the agent said last It fails , see the log ( evil.example/x ).", "a.go +1 −1", "Run again…", "evil.example.net:443 not listed", "Raw events")
	if strings.Contains(plain(done.body), "Cancel…") || strings.Contains(string(done.body), "Interrupt the turn") {
		t.Error("a run that has ended can be cancelled")
	}
	if n := strings.Count(strings.ToLower(plain(done.body)), "the agent ended with exit status 3"); n != 1 {
		t.Errorf("the page says %d times why the run failed", n)
	}
	if !strings.Contains(string(done.body), "<strong>fails</strong>") || strings.Contains(string(done.body), ">the log</a>") {
		t.Error("what the agent said is not shown as Markdown whose links say where they lead")
	}
	if part = v.get(at+"?after=9&was=INPROGRESS", "HX-Request", "true"); !strings.Contains(string(part.body), `id="actions" hx-swap-oob="true"`) {
		t.Error("the end does not bring what can be done then")
	}
	v.shows(at+"?view=network", 200, "Network, refused evil.example.net:443")
	if got := plain(v.get(at + "?view=messages").body); !strings.Contains(got, "I look.") || strings.Contains(got, "FAIL x") {
		t.Errorf("the messages: %s", got)
	}
	raw := v.get(at + "/events.json?after=8")
	if raw.status != 200 || field(t, raw, "events", "0", "kind") != "exit" {
		t.Errorf("raw events: %d %s", raw.status, raw.body)
	}
	v.shows("/runs/run_0000000000001", 404, "Not found")
	v.shows(at+"?after=x&before=-1&whole=9999999999999999999", 200)

	again := v.post(at+"/retry", "resume", "false")
	to := again.header.Get("Location")
	if again.status != http.StatusSeeOther || !strings.HasPrefix(to, "/runs/run_") || to == at {
		t.Fatalf("again: %d %v", again.status, again.header)
	}
	v.shows(to, 200, "it does again what an earlier run did", "Queued")
	v.shows(at, 200, "It was run again")
	if got := v.post(to + "/cancel"); got.status != http.StatusSeeOther {
		t.Errorf("cancel: %d %s", got.status, got.body)
	}
	v.shows(to, 200, "Cancelled Cancelled by ada before it started.")
	if got := v.post(at+"/followup", "message", "More <b>of it</b>"); got.status != 422 || !strings.Contains(string(got.body), "More &lt;b&gt;of it&lt;/b&gt;</textarea>") ||
		!strings.Contains(plain(got.body), "The follow-up was refused: the command of environments/e.yaml keeps no session") {
		t.Errorf("a follow-up that cannot be: %d %s", got.status, plain(got.body))
	}
	if got := v.post(at + "/interrupt"); got.status < 400 {
		t.Errorf("interrupt of a run that has ended: %d", got.status)
	}
}

// TestCancelRuns: a list cancels what it shows that has not ended, and nothing else.
func TestCancelRuns(t *testing.T) {
	f := newFixture(t)
	v, hook := f.reader("manager"), ingress+f.uids()["hook"]
	key := f.key("k", "read")
	for i := range 3 {
		f.do("POST", hook, hookSecret, fmt.Sprintf(`{"n":1,"i":%d}`, i))
	}
	automation := field(t, f.get("/api/v1/agent/runs", key), "runs", "0", "automation")
	if got := f.reader("viewer").post("/runs/cancel?automation=" + automation); got.status != http.StatusForbidden {
		t.Errorf("a viewer: %d", got.status)
	}
	v.shows("/runs?automation="+automation, 200, "Cancel all of these…", "Cancel 3 waiting?", "all runs that this list selects")
	for _, path := range []string{"/runs?state=FAILED", "/runs?automation=nosuch"} {
		if strings.Contains(string(v.get(path).body), "Cancel all of these") {
			t.Errorf("%s offers to cancel", path)
		}
	}
	f.begin()
	v.shows("/runs", 200, "Cancel 1 at work, 2 waiting?", "all runs that have not ended, of every automation")
	for _, c := range []struct{ query, said, left string }{
		{"automation=nosuch", "0 runs will be cancelled.", "Cancel 1 at work, 2 waiting?"},
		{"state=QUEUED", "2 runs will be cancelled.", "Cancel 1 at work?"},
		{"automation=" + automation, "1 run will be cancelled.", ""},
	} {
		got := v.post("/runs/cancel?" + c.query)
		if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/runs?"+c.query || !strings.Contains(fmt.Sprint(got.header["Set-Cookie"]), url.QueryEscape(c.said)) {
			t.Errorf("%s: %d %v", c.query, got.status, got.header)
		}
		v.shows("/runs", 200, c.left)
	}
	runs := field(t, f.get("/api/v1/agent/runs/counts", key), "states", "CANCELLED")
	if runs != "2" { // its worker ends the other
		t.Errorf("%s are cancelled", runs)
	}
}

// TestLongTranscript: of 50,000 events a page has some, and ways to the others.
func TestLongTranscript(t *testing.T) {
	f := newFixture(t)
	v := f.reader("manager")
	runID := f.create(f.key("k", "runs"), `{"prompt":"Go on.","config":{"environment_id":"e"}}`)
	lease, say := f.begin()
	for batch := range 50 {
		var events []event.Event
		for i := range 500 {
			n := 1000*batch + 2*i
			events = append(events, event.Output{Stream: "stdout", Text: fmt.Sprintf("line %d %s\n", n, strings.Repeat("x", 300))}, event.Message{Role: "assistant", Text: fmt.Sprintf("message %d.", n+1)})
		}
		say(events...)
	}
	at := "/runs/" + runID
	newest := v.shows(at, 200, "message 49999.", "All 50,000", "Messages 25,000", "Earlier events", "Raw events from 40,000")
	first := v.shows(at+"?after=0", 200, "line 0 ", "message 1.", "Later events")
	for name, page := range map[string]answer{"newest": newest, "first": first} {
		if n := strings.Count(string(page.body), "<li id=\"e-"); n < 50 {
			t.Errorf("the %s page has %d entries", name, n)
		}
	}
	link := regexp.MustCompile(`href="([^"]*before=[^"]*)">Earlier`).FindSubmatch(newest.body)
	if link == nil {
		t.Fatal("no way to earlier events")
	}
	earlier := v.shows(html.UnescapeString(string(link[1])), 200, "Later events")
	if strings.Contains(string(earlier.body), "message 49999.") {
		t.Error("the earlier page is the newest")
	}
	key, api := f.key("reader", "read"), "/api/v1/agent/runs/"+runID+"/transcript?limit=2&kind=message"
	twice := f.do("GET", api+"&kind=message&kind=exit&newest=true", key, "")
	if twice.status != 200 || field(t, twice, "events", "1", "seq") != "50000" {
		t.Errorf("two kinds, one of them twice: %d %s", twice.status, twice.body)
	}
	many := api
	for n := range maxKinds {
		many += fmt.Sprintf("&kind=k%d", n)
	}
	if got := f.do("GET", many, key, ""); got.status != 400 || !strings.Contains(string(got.body), "at most 100 kinds") {
		t.Errorf("too many kinds: %d %s", got.status, got.body)
	}
	if err := f.store.Leases.Finish(t.Context(), lease, store.Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	v.shows(at, 200, "line 0 ", "Later events", "Ended well after")
	v.shows(at+"?newest=1", 200, "message 49999.")
}

// TestRunsPage: the list with its views and filters, the rows of an open page that change in
// place, and the form that starts a run.
func TestRunsPage(t *testing.T) {
	f := runsFixture(t)
	v := f.reader("manager")
	v.shows("/runs", 200, "Nothing runs now.", "No run yet.", "triphammer runs create")
	if got := v.post("/runs", "prompt", "", "environment", "e"); got.status != 422 || !strings.Contains(string(got.body), `role="alert"`) {
		t.Errorf("a run without a prompt: %d", got.status)
	}
	if got := v.post("/runs", "prompt", "Do <i>it</i>.", "environment", "nowhere"); got.status != 422 || !strings.Contains(string(got.body), "Do &lt;i&gt;it&lt;/i&gt;.</textarea>") ||
		!strings.Contains(string(got.body), "<option selected>nowhere</option>") {
		t.Errorf("a run nowhere: %d %s", got.status, got.body)
	}
	started := v.post("/runs", "prompt", "Say hello.", "title", "Hello", "environment", "default/app", "agent", "fixer")
	mine := strings.TrimPrefix(started.header.Get("Location"), "/runs/")
	if started.status != http.StatusSeeOther || !strings.HasPrefix(mine, "run_") {
		t.Fatalf("%d %s", started.status, started.body)
	}
	delivered := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`), "delivery_id")
	hooked := field(t, f.get("/api/v1/deliveries/"+delivered, f.key("r", "read")), "runs", "0")
	v.shows("/runs", 200, "All 2", "Queued 2", "At work and waiting", "Hello Queued", "no server is running that could start it", "From", "hook")
	lease, _ := f.begin()
	if err := f.store.Leases.Finish(t.Context(), lease, store.FailedRun, "it ran out of time", nil); err != nil {
		t.Fatal(err)
	}
	v.shows("/runs", 200, "Today", "Failed 1", "it ran out of time")
	for path, want := range map[string][2]string{ // what is there, and what is not
		"/runs?state=FAILED": {mine, hooked}, "/runs?source=WEBHOOK": {hooked, mine}, "/runs?agent=fixer": {mine, hooked}, "/runs?q=hell": {mine, hooked},
		"/runs?environment=default%2Fapp&since=24h": {mine, hooked}, "/runs?automation=a&state=nonsense": {hooked, mine}, "/runs?creator=nobody": {"No run fits these filters.", mine},
	} {
		if got := string(v.shows(path, 200).body); !strings.Contains(got, want[0]) || strings.Contains(got, want[1]) {
			t.Errorf("%s has not %s, or %s", path, want[0], want[1])
		}
	}
	if got := v.get("/runs?source=NOWHERE"); got.status != 400 {
		t.Errorf("a source that is none: %d", got.status)
	}
	// An open page hears that something has changed.
	f.create(f.key("k", "runs"), `{"prompt":"Newer.","config":{"environment_id":"e"}}`)
	part := v.get("/runs?open="+lease.RunID.String()+"+run_0000000000001+x&newest="+max(hooked, mine), "HX-Request", "true")
	for _, want := range []string{`<tr role="row" id="r-` + lease.RunID.String() + `" hx-swap-oob="true">`, "1 new run since you opened this page.", `id="news" role="status" hx-swap-oob="true">`} {
		if !strings.Contains(string(part.body), want) {
			t.Errorf("%d: no %s in %s", part.status, want, part.body)
		}
	}
	if strings.Contains(string(part.body), "Newer.") {
		t.Error("a new row comes under the reader")
	}
}

// TestSchedulesPage: made, changed, paused, resumed and deleted by page; those of files are
// shown with their file.
func TestSchedulesPage(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{"automations/daily.md": {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {cron: '0 3 * * *'}}\n---\nLook.\n")}}})
	v := f.reader("manager")
	if err := f.store.Schedules.Sync(t.Context(), "default", 0, []store.Schedule{{Automation: "daily", Cron: "0 3 * * *", Enabled: true}}); err != nil {
		t.Fatal(err)
	}
	if got := v.post("/schedules", "name", "Weekly", "cron", "never", "prompt", "Look.", "environment", "e"); got.status != 422 || !strings.Contains(string(got.body), `value="never"`) {
		t.Errorf("a schedule of nonsense: %d", got.status)
	}
	if got := v.post("/schedules", "name", "Weekly", "cron", "0 9 * * MON", "prompt", "Look.", "environment", "e", "model", "m1"); got.status != http.StatusSeeOther {
		t.Fatalf("%d %s", got.status, got.body)
	}
	v.shows("/schedules", 200, "2 schedules.", "Weekly 0 9 * * MON", "Look.", "Enabled", "never", "Pause", "daily", "automations/daily.md")
	var list api.List[api.Schedule]
	if err := json.Unmarshal(f.get("/api/v1/agent/schedules", f.key("k", "read")).body, &list); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Entries, func(a, b api.Schedule) int { return strings.Compare(a.Automation, b.Automation) })
	id := list.Entries[0].ID
	v.shows("/schedules/"+list.Entries[1].ID, 422, "The automation daily defines this schedule: change its file.")
	at := "/schedules/" + id
	for _, step := range [][2]string{{"/pause", "1 paused"}, {"/resume", "Enabled"}} {
		if got := v.post(at + step[0]); got.status != http.StatusSeeOther {
			t.Errorf("%s: %d %s", step[0], got.status, got.body)
		}
		v.shows("/schedules", 200, step[1])
	}
	v.shows(at, 200, "Look.", "Save")
	if got := v.post(at, "name", "Monthly", "cron", "@monthly", "prompt", "Look well.", "environment", "e"); got.status != http.StatusSeeOther {
		t.Errorf("change: %d %s", got.status, got.body)
	}
	changed := f.get("/api/v1/agent/schedules/"+id, f.key("l", "read"))
	if field(t, changed, "name") != "Monthly" || strings.Contains(string(changed.body), "m1") || !strings.Contains(string(changed.body), "Look well.") {
		t.Errorf("%s", changed.body)
	}
	if got := v.post(at + "/delete"); got.status != http.StatusSeeOther {
		t.Errorf("delete: %d", got.status)
	}
	if got := plain(v.get("/schedules").body); strings.Contains(got, "Monthly") {
		t.Errorf("it is still there: %s", got)
	}
}

// TestRunActionsByRole: who may only read sees no action of runs and schedules, and can take
// none; an operator can.
func TestRunActionsByRole(t *testing.T) {
	f := newFixture(t)
	id := f.create(f.key("k", "runs"), `{"prompt":"Go on.","config":{"environment_id":"e"}}`)
	for role, may := range map[string]bool{"viewer": false, "operator": true, "manager": true} {
		v := f.reader(role)
		for path, offer := range map[string]string{"/runs/" + id: "Cancel…", "/runs": "Start a run…", "/schedules": "New schedule"} {
			if got := v.get(path); got.status != 200 || strings.Contains(plain(got.body), offer) != may {
				t.Errorf("%s as %s: %d, %q offered: %t", path, role, got.status, offer, !may)
			}
		}
		for _, path := range []string{"/runs", "/schedules", "/runs/run_0000000000001/cancel", "/runs/run_0000000000001/interrupt", "/runs/run_0000000000001/retry", "/runs/run_0000000000001/followup", "/schedules/sch_0000000000001", "/schedules/sch_0000000000001/pause", "/schedules/sch_0000000000001/resume", "/schedules/sch_0000000000001/delete"} {
			if got := v.post(path, "message", "x"); (got.status == http.StatusForbidden) == may {
				t.Errorf("POST %s as %s: %d", path, role, got.status)
			}
			cross := f.do("POST", path, "", "", "Cookie", v.cookie, "Sec-Fetch-Site", "cross-site")
			if cross.status != http.StatusForbidden {
				t.Errorf("POST %s from another site: %d", path, cross.status)
			}
		}
	}
}
