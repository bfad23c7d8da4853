// Package sandbox has the ways to execute a run.
//
// [Process] is the plain one: processes of the server's own user, each run in a fresh
// workspace with a clean environment, under a supervisor (supervise.go). Linux only.
//
// It guarantees:
//
//   - The supervisor adopts what the agent leaves behind. No process outlives the run
//     or the server.
//   - An agent that ends or stops its supervisor ends its run. The server finds the
//     processes that are left.
//   - A run sees neither the server's environment nor another run's.
//   - From Linux 6.12 on, an agent cannot signal the server or another run.
//
// It does not confine an agent. The agent may read and do whatever its user may,
// including use the network. An agent that is not trusted so far needs an executor
// with more isolation.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/run"
	"triphammer/server/run/event"
)

// DefaultGrace is how long a stopped agent has between SIGINT and SIGKILL.
const DefaultGrace = 10 * time.Second

// Config is what NewProcess needs.
type Config struct {
	Dir    string           // holds the workspaces: that of a run is in its subfolder <id>
	Grace  time.Duration    // 0 means DefaultGrace
	Path   string           // PATH of the runs; empty means the server's own
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means slog.Default
}

// Process executes a run as processes of this machine.
type Process struct {
	dir    string // of all runs
	grace  time.Duration
	path   string
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	active map[string]string // ids of runs whose files are in use, and of those in whose folders they work
}

var _ run.Executor = (*Process)(nil)

// NewProcess makes the executor and its folder.
func NewProcess(cfg Config) (*Process, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the runs: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the runs: %w", err)
	}
	// If a supervisor is killed, its processes become children of this one: see orphans.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming the reaper of what runs leave: %w", err)
	}
	p := &Process{dir: dir, grace: cfg.Grace, path: cfg.Path, now: cfg.Now, logger: cfg.Logger, active: make(map[string]string)}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	if p.path == "" {
		p.path = os.Getenv("PATH")
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.logger == nil {
		p.logger = slog.Default()
	}
	if !KeepsSignals() {
		p.logger.Warn("this kernel lets an agent signal the server, and so end it: that takes Linux 6.12 with Landlock to prevent")
	}
	return p, nil
}

// Preflight implements run.Executor. It refuses demands that this executor cannot
// enforce.
func (p *Process) Preflight(t *run.Task) error {
	switch {
	case len(t.Command) == 0:
		return errors.New("nothing says how to start the agent: give the environment a command, or set a harness")
	case t.Isolation != "" && t.Isolation != "none":
		return fmt.Errorf("the environment accepts no less isolation than %q, and this server runs agents as plain processes: change its isolation to none, or use a server that has more", t.Isolation)
	case t.Network.Off || len(t.Network.Hosts) > 0:
		return errors.New("the environment limits the network, which this server cannot enforce because it runs agents as plain processes: change its network to on, or use a server that can")
	}
	return nil
}

// Start implements run.Executor.
func (p *Process) Start(ctx context.Context, t *run.Task, sink run.Sink) (exit run.Exit, err error) {
	p.mark(t, true)
	defer p.mark(t, false)
	w, err := p.newWorkspace(t)
	if err != nil {
		return run.Exit{}, err
	}
	defer w.close(p.now())
	if t.DockerImage != "" {
		sink.Add(event.Status{Message: "the environment's dockerImage is not used: this server runs agents as plain processes"})
	}
	s, err := startSupervisor(t.RunID, w.root, func(stream, text string) { sink.Add(event.Output{Stream: stream, Text: text}) })
	if err != nil {
		return run.Exit{}, err
	}
	// Whatever happens, nothing of the run is left when Start returns.
	defer func() {
		err = errors.Join(err, s.close())
		if said := s.complaints(); said != "" {
			p.logger.Warn("a supervisor complained", "run", t.RunID, "said", said)
		}
	}()

	dir, err := p.prepare(ctx, t, w, s, sink)
	if err != nil {
		return run.Exit{}, err
	}
	argv, err := resolve(t.Command, dir, w.env)
	if err != nil {
		return run.Exit{}, fmt.Errorf("the agent cannot be started: %w", err)
	}
	before, err := takeSnapshot(w.work)
	if err != nil {
		return run.Exit{}, fmt.Errorf("looking at the workspace: %w", err)
	}
	defer before.close()
	sink.Add(event.AgentStarted{Command: strings.Join(t.Command, " ")})
	end, err := s.run(ctx, step{Argv: t.Command, Path: argv, Dir: dir, Env: w.env, Stdin: w.prompt, Last: true}, p.grace)
	if err != nil {
		return run.Exit{}, fmt.Errorf("the agent did not run to its end: %w", err)
	}
	exit = run.Exit{Code: end.Code, Signal: end.Signal, Stopped: end.Stopped}
	sink.Add(event.Ended{ExitCode: exit.Code, Signal: exit.Signal, Stopped: exit.Stopped})
	if err := before.changes(func(f event.File) { sink.Add(f) }); err != nil {
		sink.Add(event.Status{Message: "the changed files are not listed completely: " + err.Error()})
	}
	return exit, nil
}

// prepare clones the repositories and runs the setup commands. It returns the
// agent's working directory (SPEC 13.11).
func (p *Process) prepare(ctx context.Context, t *run.Task, w *workspace, s *supervisor, sink run.Sink) (string, error) {
	dir := w.work
	clones, err := w.clones(t.Repositories)
	if err != nil {
		return "", err
	}
	for i, c := range clones {
		if i == 0 {
			dir = c.dir
		}
		if t.Resume {
			continue
		}
		for _, argv := range c.commands {
			if err := p.command(ctx, "clone", argv, strings.Join(argv, " "), step{Dir: w.work, Env: w.gitEnv()}, s, sink); err != nil {
				return "", err
			}
		}
	}
	if t.Resume {
		return dir, nil
	}
	for _, line := range t.Setup {
		if err := p.command(ctx, "setup", []string{"/bin/sh", "-c", line}, line, step{Dir: dir, Env: w.env}, s, sink); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// command runs one command that must succeed.
func (p *Process) command(ctx context.Context, phase string, argv []string, shown string, st step, s *supervisor, sink run.Sink) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var err error
	if st.Path, err = resolve(argv, st.Dir, st.Env); err != nil {
		return fmt.Errorf("%s failed: %w", phase, err)
	}
	st.Argv = argv
	sink.Add(event.Status{Message: phase + ": " + shown})
	end, err := s.run(ctx, st, p.grace)
	if err != nil {
		return fmt.Errorf("%s failed: %s: %w", phase, shown, err)
	}
	sink.Add(event.Command{Phase: phase, Command: shown, ExitCode: &end.Code, Signal: end.Signal, Failed: end.Code != 0})
	switch {
	case end.Stopped:
		return context.Cause(ctx)
	case end.Signal != "":
		return fmt.Errorf("%s failed: %s: it was ended by %s", phase, shown, end.Signal)
	case end.Code != 0:
		return fmt.Errorf("%s failed: %s: exit status %d", phase, shown, end.Code)
	}
	return nil
}

// Reap implements run.Executor. A supervisor ends with its server, so there are
// processes left only if both were killed at once. Reap finds those that the dead server
// had listed, those that these have started, and those with the run's id in their
// environment.
func (p *Process) Reap(_ context.Context, runID string) error {
	listed := kept(filepath.Join(p.dir, runID))
	return killUntilGone(func() ([]process, bool, error) {
		live, err := marking(runID)
		for _, was := range listed {
			now, nowErr := processOf(was.pid)
			// The agent could have put processes into the list that it may not kill itself.
			if nowErr == nil && now.start == was.start && !now.zombie && now.pid != os.Getpid() && confined(now.pid) {
				below, belowErr := descendants(now.pid)
				live, err = append(append(live, now), below...), errors.Join(err, belowErr)
			}
		}
		return live, len(live) == 0, err
	})
}

// Sweep implements run.Executor: it removes the folders of runs that ended
// longer than age ago.
func (p *Process) Sweep(ctx context.Context, age time.Duration) error {
	old, err := p.left()
	before := p.now().Add(-age)
	errs := []error{err}
	for _, r := range old {
		if ctx.Err() == nil && r.ended.Before(before) {
			errs = append(errs, p.remove(r.name))
		}
	}
	return errors.Join(errs...)
}

// Reclaim implements run.Executor.
func (p *Process) Reclaim(ctx context.Context, enough func() bool) (removed int, err error) {
	old, err := p.left()
	errs := []error{err}
	for _, r := range old {
		if ctx.Err() != nil || enough() {
			break
		}
		err := p.remove(r.name)
		if errs = append(errs, err); err == nil {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// leftover is the folder of a run that has ended.
type leftover struct {
	name  string
	ended time.Time
}

// left are the folders of runs that have ended, the oldest first. Other files in the
// folder are left alone.
func (p *Process) left() ([]leftover, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the folders of the runs: %w", err)
	}
	var all []leftover
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), runPrefix) && !p.busy(e.Name()) {
			all = append(all, leftover{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b leftover) int { return a.ended.Compare(b.ended) })
	return all, nil
}

func (p *Process) remove(name string) error {
	if err := removeAll(filepath.Join(p.dir, name)); err != nil {
		return fmt.Errorf("removing the folder of the run %s: %w", name, err)
	}
	return nil
}

// runPrefix begins the id of every run.
const runPrefix = "run_"

// Size implements run.Executor. It counts the files in the folder of the run and in the
// one in which it works, and deleted files that its processes keep open.
func (p *Process) Size(ctx context.Context, runID string) (bytes, files int64) {
	seen := make(map[[2]uint64]bool) // hard links count once
	count := func(st *syscall.Stat_t) {
		file := [2]uint64{uint64(st.Dev), st.Ino}
		if !seen[file] {
			seen[file] = true
			bytes += st.Blocks * 512
			files++
		}
	}
	p.mu.Lock()
	shared := cmp.Or(p.active[runID], runID)
	p.mu.Unlock()
	for _, id := range slices.Compact([]string{runID, shared}) {
		_ = filepath.WalkDir(filepath.Join(p.dir, id), func(_ string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return fs.SkipAll
			}
			if err != nil {
				return nil // it was deleted meanwhile, or the agent has closed it
			}
			if info, err := d.Info(); err == nil {
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					count(st)
				}
			}
			return nil
		})
	}
	for _, st := range deletedFiles(runID) {
		count(&st)
	}
	return bytes, files
}

func (p *Process) mark(t *run.Task, active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if active {
		p.active[t.RunID] = sharedBy(t)
	} else {
		delete(p.active, t.RunID)
	}
}

func (p *Process) busy(runID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active[runID] != "" {
		return true
	}
	for _, shared := range p.active {
		if shared == runID {
			return true
		}
	}
	return false
}
