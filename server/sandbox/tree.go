package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runVariable marks every process of a run, unless it clears its environment.
const runVariable = "TRIPHAMMER_RUN_ID"

// process is a line of the process table.
type process struct {
	pid, parent, session int
	zombie               bool
}

// processes reads the process table. Processes that end meanwhile are left out.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // only read
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, stat); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The program's name, in
// parentheses, may itself hold parentheses and spaces.
func parseStat(pid int, stat []byte) (process, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(stat[i+1:])) // state, ppid, pgrp, session
	if len(fields) < 4 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	return process{pid: pid, parent: parent, session: session, zombie: fields[0] == "Z" || fields[0] == "X"}, err1 == nil && err2 == nil
}

// descendants are the live processes below root.
func descendants(root int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]process, len(all))
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var live []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
			if !p.zombie {
				live = append(live, p.pid)
			}
		}
	}
	return live, nil
}

// killTime bounds how long processes may take to die of SIGKILL; one that waits
// for a dead disk may never.
const killTime = 10 * time.Second

// killUntilGone kills what list returns until it returns nothing: between two
// lists a process may fork.
func killUntilGone(list func() ([]int, error), between func()) error {
	deadline := time.Now().Add(killTime)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := list()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not die, process %d for one", len(pids), pids[0])
		}
		between()
		time.Sleep(pause)
	}
}

// sweepProcesses kills what still carries the id of the run in its environment,
// or is in the session of its supervisor if that is not 0. It is for the case
// that the supervisor itself was killed.
func sweepProcesses(runID string, session int) error {
	mark := []byte(runVariable + "=" + runID)
	return killUntilGone(func() ([]int, error) {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		var left []int
		for _, p := range all {
			if p.zombie || p.pid == os.Getpid() {
				continue
			}
			if session != 0 && p.session == session || marked(p.pid, mark) {
				left = append(left, p.pid)
			}
		}
		return left, nil
	}, func() {})
}

// deletedFiles are the files that processes of a run hold open and that have no
// name any more: nothing but the end of those processes frees their room.
func deletedFiles(runID string) (files []syscall.Stat_t) {
	all, err := processes()
	if err != nil {
		return nil
	}
	mark := []byte(runVariable + "=" + runID)
	for _, p := range all {
		if p.pid == os.Getpid() || !marked(p.pid, mark) {
			continue
		}
		dir := filepath.Join("/proc", strconv.Itoa(p.pid), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, fd := range fds {
			info, err := os.Stat(filepath.Join(dir, fd.Name()))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 0 {
				files = append(files, *st)
			}
		}
	}
	return files
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false // another user's, or gone
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}
