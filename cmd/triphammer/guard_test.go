package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// plainUser makes the world that of a user without privileges, if the tests run as
// root.
func (w *world) plainUser() {
	w.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const id = 54321
	w.user = &syscall.Credential{Uid: id, Gid: id}
	err := errors.Join(
		os.Chmod(filepath.Dir(w.dir), 0o711),
		filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Lchown(path, id, id)) }))
	if err != nil {
		w.t.Fatal(err)
	}
}

// peek is what another process of the world's user sees of a process.
func (w *world) peek(pid int) string {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", fmt.Sprintf("cd /proc/%d; cat environ; ls fd/; cat mem; cat maps; :", pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.user}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestServerKeepsToItself: neither an agent nor another process of the server's
// user can read what the server holds, and the server holds nothing that it was
// not given. Runs work all the same.
func TestServerKeepsToItself(t *testing.T) {
	const spy = `command:
- sh
- -c
- |
  server=$(cut -d' ' -f4 /proc/$PPID/stat)
  cat /proc/$server/environ; ls /proc/$server/fd/; cat /proc/$server/mem
  echo descriptors:; ls /proc/$$/fd
`
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "environments/spy.yaml": spy})
	w.plainUser()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	t.Setenv("CANARY", "c4nary")
	w.startWith(func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{theirs, theirs} })
	if err := errors.Join(theirs.Close(), ours.SetReadDeadline(time.Now().Add(20*time.Second))); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a descriptor that the server inherited is open: %v", err)
	}

	open := exec.Command("sleep", "600") // as anybody else is
	open.SysProcAttr = &syscall.SysProcAttr{Credential: w.user, Pdeathsig: syscall.SIGKILL}
	if err := open.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(open.Process.Kill(), open.Wait()) }()
	if seen := w.peek(open.Process.Pid); !strings.Contains(seen, "c4nary") || !strings.Contains(seen, "sleep") {
		t.Fatalf("nothing can be seen of any process: %s", seen)
	}
	if seen := w.peek(w.cmd.Process.Pid); strings.Contains(seen, "c4nary") || strings.Count(seen, "Permission denied") != 4 {
		t.Errorf("another process sees of the server: %s", seen)
	}

	id := strings.Fields(w.run("", "runs", "create", "--prompt", "x", "--environment", "spy"))[0]
	said := strings.ReplaceAll(w.run("", "runs", "logs", "--follow", id), "│ ", "")
	if strings.Contains(said, "c4nary") || strings.Count(said, "Permission denied") != 3 || !strings.Contains(said, "descriptors:\n0\n1\n2\n[") {
		t.Errorf("the agent sees: %s", said)
	}
}

// TestHostileAgent: an agent that kills or stops what watches over it, as a user
// without privileges, leaves nothing behind; its run is FAILED and says why. The
// server and other runs go on.
func TestHostileAgent(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("7%04d.%d", os.Getpid()%10000, time.Now().UnixNano()%1000000)
	hostile := func(signal string) string {
		script := "(env -i setsid sh -c 'env -i setsid sleep " + mark + " & sleep " + mark + "' &) &\n" +
			"while [ \"$(grep -lzx '[" + mark[:1] + "]" + mark[1:] + "' /proc/[0-9]*/cmdline 2>/dev/null | wc -l)\" -lt 2 ]; do :; done\n"
		script += "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat)\n"
		script += "for task in $PPID $(ls /proc/$PPID/task); do kill -" + signal + " $task; done\nsleep " + mark
		return "command: [sh, -c, " + strconv.Quote(script) + "]\n"
	}
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/killer.yaml": hostile("KILL"), "environments/stopper.yaml": hostile("STOP"),
		"environments/calm.yaml": "command: [sh, -c, 'while [ ! -e ../../go ]; do sleep 0.05; done']\n",
	})
	w.plainUser()
	w.start()
	create := func(environment string) string {
		return strings.Fields(w.run("", "runs", "create", "--prompt", "x", "--environment", environment))[0]
	}
	calm := create("calm")
	for environment, why := range map[string]string{
		"killer":  "the agent did not run to its end: its supervisor was ended from outside",
		"stopper": "the agent did not run to its end: its supervisor was stopped from outside, so that nothing watched over it",
	} {
		id := create(environment)
		cmd := w.command("runs", "watch", id)
		_ = cmd.Run() // its status tells that the run has failed
		var r api.Run
		if err := json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r); err != nil {
			t.Fatal(err)
		}
		if r.State != "FAILED" || r.StatusMessage != why {
			t.Errorf("%s: %s %q", environment, r.State, r.StatusMessage)
		}
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil || len(lines) == 0 {
			t.Fatal(lines, err)
		}
		for _, path := range lines {
			if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(mark)) {
				t.Errorf("%s: %s is left: %q", environment, path, line)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "data", "runs", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.run("", "runs", "watch", calm)
}

// TestOpenDataDirectory: a data directory that others can look into is closed to
// them, or refused if it is not the server's to close.
func TestOpenDataDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	data := filepath.Join(w.dir, "data")
	mode := func() fs.FileMode {
		t.Helper()
		info, err := os.Stat(data)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	for _, open := range []fs.FileMode{0o755, 0o770, 0o701} {
		if err := os.Chmod(data, open); err != nil {
			t.Fatal(err)
		}
		cmd := w.command("status")
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf("warning: other users could look into the data directory %s (mode %04o); it is closed to them now (0700)", data, open); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%04o: %v\n%s", open, err, out)
		}
		if mode() != 0o700 {
			t.Errorf("%04o became %04o", open, mode())
		}
	}
	if err := os.Chmod(data, 0o750); err != nil {
		t.Fatal(err)
	}
	w.start()
	if log := w.logs.String(); !strings.Contains(log, "(mode 0750); it is closed to them now (0700)") || mode() != 0o700 {
		t.Errorf("%04o, log %s", mode(), log)
	}
	w.kill()

	// A folder that others use is not taken from them.
	shared := filepath.Join(w.dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o755), os.WriteFile(filepath.Join(shared, "theirs"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--repo", "repo", "--data", shared}, {"keys", "create", "x", "--data", shared}} {
		if said := w.fails(exit.Usage, args...); !strings.Contains(said, "which holds theirs and is not a data directory") || !strings.Contains(said, "--data "+shared+"/triphammer") {
			t.Errorf("%v: %s", args, said)
		}
	}
	if left, err := os.ReadDir(shared); err != nil || len(left) != 1 {
		t.Errorf("it holds %v, %v", left, err)
	}
	w.run("", "keys", "create", "x", "--data", filepath.Join(shared, "triphammer"))

	if os.Geteuid() == 0 { // as anybody else, nobody can make a folder of somebody else's
		w.plainUser()
		if err := errors.Join(os.Chown(data, 0, 54321), os.Chmod(data, 0o770)); err != nil {
			t.Fatal(err)
		}
		if said := w.fails(exit.Usage, "serve", "--repo", "repo"); !strings.Contains(said, "which belongs to the user 0 and not to 54321. Its owner must run chmod 700 on it.\nGive a folder below it") {
			t.Errorf("%s", said)
		}
		if mode() != 0o770 {
			t.Errorf("it was changed to %04o", mode())
		}
	}
}
