package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math"
	"time"

	"triphammer/server/store/internal/engine"
)

// SameBodyFor is how long a signed body is known as one that came before (SPEC 5.13): whoever has captured
// a delivery of a sender that signs the body alone can send it again with another id.
const SameBodyFor = 72 * time.Hour

// ReplayError refuses a delivery whose signed body came with another identity, as the delivery Of, within
// the replayWindow of its webhook.
type ReplayError struct{ Of DeliveryID }

func (e *ReplayError) Error() string { return "the same signed body came as " + e.Of.String() }

// ReasonReplayed is the reason of a delivery that a ReplayError has refused.
const ReasonReplayed = "body_replayed"

// signedHash is what is kept of a signed body: of another webhook, it is another.
func signedHash(webhookUID string, body []byte) []byte {
	h := sha256.New()
	_, _ = h.Write(append([]byte(webhookUID), 0)) // which never fails
	_, _ = h.Write(body)
	return h.Sum(nil)[:16]
}

// sentBefore is the newest delivery before id that brought a signed body, since a time; 0: none did.
func sentBefore(tx *engine.Tx, hash []byte, id int64, since time.Time) (before DeliveryID, err error) {
	err = tx.Row("SELECT coalesce(max(id), 0) FROM signed_bodies WHERE hash = $1 AND id < $2 AND id >= $3", []any{hash, id, engine.IDAt(since)}, &before)
	return before, err
}

// replayed looks for the delivery that brought the body of d before, if the webhook of d has a window for
// that. A delivery with a known identity repeats that one: it is no replay.
func (s *Deliveries) replayed(tx *engine.Tx, d *NewDelivery, row *deliveryRow) (*ReplayError, error) {
	if row.earlier = 0; row.signed == nil {
		return nil, nil
	}
	var same int64
	if err := tx.Row("SELECT coalesce(max(id), 0) FROM deliveries WHERE identity_hash = $1", []any{row.identity}, &same); err != nil || same != 0 {
		return nil, err
	}
	before, err := sentBefore(tx, row.signed, math.MaxInt64, s.Agreed().Add(-SameBodyFor))
	if row.earlier = before; err == nil && before != 0 && int64(before) >= engine.IDAt(s.Agreed().Add(-d.ReplayWindow)) {
		return &ReplayError{before}, nil
	}
	return nil, err
}

// keepBody notes the signed body of a delivery that is recorded in the same transaction, if replayed looked for
// it, or that it was refused.
func keepBody(tx *engine.Tx, id DeliveryID, d *NewDelivery, row deliveryRow) error {
	if row.signed == nil && d.SameBodyAs == 0 {
		return nil
	}
	return tx.Exec("INSERT INTO signed_bodies (id, hash, factory, earlier) VALUES ($1, $2, $3, $4)", int64(id), row.signed, d.Factory, int64(cmp.Or(d.SameBodyAs, row.earlier)))
}

// indexBody notes a signed body, unless the ingress has done it, or the delivery was deleted meanwhile.
func indexBody(tx *engine.Tx, e subjectEntry) error {
	earlier, err := sentBefore(tx, e.signed, e.id, engine.TimeOfID(e.id).Add(-SameBodyFor))
	if err != nil {
		return err
	}
	return tx.Exec("INSERT INTO signed_bodies (id, hash, factory, earlier) SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM deliveries WHERE id = $1) ON CONFLICT (id) DO NOTHING",
		e.id, e.signed, e.factory, int64(earlier))
}

// sameBodies fills in which deliveries brought the same signed body before.
func (s *Deliveries) sameBodies(ctx context.Context, all []*Delivery) error {
	byID := make(map[DeliveryID]*Delivery)
	var ids []DeliveryID
	for _, d := range all {
		if d.Outcome == Accepted || d.Reason == ReasonReplayed {
			byID[d.ID], ids = d, append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	w := where{}
	w.add("earlier <> 0")
	w.add(in(&w, "id", ids))
	_, err := engine.List(ctx, s.DB, func(rows *sql.Rows) (none struct{}, err error) {
		var id, earlier DeliveryID
		if err = rows.Scan(&id, &earlier); err == nil {
			byID[id].SameBodyAs = earlier
		}
		return none, err
	}, "SELECT id, earlier FROM signed_bodies"+w.sql(), w.args...)
	return err
}

// MaxSameBodies is how many deliveries SameBodies counts at most.
const MaxSameBodies = 10_000

// SameBodies counts the deliveries of a factory, or with an empty name of all, since a time whose signed
// body had come before, accepted and refused ones. newest is the newest of them; 0: there is none.
func (s *Deliveries) SameBodies(ctx context.Context, factory string, since time.Time) (n int64, newest DeliveryID, err error) {
	w := where{}
	w.add("earlier <> 0")
	w.add("id >= ?", engine.IDAt(since))
	w.text("factory", factory)
	err = s.Read.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*), coalesce(max(id), 0) FROM (SELECT id FROM signed_bodies%s ORDER BY id DESC LIMIT %d) AS newest", w.sql(), MaxSameBodies), w.args...).Scan(&n, &newest)
	return n, newest, engine.Damaged(err)
}
