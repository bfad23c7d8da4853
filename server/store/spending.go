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
		today, moreTokens, moreMicro := dayOf(s.Now()), max(0, used.Tokens-tokens), max(0, microsOf(used.CostUSD)-micro)
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET tokens = tokens + $1, cost_micros = cost_micros + $2", moreTokens, moreMicro); err != nil {
			return err
		}
		if err := s.spend(tx, l, today, moreTokens, moreMicro); err != nil {
			return err
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

// Limits are what may be used; a field of 0 is no limit.
type Limits struct{ Run, Automation, Server Spending }

// Whose limits Crossed tells of.
const (
	OfRun        = "run"
	OfAutomation = "automation"
	OfServer     = "server"
)

// Crossed is the error of Usage.Account if a limit would be crossed.
type Crossed struct {
	Of   string   // OfRun, OfAutomation or OfServer
	Used Spending // without what was to be added
}

func (c *Crossed) Error() string { return "a budget of the " + c.Of + " would be crossed" }

// Reserved stands for a model: what the gateway of a run may use by itself, and has not used yet. It stays
// if nobody can tell any more what was used.
const Reserved = "(reserved)"

// ModelUsage is what requests to a model used, as the gateways of runs counted it (SPEC 25.3).
type ModelUsage struct {
	Model                                string
	Input, CacheRead, CacheWrite, Output int64 // tokens
	CostUSD                              float64
	Requests, Retries                    int64
	Errors                               int64 // requests that the provider did not answer
	Answered                             int64 // requests that got a token
	WaitedMS                             int64 // the sum of their times to the first token
}

// Account records what a run has used by now, in all its attempts, and what its requests to models
// on the day of a time (UTC) have used under the lease. Both replace what was recorded before, and may be
// less: what requests reserve is used until it is given back, so that it counts if nobody lives to do
// that. With limits, nothing is recorded if more is used than they allow, of the run or on that day, over
// all workers; the error is then a *Crossed.
func (s *Usage) Account(ctx context.Context, l Lease, at time.Time, used Spending, may Limits, models ...ModelUsage) error {
	return s.Do(ctx, func(tx *engine.Tx) error {
		day, micros := dayOf(at), microsOf(used.CostUSD)
		var before Spending
		var beforeMicros int64
		if err := tx.Row("SELECT tokens, cost_micros FROM runs WHERE id = $1", []any{l.RunID}, &before.Tokens, &beforeMicros); err != nil {
			return err
		}
		before.CostUSD = float64(beforeMicros) / 1e6
		if err := s.within(tx, l, day, before, used, may); err != nil {
			return err
		}
		if err := s.store.Leases.fenced(tx, l, "UPDATE runs SET tokens = $1, cost_micros = $2", used.Tokens, micros); err != nil {
			return err
		}
		if err := s.spend(tx, l, day, used.Tokens-before.Tokens, micros-beforeMicros); err != nil {
			return err
		}
		for _, of := range models {
			if err := s.account(tx, l, day, &of); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Usage) account(tx *engine.Tx, l Lease, day int64, of *ModelUsage) error {
	if of.Model == Reserved && of.Input == 0 && of.CostUSD == 0 {
		return tx.Exec("DELETE FROM model_usage WHERE day = $1 AND run_id = $2 AND lease = $3 AND model = $4", day, l.RunID, l.Token, of.Model)
	}
	return tx.Exec(`INSERT INTO model_usage (day, run_id, lease, model, factory, automation, input, cache_read, cache_write, output, cost_micros, requests, retries, errors, answered, waited_ms)
		SELECT $1, id, $2, $3, factory, automation, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13 FROM runs WHERE id = $14
		ON CONFLICT (day, run_id, lease, model) DO UPDATE SET input = excluded.input, cache_read = excluded.cache_read, cache_write = excluded.cache_write,
		output = excluded.output, cost_micros = excluded.cost_micros, requests = excluded.requests, retries = excluded.retries, errors = excluded.errors,
		answered = excluded.answered, waited_ms = excluded.waited_ms`,
		day, l.Token, of.Model, of.Input, of.CacheRead, of.CacheWrite, of.Output, microsOf(of.CostUSD), of.Requests, of.Retries, of.Errors, of.Answered, of.WaitedMS, l.RunID)
}

// within returns a *Crossed if what a run uses grows over a limit.
func (s *Usage) within(tx *engine.Tx, l Lease, day int64, before, used Spending, may Limits) error {
	if used.above(may.Run) {
		return &Crossed{OfRun, before}
	}
	for _, sum := range []struct {
		of, query string
		args      []any
		limit     Spending
	}{
		{OfAutomation, sumSpending + " AND automation <> '' AND (factory, automation) = (SELECT factory, automation FROM runs WHERE id = $2)", []any{day, l.RunID}, may.Automation},
		{OfServer, sumSpending, []any{day}, may.Server},
	} {
		if sum.limit == (Spending{}) {
			continue
		}
		var spent Spending
		var micros int64
		if err := tx.Row(sum.query, sum.args, &spent.Tokens, &micros); err != nil {
			return err
		}
		spent.CostUSD = float64(micros) / 1e6
		if more := (Spending{spent.Tokens + used.Tokens - before.Tokens, spent.CostUSD + used.CostUSD - before.CostUSD}); more.above(sum.limit) {
			return &Crossed{sum.of, spent}
		}
	}
	return nil
}

// above tells whether it is more than a limit allows, by more than sums of decimals are off.
func (s Spending) above(limit Spending) bool {
	return limit.Tokens > 0 && s.Tokens > limit.Tokens || limit.CostUSD > 0 && microsOf(s.CostUSD) > microsOf(limit.CostUSD)
}

func microsOf(usd float64) int64 { return int64(math.Round(usd * 1e6)) }

// spend adds to what the automation of a run used on a day.
func (s *Usage) spend(tx *engine.Tx, l Lease, day, tokens, micros int64) error {
	if tokens == 0 && micros == 0 {
		return nil
	}
	return tx.Exec(`INSERT INTO spending (day, factory, automation, tokens, cost_micros)
		SELECT $1, factory, automation, $2, $3 FROM runs WHERE id = $4
		ON CONFLICT (day, factory, automation) DO UPDATE SET tokens = spending.tokens + excluded.tokens, cost_micros = spending.cost_micros + excluded.cost_micros`,
		day, tokens, micros, l.RunID)
}

// UsageOf is what a run's requests to models used, by model.
func (s *Usage) UsageOf(ctx context.Context, id RunID) ([]ModelUsage, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (ModelUsage, error) {
		var u ModelUsage
		err := scanUsage(rows, &u, &u.Model)
		return u, err
	}, "SELECT model, "+sumUsage+" FROM model_usage WHERE run_id = $1 GROUP BY model ORDER BY model", id)
}

// Under is what a run's requests to models used under a lease, by model, on whatever day. A lease that was
// adopted has what was used under the lease before.
func (s *Usage) Under(ctx context.Context, l Lease) ([]ModelUsage, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (ModelUsage, error) {
		var u ModelUsage
		err := scanUsage(rows, &u, &u.Model)
		return u, err
	}, "SELECT model, "+sumUsage+" FROM model_usage WHERE run_id = $1 AND lease = $2 GROUP BY model ORDER BY model", l.RunID, l.Token)
}

const sumUsage = "sum(input), sum(cache_read), sum(cache_write), sum(output), sum(cost_micros), sum(requests), sum(retries), sum(errors), sum(answered), sum(waited_ms)"

// scanUsage reads the columns before, and those of sumUsage.
func scanUsage(rows *sql.Rows, u *ModelUsage, before ...any) error {
	var micros int64
	err := rows.Scan(append(before, &u.Input, &u.CacheRead, &u.CacheWrite, &u.Output, &micros, &u.Requests, &u.Retries, &u.Errors, &u.Answered, &u.WaitedMS)...)
	u.CostUSD = float64(micros) / 1e6
	return err
}

// DayUsage is what the runs of an automation used of a model on a day.
type DayUsage struct {
	Day                 time.Time // its beginning, UTC
	Factory, Automation string    // empty: runs that no automation started
	ModelUsage
}

// Daily is what runs used from the day of a time on (UTC), by day, automation and model; of a factory, or
// of all if it is empty. It goes back spendingAge days.
func (s *Usage) Daily(ctx context.Context, since time.Time, factory string) ([]DayUsage, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (DayUsage, error) {
		var d DayUsage
		var day int64
		err := scanUsage(rows, &d.ModelUsage, &day, &d.Factory, &d.Automation, &d.Model)
		d.Day = time.Unix(day*24*60*60, 0).UTC()
		return d, err
	}, "SELECT day, factory, automation, model, "+sumUsage+` FROM model_usage WHERE day >= $1 AND ($2 = '' OR factory = $2)
		GROUP BY day, factory, automation, model ORDER BY day, factory, automation, model`, dayOf(since), factory)
}

// Spent is what some ended runs that are alike used and left.
type Spent struct {
	Factory, Automation           string
	Person, Creator, CreatorKind  string
	Subject                       string
	Runs, Succeeded, PullRequests int64
	Merged, Unchanged             int64 // of PullRequests: those that were merged, and of them those without a person's commit
	Spending
}

// pullsOf are the pull requests of a run that no earlier run of the factory has left: a follow-up may leave the
// same link.
const pullsOf = ` FROM artifacts a WHERE a.run_id = runs.id AND a.type = 'PULL_REQUEST' AND NOT EXISTS (SELECT 1 FROM artifacts b JOIN runs o ON o.id = b.run_id
	WHERE b.url = a.url AND b.url <> '' AND b.run_id < a.run_id AND b.type = 'PULL_REQUEST' AND o.factory = runs.factory)`

// Spent sums what the runs that ended in a time used and left, of a factory, or of all if it is empty. It
// reads all these runs.
func (s *Usage) Spent(ctx context.Context, since, until time.Time, factory string) ([]Spent, error) {
	return engine.List(ctx, s.DB, func(rows *sql.Rows) (r Spent, err error) {
		var micro int64
		err = rows.Scan(&r.Factory, &r.Automation, &r.Person, &r.Creator, &r.CreatorKind, &r.Subject, &r.Runs, &r.Succeeded, &r.PullRequests, &r.Merged, &r.Unchanged, &r.Tokens, &micro)
		r.CostUSD = float64(micro) / 1e6
		return r, err
	}, `SELECT factory, automation, person, creator_name, creator_kind,
		coalesce((SELECT min(s.subject) FROM subjects s WHERE s.id = runs.id), subject) AS about, count(*), sum(CASE WHEN state = 'SUCCEEDED' THEN 1 ELSE 0 END),
		sum((SELECT count(DISTINCT a.url)`+pullsOf+`)), sum((SELECT count(DISTINCT a.url)`+pullsOf+` AND a.outcome IN ('merged', 'merged_with_changes'))), sum((SELECT count(DISTINCT a.url)`+pullsOf+` AND a.outcome = 'merged')), sum(tokens), sum(cost_micros)
		FROM runs WHERE `+ended+` AND updated_at >= $1 AND updated_at <= $2 AND ($3 = '' OR factory = $3)
		GROUP BY factory, automation, person, creator_name, creator_kind, about`, micros(since), micros(until), factory)
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
		old := dayOf(s.Agreed()) - spendingAge
		if err := tx.Exec("DELETE FROM spending WHERE day < $1", old); err != nil {
			return err
		}
		return tx.Exec("DELETE FROM model_usage WHERE day < $1", old)
	})
}
