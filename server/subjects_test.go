package server

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/store"
)

// about makes all deliveries that have come about a subject.
func (f *fixture) about(subject string) {
	f.t.Helper()
	f.store.Subjects.Forget()
	if err := f.store.Subjects.Index(f.t.Context(), func(*store.Delivery, []byte) []string { return []string{subject} }); err != nil {
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

	var story api.SubjectStory
	read("/api/v1/subjects/story?subject="+url.QueryEscape(name), &story)
	if len(story.Factories) != 1 || story.Factories[0].Deliveries != 2 || story.Truncated || len(story.Deliveries) != 2 ||
		story.Deliveries[0].ID != second || story.Deliveries[1].ID != first || !slices.Equal(story.Deliveries[0].Subjects, []string{name}) {
		t.Errorf("the story is %+v", story)
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
	reader.shows("/subjects?text=nothing", 200, "No subject is like this.")
	reader.shows("/subjects/story"+at, 200, name, "2 deliveries and 0 runs.", "A delivery to hook")
	reader.shows("/subjects/story?subject=web:nothing", 404)
	reader.shows("/deliveries"+at, 200, name)
	reader.shows("/deliveries/"+first, 200, "About "+name)
	reader.shows("/runs"+at, 200, "No run is like that.")
}
