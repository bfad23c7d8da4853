//go:build full

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
	"triphammer/server/store/storetest"
)

// cluster is some servers that share a store and a repository, each a process with a data
// directory of its own.
type cluster struct {
	*world // of the repository, and the first server
	nodes  []*world
}

// newCluster starts servers on one store. They have one key.
func newCluster(t *testing.T, n int, files map[string]string, args ...string) *cluster {
	t.Helper()
	address := storetest.Postgres(t)
	c := &cluster{}
	for i := range n {
		w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
		if i == 0 {
			c.world = w
			w.write(map[string]string{"factory.yaml": factoryYAML})
			w.git("init", "-q", "--initial-branch=main")
			w.push()
		} else if err := os.Symlink(filepath.Join(c.dir, "repo"), filepath.Join(w.dir, "repo")); err != nil {
			t.Fatal(err)
		}
		w.env = []string{"TRIPHAMMER_STORE=" + address, "TRIPHAMMER_KEY_FILE=" + filepath.Join(c.dir, "key")}
		c.nodes = append(c.nodes, w)
	}
	for i, w := range c.nodes {
		w.cleanUp()
		w.start(args...)
		if i == 0 {
			w.run(testSecret, "secrets", "set", "S")
			w.write(files)
			w.push()
			w.run("", "apply")
		}
	}
	return c
}

// leader is the server that leads.
func (c *cluster) leader() *world {
	c.t.Helper()
	at := -1
	eventually(c.t, "a server leads", 15*time.Second, func() bool {
		at = slices.IndexFunc(c.nodes, func(w *world) bool {
			text := w.logs.String()
			return w.cmd != nil && strings.Contains(text, "this server leads") && !strings.Contains(text, "does not lead any more")
		})
		return at >= 0
	})
	return c.nodes[at]
}

// follower is a server that does not lead.
func (c *cluster) follower() *world {
	c.t.Helper()
	leader := c.leader()
	return c.nodes[slices.IndexFunc(c.nodes, func(w *world) bool { return w != leader && w.cmd != nil })]
}

// on is an address of one server, at another one.
func (w *world) on(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		w.t.Fatal(err)
	}
	u.Host = w.addr
	return u.String()
}

// eventually waits until something is true.
func eventually(t testing.TB, what string, patience time.Duration, is func() bool) {
	t.Helper()
	if err := client.WaitFor(t.Context(), patience, "it is not so that "+what, func() (bool, error) { return is(), nil }); err != nil {
		t.Fatal(err)
	}
}

// atOnce calls something for each server at the same time.
func (c *cluster) atOnce(do func(w *world)) {
	var all sync.WaitGroup
	for _, w := range c.nodes {
		if w.cmd != nil {
			all.Go(func() { do(w) })
		}
	}
	all.Wait()
}

var clusterFiles = map[string]string{
	"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, 'for i in $(seq 1 100); do echo line $i; sleep 0.02; done']\n",
	"webhooks/hook.yaml": "secretName: S\n", "webhooks/fast.yaml": "secretName: S\n", "webhooks/other.yaml": "secretName: S\n",
	"automations/a.md": automationFile("other", ""),
}

func bearerOf(value string, more ...string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + value}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// TestSeveralServers: servers with one store are one server to whoever uses any of them
// (SPEC 17.1–17.3).
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, clusterFiles, "--rate-limit", "60")
	for _, w := range c.nodes {
		w.run("", "status", "--wait", "--timeout", "30s")
	}
	hook := c.url("hook")

	t.Run("an apply anywhere kills the old secret everywhere", func(t *testing.T) {
		old := testSecret
		for round := range 9 {
			value := fmt.Sprintf("%s-%d", testSecret, round)
			setter, applier := c.nodes[round%3], c.nodes[(round+1)%3]
			setter.run(value, "secrets", "set", "S")
			applier.run("", "apply")
			c.atOnce(func(w *world) {
				if got := post(t, "POST", w.on(hook), strings.NewReader(fmt.Sprintf(`{"old":%d}`, round)), bearerOf(old)); got.status != http.StatusUnauthorized {
					t.Errorf("round %d: the old secret is answered with %d by %s", round, got.status, w.addr)
				}
				if got := post(t, "POST", w.on(hook), strings.NewReader(fmt.Sprintf(`{"new":%d}`, round)), bearerOf(value)); got.status != http.StatusAccepted {
					t.Errorf("round %d: the new secret is answered with %d by %s: %s", round, got.status, w.addr, got.body)
				}
			})
			old = value
		}
		c.run(testSecret, "secrets", "set", "S")
		c.run("", "apply")
	})

	t.Run("duplicates that come everywhere at once", func(t *testing.T) {
		const identities = 8
		for i := range identities {
			var mu sync.Mutex
			ids := make(map[string]int)
			c.atOnce(func(w *world) {
				got := post(t, "POST", w.on(c.url("other")), strings.NewReader("{}"), bearerOf(testSecret, "X-Service-Delivery-Id", fmt.Sprint("same ", i)))
				var answer struct {
					ID string `json:"delivery_id"`
				}
				if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusAccepted {
					t.Errorf("%+v", got)
				}
				mu.Lock()
				defer mu.Unlock()
				ids[answer.ID]++
			})
			if len(ids) != 1 {
				t.Errorf("%d deliveries of one identity", len(ids))
			}
		}
		for _, w := range c.nodes {
			var all []api.Delivery
			w.list(&all, "deliveries", "list", "--webhook", "other", "--limit", "100")
			accepted := slices.DeleteFunc(slices.Clone(all), func(d api.Delivery) bool { return d.Outcome != "accepted" })
			if len(all) != 3*identities || len(accepted) != identities {
				t.Errorf("%s lists %d deliveries, %d accepted", w.addr, len(all), len(accepted))
			}
		}
	})

	t.Run("the rate counts over all servers", func(t *testing.T) {
		fast := c.url("fast")
		var accepted atomic.Int64
		c.atOnce(func(w *world) {
			for i := range 40 {
				got := post(t, "POST", w.on(fast), strings.NewReader(fmt.Sprintf(`{"n":%d,"of":%q}`, i, w.addr)), bearerOf(testSecret))
				switch {
				case got.status == http.StatusAccepted:
					accepted.Add(1)
				case got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "":
					t.Errorf("%+v", got)
				}
			}
		})
		if n := accepted.Load(); n != 60 {
			t.Errorf("%d deliveries are taken in a minute", n)
		}
	})

	t.Run("a session and a key are valid everywhere, and end everywhere", func(t *testing.T) {
		key := strings.TrimSpace(c.nodes[0].run("", "keys", "create", "k", "--scope", "manage"))
		var link api.LoginLink
		if got := post(t, "POST", "http://"+c.nodes[1].addr+"/api/v1/auth/links", strings.NewReader(`{"name":"ada","role":"manager"}`),
			bearerOf(key, "Content-Type", "application/json")); got.status > 201 || json.Unmarshal([]byte(got.body), &link) != nil {
			t.Fatalf("%+v", got)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		see := func(w *world, method, path string) int {
			t.Helper()
			req, err := http.NewRequest(method, "http://"+w.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Sec-Fetch-Site", "same-origin")
			resp, err := browser.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		u, err := url.Parse(link.URL)
		if err != nil {
			t.Fatal(err)
		}
		if got := see(c.nodes[2], "POST", u.RequestURI()); got != http.StatusSeeOther {
			t.Fatalf("signing in at another server: %d", got)
		}
		if got := see(c.nodes[0], "POST", u.RequestURI()); got != http.StatusUnauthorized {
			t.Errorf("the link works twice: %d", got)
		}
		for _, w := range c.nodes { // a cookie of 127.0.0.1 goes to all ports
			if got := see(w, "GET", "/"); got != http.StatusOK {
				t.Errorf("the session at %s: %d", w.addr, got)
			}
		}
		if got := see(c.nodes[1], "POST", "/auth/logout"); got != http.StatusOK {
			t.Fatal(got)
		}
		c.nodes[2].run("", "keys", "revoke", "k")
		for _, w := range c.nodes {
			if got := see(w, "GET", "/"); got != http.StatusUnauthorized {
				t.Errorf("the session that ended at %s: %d", w.addr, got)
			}
			if got := post(t, "GET", "http://"+w.addr+"/api/v1/status", nil, bearerOf(key)); got.status != http.StatusUnauthorized {
				t.Errorf("the revoked key at %s: %d", w.addr, got.status)
			}
		}
	})

	t.Run("a stream goes on at another server", func(t *testing.T) {
		key := strings.TrimSpace(c.run("", "keys", "create", "stream", "--scope", "runs"))
		id := strings.Fields(c.nodes[1].run("", "runs", "create", "--prompt", "x", "--environment", "env"))[0]
		last, ids, finished := "", []string(nil), false
		for turn := 0; !finished && turn < 1000; turn++ {
			w := c.nodes[turn%3]
			cl := &client.Client{HTTP: http.DefaultClient, Base: "http://" + w.addr, Key: key}
			few := 0
			_ = cl.Stream(t.Context(), "/agent/runs/"+id+"/events", last, func(id, kind string, _ []byte) error {
				last, ids = id, append(ids, id)
				finished = kind == "state" && strings.HasSuffix(id, "SUCCEEDED")
				if few++; few == 3 && !finished {
					return io.EOF // and on at the next server
				}
				return nil
			})
		}
		var transcript api.Transcript
		c.nodes[2].list(&transcript, "runs", "logs", id)
		want := []string{"0.QUEUED", "0.INPROGRESS"}
		for _, e := range transcript.Events {
			want = append(want, fmt.Sprintf("%d.INPROGRESS", e.Seq))
		}
		want = append(want, fmt.Sprintf("%d.SUCCEEDED", len(transcript.Events)))
		if len(transcript.Events) < 10 || !slices.Equal(ids, want) {
			t.Errorf("%d ids, not %d: … %v", len(ids), len(want), ids[max(0, len(ids)-3):])
		}
	})

	t.Run("pins, pauses and refusals are seen everywhere", func(t *testing.T) {
		status := func(w *world) api.FactoryStatus {
			var s api.Status
			w.list(&s, "status")
			return s.Factories[0]
		}
		one, two := c.follower(), c.leader()
		first := status(one).Applied.Commit
		c.write(map[string]string{"webhooks/more.yaml": "secretName: S\n"})
		c.push()
		eventually(t, "all serve the push", 15*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool { return status(w).Applied.Commit == first })
		})
		one.run("", "definition", "pin", first[:8], "--reason", "test")
		if got := post(t, "POST", two.on(c.url("hook")), strings.NewReader(`{"pinned":1}`), bearerOf(testSecret)); got.status != http.StatusAccepted {
			t.Errorf("%+v", got)
		}
		eventually(t, "all show the pin", 5*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool { s := status(w); return s.Pin == nil || s.Applied.Commit != first })
		})
		two.run("", "definition", "unpin")
		eventually(t, "all serve the head again", 5*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool { s := status(w); return s.Pin != nil || s.Applied.Commit == first })
		})

		one.run("", "webhooks", "pause", "hook", "--reason", "test")
		c.atOnce(func(w *world) {
			if got := post(t, "POST", w.on(hook), strings.NewReader(`{"paused":1}`), bearerOf(testSecret)); got.status != http.StatusNotFound {
				t.Errorf("paused, at %s: %+v", w.addr, got)
			}
		})
		two.run("", "webhooks", "resume", "hook")
		eventually(t, "all take deliveries again", 5*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool {
				return post(t, "POST", w.on(hook), strings.NewReader(`{"resumed":1}`), bearerOf(testSecret)).status != http.StatusAccepted
			})
		})

		c.write(map[string]string{"webhooks/more.yaml": "colour: green\n"})
		c.push()
		eventually(t, "all show the refusal", 15*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool { return status(w).Reason != "invalid" })
		})
		c.write(map[string]string{"webhooks/more.yaml": "secretName: S\n"})
		c.push()
		eventually(t, "all show that it is over", 15*time.Second, func() bool {
			return !slices.ContainsFunc(c.nodes, func(w *world) bool { s := status(w); return s.Error != "" || s.Head != s.Applied.Commit })
		})
	})

	t.Run("what lives on one machine is refused", func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t), env: c.env}
		out, err := w.command("serve", "--hosted", "mine").CombinedOutput()
		if exitStatus(err) != exit.Usage || !strings.Contains(string(out), "hosted factory lives in the data directory of one machine") {
			t.Errorf("%v\n%s", err, out)
		}
		out, err = c.nodes[1].command("factories", "create", "mine").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "hosted factory lives in the data directory of one machine") {
			t.Errorf("%v\n%s", err, out)
		}
		w.env = []string{c.env[0]} // another sealing key
		out, err = w.command("serve", "--repo", filepath.Join(c.dir, "repo")).CombinedOutput()
		if exitStatus(err) != exit.Usage || !strings.Contains(string(out), "sealed with the key of the servers that use it already") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestLeaderFreezes: a leader that stands still loses its office, and what it does when it goes
// on is no harm: it follows what the next leader applied (SPEC 17.3).
func TestLeaderFreezes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, clusterFiles)
	frozen := c.leader()
	other := c.follower()
	frozen.signal(syscall.SIGSTOP)
	began := time.Now()
	c.write(map[string]string{"webhooks/more.yaml": "secretName: S\n"})
	c.push()
	applied := ""
	eventually(t, "the other server leads and applies", 15*time.Second, func() bool {
		var s api.Status
		other.list(&s, "status")
		if f := s.Factories[0]; f.Applied.At.After(began) {
			applied = f.Applied.Commit
		}
		return applied != ""
	})
	t.Logf("applied after %s", time.Since(began).Round(time.Millisecond))
	frozen.signal(syscall.SIGCONT)
	eventually(t, "the former leader follows", 10*time.Second, func() bool {
		var s api.Status
		frozen.list(&s, "status")
		return s.Factories[0].Applied.Commit == applied && strings.Contains(frozen.logs.String(), "does not lead any more")
	})
	var applies []api.Apply
	other.list(&applies, "applies", "list")
	n := 0
	for _, a := range applies {
		if a.Commit == applied {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the commit was applied %d times", n)
	}
}

// TestFenceControl: the control of "an apply anywhere kills the old secret everywhere". Without
// the fence, a server that has not heard of the apply still takes the old secret.
func TestFenceControl(t *testing.T) {
	c := newCluster(t, 2, clusterFiles, "--rate-limit", "0")
	for _, w := range c.nodes {
		w.kill()
		w.clock, w.env = filepath.Join(c.dir, "no clock"), append(w.env, unfencedVariable+"=1")
		w.start("--rate-limit", "0")
	}
	hook := c.url("hook")
	old, late := testSecret, false
	for round := 0; !late && round < 50; round++ {
		value := fmt.Sprintf("%s-%d", testSecret, round)
		c.nodes[1].signal(syscall.SIGSTOP) // it could follow the apply before it has the delivery
		c.run(value, "secrets", "set", "S")
		c.run("", "apply")
		answer := make(chan int, 1)
		go func() {
			defer close(answer)
			answer <- post(t, "POST", c.nodes[1].on(hook), strings.NewReader(fmt.Sprintf(`{"old":%d}`, round)), bearerOf(old)).status
		}()
		c.nodes[1].signal(syscall.SIGCONT)
		late, old = <-answer == http.StatusAccepted, value
	}
	if !late {
		t.Error("without the fence, no delivery came late")
	}
}

// TestLeaderDies: when the leader is killed, another server applies and fires schedules within
// 15 s (SPEC 17.3), three times.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n", "webhooks/hook.yaml": "secretName: S\n",
		"automations/often.md": "---\nenvironmentId: env\ntriggers:\n- {provider: schedule, event: cron_fired, schedule: {cron: '* * * * *'}}\n---\nDo it.\n",
	}
	c := newCluster(t, 3, files)
	for round := range 3 {
		leader := c.leader()
		leader.kill()
		began := time.Now()
		c.write(map[string]string{"webhooks/hook.yaml": fmt.Sprintf("secretName: S\ndeliveryIdHeader: X-Round-%d\n", round)})
		c.push()
		var head string
		eventually(t, "another server applies", 15*time.Second, func() bool {
			var s api.Status
			for _, w := range c.nodes {
				if w.cmd == nil {
					continue
				}
				w.list(&s, "status")
				if f := s.Factories[0]; f.Applied.At.After(began) {
					head = f.Applied.Commit
				}
			}
			return head != ""
		})
		t.Logf("round %d: applied after %s", round, time.Since(began).Round(time.Millisecond))
		leader.start()
	}
	// Every minute has one run, whoever led.
	leader := c.leader()
	var before []api.Run
	leader.list(&before, "runs", "list", "--limit", "100")
	eventually(t, "a minute is almost over", time.Minute, func() bool { return time.Now().Second() >= 57 })
	leader.kill()
	minute := time.Now().Truncate(time.Minute).Add(time.Minute)
	other := c.nodes[slices.IndexFunc(c.nodes, func(w *world) bool { return w.cmd != nil })]
	eventually(t, "another server fires the schedule", time.Until(minute)+15*time.Second, func() bool {
		var all []api.Run
		other.list(&all, "runs", "list", "--limit", "100")
		return slices.ContainsFunc(all, func(r api.Run) bool { return !r.CreatedAt.Before(minute) })
	})
	t.Logf("fired %s after the tick", time.Since(minute).Round(time.Millisecond))
	var all []api.Run
	other.list(&all, "runs", "list", "--limit", "100")
	minutes := make(map[time.Time]int)
	for _, r := range all {
		minutes[r.CreatedAt.Truncate(time.Minute)]++
	}
	for at, n := range minutes {
		if n != 1 {
			t.Errorf("%d runs at %s", n, at)
		}
	}
}

// TestShutdownDelay restarts each of two servers under load, behind Caddy as docs/reverse-proxy.md
// configures it, with clients that keep their connections and clients that do not: every delivery
// is answered 202 and stored once. Until the end of the delay a server takes everything, on its
// socket too; a second signal ends the delay, and not the requests (SPEC 17.1).
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reverse-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```caddy servers\n(.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/reverse-proxy.md has no configuration for several servers")
	}
	args := []string{"--rate-limit", "0", "--max-runs", "0", "--shutdown-delay", "5s"}
	c := newCluster(t, 2, clusterFiles, args...)
	proxy := startProxy(t, "caddy", strings.NewReplacer("10.0.0.1:8787", c.nodes[0].addr, "10.0.0.2:8787", c.nodes[1].addr, "health_interval 2s", "health_interval 200ms").Replace(string(block[1])))
	at, err := url.Parse(c.url("hook"))
	if err != nil {
		t.Fatal(err)
	}
	at.Scheme, at.Host = "http", proxy

	var mu sync.Mutex
	acknowledged := make(map[string]string) // identity to delivery
	var senders sync.WaitGroup
	stop := make(chan struct{})
	for sender := range 8 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: sender%2 == 0}}
		defer client.CloseIdleConnections()
		senders.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				identity := fmt.Sprintf("%d-%d", sender, n)
				req, err := http.NewRequest(http.MethodPost, at.String(), strings.NewReader(`{"x":"`+strings.Repeat("y", 2000)+`"}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header = bearerOf(testSecret, "X-Service-Delivery-Id", identity)
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("%s: %v", identity, err)
					continue
				}
				var answer struct {
					DeliveryID string `json:"delivery_id"`
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusAccepted || json.Unmarshal(text, &answer) != nil {
					t.Errorf("%s: %d %q %v", identity, resp.StatusCode, text, err)
				}
				mu.Lock()
				acknowledged[identity] = answer.DeliveryID
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	more := func() {
		t.Helper()
		before := count()
		eventually(t, "deliveries are acknowledged", 30*time.Second, func() bool { return count() > before+50 })
	}
	for _, w := range c.nodes {
		more()
		w.terminate()
		eventually(t, "the server says that it is not ready", 5*time.Second, func() bool { return w.ready() == http.StatusServiceUnavailable })
		if a := post(t, http.MethodPost, w.on(c.url("hook")), strings.NewReader("{}"), bearerOf(testSecret)); a.status != http.StatusAccepted {
			t.Errorf("a delivery meanwhile: %d %s", a.status, a.body)
		}
		w.stopped()
		if w.ready() != 0 {
			t.Error("the server still answers")
		}
		more() // by the other server alone
		w.start(args...)
		eventually(t, "the proxy leads to the server again", 30*time.Second, func() bool {
			return strings.Contains(post(t, http.MethodGet, "http://"+w.addr+"/metrics", nil, nil).body, `triphammer_ingress_requests_total{`)
		})
	}
	close(stop)
	senders.Wait()
	var deliveries []api.Delivery
	c.list(&deliveries, "deliveries", "list", "--limit", "0")
	stored := make(map[string]string)
	for _, d := range deliveries {
		if d.Identity != nil && d.Outcome == "accepted" {
			if stored[d.Identity.Value] != "" {
				t.Errorf("%s was accepted twice", d.Identity.Value)
			}
			stored[d.Identity.Value] = d.ID
		}
	}
	for identity, id := range acknowledged {
		if stored[identity] != id {
			t.Errorf("%s was acknowledged as %q and is stored as %q", identity, id, stored[identity])
		}
	}
	t.Logf("%d deliveries over 2 restarts", len(acknowledged))

	// A second signal ends the delay. systemd is told how long the end may take.
	w := c.nodes[0]
	w.terminate()
	w.stopped()
	socket := filepath.Join(w.dir, "notify")
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = told.Close() }()
	w.env = append(w.env, "NOTIFY_SOCKET="+socket)
	w.start("--shutdown-delay", "10m", "--grace", "20s")
	w.terminate()
	eventually(t, "the server says that it is not ready", 10*time.Second, func() bool { return w.ready() == http.StatusServiceUnavailable })
	w.run("", "webhooks", "list") // over the socket
	w.terminate()
	w.stopped()
	if logs := w.logs.String(); !strings.Contains(logs, "stopped") {
		t.Errorf("it did not end in order:\n%s", logs)
	}
	message := make([]byte, 100)
	for _, want := range []string{"READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=680000000"} {
		if err := told.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := told.Read(message); err != nil || string(message[:n]) != want {
			t.Errorf("systemd is told %q, not %q: %v", message[:n], want, err)
		}
	}
}
