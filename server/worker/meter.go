package worker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
	"triphammer/server/worker/metering"
)

// meter counts the requests of an attempt to models. What it counts is the usage of record of the run
// (SPEC 25.3). The store holds the budgets, over all workers: what a request reserves is recorded as
// used before the request is sent, and less is recorded when it has ended. So nothing is lost if
// this worker dies.
//
// It is the book of the task.Meter of a gateway in this process. To a gateway in a pod, it grants a
// part of the budgets (task.Grants).
type meter struct {
	metering.Meter
	attempt *attempt

	mu     sync.Mutex // held while the store records
	used   store.Spending
	models map[counted]store.ModelUsage
	over   error // why the run must end; nil: it keeps its budgets

	// These are for a gateway in a pod.
	began   time.Time      // the attempt
	granted store.Spending // a budget that does not exist has 0
	carries bool           // it has carried a request
	final   bool           // it has ended
	crossed *store.Crossed // by what it asked for last; nil: by nothing
}

// counted is what has a row of its own in the store.
type counted struct{ day, model string }

func newMeter(a *attempt) *meter {
	m := &meter{attempt: a, models: make(map[counted]store.ModelUsage)}
	m.Meter = metering.Meter{Prices: a.manager.cfg.Capabilities.Prices, Now: a.manager.cfg.Now, Book: m}
	return m
}

// carried tells whether a request to a model went through the gateway, or was refused there because of a
// budget. Then the agent's own report is not counted.
func (m *meter) carried() bool {
	here := m.Carried()
	m.mu.Lock()
	defer m.mu.Unlock()
	return here || m.carries || m.over != nil
}

// limits are the budgets that hold for the run.
func (m *meter) limits() store.Limits {
	b, server := m.attempt.budget, m.attempt.manager.cfg.Budget
	l := store.Limits{Run: store.Spending{Tokens: b.Tokens, CostUSD: b.USD}, Server: store.Spending{Tokens: server.TokensPerDay, CostUSD: server.USDPerDay}}
	if m.attempt.automation != "" {
		l.Automation = store.Spending{Tokens: b.TokensPerDay, CostUSD: b.USDPerDay}
	}
	return l
}

// InUSD implements metering.Book.
func (m *meter) InUSD() bool {
	l := m.limits()
	return l.Run.CostUSD+l.Automation.CostUSD+l.Server.CostUSD > 0
}

// Enter implements metering.Book.
func (m *meter) Enter(ctx context.Context, e metering.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Unbounded {
		err := m.record(ctx, e, store.Limits{})
		if err != nil {
			m.lost(err)
		}
		return err
	}
	limits := m.limits()
	err := m.record(ctx, e, limits)
	crossed := (*store.Crossed)(nil)
	if !errors.As(err, &crossed) {
		return err
	}
	limit := limitOf(limits, crossed)
	left := &metering.Crossed{Tokens: math.MaxInt64, USD: math.Inf(1), Over: func(next string) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.exceeds(crossed, limit, next)
	}}
	// What the request holds already, it may use.
	if limit.Tokens > 0 {
		left.Tokens = limit.Tokens - crossed.Used.Tokens + e.From.Tokens.Total()
	}
	if limit.CostUSD > 0 {
		left.USD = limit.CostUSD - crossed.Used.CostUSD + e.From.USD
	}
	return left
}

func limitOf(l store.Limits, crossed *store.Crossed) store.Spending {
	return map[string]store.Spending{store.OfRun: l.Run, store.OfAutomation: l.Automation, store.OfServer: l.Server}[crossed.Of]
}

// budgets say which budget a store.Crossed means.
var budgets = map[string]struct{ used, of string }{
	store.OfRun:        {"the run used up its budget", "budget of its environment or automation"},
	store.OfAutomation: {"the automation used up its budget of this day", "usdPerDay, tokensPerDay of its budget, since 00:00 UTC"},
	store.OfServer:     {"the server used up its budget of this day", "--budget-usd-per-day, --budget-tokens-per-day, since 00:00 UTC"},
}

// exceeds ends the run because of a budget that would be crossed.
func (m *meter) exceeds(crossed *store.Crossed, limit store.Spending, next string) error {
	b := budgets[crossed.Of]
	over := run.OverBudget(b.used + ": " + run.Used(crossed.Used, limit) + ", and " + next + " (" + b.of + ")")
	if m.over == nil {
		m.over = over
		m.attempt.logger.Warn("a run exceeds a budget: its agent is stopped", "reason", over)
		m.attempt.cancel(over)
	}
	return over
}

// judged is the verdict of the run, which FAILS if its agent was refused what it needed.
func (m *meter) judged(v verdict) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil && v.state != store.Cancelled {
		return failed("%v", m.over)
	}
	return v
}

// Settled implements metering.Book.
func (m *meter) Settled(model string, priced bool, used metering.Use, call task.Call) {
	m.attempt.manager.cfg.Observe(run.Observation{
		Factory: m.attempt.factory, Automation: m.attempt.automation, Used: store.Spending{Tokens: used.Tokens.Total(), CostUSD: used.USD},
		Model: m.Prices.Name(model), Priced: priced, Tokens: used.Tokens, Failed: call.Failed(), First: call.First,
	})
}

// lost says that the store keeps more as used than was.
func (m *meter) lost(err error) {
	if !errors.Is(err, store.ErrFenced) { // the heartbeat notices a lost lease
		m.attempt.logger.Warn("recording what a run used: what was reserved counts as used", "error", err)
	}
}

// record makes a request use something else, and adds to the counts of its model.
func (m *meter) record(ctx context.Context, e metering.Entry, limits store.Limits) error {
	key := counted{e.At.UTC().Format(time.DateOnly), e.Model}
	of, from, to := m.models[key], e.From.Tokens, e.To.Tokens
	of.Model = e.Model
	of.Input += to.Input - from.Input
	of.CacheRead += to.CacheRead - from.CacheRead
	of.CacheWrite += to.CacheWrite - from.CacheWrite
	of.Output += to.Output - from.Output
	of.CostUSD += e.To.USD - e.From.USD
	of.Requests += e.Requests
	of.Retries += e.Retries
	of.Errors += e.Errors
	of.Answered += e.Answered
	of.WaitedMS += e.WaitedMS
	used := store.Spending{Tokens: m.used.Tokens + to.Total() - from.Total(), CostUSD: m.used.CostUSD + e.To.USD - e.From.USD}
	err := m.account(ctx, e.At, used, limits, of)
	if err == nil {
		m.used, m.models[key] = used, of
	}
	return err
}

// account records that the attempt uses so much. It waits for a store that is away, which comes back, or
// the run ends.
func (m *meter) account(ctx context.Context, at time.Time, used store.Spending, limits store.Limits, models ...store.ModelUsage) error {
	a := m.attempt
	return a.patiently(ctx, func() error {
		total := store.Spending{Tokens: a.earlier.Tokens + used.Tokens, CostUSD: a.earlier.CostUSD + used.CostUSD}
		return a.manager.cfg.Store.Usage.Account(ctx, a.lease, at, total, limits, models...)
	})
}

// A gateway in a pod counts by itself, within what it is granted. What is granted counts as used until
// the gateway has told what it used in the end. All of it counts on the day on which the attempt began, so that
// no day has more than its budget.

// dayParts is how many parts of a budget of a day a pod is granted at a time, so that one run does not keep others
// from all of it.
const dayParts = 8

// Terms implements task.Grants.
func (m *meter) Terms() task.Terms {
	l := m.limits()
	return task.Terms{Prices: m.Prices.JSON(), Tokens: l.Run.Tokens+l.Automation.Tokens+l.Server.Tokens > 0, USD: m.InUSD()}
}

// Count implements task.Grants.
func (m *meter) Count(ctx context.Context, c task.Counted) (task.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var models []store.ModelUsage
	used, news := m.used, len(c.Models) > 0 || c.Final
	for _, of := range c.Models {
		if of.Model == store.Reserved {
			of.Model += "?"
		}
		before := m.models[counted{model: of.Model}]
		now := store.ModelUsage{
			Model: of.Model, Input: of.Used.Input, CacheRead: of.Used.CacheRead, CacheWrite: of.Used.CacheWrite, Output: of.Used.Output, CostUSD: of.USD,
			Requests: of.Requests, Retries: of.Retries, Errors: of.Errors, Answered: of.Answered, WaitedMS: of.WaitedMS,
		}
		if now.Requests < before.Requests { // it was read before, by another worker
			return task.Grant{}, nil
		}
		models = append(models, now)
		used.Tokens += sumOf(now) - sumOf(before)
		used.CostUSD += now.CostUSD - before.CostUSD
		m.carries = m.carries || now.Requests > 0
	}
	if m.final = m.final || c.Final; news {
		if err := m.hold(ctx, used, m.granted, store.Limits{}, models); err != nil {
			m.lost(err)
			return task.Grant{}, err
		}
		for _, now := range models {
			m.models[counted{model: now.Model}] = now
		}
		m.used = used
	}
	if c.Call != nil && len(models) == 1 {
		m.Settled(models[0].Model, m.Prices.Of(models[0].Model) != nil, metering.Use{Tokens: c.Call.Used, USD: c.CallUSD}, *c.Call)
	}
	g := task.Grant{}
	bounded := m.limits() != (store.Limits{})
	if first := !news && c.Over == ""; bounded && !m.final && (c.Ask != nil || first) {
		want := store.Spending{}
		if c.Ask != nil {
			want, g.Answered = store.Spending{Tokens: c.Ask.Tokens, CostUSD: c.Ask.USD}, c.Ask.Answered
		}
		if err := m.grant(ctx, want); err != nil {
			return task.Grant{}, err
		}
		if m.crossed != nil {
			g.Last = budgets[m.crossed.Of].used
		}
	}
	g.Tokens, g.USD = m.granted.Tokens, m.granted.CostUSD
	if c.Over != "" {
		m.overGrant(c.Over)
	}
	return g, nil
}

func sumOf(u store.ModelUsage) int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// hold records what a pod uses, and that it may use what it is granted.
func (m *meter) hold(ctx context.Context, used, granted store.Spending, limits store.Limits, models []store.ModelUsage) error {
	total := used
	if !m.final {
		total = store.Spending{Tokens: max(used.Tokens, granted.Tokens), CostUSD: max(used.CostUSD, granted.CostUSD)}
	}
	rest := store.ModelUsage{Model: store.Reserved, Input: total.Tokens - used.Tokens, CostUSD: total.CostUSD - used.CostUSD}
	return m.account(ctx, m.began, total, limits, append(models, rest)...)
}

// grant grants at least what is wanted, or as much as there is.
func (m *meter) grant(ctx context.Context, want store.Spending) error {
	limits := m.limits()
	next := store.Spending{
		Tokens:  grantOf(want.Tokens, m.granted.Tokens, limits.Run.Tokens, m.attempt.earlier.Tokens, limits.Automation.Tokens, limits.Server.Tokens),
		CostUSD: grantOf(want.CostUSD, m.granted.CostUSD, limits.Run.CostUSD, m.attempt.earlier.CostUSD, limits.Automation.CostUSD, limits.Server.CostUSD),
	}
	m.crossed = nil
	whole := store.Spending{Tokens: limits.Run.Tokens - m.attempt.earlier.Tokens, CostUSD: limits.Run.CostUSD - m.attempt.earlier.CostUSD}
	wholly := (!m.Terms().Tokens || limits.Run.Tokens > 0 && next.Tokens >= whole.Tokens) && (!m.InUSD() || limits.Run.CostUSD > 0 && next.CostUSD >= whole.CostUSD)
	if wholly || next.Tokens < want.Tokens && limits.Run.Tokens > 0 || next.CostUSD < want.CostUSD && limits.Run.CostUSD > 0 {
		m.crossed = &store.Crossed{Of: store.OfRun}
	}
	for next != m.granted {
		err := m.hold(ctx, m.used, next, limits, nil)
		crossed := (*store.Crossed)(nil)
		switch {
		case err == nil:
			m.granted = next
			return nil
		case !errors.As(err, &crossed):
			return err
		}
		limit, asked := limitOf(limits, crossed), next
		if limit.Tokens > 0 { // crossed.Used has what was granted before
			next.Tokens = max(m.granted.Tokens, min(next.Tokens, m.held().Tokens+limit.Tokens-crossed.Used.Tokens))
		}
		if limit.CostUSD > 0 {
			next.CostUSD = max(m.granted.CostUSD, min(next.CostUSD, m.held().CostUSD+limit.CostUSD-crossed.Used.CostUSD))
		}
		if next == asked {
			next = m.granted
		}
		if next.Tokens < want.Tokens || next.CostUSD < want.CostUSD {
			m.crossed = crossed
		}
	}
	return nil
}

// held is what a pod uses or may use.
func (m *meter) held() store.Spending {
	return store.Spending{Tokens: max(m.used.Tokens, m.granted.Tokens), CostUSD: max(m.used.CostUSD, m.granted.CostUSD)}
}

// grantOf is what a pod that wants so much is granted, within the budget of the run, if its budgets of
// the day allow it. A limit of 0 is none.
func grantOf[T int64 | float64](want, granted, ofRun, earlier T, ofDay ...T) T {
	next, limited := max(want, granted), ofRun > 0
	part := T(0)
	for _, limit := range ofDay {
		if limit > 0 && (part == 0 || limit/dayParts < part) {
			limited, part = true, max(limit/dayParts, min(limit, 1))
		}
	}
	switch {
	case !limited:
		return 0
	case part == 0:
		next = ofRun - earlier
	case want > granted || granted == 0:
		next += part
	}
	if ofRun > 0 {
		next = min(next, ofRun-earlier)
	}
	return max(granted, next)
}

// overGrant ends the run because its pod needs more than there is.
func (m *meter) overGrant(next string) {
	crossed := cmp.Or(m.crossed, &store.Crossed{Of: store.OfRun})
	limit := limitOf(m.limits(), crossed)
	used := crossed.Used
	if crossed.Of == store.OfRun {
		used = store.Spending{Tokens: m.attempt.earlier.Tokens + m.used.Tokens, CostUSD: m.attempt.earlier.CostUSD + m.used.CostUSD}
	}
	_ = m.exceeds(&store.Crossed{Of: crossed.Of, Used: used}, limit, next)
}

// resume goes on with what another worker has counted in the attempt.
func (m *meter) resume(models []store.ModelUsage) {
	for _, of := range models {
		m.granted.Tokens += sumOf(of)
		m.granted.CostUSD += of.CostUSD
		if of.Model == store.Reserved {
			continue
		}
		m.used.Tokens += sumOf(of)
		m.used.CostUSD += of.CostUSD
		m.models[counted{model: of.Model}] = of
		m.carries = true
	}
	terms := m.Terms()
	if !terms.Tokens {
		m.granted.Tokens = 0
	}
	if !terms.USD {
		m.granted.CostUSD = 0
	}
}

// holds tells whether a pod may use more than is known to be used.
func (m *meter) holds() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.granted != (store.Spending{}) && !m.final
}
