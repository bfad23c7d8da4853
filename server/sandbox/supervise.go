package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SuperviseCommand is the hidden command under which the program calls Supervise.
const SuperviseCommand = "__supervise"

// File descriptors that the server gives to a supervisor.
const (
	ordersFD = 3
	reportFD = 4
)

// Supervise is the body of the hidden command: it runs the steps of one run, one
// after the other, and returns the program's exit status.
//
// The supervisor is a child subreaper (prctl(2)): every process that a step leaves
// behind becomes its child, also after setsid and a double fork, and dies with the run.
// If the server dies, the pipe of the orders ends; the supervisor then ends everything.
func Supervise(args []string) int {
	if len(args) != 0 || !isPipe(ordersFD) || !isPipe(reportFD) {
		fmt.Fprintln(os.Stderr, "this command is not for people: the server starts it for each run")
		return 2
	}
	// Some of what is set here belongs to the thread, and the steps are to inherit
	// it; their death signal comes with the death of the thread that forked them.
	runtime.LockOSThread()
	unix.CloseOnExec(ordersFD)
	unix.CloseOnExec(reportFD)
	err := errors.Join(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		// A program that changes its user could not be killed.
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		// Memory holds the granted secrets: neither other processes nor a core file
		// are to have it.
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the supervisor cannot contain a run:", err)
		return 1
	}
	_, _ = keepSignals() // an older kernel has no such thing (docs/operating.md)
	s := &supervising{report: &frameWriter{w: os.NewFile(reportFD, "report")}, self: os.Getpid()}
	return s.loop(os.NewFile(ordersFD, "orders"))
}

// isPipe tells whether a descriptor is a pipe, and not one that the Go runtime opened.
func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// supervising is the state of a supervisor. Its loop owns all of it.
type supervising struct {
	report *frameWriter
	self   int
	main   int // process of the current step; 0: none
	last   bool
	status syscall.WaitStatus // of main, once gone
	gone   bool
	pipes  []*outputPipe // of the current step
}

func (s *supervising) loop(from io.Reader) int {
	// Only the server decides when the run stops, also if a service manager signals all
	// processes at once. The signals are caught and not ignored, because the steps would
	// inherit an ignored signal. Nobody reads this channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)

	orders := make(chan order)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(from); ; {
			var o order
			if d.Decode(&o) != nil {
				return // the server is gone
			}
			orders <- o
		}
	}()
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				return s.killAll()
			case o.Run != nil:
				s.start(o.Run)
			case o.Interrupt && s.main != 0:
				_ = unix.Kill(-s.main, unix.SIGINT) // it may have ended
			case o.Kill:
				s.killAll()
			}
		case <-children:
			s.reap()
		}
		if s.gone {
			s.finish()
		}
	}
}

// start starts a step.
func (s *supervising) start(st *step) {
	err := s.fork(st)
	if err == nil {
		s.last = st.Last
		return
	}
	s.tell(end{Code: -1, Error: err.Error()})
}

func (s *supervising) fork(st *step) error {
	if s.main != 0 {
		return errors.New("the step before has not ended")
	}
	stdinName := st.Stdin
	if stdinName == "" {
		stdinName = os.DevNull
	}
	stdin, err := os.Open(stdinName)
	if err != nil {
		return fmt.Errorf("opening the standard input: %w", err)
	}
	defer func() { _ = stdin.Close() }()
	files := []uintptr{stdin.Fd()}
	var pipes []*outputPipe
	for _, kind := range []byte{frameStdout, frameStderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("making a pipe: %w", err)
		}
		defer func() { _ = w.Close() }()
		pipes = append(pipes, &outputPipe{kind: kind, r: r, report: s.report})
		// A program expects that a write to its output blocks.
		if err := unix.SetNonblock(int(w.Fd()), false); err != nil {
			return fmt.Errorf("making a pipe: %w", err)
		}
		files = append(files, w.Fd())
	}
	pid, err := syscall.ForkExec(st.Path, st.Argv, &syscall.ProcAttr{
		Dir: st.Dir, Env: st.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", st.Argv[0], err)
	}
	s.main, s.gone, s.pipes = pid, false, pipes
	for _, p := range pipes {
		p.begin()
	}
	return nil
}

// reap takes the status of every child that has ended, including adopted ones, and tells
// whether there are no others. Every process of a step becomes a child sooner or later,
// so then nothing is left.
func (s *supervising) reap() (gone bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid == 0:
			return errors.Is(err, syscall.ECHILD)
		case pid == s.main:
			s.status, s.gone = status, true
		}
	}
}

// finish reports the end of the step, after everything that it printed.
func (s *supervising) finish() {
	if s.last {
		s.killAll()
	}
	for _, p := range s.pipes {
		p.drain(s.last)
	}
	e := end{Code: s.status.ExitStatus()}
	if s.status.Signaled() {
		e.Code, e.Signal = -1, unix.SignalName(s.status.Signal())
	}
	s.main, s.gone, s.pipes = 0, false, nil
	s.tell(e)
}

func (s *supervising) tell(e end) {
	data, err := json.Marshal(e)
	if err == nil {
		err = s.report.write(frameEnd, data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reporting to the server:", err) // it is gone
	}
}

// killAll kills everything below the supervisor and returns its exit status.
func (s *supervising) killAll() int {
	err := killUntilGone(func() ([]process, bool, error) {
		if s.reap() {
			return nil, true, nil
		}
		live, err := descendants(s.self)
		return live, false, err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopping the run:", err)
		return 1
	}
	return 0
}

// outputPipe carries one stream of a step to the report.
type outputPipe struct {
	kind    byte
	r       *os.File
	report  *frameWriter
	reading sync.WaitGroup
	drained chan struct{}
}

// drainTime bounds the wait for output after everything was killed.
const drainTime = 2 * time.Second

func (p *outputPipe) begin() {
	p.drained = make(chan struct{})
	p.reading.Go(p.copy)
}

// copy reads until the last writer is gone. A process that a setup command left
// in the background may write on during later steps.
func (p *outputPipe) copy() {
	defer func() { _ = p.r.Close() }()
	buf := make([]byte, 32<<10)
	drained := false
	done := func() {
		if !drained {
			drained = true
			close(p.drained)
		}
	}
	defer done()
	for {
		n, err := p.r.Read(buf)
		if n > 0 && p.report.write(p.kind, buf[:n]) != nil {
			return // the server is gone
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The step has ended, so everything that it wrote is in the pipe already.
			if p.r.SetReadDeadline(time.Time{}) != nil || !p.empty(buf) {
				return
			}
			done()
		case err != nil:
			return
		}
	}
}

// empty reads what is in the pipe, without waiting for more.
func (p *outputPipe) empty(buf []byte) bool {
	conn, err := p.r.SyscallConn()
	if err != nil {
		return false
	}
	more := true
	err = conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 {
				more = errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
				return true
			}
			if p.report.write(p.kind, buf[:n]) != nil {
				more = false
				return true
			}
		}
	})
	return err == nil && more
}

// drain returns when all that the step printed is reported. After the last step
// no process holds the pipe, and it ends by itself.
func (p *outputPipe) drain(last bool) {
	if !last {
		if err := p.r.SetReadDeadline(time.Now()); err != nil {
			return // it ended already
		}
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-timer.C:
	}
}
