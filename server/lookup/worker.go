// Package lookup asks senders' APIs for data that deliveries lack (SPEC 16.3), such as the
// files of a pull request or the name of a channel.
//
// The transaction that records a delivery also records its questions. A [Worker] takes the
// waiting questions from the store, asks them, and gives the answers to [Deliveries], which
// decides. After a failure, it asks again at growing intervals, even across restarts, and gives
// up after [Patience]. The store keeps the answers, or the reasons why there are none, with
// the delivery.
package lookup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"triphammer/factory/native"
	"triphammer/server/store"
)

// Patience is how long a question is asked again after failures. It is longer than the hour
// after which GitHub lifts a rate limit.
const Patience = 90 * time.Minute

const (
	atOnce      = 64              // deliveries whose questions are asked at the same time
	perWebhook  = 4               // limit of atOnce for one webhook, so that an API that hangs delays only its own deliveries
	poll        = time.Second     // after an error of the store
	attemptTime = 2 * time.Minute // for one question, because a long list has many pages
	minAttempts = 5               // before a question is given up, even if the server was off for long
)

// pauses are the times between the attempts; the last time repeats.
var pauses = []time.Duration{time.Second, 4 * time.Second, 15 * time.Second, time.Minute, 3 * time.Minute, 10 * time.Minute}

// Deliveries knows whom to ask, and decides with the answers.
type Deliveries interface {
	// API is the API of the sender of a delivery. The error wraps store.ErrNotFound if the
	// delivery is gone.
	API(ctx context.Context, id store.DeliveryID) (API, error)
	// Decide records answers, and starts the automations that match with them.
	Decide(ctx context.Context, id store.DeliveryID, asked []store.Lookup) error
}

// Config is what a Worker needs. All fields but Client are required.
type Config struct {
	Store      *store.Store
	Deliveries Deliveries
	Client     *Client // nil: NewClient
	Observe    func(provider, outcome string)
	Now        func() time.Time
	Logger     *slog.Logger
}

// Worker asks the questions that wait in the store.
type Worker struct {
	Config
	wake chan struct{}
}

// New makes a Worker.
func New(cfg Config) *Worker {
	if cfg.Client == nil {
		cfg.Client = NewClient(cfg.Now)
	}
	return &Worker{cfg, make(chan struct{}, 1)}
}

// Wake tells the worker that questions were recorded.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run asks until ctx is done.
func (w *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	asking := make(map[store.DeliveryID]string) // the webhooks of deliveries whose questions are being asked
	done := make(chan store.DeliveryID)
	begin := func(id store.DeliveryID, questions []store.Lookup) {
		asking[id] = questions[0].WebhookUID
		group.Go(func() {
			if err := w.ask(ctx, id, questions); err != nil && ctx.Err() == nil {
				w.Logger.Error("questions to a sender could not be recorded", "delivery", id, "error", err)
				select { // the questions are still due
				case <-ctx.Done():
				case <-time.After(poll):
				}
			}
			select {
			case <-ctx.Done():
			case done <- id:
			}
		})
	}
	for ctx.Err() == nil {
		next, err := w.askDue(ctx, asking, begin)
		if err != nil && ctx.Err() == nil {
			w.Logger.Error("questions to senders could not be read", "error", err)
			next = poll
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
		case id := <-done:
			delete(asking, id)
		}
		timer.Stop()
	}
	return nil
}

// askDue begins the due questions for which there is room. It returns the time until another
// question is due.
func (w *Worker) askDue(ctx context.Context, asking map[store.DeliveryID]string, begin func(store.DeliveryID, []store.Lookup)) (next time.Duration, err error) {
	next = time.Hour
	waiting, err := w.Store.Lookups.Waiting(ctx, 100)
	if err != nil {
		return next, err
	}
	used := make(map[string]int) // by webhook
	for _, uid := range asking {
		used[uid]++
	}
	due, total := make(map[store.DeliveryID][]store.Lookup), len(asking)
	for _, l := range waiting {
		if _, is := asking[l.DeliveryID]; is {
			continue
		}
		switch wait := l.DueAt.Sub(w.Now()); {
		case wait > 0:
			next = min(next, wait)
		case due[l.DeliveryID] != nil:
			due[l.DeliveryID] = append(due[l.DeliveryID], l)
		case total < atOnce && used[l.WebhookUID] < perWebhook:
			due[l.DeliveryID] = []store.Lookup{l}
			used[l.WebhookUID]++
			total++
		}
	}
	for id, questions := range due {
		begin(id, questions)
	}
	return next, nil
}

// ask makes one attempt at the questions of a delivery.
func (w *Worker) ask(ctx context.Context, id store.DeliveryID, questions []store.Lookup) error {
	api, problem := w.Deliveries.API(ctx, id)
	if errors.Is(problem, store.ErrNotFound) {
		return w.Store.Lookups.Drop(ctx, id)
	}
	for i := range questions {
		l, err := &questions[i], problem
		if err == nil {
			asking, cancel := context.WithTimeout(ctx, attemptTime)
			l.Answer, err = w.Client.Ask(asking, api, native.Question{Provider: l.Provider, Name: l.Name, Args: l.Args})
			cancel()
		}
		if ctx.Err() != nil {
			return nil // the next server asks again
		}
		w.tried(l, err)
	}
	err := w.Deliveries.Decide(ctx, id, questions)
	if errors.Is(err, store.ErrDamaged) { // no further attempt can decide
		w.Logger.Error("a delivery cannot be decided by the answers of its sender", "delivery", id, "error", err)
		return w.Store.Lookups.Drop(ctx, id)
	}
	return err
}

func (w *Worker) tried(l *store.Lookup, err error) {
	l.Attempts++
	l.UpdatedAt = w.Now()
	if err == nil {
		l.State, l.DueAt, l.Detail = store.LookupAnswered, time.Time{}, ""
		w.Observe(l.Provider, store.LookupAnswered)
		return
	}
	f := (*failure)(nil)
	if !errors.As(err, &f) {
		f = &failure{text: err.Error()}
	}
	l.Detail = f.text
	pause := max(pauses[min(int(l.Attempts), len(pauses))-1], f.after)
	if f.final || l.Attempts >= minAttempts && w.Now().Sub(l.CreatedAt) > Patience {
		l.State, l.DueAt = store.LookupFailed, time.Time{}
		w.Observe(l.Provider, store.LookupFailed)
		w.Logger.Error("a sender's API did not tell what a delivery lacks: automations that wait for it start nothing",
			"delivery", l.DeliveryID, "provider", l.Provider, "asked", l.Name, "error", l.Detail, "attempts", l.Attempts,
			"cure", "triphammer deliveries replay "+l.DeliveryID.String())
		return
	}
	l.State, l.DueAt = store.LookupWaiting, w.Now().Add(pause)
	w.Observe(l.Provider, store.LookupWaiting)
	w.Logger.Warn("a sender's API did not answer; it is asked again", "delivery", l.DeliveryID, "provider", l.Provider, "asked", l.Name,
		"error", l.Detail, "attempts", l.Attempts, "next", l.DueAt.UTC().Format(time.RFC3339))
}
