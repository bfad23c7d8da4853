package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// adoptTime is how long an attempt that outlives its worker waits for another worker, before
// it counts as lost.
const adoptTime = 5 * time.Minute

// outliving is the executor, if its attempts outlive this worker.
func (m *Manager) outliving() (task.Outliving, bool) {
	o, ok := m.cfg.Executor.(task.Outliving)
	return o, ok && o.Outlives()
}

// leaseWatch tells which leases are over, without comparing clocks: a lease is over if it was
// seen unchanged for longer than it lasts.
type leaseWatch map[store.RunID]heldSince

type heldSince struct {
	store.Held
	since time.Time
}

// over selects the leases that are over. begun is when the leases were asked for. more is how
// much longer an attempt may take.
func (w leaseWatch) over(held []store.Held, begun time.Time, more func(store.Held) time.Duration) (lost []store.Held) {
	now := make(leaseWatch, len(held))
	for _, h := range held {
		s, ok := w[h.RunID]
		if !ok || s.Held != h {
			s = heldSince{h, time.Now()} // the renewal was now at the latest
		}
		if begun.Sub(s.since) > h.Lasts+more(h) {
			lost = append(lost, h)
		}
		now[h.RunID] = s
	}
	clear(w)
	for id, s := range now {
		w[id] = s
	}
	return lost
}

// takeBack adopts the attempts in progress that this worker had before it was restarted. With
// all it adopts the attempts of every worker, for a store without other workers. It must come
// before this worker is enrolled.
func (m *Manager) takeBack(ctx context.Context, all bool) error {
	if _, ok := m.outliving(); !ok {
		return nil
	}
	held, err := m.cfg.Store.Leases.Held(ctx)
	if err == nil {
		m.adopted, err = m.take(ctx, slices.DeleteFunc(held, func(h store.Held) bool { return !all && h.Worker != m.worker }))
	}
	if err != nil {
		return fmt.Errorf("taking the runs up again that go on without this worker: %w", err)
	}
	return nil
}

// take adopts the lost attempts that outlive their worker.
func (m *Manager) take(ctx context.Context, lost []store.Held) ([]adoption, error) {
	lost = slices.DeleteFunc(lost, func(h store.Held) bool { return !run.Outlives(h.Isolation) })
	if len(lost) == 0 {
		return nil, nil
	}
	begun := time.Now()
	leases, err := m.cfg.Store.Leases.Adopt(ctx, lost, m.worker, m.cfg.Lease)
	var all []adoption
	for _, l := range leases {
		all = append(all, adoption{l, begun})
	}
	return all, err
}

// adoption is an attempt that this worker takes up.
type adoption struct {
	lease store.Lease
	begun time.Time // when the lease began
}

// adopt takes up attempts that outlive their lost worker, until ctx ends.
func (m *Manager) adopt(ctx context.Context, start func(adoption)) {
	known := make(leaseWatch)
	tick := time.NewTicker(min(reapTime, m.cfg.Lease/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begun := time.Now()
		held, err := m.cfg.Store.Leases.Held(ctx)
		var all []adoption
		if err == nil && !m.draining.Load() {
			lost := known.over(held, begun, func(store.Held) time.Duration { return 0 })
			lost = slices.DeleteFunc(lost, func(h store.Held) bool { return m.has(h.RunID) }) // this worker still lets go of them
			all, err = m.take(context.WithoutCancel(ctx), lost)
		}
		if err != nil && ctx.Err() == nil {
			m.logger.Warn("looking for runs that go on without a worker", "error", err)
		}
		for _, one := range all {
			start(one)
		}
	}
}

// replayed is the part of an attempt's transcript that another worker has stored. The new
// worker reads the whole report of the attempt again, and makes all its events again, except
// the stored events. So no line is lost, and no line is there twice.
type replayed struct {
	begun bool                 // the event of the beginning is stored
	text  map[string]int       // bytes of output, by stream
	other map[string]int       // number of other events, by sameAs
	calls map[string]time.Time // when calls of the agent began, by their ids
	used  event.Usage
	opens int           // pull requests that the gateway opened
	asks  []event.Event // requests and pushes
	seq   int64         // the number of the newest event

	exit   *event.Ended  // of the agent; nil: not stored
	result *event.Result // the harness's report of its end; nil: not stored
	last   event.Status  // the newest status event with a state
}

// takeOver reads what another worker has left of the attempt: the stored events, and old values
// of secrets that have changed since, because the agent still has them.
func (a *attempt) takeOver(ctx context.Context, spec *run.Spec, started string) (*replayed, []secret.Value, error) {
	var values, credentials []secret.Value
	var before *replayed
	var counted []store.ModelUsage
	err := a.patiently(ctx, func() (err error) {
		if counted, err = a.manager.cfg.Store.Usage.Under(ctx, a.lease); err != nil {
			return err
		}
		if values, err = a.manager.cfg.Store.Secrets.All(ctx, spec.AllSecrets()); err != nil {
			return err
		}
		if credentials, err = a.manager.cfg.Store.Secrets.All(ctx, spec.RepositorySecrets()); err != nil {
			return err
		}
		before, err = a.manager.replay(ctx, a.lease.RunID, started)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(counted) > 0 {
		a.meter.resume(counted)
		used := a.meter.held()
		a.earlier = store.Spending{Tokens: max(0, a.earlier.Tokens-used.Tokens), CostUSD: max(0, a.earlier.CostUSD-used.CostUSD)}
		return before, slices.Concat(values, tokens(credentials)), nil
	}
	a.charged = before.used
	a.earlier.Tokens = max(0, a.earlier.Tokens-tokensOf(before.used)) // a part may not be recorded
	a.earlier.CostUSD = max(0, a.earlier.CostUSD-before.used.CostUSD)
	return before, slices.Concat(values, tokens(credentials)), nil
}

// replay reads the stored events of the attempt in progress, if there are any. started is the
// message of its beginning. The attempt before may lack its end, because its worker was lost.
func (m *Manager) replay(ctx context.Context, id store.RunID, started string) (*replayed, error) {
	var all []store.Event
	for after := int64(0); ; {
		page, err := m.cfg.Store.Transcripts.List(ctx, id, after, maxReplayPage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < maxReplayPage {
			break
		}
		after = page[len(page)-1].Seq
	}
	return replayedOf(all, started), nil
}

const maxReplayPage = 1000

func replayedOf(all []store.Event, started string) *replayed {
	r := &replayed{text: make(map[string]int), other: make(map[string]int), calls: make(map[string]time.Time)}
	from := len(all) // nothing of this attempt is stored
	for i, e := range all {
		if s, ok := decoded(e).(event.Status); ok && s.State == string(store.InProgress) && s.Message == started {
			r.begun, from = true, i
		}
		r.seq = e.Seq
	}
	for _, e := range all[from:] {
		switch d := decoded(e).(type) {
		case event.Output:
			r.text[d.Stream] += len(d.Text)
			continue
		case event.Usage:
			r.used.InputTokens += d.InputTokens
			r.used.OutputTokens += d.OutputTokens
			r.used.CostUSD += d.CostUSD
			r.used.Turns += d.Turns
		case event.Push:
			r.asks = append(r.asks, d)
		case event.Request:
			if r.asks = append(r.asks, d); d.Done != "" {
				r.opens++
			}
		case event.Ended:
			r.exit = &d
		case event.Result:
			r.result = &d
		case event.Status:
			if d.State != "" {
				r.last = d
			}
		}
		r.other[sameAs(e)]++
		if id, begins, _ := callIn(e); begins && id != "" {
			r.calls[id] = e.At
		}
	}
	return r
}

// verdict is how the attempt ended, if the end is stored and another attempt would repeat the
// work. Otherwise the verdict has no state. An agent that was stopped counts as ended only if
// its harness says so.
func (r *replayed) verdict(spec *run.Spec) verdict {
	end := store.RunState(r.last.State)
	stopped := r.exit == nil || r.exit.Stopped
	var v verdict
	switch {
	case end.Terminal():
		v = verdict{state: end, message: r.last.Message}
	case end == store.Queued || stopped && r.result == nil:
		return v
	case stopped:
		v = judge(errFinished, task.Exit{}, nil, 0, 0, lastSaid{result: r.result})
	default:
		v = judge(nil, task.Exit{Code: r.exit.ExitCode, Signal: r.exit.Signal}, nil, 0, 0, lastSaid{result: r.result, expected: !spec.Commanded()})
	}
	if v.again {
		return verdict{}
	}
	if !end.Terminal() {
		v.message = strings.TrimPrefix(v.message+"; "+cutShort, "; ")
	} else if !stopped && r.exit.Signal == "" {
		code := int64(r.exit.ExitCode)
		v.exit = &code
	}
	return v
}

// conclude ends an attempt whose worker is lost, if the transcript has how it ended (SPEC 9.6).
func (m *Manager) conclude(ctx context.Context, h store.Held) bool {
	row, err := m.cfg.Store.Runs.Get(ctx, h.RunID)
	var spec run.Spec
	if err == nil {
		spec, err = run.SpecOf(ctx, m.cfg.Store, row)
	}
	var stored *replayed
	if err == nil {
		stored, err = m.replay(ctx, h.RunID, beginning(row.Attempt, &spec))
	}
	var v verdict
	if err == nil {
		if v = stored.verdict(&spec); !v.state.Terminal() {
			return false
		}
		var asked []store.NewOutput
		if asked, err = m.askedBefore(ctx, row, h.Lease, &spec, stored); err == nil {
			err = m.cfg.Store.Leases.Finish(ctx, h.Lease, v.state, v.message, v.exit, asked...)
		}
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, store.ErrFenced) {
			m.logger.Warn("looking in its transcript how a run ended whose worker is lost", "run", h.RunID, "error", err)
		}
		return false
	}
	m.logger.Info("a run had ended when its server or worker stopped", "run", h.RunID, "state", v.state, "message", v.message)
	if row, err = m.cfg.Store.Runs.Get(ctx, h.RunID); err == nil {
		m.desk.Ended(row)
	}
	m.desk.Feed().Notify(h.RunID)
	m.Wake() // another run of its conversation may have waited for it
	return true
}

// askedBefore is what the agent of an attempt has asked for, by the transcript, as the worker that is lost would have
// recorded it with the end of the run (SPEC 23.2).
func (m *Manager) askedBefore(ctx context.Context, row *store.Run, l store.Lease, spec *run.Spec, stored *replayed) ([]store.NewOutput, error) {
	if len(stored.asks) == 0 {
		return nil, nil
	}
	a, work := &attempt{manager: m, lease: l}, &task.Task{Secrets: make(map[string]secret.Value)}
	spec.Demand(work)
	if err := a.earlierPushes(ctx, row, spec, work); err != nil {
		return nil, err
	}
	if _, err := a.outputs(ctx, row.ID, spec, work, nil); err != nil {
		return nil, err
	}
	t := newTranscript(transcriptConfig{now: m.cfg.Now, limit: math.MaxInt, may: spec.Outputs, hide: secret.NewRedactor(), logger: m.logger}).under(work, stored)
	for _, e := range stored.asks {
		t.put(e)
	}
	t.pending, t.seq = nil, stored.seq // they are stored
	if t.settle(); len(t.pending) > 0 && !store.RunState(stored.last.State).Terminal() {
		if err := m.cfg.Store.Transcripts.AppendLast(ctx, l, t.pending); err != nil {
			return nil, err
		}
	}
	return t.outputs(), nil
}

// endLeft ends attempts whose worker is gone. It stops the agents first: as soon as the store knows
// that an attempt is over, another worker may begin the next attempt. An attempt whose transcript
// lacks its end is left to the caller.
func (m *Manager) endLeft(ctx context.Context, held []store.Held) {
	adopted := m.adoptedRuns()
	for _, h := range held {
		if slices.Contains(adopted, h.RunID) {
			continue
		}
		if err := m.cfg.Executor.Reap(ctx, h.RunID.String()); err != nil {
			m.logger.Error("stopping what is left of a run", "run", h.RunID, "error", err)
		}
		_ = m.conclude(ctx, h)
	}
}

func decoded(e store.Event) event.Event {
	d, _ := event.Decode(e.Kind, e.Data) // nil for an event that this program does not know
	return d
}

// callIn is the call of the agent that an event is about. taking makes the event with another
// duration; it is nil if the event is about no call.
func callIn(e store.Event) (id string, begins bool, taking func(ms int64) []byte) {
	with := func(d event.Event) []byte {
		data, err := json.Marshal(d)
		if err != nil {
			return e.Data
		}
		return data
	}
	switch d := decoded(e).(type) {
	case event.Command:
		return d.ID, d.Started, func(ms int64) []byte { d.DurationMS = ms; return with(d) }
	case event.Tool:
		return d.ID, d.Started, func(ms int64) []byte { d.DurationMS = ms; return with(d) }
	}
	return "", false, nil
}

// sameAs is the part of an event that is equal in every reading. The duration of a call is not,
// because each reader times it.
func sameAs(e store.Event) string {
	if _, _, taking := callIn(e); taking != nil {
		e.Data = taking(0)
	}
	return e.Kind + "\n" + string(e.Data)
}

// left is the part of the event that is not stored yet; false: all of it is stored.
func (r *replayed) left(e store.Event) (store.Event, bool) {
	if e.Kind != event.KindOutput {
		same := sameAs(e)
		if r.other[same] > 0 {
			r.other[same]--
			return e, false
		}
		id, begins, taking := callIn(e)
		if at, ok := r.calls[id]; ok && !begins { // here it seems to have begun when its beginning was read again
			e.Data = taking(e.At.Sub(at).Milliseconds())
		}
		return e, true
	}
	o, ok := decoded(e).(event.Output)
	stored := r.text[o.Stream]
	switch {
	case !ok || stored == 0:
		return e, true
	case stored >= len(o.Text):
		r.text[o.Stream] -= len(o.Text)
		return e, false
	}
	o.Text, r.text[o.Stream] = o.Text[stored:], 0
	data, err := json.Marshal(o)
	if err == nil {
		e.Data = data
	}
	return e, true
}

// adoptedRuns are the runs that this worker took up when it began.
func (m *Manager) adoptedRuns() (ids []store.RunID) {
	for _, one := range m.adopted {
		ids = append(ids, one.lease.RunID)
	}
	return ids
}
