package run

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// OverBudget is an error that says which budget is used up. errors.Is finds task.ErrBudget in it.
type OverBudget string

func (o OverBudget) Error() string        { return string(o) }
func (o OverBudget) Is(target error) bool { return target == task.ErrBudget }

// Exceeded says which limit the spending is above, or with reached, which limit it has
// reached; empty: no limit. A limit of 0 means no limit.
func Exceeded(spent store.Spending, usd float64, tokens int64, reached bool) string {
	switch {
	case usd > 0 && (spent.CostUSD > usd || reached && spent.CostUSD >= usd):
		return usedUSD(spent, usd)
	case tokens > 0 && (spent.Tokens > tokens || reached && spent.Tokens >= tokens):
		return usedTokens(spent, tokens)
	}
	return ""
}

func usedUSD(spent store.Spending, usd float64) string {
	return dollars(spent.CostUSD) + " of " + dollars(usd) + " USD"
}

func usedTokens(spent store.Spending, tokens int64) string {
	return fmt.Sprintf("%d of %d tokens", spent.Tokens, tokens)
}

// Used says how much of a limit the spending is.
func Used(spent, limit store.Spending) string {
	var parts []string
	if limit.CostUSD > 0 {
		parts = append(parts, usedUSD(spent, limit.CostUSD))
	}
	if limit.Tokens > 0 {
		parts = append(parts, usedTokens(spent, limit.Tokens))
	}
	return strings.Join(parts, " and ")
}

func dollars(usd float64) string { return strconv.FormatFloat(usd, 'f', -1, 64) }

// OverToday returns an OverBudget if the spending of this day is above the server's budget of
// a day, or with reached, if it has reached the budget.
func (d *Desk) OverToday(spent store.Spending, reached bool) error {
	b := d.cfg.Budget
	if over := Exceeded(spent, b.USDPerDay, b.TokensPerDay, reached); over != "" {
		return OverBudget("the server used up its budget of this day: " + over + " since 00:00 UTC (--budget-usd-per-day, --budget-tokens-per-day)")
	}
	return nil
}

// CheckBudget returns an OverBudget while the server's budget of this day (UTC) is used up.
// until is when the next day begins.
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
