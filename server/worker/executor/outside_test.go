package executor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/run/task"
)

// newCommanded makes an executor whose runs a script starts.
func newCommanded(t *testing.T, script string) *Executor {
	t.Helper()
	program := filepath.Join(openDir(t), "starts-runs")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Dir: openDir(t), Isolation: Command, User: runUser, Command: []string{program, "an argument"}, Container: ContainerConfig{Program: None, Image: "debian"}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestCommand: a program of the operator starts the runs, with what the documentation
// promises it, and what it leaves ends.
func TestCommand(t *testing.T) {
	t.Setenv("SERVER_SECRET", "do not show")
	mark := marker(t)
	e, r := newCommanded(t, `[ "$1" = "an argument" ] && [ "$PWD" = / ] && shift || exit 9
[ -w "$TRIPHAMMER_ATTEMPT_FOLDER" ] && [ "${TRIPHAMMER_ATTEMPT_READ%%:*}" = "$1" ] && [ -z "$SERVER_SECRET" ] || exit 8
[ "$TRIPHAMMER_RUN_ID $TRIPHAMMER_ATTEMPT_NETWORK" != "run_1 on" ] || setsid sleep `+mark+` >/dev/null 2>&1 &
BROUGHT="$TRIPHAMMER_ATTEMPT_IMAGE $TRIPHAMMER_ATTEMPT_NETWORK" "$@"`), newRecorder()
	work := sh(`echo "$BROUGHT, $TRIPHAMMER_ATTEMPT_NAME, $TRIPHAMMER_RUN_ID"`)
	place, err := e.Preflight(work)
	if err != nil || place.Isolation != Command || !place.Elsewhere {
		t.Fatalf("%+v, %v", place, err)
	}
	if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v: %s", exit, err, r.said("stderr"))
	}
	if got, want := r.said("stdout"), "debian on, , run_1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	noneLeft(t, mark)
	work.Network.Off = true // which this program does not act on
	if _, err := e.Start(t.Context(), work, r); err == nil || !strings.Contains(err.Error(), "is to be off, but inside its walls there is the interface") {
		t.Errorf("error %v", err)
	}
}

// TestCommandCancelled: the order to stop reaches an agent that such a program has started.
func TestCommandCancelled(t *testing.T) {
	e, r := newCommanded(t, `shift; "$@"; exit $?`), newRecorder()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		r.await(t, "begun")
		cancel(task.ErrCancelled)
	}()
	exit, err := e.Start(ctx, sh("trap 'echo told; exit 3' INT; echo begun; while :; do sleep 0.05; done"), r)
	if err != nil || !exit.Stopped || !strings.Contains(r.said("stdout"), "told") {
		t.Errorf("%+v, %v: %q", exit, err, r.said("stdout"))
	}
}

// TestCommandFails: no run starts if the program does not start one, and the reason is said.
func TestCommandFails(t *testing.T) {
	for script, want := range map[string]string{
		"echo no such cluster >&2; exit 4": "the program of --isolation-command ended with status 4, and the run had not: no such cluster",
		"exit 0":                           "ended with status 0, and the run had not: it printed no reason",
		`shift; rm -rf "$TRIPHAMMER_ATTEMPT_FOLDER"; exec "$@"`: "the folder of the run is not there inside the walls",
	} {
		e := newCommanded(t, script)
		name, lacking := e.Isolation()
		if name != "" || len(lacking) != 1 || !strings.Contains(lacking[0].Error(), want) {
			t.Errorf("%s: %q %v", script, name, lacking)
		}
		if _, err := e.Start(t.Context(), sh("echo began"), newRecorder()); err == nil {
			t.Errorf("%s: a run starts", script)
		}
	}
	work := sh("")
	work.Command = []string{"no-such-agent"}
	_, err := newCommanded(t, `shift; exec "$@"`).Start(t.Context(), work, newRecorder())
	if err == nil || !strings.Contains(err.Error(), `"no-such-agent" was not found where --isolation-command starts runs: install it there`) || strings.Contains(err.Error(), "the server runs") {
		t.Errorf("error %v", err)
	}
}

// TestImageNames: what a definition calls an image names one in a registry, and nothing of
// this machine.
func TestImageNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"debian": true, "debian:12": true, "localhost/a-b_c:1": true, "registry.example.com:5000/team/agent:1.2.3-x": true,
		"r.example.com/a@sha256:" + strings.Repeat("0f", 32): true,
		"": false, "-v/:/host": false, "--privileged": false, "dir:rel": false, "dir:/root": false, "docker-archive:/etc/shadow": false, "oci:a:b": false,
		"docker://debian": false, "containers-storage:x": false, "a b": false, "debian\n--privileged": false, "/etc": false,
	} {
		if err := CheckImage(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNotStarted: why a container did not start is what the engine says, and the image is blamed
// for nothing else than that the program does not start in it.
func TestNotStarted(t *testing.T) {
	const program, image, blame = "/data/runs/.triphammer", "debian:11", "the image debian:11 cannot start a run: it needs the GNU C library"
	runc := "Error: runc: runc create failed: unable to start container process: "
	for _, tt := range []struct {
		status     int
		said, want string
	}{
		{126, runc + "error during container init: error setting rlimits for ready process: error setting rlimit type 7: operation not permitted: OCI permission denied", "may not raise the limits of processes here"},
		{126, runc + `error mounting "/data/runs/.triphammer" to rootfs at "/data/runs/.triphammer": read-only file system: unknown`, "the container could not be started: Error: runc"},
		{125, "Error: no such network", "the container could not be started: Error: no such network"},
		{127, "exec /data/runs/.triphammer: no such file or directory", blame},
		{1, "exec /data/runs/.triphammer: exec format error", blame},
		{127, runc + `exec: "/data/runs/.triphammer": stat /data/runs/.triphammer: no such file or directory: OCI runtime attempted to invoke a command that was not found`, blame},
		{127, "Error: crun: executable file `/data/runs/.triphammer` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found", blame},
		{1, "/data/runs/.triphammer: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /data/runs/.triphammer)", blame},
		{1, "anything else", ""},
	} {
		err := notStarted(image, program, tt.status, tt.said)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.HasPrefix(err.Error(), "the ") || !strings.Contains(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), tt.said)) {
			t.Errorf("%d %s: %v, want %s", tt.status, tt.said, err, tt.want)
		}
		if err != nil && tt.want != blame && strings.Contains(err.Error(), "glibc") {
			t.Errorf("%s: the image is blamed: %v", tt.said, err)
		}
	}
}

// TestNoContainers: without an engine, an image is a warning, and the demand for a container
// an error.
func TestNoContainers(t *testing.T) {
	p, work := newExecutor(t, 0), sh("true")
	if p.containers.Program != None || isolation == Command {
		return // there is one, or something else is stronger
	}
	work.DockerImage = "debian"
	place, err := p.Preflight(work)
	if err != nil || place.Isolation != isolation || place.Elsewhere || len(place.Warnings) != 1 ||
		place.Warnings[0] != "the image debian is not used: this server starts no containers (--container-program none)" {
		t.Errorf("%+v, %v", place, err)
	}
	work.Isolation = Container
	if _, err := p.Preflight(work); err == nil || !strings.Contains(err.Error(), "no less isolation than container, which this server cannot offer: this server starts no containers") {
		t.Errorf("error %v", err)
	}
}
