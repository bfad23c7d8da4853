package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

// TestIDs: ids and their text rise strictly, whatever the clock does, also over
// a restart.
func TestIDs(t *testing.T) {
	s := open(t)
	last, lastText := DeliveryID(0), ""
	for round := range 4 {
		check(t, s.Do(t.Context(), func(tx *engine.Tx) error {
			for i := range 5000 {
				id := DeliveryID(tx.NextID())
				text := id.String()
				if id <= last || text <= lastText {
					return fmt.Errorf("round %d: %s (%d) after %s (%d)", round, text, id, lastText, last)
				}
				if back, err := ParseID[Delivery](text); back != id || err != nil {
					return fmt.Errorf("%s is read as %d: %w", text, back, err)
				}
				last, lastText = id, text
				s.at = s.at.Add(time.Duration(i%3-1) * time.Second)
			}
			return nil
		}))
		s.at = s.at.Add(-time.Hour)
	}
	recorded := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("1", "{}")))
	s.at = s.at.Add(-24 * time.Hour)
	s.reopen(t)
	if next := must[Recorded](t)(s.Deliveries.Record(t.Context(), delivery("2", "{}"))); next.ID <= recorded.ID {
		t.Errorf("%s after %s and a restart", next.ID, recorded.ID)
	}
}

// TestIDKinds: an id is read as one of its own kind alone, and shown as text in logs
// and JSON; none is empty.
func TestIDKinds(t *testing.T) {
	shown, err := json.Marshal([]any{DeliveryID(1), RunID(1), ApplyID(1), KeyID(1), AuditID(1), ScheduleID(1), PendingID(1), RunID(0)})
	const want = `["dlv_0000000000001","run_0000000000001","apl_0000000000001","key_0000000000001","aud_0000000000001","sch_0000000000001","psc_0000000000001",""]`
	if err != nil || string(shown) != want {
		t.Errorf("%s, %v; want %s", shown, err, want)
	}
	if id, err := ParseID[Run](DeliveryID(1).String()); id != 0 || !errors.Is(err, ErrNotFound) {
		t.Errorf("a delivery is the run %d, %v", id, err)
	}
	if id, err := ParseID[Run](""); id != 0 || err != nil {
		t.Errorf("none is %d, %v", id, err)
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "dlv_", "dlv_0000000000000", "dlv_0000000000001", "dlv_7zzzzzzzzzzzz", "dlv_8000000000000", "run_0000000000001", "dlv_000000000000i"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID[Delivery](s)
		switch {
		case err == nil && (id < 0 || id.String() != s):
			t.Errorf("%q is read as %d, which is %q", s, id, id)
		case err != nil && !errors.Is(err, ErrNotFound):
			t.Errorf("%q: %v", s, err)
		case err != nil && id != 0:
			t.Errorf("%q: an error and %d", s, id)
		case err == nil && s != "" && !strings.HasPrefix(s, "dlv_"):
			t.Errorf("%q is taken", s)
		}
	})
}

// TestIDAtTheEnds: times before the first id and after the last one order as they
// should.
func TestIDAtTheEnds(t *testing.T) {
	now := engine.IDAt(time.Now())
	if first := engine.IDAt(time.Unix(0, 0)); first != 0 || now <= first {
		t.Errorf("1970: %d", first)
	}
	if last := engine.IDAt(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)); last <= now {
		t.Errorf("2099: %d, now %d", last, now)
	}
}
