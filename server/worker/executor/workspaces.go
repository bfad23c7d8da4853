package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/inside"
	"triphammer/server/inside/limits"
)

// Reap implements task.Executor. A supervisor ends with its server, so processes are left
// only if both were killed at once. Reap finds the processes that the dead server had
// listed, their descendants, and the processes with the run's id in their environment.
func (e *Executor) Reap(ctx context.Context, runID string) error {
	listed := inside.Kept(e.list(runID))
	err := inside.KillUntilGone(func() ([]inside.Process, bool, error) {
		live, err := inside.Marking(runID)
		for _, was := range listed {
			now, nowErr := inside.ProcessOf(was.Pid)
			// The agent could have put processes into the list that it may not kill itself.
			if nowErr == nil && now.Start == was.Start && !now.Zombie && now.Pid != os.Getpid() && inside.Unprivileged(now.Pid) {
				below, belowErr := inside.Descendants(now.Pid)
				live, err = append(append(live, now), below...), errors.Join(err, belowErr)
			}
		}
		return live, len(live) == 0, err
	})
	return errors.Join(err, e.removeContainer(ctx, runID))
}

// Sweep implements task.Executor.
func (e *Executor) Sweep(ctx context.Context, expired func(workspace string, ended time.Time) bool) error {
	old, err := e.left()
	errs := []error{err, e.sweepContainers(ctx), e.sweepCaches(maxCaches)}
	for _, r := range old {
		if ctx.Err() == nil && expired(r.name, r.ended) && !e.busy(r.name) {
			errs = append(errs, e.remove(r.name))
		}
	}
	return errors.Join(errs...)
}

// Workspace implements task.Executor.
func (e *Executor) Workspace(name string) (path string, ok bool) {
	path = inside.Folder{Root: filepath.Join(e.dir, name)}.Workspace()
	info, err := os.Lstat(path)
	return path, err == nil && info.IsDir()
}

// Reclaim implements task.Executor.
func (e *Executor) Reclaim(ctx context.Context, enough func() bool, may func(workspace string) bool) (removed int, err error) {
	old, err := e.left()
	errs := []error{err}
	if !enough() {
		errs = append(errs, e.sweepCaches(0))
	}
	for _, r := range old {
		if ctx.Err() != nil || enough() {
			break
		}
		if !may(r.name) || e.busy(r.name) {
			continue
		}
		err := e.remove(r.name)
		if errs = append(errs, err); err == nil {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// Figures counts the children of this process that run, the children that have ended but were not
// waited for, and the folders of runs, including runs in progress.
func (e *Executor) Figures() (running, ended, workspaces int, err error) {
	below, err := inside.Children(os.Getpid())
	for _, p := range below {
		if p.Zombie {
			ended++
		}
	}
	folders, globErr := filepath.Glob(filepath.Join(e.dir, runPrefix+"*"))
	return len(below) - ended, ended, len(folders), errors.Join(err, globErr)
}

// leftover is the folder of a run that has ended.
type leftover struct {
	name  string
	ended time.Time
}

// left are the folders of runs that have ended, the oldest first. Other files in the
// folder are left alone.
func (e *Executor) left() ([]leftover, error) {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the folders of the runs: %w", err)
	}
	var all []leftover
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), runPrefix) && !e.busy(entry.Name()) {
			all = append(all, leftover{entry.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b leftover) int { return a.ended.Compare(b.ended) })
	return all, nil
}

func (e *Executor) remove(name string) error {
	if err := inside.RemoveAll(filepath.Join(e.dir, name)); err != nil {
		return fmt.Errorf("removing the folder of the run %s: %w", name, err)
	}
	return nil
}

// runPrefix begins the id of every run.
const runPrefix = "run_"

// Size implements task.Executor. It counts the files in the folder of the run, and the deleted
// files that its processes still hold open. It opens folders that the agent has closed to itself
// while it counts them.
func (e *Executor) Size(ctx context.Context, runID string) (bytes, files int64) {
	e.mu.Lock()
	r := e.active[runID]
	e.mu.Unlock()
	if r.folder == "" { // it has not begun here, or has ended
		return 0, 0
	}
	seen := make(map[[2]uint64]bool) // hard links count once
	visit := func(dir int, name string) (int, uint32) {
		var st unix.Stat_t
		if ctx.Err() != nil || unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return -1, 0 // the folder was deleted meanwhile
		}
		if file := [2]uint64{uint64(st.Dev), st.Ino}; !seen[file] {
			if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				seen[file] = true
			}
			bytes += st.Blocks * 512
			files++
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return -1, 0
		}
		fd, mode, _ := inside.OpenFolder(dir, name, 0o500)
		return fd, mode
	}
	if top, mode, err := inside.OpenFolder(unix.AT_FDCWD, filepath.Join(e.dir, r.folder), 0o500); err == nil {
		_ = inside.Walk(top, mode, visit, func(int, string) {}) // the next walk finds files that were moved
	}
	var pids []int
	if r.supervisor != nil {
		pids = r.supervisor.processes()
	}
	_, held := limits.Held(pids, e.dir)
	return bytes + held.Bytes(), files + int64(len(held))
}

// mark notes that a run uses a folder. It refuses a run that is in progress.
func (e *Executor) mark(runID, folder string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[runID].folder != "" {
		return false
	}
	e.active[runID] = activeRun{folder: folder}
	return true
}

func (e *Executor) unmark(runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.active, runID)
}

// busy tells whether a run in progress uses the folder.
func (e *Executor) busy(folder string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, used := range e.active {
		if used.folder == folder {
			return true
		}
	}
	return false
}

// folderOf is the name of the folder of a run in progress.
func (e *Executor) folderOf(runID string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[runID].folder
}
