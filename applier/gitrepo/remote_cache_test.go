package gitrepo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"triphammer/applier/gitrepo/gittest"
)

// sizeOf is what the files under a folder hold, in bytes.
func sizeOf(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				total += info.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// pushCost fetches a repository with one large file and many small ones, and then
// a few pushes of one line each: over https and ssh, with git itself beside it. It
// fails if a push costs more than git's, over the wire or in the cache.
func pushCost(t *testing.T, large, files, pushes int) {
	bare, work := clone(t, "main")
	runGit(t, work, "config", "core.bigFileThreshold", "1m") // the push need not look for what is alike
	noise := make([]byte, large)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(work, "movie"), string(noise))
	for n := range files {
		write(t, filepath.Join(work, fmt.Sprintf("src/%02d/%d", n%40, n)), fmt.Sprintf("file %x\n", noise[n:n+20]))
	}
	head := commit(t, work, "Much")
	runGit(t, work, "push", "-q", "origin", "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	t.Setenv("GIT_SSL_CAINFO", s.CAFile)
	dir := t.TempDir()
	key, hostKey, known := filepath.Join(dir, "key"), filepath.Join(dir, "host"), filepath.Join(dir, "known_hosts")
	hostPublic := gittest.Key(t, hostKey)
	overSSH := gittest.Tap(t, gittest.SSH(t, gittest.Key(t, key), hostKey))
	host, port, _ := net.SplitHostPort(overSSH.Address)
	write(t, known, "["+host+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(hostPublic)))
	overHTTPS, overGit := gittest.Tap(t, s.Listener.Addr().String()), gittest.Tap(t, s.Listener.Addr().String())
	for _, filter := range []string{"false", "true"} {
		runGit(t, bare, "config", "uploadpack.allowFilter", filter)
		git := filepath.Join(t.TempDir(), "git")
		runGit(t, dir, "init", "-q", "--bare", git)
		fetch := func() {
			runGit(t, git, "-c", "gc.auto=0", "fetch", "-q", "--depth=1", "https://"+overGit.Address+"/factory.git", "+main:main")
		}
		ways := []struct {
			name string
			wire *gittest.Wire
			*Remote
		}{
			{"https", overHTTPS, remote(t, RemoteConfig{URL: "https://" + overHTTPS.Address + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})},
			{"ssh", overSSH, remote(t, RemoteConfig{URL: "ssh://git@" + overSSH.Address + bare, Credentials: Credentials{SSHKey: key, KnownHosts: known}})},
		}
		fetch()
		for _, w := range ways {
			remoteHead(t, w.Remote, head)
			if first := sizeOf(t, w.Cache); (first > int64(large)) != (filter == "false") {
				t.Fatalf("filter %s: the first fetch over %s left %d bytes", filter, w.name, first)
			}
		}
		for n := range pushes {
			write(t, filepath.Join(work, "note"), fmt.Sprint(filter, n))
			head = commit(t, work, "One line")
			runGit(t, work, "push", "-q", "origin", "main")
			sent, kept := overGit.Bytes.Load(), sizeOf(t, git)
			fetch()
			sent, kept = overGit.Bytes.Load()-sent, sizeOf(t, git)-kept
			t.Logf("filter %s, push %d: git fetch --depth 1 received %d bytes and stored %d", filter, n, sent, kept)
			for _, w := range ways {
				sentHere, keptHere := w.wire.Bytes.Load(), sizeOf(t, w.Cache)
				remoteHead(t, w.Remote, head)
				sentHere, keptHere = w.wire.Bytes.Load()-sentHere, sizeOf(t, w.Cache)-keptHere
				t.Logf("filter %s, push %d: over %s received %d bytes and stored %d", filter, n, w.name, sentHere, keptHere)
				// The handshakes differ a little.
				if sentHere > sent+4<<10 || keptHere > kept+4<<10 {
					t.Errorf("filter %s: a push of one line cost %d bytes over %s and %d in the cache; git fetch --depth 1 %d and %d", filter, sentHere, w.name, keptHere, sent, kept)
				}
			}
		}
		for _, w := range ways {
			if filter == "false" { // else the large file is not there
				runGit(t, w.Cache, "fsck", "--full", "--connectivity-only")
			}
		}
	}
}

// TestPushCost: a push costs what has changed.
func TestPushCost(t *testing.T) { pushCost(t, 2*tooBig, 200, 1) }

// TestCache: the cache is disposable. Whatever is done to it, what it should give
// is fetched again, and it does not grow for ever.
func TestCache(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
	packs := func() []string {
		all, _ := filepath.Glob(filepath.Join(r.Cache, "objects/pack/*.pack"))
		return all
	}
	each := func(change func(path string) error) {
		for _, p := range packs() {
			if err := errors.Join(os.Chmod(p, 0o600), change(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remoteHead(t, r, head)
	for name, harm := range map[string]func(){
		"removed":   func() { _ = os.RemoveAll(r.Cache) },
		"no HEAD":   func() { _ = os.Remove(filepath.Join(r.Cache, "HEAD")) },
		"no packs":  func() { each(os.Remove) },
		"empty":     func() { each(func(p string) error { return os.Truncate(p, 0) }) },
		"cut":       func() { each(func(p string) error { return os.Truncate(p, 60) }) },
		"bad index": func() { each(func(p string) error { return os.Remove(strings.TrimSuffix(p, "pack") + "idx") }) },
		"bad configuration": func() {
			write(t, filepath.Join(r.Cache, "config"), "[core\n")
		},
		"bad shallow": func() { write(t, filepath.Join(r.Cache, "shallow"), "what\n") },
	} {
		harm()
		c, err := r.Head(t.Context())
		if err != nil || c.Hash != head {
			t.Errorf("%s: head %s, %v", name, c.Hash, err)
			continue
		}
		remoteHead(t, r, head)
	}
	// What is noticed only when it is read: all but the commit itself is wrong.
	commitOnly := filepath.Join(t.TempDir(), "x")
	write(t, commitOnly, head)
	raw := runGit(t, work, "cat-file", "commit", head) + "\n"
	each(os.Remove)
	text := filepath.Join(t.TempDir(), "commit")
	write(t, text, raw)
	if got := runGit(t, r.Cache, "hash-object", "-t", "commit", "-w", "--literally", text); got != head {
		t.Fatalf("the commit became %s", got)
	}
	if _, err := r.Head(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tree(t.Context(), head, "."); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a cache without the trees: %v", err)
	}
	remoteHead(t, r, head)

	if got := packs(); len(got) != 1 {
		t.Errorf("the cache holds the packs %v", got)
	}
}

// TestCacheGrowth: what pushes leave in the cache is bounded, in bytes and in
// files, as is what attempts leave that were cut off.
func TestCacheGrowth(t *testing.T) {
	bare, work := clone(t, "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
	remoteHead(t, r, runGit(t, work, "rev-parse", "HEAD"))
	noise := make([]byte, 4<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	push := func() (head string, s stored) {
		t.Helper()
		write(t, filepath.Join(work, "note"), fmt.Sprint(time.Now()))
		head = commit(t, work, "Next")
		runGit(t, work, "push", "-q", "origin", "main")
		remoteHead(t, r, head)
		s, err := r.stored()
		if err != nil {
			t.Fatal(err)
		}
		return head, s
	}
	if _, s := push(); len(s.packs) != 1 || len(s.loose) != 3 {
		t.Errorf("after a push: %+v", s)
	}
	for name, grow := range map[string]func(){
		"large": func() {
			for n := range 5 {
				write(t, filepath.Join(r.Cache, "objects/00", fmt.Sprintf("%038d", n)), string(noise))
			}
		},
		"many": func() {
			for n := range maxLoose {
				write(t, filepath.Join(r.Cache, "objects/00", fmt.Sprintf("%038d", n)), "")
			}
		},
		"packs": func() { // of a version before this one
			runGit(t, r.Cache, "repack", "-q", "-a")
		},
	} {
		push()
		grow()
		if before, err := r.stored(); err != nil || !before.overgrown() {
			t.Errorf("%s: %d packs, %d objects, %v", name, len(before.packs), len(before.loose), err)
		}
		if _, s := push(); len(s.packs) != 1 || len(s.loose) != 0 {
			t.Errorf("%s: afterwards there are %+v", name, s)
		}
	}

	// A connection that breaks leaves the cache as it was, and no part of a pack.
	before := sizeOf(t, r.Cache)
	write(t, filepath.Join(work, "movie"), string(noise))
	head := commit(t, work, "Next")
	runGit(t, work, "push", "-q", "origin", "main")
	for _, grown := range []bool{false, true} {
		if grown { // then everything is fetched, and stored as a pack
			write(t, filepath.Join(r.Cache, "objects/pack/pack-0000000000000000000000000000000000000000.pack"), "another")
		}
		s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				s.Backend.ServeHTTP(&broken{w, 1 << 20}, r)
			}
			return strings.HasSuffix(r.URL.Path, "/git-upload-pack")
		})
		for range 2 {
			refused(t, r, ErrUnreachable, r.url)
		}
		s.Fault(nil)
		if left := sizeOf(t, r.Cache) - before; left > 3<<19 {
			t.Errorf("broken connections left %d bytes", left)
		}
	}
	remoteHead(t, r, head)
	if stored, err := r.stored(); err != nil || len(stored.packs) != 1 || len(stored.loose) != 0 {
		t.Errorf("the cache was not made anew: %+v, %v", stored, err)
	}
	if out := runGit(t, r.Cache, "fsck", "--full"); strings.Contains(out, "missing") {
		t.Errorf("fsck of the cache: %s", out)
	}
}

// broken is an answer that ends after some bytes, with its connection.
type broken struct {
	http.ResponseWriter
	left int
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return b.ResponseWriter.Write(p)
}

// TestBigFiles: of a repository with large files only the others are fetched,
// where the server knows how. A large file in a definition's place is told by its
// size, and the cache that lacks one is not taken for a whole one.
func TestBigFiles(t *testing.T) {
	bare, work := clone(t, "main")
	noise := make([]byte, 3*tooBig)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(work, "movie"), string(noise))
	write(t, filepath.Join(work, "webhooks/big.yaml"), string(noise[:2*tooBig]))
	write(t, filepath.Join(work, "webhooks/small.yaml"), "secretName: S\n")
	head := commit(t, work, "Big")
	runGit(t, work, "push", "-q", "origin", "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	for _, knows := range []string{"false", "true"} {
		runGit(t, bare, "config", "uploadpack.allowFilter", knows)
		r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
		sizes := func() (big, small int64, err error) {
			t.Helper()
			remoteHead(t, r, head)
			tree, err := r.Tree(t.Context(), head, "webhooks")
			if err != nil {
				t.Fatal(err)
			}
			for name, size := range map[string]*int64{"big.yaml": &big, "small.yaml": &small} {
				info, statErr := fs.Stat(tree, name)
				if statErr != nil {
					err = statErr
					continue
				}
				*size = info.Size()
			}
			return big, small, err
		}
		if big, small, err := sizes(); err != nil || big < tooBig || small != 14 {
			t.Errorf("filter %s: %d, %d, %v", knows, big, small, err)
		}
		var cached int64
		err := filepath.WalkDir(r.Cache, func(_ string, d fs.DirEntry, err error) error {
			if info, infoErr := d.Info(); infoErr == nil {
				cached += info.Size()
			}
			return err
		})
		if err != nil || (cached < tooBig) != (knows == "true") {
			t.Errorf("filter %s: the cache has %d bytes, %v", knows, cached, err)
		}
		// The next commit comes without what was there before. Whether the large file
		// is missing or was left out shows when everything is fetched anew.
		write(t, filepath.Join(work, "note"), knows)
		head = commit(t, work, "More")
		runGit(t, work, "push", "-q", "origin", "main")
		big, small, err := sizes()
		if knows == "true" {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("a cache that lacks a file: %d, %v", big, err)
			}
			big, small, err = sizes()
		}
		if err != nil || big < tooBig || small != 14 {
			t.Errorf("filter %s, then: %d, %d, %v", knows, big, small, err)
		}
	}
}
