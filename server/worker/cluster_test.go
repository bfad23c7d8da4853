package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/factory"
	"triphammer/schema/output"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
	"triphammer/server/worker/executor/kubernetes"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// cluster is one in which attempts outlive their managers.
type cluster struct {
	*kubetest.Server
	w *world
}

func (w *world) cluster(env ...string) *cluster {
	w.Helper()
	program, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	return &cluster{kubetest.New(w, program, append(env, "GORACE=atexit_sleep_ms=0")...), w}
}

// executor makes an executor of another process.
func (c *cluster) executor() task.Executor {
	c.w.Helper()
	e, err := kubernetes.New(kubernetes.Config{
		Kubeconfig: c.Kubeconfig(c.w), Image: "registry.test/agent:1", Program: "registry.test/triphammer:1", Installation: "test",
		Key: func(name string) []byte { return []byte(name) }, Grace: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.w.Fatal(err)
	}
	return e
}

// start starts a manager whose runs the cluster executes.
func (c *cluster) start(cfg worker.Config) {
	c.w.Helper()
	cfg.Executor, cfg.MaxRuns, cfg.Grace = c.executor(), 4, time.Millisecond
	cfg.Worker = store.Worker{ID: "a", Kind: store.KindServe}
	c.w.start(cfg, "")
}

func jobOf(id store.RunID) string { return "run-" + strings.TrimPrefix(id.String(), "run_") + "-1" }

// gated is a script that waits for a file between two parts; the function makes it.
func (w *world) gated(before, after string) (script string, open func()) {
	file := filepath.Join(w.dir, "go")
	return fmt.Sprintf("%s; while [ ! -e %s ]; do sleep 0.01; done; %s", before, file, after), func() {
		w.Helper()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

// left starts a run in the cluster and stops its manager.
func (c *cluster) left(s run.Spec) store.RunID {
	c.w.Helper()
	c.start(worker.Config{})
	id := c.w.enqueue(s)
	c.w.until("the agent works", func() bool { return strings.Contains(c.w.output(id, "stdout"), "begun") })
	c.w.stop()
	if r := c.w.read(id); r.State != store.InProgress {
		c.w.Fatalf("the run is %s: %s", r.State, r.StatusMessage)
	}
	return id
}

// TestTakenUpLate: an attempt that has ended in time while no worker was there ended as it did,
// also if its timeout has passed when a worker comes (SPEC 17.5).
func TestTakenUpLate(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	script, open := w.gated("echo begun", "echo done")
	id := c.left(run.Spec{Environment: environment(script)})
	open()
	w.until("the Job is complete", func() bool {
		conditions := c.Job(jobOf(id)).Status.Conditions
		return len(conditions) > 0 && conditions[0].Type == batchv1.JobComplete
	})
	c.start(worker.Config{Config: run.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }}})
	w.wants(w.finished(id), store.Succeeded, "")
	if got := w.output(id, "stdout"); got != "begun\ndone\n" {
		t.Errorf("it printed %q", got)
	}
}

// TestTakenUpAfterRotation: the value of a secret that the agent has is hidden, also if the
// secret has a new one when another worker takes the run up (SPEC 10.2).
func TestTakenUpAfterRotation(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	set := func(value string) {
		t.Helper()
		if _, err := w.store.Secrets.Set(t.Context(), "TOKEN", secret.New(value)); err != nil {
			t.Fatal(err)
		}
	}
	set("the-older-value")
	script, open := w.gated("echo begun", `echo "token: $TOKEN"`)
	id := c.left(run.Spec{Secrets: []string{"TOKEN"}, Environment: environment(script)})
	set("the-newer-value")
	c.start(worker.Config{})
	open()
	w.wants(w.finished(id), store.Succeeded, "")
	if got := w.output(id, "stdout"); got != "begun\ntoken: [redacted]\n" {
		t.Errorf("it printed %q", got)
	}
}

// TestTakenUpWaiting: the worker that takes a run up reads again what the run pushed for a person to approve. That
// stays one push, with the pack that the first worker kept (SPEC 23.3).
func TestTakenUpWaiting(t *testing.T) {
	root := t.TempDir()
	bare, forge := gittest.Bare(t, root, "example/app.git"), gittest.Serve(t, root)
	forge.Basic("x-access-token", "the-value")
	w := newWorld(t)
	if _, err := w.store.Secrets.Set(t.Context(), "FORGE", secret.New("the-value")); err != nil {
		t.Fatal(err)
	}
	w.store.Outputs.Approve(time.Hour)
	c := w.cluster("SSL_CERT_FILE=" + forge.CAFile)
	script, open := w.gated("git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m two && git push -q origin HEAD:triphammer/made && echo begun", "echo done")
	e := environment(script)
	e.Repositories = []factory.Repository{{URL: forge.URL + "/example/app.git", Secret: "FORGE"}}
	id := c.left(run.Spec{Environment: e, Outputs: output.Allowed{output.Pull: {}}})
	pack := func() (pack string, n int) {
		t.Helper()
		for _, e := range w.events(id) {
			var p event.Push
			if e.Kind != event.KindPush {
				continue
			}
			if err := json.Unmarshal(e.Data, &p); err != nil || p.Refused != "" {
				t.Fatal(err, p.Refused)
			}
			asked, err := output.Parse([]byte(p.Waits))
			if err != nil {
				t.Fatal(err)
			}
			pack, n = asked.Push.Pack.Artifact, n+1
		}
		return pack, n
	}
	w.until("the push waits", func() bool { _, n := pack(); return n == 1 })
	first, _ := pack()
	c.start(worker.Config{})
	open()
	w.wants(w.finished(id), store.Succeeded, "")
	if kept, n := pack(); n != 1 || kept != first {
		t.Errorf("%d pushes, with the pack %q, which was %q", n, kept, first)
	}
	all, err := w.store.Artifacts.Of(t.Context(), id)
	if err != nil || len(all[id]) == 0 || all[id][0].ID.String() != first {
		t.Errorf("%v, %v", all, err)
	}
	if heads := gittest.Git(t, bare, "for-each-ref", "--format=%(refname)"); heads != "refs/heads/main" {
		t.Errorf("the forge has %q", heads)
	}
}

// TestTakenUpInVain: an attempt that cannot be taken up fails with the reason, and nothing of it
// is left in the cluster.
func TestTakenUpInVain(t *testing.T) {
	w := newWorld(t)
	c := w.cluster()
	if _, err := w.store.Secrets.Set(t.Context(), "TOKEN", secret.New("the-value")); err != nil {
		t.Fatal(err)
	}
	id := c.left(run.Spec{Secrets: []string{"TOKEN"}, Environment: environment("echo begun; sleep 300")})
	if err := w.store.Secrets.Delete(t.Context(), "TOKEN", nil); err != nil {
		t.Fatal(err)
	}
	c.start(worker.Config{})
	w.wants(w.finished(id), store.FailedRun, "granted secrets are not set: TOKEN")
	w.until("the Job is gone", func() bool { return c.Job(jobOf(id)) == nil })
}

// TestNothingToGoOnWith: a run in a cluster leaves no workspace, and whoever wants to go on
// there is told so at once.
func TestNothingToGoOnWith(t *testing.T) {
	w := newWorld(t)
	k, api := w.join("k", worker.Config{Config: run.Config{MaxRuns: 1}, Executor: w.cluster().executor()}), w.api()
	id := w.queued(run.Spec{Environment: environment("echo begun; sleep 300")})
	w.until("the agent works", func() bool { return strings.Contains(w.output(id, "stdout"), "begun") })
	if err := k.Interrupt(t.Context(), id, "ada"); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(id), store.Cancelled, "interrupted by ada; its workspace went with it: `triphammer runs retry")
	w.manager = api.manager
	if _, err := w.follow(id, "More."); err == nil || !strings.Contains(err.Error(), task.ErrNoWorkspace.Error()) {
		t.Errorf("a follow-up: %v", err)
	}
}

// within is a source of a secret that calls a function while a run reads the secret.
type within struct{ call atomic.Pointer[func()] }

func (*within) String() string           { return "a test" }
func (*within) Names() ([]string, error) { return []string{"TOKEN"}, nil }
func (s *within) Lookup(string) (secret.Value, bool, error) {
	if call := s.call.Swap(nil); call != nil {
		(*call)()
	}
	return secret.New("the-value"), true, nil
}

// TestCancelledEarly: a run that is cancelled while what it needs is read is CANCELLED, not
// FAILED.
func TestCancelledEarly(t *testing.T) {
	source, begun := &within{}, make(chan store.RunID)
	w := newWorld(t, source)
	call := func() {
		if err := w.manager.Desk().Cancel(context.Background(), <-begun, "ada"); err != nil {
			t.Error(err)
		}
	}
	source.call.Store(&call)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	id := w.enqueue(run.Spec{Secrets: []string{"TOKEN"}, Environment: environment("true")})
	begun <- id
	w.wants(w.finished(id), store.Cancelled, "cancelled by ada before its agent started")
}
