//go:build full

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/store/storetest"
)

// findingForge is a GitHub in which what was made can be found again.
type findingForge struct {
	mu    sync.Mutex
	made  map[string][]map[string]any // by path
	id    int
	blind bool // it shows nothing of what was made
	// hit takes a channel when something is about to be made or has just been made. Its receiver kills a process, and
	// closes the channel.
	hit chan chan struct{}
}

func (f *findingForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked map[string]any
	_ = json.Unmarshal(body, &asked)
	pause := func() {
		killed := make(chan struct{})
		select {
		case f.hit <- killed:
			<-killed
		default:
		}
	}
	early := rand.IntN(2) == 0
	if r.Method == http.MethodPost && early {
		pause()
	}
	answer := f.answer(r, asked)
	if r.Method == http.MethodPost && !early {
		pause()
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(answer) // its reader may be dead
}

func (f *findingForge) answer(r *http.Request, asked map[string]any) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	me := map[string]any{"id": 9, "login": "hammer"}
	switch {
	case r.URL.Path == "/user":
		return me
	case r.URL.Path == "/repos/acme/api":
		return map[string]any{"default_branch": "main"}
	case r.Method == http.MethodPost:
		f.id++
		asked["id"], asked["number"], asked["user"], asked["html_url"] = f.id, f.id, me, fmt.Sprintf("https://github.example.com/made/%d", f.id)
		f.made[r.URL.Path] = append(f.made[r.URL.Path], asked)
		return asked
	case f.blind || r.URL.Query().Get("page") > "1":
		return []any{}
	}
	return append([]map[string]any{}, f.made[r.URL.Path]...)
}

// count is how often a text was made, in a field.
func (f *findingForge) count(path, field, text string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, made := range f.made[path] {
		if said, _ := made[field].(string); strings.Contains(said, text) {
			n++
		}
	}
	return n
}

// killedNode is a process of the campaign.
type killedNode struct {
	*world
	args []string
	proc *exec.Cmd
	gone chan struct{}
}

func (n *killedNode) begin() {
	n.t.Helper()
	n.proc, n.gone = n.command(n.args...), make(chan struct{})
	n.proc.Env = append(n.proc.Env, "TRIPHAMMER_KEY_FILE="+filepath.Join(n.dir, "data/key"))
	n.proc.Stderr = n.logs.file
	if err := n.proc.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(gone)
	}(n.proc, n.gone)
}

func (n *killedNode) stop() {
	if n.proc != nil {
		_ = n.proc.Process.Kill() // it may have ended
		<-n.gone
	}
}

// outputsCampaign kills processes while runs ask for outputs, and returns what is wrong at the forge, by the kind, and how
// many runs there were. Kills hit the moment at which something is made, or any moment.
func outputsCampaign(t *testing.T, database bool, kills int, blind bool) (wrong map[string]int, runs int) {
	f := &findingForge{made: make(map[string][]map[string]any), blind: blind, hit: make(chan chan struct{})}
	forge := httptest.NewServer(f)
	t.Cleanup(forge.Close)
	script, _ := json.Marshal(`n=$(grep -o "nr-[0-9]*x" "$TRIPHAMMER_ATTACHMENTS/event-payload.json" | head -1); cd "$TRIPHAMMER_OUTPUTS"
echo "{\"kind\":\"comment\",\"body\":\"$n\"}" >1.json; echo "{\"kind\":\"addLabels\",\"labels\":[\"done\"]}" >2.json
echo "{\"kind\":\"createIssue\",\"title\":\"$n\",\"body\":\"B\"}" >3.json; echo "{\"kind\":\"createPullRequest\",\"title\":\"$n\",\"body\":\"B\",\"head\":\"fix\"}" >4.json
until [ -e 4.result.json ]; do sleep 0.02; done`) // always encodes
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t), ahead: time.Second}
	w.logs = newLogFile(t, w.dir)
	w.write(map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, " + string(script) + "]\n",
		"webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: API\napiURL: " + forge.URL + "\n",
		"automations/a.md": "---\nenvironmentId: env\nretry: {attempts: 10, delaySeconds: 0.2}\ntriggers: [{provider: github, event: issue_labeled}]\n" +
			"outputs: {comment: {}, addLabels: {allowed: [done]}, createIssue: {}, createPullRequest: {}}\n---\nGo.\n",
	})
	w.git("init", "-q", "--initial-branch=main")
	w.push()
	for name, value := range map[string]string{"S": testSecret, "API": "ghp_x"} {
		w.write(map[string]string{"../secrets/" + name: value})
	}
	serve := []string{"serve", "--repo", "repo", "--secrets-dir", "secrets", "--rate-limit", "0", "--max-runs-per-hour", "0", "--lease", "6s", "--grace", "1s", "--keep-workspaces", "0"}
	nodes := []*killedNode{{world: w, args: serve}}
	if database {
		store := []string{"--store", storetest.Postgres(t)}
		serve = append(append(serve, store...), "--max-runs", "0")
		other := *w
		other.addr = freeAddress(t)
		nodes = []*killedNode{
			{world: w, args: serve},
			{world: &other, args: append(slices.Clone(serve), "--data", filepath.Join(w.dir, "data2"))},
			{world: w, args: append([]string{"worker", "--name", "a", "--data", filepath.Join(w.dir, "data3"), "--lease", "6s", "--grace", "1s"}, store...)},
		}
		w.env = append(w.env, "TRIPHAMMER_STORE="+store[1])
		other.env = w.env
	}
	servers := nodes[:min(len(nodes), 2)]
	for _, n := range nodes {
		t.Cleanup(n.stop)
		n.begin()
		w.run("", "status", "--wait", "--timeout", "60s")
	}
	path := w.url("hook")
	path = path[strings.Index(path, "/webhooks/"):]
	send := func(n int) {
		payload, _ := json.Marshal(map[string]any{
			"action": "labeled", "label": map[string]any{"name": "x"}, "repository": map[string]any{"id": 1, "full_name": "acme/api"}, "sender": map[string]any{"login": "ada", "type": "User"},
			"issue": map[string]any{"id": 1, "number": 7, "title": fmt.Sprintf("nr-%dx", n), "user": map[string]any{"login": "ada"}},
		})
		header := http.Header{"X-Github-Event": {"issues"}, "X-Github-Delivery": {fmt.Sprint(n)}}
		scheme, _ := signature.Lookup("github")
		if err := scheme.Sign(testSecret, &signature.Request{Header: header, Body: payload}); err != nil {
			t.Fatal(err)
		}
		err := client.WaitFor(t.Context(), 2*time.Minute, "no server takes a delivery", func() (bool, error) {
			for _, s := range servers {
				req, err := http.NewRequest(http.MethodPost, "http://"+s.addr+path, bytes.NewReader(payload))
				if err != nil {
					return false, err
				}
				req.Header = header
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close()
					if resp.StatusCode == http.StatusAccepted {
						return true, nil
					}
				}
			}
			return false, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	hits := 0
	for kill := range kills {
		send(runs)
		runs++
		victim := nodes[rand.IntN(len(nodes))]
		wait := time.Duration(rand.IntN(1500)) * time.Millisecond
		var killed chan struct{}
		var hit chan chan struct{}
		if kill%3 > 0 { // when something is made
			victim, wait, hit = servers[rand.IntN(len(servers))], 5*time.Second, f.hit
		}
		select {
		case killed = <-hit:
			hits++
		case <-time.After(wait):
		}
		victim.stop()
		if killed != nil {
			close(killed)
		}
		if !database { // what was begun is looked for at once
			w.ahead += 3 * time.Minute
		}
		victim.begin()
	}
	for _, n := range nodes {
		n.stop()
	}
	for _, n := range nodes {
		n.ahead = w.ahead + 10*time.Minute
	}
	for _, n := range nodes {
		n.begin()
	}
	w.run("", "status", "--wait", "--timeout", "60s")
	var all []api.Run
	err := client.WaitFor(t.Context(), 4*time.Minute, "the runs and their outputs do not end", func() (bool, error) {
		if w.list(&all, "runs", "list", "--limit", "1000"); slices.ContainsFunc(all, func(r api.Run) bool { return r.FinishedAt == nil }) {
			return false, nil
		}
		for _, r := range all {
			var one api.Run
			w.list(&one, "runs", "show", r.RunID)
			if slices.ContainsFunc(one.Outputs, func(o api.Output) bool { return o.Status == "pending" }) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Error(err, w.run("", "runs", "list"))
	}
	wrong = make(map[string]int)
	for n := range runs {
		text := fmt.Sprintf("nr-%dx", n)
		for kind, at := range map[string][2]string{"comment": {"issues/7/comments", "body"}, "createIssue": {"issues", "title"}, "createPullRequest": {"pulls", "title"}} {
			if times := f.count("/repos/acme/api/"+at[0], at[1], text); times != 1 {
				wrong[kind]++
				t.Logf("%s of %s is there %d times", kind, text, times)
			}
		}
	}
	failed := len(slices.DeleteFunc(all, func(r api.Run) bool { return r.State == "SUCCEEDED" }))
	if failed > 0 || len(all) < runs {
		t.Errorf("%d of %d runs failed, and %d were sent", failed, len(all), runs)
	}
	t.Logf("%d kills, %d of them while something was being made; %d runs, %d outputs", kills, hits, runs, 4*runs)
	return wrong, runs
}

// TestOutputsKilled: what agents ask for is there once each, whichever server, worker or leader is killed when, on both
// stores (SPEC 23.2). `make soak` kills 200 times.
func TestOutputsKilled(t *testing.T) {
	kills := 6
	if *campaign {
		kills = 100
	}
	for name, database := range map[string]bool{"in a file": false, "in a database": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong, _ := outputsCampaign(t, database, kills, false); len(wrong) > 0 {
				t.Errorf("not there once: %v", wrong)
			}
		})
	}
	t.Run("control", func(t *testing.T) { // a forge that does not show what was made has it twice
		t.Parallel()
		if wrong, _ := outputsCampaign(t, false, 6, true); len(wrong) == 0 {
			t.Error("nothing is there twice: the kills hit nothing")
		}
	})
}
