package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"triphammer/server/store/internal/engine"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"triphammer/server/terms"
)

// DeliveryQuery selects entries of the log; zero fields select all.
type DeliveryQuery struct {
	Factory, Webhook, WebhookUID string
	Outcomes                     []Outcome
	Stopped                      string // the stage at which it left the belt, or Went
	DuplicateOf, ReplayOf        DeliveryID
	Subject                      string // what it is about
	Text                         string // it is found in the entry or in its payload, in any case
	Since, Until                 time.Time
	Before                       DeliveryID // the one after which to go on, towards older ones
	Limit                        int
}

// Went is for DeliveryQuery.Stopped: deliveries that started a run.
const Went = terms.Went

// List reads the log, newest first. Each query of it walks an index from
// its newest end, so it costs the same in a log of a million. It does not look for a Text.
func (s *Deliveries) List(ctx context.Context, q DeliveryQuery) ([]*Delivery, error) {
	queries, err := s.queries(ctx, q)
	if err != nil {
		return nil, err
	}
	var all []*Delivery
	for _, w := range queries {
		some, err := engine.List(ctx, s.DB, scanDelivery, "SELECT "+deliveryColumns+" FROM deliveries"+w.sql()+" ORDER BY id DESC"+w.limit(q.Limit), w.args...)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b *Delivery) int { return cmp.Compare(b.ID, a.ID) })
	all = all[:min(len(all), limited(q.Limit))]
	return all, s.complete(ctx, all)
}

// queries are the conditions of q. Each has an index in the order of ids.
// What is looked for by its stage or outcome is read by webhook.
func (s *Deliveries) queries(ctx context.Context, q DeliveryQuery) (all []*where, err error) {
	uids, stops := []string{q.WebhookUID}, []string{""}
	switch {
	case q.Stopped == Went:
		stops = []string{""}
	case q.Stopped != "":
		stops = []string{q.Stopped}
	case len(q.Outcomes) > 0:
		stops = stopsOf(q.Outcomes)
	}
	byStop := q.Stopped != "" || len(q.Outcomes) > 0
	repeats := q.DuplicateOf != 0 || q.ReplayOf != 0 || q.Subject != ""
	if q.WebhookUID == "" && !repeats && (q.Webhook != "" || q.Factory != "" || byStop) {
		// The indexes are by UID, and a name may have one in each factory.
		w := where{}
		w.text("name", q.Webhook)
		w.text("factory", q.Factory)
		bound, err := engine.List(ctx, s.DB, engine.ScanText, "SELECT uid FROM webhook_uids"+w.sql()+" ORDER BY uid", w.args...)
		if err != nil {
			return nil, err
		}
		if len(bound) > 0 {
			uids = bound
		}
	}
	for _, uid := range uids {
		for _, stop := range stops {
			w := &where{}
			w.text("factory", q.Factory)
			w.text("webhook", q.Webhook)
			w.text("webhook_uid", uid)
			if byStop {
				w.add("("+stoppedAt+") = ?", stop)
			}
			if len(q.Outcomes) > 0 {
				w.add(in(w, s.unindexed("outcome"), q.Outcomes)) // one stage can have several
			}
			if q.DuplicateOf != 0 {
				w.add("duplicate_of = ? AND duplicate_of <> 0", q.DuplicateOf) // what the index deliveries_repeats is for
			}
			if q.ReplayOf != 0 {
				w.add("replay_of = ? AND replay_of <> 0", q.ReplayOf)
			}
			if q.Subject != "" {
				w.add("id IN (SELECT id FROM subjects WHERE subject = ?)", q.Subject)
			}
			if !q.Since.IsZero() {
				w.add("id >= ?", engine.IDAt(q.Since))
			}
			if !q.Until.IsZero() {
				w.add("id < ?", engine.IDAt(q.Until))
			}
			before(w, "id", q.Before)
			all = append(all, w)
		}
	}
	return all, nil
}

// stopsOf are the stages at which deliveries of some outcomes leave the belt.
func stopsOf(outcomes []Outcome) (stops []string) {
	of := map[Outcome][]string{
		Accepted: {"", "matched", "run"}, Duplicate: {"new"}, RejectedAuth: {"authenticated"},
		RejectedInvalidJSON: {"received", "parsed"}, RejectedTooLarge: {"received"},
	}
	for _, outcome := range outcomes {
		stops = append(stops, of[outcome]...)
	}
	slices.Sort(stops)
	return slices.Compact(stops)
}

const (
	// searchTime is how long one search looks through the log, searchPage how many entries it
	// reads at once.
	searchTime = 30 * time.Millisecond
	searchPage = 250
)

// Search is Deliveries for a query with a Text. It looks for a few milliseconds; if
// there may be more, next is where to go on, also if it found none.
func (s *Deliveries) Search(ctx context.Context, q DeliveryQuery) (found []*Delivery, next DeliveryID, err error) {
	text := []byte(strings.ToLower(q.Text))
	limit := limited(q.Limit)
	q.Limit = searchPage
	for began := time.Now(); ; {
		some, err := s.List(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		payloads, err := s.Payloads(ctx, some)
		if err != nil {
			return nil, 0, err
		}
		for _, d := range some {
			q.Before = d.ID
			if d.mentions(text) || bytes.Contains(bytes.ToLower(payloads[d.ID]), text) {
				found = append(found, d)
				if len(found) == limit {
					return found, q.Before, nil
				}
			}
		}
		if len(some) < searchPage {
			return found, 0, nil
		}
		if time.Since(began) > searchTime {
			return found, q.Before, nil
		}
	}
}

// mentions tells whether a text, in small letters, is in what the log says of the delivery.
func (d *Delivery) mentions(text []byte) bool {
	parts := []string{d.ID.String(), d.Webhook, d.Reason, d.Detail, d.Identity.Value, d.ClientAddr}
	for _, value := range d.Headers {
		parts = append(parts, value)
	}
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(strings.ToLower(part), string(text)) })
}

// Payloads are the bodies of accepted deliveries, without those that are damaged: whoever reads them relies on
// what was checked before they were stored.
func (s *Deliveries) Payloads(ctx context.Context, of []*Delivery) (map[DeliveryID][]byte, error) {
	ids := make([]DeliveryID, 0, len(of))
	for _, d := range of {
		if d.Outcome == Accepted {
			ids = append(ids, d.ID)
		}
	}
	all := make(map[DeliveryID][]byte, len(ids))
	if len(ids) == 0 {
		return all, nil
	}
	w := where{}
	w.add(in(&w, "id", ids))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var id DeliveryID
		var payload []byte
		var codec int64
		var digest sql.NullInt64
		if err := rows.Scan(&id, &payload, &codec, &digest); err != nil {
			return none, err
		}
		if codec != 0 {
			payload, err = s2.Decode(nil, payload)
		}
		if err != nil || !s.sound(int64(id), digest, payloadDigest(id, xxhash.Sum64(payload))) {
			_ = s.damage("the payload of %s", id) // the log has it
			return none, nil
		}
		all[id] = payload
		return none, nil
	}, "SELECT id, payload, codec, digest FROM deliveries"+w.sql(), w.args...)
	return all, err
}
