package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// TestStepsWait: a step of a long task waits for as long as anybody else does,
// and no longer than its patience.
func TestStepsWait(t *testing.T) {
	for _, c := range []struct {
		name     string
		patience time.Duration
		after    int // jobs after the step that wait all the time, each coming before the one before is done
	}{
		{"patient", time.Hour, 500},
		{"out of patience", time.Nanosecond, 1 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			check(t, s.do(t.Context(), func(*Tx) error {
				s.patience = c.patience
				return nil
			}))
			var came, done atomic.Bool
			left := c.after
			var next func(*Tx) error
			next = func(*Tx) error {
				if came.Load() {
					left--
				}
				if left > 0 && !done.Load() {
					s.jobs <- &job{ctx: t.Context(), fn: next, done: make(chan error, 1)}
				}
				return nil
			}
			check(t, s.do(t.Context(), next))
			var seen int
			j := &job{ctx: t.Context(), queued: time.Now(), done: make(chan error, 1), fn: func(*Tx) error {
				seen = left
				done.Store(true)
				return nil
			}}
			s.steps <- j // which the writer takes between two others
			came.Store(true)
			check(t, <-j.done)
			if waited := seen == 0; waited != (c.patience == time.Hour) {
				t.Errorf("its turn came when %d of %d others had not had theirs", seen, c.after)
			}
		})
	}
}

// TestStepsAreSmall: by rows, by bytes and by time, and never empty.
func TestStepsAreSmall(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		step  step
		size  int64
		takes bool
	}{
		{"the first, however large and late", step{began: now.Add(-time.Hour)}, 1 << 30, true},
		{"a second", step{began: now.Add(time.Hour), rows: 1}, 10, true},
		{"too late", step{began: now.Add(-stepTime), rows: 1}, 10, false},
		{"too many", step{began: now.Add(time.Hour), rows: stepRows}, 10, false},
		{"too large", step{began: now.Add(time.Hour), rows: 1, bytes: stepBytes - 9}, 10, false},
	} {
		if got := c.step.takes(c.size); got != c.takes {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, c := range []struct{ deliveries, size, transactions int }{{2000, 10, 2000 / stepRows}, {200, 20_000, 200 * 20_000 / stepBytes}} {
		s := open(t)
		check(t, s.bind(t.Context()))
		for i := range c.deliveries {
			body := make([]byte, c.size)
			_, _ = rand.Read(body)
			check(t, s.do(t.Context(), func(tx *Tx) error { return s.record(tx, delivery(fmt.Sprint(i), string(body))) }))
		}
		s.at = s.at.Add(8 * 24 * time.Hour)
		before := s.Commits()
		if n := must[int64](t)(s.Deliveries.Prune(t.Context(), Retention{Age: time.Hour})); n != int64(c.deliveries) {
			t.Errorf("%d of %d deleted", n, c.deliveries)
		}
		if n := s.Commits() - before; n < int64(c.transactions) {
			t.Errorf("%d of %d bytes went in %d transactions", c.deliveries, c.size, n)
		}
	}
}

// TestPruneUnderLoad: while deliveries come, exactly what is old goes, the log
// begins anew meanwhile, and the file shrinks.
func TestPruneUnderLoad(t *testing.T) {
	storetest.SQLite(t)
	const old, writers, long = 6000, 4, 500
	s := open(t)
	check(t, s.bind(t.Context()))
	check(t, s.do(t.Context(), func(*Tx) error {
		s.long = longLog{long, long, long}
		return nil
	}))
	s.stock(t, old, time.Hour)
	s.at = s.at.Add(8 * 24 * time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var kept atomic.Int64
	for w := range writers {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := s.Deliveries.Record(t.Context(), numbered(old+i*writers+w, s.at)); err != nil {
					t.Error(err)
				}
				kept.Add(1)
			}
		})
	}
	n, err := s.Deliveries.Prune(t.Context(), Retention{Age: 7 * 24 * time.Hour})
	check(t, s.Shrink(t.Context()))
	stop()
	all.Wait()
	var left int64
	check(t, s.read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries").Scan(&left))
	if err != nil || n != old || left != kept.Load() {
		t.Errorf("%d of %d deleted, %d of %d left, %v", n, old, left, kept.Load(), err)
	}
	info, err := os.Stat(s.cfg.Path + "-wal")
	check(t, err)
	if pages := info.Size() / 4096; pages > 16*long { // without copying it in between: more than 24 times
		t.Errorf("the log has grown to %d pages", pages)
	}
}

// bind makes the webhook of the tests known.
func (f *fixture) bind(ctx context.Context) error {
	_, err := f.Applies.Record(ctx, &Apply{
		Factory: "default", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"), Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}},
	}, nil, nil)
	return err
}
