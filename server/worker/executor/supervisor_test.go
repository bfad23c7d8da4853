package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// fakeServer starts an agent and waits to be killed.
func fakeServer(dir, script string) {
	p, err := tested(dir, 0)
	work := sh(script)
	if lease, none := time.ParseDuration(os.Getenv("TEST_LEASE")); none == nil {
		until := time.Now().Add(lease)
		work.Lease = func() time.Time { return until }
	}
	if err == nil {
		_, err = p.Start(context.Background(), work, adding(func(e event.Event) {
			if o, ok := e.(event.Output); ok {
				fmt.Print(o.Text)
			}
		}))
	}
	fmt.Println("ended", err)
	os.Exit(0)
}

// startFakeServer starts a process that runs escapees, and finds its supervisor.
func startFakeServer(t *testing.T, dir, mark string) (*exec.Cmd, inside.Process) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "fake-server", dir, escapees(mark)+"while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is, in most tests
		_ = cmd.Wait()
		if err := inside.KillUntilGone(orphans); err != nil { // what a test that failed has left to this process
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(out, make([]byte, len("escaped"))); err != nil {
		t.Fatal(err)
	}
	below, err := inside.Descendants(cmd.Process.Pid)
	if err != nil || len(below) == 0 {
		t.Fatal(below, err)
	}
	return cmd, below[0]
}

// TestServerDiesWithSupervisor: what nobody is left to kill is found when the next
// server starts, by the list of the last one.
func TestServerDiesWithSupervisor(t *testing.T) {
	dir, mark := openDir(t), marker(t)
	cmd, supervisor := startFakeServer(t, dir, mark)
	run := filepath.Join(dir, ".run_1.processes")
	await(t, "the processes are listed", func() bool { return len(inside.Kept(run)) >= 6 })
	// The server must not see that its supervisor dies.
	if err := errors.Join(syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP), syscall.Kill(supervisor.Pid, syscall.SIGKILL), syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	listed := inside.Kept(run)
	// The kernel ends a sandbox with its supervisor, sooner or later than we look.
	if os.Getenv("TEST_ISOLATION") != Sandbox && !slices.ContainsFunc(listed, alive) {
		t.Fatalf("nothing is left of %v to be found", listed)
	}
	// Entries that somebody wrote into it do no harm.
	innocent := exec.Command("sleep", "600")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(innocent.Process.Kill(), innocent.Wait()) }()
	forged, err := inside.ProcessOf(innocent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := forged
	other.Start++
	if err := inside.Keep(run, append(listed, forged, other)); err != nil {
		t.Fatal(err)
	}
	p, err := tested(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reap(t.Context(), "run_1"); err != nil {
		t.Error(err)
	}
	noneLeft(t, mark)
	if !alive(forged) {
		t.Error("a process that was no run's was killed")
	}
}

// TestServerDiesWithStoppedSupervisor: a supervisor that cannot act is let go on by
// the kernel when the server dies.
func TestServerDiesWithStoppedSupervisor(t *testing.T) {
	mark := marker(t)
	cmd, supervisor := startFakeServer(t, openDir(t), mark)
	if err := errors.Join(syscall.Kill(supervisor.Pid, syscall.SIGSTOP), cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	await(t, "the supervisor ends", func() bool { return !alive(supervisor) })
	await(t, "its processes end", func() bool { return len(left(t, mark)) == 0 })
}

func TestServerKilled(t *testing.T) {
	mark := marker(t)
	cmd, supervisor := startFakeServer(t, openDir(t), mark)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	await(t, "the supervisor ends", func() bool { return !alive(supervisor) })
	await(t, "its processes end", func() bool { return len(left(t, mark)) == 0 })
}

// TestServerStopped: an agent whose server is stopped, so that it can neither renew the lease
// nor stop the agent, is ended by its supervisor when the lease is over; without a lease it
// goes on (SPEC 17.4).
func TestServerStopped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lease string
		ends  bool
	}{{"lease", "2s", true}, {"no lease", "", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TEST_LEASE", tt.lease)
			mark := marker(t)
			cmd, supervisor := startFakeServer(t, openDir(t), mark)
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			below := func() []inside.Process {
				live, err := inside.Descendants(cmd.Process.Pid)
				if err != nil {
					t.Fatal(err)
				}
				return live
			}
			if tt.ends {
				await(t, "the processes of the run end", func() bool { return len(below()) == 0 })
				return
			}
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for end := inside.Uptime() + 4*time.Second; inside.Uptime() < end; <-tick.C {
				if !slices.Contains(below(), supervisor) || len(below()) < 5 {
					t.Fatal("the run was ended")
				}
			}
		})
	}
}

// TestLease: an agent goes on as long as its lease is renewed.
func TestLease(t *testing.T) {
	p, r, mark := newExecutor(t, 0), newRecorder(), marker(t)
	var until atomic.Pointer[time.Time]
	renew := func() { at := time.Now().Add(2 * time.Second); until.Store(&at) }
	renew()
	work := sh(escapees(mark) + "sleep 4; echo goes on; while :; do sleep 0.05; done")
	work.Lease = func() time.Time { return *until.Load() }
	done := make(chan error, 1)
	go func() {
		_, err := p.Start(t.Context(), work, r)
		done <- err
	}()
	await(t, "the agent goes on for longer than one lease", func() bool {
		renew()
		return strings.Contains(r.said("stdout"), "goes on")
	})
	if err := <-done; err == nil || !strings.Contains(err.Error(), inside.LeaseEnded) {
		t.Errorf("error %v", err)
	}
	noneLeft(t, mark)
}

// signalSupervisor sends a signal from an agent to every thread of its supervisor:
// to one of them it may.
func signalSupervisor(name string) string {
	return `for task in $PPID $(ls /proc/$PPID/task); do kill -` + name + ` $task; done 2>/dev/null` + "\n"
}

// comet does nothing but fork and end, in another session at first, and has no
// variable.
func comet(mark string) string {
	return "env -i setsid sh -c 'comet() { comet & }; comet; : " + mark + "' &\n"
}

// TestNothingOutlivesItsSupervisor: an agent that kills or stops its supervisor
// ends its run, whatever it has done to hide its processes (SPEC 9.6).
func TestNothingOutlivesItsSupervisor(t *testing.T) {
	for _, tt := range []struct{ name, hide, signal, wrong string }{
		{"killed", "", "KILL", "its supervisor was ended from outside"},
		{"stopped", "", "STOP", "its supervisor was stopped from outside"},
		{"crashed", "", "ABRT", "its supervisor crashed, by a fault of Triphammer or for lack of memory or processes: SIGABRT: abort"},
		{"killed by a comet's parent", "comet", "KILL", "its supervisor was ended from outside"},
		{"stopped by a comet's parent", "comet", "STOP", "its supervisor was stopped from outside"},
		{"ended by a comet's parent", "comet", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, r, mark := newExecutor(t, 0), newRecorder(), marker(t)
			script := escapees(mark)
			if tt.hide != "" {
				script += comet(mark)
			}
			if tt.signal != "" {
				script += signalSupervisor(tt.signal) + "sleep " + mark
			}
			began := time.Now()
			_, err := p.Start(t.Context(), sh(script), r)
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), "the agent did not run to its end: "+tt.wrong) || strings.Contains(err.Error(), "do not die")) {
				t.Errorf("error %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), "\n") || len(err.Error()) > 500) {
				t.Errorf("the error is no short line: %v", err)
			}
			if took := time.Since(began); took > inside.KillTime {
				t.Errorf("it took %v", took)
			}
			noneLeft(t, mark)
		})
	}
}

// TestSummary: of a crash, only its reason is told.
func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		stderr, want string
		crashed      bool
	}{
		{"", "", false},
		{"bwrap: No permissions\n", "bwrap: No permissions", false},
		{"the run cannot be limited: x\ny\n", "the run cannot be limited: x y", false},
		{"panic: runtime error: index out of range [5]\n\ngoroutine 7 [running]:\nmain.f(...)\n", "panic: runtime error: index out of range [5]", true},
		{"panic: x\n[signal SIGSEGV: segmentation violation code=0x1]\n\ngoroutine 1 [running]:\n", "panic: x", true},
		{"runtime: failed to create new OS thread (have 5 already; errno=11)\nfatal error: newosproc\n\nruntime stack:\nruntime.throw(...)\n", "runtime: failed to create new OS thread (have 5 already; errno=11) fatal error: newosproc", true},
		{"fatal error: x\n\ngoroutine 1 gp=0xc000002380 m=0 mp=0x1 [running]:\n", "fatal error: x", true},
		{strings.Repeat("x", 5000), strings.Repeat("x", inside.MaxSaid) + "…", false},
	} {
		if said, crashed := summary(tt.stderr); said != tt.want || crashed != tt.crashed {
			t.Errorf("%.60q: %q, %v", tt.stderr, said, crashed)
		}
	}
}

// TestOthersOutliveASupervisor: what is left of a run is told from other runs, which
// start and end meanwhile, and from other children of the server.
func TestOthersOutliveASupervisor(t *testing.T) {
	p, mark := newExecutor(t, 0), marker(t)
	own := exec.Command("sleep", "600")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(own.Process.Kill(), own.Wait()) }()
	var runs sync.WaitGroup
	for i := range 12 {
		runs.Go(func() {
			work := sh("(env -i setsid sleep " + mark + " &) ; i=0; while [ $i -lt 50 ]; do i=$((i+1)); sh -c :; done; echo done")
			if i%2 == 0 {
				work = sh("(env -i setsid sleep " + mark + " &)\n" + signalSupervisor("KILL") + "sleep " + mark)
			}
			work.RunID = fmt.Sprintf("run_%d", i)
			exit, err := p.Start(t.Context(), work, newRecorder())
			if killed := i%2 == 0; killed && err == nil || !killed && (err != nil || exit != (task.Exit{})) {
				t.Errorf("%d: %v %v", i, exit, err)
			}
		})
	}
	runs.Wait()
	if err := own.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a child of the server's own: %v", err)
	}
	noneLeft(t, mark)
	if len(supervisors.running) != 0 {
		t.Errorf("%d supervisors are remembered", len(supervisors.running))
	}
}

// TestSignalsStayInTheRun: where the kernel can, an agent cannot signal the server.
// Among the processes of its run it can, those that an earlier step left included.
func TestSignalsStayInTheRun(t *testing.T) {
	p, r, mark := newExecutor(t, 0), newRecorder(), marker(t)
	work := sh("kill -0 $(cut -d' ' -f4 /proc/$PPID/stat) 2>/dev/null && echo reached || echo kept\nkill $(cat service) && echo ended")
	work.Setup = []string{"sleep " + mark + " & echo $! >service"}
	if _, err := p.Start(t.Context(), work, r); err != nil {
		t.Fatal(err)
	}
	want := "kept\nended\n"
	if inside.LandlockVersion() < inside.LandlockSignals {
		want = "reached\nended\n"
	}
	if got := r.said("stdout"); got != want {
		t.Errorf("%q, want %q; %s", got, want, r.said("stderr"))
	}
}

func TestSuperviseIsNotForPeople(t *testing.T) {
	for _, args := range [][]string{{inside.SuperviseCommand, "x"}, {inside.SuperviseCommand}} {
		out, err := exec.Command(os.Args[0], args...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}
