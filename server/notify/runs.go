package notify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"triphammer/server/store"
)

// Runs says where to report the ends of runs.
type Runs struct {
	Hook
	// Body makes the message about a run.
	Body func(ctx context.Context, r *store.Run) ([]byte, error)
	// Trace is the span that the message belongs to (Hook.Post).
	Trace func(ctx context.Context, r *store.Run) string
	// A run is reported if it ended in one of States and belongs to one of Automations. An
	// empty list means all.
	States, Automations []string
	Retries             []time.Duration // the times between attempts; nil means DefaultRetries
}

// DefaultRetries are the times between the attempts to report the end of a run: ten
// attempts within a day and a half.
var DefaultRetries = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 12 * time.Hour,
}

// Runs makes a Teller report the ends of runs that leave a notice (store.Notices.KeepEnds).
func (t *Teller) Runs(cfg Runs) {
	if cfg.Retries == nil {
		cfg.Retries = DefaultRetries
	}
	t.add(&queue{
		recipient: store.RunNotices, atOnce: 16, timeout: 15 * time.Second, pauses: cfg.Retries, polls: true,
		send: func(ctx context.Context, n store.Notice) (int, error) {
			r, err := t.store.Runs.Get(ctx, n.RunID)
			switch {
			case errors.Is(err, store.ErrNotFound) || err == nil && !cfg.want(r):
				return 0, errUnwanted
			case err != nil:
				return 0, err
			}
			body, err := cfg.Body(ctx, r)
			if err != nil {
				return 0, err
			}
			return cfg.Post(ctx, "msg_"+r.ID.String(), cfg.Trace(ctx, r), t.now(), body)
		},
		final: func(err error) bool { return errors.Is(err, answered(http.StatusGone)) },
		tried: func(n store.Notice, status int, err error) {
			if err == nil {
				t.log.Info("the end of a run was told", "run", n.RunID, "attempt", n.Attempts, "status", status)
				return
			}
			next := "never"
			if n.Status == store.NoticePending {
				next = n.DueAt.Format(time.RFC3339)
			}
			t.log.Warn("the end of a run could not be told", "run", n.RunID, "attempt", n.Attempts, "error", err, "next", next)
		},
	})
}

func (cfg *Runs) want(r *store.Run) bool {
	return (len(cfg.States) == 0 || slices.Contains(cfg.States, string(r.State))) &&
		(len(cfg.Automations) == 0 || slices.Contains(cfg.Automations, r.Automation))
}
