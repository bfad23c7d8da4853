package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/schema/output"
	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside.SuperviseCommand {
		os.Exit(executor.Supervise(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "version" { // the run of preflight
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Variables by which the tests of TestCluster use a real cluster in place of ours.
const (
	realKubeconfig = "TRIPHAMMER_TEST_KUBECONFIG"
	realImage      = "TRIPHAMMER_TEST_IMAGE"      // of runs: with a shell, git and the GNU C library
	realProgram    = "TRIPHAMMER_TEST_KUBE_IMAGE" // of Triphammer
)

// configOf is a Config for a server, quick in all that waits.
func configOf(t testing.TB, s *kubetest.Server) Config {
	t.Helper()
	cfg := Config{
		Namespace: kubetest.Namespace, Image: "registry.test/agent:1", Program: "registry.test/triphammer:1", Installation: "test",
		Key: func(name string) []byte { return []byte("the key of " + name) }, Grace: 2 * time.Second,
		Pending: 30 * time.Second, Patience: 20 * time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), retry: 50 * time.Millisecond,
	}
	if s != nil {
		cfg.Kubeconfig = s.Kubeconfig(t)
	}
	return cfg
}

// newServer is a server that lets its clients do what the role says, and no more.
func newServer(t testing.TB, env ...string) *kubetest.Server {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := kubetest.New(t, program, append(env, "GORACE=atexit_sleep_ms=0")...)
	s.Allow(role(t))
	return s
}

func newExecutor(t testing.TB, cfg Config) *Executor {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// runs numbers the runs of this process.
var runs struct {
	sync.Mutex
	n int
}

func newTask(script string) *task.Task {
	runs.Lock()
	defer runs.Unlock()
	runs.n++
	return &task.Task{
		RunID: fmt.Sprintf("run_t%08d%d", runs.n, os.Getpid()), Attempt: 1, Prompt: "do it", Command: []string{"/bin/sh", "-c", script}, Timeout: time.Hour,
	}
}

// sink keeps what an attempt tells.
type sink struct {
	mu        sync.Mutex
	events    []event.Event
	artifacts map[string]string
	changed   chan struct{}
}

func newSink() *sink { return &sink{artifacts: make(map[string]string), changed: make(chan struct{})} }

func (s *sink) Add(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sink) Keep(a event.Artifact, content io.Reader) error {
	data, err := io.ReadAll(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.artifacts[a.Name] = string(data)
	}
	return err
}

func (s *sink) output(stream string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.events {
		if o, ok := e.(event.Output); ok && o.Stream == stream {
			b.WriteString(o.Text)
		}
	}
	return b.String()
}

func (s *sink) all() []event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]event.Event(nil), s.events...)
}

// await waits until the agent has printed the text.
func (s *sink) await(t testing.TB, text string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if strings.Contains(s.output(event.Stdout), text) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the agent did not print %q: %v", text, s.all())
		}
	}
}

// until waits until the condition holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// TestCluster goes through whole runs: in our cluster, or in a real one.
func TestCluster(t *testing.T) {
	var cfg Config
	var server *kubetest.Server
	if file := os.Getenv(realKubeconfig); file != "" {
		cfg = configOf(t, nil)
		cfg.Kubeconfig, cfg.Image, cfg.Program, cfg.Namespace = file, os.Getenv(realImage), os.Getenv(realProgram), ""
		cfg.Pending, cfg.retry = 5*time.Minute, time.Second
	} else {
		server = newServer(t)
		cfg = configOf(t, server)
	}
	start := func(t *testing.T, work *task.Task) (*sink, task.Exit, error) {
		e := newExecutor(t, cfg)
		s := newSink()
		exit, err := e.Start(t.Context(), work, s)
		if err := e.Ended(context.Background(), work.RunID, work.Attempt); err != nil {
			t.Error(err)
		}
		return s, exit, err
	}

	t.Run("what the agent gets and leaves", func(t *testing.T) {
		t.Parallel()
		work := newTask(`cat; echo; cat "$TRIPHAMMER_ATTACHMENTS/event-payload.json"; echo "$GREETING $TOKEN $TRIPHAMMER_RUN_ID"; echo oops >&2
			echo new > made; printf 'result' > "$TRIPHAMMER_ARTIFACTS/result.txt"; head -c 300000 /dev/zero | tr '\0' x > "$TRIPHAMMER_ARTIFACTS/large.txt"; exit 7`)
		work.Attachments = []task.Attachment{{Name: "event-payload.json", Data: []byte(`{"a":1}`)}}
		work.Env = map[string]string{"GREETING": "hello"}
		work.Secrets = map[string]secret.Value{"TOKEN": secret.New("s3cret-value")}
		work.Setup = []string{"echo ready"}
		s, exit, err := start(t, work)
		if err != nil || exit.Code != 7 {
			t.Errorf("it ended with %+v, %v", exit, err)
		}
		if got, want := s.output(event.Stdout), "ready\ndo it\n{\"a\":1}hello s3cret-value "+work.RunID+"\n"; !strings.HasPrefix(got, "ready\ndo it") || len(got) != len(want) {
			t.Errorf("it printed %q", got)
		}
		if got := s.output(event.Stderr); got != "oops\n" {
			t.Errorf("it wrote %q to standard error", got)
		}
		if s.artifacts["result.txt"] != "result" || len(s.artifacts["large.txt"]) != 300000 || !strings.Contains(s.artifacts["changes.patch"], "+new") {
			t.Errorf("it left %d artifacts", len(s.artifacts))
		}
		files := 0
		for _, e := range s.all() {
			if f, ok := e.(event.File); ok && f.Path == "made" && f.Change == event.FileCreated {
				files++
			}
		}
		if files != 1 {
			t.Errorf("the file that it made is told of %d times", files)
		}
	})
	t.Run("what the agent asks the server for", func(t *testing.T) {
		t.Parallel()
		work := newTask(`echo '{"kind":"setState","state":"Done"}' > "$TRIPHAMMER_OUTPUTS/a.json"; echo '{"kind":"comment","body":"x"}' > "$TRIPHAMMER_OUTPUTS/b.json"
			until [ -e "$TRIPHAMMER_OUTPUTS/b.result.json" ]; do sleep 0.05; done; cat "$TRIPHAMMER_OUTPUTS/b.result.json"; echo '{"kind":"close"}' > "$TRIPHAMMER_OUTPUTS/last.json"`)
		work.Outputs = output.Allowed{"close": {}, "setState": {Allowed: []string{"Done"}}}
		work.Setup = []string{`[ ! -e "$TRIPHAMMER_OUTPUTS" ] && mkdir "$TRIPHAMMER_OUTPUTS" && echo '{"kind":"close"}' > "$TRIPHAMMER_OUTPUTS/setup.json"`}
		s, exit, err := start(t, work)
		if err != nil || exit.Code != 0 || !strings.Contains(s.output(event.Stdout), `"ok":false`) {
			t.Errorf("it ended with %+v, %v\n%s", exit, err, s.output(event.Stdout))
		}
		asked, refused := 0, 0
		for _, e := range s.all() {
			if r, is := e.(event.Request); is && r.Refused != "" {
				refused++
			} else if is {
				asked++
			}
		}
		if asked != 2 || refused != 1 {
			t.Errorf("%d requests are taken and %d are refused: %v", asked, refused, s.all())
		}
	})
	t.Run("a setup that fails", func(t *testing.T) {
		t.Parallel()
		work := newTask("echo never")
		work.Setup = []string{"echo no >&2; exit 3"}
		_, _, err := start(t, work)
		if err == nil || !strings.Contains(err.Error(), "setup failed") || !strings.Contains(err.Error(), "exit status 3: no") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("a program that is not in the image", func(t *testing.T) {
		t.Parallel()
		work := newTask("")
		work.Command = []string{"no-such-agent"}
		final := (*task.FinalError)(nil)
		if _, _, err := start(t, work); !errors.As(err, &final) || !strings.Contains(err.Error(), `"no-such-agent" was not found in the image `+cfg.Image+": add it to the image") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		e := newExecutor(t, cfg)
		work, s := newTask(`trap 'echo stopping; exit 3' INT; echo started; while :; do sleep 0.1; done`), newSink()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { s.await(t, "started"); cancel(task.ErrCancelled) }()
		exit, err := e.Start(ctx, work, s)
		if err != nil && !errors.Is(err, task.ErrCancelled) || err == nil && (!exit.Stopped || exit.Code != 3) {
			t.Errorf("it ended with %+v, %v", exit, err)
		}
		if server != nil {
			until(t, "the Job is gone", func() bool { return server.Job(nameOf(work.RunID, 1)) == nil })
			if left := server.Secret(nameOf(work.RunID, 1)); left != nil {
				t.Error("the secret is still there")
			}
		}
	})
	t.Run("cancelled, and it does not listen", func(t *testing.T) {
		t.Parallel()
		e := newExecutor(t, cfg)
		work, s := newTask(`trap '' INT TERM; echo started; while :; do sleep 0.1; done`), newSink()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { s.await(t, "started"); cancel(task.ErrCancelled) }()
		if exit, err := e.Start(ctx, work, s); err != nil && !errors.Is(err, task.ErrCancelled) || err == nil && !exit.Stopped {
			t.Errorf("it ended with %+v, %v", exit, err)
		}
	})
	t.Run("adopted", func(t *testing.T) {
		t.Parallel()
		work, first, second := newTask(`for i in $(seq 1 300); do echo "line $i"; sleep 0.01; done; exit 4`), newSink(), newSink()
		ctx, leave := context.WithCancelCause(t.Context())
		go func() { first.await(t, "line 20\n"); leave(task.ErrStopped) }()
		if _, err := newExecutor(t, cfg).Start(ctx, work, first); !errors.Is(err, task.ErrLeft) {
			t.Fatalf("the first worker got %v", err)
		}
		adopted := *work
		adopted.Adopted = true
		exit, err := newExecutor(t, cfg).Start(t.Context(), &adopted, second)
		if err != nil || exit.Code != 4 {
			t.Errorf("the second worker got %+v, %v", exit, err)
		}
		var want strings.Builder
		for i := range 300 {
			fmt.Fprintf(&want, "line %d\n", i+1)
		}
		if got := second.output(event.Stdout); got != want.String() {
			t.Errorf("the second worker read %d bytes, not %d", len(got), want.Len())
		}
	})
	t.Run("adopted, and it is not there", func(t *testing.T) {
		t.Parallel()
		work := newTask("echo never")
		work.Adopted = true
		s, _, err := start(t, work)
		if o := (*outcome)(nil); !errors.As(err, &o) || o.Ending != EndDeleted {
			t.Errorf("the error is %v", err)
		}
		if s.output(event.Stdout) != "" {
			t.Error("it was started again")
		}
	})
}

// TestPodBrings: a pod whose image has neither git nor the agent gets those of the image of
// Triphammer; and a run that misses a program names the image.
func TestPodBrings(t *testing.T) {
	server := newServer(t)
	e, err := New(configOf(t, server))
	if err != nil {
		t.Fatal(err)
	}
	image := t.TempDir() // with sh alone
	if err := os.Symlink("/bin/sh", filepath.Join(image, "sh")); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{"git": "/.tools/bin/git\ngit version ", "dash": "/.tools/agents/dash\n"} {
		work := &task.Task{
			RunID: "run_brings" + program, Attempt: 1, Timeout: time.Minute, Program: program, Env: map[string]string{"PATH": image},
			Command: []string{"sh", "-c", "command -v " + program + "; if [ " + program + " = git ]; then git --version; fi"},
		}
		s := newSink()
		exit, err := e.Start(t.Context(), work, s)
		if err != nil || exit.Code != 0 || !strings.Contains(s.output(event.Stdout), want) {
			t.Errorf("%s: %+v %v %q %q", program, exit, err, s.output(event.Stdout), s.output(event.Stderr))
		}
	}
	work := &task.Task{RunID: "run_misses", Attempt: 1, Timeout: time.Minute, Program: "no-such-agent", Env: map[string]string{"PATH": image}, Command: []string{"sh", "-c", "no-such-agent"}}
	if _, err := e.Start(t.Context(), work, newSink()); err == nil || !strings.Contains(err.Error(), `the program "no-such-agent" was not found in the image registry.test/agent:1`) {
		t.Errorf("error %v", err)
	}
	place, err := e.Preflight(work)
	if err != nil {
		t.Fatal(err)
	}
	if lacking, here := place.Lacks([]string{"dash", "no-such-agent"}); here || !slices.Equal(lacking, []string{"no-such-agent"}) {
		t.Errorf("it lacks %v, %v", lacking, here)
	}
}
