// Package notify tells outside parties what became of commits and runs: the service
// that hosts a repository, by commit statuses, and one address, by signed messages.
//
// A [Teller] sends the notices of the store, which are its outbox. Each recipient
// has a queue: the commit statuses of a factory, the messages about its applies, and
// the messages about ended runs. No queue waits for another one.
//
// It guarantees:
//
//   - At least once. A notice stays in the outbox until it is delivered or given up,
//     also across restarts. A receiver knows a message that comes twice by its
//     Webhook-Id.
//   - The end of a run leaves its notice in its own transaction.
//   - A message about an apply, and a commit status, is written right after the apply
//     was recorded. If the server stops in between, the next start sees the same
//     state and writes it then.
//   - Statuses and messages about the applies of one factory are sent in order. The
//     ends of runs are sent in no order, several at once.
//   - The path of an address, and what was sent and answered, is in no error and no
//     log: each can hold a secret.
//
// Of each factory, at most 100 statuses and 100 messages are kept. If more wait, the
// oldest are not sent, and the log says so.
//
// It does not decide what becomes of a commit (package applier) or a run (package
// run).
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

// poll is how often the outbox is read for what others wrote, and how long a Teller
// waits when the store fails.
const poll = time.Second

// Teller sends what the outbox of a store has.
type Teller struct {
	store   *store.Store
	now     func() time.Time
	log     *slog.Logger
	queues  []*queue
	workers []func(context.Context) // that write to queues
}

// New makes a Teller. Commits and Runs say who hears what; then Run starts it.
func New(s *store.Store, now func() time.Time, log *slog.Logger) *Teller {
	return &Teller{store: s, now: now, log: log}
}

// Run sends what there is to tell until ctx is done.
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

// queue sends the notices of one recipient. One that fails is sent again after each
// of the pauses; then, or if the failure is final, it is given up.
type queue struct {
	*Teller
	recipient string
	atOnce    int           // attempts; 1: in order
	timeout   time.Duration // of an attempt
	pauses    []time.Duration
	polls     bool // others write to it
	send      func(ctx context.Context, n store.Notice) (status int, err error)
	final     func(err error) bool
	tried     func(n store.Notice, status int, err error) // hears how each attempt went
	wake      chan struct{}
}

// errUnwanted is what sends a notice out of the outbox.
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

// sendDue makes the attempts that are due, and tells how many these were and when
// the next one is due.
func (q *queue) sendDue(ctx context.Context) (attempts int, next time.Duration, err error) {
	if next = time.Hour; q.polls {
		next = poll
	}
	waiting, err := q.store.NextNotices(ctx, q.recipient, q.atOnce == 1, q.atOnce)
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

// attempt sends one notice and records how that went.
func (q *queue) attempt(ctx context.Context, n store.Notice) error {
	sending, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	status, err := q.send(sending, n)
	switch {
	case ctx.Err() != nil:
		return nil // the next server tries again
	case errors.Is(err, errUnwanted):
		return q.store.DropNotice(ctx, n.ID)
	}
	n.Attempts++
	n.DueAt, n.Status, n.Detail = time.Time{}, store.NoticeDelivered, fmt.Sprintf("answered %d", status)
	if err != nil {
		n.Status, n.Detail = store.NoticeFailed, err.Error()
		if tried := int(n.Attempts); tried <= len(q.pauses) && !q.final(err) {
			n.Status, n.DueAt = store.NoticePending, q.now().Add(q.pauses[tried-1])
		}
	}
	saved := q.store.SaveNotice(ctx, n)
	q.tried(n, status, err)
	return saved
}

// tell adds a notice.
func (q *queue) tell(ctx context.Context, subject string, body []byte) error {
	dropped, err := q.store.AddNotice(ctx, store.Notice{Recipient: q.recipient, Subject: subject, Body: body})
	if dropped > 0 {
		q.log.Warn("too much waits for another service; the oldest is not sent", "of", q.recipient)
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
