package notify

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// tries is how often something is sent, firstPause the time after the first
	// time, which doubles.
	tries      = 8
	firstPause = time.Second
	// maxWaiting bounds what waits to be sent; the oldest goes.
	maxWaiting = 100
)

// message is something to send.
type message struct {
	what   string
	send   func(context.Context) error
	gaveUp func(refused bool) // hears that it was refused for good, or tried often enough; may be nil
}

// queue sends to one service what waits in it, in order. A message is sent again
// until it has arrived, is refused for good, or was tried often enough; when it is
// sent again is for the clock alone to say, not for what comes meanwhile.
type queue struct {
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	waiting []message
}

func newQueue(log *slog.Logger) *queue { return &queue{log: log, wake: make(chan struct{}, 1)} }

func (q *queue) add(m message) {
	q.mu.Lock()
	dropped := len(q.waiting) >= maxWaiting
	if dropped {
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	q.waiting = append(q.waiting, m)
	q.mu.Unlock()
	if dropped {
		q.log.Warn("too much waits for another service; the oldest is not sent")
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) next() (m message, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok = len(q.waiting) > 0; ok {
		m, q.waiting = q.waiting[0], q.waiting[1:]
	}
	return m, ok
}

// run sends until ctx is done.
func (q *queue) run(ctx context.Context) {
	for ctx.Err() == nil {
		if m, ok := q.next(); ok {
			q.send(ctx, m)
			continue
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
	}
}

func (q *queue) send(ctx context.Context, m message) {
	for attempt := range tries {
		err := m.send(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		final := permanent{}
		if refused := errors.As(err, &final); refused || attempt+1 == tries {
			q.log.Warn("a request to another service was given up", "what", m.what, "error", err.Error(), "tries", attempt+1)
			if m.gaveUp != nil {
				m.gaveUp(refused)
			}
			return
		}
		pause := time.NewTimer(firstPause << attempt)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
