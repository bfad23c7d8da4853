//go:build full

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term/termtest"
	"triphammer/server/api"
)

// until asks for the status until it is so.
func (w *world) until(what string, is func(api.FactoryStatus) bool) api.FactoryStatus {
	w.t.Helper()
	var s api.Status
	err := client.WaitFor(w.t.Context(), 30*time.Second, what, func() (bool, error) {
		s = api.Status{} // fields that are left out stay as they were
		w.list(&s, "status")
		return is(s.Factories[0]), nil
	})
	if err != nil {
		w.t.Fatalf("%v: %+v", err, s.Factories[0])
	}
	return s.Factories[0]
}

// TestStuckRepository: a server that answers a little all the time is a problem
// like any other: seen in the status and in the metric, and over when it is over.
// While it lasts, a secret that appears and a pin that ends need no repository.
func TestStuckRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n"})
	bare := filepath.Join(w.dir, "served", "factory.git")
	w.git("clone", "-q", "--bare", ".", bare)
	git := gittest.Serve(t, filepath.Dir(bare))
	w.start("--repo", git.URL+"/factory.git", "--git-ca-file", git.CAFile, "--poll", "1s", "--git-timeout", "4s")
	first := w.until("the first commit", func(s api.FactoryStatus) bool { return s.State == "live" })
	git.Fault(func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = rw.Write([]byte("fff0"))
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return true
			case <-tick.C:
				_, _ = rw.Write([]byte("x"))
				_ = http.NewResponseController(rw).Flush()
			}
		}
	})
	w.until("a look lasts", func(s api.FactoryStatus) bool { return s.LookingSince != nil })
	err := client.WaitFor(t.Context(), 30*time.Second, "the status says so to people", func() (bool, error) {
		return strings.Contains(w.run("", "status"), "\nlooking      at the repository since "), nil
	})
	if err != nil {
		t.Error(err)
	}
	s := w.until("it is given up", func(s api.FactoryStatus) bool { return s.State == "failing" })
	if s.Reason != "unreachable" || !strings.Contains(s.Error, "--git-timeout") || s.Applied.Commit != first.Head {
		t.Errorf("%+v", s)
	}
	current := func(want string) bool {
		return strings.Contains(string(post(t, "GET", "http://"+w.addr+"/metrics", nil, nil).body), `triphammer_definitions_current{factory="default"} `+want+"\n")
	}
	if !current("0") {
		t.Error("the metric says that the newest commit serves")
	}
	w.run("", "definition", "pin", first.Head, "--reason", "just so", "--until", "2s")
	err = client.WaitFor(t.Context(), 30*time.Second, "the pin runs out", func() (bool, error) {
		return strings.Contains(w.run("", "audit", "list"), "the pin ran out at "), nil
	})
	if err != nil {
		t.Error(err)
	}
	git.Fault(nil)
	w.until("it answers again", func(s api.FactoryStatus) bool { return s.State == "live" && s.Pin == nil })
	if !current("1") {
		t.Error("the metric says that the newest commit does not serve")
	}
	w.kill()
}

// TestSecretAppears: a commit that was refused for a secret that is missing from
// the folder, or does not suit, applies when the file is there or another one (SPEC
// 4.4).
func TestSecretAppears(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: FROM_FOLDER\nauthMode: url_token\n"})
	folder := filepath.Join(w.dir, "secrets")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.start("--secrets-dir", folder)
	w.until("it is refused", func(s api.FactoryStatus) bool { return strings.Contains(s.Error, "no managed secret FROM_FOLDER") })
	set("ANOTHER", "x")
	set("FROM_FOLDER", "not/suitable")
	w.until("it does not suit", func(s api.FactoryStatus) bool { return strings.Contains(s.Error, "does not suit") })
	set("FROM_FOLDER", "suitable")
	s := w.until("it suits", func(s api.FactoryStatus) bool { return s.State == "live" })
	if s.LastApply.Trigger != "secret" {
		t.Errorf("%+v", s.LastApply)
	}
}

// TestBackdatedCommit: a commit that is signed with an expired key and gives an
// earlier date applies with a warning, or with --verify-time arrived not at all;
// but one that came in time goes on to.
func TestBackdatedCommit(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	dir := t.TempDir()
	key, keys := filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	if out, err := exec.Command("ssh-keygen", "-q", "-N", "", "-C", "", "-t", "ed25519", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	allow := func(options string) {
		t.Helper()
		if err := os.WriteFile(keys, []byte("ada@example.com "+options+" "+string(public)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sign := func(date string) {
		t.Helper()
		t.Setenv("GIT_COMMITTER_DATE", date)
		w.git("-c", "gpg.format=ssh", "-c", "user.signingkey="+key, "commit", "-q", "--allow-empty", "-S", "-m", "signed")
	}
	sign("2025-06-01T00:00:00Z")
	allow(`valid-before="20260101Z"`)
	w.start("--verify-keys", keys)
	s := w.until("it applies", func(s api.FactoryStatus) bool { return s.State == "live" })
	if !strings.Contains(string(s.LastApply.Diagnostics), "TH_EXPIRED_SIGNER") {
		t.Errorf("nothing is said: %s", s.LastApply.Diagnostics)
	}
	w.kill()
	w.start("--verify-keys", keys, "--verify-time", "arrived")
	sign("2025-06-02T00:00:00Z")
	s = w.until("the next one is refused", func(s api.FactoryStatus) bool { return s.Reason == "unverified" })
	if !strings.Contains(s.Error, "the time at which it arrived is ") {
		t.Error(s.Error)
	}
	allow("")
	w.run("", "apply")
	// It came while the key was valid, and that is over now.
	over := s.LastApply.At.Add(time.Second).Truncate(time.Second).Add(time.Second)
	allow(`valid-before="` + over.UTC().Format("20060102150405") + `Z"`)
	err = client.WaitFor(t.Context(), 30*time.Second, "the key expires", func() (bool, error) { return time.Now().After(over), nil })
	if err != nil {
		t.Fatal(err)
	}
	w.run("", "apply")
	allow(`valid-before="` + s.LastApply.At.Add(-time.Minute).UTC().Format("20060102150405") + `Z"`)
	if out := w.fails(exit.Bad, "apply"); !strings.Contains(out, "the time at which it arrived is ") {
		t.Error(out)
	}
}

// TestApplyShowsProgress: somebody who waits in a terminal for a slow repository, for an apply or
// for the end of a pin, sees how far it is, and at the end nothing of that but the outcome.
func TestApplyShowsProgress(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	bare := filepath.Join(w.dir, "served", "factory.git")
	w.git("clone", "-q", "--bare", ".", bare)
	git := gittest.Serve(t, filepath.Dir(bare))
	w.start("--repo", git.URL+"/factory.git", "--git-ca-file", git.CAFile)
	w.until("the first commit", func(s api.FactoryStatus) bool { return s.State == "live" })
	var out strings.Builder
	for _, args := range [][]string{{"apply"}, {"definition", "unpin"}} {
		if len(args) > 1 {
			w.run("", "definition", "pin", strings.Fields(out.String())[1], "--reason", "to stay there")
		}
		seen := make(chan struct{})
		git.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				select {
				case <-seen:
				case <-r.Context().Done():
				}
			}
			return false
		})
		w.write(map[string]string{"factory.yaml": factoryYAML + "description: next for " + args[0] + "\n"})
		w.push()
		w.git("push", "-q", bare, "main")

		person, program := termtest.Open(t)
		out.Reset()
		apply := w.command(args...)
		apply.Env = append(apply.Env, "TERM=xterm")
		apply.Stdout, apply.Stderr = &out, program
		if err := apply.Start(); err != nil {
			t.Fatal(err)
		}
		if err := program.Close(); err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		buf, released := make([]byte, 1<<10), false
		for {
			n, err := person.Read(buf)
			shown.Write(buf[:n])
			if !released && strings.Contains(shown.String(), "\rreading the repository, ") {
				released = true
				close(seen)
			}
			if err != nil { // nobody has the terminal open any more
				break
			}
		}
		if err := apply.Wait(); err != nil || !released {
			t.Errorf("%v: %q", err, &shown)
		}
		lines := strings.Split(shown.String(), "\r")
		if n := len(lines); lines[n-1] != "" || strings.TrimSpace(lines[n-2]) != "" {
			t.Errorf("the line is not removed: %q", &shown)
		}
		if !strings.HasPrefix(out.String(), "applied ") || strings.Contains(out.String(), "reading") {
			t.Errorf("the outcome: %q", &out)
		}
	}
}
