package store

import (
	"context"
	"crypto/sha256"
	"errors"

	"triphammer/server/store/internal/engine"
)

// Repeat is an automation that a delivery did not start, because another webhook had
// reported the same event of the sender before (SPEC 16.2).
type Repeat struct {
	Automation string
	Of         DeliveryID // which started it
}

// eventKey identifies what a run is about, in a factory and for an automation.
func (r *NewRun) eventKey() []byte {
	sum := sha256.Sum256([]byte(r.Factory + "\x00" + r.Automation + "\x00" + r.Event))
	return sum[:16]
}

// startedBy finds the delivery of another webhook that started the automation of r for the
// same event; 0 if there is none.
func (s *Deliveries) startedBy(tx *engine.Tx, r *NewRun, d *NewDelivery) (of DeliveryID, err error) {
	if r.Event == "" || d.ReplayOf != 0 { // which a person wants
		return 0, nil
	}
	query, args := "SELECT delivery_id FROM started_events WHERE event = $1", []any{r.eventKey()}
	if r.Thread == "" { // a reply may come twice over one webhook, as a message and as a mention
		query, args = query+" AND webhook_uid <> $2", append(args, d.WebhookUID)
	}
	err = tx.Row(query, args, &of)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return of, err
}

// rememberEvent notes that a delivery started a run.
func (s *Deliveries) rememberEvent(tx *engine.Tx, r *NewRun, webhookUID string, id DeliveryID) error {
	if r.Event == "" {
		return nil
	}
	return tx.Exec("INSERT INTO started_events (event, webhook_uid, delivery_id) VALUES ($1, $2, $3) ON CONFLICT (event) DO NOTHING",
		r.eventKey(), webhookUID, int64(id))
}

// pruneStartedEvents forgets events that are older than deliveries are kept.
func (s *Deliveries) pruneStartedEvents(ctx context.Context, keep Retention) error {
	old := engine.IDAt(s.Agreed().Add(-keep.Age))
	return s.InSteps(ctx, engine.Task{Run: func(tx *engine.Tx, _ *engine.Step) (more bool, err error) {
		n, err := tx.ExecCount(`DELETE FROM started_events WHERE event IN
			(SELECT event FROM started_events WHERE delivery_id < $1 LIMIT $2)`, old, engine.StepRows)
		return n == engine.StepRows, err
	}})
}
