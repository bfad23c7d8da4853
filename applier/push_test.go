package applier

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo"
)

func runGit(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// remote is a bare repository that an Applier watches, and a clone to push from.
type remote struct {
	bare, work string
	records    *records
	cfg        Config
	states     chan State
}

func newRemote(t testing.TB) *remote {
	dir := t.TempDir()
	r := &remote{
		bare: filepath.Join(dir, "f.git"), work: filepath.Join(dir, "w"),
		records: newRecords(), states: make(chan State, 1000),
	}
	runGit(t, dir, "init", "-q", "--bare", "--initial-branch=main", r.bare)
	runGit(t, dir, "init", "-q", "--initial-branch=main", r.work)
	runGit(t, r.work, "remote", "add", "origin", r.bare)
	source, err := gitrepo.Open(r.bare, "main")
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = r.records.config(source)
	r.cfg.OnChange = func(s State) { r.states <- s }
	return r
}

func (r *remote) write(t testing.TB, name, text string) {
	t.Helper()
	file := filepath.Join(r.work, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *remote) push(t testing.TB) {
	t.Helper()
	runGit(t, r.work, "add", "-A")
	runGit(t, r.work, "commit", "-q", "--allow-empty", "-m", "next")
	runGit(t, r.work, "push", "-q", "--force", "origin", "main")
}

// until waits for a state that is accepts.
func (r *remote) until(t testing.TB, what string, is func(State) bool) State {
	t.Helper()
	deadline := time.After(20 * time.Second)
	var last State
	for {
		select {
		case last = <-r.states:
			if is(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("%s: never came; the last state is %+v", what, last)
		}
	}
}

// TestPush follows a factory through what happens to a branch (SPEC 4.2, 4.8):
// whatever it is, the last good definition serves, and the next good one heals.
func TestPush(t *testing.T) {
	r := newRemote(t)
	r.records.SetSecret("HOOK_SECRET", "s3cret")
	start(t, New(r.cfg))
	serves := func() *Webhook {
		w, _ := r.cfg.Live.Webhook("whk_hook")
		return w
	}
	r.until(t, "no commit yet", func(s State) bool { return strings.Contains(s.Error, "waits for the first push") })

	r.write(t, "factory.yaml", factoryYAML)
	r.write(t, "webhooks/hook.yaml", webhookYAML)
	r.push(t)
	good := r.until(t, "the first push", func(s State) bool { return s.Error == "" }).Applied
	if serves() == nil {
		t.Fatal("nothing serves")
	}

	r.write(t, "webhooks/hook.yaml", "colour: green\n")
	r.push(t)
	s := r.until(t, "a bad push", func(s State) bool { return s.Error != "" })
	if s.Applied != good || serves().Revision != good || s.LastApply.Outcome != Refused || !strings.Contains(s.Error, "webhooks/hook.yaml:1: ") {
		t.Errorf("after a bad push: %+v", s)
	}

	runGit(t, r.work, "reset", "-q", "--hard", "HEAD~1")
	r.write(t, "factory.yaml", factoryYAML+"description: forced\n")
	r.push(t)
	good = r.until(t, "a forced push", func(s State) bool { return s.Error == "" }).Applied
	if good.Definition.Description != "forced" || serves().Revision != good {
		t.Errorf("after a forced push: %+v", good)
	}

	runGit(t, r.bare, "gc", "-q", "--prune=now")
	runGit(t, r.bare, "update-ref", "-d", "refs/heads/main")
	s = r.until(t, "the branch deleted", func(s State) bool { return s.Error != "" })
	if serves().Revision != good || s.NextAttempt.IsZero() {
		t.Errorf("without the branch: %+v", s)
	}
	applies := len(r.records.outcomes())
	runGit(t, r.work, "push", "-q", "origin", "main")
	s = r.until(t, "the branch restored", func(s State) bool { return s.Error == "" })
	if s.Applied != good || len(r.records.outcomes()) != applies {
		t.Errorf("the live commit was applied again: %v", r.records.outcomes())
	}

	if err := os.Remove(filepath.Join(r.work, "factory.yaml")); err != nil {
		t.Fatal(err)
	}
	r.push(t)
	s = r.until(t, "no factory.yaml", func(s State) bool { return s.Error != "" })
	if serves().Revision != good || s.LastApply.Outcome != Refused {
		t.Errorf("without factory.yaml: %+v", s)
	}
	if want := []Outcome{Applied, Refused, Applied, Failed, Refused}; !slices.Equal(r.records.outcomes(), want) {
		t.Errorf("recorded %v, want %v", r.records.outcomes(), want)
	}
}

// BenchmarkPushToLive measures from the end of `git push` to the swap of the
// live table, and reports p50 and p99 in milliseconds: for the smallest factory,
// and for one with 20 webhooks and 200 automations.
func BenchmarkPushToLive(b *testing.B) {
	for _, size := range []struct{ webhooks, automations int }{{1, 1}, {20, 200}} {
		b.Run(fmt.Sprintf("webhooks=%d/automations=%d", size.webhooks, size.automations), func(b *testing.B) {
			r := newRemote(b)
			r.records.SetSecret("HOOK_SECRET", "s3cret")
			r.write(b, "factory.yaml", factoryYAML)
			for i := range size.webhooks {
				r.write(b, fmt.Sprintf("webhooks/hook%d.yaml", i), webhookYAML)
			}
			for i := range size.automations {
				r.write(b, fmt.Sprintf("automations/a%d.md", i), strings.ReplaceAll(automation, "[hook]", fmt.Sprintf("[hook%d]", i%size.webhooks)))
			}
			a := New(r.cfg)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			var took []time.Duration
			last := ""
			for b.Loop() {
				b.StopTimer()
				r.push(b)
				began := time.Now()
				b.StartTimer()
				last = r.until(b, "live", func(s State) bool { return s.Error == "" && s.Applied != nil && s.Applied.Commit.Hash != last }).Applied.Commit.Hash
				took = append(took, time.Since(began))
			}
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
