package worker_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// TestEndsAreTold: each end of a run is observed once, whoever ends it, and a failed run leaves a
// warning with what an alert needs, in one line whatever the agent says (SPEC 12.6).
func TestEndsAreTold(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var log bytes.Buffer
	ends, waits := make(map[store.RunState]int), 0
	cfg := worker.Config{Config: run.Config{MaxRuns: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(o run.Observation) {
		mu.Lock()
		defer mu.Unlock()
		if o.Ended != "" {
			ends[o.Ended]++
			if o.Automation != "triage" || o.Factory != "f" || o.Ended == store.Succeeded && o.Took <= 0 {
				t.Errorf("observed %+v", o)
			}
		}
		if o.Waited > 0 {
			waits++
		}
	}}}
	spec := func(script string) run.Spec {
		return run.Spec{Automation: "triage", Environment: environment(script)}
	}
	dead := w.enqueue(spec("true"))
	if leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: "dead", Most: 1, Lease: time.Hour}); err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	w.start(cfg, "")
	w.finished(dead)
	w.finished(w.enqueue(spec("sleep 0.01")))
	broken := w.enqueue(spec(`printf 'it broke\033[2J level=INFO \342\200\256' >&2; exit 3`))
	w.finished(broken)
	working := w.enqueue(spec("echo started; sleep 300"))
	w.until("the agent starts", func() bool { return strings.Contains(w.output(working, "stdout"), "started") })
	queued := w.enqueue(spec("true"))
	if wait, err := w.store.Runs.LongestWait(t.Context()); err != nil || wait <= 0 {
		t.Errorf("the queued run has waited for %v, %v", wait, err)
	}
	for _, id := range []store.RunID{queued, working} {
		if err := w.manager.Desk().Cancel(t.Context(), id, "ada"); err != nil {
			t.Error(err)
		}
		w.finished(id)
	}
	w.stop()
	if ends[store.FailedRun] != 2 || ends[store.Succeeded] != 1 || ends[store.Cancelled] != 2 || waits != 3 {
		t.Errorf("ends %v, waits %d", ends, waits)
	}
	if wait, err := w.store.Runs.LongestWait(t.Context()); err != nil || wait != 0 {
		t.Errorf("nothing waits, for %v, %v", wait, err)
	}
	for _, id := range []store.RunID{dead, broken} {
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `level=WARN msg="run failed" run=`+id.String()+" factory=f automation=triage state=FAILED duration=") && strings.Contains(line, " reason=") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || strings.ContainsAny(lines[0], "\x1b\u202e") {
			t.Errorf("of %s the log has %q\n%s", id, lines, log.String())
		}
	}
}
