package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// RunVariable marks every process of a run, unless it clears its environment.
const RunVariable = "TRIPHAMMER_RUN_ID"

// Process is a line of the process table.
type Process struct {
	Pid, parent, Session int
	Start                uint64 // in ticks since the machine started; pid and start identify a process
	Zombie               bool
	Stopped              bool // by a signal
}

// Processes reads the process table. Processes that end meanwhile are left out.
func Processes() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // only read
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	all := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := ProcessOf(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// ProcessOf reads the line of one process. The error is errEnded if the process has ended.
func ProcessOf(pid int) (Process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, ended(err)
	}
	p, ok := parseStat(pid, stat)
	if !ok {
		return Process{}, fmt.Errorf("the line of process %d in the process table cannot be read: %q", pid, stat)
	}
	return p, nil
}

var errEnded = errors.New("the process has ended")

// ended tells whether an error of /proc means that the process is gone.
func ended(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errEnded
	}
	return err
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The program's name, in
// parentheses, may itself hold parentheses and spaces.
func parseStat(pid int, stat []byte) (Process, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return Process{}, false
	}
	fields := strings.Fields(string(stat[i+1:])) // from the third on: state, ppid, pgrp, session …
	if len(fields) < 20 {
		return Process{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	p := Process{Pid: pid, parent: parent, Session: session, Start: start, Zombie: fields[0] == "Z" || fields[0] == "X", Stopped: fields[0] == "T"}
	return p, errors.Join(err1, err2, err3) == nil
}

// Children are the children of a process, including ended children that nobody has waited
// for. They come from the kernel's own lists (CONFIG_PROC_CHILDREN, which distributions
// set), because reading the whole table for each run each second would cost too much.
func Children(pid int) ([]Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil, ended(err)
	}
	var all []Process
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(dir, thread.Name(), "children"))
		if err != nil && ended(err) == errEnded {
			if _, still := os.Lstat(filepath.Join(dir, thread.Name())); still == nil {
				return childrenInTable(pid) // the kernel has no such lists
			}
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("reading the children of process %d: %w", pid, err)
			}
			switch p, err := ProcessOf(child); {
			case err == nil:
				all = append(all, p)
			case err != errEnded:
				return nil, err
			}
		}
	}
	return all, nil
}

// childrenInTable is Children for a kernel without lists of them.
func childrenInTable(pid int) ([]Process, error) {
	all, err := Processes()
	return slices.DeleteFunc(all, func(p Process) bool { return p.parent != pid }), err
}

// Descendants are the live processes below root.
func Descendants(root int) ([]Process, error) {
	var live []Process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		below, err := Children(queue[0])
		if err != nil && err != errEnded {
			return nil, err
		}
		for _, p := range below {
			queue = append(queue, p.Pid)
			if !p.Zombie {
				live = append(live, p)
			}
		}
	}
	return live, nil
}

// KillTime is how long processes may take to die of SIGKILL. A process that waits for a dead
// disk may never die.
const KillTime = 10 * time.Second

// KillUntilGone kills what list returns, again and again until list says that all are
// gone: between two lists a process may fork.
func KillUntilGone(list func() (live []Process, gone bool, err error)) error {
	deadline := time.Now().Add(KillTime)
	known := make(map[int]bool)
	for {
		live, gone, err := list()
		if err == nil && gone {
			return nil
		}
		news := false
		for _, p := range live {
			news = news || !known[p.Pid]
			known[p.Pid] = true
			if killErr := unix.Kill(p.Pid, unix.SIGKILL); killErr != nil && !errors.Is(killErr, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("killing process %d: %w", p.Pid, killErr))
			}
		}
		if time.Now().After(deadline) {
			return errors.Join(err, fmt.Errorf("processes do not die, or start others faster than they are found: %d were killed", len(known)))
		}
		if !news {
			time.Sleep(time.Millisecond) // the processes are dying
		}
	}
}

// Marking are the live processes that have the id of the run in their environment.
func Marking(runID string) ([]Process, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	mark := []byte(RunVariable + "=" + runID)
	return slices.DeleteFunc(all, func(p Process) bool { return p.Zombie || p.Pid == os.Getpid() || !marked(p.Pid, mark) }), nil
}

// Unprivileged tells whether a process can never gain a privilege. This is so for every process
// of a run.
func Unprivileged(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return err == nil && bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n"))
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false // the process is another user's, or gone
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}
