package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// aboutBody says that a delivery is about its body, without the quotes.
func aboutBody(_ *Delivery, body []byte) (about []string, pull PullState, signed bool) {
	if name := strings.Trim(string(body), `"`); name != "{}" {
		about, signed = []string{name}, true
	}
	return about, pull, signed
}

func (f *fixture) subjects(t *testing.T, q SubjectQuery) (shown []string) {
	t.Helper()
	for _, one := range must[[]Subject](t)(f.Subjects.List(t.Context(), q)) {
		shown = append(shown, fmt.Sprintf("%s %dd %dr %da", one.Name, one.Deliveries, one.Runs, one.Active))
	}
	return shown
}

// TestSubjects: what is kept of deliveries and runs is found by what it is about (SPEC 21.2).
func TestSubjects(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	record := func(identity, body string, subjects ...string) Recorded {
		t.Helper()
		f.at = f.at.Add(time.Minute)
		d := delivery(identity, body, subjects...)
		for i := range d.Runs {
			d.Runs[i].Subject = subjects[i]
		}
		return must[Recorded](t)(f.Deliveries.Record(ctx, d))
	}
	is := func(q SubjectQuery, want ...string) {
		t.Helper()
		check(t, f.Subjects.Index(ctx, aboutBody))
		if got := f.subjects(t, q); !slices.Equal(got, want) {
			t.Errorf("%+v: %q, not %q", q, got, want)
		}
	}
	is(SubjectQuery{})
	first := record("1", `"github:acme/app#12"`, "github:acme/app#12")
	record("2", `"github:acme/app#13"`)
	own := record("3", `"github:acme/app#12"`, "web:Pay/9", "github:acme/app#12")
	record("4", `{}`)
	is(SubjectQuery{}, "github:acme/app#12 2d 2r 2a", "web:Pay/9 1d 1r 1a", "github:acme/app#13 1d 0r 0a")
	is(SubjectQuery{Text: "APP#1"}, "github:acme/app#12 2d 2r 2a", "github:acme/app#13 1d 0r 0a")
	is(SubjectQuery{Factory: "other"})
	is(SubjectQuery{Name: "github:acme/app#13"}, "github:acme/app#13 1d 0r 0a")
	is(SubjectQuery{Since: f.at.Add(-90 * time.Second)}, "github:acme/app#12 2d 2r 2a", "web:Pay/9 1d 1r 1a")

	var paged []string
	for q := (SubjectQuery{Limit: 1}); ; {
		page := must[[]Subject](t)(f.Subjects.List(ctx, q))
		if len(page) == 0 {
			break
		}
		paged = append(paged, page[0].Name)
		q.After = SubjectCursor{page[0].Newest, page[0].Name}
	}
	if want := []string{"github:acme/app#12", "web:Pay/9", "github:acme/app#13"}; !slices.Equal(paged, want) {
		t.Errorf("page by page: %q", paged)
	}

	if d := must[*Delivery](t)(f.Deliveries.Get(ctx, own.ID)); !slices.Equal(d.Subjects, []string{"github:acme/app#12", "web:Pay/9"}) {
		t.Errorf("the delivery is about %q", d.Subjects)
	}
	if found := must[[]*Delivery](t)(f.Deliveries.List(ctx, DeliveryQuery{Subject: "github:acme/app#12"})); len(found) != 2 || found[0].ID != own.ID || found[1].ID != first.ID {
		t.Errorf("deliveries about the subject: %v", found)
	}
	runs := func(q RunQuery) (ids []RunID) {
		for _, r := range must[[]*Run](t)(f.Runs.List(ctx, q)) {
			ids = append(ids, r.ID)
		}
		slices.Sort(ids)
		return ids
	}
	both := []RunID{first.RunIDs[0], own.RunIDs[1]}
	for _, search := range []string{"acme/app#12", "ACME/App#1", "github:acme/app", "acme"} {
		if got := runs(RunQuery{Search: search}); !slices.Equal(got, both) {
			t.Errorf("search for %q: %v, not %v", search, got, both)
		}
	}
	// The search finds words too, in any state of the list.
	titled, _, err := f.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}"), Search: []string{"acme app: look"}}, "", nil)
	check(t, err)
	if got := runs(RunQuery{Search: "acme/app"}); !slices.Equal(got, append(slices.Clone(both), titled.ID)) {
		t.Errorf("search for words and a subject: %v", got)
	}
	if got := runs(RunQuery{Search: "pay/9", States: []RunState{Queued}}); !slices.Equal(got, []RunID{own.RunIDs[0]}) {
		t.Errorf("search for a subject of a webhook: %v", got)
	}
	abroad := record("5", `{}`, "azure_devops:Übung/App!7")
	is(SubjectQuery{Text: "Übung/app"}, "azure_devops:Übung/App!7 1d 1r 1a")
	if got := runs(RunQuery{Search: "Übung/APP"}); !slices.Equal(got, abroad.RunIDs) {
		t.Errorf("search for a subject that is not ASCII: %v", got)
	}
	if got := runs(RunQuery{Subject: "github:acme/app#12"}); !slices.Equal(got, both) {
		t.Errorf("runs about the subject: %v", got)
	}
	if got := runs(RunQuery{Subject: "github:acme/app#1"}); len(got) != 0 {
		t.Errorf("runs about another subject: %v", got)
	}
}

// TestSubjectsOfDelivery: a run without a subject of its own is about what its delivery is about,
// whenever it began, and so are its follow-ups (SPEC 21.2).
func TestSubjectsOfDelivery(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	index := func() { t.Helper(); check(t, f.Subjects.Index(ctx, aboutBody)) }
	d := delivery("1", `"github:acme/app#12"`, "own", "plain")
	d.Runs[0].Subject = "web:Pay/9"
	first := must[Recorded](t)(f.Deliveries.Record(ctx, d))
	nothing := must[Recorded](t)(f.Deliveries.Record(ctx, delivery("2", `{}`, "plain")))
	index()
	is := func(want ...RunID) {
		t.Helper()
		for _, subject := range []string{"github:acme/app#12", "web:Pay/9"} {
			var got []RunID
			for _, r := range must[[]*Run](t)(f.Runs.List(ctx, RunQuery{Subject: subject, Ascending: true})) {
				got = append(got, r.ID)
			}
			if subject == "web:Pay/9" { // the run with a subject of its own, too
				got = slices.DeleteFunc(got, func(id RunID) bool { return id == first.RunIDs[0] })
			}
			if !slices.Equal(got, want) {
				t.Errorf("about %s: %v, not %v", subject, got, want)
			}
		}
	}
	is(first.RunIDs[1])

	// Later runs, whose delivery is in the index already.
	again := f.asked(t, NewRun{DeliveryID: first.ID, RetryOf: first.RunIDs[1]})
	followed := f.asked(t, NewRun{Conversation: first.RunIDs[1]})
	index()
	is(first.RunIDs[1], again, followed)
	if got := must[map[RunID][]string](t)(f.Subjects.Of(ctx, followed, nothing.RunIDs[0])); !slices.Equal(got[followed], []string{"github:acme/app#12", "web:Pay/9"}) || got[nothing.RunIDs[0]] != nil {
		t.Errorf("the subjects of runs: %v", got)
	}

	// An index of a version that left such runs out is completed.
	check(t, f.Do(ctx, func(tx *engine.Tx) error {
		return errors.Join(tx.Exec("DELETE FROM meta WHERE name = $1", metaSubjects), tx.SetMeta("subjects up to", fmt.Sprint(int64(followed))),
			tx.Exec("DELETE FROM subjects WHERE id IN ($1, $2)", int64(first.RunIDs[1]), int64(followed)))
	}))
	f.Subjects.Forget()
	index()
	is(first.RunIDs[1], again, followed)
	if want := []string{"github:acme/app#12 1d 3r 3a", "web:Pay/9 1d 4r 4a"}; !slices.Equal(slices.Sorted(slices.Values(f.subjects(t, SubjectQuery{}))), want) {
		t.Errorf("%q", f.subjects(t, SubjectQuery{}))
	}
}

// TestSubjectsRestart: the index goes on after a restart, and takes what came before it.
func TestSubjectsRestart(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	for i := range 2*subjectsPage + 7 {
		d := delivery(fmt.Sprint(i), fmt.Sprintf(`"x:%d"`, i%3), "a", "b")
		d.Runs[0].Subject = "x:run"
		must[Recorded](t)(f.Deliveries.Record(ctx, d))
	}
	asked := 0
	count := func(d *Delivery, body []byte) ([]string, PullState, bool) { asked++; return aboutBody(d, body) }
	check(t, f.Subjects.Index(ctx, count))
	want := []string{"x:run 207d 414r 414a", "x:2 69d 69r 69a", "x:1 69d 69r 69a", "x:0 69d 69r 69a"}
	if got := f.subjects(t, SubjectQuery{}); !slices.Equal(got, want) || asked != 207 {
		t.Errorf("%q, %d deliveries read", got, asked)
	}
	f.Subjects.Forget()
	check(t, f.Subjects.Index(ctx, count))
	if asked != 207 {
		t.Errorf("after a restart, %d deliveries were read", asked)
	}
}

// TestPruneSubjects: what is deleted leaves its subject, and a subject without anything is gone.
func TestPruneSubjects(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	must[ApplyID](t)(f.Applies.Record(ctx, &Apply{Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}}}, nil, nil))
	old := delivery("1", `"x:1"`, "a")
	old.Runs[0].Subject = "x:1"
	run := must[Recorded](t)(f.Deliveries.Record(ctx, old)).RunIDs[0]
	f.at = f.at.Add(time.Hour)
	must[Recorded](t)(f.Deliveries.Record(ctx, delivery("2", `"x:1"`)))
	check(t, f.Subjects.Index(ctx, aboutBody))
	must[*Run](t)(f.Runs.Stop(ctx, run, StopCancel, ""))
	is := func(want ...string) {
		t.Helper()
		if got := f.subjects(t, SubjectQuery{}); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	is("x:1 2d 1r 0a")
	f.at = f.at.Add(2 * time.Hour)
	if n := must[int64](t)(f.Deliveries.Prune(ctx, Retention{Age: time.Hour})); n != 2 {
		t.Fatalf("%d deliveries deleted", n)
	}
	is("x:1 0d 1r 0a") // its newest is the run now
	if _, _, err := f.Runs.Prune(ctx, RunRetention{Runs: time.Hour}); err != nil {
		t.Fatal(err)
	}
	is()
	var left int
	check(t, f.Read.QueryRowContext(context.WithoutCancel(ctx), "SELECT count(*) FROM subjects").Scan(&left))
	if left != 0 {
		t.Errorf("%d rows of the index are left", left)
	}
}
