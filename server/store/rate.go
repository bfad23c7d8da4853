package store

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"triphammer/server/store/internal/engine"
)

// RateWindow is the time over which deliveries of a webhook are counted (SPEC C8).
const RateWindow = time.Minute

// RateError refuses a delivery of a webhook that took as many as it may in the last RateWindow.
type RateError struct{ Wait time.Duration } // until one is taken again

func (e *RateError) Error() string {
	return fmt.Sprintf("the webhook takes its next delivery in %s", e.Wait)
}

// countsForRate says which deliveries count: the authenticated ones that no person replayed.
const countsForRate = `(outcome IN ('accepted', 'duplicate') OR outcome = 'rejected_invalid_json' AND reason = 'invalid_json') AND replay_of = 0`

// countRate counts a delivery for the rate of its webhook, over all servers of the store: the
// transactions are one after the other. Of the deliveries of any RateWindow, by the times at
// which they came, at most limit are recorded. It runs on the writer, which remembers the
// times until another server writes.
func (s *Deliveries) countRate(tx *engine.Tx, d *NewDelivery) (*RateError, error) {
	if d.RateLimit <= 0 {
		return nil, nil
	}
	at, window := micros(d.ReceivedAt), RateWindow.Microseconds()
	times, known := s.groups.rates[d.WebhookUID]
	if !known {
		since := d.ReceivedAt.Add(-RateWindow)
		err := tx.Each("SELECT received_at FROM deliveries WHERE webhook_uid = $1 AND id >= $2 AND received_at > $3 AND "+countsForRate+" ORDER BY received_at",
			[]any{d.WebhookUID, engine.IDAt(since.Add(-time.Minute)), micros(since)}, func(rows *sql.Rows) (bool, error) {
				var one int64
				err := rows.Scan(&one)
				times = append(times, one)
				return true, err
			})
		if err != nil {
			return nil, err
		}
	}
	// Requests wait for different times before they are recorded: one that is later in time
	// may be here already.
	first, _ := slices.BinarySearch(times, at-window+1)
	if n := len(times) - first; n >= d.RateLimit {
		next := times[len(times)-d.RateLimit] + window
		return &RateError{time.Duration(next-at) * time.Microsecond}, nil
	}
	old, _ := slices.BinarySearch(times, at-2*window)
	place, _ := slices.BinarySearch(times[old:], at+1)
	times = slices.Insert(times[old:], place, at)
	if s.groups.rates == nil || len(s.groups.rates) >= maxCached {
		s.groups.rates = make(map[string][]int64)
	}
	s.groups.rates[d.WebhookUID] = times
	return nil, nil
}
