package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term/termtest"
)

// asPerson is a command of somebody who has contexts at home.
func asPerson(home string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=", "TRIPHAMMER_SERVER=", "TRIPHAMMER_CONTEXT=", "TRIPHAMMER_API_KEY=")
	return cmd
}

// TestContextsAtOnce: of contexts that many processes save at once, none is lost.
func TestContextsAtOnce(t *testing.T) {
	home := t.TempDir()
	const many = 16
	ended := make(chan error, many)
	for n := range many {
		cmd := asPerson(home, "context", "add", fmt.Sprintf("c%d", n), "--server", "http://127.0.0.1:1", "--unchecked")
		cmd.Stdin = strings.NewReader(fmt.Sprintf("thk_key%d\n", n))
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			ended <- err
		}()
	}
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	file := filepath.Join(home, ".config", "triphammer", client.ContextsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range many {
		if !strings.Contains(string(text), fmt.Sprintf(`"thk_key%d"`, n)) {
			t.Errorf("c%d is lost:\n%s", n, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestKeyUnseen: a terminal does not show the key that a person types, and shows what is typed
// afterwards, also after Ctrl-C.
func TestKeyUnseen(t *testing.T) {
	for _, c := range []struct {
		typed string
		want  int
	}{{"thk_typed\n", 0}, {"thk_typed\x03", exit.Interrupted}} {
		home := t.TempDir()
		person, program := termtest.Open(t)
		var shown lockedText
		go func() { _, _ = io.Copy(&shown, person) }() // it ends when the test closes the terminal
		cmd := asPerson(home, "context", "add", "prod", "--server", "http://127.0.0.1:1", "--unchecked")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }() // it has ended unless the test failed
		err := client.WaitFor(context.Background(), 30*time.Second, "nothing asks for the key", func() (bool, error) {
			return strings.Contains(shown.String(), "Value of the API key: ") && !termtest.LineMode(t, program), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := person.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err = <-ended:
		case <-time.After(30 * time.Second):
			t.Fatalf("%q does not end it:\n%s", c.typed, shown.String())
		}
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != c.want {
			t.Errorf("%q: it ended with %v:\n%s", c.typed, err, shown.String())
		}
		if strings.Contains(shown.String(), "typed") {
			t.Errorf("%q: the key is shown:\n%s", c.typed, shown.String())
		}
		if !termtest.LineMode(t, program) {
			t.Errorf("%q: the terminal is not as it was", c.typed)
		}
		if _, err := os.Stat(filepath.Join(home, ".config", "triphammer", client.ContextsFile)); (err == nil) != (c.want == 0) {
			t.Errorf("%q: saved: %v", c.typed, err)
		}
	}
}

// TestKeyStays: the key of a context goes to its server, also from mcp, and not to another to
// which that server redirects.
func TestKeyStays(t *testing.T) {
	t.Parallel()
	var strangers, own atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer thk_mine" {
				own.Add(1)
			}
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		home := t.TempDir()
		add := asPerson(home, "context", "add", "prod", "--server", moved.URL, "--unchecked")
		add.Stdin = strings.NewReader("thk_mine\n")
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, args := range [][]string{{"status"}, {"runs", "list"}, {"runs", "create", "--prompt", "x"}, {"api", "GET", "/status"}, {"mcp"}} {
			before := own.Load()
			cmd := asPerson(home, args...)
			cmd.Stdin = strings.NewReader("")
			out, err := cmd.CombinedOutput()
			if err == nil || own.Load() == before {
				t.Errorf("%v after %d: %v; with the key: %d\n%s", args, status, err, own.Load()-before, out)
			}
		}
		moved.Close()
	}
	if n := strangers.Load(); n > 0 {
		t.Errorf("another server got %d requests", n)
	}
}
