package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
)

// TestHostedKill kills the server at any moment of pushes and changes, in make test-full 40
// times, and every second time all programs of git with it. After each restart, the
// repository is whole, what was acknowledged is on the branch, and what serves is its newest
// commit (SPEC 18.1).
func TestHostedKill(t *testing.T) {
	t.Parallel()
	kills := 6
	if thorough {
		kills = 40
	}
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	w.cleanUp()
	start := func() {
		w.startWith(func(cmd *exec.Cmd) {
			cmd.Path = plain // tens of starts are to hit moments
			cmd.Args = []string{cmd.Args[0], "serve", "--hosted", "payments", "--max-runs", "0"}
			cmd.SysProcAttr.Setpgid = true // so that its children can be killed with it
		})
	}
	start()
	w.run(testSecret, "secrets", "set", "S")
	key := strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "manage"))
	w.run("schemaVersion: v1alpha1\nname: Test\n", "definition", "put", "factory.yaml=-")
	bare := filepath.Join(w.dir, "data", "hosted", "payments.git")
	var f api.FactoryStatus
	w.list(&f, "factories", "show")
	git := func(dir string, args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(environment(w.dir), "GIT_TERMINAL_PROMPT=0")
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	must := func(dir string, args ...string) string {
		t.Helper()
		out, err := git(dir, args...)
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return out
	}
	work := filepath.Join(w.dir, "clone")
	must(w.dir, "clone", "-q", strings.Replace(f.CloneURL, "://", "://k:"+key+"@", 1), work)

	// push makes a commit and pushes it. change lets the server make one. Both return the
	// commit if they were told that it was made.
	n := 0
	push := func() string {
		n++
		must(work, "fetch", "-q", bare, "main")
		must(work, "reset", "-q", "--hard", "FETCH_HEAD")
		name := filepath.Join(work, "webhooks", fmt.Sprintf("w%d.yaml", n%8))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, fmt.Appendf(nil, "secretName: S\n# %d\n", n), 0o644)); err != nil {
			t.Fatal(err)
		}
		must(work, "add", "-A")
		must(work, "commit", "-q", "-m", "Push")
		return must(work, "rev-parse", "HEAD")
	}
	send := func() bool {
		_, err := git(work, "push", "-q", "origin", "HEAD:main")
		return err == nil
	}
	change := func() string {
		body := fmt.Sprintf(`{"message":"Change","files":{"webhooks/c%d.yaml":"secretName: S\n# %d\n"}}`, n%8, n)
		req, err := http.NewRequest(http.MethodPost, "http://"+w.addr+"/api/v1/factories/payments/changes", strings.NewReader(body))
		if err != nil {
			return ""
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return ""
		}
		defer func() { _ = resp.Body.Close() }()
		var made api.Change
		if json.NewDecoder(resp.Body).Decode(&made) != nil || resp.StatusCode != http.StatusCreated {
			return ""
		}
		return made.Commit
	}
	// whole checks the repository and what serves.
	whole := func(kill int, acknowledged []string) {
		t.Helper()
		must(bare, "fsck", "--full", "--no-dangling")
		for _, commit := range acknowledged {
			if out, err := git(bare, "merge-base", "--is-ancestor", commit, "main"); err != nil {
				t.Fatalf("kill %d: the commit %s was acknowledged and is lost: %s", kill, commit, out)
			}
		}
		var f api.FactoryStatus
		head := ""
		for range 200 { // a program of git may have outlived the server, and moves the branch later
			w.list(&f, "factories", "show")
			if head = must(bare, "rev-parse", "main"); f.Applied != nil && f.Applied.Commit == head {
				break
			}
			w.run("", "status", "--wait", "--timeout", "30s")
		}
		if f.Applied == nil || f.Applied.Commit != head {
			t.Fatalf("kill %d: the branch is at %s, and serves %+v, %s", kill, head, f.Applied, f.Error)
		}
		var hooks []api.Webhook
		w.list(&hooks, "webhooks", "list")
		files := strings.Count(must(bare, "ls-tree", "-r", "--name-only", "main"), "webhooks/")
		if len(hooks) != files {
			t.Fatalf("kill %d: %d webhooks serve, and the commit has %d", kill, len(hooks), files)
		}
	}

	var acknowledged []string
	longest := 10 * time.Millisecond
	interrupted := 0
	for kill := range kills {
		commit, pushing := push(), kill%4 < 2
		done := make(chan string, 1)
		begun := time.Now()
		go func() {
			if !pushing {
				done <- change()
			} else if send() {
				done <- commit
			} else {
				done <- ""
			}
		}()
		if kill == 0 { // learns how long one takes
			made := <-done
			longest = time.Since(begun)
			acknowledged = append(acknowledged, made)
			continue
		}
		made, ended := "", false
		select {
		case made = <-done:
			ended = true
		case <-time.After(time.Duration(rand.Int64N(int64(longest)))):
			interrupted++
		}
		if kill%2 == 0 {
			_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // with the programs of git; it may have ended
		}
		w.kill()
		if !ended {
			made = <-done
		}
		if made != "" {
			acknowledged = append(acknowledged, made)
		}
		start()
		whole(kill, acknowledged)
	}
	if interrupted == 0 {
		t.Error("no push and no change was interrupted")
	}
	// Afterwards, both work as ever.
	commit := push()
	if !send() {
		t.Error("nobody can push any more")
	}
	made := change()
	if made == "" {
		t.Error("nobody can change anything any more")
	}
	whole(kills, append(acknowledged, commit, made))
	err := client.WaitFor(t.Context(), 30*time.Second, "a program of git outlives what it worked for", func() (bool, error) {
		folders, err := filepath.Glob("/proc/[0-9]*/cwd")
		return !slices.ContainsFunc(folders, func(name string) bool {
			at, err := os.Readlink(name)
			return err == nil && at == bare // else it has ended
		}), err
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d were interrupted; %d acknowledged", interrupted, kills, len(acknowledged))
}
