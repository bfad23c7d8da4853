//go:build full

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/store/storetest"
)

// Servers and workers of a fleet.
const (
	fleetServers = 3
	fleetWorkers = 3
)

// fleetLease is that of the workers.
const fleetLease = 6 * time.Second

// fleet is servers and workers on one PostgreSQL, each on a machine of its own.
type fleet struct {
	t        testing.TB
	w        *world // has the repository
	postgres *storetest.Server
	database string
	db       *sql.DB // past the machines
	nodes    []*node
	faults   string // variable that breaks something in the programs, for controls
	long     int    // tenths of seconds that a long run takes
	begun    time.Time
	path     string // of the webhook's URL
	stopped  atomic.Bool
	watching sync.WaitGroup

	version atomic.Int64 // newest of the definitions that was committed
	sent    atomic.Int64

	mu      sync.Mutex
	commits map[string]int64 // the versions of the definitions
	rounds  []round
	posts   []sentPost // that were answered with 202
	events  []faultEvent
	exits   []string // of processes that ended by themselves
	skipped int      // posts to servers that had too many
}

// round is the life of a version of the definitions.
type round struct {
	version             int64
	committed, returned time.Time // before the commit; after `apply`
}

// sentPost is a delivery that a server has accepted.
type sentPost struct {
	identity, delivery string
	parity             int64 // of the version whose secret signed it
	begun, ended       time.Time
}

// faultEvent is something that the driver did.
type faultEvent struct {
	kind string
	at   time.Time
	led  bool // it was done to the leader
}

// node is a process of the fleet.
type node struct {
	c       *fleet
	machine *machine
	server  bool
	name    string
	data    string
	client  *http.Client
	posting chan struct{} // a place for each request

	mu   sync.Mutex
	cmd  *exec.Cmd // nil: it is meant to be down
	end  chan struct{}
	busy bool // a fault goes on
	log  *os.File
}

// agentScript is the agent of each run: it notices when the same run goes on twice at once. Its
// arguments are the folder of the notes and the seconds that it takes.
const agentScript = `exec 9>>"$1/lock-$TRIPHAMMER_RUN_ID"
flock -n 9 || echo "$TRIPHAMMER_RUN_ID $(date +%T.%N) $$" >>"$1/overlaps"
echo "begin $TRIPHAMMER_RUN_ID $(date +%T.%N) $$" >>"$1/marks"
i=0
while [ $i -lt "$2" ]; do sleep 0.1; i=$((i+1)); done
echo "end $TRIPHAMMER_RUN_ID $(date +%T.%N) $$" >>"$1/marks"
`

func secretOf(parity int64) string { return fmt.Sprintf("correct-horse-battery-staple-%d", parity) }

// definitions are those of a version: its parity decides which secret the webhook has, and
// whether there is the automation "extra".
func (c *fleet) definitions(version int64) map[string]string {
	agent := func(tenths int) string {
		return fmt.Sprintf("command: [sh, %s, %s, '%d']\n", filepath.Join(c.w.dir, "agent.sh"), filepath.Join(c.w.dir, "notes"), tenths)
	}
	automation := func(environment, payload, more string) string {
		return fmt.Sprintf("---\nenvironmentId: %s\n%striggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: %s}}\n---\nVersion %d.\n",
			environment, more, payload, version)
	}
	const retry = "retry: {attempts: 10, delaySeconds: 0.2}\n"
	files := map[string]string{
		"factory.yaml":            factoryYAML,
		"webhooks/hook.yaml":      fmt.Sprintf("secretName: S%d\nauthMode: signature\nsignatureScheme: github\n", version%2),
		"environments/short.yaml": agent(2),
		"environments/long.yaml":  agent(c.long),
		"automations/all.md":      automation("short", "{run: [true]}", retry),
		"automations/even.md":     automation("long", "{run: [true], even: [true]}", retry),
	}
	if version%2 == 1 {
		files["automations/extra.md"] = automation("short", "{run: [true]}", "")
	}
	return files
}

// commit commits a version of the definitions.
func (c *fleet) commit(version int64) {
	c.t.Helper()
	_ = os.Remove(filepath.Join(c.w.dir, "repo", "automations", "extra.md")) // of the version before
	c.w.write(c.definitions(version))
	c.w.git("add", "-A")
	tree := exec.Command("git", "write-tree")
	tree.Dir, tree.Env = filepath.Join(c.w.dir, "repo"), environment(c.w.dir)
	out, err := tree.Output()
	if err != nil {
		c.t.Fatal(err)
	}
	args := []string{"commit-tree", strings.TrimSpace(string(out)), "-m", fmt.Sprintf("Version %d", version)}
	if version > 0 {
		args = append(args, "-p", "HEAD")
	}
	made := exec.Command("git", args...)
	made.Dir, made.Env = tree.Dir, tree.Env
	if out, err = made.Output(); err != nil {
		c.t.Fatal(err)
	}
	hash := strings.TrimSpace(string(out))
	c.mu.Lock()
	c.commits[hash] = version // before anybody can apply it
	c.rounds = append(c.rounds, round{version: version, committed: time.Now()})
	c.mu.Unlock()
	c.w.git("update-ref", "refs/heads/main", hash)
	c.version.Store(version)
}

// newFleet starts servers and workers on the first machines. The faults are what is broken in
// their programs.
func newFleet(t testing.TB, postgres *storetest.Server, machines []*machine, servers, workers int, faults string) *fleet {
	t.Helper()
	c := &fleet{t: t, postgres: postgres, database: fmt.Sprintf("fleet%d", time.Now().UnixNano()), faults: faults, long: 60, begun: time.Now(), commits: make(map[string]int64)}
	if faults == unguardedVariable {
		c.long = 300 // the run is reaped and begins again meanwhile
	}
	c.w = &world{t: t, dir: openDir(t)}
	admin, err := sql.Open("pgx", postgres.URL("127.0.0.1", "postgres"))
	if err == nil {
		_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+c.database+" TEMPLATE template0 ENCODING 'UTF8'")
		err = errors.Join(err, admin.Close())
	}
	if err == nil {
		c.db, err = sql.Open("pgx", postgres.URL("127.0.0.1", c.database))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.db.Close() })
	err = errors.Join(os.Mkdir(filepath.Join(c.w.dir, "notes"), 0o777), os.MkdirAll(filepath.Join(c.w.dir, "repo"), 0o755),
		os.WriteFile(filepath.Join(c.w.dir, "agent.sh"), []byte(agentScript), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	c.w.git("init", "-q", "--initial-branch=main")
	c.commit(0)
	t.Cleanup(c.stop)
	for i := range servers + workers {
		n := &node{c: c, machine: machines[i], server: i < servers, name: fmt.Sprintf("worker%d", i-servers+1), posting: make(chan struct{}, 12)}
		if n.server {
			n.name = fmt.Sprintf("server%d", i+1)
		}
		n.data = filepath.Join(c.w.dir, n.name)
		n.client = &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 2 * time.Second}}
		if n.log, err = os.Create(n.data + ".log"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = n.log.Close()
			if text, err := os.ReadFile(n.log.Name()); t.Failed() && err == nil {
				t.Logf("%s says:\n%s", n.name, text[max(0, len(text)-40_000):])
			}
		})
		c.nodes = append(c.nodes, n)
		n.start()
		if i == 0 { // makes the sealing key, and the tables
			c.await("the first server", func() bool { return n.get("/healthz") == http.StatusOK })
			for parity := range int64(2) {
				c.command(n, secretOf(parity), "secrets", "set", fmt.Sprintf("S%d", parity))
			}
			c.command(n, "", "apply")
			var hooks []api.Webhook
			if err := json.Unmarshal([]byte(c.command(n, "", "webhooks", "list", "-o", "json")), &hooks); err != nil || len(hooks) != 1 {
				t.Fatal(hooks, err)
			}
			_, path, _ := strings.Cut(hooks[0].URL, "/webhooks/")
			c.path = "/webhooks/" + path
		}
	}
	c.mu.Lock()
	c.rounds[0].returned = time.Now()
	c.mu.Unlock()
	for _, n := range c.servers() {
		c.await(n.name, func() bool { return n.get("/readyz") == http.StatusOK })
	}
	return c
}

func (c *fleet) servers() (all []*node) {
	for _, n := range c.nodes {
		if n.server {
			all = append(all, n)
		}
	}
	return all
}

func (c *fleet) say(format string, args ...any) {
	c.t.Logf("%7.2fs "+format, append([]any{time.Since(c.begun).Seconds()}, args...)...)
}

// await waits for a condition.
func (c *fleet) await(what string, done func() bool) {
	c.t.Helper()
	err := client.WaitFor(c.t.Context(), 5*time.Minute, "waited too long for "+what, func() (bool, error) { return done(), nil })
	if err != nil {
		c.t.Fatal(err)
	}
}

// stop ends all processes.
func (c *fleet) stop() {
	c.stopped.Store(true)
	for _, n := range c.nodes {
		n.kill()
		n.machine.heal()
	}
	c.watching.Wait()
}

// environ is the environment of commands on the node's data directory.
func (n *node) environ() []string {
	env := append(environment(n.c.w.dir), "TRIPHAMMER_DATA="+n.data, "TRIPHAMMER_KEY_FILE="+filepath.Join(n.c.w.dir, "key"))
	if n.c.faults != "" {
		env = append(env, clockVariable+"=0s", n.c.faults+"=1")
	}
	return env
}

// command runs a command on the server's machine, which must succeed.
func (c *fleet) command(n *node, stdin string, args ...string) string {
	c.t.Helper()
	out, err := n.try(c.t.Context(), stdin, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (n *node) try(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin, cmd.Env, cmd.Dir = strings.NewReader(stdin), n.environ(), n.c.w.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("triphammer %v on %s: %w\n%s%s", args, n.name, err, out, stderr.String())
	}
	return string(out), err
}

// start starts the process. If it ends by itself, it is started again, as service managers do.
func (n *node) start() {
	args := []string{
		"worker", "--name", n.name, "--max-runs", "3",
	}
	if n.server {
		args = []string{
			"serve", "--repo", filepath.Join(n.c.w.dir, "repo"), "--listen", n.machine.address + ":8787", "--base-url", "http://" + n.machine.address + ":8787",
			"--rate-limit", "0", "--auth-failures", "0", "--max-runs-per-hour", "0", "--max-runs", "0",
		}
	}
	args = append(args, "--store", n.c.postgres.URL(n.machine.store, n.c.database), "--lease", fleetLease.String(), "--grace", "1s", "--keep-workspaces", "0", "--min-free", "0")
	program := binary
	if n.c.faults != "" {
		var err error
		if program, err = os.Executable(); err != nil {
			n.c.t.Error(err)
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.c.w.dir, n.environ(), n.log, n.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := n.machine.inside(cmd)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.c.t.Error(err)
		return
	}
	end := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.end = cmd, end
	n.mu.Unlock()
	n.c.watching.Go(func() {
		err := cmd.Wait()
		close(end)
		n.mu.Lock()
		itself := n.cmd == cmd
		n.mu.Unlock()
		if !itself {
			return
		}
		text, _ := os.ReadFile(n.log.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		n.c.mu.Lock()
		n.c.exits = append(n.c.exits, fmt.Sprintf("%s: %v: %s", n.name, err, lines[len(lines)-1]))
		n.c.mu.Unlock()
		n.c.say("%s ended by itself: %v: %s", n.name, err, lines[len(lines)-1])
		select {
		case <-time.After(500 * time.Millisecond):
		case <-n.c.t.Context().Done():
		}
		n.mu.Lock()
		itself = n.cmd == cmd
		n.mu.Unlock()
		if itself && !n.c.stopped.Load() {
			n.start()
		}
	})
}

// kill kills the process.
func (n *node) kill() {
	n.mu.Lock()
	cmd, end := n.cmd, n.end
	n.cmd = nil
	n.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // it may have ended
		<-end
	}
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(s) // it may have ended
	}
}

func (n *node) get(path string) int {
	resp, err := n.client.Get("http://" + n.machine.address + ":8787" + path)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// post sends a delivery to one server, signed with the secret of the versions of a parity.
func (n *node) post(identity, body string, parity int64) (status int) {
	p := sentPost{identity: identity, parity: parity, begun: time.Now()}
	req, err := http.NewRequest(http.MethodPost, "http://"+n.machine.address+":8787"+n.c.path, strings.NewReader(body))
	if err != nil {
		n.c.t.Error(err)
		return 0
	}
	scheme, _ := signature.Lookup("github")
	req.Header.Set("X-GitHub-Delivery", identity)
	if err := scheme.Sign(secretOf(parity), &signature.Request{Header: req.Header, Body: []byte(body), Now: time.Now()}); err != nil {
		n.c.t.Error(err)
		return 0
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return 0
	}
	var answer struct {
		DeliveryID string `json:"delivery_id"`
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted && err == nil {
		p.delivery, p.ended = answer.DeliveryID, time.Now()
		n.c.mu.Lock()
		n.c.posts = append(n.c.posts, p)
		n.c.mu.Unlock()
	}
	return resp.StatusCode
}

// send sends a delivery to all servers at once, until one has acknowledged it.
func (c *fleet) send(identity, body string, stop <-chan struct{}, sending *sync.WaitGroup) {
	for try := int64(0); ; try++ {
		parity := (c.version.Load() + try) % 2 // around an apply, one of the two is right
		answers := make(chan int, fleetServers)
		asked := 0
		for _, n := range c.servers() {
			select {
			case n.posting <- struct{}{}:
			default: // it hangs
				c.mu.Lock()
				c.skipped++
				c.mu.Unlock()
				continue
			}
			asked++
			sending.Go(func() {
				answers <- n.post(identity, body, parity)
				<-n.posting
			})
		}
		c.sent.Add(1)
		for range asked {
			if <-answers == http.StatusAccepted {
				return
			}
		}
		select {
		case <-stop:
			return // nobody acknowledged it
		case <-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond):
		}
	}
}

// load sends deliveries until stop is closed. One in some starts runs.
func (c *fleet) load(senders, oneIn int, pause time.Duration, stop <-chan struct{}) *sync.WaitGroup {
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := 0; ; n++ {
				starts := n%oneIn == 0
				even := n%(2*oneIn) == 0
				c.send(fmt.Sprintf("d-%d-%d-%t-%t", s, n, starts, even), fmt.Sprintf(`{"n":%d,"run":%t,"even":%t}`, n, starts, even), stop, &all)
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.Int64N(int64(2 * pause)))):
				}
			}
		})
	}
	return &all
}

// rotate commits the next version, applies it by some server, and tries the old secret at all
// servers as soon as the apply has returned. The server behind stands still until then; nil: none.
func (c *fleet) rotate(behind *node) {
	version := c.version.Load() + 1
	c.commit(version)
	servers := c.servers()
	going := slices.DeleteFunc(slices.Clone(servers), func(n *node) bool { return n == behind })
	if behind != nil {
		behind.signal(syscall.SIGSTOP)
		defer behind.signal(syscall.SIGCONT)
	}
	for try := 0; ; try++ {
		n := going[rand.IntN(len(going))]
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		_, err := n.try(ctx, "", "apply")
		cancel()
		if err == nil {
			break
		}
		if c.stopped.Load() || c.t.Context().Err() != nil {
			return
		}
		if try == 100 {
			c.t.Errorf("version %d could not be applied: %v", version, err)
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-c.t.Context().Done():
		}
	}
	now := time.Now()
	c.mu.Lock()
	c.rounds[len(c.rounds)-1].returned = now
	c.mu.Unlock()
	var probes sync.WaitGroup
	for i, n := range servers {
		for p := range 4 {
			probes.Go(func() { n.post(fmt.Sprintf("p-%d-%d-%d-false-false", version, i, p), `{"probe":true}`, 1-version%2) })
		}
	}
	if behind != nil {
		behind.signal(syscall.SIGCONT)
	}
	probes.Wait()
}

// quiet waits until all runs have ended.
func (c *fleet) quiet(within time.Duration) error {
	left := ""
	return client.WaitFor(c.t.Context(), within, "runs do not end", func() (bool, error) {
		var open int
		err := c.db.QueryRowContext(c.t.Context(), "SELECT count(*), coalesce(string_agg(state || ' ' || automation, ', '), '') FROM runs WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')").Scan(&open, &left)
		return open == 0, err
	})
}
