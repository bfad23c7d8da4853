//go:build full

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// story is a server with a factory, deliveries and runs such as a small team has: what the
// pages are tested on, and what their pictures show.
type story struct {
	*world
	scenes
}

// storyTime is when the story happens, so that its pictures change with the pages alone.
var storyTime = time.Date(2026, time.November, 24, 14, 32, 0, 0, time.UTC)

var storySecrets = map[string]string{
	"INTERNAL_CI_SECRET": "correct-horse-battery-staple", "GITHUB_SECRET": "story-github-secret",
	"STRIPE_SIGNING_SECRET": "whsec_c3Rvcnktc3RyaXBlLXNlY3JldA", "SENTRY_SECRET": "story-sentry-secret",
}

// newStory serves the factory of testdata/story, and lets all of it happen.
func newStory(t testing.TB) *story {
	t.Helper()
	s := &story{world: &world{t: t, dir: openDir(t), addr: freeAddress(t), ahead: time.Until(storyTime)}}
	if err := os.CopyFS(filepath.Join(s.dir, "repo"), os.DirFS("testdata/story/factory")); err != nil {
		t.Fatal(err)
	}
	s.git("init", "-q", "--initial-branch=main")
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "Repair failed deployments by themselves")
	s.cleanUp()
	for name, value := range storySecrets {
		s.run(value, "secrets", "set", name)
	}
	agents, err := filepath.Abs("testdata/story")
	if err != nil {
		t.Fatal(err)
	}
	s.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+agents+string(os.PathListSeparator)+os.Getenv("PATH"))
	}, "--max-runs", "2")

	failed := `{"event":"deploy.finished","status":"failed","env":"prod","service":"payments","commit":"a41c9e2","step":"canary","duration_s":312,"url":"https://ci.example.com/runs/8812"}`
	s.wanted = s.send("INTERNAL_CI_SECRET", "internal-ci", "-d", failed, "-H", "X-CI-Run-Id: 8812")
	s.send("INTERNAL_CI_SECRET", "internal-ci", "-d", failed, "-H", "X-CI-Run-Id: 8812") // the same again
	s.unmatched = s.send("INTERNAL_CI_SECRET", "internal-ci", "-d", strings.Replace(failed, `"failed"`, `"success"`, 1), "-H", "X-CI-Run-Id: 8813")
	s.send("STRIPE_SIGNING_SECRET", "stripe", "--provider", "stripe", "--event", "charge.failed")
	s.send("GITHUB_SECRET", "github", "--provider", "github", "--event", "push")
	s.send("SENTRY_SECRET", "sentry", "--provider", "sentry", "--event", "issue")
	s.send("SENTRY_SECRET", "sentry", "--provider", "sentry", "--event", "issue", "--tamper", "signature")
	s.run("", "keys", "create", "build-farm", "--scope", "read")
	s.run("", "keys", "create", "reports", "--scope", "runs", "--expires", "720h")
	s.schedule = regexp.MustCompile(`sch_[0-9a-z]+`).FindString(s.run("", "schedules", "create", "--name", "Weekly look at costs", "--cron", "0 9 * * MON", "--prompt", "Say what the runs of last week cost."))

	var runs []api.Run
	s.until("the runs do not end", func() bool {
		s.list(&runs, "runs", "list")
		for _, r := range runs {
			switch r.State {
			case "SUCCEEDED":
				s.done = r.RunID
			case "FAILED":
				s.failed = r.RunID
			}
		}
		return s.done != "" && s.failed != ""
	})
	s.send("GITHUB_SECRET", "github", "--provider", "github", "--event", "issues")
	s.tells("internal-ci:payments/a41c9e2")
	s.until("no run is at work", func() bool {
		s.list(&runs, "runs", "list")
		s.live = runs[0].RunID
		return runs[0].State == "INPROGRESS"
	})

	// A commit that is refused: what serves stays.
	s.write(map[string]string{"automations/charge-dispute/automation.md": "---\nagent: financier\ntriggers:\n  - provider: webhook\n    event: recieved\n    filter: {webhooks: [stripe]}\n---\nTell finance.\n"})
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "Route disputes to finance")
	_ = s.command("apply").Run() // it is refused
	var applies []api.Apply
	s.list(&applies, "applies", "list")
	s.apply = applies[0].ID
	return s
}

// send sends a delivery, and returns its identifier, if it got one.
func (s *story) send(secret, webhook string, args ...string) string {
	s.t.Helper()
	cmd := s.command(append([]string{"send", webhook}, args...)...)
	cmd.Env = append(cmd.Env, "TRIPHAMMER_WEBHOOK_SECRET="+storySecrets[secret])
	out, err := cmd.CombinedOutput()
	if refused := slices.Contains(args, "--tamper"); err != nil && !refused {
		s.t.Fatalf("send %s: %v\n%s", webhook, err, out)
	}
	return regexp.MustCompile(`dlv_[0-9a-z]+`).FindString(string(out))
}

// tells waits until a subject is found, and makes it the subject of the pages.
func (s *story) tells(subject string) {
	s.t.Helper()
	s.subject = subject
	s.until("the subject "+subject+" is not found", func() bool { return s.command("subjects", "show", subject).Run() == nil })
}

func (s *story) until(what string, done func() bool) {
	s.t.Helper()
	if err := client.WaitFor(s.t.Context(), patience, what, func() (bool, error) { return done(), nil }); err != nil {
		s.t.Fatal(err)
	}
}
