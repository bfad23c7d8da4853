package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestIDs: ids and their text rise strictly, whatever the clock does, also over
// a restart.
func TestIDs(t *testing.T) {
	s := open(t)
	last, lastText := int64(0), ""
	for round := range 4 {
		check(t, s.do(t.Context(), func(context.Context) error {
			for i := range 5000 {
				id := s.nextID()
				text := formatID(prefixDelivery, id)
				if id <= last || text <= lastText {
					return fmt.Errorf("round %d: %s (%d) after %s (%d)", round, text, id, lastText, last)
				}
				if back, err := parseID(prefixDelivery, text); back != id || err != nil {
					return fmt.Errorf("%s is read as %d: %w", text, back, err)
				}
				last, lastText = id, text
				s.at = s.at.Add(time.Duration(i%3-1) * time.Second)
			}
			return nil
		}))
		s.at = s.at.Add(-time.Hour)
	}
	recorded := must[Recorded](t)(s.RecordDelivery(t.Context(), delivery("1", "{}")))
	s.at = s.at.Add(-24 * time.Hour)
	s.reopen(t)
	if next := must[Recorded](t)(s.RecordDelivery(t.Context(), delivery("2", "{}"))); next.ID <= recorded.ID {
		t.Errorf("%s after %s and a restart", next.ID, recorded.ID)
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "dlv_", "dlv_0000000000000", "dlv_0000000000001", "dlv_7zzzzzzzzzzzz", "dlv_8000000000000", "run_0000000000001", "dlv_000000000000i"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseID(prefixDelivery, s)
		switch {
		case err == nil && (id <= 0 || formatID(prefixDelivery, id) != s):
			t.Errorf("%q is read as %d, which is %q", s, id, formatID(prefixDelivery, id))
		case err != nil && !errors.Is(err, ErrNotFound):
			t.Errorf("%q: %v", s, err)
		case err != nil && id != 0:
			t.Errorf("%q: an error and %d", s, id)
		case err == nil && !strings.HasPrefix(s, "dlv_"):
			t.Errorf("%q is taken", s)
		}
	})
}

// TestIDAtTheEnds: times before the first id and after the last one order as they
// should.
func TestIDAtTheEnds(t *testing.T) {
	now := idAt(time.Now())
	if first := idAt(time.Unix(0, 0)); first != 0 || now <= first {
		t.Errorf("1970: %d", first)
	}
	if last := idAt(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)); last <= now {
		t.Errorf("2099: %d, now %d", last, now)
	}
}
