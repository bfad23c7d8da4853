package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// fromMirror is a part of what the transcript is told of a clone from a mirror.
const fromMirror = "from the mirror of this worker, for which the forge sent"

const bigFile = 1 << 20 // bytes of a file that the forge should send once

// mirrorWorld is a forge that counts what it sends, and a worker with mirrors.
type mirrorWorld struct {
	*gatewayWorld
	mirrors *Mirrors
	work    string // a working tree of the repository
	sent    atomic.Int64
	within  atomic.Pointer[func()] // is called when half of the big file was sent

	revoked atomic.Bool
}

func newMirrorWorld(t testing.TB) *mirrorWorld {
	t.Helper()
	w := &mirrorWorld{gatewayWorld: startGateway(t, false), mirrors: NewMirrors(filepath.Join(t.TempDir(), "mirrors"))}
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if _, password, _ := r.BasicAuth(); password != forgeToken || w.revoked.Load() {
			http.Error(rw, "no", http.StatusUnauthorized)
			return true
		}
		w.forge.Backend.ServeHTTP(&counting{ResponseWriter: rw, w: w}, r)
		return true
	})
	w.work = filepath.Join(w.root, "work")
	gittest.Git(t, w.root, "init", "-q", "-b", "main", w.work)
	big := make([]byte, bigFile)
	_, _ = rand.Read(big)
	w.commit("big", string(big))
	w.commit("small", "one")
	return w
}

// counting counts the bytes of an answer of the forge.
type counting struct {
	http.ResponseWriter
	w *mirrorWorld
	n int64
}

func (c *counting) Write(part []byte) (int, error) {
	c.w.sent.Add(int64(len(part)))
	if c.n += int64(len(part)); c.n > bigFile/2 {
		if within := c.w.within.Swap(nil); within != nil {
			(*within)()
		}
	}
	return c.ResponseWriter.Write(part)
}

// bare is the repository of the forge.
func (w *mirrorWorld) bare() string { return filepath.Join(w.root, "example", "app.git") }

// commit pushes a file to the main branch of the forge, and returns the commit.
func (w *mirrorWorld) commit(name, text string) string {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.work, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	gittest.Git(w.t, w.work, "add", ".")
	gittest.Git(w.t, w.work, "commit", "-q", "-m", name)
	gittest.Git(w.t, w.work, "push", "-q", "-f", w.bare(), "main")
	return gittest.Git(w.t, w.work, "rev-parse", "main")
}

// run is the gateway of another run. told has what its transcript is told.
func (w *mirrorWorld) run(factory, token string) (run *gatewayWorld, told func() string) {
	w.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(w.forge.Certificate())
	var mu sync.Mutex
	var all []string
	var repositories []Repository
	for _, name := range []string{"app", "part"} {
		repositories = append(repositories, Repository{URL: w.forge.URL + "/example/" + name + ".git", Secret: "FORGE", Credential: secret.New(token)})
	}
	g, err := NewGateway(GatewayConfig{
		Repositories: repositories, Roots: pool, Report: func(event.Egress) {}, Pushes: task.Pushes{Branches: []string{"*"}, Max: 3, MaxBytes: 1 << 20}, Mirrors: w.mirrors, Factory: factory,
		Tell: func(s event.Status) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s.Message)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			w.t.Error("serving:", err)
		}
	})
	return &gatewayWorld{t: w.t, gateway: g, root: w.root, address: l.Addr().String(), host: w.host}, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// clone clones as a run does. sent is what the forge sent for it.
func (w *mirrorWorld) clone(args ...string) (dir, told string, sent int64) {
	w.t.Helper()
	run, said := w.run("f", forgeToken)
	before := w.sent.Load()
	dir = filepath.Join(w.t.TempDir(), "clone")
	args = append(append([]string{"clone", "--quiet", "--no-local", "--depth=1"}, args...), "--", w.forge.URL+"/example/app.git", dir)
	if out, err := run.git(w.root, args...); err != nil {
		w.t.Fatal(err, out, said())
	}
	if _, quick := w.t.(*testing.T); quick {
		gittest.Git(w.t, dir, "fsck", "--strict")
	}
	return dir, said(), w.sent.Load() - before
}

// head is the commit of a clone, whose big file must be there.
func (w *mirrorWorld) head(dir string) string {
	w.t.Helper()
	if info, err := os.Stat(filepath.Join(dir, "big")); err != nil || info.Size() != bigFile {
		w.t.Error(info, err)
	}
	return gittest.Git(w.t, dir, "rev-parse", "HEAD")
}

// TestMirror: the forge sends a second run only what is new, and a run gets what the forge has at that moment.
func TestMirror(t *testing.T) {
	w := newMirrorWorld(t)
	const little = bigFile / 20
	first := gittest.Git(t, w.work, "rev-parse", "main")
	for i, c := range []struct {
		name   string
		change func()
		args   []string
		whole  bool // the forge sends the big file
	}{
		{"the first", nil, nil, true},
		{"the second", nil, nil, false},
		{"a new commit", func() { first = w.commit("small", "two") }, nil, false},
		{"by the name of the branch", nil, []string{"--branch=main"}, false},
		{"a branch that moves back", func() {
			gittest.Git(t, w.work, "reset", "-q", "--hard", "HEAD~1")
			first = w.commit("small", "three")
		}, nil, false},
		{"another branch", func() { gittest.Git(t, w.work, "push", "-q", w.bare(), "main:topic") }, []string{"--branch=topic"}, false},
		{"a tag", func() {
			gittest.Git(t, w.work, "tag", "-a", "-m", "first", "v1")
			gittest.Git(t, w.work, "push", "-q", w.bare(), "v1")
		}, []string{"--branch=v1"}, false},
		{"a mirror with too many packs", func() {
			for i := range maxPacks {
				all, _ := filepath.Glob(filepath.Join(w.mirrors.dir, "*", "objects", "pack"))
				if err := os.WriteFile(filepath.Join(all[0], fmt.Sprint("pack-", i, ".pack")), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}, nil, true},
	} {
		if c.change != nil {
			c.change()
		}
		dir, told, sent := w.clone(c.args...)
		if got := w.head(dir); got != first {
			t.Errorf("%s: the clone has %s, and the forge %s", c.name, got, first)
		}
		if whole := sent > bigFile; whole != c.whole || !whole && sent > little {
			t.Errorf("%s: the forge sent %d bytes", c.name, sent)
		}
		if !strings.Contains(told, fromMirror) || strings.Count(gittest.Git(t, dir, "rev-list", "HEAD"), "\n") > 0 {
			t.Errorf("%s: %q", c.name, told)
		}
		if tagged := gittest.Git(t, dir, "tag"); (tagged == "v1") != (i > 5) {
			t.Errorf("%s: the clone has the tag %q", c.name, tagged)
		}
	}
	gittest.Git(t, w.work, "push", "-q", w.bare(), ":topic")
	run, _ := w.run("f", forgeToken)
	if out, err := run.git(w.root, "clone", "--depth=1", "--branch=topic", w.forge.URL+"/example/app.git", filepath.Join(t.TempDir(), "clone")); err == nil || !strings.Contains(out, "Remote branch topic not found") {
		t.Error("a branch that is gone:", err, out)
	}
}

// TestMirrorRefused: what a mirror has is nobody's whom the forge refuses.
func TestMirrorRefused(t *testing.T) {
	w := newMirrorWorld(t)
	w.clone()
	old := w.commit("secret", "removed later")
	w.clone()
	gittest.Git(t, w.work, "reset", "-q", "--hard", "HEAD~1")
	now := w.commit("small", "two")
	gittest.Git(t, w.bare(), "gc", "-q", "--prune=now")
	fetch := func(run *gatewayWorld, id string) (string, error) {
		dir := t.TempDir()
		gittest.Git(t, dir, "init", "-q")
		return run.git(dir, "fetch", "--depth=1", w.forge.URL+"/example/app.git", id)
	}
	run, told := w.run("f", forgeToken)
	if out, err := fetch(run, old); err == nil || !strings.Contains(out, "not our ref") || !strings.Contains(told(), "comes whole from its forge") {
		t.Error("a commit that the forge has removed:", err, out, told())
	}
	before := w.sent.Load()
	if out, err := fetch(run, now); err != nil || w.sent.Load()-before > bigFile {
		t.Error("the mirror was lost:", err, out, told())
	}
	before = w.sent.Load()
	other, told := w.run("other", forgeToken)
	if out, err := fetch(other, now); err != nil || w.sent.Load()-before < bigFile {
		t.Error("another factory has the mirror:", err, out, told())
	}
	gittest.Git(t, w.work, "tag", "-a", "-m", "secret", "v1")
	gittest.Git(t, w.work, "push", "-q", w.bare(), "v1")
	for _, has := range []bool{true, false} {
		dir, _, _ := w.clone()
		if ids := gittest.Git(t, dir, "cat-file", "--batch-all-objects", "--batch-check"); strings.Contains(ids, " tag ") != has {
			t.Errorf("the clone has the tag, which the forge has: %v\n%s", has, ids)
		}
		if has {
			gittest.Git(t, w.bare(), "tag", "-d", "v1")
		}
	}
	wrong, _ := w.run("f", "not the token")
	for i, run := range []*gatewayWorld{wrong, run} {
		w.revoked.Store(i > 0)
		if out, err := fetch(run, now); err == nil || !strings.Contains(out, "refuses the secret FORGE") {
			t.Error(i, err, out)
		}
		// A run need not ask for the refs first.
		if status, err := run.sendAsk(t.Context(), now); err != nil || status != http.StatusForbidden {
			t.Error(i, status, err)
		}
	}
}

// sendAsk asks for commits without the refs.
func (w *gatewayWorld) sendAsk(ctx context.Context, want string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.address+"/"+w.host+"/example/app.git/git-upload-pack", bytes.NewReader(encodeAsk(want)))
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]string{"Git-Protocol": "version=2", "Authorization": w.bearer(), "Content-Type": "application/x-git-upload-pack-request"} {
		r.Header.Set(name, value)
	}
	resp, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// encodeAsk is the request of a clone.
func encodeAsk(want string) []byte {
	text := packet("command=fetch\n") + packet("agent=git/2.39.5") + packet("object-format=sha1") + "0001"
	for _, line := range []string{"thin-pack", "include-tag", "ofs-delta", "deepen 1", "want " + want, "done"} {
		text += packet(line + "\n")
	}
	return []byte(text + flush)
}

// TestMirrorDamaged: a mirror that cannot be used costs no clone, and is made anew.
func TestMirrorDamaged(t *testing.T) {
	w := newMirrorWorld(t)
	dir, _, _ := w.clone()
	now := w.head(dir)
	each := func(pattern string, change func(path string) error) func() {
		return func() {
			all, err := filepath.Glob(filepath.Join(w.mirrors.dir, "*", pattern))
			if err != nil || len(all) == 0 {
				t.Fatal(pattern, all, err)
			}
			for _, path := range all {
				if err := change(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	leave := func(name string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte("left"), 0o400) }
	}
	half := func(path string) error {
		info, err := os.Stat(path)
		if err == nil {
			_ = os.Chmod(path, 0o600)
			err = os.Truncate(path, info.Size()/2)
		}
		return err
	}
	spoil := func(path string) error {
		text, err := os.ReadFile(path)
		if err == nil {
			_ = os.Chmod(path, 0o600)
			text[len(text)/2] ^= 1
			err = os.WriteFile(path, text, 0o600)
		}
		return err
	}
	for _, c := range []struct {
		name    string
		damage  func()
		mirrors bool // the clone is from the mirror all the same
	}{
		{"a pack that is cut off", each("objects/pack/*.pack", half), false},
		{"a pack with a wrong bit", each("objects/pack/*.pack", spoil), false},
		{"an index that is gone", each("objects/pack/*.idx", os.Remove), true},
		{"settings of somebody else", each("config", half), true},
		{"no folder of packs", each("objects", os.RemoveAll), true},
		{"what a Git that was killed leaves: a lock", each("", leave("shallow.lock")), true},
		{"a pack that is not complete", each("objects/pack", leave("tmp_pack_1")), true},
	} {
		c.damage()
		if c.mirrors {
			now = w.commit("small", c.name) // so that Git writes
		}
		dir, told, _ := w.clone()
		if got := w.head(dir); got != now {
			t.Errorf("%s: the clone has %s", c.name, got)
		}
		if used := strings.Contains(told, fromMirror); used != c.mirrors || !used && !strings.Contains(told, "comes whole from its forge, because the mirror of this worker cannot be used: ") {
			t.Errorf("%s: %q", c.name, told)
		}
		if left, _ := filepath.Glob(filepath.Join(w.mirrors.dir, "*", "objects", "pack", "tmp_*")); len(left) > 0 {
			t.Error(c.name, left)
		}
		if !c.mirrors {
			if _, told, sent := w.clone(); sent < bigFile || !strings.Contains(told, fromMirror) {
				t.Errorf("%s, the next run: %d bytes, %q", c.name, sent, told)
			}
		}
	}
}

// TestMirrorTogether: a run that ends in the middle of a fetch leaves the mirror to others, and two runs at once
// use one mirror.
func TestMirrorTogether(t *testing.T) {
	w := newMirrorWorld(t)
	now := w.commit("small", "two")
	ctx, cancel := context.WithCancel(t.Context())
	within := func() {
		cancel()
		w.mirrors.mu.Lock()
		turns := slices.Collect(maps.Values(w.mirrors.turns))
		w.mirrors.mu.Unlock()
		for _, turn := range turns {
			turn <- struct{}{} // the fetch has ended
			<-turn
		}
	}
	w.within.Store(&within)
	run, told := w.run("f", forgeToken)
	if _, err := run.sendAsk(ctx, now); err == nil || w.within.Load() != nil {
		t.Error("the run did not end in the middle:", err, told())
	}
	var both sync.WaitGroup
	before := w.sent.Load()
	for range 2 {
		both.Go(func() {
			dir, told, _ := w.clone()
			if got := w.head(dir); got != now || !strings.Contains(told, fromMirror) {
				t.Errorf("the clone has %s: %q", got, told)
			}
		})
	}
	both.Wait()
	if sent := w.sent.Load() - before; sent < bigFile || sent > bigFile*3/2 {
		t.Errorf("the forge sent %d bytes for two clones", sent)
	}
}

// TestMirrorAsks: a mirror answers clones alone, and not without end.
func TestMirrorAsks(t *testing.T) {
	w := newMirrorWorld(t)
	run, told := w.run("f", forgeToken)
	for i := range mostMirrored + 1 {
		dir := filepath.Join(t.TempDir(), "clone")
		if out, err := run.git(w.root, "clone", "-q", "--depth=1", w.forge.URL+"/example/app.git", dir); err != nil {
			t.Fatal(err, out)
		}
		if sent := w.sent.Swap(0); (sent > bigFile) != (i == 0 || i == mostMirrored) {
			t.Errorf("clone %d: the forge sent %d bytes: %s", i, sent, told())
		}
	}
	run, told = w.run("f", forgeToken)
	for _, args := range [][]string{{"--no-single-branch"}, {"--filter=blob:none"}, {"--depth=2"}, {"-c", "protocol.version=0", "--depth=1"}} {
		dir := filepath.Join(t.TempDir(), "clone")
		args = append(append([]string{"clone", "-q"}, args...), w.forge.URL+"/example/app.git", dir)
		if out, err := run.git(w.root, args...); err != nil || told() != "" {
			t.Error(args, err, out, told())
		}
	}
	id := strings.Repeat("a", 40)
	good := string(encodeAsk(id))
	if wants := readAsk([]byte(good)); !slices.Equal(wants, []string{id}) {
		t.Error("a request is not read as it was written:", wants)
	}
	for _, line := range []string{"have " + id, "shallow " + id, "filter blob:none", "want --upload-pack=x", "want-ref refs/heads/main", "deepen 2", "packfile-uris https"} {
		if readAsk([]byte(strings.Replace(good, packet("done\n"), packet(line+"\n")+packet("done\n"), 1))) != nil {
			t.Error("a mirror answers", line)
		}
	}
	for _, line := range []string{"command=fetch\n", "deepen 1\n", "done\n", "want " + id + "\n"} {
		if readAsk([]byte(strings.Replace(good, packet(line), "", 1))) != nil {
			t.Error("a mirror answers without", line)
		}
	}
	for n := range good {
		readAsk([]byte(good[:n])) // does not panic
	}
}

// TestMirrorSubmodule: a submodule that is a repository of the run has a mirror, too.
func TestMirrorSubmodule(t *testing.T) {
	w := newMirrorWorld(t)
	part := filepath.Join(w.root, "example", "part.git")
	gittest.Git(t, w.root, "init", "-q", "--bare", "-b", "main", part)
	gittest.Git(t, w.work, "push", "-q", part, "main")
	gittest.Git(t, w.work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", part, "part")
	gittest.Git(t, w.work, "config", "-f", ".gitmodules", "submodule.part.url", "../part.git")
	w.commit("small", "two")
	for _, want := range []bool{true, false} {
		run, told := w.run("f", forgeToken)
		before := w.sent.Load()
		dir := filepath.Join(t.TempDir(), "clone")
		if out, err := run.git(w.root, "clone", "-q", "--depth=1", "--recurse-submodules", "--shallow-submodules", w.forge.URL+"/example/app.git", dir); err != nil {
			t.Fatal(err, out)
		}
		w.head(dir)
		w.head(filepath.Join(dir, "part"))
		if sent := w.sent.Load() - before; strings.Count(told(), fromMirror) != 2 || (sent > 2*bigFile) != want || !want && sent > bigFile {
			t.Errorf("the forge sent %d bytes: %s", sent, told())
		}
	}
}

// TestMirrorLarge: a repository that is too large for the disk is cloned without a mirror, and not tried at once again.
func TestMirrorLarge(t *testing.T) {
	w := newMirrorWorld(t)
	w.mirrors.most = bigFile / 2
	for i := range 2 {
		dir, told, sent := w.clone()
		w.head(dir)
		left, err := os.ReadDir(w.mirrors.dir)
		if err != nil || len(left) != 1 || left[0].IsDir() || !strings.Contains(told, "it takes more than") || (sent > bigFile+4096) != (i == 0) {
			t.Error(left, err, told, sent)
		}
	}
}

// BenchmarkMirror clones a repository of 100 MB in turn without a mirror, into a new one and from one, after a
// commit each.
func BenchmarkMirror(b *testing.B) {
	w := newMirrorWorld(b)
	for i := range 1000 {
		text := make([]byte, 100<<10)
		_, _ = rand.Read(text)
		if err := os.WriteFile(filepath.Join(w.work, fmt.Sprint("file", i)), text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	mirrors := w.mirrors
	for n := 0; b.Loop(); n++ {
		for _, way := range []string{"without", "first", "second"} {
			w.commit("small", fmt.Sprint(n, way))
			if w.mirrors = mirrors; way == "without" {
				w.mirrors = nil
			} else if way == "first" {
				if err := os.RemoveAll(mirrors.dir); err != nil {
					b.Fatal(err)
				}
			}
			before, spent := time.Now(), processorTime(b)
			_, _, sent := w.clone()
			b.Logf("%s: %d KiB from the forge, %.1f s, %.1f s of processors", way, sent>>10, time.Since(before).Seconds(), (processorTime(b) - spent).Seconds())
		}
	}
}

// processorTime is what this process and its children that have ended have used.
func processorTime(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum
}
