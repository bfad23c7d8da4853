// Package limits bounds what a run may use of the machine: memory, CPUs, processes, disk
// and output (SPEC 14.6). A [Machine] knows in which of two ways.
//
// If the service manager or the container gives this process a part of the cgroup tree
// (version 2), each run has a cgroup. Then the kernel keeps a run from exceeding its memory,
// processes and CPUs.
//
// Otherwise the processes are measured ([Group.Watch]). A run that uses more than it may is
// stopped at most a second later; in that second it may use more. Each process also inherits
// limits from the first ([Inherited]): CPUs (by an affinity, which a process can change for
// itself), the size of a file, and the number of processes of its user. The kernel kills a run
// before the server when memory is short.
//
// Disk and output are always measured.
package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"triphammer/server/disk"
	"triphammer/server/run/task"
)

// ErrExceeded is wrapped by the error of a run that used more than it may.
var ErrExceeded = errors.New("the run used more than it may, and was stopped")

const (
	lookTime = time.Second            // between two measurements
	nearTime = 100 * time.Millisecond // between two measurements of a run that uses more than half of a limit
	// diskShare bounds the time for measuring the disk to one part in this number.
	diskShare = 20
)

// Machine is what all runs of this machine share.
type Machine struct {
	Memory int64 // bytes that this process and its runs may use
	CPUs   int

	tree *tree  // nil: there is no part of the cgroup tree for runs
	why  string // why tree is nil
}

// Probe looks at the machine. If this process has a part of the cgroup tree to divide, Probe
// moves it into its own group there, beside the future groups of the runs. So call Probe
// before any other process is started.
func Probe(logger *slog.Logger) *Machine {
	m := &Machine{Memory: memoryOf("/proc/meminfo"), CPUs: runtime.NumCPU()}
	t, err := findTree("/proc/self")
	if err == nil {
		m.Memory = min(m.Memory, t.memory())
		err = t.divide(m.Memory)
	}
	if err != nil {
		m.why = err.Error()
		logger.Warn("limits of runs are kept by measuring: a run can exceed them for a second", "reason", m.why)
		return m
	}
	m.tree = t
	logger.Info("limits of runs are kept by cgroups", "controllers", strings.Join(t.controllers, " "))
	return m
}

// Kept says, for people, how this machine enforces the limit of each resource.
func (m *Machine) Kept() []string {
	by := func(controller string) bool { return m.tree != nil && m.tree.has(controller) }
	memory, cpus, processes := "measured each second", "by CPU affinity, in whole CPUs, which a process can undo", "measured each second"
	if by("memory") {
		memory = "by cgroup"
	}
	if by("cpu") {
		cpus = "by cgroup"
	}
	if by("pids") {
		processes = "by cgroup"
	}
	kept := []string{"memory: " + memory, "CPUs: " + cpus, "processes: " + processes, "disk: measured", "output: measured"}
	if m.why != "" {
		kept = append(kept, "no cgroups: "+m.why)
	}
	return kept
}

// Defaults are the limits of a run without limits of its own. They keep one run from taking the
// machine down: half of the memory, and processes by the number of CPUs.
func (m *Machine) Defaults() task.Limits {
	return task.Limits{Memory: m.Memory / 2, Processes: max(2048, 128*int64(m.CPUs)), Output: 256 << 20}
}

// memoryOf is the memory of the machine, in bytes.
func memoryOf(meminfo string) int64 {
	text, err := os.ReadFile(meminfo)
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					return kib << 10
				}
			}
		}
	}
	return math.MaxInt64
}

// Or are the limits, with zero fields replaced by those of otherwise.
func Or(l, otherwise task.Limits) task.Limits {
	pick := func(a, b int64) int64 {
		if a != 0 {
			return a
		}
		return b
	}
	l.Memory, l.Processes = pick(l.Memory, otherwise.Memory), pick(l.Processes, otherwise.Processes)
	l.Disk, l.Output = pick(l.Disk, otherwise.Disk), pick(l.Output, otherwise.Output)
	l.CPUs = cmp.Or(l.CPUs, otherwise.CPUs)
	return l
}

// OwnTasks bounds the processes and threads of a run's supervisor and walls. They are beyond the
// limit of the run, because a run that uses up its limit must not keep its supervisor from
// starting a thread, which would end a Go program.
const OwnTasks = 32

// OwnMemory bounds the memory of the supervisor of a run in a container, in bytes. It is beyond
// the limit of the run.
const OwnMemory = 64 << 20

// Group bounds the processes of one run. A limit of 0 or less means no limit.
type Group struct {
	limits  task.Limits
	cgroup  *cgroup // nil: the processes are measured
	printed atomic.Int64

	mu     sync.Mutex
	err    error      // what was exceeded first
	notify chan error // takes err
}

// New makes the group of a run. The caller closes it.
func (m *Machine) New(runID string, l task.Limits) (*Group, error) {
	g := &Group{limits: l, notify: make(chan error, 1)}
	if m.tree == nil {
		return g, nil
	}
	c, err := m.tree.make(runID, l)
	if err != nil {
		return nil, fmt.Errorf("limiting the run: %w", err)
	}
	g.cgroup = c
	return g, nil
}

// Apply makes the first process of the run start in the group. Call it before the start.
func (g *Group) Apply(attr *syscall.SysProcAttr) {
	if g.cgroup != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(g.cgroup.dir.Fd())
	}
}

// Printed counts bytes of the run's output.
func (g *Group) Printed(bytes int) {
	if n := g.printed.Add(int64(bytes)); g.limits.Output > 0 && n > g.limits.Output {
		g.exceed("the run printed more than its output of %s, and was stopped (--run-output of the server)", disk.Bytes(g.limits.Output))
	}
}

// Usage tells a group how to measure a run. Both functions may be nil.
type Usage struct {
	Processes func() []int                               // pids
	Tmpfs     []string                                   // paths of file systems in memory that only the processes have
	Disk      func(context.Context) (bytes, files int64) // like task.Executor.Size
}

// Watch calls exceeded when the run first uses more than it may, with an error for people
// that wraps ErrExceeded. It returns after that call, or when ctx ends.
func (g *Group) Watch(ctx context.Context, u Usage, exceeded func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	var helper sync.WaitGroup
	defer helper.Wait()
	defer cancel()
	if u.Disk != nil && g.limits.Disk > 0 {
		helper.Go(func() { g.watchDisk(ctx, u.Disk) })
	}
	timer := time.NewTimer(nearTime) // short runs use little, and a look costs as much as their start
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-g.notify:
			exceeded(err)
			return
		case <-timer.C:
		}
		wait := lookTime
		if g.look(u.Processes, u.Tmpfs...) {
			wait = nearTime
		}
		timer.Reset(wait)
	}
}

// watchDisk measures the disk until ctx ends. It has its own goroutine, because measuring can
// take long.
func (g *Group) watchDisk(ctx context.Context, measure func(context.Context) (bytes, files int64)) {
	timer := time.NewTimer(nearTime)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		if bytes, _ := measure(ctx); bytes > g.limits.Disk {
			g.exceed("the run used more than its disk of %s, and was stopped (resources.diskMb of its environment, or --run-disk of the server)",
				disk.Bytes(g.limits.Disk))
		}
		timer.Reset(max(lookTime, diskShare*time.Since(begin)))
	}
}

// look measures memory and processes. near tells that one of the two is above half of its
// limit.
func (g *Group) look(processes func() []int, tmpfs ...string) (near bool) {
	if g.cgroup != nil {
		g.lookAtGroup()
	}
	byMemory, byPids := g.limits.Memory > 0 && !g.cgroup.has("memory"), g.limits.Processes > 0 && !g.cgroup.has("pids")
	if processes == nil || !byMemory && !byPids {
		return false
	}
	pids := processes()
	if byPids {
		n := tasks(pids) - OwnTasks
		if n > g.limits.Processes {
			g.tooManyProcesses()
		}
		near = n > g.limits.Processes/2
	}
	if byMemory {
		// The first figure is cheap, but counts shared memory once for each process. The second
		// counts mapped files twice, and the third does not.
		files, _ := Held(pids, "", tmpfs...)
		held := files.Bytes()
		n := held + memory(pids, residentSize)
		if n > g.limits.Memory {
			n = held + memory(pids, proportionalSize)
		}
		if n > g.limits.Memory && held > 0 {
			n = held + memory(pids, files.besides)
		}
		if n > g.limits.Memory {
			g.tooMuchMemory()
		}
		near = near || n > g.limits.Memory/2
	}
	return near
}

// lookAtGroup asks the kernel which limits the run has exceeded.
func (g *Group) lookAtGroup() {
	switch {
	case g.limits.Memory > 0 && g.cgroup.event("memory.events", "oom") > 0:
		g.tooMuchMemory()
	case g.cgroup.event("memory.events", "oom_kill") > 0:
		g.exceed("the kernel ended the run, because no memory was left (--max-runs and --run-memory of the server)")
	}
	if g.cgroup.event("pids.events", "max") > 0 {
		g.tooManyProcesses()
	}
}

func (g *Group) tooMuchMemory() {
	g.exceed("the run used more than its memory of %s, and was stopped (resources.memoryMb of its environment, or --run-memory of the server)",
		disk.Bytes(g.limits.Memory))
}

func (g *Group) tooManyProcesses() {
	g.exceed("the run had more than its %d processes and threads, and was stopped "+
		"(resources.processes of its environment, or --run-processes of the server)", g.limits.Processes)
}

func (g *Group) exceed(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = &exceeded{fmt.Sprintf(format, args...)}
		g.notify <- g.err
	}
}

// exceeded is an ErrExceeded that says which limit.
type exceeded struct{ text string }

func (e *exceeded) Error() string        { return e.text }
func (e *exceeded) Is(target error) bool { return target == ErrExceeded }

// Err says which limit the run has exceeded; nil: none. Ask it again when the run has ended,
// because the kernel may have killed the run before Watch noticed.
func (g *Group) Err() error {
	if g.cgroup != nil {
		g.lookAtGroup()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close kills the processes that are left in the group, and removes the group. Without a cgroup
// it does nothing.
func (g *Group) Close() error {
	if g.cgroup == nil {
		return nil
	}
	return g.cgroup.close()
}

func tasks(pids []int) (n int64) {
	for _, pid := range pids {
		if f := statFields(pid); len(f) > 17 {
			threads, _ := strconv.ParseInt(f[17], 10, 64)
			n += threads
		}
	}
	return n
}

// statFields are the fields of /proc/PID/stat from the state on (proc_pid_stat(5)).
func statFields(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// memory adds up the memory of the processes by a measure.
func memory(pids []int, of func(pid int) int64) (n int64) {
	for _, pid := range pids {
		n += of(pid)
	}
	return n
}

// residentSize is the physical memory of a process in bytes, including shared memory.
func residentSize(pid int) int64 {
	f := statFields(pid)
	if len(f) < 22 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	return pages * int64(os.Getpagesize())
}

// proportionalSize is the physical memory of a process in bytes, with only its part of shared
// memory. It is the resident size if the kernel does not tell.
func proportionalSize(pid int) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					return kib << 10
				}
			}
		}
	}
	return residentSize(pid)
}
