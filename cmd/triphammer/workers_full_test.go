//go:build full

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// shop is a server that starts no runs, and workers on its store: each a process.
type shop struct {
	*world
	address string
}

// hand is the process of a worker.
type hand struct {
	name string
	cmd  *exec.Cmd
	end  chan struct{}
	logs *logFile
}

// slowly is an agent that says who it is, lives in a file, and ends when there is a file go.
const slowly = `[sh, -c, 'echo begun >>DIR/begun; echo "I work"; while [ ! -e DIR/go ]; do date +%s%N >DIR/alive.$$; sleep 0.02; done']`

// forking is a claude that keeps a session, and counts its turns in its workspace.
const forking = `#!/bin/sh
prompt=$(cat)
echo '{"type":"system","subtype":"init","model":"m","session_id":"s1"}'
echo "$prompt" >>turns
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"turns: '$(grep -c TURN turns)'"}]}}'
echo '{"type":"result","subtype":"success","session_id":"s1"}'
`

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{world: &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}, address: storetest.Postgres(t)}
	for _, dir := range []string{"secrets", "bin"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(s.dir, "secrets/S"), []byte(testSecret), 0o600),
		os.WriteFile(filepath.Join(s.dir, "bin/claude"), []byte(forking), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	s.write(map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "webhooks/far.yaml": "secretName: S\n",
		"environments/env.yaml": "command: " + strings.ReplaceAll(slowly, "DIR", s.dir) + "\n",
		"automations/a.md":      strings.Replace(automationFile("hook", ""), "---\n", "---\nretry: {attempts: 2, delaySeconds: 1}\n", 1),
		"automations/far.md":    strings.Replace(automationFile("far", ""), "---\n", "---\nworkerHost: zone=far\n", 1),
	})
	s.git("init", "-q", "--initial-branch=main")
	s.push()
	s.cleanUp()
	s.start("--store", s.address, "--max-runs", "0", "--secrets-dir", "secrets", "--lease", "6s")
	return s
}

// hire starts a worker.
func (s *shop) hire(name string, args ...string) *hand {
	s.t.Helper()
	h := &hand{name: name, end: make(chan struct{}), logs: newLogFile(s.t, s.dir)}
	h.cmd = s.command(append([]string{"worker", "--store", s.address, "--data", filepath.Join(s.dir, "at-"+name), "--name", name, "--lease", "6s", "--max-runs", "1"}, args...)...)
	h.cmd.Env = append(h.cmd.Env, "TRIPHAMMER_KEY_FILE="+filepath.Join(s.dir, "data/key"), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	h.cmd.Stderr = h.logs.file
	if err := h.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = h.cmd.Wait() // it is killed, or its end is seen
		close(h.end)
	}()
	s.t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.end
		if s.t.Failed() {
			s.t.Log(h.name, h.logs)
		}
	})
	s.await(name+" works", func() bool { return slices.Contains([]string{"ready", "full"}, s.hand(name)) }) // it may have a run already
	return h
}

// hand is the state of a worker.
func (s *shop) hand(name string) string {
	var all []api.Worker
	s.list(&all, "workers", "list")
	for _, w := range all {
		if w.Name == name {
			return w.State
		}
	}
	return ""
}

// deliver sends a delivery, and returns the run that it starts.
func (s *shop) deliver(hook, body string) string {
	s.t.Helper()
	got := post(s.t, http.MethodPost, s.url(hook), strings.NewReader(body), http.Header{"Authorization": {"Bearer " + testSecret}})
	if got.status != http.StatusAccepted {
		s.t.Fatalf("%+v", got)
	}
	var all []api.Delivery
	s.list(&all, "deliveries", "list", "--limit", "1")
	if len(all[0].Runs) != 1 {
		s.t.Fatalf("%+v", all[0])
	}
	return all[0].Runs[0]
}

func (s *shop) show(id string) (r api.Run) {
	s.t.Helper()
	s.list(&r, "runs", "show", id)
	return r
}

// is waits until a run is in a state.
func (s *shop) is(id, state string) api.Run {
	s.t.Helper()
	s.await(id+" is "+state, func() bool { return s.show(id).State == state })
	return s.show(id)
}

// begun is how many agents have begun.
func (s *shop) begun() int {
	text, err := os.ReadFile(filepath.Join(s.dir, "begun"))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

// let lets the agents end, or not.
func (s *shop) let(end bool) {
	s.t.Helper()
	path := filepath.Join(s.dir, "go")
	err := os.Remove(path)
	if end {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// agents are the files in which agents lived, the last first.
func (s *shop) agents() []os.FileInfo {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.dir, "alive.*"))
	if err != nil {
		s.t.Fatal(err)
	}
	var all []os.FileInfo
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return all
}

// TestWorkerProcesses: deliveries to a server are executed by workers, whatever becomes of
// these (SPEC 17.4).
func TestWorkerProcesses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	far := s.deliver("far", `{}`)
	if r := s.show(far); r.State != "QUEUED" || r.StatusMessage != "waits for a worker named zone=far; none is connected (triphammer worker --name zone=far)" {
		t.Errorf("%s %q", r.State, r.StatusMessage)
	}
	a := s.hire("a")

	// A run's transcript is there while it is in progress.
	first := s.deliver("hook", `{"n":1}`)
	s.await("the transcript of a run elsewhere", func() bool { return strings.Contains(s.run("", "runs", "logs", first), "I work") })
	if r := s.show(first); r.Worker != "a" || r.State != "INPROGRESS" {
		t.Errorf("%s by %q", r.State, r.Worker)
	}
	s.run("", "runs", "cancel", first)
	if r := s.is(first, "CANCELLED"); !strings.HasPrefix(r.StatusMessage, "cancelled by ") || !strings.HasSuffix(r.StatusMessage, " while it was in progress") {
		t.Error(r.StatusMessage)
	}

	// A worker is killed: its run is tried again by another one, once.
	before := s.begun()
	second := s.deliver("hook", `{"n":2}`)
	s.await("the agent begins", func() bool { return s.begun() == before+1 })
	b := s.hire("b", "--label", "zone=near")
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.await("the agent begins again", func() bool { return s.begun() == before+2 })
	s.let(true)
	if r := s.is(second, "SUCCEEDED"); r.Attempt != 2 || r.Worker != "b" || s.begun() != before+2 {
		t.Errorf("attempt %d by %s, %d agents", r.Attempt, r.Worker, s.begun()-before)
	}
	s.let(false)

	// A worker stands still: its agent is dead before the next one begins.
	third := s.deliver("hook", `{"n":3}`)
	s.await("the agent begins", func() bool { return s.begun() == before+3 })
	s.hire("c")
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	s.await("the agent begins again", func() bool { return s.begun() == before+4 })
	s.await("it lives", func() bool { return time.Since(s.agents()[0].ModTime()) < 200*time.Millisecond })
	started, err := os.Stat(filepath.Join(s.dir, "begun"))
	if err != nil {
		t.Fatal(err)
	}
	last := s.agents()[1].ModTime()
	t.Logf("the agent of the stopped worker lived for %v, and the next one began after %v", last.Sub(stopped), started.ModTime().Sub(stopped))
	if !last.Before(started.ModTime()) || last.Before(stopped.Add(time.Second)) {
		t.Errorf("the first agent lived until %v, the second one began at %v, and the worker was stopped at %v", last, started.ModTime(), stopped)
	}
	// When it goes on, it can neither write about the run nor end it.
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.await("the worker is back", func() bool { return s.hand("b") == "ready" })
	if r := s.show(third); r.State != "INPROGRESS" || r.Worker != "c" || r.Attempt != 2 {
		t.Errorf("%s, attempt %d by %s", r.State, r.Attempt, r.Worker)
	}

	// Drained, a worker starts nothing; told to stop, it lets its run end.
	s.run("", "workers", "drain", "b")
	fourth := s.deliver("hook", `{"n":4}`)
	if got := s.hand("b"); got != "drained" {
		t.Errorf("the worker is %s", got)
	}
	d := s.hire("d", "--label", "zone=far", "--grace", "1m")
	s.await("the free worker takes a run", func() bool { return s.show(far).Worker == "d" || s.show(fourth).Worker == "d" })
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.await("the worker is stopping", func() bool { return s.hand("d") == "blocked" })
	s.let(true)
	<-d.end
	if got := s.hand("d"); got != "stopped" || d.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the worker is %s: %v", got, d.cmd.ProcessState)
	}
	s.is(third, "SUCCEEDED")
	s.run("", "workers", "resume", "b")
	s.is(fourth, "SUCCEEDED")
	s.hire("d", "--label", "zone=far")
	if r := s.is(far, "SUCCEEDED"); r.Worker != "d" || r.Attempt != 1 {
		t.Errorf("attempt %d by %s", r.Attempt, r.Worker)
	}

	// A conversation stays with the worker that has its workspace.
	fifth := strings.TrimSpace(s.run("", "runs", "create", "--prompt", "TURN 1", "-o", "name"))
	s.is(fifth, "SUCCEEDED")
	for turn := 2; turn <= 4; turn++ {
		next := strings.TrimSpace(s.run("", "runs", "followup", fifth, "--message", fmt.Sprintf("TURN %d", turn), "-o", "name"))
		if r := s.is(next, "SUCCEEDED"); r.Worker != s.show(fifth).Worker || !strings.Contains(s.run("", "runs", "logs", next), fmt.Sprintf("turns: %d", turn)) {
			t.Errorf("turn %d by %s and not %s:\n%s", turn, r.Worker, s.show(fifth).Worker, s.run("", "runs", "logs", next))
		}
	}
}

// TestWorkerClock: a worker whose machine has a wrong clock is not taken for lost, and one with a
// short lease that was killed is, when its lease is over (SPEC 17.4).
func TestWorkerClock(t *testing.T) {
	s := newShop(t)
	s.ahead = -10 * time.Minute
	behind := s.hire("behind")
	s.ahead = 0
	if state := s.hand("behind"); state != "ready" {
		t.Errorf("by a server with the right clock it is %s", state)
	}
	if err := behind.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	s.await("it is lost", func() bool { return s.hand("behind") == "lost" })
	if took := time.Since(killed); took > store.LostAfter {
		t.Errorf("with a lease of 6s it was taken for ready for %v", took)
	}
}

// TestKilledAtTheEnd kills a server, and a worker, before and after the end of an agent, while what it left
// is collected. If the transcript has the end of the agent, the run ends by it; else there is another
// attempt (SPEC 9.6).
func TestKilledAtTheEnd(t *testing.T) {
	t.Parallel()
	files := func(dir string) map[string]string {
		return map[string]string{
			"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
			"environments/env.yaml": "command: [sh, -c, 'seq 4000 | xargs touch; echo >>" + dir + "/begun-$TRIPHAMMER_RUN_ID; until [ -e " + dir + "/end-$TRIPHAMMER_RUN_ID ]; do sleep 0.01; done; echo my last line']\n",
			"automations/a.md":      strings.Replace(automationFile("hook", ""), "---\n", "---\nretry: {attempts: 2, delaySeconds: 1}\n", 1),
		}
	}
	for _, where := range []string{"in a file", "in a database"} {
		t.Run(where, func(t *testing.T) {
			var s *shop
			var again func()
			if where == "in a file" {
				s = &shop{world: newWorld(t, map[string]string{"factory.yaml": factoryYAML})}
				args := []string{"--rate-limit", "0", "--max-runs-per-hour", "0"}
				s.write(files(s.dir))
				s.push()
				s.start(args...)
				again = func() { s.kill(); s.start(args...) }
			} else {
				s = newShop(t)
				s.write(files(s.dir))
				s.push()
				s.run("", "apply")
				h := s.hire("a")
				again = func() {
					if err := h.cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					<-h.end
					h = s.hire("a")
				}
			}
			begun := func(id string) int {
				text, _ := os.ReadFile(filepath.Join(s.dir, "begun-"+id)) // no file: not yet
				return len(text)
			}
			said := func(e event.Event) bool {
				o, is := e.(event.Output)
				return is && strings.Contains(o.Text, "my last line")
			}
			gone := func(e event.Event) bool { _, is := e.(event.Ended); return is }
			kept, twice := 0, 0
			for kill := range 6 {
				id := s.deliver("hook", fmt.Sprintf(`{"n":%d}`, kill))
				s.await("its agent waits", func() bool { return begun(id) > 0 })
				last := []func(event.Event) bool{nil, said, gone}[kill%3] // before the kill; nil: the agent still waits
				if last != nil {
					s.write(map[string]string{"../end-" + id: ""})
					s.await("its agent ends", func() bool { return slices.ContainsFunc(s.transcript(id), last) })
				}
				again()
				s.write(map[string]string{"../end-" + id: ""})
				r := s.is(id, "SUCCEEDED")
				if strings.Contains(r.StatusMessage, "its agent had ended when") {
					kept++
				}
				if last == nil && (r.Attempt != 2 || begun(id) != 2) {
					t.Errorf("kill %d: %s did not begin again, although its agent was killed: %+v", kill, id, r)
				}
				if r.Attempt == 1 && begun(id) == 1 {
					continue
				}
				twice++
				ended := false
				for _, e := range s.transcript(id) {
					switch e := e.(type) {
					case event.Ended:
						ended = true
					case event.Status:
						if ended && strings.HasPrefix(e.Message, "started, attempt 2") {
							t.Errorf("kill %d: %s began again, although its transcript had the end of its agent", kill, id)
						}
					}
				}
			}
			t.Logf("of 6 agents, about their end: %d runs ended by the transcript alone, %d began again", kept, twice)
		})
	}
}
