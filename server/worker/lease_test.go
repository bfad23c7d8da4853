package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/schema/output"
	"triphammer/server/disk"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/worker"
	"triphammer/server/worker/executor"
)

// member is one of several managers on one store, with an executor of its own.
type member struct {
	*run.Desk
	manager *worker.Manager
	w       *world
	stop    func() error  // ends it, and waits for it
	over    chan struct{} // closed when it has ended
}

// join starts another manager on the store. Its executor has a folder of its name.
func (w *world) join(id string, cfg worker.Config) *member {
	w.Helper()
	return w.joinAs(id, true, cfg)
}

// joinAs is join, as one of several processes or as the only one.
func (w *world) joinAs(id string, shared bool, cfg worker.Config) *member {
	w.Helper()
	bin := filepath.Join(w.dir, "bin")
	if err := errors.Join(os.MkdirAll(bin, 0o700), os.WriteFile(filepath.Join(bin, "claude"), []byte(talker), 0o700)); err != nil {
		w.Fatal(err)
	}
	local, err := executor.New(executor.Config{Dir: filepath.Join(w.dir, id), Isolation: executor.None, User: "root", Grace: 50 * time.Millisecond, Path: bin + ":" + os.Getenv("PATH")})
	if err != nil {
		w.Fatal(err)
	}
	if cfg.Executor == nil {
		cfg.Executor = local
	}
	cfg.Store, cfg.Shared, cfg.Logger = w.store, shared, slog.New(slog.DiscardHandler)
	cfg.Worker = store.Worker{ID: id, Kind: store.KindWorker}
	if len(cfg.Capabilities.WorkerHosts) == 0 {
		cfg.Capabilities.WorkerHosts = []string{id}
	}
	cfg.Lease, cfg.Grace = cmp.Or(cfg.Lease, 3*time.Second), cmp.Or(cfg.Grace, 50*time.Millisecond)
	worker := worker.New(cfg)
	m := &member{Desk: worker.Desk(), manager: worker, w: w, over: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() {
		defer close(m.over)
		done <- m.manager.Run(ctx)
	}()
	stopped := false
	m.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	w.Cleanup(func() {
		if err := m.stop(); err != nil && !errors.Is(err, store.ErrSuperseded) {
			w.Error(err)
		}
	})
	w.until(id+" is known", func() bool { return w.worker(id) != nil })
	return m
}

func (w *world) worker(id string) *store.Worker {
	w.Helper()
	all, err := w.store.Workers.List(context.WithoutCancel(w.Context()))
	if err != nil {
		w.Fatal(err)
	}
	for _, one := range all {
		if one.ID == id {
			return one
		}
	}
	return nil
}

// queued makes a run, and tells no manager of it.
func (w *world) queued(s run.Spec) store.RunID {
	w.Helper()
	r, _, err := w.store.Runs.Create(w.Context(), w.newRun(s), "", nil)
	if err != nil {
		w.Fatal(err)
	}
	return r.ID
}

// api is a manager that starts no runs, as that of a serve with --max-runs 0.
func (w *world) api() *member {
	cfg := worker.Config{Config: run.Config{Store: w.store, Shared: true, MaxRuns: 0, Logger: slog.New(slog.DiscardHandler)}, Lease: 3 * time.Second}
	m := worker.New(cfg)
	return &member{Desk: m.Desk(), manager: m, w: w}
}

// why is why a queued run waits.
func (m *member) why(id store.RunID) string {
	m.w.Helper()
	belt, err := m.Belt(m.w.Context(), m.w.read(id))
	if err != nil {
		m.w.Fatal(err)
	}
	return belt[0].Detail
}

// TestStopElsewhere: a run is cancelled and interrupted by a process that has not started it;
// its conversation goes on where its workspace is (SPEC 17.4).
func TestStopElsewhere(t *testing.T) {
	w := newWorld(t)
	w.join("a", worker.Config{Config: run.Config{MaxRuns: 1}})
	first := w.queued(talk("Please wait."))
	w.until("the agent waits", func() bool { return strings.Contains(w.said(first), "turn ") })
	_, api := w.join("b", worker.Config{Config: run.Config{MaxRuns: 4}}), w.api()
	if r := w.read(first); r.Worker != "a" {
		t.Fatalf("the run is of %q", r.Worker)
	}
	if err := api.Interrupt(t.Context(), first, "ada"); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(first), store.Cancelled, "interrupted by ada; `triphammer runs followup")

	busy := w.queued(run.Spec{Environment: environment("sleep 300")}) // b has it, or a
	w.until("it starts", func() bool { return w.read(busy).State == store.InProgress })
	w.manager = api.manager
	second, err := w.follow(first, "Second.")
	if err != nil {
		t.Fatal(err)
	}
	w.until("the follow-up ends, or waits", func() bool {
		return w.read(second.ID).State.Terminal() || strings.Contains(api.why(second.ID), "the worker that has the workspace of its conversation (a: 1 of 1 runs are in progress)")
	})
	if err := api.Cancel(t.Context(), busy, "ada"); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(busy), store.Cancelled, "cancelled by ada while it was in progress")
	w.wants(w.finished(second.ID), store.Succeeded, "")
	if r := w.read(second.ID); r.Worker != "a" || !strings.Contains(w.said(second.ID), "turn 4 of 4") {
		t.Errorf("the follow-up was executed by %s: %s", r.Worker, w.said(second.ID))
	}
	if _, there := os.Stat(filepath.Join(w.dir, "b", first.String())); there == nil {
		t.Error("the other worker has a workspace of the conversation")
	}
}

// TestLostWorkspace: when the worker is gone that has the workspace, a follow-up is refused; one
// that waits already ends with the reason, and not in what another attempt has left under the
// same name (SPEC 17.4).
func TestLostWorkspace(t *testing.T) {
	w := newWorld(t)
	a, api := w.join("a", worker.Config{Config: run.Config{MaxRuns: 1}}), w.api()
	first := w.queued(talk("First."))
	w.wants(w.finished(first), store.Succeeded, "")
	if _, err := w.store.Workers.Drain(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	w.manager = api.manager
	waits, err := w.follow(first, "Second.")
	if err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(w.dir, "b", first.String())
	if err := errors.Join(os.MkdirAll(filepath.Join(stale, "workspace"), 0o700), os.MkdirAll(filepath.Join(stale, "home"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.follow(first, "Third."); err == nil || !strings.Contains(err.Error(), "is with the worker a, which is not connected") {
		t.Errorf("a follow-up: %v", err)
	}
	w.join("b", worker.Config{Config: run.Config{MaxRuns: 1}})
	w.wants(w.finished(waits.ID), store.FailedRun, "the workspace of this conversation was removed: start a new run")
}

// TestWorkerNames: a run that asks for a name or a label waits for a worker that has it, and
// says that none is connected; a drained worker starts nothing, and says so (SPEC 17.4).
func TestWorkerNames(t *testing.T) {
	w := newWorld(t)
	api := w.api()
	run1 := w.queued(run.Spec{Environment: environment("true")})
	if got := api.why(run1); !strings.HasSuffix(got, ": waits for a worker; none is connected (triphammer worker)") {
		t.Errorf("it waits: %s", got)
	}
	w.join("plain", worker.Config{Config: run.Config{MaxRuns: 1}})
	w.wants(w.finished(run1), store.Succeeded, "")
	named, labelled := w.queued(run.Spec{WorkerHost: "gpu", Environment: environment("true")}), w.queued(run.Spec{WorkerHost: "zone=b", Environment: environment("true")})
	if got := api.why(named); !strings.HasSuffix(got, ": waits for a worker named gpu; none is connected (triphammer worker --name gpu)") {
		t.Errorf("it waits: %s", got)
	}
	if api.AtCapacity(t.Context()) {
		t.Error("there is room, and the answer is that there is none")
	}
	w.join("special", worker.Config{Config: run.Config{MaxRuns: 2, Capabilities: run.Capabilities{WorkerHosts: []string{"gpu"}, Labels: map[string]string{"zone": "b"}}}})
	for _, id := range []store.RunID{named, labelled} {
		w.wants(w.finished(id), store.Succeeded, "")
		if r := w.read(id); r.Worker != "special" {
			t.Errorf("%s was executed by %s", id, r.Worker)
		}
	}
	// Drained, it finishes what it has and starts nothing.
	has := w.queued(run.Spec{WorkerHost: "gpu", Environment: environment("while [ ! -e " + w.dir + "/go ]; do sleep 0.01; done")})
	w.until("it starts", func() bool { return w.read(has).State == store.InProgress })
	if _, err := w.store.Workers.Drain(t.Context(), "gpu", true); err != nil {
		t.Fatal(err)
	}
	next := w.queued(run.Spec{WorkerHost: "gpu", Environment: environment("true")})
	w.until("the run waits for the drained worker", func() bool {
		return strings.HasSuffix(api.why(next), ": no worker that could execute it is free (gpu: is drained)")
	})
	if err := os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(has), store.Succeeded, "")
	other := w.queued(run.Spec{Environment: environment("true")})
	w.wants(w.finished(other), store.Succeeded, "") // by the other worker, and so the drained one has had the time to take its own
	if r := w.read(next); r.State != store.Queued {
		t.Errorf("a drained worker has started a run: %s", r.State)
	}
	if _, err := w.store.Workers.Drain(t.Context(), "gpu", false); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(next), store.Succeeded, "")
}

// TestReap: the attempt of a worker that is lost is ended when its lease is over, and its run
// is tried again on another worker, or fails, as its spec says (SPEC 9.6, 17.4).
func TestReap(t *testing.T) {
	w := newWorld(t)
	if _, err := w.store.Workers.Start(t.Context(), store.Worker{ID: "dead", Names: []string{"attic"}, Lease: 2 * time.Second}, "p"); err != nil {
		t.Fatal(err)
	}
	once := w.queued(run.Spec{Environment: environment("true")})
	twice := run.Spec{Environment: environment("true")}
	twice.Retry = run.Retry{Attempts: 2, Delay: time.Millisecond}
	again := w.queued(twice)
	if leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: "dead", Most: 2, Lease: 2 * time.Second}); err != nil || len(leases) != 2 {
		t.Fatal(leases, err)
	}
	begun := time.Now()
	alive := w.join("alive", worker.Config{Config: run.Config{MaxRuns: 2}})
	reaping, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- alive.manager.Reap(reaping) }()
	const message = "the worker attic was lost before this run had finished"
	w.wants(w.finished(once), store.FailedRun, message)
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("after %v, the lease was not over", took)
	}
	r := w.finished(again)
	w.wants(r, store.Succeeded, "")
	if r.Attempt != 2 || r.Worker != "alive" {
		t.Errorf("attempt %d by %s", r.Attempt, r.Worker)
	}
	// A run whose worker renews is left alone for longer than its lease.
	long := w.finished(w.queued(run.Spec{Environment: environment("sleep 5")}))
	w.wants(long, store.Succeeded, "")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLeaseGuard: a worker that cannot reach the store stops its agents before their leases are
// over. One that has the store for itself lets them go on (SPEC 17.4).
func TestLeaseGuard(t *testing.T) {
	for _, shared := range []bool{true, false} {
		w := newWorld(t)
		m := w.joinAs("a", shared, worker.Config{Config: run.Config{MaxRuns: 1}})
		id := w.queued(run.Spec{Environment: environment("while :; do date >alive; sleep 0.01; done")})
		alive := filepath.Join(w.dir, "a", id.String(), "workspace", "alive")
		w.until("the agent works", func() bool {
			_, err := os.Stat(alive)
			return err == nil
		})
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		closed := time.Now()
		var last time.Time // when the agent lived
		w.until("the agent ends, or the lease is over for long", func() bool {
			info, err := os.Stat(alive)
			if err != nil {
				t.Fatal(err)
			}
			last = info.ModTime()
			return time.Since(last) > time.Second || time.Since(closed) > 6*time.Second
		})
		if lived := last.Sub(closed); shared == (lived > 3*time.Second) {
			t.Errorf("shared %v: the agent lived for %v, and the lease was for 3 seconds", shared, lived)
		}
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkerStartsAgain: what a worker had in progress when it died is ended as soon as it is
// back; of two with one identity the older one stops (SPEC 17.4).
func TestWorkerStartsAgain(t *testing.T) {
	w := newWorld(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Workers.Start(t.Context(), store.Worker{ID: "a", Host: host, Lease: time.Hour}, "p"); err != nil {
		t.Fatal(err)
	}
	id := w.queued(run.Spec{Environment: environment("true")})
	if leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: "a", Most: 1, Lease: time.Hour}); err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	a := w.join("a", worker.Config{Config: run.Config{MaxRuns: 1}, Disk: disk.NewWatch(disk.Floor{}, w.dir, w.dir)})
	w.wants(w.finished(id), store.FailedRun, "the worker stopped before this run had finished")

	long := w.queued(run.Spec{Environment: environment("sleep 300")})
	w.until("it starts", func() bool { return w.read(long).State == store.InProgress })
	if _, err := w.store.Workers.Start(t.Context(), store.Worker{ID: "a", Host: "another"}, "q"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.over:
	case <-time.After(30 * time.Second):
		t.Fatal("the older process goes on")
	}
	if err := a.stop(); !errors.Is(err, store.ErrSuperseded) {
		t.Errorf("error %v", err)
	}
}

// TestEndIsKept: an attempt whose end is in its transcript when its server or worker dies is not
// begun again, whoever finds it, and what its agent asked for is done (SPEC 23.2); one whose agent had not
// ended is begun again (SPEC 9.6).
func TestEndIsKept(t *testing.T) {
	t.Parallel()
	begun := event.Status{State: string(store.InProgress), Message: "started"}
	zero, one, wrong := int64(0), int64(1), int64(78)
	asks := event.Request{Name: "comment", Request: `{"kind":"comment","body":"done"}`}
	cases := map[string]struct {
		harness  bool // it tells of its end
		events   []event.Event
		state    store.RunState // empty: it is tried again
		message  string
		exit     *int64
		cutShort bool
	}{
		"in the middle":         {events: []event.Event{begun, event.Output{Stream: event.Stdout, Text: "half"}}},
		"ended well":            {events: []event.Event{begun, asks, event.Ended{}}, state: store.Succeeded, exit: &zero, cutShort: true},
		"ended badly":           {events: []event.Event{begun, event.Ended{ExitCode: 1}}},
		"killed":                {events: []event.Event{begun, event.Ended{ExitCode: -1, Signal: "SIGKILL"}}},
		"stopped":               {events: []event.Event{begun, event.Ended{Stopped: true}}},
		"configured wrongly":    {events: []event.Event{begun, event.Ended{ExitCode: 78}}, state: store.FailedRun, message: "the agent ended with exit status 78", exit: &wrong, cutShort: true},
		"all but the row":       {events: []event.Event{begun, asks, event.Request{Name: "comment", Request: "{}", Refused: "no"}, event.Ended{}, event.Status{State: string(store.Succeeded)}}, state: store.Succeeded, exit: &zero},
		"failed for good":       {events: []event.Event{begun, event.Ended{ExitCode: 1}, event.Status{State: string(store.FailedRun), Message: "so it is"}}, state: store.FailedRun, message: "so it is", exit: &one},
		"to be tried again":     {events: []event.Event{begun, event.Ended{}, event.Status{State: string(store.Queued), Message: "attempt 1 of 2 failed"}}},
		"of an earlier attempt": {events: []event.Event{event.Status{State: string(store.InProgress), Message: "of another"}, event.Ended{}}},
		"said its end":          {harness: true, events: []event.Event{begun, event.Result{}}, state: store.Succeeded, cutShort: true},
		"said nothing":          {harness: true, events: []event.Event{begun, event.Ended{}}},
		"said that it failed":   {harness: true, events: []event.Event{begun, event.Result{Failed: true, Message: "no"}, event.Ended{}}},
		"failed whatever comes": {harness: true, events: []event.Event{begun, event.Result{Failed: true, Final: true, Message: "no key"}, event.Ended{}}, state: store.FailedRun, message: "no key", exit: &zero, cutShort: true},
	}
	for _, found := range []string{"by the next server", "by the same worker", "by the leader"} {
		t.Run(found, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			dead := store.Worker{ID: "dead", Kind: store.KindWorker, Host: host, Lease: time.Second}
			if _, err := w.store.Workers.Start(t.Context(), dead, "before"); err != nil {
				t.Fatal(err)
			}
			ids := make(map[string]store.RunID)
			for name, c := range cases {
				spec := run.Spec{Automation: name, Environment: environment("echo again"), Retry: run.Retry{Attempts: 2}}
				if c.harness {
					spec.Environment.Command, spec.Harness.Type = nil, "claude"
				}
				if slices.Contains(c.events, event.Event(asks)) {
					spec.Outputs = output.Allowed{"comment": {}}
				}
				row := w.newRun(spec)
				row.Outputs = &store.OutputPlace{WebhookUID: "whk_1", Provider: "github", Place: `{"container":"acme/api","thread":"7","kind":"issue"}`}
				r, _, err := w.store.Runs.Create(t.Context(), row, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				ids[name] = r.ID
			}
			leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: dead.ID, Most: len(cases), Lease: dead.Lease})
			if err != nil || len(leases) != len(cases) {
				t.Fatal(leases, err)
			}
			for name, c := range cases {
				lease := leases[slices.IndexFunc(leases, func(l store.Lease) bool { return l.RunID == ids[name] })]
				var events []store.Event
				for i, e := range c.events {
					data, err := json.Marshal(e)
					if err != nil {
						t.Fatal(err)
					}
					events = append(events, store.Event{Seq: int64(i + 1), At: time.Now(), Kind: e.Kind(), Data: data})
				}
				if err := w.store.Transcripts.Append(t.Context(), lease, events); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			told := make(map[string]int) // ends, by automation
			cfg := worker.Config{Config: run.Config{MaxRuns: 4, Observe: func(o run.Observation) {
				mu.Lock()
				defer mu.Unlock()
				if o.Ended != "" {
					told[o.Automation]++
				}
			}}, Lease: dead.Lease}
			switch found {
			case "by the next server":
				w.start(cfg, os.Getenv("PATH"))
			case "by the same worker":
				w.join(dead.ID, cfg)
			default:
				m := w.join("leader", cfg)
				ctx, end := context.WithCancel(t.Context())
				reaped := make(chan error, 1)
				go func() { reaped <- m.manager.Reap(ctx) }()
				defer func() {
					end()
					if err := <-reaped; err != nil {
						t.Error(err)
					}
				}()
			}
			for name, c := range cases {
				if c.state == "" {
					w.until(name+": another attempt", func() bool { return w.read(ids[name]).Attempt == 2 })
					continue
				}
				w.until(name+": its end", func() bool { return w.read(ids[name]).State.Terminal() })
				r := w.read(ids[name])
				if r.Attempt != 1 || r.State != c.state || !strings.HasPrefix(r.StatusMessage, c.message) || strings.Contains(r.StatusMessage, "its agent had ended when") != c.cutShort {
					t.Errorf("%s: attempt %d is %s: %q", name, r.Attempt, r.State, r.StatusMessage)
				}
				made, err := w.store.Outputs.Of(t.Context(), r.ID)
				if err != nil || len(made) == 1 != slices.Contains(c.events, event.Event(asks)) || len(made) > 1 {
					t.Errorf("%s: what its agent asked for is %+v, %v", name, made, err)
				}
				w.until(name+": its end is told once", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return told[name] == 1
				})
				if (r.ExitCode == nil) != (c.exit == nil) || r.ExitCode != nil && *r.ExitCode != *c.exit {
					t.Errorf("%s: the exit status is %v", name, r.ExitCode)
				}
			}
		})
	}
}
