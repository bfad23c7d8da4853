package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/cmd/triphammer/host"
	"triphammer/server/inside"
	"triphammer/server/worker/harness"
)

// binary is the real program, built once: the tests start it as people do. Under the race
// detector it is a script, which starts a server or an executor with the detector, and all
// other commands without: the detector makes each start take four times as long, and the
// tests make thousands.
var binary string

// raced is the real program built as the test itself is: with the race detector, or without.
// plain is the program without the detector.
var raced, plain string

// clockVariable starts this program as the real one, with a clock that is so far
// ahead, or that shows what the file of that path says.
const clockVariable = "TRIPHAMMER_TEST_CLOCK"

// unfencedVariable lets such a program record what definitions decided that are dead.
const unfencedVariable = "TRIPHAMMER_TEST_UNFENCED"

// unguardedVariable lets such a worker go on with runs whose lease it has lost.
const unguardedVariable = "TRIPHAMMER_TEST_UNGUARDED"

// clockFile is its name, in the folder that has the data directory.
const clockFile = "clock"

// tellTimeBy makes a file the clock: it has a number of seconds since 1970. The clock goes on
// for less than a second, and then waits for the next.
func tellTimeBy(file string) {
	clock := func() time.Time {
		info, err := os.Stat(file)
		if err != nil {
			return time.Now()
		}
		text, _ := os.ReadFile(file) // it is there
		seconds, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Unix(seconds, 0).Add(min(time.Since(info.ModTime()), 900*time.Millisecond))
	}
	term.Now, host.Now, inside.Now, harness.Now = clock, clock, clock, clock
}

func missing(file string) bool {
	_, err := os.Stat(file)
	return err != nil
}

// atEnd is what stops what all tests share.
var atEnd []func()

func TestMain(m *testing.M) {
	if os.Getenv(watchedVariable) != "" {
		fmt.Fprintln(os.Stderr, "becoming a watched program:", becomeWatched())
		os.Exit(1)
	}
	if len(os.Args) > 2 && os.Args[1] == hostileCommand {
		os.Exit(hostileMain(os.Args[2:]))
	}
	if text := os.Getenv(clockVariable); text != "" {
		host.Unfenced, host.Unguarded = os.Getenv(unfencedVariable) != "", os.Getenv(unguardedVariable) != ""
		if filepath.IsAbs(text) {
			tellTimeBy(text)
		} else {
			ahead, err := time.ParseDuration(text)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			host.Now = func() time.Time { return time.Now().Add(ahead) }
			term.Now = host.Now
		}
		os.Exit(execute(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == inside.SuperviseCommand { // of a server with another clock
		// It runs in a folder of the data directory, and has no variable of the server.
		for dir, _ := os.Getwd(); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if file := filepath.Join(dir, clockFile); !missing(file) {
				tellTimeBy(file)
				break
			}
		}
		os.Exit(execute(os.Args[1:]))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "triphammer-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := buildProgram(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, stop := range slices.Backward(atEnd) {
			stop()
		}
	}()
	return m.Run()
}

// buildProgram makes what tests start, in a folder that the users of runs can reach.
func buildProgram(dir string) error {
	build := func(to string, flags ...string) error {
		if out, err := exec.Command("go", slices.Concat([]string{"build", "-tags", "recorded,supervisor"}, flags, []string{"-o", to, "."})...).CombinedOutput(); err != nil {
			return fmt.Errorf("building the program: %w\n%s", err, out)
		}
		return nil
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("making the program reachable: %w", err)
	}
	if out, err := exec.Command("make", "-C", "../..", "supervisor").CombinedOutput(); err != nil {
		return fmt.Errorf("building the supervisor: %w\n%s", err, out)
	}
	binary = filepath.Join(dir, "triphammer")
	raced, plain = binary, binary
	if !underRace {
		return build(plain)
	}
	raced, plain = filepath.Join(dir, "raced", "triphammer"), filepath.Join(dir, "plain", "triphammer")
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in\nserve | worker | dev | mcp | doctor | executor) exec %s \"$@\" ;;\nesac\nexec %s \"$@\"\n", raced, plain)
	return errors.Join(build(raced, "-race"), build(plain), os.WriteFile(binary, []byte(script), 0o755))
}

// environment is what a person's shell has: the program on the path, an identity
// for git, an address that is free.
func environment(home string) []string {
	return append(os.Environ(),
		"PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+home, "XDG_CONFIG_HOME=", "USER=ada",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "TRIPHAMMER_LISTEN=127.0.0.1:0",
		// Most tests share files with their agents. Those of walls set these themselves.
		"GORACE=atexit_sleep_ms=0", // a program under the race detector sleeps for a second at its end otherwise
		"TRIPHAMMER_ISOLATION=none", "TRIPHAMMER_RUN_USER=root", "TRIPHAMMER_CONTAINER_PROGRAM=none",
	)
}

// openDir is a temporary folder that the user of runs reaches, if that is another one.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// update writes what commands print into the scripts that compare it.
var update = flag.Bool("update", false, "write golden output")

func TestScripts(t *testing.T) {
	sent := &recorder{file: filepath.Join(t.TempDir(), "requests")}
	t.Cleanup(func() { sent.check(t, "testdata/script") }) // after all scripts
	runScripts(t, "testdata/script", sent)
}

func runScripts(t *testing.T, dir string, sent *recorder) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		WorkdirRoot:         openDir(t),
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			for _, v := range environment(e.WorkDir) {
				if name, value, _ := strings.Cut(v, "="); name != "WORK" && name != "TMPDIR" {
					e.Setenv(name, value)
				}
			}
			e.Setenv("TRIPHAMMER_DATA", filepath.Join(e.WorkDir, "data"))
			e.Setenv("RECORDED_REQUESTS", sent.file)
			sent.scripts.Add(1)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"api": callAPI, "exits": exits, "prints": prints, "setenv": setenv, "waitfor": waitForFile},
	})
}

// setenv NAME FILE sets a variable to what a file holds, or to its first match
// of a pattern: setenv NAME FILE PATTERN.
func setenv(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if len(args) > 2 {
		text = regexp.MustCompile(args[2]).FindString(text)
	}
	if text == "" {
		ts.Fatalf("%s holds nothing for %s", args[1], args[0])
	}
	ts.Setenv(args[0], text)
}

// callAPI is the script command api METHOD URL KEYFILE [BODY]: it makes a request with a key and prints the status
// and the body, as any HTTP client would.
func callAPI(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: api METHOD URL KEYFILE [BODY]")
	}
	req, err := http.NewRequest(args[0], args[1], strings.NewReader(strings.Join(args[3:], " ")))
	ts.Check(err)
	if args[2] != "-" {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(args[2])))
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", resp.StatusCode, body)
	if (resp.StatusCode >= 300) != neg {
		ts.Fatalf("%s %s: %d %s", args[0], args[1], resp.StatusCode, body)
	}
}

// waitfor FILE waits until a file is there.
func waitForFile(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	err := client.WaitFor(context.Background(), 20*time.Second, path+" is not there", func() (bool, error) {
		_, err := os.Stat(path)
		return err == nil, nil
	})
	ts.Check(err)
}

// prints PATTERN PROGRAM ARGS… runs a program until it prints what matches.
func prints(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(args[0])
	err := client.WaitFor(context.Background(), 20*time.Second, "it does not print "+args[0], func() (bool, error) {
		err := ts.Exec(args[1], args[2:]...)
		return pattern.MatchString(ts.ReadFile("stdout")), err
	})
	ts.Check(err)
}

// exits STATUS PROGRAM ARGS… runs a program that must end with just that status.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	if got := exitStatus(err); fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit status %d (%v), not %s", got, err, args[0])
	}
}

func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
