// Package executor executes runs, each between walls (SPEC 14).
//
// A supervisor executes a run: this same program, or a part of it (copy.go), started inside the walls (package
// inside). The supervisor gets a job over a pipe and reports everything that happens
// (supervisor.go). So nothing that a definition or an agent says is done outside the walls.
//
// The walls are called isolations; place.go chooses among them:
//
//   - none, kernel (Landlock and seccomp) and sandbox (bubblewrap around kernel), in
//     isolation.go
//   - container (Podman or Docker around kernel), in container.go
//   - command (a program of the operator), in command.go
//
// The package guarantees with every isolation:
//
//   - No process outlives the run or the server. The supervisor adopts the processes that
//     the agent leaves behind.
//   - A run sees neither the server's environment nor another run's.
//   - If the server is root, its runs have another user, without capabilities.
//
// docs/security.md says what else each isolation stops, and what it does not. The package
// works only on Linux.
package executor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/gateway"
)

// DefaultGrace is how long a stopped agent has between SIGINT and SIGKILL.
const DefaultGrace = 10 * time.Second

// Config is what New needs.
type Config struct {
	Dir       string           // holds the folders of runs, each named by the run's id
	Isolation string           // one of Isolations; empty means Auto
	User      string           // user of the runs, if the server is root; empty: one of runUsers
	Read      []string         // files and folders that runs may read besides the system's
	Protected []string         // files and folders, besides Dir, that no run may read
	Around    []string         // the server's own folders around Dir; another user of the runs may pass through them, but not look into them
	Limits    task.Limits      // for runs without limits of their own; zero fields: the machine's
	Network   task.Network     // for runs whose definitions say nothing about the network
	Machine   *limits.Machine  // enforces the limits; nil: there are none
	Own       []netip.AddrPort // addresses on which the server listens
	Command   []string         // for the isolation command: a program with arguments
	Container ContainerConfig
	// Roots returns the certificates that code forges must prove themselves by. It is called
	// for each run; nil: the system's certificates.
	Roots  func() (*x509.CertPool, error)
	Grace  time.Duration    // 0 means DefaultGrace
	Path   string           // PATH of the runs; empty means the server's own
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means slog.Default
}

// Executor executes runs as processes of this machine.
type Executor struct {
	dir             string // of all runs
	asked           string // isolation that the operator asked for
	user            string // user that the operator asked for
	grace           time.Duration
	path            string
	read, protected []string
	around          []string
	limits          task.Limits
	network         task.Network
	machine         *limits.Machine
	own             []netip.AddrPort
	roots           func() (*x509.CertPool, error)
	command         []string
	containers      ContainerConfig
	engines         engines
	looks           looks
	mirrors         *gateway.Mirrors
	now             func() time.Time
	logger          *slog.Logger

	choosing   sync.Mutex   // guards the following until there is a wall; then they stay
	again      time.Time    // when to look for a wall again, if no wall works
	account    *account     // of the runs; nil: the server's own
	program    string       // a copy of this program that runs may execute, if the wall needs a copy
	supervisor string       // of runs within walls of this machine: inside.Self, or a smaller program
	tools      inside.Tools // tools of this machine for containers
	wall       *wall        // nil: no wall works
	lacking    []error      // why stronger walls do not work

	mu     sync.Mutex
	active map[string]activeRun // by id
}

// activeRun is a run whose files are in use.
type activeRun struct {
	folder     string
	supervisor *supervisor // nil: it has not started yet
}

var _ task.Executor = (*Executor)(nil)

// New makes the executor and its folder.
func New(cfg Config) (*Executor, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the runs: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the runs: %w", err)
	}
	// If a supervisor is killed, its processes become children of this process: see orphans.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming the reaper of what runs leave: %w", err)
	}
	e := &Executor{
		dir: dir, asked: cfg.Isolation, user: cfg.User, grace: cfg.Grace, path: cfg.Path, read: cfg.Read,
		around: cfg.Around, limits: cfg.Limits, network: cfg.Network, machine: cfg.Machine, own: cfg.Own, roots: cfg.Roots,
		command: cfg.Command, containers: cfg.Container, mirrors: gateway.NewMirrors(filepath.Join(dir, mirrorFolder)),
		now: cfg.Now, logger: cfg.Logger, active: make(map[string]activeRun), looks: looks{time: lookTime, known: make(map[string]*looked), missing: make(map[string][]string)},
	}
	for _, p := range append(slices.Clone(cfg.Protected), dir) {
		if p, err = filepath.Abs(p); err == nil {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				p = real
			}
			e.protected = append(e.protected, p)
		}
	}
	e.asked = cmp.Or(e.asked, Auto)
	if !slices.Contains(Isolations(), e.asked) {
		return nil, fmt.Errorf("the isolation %q is none of %s", e.asked, strings.Join(Isolations(), ", "))
	}
	e.grace = cmp.Or(e.grace, DefaultGrace)
	e.path = cmp.Or(e.path, os.Getenv("PATH"))
	if e.now == nil {
		e.now = time.Now
	}
	if e.logger == nil {
		e.logger = slog.Default()
	}
	return e, nil
}

// Isolation is the wall around the runs here, and why stronger walls do not work. The name is
// empty if no wall works: then no run starts, and a later call looks again.
func (e *Executor) Isolation() (name string, lacking []error) {
	e.choosing.Lock()
	defer e.choosing.Unlock()
	if e.wall == nil && !e.now().Before(e.again) {
		if err := e.ready(); err != nil {
			e.lacking = []error{err}
		} else {
			e.choose()
		}
		e.again = e.now().Add(lookAgain)
	}
	if e.wall == nil {
		return "", e.lacking
	}
	return e.wall.name, e.lacking
}

// lookAgain is how long a machine without walls counts as such without another look.
const lookAgain = 30 * time.Second

// ready finds the user of the runs, and lets it reach their folders.
func (e *Executor) ready() (err error) {
	if e.account, err = accountOf(e.user); err != nil {
		return err
	}
	if e.account != nil {
		for _, dir := range append(slices.Clone(e.around), e.dir) {
			if err := os.Chmod(dir, 0o711); err != nil {
				return err
			}
		}
		if err := e.account.reaches(e.dir); err != nil {
			return err
		}
	}
	return nil
}

// try starts a run that does nothing inside a wall.
func (e *Executor) try(w wall) (err error) {
	if err := e.copy(w); err != nil {
		return err
	}
	limit := tryTime
	if w.name == Container {
		if limit = pullTime; e.containers.Image == "" {
			return nil // each run brings an image
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t := &task.Task{RunID: tryID, Command: []string{"/bin/sh", "-c", ":"}}
	exit, err := e.within(ctx, w, t, &discard{})
	err = errors.Join(err, e.remove(tryID))
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("a shell ends with status %d inside", exit.Code)
	}
	return err
}

const (
	tryTime  = 20 * time.Second
	pullTime = 10 * time.Minute // for an image that is missing
	tryID    = runPrefix + "try"
)

// Start implements task.Executor.
func (e *Executor) Start(ctx context.Context, t *task.Task, sink task.Sink) (exit task.Exit, err error) {
	w, _, err := e.wallFor(t)
	if err != nil {
		return task.Exit{}, err
	}
	return e.within(ctx, *w, t, sink)
}

// within executes the task between the walls of w.
func (e *Executor) within(ctx context.Context, w wall, t *task.Task, sink task.Sink) (exit task.Exit, err error) {
	name := cmp.Or(t.Workspace, t.RunID)
	if name == "" || filepath.Base(name) != name || !filepath.IsLocal(name) {
		return task.Exit{}, fmt.Errorf("%q is not the id of a run", name)
	}
	f := inside.Folder{Root: filepath.Join(e.dir, name)}
	if !e.mark(t.RunID, name) {
		return task.Exit{}, fmt.Errorf("the run %s is in progress already", t.RunID)
	}
	defer e.unmark(t.RunID)
	if err := e.make(f, t.Resume); err != nil {
		return task.Exit{}, err
	}
	defer func() {
		now := e.now()
		_ = os.Chtimes(f.Root, now, now) // the time of the end, for Sweep
	}()
	net := t.Network.Or(e.network)
	local := e.local(t.Repositories)
	kept := e.cache(t)
	defer kept.close()
	r := e.room(t, f, net, append(slices.Clone(local), kept.folders()...))
	image, brought := "", inside.Tools("")
	if w.name == Container {
		brought = e.tools
		image = cmp.Or(t.DockerImage, e.containers.Image)
		if r.image, err = e.imageOf(ctx, image, sink); err != nil {
			return task.Exit{}, err
		}
		r.missing = e.missing(ctx, r.image)
	}
	c, confine := w.enter(e, r)
	out, err := e.wayOut(ctx, t, w.foreign, f, sink)
	defer out.close()
	if err != nil {
		return task.Exit{}, err
	}
	for _, to := range out.forwards {
		confine.Sockets = append(confine.Sockets, filepath.Join(f.Root, to.Socket))
	}
	group, err := e.group(t.RunID, w, r.limits)
	if err != nil {
		return task.Exit{}, err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	if confine.Limits = group.Inherited(w.name == Sandbox); c.container != nil {
		confine.Limits = limits.Inherited{FileSize: confine.Limits.FileSize} // the container enforces the other limits
		if err := e.note(ctx, t.RunID, c.container); err != nil {
			return task.Exit{}, err
		}
	}
	ctx, exceed := context.WithCancelCause(ctx)
	defer exceed(nil)
	st := start{runID: t.RunID, command: c, dir: f.Root, list: e.list(t.RunID), account: e.account, group: group, kept: kept}
	if c.outside {
		st.dir, st.account = "/", nil
	}
	s, err := startSupervisor(st, sink)
	if err != nil {
		return task.Exit{}, err
	}
	e.mu.Lock()
	e.active[t.RunID] = activeRun{name, s}
	e.mu.Unlock()
	bounded := c.container != nil
	defer e.watch(ctx, t, s, group, w.name, exceed)()
	// Whatever happens, nothing of the run is left when Start returns.
	defer func() {
		err = errors.Join(err, s.close())
		if c.outside {
			err = e.tidy(ctx, t, s, c, err)
		}
		e.complain(t, s)
	}()
	first := make(map[string]string)
	if !w.foreign {
		first["PATH"] = e.path
	}
	if len(net.Hosts) > 0 {
		maps.Copy(first, gateway.Environ(inside.ProxyForward.Address))
	}
	j := jobOf(t, first)
	j.Locate(task.GatewayURL, "http://"+out.address)
	j.Cache = kept.of(t, w.name, image)
	j.Root, j.Inherit, j.Image, j.Tools, j.Bounded, j.This = f.Root, w.foreign, image, brought, bounded, e.program
	j.Trusted, j.Forwards, j.GitSettings, j.Offline = local, out.forwards, out.settings, net.Limited() && w.networks
	end, err := s.run(ctx, &confine, j, e.grace, t.Lease)
	group.Exceed(end.Exceeded)
	if over := group.Err(); over != nil && (err != nil || end.Cut || end.Signal != "" || end.Code != 0 && bounded) {
		return task.Exit{}, over
	}
	if err != nil {
		return task.Exit{}, err
	}
	return exitOf(ctx, end, out)
}

// room is what the walls need to know. more is what the run may read besides the system.
func (e *Executor) room(t *task.Task, f inside.Folder, net task.Network, more []string) room {
	return room{
		folder: f.Root, read: append(e.readable(), more...), off: net.Limited(),
		runID: t.RunID, name: e.attemptName(t), granted: e.granted(more), image: t.DockerImage, limits: e.limitsOf(t), program: t.Program,
	}
}

func exitOf(ctx context.Context, end inside.Ending, out *wayOut) (task.Exit, error) {
	switch {
	case end.Cut && end.Error != "":
		return task.Exit{}, context.Cause(ctx)
	case end.Error != "" && end.Final:
		return task.Exit{}, &task.FinalError{Err: errors.New(end.Error)}
	case end.Error != "":
		return task.Exit{}, out.explain(end.Error)
	}
	return task.Exit{Code: end.Code, Signal: end.Signal, Stopped: end.Cut}, nil
}

func (e *Executor) complain(t *task.Task, s *supervisor) {
	if said, crashed := summary(s.stderr.String()); said != "" || crashed {
		e.logger.Warn("a supervisor complained", "run", t.RunID, "crashed", crashed, "said", said)
		e.logger.Debug("all that the supervisor said", "run", t.RunID, "said", s.stderr.String())
	}
}

// limitsOf are the limits of the task, or else of the operator, or else of the machine.
func (e *Executor) limitsOf(t *task.Task) task.Limits {
	if e.machine == nil {
		return task.Limits{}
	}
	return limits.Or(t.Limits, limits.Or(e.limits, e.machine.Defaults()))
}

// group is the cgroup that bounds the run. A run that a wall starts elsewhere is in no cgroup of
// ours.
func (e *Executor) group(runID string, w wall, l task.Limits) (*limits.Group, error) {
	if e.machine == nil || w.foreign {
		return (&limits.Machine{}).New(runID, l)
	}
	return e.machine.New(runID, l)
}

// watch measures the run until stop is called, and ends it when it exceeds a limit.
func (e *Executor) watch(ctx context.Context, t *task.Task, s *supervisor, g *limits.Group, isolation string, exceed context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		u := limits.Usage{Processes: s.processes, Disk: func(ctx context.Context) (int64, int64) { return e.Size(ctx, t.RunID) }}
		switch isolation {
		case Container:
			u.Processes = nil // the engine's own processes are among them
		case Sandbox:
			u.Tmpfs = inMemory
		}
		g.Watch(ctx, u, exceed)
	}()
	return func() { cancel(); <-done }
}

// make makes the folder of the run, or finds the folder of the earlier run. It also makes the
// temporary folder, because walls may need it before the supervisor is there.
func (e *Executor) make(f inside.Folder, resume bool) error {
	for _, dir := range []string{f.Workspace(), f.Home()} {
		if info, err := os.Lstat(dir); resume && (err != nil || !info.IsDir()) {
			return task.ErrNoWorkspace
		}
	}
	folders := []string{f.Root, f.Temp()}
	if resume {
		folders = folders[1:]
	}
	for _, dir := range folders {
		err := inside.RemoveAll(dir)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err == nil {
			err = e.account.own(dir)
		}
		if err != nil {
			return fmt.Errorf("making the workspace: %w", err)
		}
	}
	return nil
}

// list is the file that lists the processes of a run, where the run cannot reach it.
func (e *Executor) list(runID string) string { return filepath.Join(e.dir, "."+runID+".processes") }

// local are the repositories of the task that are folders of this machine, so that the run may
// read them.
func (e *Executor) local(repositories []task.Repository) []string {
	var all []string
	for _, r := range repositories {
		path := r.URL
		if u, err := url.Parse(r.URL); err == nil && u.Scheme == "file" {
			path = u.Path
		}
		if !filepath.IsAbs(path) {
			continue
		}
		if paths := e.without(filepath.Clean(path)); len(paths) == 1 && paths[0] == filepath.Clean(path) && isRepository(path) {
			all = append(all, paths[0])
		}
	}
	return all
}

// isRepository tells whether a folder is a Git repository, so that a definition cannot let
// a run read any other folder.
func isRepository(dir string) bool {
	for _, git := range []string{dir, filepath.Join(dir, ".git")} {
		if _, err := os.Stat(filepath.Join(git, "HEAD")); err == nil {
			if info, err := os.Stat(filepath.Join(git, "objects")); err == nil && info.IsDir() {
				return true
			}
		}
	}
	return false
}

// discard is a sink that keeps nothing.
type discard struct{}

// Add implements task.Sink.
func (discard) Add(event.Event) {}

// Keep implements task.Sink.
func (discard) Keep(event.Artifact, io.Reader) error { return nil }

// jobOf is the job of a task, the same for every executor. first are variables that the task may
// override. The caller adds what depends on the place of the run.
func jobOf(t *task.Task, first map[string]string) *inside.Job {
	vars := make(map[string]string)
	maps.Copy(vars, first)
	maps.Copy(vars, t.Env)
	for name, v := range t.Secrets {
		vars[name] = v.Reveal()
	}
	maps.Copy(vars, t.Vars)
	vars[inside.RunVariable] = t.RunID
	j := &inside.Job{
		Resume: t.Resume, Prompt: t.Prompt, Skills: t.Skills, Attachments: t.Attachments, Files: t.Files,
		Repositories: t.Repositories, Setup: t.Setup, Command: slices.Clone(t.Command), Program: t.Program, // Locate changes the command
		Foreign: t.Foreign, Instructions: t.Instructions, Outputs: t.Outputs,
	}
	if t.Foreign {
		j.Withheld = slices.Sorted(maps.Keys(t.Secrets))
	} else if len(t.Outputs) > 0 {
		j.Withheld = []string{task.OutputsToken} // only the agent asks the server
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		j.Env = append(j.Env, name+"="+vars[name])
	}
	return j
}
