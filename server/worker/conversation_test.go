package worker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// talker is a claude that keeps a session: it tells its name, and writes down each turn in
// its home and in its workspace. A prompt with "wait" waits until it is stopped.
const talker = `#!/bin/sh
prompt=$(cat)
session=s1$SUFFIX
for a; do case $previous in --resume) resumed=" resumes $a"; session=s2;; esac; previous=$a; done
echo ${SUFFIX:+granted} >>granted
echo '{"type":"system","subtype":"init","model":"m","session_id":"'$session'"}'
printf '%s%s\n' "$prompt" "$resumed" | tee -a "$HOME/turns" >>turns
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"turn '$(wc -l <turns)' of '$(wc -l <"$HOME/turns")'"}]}}'
case $prompt in
*fail*) exit 3;;
*wait*) trap 'exit 130' INT; while :; do sleep 0.01; done;;
esac
echo '{"type":"result","subtype":"success","session_id":"'$session'"}'
`

// withTalker starts a manager whose claude is the talker.
func withTalker(t *testing.T, cfg worker.Config) *world {
	t.Helper()
	w := newWorld(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(talker), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.MaxRuns = 4
	w.start(cfg, bin+":"+os.Getenv("PATH"))
	return w
}

func talk(prompt string) run.Spec {
	s := run.Spec{AgentPrompt: "You talk.", Prompt: prompt}
	s.Harness.Type = "claude"
	return s
}

// follow makes a follow-up of a run.
func (w *world) follow(id store.RunID, message string) (*store.Run, error) {
	w.Helper()
	r, err := w.manager.Desk().Continue(w.Context(), w.read(id), run.Request{Prompt: message})
	if err != nil {
		return nil, err
	}
	made, _, err := w.store.Runs.Create(w.Context(), r, "", nil)
	w.manager.Wake()
	return made, err
}

// said are the messages of a run.
func (w *world) said(id store.RunID) string {
	w.Helper()
	var all []string
	for _, e := range w.events(id) {
		if e.Kind == "message" || e.Kind == "status" {
			all = append(all, string(e.Data))
		}
	}
	return strings.Join(all, "\n")
}

// TestFollowUp: a follow-up goes on in the same workspace and home, with the session and
// without the prompts of before, and after the runs before it (SPEC 15.5).
func TestFollowUp(t *testing.T) {
	w := withTalker(t, worker.Config{})
	first := w.enqueue(talk("Please wait."))
	w.until("the agent waits", func() bool { return strings.Contains(w.said(first), "turn 3") })
	second, err := w.follow(first, "Second.")
	if err != nil {
		t.Fatal(err)
	}
	third, err := w.follow(second.ID, "Third.")
	if err != nil {
		t.Fatal(err)
	}
	if r := w.read(third.ID); r.State != store.Queued || !strings.Contains(r.StatusMessage, "waits for "+second.ID.String()) || r.ConversationID != first {
		t.Errorf("the third run is %s: %q, in %s", r.State, r.StatusMessage, r.ConversationID)
	}
	if err := w.manager.Desk().Interrupt(t.Context(), first, "ada"); err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(first), store.Cancelled, "interrupted by ada; `triphammer runs followup "+first.String()+" --message TEXT` goes on")
	w.wants(w.finished(third.ID), store.Succeeded, "")
	turns, err := os.ReadFile(filepath.Join(w.dir, first.String(), "workspace", "turns"))
	if want := "You talk.\n\nPlease wait.\nSecond. resumes s1\nThird. resumes s2\n"; err != nil || string(turns) != want {
		t.Errorf("the workspace has the turns\n%s, %v\nwant\n%s", turns, err, want)
	}
	if said := w.said(third.ID); !strings.Contains(said, "turn 5 of 5") {
		t.Errorf("the home and the workspace differ:\n%s", said)
	}
	for _, id := range []store.RunID{first, third.ID} {
		if err := w.manager.Desk().Interrupt(t.Context(), id, "ada"); !errors.Is(err, store.ErrTerminal) {
			t.Errorf("interrupting a run that has ended: %v", err)
		}
	}
}

// TestSessionWithSecret: a session whose name holds a granted secret goes on, and its name is
// redacted in the transcript (SPEC 14.7).
func TestSessionWithSecret(t *testing.T) {
	w := withTalker(t, worker.Config{})
	const value = "hunter2-hunter2"
	if _, err := w.store.Secrets.Set(t.Context(), "SUFFIX", secret.New(value)); err != nil {
		t.Fatal(err)
	}
	s := talk("Hello.")
	s.Secrets = []string{"SUFFIX"}
	first := w.enqueue(s)
	w.wants(w.finished(first), store.Succeeded, "")
	second, err := w.follow(first, "Second.")
	if err != nil {
		t.Fatal(err)
	}
	w.wants(w.finished(second.ID), store.Succeeded, "")
	turns, err := os.ReadFile(filepath.Join(w.dir, first.String(), "workspace", "turns"))
	if want := "You talk.\n\nHello.\nSecond. resumes s1" + value + "\n"; err != nil || string(turns) != want {
		t.Errorf("the workspace has the turns\n%s, %v\nwant\n%s", turns, err, want)
	}
	for _, e := range w.events(first) {
		if strings.Contains(string(e.Data), value) {
			t.Errorf("a secret is in the transcript: %s %s", e.Kind, e.Data)
		}
	}
}

// TestFollowUpRefused: what has no session, or whose workspace is gone, cannot go on.
func TestFollowUpRefused(t *testing.T) {
	w := withTalker(t, worker.Config{})
	command := w.enqueue(run.Spec{Environment: environment("true")})
	w.wants(w.finished(command), store.Succeeded, "")
	refused := (*run.RefusedError)(nil)
	if _, err := w.follow(command, "More."); !errors.As(err, &refused) || !refused.Unsupported || !strings.Contains(err.Error(), "environments/e.yaml keeps no session") {
		t.Errorf("a command: %v", err)
	}
	id := w.enqueue(talk("Hello."))
	w.wants(w.finished(id), store.Succeeded, "")
	if err := os.RemoveAll(filepath.Join(w.dir, id.String(), "workspace")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.follow(id, "More."); !errors.As(err, &refused) || !refused.Conflict || err.Error() != task.ErrNoWorkspace.Error() {
		t.Errorf("without its workspace: %v", err)
	}
}

// sweeper is an executor whose Sweep calls before and after around each decision about a
// workspace.
type sweeper struct {
	task.Executor
	before, after func()
}

// Sweep implements task.Executor.
func (s *sweeper) Sweep(ctx context.Context, expired func(string, time.Time) bool) error {
	return s.Executor.Sweep(ctx, func(workspace string, ended time.Time) bool {
		s.before()
		defer s.after()
		return expired(workspace, ended)
	})
}

// TestFollowUpWhileSweeping: a follow-up that is asked for while its workspace expires is
// either refused, or finds it.
func TestFollowUpWhileSweeping(t *testing.T) {
	for _, tt := range []struct {
		name     string
		accepted bool
	}{{"before the decision", true}, {"after the decision", false}} {
		t.Run(tt.name, func(t *testing.T) {
			w := withTalker(t, worker.Config{})
			id := w.enqueue(talk("Hello."))
			w.wants(w.finished(id), store.Succeeded, "")
			asked, err := w.manager.Desk().Continue(t.Context(), w.read(id), run.Request{Prompt: "More."})
			if err != nil {
				t.Fatal(err)
			}
			w.stop()
			var made *store.Run
			ask := sync.OnceFunc(func() { made, _, err = w.store.Runs.Create(w.Context(), asked, "", nil) })
			s := &sweeper{w.executor, ask, func() {}}
			if !tt.accepted {
				s.before, s.after = s.after, s.before
			}
			swept := make(chan struct{})
			last := s.after
			s.after = func() { last(); close(swept) }
			w.start(worker.Config{Config: run.Config{MaxRuns: 4, Now: func() time.Time { return time.Now().Add(25 * time.Hour) }}, Executor: s}, "")
			<-swept
			if tt.accepted {
				if err != nil {
					t.Fatal(err)
				}
				w.wants(w.finished(made.ID), store.Succeeded, "")
				return
			}
			if !errors.Is(err, store.ErrNoSession) {
				t.Errorf("it was accepted: %v", err)
			}
			w.until("the workspace is removed", func() bool { return !w.kept(id) })
		})
	}
}

// TestRetries: a run that fails is tried again in a fresh workspace, its transcript goes
// on, and a cancel ends it for good (SPEC 9.6).
func TestRetries(t *testing.T) {
	w := withTalker(t, worker.Config{})
	s := talk("Please fail.")
	s.Retry = run.Retry{Attempts: 2}
	id := w.enqueue(s)
	r := w.finished(id)
	w.wants(r, store.FailedRun, "the agent ended with exit status 3")
	if r.Attempt != 2 {
		t.Errorf("attempt %d", r.Attempt)
	}
	said := w.said(id)
	for _, want := range []string{
		`{"state":"QUEUED","message":"attempt 1 of 2 failed: the agent ended with exit status 3"}`,
		`{"state":"INPROGRESS","message":"started, attempt 2 of 2","worker":`, "turn 3 of 3", `{"state":"FAILED","message":"the agent ended with exit status 3"}`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the transcript lacks %s\n%s", want, said)
		}
	}
	if strings.Contains(said, "turn 6") {
		t.Errorf("the second attempt has the workspace of the first:\n%s", said)
	}
	s = talk("Please wait.")
	s.Retry = run.Retry{Attempts: 5}
	for _, stop := range []func(store.RunID) error{
		func(id store.RunID) error { return w.manager.Desk().Cancel(t.Context(), id, "ada") },
		func(id store.RunID) error { return w.manager.Desk().Interrupt(t.Context(), id, "ada") },
	} {
		id := w.enqueue(s)
		w.until("the agent waits", func() bool { return strings.Contains(w.said(id), "turn") })
		if err := stop(id); err != nil {
			t.Fatal(err)
		}
		if r := w.finished(id); r.State != store.Cancelled || r.Attempt != 1 {
			t.Errorf("%s after attempt %d: %s", r.State, r.Attempt, r.StatusMessage)
		}
	}
	s = run.Spec{Problem: "nothing starts it"}
	s.Retry = run.Retry{Attempts: 5}
	if r := w.finished(w.enqueue(s)); r.Attempt != 1 {
		t.Errorf("a spec that cannot start is tried %d times", r.Attempt)
	}
}

// TestRetryAfterServerDied: a run that the server left in progress is tried again only if
// its definition allows it, and its transcript goes on.
func TestRetryAfterServerDied(t *testing.T) {
	w := newWorld(t)
	s := run.Spec{Environment: environment("echo attempt")}
	s.Retry = run.Retry{Attempts: 2}
	id := w.enqueue(s)
	leases, err := w.store.Leases.Claim(t.Context(), store.Claim{Worker: "dead", Most: 1, Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	for seq := range int64(3) {
		if err := w.store.Transcripts.Append(t.Context(), leases[0], []store.Event{{Seq: seq + 1, Kind: "status", Data: []byte(`{"message":"old"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}}, "")
	r := w.finished(id)
	w.wants(r, store.Succeeded, "")
	if said := w.said(id); r.Attempt != 2 || strings.Count(said, "old") != 3 || !strings.Contains(said, "started, attempt 2 of 2") {
		t.Errorf("attempt %d:\n%s", r.Attempt, said)
	}
}

// TestRetryByHand: a person's retry is a new run of the same spec, and goes on in the
// conversation only if asked.
func TestRetryByHand(t *testing.T) {
	w := withTalker(t, worker.Config{})
	id := w.enqueue(talk("Please fail."))
	w.wants(w.finished(id), store.FailedRun, "exit status 3")
	again := func(resume bool) *store.Run {
		r, err := w.manager.Desk().Retry(t.Context(), w.read(id), run.Caller{CreatorKind: "user", CreatorName: "ada"}, resume)
		if err != nil {
			t.Fatal(err)
		}
		made, _, err := w.store.Runs.Create(t.Context(), r, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.manager.Wake()
		return w.finished(made.ID)
	}
	fresh, resumed := again(false), again(true)
	if fresh.RetryOf != id || fresh.SpecHash != resumed.SpecHash || fresh.CreatorName != "ada" || fresh.ConversationID != fresh.ID || resumed.ConversationID != id {
		t.Errorf("fresh %+v\nresumed %+v", fresh, resumed)
	}
	if said := w.said(fresh.ID); !strings.Contains(said, "turn 3 of 3") {
		t.Errorf("the fresh retry said %s", said)
	}
	if said := w.said(resumed.ID); !strings.Contains(said, "turn 6 of 6") {
		t.Errorf("the resumed retry said %s", said)
	}
	running := w.enqueue(talk("Please wait."))
	if _, err := w.manager.Desk().Retry(t.Context(), w.read(running), run.Caller{}, false); err == nil || !strings.Contains(err.Error(), "has not ended") || !strings.Contains(err.Error(), "`triphammer runs cancel "+running.String()+"`") {
		t.Errorf("a run in progress: %v", err)
	}
}

// TestNotTriedAgain: what cannot go well before somebody has acted ends the run at its first
// attempt, and the run says so. What may pass is tried again (SPEC 9.6).
func TestNotTriedAgain(t *testing.T) {
	w := newWorld(t)
	bin := t.TempDir()
	script := "#!/bin/sh\ncat\n"
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(script), 0o700); err != nil { // it says its prompt
		t.Fatal(err)
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 4}}, bin+":"+os.Getenv("PATH"))
	claude := func(said string) run.Spec {
		s := talk(`{"type":"result","is_error":true,"subtype":"` + said + `"}`)
		s.AgentPrompt = ""
		return s
	}
	command := func(script string) run.Spec { return run.Spec{Environment: environment(script)} }
	named := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(named, []byte("#!/bin/sh\ncat\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	own := func(said string) run.Spec { // a command of the environment, whose output nobody parses
		s := command("")
		s.Environment.Command, s.Prompt = []string{named, "-p"}, said
		return s
	}
	codex, missing, strange, twice := talk("x"), command("true"), command("true"), command("true")
	codex.Harness.Type = "codex"
	missing.Environment.Command = []string{"nothing-of-this-name"}
	strange.Environment.Isolation = "kubernetes"
	twice.Repositories = []factory.Repository{{URL: "/a/x"}, {URL: "/b/x"}}
	for _, tt := range []struct {
		name    string
		spec    run.Spec
		message string
		again   bool
	}{
		{"not logged in", claude(`success","result":"Not logged in`), "claude has no credential that its provider accepts", false},
		{"not logged in, by a command", own(`Not logged in · Please run /login`), "claude has no credential that its provider accepts", true},
		{"not logged in, by a command in JSON", own(`{"type":"result","is_error":true,"result":"Not logged in · Please run /login"}`), "ANTHROPIC_API_KEY. claude said: Not logged in · Please run /login", true},
		{"no such model", claude(`success","result":"There is an issue with the selected model (x)`), "change the model", false},
		{"no credit", claude(`success","result":"Credit balance is too low`), "has no credit left", false},
		{"turns", claude(`error_max_turns`), "the budget of turns is used up", false},
		{"no program behind a shell", codex, "the program of the agent is not installed where runs look for programs", false},
		{"no program", missing, `the program "nothing-of-this-name" was not found`, false},
		{"isolation", strange, "accepts no less isolation than kubernetes", false},
		{"folders", twice, "two repositories want the folder x", false},
		{"no secret", run.Spec{Environment: environment("true"), Secrets: []string{"NO_1"}}, "granted secrets are not set: NO_1", false},
		{"EX_CONFIG", command("echo No config. >&2; exit 78"), "exit status 78: No config.", false},
		{"rate limit", claude(`success","result":"status 429`), "the provider's limit of requests or tokens is reached", true},
		{"another status", command("exit 1"), "exit status 1", true},
		{"another status of a known program", own(strings.Repeat("Out of ideas. ", 100)), "the agent ended with exit status 1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.spec
			s.Retry = run.Retry{Attempts: 2}
			r := w.finished(w.enqueue(s))
			w.wants(r, store.FailedRun, tt.message)
			if strings.Contains(r.StatusMessage, "Out of ideas") || strings.Contains(r.StatusMessage, "{\"type") {
				t.Errorf("the status quotes what the agent printed: %s", r.StatusMessage)
			}
			const reason = "; it is not tried again, because it would fail in the same way"
			if again := r.Attempt == 2; again != tt.again || strings.HasSuffix(r.StatusMessage, reason) == tt.again {
				t.Errorf("it ended at attempt %d: %s", r.Attempt, r.StatusMessage)
			}
		})
	}
}
