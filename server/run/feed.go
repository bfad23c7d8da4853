package run

import (
	"context"
	"sync"
	"time"

	"triphammer/server/store"
)

const (
	// feedTime is the longest delay with which a follower sees what another process wrote.
	feedTime = time.Second
	// feedEvents is how many of the newest events of a run its followers share. A follower
	// that is further behind reads the store.
	feedEvents = 2048
	feedPage   = 1000
)

// Feed lets any number of readers follow runs as they happen. Each followed run is read
// once for all of its followers. A slow follower does not hold up the others.
type Feed struct {
	store *store.Store

	mu     sync.Mutex
	topics map[store.RunID]*topic
}

// topic is a followed run.
type topic struct {
	followers int
	stop      context.CancelFunc
	stopped   chan struct{} // closed when nobody reads the run any more
	wake      chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something has changed
	run     *store.Run    // nil: not read yet
	events  []store.Event // the newest; only ever appended to and replaced
	last    int64         // number of the newest
	err     error         // why the last read failed
}

func newFeed(s *store.Store) *Feed { return &Feed{store: s, topics: make(map[store.RunID]*topic)} }

// Notify tells that a run has changed. It never blocks.
func (f *Feed) Notify(runID store.RunID) {
	f.mu.Lock()
	t := f.topics[runID]
	f.mu.Unlock()
	if t != nil {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// NotifyAll tells that any run may have changed. It never blocks.
func (f *Feed) NotifyAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.topics {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// join makes the caller a follower.
func (f *Feed) join(ctx context.Context, runID store.RunID) (t *topic, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t = f.topics[runID]
	if t == nil {
		reading, stop := context.WithCancel(context.WithoutCancel(ctx)) // it is read for all followers, not only for the first
		t = &topic{stop: stop, stopped: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{})}
		f.topics[runID] = t
		go f.read(reading, runID, t)
	}
	t.followers++
	return t, func() {
		f.mu.Lock()
		t.followers--
		last := t.followers == 0
		if last {
			delete(f.topics, runID)
			t.stop()
		}
		f.mu.Unlock()
		if last {
			<-t.stopped
		}
	}
}

// read reads the run until it has finished, or until nobody follows it any more.
func (f *Feed) read(ctx context.Context, runID store.RunID, t *topic) {
	defer close(t.stopped)
	poll := time.NewTicker(feedTime)
	defer poll.Stop()
	for {
		if f.refresh(ctx, runID, t) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-t.wake:
		}
	}
}

// refresh reads what is new, and tells whether nothing more will come.
func (f *Feed) refresh(ctx context.Context, runID store.RunID, t *topic) (finished bool) {
	// The state is read before the events: a finished run has all of its events.
	run, err := f.store.Runs.Get(ctx, runID)
	var some []store.Event
	for all := false; err == nil && !all; {
		t.mu.Lock()
		after, first := t.last, t.run == nil
		t.mu.Unlock()
		if first { // followers that are behind read the store; this begins at the end
			if after, err = f.store.Transcripts.Last(ctx, runID); err != nil {
				break
			}
		}
		some, err = f.store.Transcripts.List(ctx, runID, after, feedPage)
		if err != nil {
			break
		}
		all = len(some) < feedPage
		t.mu.Lock()
		t.last = after
		if len(some) > 0 {
			t.last = some[len(some)-1].Seq
			t.events = append(t.events, some...)
			if len(t.events) > 2*feedEvents {
				t.events = append([]store.Event(nil), t.events[len(t.events)-feedEvents:]...)
			}
		}
		if first || len(some) > 0 {
			if t.run == nil {
				t.run = run
			}
			close(t.changed)
			t.changed = make(chan struct{})
		}
		t.mu.Unlock()
	}
	if ctx.Err() != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = err; err == nil {
		if t.run.State == run.State {
			return run.State.Terminal()
		}
		t.run = run
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return err == nil && run.State.Terminal()
}

// Position is how far a follower is: the number of the last event and the last state
// that it was given.
type Position struct {
	Seq   int64
	State store.RunState // empty: no state was given yet
}

// News is one message to a follower: a state or an event.
type News struct {
	Position Position // the follower's position after this news
	Run      *store.Run
	Event    *store.Event // nil: the run is in State now
	State    store.RunState
	Last     bool // there is no more news at the moment
}

// Follow calls tell once with each thing that happens to a run after a position, in order:
// BLOCKED or QUEUED, INPROGRESS, the events of its transcript, and its end. It returns after the end,
// or when ctx ends or tell fails. Until then it also calls tell with nil, once per quiet.
func (f *Feed) Follow(ctx context.Context, runID store.RunID, from Position, quiet time.Duration, tell func(*News) error) error {
	t, leave := f.join(ctx, runID)
	defer leave()
	silence := time.NewTicker(quiet)
	defer silence.Stop()
	for {
		t.mu.Lock()
		run, events, last, changed, err := t.run, t.events, t.last, t.changed, t.err
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if run != nil {
			if err := f.catchUp(ctx, run, events, last, &from, tell); err != nil || run.State.Terminal() {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-silence.C:
			if err := tell(nil); err != nil {
				return err
			}
		}
	}
}

// catchUp tells everything up to an event, and moves the position there.
func (f *Feed) catchUp(ctx context.Context, run *store.Run, events []store.Event, last int64, at *Position, tell func(*News) error) error {
	state := func(s store.RunState) error {
		at.State = s
		more := at.Seq < last || run.State.Terminal() && s != run.State
		return tell(&News{Position: *at, Run: run, State: s, Last: !more})
	}
	switch {
	case at.State == "" && run.State == store.Blocked:
		return state(store.Blocked)
	case at.State == "", at.State == store.Blocked && (!run.State.Terminal() || !run.StartedAt.IsZero()) && run.State != store.Blocked:
		if err := state(store.Queued); err != nil {
			return err
		}
	}
	if at.State == store.Queued && !run.StartedAt.IsZero() {
		if err := state(store.InProgress); err != nil {
			return err
		}
	}
	for at.Seq < last {
		var some []store.Event
		if len(events) > 0 && events[0].Seq <= at.Seq+1 {
			some = events[at.Seq+1-events[0].Seq:]
		} else {
			var err error
			if some, err = f.store.Transcripts.List(ctx, run.ID, at.Seq, feedPage); err != nil {
				return err
			}
			if len(some) == 0 {
				break // the events were deleted as too old
			}
		}
		for i := range some {
			at.Seq = some[i].Seq
			if err := tell(&News{Position: *at, Run: run, Event: &some[i], Last: at.Seq >= last && !run.State.Terminal()}); err != nil {
				return err
			}
		}
	}
	if run.State.Terminal() && at.State != run.State {
		return state(run.State)
	}
	return nil
}

// Followed is how many runs are followed now.
func (f *Feed) Followed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.topics)
}
