package worker_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/factory"
	"triphammer/server/inside"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
	"triphammer/server/worker"
	"triphammer/server/worker/executor"
)

// TestMain lets the test binary be the supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside.SuperviseCommand {
		os.Exit(executor.Supervise(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == modelClient {
		talkToModel(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// world is a real store, a real executor and a manager.
type world struct {
	*testing.T
	dir     string
	store   *store.Store
	manager *worker.Manager

	executor task.Executor // the last one that was made
	stop     func()        // the manager, and waits for it
}

func newWorld(t *testing.T, sources ...secret.Source) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir()}
	key, err := secret.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	w.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(w.dir, "db"), URL: storetest.URL(t), Key: key, Sources: sources, Artifacts: filepath.Join(w.dir, "artifacts")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// start starts the manager.
func (w *world) start(cfg worker.Config, path string) {
	w.Helper()
	local, err := executor.New(executor.Config{Dir: w.dir, Isolation: executor.None, User: "root", Grace: 50 * time.Millisecond, Path: path})
	if err != nil {
		w.Fatal(err)
	}
	if cfg.Executor == nil {
		cfg.Executor, w.executor = local, local
	}
	cfg.Store = w.store
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w.manager = worker.New(cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- w.manager.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				w.Error(err)
			}
		}
	}
	w.Cleanup(func() { w.stop() })
}

func environment(script string) *run.Environment {
	return &run.Environment{Name: "e", Path: "environments/e.yaml", Command: []string{"sh", "-c", script}, Timeout: time.Minute, Idle: time.Minute}
}

func (w *world) newRun(s run.Spec) store.NewRun {
	w.Helper()
	data, err := s.Encode()
	if err != nil {
		w.Fatal(err)
	}
	return store.NewRun{Factory: "f", Automation: s.Automation, Source: store.SourceAPI, SpecHash: sha256.Sum256(data), Spec: data}
}

// enqueue makes a queued run.
func (w *world) enqueue(s run.Spec) store.RunID {
	w.Helper()
	r, _, err := w.store.Runs.Create(w.Context(), w.newRun(s), "", nil)
	if err != nil {
		w.Fatal(err)
	}
	if w.manager != nil {
		w.manager.Wake()
	}
	return r.ID
}

// until waits for a condition of the store.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatal("waited in vain: " + what)
		}
	}
}

func (w *world) read(id store.RunID) *store.Run {
	w.Helper()
	r, err := w.store.Runs.Get(context.WithoutCancel(w.Context()), id)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// finished waits for the run's end.
func (w *world) finished(id store.RunID) *store.Run {
	w.Helper()
	w.until("the run ends", func() bool { return w.read(id).State.Terminal() })
	return w.read(id)
}

func (w *world) events(id store.RunID) []store.Event {
	w.Helper()
	all, err := w.store.Transcripts.List(context.WithoutCancel(w.Context()), id, 0, 100_000)
	if err != nil {
		w.Fatal(err)
	}
	for i, e := range all {
		if e.Seq != int64(i+1) {
			w.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
	}
	return all
}

// output is what the run printed on a stream.
func (w *world) output(id store.RunID, stream string) string {
	w.Helper()
	var b strings.Builder
	for _, e := range w.events(id) {
		var o event.Output
		if e.Kind == event.KindOutput {
			if err := json.Unmarshal(e.Data, &o); err != nil {
				w.Fatal(err)
			}
			if o.Stream == stream {
				b.WriteString(o.Text)
			}
		}
	}
	return b.String()
}

func (w *world) wants(r *store.Run, state store.RunState, message string) {
	w.Helper()
	if r.State != state || !strings.Contains(r.StatusMessage, message) || message == "" && r.StatusMessage != "" {
		w.Errorf("the run is %s: %q; want %s: %q\n%s", r.State, r.StatusMessage, state, message, w.output(r.ID, "stderr"))
	}
}

// TestFactoryVariable: published definitions find the factory of their run, and the environment
// can name another.
func TestFactoryVariable(t *testing.T) { // SPEC 13.11
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 2}}, "")
	for want, set := range map[string]map[string]string{"f,f": nil, "mine,mine": {"WARP_FACTORY_ID": "mine"}, ",": {"WARP_FACTORY_ID": ""}} {
		e := environment(`echo "$WARP_FACTORY_ID,${WARP_FACTORY_ID-unset}"`)
		e.Env = set
		r := w.finished(w.enqueue(run.Spec{Environment: e}))
		if got := w.output(r.ID, "stdout"); got != want+"\n" {
			t.Errorf("%v: the run has %q, want %q", set, got, want)
		}
	}
	n := w.newRun(run.Spec{Environment: environment(`echo "${WARP_FACTORY_ID-unset}"`)})
	n.Factory = ""
	r, _, err := w.store.Runs.Create(t.Context(), n, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.manager.Wake()
	if got := w.output(w.finished(r.ID).ID, "stdout"); got != "unset\n" {
		t.Errorf("a run without a factory has %q", got)
	}
}

func TestDeliveryStartsRun(t *testing.T) { // SPEC 9.3, 13.11
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 2}}, "")
	e := environment(`cat; printf '%s|' "$TRIPHAMMER_RUN_ID" "$TRIPHAMMER_DELIVERY_ID" "$TRIPHAMMER_WEBHOOK" "$TRIPHAMMER_AUTOMATION"; cat "$TRIPHAMMER_ATTACHMENTS"/*; echo hi >hello.txt`)
	n := w.newRun(run.Spec{Automation: "a", AgentPrompt: "You are careful.\n", Prompt: "\nLook at it.\n", Environment: e})
	n.Source, n.Webhook = store.SourceWebhook, "hook"
	payload := "{ \"a\":1 }\n"
	d := &store.NewDelivery{Payload: []byte(payload), Runs: []store.NewRun{n}}
	d.Factory, d.Webhook, d.WebhookUID, d.Outcome, d.ReceivedAt = "f", "hook", "whk_1", store.Accepted, time.Now()
	d.Headers = map[string]string{"X-Event-Type": "build"}
	recorded, err := w.store.Deliveries.Record(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	w.manager.Wake()
	r := w.finished(recorded.RunIDs[0])
	w.wants(r, store.Succeeded, "")
	if r.ExitCode == nil || *r.ExitCode != 0 || r.StartedAt.IsZero() || r.FinishedAt.IsZero() || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	want := "You are careful.\n\nLook at it.\n\n" + run.Envelope("hook", recorded.ID.String(), d.Headers) + r.ID.String() + "|" + recorded.ID.String() + "|hook|a|" + payload +
		"{\n  \"webhook\": \"hook\",\n  \"delivery_id\": \"" + recorded.ID.String() + "\",\n  \"headers\": {\n    \"X-Event-Type\": \"build\"\n  }\n}\n"
	if got := w.output(r.ID, "stdout"); got != want {
		t.Errorf("the agent printed\n%q, want\n%q", got, want)
	}
	var kinds []string
	for _, e := range w.events(r.ID) {
		if len(kinds) == 0 || kinds[len(kinds)-1] != e.Kind {
			kinds = append(kinds, e.Kind)
		}
	}
	if got, want := strings.Join(kinds, " "), "status started output phase exit file artifact phase status"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestFailedRuns(t *testing.T) {
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	if _, err := w.store.Secrets.Set(t.Context(), "WITH_NUL", secret.New("a\x00b")); err != nil {
		t.Fatal(err)
	}
	silent, slow := environment("sleep 300"), environment("while :; do echo .; sleep 0.01; done")
	silent.Idle, slow.Timeout = 50*time.Millisecond, 300*time.Millisecond
	limited := environment("true")
	limited.NetworkOff = true
	for _, tt := range []struct {
		name, message string
		spec          run.Spec
	}{
		{"SPEC 2.2a", "the environment \"x\" has no file", run.Spec{Problem: "the environment \"x\" has no file"}},
		{"SPEC 2.2a", "limits the network", run.Spec{Environment: limited}},
		{"SPEC 3.1", "the agent ended with exit status 3: it broke", run.Spec{Environment: environment("echo first >&2; echo it broke >&2; exit 3")}},
		{"SPEC 9.4", "granted secrets are not set: NO_1, NO_2; set each with `triphammer secrets set NAME`", run.Spec{Environment: environment("true"), Secrets: []string{"NO_1", "NO_2"}}},
		{"SPEC 9.4", "the secret WITH_NUL holds a NUL byte", run.Spec{Environment: environment("true"), Secrets: []string{"WITH_NUL"}}},
		{"SPEC 9.6 timeout", "took longer than its timeout of 300ms", run.Spec{Environment: slow}},
		{"SPEC 9.6 idle", "was silent for 50ms", run.Spec{Environment: silent}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := w.finished(w.enqueue(tt.spec))
			w.wants(r, store.FailedRun, tt.message)
			all := w.events(r.ID)
			var last event.Status
			if err := json.Unmarshal(all[len(all)-1].Data, &last); err != nil || last.State != "FAILED" || last.Message != r.StatusMessage {
				t.Errorf("the transcript ends with %s", all[len(all)-1].Data)
			}
		})
	}
	_, fresh, err := w.store.Runs.Create(t.Context(), store.NewRun{Factory: "f", Source: store.SourceAPI, SpecHash: [32]byte{1}, Spec: []byte("{")}, "", nil)
	if err != nil || !fresh {
		t.Fatal(err)
	}
	w.manager.Wake()
	w.until("a broken spec fails", func() bool {
		all, err := w.store.Runs.List(t.Context(), store.RunQuery{Limit: 1})
		return err == nil && all[0].State == store.FailedRun && strings.Contains(all[0].StatusMessage, "spec")
	})
}

// TestSecretsAreRedacted (R17): SPEC 9.5.
func TestSecretsAreRedacted(t *testing.T) {
	w := newWorld(t)
	const value = "hunter2-hunter2"
	if _, err := w.store.Secrets.Set(t.Context(), "PASSWORD", secret.New(value)); err != nil {
		t.Fatal(err)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	e := environment(`echo "whole $PASSWORD"; printf 'split %.5s' "$PASSWORD"; sleep 0.5; echo "$(printf %s "$PASSWORD" | tail -c +6) end"; echo "$PASSWORD" | tee "$PASSWORD.txt" >&2; exit 1`)
	e.SetupCommands = []string{"echo " + value} // also where a definition holds it
	r := w.finished(w.enqueue(run.Spec{Environment: e, Secrets: []string{"PASSWORD"}}))
	w.wants(r, store.FailedRun, "exit status 1: [redacted]")
	if got, want := w.output(r.ID, "stdout"), "[redacted]\nwhole [redacted]\nsplit [redacted] end\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	for _, e := range w.events(r.ID) {
		if strings.Contains(string(e.Data), "hunter2") {
			t.Errorf("a secret is in the transcript: %s %s", e.Kind, e.Data)
		}
	}
}

// TestPrivateRepository: the status of a run tells in plain words that a repository wants a
// credential. One that is in its address is neither there nor in the transcript.
func TestPrivateRepository(t *testing.T) {
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	t.Cleanup(forge.Close)
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	const token = "n0-known-kind-of-t0ken"
	for _, user := range []string{"", "ada@", token + "@", "ada:" + token + "@"} {
		e := environment("true")
		e.Repositories = []factory.Repository{{URL: strings.Replace(forge.URL, "://", "://"+user, 1) + "/app.git"}}
		r := w.finished(w.enqueue(run.Spec{Environment: e}))
		w.wants(r, store.FailedRun, "clone failed: the repository "+forge.URL+"/app.git wants a credential (401)")
		w.wants(r, store.FailedRun, "`triphammer secrets set NAME`")
		for _, e := range w.events(r.ID) {
			if strings.Contains(string(e.Data), token) {
				t.Errorf("the credential is in the transcript: %s %s", e.Kind, e.Data)
			}
		}
		if strings.Contains(r.StatusMessage, token) {
			t.Errorf("the credential is in the status: %s", r.StatusMessage)
		}
	}
}

func TestTranscriptIsCapped(t *testing.T) { // SPEC 9.5
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}, TranscriptLimit: 100_000}, "")
	r := w.finished(w.enqueue(run.Spec{Environment: environment("echo first; yes | head -c 5000000; echo last; echo changed >file; exit 4")}))
	w.wants(r, store.FailedRun, "exit status 4")
	counts, size := make(map[string]int), 0
	for _, e := range w.events(r.ID) {
		counts[e.Kind]++
		size += len(e.Data)
	}
	if counts[event.KindTruncated] != 1 || counts[event.KindFile] != 1 || counts[event.KindExit] != 1 || size > 110_000 || size < 50_000 {
		t.Errorf("%d bytes, %v", size, counts)
	}
	if said := w.output(r.ID, "stdout"); !strings.HasPrefix(said, "first\n") || !strings.HasSuffix(said, "last\n") {
		t.Errorf("it begins with %.10q and ends with %q", said, said[max(0, len(said)-10):])
	}
}

func TestCancel(t *testing.T) { // SPEC 9.6, 9.7
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	first := w.enqueue(run.Spec{Environment: environment("echo started; sleep 300")})
	w.until("the agent starts", func() bool { return strings.Contains(w.output(first, "stdout"), "started") })
	second := w.enqueue(run.Spec{Environment: environment("true")})
	for _, id := range []store.RunID{second, first} {
		if err := w.manager.Desk().Cancel(t.Context(), id, "ada"); err != nil {
			t.Error(err)
		}
	}
	w.wants(w.finished(second), store.Cancelled, "cancelled by ada before it started")
	w.wants(w.finished(first), store.Cancelled, "cancelled by ada while it was in progress")
	if err := w.manager.Desk().Cancel(t.Context(), first, "ada"); !errors.Is(err, store.ErrTerminal) {
		t.Errorf("cancelling a finished run: %v", err)
	}
}

func TestConcurrencyLimit(t *testing.T) { // SPEC 9.6
	w := newWorld(t)
	gate := filepath.Join(w.dir, "gate")
	w.start(worker.Config{Config: run.Config{MaxRuns: 2}}, "")
	var ids []store.RunID
	for range 5 {
		ids = append(ids, w.enqueue(run.Spec{Environment: environment("echo started; while [ ! -e " + gate + " ]; do sleep 0.01; done")}))
	}
	started := func() (n int) {
		for _, id := range ids {
			if w.output(id, "stdout") != "" {
				n++
			}
		}
		return n
	}
	w.until("two run", func() bool { return started() == 2 })
	for range 20 {
		w.manager.Wake()
		counts, err := w.store.Runs.Counts(t.Context())
		if err != nil || counts[store.InProgress] != 2 || counts[store.Queued] != 3 || w.manager.Active() != 2 {
			t.Fatal(counts, err)
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		w.wants(w.finished(id), store.Succeeded, "")
	}
}

func TestMaxRunsZeroQueues(t *testing.T) { // SPEC 13.3
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 0}}, "")
	id := w.enqueue(run.Spec{Environment: environment("true")})
	w.stop()
	if r := w.read(id); r.State != store.Queued {
		t.Errorf("the run is %s", r.State)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: -1}}, "")
	w.wants(w.finished(id), store.Succeeded, "")
}

func TestRecovery(t *testing.T) { // SPEC 9.6: never silently lost
	w := newWorld(t)
	id := w.enqueue(run.Spec{Environment: environment("true")})
	if leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: "dead", Most: 1, Lease: time.Hour}); err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	w.wants(w.finished(id), store.FailedRun, "the server stopped before this run had finished")
}

func TestServerStops(t *testing.T) {
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 2}, Grace: time.Second}, "")
	gate := filepath.Join(w.dir, "gate")
	long := w.enqueue(run.Spec{Environment: environment("echo started; sleep 300")})
	short := w.enqueue(run.Spec{Environment: environment("echo started; while [ ! -e " + gate + " ]; do sleep 0.01; done")})
	w.until("both run", func() bool { return w.output(long, "stdout") != "" && w.output(short, "stdout") != "" })
	queued := w.enqueue(run.Spec{Environment: environment("true")})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.wants(w.read(long), store.FailedRun, "the server was stopped while this run was in progress")
	w.wants(w.read(short), store.Succeeded, "")
	if r := w.read(queued); r.State == store.InProgress {
		t.Errorf("a run is left %s", r.State)
	}
}

func TestLostRunIsStopped(t *testing.T) { // SPEC 9.6: never run twice at once
	w := newWorld(t)
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	id := w.enqueue(run.Spec{Environment: environment("while :; do echo .; sleep 0.01; done")})
	w.until("the agent starts", func() bool { return w.output(id, "stdout") != "" })
	if _, err := w.store.Leases.Reap(t.Context(), true, "somebody else has it"); err != nil {
		t.Fatal(err)
	}
	w.until("the agent is stopped", func() bool { return w.manager.Active() == 0 })
	w.wants(w.read(id), store.FailedRun, "somebody else has it")
}

func TestHarness(t *testing.T) { // SPEC 9.4
	w := newWorld(t)
	bin := t.TempDir()
	script := `#!/bin/sh
echo "$# $*|$ANTHROPIC_API_KEY|$(cat)" >seen.txt
echo '{"type":"system","subtype":"init","model":"m1"}'
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"I am'
sleep 0.3
echo ' here"}]}}'
echo '{"type":"news","x":1}'
echo not json
echo '{"type":"result","subtype":"success","total_cost_usd":0.5,"num_turns":2,"usage":{"input_tokens":10,"output_tokens":20}}'
`
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Secrets.Set(t.Context(), "CLAUDE", secret.New("sk-secret-key")); err != nil {
		t.Fatal(err)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, bin+":"+os.Getenv("PATH"))
	s := run.Spec{Prompt: "Hello", Secrets: []string{"CLAUDE"}}
	s.Harness.Type, s.Harness.Model, s.Harness.AuthSecret = "claude", "m1", "CLAUDE"
	r := w.finished(w.enqueue(s))
	w.wants(r, store.Succeeded, "")
	if r.Tokens != 30 || r.CostUSD != 0.5 {
		t.Errorf("used %d tokens and %v dollars", r.Tokens, r.CostUSD)
	}
	var got []string
	for _, e := range w.events(r.ID) {
		got = append(got, fmt.Sprintf("%s %s", e.Kind, e.Data))
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		`status {"message":"claude started with the model m1"}`,
		`message {"role":"assistant","text":"I am here"}`,
		`output {"stream":"stdout","text":"{\"type\":\"news\",\"x\":1}\nnot json\n"}`,
		`usage {"input_tokens":10,"output_tokens":20,"cost_usd":0.5}`,
		`--model m1|[redacted]|Hello`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
}
