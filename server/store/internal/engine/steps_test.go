package engine

import (
	"sync/atomic"
	"testing"
	"time"
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
			check(t, s.Do(t.Context(), func(*Tx) error {
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
			check(t, s.Do(t.Context(), next))
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
		step  Step
		size  int64
		takes bool
	}{
		{"the first, however large and late", Step{began: now.Add(-time.Hour)}, 1 << 30, true},
		{"a second", Step{began: now.Add(time.Hour), rows: 1}, 10, true},
		{"too late", Step{began: now.Add(-stepTime), rows: 1}, 10, false},
		{"too many", Step{began: now.Add(time.Hour), rows: StepRows}, 10, false},
		{"too large", Step{began: now.Add(time.Hour), rows: 1, bytes: stepBytes - 9}, 10, false},
	} {
		if got := c.step.Takes(c.size); got != c.takes {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
