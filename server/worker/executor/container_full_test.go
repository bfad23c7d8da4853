//go:build full

package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/executor/containertest"
)

func newContained(t *testing.T, cfg Config) *Executor {
	t.Helper()
	containertest.MakeImage(t)
	cfg.Container.Program, cfg.Container.Options = "podman", containertest.Options
	if cfg.Isolation == "" {
		cfg.Isolation, cfg.Container.Image = Container, containertest.Image
	}
	if !cfg.Network.On {
		cfg.Network.Off = true
	}
	e := newWalled(t, cfg)
	e.looks.time = time.Minute // for a busy machine
	return e
}

// containersLeft are the containers of this machine that an executor has made.
func containersLeft(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("podman", "ps", "--all", "--filter=label="+containerLabel, "--format={{.Names}}").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestContainer: a run of everything in a container, whose secrets are on no command line.
func TestContainer(t *testing.T) {
	e, r := newContained(t, Config{}), newRecorder()
	secretText := "granted-" + rand.Text()
	work := sh(`cat /only-in-the-image set-up; echo "$OF_THE_IMAGE $SECRET"; echo new >changed; touch /of-the-image 2>&1; id -u
grep -E 'CapEff|NoNewPrivs' /proc/self/status; kill -KILL $PPID; kill -STOP $PPID; ls /root /home 2>&1; touch "$TRIPHAMMER_ARTIFACTS/left"
echo all; while [ ! -e ~/go ]; do sleep 0.05; done`)
	work.Setup = []string{"echo set up >set-up"}
	work.Secrets = map[string]secret.Value{"SECRET": secret.New(secretText)}
	go func() {
		r.await(t, "all\n")
		if lines := left(t, secretText); len(lines) > 0 {
			t.Errorf("the secret is on a command line: %s", lines)
		}
		if name := containersLeft(t); !strings.Contains(name, e.attemptName(work)) {
			t.Errorf("the containers are %q", name)
		}
		if err := os.WriteFile(filepath.Join(inside.Folder{Root: filepath.Join(e.dir, "run_1")}.Home(), "go"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}()
	exit, err := e.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v: %s", exit, err, r.said("stderr"))
	}
	want := fmt.Sprintf("here\nset up\nyes %s\ntouch: cannot touch '/of-the-image': Read-only file system\n%d\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n", secretText, e.account.uid)
	if got := r.said("stdout"); !strings.HasPrefix(got, want) || strings.Contains(got, "triphammer") {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if files := of[event.File](r); len(files) != 1 || files[0].Path != "changed" || len(of[event.Artifact](r)) != 2 {
		t.Errorf("changed files %+v, artifacts %+v", files, of[event.Artifact](r))
	}
	if all := containersLeft(t); strings.Contains(all, e.attemptName(work)) {
		t.Errorf("left: %s", all)
	}
}

// makeEmptyImage makes an image in which nothing starts.
func makeEmptyImage(t *testing.T) {
	t.Helper()
	empty := exec.Command("sh", "-c", "podman image exists localhost/triphammer-empty:1 || tar -c -T /dev/null | podman import --quiet - localhost/triphammer-empty:1")
	if out, err := empty.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestContainerDemanded: a definition gets a container that demands one, on a server whose
// runs have weaker walls, and why not if it cannot start there (SPEC 14.2).
func TestContainerDemanded(t *testing.T) {
	e := newContained(t, Config{Isolation: Kernel})
	makeEmptyImage(t)
	for _, tt := range []struct{ isolation, image, isolated, want, wrong string }{
		{"", "", Kernel, "not in the image", ""},
		{"", containertest.Image, Container, "here\n", ""},
		{Container, containertest.Image, Container, "here\n", ""},
		{Container, "", "", "", "set dockerImage in its environment, or --container-image of the server"},
		{"kubernetes", containertest.Image, "", "", "no less isolation than kubernetes, and this server has container"},
		{"", "dir:/etc", "", "", "is not the name of an image"},
		{"", "127.0.0.1:1/none/none:1", Container, "", "the image 127.0.0.1:1/none/none:1 could not be pulled: "},
		{"", "localhost/triphammer-empty:1", Container, "", `the program "sh" was not found in the image localhost/triphammer-empty:1`},
	} {
		work, r := sh("cat /only-in-the-image || echo not in the image"), newRecorder()
		work.DockerImage, work.Isolation, work.Network.On = tt.image, tt.isolation, tt.isolated == Kernel
		place, err := e.Preflight(work)
		if err == nil {
			_, err = e.Start(t.Context(), work, r)
		}
		if place.Isolation != tt.isolated || !strings.HasPrefix(r.said("stdout"), tt.want) || (tt.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%q %q: %+v %v %q", tt.isolation, tt.image, place, err, r.said("stdout"))
		}
	}
	for program, wrong := range map[string]string{
		"no-such-agent":  `the program "no-such-agent" was not found in the image ` + containertest.Image + ": add it to the image",
		"/opt/the-agent": "/opt/the-agent is not a program that the run can reach: check the path and its mode in the image " + containertest.Image,
	} {
		work := sh("")
		work.DockerImage, work.Command = containertest.Image, []string{program}
		if _, err := e.Start(t.Context(), work, newRecorder()); err == nil || !strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), "the server runs") {
			t.Errorf("error %v, want %s", err, wrong)
		}
	}
}

// TestContainerLacks: what an image lacks is known once it is on this machine, and only then.
func TestContainerLacks(t *testing.T) {
	e := newContained(t, Config{Isolation: Kernel})
	makeEmptyImage(t)
	now := time.Now()
	e.now = func() time.Time { return now }
	lacks := func(image string, programs ...string) string {
		work := sh("")
		work.DockerImage = image
		place, err := e.Preflight(work)
		if err != nil || place.Image != image || place.Lacks == nil {
			t.Fatalf("%+v %v", place, err)
		}
		lacking, here := place.Lacks(programs)
		return fmt.Sprint(lacking, here)
	}
	for _, tt := range []struct {
		image    string
		programs []string
		want     string
	}{
		{containertest.Image, []string{"git", "claude", "/bin/sh", "/opt/agent", "a\nb"}, "[claude /opt/agent a\nb] true"},
		{containertest.Image, []string{"git"}, "[] true"},
		{"localhost/triphammer-later:1", []string{"git", "no-such-agent"}, "[no-such-agent] false"},
		{"localhost/triphammer-empty:1", []string{"git"}, "[git] true"}, // it needs a shell
	} {
		if got := lacks(tt.image, tt.programs...); got != tt.want {
			t.Errorf("%s %q: %s, want %s", tt.image, tt.programs, got, tt.want)
		}
	}
	if out, err := exec.Command("podman", "tag", containertest.Image, "localhost/triphammer-later:1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "localhost/triphammer-later:1").Run() })
	now = now.Add(lookAgain)
	if got := lacks("localhost/triphammer-later:1", "git", "codex"); got != "[codex] true" {
		t.Errorf("once it is there: %s", got)
	}
}

// TestContainerLookTakesLong: nothing is known of an image that is not looked into in time. It is
// looked into again, and no container is left.
func TestContainerLookTakesLong(t *testing.T) {
	e := newContained(t, Config{Isolation: Kernel})
	now := time.Now()
	e.now = func() time.Time { return now }
	if err := e.readyFor(wallNamed(Container)); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	began, quick := filepath.Join(dir, "began"), filepath.Join(dir, "quick")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" != run ] || [ -e %s ] || { shift; podman create \"$@\"; touch %s; exec sleep 600; }\nexec podman \"$@\"\n", quick, began)
	if err := os.WriteFile(filepath.Join(dir, "engine"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	e.engines.found = &engine{path: filepath.Join(dir, "engine")}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		await(t, "the look", func() bool { _, err := os.Stat(began); return err == nil })
	}()
	if lacking, here := e.lacks(ctx, containertest.Image, []string{"no-such-agent"}); len(lacking) > 0 || !here || e.looks.known[containertest.Image] != nil {
		t.Errorf("it lacks %v, %t, and this is kept: %+v", lacking, here, e.looks.known[containertest.Image])
	}
	if left, err := exec.Command("podman", "ps", "--all", "--filter=name=triphammer-look-", "--format={{.Names}}").CombinedOutput(); err != nil || len(left) > 0 {
		t.Errorf("it leaves the containers %s (%v)", left, err)
	}
	if err := os.WriteFile(quick, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookAgain)
	if lacking, here := e.lacks(t.Context(), containertest.Image, []string{"no-such-agent"}); fmt.Sprint(lacking) != "[no-such-agent]" || !here {
		t.Errorf("then it lacks %v, %t", lacking, here)
	}
}

// TestContainerWithoutSSH: a run says what to do about an address for which the image has no ssh.
func TestContainerWithoutSSH(t *testing.T) {
	makeImageWithoutGit(t)
	e := newContained(t, Config{})
	for _, address := range []string{"ssh://git@forge.example/team/app.git", "git@forge.example:team/app.git"} {
		work := sh("")
		work.DockerImage, work.Repositories = withoutGit, []task.Repository{{URL: address}}
		_, err := e.Start(t.Context(), work, newRecorder())
		if want := "clone failed: the repository " + address + " has an ssh address, and the image " + withoutGit + " has no program ssh: write the https:// address"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// withoutGit is an image like that of containertest, without git.
const withoutGit = "localhost/triphammer-without-git:1"

func makeImageWithoutGit(t *testing.T) {
	t.Helper()
	containertest.MakeImage(t)
	made := exec.Command("bash", "-o", "pipefail", "-c", `podman image exists `+withoutGit+` && exit
c=$(podman create `+containertest.Image+` true) && trap "podman rm $c" EXIT &&
podman export $c | tar --delete -f - usr/bin/git usr/lib/git-core usr/share/ca-certificates | podman import --quiet - `+withoutGit)
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestContainerBrings: git of this machine works in an image that has none, and so does the
// program of an agent that needs no more than the C library. What cannot be brought is missed.
func TestContainerBrings(t *testing.T) {
	makeImageWithoutGit(t)
	programs, repo := openDir(t), openDir(t)
	for name, original := range map[string]string{"claude": "dash", "codex": "git"} { // git has more libraries
		original, err := exec.LookPath(original)
		if err != nil {
			t.Fatal(err)
		}
		if err := inside.CopyTool(original, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(programs, "gemini"), []byte("#!/usr/bin/env node\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main", "app"}, {"-C", "app", "commit", "-q", "--allow-empty", "-m", "first"}, {"clone", "-q", "--bare", "app", "app.git"}} {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	e, r := newContained(t, Config{Path: programs + ":" + os.Getenv("PATH")}), newRecorder()
	work := sh(`set -e; command -v git; command -v claude; git log --format=%s; echo new >file; git add file; git commit -qm second; git mv file renamed; git stash -q; git submodule status
git worktree add -q ../beside HEAD; git rebase -q HEAD~1; git clone -q --no-local . ../again; git -C ../again log --format=%s | head -1; git ls-remote https://127.0.0.1:1/x.git 2>&1 | tail -1; claude -c 'echo brought'`)
	work.DockerImage, work.Program = withoutGit, "claude"
	work.Repositories = []task.Repository{{URL: filepath.Join(repo, "app.git")}}
	work.Vars = map[string]string{"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
	exit, err := e.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v: %s", exit, err, r.said("stderr"))
	}
	got := r.said("stdout")
	if want := e.tools.Bin() + "/git\n" + e.tools.Agents() + "/claude\nfirst\nsecond\nfatal: unable to access 'https://127.0.0.1:1/x.git/'"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\nbrought\n") {
		t.Errorf("it printed %q, want %q", got, want)
	}
	for program, wrong := range map[string]string{"claude": "[]", "codex": "[codex]", "gemini": "[gemini]"} {
		place, err := e.Preflight(work)
		if err != nil {
			t.Fatal(err)
		}
		if lacking, here := place.Lacks([]string{"git", program}); fmt.Sprint(lacking) != wrong || !here {
			t.Errorf("%s: it lacks %v", program, lacking)
		}
		if lacking, here := e.lacks(t.Context(), "localhost/triphammer-never:1", []string{"git", program}); fmt.Sprint(lacking) != wrong || here {
			t.Errorf("%s, in an image that is not here: it lacks %v", program, lacking)
		}
		work := sh("true")
		work.DockerImage, work.Program = withoutGit, program
		_, err = e.Start(t.Context(), work, newRecorder())
		if want := "the program \"" + program + "\" was not found in the image " + withoutGit; wrong != "[]" && (err == nil || !strings.Contains(err.Error(), want)) || wrong == "[]" && err != nil {
			t.Errorf("%s: error %v", program, err)
		}
	}
}

// withMusl is an image of busybox and of the C library that Alpine has.
const withMusl = "localhost/triphammer-musl:1"

func makeImageWithMusl(t *testing.T) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree.tar")
	for _, argv := range [][]string{
		append([]string{
			"mmdebstrap", "--quiet", "--variant=extract", "--include=busybox-static,musl",
			`--extract-hook=for a in $($1/bin/busybox --list); do [ -e $1/bin/$a ] || ln -s busybox $1/bin/$a; done; ln -s /bin/busybox $1/usr/bin/env`, "bookworm", tree,
		}, containertest.Mirrors()...),
		{"podman", "import", "--quiet", tree, withMusl},
	} {
		if exec.Command("podman", "image", "exists", withMusl).Run() == nil {
			return
		}
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
}

// TestContainerBringsAgents: git and the published agents of this machine work in images that have
// neither them nor node, with the C library of GNU and with another one.
func TestContainerBringsAgents(t *testing.T) {
	makeImageWithoutGit(t)
	makeImageWithMusl(t)
	modules, err := filepath.Abs("../../../testdata/npm/agents/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	programs := openDir(t)
	for name, file := range map[string]string{
		"claude": ".bin/claude", "codex": ".bin/codex", "gemini": ".bin/gemini", "opencode": "opencode-linux-x64-baseline/bin/opencode",
	} {
		if err := os.Symlink(filepath.Join(modules, file), filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	e := newContained(t, Config{Path: programs + ":" + os.Getenv("PATH")})
	for _, image := range []string{withoutGit, withMusl} {
		for program, want := range map[string]string{"claude": "2.1.197 (Claude Code)", "codex": "codex-cli 0.169.0", "gemini": "0.61.0", "opencode": "1.18.33"} {
			t.Run(image+" "+program, func(t *testing.T) {
				r, work := newRecorder(), sh("git init -q && git commit -q --allow-empty -m first && git log --format=%s && "+program+" --version")
				work.DockerImage, work.Program = image, program
				work.Vars = map[string]string{"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
				exit, err := e.Start(t.Context(), work, r)
				if err != nil || exit.Code != 0 || !strings.HasPrefix(r.said("stdout"), "first\n") || !strings.Contains(r.said("stdout"), want) {
					t.Errorf("%+v, %v: %q %s", exit, err, r.said("stdout"), r.said("stderr"))
				}
				place, err := e.Preflight(work)
				if err != nil {
					t.Fatal(err)
				}
				if lacking, here := place.Lacks([]string{"git", program}); len(lacking) > 0 || !here {
					t.Errorf("it lacks %v", lacking)
				}
			})
		}
	}
}

// TestContainerNetwork: a run in a container reaches the listed hosts alone, by the proxy.
func TestContainerNetwork(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") }))
	defer web.Close()
	host := strings.TrimPrefix(web.URL, "http://")
	script := "curl -sS --max-time 5 --noproxy '*' " + web.URL + " || echo refused; ls /sys/class/net; unset no_proxy NO_PROXY\n" +
		"curl -sS --max-time 5 " + web.URL + "; curl -sS -o /dev/null -w '%{http_code}' --max-time 5 http://other.example/; true"
	e := newContained(t, Config{})
	for want, network := range map[string]task.Network{"refused\nlo\n000": {Off: true}, "refused\nlo\nthe page403": {Hosts: []string{host}}} {
		r, work := newRecorder(), sh(script)
		work.Network = network
		if _, err := e.Start(t.Context(), work, r); err != nil || r.said("stdout") != want {
			t.Errorf("%+v: %v: %q, want %q", network, err, r.said("stdout"), want)
		}
		if told := len(of[event.Egress](r)); (told == 2) != (len(network.Hosts) > 0) {
			t.Errorf("%+v: %d hosts are told", network, told)
		}
	}
}

// TestContainerLimits: the engine keeps the limits of a run, and the run says which it
// exceeded (SPEC 14.6).
func TestContainerLimits(t *testing.T) {
	e := newContained(t, Config{Machine: limits.Probe(slog.New(slog.DiscardHandler))})
	for want, work := range map[string]*task.Task{
		"its memory of 64 MiB": {Limits: task.Limits{Memory: 64 << 20}, Command: []string{"sh", "-c", "head -c 300m /dev/zero | tail | cat >/dev/null; exit 1"}},
		"its 30 processes":     {Limits: task.Limits{Processes: 30}, Command: []string{"sh", "-c", "for i in $(seq 100); do sleep 60 & done; wait"}},
		"its disk of 1.0 MiB":  {Limits: task.Limits{Disk: 1 << 20}, Command: []string{"sh", "-c", "for i in 1 2 3; do head -c 900k /dev/zero >f$i; done; sleep 60"}},
	} {
		work.RunID = "run_1"
		if _, err := e.Start(t.Context(), work, newRecorder()); !errors.Is(err, limits.ErrExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestContainerServerKilled: a killed server leaves no container, also if all that it had
// started on this machine is killed with it: the next start and each sweep remove it.
func TestContainerServerKilled(t *testing.T) {
	containertest.MakeImage(t)
	for name, value := range map[string]string{
		"TEST_ISOLATION": Container, "TEST_USER": testUser(), "TEST_ENGINE": "podman", "TEST_IMAGE": containertest.Image, "TEST_ENGINE_OPTIONS": containertest.Options,
	} {
		t.Setenv(name, value)
	}
	for _, alone := range []bool{true, false} {
		dir, mark := openDir(t), marker(t)
		cmd, outside := startFakeServer(t, dir, mark)
		e := &Executor{dir: dir, active: make(map[string]activeRun)}
		name := e.attemptName(sh(""))
		if !strings.Contains(containersLeft(t), name) {
			t.Fatalf("there is no container %s", name)
		}
		if !alone {
			below, err := inside.Descendants(outside.Pid)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP)
			for _, p := range append(below, outside) {
				_ = syscall.Kill(p.Pid, syscall.SIGKILL)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		clean := func() error { return e.Reap(t.Context(), "run_1") }
		if alone {
			await(t, "the container is gone", func() bool { return !strings.Contains(containersLeft(t), name) })
			clean = func() error { return e.Sweep(t.Context(), func(string, time.Time) bool { return false }) }
		}
		if err := clean(); err != nil {
			t.Error(err)
		}
		if all := containersLeft(t); strings.Contains(all, name) {
			t.Errorf("left: %s", all)
		}
		if c, err := noted(e.containerFile("run_1")); c != nil || err != nil {
			t.Error(c, err)
		}
		noneLeft(t, mark)
	}
}
