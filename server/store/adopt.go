package store

import (
	"context"
	"database/sql"
	"time"

	"triphammer/server/store/internal/engine"
)

// Adopt takes those of the attempts over whose lease is still the one that was seen.
// They go on: neither their numbers nor their states change (SPEC 17.5). Whoever held them
// is fenced.
func (s *Leases) Adopt(ctx context.Context, seen []Held, worker string, d time.Duration) ([]Lease, error) {
	var adopted []Lease
	err := s.Do(ctx, func(tx *engine.Tx) error {
		adopted = nil
		now := s.Now()
		for _, h := range seen {
			before := len(adopted)
			err := tx.Each(`UPDATE runs SET worker = $1, lease_token = lease_token + 1, lease_until = $2, updated_at = $3
				WHERE id = $4 AND state = 'INPROGRESS' AND state <> 'QUEUED' AND lease_token = $5 AND lease_until = $6 RETURNING lease_token`,
				[]any{worker, micros(now.Add(d)), s.stamp(tx), h.RunID, h.Token, h.Until}, func(rows *sql.Rows) (bool, error) {
					l := Lease{RunID: h.RunID}
					err := rows.Scan(&l.Token)
					adopted = append(adopted, l)
					return true, err
				})
			if err == nil && len(adopted) > before { // what is used goes on to be counted
				err = tx.Exec("UPDATE model_usage SET lease = $1 WHERE run_id = $2 AND lease = $3", adopted[before].Token, h.RunID, h.Token)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return adopted, nil
}
