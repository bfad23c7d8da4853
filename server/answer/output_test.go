package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/schema/output"
	"triphammer/server/lookup"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// TestOutputTable: the rows do what the table of kinds says of them, and nothing else (SPEC 23.1).
func TestOutputTable(t *testing.T) {
	for _, s := range Senders() {
		for _, k := range output.Kinds {
			if does := s.performs(k.Name) != nil || k.Name == output.Ask; does != (k.Needs[s.Provider] != "") { // a question is told as an answer is
				t.Errorf("%s: %s by the table: %q", s.Provider, k.Name, k.Needs[s.Provider])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			if output.ByName(name) == nil {
				t.Errorf("%s does %s, which is no kind", s.Provider, name)
			}
		}
	}
}

// changes is a service that notes requests, and answers with what a test says.
type changes struct {
	mu      sync.Mutex
	asked   []string
	answers map[string]string // by the method and the path
}

func (c *changes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	answer := c.answers[r.Method+" "+r.URL.EscapedPath()]
	for part, text := range c.answers {
		if strings.HasPrefix(part, "contains ") && strings.Contains(string(body), strings.TrimPrefix(part, "contains ")) {
			answer = text
		}
	}
	if status, refusal, _ := strings.Cut(answer, " "); len(status) == 3 {
		code, _ := strconv.Atoi(status)
		http.Error(w, refusal, code)
		return
	}
	if answer == "" {
		answer = `{"ok":true,"id":5,"number":5,"iid":5,"ts":"5.5","user_id":"U1","login":"me","username":"me","html_url":"https://x.example/5","web_url":"https://x.example/5","default_branch":"main"}`
	}
	_, _ = io.WriteString(w, answer)
}

// TestPerform: each kind is the request that the sender's API documents, and what an earlier attempt
// has made is found instead of made again.
func TestPerform(t *testing.T) {
	const marker = "triphammer:run_0000000000000:0123456789abcdef0123456789abcdef"
	text := func(body string) string {
		b, _ := json.Marshal(body + comment(Message{Marker: marker}))
		return string(b)
	}
	pulls := Place{Provider: "github", Container: "acme/app", Thread: "7", Kind: pull}
	places := map[string]Place{
		"github": {Provider: "github", Container: "acme/app", Thread: "7", Kind: "issue"}, "gitlab": {Provider: "gitlab", Container: "acme/app", Thread: "7", Kind: "issue"},
		"jira": {Provider: "jira", Thread: "10001"}, "slack": {Provider: "slack", Container: "C1", Thread: "1.1"},
	}
	for _, c := range []struct {
		provider string
		place    Place
		w        Wanted
		answers  map[string]string
		want     []string // parts of the changing requests, in order
		link     string
		wrong    string // part of the error
	}{
		{provider: "github", w: Wanted{Request: output.Request{Kind: "addLabels", Labels: []string{"a", "b"}}}, want: []string{`/issues/7/labels {"labels":["a","b"]}`}},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "removeLabels", Labels: []string{"a/b", "gone"}}},
			answers: map[string]string{"DELETE /repos/acme/app/issues/7/labels/gone": `404 {"message":"Label does not exist"}`}, want: []string{"DELETE /repos/acme/app/issues/7/labels/a%2Fb", "DELETE /repos/acme/app/issues/7/labels/gone"},
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "removeLabels", Labels: []string{"a"}}},
			answers: map[string]string{"DELETE /repos/acme/app/issues/7/labels/a": `404 {"message":"Not Found"}`}, want: []string{"DELETE"}, wrong: "the thread is gone",
		},
		{provider: "github", w: Wanted{Request: output.Request{Kind: "assign", Assignees: []string{"ada"}}}, want: []string{`POST /repos/acme/app/issues/7/assignees {"assignees":["ada"]}`}},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "assign", Assignees: []string{"Ada", "mallory"}}},
			answers: map[string]string{"POST /repos/acme/app/issues/7/assignees": `{"number":7,"assignees":[{"login":"ada","id":6}]}`}, want: []string{"POST"}, wrong: "has not assigned mallory, who",
		},
		{provider: "github", w: Wanted{Request: output.Request{Kind: "close"}}, want: []string{`PATCH /repos/acme/app/issues/7 {"state":"closed"}`}},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createIssue", Title: "T", Body: "B", Repository: "acme/other"}, Bounds: output.Bounds{TitlePrefix: "[bot] ", Labels: []string{"bot"}}},
			want: []string{`POST /repos/acme/other/issues {"body":"B","labels":["bot"],"title":"[bot] T"}`}, link: "https://x.example/5",
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createIssue", Title: "T", Body: "B"}, Bounds: output.Bounds{Labels: []string{"bot"}}},
			answers: map[string]string{"POST /repos/acme/app/issues": `{"number":5,"html_url":"https://x.example/5","labels":[]}`}, want: []string{"POST"}, link: "https://x.example/5", wrong: "its labels were not set",
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createIssue", Title: "T", Body: "B"}, Again: true, Marker: marker},
			answers: map[string]string{"GET /repos/acme/app/issues": `[{"number":8,"html_url":"https://x.example/8","body":` + text("B") + `,"user":{"login":"me","id":6}},{"number":9,"html_url":"https://x.example/9","body":` + text("B") + `,"user":{"login":"me","id":5}}]`}, link: "https://x.example/9",
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "triphammer/x"}, Bounds: output.Bounds{Draft: true, Labels: []string{"bot"}}},
			want: []string{`POST /repos/acme/app/pulls {"base":"main","body":"B","draft":true,"head":"triphammer/x","title":"T"}`, `POST /repos/acme/app/issues/5/labels {"labels":["bot"]}`}, link: "https://x.example/5",
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "x", Base: "theirs"}, Bounds: output.Bounds{Base: "ours", Labels: []string{"bot"}}, Again: true, Marker: marker},
			answers: map[string]string{"GET /repos/acme/app/pulls": `[{"number":9,"html_url":"https://x.example/9","body":` + text("B") + `,"user":{"login":"me","id":5}}]`},
			want:    []string{`POST /repos/acme/app/issues/9/labels`}, link: "https://x.example/9",
		},
		{
			provider: "github", place: pulls, w: Wanted{Request: output.Request{Kind: "review", Body: "B", Comments: []output.Remark{{Path: "a.go", Line: 3, Body: "C"}}}},
			want: []string{`/pulls/7/reviews {"body":"B","comments":[{"path":"a.go","line":3,"side":"RIGHT","body":"C"}]`}, link: "https://x.example/5",
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "x", Base: "main"}},
			answers: map[string]string{"POST /repos/acme/app/pulls": `422 {"message":"Validation Failed","errors":[{"message":"A pull request already exists for acme:x."}]}`}, want: []string{"POST"}, wrong: "answered 422: " + hasPull,
		},
		{
			provider: "github", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "x", Base: "main"}},
			answers: map[string]string{"POST /repos/acme/app/pulls": `422 {"message":"Validation Failed","errors":[{"message":"No commits between main and x"}]}`}, want: []string{"POST"}, wrong: "no commits that its base lacks",
		},
		{
			provider: "github", place: pulls, w: Wanted{Request: output.Request{Kind: "review", Body: "B", Comments: []output.Remark{{Path: "a.go", Line: 3, Body: "C"}}}},
			answers: map[string]string{"POST /repos/acme/app/pulls/7/reviews": `422 {"message":"Unprocessable Entity","errors":["Line could not be resolved"]}`}, want: []string{"POST"}, wrong: "on a line or a file that the pull request does not change",
		},
		{
			provider: "gitlab", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "x", Base: "main"}},
			answers: map[string]string{"POST /api/v4/projects/acme%2Fapp/merge_requests": `409 {"message":["Another open merge request already exists for this source branch: !5"]}`}, want: []string{"POST"}, wrong: "answered 409: " + hasPull,
		},
		{provider: "gitlab", w: Wanted{Request: output.Request{Kind: "addLabels", Labels: []string{"a", "b"}}}, want: []string{`{"add_labels":"a,b"}`}},
		{provider: "gitlab", w: Wanted{Request: output.Request{Kind: "removeLabels", Labels: []string{"a"}}}, want: []string{`{"remove_labels":"a"}`}},
		{provider: "gitlab", w: Wanted{Request: output.Request{Kind: "close"}}, want: []string{`{"state_event":"close"}`}},
		{
			provider: "gitlab", w: Wanted{Request: output.Request{Kind: "createIssue", Title: "T", Body: "B"}, Bounds: output.Bounds{Labels: []string{"x", "y"}}},
			want: []string{`/issues {"description":"B","labels":"x,y","title":"T"}`}, link: "https://x.example/5",
		},
		{
			provider: "gitlab", w: Wanted{Request: output.Request{Kind: "createPullRequest", Title: "T", Body: "B", Head: "x"}, Bounds: output.Bounds{Draft: true}},
			want: []string{`/merge_requests {"description":"B","source_branch":"x","target_branch":"main","title":"Draft: T"}`}, link: "https://x.example/5",
		},
		{provider: "jira", w: Wanted{Request: output.Request{Kind: "addLabels", Labels: []string{"a"}}}, want: []string{`{"update":{"labels":[{"add":"a"}]}}`}},
		{
			provider: "jira", w: Wanted{Request: output.Request{Kind: "setState", State: "Done"}},
			answers: map[string]string{"GET /rest/api/3/issue/10001/transitions": `{"transitions":[{"id":"1","to":{"name":"Open"}},{"id":"31","to":{"name":"Done"}}]}`},
			want:    []string{`{"transition":{"id":"31"}}`},
		},
		{
			provider: "linear", place: Place{Provider: "linear", Thread: "issue-1", Kind: "issue"}, w: Wanted{Request: output.Request{Kind: "setState", State: "Done"}},
			answers: map[string]string{"contains states(": `{"data":{"issue":{"team":{"states":{"nodes":[{"id":"s1","name":"Done"}]}}}}}`, "contains issueUpdate": `{"data":{"issueUpdate":{"success":true}}}`},
			want:    []string{"states(first", `"stateId":"s1"`},
		},
		{provider: "slack", w: Wanted{Request: output.Request{Kind: "message", Channel: "C9", Body: `{"text":"Hi"}`}}, want: []string{`"channel":"C9"`}},
	} {
		t.Run(c.provider+" "+c.w.Kind, func(t *testing.T) {
			service := &changes{answers: c.answers}
			server := httptest.NewServer(service)
			defer server.Close()
			p := c.place
			if p.Provider == "" {
				p = places[c.provider]
			}
			at, err := ByProvider(c.provider).performs(c.w.Kind)(t.Context(), lookup.NewClient(time.Now), lookup.API{URL: server.URL, Secret: secret.New("token")}, p, &c.w)
			var changing []string
			for _, a := range service.asked {
				if !strings.HasPrefix(a, "GET ") {
					changing = append(changing, a)
				}
			}
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) || len(changing) != len(c.want) || c.link != "" && at.Link != c.link {
				t.Fatalf("%+v, %v; it asked %q", at, err, service.asked)
			}
			for i, part := range c.want {
				if !strings.Contains(changing[i], part) {
					t.Errorf("request %d is %s, want %s", i, changing[i], part)
				}
			}
		})
	}
}

// ask is a run that has SUCCEEDED, and whose agent asked for comments.
func (f *fixture) ask(identity string, n int) store.RunID {
	f.t.Helper()
	place, _ := json.Marshal(Place{Provider: "forge", Container: "acme/app", Thread: "7"})
	recorded, err := f.store.Deliveries.Record(f.t.Context(), &store.NewDelivery{Payload: []byte("{}"), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, ReceivedAt: f.now(), Identity: store.Identity{Source: store.IdentitySender, Value: identity},
	}, Runs: []store.NewRun{{Factory: "default", Automation: "fix", Source: store.SourceWebhook, Title: "fix", Outputs: &store.OutputPlace{WebhookUID: "whk_1", Provider: "forge", Place: string(place)}}}})
	f.check(err)
	var asked []store.NewOutput
	for i := range n {
		asked = append(asked, store.NewOutput{Kind: "comment", Request: fmt.Sprintf(`{"kind":"comment","body":"text %d of %s"}`, i, identity), Bounds: "{}"})
	}
	f.check(f.store.Leases.Finish(f.t.Context(), f.start(), store.Succeeded, "", nil, asked...))
	return recorded.RunIDs[0]
}

// performs takes the turns that are due, with the loop's order.
func (f *fixture) performDue(ctx context.Context) {
	f.t.Helper()
	for range 20 {
		due, err := f.store.Outputs.Due(f.t.Context(), 8)
		f.check(err)
		if len(due) == 0 || ctx.Err() != nil {
			return
		}
		for _, o := range due {
			f.check(f.perform(ctx, o))
		}
	}
	f.t.Fatal("something is always due")
}

// TestOutputsOnce: outputs are done in order, each once, wherever a server is killed (SPEC 23.2).
func TestOutputsOnce(t *testing.T) {
	f := newFixture(t)
	f.row.Outputs = map[string]Perform{"comment": f.row.comment}
	for kill := range 8 {
		identity := fmt.Sprint("run", kill)
		id := f.ask(identity, 3)
		ctx, die := context.WithCancel(t.Context())
		n := 0
		f.forge.set(func() {
			f.forge.lose = func(string) bool {
				if n++; n == kill {
					die() // the service has done it, and nobody hears of that
					return true
				}
				return false
			}
		})
		f.performDue(ctx)
		die()
		f.forge.set(func() { f.forge.lose = nil })
		f.again()
		f.pass(lease + settleTime)
		f.performDue(t.Context())
		var mine []string
		for _, text := range f.forge.texts() {
			if strings.Contains(text, identity) {
				mine = append(mine, text)
			}
		}
		if len(mine) != 3 || !strings.Contains(mine[0], "text 0") || !strings.Contains(mine[1], "text 1") || !strings.Contains(mine[2], "text 2") {
			t.Errorf("killed at %d: %q", kill, mine)
		}
		all, err := f.store.Outputs.Of(t.Context(), id)
		if err != nil || len(all) != 3 || slices.ContainsFunc(all, func(o store.Output) bool {
			return o.Status != store.OutputDone || !o.DueAt.IsZero() || o.Link() == "" && !strings.Contains(o.Posted, "id")
		}) {
			t.Errorf("killed at %d: %+v, %v", kill, all, err)
		}
	}
}

// TestOutputRefused: what a sender refuses for good needs a person, what comes after it is done, and a
// sender that is down is tried for a day.
func TestOutputRefused(t *testing.T) {
	f := newFixture(t)
	refuse := true
	f.row.Outputs = map[string]Perform{"comment": func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
		if refuse && strings.Contains(w.Body, "text 0") {
			return Posted{}, lookup.Fail("answered 403: no", true)
		}
		return f.row.comment(ctx, c, api, p, w)
	}}
	id := f.ask("refused", 2)
	f.performDue(t.Context())
	all, err := f.store.Outputs.Of(t.Context(), id)
	if err != nil || all[0].Status != store.OutputFailed || all[1].Status != store.OutputDone {
		t.Fatalf("%+v, %v", all, err)
	}
	if failed, err := f.store.Outputs.Failed(t.Context(), "default", f.now().Add(-time.Hour), 9); err != nil || len(failed) != 1 {
		t.Errorf("%+v, %v", failed, err)
	}
	f.row.Outputs["comment"] = func(context.Context, *lookup.Client, lookup.API, Place, *Wanted) (Posted, error) {
		return Posted{}, lookup.Fail("is down", false)
	}
	id = f.ask("down", 1)
	for range 100 {
		f.performDue(t.Context())
		f.pass(30 * time.Minute)
	}
	if all, err = f.store.Outputs.Of(t.Context(), id); err != nil || all[0].Status != store.OutputFailed || !strings.HasPrefix(all[0].Detail, "given up after") {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestReviewMarked: each comment of a review is known as this server's when its own delivery comes, so that it starts
// no run (SPEC 23.4).
func TestReviewMarked(t *testing.T) {
	f := newFixture(t)
	o := store.Output{RunID: f.ask("review", 1), Seq: 1, NewOutput: store.NewOutput{
		Kind: "review", Bounds: "{}", Request: `{"kind":"review","body":"all","comments":[{"path":"a.go","line":3,"body":"@ada: one"},{"path":"b.go","line":4,"body":"two"}]}`,
	}}
	w, err := f.wanted(t.Context(), githubSender, &o)
	f.check(err)
	for _, c := range w.Comments {
		body, _ := json.Marshal(map[string]any{"action": "created", "comment": map[string]string{"body": c.Body}})
		if marker := Marked("github", body)[o.RunID]; !f.store.Outputs.HasMarker(&o, marker) {
			t.Errorf("%q has the marker %q", c.Body, marker)
		}
	}
}

// TestOutputAgain: what arrived although nobody heard of it is found when a person has it done again, also if
// the sender refused the look for it, such as for a credential that has ended (SPEC 26.2).
func TestOutputAgain(t *testing.T) {
	f := newFixture(t)
	f.row.Outputs = map[string]Perform{"comment": f.row.comment}
	id := f.ask("again", 1)
	f.forge.set(func() { f.forge.lose = func(method string) bool { return method == http.MethodPost } })
	f.performDue(t.Context())
	f.forge.set(func() {
		f.forge.lose, f.forge.refuse = nil, func(method string) int { return map[string]int{http.MethodGet: http.StatusUnauthorized}[method] }
	})
	f.pass(lease)
	f.performDue(t.Context())
	if all, err := f.store.Outputs.Of(t.Context(), id); err != nil || all[0].Status != store.OutputFailed {
		t.Fatalf("%+v, %v", all, err)
	}
	f.forge.set(func() { f.forge.refuse = nil })
	f.check(f.store.Outputs.Again(t.Context(), id))
	f.performDue(t.Context())
	all, err := f.store.Outputs.Of(t.Context(), id)
	if texts := f.forge.texts(); err != nil || all[0].Status != store.OutputDone || len(texts) != 1 {
		t.Errorf("%+v, %v, %q", all, err, texts)
	}
}

// TestOutputInPart: a pull request that was opened, and whose labels the sender refuses for good, is there for
// people, with what it lacks.
func TestOutputInPart(t *testing.T) {
	f := newFixture(t)
	f.row.Outputs = map[string]Perform{"comment": func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
		service := httptest.NewServer(&changes{answers: map[string]string{"POST /repos/acme/app/issues/5/labels": `404 {"message":"Not Found"}`}})
		defer service.Close()
		w.Bounds.Labels, w.Head, w.Base = []string{"bot"}, "triphammer/x", "main"
		return githubPull(ctx, c, lookup.API{URL: service.URL, Secret: secret.New("token")}, p, w)
	}}
	id := f.ask("part", 1)
	f.performDue(t.Context())
	all, err := f.store.Outputs.Of(t.Context(), id)
	if err != nil || all[0].Status != store.OutputDone || all[0].Link() != "https://x.example/5" || !strings.Contains(all[0].Detail, "its labels were not set: answered 404") {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestOutputText: what an agent asks to say mentions nobody and begins no line with a command (SPEC 23.4).
func TestOutputText(t *testing.T) {
	w := Wanted{Request: output.Request{Title: "Fix @ada's #12, at last! See !7 and a@b"}, Bounds: output.Bounds{TitlePrefix: "[bot] "}}
	if got, want := w.title(), "[bot] Fix @\u2060ada's #\u206012, at last! See !\u20607 and a@\u2060b"; got != want {
		t.Errorf("the title is %+q, want %+q", got, want)
	}
	said := "/approve\n\n```\n/lgtm\n@bot merge\n```\n\nHello @ada, fixes #1, gh-2 ![x](https://evil.example/x.png)\n\n- /close\n\n> quoted"
	for _, s := range Senders() {
		text := s.Text(Message{State: Said, Run: "run_1", Text: said, Marker: "triphammer:run_0000000000000:0"})
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "/") || strings.HasPrefix(line, "@") {
				t.Errorf("%s: %q begins with a command", s.Provider, line)
			}
		}
		if s.Provider == "github" && !strings.Contains(text, "`gh-2`") {
			t.Errorf("it closes an issue: %s", text)
		}
		if strings.Contains(text, "![") || strings.Contains(text, "<img") || strings.Contains(text, "succeeded") || !strings.Contains(text, "Hello") || !strings.Contains(text, "run") {
			t.Errorf("%s: %s", s.Provider, text)
		}
	}
}
