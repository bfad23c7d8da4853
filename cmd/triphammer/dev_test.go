//go:build linux && !client

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/api"
)

// pseudoTerminal is a terminal for a program: what is written to it are keys.
func pseudoTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// lineMode tells whether a terminal gives whole lines, and echoes.
func lineMode(t *testing.T, f *os.File) bool {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return m.Lflag&unix.ICANON != 0 && m.Lflag&unix.ECHO != 0
}

// TestDevKeys: on a terminal dev takes keys, and the terminal is as it was after q and after
// Ctrl-C.
func TestDevKeys(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"q", "\x03"} {
		home := t.TempDir()
		run := func(args ...string) string {
			cmd := exec.Command(binary, args...)
			cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		run("init", "demo")
		person, program := pseudoTerminal(t)
		cmd := exec.Command(binary, "dev", filepath.Join(home, "demo"), "--port", "0")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
		cmd.Dir, cmd.Env = home, append(environment(home), "TRIPHAMMER_DATA=", "TERM=xterm")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		defer func() { _ = cmd.Process.Kill() }() // it has ended unless the test failed
		var mu sync.Mutex
		var shown bytes.Buffer
		go func() { // it ends when the test closes the terminal
			part := make([]byte, 4096)
			for {
				n, err := person.Read(part)
				mu.Lock()
				shown.Write(part[:n])
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
		text := func() string {
			mu.Lock()
			defer mu.Unlock()
			return shown.String()
		}
		see := func(want string, times int) {
			t.Helper()
			err := waitFor(context.Background(), 60*time.Second, "no "+want, func() (bool, error) { return strings.Count(text(), want) >= times, nil })
			if err != nil {
				t.Fatalf("%v:\n%s", err, text())
			}
		}
		press := func(key string) {
			t.Helper()
			if _, err := person.WriteString(key); err != nil {
				t.Fatal(err)
			}
		}
		see("Keys: ", 1)
		see("SUCCEEDED", 1)
		if lineMode(t, program) {
			t.Error("the terminal gives whole lines while dev takes keys")
		}
		if !strings.Contains(text(), colourGood+"✓") {
			t.Errorf("no colours:\n%s", text())
		}
		press("r")
		see("replays dlv_", 1)
		see("SUCCEEDED", 2)
		press("?")
		see("this help", 1)
		press("o")
		see("works once", 2)
		press(last)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("after %q: %v\n%s", last, err, text())
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("%q does not end it:\n%s", last, text())
		}
		if !lineMode(t, program) {
			t.Errorf("after %q the terminal is not as it was", last)
		}
	}
}

// dieVariable makes the program of the tests take keys from its terminal, and die in some way at
// the first.
const dieVariable = "KEYBOARD_DIES"

func dieWithKeyboard(how string) {
	openKeyboard(os.Stdin).keys(context.Background(), func(byte) {
		switch how {
		case "here":
			panic(how)
		case "elsewhere":
			go panic(how)
		case "killed":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "dumped":
			_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		}
		select {}
	})
}

// TestKeyboardDies: a program that takes keys leaves the terminal as it was when the handling of a
// key panics, when another part does, when a stack dump ends it, and when it is killed.
func TestKeyboardDies(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"here", "elsewhere", "killed", "dumped"} {
		person, program := pseudoTerminal(t)
		cmd := exec.Command("sh", "-c", `"$0"; echo "ended with $?"; read line`, os.Args[0]) // the leader of the session stays, as a shell does
		var shown lockedText
		cmd.Stdout = &shown
		cmd.Stdin, cmd.Env = program, append(os.Environ(), dieVariable+"="+how)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := waitFor(context.Background(), 120*time.Second, "it takes no keys", func() (bool, error) { return !lineMode(t, program), nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := person.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		err = waitFor(context.Background(), 30*time.Second, "the terminal is not as it was", func() (bool, error) {
			return strings.Contains(shown.String(), "ended with ") && lineMode(t, program), nil
		})
		if err != nil || strings.Contains(shown.String(), "ended with 0") {
			t.Errorf("%s: %v, %s", how, err, shown.String())
		}
		if _, err := person.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestDevStops: Ctrl-Z gives the terminal back to the shell as it was, and fg takes keys again;
// in the background dev leaves the terminal alone.
func TestDevStops(t *testing.T) {
	home := t.TempDir()
	start := exec.Command(binary, "init", "demo")
	start.Dir, start.Env = home, environment(home)
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := startShell(t, home)
	s.write("triphammer dev demo --port 0 --no-delivery\n")
	s.see("Keys: ", 1)
	s.until("no keys are taken", func() bool { return !lineMode(t, s.program) })
	for n := 1; n <= 2; n++ {
		s.write("\x1a")
		s.prompted()
		if !lineMode(t, s.program) {
			t.Errorf("the shell got the terminal in another mode:\n%s", s.shown.String())
		}
		s.write("fg\n")
		s.until("no keys are taken after fg", func() bool { return !lineMode(t, s.program) })
		s.write("?")
		s.see("this help", n)
		s.write("\x1a")
		s.prompted()
		s.write("bg\n")
		s.prompted()
		s.write(fmt.Sprintf("echo still-$((%d+10))\n", n)) // dev runs, and leaves the terminal and the line to the shell
		s.see(fmt.Sprintf("still-%d", n+10), 1)
		s.prompted()
		if !lineMode(t, s.program) {
			t.Errorf("dev in the background takes the terminal:\n%s", s.shown.String())
		}
		s.write("fg\n")
		s.until("no keys are taken after bg and fg", func() bool { return !lineMode(t, s.program) })
	}
	s.write("q")
	s.until("the terminal is not as it was after q", func() bool { return lineMode(t, s.program) })
	s.write("echo left-$?; exit\n")
	s.see("left-0", 1)
	if err := s.shell.Wait(); err != nil {
		t.Error(err)
	}
}

// atShell is a person at a plain shell with jobs.
type atShell struct {
	t               *testing.T
	person, program *os.File // the two sides of the terminal
	shown           lockedText
	shell           *exec.Cmd
	prompts         int
}

func startShell(t *testing.T, home string) *atShell {
	t.Helper()
	s := &atShell{t: t, shell: exec.Command("sh", "-i")}
	s.person, s.program = pseudoTerminal(t)
	go func() { _, _ = io.Copy(&s.shown, s.person) }() // it ends when the test closes the terminal
	s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = s.program, s.program, s.program
	s.shell.Dir, s.shell.Env = home, append(environment(home), "TRIPHAMMER_DATA=", "TERM=dumb", "PS1=shell> ", "ENV=")
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.shell.Process.Kill() }) // it has ended unless the test failed
	s.prompted()
	return s
}

func (s *atShell) until(what string, done func() bool) {
	s.t.Helper()
	if err := waitFor(context.Background(), 60*time.Second, what, func() (bool, error) { return done(), nil }); err != nil {
		s.t.Fatalf("%v:\n%s", err, s.shown.String())
	}
}

func (s *atShell) see(want string, times int) {
	s.t.Helper()
	s.until("no "+want, func() bool { return strings.Count(s.shown.String(), want) >= times })
}

func (s *atShell) write(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// prompted waits for the next prompt of the shell.
func (s *atShell) prompted() {
	s.t.Helper()
	s.prompts++
	s.see("shell> ", s.prompts)
}

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
	data := filepath.Join(folder, devFolder, "data")
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
	err = waitFor(t.Context(), 60*time.Second, "dev does not serve", func() (bool, error) {
		save(saves)
		cl, err := socketClient(t.Context(), data)
		if err != nil {
			return false, nil
		}
		defer cl.close()
		for ; saves < 500; saves++ { // each between two requests
			save(saves)
			if err := cl.get(t.Context(), "/status", nil); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err == nil {
		err = waitFor(t.Context(), 30*time.Second, "what was saved last does not serve", func() (bool, error) {
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

// TestDevTellsAll: what dev prints of a burst sums up to all deliveries and all runs, and each of
// several saves in a moment has its line.
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
		if err := waitFor(context.Background(), 60*time.Second, what, func() (bool, error) { return done(), nil }); err != nil {
			t.Fatalf("%v:\n%s", err, shown.String())
		}
	}
	data := filepath.Join(folder, devFolder, "data")
	until("dev does not serve", func() bool { return strings.Contains(shown.String(), "Ctrl-C ends it.") })
	cl, err := socketClient(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	count := func(path string) int {
		t.Helper()
		all, err := collect[api.Apply](t.Context(), cl, path, url.Values{}, 0)
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
	secret := filepath.Join(data, madeFolder, "HELLO_WEBHOOK_SECRET")
	run("send", "hello", "--data", data, "--secret-file", secret, "--payload", `{"event": "other"}`, "--count", "400")
	run("send", "hello", "--data", data, "--secret-file", secret, "--payload", `{"event": "greet"}`, "--count", "40")
	ended := 0
	until("the runs do not end", func() bool {
		all, err := collect[api.Run](t.Context(), cl, "/agent/runs", url.Values{"state": {"SUCCEEDED"}}, 0)
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
	sum := func(line, more string) (all int) {
		for _, m := range regexp.MustCompile(more).FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(m[1])
			all += n
		}
		t.Logf("%s: %d in lines of counts", line, all)
		return all + len(regexp.MustCompile(`(?m)^[0-9:]{8}  `+line).FindAllString(out, -1))
	}
	if got := sum("dlv_", `and (\d+) more deliver`); got != 440 {
		t.Errorf("the lines tell of %d deliveries, not of 440:\n%s", got, out)
	}
	if got := sum("run_", `and (\d+) more ended run`); got != ended {
		t.Errorf("the lines tell of %d runs, not of %d:\n%s", got, ended, out)
	}
	if got := sum("saved", `none (\d)`); got != applies || applies < saves {
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
