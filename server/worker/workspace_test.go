package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// kept tells whether the workspace of a run is there. What the manager says of it must agree.
func (w *world) kept(id store.RunID) bool {
	w.Helper()
	there := func() bool {
		_, err := os.Stat(filepath.Join(w.dir, w.read(id).ConversationID.String(), "workspace"))
		return err == nil
	}
	before := there()
	told, err := w.manager.Desk().Workspace(w.Context(), w.read(id))
	if err != nil {
		w.Fatal(err)
	}
	after := there() // it may have been removed meanwhile
	if told != nil && before == after && (told.Path != "") != after {
		w.Errorf("the workspace of %s is told as %+v; it is there: %v", id, told, after)
	}
	return after
}

// TestWorkspacesAtOnce: workspaces that are not to be kept are removed when the last attempt
// has ended, but not those whose conversation can go on.
func TestWorkspacesAtOnce(t *testing.T) {
	w := withTalker(t, worker.Config{Config: run.Config{KeepFailed: -1}})
	failed := w.enqueue(run.Spec{Environment: environment("exit 1")})
	retried := w.enqueue(run.Spec{Environment: environment("exit 1"), Retry: run.Retry{Attempts: 2, Delay: time.Hour}})
	good := w.enqueue(run.Spec{Environment: environment("true")})
	session := w.enqueue(talk("Please fail."))
	for _, id := range []store.RunID{failed, good, session} {
		w.finished(id)
	}
	w.until("the failed run's workspace is removed", func() bool { return !w.kept(failed) })
	w.until("the next attempt waits", func() bool { return !w.read(retried).RunAt.IsZero() })
	w.stop() // all that is done at the end of runs is done
	for name, id := range map[string]store.RunID{"of the next attempt": retried, "of the good run": good, "of the conversation": session} {
		if !w.kept(id) {
			t.Errorf("the workspace %s is removed", name)
		}
	}
}

// TestWorkspacesExpire: each workspace goes at the time that is told, and no workspace that a
// run waits for.
func TestWorkspacesExpire(t *testing.T) {
	var later atomic.Int64
	cfg := worker.Config{Config: run.Config{KeepWorkspaces: 10 * time.Hour, KeepFailed: 20 * time.Hour, KeepSessions: 30 * time.Hour, Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }}}
	w := withTalker(t, cfg)
	good := w.enqueue(run.Spec{Environment: environment("true")})
	failed := w.enqueue(run.Spec{Environment: environment("exit 1")})
	session, awaited := w.enqueue(talk("Hello.")), w.enqueue(talk("Hello."))
	keeps := map[store.RunID]time.Duration{good: 10 * time.Hour, failed: 20 * time.Hour, session: 30 * time.Hour}
	for id, keep := range keeps {
		r := w.finished(id)
		told, err := w.manager.Desk().Workspace(t.Context(), r)
		if err != nil || told == nil || !told.KeptUntil.Equal(r.FinishedAt.Add(keep)) {
			t.Errorf("%s, %v; want %v after %v", told, err, keep, r.FinishedAt)
		}
	}
	w.finished(awaited)
	w.stop()
	if _, err := w.follow(awaited, "More."); err != nil {
		t.Fatal(err)
	}
	for _, hours := range []int{9, 11, 21, 31} {
		later.Store(int64(time.Duration(hours) * time.Hour))
		cfg.MaxRuns = 0
		w.start(cfg, "")
		for id, keep := range keeps {
			if keep < time.Duration(hours)*time.Hour {
				w.until("a workspace is removed", func() bool { return !w.kept(id) })
			}
		}
		w.stop()
		for id, keep := range keeps {
			if keep > time.Duration(hours)*time.Hour && !w.kept(id) {
				t.Errorf("after %d hours, the workspace of %s is gone, which is to be kept for %v", hours, id, keep)
			}
		}
		if !w.kept(awaited) {
			t.Errorf("after %d hours, a workspace is removed that a run waits for", hours)
		}
	}
	if said := w.belt(awaited); !strings.Contains(said, "SUCCEEDED") {
		t.Errorf("the belt is\n%s", said)
	}
}
