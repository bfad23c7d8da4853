package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"triphammer/server/disk"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
)

// follower has the state of following an attempt to its end.
type follower struct {
	*attempt
	job   *batchv1.Job
	since time.Time // when the following began

	report  *executor.PodReport
	readEnd bool         // the log of the run has been read to its end
	readWay <-chan error // gets a value at the end of the way out's log

	cause   error // why this worker ends the attempt; nil: it does not end it
	stopped time.Time

	told       string // the reason for waiting that is in the transcript
	lastEvents time.Time

	decided     *outcome // the outcome, unless a better reason comes soon
	decidedAt   time.Time
	lookedAgain bool
}

// follow follows the attempt to its end. When ctx ends, it deletes the Job and waits until
// nothing of it is left, or lets go of it.
func (a *attempt) follow(ctx context.Context, job *batchv1.Job) (task.Exit, error) {
	always := context.WithoutCancel(ctx)
	looking, stop := context.WithCancel(always)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer stop()

	a.update(func(s *seen) { s.job = job })
	away := make(chan error, 2)
	helpers.Go(func() { a.watchJob(looking, away) })
	helpers.Go(func() { a.watchPods(looking, away) })

	key := a.cfg.Key(a.name)
	report := executor.NewPodReport(key, a.sink)
	defer report.Close(nil)
	read, readWay := make(chan error, 1), make(chan error, 1)
	helpers.Go(func() { read <- a.readLog(looking, runContainer, report) })
	if a.way {
		way := executor.NewPodWayReport(key, a.sink, func(c task.Counted) { a.counted(looking, c) }, a.task.Pushes.Stage)
		helpers.Go(func() {
			defer way.Close(nil)
			readWay <- a.readLog(looking, egressContainer, way)
		})
	} else {
		readWay <- nil
	}

	helpers.Go(func() { a.renewTokens(looking) })
	helpers.Go(func() { a.passGrants(looking) })

	tick := time.NewTicker(a.cfg.retry)
	defer tick.Stop()
	f := &follower{attempt: a, job: job, since: time.Now(), report: report, readWay: readWay}
	asked := ctx.Done()
	for {
		select {
		case <-asked:
			cause := context.Cause(ctx)
			if task.Leaves(cause) {
				report.Close(task.ErrLeft)
				return task.Exit{}, task.ErrLeft
			}
			if err := f.stop(always, cause); err != nil {
				a.logger.Warn("stopping an attempt; it is tried again", "run", a.task.RunID, "error", err)
			}
		case err := <-away:
			if f.cause == nil {
				return task.Exit{}, err
			}
		case err := <-read:
			if f.readEnd = true; err != nil && f.cause == nil && !report.Ended() {
				return task.Exit{}, err
			}
		case <-a.changed:
		case <-tick.C:
			if err := f.confirm(always); err != nil {
				return task.Exit{}, err
			}
		}
		if err := a.tooMuch(report); err != nil && f.cause == nil {
			_ = f.stop(always, err) // the next tick tries again
		}
		if f.cause != nil {
			asked = nil
		}
		s, begun := a.look(time.Since(f.since))
		if !begun && f.cause == nil {
			s = f.tellWait(looking, s)
		}
		if exit, ended, err := f.end(looking, &s, begun); ended {
			return exit, err
		}
	}
}

// stop begins to end the attempt, for the cause.
func (f *follower) stop(ctx context.Context, cause error) error {
	f.cause, f.stopped = cause, time.Now()
	return f.remove(ctx, f.name, f.job.UID)
}

// confirm makes sure that an attempt which this worker ends is deleted. It returns an error if the
// cluster takes too long to confirm that.
func (f *follower) confirm(ctx context.Context) error {
	if f.cause == nil {
		return nil
	}
	if time.Since(f.stopped) > f.cfg.Grace+endTime {
		return errors.Join(f.cause, fmt.Errorf("the cluster has not confirmed that the run is stopped; the next sweep deletes what is left of it"))
	}
	if !f.removing() {
		_ = f.remove(ctx, f.name, f.job.UID) // the first call failed
	}
	return nil
}

// tellWait writes into the transcript what the attempt waits for, if that has changed. It returns
// s with the newest events.
func (f *follower) tellWait(ctx context.Context, s seen) seen {
	if every := min(soon, f.cfg.Pending) / 2; s.waiting > every && time.Since(f.lastEvents) > every {
		f.lastEvents = time.Now()
		f.readEvents(ctx)
		s, _ = f.look(time.Since(f.since))
	}
	if now := s.waitsFor(); now != f.told && now != "" {
		f.told = now
		f.sink.Add(event.Status{Message: now})
	}
	return s
}

// end tells whether the attempt has ended, and how. The supervisor's report counts most, then the
// cause why this worker ended the attempt, and then the state of the cluster.
func (f *follower) end(ctx context.Context, s *seen, begun bool) (exit task.Exit, ended bool, err error) {
	gone := s.podGone || s.jobGone && s.pod == nil
	end, reported := f.report.End()
	switch {
	case reported && !end.Exit.Stopped:
		f.drain()
		if end.Memory && (end.Err != nil || end.Exit.Code != 0) {
			return task.Exit{}, true, podMemory
		}
		return end.Exit, true, end.Err
	case f.cause != nil && reported && (gone || f.readEnd):
		f.drain()
		if end.Err != nil {
			return task.Exit{}, true, f.cause
		}
		return end.Exit, true, nil
	case f.cause != nil && gone:
		f.drain()
		return task.Exit{}, true, f.cause
	case f.cause != nil:
		return task.Exit{}, false, nil
	}
	if o := f.endedByCluster(ctx, s, begun, reported); o != nil {
		return task.Exit{}, true, o
	}
	return task.Exit{}, false, nil
}

// endedByCluster says how somebody other than this worker has ended the attempt; nil: the attempt
// goes on, or it is too early to say. reported tells that the supervisor was told to end.
func (f *follower) endedByCluster(ctx context.Context, s *seen, begun, reported bool) *outcome {
	over := s.ended()
	switch {
	case reported:
		if over == nil || over.Ending == EndCrashed {
			over = &outcome{EndDeleted, "the pod of this run was ended, and not by Triphammer", false}
		}
	case over == nil:
		f.decided = nil
		return nil
	case begun && !f.readEnd: // the rest of the log may have the end
		return nil
	}
	if !f.lasts(ctx, over) {
		return nil
	}
	if said := f.report.Said(); over.Ending == EndCrashed && said != "" {
		over.Message += ": " + said
	}
	return over
}

// lasts tells whether the outcome stays, because no better reason has come in a moment: a pod is
// also deleted because its node is lost or its Job is over.
func (f *follower) lasts(ctx context.Context, over *outcome) bool {
	if over.Ending != EndDeleted && over.Ending != EndCrashed {
		return true
	}
	if f.decided == nil || f.decided.Ending != over.Ending {
		f.decided, f.decidedAt, f.lookedAgain = over, time.Now(), false
	}
	if time.Since(f.decidedAt) < f.patient() {
		return false
	}
	if !f.lookedAgain {
		f.lookedAgain = true
		f.lookAgain(ctx)
		return false
	}
	return true
}

// drain waits a moment for the rest of the way out's report; longer for its counts, because without them
// all counts that was granted, and for packs that wait for a person, because Git was told that they do.
func (f *follower) drain() {
	patient := f.patient()
	if executor.Counts(f.task) || f.task.Pushes.Waits > 0 {
		patient = max(patient, endTime)
	}
	t := time.NewTimer(patient)
	defer t.Stop()
	select {
	case <-f.readWay:
	case <-t.C:
	}
}

// podMemory is the error of a run if the kernel ended one of its processes for lack of memory.
var podMemory = &outcome{EndMemory, "the run used more memory than it may, and the kernel ended a process of it (runner, environment, --run-memory)", false}

// patient is how long this worker waits for a better reason for an end.
func (a *attempt) patient() time.Duration { return 3 * a.cfg.retry }

// tooMuch is the error of a run that prints more than it may.
func (a *attempt) tooMuch(report *executor.PodReport) error {
	most := cmp.Or(executor.Bounded(a.task.Limits, a.cfg.Limits).Output, DefaultOutput)
	if report.Printed() <= most {
		return nil
	}
	return fmt.Errorf("the run printed more than the %s that it may, and was stopped (--run-output)", disk.Bytes(most))
}
