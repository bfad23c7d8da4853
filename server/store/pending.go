package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
)

// PendingSecret is what a sender gave as a webhook's secret in its handshake. It
// is not used before somebody confirms it: whoever knows the URL could have sent
// it.
type PendingSecret struct {
	ID                           PendingID
	Factory, Webhook, WebhookUID string
	SecretName                   string // the managed secret that it would become
	ReceivedAt                   time.Time
	ClientAddr                   string
}

// How many pending secrets a webhook keeps, from one client address and in all. The
// newest stay. One address alone cannot displace what came from another.
const (
	maxPendingOfAddress = 5
	maxPending          = 50
)

func pendingContext(id PendingID) []byte {
	return []byte("pending secret\x00" + strconv.FormatInt(int64(id), 10))
}

// Hold keeps a pending secret, and returns after it is on the disk.
func (s *Secrets) Hold(ctx context.Context, p PendingSecret, value secret.Value) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		id := PendingID(tx.NextID())
		err := tx.Exec(`INSERT INTO pending_secrets (id, factory, webhook, webhook_uid, secret_name, sealed, received_at, client_addr)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			id, p.Factory, p.Webhook, p.WebhookUID, p.SecretName, s.key.Seal([]byte(value.Reveal()), pendingContext(id)), micros(p.ReceivedAt), p.ClientAddr)
		if err != nil {
			return err
		}
		err = tx.Exec(`DELETE FROM pending_secrets WHERE webhook_uid = $1 AND client_addr = $2 AND id NOT IN
			(SELECT id FROM pending_secrets WHERE webhook_uid = $3 AND client_addr = $4 ORDER BY id DESC LIMIT $5)`,
			p.WebhookUID, p.ClientAddr, p.WebhookUID, p.ClientAddr, maxPendingOfAddress)
		if err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM pending_secrets WHERE webhook_uid = $1 AND id NOT IN
			(SELECT id FROM pending_secrets WHERE webhook_uid = $2 ORDER BY id DESC LIMIT $3)`, p.WebhookUID, p.WebhookUID, maxPending)
	})
}

// Pending lists those of a factory, or of all; newest first.
func (s *Secrets) Pending(ctx context.Context, factory string) ([]PendingSecret, error) {
	w := where{}
	w.text("factory", factory)
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (PendingSecret, error) {
		var p PendingSecret
		var at int64
		err := rows.Scan(&p.ID, &p.Factory, &p.Webhook, &p.WebhookUID, &p.SecretName, &at, &p.ClientAddr)
		p.ReceivedAt = timeOf(at)
		return p, err
	}, "SELECT id, factory, webhook, webhook_uid, secret_name, received_at, client_addr FROM pending_secrets"+w.sql()+" ORDER BY id DESC", w.args...)
}

// Confirm makes a pending secret the next generation of its managed
// secret, and forgets the others of its webhook.
func (s *Secrets) Confirm(ctx context.Context, id PendingID) (name string, generation int64, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		var uid string
		var sealed []byte
		err := tx.Row("SELECT secret_name, webhook_uid, sealed FROM pending_secrets WHERE id = $1", []any{id}, &name, &uid, &sealed)
		if err != nil {
			return fmt.Errorf("pending secret %s: %w", id, err)
		}
		if err := s.notSourced(name); err != nil {
			return err
		}
		plain, err := s.key.Open(sealed, pendingContext(id))
		if err != nil {
			return fmt.Errorf("pending secret %s: %w", id, err)
		}
		if generation, err = s.set(tx, name, secret.New(string(plain))); err != nil {
			return err
		}
		return tx.Exec("DELETE FROM pending_secrets WHERE webhook_uid = $1", uid)
	})
	return name, generation, err
}

// Dismiss forgets a pending secret.
func (s *Secrets) Dismiss(ctx context.Context, id PendingID) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		count, err := tx.ExecCount("DELETE FROM pending_secrets WHERE id = $1", id)
		if err == nil && count == 0 {
			err = fmt.Errorf("pending secret %s: %w", id, ErrNotFound)
		}
		return err
	})
}
