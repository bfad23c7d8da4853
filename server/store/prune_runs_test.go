package store

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestPruneRuns: what is old and has ended goes with all that belongs to it; what
// has not ended stays, however old (SPEC 9.1).
func TestPruneRuns(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	count := func(table string) (n int) {
		t.Helper()
		check(t, s.Read.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n))
		return n
	}
	check(t, s.Notices.KeepEnds(t.Context(), true))
	hash, data := spec("web", "", "", "shared")
	var leases []Lease
	for i := range 6 {
		r := NewRun{Factory: "default", Source: SourceAPI, Spec: fmt.Appendf(nil, `{"n":%d}`, i), Metadata: map[string]string{"a": "b"}, Search: []string{"fix it"}}
		r.SpecHash = sha256.Sum256(r.Spec)
		if i < 2 {
			r.SpecHash, r.Spec = hash, data
		}
		_, _, err := s.Runs.Create(ctx, r, "", nil)
		check(t, err)
	}
	leases = must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 5, Lease: time.Minute})) // the sixth stays queued
	for i, l := range leases {
		var events []Event
		for seq := range int64(3000 + i) { // more than one chunk
			events = append(events, Event{Seq: seq + 1, At: s.at, Kind: "output", Data: json.RawMessage("{}")})
		}
		check(t, s.Transcripts.Append(ctx, l, events))
	}
	check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
	check(t, s.Leases.Finish(ctx, leases[2], FailedRun, "", nil))
	s.at = s.at.Add(50 * time.Hour)
	check(t, s.Leases.Finish(ctx, leases[1], Cancelled, "", nil))
	check(t, s.Leases.Finish(ctx, leases[3], Succeeded, "", nil))
	automated := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a"))).RunIDs[0]
	must[*Run](t)(s.Runs.Stop(ctx, automated, StopCancel, ""))
	s.at = s.at.Add(time.Hour)

	if runs, transcripts, err := s.Runs.Prune(ctx, RunRetention{}); err != nil || runs+transcripts != 0 {
		t.Errorf("kept for good: %d %d %v", runs, transcripts, err)
	}
	runs, transcripts, err := s.Runs.Prune(ctx, RunRetention{Runs: 48 * time.Hour, Transcripts: 30 * time.Minute})
	if err != nil || runs != 2 || transcripts != 2 {
		t.Errorf("%d runs and %d transcripts, %v", runs, transcripts, err)
	}
	left := must[[]*Run](t)(s.Runs.List(ctx, RunQuery{Ascending: true}))
	var states []RunState
	for _, r := range left {
		states = append(states, r.State)
	}
	if got := fmt.Sprint(states); got != "[CANCELLED SUCCEEDED INPROGRESS QUEUED CANCELLED]" {
		t.Errorf("left: %s", got)
	}
	// Of what is left one run has its transcript, four made by the API have words.
	for table, want := range map[string]int{"run_events": 3004, "run_metadata": 4, "run_words": 8, "notices": 3} {
		if got := count(table); got != want {
			t.Errorf("%s has %d rows, not %d", table, got, want)
		}
	}
	if _, err := s.Specs.Get(ctx, hash); err != nil {
		t.Errorf("a spec that is in use is gone: %v", err)
	}
	if _, err := s.Specs.Get(ctx, sha256.Sum256([]byte(`{"n":2}`))); err == nil {
		t.Error("a spec that nothing uses is left")
	}
	if runs, _, err := s.Runs.Prune(ctx, RunRetention{Runs: time.Minute}); err != nil || runs != 3 {
		t.Errorf("%d runs, %v", runs, err)
	}
	if _, err := s.Specs.Get(ctx, hash); err == nil {
		t.Error("the shared spec is left")
	}
	// The one in progress goes on.
	check(t, s.Transcripts.Append(ctx, leases[4], []Event{{Seq: 4000, At: s.at, Kind: "output", Data: json.RawMessage("{}")}}))
	check(t, s.Leases.Finish(ctx, leases[4], Succeeded, "", nil))
}

// TestPruneWaiting: a run stays as long as something of it waits for a person, and until that has left (SPEC 26.1).
func TestPruneWaiting(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	d := delivery("1", "{}", "a")
	d.Runs[0].Outputs = &OutputPlace{WebhookUID: "w", Provider: "github", Place: "{}", Waits: 720 * time.Hour}
	must[Recorded](t)(f.Deliveries.Record(ctx, d))
	l := f.claimed(t)[0]
	check(t, f.Leases.Finish(ctx, l, Succeeded, "", nil, NewOutput{Kind: "close", Request: `{"kind":"close"}`, Bounds: "{}"}))
	f.at = f.at.Add(200 * time.Hour)
	pruned := func(want int64) {
		t.Helper()
		if runs, _, err := f.Runs.Prune(ctx, RunRetention{Runs: 48 * time.Hour}); err != nil || runs != want {
			t.Errorf("%d runs were deleted, %v", runs, err)
		}
	}
	pruned(0)
	check(t, f.decide(t, Decision{Run: l.RunID, Approve: true, Shown: ShownOf(f.approvals(t, l.RunID)...)}))
	pruned(0)
	o := must[[]Output](t)(f.Outputs.Of(ctx, l.RunID))[0]
	o.Status, o.DueAt = OutputDone, time.Time{}
	check(t, f.Outputs.Save(ctx, o))
	pruned(1)
}
