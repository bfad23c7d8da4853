// Package metering decides what a request to a model may use at most, and what it has used in the end
// (SPEC 25.2). A book keeps the sums: the store's, or in a pod the book of what the worker has
// granted.
package metering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"triphammer/server/run/price"
	"triphammer/server/run/task"
)

// usualAnswer is taken for the most tokens of an answer of a model about which nothing is known.
const usualAnswer = 128_000

// mostModels is how many models the requests of an attempt may name: each has a row in the store (SPEC 25.3).
const mostModels = 100

// growth is how many tokens more are reserved when an answer uses more than was reserved.
const growth = 1000

// Use is what a request uses or has reserved.
type Use struct {
	Tokens task.Tokens
	USD    float64
}

// Entry is a change of what one request uses.
type Entry struct {
	Model     string
	At        time.Time // when the request was reserved for
	From, To  Use
	Requests  int64 // these are more than before
	Retries   int64
	Errors    int64 // requests that the provider did not answer
	Answered  int64 // requests that got a token
	WaitedMS  int64 // the sum of their times to the first token
	Unbounded bool  // it is used already, whatever the budgets say
}

// Book keeps what requests use. A Meter calls one method at a time, but for Crossed.Wait.
type Book interface {
	// InUSD tells whether a budget is in US dollars.
	InUSD() bool
	// Enter enters a change that no budget forbids. The error is a *Crossed if one does.
	Enter(ctx context.Context, e Entry) error
	// Settled is told of a request that has ended.
	Settled(model string, priced bool, used Use, call task.Call)
}

// Crossed is the error of Book.Enter if a budget would be crossed.
type Crossed struct {
	Tokens int64   // that are left of the budget; math.MaxInt64: it does not bound them
	USD    float64 // +Inf: it does not bound them
	// Wait waits until more may be there; nil: there is no more. It is called while other requests go on.
	Wait func(ctx context.Context) error
	// Over ends the run, and is the reason. next says for people what would have been next.
	Over func(next string) error
}

func (c *Crossed) Error() string { return "a budget would be crossed" }

// Meter is a task.Meter.
type Meter struct {
	Prices *price.Table
	Now    func() time.Time
	Book   Book

	mu      sync.Mutex      // held while the book is changed
	failed  bool            // the last request failed, so that the next is a retry
	dense   float64         // the highest ratio of a request's tokens to its estimate; 0 means 1
	carries bool            // a request was reserved for
	models  map[string]bool // that requests have named
}

// Carried tells whether a request to a model was reserved for.
func (m *Meter) Carried() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.carries
}

// reservation is a task.Reservation.
type reservation struct {
	meter *Meter
	model string
	price *price.Price // nil: it has none
	at    time.Time
	asked int64 // the estimate of the request's tokens, as the gateway made it
	most  int64 // for Output
	has   Use
}

// Reserve implements task.Meter.
func (m *Meter) Reserve(ctx context.Context, ask task.Ask) (task.Reservation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reservation{meter: m, model: ask.Model, price: m.Prices.Of(ask.Model), at: m.Now(), asked: ask.Input, most: -1}
	if r.price == nil && m.Book.InUSD() {
		return nil, fmt.Errorf("the model %q has no price, and a budget in US dollars needs its price: the operator can give it with --model-prices", ask.Model)
	}
	if m.models == nil {
		m.models = make(map[string]bool)
	}
	if !m.models[ask.Model] && len(m.models) == mostModels {
		return nil, fmt.Errorf("the requests of this run have named %d models, and may name no others", mostModels)
	}
	m.models[ask.Model] = true
	longest, input := int64(usualAnswer), int64(float64(ask.Input)*max(1, m.dense))
	if r.price != nil {
		longest = cmp.Or(r.price.Answer, longest)
		input = min(input, cmp.Or(r.price.Prompt, math.MaxInt64))
	}
	output := ask.Output
	if output < 0 {
		output = longest
	}
	for {
		e := Entry{Requests: 1}
		if m.failed {
			e.Retries = 1
		}
		crossed, err := m.enter(ctx, r, Use{task.Tokens{Input: input, Output: output}, r.mostUSD(input, output)}, e)
		switch {
		case err != nil:
			return nil, fmt.Errorf("what the request may use could not be reserved: %w", err)
		case crossed == nil:
			m.carries = true
			return r, nil
		}
		if left := r.left(crossed, input); ask.Output < 0 && left > 0 && left < output {
			output, r.most = left, left // it is cut off there
			continue
		}
		next := input
		if ask.Output > 0 { // else no answer at all has room
			next += ask.Output
		}
		return nil, crossed.Over(fmt.Sprintf("the next request to %q may use %d tokens", r.model, next))
	}
}

// enter makes the reservation hold something else. It waits for what the book waits for, while other
// requests go on.
func (m *Meter) enter(ctx context.Context, r *reservation, to Use, e Entry) (*Crossed, error) {
	e.Model, e.At, e.To = r.model, r.at, to
	for {
		e.From = r.has
		err := m.Book.Enter(ctx, e)
		crossed := (*Crossed)(nil)
		switch {
		case err == nil:
			r.has = to
			return nil, nil
		case !errors.As(err, &crossed):
			return nil, err
		case crossed.Wait == nil:
			return crossed, nil
		}
		m.mu.Unlock()
		err = crossed.Wait(ctx)
		m.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// left is how many tokens of output a budget leaves beside the input of a request.
func (r *reservation) left(crossed *Crossed, input int64) int64 {
	left := crossed.Tokens
	if left < math.MaxInt64 {
		left -= input
	}
	if !math.IsInf(crossed.USD, 1) && r.price != nil {
		left = min(left, r.price.Affords(crossed.USD, input, r.at))
	}
	return left
}

// mostUSD is what tokens cost at most; without a price, nobody knows.
func (r *reservation) mostUSD(input, output int64) float64 {
	if r.price == nil {
		return 0
	}
	return r.price.Most(input, output, r.at)
}

func (r *reservation) cost(t task.Tokens) float64 {
	if r.price == nil {
		return 0
	}
	return r.price.Cost(t, r.at)
}

// Output implements task.Reservation.
func (r *reservation) Output() int64 { return r.most }

// Used implements task.Reservation.
func (r *reservation) Used(ctx context.Context, by task.Tokens) error {
	m := r.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	usd := r.cost(by)
	if by.Total() <= r.has.Tokens.Total() && usd <= r.has.USD {
		return nil
	}
	// The estimate was too low. Reserve some more than that, so that not every part of the answer does.
	next := by
	next.Output += growth
	crossed, err := m.enter(ctx, r, Use{next, r.cost(next)}, Entry{})
	if err != nil || crossed == nil {
		return err
	}
	_, _ = m.enter(ctx, r, Use{by, usd}, Entry{Unbounded: true}) // it is used
	return crossed.Over(fmt.Sprintf("an answer of %q uses more", r.model))
}

// settleTime is how long what was not used can be given back while the book is away.
const settleTime = 30 * time.Second

// Settle implements task.Reservation.
func (r *reservation) Settle(call task.Call) {
	m := r.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	used := Use{call.Used, r.cost(call.Used)}
	switch {
	case call.Unsent:
		used = Use{}
	case !call.Complete: // nobody told what it used
		used.Tokens.Input += max(0, r.has.Tokens.Prompt()-used.Tokens.Prompt())
		used.Tokens.Output = max(used.Tokens.Output, r.has.Tokens.Output)
		used.USD = max(r.has.USD, r.cost(used.Tokens))
	case r.asked > 0:
		m.dense = max(m.dense, float64(used.Tokens.Prompt())/float64(r.asked))
	}
	m.failed = call.Failed()
	e := Entry{Unbounded: true}
	if m.failed {
		e.Errors = 1
	}
	if call.First > 0 {
		e.Answered, e.WaitedMS = 1, call.First.Milliseconds()
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime) // whether the run goes on or not
	defer cancel()
	if _, err := m.enter(ctx, r, used, e); err == nil {
		m.Book.Settled(r.model, r.price != nil, used, call)
	}
}
