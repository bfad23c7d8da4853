package store

import (
	"context"
	"database/sql"
	"math"
	"time"

	"triphammer/server/store/internal/engine"
)

// Spending is what runs used, as far as their harnesses told.
type Spending struct {
	Tokens  int64
	CostUSD float64
}

// spendingAge is for how many days spending is kept.
const spendingAge = 90

// dayOf is the day of a time, since 1970 and in UTC.
func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

const sumSpending = "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost_micros), 0) FROM spending WHERE day = $1"

// Usage is how many tokens and how much money the runs of each automation used, by the day.
type Usage struct{ *db }

// Record records what a run has used by now, in all its attempts: never less than before, and
// nothing twice if the answer to an earlier call was lost. It returns what all runs of its
// automation and all runs of the server have used on this day (UTC), with this.
func (s *Usage) Record(ctx context.Context, l Lease, used Spending) (automation, server Spending, err error) {
	err = s.Do(ctx, func(tx *engine.Tx) error {
		var tokens, micro int64
		if err := tx.Row("SELECT tokens, cost_micros FROM runs WHERE id = $1", []any{l.RunID}, &tokens, &micro); err != nil {
			return err
		}
		today, moreTokens, moreMicro := dayOf(s.Now()), max(0, used.Tokens-tokens), max(0, int64(math.Round(used.CostUSD*1e6))-micro)
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET tokens = tokens + $1, cost_micros = cost_micros + $2", moreTokens, moreMicro); err != nil {
			return err
		}
		if moreTokens > 0 || moreMicro > 0 {
			err := tx.Exec(`INSERT INTO spending (day, factory, automation, tokens, cost_micros)
				SELECT $1, factory, automation, $2, $3 FROM runs WHERE id = $4
				ON CONFLICT (day, factory, automation) DO UPDATE SET tokens = spending.tokens + excluded.tokens, cost_micros = spending.cost_micros + excluded.cost_micros`,
				today, moreTokens, moreMicro, l.RunID)
			if err != nil {
				return err
			}
		}
		err := tx.Row(sumSpending+" AND (factory, automation) = (SELECT factory, automation FROM runs WHERE id = $2)", []any{today, l.RunID},
			&automation.Tokens, &micro)
		if err != nil {
			return err
		}
		automation.CostUSD = float64(micro) / 1e6
		err = tx.Row(sumSpending, []any{today}, &server.Tokens, &micro)
		server.CostUSD = float64(micro) / 1e6
		return err
	})
	return automation, server, err
}

// Today is what all runs of the server have used on this day (UTC).
func (s *Usage) Today(ctx context.Context) (Spending, error) {
	return engine.First(engine.List(ctx, s.DB, func(rows *sql.Rows) (spent Spending, err error) {
		var micro int64
		err = rows.Scan(&spent.Tokens, &micro)
		spent.CostUSD = float64(micro) / 1e6
		return spent, err
	}, sumSpending, dayOf(s.Now())))
}

func (s *Usage) prune(ctx context.Context) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		return tx.Exec("DELETE FROM spending WHERE day < $1", dayOf(s.Agreed())-spendingAge)
	})
}
