package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/host"
)

// fails runs a command that must end with that status, and returns what it said.
func (w *world) fails(status int, args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); exitStatus(err) != status {
		w.t.Fatalf("triphammer %v: %v, not exit status %d\n%s", args, err, status, out.String())
	}
	return out.String()
}

func smallFactory() map[string]string {
	return map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n", "webhooks/hook.yaml": "secretName: S\n",
		"automations/a.md": automationFile("hook", ""),
	}
}

// TestLockRemoved: a data directory whose lock file is deleted and made anew under
// a running server, and that is reached by another name, lets nobody else in.
func TestLockRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.start()
	data, moved := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "moved")
	lock := filepath.Join(data, "lock")
	if err := errors.Join(os.Remove(lock), os.WriteFile(lock, nil, 0o600), os.Rename(data, moved), os.Symlink("moved", data)); err != nil {
		t.Fatal(err)
	}
	w.run("", "status") // which goes through the server
	if said := w.fails(exit.Unreachable, "serve", "--repo", "repo", "--listen", freeAddress(t)); !strings.Contains(said, "a server is running on it") {
		t.Errorf("a second server: %s", said)
	}
	// Neither does a command that cannot ask the server.
	if err := os.Remove(filepath.Join(data, host.SocketName)); err != nil {
		t.Fatal(err)
	}
	if said := w.fails(exit.Conflict, "secrets", "reseal"); !strings.Contains(said, "stop it first") {
		t.Errorf("reseal: %s", said)
	}
	w.kill()
	w.run("", "runs", "list")
}

// TestFirstStartKilled: a first start that is cut off at any moment leaves nothing
// that the next one stumbles over, and never two keys.
func TestFirstStartKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	random := rand.New(rand.NewPCG(1, 2))
	killed := 0
	began := time.Now()
	w.run("", "keys", "create", "k", "--data", filepath.Join(w.dir, "fresh", "whole"))
	took := time.Since(began)
	for n := range 10 {
		data := filepath.Join(w.dir, "fresh", string(rune('a'+n)))
		// The moments are those of a whole start. On a machine that becomes slower, later ones come
		// too, so that a start ends at last.
		for within, finished := took, false; !finished; within += within / 10 {
			cmd := exec.Command(binary, "keys", "create", "k", "--data", data)
			cmd.Env = environment(w.dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(time.Duration(random.Int64N(int64(within))), func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			kill.Stop()
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.Exited() && ended.ExitCode() != exit.Conflict { // the key may be there, of an attempt that was killed after it
				t.Fatalf("after a cut-off start: %v", err)
			}
			if finished = err == nil || ended.Exited(); !finished {
				killed++
			}
		}
		if left, err := filepath.Glob(filepath.Join(data, "*.new*")); err != nil || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
		if out := w.run("", "keys", "list", "--data", data, "-o", "name"); !strings.HasPrefix(out, "key_") {
			t.Errorf("keys: %q", out)
		}
	}
	if killed == 0 {
		t.Error("none was killed")
	}
	t.Logf("killed %d times", killed)
}
