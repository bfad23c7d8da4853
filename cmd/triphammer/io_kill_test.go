package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/host"
)

// killPoint is a call before which a program is killed: the nth of its kind.
type killPoint struct {
	kind string // write, sync; other: truncate, create, rename, link, remove
	n    int
}

func (p *killPoint) decide(hit func(c *diskCall)) func(c *diskCall) verdict {
	n := 0
	return func(c *diskCall) verdict {
		kind := c.what
		if kind != "write" && kind != "sync" {
			kind = "other"
		}
		if c.path != "" && !ofStore(c.path) || kind != p.kind {
			return verdict{}
		}
		if n++; n < p.n {
			return verdict{}
		}
		hit(c)
		return verdict{kill: true}
	}
}

// copyStore reads what a dead program left, and leaves it as it is.
func copyStore(t *testing.T, data string) (kept, error) {
	t.Helper()
	dir := memoryFolder(t)
	for name, content := range folderOf(t, data) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return readStore(t.Context(), dir)
}

// killed starts a watched server, and waits until it is dead.
func (w *world) killed(x *watcher, args ...string) {
	w.t.Helper()
	cmd := w.command(args...)
	if cmd.Path == binary {
		cmd.Path = plain
	}
	x.watch(cmd)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill() // it made fewer calls
		<-ended
	}
	<-x.ended
}

// TestKillAtCall (R2): a server that is killed before any of its writes, syncs and other changes
// of files, while it starts, applies a commit, takes deliveries and copies its log, loses nothing
// that it acknowledged, has nothing in part, and its store opens. If the writes of the log had
// stayed in its memory, it would be noticed.
func TestKillAtCall(t *testing.T) {
	t.Parallel()
	w := plainWorld(t)
	data := filepath.Join(w.dir, "data")
	w.start(quietly...)
	url := w.url("hook")
	w.stop()
	points := bounded(9, 24, 400)
	var mu sync.Mutex
	acknowledged := make(map[string]bool)
	stop := w.load(url, 6, func(n int) string { return fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("y", n*41%4000)) }, func(resp *http.Response, id string) {
		mu.Lock()
		defer mu.Unlock()
		if resp != nil && resp.StatusCode == http.StatusAccepted {
			acknowledged[id] = true
		}
	})
	defer stop()
	told := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Keys(acknowledged))
	}
	random := rand.New(rand.NewPCG(5, uint64(points)))
	hits := make(map[string]int)
	for i := range points {
		w.write(map[string]string{"automations/more.md": automationFile("hook", fmt.Sprintf("{none: [%d]}", i))})
		w.push() // the server applies it when it starts
		p := killPoint{[]string{"write", "sync", "other"}[i%3], 0}
		p.n = 1 + random.IntN(map[string]int{"write": 400, "sync": 40, "other": 10}[p.kind])
		x := &watcher{t: t, dir: data, total: smallDisk}
		x.decide = p.decide(func(c *diskCall) { hits[c.what+" "+strings.TrimPrefix(c.path, host.StoreFile)]++ })
		w.killed(x, append([]string{"serve", "--repo", "repo"}, quietly...)...)
		ids := told()
		k, err := copyStore(t, data)
		if err != nil {
			t.Fatalf("killed before %s %d: %v", p.kind, p.n, err)
		}
		for _, wrong := range k.compare(ids, k) {
			t.Fatalf("killed before %s %d: %s", p.kind, p.n, wrong)
		}
	}
	if t.Logf("%d points, %d acknowledged; killed before: %v", points, len(told()), hits); len(told()) < 5*points || len(hits) < 2 {
		t.Error("the kills hit nothing")
	}

	// What this test is to find, it finds.
	x := &watcher{t: t, dir: data}
	begun := len(told())
	x.decide = func(c *diskCall) verdict {
		switch {
		case len(told()) > begun+200:
			return verdict{kill: true}
		case c.what == "write" && strings.HasSuffix(c.path, "-wal") && len(told()) > begun+50:
			return verdict{pretend: true}
		}
		return verdict{}
	}
	w.killed(x, append([]string{"serve", "--repo", "repo"}, quietly...)...)
	ids := told()
	if k, err := copyStore(t, data); err == nil && len(k.compare(ids, k)) == 0 {
		t.Error("the log of a server stayed in its memory, and that is not noticed")
	}
}

// TestFirstStartCut (R2, R3): a new store that is killed, or whose power fails, before any call that
// makes it, is made again by the next start.
func TestFirstStartCut(t *testing.T) {
	t.Parallel()
	set := func(w *world, x *watcher) {
		cmd := w.command("secrets", "set", "S")
		cmd.Path, cmd.Stdin = plain, strings.NewReader(testSecret)
		x.watch(cmd)
		if out, err := cmd.CombinedOutput(); err != nil && x.decide == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		<-x.ended
	}
	empty := func() *world {
		w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
		if err := os.Mkdir(filepath.Join(w.dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		return w
	}
	again := func(w *world, when string) {
		t.Helper()
		cmd := w.command("secrets", "set", "S")
		cmd.Path, cmd.Stdin = plain, strings.NewReader(testSecret)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", when, err, out)
		}
		if k, err := readStore(t.Context(), filepath.Join(w.dir, "data")); err != nil || k.secrets != "S" {
			t.Fatalf("%s: %q, %v", when, k.secrets, err)
		}
		if left, err := filepath.Glob(filepath.Join(w.dir, "data", "*.new*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left over: %v, %v", when, left, err)
		}
	}
	w := empty()
	x := &watcher{t: t, dir: filepath.Join(w.dir, "data"), record: true}
	set(w, x)
	kinds := make(map[string]int)
	for _, c := range x.calls {
		switch {
		case c.path != "" && !ofStore(c.path):
		case c.what == "write" || c.what == "sync":
			kinds[c.what]++
		default:
			kinds["other"]++
		}
	}
	if kinds["write"] < 20 || kinds["sync"] < 3 || kinds["other"] < 4 {
		t.Fatalf("the calls of the first start are not seen: %v", kinds)
	}
	points, states := bounded(6, 12, 120), bounded(120, 240, 2000)
	random := rand.New(rand.NewPCG(3, uint64(points)))
	for i := range points {
		kind := []string{"write", "sync", "other"}[i%3]
		p := killPoint{kind, 1 + random.IntN(kinds[kind])}
		w := empty()
		hit := false
		set(w, &watcher{t: t, dir: filepath.Join(w.dir, "data"), decide: p.decide(func(*diskCall) { hit = true })})
		if !hit {
			t.Errorf("there was no %s %d", kind, p.n)
		}
		again(w, fmt.Sprintf("killed before %s %d", kind, p.n))
	}

	x.calls = append(x.calls, diskCall{what: "answer", data: []byte("secret S")})
	got := crash(t, nil, x.calls, states, false, kept{})
	for _, wrong := range got.wrong[:min(5, len(got.wrong))] {
		t.Error(wrong)
	}
	t.Logf("%d calls, %d kills, %d states", len(x.calls), points, states)
}

// ioFault is what a disk does to some calls.
type ioFault struct {
	name    string
	what    string // of a call
	suffix  string // of its file
	verdict verdict
	refuses bool // no delivery can be accepted meanwhile
}

// TestIOFaults (R4): while the disk refuses or shortens writes, or does not confirm them and drops
// them, no delivery is acknowledged that it does not have; each is answered 503 with Retry-After.
// When the disk works again, so does the server, within 5 seconds. Whatever the power then takes,
// nothing that was acknowledged is lost.
func TestIOFaults(t *testing.T) {
	t.Parallel()
	faults := []ioFault{
		{"a write of the log fails", "write", "-wal", verdict{errno: unix.EIO}, true},
		{"the disk is full", "write", "-wal", verdict{errno: unix.ENOSPC}, true},
		{"writes of the log are short", "write", "-wal", verdict{most: 100}, false}, // SQLite writes the rest
		{"the log is not confirmed", "sync", "-wal", verdict{errno: unix.EIO}, true},
		{"a write of the database fails", "write", host.StoreFile, verdict{errno: unix.EIO}, false},
		{"writes of the database are short", "write", host.StoreFile, verdict{most: 700}, false},
		{"the database is not confirmed", "sync", host.StoreFile, verdict{errno: unix.EIO}, false},
		{"nothing is confirmed", "sync", "", verdict{errno: unix.EIO}, true},
	}
	w := plainWorld(t)
	data := filepath.Join(w.dir, "data")
	before := folderOf(t, data)
	var mu sync.Mutex
	var fault *ioFault
	hit, accepted, refused := 0, 0, 0
	var bare atomic.Int64
	x := &watcher{t: t, dir: data, total: smallDisk, record: true}
	x.decide = func(c *diskCall) verdict {
		mu.Lock()
		defer mu.Unlock()
		if fault == nil || c.what != fault.what || !strings.HasSuffix(c.path, fault.suffix) || !ofStore(c.path) && c.path != "" {
			return verdict{}
		}
		hit++
		return fault.verdict
	}
	w.startWatched(x, quietly...)
	url := w.url("hook")
	send := func(n int) (status int) {
		got := post(t, http.MethodPost, url, strings.NewReader(fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("z", n*131%9000))), http.Header{"Authorization": {"Bearer " + testSecret}})
		if got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") == "" {
			bare.Add(1)
		}
		return got.status
	}
	n := 0
	for _, f := range faults {
		mu.Lock()
		fault, hit = &f, 0
		mu.Unlock()
		accepted, refused = 0, 0
		deadline := time.Now().Add(20 * time.Second)
		var senders sync.WaitGroup
		for range 8 { // so that the log grows while it is copied
			senders.Go(func() {
				for done := false; !done && time.Now().Before(deadline); {
					mu.Lock()
					n++
					body := n
					mu.Unlock()
					status := send(body)
					mu.Lock()
					switch status {
					case http.StatusAccepted:
						accepted++
					case http.StatusServiceUnavailable:
						refused++
					default:
						t.Errorf("%s: a delivery is answered %d", f.name, status)
					}
					done = hit > 0 && accepted+refused >= 100
					mu.Unlock()
				}
			})
		}
		senders.Wait()
		mu.Lock()
		fault = nil
		hits := hit
		mu.Unlock()
		if hits == 0 {
			t.Errorf("%s: it hit nothing", f.name)
		}
		if f.refuses && accepted > 0 {
			t.Errorf("%s: %d deliveries were acknowledged", f.name, accepted)
		}
		from := time.Now()
		err := client.WaitFor(t.Context(), 5*time.Second, f.name+": deliveries are not taken again", func() (bool, error) {
			n++
			return send(n) == http.StatusAccepted && post(t, http.MethodGet, "http://"+w.addr+"/readyz", nil, nil).status == http.StatusOK, nil
		})
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: %d calls, %d accepted, %d refused, back after %v", f.name, hits, accepted, refused, time.Since(from).Round(time.Millisecond))
	}
	if n := bare.Load(); n > 0 {
		t.Errorf("%d answers of 503 have no Retry-After", n)
	}
	w.stop()
	<-x.ended
	whole, err := readStore(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	got := crash(t, before, x.calls, bounded(30, 60, 1500), false, whole)
	for _, wrong := range got.wrong[:min(5, len(got.wrong))] {
		t.Error(wrong)
	}
	t.Logf("%d calls: %d states, %d wrong", len(x.calls), got.states, got.lost)
}
