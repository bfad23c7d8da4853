package store

import (
	"context"
	"database/sql"
	"fmt"

	"triphammer/server/secret"
	"triphammer/server/store/internal/engine"
)

// Reseal seals everything that is sealed with another key, in one transaction
// (SPEC 10.1). From then on the store opens with that key alone. It returns how
// many values there were.
func (s *Secrets) Reseal(ctx context.Context, key *secret.Key) (count int, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		count = 0
		if err := tx.Alone(); err != nil { // the others would seal with the old key
			return err
		}
		type sealed struct {
			key     []any // of its row
			context []byte
			text    []byte
		}
		again := func(query, update string, scan func(rows *sql.Rows) (sealed, error)) error {
			var all []sealed
			err := tx.Each(query, nil, func(rows *sql.Rows) (bool, error) {
				one, err := scan(rows)
				all = append(all, one)
				return true, err
			})
			if err != nil {
				return err
			}
			for _, one := range all {
				plain, err := s.key.Open(one.text, one.context)
				if err != nil {
					return fmt.Errorf("%s: %w", one.context, err)
				}
				if err := tx.Exec(update, append([]any{key.Seal(plain, one.context)}, one.key...)...); err != nil {
					return err
				}
				count++
			}
			return nil
		}
		err := again("SELECT name, generation, sealed FROM secrets", "UPDATE secrets SET sealed = $1 WHERE name = $2 AND generation = $3", func(rows *sql.Rows) (sealed, error) {
			var one sealed
			var name string
			var generation int64
			err := rows.Scan(&name, &generation, &one.text)
			one.key, one.context = []any{name, generation}, sealContext(name, generation)
			return one, err
		})
		if err != nil {
			return err
		}
		err = again("SELECT id, sealed FROM pending_secrets", "UPDATE pending_secrets SET sealed = $1 WHERE id = $2", func(rows *sql.Rows) (sealed, error) {
			var one sealed
			var id PendingID
			err := rows.Scan(&id, &one.text)
			one.key, one.context = []any{id}, pendingContext(id)
			return one, err
		})
		if err != nil {
			return err
		}
		return tx.Exec("UPDATE meta SET value = $1 WHERE name = 'sealing key'", key.ID())
	})
	if err == nil {
		s.key = key
	}
	return count, err
}
