package engine

import (
	"context"
	"time"
)

// What one step of a long task may do. It can be one row more, however large.
const (
	StepRows  = 256
	stepBytes = 1 << 20
	stepTime  = 5 * time.Millisecond
)

// stepPatience is how long a step waits for its turn while others write. Then it comes
// between two of their transactions, so that a steady load cannot delay it for ever.
const stepPatience = 50 * time.Millisecond

// busyPause is the length of the pause after a step, in lengths of the step, if others
// wrote since the step before. Steps then take a tenth of the writer's time, which is
// enough to delete as much as comes in. If nobody wrote, the pause is as long as the
// step.
const busyPause = 9

// step is one transaction of a long task.
type Step struct {
	began       time.Time
	rows, bytes int64
}

// takes tells whether a row of about this size still belongs to the step.
func (st *Step) Takes(size int64) bool {
	if st.rows > 0 && (st.rows >= StepRows || st.bytes+size > stepBytes || time.Since(st.began) >= stepTime) {
		return false
	}
	st.rows++
	st.bytes += size
	return true
}

// Task is a long task in steps.
type Task struct {
	// Run is one of them, on the writer. If its transaction has to be made again, it is called again with
	// the same Step.
	Run   func(tx *Tx, st *Step) (more bool, err error)
	alone bool         // without a transaction
	after func() error // after each, beside the writer; may be nil
}

// InSteps runs one step after the other until there are no more. Each has a transaction
// of its own, which the writer runs when no other write waits. The pauses between the
// steps leave the disk to others.
func (s *DB) InSteps(ctx context.Context, t Task) error {
	for commits := s.commits.Load(); ; {
		var st Step
		var more bool
		err := s.submit(s.steps, &job{ctx: ctx, alone: t.alone, queued: time.Now(), done: make(chan error, 1), fn: func(tx *Tx) (err error) {
			st = Step{began: time.Now()}
			more, err = t.Run(tx, &st)
			return err
		}})
		if err != nil || !more {
			return err
		}
		pause := time.Since(st.began)
		if t.after != nil {
			if err := t.after(); err != nil {
				return err
			}
		}
		own := int64(1)
		if t.alone {
			own = 0
		}
		before := commits
		if commits = s.commits.Load(); commits-before > own {
			pause *= busyPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return ErrClosed
		}
	}
}
