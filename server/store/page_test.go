package store

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/terms"
)

// TestEventPage: parts of a transcript, by number and by kind, from either end, without
// reading the rest of it.
func TestEventPage(t *testing.T) {
	s := open(t)
	r, _, err := s.Runs.Create(t.Context(), NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}")}, "", nil)
	check(t, err)
	lease := must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	kinds := []string{"output", "message", "output", "command", "output", "message"}
	var events []Event
	for i, kind := range kinds {
		events = append(events, Event{Seq: int64(i + 1), At: s.at, Kind: kind, Data: json.RawMessage(`{}`)})
	}
	check(t, s.Transcripts.Append(t.Context(), lease, events))
	for _, c := range []struct {
		page EventPage
		want string
	}{
		{EventPage{Limit: 10}, "[1 2 3 4 5 6]"},
		{EventPage{Limit: 2}, "[1 2]"},
		{EventPage{Limit: 2, Newest: true}, "[5 6]"},
		{EventPage{Limit: 2, Newest: true, Before: 5}, "[3 4]"},
		{EventPage{Limit: 2, After: 3}, "[4 5]"},
		{EventPage{Limit: 9, Kinds: []string{"message"}}, "[2 6]"},
		{EventPage{Limit: 9, Kinds: []string{"message", "command"}, After: 2, Before: 6}, "[4]"},
		{EventPage{Limit: 1, Kinds: []string{"message", "command"}, Newest: true}, "[6]"},
		{EventPage{Limit: 9, Kinds: []string{"none"}}, "[]"},
	} {
		got := []int64{}
		for _, e := range must[[]Event](t)(s.Transcripts.Page(t.Context(), r.ID, c.page)) {
			got = append(got, e.Seq)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: %v, not %s", c.page, got, c.want)
		}
	}
	counts := must[map[string]int64](t)(s.Transcripts.Counts(t.Context(), r.ID))
	if want := map[string]int64{"output": 3, "message": 2, "command": 1}; !reflect.DeepEqual(counts, want) {
		t.Errorf("%v, not %v", counts, want)
	}
}

// TestCountRuns: the counts are those that a comparison of every run gives.
func TestCountRuns(t *testing.T) {
	l := &listed{fixture: open(t), meta: map[RunID]map[string]string{}, text: map[RunID]string{}, rand: rand.New(rand.NewPCG(3, 4))}
	for range 200 {
		l.add(t)
		l.move(t)
	}
	l.refresh(t)
	known := 0
	for range 300 {
		q := l.query()
		counts, ok, err := l.Runs.Count(t.Context(), q)
		check(t, err)
		if !ok {
			continue
		}
		known++
		since, want := engine.IDAt(q.CreatedAfter), make(map[RunState]int64)
		q.CreatedAfter = time.Time{}
		for _, r := range l.runs {
			if l.wants(q, r) && int64(r.ID) >= since {
				want[r.State]++
			}
		}
		for _, state := range terms.RunStates {
			_, counted := counts[state]
			if counts[state] != want[state] || counted && len(q.States) > 0 && !slices.Contains(q.States, state) {
				t.Fatalf("%+v: %v, not %v", q, counts, want)
			}
		}
	}
	if known < 50 {
		t.Errorf("only %d of the queries were counted", known)
	}
}
