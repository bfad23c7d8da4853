package server

import (
	"crypto/sha256"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// about makes all deliveries that have come about a subject.
func (f *fixture) about(subject string) {
	f.t.Helper()
	f.store.Subjects.Forget()
	if err := f.store.Subjects.Index(f.t.Context(), func(*store.Delivery, []byte) ([]string, store.PullState, bool) {
		return []string{subject}, store.PullState{}, false
	}); err != nil {
		f.t.Fatal(err)
	}
}

// TestSubjects: what deliveries and runs are about is listed, and everything about one subject is
// together, whatever characters its name has (SPEC 21.2).
func TestSubjects(t *testing.T) {
	f := newFixture(t)
	key := f.key("k", "read")
	name := `web:a/b#12?x=1&y=%2F ..//ü"<b>`
	post := func(body, subject string) string {
		t.Helper()
		id := field(t, f.do("POST", ingress+f.uids()["hook"], hookSecret, body), "delivery_id")
		f.about(subject)
		return id
	}
	first := post(`{"n":1}`, name)
	post(`{"n":3}`, "web:other")
	second := post(`{"n":2}`, name)

	read := func(path string, into any) {
		t.Helper()
		got := f.get(path, key)
		if got.status != 200 {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
		if err := json.Unmarshal(got.body, into); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	cursor := ""
	for {
		var page api.List[api.Subject]
		read("/api/v1/subjects?limit=1&cursor="+cursor, &page)
		for _, s := range page.Entries {
			seen = append(seen, s.Subject)
		}
		if cursor = page.PageInfo.NextCursor; cursor == "" {
			break
		}
	}
	if want := []string{name, "web:other"}; !slices.Equal(seen, want) {
		t.Errorf("listed %q, not %q", seen, want)
	}
	var found api.List[api.Subject]
	if read("/api/v1/subjects?text=OTHER", &found); len(found.Entries) != 1 || found.Entries[0].Deliveries != 1 {
		t.Errorf("found %+v", found.Entries)
	}

	if read("/api/v1/subjects?about=true", &found); found.Entries[0].Newest == nil || found.Entries[0].Newest.ID != second {
		t.Errorf("the newest delivery of the first is %+v", found.Entries[0].Newest)
	}

	var story api.SubjectStory
	read("/api/v1/subjects/story?subject="+url.QueryEscape(name), &story)
	if len(story.Factories) != 1 || story.Factories[0].Deliveries != 2 || story.Factories[0].Runs != 1 || story.Truncated || len(story.Story) != 3 {
		t.Fatalf("the story is %+v", story)
	}
	// The first delivery has started a run, which has no subject of its own.
	began, started, later := story.Story[0].Delivery, story.Story[1].Run, story.Story[2].Delivery
	if began == nil || began.ID != first || !slices.Equal(began.Subjects, []string{name}) || later == nil || later.ID != second ||
		started == nil || started.DeliveryID != first || started.Subject != name || len(started.Belt) == 0 {
		t.Fatalf("the story is %+v", story.Story)
	}
	var runs api.List[api.Run]
	if read("/api/v1/agent/runs?subject="+url.QueryEscape(name), &runs); len(runs.Entries) != 1 || runs.Entries[0].Subject != name {
		t.Errorf("the runs about it: %+v", runs.Entries)
	}
	var log api.List[api.Delivery]
	if read("/api/v1/deliveries?subject="+url.QueryEscape(name)+"&webhook=hook", &log); len(log.Entries) != 2 {
		t.Errorf("%d deliveries about it", len(log.Entries))
	}
	if read("/api/v1/deliveries?subject=web:nothing", &log); len(log.Entries) != 0 {
		t.Errorf("%d deliveries about nothing", len(log.Entries))
	}

	other := f.limitedKey("other", "elsewhere", "read")
	for path, want := range map[string]string{
		"/api/v1/subjects/story": "subject is needed", "/api/v1/subjects/story?subject=web:nothing": "nothing that is kept is about",
		"/api/v1/subjects?cursor=x": "next_cursor", "/api/v1/subjects?since=soon": "RFC 3339", "/api/v1/subjects?text=" + strings.Repeat("x", maxText+1): "at most",
	} {
		if got := f.get(path, key); got.status < 400 || got.status >= 500 || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := f.get("/api/v1/subjects/story?subject=web:other", other); got.status != 404 {
		t.Errorf("with another's key: %d %s", got.status, got.body)
	}
	if got := f.get("/api/v1/subjects", other); string(got.body) != `{"page_info":{"has_next_page":false},"subjects":[]}` {
		t.Errorf("with another's key: %s", got.body)
	}
	if got := f.get("/api/v1/subjects?factory=default", other); got.status != 403 {
		t.Errorf("another factory: %d", got.status)
	}

	// The pages.
	reader := f.reader("viewer")
	at := "?subject=" + url.QueryEscape(name)
	reader.shows("/subjects", 200, name, "web:other")
	reader.shows("/subjects?text=OTHER", 200, "web:other")
	reader.shows("/subjects?text=nothing", 200, "No subject fits this text.")
	reader.shows("/subjects/story"+at, 200, name, "2 deliveries and 1 run", "at work or waiting", "A delivery to hook", "waits", "About it first")
	reader.shows("/subjects/story?subject=web:nothing", 404)
	reader.shows("/deliveries"+at, 200, name)
	reader.shows("/deliveries/"+first, 200, "About "+name)
	reader.shows("/runs"+at, 200, name)
	reader.shows("/runs/"+started.RunID, 200, name)
	reader.shows("/runs?subject=web:nothing", 200, "No run fits these filters.")
}

// TestStoryAnswers: the story of a subject has what was told of its runs, and says first what needs a
// person (SPEC 21.2, 22.5).
func TestStoryAnswers(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	answer := func(kind string) store.NewAnswer {
		return store.NewAnswer{Kind: kind, WebhookUID: "whk_1", Provider: "github", Place: `{"container":"acme/app","thread":"7","commit":"a1b2","link":"javascript:alert(1)"}`, PlaceKey: kind, Next: store.AnswerStart, Status: store.AnswerPending}
	}
	made, err := f.store.Deliveries.Record(ctx, &store.NewDelivery{Payload: []byte("{}"), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: f.uids()["hook"], Outcome: store.Accepted, ReceivedAt: time.Now(), Identity: store.Identity{Source: store.IdentitySender, Value: "1"},
	}, Runs: []store.NewRun{{Factory: "default", Automation: "a", Title: "a", Source: store.SourceWebhook, Spec: []byte("{}"), SpecHash: sha256.Sum256([]byte("{}")), Subject: "web:7", Answers: []store.NewAnswer{answer(store.AnswerThread), answer(store.AnswerCheck)}}}})
	if err != nil {
		t.Fatal(err)
	}
	given, err := f.store.Answers.Of(ctx, made.RunIDs[0])
	if err != nil {
		t.Fatal(err)
	}
	given[0].Status, given[0].Posted, given[0].Next = store.AnswerDelivered, `{"id":"5","link":"https://github.com/acme/app/commit/a1b2"}`, ""
	given[1].Status, given[1].Detail = store.AnswerFailed, "answered 403: <b>no</b>"
	for _, a := range given {
		a.DueAt = time.Time{}
		if err := f.store.Answers.Save(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	f.about("web:7")
	var story api.SubjectStory
	if got := f.get("/api/v1/subjects/story?subject=web:7", f.key("k", "read")); json.Unmarshal(got.body, &story) != nil || len(story.Story) != 4 {
		t.Fatalf("%s", got.body)
	}
	check, thread := story.Story[2].Answer, story.Story[3].Answer
	if check == nil || check.Status != "delivered" || check.Place != "acme/app@a1b2" || check.Link != "https://github.com/acme/app/commit/a1b2" || check.Text != "" ||
		thread == nil || thread.Status != "failed" || thread.Place != "javascript:alert(1)" || !strings.Contains(thread.Detail, "needs a person: answered 403") {
		t.Errorf("%+v %+v", check, thread)
	}
	var run api.Run
	if got := f.get("/api/v1/agent/runs/"+made.RunIDs[0].String(), f.key("r", "read")); json.Unmarshal(got.body, &run) != nil || run.Detail == nil || len(run.Detail.Answers) != 2 || !strings.Contains(run.Detail.Answers[1].Text, "**a** waits") {
		t.Errorf("%s", got.body)
	}
	reader := f.reader("viewer")
	reader.shows("/subjects/story?subject=web:7", 200, "Needs a person", "An answer of a : it could not be told, and needs a person: answered 403: <b>no</b>", "Check of a Told github.com/acme/app/commit/a1b2", "Answer of a Needs a person javascript:alert(1)")
}
