//go:build full

package executor

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor/containertest"
)

// TestEveryIsolation runs the tests of this package with the other isolations.
func TestEveryIsolation(t *testing.T) {
	if os.Getenv("TEST_ISOLATION") != "" {
		return // it is one of those below
	}
	// A program that only passes things on puts up no walls, in neither of the last two the
	// supervisor is the first process, and each container takes a second.
	some := []string{"-test.run=^(TestSuccess|TestExactPayload|TestFreshWorkspace|TestStop|TestSetupMayLeaveServices|TestMuchOutput|TestRepositories|TestSweep|TestCache|TestDaysWork)$"}
	others := []string{"-test.skip=^(TestContainer.*|TestPrivateRepositoryNetworks|TestNetwork|TestDefaultNetwork|TestLimits|TestWallsLater)$"} // they say which isolation they test
	for isolation, args := range map[string][]string{Kernel: others, Sandbox: others, Command: some, Container: some} {
		t.Run(isolation, func(t *testing.T) {
			if isolation == Container {
				containertest.MakeImage(t)
			}
			cmd := exec.Command(os.Args[0], append(args, "-test.count=1", "-test.timeout=20m")...)
			cmd.Env = append(os.Environ(), "TEST_ISOLATION="+isolation, "TEST_USER="+testUser(), "TEST_COMMAND=env PASSED=on")
			if isolation == Container {
				cmd.Env = append(cmd.Env, "TEST_ENGINE=podman", "TEST_IMAGE="+containertest.Image, "TEST_ENGINE_OPTIONS="+containertest.Options)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// testUser is the user of runs in tests: not that of the server, if that is root. It is not
// nobody either, whose processes the hostile agent of cmd/triphammer tries to kill at the
// same time.
func testUser() string {
	if os.Geteuid() == 0 {
		return "daemon"
	}
	return ""
}

func newWalled(t *testing.T, cfg Config) *Executor {
	t.Helper()
	cfg.Dir, cfg.User = openDir(t), testUser()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if name, lacking := e.Isolation(); name != cfg.Isolation {
		t.Fatalf("the isolation is %q: %v", name, lacking)
	}
	return e
}

// TestNetwork: a run in a sandbox reaches nothing, or the listed hosts alone, and the
// transcript tells what it asked for (SPEC 14.5).
func TestNetwork(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") }))
	defer web.Close()
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	direct := "curl -sS --max-time 5 --noproxy '*' " + web.URL + " || echo refused"
	proxied := "unset no_proxy NO_PROXY; curl -sS --max-time 5 " + web.URL + "; curl -sS -o /dev/null -w '%{http_code}' --max-time 5 http://other.example/"
	for _, tt := range []struct {
		name    string
		network task.Network
		script  string
		want    []string
		egress  []string
	}{
		{"on", task.Network{On: true}, direct, []string{"the page"}, nil},
		{"off", task.Network{Off: true}, direct, []string{"refused"}, nil},
		{"not around the proxy", task.Network{Hosts: []string{u.Host}}, direct, []string{"refused"}, nil},
		{"list", task.Network{Hosts: []string{u.Host}}, proxied, []string{"the page", "403"}, []string{"127.0.0.1 true", "other.example false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, r, work := newWalled(t, Config{Isolation: Sandbox}), newRecorder(), sh(tt.script)
			work.Network = tt.network
			if _, err := e.Preflight(work); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Start(t.Context(), work, r); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(r.said("stdout"), want) {
					t.Errorf("the agent printed %q and %q, want %q", r.said("stdout"), r.said("stderr"), want)
				}
			}
			var asked []string
			for _, e := range of[event.Egress](r) {
				asked = append(asked, fmt.Sprint(e.Host, " ", e.Allowed))
			}
			if slices.Sort(asked); !slices.Equal(asked, tt.egress) {
				t.Errorf("egress %q, want %q", asked, tt.egress)
			}
		})
	}
}

// TestDefaultNetwork: the operator's default is that of runs that say nothing.
func TestDefaultNetwork(t *testing.T) {
	e := newWalled(t, Config{Isolation: Sandbox, Network: task.Network{Off: true}})
	for want, network := range map[string]task.Network{"lo\n": {}, "": {On: true}} {
		r, work := newRecorder(), sh("ls /sys/class/net; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")
		work.Network = network
		if _, err := e.Start(t.Context(), work, r); err != nil {
			t.Fatal(err)
		}
		if got := r.said("stdout"); want != "" && !strings.HasSuffix(got, want) {
			t.Errorf("interfaces %q, want %q", got, want)
		}
	}
}

// TestLimits: a run that uses more than it may is stopped, and says what it exceeded
// (SPEC 14.6).
func TestLimits(t *testing.T) {
	machine := limits.Probe(slog.New(slog.DiscardHandler))
	for _, isolation := range []string{Kernel, Sandbox} {
		for _, tt := range []struct {
			limits task.Limits
			script string
			want   string
		}{
			{task.Limits{Memory: 64 << 20}, "head -c 300m /dev/zero | tail | cat; sleep 60", "memory"},
			{task.Limits{Processes: 30}, "for i in $(seq 100); do sleep 60 & done; wait", "processes"},
			{task.Limits{Disk: 1 << 20}, "for i in 1 2 3 4 5 6; do head -c 900k /dev/zero >f$i; done; sleep 60", "disk"},
			{task.Limits{Output: 1 << 20}, "yes | head -c 30m; sleep 60", "output"},
		} {
			t.Run(isolation+" "+tt.want, func(t *testing.T) {
				e, work := newWalled(t, Config{Isolation: isolation, Machine: machine}), sh(tt.script)
				work.Limits = tt.limits
				r := newRecorder()
				exit, err := e.Start(t.Context(), work, r)
				if tt.want == "processes" && exit.Code > 0 && strings.Contains(r.said("stderr"), "fork") {
					return // the kernel said it first
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want one about %s", err, tt.want)
				}
			})
		}
	}
}

// TestWallsLater: a server on which no walls work looks for them again.
func TestWallsLater(t *testing.T) {
	path, now := os.Getenv("PATH"), time.Now()
	t.Setenv("PATH", t.TempDir())
	e, err := New(Config{Dir: openDir(t), User: testUser(), Isolation: Sandbox, Path: path, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Preflight(sh("true")); err == nil || !strings.Contains(err.Error(), "install the package bubblewrap") {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	if _, err := e.Preflight(sh("true")); err == nil {
		t.Error("walls are looked for at each run")
	}
	now = now.Add(lookAgain)
	if _, err := e.Preflight(sh("true")); err != nil {
		t.Error(err)
	}
}
