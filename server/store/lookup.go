package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"triphammer/server/store/internal/engine"
)

// States of a Lookup.
const (
	LookupWaiting  = "waiting"
	LookupAnswered = "answered"
	LookupFailed   = "failed" // it was given up
)

// Lookup is a question to a sender's API, for what a delivery lacks (SPEC 16.3).
type Lookup struct {
	DeliveryID           DeliveryID
	WebhookUID           string // only Lookups.Waiting knows it
	Provider, Name, Args string
	State                string
	DueAt                time.Time // of the next attempt; zero: there is none
	Attempts             int64
	Answer               []string // of an answered one
	Detail               string   // of the last failure
	CreatedAt, UpdatedAt time.Time
}

// Lookups are the questions of deliveries to the API of their sender that have no answer yet.
type Lookups struct{ *db }

// ask records the questions of a new delivery.
func (s *Lookups) ask(tx *engine.Tx, id DeliveryID, waiting []Lookup) error {
	now := micros(s.Now())
	for _, l := range waiting {
		err := tx.Exec(`INSERT INTO lookups (delivery_id, provider, name, args, state, due_at, attempts, answer, detail, created_at, updated_at)
			VALUES ($1, $2, $3, $4, 'waiting', $5, 0, '[]', '', $5, $5)`, int64(id), l.Provider, l.Name, l.Args, now)
		if err != nil {
			return err
		}
	}
	return nil
}

const lookupColumns = "l.delivery_id, l.provider, l.name, l.args, l.state, l.due_at, l.attempts, l.answer, l.detail, l.created_at, l.updated_at"

func scanLookup(rows *sql.Rows) (l Lookup, err error) {
	var due, created, updated int64
	var answer string
	if err := rows.Scan(&l.DeliveryID, &l.Provider, &l.Name, &l.Args, &l.State, &due, &l.Attempts, &answer, &l.Detail, &created, &updated, &l.WebhookUID); err != nil {
		return l, err
	}
	l.DueAt, l.CreatedAt, l.UpdatedAt = timeOf(due), timeOf(created), timeOf(updated)
	return l, json.Unmarshal([]byte(answer), &l.Answer)
}

// Waiting are the questions that wait for an attempt, the longest due first, and of each webhook
// the first ones: those of others come however many wait there.
func (s *Lookups) Waiting(ctx context.Context, perWebhook int) ([]Lookup, error) {
	return engine.List(ctx, s.DB, scanLookup, "SELECT "+lookupColumns+`, webhook_uid FROM (
			SELECT lookups.*, COALESCE(d.webhook_uid, '') AS webhook_uid, ROW_NUMBER() OVER (PARTITION BY d.webhook_uid ORDER BY due_at, delivery_id) AS place
			FROM lookups LEFT JOIN deliveries d ON d.id = delivery_id WHERE due_at <> 0
		) l WHERE place <= $1 ORDER BY due_at`, perWebhook)
}

// Of are the questions of a delivery.
func (s *Lookups) Of(ctx context.Context, id DeliveryID) ([]Lookup, error) {
	return engine.List(ctx, s.DB, scanLookup, "SELECT "+lookupColumns+", '' FROM lookups l WHERE delivery_id = $1 ORDER BY name, args", int64(id))
}

// Drop forgets the questions of a delivery that is gone.
func (s *Lookups) Drop(ctx context.Context, id DeliveryID) error {
	return s.Do(ctx, func(tx *engine.Tx) error { return s.drop(tx, id) })
}

func (s *Lookups) drop(tx *engine.Tx, id DeliveryID) error {
	return tx.Exec("DELETE FROM lookups WHERE delivery_id = $1", int64(id))
}

// Record records in one transaction how attempts at questions of a delivery went, and
// starts runs that the answers decide. An automation that the delivery started before, or
// that was withheld, is not started again. A question that does not wait any more stays as
// it is. A reply decides (SPEC 26.2); nil: it is none. stopped are runs about the same subjects that were cancelled or asked to stop.
func (s *Lookups) Record(ctx context.Context, id DeliveryID, asked []Lookup, runs []NewRun, reply *Reply) (started, stopped []RunID, err error) {
	err = s.Grow(ctx, func(tx *engine.Tx) error {
		started, stopped = nil, nil
		for _, l := range asked {
			answer, err := json.Marshal(append([]string{}, l.Answer...))
			if err != nil {
				return err
			}
			err = tx.Exec(`UPDATE lookups SET state = $1, due_at = $2, attempts = $3, answer = $4, detail = $5, updated_at = $6
				WHERE delivery_id = $7 AND name = $8 AND args = $9 AND due_at <> 0`,
				l.State, micros(l.DueAt), l.Attempts, string(answer), l.Detail, micros(s.Now()), int64(id), l.Name, l.Args)
			if err != nil {
				return err
			}
		}
		if reply != nil {
			stopped, err = s.decideLater(tx, id, reply)
			return err
		}
		if len(runs) == 0 {
			return nil
		}
		started, stopped, err = s.startLater(tx, id, runs)
		return err
	})
	return started, stopped, err
}

// decideLater decides by a reply that was recorded before, once.
func (s *Lookups) decideLater(tx *engine.Tx, id DeliveryID, reply *Reply) (stopped []RunID, err error) {
	var factory, detail string
	err = tx.Row("SELECT factory, detail FROM deliveries WHERE id = $1", []any{int64(id)}, &factory, &detail)
	if errors.Is(err, ErrNotFound) {
		return nil, nil // nobody could tell why it decided
	}
	if err != nil {
		return nil, err
	}
	not, err := withheldOf(detail)
	if err != nil || not.Decided != "" {
		return nil, err
	}
	if not.Decided, stopped, err = s.store.Approvals.reply(tx, id, factory, reply); err != nil {
		return nil, err
	}
	if detail, err = not.text(); err != nil {
		return nil, err
	}
	return stopped, tx.Exec("UPDATE deliveries SET detail = $1 WHERE id = $2", detail, int64(id))
}

// startLater starts runs of a delivery that was recorded before.
func (s *Lookups) startLater(tx *engine.Tx, id DeliveryID, runs []NewRun) (started, stopped []RunID, err error) {
	d := NewDelivery{}
	var reason, detail string
	err = tx.Row("SELECT webhook_uid, replay_of, reason, detail FROM deliveries WHERE id = $1", []any{int64(id)}, &d.WebhookUID, &d.ReplayOf, &reason, &detail)
	if errors.Is(err, ErrNotFound) {
		return nil, nil, nil // it was deleted, and nobody could tell why the run was
	}
	if err != nil {
		return nil, nil, err
	}
	not, err := withheldOf(detail)
	if err != nil {
		return nil, nil, err
	}
	var known []string
	err = tx.Each("SELECT automation FROM runs WHERE delivery_id = $1", []any{int64(id)}, func(rows *sql.Rows) (bool, error) {
		var name string
		err := rows.Scan(&name)
		known = append(known, name)
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	decided := func(r NewRun) bool { return slices.Contains(known, r.Automation) || not.has(r.Automation) }
	// The automation that was last in the thread has taken a reply when it was recorded; no other one does later.
	taken := slices.ContainsFunc(runs, func(r NewRun) bool { return r.OnlyReply && decided(r) })
	runs = slices.DeleteFunc(slices.Clone(runs), func(r NewRun) bool { return decided(r) || taken && r.OnlyReply }) // the writer may do this again
	d.ID, d.Runs = id, runs
	if started, stopped, err = s.store.Deliveries.start(tx, id, &d, &not); err != nil {
		return nil, nil, err
	}
	n, _ := strconv.Atoi(reason)
	detail, err = not.text()
	if err != nil {
		return nil, nil, err
	}
	return started, stopped, tx.Exec("UPDATE deliveries SET reason = $1, detail = $2 WHERE id = $3", strconv.Itoa(n+len(started)), detail, int64(id))
}
