package executor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// ContainerConfig says how runs get into containers.
type ContainerConfig struct {
	Program string // name or path of the container engine; empty: Podman, or else Docker; None: there are no containers
	Image   string // for runs whose definitions name no image
	Options string // further options for `PROGRAM run`, separated by spaces
}

// engine is the command line of a container engine.
type engine struct {
	path    string
	version string // such as "podman version 4.3.1"
}

func (g *engine) podman() bool { return strings.HasPrefix(g.version, "podman ") }

// noContainers says why there are no containers; empty: there are.
func noContainers(e *Executor) string {
	_, err := e.engine()
	switch {
	case err != nil:
		return err.Error()
	case strings.Contains(e.dir, ","):
		return fmt.Sprintf("the folder of the workspaces %s has a comma in its name, which no container engine can mount (--workspaces)", e.dir)
	}
	return ""
}

// engines finds the container engine.
type engines struct {
	mu    sync.Mutex
	found *engine
	err   error
	again time.Time // when to look again, if no engine was found
}

// engineTime bounds each call of an engine, except the pull of an image.
const engineTime = 30 * time.Second

func (e *Executor) engine() (*engine, error) {
	e.engines.mu.Lock()
	defer e.engines.mu.Unlock()
	if e.engines.found == nil && !e.now().Before(e.engines.again) {
		e.engines.found, e.engines.err = findEngine(e.containers.Program)
		e.engines.again = e.now().Add(lookAgain)
	}
	return e.engines.found, e.engines.err
}

func findEngine(asked string) (*engine, error) {
	names := []string{"podman", "docker"}
	switch asked {
	case "", Auto:
	case None:
		return nil, errors.New("this server starts no containers (--container-program none)")
	default:
		names = []string{asked}
	}
	var problems []error
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), engineTime)
		defer cancel()
		g := &engine{path: path}
		if g.version, err = g.do(ctx, "--version"); err == nil {
			_, err = g.do(ctx, "version") // asks the daemon, too, if there is one
		}
		if err == nil {
			return g, nil
		}
		problems = append(problems, fmt.Errorf("%s does not work: %w", name, err))
	}
	if len(problems) == 0 {
		return nil, fmt.Errorf("the program %s was not found: install Podman or Docker, or name its program (--container-program)", strings.Join(names, " or "))
	}
	return nil, errors.Join(problems...)
}

// Engine finds the container engine as a server with this ContainerConfig.Program would, and
// returns its version.
func Engine(program string) (version string, err error) {
	g, err := findEngine(program)
	if err != nil {
		return "", err
	}
	return g.version, nil
}

// Containers is the version of the container engine, or why runs cannot be in containers.
func (e *Executor) Containers() (version string, err error) {
	g, err := e.engine()
	if err != nil {
		return "", err
	}
	return g.version, nil
}

// do executes a command of the engine and returns what it prints, without a newline at the
// end.
func (g *engine) do(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, g.path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &stdout, &stderr, "/", time.Second
	cmd.Env = engineEnvironment()
	err := cmd.Run()
	switch said := strings.TrimSpace(stderr.String()); {
	case ctx.Err() != nil:
		err = fmt.Errorf("%s %s: %w", filepath.Base(g.path), args[0], context.Cause(ctx))
	case err != nil && said != "":
		err = errors.New(said[strings.LastIndexByte(said, '\n')+1:])
	case err != nil:
		err = fmt.Errorf("%s %s: %w", filepath.Base(g.path), args[0], err)
	}
	return strings.TrimSpace(stdout.String()), err
}

// engineEnvironment is environment with the variables that tell an engine where its daemon and
// its credentials for registries are.
func engineEnvironment() []string {
	env := environment()
	for _, v := range os.Environ() {
		for _, prefix := range []string{"DOCKER_", "CONTAINER_", "CONTAINERS_", "REGISTRY_AUTH_FILE="} {
			if strings.HasPrefix(v, prefix) {
				env = append(env, v)
			}
		}
	}
	return env
}

// imageName matches the references of images in registries, and nothing else: Podman would take
// a prefix such as dir: for a place on this machine.
var (
	imageName = regexp.MustCompile(`^[a-zA-Z0-9][-a-zA-Z0-9._]*(:[0-9]+/[-a-zA-Z0-9._/]+)?[-a-zA-Z0-9._/]*(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?$`)
	transport = regexp.MustCompile(`^(dir|docker|docker-archive|docker-daemon|oci|oci-archive|containers-storage|ostree|sif|tarball|atomic):`)
)

// CheckImage says why a name cannot be the name of an image; nil: it can.
func CheckImage(name string) error {
	if !imageName.MatchString(name) || transport.MatchString(name) {
		return fmt.Errorf("%q is not the name of an image, such as registry.example.com/team/agent:1.2", name)
	}
	return nil
}

// image finds the image of that name, and pulls it if it is missing. It returns the identifier,
// which the engine cannot take for anything else.
func (g *engine) image(ctx context.Context, name string, tell func(string)) (id string, err error) {
	find := func() (string, error) { return g.do(ctx, "image", "inspect", "--format", "{{.Id}}", name) }
	if id, err = find(); err == nil || ctx.Err() != nil {
		return id, err
	}
	tell("pulling the image " + name)
	from := name
	if g.podman() {
		from = "docker://" + name
	}
	if _, err = g.do(ctx, "pull", "--quiet", from); err == nil {
		id, err = find()
	}
	if err != nil {
		return "", fmt.Errorf("the image %s could not be pulled: %w", name, err)
	}
	return id, nil
}

func (e *Executor) imageOf(ctx context.Context, name string, sink task.Sink) (string, error) {
	g, err := e.engine()
	if err != nil {
		return "", err
	}
	began, pulled := time.Now(), false
	id, err := g.image(ctx, name, func(text string) {
		pulled = true
		sink.Add(event.Status{Message: text})
	})
	if pulled {
		sink.Add(event.Phase{Name: event.PhasePull, DurationMS: time.Since(began).Milliseconds()})
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return id, err
}

// container is the isolation container. The folder of the run has the same path inside as
// outside.
func (e *Executor) container(r room) (command, inside.Confinement) {
	g, err := e.engine()
	if err != nil {
		g = &engine{path: "podman"} // an engine was there when the image was found
	}
	c := container{engine: g.path, name: r.name}
	args := append(e.closed(g, r.limits, r.missing, r.program), "--interactive", "--name="+c.name, "--label="+containerLabel+"="+c.name,
		"--hostname=run", "--workdir="+r.folder, bind(r.folder, ""))
	for _, v := range append([]string{inside.RunVariable + "=" + r.runID}, supervisorEnv...) {
		args = append(args, "--env="+v)
	}
	for _, path := range r.granted {
		args = append(args, bind(path, ",readonly"))
	}
	args = append(args, strings.Fields(e.containers.Options)...)
	if r.off {
		args = append(args, "--network=none")
	}
	made := outsideCommand(nil, append(args, r.image, inside.SuperviseCommand)...)
	made.env = append(engineEnvironment(), made.env...)
	made.container = &c
	return made, inside.Elsewhere()
}

// closed begins a command that starts this program in a container, as the user of the runs and
// with everything taken away that no container gets.
func (e *Executor) closed(g *engine, l task.Limits, missing []string, programs ...string) []string {
	args := []string{
		g.path, "run", "--rm", "--init=false", "--pull=never", "--entrypoint=" + e.program,
		"--cap-drop=all", "--security-opt=no-new-privileges", "--ipc=private", "--no-healthcheck",
		"--log-driver=none", // what a run prints may hold secrets
		"--read-only", "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777", "--tmpfs=/var/tmp:rw,exec,nosuid,nodev,mode=1777",
		"--tmpfs=/run:rw,nosuid,nodev,mode=1777", bind(e.program, ",readonly"),
	}
	args = append(args, e.brought(missing, programs...)...)
	uid, gid := os.Geteuid(), os.Getegid()
	if e.account != nil {
		uid, gid = int(e.account.uid), int(e.account.gid)
	}
	args = append(args, fmt.Sprintf("--user=%d:%d", uid, gid))
	if g.podman() {
		args = append(args, "--http-proxy=false", "--image-volume=tmpfs")
		if os.Geteuid() != 0 {
			args = append(args, "--userns=keep-id")
		}
	}
	if l.Memory > 0 {
		args = append(args, fmt.Sprintf("--memory=%d", l.Memory+limits.OwnMemory), fmt.Sprintf("--memory-swap=%d", l.Memory+limits.OwnMemory))
	}
	if l.CPUs > 0 {
		args = append(args, "--cpus="+strconv.FormatFloat(l.CPUs, 'f', -1, 64))
	}
	if l.Processes > 0 {
		args = append(args, fmt.Sprintf("--pids-limit=%d", l.Processes+limits.OwnTasks))
	}
	return args
}

// containerLabel has the name of the container as its value.
const containerLabel = "triphammer.attempt"

func bind(path, options string) string {
	return fmt.Sprintf("--mount=type=bind,source=%s,target=%s%s", path, path, options)
}

// attemptName names an attempt among those of all servers of the machine, so that no engine
// starts it twice.
func (e *Executor) attemptName(t *task.Task) string {
	sum := sha256.Sum256([]byte(e.dir))
	return fmt.Sprintf("triphammer-%x-%s-%d", sum[:4], t.RunID, t.Attempt)
}

// container is a container that may exist. As long as it may, a file beside the folder of its
// run says so.
type container struct{ engine, name string }

const containerSuffix = ".container"

func (e *Executor) containerFile(runID string) string {
	return filepath.Join(e.dir, "."+runID+containerSuffix)
}

// note writes the file, before there is a container. First it removes the container of an
// earlier attempt, if there is one.
func (e *Executor) note(ctx context.Context, runID string, c *container) error {
	if err := e.removeContainer(ctx, runID); err != nil {
		return err
	}
	if err := os.WriteFile(e.containerFile(runID), []byte(c.engine+"\n"+c.name+"\n"), 0o600); err != nil {
		return fmt.Errorf("noting a container: %w", err)
	}
	return nil
}

// tidy removes everything that a run has left outside its walls. If there was no supervisor, it
// returns a better error that says why.
func (e *Executor) tidy(ctx context.Context, t *task.Task, s *supervisor, c command, err error) error {
	if c.container != nil {
		removeErr := error(nil)
		if s.clean {
			removeErr = os.Remove(e.containerFile(t.RunID))
		} else {
			removeErr = e.removeContainer(context.WithoutCancel(ctx), t.RunID)
		}
		if removeErr != nil {
			e.logger.Error("a container may be left; the next sweep tries again", "run", t.RunID, "error", removeErr)
		}
	}
	if !errors.Is(err, errGone) || ctx.Err() != nil {
		return err
	}
	status, said := s.cmd.ProcessState.ExitCode(), s.complaints()
	if c.container == nil {
		return fmt.Errorf("the program of --isolation-command ended with status %d, and the run had not: %s", status, cmp.Or(said, "it printed no reason"))
	}
	return cmp.Or(notStarted(cmp.Or(t.DockerImage, e.containers.Image), e.program, status, said), err)
}

// noted reads the file; nil: there is no container.
func noted(file string) (*container, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lines := strings.Split(string(text), "\n")
	if err == nil && len(lines) != 3 {
		return nil, os.Remove(file) // the file was not completely written, so there is no container yet
	}
	if err != nil {
		return nil, fmt.Errorf("reading which container is left: %w", err)
	}
	return &container{lines[0], lines[1]}, nil
}

// remove ends and removes the container, if it exists, and then the file.
func (c *container) remove(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	g := &engine{path: c.engine}
	var err error
	for range removeTries {
		_, _ = g.do(ctx, "kill", c.name) // without this, Podman would ask the container to end, and wait
		_, removeErr := g.do(ctx, "rm", "--force", "--volumes", c.name)
		left := ""
		if left, err = g.do(ctx, "ps", "--all", "--quiet", "--filter=label="+containerLabel+"="+c.name); err == nil && left == "" {
			return os.Remove(file)
		}
		err = cmp.Or(err, removeErr, errors.New("it is still there"))
	}
	return fmt.Errorf("removing the container %s: %w", c.name, err)
}

// removeTries is how often a container is removed, because the first time fails if the process
// of Podman that watches over the container was killed.
const removeTries = 3

// removeContainer removes what is left of the container of a run.
func (e *Executor) removeContainer(ctx context.Context, runID string) error {
	file := e.containerFile(runID)
	c, err := noted(file)
	if c == nil {
		return err
	}
	return c.remove(ctx, file)
}

// sweepContainers removes the containers of this executor that no attempt in progress owns.
func (e *Executor) sweepContainers(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(e.dir, "."+runPrefix+"*"+containerSuffix))
	errs := []error{err}
	for _, file := range files {
		runID := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "."), containerSuffix)
		if ctx.Err() == nil && e.folderOf(runID) == "" {
			errs = append(errs, e.removeContainer(ctx, runID))
		}
	}
	return errors.Join(errs...)
}

// notStarted says why there was no supervisor in a container, by the exit status and the output
// of the engine; nil: there was a supervisor.
func notStarted(image, program string, status int, said string) error {
	switch {
	case strings.Contains(said, "rlimit"):
		return fmt.Errorf("the container could not be started, because the engine may not raise the limits of processes here: give limits that this machine allows, such as "+
			"--container-options '--ulimit=nofile=4096:4096 --ulimit=nproc=4096:4096': %s", said)
	case strings.Contains(said, "GLIBC_") || strings.Contains(said, "exec") && strings.Contains(said, program) && !strings.Contains(said, "mount"):
		return fmt.Errorf("the image %s cannot start a run: it needs the GNU C library (glibc) %s or newer, as the images of Debian 12, Ubuntu 22.04 and "+
			"Fedora 36 have it; and the processor of this machine: %s", image, inside.Glibc, said)
	case status >= 125 && status <= 127:
		return fmt.Errorf("the container could not be started: %s", said)
	}
	return nil
}

// granted are the files and folders that the operator lets runs read, and more.
func (e *Executor) granted(more []string) []string {
	all := slices.Clone(more)
	for _, path := range e.read {
		if filepath.IsAbs(path) {
			all = append(all, e.without(filepath.Clean(path))...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// environment are the only variables of the server that a program outside the walls gets,
// because others may hold secrets.
func environment() []string {
	names := []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS",
	}
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.Contains(names, name)
	})
}

// outsideCommand is the command that starts a program outside the walls.
func outsideCommand(env []string, argv ...string) command {
	return command{path: inside.Self, args: append([]string{inside.SuperviseCommand, inside.Outside}, argv...), outside: true, env: append(environment(), env...)}
}
