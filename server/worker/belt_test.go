package worker_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/disk"
	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// belt is the belt of a run in lines, without the times.
func (w *world) belt(id store.RunID) string {
	w.Helper()
	stages, err := w.manager.Desk().Belt(w.Context(), w.read(id))
	if err != nil {
		w.Fatal(err)
	}
	var lines []string
	for _, s := range stages {
		lines = append(lines, strings.TrimSpace(s.Mark()+" "+s.Stage+" "+s.Detail))
	}
	text := strings.Join(lines, "\n")
	text = regexp.MustCompile(`[-0-9]{10} [:0-9]{8} UTC`).ReplaceAllString(text, "T")
	text = regexp.MustCompile(`worker [^ ,]+/\d+`).ReplaceAllString(text, "worker W")
	return regexp.MustCompile(`\d+(\.\d)? m?s\b`).ReplaceAllString(text, "D")
}

func (w *world) wantsBelt(id store.RunID, want string) {
	w.Helper()
	if got := w.belt(id); got != want {
		w.Errorf("the belt is\n%s\nwant\n%s", got, want)
	}
}

const ahead = "\n· started\n· agent\n· ended"

// TestBeltWaits: a queued run says why it waits, for each reason that there is (SPEC 7.1).
func TestBeltWaits(t *testing.T) {
	quick := run.Spec{Environment: environment("true")}
	t.Run("no server", func(t *testing.T) {
		w := newWorld(t)
		w.manager = worker.New(worker.Config{Config: run.Config{Store: w.store}})
		w.wantsBelt(w.enqueue(quick), "… queued since T: no server is running that could start it"+ahead)
	})
	t.Run("starts none", func(t *testing.T) {
		w := newWorld(t)
		w.start(worker.Config{Config: run.Config{MaxRuns: 0}}, "")
		id := w.enqueue(quick)
		w.until("the manager works", func() bool { return !strings.Contains(w.belt(id), "no server") })
		w.wantsBelt(id, "… queued since T: this server starts no runs (--max-runs 0)"+ahead)
		other := quick
		other.WorkerHost = "mac"
		w.wantsBelt(w.enqueue(other), "… queued since T: waits for a worker named mac (serve --worker-host)"+ahead)
	})
	t.Run("disk", func(t *testing.T) {
		w := newWorld(t)
		floor, err := disk.ParseFloor("1000TiB")
		if err != nil {
			t.Fatal(err)
		}
		w.start(worker.Config{Config: run.Config{MaxRuns: 1}, Disk: disk.NewWatch(floor, w.dir, w.dir)}, "")
		id := w.enqueue(quick)
		w.until("the manager works", func() bool { return !strings.Contains(w.belt(id), "no server") })
		if belt := w.belt(id); !strings.Contains(belt, "has ") || !strings.Contains(belt, "--min-free") {
			t.Errorf("the belt is\n%s", belt)
		}
	})
	t.Run("limits, conversation, retry", func(t *testing.T) {
		w := withTalker(t, worker.Config{Config: run.Config{MaxPerAutomation: 1}}) // and MaxRuns 4
		waiting := talk("Please wait.")
		waiting.Automation = "a"
		first := w.enqueue(waiting)
		w.until("the agent waits", func() bool { return strings.Contains(w.said(first), "turn 3 ") })
		w.wantsBelt(w.enqueue(waiting), "… queued since T: 1 of 1 runs of its automation are in progress (--max-runs-per-automation)"+ahead)
		next, err := w.follow(first, "More.")
		if err != nil {
			t.Fatal(err)
		}
		w.wantsBelt(next.ID, "… queued since T: waits for "+first.String()+", which is before it in the conversation"+ahead)
		failing := talk("Please fail.")
		failing.Retry = run.Retry{Attempts: 2, Delay: time.Hour}
		again := w.enqueue(failing)
		w.until("the next attempt waits", func() bool { return !w.read(again).RunAt.IsZero() })
		w.wantsBelt(again, "… queued since T: attempt 1 of 2 failed: the agent ended with exit status 3; "+
			"the next attempt starts at T at the earliest"+ahead)
		waiting.Automation = ""
		for range 3 {
			id := w.enqueue(waiting)
			w.until("the agent waits", func() bool { return strings.Contains(w.said(id), "turn 3 ") })
		}
		w.wantsBelt(w.enqueue(quick), "… queued since T: 4 of 4 runs are in progress (--max-runs)"+ahead)
	})
}

// TestBelt: the belt says where a run started, what its phases took, and how it ended.
func TestBelt(t *testing.T) {
	w := withTalker(t, worker.Config{})
	const started = "✓ queued since T, for D\n✓ started at T, worker W, isolation none\n"
	waiting := w.enqueue(talk("Please wait."))
	w.until("the agent waits", func() bool { return strings.Contains(w.said(waiting), "turn 3 ") })
	w.wantsBelt(waiting, started+"… agent agent since T\n· ended")
	if err := w.manager.Desk().Cancel(t.Context(), waiting, "ada"); err != nil {
		t.Fatal(err)
	}
	w.finished(waiting)
	w.wantsBelt(waiting, started+"✗ agent agent D, collect D\n✗ ended CANCELLED at T: cancelled by ada while it was in progress")

	set := environment("exit 2")
	set.SetupCommands = []string{"true"}
	failed := w.enqueue(run.Spec{Environment: set})
	w.finished(failed)
	w.wantsBelt(failed, started+"✗ agent setup D, agent D, collect D\n✗ ended FAILED at T: the agent ended with exit status 2")

	set.SetupCommands = []string{"exit 4"}
	unprepared := w.enqueue(run.Spec{Environment: set})
	w.finished(unprepared)
	w.wantsBelt(unprepared, started+"✗ agent the agent was not started\n✗ ended FAILED at T: setup failed: exit 4: exit status 4")

	broken := w.enqueue(run.Spec{Problem: "It cannot be."})
	w.finished(broken)
	w.wantsBelt(broken, "✓ queued since T, for D\n✗ started at T\n· agent\n✗ ended FAILED at T: It cannot be.")

	retried := run.Spec{Environment: environment(`echo x >x`), Retry: run.Retry{Attempts: 2}}
	good := w.enqueue(retried)
	w.finished(good)
	w.wantsBelt(good, "✓ queued since T, for D\n✓ started at T, attempt 1 of 2, worker W, isolation none\n"+
		"✓ agent agent D, collect D\n✓ ended SUCCEEDED at T, exit status 0")
}
