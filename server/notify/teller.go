// Package notify reports the outcomes of commits and runs to other services. The service
// that hosts the repository gets commit statuses. One configured address gets signed
// messages.
//
// A [Teller] sends the notices of the store, which are its outbox. It has several queues:
// the commit statuses of each factory, the messages about the applies of each factory, and
// the messages about ended runs. No queue waits for another queue.
//
// The package guarantees (SPEC 12.5):
//
//   - Notices are delivered at least once. A notice stays in the outbox until it is
//     delivered or given up, even across restarts. The Webhook-Id tells a receiver that
//     a message arrived twice.
//   - The notice of the end of a run is written in the transaction that ends the run.
//   - Messages about an apply, and commit statuses, are written right after the apply
//     was recorded. If the server stops in between, the next start sees the same state
//     and writes them then.
//   - Statuses and messages about the applies of one factory are sent in order. The
//     ends of runs are sent in no order, several at once.
//   - No error and no log line has the path of an address, or the content of a request
//     or an answer, because each can hold a secret.
//
// For each factory, at most 100 statuses and 100 messages are kept. If more wait, the
// oldest are not sent, and the log says so.
//
// The package does not decide about commits (package applier) or runs (package run).
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"triphammer/server/store"
)

// poll is how often the outbox is read for notices that other code wrote, and how long a
// Teller waits after an error of the store.
const poll = time.Second

// Teller sends the notices in the outbox of a store.
type Teller struct {
	store   *store.Store
	now     func() time.Time
	log     *slog.Logger
	queues  []*queue
	workers []func(context.Context) // write to queues
}

// New makes a Teller. Its methods Commits and Runs configure it, and then Run starts it.
func New(s *store.Store, now func() time.Time, log *slog.Logger) *Teller {
	return &Teller{store: s, now: now, log: log}
}

// Run writes and sends notices until ctx is done.
func (t *Teller) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for _, q := range t.queues {
		workers.Go(func() { q.run(ctx) })
	}
	for _, work := range t.workers {
		workers.Go(func() { work(ctx) })
	}
	workers.Wait()
	return nil
}

// queue sends the notices of one recipient. A notice that fails is sent again after each
// of the pauses. After the last pause, or after a final failure, it is given up.
type queue struct {
	*Teller
	recipient string
	atOnce    int           // how many notices are sent at the same time; 1: in order
	timeout   time.Duration // of an attempt
	pauses    []time.Duration
	polls     bool // other code writes notices for the recipient
	send      func(ctx context.Context, n store.Notice) (status int, err error)
	final     func(err error) bool
	tried     func(n store.Notice, status int, err error) // called after each attempt
	wake      chan struct{}
}

// errUnwanted is the error of send for a notice that can be dropped.
var errUnwanted = errors.New("nobody wants to know")

func (t *Teller) add(q *queue) *queue {
	q.Teller, q.wake = t, make(chan struct{}, 1)
	t.queues = append(t.queues, q)
	return q
}

func (q *queue) run(ctx context.Context) {
	for ctx.Err() == nil {
		attempts, next, err := q.sendDue(ctx)
		if err != nil && ctx.Err() == nil {
			q.log.Error("the outbox could not be read or written", "of", q.recipient, "error", err)
			attempts, next = 0, poll
		}
		if attempts > 0 {
			continue
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sendDue makes the attempts that are due. It returns their number, and the time until the
// next attempt is due.
func (q *queue) sendDue(ctx context.Context) (attempts int, next time.Duration, err error) {
	if next = time.Hour; q.polls {
		next = poll
	}
	waiting, err := q.store.Notices.Next(ctx, q.recipient, q.atOnce == 1, q.atOnce)
	var sending errgroup.Group
	for now, i := q.now(), 0; i < len(waiting); i++ {
		if wait := waiting[i].DueAt.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		attempts++
		sending.Go(func() error { return q.attempt(ctx, waiting[i]) })
	}
	return attempts, next, errors.Join(err, sending.Wait())
}

// attempt sends one notice and records the outcome.
func (q *queue) attempt(ctx context.Context, n store.Notice) error {
	sending, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	status, err := q.send(sending, n)
	switch {
	case ctx.Err() != nil:
		return nil // the next server tries again
	case errors.Is(err, errUnwanted):
		return q.store.Notices.Drop(ctx, n.ID)
	}
	n.Attempts++
	n.DueAt, n.Status, n.Detail = time.Time{}, store.NoticeDelivered, fmt.Sprintf("answered %d", status)
	if err != nil {
		n.Status, n.Detail = store.NoticeFailed, err.Error()
		if tried := int(n.Attempts); tried <= len(q.pauses) && !q.final(err) {
			n.Status, n.DueAt = store.NoticePending, q.now().Add(q.pauses[tried-1])
		}
	}
	saved := q.store.Notices.Save(ctx, n)
	q.tried(n, status, err)
	return saved
}

func (q *queue) tell(ctx context.Context, subject string, body []byte) error {
	dropped, err := q.store.Notices.Add(ctx, store.Notice{Recipient: q.recipient, Subject: subject, Body: body})
	if dropped > 0 {
		q.log.Warn("too many notices wait for another service; the oldest is not sent", "of", q.recipient)
	}
	signal(q.wake)
	return err
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
