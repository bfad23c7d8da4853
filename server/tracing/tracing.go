// Package tracing tells a collector of OpenTelemetry what became of deliveries (SPEC 27.4): one trace from a
// delivery through the queue, the phases of its runs, their requests to models and their tools, to
// answers and outputs.
//
// Traces are made from what the store has, after a run has ended. So they cost the ingress and the
// runs nothing, and nothing without a collector. The ids of a trace and of its spans follow from those of
// the delivery and the runs: every server and worker knows them without being told.
//
// A span has names, ids, times, numbers and states. It has no payload, prompt, command, argument or
// output: a collector is another place, with other readers.
package tracing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"triphammer/server/store"
)

const (
	// every is how often the leader looks for runs that have ended.
	every = 5 * time.Second
	// settle is how long after its end a run is told, so that its answers are told with it.
	settle = 5 * time.Second
	// most is how many runs are told in one request.
	most = 50
	// report is the name under which the store keeps up to when runs are told. No factory can have it.
	report = "traces told"
)

// Teller sends traces to a collector.
type Teller struct {
	Store   *store.Store
	Version string // of the program
	Now     func() time.Time
	Logger  *slog.Logger
}

// Run tells of runs that have ended, until ctx is done. One server at a time may call it: the leader.
// What the collector does not take is tried again.
func (t *Teller) Run(ctx context.Context) error {
	collector, err := toCollector(t.Version)
	if err != nil {
		return err
	}
	from, err := t.from(ctx)
	if err != nil {
		return err
	}
	tick, failed := time.NewTicker(every), false
	defer tick.Stop()
	for {
		to, err := t.tell(ctx, from, collector.send)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failed {
			t.Logger.Error("the collector of traces takes nothing; this is tried again", "error", err)
		}
		if failed = err != nil; failed {
			to = to.Add(-time.Microsecond) // other runs may have changed in the same one
		}
		if to.After(from) {
			from = to
			if err := t.Store.Applies.SetReport(ctx, report, []byte(from.Format(time.RFC3339Nano))); err != nil {
				t.Logger.Error("it could not be kept up to when runs are traced: some may be traced twice", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// from is the time up to which the last leader has told of runs; now, if none has.
func (t *Teller) from(ctx context.Context) (time.Time, error) {
	all, err := t.Store.Applies.Reports(ctx)
	if err != nil || len(all[report]) == 0 {
		return t.Now(), err
	}
	return time.Parse(time.RFC3339Nano, string(all[report]))
}

// tell tells of the runs that ended after a time, a page of them at once, and returns the time up to which
// it has. After an error, a run may be told again.
func (t *Teller) tell(ctx context.Context, from time.Time, send func(context.Context, []span) error) (to time.Time, err error) {
	q := store.RunQuery{States: []store.RunState{store.Succeeded, store.FailedRun, store.Cancelled}, UpdatedAfter: from, Sort: store.ByUpdated, Ascending: true, Limit: most}
	to = from
	for {
		runs, err := t.Store.Runs.List(ctx, q)
		if err != nil {
			return to, err
		}
		var traces [][]span
		upTo, settled := to, true
		for _, r := range runs {
			if settled = r.FinishedAt.Before(t.Now().Add(-settle)); !settled {
				break
			}
			if upTo = r.UpdatedAt; r.FinishedAt.Before(from.Add(-2 * settle)) {
				continue // it is told; its row has changed since
			}
			of, err := t.trace(ctx, r)
			if err != nil && !errors.Is(err, store.ErrDamaged) {
				return to, err
			}
			if len(of) > 0 {
				traces = append(traces, of)
			}
		}
		if err := t.sendAll(ctx, traces, send); err != nil {
			return to, err
		}
		if to = upTo; !settled || len(runs) < most {
			return to, nil
		}
		q.After = q.Cursor(runs[most-1])
	}
}

// sendAll sends traces at once. If the collector refuses that, because it is too large for it, each trace is
// sent alone, and a trace that is refused even then is left out.
func (t *Teller) sendAll(ctx context.Context, traces [][]span, send func(context.Context, []span) error) error {
	if len(traces) == 0 {
		return nil
	}
	err := send(ctx, slices.Concat(traces...))
	if !errors.Is(err, errRefused) {
		return err
	}
	for _, one := range traces {
		switch err := send(ctx, one); {
		case errors.Is(err, errRefused):
			t.Logger.Error("the collector of traces refuses a trace, which is left out", "trace", one[0].TraceID, "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}
