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
	"strings"
	"sync"
	"syscall"
	"time"

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
	reading sync.WaitGroup
}

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
	s := &supervisor{runID: runID, orders: ordersW, encoder: json.NewEncoder(ordersW), ends: make(chan end, 1)}
	s.cmd = &exec.Cmd{
		Path: self, Args: []string{"triphammer", SuperviseCommand}, Dir: dir,
		// Nothing else: the server's environment may hold secrets.
		Env:         []string{runVariable + "=" + runID},
		Stderr:      &s.stderr,
		ExtraFiles:  []*os.File{ordersR, reportW},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   time.Second,
	}
	err = s.cmd.Start()
	closeErr := errors.Join(ordersR.Close(), reportW.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a supervisor: %w", err), closeErr, ordersW.Close(), reportR.Close())
	}
	s.reading.Go(func() {
		defer close(s.ends)
		defer func() { _ = reportR.Close() }()
		s.read(reportR, output)
	})
	return s, nil
}

func (s *supervisor) read(from io.Reader, output func(stream, text string)) {
	for {
		kind, data, err := readFrame(from)
		if err != nil {
			return // the supervisor is gone; run says so
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

// killWait is how long the supervisor may take to kill everything before it is
// itself given up.
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
				grace = 0 // everybody waits for the room
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

// lost says that the supervisor is gone, or does nothing any more.
func (s *supervisor) lost() error {
	err := errors.New("its supervisor was ended from outside")
	if said := s.complaints(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// complaints are what the supervisor wrote to its standard error: nothing, if
// all is well.
func (s *supervisor) complaints() string { return strings.TrimSpace(s.stderr.String()) }

// close ends the supervisor and everything below it, and makes sure.
func (s *supervisor) close() error {
	_ = s.orders.Close() // the supervisor ends at the end of its orders
	stuck := time.AfterFunc(killWait, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	_ = s.cmd.Wait() // how it ended does not matter: what it left does
	err := sweepProcesses(s.runID, s.cmd.Process.Pid)
	for range s.ends {
		// a report that nobody waits for
	}
	s.reading.Wait()
	if err != nil {
		return fmt.Errorf("ending the processes of the run: %w", err)
	}
	return nil
}

// lockedBuffer keeps the beginning of what a supervisor complains about.
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
