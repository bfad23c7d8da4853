package inside

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Some walls are made by a program of the machine that outlives its caller or leaves
// processes beside itself: a container engine, or the operator's program. The server does not
// start that program itself. It starts `triphammer __supervise outside PROGRAM …`, which
// adopts the processes that the program leaves, so that they stay below one process of the run.

// Outside is the argument of a process that starts such a program.
const Outside = "outside"

// leaveTime is how long the left processes may take to end by themselves, because an engine
// tidies up after a container.
const leaveTime = 2 * time.Second

// superviseOutside is the body of `__supervise outside PROGRAM …`. The program has the standard
// input, output and error of this process, and decides the exit status of this process.
func superviseOutside(argv []string) int {
	// The death signal is about the thread that forks.
	runtime.LockOSThread()
	server := os.Getppid()
	news := make(chan os.Signal, 1)
	signal.Notify(news, syscall.SIGCHLD, syscall.SIGCONT)                                                    // the server's death sends the latter
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // as in loop
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Said(err)
	}
	path := find(argv[0], "/", os.Environ())
	if path == "" {
		return Said(fmt.Errorf("the program %q, which starts runs, was not found on the PATH of the server, or is no program", argv[0]))
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return Said(fmt.Errorf("starting %s: %w", argv[0], err))
	}
	s := &supervising{self: os.Getpid(), main: pid}
	var timer <-chan time.Time
	for {
		nothing := s.reap()
		if s.gone && timer == nil {
			timer = time.After(leaveTime)
		}
		if nothing {
			return s.exitStatus()
		}
		if timer == nil && os.Getppid() != server {
			timer = time.After(KillWait) // the program's input has ended too, so it may end by itself
		}
		select {
		case <-news:
		case <-timer:
			return max(s.killAll(), s.exitStatus())
		}
	}
}

// exitStatus is the status of the main process, in the form of shells.
func (s *supervising) exitStatus() int {
	if s.status.Signaled() {
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}

// Said prints an error to standard error, and returns the exit status 1.
func Said(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
