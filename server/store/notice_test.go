package store

import (
	"fmt"
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// TestNoticesOfBefore: what a server that told the ends of runs alone left in the
// store is told and listed by the next one.
func TestNoticesOfBefore(t *testing.T) {
	storetest.SQLite(t)
	s := open(t).from(t, 9, "INSERT INTO notices VALUES (1234567, 5, 2, 'pending', 'answered 500', 4), (1234568, 0, 1, 'delivered', 'answered 200', 4)")
	waiting := must[[]Notice](t)(s.Notices.Next(t.Context(), RunNotices, false, 10))
	listed := must[[]Notice](t)(s.Notices.List(t.Context(), 0, 10))
	if len(waiting) != 1 || len(listed) != 2 || fmt.Sprint(listed[1]) != fmt.Sprint(waiting[0]) {
		t.Fatalf("waiting %+v of %+v", waiting, listed)
	}
	if n := waiting[0]; n.RunID != RunID(1234567) || n.Attempts != 2 || n.Detail != "answered 500" {
		t.Errorf("%+v", n)
	}
}

// TestOutboxIsBounded: of each recipient but that of runs the newest notices are
// kept; a notice about the same subject replaces the one before.
func TestOutboxIsBounded(t *testing.T) {
	s := open(t)
	dropped := int64(0)
	for i := range maxNotices + 3 {
		n := must[int64](t)(s.Notices.Add(t.Context(), Notice{Recipient: "r", Subject: fmt.Sprint(i)}))
		dropped += n
	}
	again := must[int64](t)(s.Notices.Add(t.Context(), Notice{Recipient: "r", Subject: "50", Body: []byte("new")}))
	other := must[int64](t)(s.Notices.Add(t.Context(), Notice{Recipient: "another", Subject: "50"}))
	if dropped != 3 || again != 0 || other != 0 {
		t.Errorf("dropped %d, %d, %d", dropped, again, other)
	}
	waiting := must[[]Notice](t)(s.Notices.Next(t.Context(), "r", true, maxNotices+1))
	if len(waiting) != maxNotices || waiting[0].Subject != "3" || string(waiting[maxNotices-1].Body) != "new" {
		t.Errorf("%d wait, from %+v", len(waiting), waiting[0])
	}
}

// TestNoticesOfOthers: the end of a run leaves a notice whichever process ends it, also after
// a restart, and none when nobody is told any more (SPEC 12.5).
func TestNoticesOfOthers(t *testing.T) {
	s := open(t)
	end := func(of *Store) int {
		t.Helper()
		s.asked(t, NewRun{})
		lease := must[[]Lease](t)(of.Leases.Claim(t.Context(), Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
		check(t, of.Leases.Finish(t.Context(), lease, Succeeded, "", nil))
		return len(must[[]Notice](t)(s.Notices.List(t.Context(), 0, 10)))
	}
	if n := end(s.Store); n != 0 {
		t.Errorf("nobody is told, and there are %d notices", n)
	}
	check(t, s.Notices.KeepEnds(t.Context(), true))
	if n := end(s.Store); n != 1 {
		t.Errorf("%d notices", n)
	}
	s.reopen(t)
	if n := end(s.Store); n != 2 {
		t.Errorf("after a restart: %d notices", n)
	}
	told := 2
	if s.Shared() {
		worker := must[*Store](t)(Open(t.Context(), s.cfg))
		defer func() { check(t, worker.Close()) }()
		if n := end(worker); n != 3 {
			t.Errorf("of a run that another process has ended: %d notices", n)
		}
		told = 3
	}
	check(t, s.Notices.KeepEnds(t.Context(), false))
	if n := end(s.Store); n != told {
		t.Errorf("nobody is told any more, and there are %d notices", n)
	}
}
