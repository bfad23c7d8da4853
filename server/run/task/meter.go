package task

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Tokens is how many tokens requests to a model used. Each token is in one of the numbers,
// except that CacheHour is a part of CacheWrite and Reasoning a part of Output.
type Tokens struct {
	Input      int64 `json:"input,omitempty"` // neither read from a cache nor written to a cache
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	CacheHour  int64 `json:"cache_hour,omitempty"` // is kept for an hour, which costs more
	Output     int64 `json:"output,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
}

// Total is the number of tokens that budgets count.
func (t Tokens) Total() int64 { return t.Prompt() + t.Output }

// Prompt is the number of tokens of the request, from a cache or not.
func (t Tokens) Prompt() int64 { return t.Input + t.CacheRead + t.CacheWrite }

// Meter holds a run to its budgets while its gateway carries requests to models (SPEC 25.2).
// Its methods may be called at the same time.
type Meter interface {
	// Reserve takes from the budgets what a request may use at most. An error says which budget
	// it would cross, or that a budget in US dollars needs a price; the request must not be sent,
	// and the run ends.
	Reserve(ctx context.Context, ask Ask) (Reservation, error)
}

// Ask is what a request to a model may use.
type Ask struct {
	Model  string
	Input  int64 // estimate of its tokens, upward
	Output int64 // the most tokens that it says its answer may have; below 0: it says no maximum
}

// Reservation is what a request has reserved. It must be settled once; what is not settled,
// for example because the worker died, counts as used. Its methods must not be called at the
// same time.
type Reservation interface {
	// Output is the most tokens that the answer may have. It is to be put into the request if
	// the request said no maximum. Below 0: there is no maximum.
	Output() int64

	// Used is told what the answer has used by now. With an error, which is as of Reserve, the
	// answer must be cut off.
	Used(ctx context.Context, by Tokens) error

	// Settle gives back what was not used.
	Settle(call Call)
}

// Call is one request to a model that has ended.
type Call struct {
	Used     Tokens
	Complete bool          // the provider told the whole usage; else all that was reserved counts
	Unsent   bool          // the request did not reach the provider, or the provider refused it: it used nothing
	Status   int           // of HTTP; 0: there was no answer
	First    time.Duration // from the request to the first token; 0: there was no token
}

// Failed tells whether the provider did not answer.
func (c *Call) Failed() bool { return c.Status == 0 || c.Status >= http.StatusMultipleChoices }

// Grants are for a gateway that cannot ask the Meter for each request, because it is in a pod. It counts
// by itself within what it is granted, and tells what it has counted.
type Grants interface {
	Terms() Terms
	// Count takes what the gateway has counted by now, and returns what it may use in the attempt.
	// Nothing but the newest grant counts.
	Count(ctx context.Context, c Counted) (Grant, error)
}

// Terms are what a gateway needs to count by itself.
type Terms struct {
	Prices json.RawMessage `json:"prices"`           // a table of package price
	Tokens bool            `json:"tokens,omitempty"` // a grant bounds the tokens
	USD    bool            `json:"usd,omitempty"`    // a grant bounds the US dollars
}

// Grant is what the requests of an attempt may use.
type Grant struct {
	Tokens   int64   `json:"tokens,omitempty"`
	USD      float64 `json:"usd,omitempty"`
	Answered int     `json:"answered,omitempty"` // the number of the newest question that it answers
	Last     string  `json:"last,omitempty"`     // why there will be no more; empty: there may be more
}

// Counted is what a gateway has counted in an attempt by now. What requests under way have reserved is used.
type Counted struct {
	Models []Counts `json:"models,omitempty"` // those that have changed
	Ask    *Grant   `json:"ask,omitempty"`    // what is needed, with the number of this question in Answered
	Over   string   `json:"over,omitempty"`   // what would have been next, if there is no more
	Call   *Call    `json:"call,omitempty"`   // a request to the only one of Models that has ended
	// CallUSD is what the Call cost.
	CallUSD float64 `json:"call_usd,omitempty"`
	Final   bool    `json:"final,omitempty"` // no request follows
}

// Counts are those of the requests to a model.
type Counts struct {
	Model    string  `json:"model"`
	Used     Tokens  `json:"used"`
	USD      float64 `json:"usd,omitempty"`
	Requests int64   `json:"requests,omitempty"`
	Retries  int64   `json:"retries,omitempty"`
	Errors   int64   `json:"errors,omitempty"`
	Answered int64   `json:"answered,omitempty"`
	WaitedMS int64   `json:"waited_ms,omitempty"`
}
