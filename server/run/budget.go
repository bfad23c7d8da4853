package run

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// OverBudget says which budget is used up. It is a task.ErrBudget.
type OverBudget string

func (o OverBudget) Error() string        { return string(o) }
func (o OverBudget) Is(target error) bool { return target == task.ErrBudget }

// Exceeded says by what a spending is above its limits, or has reached them; empty: it is
// not. A limit of 0 is none.
func Exceeded(spent store.Spending, usd float64, tokens int64, reached bool) string {
	switch {
	case usd > 0 && (spent.CostUSD > usd || reached && spent.CostUSD >= usd):
		return dollars(spent.CostUSD) + " of " + dollars(usd) + " USD"
	case tokens > 0 && (spent.Tokens > tokens || reached && spent.Tokens >= tokens):
		return fmt.Sprintf("%d of %d tokens", spent.Tokens, tokens)
	}
	return ""
}

func dollars(usd float64) string { return strconv.FormatFloat(usd, 'f', -1, 64) }

// OverToday is a task.ErrBudget if the server's budget of a day is exceeded by what it has
// spent, or has been reached by it.
func (d *Desk) OverToday(spent store.Spending, reached bool) error {
	b := d.cfg.Budget
	if over := Exceeded(spent, b.USDPerDay, b.TokensPerDay, reached); over != "" {
		return OverBudget("the server used up its budget of this day: " + over + " since 00:00 UTC (--budget-usd-per-day, --budget-tokens-per-day)")
	}
	return nil
}

// CheckBudget is a task.ErrBudget while the server's budget of this day is used up. Then until
// is when the next day begins.
func (d *Desk) CheckBudget(ctx context.Context) (until time.Time, err error) {
	if d.cfg.Budget == (factory.Budget{}) {
		return until, nil
	}
	spent, err := d.cfg.Store.Usage.Today(ctx)
	if err == nil {
		err = d.OverToday(spent, true)
	}
	return d.cfg.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour), err
}
