// Package inside works within the walls around a run, beside the agent (SPEC 14).
//
//   - The supervisor confines itself, starts each step and leaves no process behind
//     (supervise.go, confine.go, tree.go).
//   - The job makes the workspace, clones the repositories, runs the setup and the agent, and
//     finds the changed files (job.go, snapshot.go, patch.go).
//   - frame.go has the orders to the supervisor and its reports. In a pod they are a file and
//     the log of the container (pod.go).
//
// The package knows neither the definitions nor the store. It trusts only its orders, because
// repositories and agents can say anything. It works only on Linux.
package inside

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
)

// SuperviseCommand is the hidden command of this program that works within walls. It calls
// executor.Supervise, and that calls Supervise.
const SuperviseCommand = "__supervise"

// NotForPeople is the exit status of SuperviseCommand without a server.
const NotForPeople = 2

// Supervise is the body of the hidden command: it executes one attempt inside the walls,
// and returns the program's exit status.
//
// The supervisor is a child subreaper (prctl(2)): every process that a step leaves
// behind becomes its child, even after setsid and a double fork, and dies with the run.
// If the server dies, the supervisor's input ends; the supervisor then ends everything.
//
// Before it starts a process, it limits and confines itself, and so every step, as the first
// order demands.
func Supervise(args []string) int {
	switch {
	case len(args) > 1 && args[0] == Outside:
		return superviseOutside(args[1:])
	case len(args) > 1 && args[0] == LookInside:
		return sayLacking(Tools(args[1]), args[2:])
	case len(args) == 3 && args[0] == PodPlace:
		return place(args[1], args[2])
	case len(args) == 3 && args[0] == PodRun:
		return supervisePod(args[1], args[2])
	}
	if len(args) != 0 || !isPipe(0) || !isPipe(1) {
		fmt.Fprintln(os.Stderr, "this command is not for people: the server starts it for each run")
		return NotForPeople
	}
	first, err := firstOrder(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the run cannot be limited:", err)
		return 1
	}
	return supervise(first, os.Stdout, os.Stdin)
}

// supervise limits and confines this process, and follows the orders.
func supervise(first Confinement, report io.Writer, orders io.Reader) int {
	if err := errors.Join(first.Limits.Apply(), first.User.become()); err != nil {
		fmt.Fprintln(os.Stderr, "the run cannot be limited:", err)
		return 1
	}
	victims := limits.NewVictims()
	err := errors.Join(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		// Memory holds the granted secrets, which must not get into other processes or a core
		// file.
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the supervisor cannot contain a run:", err)
		return 1
	}
	if err := first.apply(); err != nil {
		fmt.Fprintln(os.Stderr, "the walls around the run cannot be made:", err)
		return 1
	}
	keepThreads()
	s := &supervising{
		report: &FrameWriter{W: report}, self: os.Getpid(), alone: first.OwnIPC, walls: first.Landlock, limits: first.Limits, victims: victims, wanted: make(chan wantedStep), forks: make(chan fork),
	}
	return s.loop(orders)
}

// keepThreads makes all threads that the supervisor will need, before any step runs: a Go program
// ends when it cannot have another thread, and the steps can use up the limit of the user or the
// cgroup. The runtime keeps the threads.
func keepThreads() {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), limits.OwnTasks/8))
	var all, ended sync.WaitGroup
	all.Add(limits.OwnTasks / 2)
	for range limits.OwnTasks / 2 {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	ended.Wait()
}

// firstOrder reads the first order, and no byte more.
func firstOrder(from io.Reader) (Confinement, error) {
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(from, b); err != nil {
			return Confinement{}, err
		}
	}
	var o Order
	if err := json.Unmarshal(line, &o); err != nil || o.Confine == nil {
		return Confinement{}, errors.Join(errors.New("the first order does not say how"), err)
	}
	return *o.Confine, nil
}

// isPipe tells whether a descriptor is a pipe, or a socket, which ssh has in its place.
func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK)
}

// step is a command to run.
type step struct {
	Path  string // of the program
	Argv  []string
	Dir   string
	Env   []string
	Stdin string // file; empty: nothing to read
	Last  bool   // no process may outlive the step
	// AfterStop tells that the step runs even if the attempt was ordered to stop.
	AfterStop bool
}

// wantedStep is a step that the job wants to run.
type wantedStep struct {
	step
	ended chan Ending
}

// supervising is the state of a supervisor. Its loop owns all of it, except the channels
// and the report.
type supervising struct {
	report  *FrameWriter
	self    int
	alone   bool // the supervisor has its own PID namespace
	walls   bool // Landlock confines the supervisor
	limits  limits.Inherited
	victims *limits.Victims
	wanted  chan wantedStep // from the job
	forks   chan fork

	main   int // process of the current step; 0: none
	now    wantedStep
	status syscall.WaitStatus // of main, once gone is set
	gone   bool
	cut    bool          // there was an order to stop
	pipes  []*outputPipe // of the current step

	until atomic.Int64 // end of the run's lease, by Uptime; 0: there is no lease
	over  atomic.Bool  // the lease is over
}

func (s *supervising) loop(from io.Reader) int {
	// Only the server decides when the run stops, even if a service manager signals all
	// processes at once. The signals are caught and not ignored, because the steps would
	// inherit an ignored signal. Nobody reads this channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)

	orders := make(chan Order)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(from); ; {
			var o Order
			if d.Decode(&o) != nil {
				return // the server is gone
			}
			orders <- o
		}
	}()
	var done chan Ending
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				return s.killAll()
			case o.Live > 0:
				s.live(time.Duration(o.Live) * time.Millisecond)
			case o.Job != nil && done == nil:
				done = make(chan Ending, 1)
				go s.fork()
				go func() { done <- o.Job.do(s) }()
			case o.Interrupt:
				s.cut = true
				if s.main != 0 {
					_ = unix.Kill(-s.main, unix.SIGINT) // the process may have ended
				}
			case o.Kill:
				s.cut = true
				s.killAll()
			}
		case w := <-s.wanted:
			s.start(w)
		case e := <-done:
			if s.over.Load() {
				e = Ending{Code: -1, Error: LeaseEnded}
			}
			if err := s.report.Tell(FrameEnd, e); err != nil {
				fmt.Fprintln(os.Stderr, "reporting to the server:", err) // the server is gone
			}
		case <-children:
			s.reap()
		}
		if s.gone {
			s.finish()
		}
	}
}

// live notes how long the run may go on without another word of the server. The first call
// starts the guard.
func (s *supervising) live(d time.Duration) {
	if s.until.Swap(int64(Uptime()+d)) == 0 {
		go s.guard()
	}
}

// guard ends everything when the lease of the run is over: the server is stopped, or cannot
// reach the store, and another worker may start the next attempt (SPEC 17.4). It does not use
// the loop, which may wait for a server that reads no report.
func (s *supervising) guard() {
	for Uptime() < time.Duration(s.until.Load()) {
		time.Sleep(guardTime)
	}
	s.over.Store(true)
	fmt.Fprintln(os.Stderr, LeaseEnded)
	err := KillUntilGone(func() ([]Process, bool, error) {
		live, err := s.below()
		return live, err == nil && len(live) == 0, err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopping the run:", err) // the remaining processes die with this one, or the server kills them
	}
	os.Exit(leaseOver)
}

// below are the live processes of the run. A supervisor that cannot list them kills all
// processes, if it has its own PID namespace.
func (s *supervising) below() ([]Process, error) {
	live, err := Descendants(s.self)
	if err != nil && s.alone {
		_ = unix.Kill(-1, unix.SIGKILL) // there may be no process
	}
	return live, err
}

const (
	guardTime = 100 * time.Millisecond
	leaseOver = 3 // exit status
)

// LeaseEnded is the Error of an Ending after the lease was over.
const LeaseEnded = "the lease of the run was not renewed in time, so its agent was ended: another worker may have the run"

// Uptime is the time since the machine started. It goes on while the machine sleeps.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every kernel that Go supports has this clock
	}
	return time.Duration(now.Nano())
}

// run runs a step to its end. The job calls it.
func (s *supervising) run(st step) (Ending, error) {
	w := wantedStep{st, make(chan Ending, 1)}
	s.wanted <- w
	e := <-w.ended
	switch {
	case e.Error != "":
		return e, errors.New(e.Error)
	case e.Code == -1 && e.Cut && e.Signal == "":
		return e, ErrCut // the step was not started
	}
	return e, nil
}

func (s *supervising) add(e event.Event) {
	told, err := Encode(e)
	if err == nil {
		err = s.report.Tell(FrameEvent, told)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "telling an event:", err) // the server is gone
	}
}

// Now is the clock that times phases and commands.
var Now = time.Now

// phase begins a phase; its result ends it.
func (s *supervising) phase(name string) (done func()) {
	began := Now()
	return func() { s.add(event.Phase{Name: name, DurationMS: Now().Sub(began).Milliseconds()}) }
}

func (s *supervising) keep(a event.Artifact, content io.Reader) {
	if err := s.report.Artifact(a, content); err != nil {
		fmt.Fprintln(os.Stderr, "sending an artifact:", err) // the server is gone, or the rest of the file
	}
}

func (s *supervising) start(w wantedStep) {
	s.now = w
	if s.cut && !w.AfterStop {
		w.ended <- Ending{Code: -1, Cut: true}
		return
	}
	if err := s.begin(w.step); err != nil {
		w.ended <- Ending{Code: -1, Error: err.Error()}
	}
}

// fork is a process to start.
type fork struct {
	step    step
	files   []uintptr
	started chan<- forked
}

type forked struct {
	pid int
	err error
}

// fork starts the processes of all steps, on its own thread that lives as long as the
// supervisor, because a step gets its death signal when the thread that forked it dies. That
// thread, and so every step, is in a Landlock domain below the supervisor's: a step can
// neither signal nor trace the supervisor.
func (s *supervising) fork() {
	runtime.LockOSThread()
	// A program that changes its user could not be killed.
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // every kernel that Go supports can do this
	_ = keepSignals(s.walls)                             // an older kernel cannot do this (docs/security.md)
	limited := s.limits.TakeCPUs()
	for f := range s.forks {
		if limited != nil {
			f.started <- forked{err: limited}
			continue
		}
		var done forked
		s.victims.Start(func() {
			done.pid, done.err = syscall.ForkExec(f.step.Path, f.step.Argv, &syscall.ProcAttr{
				Dir: f.step.Dir, Env: f.step.Env, Files: f.files,
				Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
			})
		})
		f.started <- done
	}
}

func (s *supervising) begin(st step) error {
	if s.main != 0 {
		return errors.New("the step before has not ended")
	}
	stdinName := st.Stdin
	stdinName = cmp.Or(stdinName, os.DevNull)
	stdin, err := os.Open(stdinName)
	if err != nil {
		return fmt.Errorf("opening the standard input: %w", err)
	}
	defer func() { _ = stdin.Close() }()
	files := []uintptr{stdin.Fd()}
	var pipes []*outputPipe
	for _, kind := range []byte{FrameStdout, FrameStderr} {
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
	started := make(chan forked)
	s.forks <- fork{st, files, started}
	f := <-started
	if f.err != nil {
		return fmt.Errorf("starting %s: %w", st.Argv[0], f.err)
	}
	s.main, s.gone, s.pipes = f.pid, false, pipes
	for _, p := range pipes {
		p.begin()
	}
	return nil
}

// reap takes the status of every ended child, including adopted children. gone tells that no
// child is left. Then no process of a step is left, because every such process becomes a child
// sooner or later.
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

// finish ends the step, after its whole output is reported.
func (s *supervising) finish() {
	if s.now.Last {
		s.killAll()
	}
	for _, p := range s.pipes {
		p.drain(s.now.Last)
	}
	e := Ending{Code: s.status.ExitStatus(), Cut: s.cut, Said: s.pipes[len(s.pipes)-1].last()}
	if s.status.Signaled() {
		e.Code, e.Signal = -1, unix.SignalName(s.status.Signal())
	}
	s.main, s.gone, s.pipes = 0, false, nil
	s.now.ended <- e
}

// killAll kills everything below the supervisor and returns its exit status.
func (s *supervising) killAll() int {
	err := KillUntilGone(func() ([]Process, bool, error) {
		if s.reap() {
			return nil, true, nil
		}
		live, err := s.below()
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
	report  *FrameWriter
	reading sync.WaitGroup
	drained chan struct{}

	mu   sync.Mutex
	tail []byte // the last bytes
}

// tell reports a piece, and keeps its last bytes.
func (p *outputPipe) tell(piece []byte) error {
	const enough = 1 << 10
	p.mu.Lock()
	p.tail = append(p.tail, piece[max(0, len(piece)-enough):]...)
	p.tail = p.tail[max(0, len(p.tail)-enough):]
	p.mu.Unlock()
	return p.report.write(p.kind, piece)
}

// gitNoReason matches git's last message if a program that it started to reach a repository, such
// as ssh, failed or is missing. The line before has the reason.
var gitNoReason = regexp.MustCompile(`^fatal: (Could not read from remote repository\.|unable to fork)`)

// last is the line that tells people why a command failed: the last line, or Git's last line
// about why it gives up, because advice may follow it.
func (p *outputPipe) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(p.tail), "\uFFFD"))
	at := strings.LastIndexAny(text, "\r\n") + 1
	if fatal := strings.LastIndex("\n"+text, "\nfatal: "); fatal >= 0 {
		at = fatal
		if before := strings.TrimSpace(text[:fatal]); gitNoReason.MatchString(text[fatal:]) && before != "" {
			text, at = before, strings.LastIndexAny(before, "\r\n")+1
		}
	}
	line, _, _ := strings.Cut(text[at:], "\n")
	return event.Line(line, MaxSaid)
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
		if n > 0 && p.tell(buf[:n]) != nil {
			return // the server is gone
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The step has ended, so its whole output is in the pipe already.
			if p.r.SetReadDeadline(time.Time{}) != nil || !p.empty(buf) {
				return
			}
			done()
		case err != nil:
			return
		}
	}
}

// empty reads the bytes in the pipe, without waiting for more.
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
			if p.tell(buf[:n]) != nil {
				more = false
				return true
			}
		}
	})
	return err == nil && more
}

// drain returns when the whole output of the step is reported. After the last step no process
// holds the pipe, and it ends by itself.
func (p *outputPipe) drain(last bool) {
	if !last {
		if err := p.r.SetReadDeadline(time.Now()); err != nil {
			return // the pipe ended already
		}
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-timer.C:
	}
}

// MaxSaid bounds the part of a supervisor's standard error that is shown, in characters.
const MaxSaid = 300

// KillWait is how long the supervisor may take to kill everything before the server
// kills the supervisor.
const KillWait = KillTime + 5*time.Second
