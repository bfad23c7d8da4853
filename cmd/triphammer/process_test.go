package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term/termtest"
	"triphammer/cmd/triphammer/host"
)

// mentions checks that a text has each of the parts.
func mentions(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// TestSilentServer: a command that a server does not answer says why, and what to do, whatever
// kept the server from it.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.plainUser()
	w.start()
	data, process := filepath.Join(w.dir, "data"), w.cmd.Process
	freeze := func(signal syscall.Signal) {
		t.Helper()
		if err := process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
	for _, args := range [][]string{{"apply"}, {"status"}, {"serve", "--repo", "repo", "--listen", "127.0.0.1:0"}} {
		freeze(syscall.SIGSTOP)
		mentions(t, w.fails(exit.Unreachable, args...), "in use by another process, which does not answer on its socket", "deadline exceeded", "kill -CONT")
		freeze(syscall.SIGCONT)
	}
	mentions(t, w.fails(exit.Usage, "serve", "--repo", "repo", "--data", "else", "--listen", w.addr), "--listen: another program listens on "+w.addr, "--listen 127.0.0.1:0 takes any free port")

	// Somebody who looks elsewhere is told where a server is.
	mentions(t, w.fails(exit.Unreachable, "apply", "--data", "elsewhere"), "no server is running on elsewhere", "A server runs on another data directory: --data "+data)

	if err := os.Remove(filepath.Join(data, host.SocketName)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply"}, {"status"}} {
		mentions(t, w.fails(exit.Unreachable, args...), "which does not answer on its socket", "no such file", "its socket server.sock was removed, end it")
	}
}

// TestStopFirst: a command that has a data directory for itself does not run beside a server.
func TestStopFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.start()
	w.run("", "db", "backup", "copy.db")
	const nowhere = "postgres://nobody@127.0.0.1:1/nothing"
	for _, args := range [][]string{
		{"db", "restore", "copy.db"},
		{"secrets", "reseal"},
		{"store", "copy", "--from", "data", "--to", nowhere},
		{"store", "copy", "--from", nowhere, "--to", "data"},
	} {
		mentions(t, w.fails(exit.Conflict, args...), "data is in use by another process: stop it first")
	}
}

// TestBackupPlaces: a backup is neither written to a terminal nor made the store of a data directory
// whose server has its store elsewhere.
func TestBackupPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.start()
	w.run("", "db", "backup", "copy.db")
	person, program := termtest.Open(t)
	go func() { _, _ = io.Copy(io.Discard, person) }() // it ends when the test closes the terminal
	var said strings.Builder
	cmd := w.command("db", "backup", "-")
	cmd.Stdout, cmd.Stderr = program, &said
	if err := cmd.Run(); exitStatus(err) != exit.Usage {
		t.Errorf("to a terminal: %v", err)
	}
	mentions(t, said.String(), "standard output is a terminal")

	joined := filepath.Join(w.dir, "joined")
	key, err := os.ReadFile(filepath.Join(w.dir, "data", host.KeyName))
	err = errors.Join(err, os.Mkdir(joined, 0o700), os.WriteFile(filepath.Join(joined, host.KeyName), key, 0o600),
		os.WriteFile(filepath.Join(joined, host.AddressFile), []byte("postgres://ada:c4nary@db.example.com/hammer\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	out := w.fails(exit.Conflict, "db", "restore", "copy.db", "--data", "joined")
	mentions(t, out, "joined belongs to a server whose store is postgres://db.example.com/hammer", "triphammer db copy --from")
	if strings.Contains(out, "c4nary") {
		t.Error(out)
	}
}

// TestWaitEnds: status --wait ends in time, also if a server takes the request and does not answer.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "status", "--wait", "--timeout", "1s", "--server", silent.URL)
	cmd.Env = environment(t.TempDir())
	if out, err := cmd.CombinedOutput(); exitStatus(err) != exit.Timeout {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNotMyData: somebody who may not look into a data directory is told whose it is.
func TestNotMyData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	data := filepath.Join(w.dir, "data")
	code, is := exit.Auth, "is that of the user root"
	if w.plainUser(); w.user == nil { // only root can be another user
		code, is = exit.Usage, "its mode keeps you out"
		if err := os.Chmod(data, 0); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Lchown(data, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(data, 0o700) })
	for _, args := range [][]string{{"apply"}, {"status"}, {"serve", "--repo", "repo", "--listen", "127.0.0.1:0"}} {
		mentions(t, w.fails(code, args...), "the data directory", is)
	}
}
