package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/server/api"
	"triphammer/server/worker/executor"
)

// runsOnce tells what is wrong with runs after kills around their start: started
// twice, lost, stuck, or silently ended.
func runsOnce(made []string, runs []api.Run, marks []string) (wrong []string) {
	started := make(map[string]int)
	for _, id := range marks {
		started[id]++
	}
	byID := make(map[string]api.Run)
	for _, r := range runs {
		byID[r.RunID] = r
	}
	for _, id := range made {
		r, ok := byID[id]
		switch {
		case !ok:
			wrong = append(wrong, id+" is lost")
		case r.FinishedAt == nil:
			wrong = append(wrong, id+" is stuck: "+r.State)
		case started[id] > 1:
			wrong = append(wrong, fmt.Sprintf("%s was started %d times", id, started[id]))
		case r.State == "SUCCEEDED" && started[id] != 1:
			wrong = append(wrong, id+" SUCCEEDED and never started")
		case r.State == "FAILED" && !strings.Contains(r.StatusMessage, "the server stopped before this run had finished"):
			wrong = append(wrong, id+" FAILED: "+r.StatusMessage)
		case r.State != "SUCCEEDED" && r.State != "FAILED":
			wrong = append(wrong, id+" is "+r.State)
		}
	}
	return wrong
}

// TestRunOnce (R9) kills the server around the start of runs, in make test-full 150 times: none is
// started twice, none lost, none stuck, each accepted delivery has its run, and nothing that
// an agent has started outlives the server.
func TestRunOnce(t *testing.T) {
	kills := map[string]int{executor.None: 15, executor.Kernel: 10}
	if thorough {
		kills = map[string]int{executor.None: 50, executor.Kernel: 50, executor.Sandbox: 50}
		unwatched(t)
	}
	for isolation, n := range kills {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			killAroundStarts(t, isolation, n)
		})
	}
}

// startMarks notes the starts of runs outside of all walls: each agent sends the id of its run.
type startMarks struct {
	net.Listener
	mu  sync.Mutex
	ids []string
}

func listenForStarts(t *testing.T) *startMarks {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &startMarks{Listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				id, err := io.ReadAll(c)
				if err != nil || len(id) == 0 {
					return // it was killed before it could tell
				}
				m.mu.Lock()
				m.ids = append(m.ids, string(id))
				m.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return m
}

func (m *startMarks) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ids)
}

func killAroundStarts(t *testing.T, isolation string, kills int) {
	marks := listenForStarts(t)
	sleep := fmt.Sprintf("6%d", time.Now().UnixNano()) // what agents leave behind
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "automations/all.md": automationFile("hook", ""),
		"environments/env.yaml": fmt.Sprintf("command: [bash, -c, 'setsid sleep %s & printf %%s \"$TRIPHAMMER_RUN_ID\" >/dev/tcp/127.0.0.1/%d; sleep 0.05']\n", sleep, marks.Addr().(*net.TCPAddr).Port),
	})
	if err := errors.Join(os.Chmod(w.dir, 0o755), os.Chmod(filepath.Dir(w.dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	start := func() {
		w.startWith(func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "TRIPHAMMER_ISOLATION="+isolation, "TRIPHAMMER_RUN_USER=")
		}, "--max-runs", "3", "--rate-limit", "0", "--max-runs-per-hour", "0")
	}
	key := strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	var mu sync.Mutex
	var made, delivered []string
	// send asks for a run, and tells whether it was acknowledged.
	send := func(url, key, body string, status int, id func([]byte) string, into *[]string) bool {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return false
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false // the server is dead
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || id(answer) == "" {
			return false
		}
		mu.Lock()
		*into = append(*into, id(answer))
		mu.Unlock()
		return true
	}
	create := func(int) bool {
		return send("http://"+w.addr+"/api/v1/agent/runs", key, `{"prompt":"x","config":{"environment_id":"env"}}`, http.StatusOK, func(answer []byte) string {
			var r api.CreatedRun
			_ = json.Unmarshal(answer, &r)
			return r.RunID
		}, &made)
	}
	address := ""
	deliver := func(n int) bool {
		return send(address, testSecret, fmt.Sprintf(`{"n":%d}`, n), http.StatusAccepted, func(answer []byte) string {
			var d struct {
				DeliveryID string `json:"delivery_id"`
			}
			_ = json.Unmarshal(answer, &d)
			return d.DeliveryID
		}, &delivered)
	}
	r := rand.New(rand.NewPCG(9, 9))
	for round := range kills {
		start()
		if address == "" {
			address = w.url("hook")
		}
		var senders sync.WaitGroup
		for _, send := range []func(int) bool{create, deliver} {
			senders.Go(func() {
				for n := range 3 {
					if !send(3*round + n) {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond) // the kill comes at any moment
		w.kill()
		senders.Wait()
	}
	start()
	var runs []api.Run
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		w.list(&runs, "runs", "list", "--limit", "0")
		if !slices.ContainsFunc(runs, func(r api.Run) bool { return r.FinishedAt == nil }) || time.Now().After(deadline) {
			break
		}
	}
	// What an agent has sent before it ended may still be on its way.
	_ = client.WaitFor(t.Context(), 20*time.Second, "a run that never started has SUCCEEDED", func() (bool, error) {
		started := marks.all()
		return !slices.ContainsFunc(runs, func(r api.Run) bool { return r.State == "SUCCEEDED" && !slices.Contains(started, r.RunID) }), nil
	}) // runsOnce names it
	started := marks.all()
	acknowledged := len(made) + len(delivered)
	byDelivery := make(map[string]int)
	interrupted := 0
	for _, r := range runs {
		byDelivery[r.DeliveryID]++
		if r.State == "FAILED" {
			interrupted++
		}
		if !slices.Contains(made, r.RunID) { // those too whose acknowledgement the kill cut off
			made = append(made, r.RunID)
		}
	}
	for _, wrong := range runsOnce(made, runs, started) {
		t.Error(wrong)
	}
	for _, id := range delivered {
		if byDelivery[id] != 1 {
			t.Errorf("%s was accepted and has %d runs", id, byDelivery[id])
		}
	}
	if pid := someProcess(t, func(line string) bool { return strings.Contains(line, sleep) }); pid != 0 {
		t.Errorf("process %d has outlived its server", pid)
	}
	t.Logf("%d kills: %d acknowledged, %d of them deliveries, %d started, %d interrupted", kills, acknowledged, len(delivered), len(started), interrupted)
	if acknowledged < kills || len(delivered) == 0 || interrupted < kills/5 {
		t.Errorf("the kills hit nothing: %d acknowledged, %d deliveries, %d interrupted", acknowledged, len(delivered), interrupted)
	}

	if len(started) == 0 {
		t.Fatalf("no agent has told that it started: %+v", runs)
	}

	// What this test is to find, it finds.
	doctored := slices.Clone(runs)
	doctored[0].FinishedAt, doctored[0].State = nil, "INPROGRESS"
	for name, wrong := range map[string][]string{
		"twice": runsOnce(made, runs, append(slices.Clone(started), started[0])),
		"lost":  runsOnce(append(slices.Clone(made), "run_0000000000001"), runs, started),
		"stuck": runsOnce([]string{doctored[0].RunID}, doctored, started),
	} {
		if len(wrong) != 1 {
			t.Errorf("%s is not found: %v", name, wrong)
		}
	}
}

// unwatched makes a test start servers without the race detector too: hundreds of starts are
// to hit moments, and the detector sees the same code in the other tests.
func unwatched(t *testing.T) {
	t.Helper()
	was := binary
	binary = plain
	t.Cleanup(func() { binary = was })
}

// TestDrain (R25) ends the server 20 times (in make test-full) with SIGTERM under load:
// nothing acknowledged is lost, nothing accepted twice, every request that was
// taken is answered, and it ends with 0 within 10 seconds.
func TestDrain(t *testing.T) {
	t.Parallel()
	times := 3
	if thorough {
		times = 20
	}
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "environments/env.yaml": "command: ['true']\n",
		"automations/all.md": automationFile("hook", ""),
	})
	w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "2")
	address := w.url("hook")
	var mu sync.Mutex
	acknowledged := make(map[string]string) // identity to delivery
	cut := 0
	stop := make(chan struct{})
	acks := make(chan struct{}, 10_000)
	var senders sync.WaitGroup
	for sender := range 8 {
		senders.Go(func() {
			for n := 0; ; n++ {
				identity := fmt.Sprintf("%d-%d", sender, n)
				for { // a sender tries again with the same identity
					select {
					case <-stop:
						return
					default:
					}
					req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(`{"x":"`+strings.Repeat("y", 2000)+`"}`))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+testSecret)
					req.Header.Set("X-Service-Delivery-Id", identity)
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						mu.Lock()
						if !strings.Contains(err.Error(), "refused") {
							cut++
						}
						mu.Unlock()
						time.Sleep(5 * time.Millisecond)
						continue
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					var answer struct {
						DeliveryID string `json:"delivery_id"`
					}
					if err != nil || resp.StatusCode == http.StatusAccepted && json.Unmarshal(body, &answer) != nil {
						t.Errorf("an answer is cut off: %d %q %v", resp.StatusCode, body, err)
					}
					if resp.StatusCode == http.StatusAccepted {
						mu.Lock()
						acknowledged[identity] = answer.DeliveryID
						mu.Unlock()
						select {
						case acks <- struct{}{}:
						default:
						}
						break
					}
				}
			}
		})
	}
	for range times {
		for range 50 {
			select {
			case <-acks:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is acknowledged")
			}
		}
		from := time.Now()
		w.terminate()
		w.stopped()
		if took := time.Since(from); took > 10*time.Second {
			t.Errorf("it took %v to end", took)
		}
		w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "2")
	}
	close(stop)
	senders.Wait()
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	stored := make(map[string]string)
	for _, d := range deliveries {
		if d.Outcome != "accepted" {
			continue
		}
		if stored[d.Identity.Value] != "" {
			t.Errorf("%s was accepted twice", d.Identity.Value)
		}
		stored[d.Identity.Value] = d.ID
		if len(d.Runs) != 1 {
			t.Errorf("%s started %d runs", d.ID, len(d.Runs))
		}
	}
	for identity, id := range acknowledged {
		if stored[identity] != id {
			t.Errorf("%s was acknowledged as %s and is stored as %q", identity, id, stored[identity])
		}
	}
	t.Logf("%d ends: %d acknowledged, %d requests met a closed connection and were sent again", times, len(acknowledged), cut)
}
