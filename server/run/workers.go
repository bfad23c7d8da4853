package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Workers are the workers that the store knows.
func (d *Desk) Workers(ctx context.Context) ([]*store.Worker, error) {
	all, err := d.cfg.Store.Workers.List(ctx)
	if !d.cfg.Shared && d.works() {
		for _, w := range all {
			if w.ID == d.cfg.Worker.ID { // the worker of this process answers right now
				w.SeenAt, w.Silent, w.Blocked = d.cfg.Now(), 0, d.local.Card().Blocked
			}
		}
	}
	return all, err
}

// workerCache keeps the workers for a moment after they are read, for lists of runs.
type workerCache struct {
	mu  sync.Mutex
	at  time.Time
	all map[string]*store.Worker
}

const workersFor = 2 * time.Second

// WorkerOf is the worker with an id; nil: the store no longer knows it.
func (d *Desk) WorkerOf(ctx context.Context, id string) (*store.Worker, error) {
	if id == "" {
		return nil, nil
	}
	d.known.mu.Lock()
	defer d.known.mu.Unlock()
	if d.known.all == nil || time.Since(d.known.at) > workersFor {
		all, err := d.Workers(ctx)
		if err != nil {
			return nil, err
		}
		d.known.at, d.known.all = time.Now(), make(map[string]*store.Worker)
		for _, w := range all {
			d.known.all[w.ID] = w
		}
	}
	return d.known.all[id], nil
}

func (d *Desk) liveWorkers(ctx context.Context) ([]*store.Worker, error) {
	all, err := d.Workers(ctx)
	return slices.DeleteFunc(all, func(w *store.Worker) bool { return !w.Live() }), err
}

// carries tells whether a worker executes runs that ask for a name.
func carries(w *store.Worker, host string) bool {
	return host == "" || slices.Contains(w.Hosts(), host)
}

// noneCarries says that no connected worker has the name; empty: a worker has it. An empty
// name stands for any worker.
func (d *Desk) noneCarries(ctx context.Context, host string) (string, error) {
	live, err := d.liveWorkers(ctx)
	if err != nil || slices.ContainsFunc(live, func(w *store.Worker) bool { return carries(w, host) }) {
		return "", err
	}
	if host == "" {
		return "waits for a worker; none is connected (triphammer worker)", nil
	}
	return store.WaitsFor(host) + "; none is connected (triphammer worker --name " + host + ")", nil
}

// LacksWorker says that a queued run asks for a worker and that no worker of the name is
// connected. It is empty otherwise.
func (d *Desk) LacksWorker(ctx context.Context, r *store.Run) (string, error) {
	if !d.cfg.Shared || r.State != store.Queued || !r.RunAt.IsZero() || r.Behind {
		return "", nil
	}
	spec, err := SpecOf(ctx, d.cfg.Store, r)
	if err != nil || spec.WorkerHost == "" {
		return "", err
	}
	return d.noneCarries(ctx, spec.WorkerHost)
}

// waitsForWorkers says why no worker has started a queued run. It is for a store that several
// processes share.
func (d *Desk) waitsForWorkers(ctx context.Context, r *store.Run, spec *Spec) (string, error) {
	live, err := d.liveWorkers(ctx)
	if err != nil {
		return "", err
	}
	bound, err := d.cfg.Store.Workers.BoundTo(ctx, r.ID)
	if err != nil {
		return "", err
	}
	fit := slices.DeleteFunc(slices.Clone(live), func(w *store.Worker) bool {
		return bound != "" && w.ID != bound || bound == "" && !carries(w, spec.WorkerHost)
	})
	if len(fit) == 0 {
		if bound != "" {
			return "it is about to start, without the workspace of its conversation: the worker that has that is not connected", nil
		}
		return d.noneCarries(ctx, spec.WorkerHost)
	}
	var busy []string
	for _, w := range fit {
		why := w.Blocked
		switch {
		case w.Drain:
			why = "is drained"
		case why == "" && w.Active >= w.MaxRuns:
			why = fmt.Sprintf("%d of %d runs are in progress", w.Active, w.MaxRuns)
		}
		if why == "" {
			return "", nil
		}
		busy = append(busy, w.Name()+": "+why)
	}
	const shown = 5
	if len(busy) > shown {
		busy = append(busy[:shown], fmt.Sprintf("and %d more", len(busy)-shown))
	}
	what := "no worker that could execute it is free"
	if bound != "" {
		what = "waits for the worker that has the workspace of its conversation"
	}
	return what + " (" + strings.Join(busy, "; ") + ")", nil
}

// lostWorkspace says that the workspace of a conversation is gone, or that the worker that has
// it is not connected. It is empty if that worker is connected, or if there is no workspace yet.
func (d *Desk) lostWorkspace(ctx context.Context, c *store.Conversation) (string, error) {
	last := LastStarted(c)
	if last == nil || last.Worker == d.cfg.Worker.ID {
		return "", nil
	}
	w, err := d.WorkerOf(ctx, last.Worker)
	if err != nil {
		return "", err
	}
	if w != nil && Outlives(w.Isolation) {
		return task.ErrNoWorkspace.Error(), nil // the workspace was deleted with its run
	}
	live, err := d.liveWorkers(ctx)
	if err != nil || slices.ContainsFunc(live, func(w *store.Worker) bool { return w.ID == last.Worker }) {
		return "", err
	}
	name := "that executed its last run"
	if w != nil {
		name = w.Name()
	}
	return fmt.Sprintf("the workspace of this conversation is with the worker %s, which is not connected: try again when it is, or start a new run", name), nil
}

// LastStarted is the newest run of a conversation that a worker has started; nil: there is none.
func LastStarted(c *store.Conversation) (last *store.Run) {
	for _, r := range c.Runs {
		if r.Worker != "" && (last == nil || r.ID > last.ID) {
			last = r
		}
	}
	return last
}

// Outlives tells whether attempts with the isolation outlive their worker.
func Outlives(isolation string) bool { return isolation == task.Cluster }
