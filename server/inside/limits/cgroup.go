package limits

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/run/task"
)

// Names of the groups below the part of the tree that is ours.
const (
	serverGroup = "server" // has this process, because a group that gives controllers to others may have no process itself
	runsGroup   = "runs"   // has a group for each run
)

// wanted are the controllers that the limits need.
var wanted = []string{"memory", "pids", "cpu"}

// tree is the part of the cgroup tree that this process may divide.
type tree struct {
	dir         string
	controllers []string           // the wanted controllers that runs have
	rmdir       func(string) error // removes a group
}

// findTree finds the part of the tree that was given to this process. proc is /proc/self.
func findTree(proc string) (*tree, error) {
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	membership, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	root, mount := cgroupMount(mounts)
	if mount == "" {
		return nil, errors.New("cgroup version 2 is not mounted")
	}
	if _, err := openTree(mount); errors.Is(err, errNoControllers) {
		return nil, fmt.Errorf("on this machine, cgroup version 1 has the controllers %s", strings.Join(wanted, ", "))
	}
	for line := range strings.Lines(string(membership)) {
		path, ours := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ours {
			continue
		}
		below, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(below, "..") {
			return nil, errors.New("the cgroup of this process is not mounted here")
		}
		own := filepath.Join(mount, below)
		for _, dir := range []string{own, filepath.Dir(own)} { // systemd may have started this process in a subgroup
			if dir != mount && !strings.HasPrefix(dir, mount+"/") {
				break
			}
			if delegated(dir) {
				return openTree(dir)
			}
		}
		return nil, errors.New("the cgroup of this process is not its own to divide: with systemd, set Delegate=yes in the unit")
	}
	return nil, errors.New("this process is in no cgroup of version 2")
}

// cgroupMount finds where the tree is mounted, and which part of it.
func cgroupMount(mountinfo []byte) (root, mount string) {
	for line := range bytes.Lines(mountinfo) {
		before, after, _ := strings.Cut(string(line), " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) > 4 && len(kind) > 0 && kind[0] == "cgroup2" {
			return f[3], f[4]
		}
	}
	return "", ""
}

// delegated tells whether a group was given to this process to divide. Systemd marks such a
// group, a container has the root of its own tree, and a plain user may write only to his own
// groups.
func delegated(dir string) bool {
	if unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil || unix.Access(dir, unix.W_OK) != nil {
		return false
	}
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, mark, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "cgroup.type")) // the root of the machine's tree has no type
	_, aboveErr := os.Lstat(filepath.Join(dir, "..", "cgroup.procs"))
	top := err == nil && aboveErr != nil
	return top || os.Geteuid() != 0
}

var errNoControllers = fmt.Errorf("the cgroup of this process has none of the controllers %s", strings.Join(wanted, ", "))

// openTree reads what a group can give to runs.
func openTree(dir string) (*tree, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	t := &tree{dir: dir, rmdir: unix.Rmdir}
	for _, c := range wanted {
		if slices.Contains(strings.Fields(string(text)), c) {
			t.controllers = append(t.controllers, c)
		}
	}
	if len(t.controllers) == 0 {
		return nil, errNoControllers
	}
	return t, nil
}

func (t *tree) has(controller string) bool { return slices.Contains(t.controllers, controller) }

// memory is the lowest memory limit of the group and the groups above it.
func (t *tree) memory() int64 {
	lowest := int64(math.MaxInt64)
	for dir := t.dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, "cgroup.controllers")); err != nil {
			return lowest
		}
		text, err := os.ReadFile(filepath.Join(dir, "memory.max"))
		if n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && parseErr == nil {
			lowest = min(lowest, n)
		}
	}
}

// divide moves this process into its own group and makes the group of all runs, which may use
// all memory but a reserve for this process. If it fails, it undoes its changes.
func (t *tree) divide(memory int64) error {
	own := filepath.Join(t.dir, serverGroup)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("dividing the cgroup of this process: %w", err)
	}
	self := strconv.Itoa(os.Getpid())
	err := write(own, "cgroup.procs", self)
	if err == nil {
		err = t.enable(t.dir)
	}
	runs := filepath.Join(t.dir, runsGroup)
	if err == nil {
		if err = os.Mkdir(runs, 0o755); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = t.enable(runs)
	}
	if err != nil {
		_ = write(t.dir, "cgroup.procs", self)
		_, _ = os.Remove(runs), os.Remove(own)
		return fmt.Errorf("dividing the cgroup of this process: %w", err)
	}
	if t.has("memory") {
		return write(runs, "memory.max", strconv.FormatInt(memory-min(memory/8, 1<<30), 10))
	}
	return nil
}

// enable gives the controllers to the groups below dir.
func (t *tree) enable(dir string) error {
	return write(dir, "cgroup.subtree_control", "+"+strings.Join(t.controllers, " +"))
}

// period is the time for which a share of the CPUs is given, in microseconds.
const period = 100_000

// make makes the group of a run. It removes a group of that name, which a dead server has left.
func (t *tree) make(runID string, l task.Limits) (*cgroup, error) {
	dir := filepath.Join(t.dir, runsGroup, runID)
	if err := t.remove(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	settings := []struct {
		controller, file, value string
		set                     bool
	}{
		{"memory", "memory.max", strconv.FormatInt(l.Memory, 10), l.Memory > 0},
		{"memory", "memory.oom.group", "1", true},
		{"pids", "pids.max", strconv.FormatInt(l.Processes+OwnTasks, 10), l.Processes > 0},
		{"cpu", "cpu.max", fmt.Sprintf("%d %d", max(1000, int64(l.CPUs*period)), period), l.CPUs > 0},
	}
	for _, s := range settings {
		if s.set && t.has(s.controller) {
			if err := write(dir, s.file, s.value); err != nil {
				return nil, errors.Join(err, t.remove(dir))
			}
		}
	}
	if l.Memory > 0 && t.has("memory") {
		_ = write(dir, "memory.swap.max", "0") // a kernel without swap lacks this file
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, errors.Join(err, t.remove(dir))
	}
	return &cgroup{tree: t, dir: f}, nil
}

// Reap kills the processes that a dead server left in the group of a run, and removes the group.
func (m *Machine) Reap(runID string) error {
	if m.tree == nil {
		return nil
	}
	return m.tree.remove(filepath.Join(m.tree.dir, runsGroup, runID))
}

// cgroup is the group of one run.
type cgroup struct {
	tree *tree
	dir  *os.File
}

// has tells whether the kernel enforces a limit. A nil cgroup enforces none.
func (c *cgroup) has(controller string) bool { return c != nil && c.tree.has(controller) }

func (c *cgroup) event(file, name string) int64 {
	return counter(filepath.Join(c.dir.Name(), file), name)
}

func counter(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0 // without the controller there is no file
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func (c *cgroup) close() error {
	return errors.Join(c.dir.Close(), c.tree.remove(c.dir.Name()))
}

// killTime is how long the processes of a group may take to die.
const killTime = 10 * time.Second

// remove kills the processes of a group and removes the group, with the groups that the run made
// in it. A missing group is no error.
func (t *tree) remove(dir string) error {
	deadline := time.Now().Add(killTime)
	for {
		if err := write(dir, "cgroup.kill", "1"); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		err := t.removeGroups(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ending the processes of a cgroup: %w", err)
		}
		time.Sleep(time.Millisecond) // the processes are dying
	}
}

// removeGroups removes a group and the groups in it. The kernel removes the files of a group.
func (t *tree) removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := t.removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return t.rmdir(dir)
}

func write(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
}
