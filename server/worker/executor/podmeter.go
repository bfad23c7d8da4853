package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"triphammer/server/run/task"
	"triphammer/server/worker/metering"
)

// The way out of a pod cannot ask the worker for each request to a model: the cluster passes a changed
// secret on after a minute. So the worker grants it a part of the budgets (task.Grants), by a file beside
// that of the way out. The way out counts within that, tells by its log what it has counted, and asks for
// more before it needs more.

// GrantFile is the name of the file with the task.Grant.
const GrantFile = "grant"

// Times of podBook.
const (
	askTime = 10 * time.Minute // to wait for more than was granted
	askLook = 200 * time.Millisecond
)

// podBook is the metering.Book of a pod.
type podBook struct {
	terms  task.Terms
	folder string // with the GrantFile
	file   string // keeps what is counted, for when the container is started again
	tell   func(task.Counted)

	mu  sync.Mutex
	has podCounts
}

// podCounts is the content of podBook.file.
type podCounts struct {
	Models map[string]task.Counts `json:"models"`
	Tokens int64                  `json:"tokens"` // the sums of Models
	USD    float64                `json:"usd"`
	Asked  task.Grant             `json:"asked"` // the newest question
	Final  bool                   `json:"final"`
}

func newPodBook(terms task.Terms, folder, file string, tell func(task.Counted)) (*podBook, error) {
	b := &podBook{terms: terms, folder: folder, file: file, tell: tell, has: podCounts{Models: make(map[string]task.Counts)}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &b.has)
	}
	if err != nil {
		return nil, fmt.Errorf("what the run has used cannot be read: %w", err)
	}
	return b, nil
}

// InUSD implements metering.Book.
func (b *podBook) InUSD() bool { return b.terms.USD }

// Enter implements metering.Book.
func (b *podBook) Enter(_ context.Context, e metering.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.has.Final {
		return errors.New("the gateway of the run was ended")
	}
	tokens, usd := e.To.Tokens.Total()-e.From.Tokens.Total(), e.To.USD-e.From.USD
	if !e.Unbounded {
		if err := b.crossed(tokens, usd); err != nil {
			return err
		}
	}
	next := b.has
	next.Tokens, next.USD = next.Tokens+tokens, next.USD+usd
	before := b.has.Models[e.Model]
	of := before
	of.Model = e.Model
	of.Used.Input += e.To.Tokens.Input - e.From.Tokens.Input
	of.Used.CacheRead += e.To.Tokens.CacheRead - e.From.Tokens.CacheRead
	of.Used.CacheWrite += e.To.Tokens.CacheWrite - e.From.Tokens.CacheWrite
	of.Used.Output += e.To.Tokens.Output - e.From.Tokens.Output
	of.USD += usd
	of.Requests += e.Requests
	of.Retries += e.Retries
	of.Errors += e.Errors
	of.Answered += e.Answered
	of.WaitedMS += e.WaitedMS
	next.Models[e.Model] = of
	if err := b.keep(next); err != nil {
		next.Models[e.Model] = before
		return err
	}
	b.tell(task.Counted{Models: []task.Counts{of}})
	return nil
}

// keep makes the counts last.
func (b *podBook) keep(next podCounts) error {
	data, err := json.Marshal(next)
	if err == nil {
		err = os.WriteFile(b.file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(b.file+".new", b.file)
	}
	if err != nil {
		return fmt.Errorf("what the run uses cannot be kept: %w", err)
	}
	b.has = next
	return nil
}

// crossed is the error if so much more is not granted. It asks for more before the next request of this
// size needs it.
func (b *podBook) crossed(tokens int64, usd float64) error {
	g, err := b.granted()
	if err != nil {
		return err
	}
	over := func(times int64) bool {
		return b.terms.Tokens && b.has.Tokens+times*tokens > g.Tokens || b.terms.USD && b.has.USD+float64(times)*usd > g.USD+1e-9
	}
	if g.Last == "" && over(2) && b.has.Asked.Answered <= g.Answered {
		next := b.has
		next.Asked = task.Grant{Tokens: b.has.Tokens + tokens, USD: b.has.USD + usd, Answered: b.has.Asked.Answered + 1}
		if !over(1) { // there is time
			next.Asked.Tokens, next.Asked.USD = next.Asked.Tokens+tokens, next.Asked.USD+usd
		}
		if err := b.keep(next); err != nil {
			return err
		}
		b.tell(task.Counted{Ask: &next.Asked})
	}
	if !over(1) {
		return nil
	}
	c := &metering.Crossed{Tokens: math.MaxInt64, USD: math.Inf(1), Over: func(next string) error {
		b.tell(task.Counted{Over: next})
		return fmt.Errorf("%s, and %s", g.Last, next)
	}}
	if b.terms.Tokens {
		c.Tokens = g.Tokens - b.has.Tokens
	}
	if b.terms.USD {
		c.USD = g.USD - b.has.USD
	}
	if number := b.has.Asked.Answered; g.Last == "" {
		c.Wait = func(ctx context.Context) error { return b.wait(ctx, number) }
	}
	return c
}

// wait waits until a question is answered.
func (b *podBook) wait(ctx context.Context, number int) error {
	late := time.NewTimer(askTime)
	defer late.Stop()
	look := time.NewTicker(askLook)
	defer look.Stop()
	for {
		if g, err := b.granted(); err != nil || g.Answered >= number || g.Last != "" {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return errors.New("no worker has answered: the run needs more of its budgets than it was granted")
		case <-look.C:
		}
	}
}

func (b *podBook) granted() (g task.Grant, err error) {
	if !b.terms.Tokens && !b.terms.USD {
		return g, nil
	}
	data, err := os.ReadFile(filepath.Join(b.folder, GrantFile))
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		return g, fmt.Errorf("what the run may use cannot be read: %w", err)
	}
	return g, nil
}

// Settled implements metering.Book.
func (b *podBook) Settled(model string, _ bool, used metering.Use, call task.Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	call.Used = used.Tokens
	b.tell(task.Counted{Models: []task.Counts{b.has.Models[model]}, Call: &call, CallUSD: used.USD})
}

// end tells all counts, when no request follows.
func (b *podBook) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.has
	next.Final = true
	if b.keep(next) != nil {
		return // what was granted counts
	}
	const page = 100 // the frames are bounded
	c := task.Counted{}
	for _, of := range b.has.Models {
		if c.Models = append(c.Models, of); len(c.Models) == page {
			b.tell(c)
			c.Models = nil
		}
	}
	c.Final = true
	b.tell(c)
}
