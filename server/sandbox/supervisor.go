package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/run"
)

// supervisor is the server's side of one supervisor process.
type supervisor struct {
	runID   string
	cmd     *exec.Cmd
	orders  *os.File
	encoder *json.Encoder
	stderr  lockedBuffer
	ends    chan end // closed when the supervisor is gone
	helpers sync.WaitGroup
	closed  chan struct{}
	stopped atomic.Bool // by a signal, and killed for it
}

// supervisors are the supervisors of this process, by pid. They are its children. If one
// is killed, its processes become children of this process too, because it is a
// subreaper. The lock is held while a supervisor starts, so that it is not mistaken for
// a process that was left behind.
var supervisors = struct {
	sync.Mutex
	running map[int]*supervisor
}{running: make(map[int]*supervisor)}

// startSupervisor starts the supervisor of a run. What the run prints goes to
// output, from another goroutine. It must be closed.
func startSupervisor(runID, dir string, output func(stream, text string)) (*supervisor, error) {
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a supervisor: %w", err)
	}
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a supervisor: %w", err), ordersR.Close(), ordersW.Close())
	}
	s := &supervisor{runID: runID, orders: ordersW, encoder: json.NewEncoder(ordersW), ends: make(chan end, 1), closed: make(chan struct{})}
	s.cmd = &exec.Cmd{
		Path: self, Args: []string{"triphammer", SuperviseCommand}, Dir: dir,
		// Nothing else: the server's environment may hold secrets.
		Env:        []string{runVariable + "=" + runID},
		Stderr:     &s.stderr,
		ExtraFiles: []*os.File{ordersR, reportW},
		// The signal wakes a stopped supervisor, so that it sees that the server is gone.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT},
		WaitDelay:   time.Second,
	}
	supervisors.Lock()
	err = s.cmd.Start()
	if err == nil {
		supervisors.running[s.cmd.Process.Pid] = s
	}
	supervisors.Unlock()
	closeErr := errors.Join(ordersR.Close(), reportW.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a supervisor: %w", err), closeErr, ordersW.Close(), reportR.Close())
	}
	s.helpers.Go(func() {
		defer close(s.ends)
		defer func() { _ = reportR.Close() }()
		s.read(reportR, output)
	})
	s.helpers.Go(func() { s.watch(dir) })
	return s, nil
}

// watchTime is how often the server looks at a supervisor.
const watchTime = time.Second

// watch keeps a list of the run's processes in its folder, in case the server and the
// supervisor die at once. It also ends a supervisor that was stopped by a signal, because
// that would follow no order any more.
func (s *supervisor) watch(dir string) {
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	var kept []process
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, s.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == nil && info.Signo != 0 {
			s.stopped.Store(true)
			_ = s.cmd.Process.Kill()
			continue
		}
		live, err := descendants(s.cmd.Process.Pid)
		if err == nil && len(live) > 0 && !slices.Equal(live, kept) {
			kept = live
			_ = keep(dir, live) // the agent may have removed the folder, or filled the disk
		}
	}
}

func (s *supervisor) read(from io.Reader, output func(stream, text string)) {
	for {
		kind, data, err := readFrame(from)
		if err != nil {
			return // the supervisor is gone; run reports it
		}
		switch kind {
		case frameStdout:
			output("stdout", string(data))
		case frameStderr:
			output("stderr", string(data))
		case frameEnd:
			e, err := decodeEnd(data)
			if err != nil {
				e = end{Code: -1, Error: err.Error()}
			}
			s.ends <- e
		}
	}
}

// killWait is how long the supervisor may take to kill everything before the server
// kills the supervisor.
const killWait = killTime + 5*time.Second

// run runs one step. When ctx ends it interrupts the step, and after the grace
// kills everything.
func (s *supervisor) run(ctx context.Context, st step, grace time.Duration) (end, error) {
	if ctx.Err() != nil {
		return end{}, context.Cause(ctx)
	}
	if err := s.encoder.Encode(order{Run: &st}); err != nil {
		return end{}, s.lost()
	}
	stopped := false
	var timer <-chan time.Time
	asked := ctx.Done()
	next := order{Interrupt: true}
	for {
		select {
		case e, ok := <-s.ends:
			switch {
			case !ok:
				return end{}, s.lost()
			case e.Error != "":
				return end{}, errors.New(e.Error)
			}
			e.Stopped = stopped
			return e, nil
		case <-asked:
			asked, stopped = nil, true
			if errors.Is(context.Cause(ctx), run.ErrDisk) {
				grace = 0 // other runs wait for the space
			}
			timer = time.After(grace)
		case <-timer:
			if next.Kill {
				return end{}, s.lost()
			}
			next, timer = order{Kill: true}, time.After(killWait)
		}
		if err := s.encoder.Encode(next); err != nil {
			return end{}, s.lost()
		}
	}
}

// lost is the error for a supervisor that is gone or stopped.
func (s *supervisor) lost() error {
	err := errors.New("its supervisor was ended from outside")
	if s.stopped.Load() {
		err = errors.New("its supervisor was stopped from outside, so that nothing watched over it")
	}
	if said := s.complaints(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// complaints is what the supervisor wrote to its standard error; empty if all is well.
func (s *supervisor) complaints() string { return strings.TrimSpace(s.stderr.String()) }

// close ends the supervisor and everything below it, and makes sure.
func (s *supervisor) close() error {
	_ = s.orders.Close() // the supervisor ends at the end of its orders
	stuck := time.AfterFunc(killWait, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	clean := s.cmd.Wait() == nil // with status 0 it has seen that nothing is left
	supervisors.Lock()
	if pid := s.cmd.Process.Pid; supervisors.running[pid] == s {
		delete(supervisors.running, pid)
	}
	supervisors.Unlock()
	close(s.closed)
	var err error
	if !clean {
		err = killUntilGone(orphans)
	}
	for range s.ends {
		// a report that nobody waits for
	}
	s.helpers.Wait()
	if err != nil {
		return fmt.Errorf("ending the processes of the run: %w", err)
	}
	return nil
}

// orphans are the processes that killed supervisors have left to this process: its
// children in another session than its own. Only supervisors start sessions here. Nobody
// else waits for these children, so each stays visible here, at least as one that has
// ended.
func orphans() (live []process, gone bool, err error) {
	supervisors.Lock()
	defer supervisors.Unlock()
	self, err := processOf(os.Getpid())
	if err != nil {
		return nil, false, err
	}
	below, err := children(self.pid)
	if err != nil {
		return nil, false, err
	}
	gone = true
	for _, p := range below {
		if p.session == self.session || supervisors.running[p.pid] != nil {
			continue
		}
		gone = false
		if p.zombie {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			continue
		}
		more, err := descendants(p.pid)
		if err != nil {
			return nil, false, err
		}
		live = append(append(live, p), more...)
	}
	return live, gone, nil
}

// lockedBuffer keeps the beginning of what a supervisor writes to standard error.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	const enough = 4 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), max(0, enough-b.buf.Len()))])
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
