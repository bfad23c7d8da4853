package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"triphammer/factory"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// overBudget says which budget is used up. It is an ErrBudget.
type overBudget string

func (o overBudget) Error() string        { return string(o) }
func (o overBudget) Is(target error) bool { return target == task.ErrBudget }

// charge records what the run used since the last charge. The error is an ErrBudget if a
// budget is exceeded, or, before the agent starts, if one of a day is used up.
func (a *attempt) charge(ctx context.Context, used event.Usage, starting bool) error {
	if used == a.charged && !starting {
		return nil
	}
	if a.adopted && tokensOf(used) <= tokensOf(a.charged) && used.CostUSD <= a.charged.CostUSD && used.Turns <= a.charged.Turns {
		return nil // another worker has recorded it, and this one hears of it again
	}
	run := store.Spending{Tokens: a.earlier.Tokens + tokensOf(used), CostUSD: a.earlier.CostUSD + used.CostUSD}
	automation, server, err := a.manager.cfg.Store.RecordUsage(ctx, a.lease, run)
	if err != nil {
		if !errors.Is(err, store.ErrFenced) { // which the heartbeat notices
			a.logger.Warn("recording what a run used", "error", err)
		}
		return nil
	}
	more := store.Spending{Tokens: max(0, tokensOf(used)-tokensOf(a.charged)), CostUSD: max(0, used.CostUSD-a.charged.CostUSD)}
	if more != (store.Spending{}) {
		a.manager.cfg.Observe(Observation{Factory: a.factory, Automation: a.automation, Used: more})
	}
	a.charged = used
	b := a.budget
	if over := exceeded(run, b.USD, b.Tokens, false); over != "" {
		return overBudget("the run used up its budget: " + over + " (budget of its environment or automation)")
	}
	if b.Turns > 0 && used.Turns > b.Turns {
		return overBudget(fmt.Sprintf("the run used up its budget: %d of %d turns (budget.turns of its environment or automation)", used.Turns, b.Turns))
	}
	if a.automation != "" {
		if over := exceeded(automation, b.USDPerDay, b.TokensPerDay, starting); over != "" {
			return overBudget("the automation used up its budget of this day: " + over + " since 00:00 UTC (usdPerDay, tokensPerDay of its budget)")
		}
	}
	return a.manager.overToday(server, starting)
}

func tokensOf(u event.Usage) int64 { return u.InputTokens + u.OutputTokens }

// exceeded says by what a spending is above its limits, or has reached them; empty: it is
// not. A limit of 0 is none.
func exceeded(spent store.Spending, usd float64, tokens int64, reached bool) string {
	switch {
	case usd > 0 && (spent.CostUSD > usd || reached && spent.CostUSD >= usd):
		return dollars(spent.CostUSD) + " of " + dollars(usd) + " USD"
	case tokens > 0 && (spent.Tokens > tokens || reached && spent.Tokens >= tokens):
		return fmt.Sprintf("%d of %d tokens", spent.Tokens, tokens)
	}
	return ""
}

func dollars(usd float64) string { return strconv.FormatFloat(usd, 'f', -1, 64) }

// overToday is an ErrBudget if the server's budget of a day is exceeded by what it has
// spent, or has been reached by it.
func (m *Manager) overToday(spent store.Spending, reached bool) error {
	b := m.cfg.Budget
	if over := exceeded(spent, b.USDPerDay, b.TokensPerDay, reached); over != "" {
		return overBudget("the server used up its budget of this day: " + over + " since 00:00 UTC (--budget-usd-per-day, --budget-tokens-per-day)")
	}
	return nil
}

// CheckBudget is an ErrBudget while the server's budget of this day is used up. Then until
// is when the next day begins.
func (m *Manager) CheckBudget(ctx context.Context) (until time.Time, err error) {
	if m.cfg.Budget == (factory.Budget{}) {
		return until, nil
	}
	spent, err := m.cfg.Store.SpentToday(ctx)
	if err == nil {
		err = m.overToday(spent, true)
	}
	return m.cfg.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour), err
}
