package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestLockMoved: a data directory that is moved under a running server, and reached by another
// name, lets nobody else in.
func TestLockMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.start()
	data, moved := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "moved")
	if err := errors.Join(os.Rename(data, moved), os.Symlink("moved", data)); err != nil {
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
