package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/host"
	"triphammer/server/api"
)

// TestDevSavedWhileItStarts: dev serves what was saved last, also if somebody saves again in the
// moment in which it starts, and also if a file is half written then.
func TestDevSavedWhileItStarts(t *testing.T) {
	t.Parallel()
	for name, half := range map[string]bool{"whole": false, "in halves": true} {
		t.Run(name, func(t *testing.T) { savedWhileItStarts(t, half) })
	}
}

func savedWhileItStarts(t *testing.T, half bool) {
	home := t.TempDir()
	folder := filepath.Join(home, "demo")
	start := exec.Command(binary, "init", "demo")
	start.Dir, start.Env = home, environment(home)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(folder, "automations", "hello", "automation.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var shown lockedText
	cmd := exec.Command(binary, "dev", folder, "--port", "0", "--no-delivery")
	cmd.Stdout, cmd.Stderr = &shown, &shown
	cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it has ended unless the test failed
	data := filepath.Join(folder, host.DevFolder, "data")
	save := func(n int) {
		t.Helper()
		saved := fmt.Appendf(text, "Save %d.\n", n)
		if half && n%2 == 0 {
			saved = saved[:5]
		}
		err := os.WriteFile(file+".tmp", saved, 0o600)
		if err := errors.Join(err, os.Rename(file+".tmp", file)); err != nil { // as editors do
			t.Fatal(err)
		}
	}
	saves := 0
	err = client.WaitFor(t.Context(), 60*time.Second, "dev does not serve", func() (bool, error) {
		save(saves)
		cl, err := host.SocketClient(t.Context(), data)
		if err != nil {
			return false, nil
		}
		defer cl.Close()
		for ; saves < 500; saves++ { // each between two requests
			save(saves)
			if err := cl.Get(t.Context(), "/status", nil); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err == nil {
		err = client.WaitFor(t.Context(), 30*time.Second, "what was saved last does not serve", func() (bool, error) {
			return strings.Contains(shown.String(), "Ctrl-C ends it."), nil
		})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, shown.String())
	}
}

// TestDevTellsAll: dev has a line for each delivery and each run of a burst, and for each of several
// saves in a moment.
func TestDevTellsAll(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	folder := filepath.Join(home, "demo")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("init", "demo")
	var shown lockedText
	cmd := exec.Command(binary, "dev", folder, "--port", "0", "--rate-limit", "0", "--no-delivery")
	cmd.Stdout, cmd.Stderr = &shown, &shown
	cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it has ended unless the test failed
	until := func(what string, done func() bool) {
		t.Helper()
		if err := client.WaitFor(context.Background(), 60*time.Second, what, func() (bool, error) { return done(), nil }); err != nil {
			t.Fatalf("%v:\n%s", err, shown.String())
		}
	}
	data := filepath.Join(folder, host.DevFolder, "data")
	until("dev does not serve", func() bool { return strings.Contains(shown.String(), "Ctrl-C ends it.") })
	cl, err := host.SocketClient(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	count := func(path string) int {
		t.Helper()
		all, err := client.Collect[api.Apply](t.Context(), cl, path, url.Values{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before, saves := count("/applies"), 8
	file := filepath.Join(folder, "automations", "hello", "automation.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range saves { // without a pause, in less than the feed takes to look twice
		if err := os.WriteFile(file, fmt.Appendf(text, "Save %d.\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(60 * time.Second); count("/applies") <= before+n; {
			if time.Now().After(deadline) {
				t.Fatal("a save is not applied")
			}
		}
	}
	secret := filepath.Join(data, host.MadeFolder, "HELLO_WEBHOOK_SECRET")
	run("send", "hello", "--data", data, "--secret-file", secret, "--payload", `{"event": "other"}`, "--count", "400")
	run("send", "hello", "--data", data, "--secret-file", secret, "--payload", `{"event": "greet"}`, "--count", "40")
	ended := 0
	until("the runs do not end", func() bool {
		all, err := client.Collect[api.Run](t.Context(), cl, "/agent/runs", url.Values{"state": {"SUCCEEDED"}}, 0)
		ended = len(all)
		return err == nil && ended == 40
	})
	applies := count("/applies") - before
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, shown.String())
	}
	out := shown.String()
	lines := func(of string) int { return len(regexp.MustCompile(`(?m)^[0-9:]{8}  `+of).FindAllString(out, -1)) }
	if got := lines("dlv_"); got != 440 {
		t.Errorf("the lines tell of %d deliveries, not of 440:\n%s", got, out)
	}
	if got := lines("run_"); got != ended {
		t.Errorf("the lines tell of %d runs, not of %d:\n%s", got, ended, out)
	}
	if got := lines("saved"); got != applies || applies < saves {
		t.Errorf("the lines tell of %d saves, and %d were applied:\n%s", got, applies, out)
	}
}

// lockedText is text that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
