package gitrepo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"triphammer/applier/gitrepo/gittest"
)

const canary = "tok3n-c4nary"

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, token+"\n")
	return file
}

func remote(t *testing.T, cfg RemoteConfig) *Remote {
	t.Helper()
	if cfg.Branch == "" {
		cfg.Branch = "main"
	}
	if cfg.Cache == "" {
		cfg.Cache = filepath.Join(t.TempDir(), "cache")
	}
	r, err := OpenRemote(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func remoteHead(t *testing.T, r *Remote, want string) {
	t.Helper()
	c, err := r.Head(t.Context())
	if err != nil || c.Hash != want {
		t.Fatalf("head %s, %v; want %s", c.Hash, err, want)
	}
	tree, err := r.Tree(t.Context(), want, ".")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(tree, "factory.yaml"); err != nil || !bytes.Contains(text, []byte("schemaVersion")) {
		t.Fatalf("factory.yaml is %q, %v", text, err)
	}
}

func refused(t *testing.T, r *Remote, want error, text string) {
	t.Helper()
	c, err := r.Head(t.Context())
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("head %q, %v; want %v with %q", c.Hash, err, want, text)
	}
	if err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("the error shows the credential: %v", err)
	}
}

// TestHTTPS: a branch is followed over https whatever happens to it, with each
// kind of credential, which is read at each attempt and is nowhere in the cache
// (SPEC 4.1, 4.8, 4.9).
func TestHTTPS(t *testing.T) {
	const branch = "release/2026"
	bare, work := clone(t, branch)
	s := gittest.Serve(t, filepath.Dir(bare))
	file := tokenFile(t, canary)
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Branch: branch, Credentials: Credentials{TokenFile: file, CAFile: s.CAFile}})
	s.Basic("", canary)
	first := runGit(t, work, "rev-parse", "HEAD")
	remoteHead(t, r, first)
	if repository, b := r.Describe(); repository != s.URL+"/factory.git" || b != branch {
		t.Errorf("described as %s %s", repository, b)
	}

	s.Bearer(canary)
	write(t, filepath.Join(work, "webhooks/a.yaml"), "secretName: S\n")
	second := commit(t, work, "Second")
	runGit(t, work, "push", "-q", "origin", branch)
	remoteHead(t, r, second)
	if n := runGit(t, r.Cache, "rev-list", "--count", branch); n != "1" {
		t.Errorf("the cache holds %s commits of history", n)
	}
	if out := runGit(t, r.Cache, "fsck", "--full"); strings.Contains(out, "missing") {
		t.Errorf("fsck of the cache: %s", out)
	}

	runGit(t, work, "reset", "-q", "--hard", "HEAD~1")
	forced := commit(t, work, "Forced")
	runGit(t, work, "push", "-qf", "origin", branch)
	remoteHead(t, r, forced)
	runGit(t, bare, "gc", "-q", "--prune=now")
	remoteHead(t, r, forced)
	runGit(t, work, "push", "-qf", "origin", first+":refs/heads/"+branch)
	remoteHead(t, r, first) // back to what the server holds, and the cache held once

	runGit(t, work, "push", "-q", "origin", first+":refs/heads/other")
	runGit(t, bare, "update-ref", "-d", "refs/heads/"+branch)
	refused(t, r, ErrNoBranch, "it has other")
	runGit(t, work, "push", "-q", "origin", forced+":refs/heads/"+branch)
	remoteHead(t, r, forced)

	// Credentials: refused, rotated, unreadable.
	s.Basic("deploy", "rotated")
	refused(t, r, ErrDenied, "--git-token-file")
	write(t, file, "rotated")
	refused(t, r, ErrDenied, "--git-username")
	r.Username = "deploy"
	remoteHead(t, r, forced)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused(t, r, ErrMisconfigured, "put the token there")
	r.TokenFile = ""
	refused(t, r, ErrDenied, "give --git-token-file")
	write(t, file, canary+"\n"+canary)
	r.TokenFile = file
	refused(t, r, ErrMisconfigured, "one line")

	err := filepath.WalkDir(r.Cache, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(s.URL)) {
			t.Errorf("%s names the remote or its credential", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// commitTo makes a commit in a bare repository.
func commitTo(t *testing.T, bare string) {
	t.Helper()
	tree := runGit(t, bare, "write-tree")
	runGit(t, bare, "update-ref", "HEAD", runGit(t, bare, "commit-tree", "-m", "x", tree))
}

// TestHTTPSFailures: whatever a server does, the error says what is wrong and
// what to do, and the next good answer heals it.
func TestHTTPSFailures(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	s.Basic("", canary)
	cfg := RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{TokenFile: tokenFile(t, canary), CAFile: s.CAFile}}

	other := cfg
	other.CAFile = ""
	refused(t, remote(t, other), ErrUnreachable, "certificate")
	other.CAFile = other.TokenFile
	refused(t, remote(t, other), ErrMisconfigured, "no certificate")
	other = cfg
	other.URL = s.URL + "/none.git"
	refused(t, remote(t, other), ErrDenied, "no repository at "+other.URL)
	runGit(t, filepath.Dir(bare), "init", "-q", "--bare", "empty.git")
	other.URL = s.URL + "/empty.git"
	refused(t, remote(t, other), ErrEmpty, "waits for the first push")

	runGit(t, filepath.Dir(bare), "init", "-q", "--bare", "--object-format=sha256", "new.git")
	other.URL = s.URL + "/new.git"
	refused(t, remote(t, other), ErrEmpty, "first push") // nothing tells them apart yet
	commitTo(t, filepath.Join(filepath.Dir(bare), "new.git"))
	refused(t, remote(t, other), ErrUnsupported, "SHA-256")
	for kind, text := range map[string]string{"text/html; charset=utf-8": "with a web page", "text/plain": `with "text/plain"`, "": "not as a Git repository"} {
		r := remote(t, cfg)
		for _, at := range []string{"/info/refs", "/git-upload-pack"} {
			s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, at) {
					w.Header()["Content-Type"] = []string{kind}
					_, _ = w.Write([]byte("<!DOCTYPE html><title>Sign in</title>"))
				}
				return strings.HasSuffix(r.URL.Path, at)
			})
			refused(t, r, ErrNoRepository, text)
		}
		s.Fault(nil)
		remoteHead(t, r, head)
	}

	// A server that redirects does not get the credential at its other address.
	elsewhere := gittest.Serve(t, filepath.Dir(bare))
	elsewhere.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("a redirect was followed: %s", r.URL)
		return false
	})
	r := remote(t, cfg)
	s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
		return true
	})
	refused(t, r, ErrUnreachable, "moved to "+elsewhere.URL+"/factory.git")

	for name, fault := range map[string]func(http.ResponseWriter){
		"nonsense":     func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>hello</html>")) },
		"nothing":      func(http.ResponseWriter) {},
		"an error":     func(w http.ResponseWriter) { http.Error(w, "out of order", http.StatusServiceUnavailable) },
		"a broken end": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		for _, at := range []string{"/info/refs", "/git-upload-pack"} {
			if err := os.RemoveAll(r.Cache); err != nil {
				t.Fatal(err)
			}
			s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, at) {
					return false
				}
				fault(w)
				return true
			})
			if _, err := r.Head(t.Context()); err == nil {
				t.Errorf("%s at %s is no error", name, at)
			}
			s.Fault(nil)
			remoteHead(t, r, head)
		}
	}

	// Whoever waits for a server that says nothing can stop waiting.
	release := make(chan struct{})
	defer close(release)
	asked := make(chan struct{}, 10)
	s.Fault(func(http.ResponseWriter, *http.Request) bool { asked <- struct{}{}; <-release; return true })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Head(ctx); done <- err }()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

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

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.com/team/f.git":            "",
		"https://example.com:8443/f":                "",
		"ssh://git@example.com:2222/f.git":          "",
		"ssh://example.com/f.git":                   "",
		"git@example.com:team/f.git":                "",
		"http://127.0.0.1:3000/f.git":               "",
		"http://localhost/f.git":                    "",
		"https://ada@example.com/f.git":             "--git-token-file",
		"https://ada:" + canary + "@example.com/f":  "--git-token-file",
		"ssh://git:" + canary + "@example.com/f":    "credential",
		"http://example.com/f.git":                  "use https",
		"git://example.com/f.git":                   "https or ssh",
		"ext::sh -c true":                           "",
		"https://example.com":                       "names no repository",
		"https:///f.git":                            "names no repository",
		"ssh://-oProxyCommand=x/f":                  "names no repository",
		"https://example.com/f.git?token=" + canary: "after ?",
		"https://example.com/%zz":                   "cannot be read",
	} {
		_, err := parseRemote(address)
		switch {
		case address == "ext::sh -c true": // the host ext, the path :sh -c true: no command
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error shows the credential: %v", address, err)
		}
	}
	for name, want := range map[string]bool{
		"/srv/f.git": false, ".": false, "f.git": false, "a/b:c": false, "file:///srv/f.git": false, "git@h:f": true, "https://h/f": true, "h:f": true,
	} {
		if IsRemote(name) != want {
			t.Errorf("IsRemote(%q) is not %t", name, want)
		}
	}
	if _, err := OpenRemote(RemoteConfig{URL: "https://h/f", Branch: "a..b"}); err == nil {
		t.Error("a..b is a branch name")
	}
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

// FuzzAddress: no address makes the parser fall over, and a password in one is
// neither taken nor repeated.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"https://example.com/f", "git@example.com:f", "ssh://a:b@c/d", "::", "a@b@c:d", "https://[::1]:x/f", "://", "%:/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		u, err := parseRemote(address)
		if err == nil {
			if _, has := u.User.Password(); has || u.Hostname() == "" || u.Scheme != "ssh" && u.User != nil {
				t.Errorf("%q became %q", address, u)
			}
			if again, err := parseRemote(u.String()); err != nil || again.String() != u.String() {
				t.Errorf("%q became %q, and that %v, %v", address, u, again, err)
			}
		}
		if _, err := parseRemote("https://user:" + canary + "@" + address); err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("the error shows the credential: %v", err)
		}
	})
}

// TestPublishedHosts: the keys that are shipped are those of which the services
// publish these fingerprints.
func TestPublishedHosts(t *testing.T) {
	published := map[string]bool{}
	for line := range strings.Lines(string(publishedHosts)) {
		if text, ok := strings.CutPrefix(line, "#   SHA256:"); ok {
			published["SHA256:"+strings.Fields(text)[0]] = true
		}
	}
	hosts := map[string]int{}
	for rest := publishedHosts; ; {
		_, names, key, _, more, err := ssh.ParseKnownHosts(rest)
		if err != nil {
			break
		}
		if print := ssh.FingerprintSHA256(key); !published[print] {
			t.Errorf("%s has a key %s of which nothing is published", names[0], print)
		}
		hosts[names[0]]++
		rest = more
	}
	if fmt.Sprint(hosts) != "map[bitbucket.org:3 github.com:3 gitlab.com:3]" || len(published) != 9 {
		t.Errorf("hosts %v", hosts)
	}
	_, algorithms, err := Credentials{}.hostKeys("github.com:22", t.TempDir())
	if err != nil || fmt.Sprint(algorithms) != "[ecdsa-sha2-nistp256 rsa-sha2-256 rsa-sha2-512 ssh-ed25519]" {
		t.Errorf("algorithms of github.com: %v, %v", algorithms, err)
	}
}

// sshWorld is what checkSSH needs of a server: its address, a key that it lets
// in, and its host key's line for known_hosts.
type sshWorld struct{ address, user, key, known string }

// checkSSH follows a branch over ssh, and is let in nowhere else (SPEC 4.1, 4.9).
func checkSSH(t *testing.T, bare, work string, w sshWorld) {
	t.Helper()
	head := runGit(t, work, "rev-parse", "HEAD")
	good := RemoteConfig{URL: "ssh://" + w.user + "@" + w.address + bare, Credentials: Credentials{SSHKey: w.key, KnownHosts: w.known}}
	r := remote(t, good)
	remoteHead(t, r, head)
	for n := range 3 {
		write(t, filepath.Join(work, "note"), fmt.Sprint(n))
		head = commit(t, work, "More")
		runGit(t, work, "push", "-qf", "origin", "main")
		remoteHead(t, r, head)
	}
	if repository, _ := r.Describe(); repository != good.URL {
		t.Errorf("described as %s", repository)
	}
	with := func(change func(*RemoteConfig)) *Remote {
		cfg := good
		change(&cfg)
		return remote(t, cfg)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	public := gittest.Key(t, other)
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = other }), ErrDenied, "--git-ssh-key")
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = w.known }), ErrMisconfigured, "is not a private key")
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = "" }), ErrUnreachable, "is not known: it shows ")
	wrong := filepath.Join(dir, "known_hosts")
	host, port, _ := net.SplitHostPort(w.address)
	write(t, wrong, "["+host+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(public)))
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = wrong }), ErrUnreachable, "is not the known one")
	refused(t, with(func(c *RemoteConfig) { c.URL += "/none.git" }), ErrDenied, "there is no repository at ssh://")
	refused(t, with(func(c *RemoteConfig) { c.KnownHosts = dir }), ErrMisconfigured, "--git-known-hosts")
	runGit(t, dir, "init", "-q", "--bare", "--object-format=sha256", "new.git")
	newer := with(func(c *RemoteConfig) { c.URL = "ssh://" + w.user + "@" + w.address + dir + "/new.git" })
	refused(t, newer, ErrEmpty, "first push") // nothing tells them apart yet
	commitTo(t, filepath.Join(dir, "new.git"))
	refused(t, newer, ErrUnsupported, "SHA-256")
	runGit(t, dir, "init", "-q", "--bare", "it's empty.git")
	refused(t, with(func(c *RemoteConfig) { c.URL = "ssh://" + w.user + "@" + w.address + dir + "/it's empty.git" }), ErrEmpty, "first push")
	t.Setenv("SSH_AUTH_SOCK", "")
	refused(t, with(func(c *RemoteConfig) { c.SSHKey = "" }), ErrMisconfigured, "--git-ssh-key")
	agent := filepath.Join(dir, "agent")
	startAgent(t, agent, w.key)
	t.Setenv("SSH_AUTH_SOCK", agent)
	remoteHead(t, with(func(c *RemoteConfig) { c.SSHKey = "" }), head)
}

func TestSSH(t *testing.T) {
	bare, work := clone(t, "main")
	dir := t.TempDir()
	key, hostKey, known := filepath.Join(dir, "key"), filepath.Join(dir, "host"), filepath.Join(dir, "known_hosts")
	hostPublic := gittest.Key(t, hostKey)
	address := gittest.SSH(t, gittest.Key(t, key), hostKey)
	host, port, _ := net.SplitHostPort(address)
	write(t, known, "["+host+"]:"+port+" "+string(ssh.MarshalAuthorizedKey(hostPublic)))
	checkSSH(t, bare, work, sshWorld{address, "git", key, known})
}

// TestSSHSilence: a server that takes the connection and says nothing holds
// nobody who stops waiting.
func TestSSHSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	key := filepath.Join(t.TempDir(), "key")
	gittest.Key(t, key)
	r := remote(t, RemoteConfig{URL: "ssh://" + l.Addr().String() + "/f.git", Credentials: Credentials{SSHKey: key}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.Head(ctx); done <- err }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestImpatient: a connection on which nothing comes for a while is given up,
// however long it has lasted.
func TestImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := &impatient{here, time.Minute, &atomic.Int64{}}
		go func() {
			for range 3 {
				time.Sleep(50 * time.Second)
				_, _ = there.Write([]byte("x"))
			}
		}()
		buf := make([]byte, 1)
		for range 3 {
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silence: %v", err)
		}
		if _, err := c.Write(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("nobody reads: %v", err)
		}
	})
}

// TestTrickle: a server that never falls silent and gets nowhere holds up a look
// for its time and no longer, over https and ssh alike.
func TestTrickle(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Timeout: 500 * time.Millisecond, Credentials: Credentials{CAFile: s.CAFile}})
	for _, at := range []string{"/info/refs", "/git-upload-pack"} {
		s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, at) {
				return false
			}
			w.Header().Set("Content-Type", map[string]string{
				"/info/refs": "application/x-git-upload-pack-advertisement", "/git-upload-pack": "application/x-git-upload-pack-result",
			}[at])
			_, _ = w.Write([]byte("fff0")) // the length of a line
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-r.Context().Done():
					return true
				case <-tick.C:
					_, _ = w.Write([]byte("x"))
					_ = http.NewResponseController(w).Flush()
				}
			}
		})
		refused(t, r, ErrUnreachable, "given up after ")
		s.Fault(nil)
		remoteHead(t, r, head)
		if err := r.discard(); err != nil {
			t.Fatal(err)
		}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := conn.Write([]byte("a greeting\r\n")); err != nil {
				return
			}
		}
	})
	key := filepath.Join(t.TempDir(), "key")
	gittest.Key(t, key)
	refused(t, remote(t, RemoteConfig{URL: "ssh://" + l.Addr().String() + "/f.git", Timeout: 500 * time.Millisecond, Credentials: Credentials{SSHKey: key}}), ErrUnreachable, l.Addr().String())
}

// TestSlowIsNotTooSlow: what moves on may take its time, but not for ever.
func TestSlowIsNotTooSlow(t *testing.T) {
	for name, c := range map[string]struct {
		rate int64 // bytes a second
		want time.Duration
	}{
		"silent": {0, lookTime}, "a trickle": {500, lookTime}, "almost": {goodRate / 2, lookTime}, "steady": {goodRate * 2, maxLook}, "fast": {10 << 20, maxLook},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := remote(t, RemoteConfig{URL: "https://example.com/f.git", Cache: "/nowhere"})
			ctx, cancel := context.WithCancel(t.Context())
			var receiving sync.WaitGroup
			defer receiving.Wait()
			defer cancel()
			receiving.Go(func() {
				for ctx.Err() == nil {
					r.received.Add(c.rate)
					time.Sleep(time.Second)
				}
			})
			began := time.Now()
			err := r.tooSlow(ctx)
			if took := time.Since(began); !errors.Is(err, ErrUnreachable) || took < c.want || took > c.want+lookTime {
				t.Errorf("%s: given up after %s: %v", name, took, err)
			}
			minute, end := context.WithTimeout(ctx, time.Minute)
			defer end()
			if err := r.tooSlow(minute); err != nil {
				t.Errorf("%s: an attempt that ended: %v", name, err)
			}
		})
	}
}

// TestRemoteWatch: a look at once, then one a minute, never quite on the minute.
func TestRemoteWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := remote(t, RemoteConfig{URL: "https://example.com/f.git", Cache: "/nowhere"})
		ctx, cancel := context.WithCancel(t.Context())
		var looks []time.Duration
		begin, done := time.Now(), make(chan error, 1)
		go func() { done <- r.Watch(ctx, func() { looks = append(looks, time.Since(begin)) }) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if looks[0] != 0 || len(looks) < 54 || len(looks) > 68 {
			t.Errorf("%d looks in an hour", len(looks))
		}
		gaps := map[time.Duration]bool{}
		for i, at := range looks[1:] {
			gap := at - looks[i]
			if gap < 54*time.Second || gap > 66*time.Second {
				t.Errorf("a gap of %s", gap)
			}
			gaps[gap] = true
		}
		if len(gaps) < 10 {
			t.Error("the looks do not vary")
		}
	})
}
