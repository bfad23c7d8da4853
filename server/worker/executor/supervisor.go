package executor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"triphammer/schema/output"
	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// supervisor is the server's side of one supervisor process.
type supervisor struct {
	list    string // file for the list of its processes
	depth   int    // processes of the wall around it
	outside bool   // started by command.outside
	clean   bool   // it ended by itself, and has left nothing
	group   *limits.Group
	cmd     *exec.Cmd
	orders  *os.File
	encoder *json.Encoder
	stderr  lockedBuffer
	ends    chan inside.Ending // closed when the supervisor is gone
	helpers sync.WaitGroup
	closed  chan struct{}
	closing sync.Once
	problem error       // error of closing
	stopped atomic.Bool // a signal stopped it, so it was killed
}

// supervisors are the supervisors of this process, by pid. They are its children. If a
// supervisor is killed, its processes become children of this process too, because this
// process is a subreaper. The lock is held while a supervisor starts, so that orphans does
// not mistake it for a process that was left behind.
var supervisors = struct {
	sync.Mutex
	running map[int]*supervisor
}{running: make(map[int]*supervisor)}

// start is what startSupervisor needs.
type start struct {
	runID   string
	command command
	dir     string   // its working directory
	list    string   // file for the list of its processes
	account *account // its user; nil: the user of the server
	group   *limits.Group
	kept    *kept // nil: the run has no cache
}

// supervisorEnv are variables that a build for tests adds for a supervisor (race.go).
var supervisorEnv []string

// startSupervisor starts the supervisor of a run, through the walls. Another goroutine passes
// the events of the run to the sink. The caller closes the supervisor.
func startSupervisor(st start, sink task.Sink) (*supervisor, error) {
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a supervisor: %w", err)
	}
	reportR, reportW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a supervisor: %w", err), ordersR.Close(), ordersW.Close())
	}
	s := &supervisor{
		list: st.list, depth: st.command.depth, outside: st.command.outside, group: st.group, orders: ordersW, encoder: json.NewEncoder(ordersW), ends: make(chan inside.Ending, 1), closed: make(chan struct{}),
	}
	s.cmd = &exec.Cmd{
		Path: st.command.path, Args: append([]string{"triphammer"}, st.command.args...), Dir: st.dir,
		// The server's own environment may hold secrets.
		Env:   slices.Concat([]string{inside.RunVariable + "=" + st.runID}, supervisorEnv, st.command.env),
		Stdin: ordersR, Stdout: reportW, Stderr: &s.stderr,
		// The signal wakes a stopped supervisor, so that it sees that the server is gone.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT, Credential: st.account.credential()},
		WaitDelay:   time.Second,
	}
	st.group.Apply(s.cmd.SysProcAttr)
	supervisors.Lock()
	err = starter(s.cmd.Start)
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
		s.read(reportR, sink, st.kept)
	})
	s.helpers.Go(s.watch)
	return s, nil
}

// starter runs a function on a thread that never ends. The walls die with the thread that
// started them.
var starter = func() func(func() error) error {
	var once sync.Once
	calls := make(chan func())
	return func(f func() error) error {
		once.Do(func() {
			go func() {
				runtime.LockOSThread()
				for call := range calls {
					call()
				}
			}()
		})
		done := make(chan error)
		calls <- func() { done <- f() }
		return <-done
	}
}()

// watchTime is how often the server looks at a supervisor.
const watchTime = time.Second

// watch keeps a list of the run's processes in s.list, in case the server and the supervisor
// die at once. It also ends a supervisor that was stopped by a signal, because it would no
// longer follow orders.
func (s *supervisor) watch() {
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	var kept []inside.Process
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		if !s.outside && s.halted() {
			s.stopped.Store(true)
			_ = s.cmd.Process.Kill()
			continue
		}
		live, err := inside.Descendants(s.cmd.Process.Pid)
		if err == nil && len(live) > 0 && !slices.Equal(live, kept) {
			kept = live
			_ = inside.Keep(s.list, live) // the disk may be full
		}
	}
}

// halted tells whether a signal stopped the supervisor. The processes of the wall, each with
// one child, are between the process that the server has started and the supervisor.
func (s *supervisor) halted() bool {
	p, err := inside.ProcessOf(s.cmd.Process.Pid)
	for range s.depth {
		below, childErr := inside.Children(p.Pid)
		if err != nil || childErr != nil || len(below) != 1 {
			return false // the supervisor starts or ends
		}
		p = below[0]
	}
	return err == nil && p.Stopped
}

// read passes on the supervisor's report, to its end.
func (s *supervisor) read(from io.Reader, sink task.Sink, kept *kept) {
	r := receiver{sink: sink, kept: kept, printed: s.group.Printed, end: func(e inside.Ending) {
		select {
		case s.ends <- e:
		default: // there was an end already
		}
	}}
	defer r.close(nil)
	for {
		kind, data, err := inside.ReadFrame(from)
		if err != nil {
			return // the supervisor is gone; run reports it
		}
		r.take(kind, data)
	}
}

// receiver passes on the report of a supervisor.
type receiver struct {
	sink    task.Sink
	printed func(bytes int)
	end     func(inside.Ending)
	wayOut  bool // it is the report of the way out of a pod, which is not within the walls
	counted func(task.Counted)
	stage   func(context.Context, io.Reader) (output.Pack, error) // task.Pushes.Stage, of the way out of a pod
	packs   map[string]output.Pack                                // that it has kept, by their digests
	kept    *kept                                                 // nil: it is the report of a pod, or the run has no cache

	keeping sync.WaitGroup
	mu      sync.Mutex
	content *io.PipeWriter // of the artifact that is being sent
	closed  bool           // no further artifact is kept
}

// outside tells whether only the way out of a run can know an event: later runs may replace what was pushed, and a
// pull request that was opened counts.
func outside(e event.Event) bool {
	switch e := e.(type) {
	case event.Push:
		return true
	case event.Request:
		return e.Done != ""
	}
	return false
}

func (r *receiver) take(kind byte, data []byte) {
	switch kind {
	case inside.FrameStdout:
		r.printed(len(data))
		r.sink.Add(event.Output{Stream: event.Stdout, Text: string(data)})
	case inside.FrameStderr:
		r.printed(len(data))
		r.sink.Add(event.Output{Stream: event.Stderr, Text: string(data)})
	case inside.FrameEvent:
		e, err := decodeTold(data)
		if err != nil || !r.wayOut && outside(e) {
			return
		}
		if p, ok := e.(event.Push); ok && p.Waits != "" {
			e = r.staged(p)
		}
		r.sink.Add(e)
	case inside.FrameArtifact:
		var a event.Artifact
		if json.Unmarshal(data, &a) == nil {
			r.keep(a)
		}
	case inside.FrameContent:
		r.mu.Lock()
		to := r.content
		r.mu.Unlock()
		if to != nil {
			_, _ = to.Write(data)
		}
	case inside.FrameWhole:
		if to := r.detach(); to != nil {
			_ = to.Close()
			r.keeping.Wait()
		}
	case inside.FrameCounted:
		var c task.Counted
		if r.wayOut && r.counted != nil && json.Unmarshal(data, &c) == nil {
			r.counted(c)
		}
	case inside.FrameCache:
		r.kept.write(data)
	case inside.FrameCached:
		key := ""
		if json.Unmarshal(data, &key) == nil {
			r.kept.use(key)
		}
	case inside.FrameEnd:
		var e inside.Ending
		if err := json.Unmarshal(data, &e); err != nil {
			e = inside.Ending{Code: -1, Error: "how the run ended cannot be read: " + err.Error()}
		}
		r.end(e)
	}
}

// keep begins to keep an artifact. The content follows in later frames.
func (r *receiver) keep(a event.Artifact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.content != nil || r.closed {
		return
	}
	from, to := io.Pipe()
	r.content = to
	r.keeping.Go(func() {
		var err error
		if r.wayOut {
			err = r.keepPack(from)
		} else {
			err = r.sink.Keep(a, from)
		}
		_ = from.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // the rest is not wanted
	})
}

// keepPack keeps the pack of a push that waits for a person. The event of the push follows, and names the
// pack by its digest.
func (r *receiver) keepPack(content io.Reader) error {
	kept, err := r.stage(context.Background(), content)
	if err == nil {
		r.packs[kept.SHA256] = kept
	}
	return err
}

// staged is a push that waits for a person, with the pack that was kept of it. What Git was told cannot be
// taken back, so without the pack the transcript says that nobody will be asked.
func (r *receiver) staged(p event.Push) event.Push {
	var asked output.Request
	if err := json.Unmarshal([]byte(p.Waits), &asked); err == nil && asked.Push != nil {
		if kept, ok := r.packs[asked.Push.Pack.SHA256]; ok {
			asked.Push.Pack = kept
			p.Waits = asked.JSON()
			return p
		}
	}
	p.Waits, p.Refused = "", "it could not be kept for a person, although Git was told that it waits: its pack did not arrive whole, or there was no room for it"
	return p
}

// detach takes the artifact that is being sent out of the receiver; nil: there is none.
func (r *receiver) detach() *io.PipeWriter {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.content
	r.content = nil
	return to
}

// cut gives up the artifact that is being sent. The artifact fails with the cause; nil: it was
// cut off.
func (r *receiver) cut(cause error) {
	if to := r.detach(); to != nil {
		_ = to.CloseWithError(cmp.Or(cause, errors.New("the artifact was cut off")))
	}
	r.keeping.Wait()
}

// close does what cut does, and keeps no further artifact. It may be called while another
// goroutine is in take.
func (r *receiver) close(cause error) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cut(cause)
}

// decodeTold reads an event. A supervisor does not decide the state of a run.
func decodeTold(data []byte) (event.Event, error) {
	var told inside.ToldEvent
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	e, err := event.Decode(told.Kind, told.Data)
	if status, ok := e.(event.Status); ok {
		return event.Status{Message: status.Message}, err
	}
	return e, err
}

// run sends the job and waits for its end. When ctx ends, it interrupts the step in progress,
// and after the grace kills everything. lease is task.Task.Lease: the supervisor learns it, so
// that it ends everything by itself if this process stands still.
func (s *supervisor) run(ctx context.Context, c *inside.Confinement, j *inside.Job, grace time.Duration, lease func() time.Time) (inside.Ending, error) {
	if ctx.Err() != nil {
		return inside.Ending{}, context.Cause(ctx)
	}
	orders := []inside.Order{{Confine: c}, {Job: j}}
	var until time.Time
	var renewed <-chan time.Time
	if lease != nil {
		until = lease()
		orders = []inside.Order{{Confine: c}, liveUntil(until), {Job: j}}
		tick := time.NewTicker(leaseLook)
		defer tick.Stop()
		renewed = tick.C
	}
	for _, o := range orders {
		if err := s.encoder.Encode(o); err != nil {
			return inside.Ending{}, s.lost()
		}
	}
	var timer <-chan time.Time
	asked := ctx.Done()
	next := inside.Order{Interrupt: true}
	for {
		select {
		case e, ok := <-s.ends:
			if !ok {
				return inside.Ending{}, s.lost()
			}
			return e, nil
		case <-renewed:
			// A lease is told only once: when this process goes on after a pause, it may be over.
			if now := lease(); !now.Equal(until) {
				until = now
				if err := s.encoder.Encode(liveUntil(now)); err != nil {
					return inside.Ending{}, s.lost()
				}
			}
			continue
		case <-asked:
			asked = nil
			if errors.Is(context.Cause(ctx), task.ErrDisk) || errors.Is(context.Cause(ctx), limits.ErrExceeded) {
				grace = 0 // other runs wait for the space
			}
			timer = time.After(grace)
		case <-timer:
			if next.Kill {
				return inside.Ending{}, s.lost()
			}
			next, timer = inside.Order{Kill: true}, time.After(inside.KillWait)
		}
		if err := s.encoder.Encode(next); err != nil {
			return inside.Ending{}, s.lost()
		}
	}
}

// leaseLook is how often the server checks whether a lease was renewed.
const leaseLook = 500 * time.Millisecond

// liveUntil is the order to kill everything at a time.
func liveUntil(t time.Time) inside.Order {
	return inside.Order{Live: max(1, time.Until(t).Milliseconds())}
}

// gone is the error of a run whose supervisor is gone, with the reason as far as it is known.
type gone string

const notEnded = "the agent did not run to its end: its supervisor "

// errGone stands for any gone, for errors.Is.
var errGone error = gone(notEnded + "was ended from outside")

func (g gone) Error() string        { return string(g) }
func (g gone) Is(target error) bool { return target == errGone }

// lost is the error for a supervisor that is gone or stopped. It waits for the supervisor's end,
// because only then the standard error is complete.
func (s *supervisor) lost() error {
	_ = s.close() // the caller closes it too, and gets the same error
	said, crashed := summary(s.stderr.String())
	switch {
	case s.stopped.Load():
		return errors.New(notEnded + "was stopped from outside, so that nothing watched over it")
	case crashed:
		return gone(notEnded + "crashed, by a fault of Triphammer or for lack of memory or processes: " + said)
	case said != "":
		return gone(notEnded + "ended, and said: " + said)
	}
	return errGone
}

// summary is the standard error of a supervisor in one line. For a crash of Go it is the
// reason, without the traces of the goroutines.
func summary(stderr string) (said string, crashed bool) {
	reason, trace := stderr, goTrace.FindStringIndex(stderr)
	if trace != nil {
		reason = stderr[:trace[0]]
	}
	return event.Line(strings.ToValidUTF8(reason, "\uFFFD"), inside.MaxSaid), trace != nil
}

// goTrace matches the beginning of the traces of a crash.
var goTrace = regexp.MustCompile(`(?m)^(goroutine \d+ .*\[|runtime stack:|PC=0x|\[signal SIG)`)

// complaints is the standard error of the supervisor, in one line.
func (s *supervisor) complaints() string {
	said, _ := summary(s.stderr.String())
	return said
}

func (s *supervisor) processes() []int {
	live, err := inside.Descendants(s.cmd.Process.Pid)
	if err != nil {
		return nil
	}
	pids := []int{s.cmd.Process.Pid}
	for _, p := range live {
		pids = append(pids, p.Pid)
	}
	return pids
}

// close ends the supervisor and everything below it. It returns an error if something is left.
func (s *supervisor) close() error {
	s.closing.Do(func() { s.problem = s.end() })
	return s.problem
}

func (s *supervisor) end() error {
	_ = s.orders.Close() // the supervisor ends at the end of its orders
	stuck := time.AfterFunc(inside.KillWait, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	s.clean = s.cmd.Wait() == nil // status 0 tells that nothing is left
	supervisors.Lock()
	if pid := s.cmd.Process.Pid; supervisors.running[pid] == s {
		delete(supervisors.running, pid)
	}
	supervisors.Unlock()
	close(s.closed)
	var err error
	switch {
	case !s.clean || s.depth > 1 && !s.outside: // bubblewrap's second process may end after its first
		err = inside.KillUntilGone(orphans)
	default: // the processes of an engine, and of a killed supervisor, end by themselves
		_, _, _ = orphans() // waits for orphans that have ended
	}
	for range s.ends {
		// a report that nobody waits for
	}
	s.helpers.Wait()
	_ = os.Remove(s.list)
	if err != nil {
		return fmt.Errorf("ending the processes of the run: %w", err)
	}
	return nil
}

// orphans are the processes that killed supervisors have left to this process: children in
// another session than its own, because only supervisors start sessions here. Nobody else
// waits for these children, so each stays visible here, even when it has ended.
func orphans() (live []inside.Process, gone bool, err error) {
	supervisors.Lock()
	defer supervisors.Unlock()
	self, err := inside.ProcessOf(os.Getpid())
	if err != nil {
		return nil, false, err
	}
	below, err := inside.Children(self.Pid)
	if err != nil {
		return nil, false, err
	}
	gone = true
	for _, p := range below {
		if p.Session == self.Session || supervisors.running[p.Pid] != nil {
			continue
		}
		gone = false
		if p.Zombie {
			_, _ = syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil)
			continue
		}
		more, err := inside.Descendants(p.Pid)
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
