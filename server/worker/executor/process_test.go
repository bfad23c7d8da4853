package executor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/inside"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// TestMain lets the test binary be the programs that the tests start: the
// supervisor, the demonstration agent, and a server that is to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case inside.SuperviseCommand:
			os.Exit(Supervise(os.Args[2:]))
		case "demo-agent":
			if err := run.DemoAgent(os.Stdin, os.Stdout, os.Getenv); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "hog":
			hog(os.Args[2])
		case "fake-server":
			fakeServer(os.Args[2], os.Args[3])
		}
	}
	os.Exit(m.Run())
}

// recorder is a run.Sink.
type recorder struct {
	mu     sync.Mutex
	events []event.Event
	text   map[string]*bytes.Buffer
	kept   map[string]string // artifacts, by name
	more   chan struct{}
}

func newRecorder() *recorder {
	return &recorder{text: map[string]*bytes.Buffer{"stdout": {}, "stderr": {}}, kept: make(map[string]string), more: make(chan struct{}, 1)}
}

// adding is a run.Sink that keeps no artifacts.
type adding func(event.Event)

func (f adding) Add(e event.Event) { f(e) }

func (f adding) Keep(a event.Artifact, _ io.Reader) error {
	f(a)
	return nil
}

func (r *recorder) Keep(a event.Artifact, content io.Reader) error {
	r.Add(a)
	text, err := io.ReadAll(content)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[a.Name] = string(text)
	return err
}

func (r *recorder) Add(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if o, ok := e.(event.Output); ok {
		r.text[o.Stream].WriteString(o.Text)
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *recorder) said(stream string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text[stream].String()
}

// await waits until the agent has printed the text.
func (r *recorder) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for !strings.Contains(r.said("stdout"), text) {
		select {
		case <-r.more:
		case <-timeout:
			t.Fatalf("the agent did not print %q but %q and %q", text, r.said("stdout"), r.said("stderr"))
		}
	}
}

func of[E event.Event](r *recorder) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []E
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

// manyRuns is how many runs TestNothingRemains makes.
var manyRuns = cmp.Or(runsOf(os.Getenv("TEST_RUNS")), 10)

func runsOf(text string) int {
	n, _ := strconv.Atoi(text) // 0: the default
	return n
}

// isolation and runUser are those of the executors that are tested. TestEveryIsolation
// tests with the others.
var isolation, runUser = cmp.Or(os.Getenv("TEST_ISOLATION"), None), cmp.Or(os.Getenv("TEST_USER"), "root")

// tested makes an executor with that isolation, in a folder.
func tested(dir string, grace time.Duration) (*Executor, error) {
	return New(Config{
		Dir: dir, Isolation: isolation, User: runUser, Grace: grace, Command: strings.Fields(os.Getenv("TEST_COMMAND")),
		Network:   task.Network{Off: isolation == Container},
		Container: ContainerConfig{Program: cmp.Or(os.Getenv("TEST_ENGINE"), None), Image: os.Getenv("TEST_IMAGE"), Options: os.Getenv("TEST_ENGINE_OPTIONS")},
	})
}

// openDir is a temporary folder that other users reach.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newExecutor(t *testing.T, grace time.Duration) *Executor {
	t.Helper()
	p, err := tested(openDir(t), grace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before TempDir's own, which does not remove read-only folders
		if err := inside.RemoveAll(p.dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestSizeOfOthers: a run that has not begun here, or has ended, takes nothing of the disk. Else it would be taken for
// the run that fills the disk, with all that the others take.
func TestSizeOfOthers(t *testing.T) {
	p := newExecutor(t, time.Second)
	dir := filepath.Join(p.dir, "run_1")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<16), 0o600)); err != nil {
		t.Fatal(err)
	}
	if !p.mark("run_1", "run_1") {
		t.Fatal("it is in progress")
	}
	defer p.unmark("run_1")
	for run, takes := range map[string]bool{"run_1": true, "run_2": false} {
		if bytes, files := p.Size(t.Context(), run); (bytes > 0 && files > 0) != takes || !takes && bytes+files > 0 {
			t.Errorf("%s takes %d bytes in %d files", run, bytes, files)
		}
	}
}

func sh(script string) *task.Task {
	return &task.Task{RunID: "run_1", Attempt: 1, Prompt: "do it\n", Command: []string{"sh", "-c", script}, Vars: map[string]string{"TRIPHAMMER_WEBHOOK": "hook"}}
}

// noneLeft fails if a process of the run is alive.
func noneLeft(t *testing.T, marker string) {
	t.Helper()
	for _, p := range left(t, marker) {
		t.Errorf("a process is left: %s", p)
	}
}

// left are the processes of the run that are alive.
func left(t *testing.T, marker string) (lines []string) {
	t.Helper()
	all, err := inside.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), "cmdline"))
		if err == nil && !p.Zombie && p.Pid != os.Getpid() && bytes.Contains(line, []byte(marker)) {
			lines = append(lines, fmt.Sprintf("%d %q", p.Pid, line))
		}
	}
	return lines
}

// marker is a number of seconds that no other process sleeps for.
func marker(t *testing.T) string {
	sum := 0
	for _, c := range t.Name() {
		sum = (sum*31 + int(c)) % 9000
	}
	return fmt.Sprintf("8%04d.%d", sum, os.Getpid())
}

// escapees leaves processes behind in every way that gets past signals to a
// group: another session, a double fork, and no environment.
func escapees(marker string) string {
	return `sleep ` + marker + ` &
setsid sh -c 'setsid sleep ` + marker + ` & sleep ` + marker + `' &
(setsid sh -c "sleep ` + marker + ` & exec env -i setsid sleep ` + marker + `" &) &
` + untilSleeping(marker, 5) + `
echo escaped
`
}

// untilSleeping waits in a shell until that many processes sleep. The pattern
// does not match itself.
func untilSleeping(marker string, n int) string {
	return fmt.Sprintf(`while [ "$(grep -lzx '[%s]%s' /proc/[0-9]*/cmdline 2>/dev/null | wc -l)" -lt %d ]; do :; done`, marker[:1], marker[1:], n)
}

func TestSuccess(t *testing.T) { // SPEC 9.4, 13.11
	p, r := newExecutor(t, 0), newRecorder()
	work := sh(`cat; cat "$TRIPHAMMER_PROMPT_FILE"; pwd; echo oops >&2; printf 'new\n' >made.txt; printf 'a\nB\nc\n' >text.txt; rm gone.txt; exit 0`)
	work.Setup = []string{`printf 'a\nb\nc\n' >text.txt; echo x >gone.txt; echo setting up`}
	exit, err := p.Start(t.Context(), work, r)
	if err != nil || exit != (task.Exit{}) {
		t.Fatal(exit, err, r.said("stderr"))
	}
	workspace := filepath.Join(p.dir, "run_1", "workspace")
	if got, want := r.said("stdout"), "setting up\ndo it\ndo it\n"+workspace+"\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got := r.said("stderr"); got != "oops\n" {
		t.Errorf("stderr %q", got)
	}
	want := []event.File{
		{Path: "gone.txt", Change: "deleted", Diff: "--- a/gone.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"},
		{Path: "made.txt", Change: "created", Size: 4, Diff: "--- /dev/null\n+++ b/made.txt\n@@ -0,0 +1,1 @@\n+new\n"},
		{Path: "text.txt", Change: "modified", Size: 6, Diff: "--- a/text.txt\n+++ b/text.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
	}
	if got := of[event.File](r); !slices.Equal(got, want) {
		t.Errorf("files\n%+v, want\n%+v", got, want)
	}
	if got := of[event.Ended](r); len(got) != 1 || got[0].ExitCode != 0 {
		t.Errorf("ended %+v", got)
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name  string
		task  func(*task.Task)
		exit  task.Exit
		wrong string
	}{
		{"exit status", func(t *task.Task) { t.Command[2] = "exit 3" }, task.Exit{Code: 3}, ""},
		{"signal", func(t *task.Task) { t.Command[2] = "kill -TERM $$" }, task.Exit{Code: -1, Signal: "SIGTERM"}, ""},
		{"setup", func(t *task.Task) { t.Setup = []string{"exit 7"} }, task.Exit{}, "setup failed: exit 7: exit status 7"},
		{"setup that says why", func(t *task.Task) {
			t.Setup = []string{"echo one >&2; printf 'no such\\r\\nthing' >&2; echo out; exit 7"}
		}, task.Exit{}, "exit status 7: thing"},
		{"no program", func(t *task.Task) { t.Command = []string{"no-such-agent"} }, task.Exit{}, `"no-such-agent" was not found`},
		{"not a program", func(t *task.Task) { t.Command = []string{"./prompt.md"} }, task.Exit{}, "./prompt.md is not a program"},
		{"not executable format", func(t *task.Task) {
			t.Setup, t.Command = []string{`printf '\177ELF' >agent; chmod +x agent`}, []string{"./agent"}
		}, task.Exit{}, "exec format error"},
		{"repository", func(t *task.Task) {
			t.Repositories = []task.Repository{{URL: "/nonexistent/repository"}}
		}, task.Exit{}, "exit status 128: fatal: repository '/nonexistent/repository' does not exist"},
		{"repository that ssh does not reach", func(t *task.Task) {
			t.Setup = []string{`GIT_SSH_COMMAND="sh -c 'echo git@h: Permission denied >&2; exit 255'" git clone ssh://git@h/app.git app`}
		}, task.Exit{}, "exit status 128: git@h: Permission denied"},
		{"repository of a command", func(t *task.Task) {
			t.Repositories = []task.Repository{{URL: "ext::sh -c 'echo x >&2'", Path: "x"}}
		}, task.Exit{}, "clone failed"},
		{"repository outside", func(t *task.Task) {
			t.Repositories = []task.Repository{{URL: "/x/.."}}
		}, task.Exit{}, "no usable folder name"},
		{"run id", func(t *task.Task) { t.RunID = "../x" }, task.Exit{}, "is not the id of a run"},
		{"attachment", func(t *task.Task) { t.Attachments = []task.Attachment{{Name: "../x"}} }, task.Exit{}, "is not the name of an attachment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, r, work := newExecutor(t, 0), newRecorder(), sh("true")
			tt.task(work)
			exit, err := p.Start(t.Context(), work, r)
			if exit != tt.exit {
				t.Errorf("exit %+v, want %+v", exit, tt.exit)
			}
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("error %v, want one with %q", err, tt.wrong)
			}
		})
	}
}

func TestPreflight(t *testing.T) { // SPEC 2.2a
	p := newExecutor(t, 0)
	for want, change := range map[string]func(*task.Task){
		"":                      func(*task.Task) {},
		"nothing says how":      func(t *task.Task) { t.Command = nil },
		"no less isolation":     func(t *task.Task) { t.Isolation = "container" },
		"limits the network":    func(t *task.Task) { t.Network.Off = true },
		"limits the network, w": func(t *task.Task) { t.Network.Hosts = []string{"example.com"} },
	} {
		if isolation == Sandbox && strings.HasPrefix(want, "limits") {
			want = "" // it can
		}
		work := sh("true")
		change(work)
		_, err := p.Preflight(work)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestCleanEnvironment(t *testing.T) { // SPEC 9.4: never the server's own
	t.Setenv("SERVER_SECRET", "do not show")
	p, r := newExecutor(t, 0), newRecorder()
	work := sh("env; tr '\\0' '\\n' </proc/$PPID/environ | sed 's/^/parent: /'")
	work.Env = map[string]string{"PLAIN": "1", "LANG": "de_DE.UTF-8"}
	work.Secrets = map[string]secret.Value{"API_TOKEN": secret.New("granted"), "TRIPHAMMER_RUN_ID": secret.New("forged")}
	if _, err := p.Start(t.Context(), work, r); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(p.dir, "run_1")
	want := []string{
		"API_TOKEN=granted", "GIT_CONFIG_SYSTEM=" + root + "/gitconfig", "HOME=" + root + "/home", "LANG=de_DE.UTF-8", "PATH=" + os.Getenv("PATH"), "PLAIN=1",
		"TMPDIR=" + root + "/tmp", "TRIPHAMMER_ATTACHMENTS=" + root + "/attachments", "TRIPHAMMER_PROMPT_FILE=" + root + "/prompt.md",
		"TRIPHAMMER_RUN_ID=run_1", "TRIPHAMMER_WEBHOOK=hook",
	}
	var got []string
	for line := range strings.Lines(r.said("stdout")) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, "=")
		switch {
		case slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name): // a shell sets them
		case line == "parent: TRIPHAMMER_RUN_ID=run_1", slices.Contains(supervisorEnv, strings.TrimPrefix(line, "parent: ")): // seen by root alone
		case name == "TRIPHAMMER_ARTIFACTS":
		default:
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the agent saw\n%q, want\n%q", got, want)
	}
}

func TestExactPayload(t *testing.T) { // SPEC 9.3
	p, r := newExecutor(t, 0), newRecorder()
	payload := []byte("{\"a\" : \"\\u00e9\xc3\xa9\",\r\n \"n\":1.0e2 }\n\n")
	work := sh(`cat "$TRIPHAMMER_ATTACHMENTS/event-payload.json"`)
	work.Attachments = []task.Attachment{{Name: run.PayloadFile, Data: payload}}
	if _, err := p.Start(t.Context(), work, r); err != nil {
		t.Fatal(err)
	}
	if got := r.said("stdout"); got != string(payload) {
		t.Errorf("the agent read %q, want %q", got, payload)
	}
}

func TestFreshWorkspace(t *testing.T) {
	p, r := newExecutor(t, 0), newRecorder()
	for range 2 {
		if exit, err := p.Start(t.Context(), sh(`test ! -e x && mkdir x && touch x/y && chmod 500 x`), r); err != nil || exit.Code != 0 {
			t.Fatal(exit, err)
		}
	}
}

func TestNothingOutlivesTheAgent(t *testing.T) {
	p, r, mark := newExecutor(t, 0), newRecorder(), marker(t)
	exit, err := p.Start(t.Context(), sh(escapees(mark)), r)
	if err != nil || exit.Code != 0 || r.said("stdout") != "escaped\n" {
		t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
	}
	noneLeft(t, mark)
}

func TestStop(t *testing.T) { // SPEC 9.6: stops the whole process tree
	tests := []struct {
		name, script string
		grace        time.Duration
		exit         task.Exit
	}{
		{"polite", `trap 'echo bye; exit 5' INT; `, time.Minute, task.Exit{Code: 5, Stopped: true}},
		{"killed", `trap '' INT; `, 50 * time.Millisecond, task.Exit{Code: -1, Signal: "SIGKILL", Stopped: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, r, mark := newExecutor(t, tt.grace), newRecorder(), marker(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				r.await(t, "escaped")
				cancel(task.ErrCancelled)
			}()
			exit, err := p.Start(ctx, sh(tt.script+escapees(mark)+"while :; do sleep 0.05; done"), r)
			if err != nil || exit != tt.exit {
				t.Errorf("exit %+v %v, want %+v", exit, err, tt.exit)
			}
			if tt.name == "polite" && !strings.HasSuffix(r.said("stdout"), "bye\n") {
				t.Errorf("stdout %q", r.said("stdout"))
			}
			noneLeft(t, mark)
		})
	}
}

func TestStopDuringSetup(t *testing.T) {
	p, r, mark := newExecutor(t, 50*time.Millisecond), newRecorder(), marker(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		r.await(t, "waiting")
		cancel(task.ErrTimeout)
	}()
	work := sh("echo never")
	work.Setup = []string{"trap '' INT; echo waiting; sleep " + mark}
	if _, err := p.Start(ctx, work, r); !errors.Is(err, task.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	if strings.Contains(r.said("stdout"), "never") {
		t.Error("the agent was started")
	}
	noneLeft(t, mark)
}

func TestSetupMayLeaveServices(t *testing.T) {
	p, r, mark := newExecutor(t, 0), newRecorder(), marker(t)
	work := sh(untilSleeping(mark, 1) + "; echo there")
	work.Setup = []string{"echo one; sleep " + mark + " & echo two"}
	if _, err := p.Start(t.Context(), work, r); err != nil {
		t.Fatal(err)
	}
	if got := r.said("stdout"); got != "one\ntwo\nthere\n" {
		t.Errorf("stdout %q", got)
	}
	noneLeft(t, mark)
}

func TestMuchOutput(t *testing.T) {
	p, r := newExecutor(t, 0), newRecorder()
	work := sh("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end >&2")
	work.Setup = []string{"head -c 1000000 /dev/zero | tr '\\0' y"}
	if _, err := p.Start(t.Context(), work, r); err != nil {
		t.Fatal(err)
	}
	if got := r.said("stdout"); got != strings.Repeat("y", 1000000)+strings.Repeat("x", 3000000)+"\n" {
		t.Errorf("%d bytes came", len(got))
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestDemoAgent(t *testing.T) { // SPEC 11: `triphammer` means this program
	p, r := newExecutor(t, 0), newRecorder()
	work := sh("")
	work.Command = []string{"triphammer", "demo-agent"}
	work.Attachments = []task.Attachment{{Name: run.PayloadFile, Data: []byte(`{"name":"Ada"}`)}}
	exit, err := p.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatal(exit, err, r.said("stderr"))
	}
	if got := of[event.File](r); len(got) != 1 || got[0].Path != "GREETING.md" || !strings.Contains(got[0].Diff, "+# Hello, Ada\n") {
		t.Errorf("files %+v", got)
	}
}

func alive(p inside.Process) bool {
	now, err := inside.ProcessOf(p.Pid)
	return err == nil && now.Start == p.Start && !now.Zombie
}

// await waits for a condition of another process that nothing announces.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(20 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("waited in vain: " + what)
		}
	}
}

func TestSweep(t *testing.T) {
	now := time.Now()
	p := newExecutor(t, 0)
	p.now = func() time.Time { return now }
	for _, id := range []string{"run_1", "run_2"} {
		work := sh("mkdir -p a/b && chmod 0 a/b a")
		work.RunID = id
		if _, err := p.Start(t.Context(), work, newRecorder()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	if err := p.Sweep(t.Context(), func(_ string, ended time.Time) bool { return ended.Before(now.Add(-90 * time.Minute)) }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(p.dir)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), runPrefix) })
	if err != nil || len(entries) != 1 || entries[0].Name() != "run_2" {
		t.Errorf("left: %v %v", entries, err)
	}
}

// BenchmarkStart is what a run costs beside its agent, in each isolation.
func BenchmarkStart(b *testing.B) {
	for _, isolation := range []string{None, Kernel, Sandbox} {
		b.Run(isolation, func(b *testing.B) {
			p, err := New(Config{Dir: openDir(b), Isolation: isolation})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if exit, err := p.Start(b.Context(), sh("true"), adding(func(event.Event) {})); err != nil || exit.Code != 0 {
					b.Fatal(exit, err)
				}
			}
		})
	}
}

// TestCopyProgram: the copy of the program is made once, and again for another program.
func TestCopyProgram(t *testing.T) {
	dir := t.TempDir()
	copied := func() os.FileInfo {
		path, err := copyProgram(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := copied()
	if !os.SameFile(first, copied()) {
		t.Error("the copy of the same program was made again")
	}
	path := filepath.Join(dir, ".triphammer")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("of an earlier version"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if again := copied(); again.Size() != first.Size() || again.Mode() != 0o755 {
		t.Errorf("the copy of another program was kept: %d bytes, mode %v", again.Size(), again.Mode())
	}
}

// TestOutermost: what is in a folder of the list is not named again, but what is behind a
// link is.
func TestOutermost(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.MkdirAll(at("a/b/c"), 0o700), os.Mkdir(at("a-b"), 0o700), os.Mkdir(at("z"), 0o700), os.Symlink("a", at("link")))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{at("a"), at("a-b"), at("a/b"), at("a/b/c"), at("a/nothing"), at("link"), at("link/b"), at("z"), at("z")}
	slices.Sort(all)
	if got, want := outermost(all), []string{at("a"), at("a-b"), at("link"), at("link/b"), at("z")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestVictims: when memory is short, the kernel ends the agent before its supervisor, and
// that before the server.
func TestVictims(t *testing.T) {
	p, r := newExecutor(t, 0), newRecorder()
	// The supervisor takes its own score back when the agent has started.
	script := `cat /proc/self/oom_score_adj; until [ "$(cat /proc/$PPID/oom_score_adj)" = 500 ]; do sleep 0.01; done; echo less`
	if _, err := p.Start(t.Context(), sh(script), r); err != nil {
		t.Fatal(err)
	}
	if got := r.said("stdout"); got != "750\nless\n" {
		t.Errorf("%q %q", got, r.said("stderr"))
	}
}

// TestNothingRemains: runs leave the server no child, not even one that has ended, and no
// open descriptor.
func TestNothingRemains(t *testing.T) {
	p := newExecutor(t, 0)
	begin := func(n int) {
		work := sh("setsid true & exit 0")
		work.RunID = fmt.Sprint("run_", n)
		if exit, err := p.Start(t.Context(), work, newRecorder()); err != nil || exit != (task.Exit{}) {
			t.Fatal(exit, err)
		}
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	figures := func() (children, workspaces int) {
		running, ended, workspaces, err := p.Figures()
		if err != nil {
			t.Fatal(err)
		}
		return running + ended, workspaces
	}
	begin(0) // what is opened once stays open
	before := open()
	already, _ := figures() // of tests before this one
	for n := range manyRuns {
		begin(n)
	}
	if children, workspaces := figures(); children > already || workspaces != manyRuns {
		t.Errorf("%d children, before %d; %d workspaces", children, already, workspaces)
	}
	if after := open(); after > before {
		t.Errorf("%d descriptors were open, and %d are", before, after)
	}
}

// TestRefusedCalls: between walls, a run changes nothing of its supervisor, and leaves no file
// that gives others its rights (SPEC 14.2).
func TestRefusedCalls(t *testing.T) {
	if isolation == None { // it has no walls, and the others are tested by TestEveryIsolation
		const mount = "cd /tmp && unshare --user --map-root-user --mount mount -t tmpfs none ."
		may := exec.Command("sh", "-c", mount).Run() == nil // on this machine
		p, r := newExecutor(t, 0), newRecorder()
		if exit, err := p.Start(t.Context(), sh(mount), r); err != nil || may && exit.Code != 0 {
			t.Errorf("mounting: %+v, %v, %s", exit, err, r.said("stderr"))
		}
		return
	}
	for _, call := range []string{
		"prlimit --pid $PPID --nofile=4:4", "prlimit --pid 1 --nofile=4:4", "chrt --idle --pid 0 $PPID", "chrt --idle --pid 0 1",
		"taskset --pid 1 $PPID", "renice --priority 10 $PPID", "renice --priority 10 --user $(id -u)", "ionice --class 3 --pid $PPID",
		"chmod u+s file", "chmod g+s file", "install --mode 4755 file other", "cp --preserve=mode /usr/bin/passwd other && test -u other",
		"perl -e 'use Fcntl; umask 0; sysopen(F, q(made), O_CREAT|O_WRONLY, 04755) or exit 1'",
		"unshare --user true", "mount -t tmpfs none .",
	} {
		p, r := newExecutor(t, 0), newRecorder()
		if exit, err := p.Start(t.Context(), sh("touch file; "+call), r); err != nil || exit.Code == 0 {
			t.Errorf("%s: %+v, %v, %s", call, exit, err, r.said("stderr"))
		}
	}
	if isolation == Sandbox { // no mount gives a program the rights of its file either
		p, r := newExecutor(t, 0), newRecorder()
		if exit, err := p.Start(t.Context(), sh("grep -v nosuid /proc/self/mountinfo || touch /dev/new /new || mkdir /usr/new"), r); err != nil || exit.Code == 0 {
			t.Errorf("%+v, %v, %s", exit, err, r.said("stdout"))
		}
	}
	p, r := newExecutor(t, 0), newRecorder()
	if exit, err := p.Start(t.Context(), sh("touch file && chmod 755 file && install --mode 700 file other && mkdir --mode 1777 dir"), r); err != nil || exit.Code != 0 {
		t.Errorf("other modes: %+v, %v, %s", exit, err, r.said("stderr"))
	}
}
