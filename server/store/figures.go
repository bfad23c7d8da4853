package store

import (
	"context"
	"database/sql"
	"maps"
	"strconv"
	"sync"
	"time"

	"triphammer/server/store/internal/engine"
)

const (
	// FiguresAge is how far back figures go.
	FiguresAge = 30 * 24 * time.Hour
	// figuresStep is how many deliveries are counted at a time. It takes some milliseconds.
	figuresStep = 5000
	// figuresRest is how long counting in the background rests after a step, in durations of
	// the step.
	figuresRest = 4
	// figuresTime is how long who asks counts before the background does the rest.
	figuresTime = 5 * time.Millisecond
	// runsStep is the length of time whose runs are counted at once.
	runsStep = 24 * time.Hour
)

// Figures counts deliveries and ended runs by the hour. It counts each once: ids of
// deliveries are in the order of their commits, and a run that has ended is not changed any
// more. What is deleted with its age stays counted until the figures go.
//
// Nothing is counted until somebody asks. Then what is not counted yet is counted in the
// background, in steps, the newest hours first.
type Figures struct {
	db *db

	counting sync.Mutex // held by who counts a step
	mu       sync.Mutex
	started  bool
	// Deliveries of the ids from first up to last, and runs that ended from the microsecond
	// runsFrom up to runsTo are counted.
	first, last      int64
	runsFrom, runsTo int64
	byHour, byDay    sums
	forgotten        int64 // hours before this one are
	caughtUp         bool  // up to now

	stop    context.CancelFunc // of the background
	stopped chan struct{}
	over    bool
}

// sums are counts by the hours, or days, in which what they count came.
type sums struct {
	step       int64 // in hours
	deliveries map[deliveryKey]deliverySum
	runs       map[runKey]RunSum
}

func newSums(step int64) sums {
	return sums{step, make(map[deliveryKey]deliverySum), make(map[runKey]RunSum)}
}

func (s *sums) addDeliveries(key deliveryKey, n deliverySum) {
	key.hour -= key.hour % s.step
	sum := s.deliveries[key]
	s.deliveries[key] = deliverySum{sum.count + n.count, sum.started + n.started}
}

func (s *sums) addRuns(key runKey, n RunSum) {
	key.hour -= key.hour % s.step
	s.runs[key] = s.runs[key].plus(n)
}

// forget drops what ended before an hour.
func (s *sums) forget(least int64) {
	maps.DeleteFunc(s.deliveries, func(key deliveryKey, _ deliverySum) bool { return key.hour+s.step <= least })
	maps.DeleteFunc(s.runs, func(key runKey, _ RunSum) bool { return key.hour+s.step <= least })
}

type deliveryKey struct {
	hour int64 // since 1970
	DeliveryCount
}

type deliverySum struct{ count, started int64 }

type runKey struct {
	hour                int64
	factory, automation string
	state               RunState
}

// RunSum is what some runs have in common.
type RunSum struct{ Count, Tokens, CostMicros int64 }

// NewFigures makes the figures of a store.
func NewFigures(s *Store) *Figures {
	return &Figures{db: s.db, byHour: newSums(1), byDay: newSums(24)}
}

// Catch counts what has come since it was last called, for a few milliseconds, and leaves the
// rest to the background. If wait is set, it waits until everything is counted.
func (f *Figures) Catch(ctx context.Context, wait bool) error {
	for began := time.Now(); time.Since(began) < figuresTime; {
		if done, err := f.step(ctx); done || err != nil {
			return err
		}
	}
	stopped := f.background(ctx)
	if !wait || stopped == nil {
		return nil
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// background counts the rest until Stop. The returned channel is closed at its end.
func (f *Figures) background(ctx context.Context) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	if f.stopped != nil {
		return f.stopped
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx)) // it counts for all who will ask
	stopped := make(chan struct{})
	f.stop, f.stopped = stop, stopped
	go func() {
		defer close(stopped)
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			stop()
			f.stopped = nil
		}()
		rest := time.NewTimer(0)
		defer rest.Stop()
		for {
			select {
			case <-working.Done():
				return
			case <-rest.C:
			}
			began := time.Now()
			if done, err := f.step(working); done || err != nil {
				return // after an error, whoever asks next tries again
			}
			rest.Reset(figuresRest * time.Since(began))
		}
	}()
	return stopped
}

// Stop ends counting in the background, for good.
func (f *Figures) Stop() {
	f.mu.Lock()
	f.over = true
	stop, stopped := f.stop, f.stopped
	f.mu.Unlock()
	if stopped != nil {
		stop()
		<-stopped
	}
}

// step counts a part, and tells whether everything is counted.
func (f *Figures) step(ctx context.Context) (done bool, err error) {
	f.counting.Lock()
	defer f.counting.Unlock()
	mark, err := f.db.store.Mark(ctx)
	if err != nil {
		return false, err
	}
	floor := f.db.Now().Add(-FiguresAge - 24*time.Hour).Truncate(time.Hour) // the first of several days is whole
	f.mu.Lock()
	if !f.started {
		f.started, f.first, f.last = true, int64(mark.Delivery)+1, int64(mark.Delivery)
		f.runsFrom, f.runsTo = mark.Updated+1, mark.Updated
	}
	first, last, runsFrom, runsTo := f.first, f.last, f.runsFrom, f.runsTo
	f.forget(floor)
	f.mu.Unlock()
	switch least := engine.IDAt(floor); {
	case int64(mark.Delivery) > last:
		err = f.count(ctx, last+1, int64(mark.Delivery), true)
	case first > least:
		err = f.count(ctx, least, first-1, false)
	}
	if err != nil {
		return false, err
	}
	switch least := micros(floor); {
	case mark.Updated > runsTo:
		err = f.countRuns(ctx, runsTo+1, mark.Updated, true)
	case runsFrom > least:
		err = f.countRuns(ctx, max(least, runsFrom-runsStep.Microseconds()), runsFrom-1, false)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caughtUp = f.last >= int64(mark.Delivery) && f.runsTo >= mark.Updated
	return f.countedSince(floor), err
}

// countedSince tells whether everything since a time is counted.
func (f *Figures) countedSince(t time.Time) bool {
	return f.caughtUp && f.first <= engine.IDAt(t) && f.runsFrom <= micros(t)
}

// forget drops the hours before a time.
func (f *Figures) forget(floor time.Time) {
	if least := floor.Unix() / 3600; least > f.forgotten {
		f.forgotten = least
		f.byHour.forget(least)
		f.byDay.forget(least)
	}
}

// count counts deliveries of a range of ids: from its beginning on, or from its end back.
func (f *Figures) count(ctx context.Context, from, to int64, forward bool) error {
	direction := "DESC"
	if forward {
		direction = "ASC"
	}
	type row struct {
		deliveryKey
		deliverySum
		least, most int64
	}
	all, err := engine.List(ctx, f.db.DB, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.hour, &r.Factory, &r.Webhook, &r.WebhookUID, &r.Outcome, &r.Stopped, &r.count, &r.started, &r.least, &r.most)
	}, `SELECT hour, factory, webhook, webhook_uid, outcome, stopped, count(*), sum(started), min(id), max(id) FROM
		(SELECT id, id / `+strconv.Itoa(3_600_000<<engine.RandomBits)+` AS hour, factory, webhook, webhook_uid, outcome, `+stoppedAt+` AS stopped,
		CASE WHEN outcome = 'accepted' THEN CAST(CASE WHEN reason = '' THEN '0' ELSE reason END AS BIGINT) ELSE 0 END AS started
		FROM deliveries WHERE id >= $1 AND id <= $2 ORDER BY id `+direction+` LIMIT `+strconv.Itoa(figuresStep)+`) AS part
		GROUP BY hour, factory, webhook, webhook_uid, outcome, stopped`, from, to)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	total, least, most := int64(0), to, from
	for _, r := range all {
		r.hour += engine.Epoch / 3_600_000
		f.byHour.addDeliveries(r.deliveryKey, r.deliverySum)
		f.byDay.addDeliveries(r.deliveryKey, r.deliverySum)
		total, least, most = total+r.count, min(least, r.least), max(most, r.most)
	}
	if total < figuresStep { // that was all
		least, most = from, to
	}
	if forward {
		f.last = most
	} else {
		f.first = least
	}
	return nil
}

// countRuns counts the runs that ended in a range of microseconds.
func (f *Figures) countRuns(ctx context.Context, from, to int64, forward bool) error {
	type row struct {
		runKey
		RunSum
	}
	all, err := engine.List(ctx, f.db.DB, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.hour, &r.factory, &r.automation, &r.state, &r.Count, &r.Tokens, &r.CostMicros)
	}, `SELECT updated_at / 3600000000 AS hour, factory, automation, state, count(*), sum(tokens), sum(cost_micros) FROM runs
		WHERE state <> 'QUEUED' AND updated_at >= $1 AND updated_at <= $2 GROUP BY hour, factory, automation, state`, from, to)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range all {
		if r.state.Terminal() {
			f.byHour.addRuns(r.runKey, r.RunSum)
			f.byDay.addRuns(r.runKey, r.RunSum)
		}
	}
	if forward {
		f.runsTo = to
	} else {
		f.runsFrom = from
	}
	return nil
}

func (s RunSum) plus(o RunSum) RunSum {
	return RunSum{s.Count + o.Count, s.Tokens + o.Tokens, s.CostMicros + o.CostMicros}
}

// DeliveryFigure counts deliveries of an hour, or a day, that are alike, and the runs that they started.
type DeliveryFigure struct {
	Hour time.Time
	DeliveryCount
	Started int64
}

// RunFigure counts runs that ended in an hour, or a day, and are alike.
type RunFigure struct {
	Hour                time.Time
	Factory, Automation string
	State               RunState
	RunSum
}

// Each calls the functions with the figures of the hours from since on, in any order, and
// tells whether all of them are counted. If byDay is set, the figures are those of days, which
// are much fewer; then since is the beginning of a day, in UTC.
func (f *Figures) Each(since time.Time, byDay bool, delivery func(DeliveryFigure), run func(RunFigure)) (complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	least, sums := since.Unix()/3600, &f.byHour
	if byDay {
		sums = &f.byDay
	}
	for key, sum := range sums.deliveries {
		if key.hour >= least {
			d := key.DeliveryCount
			d.Count = sum.count
			delivery(DeliveryFigure{time.Unix(key.hour*3600, 0).UTC(), d, sum.started})
		}
	}
	for key, sum := range sums.runs {
		if key.hour >= least {
			run(RunFigure{time.Unix(key.hour*3600, 0).UTC(), key.factory, key.automation, key.state, sum})
		}
	}
	return f.countedSince(since.Truncate(time.Hour))
}
