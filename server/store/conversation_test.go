package store

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/store/storetest"
)

// asked enqueues a run of the API.
func (f *fixture) asked(t testing.TB, r NewRun) RunID {
	t.Helper()
	r.Factory, r.Source, r.CreatorKind, r.CreatorName = "default", SourceAPI, "user", "ada"
	if r.Spec == nil {
		r.Spec = []byte("{}")
	}
	r.SpecHash = sha256.Sum256(r.Spec)
	made, _, err := f.Runs.Create(t.Context(), r, "", nil)
	check(t, err)
	return made.ID
}

// claimed are the leases that a worker gets now.
func (f *fixture) claimed(t testing.TB) []Lease {
	t.Helper()
	return must[[]Lease](t)(f.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 100, Lease: time.Minute}))
}

func idsOf(leases []Lease) (ids []RunID) {
	for _, l := range leases {
		ids = append(ids, l.RunID)
	}
	return ids
}

// TestConversation: the runs of a conversation execute one at a time and in their order,
// whatever ends them, and with the newest session (SPEC 15.5).
func TestConversation(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	first := s.asked(t, NewRun{})
	state := func(id RunID) string {
		r := must[*Run](t)(s.Runs.Get(ctx, id))
		return strings.TrimSpace(string(r.State) + " " + r.StatusMessage)
	}
	follow := func() RunID { return s.asked(t, NewRun{Conversation: first, EndedAfter: s.at.Add(-time.Hour)}) }
	second, third, fourth := follow(), follow(), follow()
	if got, want := state(third), "QUEUED waits for "+second.String()+", which is before it in the conversation"; got != want {
		t.Errorf("the third run is %s; want %s", got, want)
	}
	leases := s.claimed(t)
	if got := idsOf(leases); !slices.Equal(got, []RunID{first}) {
		t.Fatalf("claimed %v", got)
	}
	check(t, s.Conversations.SetSession(ctx, leases[0], Session{"claude", "s1"}))
	must[*Run](t)(s.Runs.Stop(ctx, second, StopCancel, "")) // it leaves the conversation, and nobody overtakes the first
	if got := s.claimed(t); len(got) != 0 {
		t.Fatalf("claimed %v while the first run is in progress", got)
	}
	check(t, s.Leases.Finish(ctx, leases[0], FailedRun, "no", nil))
	leases = s.claimed(t)
	if got := idsOf(leases); !slices.Equal(got, []RunID{third}) || state(third) != "INPROGRESS" {
		t.Fatalf("claimed %v, and the third run is %s", got, state(third))
	}
	check(t, s.Conversations.SetSession(ctx, leases[0], Session{"claude", "s2"}))
	must[[]RunID](t)(s.Leases.Reap(ctx, true, "the server died"))
	leases = s.claimed(t)
	if got := idsOf(leases); !slices.Equal(got, []RunID{fourth}) {
		t.Fatalf("claimed %v after the server had died", got)
	}
	check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
	c := must[*Conversation](t)(s.Conversations.Get(ctx, third))
	var ids []RunID
	for _, r := range c.Runs {
		ids = append(ids, r.ID)
		if r.ConversationID != first {
			t.Errorf("%s is of the conversation %s", r.ID, r.ConversationID)
		}
	}
	if c.ID != first || *c.Session != (Session{"claude", "s2"}) || !slices.Equal(ids, []RunID{first, second, third, fourth}) {
		t.Errorf("conversation %+v of %v", c, ids)
	}
	// A conversation that is ended cannot be joined, and one that goes on cannot be ended.
	end := must[*Run](t)(s.Runs.Get(ctx, fourth)).FinishedAt
	for _, at := range []time.Time{end.Add(-time.Second), {}} {
		if must[bool](t)(s.Conversations.End(ctx, first, at)) {
			t.Error("a conversation was ended although a run has ended since")
		}
	}
	other := s.asked(t, NewRun{})
	l := s.claimed(t)[0]
	check(t, s.Conversations.SetSession(ctx, l, Session{"claude", "o1"}))
	if must[bool](t)(s.Conversations.End(ctx, other, end.Add(time.Hour))) {
		t.Error("a conversation was ended with a run in progress")
	}
	check(t, s.Leases.Finish(ctx, l, Succeeded, "", nil))
	joins := NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}"), Conversation: other}
	if !must[bool](t)(s.Conversations.End(ctx, other, must[*Run](t)(s.Runs.Get(ctx, other)).FinishedAt)) {
		t.Error("a conversation was not ended")
	}
	if _, _, err := s.Runs.Create(ctx, joins, "", nil); !errors.Is(err, ErrNoSession) {
		t.Errorf("a run joins a conversation that is ended: %v", err)
	}
	// The session goes with the conversation.
	s.at = s.at.Add(2 * time.Hour)
	fifth := NewRun{Factory: "default", Source: SourceAPI, Spec: []byte("{}"), Conversation: first, EndedAfter: s.at.Add(-time.Hour)}
	if _, _, err := s.Runs.Create(ctx, fifth, "", nil); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), fourth.String()) {
		t.Errorf("after the conversation has expired: %v", err)
	}
	lone := s.asked(t, NewRun{})
	check(t, s.Leases.Finish(ctx, s.claimed(t)[0], Succeeded, "", nil))
	fifth.Conversation = lone
	if _, _, err := s.Runs.Create(ctx, fifth, "", nil); !errors.Is(err, ErrNoSession) {
		t.Errorf("without a session: %v", err)
	}
	if all := must[[]*Run](t)(s.Runs.List(ctx, RunQuery{})); len(all) != 6 {
		t.Errorf("refused runs are kept: %d", len(all))
	}
}

// TestRetry: a run that fails waits for its next attempt as long as its spec says, the
// delay doubles, and nothing else is tried again (SPEC 9.6).
func TestRetry(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	spec := func(attempts int) []byte {
		return fmt.Appendf(nil, `{"retry":{"attempts":%d,"delay_ns":%d}}`, attempts, time.Minute)
	}
	id := s.asked(t, NewRun{Spec: spec(3)})
	for attempt, delay := range []time.Duration{time.Minute, 2 * time.Minute} {
		leases := s.claimed(t)
		if len(leases) != 1 {
			t.Fatalf("attempt %d: claimed %v", attempt+1, leases)
		}
		next, err := s.Leases.Fail(ctx, leases[0], "exit status 1", nil)
		if err != nil || !next.Equal(s.at.Add(delay)) {
			t.Errorf("after attempt %d the next one is not before %v, %v", attempt+1, next.Sub(s.at), err)
		}
		r := must[*Run](t)(s.Runs.Get(ctx, id))
		if r.State != Queued || r.Attempt != int64(attempt+1) || !r.RunAt.Equal(next) || r.StatusMessage != fmt.Sprintf("attempt %d of 3 failed: exit status 1", attempt+1) {
			t.Errorf("after attempt %d: %+v", attempt+1, r)
		}
		if counts := must[map[RunState]int64](t)(s.Runs.Counts(ctx)); counts[Queued] != 1 || counts[InProgress] != 0 {
			t.Errorf("counted %v", counts)
		}
		if listed := must[[]*Run](t)(s.Runs.List(ctx, RunQuery{States: []RunState{Queued}})); len(listed) != 1 {
			t.Errorf("the list of queued runs has %d", len(listed))
		}
		if _, err := s.Leases.Fail(ctx, leases[0], "twice", nil); !errors.Is(err, ErrFenced) {
			t.Errorf("the worker of an attempt that has ended: %v", err)
		}
		s.at = next.Add(-time.Second)
		if early := s.claimed(t); len(early) != 0 {
			t.Errorf("claimed %v before its time", early)
		}
		if wait := must[time.Duration](t)(s.Runs.LongestWait(ctx)); wait != 0 {
			t.Errorf("before its time it waits for %v", wait)
		}
		s.at = next.Add(5 * time.Second)
		if wait := must[time.Duration](t)(s.Runs.LongestWait(ctx)); wait != 5*time.Second {
			t.Errorf("5 s after its time it waits for %v", wait)
		}
	}
	lease := s.claimed(t)[0]
	if next, err := s.Leases.Fail(ctx, lease, "exit status 1", nil); err != nil || !next.IsZero() {
		t.Errorf("after the last attempt: %v %v", next, err)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, id)); r.State != FailedRun || r.Attempt != 3 || r.StatusMessage != "exit status 1" {
		t.Errorf("after the last attempt: %+v", r)
	}

	cancelled, lost, once := s.asked(t, NewRun{Spec: spec(2)}), s.asked(t, NewRun{Spec: spec(2)}), s.asked(t, NewRun{})
	leases := s.claimed(t)
	must[*Run](t)(s.Runs.Stop(ctx, cancelled, StopInterrupt, ""))
	must[time.Time](t)(s.Leases.Fail(ctx, leases[0], "x", nil))
	must[[]RunID](t)(s.Leases.Reap(ctx, true, "the server died"))
	for id, want := range map[RunID]RunState{cancelled: FailedRun, lost: Queued, once: FailedRun} {
		if r := must[*Run](t)(s.Runs.Get(ctx, id)); r.State != want {
			t.Errorf("%s: %s", r.State, r.StatusMessage)
		}
	}
	if r := must[*Run](t)(s.Runs.Stop(ctx, lost, StopCancel, "")); r.State != Cancelled {
		t.Errorf("a run that waits for an attempt, when it is cancelled: %s", r.State)
	}
	s.at = s.at.Add(time.Hour)
	if late := s.claimed(t); len(late) != 0 {
		t.Errorf("claimed %v", late)
	}
}

// TestRetryDelay: delays double up to a day, and never overflow.
func TestRetryDelay(t *testing.T) {
	for attempt, want := range map[int64]time.Duration{1: time.Second, 4: 8 * time.Second, 60: maxDelay, 1 << 40: maxDelay} {
		if got := (Retry{Delay: time.Second}).after(attempt); got != want {
			t.Errorf("after attempt %d: %v", attempt, got)
		}
	}
	if got := (Retry{}).after(5); got != 0 {
		t.Errorf("without a delay: %v", got)
	}
}

// TestPriority: a run of a higher priority starts first, and one of a lower priority last.
func TestPriority(t *testing.T) {
	s := open(t)
	d := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}", "a", "b")))
	low, high, person := s.asked(t, NewRun{Priority: -3}), s.asked(t, NewRun{Priority: 10}), s.asked(t, NewRun{Priority: 1})
	var order []RunID
	for range 5 {
		order = append(order, must[[]Lease](t)(s.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0].RunID)
	}
	if want := []RunID{high, person, d.RunIDs[0], d.RunIDs[1], low}; !slices.Equal(order, want) {
		t.Errorf("started %v, want %v", order, want)
	}
}

// TestClaimWalksIndexes: whatever waits, a claim reads only the first runs of each group.
func TestClaimWalksIndexes(t *testing.T) {
	storetest.SQLite(t)
	s := open(t)
	for query, index := range map[string]string{headQueued: "runs_queue (group_id>?", headHeld: "runs_held (group_id>?"} {
		rows, err := s.Read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, 0)
		check(t, err)
		plan := strings.Join(must[[]string](t)(engine.ScanAll(rows, func(rows *sql.Rows) (detail string, err error) {
			err = rows.Scan(new(int), new(int), new(int), &detail)
			return detail, err
		})), "; ")
		if !strings.Contains(plan, index) || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN") {
			t.Errorf("%s is found by %s", query, plan)
		}
	}
}
