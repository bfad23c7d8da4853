package worker

import (
	"context"
	"errors"
	"fmt"

	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// charge records what the run used since the last charge. The error is a task.ErrBudget if a
// budget is exceeded, or, before the agent starts, if a budget of a day is used up.
func (a *attempt) charge(ctx context.Context, used event.Usage, starting bool) error {
	if used == a.charged && !starting {
		return nil
	}
	if a.adopted && tokensOf(used) <= tokensOf(a.charged) && used.CostUSD <= a.charged.CostUSD && used.Turns <= a.charged.Turns {
		return nil // another worker has recorded this usage, and the report tells of it again
	}
	if a.meter.holds() { // what is granted counts until it is known what was used
		return a.turns(used)
	}
	if a.meter.carried() { // its counts are those of record (SPEC 25.3)
		a.charged = used
		return a.turns(used)
	}
	total := store.Spending{Tokens: a.earlier.Tokens + tokensOf(used), CostUSD: a.earlier.CostUSD + used.CostUSD}
	automation, server, err := a.manager.cfg.Store.Usage.Record(ctx, a.lease, total)
	if err != nil {
		if !errors.Is(err, store.ErrFenced) { // the heartbeat notices a lost lease
			a.logger.Warn("recording what a run used", "error", err)
		}
		return nil
	}
	more := store.Spending{Tokens: max(0, tokensOf(used)-tokensOf(a.charged)), CostUSD: max(0, used.CostUSD-a.charged.CostUSD)}
	if more != (store.Spending{}) {
		a.manager.cfg.Observe(run.Observation{Factory: a.factory, Automation: a.automation, Used: more})
	}
	a.charged = used
	b := a.budget
	if over := run.Exceeded(total, b.USD, b.Tokens, false); over != "" {
		return run.OverBudget("the run used up its budget: " + over + " (budget of its environment or automation)")
	}
	if over := a.turns(used); over != nil {
		return over
	}
	if a.automation != "" {
		if over := run.Exceeded(automation, b.USDPerDay, b.TokensPerDay, starting); over != "" {
			return run.OverBudget("the automation used up its budget of this day: " + over + " since 00:00 UTC (usdPerDay, tokensPerDay of its budget)")
		}
	}
	return a.manager.desk.OverToday(server, starting)
}

func (a *attempt) turns(used event.Usage) error {
	if most := a.budget.Turns; most > 0 && used.Turns > most {
		return run.OverBudget(fmt.Sprintf("the run used up its budget: %d of %d turns (budget.turns of its environment or automation)", used.Turns, most))
	}
	return nil
}

func tokensOf(u event.Usage) int64 { return u.InputTokens + u.OutputTokens }
