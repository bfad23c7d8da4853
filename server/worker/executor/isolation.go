package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"triphammer/server/inside"
	"triphammer/server/run/task"
)

// Isolations, as SPEC 14.2 names them.
const (
	Auto    = "auto" // the strongest of Sandbox and Kernel that works here
	None    = "none"
	Kernel  = "kernel"
	Sandbox = "sandbox"

	// The following are never chosen by Auto. A definition can demand Container.
	Container = "container"
	Command   = "command"
)

// wall puts the supervisor of a run between walls.
type wall struct {
	name string
	// strength orders the walls (SPEC 14.2).
	strength int
	// problem says at once why the wall cannot work here; empty: it has to be tried.
	problem func(e *Executor) string
	// enter makes the command that starts the supervisor inside, and the confinement that the
	// supervisor then puts on itself.
	enter func(e *Executor, r room) (command, inside.Confinement)
	// auto tells that Auto may choose it.
	auto bool
	// networks tells whether the wall can switch the network off.
	networks bool
	// copies tells that the supervisor is a copy of this program, because the inside cannot
	// reach the original.
	copies bool
	// small tells that the supervisor may be the small program of copy.go.
	small bool
	// foreign tells that the inside does not have the programs of this machine, nor its PATH.
	foreign bool
}

// room is what a wall lets a run reach.
type room struct {
	folder string   // of the run; it may do anything in it
	read   []string // files and folders
	off    bool     // no network

	// The following are for the isolations container and command.
	runID, name string
	granted     []string // the part of read that is not the system's
	image       string
	missing     []string // libraries that the image lacks
	program     string   // of the agent
	limits      task.Limits
}

// command is a program with its arguments.
type command struct {
	path string
	args []string // without the program's own name
	// depth is the number of the command's processes above the supervisor, itself included.
	depth int

	// outside tells that the command runs as the user of the server, outside the run's folder,
	// and itself decides how the supervisor runs. env are its variables.
	outside   bool
	env       []string
	container *container // the container that the command makes; nil: none
}

// strengths are the names of all isolations, weakest first, including those that only other
// executors have.
var strengths = []string{None, Kernel, Sandbox, Container, task.Cluster, Command}

var walls = []wall{
	{name: Command, strength: 5, problem: noCommand, enter: (*Executor).throughCommand, networks: true, copies: true, foreign: true},
	{name: Container, strength: 3, problem: noContainers, enter: (*Executor).container, networks: true, copies: true, foreign: true},
	{name: Sandbox, strength: 2, problem: noBubblewrap, enter: (*Executor).bubblewrap, auto: true, networks: true, copies: true, small: true},
	{name: Kernel, strength: 1, problem: noKernel, enter: (*Executor).kernel, auto: true, small: true},
	{name: None, strength: 0, problem: func(*Executor) string { return "" }, enter: (*Executor).plain, small: true},
}

// wallNamed is the wall of that name, which is one of walls.
func wallNamed(name string) *wall {
	return &walls[slices.IndexFunc(walls, func(w wall) bool { return w.name == name })]
}

// Isolations are the values of --isolation.
func Isolations() []string {
	names := []string{Auto}
	for _, w := range walls {
		names = append(names, w.name)
	}
	return names
}

func (e *Executor) plain(room) (command, inside.Confinement) {
	return command{path: e.supervisor, args: []string{inside.SuperviseCommand}}, inside.Confinement{}
}

func noKernel(*Executor) string {
	if v := inside.LandlockVersion(); v < inside.LandlockSignals {
		return inside.NoLandlock(v)
	}
	return ""
}

// kernel is the isolation kernel: Landlock and seccomp.
func (e *Executor) kernel(r room) (command, inside.Confinement) {
	return command{path: e.supervisor, args: []string{inside.SuperviseCommand}}, inside.Confinement{
		Landlock: true, Read: append(r.read, "/proc", "/sys", e.program), Write: []string{r.folder}, Devices: inside.Devices, Seccomp: true,
	}
}

func noBubblewrap(*Executor) string {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return "the program bwrap was not found: install the package bubblewrap"
	}
	return ""
}

// bubblewrap is the isolation sandbox. The folder of the run, and everything that the run may
// read, have the same paths as outside.
func (e *Executor) bubblewrap(r room) (command, inside.Confinement) {
	program, err := exec.LookPath("bwrap")
	if err != nil {
		program = "bwrap"
	}
	args := []string{
		"--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "run",
		"--proc", "/proc", "--dev", "/dev", "--bind", inside.Folder{Root: r.folder}.Temp(), "/tmp", "--bind", inside.Folder{Root: r.folder}.Temp(), "/var/tmp",
	}
	for _, path := range inMemory {
		if r.limits.Memory > 0 {
			args = append(args, "--size", strconv.FormatInt(r.limits.Memory, 10))
		}
		args = append(args, "--tmpfs", path)
	}
	if !r.off {
		args = append(args, "--share-net")
	}
	for _, path := range r.read {
		if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		} else {
			args = append(args, "--ro-bind-try", path, path)
		}
	}
	supervisor := e.program
	if e.supervisor != inside.Self {
		supervisor = e.supervisor
		args = append(args, "--ro-bind", supervisor, supervisor)
	}
	args = append(args,
		"--ro-bind", e.program, e.program, "--bind", r.folder, r.folder, "--chdir", r.folder,
		"--remount-ro", "/dev", "--remount-ro", "/", // their own tmpfs
		"--", supervisor, inside.SuperviseCommand)
	return command{path: program, args: args, depth: 2}, inside.Confinement{
		Landlock: true, BestEffort: true, Read: append(slices.Clone(r.read), "/proc", "/sys", e.program),
		Write: []string{r.folder, "/tmp", "/var/tmp", "/dev/shm", "/run"}, Devices: inside.Devices, Seccomp: true, OwnIPC: true,
	}
}

// inMemory are the folders of a run in sandbox that are file systems in memory. Their content
// counts as memory.
var inMemory = []string{"/dev/shm", "/run"}

// systemFolders are the folders of a machine that programs need. A run gets no others, such as
// homes and the data of services.
var systemFolders = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap",
	"/var/lib/ca-certificates", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
}

// readable are the files and folders that every run may read: the system, the folders of
// PATH, and the operator's additions, without everything that is protected.
func (e *Executor) readable() []string {
	var all []string
	for _, path := range slices.Concat(systemFolders, filepath.SplitList(e.path), e.read) {
		if filepath.IsAbs(path) {
			all = append(all, e.without(filepath.Clean(path))...)
		}
	}
	return outermost(all)
}

// outermost are the paths of a list that are not in another folder of the list. Fewer mounts
// make a run start faster.
func outermost(all []string) (outer []string) {
	folders := make(map[string]bool)
	for _, path := range all {
		info, err := os.Lstat(path)
		folders[path] = err == nil && info.IsDir()
	}
	for path := range folders {
		above := filepath.Dir(path)
		for above != "/" && !folders[above] {
			above = filepath.Dir(above)
		}
		if !folders[above] || above == path {
			outer = append(outer, path)
		}
	}
	slices.Sort(outer)
	return outer
}

// without is the path, or if something in it is protected, the unprotected parts of its content.
func (e *Executor) without(path string) []string {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	parted := false
	for _, p := range e.protected {
		switch {
		case real == p || strings.HasPrefix(real, p+"/"):
			return nil
		case strings.HasPrefix(p, strings.TrimSuffix(real, "/")+"/"):
			parted = true
		}
	}
	if !e.account.sees(real) {
		return nil
	}
	if !parted {
		return []string{path}
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil
	}
	var all []string
	for _, entry := range entries {
		all = append(all, e.without(filepath.Join(real, entry.Name()))...)
	}
	return all
}

// choose finds the wall that the operator asks for, and tries it.
func (e *Executor) choose() {
	var problems []error
	defer func() { e.lacking = problems }()
	for _, w := range walls {
		if w.name != e.asked && (e.asked != Auto || !w.auto) {
			continue
		}
		err := error(nil)
		if problem := w.problem(e); problem != "" {
			err = errors.New(problem)
		} else {
			err = e.try(w)
		}
		if err == nil {
			e.wall = &w
			return
		}
		problems = append(problems, fmt.Errorf("%s: %w", w.name, err))
		if errors.Is(err, syscall.ENOSPC) {
			return // a full disk must not be the reason for a weaker wall
		}
	}
}

// Found is the result of Survey for an isolation.
type Found struct {
	Isolation string
	Problem   error // nil: it works here
}

// Survey tries every isolation that Auto may choose, the strongest first.
func Survey(ctx context.Context) ([]Found, error) {
	dir, err := os.MkdirTemp("", "triphammer-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = inside.RemoveAll(dir) }()
	var all []Found
	for _, w := range walls {
		if !w.auto || ctx.Err() != nil {
			continue
		}
		e, err := New(Config{Dir: dir, Isolation: w.name, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		name, lacking := e.Isolation()
		f := Found{Isolation: w.name}
		if name == "" {
			f.Problem = errors.Join(lacking...)
		}
		all = append(all, f)
	}
	return all, ctx.Err()
}

// User is the name of the user of the runs; empty: the user of the server.
func (e *Executor) User() string {
	e.Isolation()
	e.choosing.Lock()
	defer e.choosing.Unlock()
	if e.account != nil {
		return e.account.name
	}
	return ""
}

// Open makes runs start without walls, for runs on a person's own files, if no wall works here
// and the operator has not asked for one. It returns why no wall works; nil: it opened nothing.
func (e *Executor) Open() (why []error) {
	name, lacking := e.Isolation()
	if name != "" || e.asked != Auto {
		return nil
	}
	e.choosing.Lock()
	defer e.choosing.Unlock()
	e.account, e.wall = nil, wallNamed(None)
	return lacking
}
